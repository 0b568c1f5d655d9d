/* brook log dump: segment files, offline. Reads with the same parser as broker and library, and never writes. */
#include "client/cli/commands.h"
#include "client/cli/format.h"
#include "client/cli/log_dump.h"

#include "broker/storage/file.h"
#include "proto/record/record.h"

#include <endian.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define EXPANDED_BYTES_MAX ((size_t)1 << 30)
#define SIDE_FILE_BYTES_MAX ((size_t)1 << 30)
/* Read at once; more only where a batch is longer. */
#define BLOCK_BYTES ((size_t)1 << 18)

struct dump {
    struct cli *cli;
    const char *name;
    int fd;
    size_t bytes; /* of the file, when it was opened */
    uint8_t *block; /* kept from file to file */
    size_t capacity;
    size_t block_position;
    size_t block_bytes;
    struct codec *codec;
    bool records;
    int64_t faults;
};

static void fault(struct dump *d, size_t position, const char *what)
{
    d->faults++;
    cli_say("%s: at %zu: %s", d->name, position, what);
}

/* Have `wanted` bytes from `at` on in the block, or what is left of them: a file that is in use may be cut at any time,
 * so it is read, not mapped. Returns what is at hand, 0 at the end; -1 after having said what is wrong. */
static ssize_t have(struct dump *d, size_t at, size_t wanted, const uint8_t **ret_data)
{
    size_t left = at < d->bytes ? d->bytes - at : 0, want = wanted < left ? wanted : left;
    if (at < d->block_position || at + want > d->block_position + d->block_bytes) {
        size_t room = want > BLOCK_BYTES ? want : BLOCK_BYTES;
        if (d->capacity < room) {
            free(d->block);
            d->block = malloc(room);
            d->capacity = d->block ? room : 0;
        }
        ssize_t n = d->block ? file_read(d->fd, d->block, room < left ? room : left, (off_t)at) : -1;
        d->block_position = at;
        d->block_bytes = n > 0 ? (size_t)n : 0;
        if (n < 0)
            return fault(d, at, d->block ? strerror(errno) : "out of memory"), -1;
        if ((size_t)n < want) {
            fault(d, at + (size_t)n, "the file became shorter while it was read");
            d->bytes = at + (size_t)n;
        }
    }
    *ret_data = d->block + (at - d->block_position);
    return (ssize_t)(d->block_position + d->block_bytes - at);
}

static void print_batch(const struct dump *d, const struct batch_header *h, size_t position, bool valid)
{
    enum codec_id codec = (enum codec_id)(h->attributes & BATCH_CODEC_MASK);
    if (d->cli->json) {
        cli_print_json(json_pack("{s:s,s:I,s:I,s:I,s:i,s:i,s:s,s:I,s:I,s:i,s:i,s:b}", "file", d->name, "position",
                                 (json_int_t)position, "base_offset", (json_int_t)h->base_offset, "last_offset",
                                 (json_int_t)batch_last_offset(h), "records", h->records_count, "leader_epoch",
                                 h->leader_epoch, "codec", codec_name(codec), "bytes", (json_int_t)h->total_bytes,
                                 "producer_id", (json_int_t)h->producer_id, "producer_epoch", h->producer_epoch,
                                 "base_sequence", h->base_sequence, "valid", valid));
        return;
    }
    printf("baseOffset: %" PRId64 " lastOffset: %" PRId64 " count: %" PRId32 " baseSequence: %" PRId32
           " producerId: %" PRId64 " producerEpoch: %d partitionLeaderEpoch: %" PRId32 " isControl: %s position: %zu "
           "CreateTime: %" PRId64 " size: %zu magic: 2 compresscodec: %s crc: %" PRIu32 " isvalid: %s\n",
           h->base_offset, batch_last_offset(h), h->records_count, h->base_sequence, h->producer_id, h->producer_epoch,
           h->leader_epoch, h->attributes & BATCH_CONTROL ? "true" : "false", position, h->max_timestamp,
           h->total_bytes, codec_name(codec), h->crc, valid ? "true" : "false");
}

static json_t *headers_json(const struct record *r)
{
    json_t *list = json_array();
    struct record_header h;
    for (const uint8_t *at = r->headers; record_next_header(r, &at, &h) == 0;) {
        json_t *pair = json_object();
        format_json_bytes(pair, "key", h.key, (size_t)h.key_bytes);
        format_json_bytes(pair, "value", h.value, h.value ? (size_t)h.value_bytes : 0);
        json_array_append_new(list, pair);
    }
    return list;
}

static void print_record(const struct dump *d, const struct record *r)
{
    if (d->cli->json) {
        json_t *object = json_pack("{s:s,s:I,s:I}", "file", d->name, "offset", (json_int_t)r->offset, "timestamp",
                                   (json_int_t)r->timestamp);
        format_json_bytes(object, "key", r->key, r->key ? (size_t)r->key_bytes : 0);
        format_json_bytes(object, "value", r->value, r->value ? (size_t)r->value_bytes : 0);
        if (r->headers_count)
            json_object_set_new(object, "headers", headers_json(r));
        cli_print_json(object);
        return;
    }
    printf("| offset: %" PRId64 " CreateTime: %" PRId64 " keySize: %" PRId32 " valueSize: %" PRId32 " headerKeys: [",
           r->offset, r->timestamp, r->key ? r->key_bytes : -1, r->value ? r->value_bytes : -1);
    struct record_header h;
    int n = 0;
    for (const uint8_t *at = r->headers; record_next_header(r, &at, &h) == 0;)
        printf("%s%.*s", n++ ? "," : "", (int)h.key_bytes, (const char *)h.key);
    struct brook_message m = {.key = r->key, .key_bytes = (size_t)(r->key ? r->key_bytes : 0), .value = r->value,
                              .value_bytes = (size_t)(r->value ? r->value_bytes : 0)};
    format_print(r->key ? "] key: %k value: %v\\n" : "] value: %v\\n", "", 0, &m, stdout);
}

static void walk_records(struct dump *d, const struct batch_header *h, const uint8_t *data, size_t position)
{
    const void *records;
    size_t bytes;
    struct record_walker w;
    struct record r;
    int rc = batch_records(data, h, d->codec, EXPANDED_BYTES_MAX, &records, &bytes);
    if (rc == 0)
        rc = record_walker_init(&w, h, records, bytes);
    while (rc == 0 && (rc = record_walker_next(&w, &r)) == 0)
        if (d->records)
            print_record(d, &r);
    if (rc != -BROOK_E_AGAIN)
        fault(d, position, brook_error_text(rc));
}

/* The batch at `at`, whole. Returns 0; -BROOK_E_NOT_FOUND at the end, or after having said what is wrong. */
static int read_batch(struct dump *d, size_t at, struct batch_header *ret_header, const uint8_t **ret_data)
{
    ssize_t n = have(d, at, BATCH_HEADER_BYTES, ret_data);
    if (n <= 0)
        return -BROOK_E_NOT_FOUND;
    int r = batch_read_header(*ret_data, (size_t)n, ret_header);
    if (r == -BROOK_E_AGAIN && n >= BATCH_HEADER_BYTES && ret_header->total_bytes <= d->bytes - at) {
        n = have(d, at, ret_header->total_bytes, ret_data);
        if (n <= 0)
            return -BROOK_E_NOT_FOUND;
        r = batch_read_header(*ret_data, (size_t)n, ret_header);
    }
    if (r == 0)
        return 0;
    d->faults++;
    cli_say("%s: %zu invalid bytes at the end, from %zu on: %s", d->name, d->bytes - at, at,
            r == -BROOK_E_AGAIN ? "a batch that is not whole" : brook_error_text(r));
    return -BROOK_E_NOT_FOUND;
}

static void dump_log(struct dump *d)
{
    int64_t expected = -1;
    struct batch_header h;
    const uint8_t *data;
    for (size_t at = 0; read_batch(d, at, &h, &data) == 0; at += h.total_bytes) {
        bool valid = batch_check_crc(data, &h) == 0;
        print_batch(d, &h, at, valid);
        if (!valid)
            fault(d, at, "the checksum is wrong");
        else
            walk_records(d, &h, data, at);
        if (h.base_offset < expected)
            fault(d, at, "offsets do not rise");
        expected = batch_last_offset(&h) + 1;
    }
}

static int64_t base_offset_of(const char *name)
{
    const char *slash = strrchr(name, '/');
    return strtoll(slash ? slash + 1 : name, NULL, 10);
}

/* The next entry of an index. False at the end; what is left of an entry there is a fault. */
static bool next_entry(struct dump *d, size_t *at, void *entry, size_t bytes)
{
    const uint8_t *data;
    ssize_t n = have(d, *at, bytes, &data);
    if (n > 0 && (size_t)n < bytes)
        fault(d, *at, "an entry that is not whole");
    if (n < (ssize_t)bytes)
        return false;
    memcpy(entry, data, bytes);
    *at += bytes;
    return true;
}

static void dump_index(struct dump *d)
{
    uint32_t entry[2];
    for (size_t at = 0; next_entry(d, &at, entry, sizeof entry);) {
        int64_t offset = base_offset_of(d->name) + be32toh(entry[0]);
        if (d->cli->json)
            cli_print_json(json_pack("{s:s,s:I,s:I}", "file", d->name, "offset", (json_int_t)offset, "position",
                                     (json_int_t)be32toh(entry[1])));
        else
            printf("offset: %" PRId64 " position: %" PRIu32 "\n", offset, be32toh(entry[1]));
    }
}

static void dump_time_index(struct dump *d)
{
    uint8_t entry[12];
    for (size_t at = 0; next_entry(d, &at, entry, sizeof entry);) {
        uint64_t timestamp;
        uint32_t relative;
        memcpy(&timestamp, entry, 8);
        memcpy(&relative, entry + 8, 4);
        int64_t offset = base_offset_of(d->name) + be32toh(relative);
        if (d->cli->json)
            cli_print_json(json_pack("{s:s,s:I,s:I}", "file", d->name, "timestamp", (json_int_t)be64toh(timestamp),
                                     "offset", (json_int_t)offset));
        else
            printf("timestamp: %" PRId64 " offset: %" PRId64 "\n", (int64_t)be64toh(timestamp), offset);
    }
}

static bool ends_in(const char *text, const char *end)
{
    size_t a = strlen(text), b = strlen(end);
    return a >= b && strcmp(text + a - b, end) == 0;
}

/* Open a regular file. CLI_FAILED after having said why not. */
static int open_file(struct dump *d)
{
    struct stat st;
    d->fd = open(d->name, O_RDONLY | O_CLOEXEC);
    bool is_open = d->fd >= 0 && fstat(d->fd, &st) == 0;
    if (!is_open || !S_ISREG(st.st_mode)) {
        cli_say("%s: %s", d->name, is_open ? "not a file" : strerror(errno));
        if (d->fd >= 0)
            close(d->fd);
        return CLI_FAILED;
    }
    d->bytes = (size_t)st.st_size;
    d->block_position = d->block_bytes = 0;
    return CLI_OK;
}

static void dump_side_file(struct dump *d)
{
    char *data = NULL;
    size_t bytes;
    int r = file_load(d->name, SIDE_FILE_BYTES_MAX, &data, &bytes);
    if (r == 0)
        d->faults += log_dump_side_file(d->cli, d->name, data, bytes);
    else
        fault(d, 0, brook_error_text(r));
    free(data);
}

static int dump_file(struct dump *d)
{
    int64_t before = d->faults;
    if (open_file(d) != CLI_OK)
        return CLI_FAILED;
    if (ends_in(d->name, ".timeindex"))
        dump_time_index(d);
    else if (ends_in(d->name, ".index"))
        dump_index(d);
    else if (ends_in(d->name, ".log"))
        dump_log(d);
    else if (log_dump_is_side_file(d->name))
        dump_side_file(d);
    else
        fault(d, 0, "not a .log, .index or .timeindex file, nor a side file of a log or a data directory");
    close(d->fd);
    return d->faults == before ? CLI_OK : CLI_FAILED;
}

static bool is_known(const char *path)
{
    return ends_in(path, ".timeindex") || ends_in(path, ".index") || ends_in(path, ".log") ||
           log_dump_is_side_file(path);
}

/* Every file of a partition's directory, in the order of their names. */
static int dump_partition(struct dump *d, const char *directory)
{
    struct dirent **names;
    int count = scandir(directory, &names, NULL, alphasort), code = CLI_OK;
    if (count < 0)
        return cli_say("%s: %s", directory, strerror(errno)), CLI_FAILED;
    for (int i = 0; i < count; i++) {
        char path[PATH_MAX];
        int n = snprintf(path, sizeof path, "%s/%s", directory, names[i]->d_name);
        free(names[i]);
        if ((size_t)n >= sizeof path || !is_known(path))
            continue;
        if (!d->cli->json)
            printf("%s\n", path);
        d->name = path;
        if (dump_file(d) != CLI_OK)
            code = CLI_FAILED;
    }
    free(names);
    return code;
}

static int dump_argument(struct dump *d, const char *path)
{
    struct stat st;
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
        return inspect_is_data_dir(path) ? log_dump_data_dir(d->cli, path) : dump_partition(d, path);
    d->name = path;
    if (d->cli->arguments_count > 1 && !d->cli->json)
        printf("%s\n", path);
    return dump_file(d);
}

static int run(struct cli *cli)
{
    struct dump d = {.cli = cli, .records = cli_flag(cli, "records")};
    if (codec_new(&d.codec) < 0)
        return cli_say("out of memory"), CLI_FAILED;
    int code = CLI_OK;
    for (int i = 0; i < cli->arguments_count; i++)
        if (dump_argument(&d, cli->arguments[i]) != CLI_OK)
            code = CLI_FAILED;
    codec_free(d.codec);
    free(d.block);
    return code;
}

static const struct cli_option options[] = {{"records", NULL, "print each record, not only the batches", 'r'}, {0}};

const struct cli_command cmd_log_dump = {
    .group = "log", .name = "dump", .arguments = "FILE|DIRECTORY...", .arguments_min = 1, .arguments_max = -1,
    .summary = "print the files of a log, offline",
    .description = "Print the batches of .log files, checking every checksum and every record, the entries of .index,\n"
                   ".timeindex, .txnindex and .snapshot files, checkpoints, partition.metadata and meta.properties.\n"
                   "Of a partition's directory every file is printed; of a data directory its side files and a line\n"
                   "for each partition. Brook's and Apache Kafka's directories are alike. Nothing is ever written.\n"
                   "Exits with 1 if anything is wrong with what was printed.",
    .examples = "  brook log dump /var/lib/brook/orders-0/00000000000000000000.log --records\n"
                "  brook log dump /var/lib/brook\n",
    .options = options, .is_offline = true, .run = run,
};
