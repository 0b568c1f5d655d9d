#include "tests/cluster/nemesis/checker.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define FINDINGS_OF_A_KIND_MAX 10
#define NOWHERE (-1)

/* First places in the log by sequence, of one producer in one partition. */
struct places {
    int64_t *at;
    int64_t room;
    int64_t newest; /* highest sequence so far; NOWHERE: none */
    int64_t acknowledged; /* highest acknowledged offset below the sequences looked at */
};

struct partition_log {
    struct trail_entry *records; /* by rising offset */
    size_t count;
    size_t room;
    int64_t start, asked, confirmed; /* of deletions */
    struct places *places; /* by producer */
    int32_t places_count;
};

struct checker {
    int32_t partitions;
    struct partition_log *logs;
    struct trail acknowledged;
    struct trail *readers;
    size_t readers_count;
    struct trail *groups; /* members in one, one behind the other */
    size_t groups_count;
    struct verdict verdict;
    FILE *findings;
};

static void *grow(void *array, size_t count, size_t bytes)
{
    void *grown = realloc(array, count * bytes);
    if (!grown)
        abort();
    return grown;
}

struct checker *checker_new(int32_t partitions)
{
    struct checker *c = calloc(1, sizeof *c);
    if (!c || !(c->logs = calloc((size_t)partitions, sizeof *c->logs)))
        abort();
    c->partitions = partitions;
    return c;
}

void checker_free(struct checker *c)
{
    if (!c)
        return;
    for (int32_t p = 0; p < c->partitions; p++) {
        for (int32_t i = 0; i < c->logs[p].places_count; i++)
            free(c->logs[p].places[i].at);
        free(c->logs[p].places);
        free(c->logs[p].records);
    }
    for (size_t i = 0; i < c->readers_count; i++)
        trail_done(&c->readers[i]);
    for (size_t i = 0; i < c->groups_count; i++)
        trail_done(&c->groups[i]);
    trail_done(&c->acknowledged);
    free(c->readers);
    free(c->groups);
    free(c->logs);
    free(c);
}

/* ---- histories -------------------------------------------------------------------------------------------------- */

void checker_log(struct checker *c, struct trail_entry entry)
{
    if (entry.partition < 0 || entry.partition >= c->partitions)
        abort();
    struct partition_log *log = &c->logs[entry.partition];
    if (log->count == log->room)
        log->records = grow(log->records, log->room = log->room ? 2 * log->room : 1024, sizeof *log->records);
    log->records[log->count++] = entry;
}

void checker_start(struct checker *c, int32_t partition, int64_t start, int64_t asked, int64_t confirmed)
{
    if (partition < 0 || partition >= c->partitions)
        abort();
    struct partition_log *log = &c->logs[partition];
    log->start = start;
    log->asked = asked;
    log->confirmed = confirmed;
}

static void append(const struct checker *c, struct trail *to, const struct trail *from)
{
    for (size_t i = 0; i < from->count; i++) {
        if (from->entries[i].partition < 0 || from->entries[i].partition >= c->partitions)
            abort();
        trail_add(to, from->entries[i]);
    }
}

void checker_acknowledged(struct checker *c, const struct trail *trail)
{
    append(c, &c->acknowledged, trail);
}

void checker_reader(struct checker *c, const struct trail *trail)
{
    c->readers = grow(c->readers, c->readers_count + 1, sizeof *c->readers);
    c->readers[c->readers_count] = (struct trail){0};
    append(c, &c->readers[c->readers_count++], trail);
}

void checker_group(struct checker *c, const struct trail *trails, size_t count)
{
    c->groups = grow(c->groups, c->groups_count + 1, sizeof *c->groups);
    c->groups[c->groups_count] = (struct trail){0};
    for (size_t i = 0; i < count; i++)
        append(c, &c->groups[c->groups_count], &trails[i]);
    c->groups_count++;
}

/* ---- judging ---------------------------------------------------------------------------------------------------- */

static void find(struct checker *c, int64_t *count, const char *what, const struct trail_entry *e)
{
    if (++*count <= FINDINGS_OF_A_KIND_MAX && c->findings)
        fprintf(c->findings, "%s: partition %" PRId32 " offset %" PRId64 " producer %" PRId32 " sequence %" PRId64 "\n",
                what, e->partition, e->offset, e->producer, e->sequence);
}

static struct places *places_of(struct partition_log *log, int32_t producer)
{
    if (producer >= log->places_count) {
        log->places = grow(log->places, (size_t)producer + 1, sizeof *log->places);
        for (int32_t i = log->places_count; i <= producer; i++)
            log->places[i] = (struct places){.newest = NOWHERE, .acknowledged = NOWHERE};
        log->places_count = producer + 1;
    }
    return &log->places[producer];
}

static int64_t *place(struct places *places, int64_t sequence)
{
    if (sequence >= places->room) {
        int64_t room = 2 * sequence + 1024;
        places->at = grow(places->at, (size_t)room, sizeof *places->at);
        for (int64_t i = places->room; i < room; i++)
            places->at[i] = NOWHERE;
        places->room = room;
    }
    return &places->at[sequence];
}

static void judge_record(struct checker *c, struct partition_log *log, const struct trail_entry *e)
{
    struct verdict *v = &c->verdict;
    v->in_log++;
    if (e->producer < 0) {
        find(c, &v->foreign, "foreign", e);
        return;
    }
    struct places *places = places_of(log, e->producer);
    int64_t *at = place(places, e->sequence);
    if (*at != NOWHERE) {
        find(c, &v->duplicated, "duplicated", e);
        return;
    }
    *at = e->offset;
    if (e->sequence < places->newest)
        find(c, &v->out_of_order, "out of order", e);
    else
        places->newest = e->sequence;
}

static void judge_start(struct checker *c, int32_t partition)
{
    struct verdict *v = &c->verdict;
    const struct partition_log *log = &c->logs[partition];
    struct trail_entry at = {.partition = partition, .producer = NOWHERE, .sequence = NOWHERE, .offset = log->start};
    v->deleted += log->start;
    if (log->start > log->asked)
        find(c, &v->dropped, "deleted, and nobody asked for it: the log begins", &at);
    if (log->start < log->confirmed)
        find(c, &v->undeleted, "deleted, and there again: the log begins", &at);
}

static const struct trail_entry *record_at(const struct partition_log *log, int64_t offset)
{
    size_t low = 0, high = log->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (log->records[middle].offset < offset)
            low = middle + 1;
        else
            high = middle;
    }
    return low < log->count && log->records[low].offset == offset ? &log->records[low] : NULL;
}

static bool is_there(const struct checker *c, const struct trail_entry *e)
{
    const struct trail_entry *r = record_at(&c->logs[e->partition], e->offset);
    return r && r->producer == e->producer && r->sequence == e->sequence;
}

static int by_sequence(const void *a, const void *b)
{
    const struct trail_entry *x = a, *y = b;
    return (x->sequence > y->sequence) - (x->sequence < y->sequence);
}

static void judge_acknowledged(struct checker *c)
{
    struct verdict *v = &c->verdict;
    if (c->acknowledged.count)
        qsort(c->acknowledged.entries, c->acknowledged.count, sizeof *c->acknowledged.entries, by_sequence);
    for (size_t i = 0; i < c->acknowledged.count; i++) {
        const struct trail_entry *e = &c->acknowledged.entries[i];
        struct places *places = places_of(&c->logs[e->partition], e->producer);
        v->acknowledged++;
        if (*place(places, e->sequence) == NOWHERE)
            find(c, &v->lost, "lost", e);
        if (e->offset < 0)
            continue;
        if (*place(places, e->sequence) != NOWHERE && !is_there(c, e))
            find(c, &v->moved, "moved", e);
        if (e->offset <= places->acknowledged)
            find(c, &v->acknowledged_out_of_order, "acknowledged out of order", e);
        else
            places->acknowledged = e->offset;
    }
}

/* Records of the log in [from, below). */
static int64_t records_between(const struct partition_log *log, int64_t from, int64_t below)
{
    int64_t count = 0;
    for (int64_t offset = from; offset < below; offset++)
        count += record_at(log, offset) != NULL;
    return count;
}

static void judge_reader(struct checker *c, const struct trail *reader)
{
    struct verdict *v = &c->verdict;
    int64_t *next = calloc((size_t)c->partitions, sizeof *next);
    if (!next)
        abort();
    for (size_t i = 0; i < reader->count; i++) {
        const struct trail_entry *e = &reader->entries[i];
        v->seen++;
        if (!is_there(c, e))
            find(c, &v->vanished, "vanished", e);
        if (e->offset < next[e->partition]) {
            find(c, &v->backwards, "backwards", e);
            continue;
        }
        int64_t passed = records_between(&c->logs[e->partition], next[e->partition], e->offset);
        if (passed)
            find(c, &v->skipped, "skipped before", e);
        v->skipped += passed ? passed - 1 : 0;
        next[e->partition] = e->offset + 1;
    }
    for (int32_t p = 0; p < c->partitions; p++)
        for (size_t i = c->logs[p].count; i > 0 && c->logs[p].records[i - 1].offset >= next[p]; i--)
            find(c, &v->skipped, "not reached", &c->logs[p].records[i - 1]);
    free(next);
}

static void judge_group(struct checker *c, const struct trail *group)
{
    struct verdict *v = &c->verdict;
    for (int32_t p = 0; p < c->partitions; p++) {
        struct partition_log *log = &c->logs[p];
        bool *has_seen = calloc(log->count + 1, sizeof *has_seen);
        if (!has_seen)
            abort();
        for (size_t i = 0; i < group->count; i++) {
            const struct trail_entry *e = &group->entries[i];
            if (e->partition != p)
                continue;
            v->seen++;
            if (!is_there(c, e)) {
                find(c, &v->vanished, "vanished, of a group", e);
                continue;
            }
            bool *seen = &has_seen[record_at(log, e->offset) - log->records];
            v->seen_again += *seen;
            *seen = true;
        }
        for (size_t i = 0; i < log->count; i++)
            if (!has_seen[i])
                find(c, &v->missed, "missed by a group", &log->records[i]);
        free(has_seen);
    }
}

const struct verdict *checker_judge(struct checker *c, FILE *findings)
{
    c->findings = findings;
    c->verdict = (struct verdict){0};
    for (int32_t p = 0; p < c->partitions; p++)
        for (size_t i = 0; i < c->logs[p].count; i++)
            judge_record(c, &c->logs[p], &c->logs[p].records[i]);
    for (int32_t p = 0; p < c->partitions; p++)
        judge_start(c, p);
    judge_acknowledged(c);
    for (size_t i = 0; i < c->readers_count; i++)
        judge_reader(c, &c->readers[i]);
    for (size_t i = 0; i < c->groups_count; i++)
        judge_group(c, &c->groups[i]);
    return &c->verdict;
}
