/* CommitOffsets: conditional writes of a member's offsets (coordination/offsets.h), for topics that exist. */
#include "broker/handlers/handlers.h"

#include "broker/cluster/cluster.h"
#include "coordination/offsets.h"

#include <inttypes.h>
#include <string.h>

/* An entry that may be written is known by its position among those that are. */
struct commit_entry {
    struct brook_error error; /* code 0: written, see `written` */
    size_t written;
    char *topic;
    int32_t partition;
};

struct commit {
    struct request *request;
    size_t count;
    const struct offsets_commit_reply *reply; /* during the answer; NULL: nothing was written */
    struct commit_entry entries[];
};

static int fill(struct request *r, const struct commit *c, const struct commit_entry *entry,
                Brook__CommittedOffset *out)
{
    struct brook_error error = entry->error;
    if (!error.code && c->reply->results[entry->written].err)
        brook_error_set(&error, -c->reply->results[entry->written].err, "offset of %s/%" PRId32 ": %s",
                        entry->topic, entry->partition,
                        brook_error_text(c->reply->results[entry->written].err));
    if (!error.code) {
        out->has_version = true;
        out->version = c->reply->results[entry->written].version;
        return 0;
    }
    out->status = request_status(r, &error);
    return out->status ? 0 : -BROOK_E_NOMEM;
}

static void finish(struct commit *c)
{
    struct request *r = c->request;
    Brook__Response response = BROOK__RESPONSE__INIT;
    Brook__CommitOffsetsResponse body = BROOK__COMMIT_OFFSETS_RESPONSE__INIT;
    body.offsets = request_reply_alloc(r, (c->count + 1) * sizeof body.offsets[0]);
    for (size_t i = 0; body.offsets && i < c->count; i++) {
        body.offsets[i] = request_new(r, Brook__CommittedOffset, brook__committed_offset__init);
        if (!body.offsets[i] || fill(r, c, &c->entries[i], body.offsets[i]))
            body.offsets = NULL;
        body.n_offsets++;
    }
    if (!body.offsets) {
        /* Something may have been written: the member has to look. */
        request_fail(r, BROOK_E_OUTCOME_UNKNOWN,
                     "the answer would be too large: commit fewer partitions at once");
        return;
    }
    response.body_case = BROOK__RESPONSE__BODY_COMMIT_OFFSETS;
    response.commit_offsets = &body;
    request_reply(r, &response, NULL, 0);
}

static void committed(void *arg, const struct offsets_commit_reply *reply)
{
    struct commit *c = arg;
    c->reply = reply;
    finish(c);
}

/* The topic must be there, and be the one that is meant: offsets of a topic that is being deleted are
 * emptied, and a later one of the same name must not inherit them. */
static int check_topic(struct request *r, const Brook__CommitOffset *asked, struct brook_error *error)
{
    const struct view_topic *topic = view_topic(r->loop->view, asked->topic.data, asked->topic.len);
    int length = (int)(asked->topic.len < 200 ? asked->topic.len : 200);
    const char *name = (const char *)asked->topic.data;
    if (!topic)
        return brook_error_set(error, BROOK_E_UNKNOWN_TOPIC, "there is no topic %.*s", length, name);
    if (topic->being_deleted)
        return brook_error_set(error, BROOK_E_TOPIC_BEING_DELETED, "topic %s is being deleted", topic->name);
    if (asked->has_topic_id &&
        (asked->topic_id.len != sizeof topic->topic_id ||
         memcmp(asked->topic_id.data, topic->topic_id.bytes, sizeof topic->topic_id) != 0))
        return brook_error_set(error, BROOK_E_TOPIC_ID_MISMATCH, "topic %s was made anew since", topic->name);
    if (asked->partition < 0 || asked->partition >= topic->partitions_count)
        return brook_error_set(error, BROOK_E_UNKNOWN_PARTITION, "topic %s has partitions 0 to %" PRId32,
                               topic->name, topic->partitions_count - 1);
    return 0;
}

/* Judge an entry; what may be written is added to `write`. */
static void add(struct request *r, const Brook__CommitOffset *asked, struct commit_entry *entry,
                struct offsets_entry *write, size_t *write_count)
{
    if (check_topic(r, asked, &entry->error))
        return;
    entry->topic = request_text(r, &asked->topic);
    if (!entry->topic) {
        brook_error_set(&entry->error, BROOK_E_NOMEM, "out of memory");
        return;
    }
    entry->partition = asked->partition;
    entry->written = *write_count;
    write[(*write_count)++] =
        (struct offsets_entry){entry->topic, asked->partition, asked->offset, asked->expected_version};
}

static void start(struct request *r, const Brook__CommitOffsetsRequest *asked, struct commit *c,
                  struct offsets_entry *write)
{
    size_t count = 0;
    char *group = request_text(r, &asked->group);
    char *member = asked->has_member ? request_text(r, &asked->member) : NULL;
    if (!group || (asked->has_member && !member)) {
        request_fail(r, BROOK_E_ILLEGAL_NAME, "group and member are needed, without zero bytes");
        return;
    }
    for (size_t i = 0; i < c->count; i++)
        add(r, asked->offsets[i], &c->entries[i], write, &count);
    if (!count)
        return finish(c);
    int err = offsets_commit(cluster_offsets(r->loop->cluster), group, member, write, count, r->loop->inbox,
                             committed, c);
    if (err)
        request_fail(r, -err, NULL);
}

void handle_commit_offsets(struct request *r)
{
    const Brook__CommitOffsetsRequest *asked = r->message->commit_offsets;
    uint32_t most = r->loop->settings->partitions_per_request_max;
    if (!r->loop->view) {
        request_fail(r, BROOK_E_BROKER_NOT_AVAILABLE, "the broker knows nothing of the cluster yet");
        return;
    }
    if (asked->n_offsets > most) {
        request_fail(r, BROOK_E_TOO_MANY, "%zu partitions in one request, at most %u are allowed",
                     asked->n_offsets, most);
        return;
    }
    struct commit *c = request_alloc(r, sizeof *c + asked->n_offsets * sizeof c->entries[0]);
    struct offsets_entry *write = request_alloc(r, (asked->n_offsets + 1) * sizeof *write);
    if (!c || !write) {
        request_fail(r, BROOK_E_NOMEM, "out of memory for %zu partitions", asked->n_offsets);
        return;
    }
    c->request = r;
    c->count = asked->n_offsets;
    start(r, asked, c, write);
}
