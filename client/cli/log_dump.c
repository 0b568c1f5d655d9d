#include "client/cli/log_dump.h"

#include "broker/storage/producer_snapshot.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SIDE_FILE_BYTES_MAX ((off_t)1 << 30)

static const char *name_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static bool ends_in(const char *text, const char *end)
{
    size_t a = strlen(text), b = strlen(end);
    return a >= b && strcmp(text + a - b, end) == 0;
}

/* ---- one side file ----------------------------------------------------------------------------------- */

static int wrong(const char *path, const char *what)
{
    cli_say("%s: %s", path, what);
    return 1;
}

static void print_producer(struct cli *cli, const char *path, const struct producer_snapshot_entry *e)
{
    if (cli->json)
        cli_print_json(json_pack("{s:s,s:I,s:i,s:i,s:I,s:i,s:I,s:i,s:I}", "file", path, "producer_id",
                                 (json_int_t)e->producer_id, "producer_epoch", e->producer_epoch, "last_sequence",
                                 e->last_sequence, "last_offset", (json_int_t)e->last_offset, "offset_delta",
                                 e->offset_delta, "timestamp", (json_int_t)e->timestamp, "coordinator_epoch",
                                 e->coordinator_epoch, "transaction_first_offset",
                                 (json_int_t)e->transaction_first_offset));
    else
        printf("producerId: %" PRId64 " producerEpoch: %d lastSequence: %" PRId32 " lastOffset: %" PRId64
               " offsetDelta: %" PRId32 " lastTimestamp: %" PRId64 " coordinatorEpoch: %" PRId32
               " currentTxnFirstOffset: %" PRId64 "\n",
               e->producer_id, e->producer_epoch, e->last_sequence, e->last_offset, e->offset_delta, e->timestamp,
               e->coordinator_epoch, e->transaction_first_offset);
}

static int dump_snapshot(struct cli *cli, const char *path, const void *data, size_t bytes)
{
    size_t count;
    if (producer_snapshot_check(data, bytes, &count) != 0)
        return wrong(path, "length, version or checksum of the snapshot is wrong");
    for (size_t i = 0; i < count; i++) {
        struct producer_snapshot_entry e;
        producer_snapshot_read(data, i, &e);
        print_producer(cli, path, &e);
    }
    return 0;
}

static int dump_aborted(struct cli *cli, const char *path, const void *data, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += ABORTED_TRANSACTION_BYTES) {
        struct aborted_transaction t;
        if (bytes - at < ABORTED_TRANSACTION_BYTES ||
            aborted_transaction_read((const uint8_t *)data + at, &t) != 0)
            return wrong(path, "an entry that is not whole, or of another version");
        if (cli->json)
            cli_print_json(json_pack("{s:s,s:I,s:I,s:I,s:I}", "file", path, "producer_id", (json_int_t)t.producer_id,
                                     "first_offset", (json_int_t)t.first_offset, "last_offset",
                                     (json_int_t)t.last_offset, "last_stable_offset",
                                     (json_int_t)t.last_stable_offset));
        else
            printf("producerId: %" PRId64 " firstOffset: %" PRId64 " lastOffset: %" PRId64 " lastStableOffset: %" PRId64
                   "\n",
                   t.producer_id, t.first_offset, t.last_offset, t.last_stable_offset);
    }
    return 0;
}

static void tell(void *arg, const struct inspect_finding *f)
{
    (void)arg;
    cli_say("%s: %s", f->path, f->text);
}

/* Text is printed as it is, and judged by the broker's own reader. */
static int dump_text(struct cli *cli, const char *path, const void *data, size_t bytes)
{
    struct inspect in = {.found = tell};
    struct brook_error error = {0};
    if (cli->json) {
        json_t *object = json_pack("{s:s}", "file", path);
        json_t *text = data ? json_stringn(data, bytes) : json_string("");
        json_object_set_new(object, "text", text ? text : json_null()); /* not UTF-8: none of ours */
        cli_print_json(object);
    } else {
        fwrite(data, 1, bytes, stdout);
        if (bytes > 0 && ((const char *)data)[bytes - 1] != '\n')
            putchar('\n');
    }
    if (inspect_file(&in, path, &error) != 0)
        return wrong(path, error.text);
    return (int)in.findings[INSPECT_SIDE_FILE];
}

static const struct {
    const char *end;
    int (*dump)(struct cli *cli, const char *path, const void *data, size_t bytes);
} kinds[] = {
    {".snapshot", dump_snapshot},
    {".txnindex", dump_aborted},
    {"-offset-checkpoint", dump_text},
    {"leader-epoch-checkpoint", dump_text},
    {"reached-epoch-checkpoint", dump_text},
    {"partition.metadata", dump_text},
    {"meta.properties", dump_text},
    {".kafka_cleanshutdown", dump_text},
};
#define KINDS_COUNT (sizeof kinds / sizeof kinds[0])

static size_t kind_of(const char *path)
{
    size_t i = 0;
    while (i < KINDS_COUNT && !ends_in(name_of(path), kinds[i].end))
        i++;
    return i;
}

bool log_dump_is_side_file(const char *path)
{
    return kind_of(path) < KINDS_COUNT;
}

int log_dump_side_file(struct cli *cli, const char *path, const void *data, size_t bytes)
{
    return kinds[kind_of(path)].dump(cli, path, data, bytes);
}

/* ---- a data directory -------------------------------------------------------------------------------- */

static int load_and_dump(struct cli *cli, const char *path)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) != 0 || st.st_size > SIDE_FILE_BYTES_MAX) {
        int faults = wrong(path, fd >= 0 ? "too large for a side file" : strerror(errno));
        if (fd >= 0)
            close(fd);
        return faults;
    }
    char *data = malloc((size_t)st.st_size + 1);
    ssize_t n = data ? read(fd, data, (size_t)st.st_size) : -1;
    close(fd);
    if (!cli->json)
        printf("%s\n", path);
    int faults = n < 0 ? wrong(path, "can not be read") : log_dump_side_file(cli, path, data, (size_t)n);
    free(data);
    return faults;
}

static void uuid_text(const struct inspect_summary *s, char text[TOPIC_ID_TEXT_BYTES + 1])
{
    strcpy(text, "-");
    if (s->has_topic_id)
        partition_metadata_encode(s->topic_id, text);
}

static void print_summary_json(const char *path, const struct inspect_summary *s)
{
    char id[TOPIC_ID_TEXT_BYTES + 1];
    uuid_text(s, id);
    json_t *object = json_pack("{s:s,s:I,s:I,s:I,s:I,s:i}", "directory", path, "segments", (json_int_t)s->segments,
                               "bytes", (json_int_t)s->bytes, "start_offset", (json_int_t)s->start_offset,
                               "end_offset", (json_int_t)s->end_offset, "leader_epoch", s->leader_epoch);
    if (s->topic[0])
        json_object_update_new(object, json_pack("{s:s,s:i}", "topic", s->topic, "partition", s->partition));
    json_object_set_new(object, "topic_id", s->has_topic_id ? json_string(id) : json_null());
    cli_print_json(object);
}

static void add_row(struct cli_table *table, const char *path, const struct inspect_summary *s)
{
    char id[TOPIC_ID_TEXT_BYTES + 1], numbers[5][24];
    const int64_t values[5] = {s->segments, s->bytes, s->start_offset, s->end_offset, s->leader_epoch};
    uuid_text(s, id);
    for (int i = 0; i < 5; i++)
        snprintf(numbers[i], sizeof numbers[i], "%" PRId64, values[i]);
    cli_table_add(table, (const char *const[]){name_of(path), id, numbers[0], numbers[1], numbers[2], numbers[3],
                                               numbers[4]});
}

static int summarize(struct cli *cli, struct cli_table *table, const char *path)
{
    struct inspect_summary s;
    struct brook_error error = {0};
    int r = inspect_summarize(path, &s, &error);
    if (r == -BROOK_E_NOT_FOUND) /* any other folder, or a partition that never held anything */
        return 0;
    if (r != 0)
        return wrong(path, error.text);
    if (cli->json)
        print_summary_json(path, &s);
    else
        add_row(table, path, &s);
    return 0;
}

static int dump_entry(struct cli *cli, struct cli_table *table, const char *path)
{
    struct stat st;
    if (stat(path, &st) != 0)
        return 0;
    if (S_ISDIR(st.st_mode))
        return summarize(cli, table, path);
    return S_ISREG(st.st_mode) && log_dump_is_side_file(path) ? load_and_dump(cli, path) : 0;
}

int log_dump_data_dir(struct cli *cli, const char *directory)
{
    static const char *const titles[] = {"PARTITION", "TOPIC ID", "SEGMENTS", "BYTES", "START", "END", "EPOCH"};
    struct dirent **names;
    int count = scandir(directory, &names, NULL, alphasort), faults = 0;
    if (count < 0)
        return cli_say("%s: %s", directory, strerror(errno)), CLI_FAILED;
    struct cli_table *table = cli_table_new(7, titles);
    for (int i = 0; i < count; i++) {
        char path[PATH_MAX];
        const char *name = names[i]->d_name;
        if (strcmp(name, ".") != 0 && strcmp(name, "..") != 0 &&
            (size_t)snprintf(path, sizeof path, "%s/%s", directory, name) < sizeof path)
            faults += dump_entry(cli, table, path);
        free(names[i]);
    }
    free(names);
    if (!cli->json)
        cli_table_print(table, stdout);
    cli_table_free(table);
    return faults == 0 ? CLI_OK : CLI_FAILED;
}
