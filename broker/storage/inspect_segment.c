/* One segment: its batches, and whether both indexes and the epoch file tell the same. */
#include "broker/storage/inspect_internal.h"

#include "broker/storage/directory.h"
#include "broker/storage/file.h"
#include "broker/storage/index.h"
#include "broker/storage/recovery.h"
#include "broker/storage/time_index.h"
#include "proto/base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* An index holds at most INT32_MAX bytes; more than this no setting allows. */
#define INDEX_BYTES_MAX ((size_t)1 << 30)

/* An index file, read as the batches of its log come by. */
struct reader {
    struct inspect *in;
    char path[PATH_MAX];
    char *data;
    size_t bytes;
    size_t entry_bytes;
    size_t next; /* position of the entry that is waited for; SIZE_MAX: no more are looked at */
};

struct checker {
    struct inspect_log *log;
    const char *path;
    int64_t base_offset;
    struct reader index;
    struct reader times;
    int64_t set_end; /* last offset of the batches that one index entry stands for; -1: none is awaited */
    int64_t greatest;
};

static int reader_open(struct reader *r, struct inspect *in, const char *log_path, bool is_empty,
                       const char *suffix, size_t entry_bytes)
{
    *r = (struct reader){.in = in, .entry_bytes = entry_bytes};
    size_t stem = strlen(log_path) - strlen(SUFFIX_LOG);
    if ((size_t)snprintf(r->path, sizeof r->path, "%.*s%s", (int)stem, log_path, suffix) >= sizeof r->path)
        return -BROOK_E_INVALID;
    int code = file_load(r->path, INDEX_BYTES_MAX, &r->data, &r->bytes);
    if (code == 0 && r->bytes % entry_bytes == 0)
        return 0;
    if (code == -BROOK_E_NOT_FOUND && !is_empty)
        inspect_say(in, INSPECT_NOTE, r->path, -1, "is not there: it is made anew from the log");
    else if (code == 0 || code == -BROOK_E_TOO_MANY)
        inspect_say(in, INSPECT_INDEX, r->path, -1, "is not a whole number of entries");
    else if (code != -BROOK_E_NOT_FOUND)
        return code;
    r->next = SIZE_MAX;
    return 0;
}

static bool reader_has(const struct reader *r)
{
    return r->next != SIZE_MAX && r->next < r->bytes;
}

/* One word for each file is enough: what follows a bad entry is not looked at. */
static void reader_fail(struct reader *r, const char *what)
{
    size_t at = r->next;
    while (at < r->bytes && r->data[at] == 0)
        at++;
    if (at == r->bytes)
        what = "nothing but zeros from here on: room that was set aside and not given back, by a stop that "
               "was not clean";
    inspect_say(r->in, INSPECT_INDEX, r->path, (int64_t)r->next, "%s", what);
    r->next = SIZE_MAX;
}

/* ---- per batch --------------------------------------------------------------------------------------- */

static const uint8_t *entry_at(const struct reader *r, size_t position)
{
    return (const uint8_t *)r->data + position;
}

/* An entry stands for the batch at its position or, as older Kafkas write it, for several that were appended
 * together: its offset is the last of them. */
static void compare_index(struct checker *c, const struct batch_header *h, int64_t position)
{
    struct reader *r = &c->index;
    struct index_entry e, before;
    int64_t last = batch_last_offset(h);
    if (c->set_end >= 0 && last >= c->set_end) {
        if (last > c->set_end && r->next != SIZE_MAX) {
            r->next -= r->entry_bytes;
            return reader_fail(r, "the offset of this entry is not the last of a batch");
        }
        c->set_end = -1;
    }
    while (reader_has(r)) {
        index_entry_decode(entry_at(r, r->next), &e);
        if (r->next > 0) {
            index_entry_decode(entry_at(r, r->next - r->entry_bytes), &before);
            if (e.relative_offset <= before.relative_offset || e.position <= before.position)
                return reader_fail(r, "the entries do not rise");
        }
        if (e.position > position)
            return;
        if (e.position < position || c->base_offset + e.relative_offset < last)
            return reader_fail(r, e.position < position ? "no batch begins where this entry points to"
                                                        : "the batch at this entry's position ends at another offset");
        if (c->base_offset + e.relative_offset > last)
            c->set_end = c->base_offset + e.relative_offset;
        r->next += r->entry_bytes;
    }
}

static void compare_times(struct checker *c, const struct batch_header *h)
{
    struct reader *r = &c->times;
    struct time_index_entry e, before;
    while (reader_has(r)) {
        time_index_entry_decode(entry_at(r, r->next), &e);
        if (r->next > 0) {
            time_index_entry_decode(entry_at(r, r->next - r->entry_bytes), &before);
            if (e.timestamp <= before.timestamp || e.relative_offset < before.relative_offset)
                return reader_fail(r, "the entries do not rise");
        }
        int64_t offset = c->base_offset + e.relative_offset;
        if (offset > batch_last_offset(h))
            return;
        if (offset < h->base_offset)
            return reader_fail(r, "no batch holds the offset of this entry");
        if (e.timestamp != h->max_timestamp || e.timestamp < c->greatest)
            return reader_fail(r, "the timestamp of this entry is not the greatest up to its offset");
        r->next += r->entry_bytes;
    }
}

static void compare_epoch(struct checker *c, const struct batch_header *h)
{
    struct inspect_log *log = c->log;
    const struct epochs *e = &log->epochs;
    size_t below = 0;
    if (!log->epochs_path || h->leader_epoch < 0)
        return;
    while (below < e->count && e->entries[below].start_offset <= h->base_offset)
        below++;
    /* What was deleted by offset, or ends behind the log's start, the file need not know. */
    if (below == 0 && h->base_offset < log->start_offset)
        return;
    if (below > 0 && e->entries[below - 1].epoch == h->leader_epoch)
        return;
    inspect_say(log->in, INSPECT_SIDE_FILE, log->epochs_path, -1,
                "offset %" PRId64 " is of epoch %" PRId32 ", the file says %" PRId32, h->base_offset,
                h->leader_epoch, below > 0 ? e->entries[below - 1].epoch : -1);
    log->epochs_path = NULL;
}

static void seen(void *arg, const struct batch_header *h, int64_t position)
{
    struct checker *c = arg;
    struct inspect_log *log = c->log;
    log->in->batches++;
    log->in->records += h->records_count;
    if (h->base_offset < log->next_offset)
        inspect_say(log->in, INSPECT_DAMAGE, c->path, position,
                    "the batch begins at offset %" PRId64 ", below %" PRId64 " that came before it",
                    h->base_offset, log->next_offset);
    if (h->max_timestamp > c->greatest)
        c->greatest = h->max_timestamp;
    compare_index(c, h, position);
    compare_times(c, h);
    compare_epoch(c, h);
    if (batch_last_offset(h) >= log->next_offset)
        log->next_offset = batch_last_offset(h) + 1;
}

/* ---- the file ---------------------------------------------------------------------------------------- */

static void tell_torn(struct checker *c, const struct recovery_scan *scan, bool has_more)
{
    int64_t left = scan->bytes - scan->valid_bytes;
    if (has_more)
        inspect_say(c->log->in, INSPECT_DAMAGE, c->path, scan->valid_bytes,
                    "%" PRId64 " bytes that are no batch, and a segment follows", left);
    else
        inspect_say(c->log->in, INSPECT_TORN, c->path, scan->valid_bytes,
                    "%" PRId64 " bytes of a batch that was not written to its end", left);
}

/* Batch by batch, going on behind each damaged place. */
static int scan_all(struct checker *c, struct recovery_scan *scan, bool has_more)
{
    for (;;) {
        int r = recovery_scan(scan);
        if (r == -BROOK_E_UNSUPPORTED_FORMAT) {
            inspect_say(c->log->in, INSPECT_DAMAGE, c->path, scan->valid_bytes,
                        "a message of a format before v2, which only Kafka up to 3.x can convert");
            return 0;
        }
        if (r != 0)
            return r;
        if (scan->verdict == RECOVERY_TORN)
            tell_torn(c, scan, has_more);
        if (scan->verdict != RECOVERY_DAMAGED)
            return 0;
        inspect_say(c->log->in, INSPECT_DAMAGE, c->path, scan->valid_bytes,
                    "%" PRId64 " bytes that are no valid batch (length, offset or checksum), with valid ones behind "
                    "them, at %" PRId64,
                    scan->found_position - scan->valid_bytes, scan->found_position);
        scan->start_position = scan->found_position;
    }
}

static void tell_rest(struct checker *c)
{
    if (reader_has(&c->index))
        reader_fail(&c->index, "this entry points behind the last batch");
    if (reader_has(&c->times))
        reader_fail(&c->times, "this entry's offset is behind the last batch");
}

static int check_open(struct checker *c, int fd, int64_t next_base, bool has_more)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return -BROOK_E_STORAGE_ERROR;
    int r = reader_open(&c->index, c->log->in, c->path, st.st_size == 0, SUFFIX_INDEX,
                        INDEX_ENTRY_BYTES);
    if (r == 0)
        r = reader_open(&c->times, c->log->in, c->path, st.st_size == 0, SUFFIX_TIME_INDEX,
                        TIME_INDEX_ENTRY_BYTES);
    struct recovery_scan scan = {.fd = fd,
                                 .base_offset = c->base_offset,
                                 .bytes = st.st_size,
                                 .trusted_below = -1,
                                 .seen = seen,
                                 .arg = c};
    if (r == 0)
        r = scan_all(c, &scan, has_more);
    if (r != 0)
        return r;
    c->log->in->segments++;
    c->log->in->bytes += st.st_size;
    tell_rest(c);
    if (c->log->next_offset > next_base)
        inspect_say(c->log->in, INSPECT_DAMAGE, c->path, -1,
                    "goes up to offset %" PRId64 ", the next segment begins at %" PRId64,
                    c->log->next_offset - 1, next_base);
    return 0;
}

int inspect_segment(struct inspect_log *log, const char *path, int64_t next_base, bool has_more,
                    struct brook_error *error)
{
    struct checker c = {.log = log, .path = path, .set_end = -1, .greatest = INT64_MIN};
    if (!inspect_parse_base(path, SUFFIX_LOG, &c.base_offset))
        return brook_error_set(error, BROOK_E_INVALID, "%s has no base offset of 20 digits as its name", path);
    AUTO_CLOSE int fd = io_open(path, O_RDONLY);
    if (fd < 0) {
        bool is_gone = errno == ENOENT;
        int r = storage_error(error, "opening %s", path);
        return is_gone ? -BROOK_E_NOT_FOUND : r;
    }
    int r = check_open(&c, fd, next_base, has_more);
    free(c.index.data);
    free(c.times.data);
    return r == -BROOK_E_STORAGE_ERROR ? storage_error(error, "reading %s", path)
           : r != 0                    ? brook_error_set(error, -r, "checking %s", path)
                                       : 0;
}
