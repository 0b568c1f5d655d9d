#include "broker/storage/checkpoint.h"

#include "broker/storage/file.h"
#include "proto/base/cleanup.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define VERSION "0"
/* A million partitions. */
#define FILE_BYTES_MAX ((size_t)256 << 20)

static int read_line(struct checkpoint_reader *r)
{
    const char *end = strchr(r->at, '\n');
    if (!end || (size_t)(end - r->at) >= sizeof r->line)
        return -BROOK_E_INVALID;
    memcpy(r->line, r->at, (size_t)(end - r->at));
    r->line[end - r->at] = '\0';
    r->at = end + 1;
    return 0;
}

int checkpoint_reader_init(struct checkpoint_reader *r, const char *text)
{
    r->at = text;
    r->left = 0;
    if (read_line(r) != 0 || strcmp(r->line, VERSION) != 0 || read_line(r) != 0)
        return -BROOK_E_INVALID;
    int end = 0;
    uint32_t count;
    if (strlen(r->line) > 9 || sscanf(r->line, "%" SCNu32 "%n", &count, &end) != 1 || r->line[end] != '\0' ||
        r->line[0] < '0' || r->line[0] > '9')
        return -BROOK_E_INVALID;
    r->left = count;
    return 0;
}

int checkpoint_reader_next(struct checkpoint_reader *r, const char **ret_line)
{
    if (r->left == 0)
        return r->at[0] == '\0' ? -BROOK_E_AGAIN : -BROOK_E_INVALID;
    if (read_line(r) != 0)
        return -BROOK_E_INVALID;
    r->left--;
    *ret_line = r->line;
    return 0;
}

void checkpoint_writer_init(struct checkpoint_writer *w, size_t count)
{
    w->text = NULL;
    w->stream = open_memstream(&w->text, &w->bytes);
    if (w->stream)
        fprintf(w->stream, VERSION "\n%zu\n", count);
}

void checkpoint_writer_add(struct checkpoint_writer *w, const char *format, ...)
{
    if (!w->stream)
        return;
    va_list args;
    va_start(args, format);
    vfprintf(w->stream, format, args);
    va_end(args);
    fputc('\n', w->stream);
}

int checkpoint_writer_save(struct checkpoint_writer *w, const char *path, bool durable,
                           struct brook_error *error)
{
    bool whole = w->stream && !ferror(w->stream);
    if (w->stream && fclose(w->stream) != 0)
        whole = false;
    w->stream = NULL;
    AUTO_FREE char *text = TAKE(w->text);
    if (!whole || !text)
        return brook_error_set(error, BROOK_E_NOMEM, "writing %s", path);
    return file_replace(path, text, w->bytes, durable, error);
}

static int compare(const void *a, const void *b)
{
    const struct offset_checkpoint_entry *x = a, *y = b;
    int r = strcmp(x->topic, y->topic);
    return r != 0 ? r : (x->partition > y->partition) - (x->partition < y->partition);
}

int64_t checkpoint_number(const char **at, char end, int64_t max)
{
    const char *p = *at;
    char *stop;
    if (*p < '0' || *p > '9')
        return -1;
    errno = 0;
    long long number = strtoll(p, &stop, 10);
    if (errno != 0 || number > max || *stop != end)
        return -1;
    *at = end ? stop + 1 : stop;
    return number;
}

static int parse_entry(const char *line, struct offset_checkpoint_entry *ret_entry)
{
    const char *blank = strchr(line, ' ');
    if (!blank || blank == line || blank - line > 255)
        return -BROOK_E_INVALID;
    const char *at = blank + 1;
    int64_t partition = checkpoint_number(&at, ' ', INT32_MAX);
    int64_t offset = partition >= 0 ? checkpoint_number(&at, '\0', INT64_MAX) : -1;
    if (offset < 0)
        return -BROOK_E_INVALID;
    struct offset_checkpoint_entry e = {.partition = (int32_t)partition, .offset = offset};
    e.topic = strndup(line, (size_t)(blank - line));
    if (!e.topic)
        return -BROOK_E_NOMEM;
    *ret_entry = e;
    return 0;
}

static int parse(const char *text, struct offset_checkpoint *table)
{
    struct checkpoint_reader reader;
    const char *line;
    size_t capacity = 0;
    int r = checkpoint_reader_init(&reader, text);
    while (r == 0 && (r = checkpoint_reader_next(&reader, &line)) == 0) {
        if (table->count == capacity) {
            capacity = capacity ? 2 * capacity : 16;
            void *entries = realloc(table->entries, capacity * sizeof *table->entries);
            if (!entries)
                return -BROOK_E_NOMEM;
            table->entries = entries;
        }
        r = parse_entry(line, &table->entries[table->count]);
        if (r == 0)
            table->count++;
    }
    return r == -BROOK_E_AGAIN ? 0 : r;
}

int offset_checkpoint_load(const char *path, struct offset_checkpoint *ret_table)
{
    AUTO_FREE char *text = NULL;
    size_t bytes;
    int r = file_load(path, FILE_BYTES_MAX, &text, &bytes);
    if (r != 0)
        return r;
    struct offset_checkpoint table = {0};
    r = strlen(text) == bytes ? parse(text, &table) : -BROOK_E_INVALID;
    if (r != 0) {
        offset_checkpoint_done(&table);
        return r;
    }
    if (table.count > 0)
        qsort(table.entries, table.count, sizeof *table.entries, compare);
    *ret_table = table;
    return 0;
}

void offset_checkpoint_done(struct offset_checkpoint *table)
{
    for (size_t i = 0; i < table->count; i++)
        free(table->entries[i].topic);
    free(table->entries);
    *table = (struct offset_checkpoint){0};
}

int64_t offset_checkpoint_find(const struct offset_checkpoint *table, const char *topic, int32_t partition)
{
    if (table->count == 0)
        return -1;
    struct offset_checkpoint_entry key = {.topic = (char *)(uintptr_t)topic, .partition = partition};
    const struct offset_checkpoint_entry *found =
        bsearch(&key, table->entries, table->count, sizeof key, compare);
    return found ? found->offset : -1;
}
