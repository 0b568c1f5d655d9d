#include "coordination/reads.h"

#include "proto/base/err.h"

#include <stddef.h>
#include <stdlib.h>

struct reads_item {
    struct reads *reads;
    size_t index;
};

struct reads {
    struct inbox_item begin;
    struct reads_plan plan;
    size_t asked;
    size_t open;
    int err;
    struct reads_item items[];
};

static void reads_go_on(struct reads *reads);

static void on_answer(void *arg, const struct coordinator_reply *reply)
{
    struct reads_item *item = arg;
    struct reads *reads = item->reads;
    int err = reads->plan.answer(reads->plan.arg, item->index, reply);
    if (err && !reads->err)
        reads->err = err;
    reads->open--;
    reads_go_on(reads);
}

static void ask(struct reads *reads, struct reads_item *item)
{
    const struct reads_plan *plan = &reads->plan;
    struct path path;
    struct coordinator_call call = {.inbox = plan->inbox, .callback = on_answer, .arg = item};
    plan->path(plan->arg, item->index, &path);
    reads->open++;
    if (plan->kind == READS_GET)
        coordinator_get(plan->coordinator, path.text, call);
    else if (plan->kind == READS_CHILDREN)
        coordinator_children(plan->coordinator, path.text, call);
    else
        coordinator_exists(plan->coordinator, path.text, call);
}

static void reads_go_on(struct reads *reads)
{
    while (reads->asked < reads->plan.count && reads->open < READS_IN_FLIGHT_MAX && !reads->err)
        ask(reads, &reads->items[reads->asked++]);
    if (reads->open > 0)
        return;
    reads->plan.end(reads->plan.arg, reads->err);
    free(reads);
}

static void begin(struct inbox_item *item)
{
    reads_go_on(CONTAINER_OF(item, struct reads, begin));
}

int reads_start(const struct reads_plan *plan)
{
    struct reads *reads = calloc(1, sizeof *reads + plan->count * sizeof *reads->items);
    if (!reads)
        return -BROOK_E_NOMEM;
    reads->plan = *plan;
    for (size_t i = 0; i < plan->count; i++)
        reads->items[i] = (struct reads_item){reads, i};
    /* Not from inside this call, even with nothing to read. */
    reads->begin.run = begin;
    inbox_post(plan->inbox, &reads->begin);
    return 0;
}
