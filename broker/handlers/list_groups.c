/* ListGroups: the groups that ZooKeeper has. */
#include "broker/handlers/handlers.h"

#include "broker/cluster/cluster.h"
#include "coordination/coordinator.h"
#include "coordination/paths.h"
#include "proto/base/names.h"

#include <stdlib.h>
#include <string.h>

static int compare_names(const void *a, const void *b)
{
    return strcmp((const char *)((const ProtobufCBinaryData *)a)->data,
                  (const char *)((const ProtobufCBinaryData *)b)->data);
}

static void listed(void *arg, const struct coordinator_reply *reply)
{
    struct request *r = arg;
    Brook__Response response = BROOK__RESPONSE__INIT;
    Brook__ListGroupsResponse body = BROOK__LIST_GROUPS_RESPONSE__INIT;
    size_t count = reply->err ? 0 : reply->children_count;
    if (reply->err && reply->err != -BROOK_E_NO_NODE) {
        request_fail(r, -reply->err, NULL);
        return;
    }
    body.groups = request_reply_alloc(r, (count + 1) * sizeof body.groups[0]);
    if (!body.groups) {
        request_fail(r, BROOK_E_NOMEM, NULL);
        return;
    }
    for (size_t i = 0; i < count; i++)
        if (name_is_legal_group(reply->children[i], strlen(reply->children[i])))
            body.groups[body.n_groups++] = envelope_text(reply->children[i]);
    qsort(body.groups, body.n_groups, sizeof body.groups[0], compare_names);
    response.body_case = BROOK__RESPONSE__BODY_LIST_GROUPS;
    response.list_groups = &body;
    request_reply(r, &response, NULL, 0);
}

void handle_list_groups(struct request *r)
{
    struct coordinator_call call = {.inbox = r->loop->inbox, .callback = listed, .arg = r};
    coordinator_children(cluster_coordinator(r->loop->cluster), PATH_CONSUMERS, call);
}
