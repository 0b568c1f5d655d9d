#include "broker/storage/epochs.h"

#include "broker/storage/checkpoint.h"
#include "broker/storage/file.h"
#include "proto/base/cleanup.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* A leader change a second for a year. */
#define FILE_BYTES_MAX ((size_t)1 << 30)

void epochs_done(struct epochs *e)
{
    free(e->entries);
    *e = (struct epochs){0};
}

int32_t epochs_last(const struct epochs *e)
{
    return e->count > 0 ? e->entries[e->count - 1].epoch : -1;
}

size_t epochs_count_below(const struct epoch_entry *entries, size_t count, int64_t offset)
{
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (entries[middle].start_offset < offset)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

size_t epochs_count_up_to(const struct epoch_entry *entries, size_t count, int32_t epoch)
{
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (entries[middle].epoch <= epoch)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static int add(struct epochs *e, int32_t epoch, int64_t start_offset)
{
    if (e->count == e->capacity) {
        size_t capacity = e->capacity ? 2 * e->capacity : 4;
        struct epoch_entry *entries = realloc(e->entries, capacity * sizeof *entries);
        if (!entries)
            return -BROOK_E_NOMEM;
        e->entries = entries;
        e->capacity = capacity;
    }
    e->entries[e->count++] = (struct epoch_entry){.epoch = epoch, .start_offset = start_offset};
    return 0;
}

int epochs_assign(struct epochs *e, int32_t epoch, int64_t start_offset)
{
    if (epoch < 0 || epoch <= epochs_last(e))
        return 0;
    e->dirty = true;
    /* An epoch that began at the same place wrote nothing: the newer one takes over. */
    while (e->count > 0 && e->entries[e->count - 1].start_offset >= start_offset)
        e->count--;
    return add(e, epoch, start_offset);
}

void epochs_cut_end(struct epochs *e, int64_t end_offset)
{
    while (e->count > 0 && e->entries[e->count - 1].start_offset >= end_offset) {
        e->count--;
        e->dirty = true;
    }
}

void epochs_cut_start(struct epochs *e, int64_t start_offset)
{
    size_t gone = 0;
    while (gone + 1 < e->count && e->entries[gone + 1].start_offset <= start_offset)
        gone++;
    if (gone > 0) {
        memmove(e->entries, e->entries + gone, (e->count - gone) * sizeof *e->entries);
        e->count -= gone;
        e->dirty = true;
    }
    if (e->count > 0 && e->entries[0].start_offset < start_offset) {
        e->entries[0].start_offset = start_offset;
        e->dirty = true;
    }
}

static int parse(struct epochs *e, const char *text)
{
    struct checkpoint_reader r;
    const char *line;
    int code = checkpoint_reader_init(&r, text);
    while (code == 0 && (code = checkpoint_reader_next(&r, &line)) == 0) {
        int64_t epoch = checkpoint_number(&line, ' ', INT32_MAX);
        int64_t start = epoch >= 0 ? checkpoint_number(&line, '\0', INT64_MAX) : -1;
        if (start < 0 || epoch <= epochs_last(e) ||
            (e->count > 0 && start <= e->entries[e->count - 1].start_offset))
            return -BROOK_E_INVALID;
        if (add(e, (int32_t)epoch, start) != 0)
            return -BROOK_E_NOMEM;
    }
    return code == -BROOK_E_AGAIN ? 0 : code;
}

int epochs_load(struct epochs *e, const char *path)
{
    AUTO_FREE char *text = NULL;
    size_t bytes;
    int r = file_load(path, FILE_BYTES_MAX, &text, &bytes);
    if (r != 0)
        return r;
    struct epochs loaded = {0};
    r = strlen(text) == bytes ? parse(&loaded, text) : -BROOK_E_INVALID;
    if (r != 0) {
        epochs_done(&loaded);
        return r;
    }
    epochs_done(e);
    *e = loaded;
    return 0;
}

int epochs_save(struct epochs *e, const char *path, bool durable, struct brook_error *error)
{
    struct checkpoint_writer w;
    checkpoint_writer_init(&w, e->count);
    for (size_t i = 0; i < e->count; i++)
        checkpoint_writer_add(&w, "%" PRId32 " %" PRId64, e->entries[i].epoch, e->entries[i].start_offset);
    int r = checkpoint_writer_save(&w, path, durable, error);
    if (r == 0)
        e->dirty = false;
    return r;
}
