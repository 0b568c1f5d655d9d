#include "tests/cluster/nemesis/watermarks.h"

#include "tests/cluster/nemesis/rules.h"
#include "tests/support/suite.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#define PAUSE_MS 100
#define ANSWER_MS 1000

struct watermarks {
    pthread_t thread;
    bool is_stopped;
    _Atomic bool is_over;
    brook_admin *admin;
    const struct topics *topics;
    FILE *findings;
    int64_t highest[WATERMARKS_PARTITIONS_MAX];
    _Atomic int64_t answers, breaches;
};

static bool ask(struct watermarks *w, int64_t what, int timeout_ms, struct brook_position *positions)
{
    struct brook_error error;
    const struct topics *t = w->topics;
    for (int32_t p = 0; p < t->partitions; p++)
        positions[p] = (struct brook_position){topics_name(t, p), topics_number(t, p), what};
    return brook_admin_list_offsets(w->admin, positions, NULL, (size_t)t->partitions, timeout_ms, &error) == 0;
}

static void take(struct watermarks *w, int32_t partition, int64_t offset)
{
    int64_t highest = w->highest[partition];
    if (offset < 0)
        return;
    w->answers++;
    if (rises(&w->highest[partition], offset))
        return;
    w->breaches++;
    if (w->findings)
        fprintf(w->findings, "high watermark went back: partition %" PRId32 ": %" PRId64 ", then %" PRId64 "\n",
                partition, highest, offset);
}

static void *run(void *arg)
{
    struct watermarks *w = arg;
    struct brook_position positions[WATERMARKS_PARTITIONS_MAX];
    while (!w->is_over) {
        ask(w, BROOK_OFFSET_LATEST, ANSWER_MS, positions);
        for (int32_t p = 0; p < w->topics->partitions; p++)
            take(w, p, positions[p].offset);
        usleep(PAUSE_MS * 1000);
    }
    return NULL;
}

struct watermarks *watermarks_new(const brook_config *config, const struct topics *topics, FILE *findings)
{
    struct brook_error error = {0};
    struct watermarks *w = calloc(1, sizeof *w);
    ck_assert(w && topics->partitions <= WATERMARKS_PARTITIONS_MAX);
    w->topics = topics;
    w->findings = findings;
    ck_assert_msg(brook_admin_new(config, &w->admin, &error) == 0, "%s", error.text);
    ck_assert_int_eq(pthread_create(&w->thread, NULL, run, w), 0);
    return w;
}

void watermarks_highest(struct watermarks *w, int64_t *ret)
{
    for (int32_t p = 0; p < w->topics->partitions; p++)
        ret[p] = w->highest[p];
}

int64_t watermarks_answers(struct watermarks *w)
{
    return w->answers;
}

int64_t watermarks_breaches(struct watermarks *w)
{
    return w->breaches;
}

bool watermarks_ask(struct watermarks *w, int timeout_ms, int64_t *ret)
{
    struct brook_position positions[WATERMARKS_PARTITIONS_MAX];
    bool all = ask(w, BROOK_OFFSET_LATEST, timeout_ms, positions);
    for (int32_t p = 0; p < w->topics->partitions; p++) {
        take(w, p, positions[p].offset);
        ret[p] = positions[p].offset;
    }
    return all;
}

bool watermarks_ask_starts(struct watermarks *w, int timeout_ms, int64_t *ret)
{
    struct brook_position positions[WATERMARKS_PARTITIONS_MAX];
    bool all = ask(w, BROOK_OFFSET_EARLIEST, timeout_ms, positions);
    for (int32_t p = 0; p < w->topics->partitions; p++)
        ret[p] = positions[p].offset;
    return all;
}

void watermarks_stop(struct watermarks *w)
{
    w->is_over = true;
    pthread_join(w->thread, NULL);
    w->is_stopped = true;
}

void watermarks_free(struct watermarks *w)
{
    if (!w)
        return;
    if (!w->is_stopped)
        watermarks_stop(w);
    brook_admin_free(w->admin);
    free(w);
}
