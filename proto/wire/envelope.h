/* Envelopes: protobuf messages under a budget.
 *
 * protobuf-c multiplies memory by up to 92 on crafted input, so unpacking takes place in an arena with a
 * budget; a message that needs more is refused. An arena is reset, not freed, between messages: the hot path
 * allocates nothing. One arena per thread; messages live until the next reset.
 */
#ifndef BROOK_WIRE_ENVELOPE_H
#define BROOK_WIRE_ENVELOPE_H

#include "proto/schema/envelope.pb-c.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct brook_error;
struct arena;

/* `budget_bytes`: what all messages since the last reset may take. Returns 0 or -BROOK_E_NOMEM. */
int arena_new(size_t budget_bytes, struct arena **ret_arena);
void arena_free(struct arena *arena);
/* Forget everything; memory beyond a small first block goes back to the system. */
void arena_reset(struct arena *arena);
/* Zeroed memory good until reset, 16-byte aligned; NULL beyond the budget. */
void *arena_alloc(struct arena *arena, size_t bytes);
/* A NUL-terminated copy of bytes that contain none. NULL beyond the budget or when there is a NUL inside. */
char *arena_string(struct arena *arena, const void *data, size_t bytes);

/* Unpack into the arena. Returns 0 or -BROOK_E_BAD_ENVELOPE (malformed, or beyond the budget). */
int envelope_unpack_request(struct arena *arena, const void *data, size_t bytes, Brook__Request **ret);
int envelope_unpack_response(struct arena *arena, const void *data, size_t bytes, Brook__Response **ret);

/* A bytes field from a string or memory (borrowed), and a status. */
ProtobufCBinaryData envelope_bytes(const void *data, size_t bytes);
ProtobufCBinaryData envelope_text(const char *text);
bool envelope_bytes_equal(const ProtobufCBinaryData *b, const char *text);
/* NULL for success (code 0), else a status in the arena with `text` copied (NULL: the list's own text). */
Brook__Status *envelope_status(struct arena *arena, int code, const char *text);
/* The code in a status, 0 for NULL. Always >= 0. */
int envelope_status_code(const Brook__Status *status);
/* Copies code and sentence; returns -code. */
int envelope_status_read(const Brook__Status *status, struct brook_error *error);
#endif
