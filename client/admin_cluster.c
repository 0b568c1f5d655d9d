/* Elections and reassignments. */
#include "client/admin_parts.h"
#include "proto/wire/envelope.h"

#include <stdlib.h>
#include <string.h>

static int no_memory(struct brook_error *error)
{
    return brook_error_set(error, BROOK_E_NOMEM, "out of memory, or the answer is too large");
}

static int unexpected(struct brook_error *error)
{
    return brook_error_set(error, BROOK_E_BAD_ENVELOPE, "the broker answered something else");
}

/* ---- results of partitions -------------------------------------------------------------------------- */

/* Where results go, and how many there are. */
struct results {
    struct brook_error *errors; /* NULL: nobody wants them */
    size_t count;
    struct brook_error first;
};

static int take_results(struct results *to, Brook__PartitionResult *const *from, size_t count, struct brook_error *error)
{
    if (count != to->count)
        return unexpected(error);
    to->first = (struct brook_error){0};
    for (size_t i = 0; i < count; i++) {
        struct brook_error one = {0};
        envelope_status_read(from[i]->status, &one);
        if (to->errors)
            to->errors[i] = one;
        if (one.code && !to->first.code)
            to->first = one;
    }
    return 0;
}

static int run(brook_admin *admin, Brook__Request *request,
               int (*take)(struct admin_question *, const Brook__Response *, struct brook_error *),
               struct results *results, bool repeatable, int timeout_ms, struct brook_error *error)
{
    struct admin_question q = {
        .ask = admin_ask_any, .request = request, .take = take, .arg = results, .repeatable = repeatable};
    int r = admin_run(admin, &q, timeout_ms, error);
    if (r < 0 || !results->first.code)
        return r;
    if (error)
        *error = results->first;
    return -results->first.code;
}

static uint32_t timeout_of(int timeout_ms)
{
    return (uint32_t)(timeout_ms < 0 ? INT32_MAX : timeout_ms);
}

/* ---- elections -------------------------------------------------------------------------------------- */

static int take_elected(struct admin_question *q, const Brook__Response *response, struct brook_error *error)
{
    if (response->body_case != BROOK__RESPONSE__BODY_ELECT_LEADERS)
        return unexpected(error);
    return take_results(q->arg, response->elect_leaders->partitions, response->elect_leaders->n_partitions, error);
}

int brook_admin_elect_leaders(brook_admin *admin, const struct brook_partition_name *partitions, size_t count,
                              bool unclean, int timeout_ms, struct brook_error *errors, struct brook_error *error)
{
    Brook__Request request = BROOK__REQUEST__INIT;
    Brook__ElectLeadersRequest body = BROOK__ELECT_LEADERS_REQUEST__INIT;
    Brook__PartitionName *names = calloc(count + 1, sizeof *names);
    Brook__PartitionName **list = calloc(count + 1, sizeof *list);
    struct results results = {errors, count, {0}};
    int r = names && list ? 0 : no_memory(error);
    for (size_t i = 0; !r && i < count; i++) {
        brook__partition_name__init(&names[i]);
        names[i].has_topic = names[i].has_partition = 1;
        names[i].topic = envelope_text(partitions[i].topic);
        names[i].partition = partitions[i].partition;
        list[i] = &names[i];
    }
    body.n_partitions = count;
    body.partitions = list;
    body.has_unclean = body.has_timeout_ms = 1;
    body.unclean = unclean;
    body.timeout_ms = timeout_of(timeout_ms);
    request.body_case = BROOK__REQUEST__BODY_ELECT_LEADERS;
    request.elect_leaders = &body;
    if (!r)
        r = run(admin, &request, take_elected, &results, true, timeout_ms, error);
    free(names);
    free(list);
    return r;
}

/* ---- reassignments ---------------------------------------------------------------------------------- */

static int take_reassigned(struct admin_question *q, const Brook__Response *response, struct brook_error *error)
{
    if (response->body_case != BROOK__RESPONSE__BODY_REASSIGN)
        return unexpected(error);
    return take_results(q->arg, response->reassign->partitions, response->reassign->n_partitions, error);
}

int brook_admin_reassign(brook_admin *admin, const struct brook_partition_plan *plans, size_t count,
                         int64_t quota_bytes, bool validate_only, int timeout_ms, struct brook_error *errors,
                         struct brook_error *error)
{
    Brook__Request request = BROOK__REQUEST__INIT;
    Brook__ReassignRequest body = BROOK__REASSIGN_REQUEST__INIT;
    Brook__PartitionPlan *entries = calloc(count + 1, sizeof *entries);
    Brook__PartitionPlan **list = calloc(count + 1, sizeof *list);
    struct results results = {errors, count, {0}};
    int r = entries && list ? 0 : no_memory(error);
    for (size_t i = 0; !r && i < count; i++) {
        brook__partition_plan__init(&entries[i]);
        entries[i].has_topic = entries[i].has_partition = 1;
        entries[i].topic = envelope_text(plans[i].topic);
        entries[i].partition = plans[i].partition;
        entries[i].replicas = (int32_t *)(uintptr_t)plans[i].replicas;
        entries[i].n_replicas = plans[i].replicas_count;
        list[i] = &entries[i];
    }
    body.n_partitions = count;
    body.partitions = list;
    body.has_quota_bytes = body.has_validate_only = body.has_timeout_ms = 1;
    body.quota_bytes = quota_bytes;
    body.validate_only = validate_only;
    body.timeout_ms = timeout_of(timeout_ms);
    request.body_case = BROOK__REQUEST__BODY_REASSIGN;
    request.reassign = &body;
    /* Asking for the same again changes nothing; a cancellation would be told that nothing runs any more. */
    bool repeatable = validate_only;
    if (!r)
        r = run(admin, &request, take_reassigned, &results, repeatable, timeout_ms, error);
    free(entries);
    free(list);
    return r;
}

static const int32_t *copy_ids(struct arena *a, const int32_t *ids, size_t count)
{
    int32_t *copy = arena_alloc(a, (count + 1) * sizeof *copy);
    if (copy && count > 0)
        memcpy(copy, ids, count * sizeof *copy);
    return copy;
}

static int copy_running(struct arena *a, const Brook__RunningReassignment *from, struct brook_reassignment *to)
{
    *to = (struct brook_reassignment){.topic = admin_text(a, &from->topic),
                                      .partition = from->partition,
                                      .leader = from->leader,
                                      .replicas = copy_ids(a, from->replicas, from->n_replicas),
                                      .replicas_count = from->n_replicas,
                                      .adding = copy_ids(a, from->adding, from->n_adding),
                                      .adding_count = from->n_adding,
                                      .removing = copy_ids(a, from->removing, from->n_removing),
                                      .removing_count = from->n_removing,
                                      .target = copy_ids(a, from->target, from->n_target),
                                      .target_count = from->n_target,
                                      .isr = copy_ids(a, from->isr, from->n_isr),
                                      .isr_count = from->n_isr};
    return to->replicas && to->adding && to->removing && to->target && to->isr ? 0 : -BROOK_E_NOMEM;
}

static int take_running(struct admin_question *q, const Brook__Response *response, struct brook_error *error)
{
    if (response->body_case != BROOK__RESPONSE__BODY_LIST_REASSIGNMENTS)
        return unexpected(error);
    const Brook__ListReassignmentsResponse *answer = response->list_reassignments;
    struct brook_reassignments **result = q->arg;
    struct arena *a;
    struct brook_reassignments *face = admin_result_new(sizeof *face, &a);
    struct brook_reassignment *list = face ? arena_alloc(a, (answer->n_partitions + 1) * sizeof *list) : NULL;
    int r = list ? 0 : -BROOK_E_NOMEM;
    for (size_t i = 0; !r && i < answer->n_partitions; i++)
        r = copy_running(a, answer->partitions[i], &list[i]);
    if (r < 0) {
        admin_result_free(face);
        return no_memory(error);
    }
    face->list = list;
    face->count = answer->n_partitions;
    face->throttle_bytes = answer->throttle_bytes;
    face->quota_bytes = answer->quota_bytes;
    admin_result_free(*result);
    *result = face;
    return 0;
}

int brook_admin_list_reassignments(brook_admin *admin, int timeout_ms, struct brook_reassignments **ret_reassignments,
                                   struct brook_error *error)
{
    Brook__Request request = BROOK__REQUEST__INIT;
    Brook__ListReassignmentsRequest body = BROOK__LIST_REASSIGNMENTS_REQUEST__INIT;
    struct brook_reassignments *face = NULL;
    request.body_case = BROOK__REQUEST__BODY_LIST_REASSIGNMENTS;
    request.list_reassignments = &body;
    struct admin_question q = {
        .ask = admin_ask_any, .request = &request, .take = take_running, .arg = &face, .repeatable = true};
    int r = admin_run(admin, &q, timeout_ms, error);
    if (r < 0)
        admin_result_free(face);
    else
        *ret_reassignments = face;
    return r;
}

void brook_reassignments_free(struct brook_reassignments *reassignments)
{
    admin_result_free(reassignments);
}
