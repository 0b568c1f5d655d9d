#include "proto/wire/envelope.h"

#include "proto/base/err.h"

#include <stdlib.h>
#include <string.h>

#define ALIGNMENT 16
#define BLOCK_BYTES ((size_t)64 << 10)

struct block {
    struct block *next;
    size_t capacity;
    _Alignas(ALIGNMENT) uint8_t data[];
};

struct arena {
    ProtobufCAllocator allocator;
    size_t budget;
    size_t taken;        /* bytes handed out, rounded up */
    struct block *block; /* the one in use; older ones behind it, the first one last */
    size_t used;         /* bytes of `block` */
};

static struct block *block_new(struct block *next, size_t capacity)
{
    struct block *block = malloc(sizeof *block + capacity);
    if (!block)
        return NULL;
    block->next = next;
    block->capacity = capacity;
    return block;
}

static void *take_slowly(struct arena *arena, size_t bytes)
{
    struct block *block = block_new(arena->block, bytes > BLOCK_BYTES ? bytes : BLOCK_BYTES);
    if (!block)
        return NULL;
    arena->block = block;
    arena->used = bytes;
    arena->taken += bytes;
    return block->data;
}

static void *take(struct arena *arena, size_t bytes)
{
    if (bytes > arena->budget)
        return NULL;
    bytes = (bytes + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1);
    if (bytes > arena->budget - arena->taken)
        return NULL;
    if (bytes > arena->block->capacity - arena->used)
        return take_slowly(arena, bytes);
    void *at = arena->block->data + arena->used;
    arena->used += bytes;
    arena->taken += bytes;
    return at;
}

static void *allocate(void *arg, size_t bytes)
{
    return take(arg, bytes);
}

static void keep(void *arg, void *pointer)
{
}

int arena_new(size_t budget_bytes, struct arena **ret_arena)
{
    struct arena *arena = calloc(1, sizeof *arena);
    if (!arena)
        return -BROOK_E_NOMEM;
    arena->block = block_new(NULL, BLOCK_BYTES);
    if (!arena->block) {
        free(arena);
        return -BROOK_E_NOMEM;
    }
    arena->budget = budget_bytes & ~(size_t)(ALIGNMENT - 1);
    arena->allocator = (ProtobufCAllocator){.alloc = allocate, .free = keep, .allocator_data = arena};
    *ret_arena = arena;
    return 0;
}

void arena_reset(struct arena *arena)
{
    while (arena->block->next) {
        struct block *next = arena->block->next;
        free(arena->block);
        arena->block = next;
    }
    arena->used = 0;
    arena->taken = 0;
}

void arena_free(struct arena *arena)
{
    if (!arena)
        return;
    arena_reset(arena);
    free(arena->block);
    free(arena);
}

void *arena_alloc(struct arena *arena, size_t bytes)
{
    void *at = take(arena, bytes);
    return at ? memset(at, 0, bytes) : NULL;
}

char *arena_string(struct arena *arena, const void *data, size_t bytes)
{
    if (bytes == SIZE_MAX || (bytes > 0 && memchr(data, '\0', bytes)))
        return NULL;
    char *text = take(arena, bytes + 1);
    if (!text)
        return NULL;
    if (bytes > 0)
        memcpy(text, data, bytes);
    text[bytes] = '\0';
    return text;
}

int envelope_unpack_request(struct arena *arena, const void *data, size_t bytes, Brook__Request **ret)
{
    Brook__Request *request = brook__request__unpack(&arena->allocator, bytes, data);
    if (!request)
        return -BROOK_E_BAD_ENVELOPE;
    *ret = request;
    return 0;
}

int envelope_unpack_response(struct arena *arena, const void *data, size_t bytes, Brook__Response **ret)
{
    Brook__Response *response = brook__response__unpack(&arena->allocator, bytes, data);
    if (!response)
        return -BROOK_E_BAD_ENVELOPE;
    *ret = response;
    return 0;
}

ProtobufCBinaryData envelope_bytes(const void *data, size_t bytes)
{
    return (ProtobufCBinaryData){.len = bytes, .data = (uint8_t *)(uintptr_t)data};
}

ProtobufCBinaryData envelope_text(const char *text)
{
    return envelope_bytes(text, strlen(text));
}

bool envelope_bytes_equal(const ProtobufCBinaryData *b, const char *text)
{
    size_t bytes = strlen(text);
    return b->len == bytes && (bytes == 0 || memcmp(b->data, text, bytes) == 0);
}

Brook__Status *envelope_status(struct arena *arena, int code, const char *text)
{
    if (code == 0)
        return NULL;
    Brook__Status *status = arena_alloc(arena, sizeof *status);
    if (!status)
        return NULL;
    brook__status__init(status);
    status->has_code = 1;
    status->code = abs(code);
    const char *said = text ? text : brook_error_text(code);
    char *copy = arena_string(arena, said, strlen(said));
    if (copy) {
        status->has_text = 1;
        status->text = envelope_text(copy);
    }
    return status;
}

int envelope_status_code(const Brook__Status *status)
{
    if (!status || status->code == INT32_MIN)
        return status ? BROOK_E_SERVER_ERROR : 0;
    return abs(status->code);
}

int envelope_status_read(const Brook__Status *status, struct brook_error *error)
{
    int code = envelope_status_code(status);
    if (code == 0)
        return 0;
    if (status->has_text && status->text.len > 0) {
        int shown = status->text.len < 240 ? (int)status->text.len : 240;
        return brook_error_set(error, code, "%.*s", shown, (const char *)status->text.data);
    }
    return brook_error_set(error, code, "%s", brook_error_text(code));
}
