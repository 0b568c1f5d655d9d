/* brook bench limit: what this machine allows, by the smallest programs that do the same work as a broker and a client:
 * loopback receive into a slab + CRC + pwrite, and file to loopback + receive + CRC; and how often one record can be
 * appended to a file and synced. */
#include "client/cli/bench.h"
#include "client/cli/bench_sync.h"

#include "proto/record/crc32c.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <unistd.h>

#define PIECE_BYTES ((size_t)1 << 20)

struct limit {
    int in;        /* accepted side */
    int out;       /* connecting side */
    int file;
    int64_t bytes;
    uint8_t *send_slab;
    uint8_t *slab;
    uint32_t crc; /* kept, so that the sum is not optimised away */
    bool failed;
};

static bool connect_pair(struct limit *l)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int one = 1, low = 256 << 10;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    l->out = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool fine = listener >= 0 && l->out >= 0 && bind(listener, (struct sockaddr *)&address, sizeof address) == 0 &&
                listen(listener, 1) == 0 && getsockname(listener, (struct sockaddr *)&address, &size) == 0 &&
                connect(l->out, (struct sockaddr *)&address, sizeof address) == 0 &&
                (l->in = accept4(listener, NULL, NULL, SOCK_CLOEXEC)) >= 0;
    if (fine) {
        setsockopt(l->out, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        setsockopt(l->in, SOL_SOCKET, SO_RCVLOWAT, &low, sizeof low);
    }
    close(listener);
    return fine;
}

static void *send_memory(void *arg)
{
    struct limit *l = arg;
    for (int64_t left = l->bytes; left > 0;) {
        ssize_t n = send(l->out, l->send_slab, left < (int64_t)PIECE_BYTES ? (size_t)left : PIECE_BYTES, MSG_NOSIGNAL);
        if (n <= 0)
            break;
        left -= n;
    }
    shutdown(l->out, SHUT_WR);
    return NULL;
}

static void *send_file(void *arg)
{
    struct limit *l = arg;
    off_t at = 0;
    while (at < l->bytes)
        if (sendfile(l->out, l->file, &at, PIECE_BYTES) <= 0)
            break;
    shutdown(l->out, SHUT_WR);
    return NULL;
}

/* Receive pieces into the slab, sum each, and write it when there is a file to write to. */
static int64_t receive(struct limit *l, bool store)
{
    int64_t total = 0;
    uint32_t crc = 0;
    for (;;) {
        size_t have = 0;
        ssize_t n = 1;
        while (have < PIECE_BYTES && (n = recv(l->in, l->slab + have, PIECE_BYTES - have, 0)) > 0)
            have += (size_t)n;
        crc = crc32c(crc, l->slab, have);
        if (store && have && pwrite(l->file, l->slab, have, total) != (ssize_t)have)
            l->failed = true;
        total += (int64_t)have;
        if (n <= 0)
            break;
    }
    l->crc = crc;
    return total;
}

static double run_one(struct limit *l, void *(*sender)(void *), bool store)
{
    pthread_t thread;
    if (!connect_pair(l))
        return 0;
    int64_t start = bench_now_ns();
    int64_t got = 0;
    if (pthread_create(&thread, NULL, sender, l) == 0) {
        got = receive(l, store);
        pthread_join(thread, NULL);
    }
    double seconds = (double)(bench_now_ns() - start) / 1e9;
    close(l->in);
    close(l->out);
    return got == l->bytes && !l->failed ? (double)got / seconds : 0;
}

static uint8_t *map_slab(void)
{
    uint8_t *p = mmap(NULL, 2 * PIECE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (p == MAP_FAILED)
        abort();
    return p;
}

static int run(struct cli *cli)
{
    struct bench b;
    if (!bench_open(&b, cli, 5000000, false)) {
        bench_close(&b);
        return CLI_USAGE;
    }
    const char *folder = cli_value(cli, "directory") ? cli_value(cli, "directory") : "/tmp";
    char path[4096];
    snprintf(path, sizeof path, "%s/brook-limit-XXXXXX", folder);
    struct limit l = {.file = mkstemp(path), .bytes = b.records * b.value_bytes};
    if (l.file < 0) {
        cli_say("%s: %s", folder, strerror(errno));
        bench_close(&b);
        return CLI_FAILED;
    }
    unlink(path);
    l.slab = map_slab();
    l.send_slab = map_slab();
    memcpy(l.send_slab, b.noise, PIECE_BYTES);
    if (!cli_flag(cli, "cold"))
        bench_warm_memory(l.bytes / 10 * 11);
    double in = run_one(&l, send_memory, true);
    if (!cli_flag(cli, "cold")) { /* the first time may have paid for the machine's memory */
        double again = run_one(&l, send_memory, true);
        in = again > in ? again : in;
    }
    double out = run_one(&l, send_file, false);
    double syncs = 0;
    bench_sync_often(folder, 1, (size_t)b.value_bytes, 1.5, &syncs);
    close(l.file);
    munmap(l.slab, 2 * PIECE_BYTES);
    munmap(l.send_slab, 2 * PIECE_BYTES);
    bench_close(&b);
    if (in <= 0 || out <= 0 || syncs <= 0) {
        cli_say("the measurement failed (is %s full?)", folder);
        return CLI_FAILED;
    }
    double size = (double)b.value_bytes;
    if (cli->json)
        return cli_print_json(json_pack("{s:s,s:f,s:f,s:f,s:f,s:f}", "bench", "limit", "in_bytes_per_second", in,
                                        "out_bytes_per_second", out, "in_records_per_second", in / size,
                                        "out_records_per_second", out / size, "syncs_per_second", syncs));
    printf("limit in (loopback, CRC, pwrite): %.2f GB/s, %.0f records/s; out (file, loopback, CRC): %.2f GB/s, %.0f "
           "records/s; append and fdatasync in turn: %.0f/s\n",
           in / 1e9, in / size, out / 1e9, out / size, syncs);
    return CLI_OK;
}

static const struct cli_option options[] = {
    {"records", "N", "as many bytes as this many records (5M)", 'n'},
    {"size", "BYTES", "bytes of each (200)", 's'},
    {"directory", "PATH", "where the file is written (/tmp)", 'd'},
    {"cold", NULL, "do not warm the machine's memory first", 0},
    {0},
};

const struct cli_command cmd_bench_limit = {
    .group = "bench", .name = "limit", .arguments = "", .summary = "measure what this machine allows",
    .description = "Measure the least that storing and reading can cost here, without any broker: bytes from loopback into\n"
                   "a slab, checksummed and written to a file; and from that file over loopback, received and checksummed. Then\n"
                   "one record after the other is appended and synced: what acks=all costs without sharing syncs.",
    .examples = "  brook bench limit --json\n", .options = options, .is_offline = true, .run = run,
};
