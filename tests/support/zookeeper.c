#include "tests/support/zookeeper.h"

#include "tests/support/suite.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define START_TRIES 3
#define START_MS 30000 /* a busy machine takes its time to start a virtual machine */
/* The port accepts before the server serves, and the first connection may hang: short tries, which become longer. */
#define POLL_MS_MIN 150
#define POLL_MS_MAX 2400

struct zookeeper {
    char directory[PATH_MAX - 64];
    char address[64];
    int port;
    pid_t pid;
    struct zookeeper_options options;
};

static void die(const char *what)
{
    fprintf(stderr, "# zookeeper: %s: %s\n", what, strerror(errno));
    abort();
}

int zookeeper_free_port(void)
{
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof any;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&any, sizeof any) < 0 ||
        getsockname(fd, (struct sockaddr *)&any, &bytes) < 0)
        die("free port");
    close(fd);
    return ntohs(any.sin_port);
}

static void write_config(const struct zookeeper *z)
{
    char path[PATH_MAX];
    const struct zookeeper_options *o = &z->options;
    int tick = o->tick_ms ? o->tick_ms : 200;
    snprintf(path, sizeof path, "%s/zoo.cfg", z->directory);
    FILE *f = fopen(path, "w");
    if (!f)
        die(path);
    fprintf(f,
            "tickTime=%d\ndataDir=%s/data\nclientPort=%d\nclientPortAddress=%s\n"
            "minSessionTimeout=%d\nmaxSessionTimeout=%d\nmaxClientCnxns=%d\n%s\n",
            tick, z->directory, z->port, z->address, o->session_ms_min ? o->session_ms_min : 2 * tick,
            o->session_ms_max ? o->session_ms_max : 60000, o->connections_max, o->more ? o->more : "");
    fclose(f);
}

static void run_java(const struct zookeeper *z, pid_t parent)
{
    char config[PATH_MAX], log[PATH_MAX];
    snprintf(config, sizeof config, "%s/zoo.cfg", z->directory);
    snprintf(log, sizeof log, "%s/log", z->directory);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    int fd = open(log, O_WRONLY | O_CREAT | O_APPEND, 0600);
    int null = open("/dev/null", O_RDONLY);
    dup2(null, STDIN_FILENO);
    dup2(fd, STDOUT_FILENO);
    dup2(fd, STDERR_FILENO);
    execlp("java", "java", "-Xms32m", "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
           "-XX:-UsePerfData", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
           "-Dzookeeper.admin.enableServer=false", "-Dzookeeper.nio.numWorkerThreads=0",
           "-Dzookeeper.forceSync=no", "-Dzookeeper.preAllocSize=64", "-Dzookeeper.extendedTypesEnabled=true",
           "-Dzookeeper.4lw.commands.whitelist=*", "-cp",
           "/usr/share/java/zookeeper.jar:/usr/share/java/slf4j-simple.jar",
           "org.apache.zookeeper.server.quorum.QuorumPeerMain", config, (char *)NULL);
    _exit(127);
}

static int connect_to(const struct zookeeper *z)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV};
    struct addrinfo *info = NULL;
    char port[8];
    snprintf(port, sizeof port, "%d", z->port);
    if (getaddrinfo(z->address, port, &hints, &info) != 0)
        return -1;
    int fd = socket(info->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0 && connect(fd, info->ai_addr, info->ai_addrlen) < 0 && errno != EINPROGRESS) {
        close(fd);
        fd = -1;
    }
    freeaddrinfo(info);
    return fd;
}

static int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static int exchange(int fd, const char *command, char *answer, size_t room, int timeout_ms)
{
    int64_t until = now_ms() + timeout_ms;
    size_t have = 0;
    bool sent = false;
    for (;;) {
        struct pollfd p = {.fd = fd, .events = sent ? POLLIN : POLLOUT};
        int64_t left = until - now_ms();
        if (left <= 0 || poll(&p, 1, (int)left) <= 0)
            return -1;
        if (!sent) {
            if (send(fd, command, strlen(command), MSG_NOSIGNAL) < 0)
                return -1;
            sent = true;
            continue;
        }
        ssize_t n = recv(fd, answer + have, room - 1 - have, 0);
        if (n < 0)
            return -1;
        have += (size_t)n;
        answer[have] = '\0';
        if (n == 0 || have == room - 1)
            return (int)have;
    }
}

int zookeeper_ask(const struct zookeeper *z, const char *command, char *answer, size_t room, int timeout_ms)
{
    int fd = connect_to(z);
    if (fd < 0)
        return -1;
    int n = exchange(fd, command, answer, room, timeout_ms);
    close(fd);
    return n;
}

static bool is_serving(const struct zookeeper *z, int wait_ms)
{
    char answer[2048];
    return zookeeper_ask(z, "srvr", answer, sizeof answer, wait_ms) > 0 && strstr(answer, "Mode:");
}

/* False when it exited (another process may have taken the port) or is not ready in time. */
static bool launch(struct zookeeper *z)
{
    const struct timespec step = {.tv_nsec = 20000000};
    write_config(z);
    pid_t parent = getpid();
    z->pid = fork();
    if (z->pid < 0)
        die("fork");
    if (z->pid == 0)
        run_java(z, parent);
    int wait_ms = POLL_MS_MIN;
    for (int64_t began = now_ms(); now_ms() - began < START_MS; nanosleep(&step, NULL)) {
        if (waitpid(z->pid, NULL, WNOHANG) == z->pid) {
            z->pid = 0;
            return false;
        }
        int64_t asked = now_ms();
        if (is_serving(z, wait_ms))
            return true;
        if (now_ms() - asked >= wait_ms && wait_ms < POLL_MS_MAX)
            wait_ms *= 2;
    }
    return false;
}

static void print_log(const struct zookeeper *z)
{
    char path[PATH_MAX], line[512];
    snprintf(path, sizeof path, "%s/log", z->directory);
    FILE *f = fopen(path, "r");
    while (f && fgets(line, sizeof line, f))
        fprintf(stderr, "# zookeeper: %s", line);
    if (f)
        fclose(f);
}

struct zookeeper *zookeeper_start(const struct zookeeper_options *options)
{
    struct zookeeper *z = calloc(1, sizeof *z);
    const char *tmp = getenv("TMPDIR");
    if (!z)
        die("memory");
    if (options)
        z->options = *options;
    snprintf(z->address, sizeof z->address, "%s", z->options.address ? z->options.address : "127.0.0.1");
    snprintf(z->directory, sizeof z->directory, "%s/brook-zookeeper-XXXXXX", tmp ? tmp : "/tmp");
    if (!mkdtemp(z->directory))
        die(z->directory);
    for (int i = 0; i < START_TRIES; i++) {
        z->port = zookeeper_free_port();
        if (launch(z))
            return z;
        zookeeper_kill(z);
    }
    print_log(z);
    errno = ETIMEDOUT;
    die("it does not start");
    return NULL;
}

void zookeeper_stop(struct zookeeper *z)
{
    if (!z)
        return;
    zookeeper_kill(z);
    suite_remove_tree(z->directory);
    free(z);
}

int zookeeper_port(const struct zookeeper *z)
{
    return z->port;
}

const char *zookeeper_connect(const struct zookeeper *z, const char *chroot)
{
    static _Thread_local char text[256];
    snprintf(text, sizeof text, strchr(z->address, ':') ? "[%s]:%d%s" : "%s:%d%s", z->address, z->port,
             chroot);
    return text;
}

void zookeeper_pause(struct zookeeper *z)
{
    kill(z->pid, SIGSTOP);
}

void zookeeper_continue(struct zookeeper *z)
{
    kill(z->pid, SIGCONT);
}

void zookeeper_kill(struct zookeeper *z)
{
    if (z->pid <= 0)
        return;
    kill(z->pid, SIGKILL);
    /* A test process may do this to the server of its parent: then the parent reaps it. */
    waitpid(z->pid, NULL, 0);
    z->pid = 0;
}

void zookeeper_restart(struct zookeeper *z)
{
    zookeeper_kill(z);
    for (int i = 0; i < START_TRIES; i++) {
        if (launch(z))
            return;
        zookeeper_kill(z);
    }
    print_log(z);
    errno = ETIMEDOUT;
    die("it does not start again");
}
