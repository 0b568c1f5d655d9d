#include "proto/base/err.h"
#include "proto/wire/envelope.h"
#include "tests/support/suite.h"

#include <stdlib.h>
#include <string.h>

#define BUDGET ((size_t)4 << 20)
#define HOSTILE_BYTES ((size_t)1 << 20)

static struct arena *arena_for_test(size_t budget)
{
    struct arena *arena;
    ck_assert_int_eq(arena_new(budget, &arena), 0);
    return arena;
}

/* A field of wire type 2 with a 5-byte length, so that its size does not depend on its content. */
static size_t write_field(uint8_t *to, unsigned number, size_t bytes)
{
    size_t n = 0;
    unsigned tag = number << 3 | 2;
    while (tag >= 0x80) {
        to[n++] = (uint8_t)(tag | 0x80);
        tag >>= 7;
    }
    to[n++] = (uint8_t)tag;
    for (int i = 0; i < 4; i++, bytes >>= 7)
        to[n++] = (uint8_t)(bytes | 0x80);
    to[n++] = (uint8_t)(bytes & 0x7f);
    return n;
}

/* A Request whose body `field` is `unit` over and over. */
static uint8_t *crafted(unsigned field, const char *unit, size_t unit_bytes, size_t *ret_bytes)
{
    uint8_t *data = malloc(HOSTILE_BYTES);
    size_t inside = (HOSTILE_BYTES - 16) / unit_bytes * unit_bytes;
    size_t n = write_field(data, field, inside);
    for (size_t i = 0; i < inside; i += unit_bytes)
        memcpy(data + n + i, unit, unit_bytes);
    *ret_bytes = n + inside;
    return data;
}

static void refuse(unsigned field, const char *unit, size_t unit_bytes)
{
    struct arena *arena = arena_for_test(BUDGET);
    size_t bytes;
    uint8_t *data = crafted(field, unit, unit_bytes, &bytes);
    Brook__Request *request;
    ck_assert_int_eq(envelope_unpack_request(arena, data, bytes, &request), -BROOK_E_BAD_ENVELOPE);
    free(data);
    arena_free(arena);
}

START_TEST(messages_that_multiply_memory_are_refused)
{
    refuse(12, "\x12\x00", 2);         /* metadata: unknown empty fields */
    refuse(12, "\x0a\x00", 2);         /* metadata: empty names */
    refuse(13, "\x1a\x00", 2);         /* produce: empty partitions */
    refuse(14, "\x3a\x00", 2);         /* pull: empty partitions */
    refuse(16, "\x1a\x00", 2);         /* commit: empty offsets */
    refuse(17, "\x0a\x02\x22\x00", 4); /* create: topics with an empty setting */
    refuse(21, "\x98\x06\x01", 3);     /* list groups: unknown varints */
}
END_TEST

START_TEST(an_honest_message_of_a_thousand_partitions_fits)
{
    struct arena *arena = arena_for_test(BUDGET);
    static Brook__PullPartition partitions[1000], *list[1000];
    Brook__PullRequest pull = BROOK__PULL_REQUEST__INIT;
    Brook__Request request = BROOK__REQUEST__INIT, *back;
    uint8_t id[16] = {1};
    for (int i = 0; i < 1000; i++) {
        brook__pull_partition__init(&partitions[i]);
        partitions[i].has_topic_id = partitions[i].has_partition = partitions[i].has_offset = 1;
        partitions[i].topic_id = envelope_bytes(id, 16);
        partitions[i].partition = i;
        partitions[i].offset = (int64_t)i << 40;
        list[i] = &partitions[i];
    }
    pull.n_partitions = 1000;
    pull.partitions = list;
    request.body_case = BROOK__REQUEST__BODY_PULL;
    request.pull = &pull;
    size_t bytes = brook__request__get_packed_size(&request);
    uint8_t *data = malloc(bytes);
    brook__request__pack(&request, data);
    for (int round = 0; round < 3; round++) {
        arena_reset(arena);
        ck_assert_int_eq(envelope_unpack_request(arena, data, bytes, &back), 0);
        ck_assert_int_eq(back->body_case, BROOK__REQUEST__BODY_PULL);
        ck_assert_uint_eq(back->pull->n_partitions, 1000);
        ck_assert_int_eq(back->pull->partitions[999]->partition, 999);
        ck_assert_int_eq(back->pull->partitions[999]->offset, 999LL << 40);
    }
    free(data);
    arena_free(arena);
}
END_TEST

static size_t pack_sample(uint8_t *to)
{
    Brook__Request request = BROOK__REQUEST__INIT;
    Brook__ProduceRequest produce = BROOK__PRODUCE_REQUEST__INIT;
    Brook__ProducePartition partition = BROOK__PRODUCE_PARTITION__INIT, *list[] = {&partition};
    request.has_correlation_id = 1;
    request.correlation_id = 77;
    request.has_client_id = 1;
    request.client_id = envelope_text("me");
    partition.has_topic_id = 1;
    partition.topic_id = envelope_text("0123456789abcdef");
    partition.has_partition = partition.has_records_bytes = 1;
    partition.partition = 5;
    partition.records_bytes = 1000;
    produce.n_partitions = 1;
    produce.partitions = list;
    request.body_case = BROOK__REQUEST__BODY_PRODUCE;
    request.produce = &produce;
    return brook__request__pack(&request, to);
}

START_TEST(cut_and_flipped_messages_never_crash)
{
    uint8_t sample[256], copy[256];
    size_t bytes = pack_sample(sample);
    struct arena *arena = arena_for_test(BUDGET);
    Brook__Request *request;
    for (size_t n = 0; n < bytes; n++) {
        uint8_t *exact = malloc(n ? n : 1);
        memcpy(exact, sample, n);
        arena_reset(arena);
        envelope_unpack_request(arena, exact, n, &request);
        free(exact);
    }
    for (size_t i = 0; i < bytes; i++)
        for (int bit = 0; bit < 8; bit++) {
            memcpy(copy, sample, bytes);
            copy[i] ^= (uint8_t)(1 << bit);
            arena_reset(arena);
            envelope_unpack_request(arena, copy, bytes, &request);
        }
    arena_reset(arena);
    ck_assert_int_eq(envelope_unpack_request(arena, sample, bytes, &request), 0);
    ck_assert_int_eq(request->produce->partitions[0]->partition, 5);
    arena_free(arena);
}
END_TEST

START_TEST(a_repeated_field_counts_as_its_last_value)
{
    uint8_t data[64];
    size_t n = 0;
    memcpy(data + n, "\x08\x01\x08\x02", 4); /* correlation ids 1, then 2 */
    n += 4;
    memcpy(data + n, "\x12\x01x\x12\x01y", 6); /* client ids */
    n += 6;
    struct arena *arena = arena_for_test(BUDGET);
    Brook__Request *request;
    ck_assert_int_eq(envelope_unpack_request(arena, data, n, &request), 0);
    ck_assert_uint_eq(request->correlation_id, 2);
    ck_assert(envelope_bytes_equal(&request->client_id, "y"));
    arena_free(arena);
}
END_TEST

START_TEST(unknown_fields_bodies_and_codes_are_survived)
{
    /* Response: correlation id 3, status code 99999 and an unknown field in it, body 500, field 1000. */
    static const uint8_t data[] = {0x08, 0x03, 0x12, 0x07, 0x08, 0x9f, 0x8d, 0x06, 0x98, 0x06,
                                   0x01, 0xa2, 0x1f, 0x02, 0x08, 0x01, 0xc0, 0x3e, 0x07};
    struct arena *arena = arena_for_test(BUDGET);
    Brook__Response *response;
    struct brook_error error;
    ck_assert_int_eq(envelope_unpack_response(arena, data, sizeof data, &response), 0);
    ck_assert_uint_eq(response->correlation_id, 3);
    ck_assert_int_eq(response->body_case, BROOK__RESPONSE__BODY__NOT_SET);
    ck_assert_int_eq(envelope_status_code(response->status), 99999);
    ck_assert_int_eq(envelope_status_read(response->status, &error), -99999);
    ck_assert_int_eq(brook_error_advice(error.code), BROOK_ADVICE_RETRY);
    arena_free(arena);
}
END_TEST

START_TEST(a_name_with_a_nul_inside_is_no_string)
{
    struct arena *arena = arena_for_test(BUDGET);
    ck_assert_str_eq(arena_string(arena, "name", 4), "name");
    ck_assert_str_eq(arena_string(arena, NULL, 0), "");
    ck_assert_ptr_null(arena_string(arena, "a\0b", 3));
    arena_free(arena);
}
END_TEST

START_TEST(an_arena_gives_aligned_zeroed_memory_up_to_its_budget)
{
    struct arena *arena = arena_for_test(1 << 20);
    size_t got = 0;
    for (uint8_t *p; (p = arena_alloc(arena, 1000)); got++) {
        ck_assert_uint_eq((uintptr_t)p % 16, 0);
        for (size_t i = 0; i < 1000; i++)
            ck_assert_uint_eq(p[i], 0);
        memset(p, 0xff, 1000);
    }
    ck_assert_uint_eq(got, (1 << 20) / 1008);
    ck_assert_ptr_null(arena_alloc(arena, SIZE_MAX));
    ck_assert_ptr_null(arena_alloc(arena, SIZE_MAX - 8));
    arena_reset(arena);
    ck_assert_ptr_nonnull(arena_alloc(arena, 1 << 20));
    ck_assert_ptr_null(arena_alloc(arena, 1));
    arena_free(arena);
}
END_TEST

START_TEST(a_status_travels_there_and_back)
{
    struct arena *arena = arena_for_test(BUDGET);
    struct brook_error error;
    ck_assert_ptr_null(envelope_status(arena, 0, "nothing"));
    ck_assert_int_eq(envelope_status_code(NULL), 0);
    ck_assert_int_eq(envelope_status_read(NULL, &error), 0);
    Brook__Status *status = envelope_status(arena, -BROOK_E_NOT_LEADER, "partition a/0: broker 2 leads");
    ck_assert_int_eq(envelope_status_code(status), BROOK_E_NOT_LEADER);
    ck_assert_int_eq(envelope_status_read(status, &error), -BROOK_E_NOT_LEADER);
    ck_assert_str_eq(error.text, "partition a/0: broker 2 leads");
    status->code = INT32_MIN;
    ck_assert_int_gt(envelope_status_code(status), 0);
    arena_free(arena);
}
END_TEST

/* No message type can contain itself: the depth of what is unpacked is fixed by the schema. */
static void walk(const ProtobufCMessageDescriptor *type, const ProtobufCMessageDescriptor **path,
                 size_t depth)
{
    ck_assert_uint_lt(depth, 8);
    for (size_t i = 0; i < depth; i++)
        ck_assert_msg(path[i] != type, "%s contains itself", type->name);
    path[depth] = type;
    for (unsigned i = 0; i < type->n_fields; i++) {
        const ProtobufCFieldDescriptor *f = &type->fields[i];
        ck_assert_msg(f->label != PROTOBUF_C_LABEL_REQUIRED, "%s.%s is required", type->name, f->name);
        ck_assert_msg(f->type != PROTOBUF_C_TYPE_STRING, "%s.%s is a string", type->name, f->name);
        if (f->type == PROTOBUF_C_TYPE_MESSAGE)
            walk(f->descriptor, path, depth + 1);
    }
}

START_TEST(the_schema_has_no_cycle_no_required_field_and_no_string)
{
    const ProtobufCMessageDescriptor *path[8];
    walk(&brook__request__descriptor, path, 0);
    walk(&brook__response__descriptor, path, 0);
}
END_TEST

SUITE_MAIN("wire/envelope", SUITE_TEST(messages_that_multiply_memory_are_refused),
           SUITE_TEST(an_honest_message_of_a_thousand_partitions_fits),
           SUITE_TEST(cut_and_flipped_messages_never_crash),
           SUITE_TEST(a_repeated_field_counts_as_its_last_value),
           SUITE_TEST(unknown_fields_bodies_and_codes_are_survived),
           SUITE_TEST(a_name_with_a_nul_inside_is_no_string),
           SUITE_TEST(an_arena_gives_aligned_zeroed_memory_up_to_its_budget),
           SUITE_TEST(a_status_travels_there_and_back),
           SUITE_TEST(the_schema_has_no_cycle_no_required_field_and_no_string))
