/* How fast a log is compacted, and in how much memory. Not a test: built on demand and run by hand.
 *
 *     make -C build tests/support/bench_compaction
 *     build/tests/support/bench_compaction DIRECTORY MIB KEYS VALUE-BYTES CODEC [MAP-MIB [BYTES-PER-S]]
 *
 * Fills a new log in DIRECTORY with so many MiB of records of KEYS random keys, compacts it, and prints bytes,
 * seconds, MB/s of the old segments, records removed, passes, the map, and how much resident memory grew. */
#include "broker/storage/compaction.h"
#include "broker/storage/throttle.h"
#include "proto/base/clock.h"
#include "proto/record/batch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define RECORDS 100

static struct throttle *throttle;

static bool go_on(void *arg, size_t bytes)
{
    (void)arg;
    return throttle_take(throttle, bytes);
}

static void exclusively(void *arg, void (*work)(void *work_arg), void *work_arg)
{
    (void)arg;
    work(work_arg);
}

static long resident_kib(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss;
}

static void must(int r, const char *what)
{
    if (r >= 0)
        return;
    fprintf(stderr, "%s: %s\n", what, brook_error_text(r));
    exit(1);
}

static void append_batch(struct log *log, long keys, int value_bytes, enum codec_id id, struct codec *codec,
                         char *value)
{
    size_t room = BATCH_HEADER_BYTES + RECORDS * ((size_t)value_bytes + 64), bytes;
    uint8_t *plain = malloc(room), *packed = malloc(codec_bound(id, room) + BATCH_HEADER_BYTES);
    struct batch_writer w;
    struct log_batch b = {.data = id == CODEC_NONE ? plain : packed};
    int64_t base, now_ms = clock_wall_ms();
    batch_writer_init(&w, plain, room);
    for (int i = 0; i < RECORDS; i++) {
        char key[32];
        int key_bytes = snprintf(key, sizeof key, "key-%016lx", random() % keys);
        for (int k = 0; k < value_bytes; k += 16)
            value[k] = (char)random();
        struct record_view r = {.key = key,
                                .key_bytes = key_bytes,
                                .value = value,
                                .value_bytes = value_bytes,
                                .timestamp = now_ms};
        must(batch_writer_add(&w, &r), "add");
    }
    bytes = batch_writer_finish(&w, -1, -1, -1);
    if (id != CODEC_NONE)
        must(batch_writer_finish_compressed(&w, codec, id, -1, -1, -1, packed,
                                            codec_bound(id, room) + BATCH_HEADER_BYTES, &bytes),
             "compress");
    must(batch_read_header(b.data, bytes, &b.header), "header");
    must(log_append(log, &b, 1, 0, now_ms, &base, NULL), "append");
    free(plain);
    free(packed);
}

int main(int argc, char **argv)
{
    enum codec_id id;
    struct log_settings s;
    struct log_hint hint = {.clean = true, .recovery_point = -1, .start_offset = -1};
    struct log *log;
    struct codec *codec;
    struct brook_error error;
    struct compaction_result r;
    if (argc < 6 || codec_parse(argv[5], &id) != 0) {
        fprintf(stderr, "usage: %s DIRECTORY MIB KEYS VALUE-BYTES CODEC [MAP-MIB [BYTES-PER-S]]\n", argv[0]);
        return 2;
    }
    int64_t bytes = atoll(argv[2]) << 20;
    int value_bytes = atoi(argv[4]);
    char *value = calloc(1, (size_t)value_bytes + 1);
    log_settings_default(&s);
    s.segment_bytes = bytes / 8;
    must(log_open(argv[1], &s, &hint, &log, NULL, &error), "open");
    must(codec_new(&codec), "codec");
    while (log_bytes(log) < bytes)
        append_batch(log, atol(argv[3]), value_bytes, id, codec, value);
    must(log_flush(log), "flush");
    must(throttle_new(argc > 7 ? atoll(argv[7]) : -1, &throttle), "throttle");
    struct compaction_settings c = {.map_bytes_max = (size_t)(argc > 6 ? atol(argv[6]) : 32) << 20,
                                    .expanded_bytes_max = 128 << 20,
                                    .go_on = go_on,
                                    .exclusively = exclusively};
    long before_kib = resident_kib();
    int64_t begun_ns = clock_boot_ns(), cpu_ns = clock_cpu_ns();
    int e = log_compact(log, INT64_MAX, clock_wall_ms(), &c, &r, &error);
    double seconds = (double)(clock_boot_ns() - begun_ns) / 1e9, cpu = (double)(clock_cpu_ns() - cpu_ns) / 1e9;
    if (e != 0)
        fprintf(stderr, "%s\n", error.text);
    must(e, "compact");
    printf("%.1f MB to %.1f MB in %.3f s (CPU %.3f s): %.1f MB/s; %lld records removed, %d passes, %zu keys, map "
           "%.1f MiB, resident memory +%.1f MiB\n",
           (double)r.bytes_before / 1e6, (double)r.bytes_after / 1e6, seconds, cpu,
           (double)r.bytes_before / 1e6 / seconds, (long long)r.records_removed, (int)r.passes, r.keys,
           (double)r.map_bytes / 1048576, (double)(resident_kib() - before_kib) / 1024);
    must(log_close(log), "close");
    codec_free(codec);
    throttle_free(throttle);
    free(value);
    return 0;
}
