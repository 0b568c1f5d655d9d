#include "tests/support/brokers.h"

#include "proto/base/clock.h"
#include "tests/support/power_disk.h"
#include "tests/support/suite.h"
#include "tests/support/zookeeper.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define BROKERS_MAX 9

/* The program's. */
static struct zookeeper *shared;

struct brokers {
    struct zookeeper *zookeeper;
    int count;
    char connect[64];
    char directory[PATH_MAX];
    struct brokers_options options; /* defaults filled in */
    pid_t pids[BROKERS_MAX + 1]; /* by id; 0: not running */
    brook_admin *admin;
};

static const char *build_directory(void)
{
    const char *d = getenv("top_builddir");
    return d ? d : ".";
}

/* In the child: what runs from here on stands on another host, as far as the network is concerned. */
static void enter_namespace(const char *name)
{
    char path[128];
    snprintf(path, sizeof path, "/run/netns/%s", name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || setns(fd, CLONE_NEWNET) < 0)
        _exit(125);
}

/* Run `argv` with its output in files; it dies with this process. */
static pid_t spawn(char *const argv[], const char *output, const char *talk, const char *namespace)
{
    pid_t parent = getpid();
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(126);
    if (*namespace)
        enter_namespace(namespace);
    int in = open("/dev/null", O_RDONLY);
    int out = open(output, O_WRONLY | O_CREAT | O_APPEND, 0644);
    int err = open(talk, O_WRONLY | O_CREAT | O_APPEND, 0644);
    dup2(in, 0);
    dup2(out, 1);
    dup2(err, 2);
    execv(argv[0], argv);
    _exit(127);
}

/* Reap within `timeout_ms`: exit code, 128 + signal, or -1 after a SIGKILL. */
static int reap(pid_t pid, int timeout_ms)
{
    int status;
    for (int waited = 0; waited <= timeout_ms; waited += 5) {
        if (waitpid(pid, &status, WNOHANG) == pid)
            return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        usleep(5000);
    }
    kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
    return -1;
}

static struct brokers_place place_of(const struct brokers *b, int id)
{
    struct brokers_place place = {.listeners = "127.0.0.1:0"};
    snprintf(place.zookeeper, sizeof place.zookeeper, "%s", b->connect);
    if (b->options.place)
        b->options.place(b->options.place_arg, b->zookeeper, id, &place);
    return place;
}

static void write_settings(const struct brokers *b, int id, const char *name, const struct brokers_place *place,
                           const char *const *settings, const char *file)
{
    FILE *f = fopen(file, "we");
    ck_assert_ptr_nonnull(f);
    fprintf(f, "broker.id=%d\nlisteners=%s\nlog.dirs=%s/data-%s\nzookeeper.connect=%s\n", id, place->listeners,
            b->directory, name, place->zookeeper);
    if (*place->advertised)
        fprintf(f, "advertised.listeners=%s\n", place->advertised);
    if (*place->rack)
        fprintf(f, "broker.rack=%s\n", place->rack);
    fprintf(f, "zookeeper.session.timeout.ms=%d\n", b->options.session_timeout_ms);
    for (int i = 0; settings && settings[i]; i++)
        fprintf(f, "%s\n", settings[i]);
    ck_assert_int_eq(fclose(f), 0);
}

static pid_t spawn_broker(const struct brokers *b, int id, const char *name)
{
    char file[PATH_MAX + 64], talk[PATH_MAX + 64], program[PATH_MAX];
    struct brokers_place place = place_of(b, id);
    snprintf(file, sizeof file, "%s/%s.conf", b->directory, name);
    snprintf(talk, sizeof talk, "%s/%s.log", b->directory, name);
    snprintf(program, sizeof program, "%s/brookd", build_directory());
    write_settings(b, id, name, &place, b->options.settings, file);
    char *argv[] = {program, "-c", file, NULL};
    return spawn(argv, talk, talk, place.namespace);
}

void brokers_restart(struct brokers *b, int id)
{
    char name[16];
    snprintf(name, sizeof name, "%d", id);
    ck_assert_int_eq(b->pids[id], 0);
    b->pids[id] = spawn_broker(b, id, name);
}

void brokers_reload(struct brokers *b, int id, const char *const *settings)
{
    char name[16], file[PATH_MAX + 64];
    snprintf(name, sizeof name, "%d", id);
    snprintf(file, sizeof file, "%s/%s.conf", b->directory, name);
    struct brokers_place place = place_of(b, id);
    write_settings(b, id, name, &place, settings, file);
    brokers_signal(b, id, SIGHUP);
}

brook_config *brokers_config(const struct brokers *b)
{
    brook_config *config;
    struct brook_error error;
    ck_assert_int_eq(brook_config_new(&config), 0);
    ck_assert_int_eq(brook_config_set(config, "zookeeper.connect", b->connect, &error), 0);
    return config;
}

static size_t registered(struct brokers *b)
{
    struct brook_cluster *cluster;
    if (brook_admin_describe_cluster(b->admin, NULL, 0, 1000, &cluster, NULL) < 0)
        return 0;
    size_t n = cluster->brokers_count;
    brook_cluster_free(cluster);
    return n;
}

struct wanted {
    struct brokers *b;
    size_t count;
};

static bool is_registered(void *arg)
{
    struct wanted *w = arg;
    return registered(w->b) == w->count;
}

bool brokers_wait_registered(struct brokers *b, int count, int timeout_ms)
{
    int64_t until = clock_boot_ms() + timeout_ms;
    struct wanted w = {b, (size_t)count};
    while (clock_boot_ms() < until)
        if (suite_wait(is_registered, &w, 0))
            return true;
    return false;
}

static void show_logs(const struct brokers *b)
{
    char command[PATH_MAX + 64];
    snprintf(command, sizeof command, "tail -n 20 %s/*.log >&2", b->directory);
    if (system(command) != 0)
        fprintf(stderr, "# no logs in %s\n", b->directory);
}

static void choose_zookeeper(struct brokers *b, const struct brokers_options *o)
{
    struct zookeeper_options zo = {.address = o->zookeeper_address, .tick_ms = o->tick_ms ? o->tick_ms : 200};
    char chroot[32] = "/brook";
    if (shared && !o->own_zookeeper && !o->zookeeper_address && !o->tick_ms && !o->place) {
        b->zookeeper = shared;
        snprintf(chroot, sizeof chroot, "/test-%d", (int)getpid());
    } else {
        b->zookeeper = zookeeper_start(&zo);
    }
    snprintf(b->connect, sizeof b->connect, "%s", zookeeper_connect(b->zookeeper, chroot));
}

int brokers_suite_run(const char *name, const struct suite_test *tests, unsigned count)
{
    shared = zookeeper_start(NULL);
    int r = suite_run(name, tests, count);
    zookeeper_stop(shared);
    return r;
}

struct brokers *brokers_start(int count, const struct brokers_options *options)
{
    static const struct brokers_options standard;
    const struct brokers_options *o = options ? options : &standard;
    struct brokers *b = calloc(1, sizeof *b);
    ck_assert_ptr_nonnull(b);
    b->options = *o;
    b->count = count;
    b->options.session_timeout_ms = o->session_timeout_ms ? o->session_timeout_ms : 2000;
    choose_zookeeper(b, o);
    snprintf(b->directory, sizeof b->directory, "%s", suite_directory());
    for (int id = 1; id <= count; id++) {
        if (o->has_power_disks)
            power_disk_mount(brokers_data_directory(b, id));
        brokers_restart(b, id);
    }
    brook_config *config = brokers_config(b);
    struct brook_error error = {0};
    ck_assert_msg(brook_admin_new(config, &b->admin, &error) == 0, "%s", error.text);
    brook_config_free(config);
    if (!brokers_wait_registered(b, count, 20000)) {
        show_logs(b);
        ck_abort_msg("%d brokers did not register", count);
    }
    return b;
}

void brokers_free(struct brokers *b)
{
    brook_admin_free(b->admin);
    for (int id = 1; id <= BROKERS_MAX; id++)
        if (b->pids[id])
            kill(b->pids[id], SIGCONT), kill(b->pids[id], SIGKILL), reap(b->pids[id], 5000);
    for (int id = 1; id <= b->count && b->options.has_power_disks; id++)
        power_disk_unmount(brokers_data_directory(b, id));
    if (b->zookeeper != shared)
        zookeeper_stop(b->zookeeper);
    free(b);
}

struct zookeeper *brokers_zookeeper(struct brokers *b)
{
    return b->zookeeper;
}

const char *brokers_connect(const struct brokers *b)
{
    return b->connect;
}

const char *brokers_data_directory(const struct brokers *b, int id)
{
    static _Thread_local char path[PATH_MAX + 64];
    snprintf(path, sizeof path, "%s/data-%d", b->directory, id);
    return path;
}

const char *brokers_log(const struct brokers *b, int id)
{
    static _Thread_local char path[PATH_MAX + 64];
    snprintf(path, sizeof path, "%s/%d.log", b->directory, id);
    return path;
}

pid_t brokers_pid(const struct brokers *b, int id)
{
    return b->pids[id];
}

void brokers_signal(struct brokers *b, int id, int signal_number)
{
    ck_assert_int_ne(b->pids[id], 0);
    kill(b->pids[id], signal_number);
}

void brokers_kill(struct brokers *b, int id)
{
    brokers_signal(b, id, SIGKILL);
    reap(b->pids[id], 5000);
    b->pids[id] = 0;
}

void brokers_cut_power(struct brokers *b, const int *ids, int count)
{
    ck_assert(b->options.has_power_disks);
    for (int i = 0; i < count; i++)
        if (b->pids[ids[i]])
            brokers_signal(b, ids[i], SIGKILL);
    for (int i = 0; i < count; i++) {
        if (b->pids[ids[i]])
            brokers_kill(b, ids[i]);
        power_disk_cut(brokers_data_directory(b, ids[i]));
    }
}

void brokers_empty_disk(struct brokers *b, int id)
{
    ck_assert_int_eq(b->pids[id], 0);
    suite_remove_tree(brokers_data_directory(b, id)); /* what is mounted there stays, without a file */
}

bool brokers_is_running(struct brokers *b, int id, int *ret_code)
{
    int status;
    if (b->pids[id] == 0 || waitpid(b->pids[id], &status, WNOHANG) != b->pids[id])
        return true;
    b->pids[id] = 0;
    *ret_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return false;
}

int brokers_stop(struct brokers *b, int id, int timeout_ms)
{
    brokers_signal(b, id, SIGTERM);
    int code = reap(b->pids[id], timeout_ms);
    b->pids[id] = 0;
    if (code != 0)
        show_logs(b);
    return code;
}

int brokers_run_double(struct brokers *b, int id, int timeout_ms, char *output, size_t room)
{
    pid_t pid = spawn_broker(b, id, "double");
    int code = reap(pid, timeout_ms);
    char talk[PATH_MAX + 64];
    snprintf(talk, sizeof talk, "%s/double.log", b->directory);
    FILE *f = fopen(talk, "re");
    size_t n = f ? fread(output, 1, room - 1, f) : 0;
    output[n] = '\0';
    if (f)
        fclose(f);
    return code;
}

void brokers_create_topic(struct brokers *b, const char *topic, int32_t partitions)
{
    struct brook_error error = {0};
    int r = brook_admin_create_topic(b->admin, topic, partitions, 1, NULL, 0, false, 10000, &error);
    if (r < 0)
        show_logs(b);
    ck_assert_msg(r == 0, "%s", error.text);
}

/* ---- members ------------------------------------------------------------------------------------------------ */

void member_start(struct brokers *b, struct member *m, const char *name, const char *group, const char *topic,
                  const char *const *settings)
{
    member_start_with(b, m, name, group, &topic, 1, "%p %o %v\\n", settings);
}

void member_start_with(struct brokers *b, struct member *m, const char *name, const char *group,
                       const char *const *topics, int topics_count, const char *format, const char *const *settings)
{
    char program[PATH_MAX], assignments[16][128];
    snprintf(program, sizeof program, "%s/client/cli/brook", build_directory());
    snprintf(m->output, sizeof m->output, "%.200s/%s.out", b->directory, name);
    snprintf(m->talk, sizeof m->talk, "%.200s/%s.talk.log", b->directory, name);
    char *argv[64] = {program, "--zookeeper", b->connect, "consume", "--group", (char *)(intptr_t)group, "--verbose",
                      "--format", (char *)(intptr_t)format};
    int n = 9;
    for (int i = 0; i < topics_count && i < 8; i++)
        argv[n++] = (char *)(intptr_t)topics[i];
    for (int i = 0; settings && settings[i] && i < 16; i++) {
        snprintf(assignments[i], sizeof assignments[i], "%s", settings[i]);
        argv[n++] = (char *)(intptr_t) "-X";
        argv[n++] = assignments[i];
    }
    argv[n] = NULL;
    m->pid = spawn(argv, m->output, m->talk, "");
}

int64_t member_lines(const struct member *m)
{
    FILE *f = fopen(m->output, "re");
    if (!f)
        return 0;
    static char block[1 << 16];
    int64_t lines = 0;
    size_t n;
    while ((n = fread(block, 1, sizeof block, f)) > 0)
        for (const char *p = block; (p = memchr(p, '\n', (size_t)(block + n - p))) != NULL; p++)
            lines++;
    fclose(f);
    return lines;
}

int member_stop(struct member *m, int timeout_ms)
{
    kill(m->pid, SIGTERM);
    int code = reap(m->pid, timeout_ms);
    m->pid = 0;
    return code;
}

void member_kill(struct member *m)
{
    kill(m->pid, SIGKILL);
    reap(m->pid, 5000);
    m->pid = 0;
}
