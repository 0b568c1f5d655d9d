/* /consumers/<G>/assignment. */
#include "coordination/znodes.h"
#include "coordination/znodes_json.h"
#include "proto/base/names.h"

#include <stdlib.h>
#include <string.h>

#define MEMBERS_MAX 10000
#define TOPICS_MAX 10000
#define TEXT_BYTES_MAX 255

void znode_assignment_done(struct znode_assignment *a)
{
    if (!a)
        return;
    for (size_t i = 0; i < a->topics_count; i++) {
        free(a->topics[i].name);
        free(a->topics[i].owner);
    }
    free(a->topics);
    for (size_t i = 0; i < a->members_count; i++)
        free(a->members[i]);
    free(a->members);
    free(a->strategy);
    memset(a, 0, sizeof *a);
}

/* ---- encoding ---------------------------------------------------------------------------------------- */

/* A text longer than this is written in the short form, which people read less well. */
#define READABLE_BYTES_MAX (256 << 10)

/* The long form: who has which partitions. */
static int encode_owned(json_t *topic, const struct znode_assignment *a,
                        const struct znode_assignment_topic *t)
{
    for (int32_t p = 0; p < t->partitions_count; p++) {
        if (t->owner[p] < 0)
            continue;
        const char *member = a->members[t->owner[p]];
        json_t *numbers = json_object_get(topic, member);
        if (!numbers) {
            if (json_object_set_new(topic, member, json_array()) < 0)
                return -BROOK_E_NOMEM;
            numbers = json_object_get(topic, member);
        }
        if (json_array_append_new(numbers, json_integer(p)) < 0)
            return -BROOK_E_NOMEM;
    }
    return 0;
}

/* The short form: per partition the owner's place among the members. */
static int encode_owners(json_t *topic, const struct znode_assignment_topic *t)
{
    for (int32_t p = 0; p < t->partitions_count; p++)
        if (json_array_append_new(topic, json_integer(t->owner[p])) < 0)
            return -BROOK_E_NOMEM;
    return 0;
}

static int encode_topics(json_t *root, const struct znode_assignment *a, bool is_short)
{
    json_t *view = json_object_get(root, "view");
    json_t *zxids = json_object_get(view, "topics");
    json_t *counts = json_object_get(view, "partitions");
    json_t *assignment = json_object_get(root, "assignment");
    for (size_t i = 0; i < a->topics_count; i++) {
        const struct znode_assignment_topic *t = &a->topics[i];
        if (json_object_set_new(zxids, t->name, json_integer(t->zxid)) < 0 ||
            json_object_set_new(counts, t->name, json_integer(t->partitions_count)) < 0 ||
            json_object_set_new(assignment, t->name, is_short ? json_array() : json_object()) < 0)
            return -BROOK_E_NOMEM;
        json_t *topic = json_object_get(assignment, t->name);
        if ((is_short ? encode_owners(topic, t) : encode_owned(topic, a, t)) < 0)
            return -BROOK_E_NOMEM;
    }
    return 0;
}

static char *encode(const struct znode_assignment *a, bool is_short)
{
    AUTO_JSON json_t *root =
        json_pack("{s:i, s:s, s:i, s:{s:I, s:{}, s:{}}, s:[], s:{}}", "version", 1, "strategy", a->strategy,
                  "algorithm", (int)a->algorithm_version, "view", "ids_pzxid", (json_int_t)a->ids_pzxid,
                  "topics", "partitions", "members", "assignment");
    json_t *members = json_object_get(root, "members");
    for (size_t i = 0; i < a->members_count; i++)
        if (json_array_append_new(members, json_string(a->members[i])) < 0)
            return NULL;
    return root && encode_topics(root, a, is_short) == 0 ? json_to_text(root) : NULL;
}

char *znode_encode_assignment(const struct znode_assignment *a)
{
    char *text = encode(a, false);
    if (!text || strlen(text) <= READABLE_BYTES_MAX)
        return text;
    free(text);
    return encode(a, true);
}

/* ---- decoding ---------------------------------------------------------------------------------------- */

/* Members by name while decoding; sorted, so that a lookup is a binary search. */
struct member_index {
    const char *name;
    int32_t index;
};

static int compare_names(const void *a, const void *b)
{
    return strcmp(((const struct member_index *)a)->name, ((const struct member_index *)b)->name);
}

static int decode_members(const json_t *array, struct znode_assignment *a, struct member_index **ret_index,
                          struct brook_error *error)
{
    size_t count = json_array_size(array);
    if (count > MEMBERS_MAX)
        return brook_error_set(error, BROOK_E_BAD_ZNODE, "more than %d members", MEMBERS_MAX);
    a->members = calloc(count + 1, sizeof *a->members);
    struct member_index *index = calloc(count + 1, sizeof *index);
    *ret_index = index;
    if (!a->members || !index)
        return -BROOK_E_NOMEM;
    for (size_t i = 0; i < count; i++) {
        const json_t *name = json_array_get(array, i);
        if (!json_is_string(name) || !name_is_legal_member(json_string_value(name), json_string_length(name)))
            return brook_error_set(error, BROOK_E_BAD_ZNODE, "field \"members\" holds an illegal name");
        if (!(a->members[i] = strdup(json_string_value(name))))
            return -BROOK_E_NOMEM;
        index[i] = (struct member_index){a->members[i], (int32_t)i};
        a->members_count++;
    }
    qsort(index, count, sizeof *index, compare_names);
    for (size_t i = 1; i < count; i++)
        if (strcmp(index[i].name, index[i - 1].name) == 0)
            return brook_error_set(error, BROOK_E_BAD_ZNODE, "member %s is named twice", index[i].name);
    return 0;
}

static int decode_owned(json_t *owned, const struct member_index *index, size_t members_count,
                        struct znode_assignment_topic *t, struct brook_error *error)
{
    const char *name;
    json_t *numbers;
    json_object_foreach(owned, name, numbers)
    {
        struct member_index key = {.name = name};
        const struct member_index *found = bsearch(&key, index, members_count, sizeof *index, compare_names);
        int32_t *partitions = NULL;
        size_t count = 0;
        if (!found)
            return brook_error_set(error, BROOK_E_BAD_ZNODE, "topic %s is assigned to somebody unknown",
                                   t->name);
        int r = json_to_int32s(numbers, t->name, 0, t->partitions_count - 1, ZNODE_PARTITIONS_MAX,
                               &partitions, &count, error);
        for (size_t i = 0; r == 0 && i < count; i++) {
            if (t->owner[partitions[i]] >= 0)
                r = brook_error_set(error, BROOK_E_BAD_ZNODE, "topic %s: a partition has two owners",
                                    t->name);
            t->owner[partitions[i]] = found->index;
        }
        free(partitions);
        if (r < 0)
            return r;
    }
    return 0;
}

static int decode_owners(const json_t *owners, size_t members_count, struct znode_assignment_topic *t,
                         struct brook_error *error)
{
    if (json_array_size(owners) != (size_t)t->partitions_count)
        return brook_error_set(error, BROOK_E_BAD_ZNODE, "topic %s: not one owner per partition", t->name);
    for (int32_t p = 0; p < t->partitions_count; p++) {
        const json_t *owner = json_array_get(owners, (size_t)p);
        json_int_t index = json_is_integer(owner) ? json_integer_value(owner) : INT32_MAX;
        if (index < -1 || index >= (json_int_t)members_count)
            return brook_error_set(error, BROOK_E_BAD_ZNODE, "topic %s is assigned to somebody unknown",
                                   t->name);
        t->owner[p] = (int32_t)index;
    }
    return 0;
}

static int decode_topic(const json_t *view, const char *name, json_t *owned, const struct member_index *index,
                        size_t members_count, struct znode_assignment_topic *t, struct brook_error *error)
{
    json_t *zxids = NULL, *counts = NULL;
    int r;
    if ((r = json_get_object(view, "topics", JSON_REQUIRED, &zxids, error)) < 0 ||
        (r = json_get_object(view, "partitions", JSON_REQUIRED, &counts, error)) < 0 ||
        (r = json_get_int64(zxids, name, JSON_REQUIRED, 0, INT64_MAX, &t->zxid, error)) < 0 ||
        (r = json_get_int32(counts, name, JSON_REQUIRED, 0, ZNODE_PARTITIONS_MAX, &t->partitions_count,
                            error)) < 0)
        return r;
    if (!json_is_object(owned) && !json_is_array(owned))
        return brook_error_set(error, BROOK_E_BAD_ZNODE,
                               "field \"assignment\" holds something else than objects and arrays");
    t->owner = calloc((size_t)t->partitions_count + 1, sizeof *t->owner);
    if (!t->owner)
        return -BROOK_E_NOMEM;
    for (int32_t p = 0; p < t->partitions_count; p++)
        t->owner[p] = -1;
    if (json_is_array(owned))
        return decode_owners(owned, members_count, t, error);
    return decode_owned(owned, index, members_count, t, error);
}

static int decode_topics(const json_t *root, const struct member_index *index, struct znode_assignment *a,
                         struct brook_error *error)
{
    json_t *view = NULL, *assignment = NULL, *owned;
    const char *name;
    int r;
    if ((r = json_get_object(root, "view", JSON_REQUIRED, &view, error)) < 0 ||
        (r = json_get_int64(view, "ids_pzxid", JSON_REQUIRED, 0, INT64_MAX, &a->ids_pzxid, error)) < 0 ||
        (r = json_get_object(root, "assignment", JSON_REQUIRED, &assignment, error)) < 0)
        return r;
    size_t count = json_object_size(assignment);
    if (count > TOPICS_MAX)
        return brook_error_set(error, BROOK_E_BAD_ZNODE, "more than %d topics", TOPICS_MAX);
    a->topics = calloc(count + 1, sizeof *a->topics);
    if (!a->topics)
        return -BROOK_E_NOMEM;
    json_object_foreach(assignment, name, owned)
    {
        struct znode_assignment_topic *t = &a->topics[a->topics_count];
        if (!name_is_legal_topic(name, strlen(name)))
            return brook_error_set(error, BROOK_E_BAD_ZNODE, "an illegal topic name");
        if (!(t->name = strdup(name)))
            return -BROOK_E_NOMEM;
        a->topics_count++;
        if ((r = decode_topic(view, name, owned, index, a->members_count, t, error)) < 0)
            return r;
    }
    return 0;
}

int znode_decode_assignment(const char *data, size_t bytes, struct znode_assignment *ret,
                            struct brook_error *error)
{
    AUTO_JSON json_t *root = NULL;
    struct znode_assignment a = {0};
    struct member_index *index = NULL;
    json_t *members = NULL;
    int r = json_load_object(data, bytes, 1, 1, &root, error);
    if (r < 0)
        return r;
    if ((r = json_get_text(root, "strategy", JSON_REQUIRED, TEXT_BYTES_MAX, &a.strategy, error)) == 0 &&
        (r = json_get_int32(root, "algorithm", JSON_REQUIRED, 1, INT32_MAX, &a.algorithm_version, error)) ==
            0 &&
        (r = json_get_array(root, "members", JSON_REQUIRED, &members, error)) == 0 &&
        (r = decode_members(members, &a, &index, error)) == 0)
        r = decode_topics(root, index, &a, error);
    free(index);
    if (r < 0) {
        znode_assignment_done(&a);
        return r;
    }
    *ret = a;
    return 0;
}
