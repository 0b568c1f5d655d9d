/* FetchOffsets: what a group has stored (coordination/offsets.h). */
#include "broker/handlers/handlers.h"

#include "broker/cluster/cluster.h"
#include "coordination/offsets.h"

#include <inttypes.h>

static int fill(struct request *r, const struct offsets_fetched *fetched, Brook__FetchedOffset *out)
{
    out->has_topic = out->has_partition = out->has_offset = out->has_version = true;
    out->topic = envelope_text(fetched->topic);
    out->partition = fetched->partition;
    out->offset = fetched->offset;
    out->version = fetched->version;
    if (!fetched->err)
        return 0;
    struct brook_error error;
    brook_error_set(&error, -fetched->err, "offset of %s/%" PRId32 ": %s", fetched->topic, fetched->partition,
                    brook_error_text(fetched->err));
    out->status = request_status(r, &error);
    return out->status ? 0 : -BROOK_E_NOMEM;
}

static void fetched(void *arg, const struct offsets_fetch_reply *reply)
{
    struct request *r = arg;
    Brook__Response response = BROOK__RESPONSE__INIT;
    Brook__FetchOffsetsResponse body = BROOK__FETCH_OFFSETS_RESPONSE__INIT;
    if (reply->err) {
        request_fail(r, -reply->err, NULL);
        return;
    }
    body.offsets = request_reply_alloc(r, (reply->count + 1) * sizeof body.offsets[0]);
    for (size_t i = 0; body.offsets && i < reply->count; i++) {
        body.offsets[i] = request_new(r, Brook__FetchedOffset, brook__fetched_offset__init);
        if (!body.offsets[i] || fill(r, &reply->fetched[i], body.offsets[i]))
            body.offsets = NULL;
        body.n_offsets++;
    }
    if (!body.offsets) {
        request_fail(r, BROOK_E_TOO_MANY, "the answer would be too large: ask for fewer topics at once");
        return;
    }
    response.body_case = BROOK__RESPONSE__BODY_FETCH_OFFSETS;
    response.fetch_offsets = &body;
    request_reply(r, &response, NULL, 0);
}

void handle_fetch_offsets(struct request *r)
{
    const Brook__FetchOffsetsRequest *asked = r->message->fetch_offsets;
    uint32_t most = r->loop->settings->topics_per_request_max;
    if (asked->n_topics > most) {
        request_fail(r, BROOK_E_TOO_MANY, "%zu topics in one request, at most %u are allowed",
                     asked->n_topics, most);
        return;
    }
    char *group = request_text(r, &asked->group);
    const char **topics = request_alloc(r, (asked->n_topics + 1) * sizeof *topics);
    for (size_t i = 0; topics && i < asked->n_topics; i++)
        if (!(topics[i] = request_text(r, &asked->topics[i]))) {
            request_fail(r, BROOK_E_ILLEGAL_NAME, "a topic name has no zero bytes in it");
            return;
        }
    if (!group || !topics) {
        request_fail(r, BROOK_E_ILLEGAL_NAME, "a group name is needed, without zero bytes");
        return;
    }
    int err = offsets_fetch(cluster_offsets(r->loop->cluster), group, topics, asked->n_topics, r->loop->inbox,
                            fetched, r);
    if (err)
        request_fail(r, -err, NULL);
}
