#include "broker/partition/partition_state.h"

#include <stdio.h>

void append_list_push(struct append_list *list, struct partition_append *a)
{
    a->next = NULL;
    if (list->last)
        list->last->next = a;
    else
        list->head = a;
    list->last = a;
}

struct partition_append *append_list_pop(struct append_list *list)
{
    struct partition_append *a = list->head;
    if (a) {
        list->head = a->next;
        if (!list->head)
            list->last = NULL;
        a->next = NULL;
    }
    return a;
}

bool append_list_remove(struct append_list *list, struct partition_append *a)
{
    struct partition_append *before = NULL;
    for (struct partition_append *at = list->head; at; before = at, at = at->next) {
        if (at != a)
            continue;
        if (before)
            before->next = a->next;
        else
            list->head = a->next;
        if (list->last == a)
            list->last = before;
        a->next = NULL;
        return true;
    }
    return false;
}

void append_list_insert(struct append_list *list, struct partition_append *a)
{
    if (!list->head || list->last->last_offset <= a->last_offset) {
        append_list_push(list, a);
        return;
    }
    struct partition_append **at = &list->head;
    while ((*at)->last_offset <= a->last_offset)
        at = &(*at)->next;
    a->next = *at;
    *at = a;
}

void outbox_init(struct outbox *o)
{
    *o = (struct outbox){0};
    o->waiters_tail = &o->waiters;
}

void outbox_answer(struct outbox *o, struct partition_append *a, int code, const char *text)
{
    a->error.code = 0;
    a->error.text[0] = '\0';
    if (code != 0)
        brook_error_set(&a->error, code, "%s", text ? text : brook_error_text(code));
    append_list_push(&o->appends, a);
}

void outbox_answer_written(struct outbox *o, struct partition_append *a, int code, const char *text)
{
    a->maybe_stored = code != 0;
    outbox_answer(o, a, code, text);
}

void outbox_wake(struct outbox *o, struct partition_waiter *w)
{
    *w->previous = w->next;
    if (w->next)
        w->next->previous = w->previous;
    w->previous = NULL;
    w->next = NULL;
    w->posted = true;
    *o->waiters_tail = w;
    o->waiters_tail = &w->next;
}

static void run_append(struct inbox_item *item)
{
    struct partition_append *a = CONTAINER_OF(item, struct partition_append, item);
    a->done(a);
}

static void run_waiter(struct partition_waiter *w)
{
    w->posted = false;
    if (w->wake)
        w->wake(w);
}

static void run_waiter_item(struct inbox_item *item)
{
    run_waiter(CONTAINER_OF(item, struct partition_waiter, item));
}

static void post_waiters(struct outbox *o, struct inbox *own, struct outbox *mine)
{
    for (struct partition_waiter *w = o->waiters, *next; w; w = next) {
        next = w->next;
        if (own && w->inbox == own) {
            w->next = NULL;
            *mine->waiters_tail = w;
            mine->waiters_tail = &w->next;
        } else {
            w->item.run = run_waiter_item;
            inbox_post(w->inbox, &w->item); /* it is its loop's from here on */
        }
    }
}

void outbox_post(struct outbox *o, struct inbox *own, struct outbox *mine)
{
    struct partition_append *a;
    while ((a = append_list_pop(&o->appends))) {
        if (own && a->inbox == own) {
            append_list_push(&mine->appends, a);
        } else {
            a->item.run = run_append;
            inbox_post(a->inbox, &a->item);
        }
    }
    post_waiters(o, own, mine);
    outbox_init(o);
}

void outbox_run(struct outbox *mine)
{
    struct partition_append *a;
    while ((a = append_list_pop(&mine->appends)))
        a->done(a);
    struct partition_waiter *w = mine->waiters;
    while (w) {
        struct partition_waiter *next = w->next;
        run_waiter(w);
        w = next;
    }
}
