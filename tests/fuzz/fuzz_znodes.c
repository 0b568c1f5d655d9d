/* What stands in znodes, which anybody may have written, and connect strings. The first byte picks the
 * decoder. What is read is written and read again: both texts must be the same. */
#include "coordination/servers.h"
#include "coordination/znodes.h"
#include "tests/fuzz/target.h"

#include <stdlib.h>
#include <string.h>

typedef char *copier(const char *data, size_t bytes);

/* Each reads and returns what its encoder makes of it, NULL when it was refused. */
static char *copy_cluster_id(const char *data, size_t bytes)
{
    char *id;
    if (znode_decode_cluster_id(data, bytes, &id, NULL) < 0)
        return NULL;
    char *text = znode_encode_cluster_id(id);
    free(id);
    return text;
}

static char *copy_broker(const char *data, size_t bytes)
{
    struct znode_broker b;
    if (znode_decode_broker(data, bytes, &b, NULL) < 0)
        return NULL;
    char *text = znode_encode_broker(&b);
    znode_broker_done(&b);
    return text;
}

static char *copy_topic(const char *data, size_t bytes)
{
    struct znode_topic t;
    if (znode_decode_topic(data, bytes, &t, NULL) < 0)
        return NULL;
    char *text = znode_encode_topic(&t);
    znode_topic_done(&t);
    return text;
}

static char *copy_state(const char *data, size_t bytes)
{
    struct znode_state s;
    return znode_decode_state(data, bytes, &s, NULL) < 0 ? NULL : znode_encode_state(&s);
}

static char *copy_change(const char *data, size_t bytes)
{
    struct znode_change c;
    if (znode_decode_change(data, bytes, &c, NULL) < 0)
        return NULL;
    char *text = znode_encode_change(&c);
    znode_change_done(&c);
    return text;
}

static char *copy_controller(const char *data, size_t bytes)
{
    int32_t id;
    return znode_decode_controller(data, bytes, &id, NULL) < 0 ? NULL : znode_encode_controller(id, 0);
}

static char *copy_number(const char *data, size_t bytes)
{
    int64_t n;
    return znode_decode_number(data, bytes, &n, NULL) < 0 ? NULL : znode_encode_number(n);
}

static char *copy_offset(const char *data, size_t bytes)
{
    int64_t n;
    return znode_decode_offset(data, bytes, &n, NULL) < 0 || n < 0 ? NULL : znode_encode_number(n);
}

static char *copy_config(const char *data, size_t bytes)
{
    struct znode_config c;
    if (znode_decode_config(data, bytes, &c, NULL) < 0)
        return NULL;
    char *text = znode_encode_config(&c);
    znode_config_done(&c);
    return text;
}

static char *copy_block(const char *data, size_t bytes)
{
    int64_t last;
    return znode_decode_producer_block(data, bytes, &last, NULL) < 0
               ? NULL
               : znode_encode_producer_block(0, 0, last);
}

static char *copy_member(const char *data, size_t bytes)
{
    struct znode_member m;
    if (znode_decode_member(data, bytes, &m, NULL) < 0)
        return NULL;
    char *text = znode_encode_member(&m);
    znode_member_done(&m);
    return text;
}

static char *copy_assignment(const char *data, size_t bytes)
{
    struct znode_assignment a;
    if (znode_decode_assignment(data, bytes, &a, NULL) < 0)
        return NULL;
    char *text = znode_encode_assignment(&a);
    znode_assignment_done(&a);
    return text;
}

static char *copy_wishes(const char *data, size_t bytes, enum znode_wish_kind kind)
{
    struct znode_wishes w;
    if (znode_decode_wishes(data, bytes, kind, &w, NULL) < 0)
        return NULL;
    char *text = znode_encode_wishes(&w, kind);
    znode_wishes_done(&w);
    return text;
}

static char *copy_plan(const char *data, size_t bytes)
{
    return copy_wishes(data, bytes, ZNODE_WISH_REASSIGN);
}

static char *copy_elections(const char *data, size_t bytes)
{
    return copy_wishes(data, bytes, ZNODE_WISH_ELECT);
}

static char *copy_ends(const char *data, size_t bytes)
{
    struct znode_ends e;
    if (znode_decode_ends(data, bytes, &e, NULL) < 0)
        return NULL;
    char *text = znode_encode_ends(&e);
    znode_ends_done(&e);
    return text;
}

static char *parse_connect(const char *data, size_t bytes)
{
    struct servers servers;
    char *text = strndup(data, bytes);
    if (text && servers_parse(text, &servers, NULL) == 0)
        FUZZ_CHECK(servers.count >= 1 && (!*servers.chroot || znode_path_is_legal(servers.chroot)));
    free(text);
    return NULL;
}

static copier *const copiers[] = {copy_cluster_id, copy_broker,     copy_topic,   copy_state,  copy_change,
                                  copy_controller, copy_number,     copy_offset,  copy_config, copy_block,
                                  copy_member,     copy_assignment, parse_connect, copy_plan,  copy_elections,
                                  copy_ends};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    if (bytes == 0)
        return 0;
    copier *copy = copiers[data[0] % (sizeof copiers / sizeof copiers[0])];
    /* Not NUL-terminated, and in a block of its own size. */
    char *exact = malloc(bytes - 1 ? bytes - 1 : 1);
    if (!exact)
        return 0;
    memcpy(exact, data + 1, bytes - 1);
    char *once = copy(exact, bytes - 1);
    free(exact);
    if (!once)
        return 0;
    char *twice = copy(once, strlen(once));
    FUZZ_CHECK(twice && strcmp(once, twice) == 0);
    free(once);
    free(twice);
    return 0;
}
