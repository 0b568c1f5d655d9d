/* brookd as a process: options, faults, signals, log lines. ZooKeeper is not needed for any of it. */
#include "proto/base/clock.h"
#include "tests/support/suite.h"

#include <fcntl.h>
#include <jansson.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define ARGUMENTS_MAX 24

struct process {
    pid_t pid;
    char output[512]; /* file: stdout and stderr */
};

static const char *data_option(void)
{
    static char option[512];
    snprintf(option, sizeof option, "log.dirs=%s/data", suite_directory());
    return option;
}

static void start(struct process *p, const char *const *arguments)
{
    char program[1024];
    char *argv[ARGUMENTS_MAX + 2] = {program};
    const char *build = getenv("top_builddir");
    static int count;
    snprintf(program, sizeof program, "%s/brookd", build ? build : ".");
    snprintf(p->output, sizeof p->output, "%s/output-%d", suite_directory(), count++);
    for (int i = 0; arguments[i]; i++)
        argv[i + 1] = (char *)(uintptr_t)arguments[i];
    p->pid = fork();
    ck_assert_int_ge(p->pid, 0);
    if (p->pid == 0) {
        int fd = open(p->output, O_CREAT | O_WRONLY | O_APPEND, 0600);
        dup2(fd, STDOUT_FILENO);
        dup2(fd, STDERR_FILENO);
        execv(program, argv);
        _exit(99);
    }
}
#define START(p, ...) start(p, (const char *const[]){__VA_ARGS__, NULL})
#define SERVER \
    "-o", "broker.id=1", "-o", "zookeeper.connect=127.0.0.1:1", "-o", data_option(), "-o", \
        "listeners=127.0.0.1:0"

static char *output_of(const struct process *p)
{
    static char text[65536];
    FILE *f = fopen(p->output, "r");
    size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
    if (f)
        fclose(f);
    text[n] = '\0';
    return text;
}

static int wait_for(const struct process *p)
{
    int status;
    ck_assert_int_eq(waitpid(p->pid, &status, 0), p->pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

struct wanted {
    const struct process *process;
    const char *text;
};

static bool has_text(void *arg)
{
    const struct wanted *w = arg;
    return strstr(output_of(w->process), w->text) != NULL;
}

static void wait_text(const struct process *p, const char *text)
{
    struct wanted w = {p, text};
    ck_assert_msg(suite_wait(has_text, &w, 10000), "no \"%s\" in:\n%s", text, output_of(p));
}

START_TEST(help_and_version_say_what_they_should)
{
    struct process p;
    START(&p, "--help");
    ck_assert_int_eq(wait_for(&p), 0);
    ck_assert_ptr_nonnull(strstr(output_of(&p), "Usage: brookd"));
    START(&p, "--version");
    ck_assert_int_eq(wait_for(&p), 0);
    ck_assert_int_eq(strncmp(output_of(&p), "brookd ", 7), 0);
}
END_TEST

START_TEST(a_bad_command_line_ends_with_2)
{
    struct process p;
    START(&p, "--nonsense");
    ck_assert_int_eq(wait_for(&p), 2);
    START(&p, "server.conf");
    ck_assert_int_eq(wait_for(&p), 2);
    ck_assert_ptr_nonnull(strstr(output_of(&p), "server.conf"));
    START(&p, "-c", "/nowhere/brookd.conf");
    ck_assert_int_eq(wait_for(&p), 2);
    ck_assert_ptr_nonnull(strstr(output_of(&p), "/nowhere/brookd.conf"));
}
END_TEST

START_TEST(check_lists_all_faults)
{
    struct process p;
    START(&p, "--check", "-o", "broker.id=x", "-o", "log.durability=never", "-o", "foo=bar");
    ck_assert_int_eq(wait_for(&p), 2);
    char *text = output_of(&p);
    ck_assert_ptr_nonnull(strstr(text, "broker.id=x is not a whole number"));
    ck_assert_ptr_nonnull(strstr(text, "is none of fsync|replicated|interval"));
    ck_assert_ptr_nonnull(strstr(text, "there is no setting foo"));
    ck_assert_ptr_nonnull(strstr(text, "zookeeper.connect must be set"));
    START(&p, "--check", SERVER);
    ck_assert_int_eq(wait_for(&p), 0);
    START(&p, "--check", SERVER, "-o", "zookeeper.connect=127.0.0.1:2181/a//b/");
    ck_assert_int_eq(wait_for(&p), 2);
    ck_assert_ptr_nonnull(strstr(output_of(&p), "is not a ZooKeeper path"));
}
END_TEST

START_TEST(a_port_in_use_is_told_and_ends_the_start)
{
    struct process p;
    char option[64];
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    ck_assert_int_eq(listen(fd, 1), 0);
    ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&address, &bytes), 0);
    snprintf(option, sizeof option, "listeners=127.0.0.1:%d", ntohs(address.sin_port));
    START(&p, SERVER, "-o", option);
    ck_assert_int_eq(wait_for(&p), 1);
    ck_assert_ptr_nonnull(strstr(output_of(&p), "can not bind"));
    ck_assert_ptr_nonnull(strstr(output_of(&p), "in use"));
    close(fd);
}
END_TEST

static bool is_written(void *arg)
{
    struct stat st;
    return stat(arg, &st) == 0 && st.st_size > 0;
}

START_TEST(a_second_broker_on_the_same_directory_is_refused_at_once)
{
    struct process first, second;
    char lock[512], owner[64];
    snprintf(lock, sizeof lock, "%s/data/.lock", suite_directory());
    START(&first, SERVER);
    ck_assert(suite_wait(is_written, lock, 10000)); /* it names its owner, so it is locked */
    snprintf(owner, sizeof owner, ".lock is locked by process %ld", (long)first.pid);
    START(&second, SERVER);
    ck_assert_int_eq(wait_for(&second), 1);
    ck_assert_msg(strstr(output_of(&second), owner) != NULL, "%s", output_of(&second));
    ck_assert_ptr_null(strstr(output_of(&second), "cleanly"));
    kill(first.pid, SIGTERM);
    ck_assert_int_eq(wait_for(&first), 0);
}
END_TEST

/* Unreachable ZooKeeper is waited for; SIGTERM must end that within bounds. */
START_TEST(sigterm_ends_a_broker_that_never_became_ready)
{
    struct process p;
    START(&p, SERVER, "-o", "controlled.shutdown.max.ms=500");
    wait_text(&p, " starts");
    int64_t began = clock_boot_ms();
    kill(p.pid, SIGTERM);
    ck_assert_int_eq(wait_for(&p), 0);
    ck_assert_int_lt(clock_boot_ms() - began, 10000);
    ck_assert_ptr_nonnull(strstr(output_of(&p), "stopped"));
}
END_TEST

static void write_config(const char *path, const char *more)
{
    FILE *f = fopen(path, "w");
    ck_assert_ptr_nonnull(f);
    fprintf(f, "broker.id=1\nzookeeper.connect=127.0.0.1:1\nlisteners=127.0.0.1:0\n%s\n%s", data_option(),
            more);
    fclose(f);
}

static int count_text(const struct process *p, const char *text)
{
    int count = 0;
    for (const char *at = output_of(p); (at = strstr(at, text)); at += strlen(text))
        count++;
    return count;
}

START_TEST(sighup_takes_over_what_may_change)
{
    struct process p;
    char path[512];
    snprintf(path, sizeof path, "%s/brookd.conf", suite_directory());
    write_config(path, "");
    START(&p, "-c", path);
    wait_text(&p, " starts");
    write_config(path, "max.connections=77\nnum.io.threads=3\n");
    kill(p.pid, SIGHUP);
    wait_text(&p, "max.connections is 77 now (was 10000)");
    wait_text(&p, "num.io.threads stays 0: 3 needs a restart");
    write_config(path, "max.connections=none\nbad.key=1\n");
    kill(p.pid, SIGHUP);
    wait_text(&p, "nothing is changed");
    wait_text(&p, "there is no setting bad.key");
    write_config(path, "log.segment.bytes=99999\n");
    kill(p.pid, SIGHUP);
    wait_text(&p, "log.segment.bytes=99999\n");
    kill(p.pid, SIGINT);
    ck_assert_int_eq(wait_for(&p), 0);
    ck_assert_int_eq(count_text(&p, "does not fit a file of log.segment.bytes=99999"), 1);
}
END_TEST

START_TEST(json_log_lines_are_json)
{
    struct process p;
    START(&p, SERVER, "--log-format=json");
    wait_text(&p, " starts");
    kill(p.pid, SIGTERM);
    ck_assert_int_eq(wait_for(&p), 0);
    int lines = 0;
    char *at = output_of(&p);
    for (char *line; (line = strsep(&at, "\n")) && *line; lines++) {
        json_t *o = json_loads(line, 0, NULL);
        ck_assert_msg(json_is_object(o), "%s", line);
        ck_assert_ptr_nonnull(json_string_value(json_object_get(o, "message")));
        ck_assert_ptr_nonnull(json_string_value(json_object_get(o, "level")));
        json_decref(o);
    }
    ck_assert_int_ge(lines, 3);
}
END_TEST

SUITE_MAIN("brookd", SUITE_TEST(help_and_version_say_what_they_should),
           SUITE_TEST(a_bad_command_line_ends_with_2), SUITE_TEST(check_lists_all_faults),
           SUITE_TEST(a_port_in_use_is_told_and_ends_the_start),
           SUITE_TEST_SLOW(a_second_broker_on_the_same_directory_is_refused_at_once, 40),
           SUITE_TEST_SLOW(sigterm_ends_a_broker_that_never_became_ready, 40),
           SUITE_TEST_SLOW(sighup_takes_over_what_may_change, 60),
           SUITE_TEST_SLOW(json_log_lines_are_json, 40))
