/* `brook produce`, as a process, against a stub broker. */
#include "proto/base/err.h"
#include "tests/support/stub_broker.h"
#include "tests/support/suite.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define WAIT_MS 30000

struct run {
    struct stub_cluster *cluster;
    FILE *input, *complaints;
    pid_t pid;
    int status;
    int asleep; /* how often in a row it was found asleep */
};

static void run_open(struct run *run, stub_function *function, int lines)
{
    memset(run, 0, sizeof *run);
    run->cluster = stub_cluster_new(1);
    stub_cluster_add_topic(run->cluster, "t", 1);
    stub_cluster_on_request(run->cluster, function, NULL);
    ck_assert_ptr_nonnull(run->input = tmpfile());
    ck_assert_ptr_nonnull(run->complaints = tmpfile());
    for (int i = 0; i < lines; i++)
        fputs("x\n", run->input);
    rewind(run->input);
}

static void run_start_with(struct run *run, const char *const *options, size_t count)
{
    const char *arguments[16] = {"brook", "produce", "t", "-b", stub_cluster_servers(run->cluster), "--quiet"};
    memcpy(arguments + 6, options, count * sizeof *options);
    const char *top = getenv("top_builddir");
    char brook[512];
    snprintf(brook, sizeof brook, "%s/client/cli/brook", top ? top : ".");
    run->pid = fork();
    ck_assert_int_ge(run->pid, 0);
    if (run->pid > 0)
        return;
    dup2(fileno(run->input), STDIN_FILENO);
    dup2(fileno(run->complaints), STDERR_FILENO);
    execv(brook, (char *const *)(uintptr_t)arguments);
    _exit(127);
}

/* With so little memory that it has to wait for room all the time. */
static void run_start(struct run *run)
{
    static const char *const options[] = {"--batch-size", "1", "-X", "buffer.memory=65536", "-X", "retries=0"};
    run_start_with(run, options, sizeof options / sizeof options[0]);
}

static bool has_ended(void *arg)
{
    struct run *run = arg;
    return waitpid(run->pid, &run->status, WNOHANG) == run->pid;
}

static void run_close(struct run *run)
{
    fclose(run->input);
    fclose(run->complaints);
    stub_cluster_free(run->cluster);
}

static enum stub_verdict refuse_two(void *arg, const struct stub_request *q)
{
    if (q->request->body_case != BROOK__REQUEST__BODY_PRODUCE || (q->number != 0 && q->number != 4999))
        return STUB_PASS;
    stub_reply_error(q, BROOK_E_BAD_BATCH, q->number ? "partition t/0: this one not" : "this one not");
    return STUB_DONE;
}

START_TEST(a_record_that_was_not_stored_is_named_by_its_line)
{
    struct run run;
    char text[1000] = "";
    run_open(&run, refuse_two, 6000);
    run_start(&run);
    ck_assert(suite_wait(has_ended, &run, WAIT_MS));
    ck_assert_int_eq(WEXITSTATUS(run.status), 1);
    rewind(run.complaints);
    text[fread(text, 1, sizeof text - 1, run.complaints)] = '\0';
    ck_assert_msg(strstr(text, "record 1: not stored: partition t/0: this one not") != NULL, "%s", text);
    ck_assert_msg(strstr(text, "record 5000: not stored: partition t/0: this one not") != NULL, "%s", text);
    ck_assert_msg(strstr(text, "5998 of 6000") != NULL, "%s", text);
    run_close(&run);
}
END_TEST

static enum stub_verdict swallow_produce(void *arg, const struct stub_request *q)
{
    return q->request->body_case == BROOK__REQUEST__BODY_PRODUCE ? STUB_DONE : STUB_PASS;
}

/* It has sent something and has nothing more to do. */
static bool is_stuck(void *arg)
{
    struct run *run = arg;
    char name[64], state = '?';
    snprintf(name, sizeof name, "/proc/%d/stat", run->pid);
    FILE *stat = fopen(name, "re");
    if (!stat || fscanf(stat, "%*d (%*[^)]) %c", &state) != 1)
        state = '?';
    if (stat)
        fclose(stat);
    bool sent = stub_cluster_requests(run->cluster, BROOK__REQUEST__BODY_PRODUCE) > 0;
    run->asleep = sent && state == 'S' ? run->asleep + 1 : 0;
    return run->asleep > 20;
}

START_TEST(a_signal_ends_it_while_it_waits_for_room)
{
    struct run run;
    run_open(&run, swallow_produce, 20000);
    run_start(&run);
    ck_assert(suite_wait(is_stuck, &run, WAIT_MS));
    kill(run.pid, SIGTERM);
    bool ended = suite_wait(has_ended, &run, WAIT_MS);
    if (!ended)
        kill(run.pid, SIGKILL);
    ck_assert(ended);
    ck_assert(WIFEXITED(run.status) && WEXITSTATUS(run.status) == 1);
    run_close(&run);
}
END_TEST

static void note_record(void *arg, const struct record *r)
{
    char *text = arg;
    size_t used = strlen(text);
    snprintf(text + used, 200 - used, "%.*s=%.*s|", (int)(r->key ? r->key_bytes : 4), r->key ? (const char *)r->key : "null",
             (int)(r->value ? r->value_bytes : 4), r->value ? (const char *)r->value : "null");
}

START_TEST(a_value_that_is_the_null_value_is_written_as_null)
{
    struct run run;
    char text[200] = "";
    run_open(&run, NULL, 0);
    fputs("a:-\nb:--\nc:\n-\nd:x-\n", run.input);
    rewind(run.input);
    static const char *const options[] = {"--key-separator", ":", "--null-value", "-"};
    run_start_with(&run, options, 4);
    ck_assert(suite_wait(has_ended, &run, WAIT_MS));
    ck_assert(WIFEXITED(run.status) && WEXITSTATUS(run.status) == 0);
    ck_assert_int_eq(stub_cluster_walk(run.cluster, "t", 0, note_record, text), 5);
    ck_assert_str_eq(text, "a=null|b=--|c=|null=null|d=x-|");
    run_close(&run);
}
END_TEST

SUITE_MAIN("cli/produce", SUITE_TEST_SLOW(a_value_that_is_the_null_value_is_written_as_null, 60),
           SUITE_TEST_SLOW(a_record_that_was_not_stored_is_named_by_its_line, 60),
           SUITE_TEST_SLOW(a_signal_ends_it_while_it_waits_for_room, 60))
