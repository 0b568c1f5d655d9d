/* brook log dump: segment files, offline. Reads with the same parser as broker and library, and never writes. */
#include "client/cli/commands.h"
#include "client/cli/format.h"
#include "client/cli/log_dump.h"

#include "proto/record/record.h"

#include <endian.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define EXPANDED_BYTES_MAX ((size_t)1 << 30)

struct dump {
    struct cli *cli;
    const char *name;
    const uint8_t *data;
    size_t bytes;
    struct codec *codec;
    bool records;
    int64_t faults;
};

static void fault(struct dump *d, size_t position, const char *what)
{
    d->faults++;
    cli_say("%s: at %zu: %s", d->name, position, what);
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

static void walk_records(struct dump *d, const struct batch_header *h, size_t position)
{
    const void *records;
    size_t bytes;
    struct record_walker w;
    struct record r;
    int rc = batch_records(d->data + position, h, d->codec, EXPANDED_BYTES_MAX, &records, &bytes);
    if (rc == 0)
        rc = record_walker_init(&w, h, records, bytes);
    while (rc == 0 && (rc = record_walker_next(&w, &r)) == 0)
        if (d->records)
            print_record(d, &r);
    if (rc != -BROOK_E_AGAIN)
        fault(d, position, brook_error_text(rc));
}

static void dump_log(struct dump *d)
{
    int64_t expected = -1;
    for (size_t at = 0; at < d->bytes;) {
        struct batch_header h;
        int r = batch_read_header(d->data + at, d->bytes - at, &h);
        if (r < 0) {
            d->faults++;
            cli_say("%s: %zu invalid bytes at the end, from %zu on: %s", d->name, d->bytes - at, at,
                    r == -BROOK_E_AGAIN ? "a batch that is not whole" : brook_error_text(r));
            return;
        }
        bool valid = batch_check_crc(d->data + at, &h) == 0;
        print_batch(d, &h, at, valid);
        if (!valid)
            fault(d, at, "the checksum is wrong");
        else
            walk_records(d, &h, at);
        if (h.base_offset < expected)
            fault(d, at, "offsets do not rise");
        expected = batch_last_offset(&h) + 1;
        at += h.total_bytes;
    }
}

static int64_t base_offset_of(const char *name)
{
    const char *slash = strrchr(name, '/');
    return strtoll(slash ? slash + 1 : name, NULL, 10);
}

static void dump_index(struct dump *d)
{
    uint32_t entry[2];
    for (size_t at = 0; at + sizeof entry <= d->bytes; at += sizeof entry) {
        memcpy(entry, d->data + at, sizeof entry);
        int64_t offset = base_offset_of(d->name) + be32toh(entry[0]);
        if (d->cli->json)
            cli_print_json(json_pack("{s:s,s:I,s:I}", "file", d->name, "offset", (json_int_t)offset, "position",
                                     (json_int_t)be32toh(entry[1])));
        else
            printf("offset: %" PRId64 " position: %" PRIu32 "\n", offset, be32toh(entry[1]));
    }
    if (d->bytes % sizeof entry)
        fault(d, d->bytes / sizeof entry * sizeof entry, "an entry that is not whole");
}

static void dump_time_index(struct dump *d)
{
    const size_t entry_bytes = 12;
    for (size_t at = 0; at + entry_bytes <= d->bytes; at += entry_bytes) {
        uint64_t timestamp;
        uint32_t relative;
        memcpy(&timestamp, d->data + at, 8);
        memcpy(&relative, d->data + at + 8, 4);
        int64_t offset = base_offset_of(d->name) + be32toh(relative);
        if (d->cli->json)
            cli_print_json(json_pack("{s:s,s:I,s:I}", "file", d->name, "timestamp", (json_int_t)be64toh(timestamp),
                                     "offset", (json_int_t)offset));
        else
            printf("timestamp: %" PRId64 " offset: %" PRId64 "\n", (int64_t)be64toh(timestamp), offset);
    }
    if (d->bytes % entry_bytes)
        fault(d, d->bytes / entry_bytes * entry_bytes, "an entry that is not whole");
}

static bool ends_in(const char *text, const char *end)
{
    size_t a = strlen(text), b = strlen(end);
    return a >= b && strcmp(text + a - b, end) == 0;
}

/* Map a regular file. CLI_FAILED after having said why not. */
static int map_file(struct dump *d)
{
    struct stat st;
    int fd = open(d->name, O_RDONLY | O_CLOEXEC);
    bool is_open = fd >= 0 && fstat(fd, &st) == 0;
    if (!is_open || !S_ISREG(st.st_mode)) {
        cli_say("%s: %s", d->name, is_open ? "not a file" : strerror(errno));
        if (fd >= 0)
            close(fd);
        return CLI_FAILED;
    }
    d->bytes = (size_t)st.st_size;
    void *map = d->bytes ? mmap(NULL, d->bytes, PROT_READ, MAP_PRIVATE, fd, 0) : NULL;
    close(fd);
    if (map == MAP_FAILED) {
        cli_say("%s: %s", d->name, strerror(errno));
        return CLI_FAILED;
    }
    d->data = map;
    return CLI_OK;
}

static int dump_file(struct dump *d)
{
    int64_t before = d->faults;
    if (map_file(d) != CLI_OK)
        return CLI_FAILED;
    if (ends_in(d->name, ".timeindex"))
        dump_time_index(d);
    else if (ends_in(d->name, ".index"))
        dump_index(d);
    else if (ends_in(d->name, ".log"))
        dump_log(d);
    else if (log_dump_is_side_file(d->name))
        d->faults += log_dump_side_file(d->cli, d->name, d->data, d->bytes);
    else
        fault(d, 0, "not a .log, .index or .timeindex file, nor a side file of a log or a data directory");
    if (d->data)
        munmap((void *)(uintptr_t)d->data, d->bytes);
    d->data = NULL;
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
