/* Logs that are offline: finding them, opening them anew where that is safe, and telling which they are, so that others lead. */
#include "broker/cluster/hosting_internal.h"
#include "coordination/znodes.h"
#include "proto/base/diag.h"

#include <stdlib.h>
#include <string.h>

#define TOLD_MAX 20000 /* of a registration, which has to fit a znode */
#define TOLD_BYTES_MAX (200 << 10)

void hosted_tell_offline(struct hosted *h, const char *reason)
{
    char subject[HOSTED_SUBJECT_BYTES];
    h->is_told_offline = true;
    diag_log(h->hosting->diag, DIAG_ERROR, hosted_subject(h, h->led_epoch, subject),
             "the log stays offline and is not opened anew until the broker is started again: %s", reason);
}

/* Opened anew it would take for written what is in the page cache only. It can still be read, and answers appends
 * with the reason. */
static void leave_offline(struct hosted *h)
{
    if (!h->is_told_offline)
        hosted_tell_offline(h, log_offline_reason(partition_log(h->partition)));
}

/* What it holds is looked at again as after a crash: nobody knows what of it is on the disk. */
static void close_offline(struct hosted *h)
{
    char subject[HOSTED_SUBJECT_BYTES];
    struct log *log = partition_log(h->partition);
    diag_log(h->hosting->diag, DIAG_ERROR, hosted_subject(h, h->led_epoch, subject),
             "the log is offline and will be opened anew: %s", log_offline_reason(log));
    brook_error_set(&h->error, BROOK_E_LOG_OFFLINE, "%s", log_offline_reason(log));
    h->hint =
        (struct log_hint){.recovery_point = log_durable_end(log), .start_offset = log_start_offset(log),
                           .cleaned_offset = log_cleaned_offset(log)};
    h->end_before = log_end_offset(log);
    hosted_leave(h, HOSTED_END_REOPEN);
}

static void close_those_offline(struct hosting *hosting)
{
    struct hosted *h, *next;
    HASH_ITER(hh, hosting->table, h, next)
    if (h->status == HOSTED_OPEN && !h->dir->is_failed && log_offline_reason(partition_log(h->partition))) {
        if (log_sync_failed(partition_log(h->partition)))
            leave_offline(h);
        else
            close_offline(h);
    }
}

/* ---- telling others --------------------------------------------------------------------------------- */

static bool is_offline(const struct hosted *h)
{
    if (h->is_unwanted)
        return false;
    if (h->status == HOSTED_OPEN)
        return h->dir->is_failed || log_offline_reason(partition_log(h->partition));
    return h->status == HOSTED_FAILED || (h->status == HOSTED_LEAVING && h->end == HOSTED_END_REOPEN);
}

static int compare_hosted(const void *a, const void *b)
{
    const struct hosted *x = *(struct hosted *const *)a, *y = *(struct hosted *const *)b;
    int by_topic = strcmp(x->topic, y->topic);
    return by_topic ? by_topic : (x->number > y->number) - (x->number < y->number);
}

/* By topic and number; the caller frees the list. NULL: no memory. */
static struct hosted **list_offline(struct hosting *hosting, size_t *ret_count)
{
    size_t count = 0, at = 0;
    for (struct hosted *h = hosting->table; h; h = h->hh.next)
        count += is_offline(h);
    struct hosted **list = malloc((count + 1) * sizeof(struct hosted *));
    for (struct hosted *h = hosting->table; list && h; h = h->hh.next)
        if (is_offline(h))
            list[at++] = h;
    if (list && count)
        qsort(list, count, sizeof(struct hosted *), compare_hosted);
    *ret_count = count;
    return list;
}

/* FNV-1a over the names; 0 for none. */
static uint64_t hash_names(struct hosted *const *list, size_t count)
{
    uint64_t h = count ? 14695981039346656037u : 0;
    for (size_t i = 0; i < count; i++)
        for (const char *at = list[i]->name;; at++) {
            h = (h ^ (uint8_t)*at) * 1099511628211u;
            if (!*at)
                break;
        }
    return h;
}

static int add_told(struct znode_change_partitions *list, size_t *count, const struct hosted *h)
{
    struct znode_change_partitions *last = *count ? &list[*count - 1] : NULL;
    if (!last || strcmp(last->topic, h->topic) != 0) {
        last = &list[*count];
        if (!(last->topic = strdup(h->topic)))
            return -BROOK_E_NOMEM;
        (*count)++;
    }
    int32_t *numbers = realloc(last->partitions, (last->partitions_count + 1) * sizeof *numbers);
    if (!numbers)
        return -BROOK_E_NOMEM;
    last->partitions = numbers;
    numbers[last->partitions_count++] = h->number;
    return 0;
}

/* As many as fit. */
static int make_told(const struct hosting *hosting, struct hosted *const *offline, size_t offline_count,
                     struct znode_change_partitions **ret, size_t *ret_count)
{
    size_t bytes = 0, i;
    *ret_count = 0;
    *ret = calloc(offline_count + 1, sizeof **ret);
    if (!*ret)
        return -BROOK_E_NOMEM;
    for (i = 0; i < offline_count && i < TOLD_MAX && bytes < TOLD_BYTES_MAX; i++) {
        size_t before = *ret_count;
        if (add_told(*ret, ret_count, offline[i]))
            return -BROOK_E_NOMEM;
        bytes += 6 + (*ret_count > before ? strlen(offline[i]->topic) + 6 : 0);
    }
    if (i < offline_count)
        diag_log(hosting->diag, DIAG_WARN, "",
                 "%zu logs are offline, and the registration names %zu of them: others go on being led here in name",
                 offline_count, i);
    return 0;
}

void hosting_take_offline(struct hosting *hosting, struct znode_change_partitions **ret_list, size_t *ret_count)
{
    size_t count;
    struct hosted **offline = list_offline(hosting, &count);
    *ret_list = NULL;
    *ret_count = 0;
    if (offline && make_told(hosting, offline, count, ret_list, ret_count)) {
        hosting_free_offline(*ret_list, *ret_count);
        *ret_list = NULL;
        *ret_count = 0;
    } else if (offline) {
        hosting->offline_told = hash_names(offline, count);
    }
    free(offline);
}

void hosting_free_offline(struct znode_change_partitions *list, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        free(list[i].topic);
        free(list[i].partitions);
    }
    free(list);
}

void hosting_look_for_offline(struct hosting *hosting)
{
    size_t count;
    close_those_offline(hosting);
    struct hosted **offline = list_offline(hosting, &count);
    bool is_news = offline && hash_names(offline, count) != hosting->offline_told;
    free(offline);
    if (is_news && hosting->events.offline)
        hosting->events.offline(hosting->events.arg);
}

const char *hosting_offline_reason(struct hosting *hosting, const struct image_topic *topic, int32_t number)
{
    const struct hosted *h = hosted_find(hosting, topic->name, number);
    if (!h || !is_offline(h) || !topic_id_equal(&h->topic_id, &topic->node.topic_id))
        return NULL;
    if (h->dir->is_failed)
        return h->dir->failure;
    if (h->status == HOSTED_OPEN)
        return log_offline_reason(partition_log(h->partition));
    return h->error.text[0] ? h->error.text : brook_error_text(h->err ? h->err : BROOK_E_LOG_OFFLINE);
}
