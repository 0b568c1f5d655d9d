/* The small files beside the logs: does each hold what FORMAT.md says. */
#include "broker/storage/inspect_internal.h"

#include "broker/storage/checkpoint.h"
#include "broker/storage/data_dir.h"
#include "broker/storage/directory.h"
#include "broker/storage/file.h"
#include "broker/storage/identity.h"
#include "broker/storage/marker.h"
#include "broker/storage/producer_snapshot.h"
#include "broker/storage/registered.h"
#include "proto/base/cleanup.h"

#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

#define FILE_BYTES_MAX ((size_t)1 << 30)

static int check_epochs(struct inspect *in, const char *path)
{
    struct epochs e = {0};
    int r = epochs_load(&e, path);
    epochs_done(&e);
    if (r == -BROOK_E_INVALID)
        inspect_say(in, INSPECT_SIDE_FILE, path, -1, "makes no sense: it is made anew from the batches");
    return r == -BROOK_E_INVALID ? 0 : r;
}

static int check_metadata(struct inspect *in, const char *path)
{
    uint8_t id[TOPIC_ID_BYTES];
    int r = partition_metadata_load(path, id);
    if (r == -BROOK_E_INVALID)
        inspect_say(in, INSPECT_SIDE_FILE, path, -1, "makes no sense: the topic's id is not known");
    return r == -BROOK_E_INVALID ? 0 : r;
}

/* Kafka makes the files empty and means by it that they have no entries. */
static bool is_empty(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && st.st_size == 0;
}

static int check_numbers(struct inspect *in, const char *path, int64_t max)
{
    struct offset_checkpoint table;
    if (is_empty(path)) {
        inspect_say(in, INSPECT_NOTE, path, -1, "is empty: it counts as not there");
        return 0;
    }
    int r = offset_checkpoint_load(path, &table);
    bool fits = true;
    for (size_t i = 0; r == 0 && i < table.count; i++)
        fits = fits && table.entries[i].offset <= max;
    if (r == 0)
        offset_checkpoint_done(&table);
    if (r == 0 && !fits)
        r = -BROOK_E_INVALID;
    if (r == -BROOK_E_INVALID || r == -BROOK_E_TOO_MANY)
        inspect_say(in, INSPECT_SIDE_FILE, path, -1, "makes no sense: it counts as not there");
    return r == -BROOK_E_INVALID || r == -BROOK_E_TOO_MANY ? 0 : r;
}

static int check_offsets(struct inspect *in, const char *path)
{
    return check_numbers(in, path, INT64_MAX);
}

/* Leader epochs. */
static int check_reached(struct inspect *in, const char *path)
{
    return check_numbers(in, path, INT32_MAX);
}

static int check_identity(struct inspect *in, const char *path)
{
    struct identity id;
    int r = identity_load(path, &id);
    if (r == -BROOK_E_INVALID)
        inspect_say(in, INSPECT_SIDE_FILE, path, -1, "makes no sense: it is written anew");
    else if (r == -BROOK_E_UNSUPPORTED_VERSION)
        inspect_say(in, INSPECT_SIDE_FILE, path, -1, "is of a later version: a broker refuses to start");
    else
        return r;
    return 0;
}

static int check_marker(struct inspect *in, const char *path)
{
    int64_t epoch;
    int r = marker_load(path, &epoch);
    if (r == -BROOK_E_INVALID)
        inspect_say(in, INSPECT_SIDE_FILE, path, -1, "makes no sense: the last stop does not count as clean");
    return r == -BROOK_E_INVALID ? 0 : r;
}

static int check_registered(struct inspect *in, const char *path)
{
    struct registered registered;
    int r = registered_load(path, &registered);
    if (r == -BROOK_E_INVALID)
        inspect_say(in, INSPECT_SIDE_FILE, path, -1, "makes no sense: it proves nothing in elections");
    return r == -BROOK_E_INVALID ? 0 : r;
}

static int check_snapshot(struct inspect *in, const char *path)
{
    AUTO_FREE char *data = NULL;
    size_t bytes, count;
    int r = file_load(path, FILE_BYTES_MAX, &data, &bytes);
    if (r == 0 && producer_snapshot_check(data, bytes, &count) != 0)
        inspect_say(in, INSPECT_SIDE_FILE, path, -1, "length, version or checksum of the snapshot is wrong");
    return r;
}

static int check_aborted(struct inspect *in, const char *path)
{
    AUTO_FREE char *data = NULL;
    size_t bytes;
    struct aborted_transaction t;
    int r = file_load(path, FILE_BYTES_MAX, &data, &bytes);
    if (r != 0)
        return r;
    for (size_t at = 0; at < bytes; at += ABORTED_TRANSACTION_BYTES)
        if (bytes - at < ABORTED_TRANSACTION_BYTES || aborted_transaction_read((uint8_t *)data + at, &t) != 0 ||
            t.last_offset < t.first_offset) {
            inspect_say(in, INSPECT_SIDE_FILE, path, (int64_t)at, "is no aborted transaction");
            return 0;
        }
    return 0;
}

static const struct {
    const char *end;
    int (*check)(struct inspect *in, const char *path);
} kinds[] = {
    {"/" EPOCHS_FILE, check_epochs},
    {"/" PARTITION_METADATA_FILE, check_metadata},
    {"/" IDENTITY_FILE, check_identity},
    {"/" MARKER_FILE, check_marker},
    {"/" REGISTERED_FILE, check_registered},
    {"/" REACHED_FILE, check_reached},
    {"-offset-checkpoint", check_offsets},
    {".snapshot", check_snapshot},
    {".txnindex", check_aborted},
};

static bool ends_in(const char *text, const char *end)
{
    size_t a = strlen(text), b = strlen(end);
    return (a >= b && strcmp(text + a - b, end) == 0) || (end[0] == '/' && strcmp(text, end + 1) == 0);
}

static bool is_left_over(const char *path)
{
    return ends_in(path, SUFFIX_DELETED) || ends_in(path, SUFFIX_CLEANED) || ends_in(path, SUFFIX_SWAP) ||
           ends_in(path, ".tmp");
}

int inspect_side_file(struct inspect *in, const char *path, struct brook_error *error)
{
    if (is_left_over(path)) {
        inspect_say(in, INSPECT_NOTE, path, -1, "left by a crash or on its way out: swept or finished at the next start");
        return 0;
    }
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (ends_in(path, kinds[i].end)) {
            int r = kinds[i].check(in, path);
            return r == 0 ? 0 : storage_error(error, "reading %s", path);
        }
    return -BROOK_E_INVALID;
}
