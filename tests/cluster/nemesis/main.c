/* The program behind scripts/nemesis. */
#include "tests/cluster/nemesis/nemesis.h"
#include "tests/support/power_disk.h"
#include "tests/support/suite.h"

#include <getopt.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define PLAN_MAX 256

static const char usage[] =
    "usage: nemesis [--minutes M] [--seed N] [--brokers B] [--replicas R] [--partitions P] [--mode loopback|hosts]\n"
    "               [--topics both|replicated|fsync] [--faults KIND,KIND...] [--no-idempotence] [--json]\n"
    "       nemesis sweep          remove what killed runs left of --mode hosts\n"
    "Exit: 0 all holds, 1 something does not, 2 it could not run.\n";

static void refuse(const char *what)
{
    fprintf(stderr, "nemesis: %s\n%s", what, usage);
    exit(2);
}

static long number(const char *text, long min, long max, const char *what)
{
    char *end;
    long n = strtol(text, &end, 10);
    if (!*text || *end || n < min || n > max)
        refuse(what);
    return n;
}

static uint64_t seed(const char *text)
{
    char *end;
    uint64_t n = strtoull(text, &end, 0);
    if (!*text || *end || strchr(text, '-'))
        refuse("--seed: a number from 0 on");
    return n;
}

static size_t read_plan(char *text, enum fault_kind *plan)
{
    size_t count = 0;
    for (char *name = strtok(text, ","); name; name = strtok(NULL, ",")) {
        enum fault_kind kind = fault_by_name(name);
        if (kind == FAULT_KINDS || count == PLAN_MAX)
            refuse("--faults: no such fault, or too many");
        plan[count++] = kind;
    }
    return count;
}

static int minutes_to_seconds(const char *text)
{
    char *end;
    double minutes = strtod(text, &end);
    if (!*text || *end || !(minutes > 0 && minutes <= 100000))
        refuse("--minutes: a number above 0");
    return (int)(minutes * 60 + 0.5);
}

static void read_arguments(int argc, char **argv, struct nemesis_options *o, enum fault_kind *plan, bool *json)
{
    static const struct option options[] = {
        {"minutes", required_argument, NULL, 'm'},    {"seed", required_argument, NULL, 's'},
        {"brokers", required_argument, NULL, 'b'},    {"replicas", required_argument, NULL, 'r'},
        {"partitions", required_argument, NULL, 'p'}, {"mode", required_argument, NULL, 'o'},
        {"faults", required_argument, NULL, 'f'},     {"no-idempotence", no_argument, NULL, 'i'},
        {"topics", required_argument, NULL, 't'},     {"json", no_argument, NULL, 'j'},
        {"help", no_argument, NULL, 'h'},             {0}};
    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        switch (c) {
        case 'm': o->seconds = minutes_to_seconds(optarg); break;
        case 's': o->seed = seed(optarg); break;
        case 'b': o->brokers = (int)number(optarg, 1, NETWORK_BROKERS_MAX, "--brokers: 1 to 9"); break;
        case 'r': o->replicas = (int)number(optarg, 1, NETWORK_BROKERS_MAX, "--replicas: 1 to 9"); break;
        case 'p': o->partitions = (int)number(optarg, 1, 64, "--partitions: 1 to 64"); break;
        case 'o':
            if (strcmp(optarg, "hosts") != 0 && strcmp(optarg, "loopback") != 0)
                refuse("--mode: loopback or hosts");
            o->mode = strcmp(optarg, "hosts") == 0 ? NETWORK_HOSTS : NETWORK_LOOPBACK;
            break;
        case 'f':
            o->plan = plan;
            o->plan_count = read_plan(optarg, plan);
            break;
        case 't':
            if ((o->topics = topics_kind_by_name(optarg)) == TOPICS_KINDS)
                refuse("--topics: both, replicated or fsync");
            break;
        case 'i': o->no_idempotence = true; break;
        case 'j': *json = true; break;
        case 'h': fputs(usage, stdout); exit(0);
        default: refuse("see the usage");
        }
    }
    if (o->replicas > o->brokers)
        refuse("more replicas than brokers");
    if (o->partitions < TOPICS_MAX && o->topics == TOPICS_BOTH)
        refuse("--partitions: at least one of each topic");
}

/* In a network namespace of its own a broker can not be on such a disk: namespaces are kept among the mounts. */
static void set_power_disks(struct nemesis_options *o)
{
    const char *why = o->mode == NETWORK_HOSTS ? "not as separate hosts" : power_disks_begin(suite_directory());
    o->has_power_disks = !why;
    if (why)
        fprintf(o->talk, "power can not be cut: %s\n", why);
}

static struct nemesis_options options;
static struct nemesis_report report;

START_TEST(run)
{
    nemesis_run(&options, &report);
}
END_TEST

/* What the run stands on asserts as tests do, so it must be one, though in this very process. */
static bool run_as_test(void)
{
    Suite *suite = suite_create("nemesis");
    TCase *tcase = tcase_create("run");
    tcase_add_test(tcase, run);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_set_fork_status(runner, CK_NOFORK);
    srunner_run_all(runner, CK_SILENT);
    bool ran = srunner_ntests_failed(runner) == 0;
    if (!ran)
        srunner_print(runner, CK_NORMAL);
    srunner_free(runner);
    return ran;
}

int main(int argc, char **argv)
{
    static enum fault_kind plan[PLAN_MAX];
    struct timespec now;
    bool json = false;
    clock_gettime(CLOCK_REALTIME, &now);
    options = (struct nemesis_options){.brokers = 4,
                                       .replicas = 3,
                                       .partitions = 6,
                                       .producers = 3,
                                       .groups = 2,
                                       .members = 2,
                                       .seconds = 60,
                                       .seed = ((uint64_t)now.tv_nsec ^ (uint64_t)now.tv_sec << 20) & INT64_MAX};
    if (argc == 2 && strcmp(argv[1], "sweep") == 0) {
        network_sweep();
        return 0;
    }
    read_arguments(argc, argv, &options, plan, &json);
    options.talk = json ? stderr : stdout;
    set_power_disks(&options);
    fprintf(options.talk, "seed %" PRIu64 "\n", options.seed);
    fflush(options.talk);
    /* Whatever failed is left for a look: the directory goes only with an orderly end. */
    if (!run_as_test())
        _exit(2);
    nemesis_report_print(&options, &report, options.talk);
    if (json)
        nemesis_report_json(&options, &report, stdout);
    fflush(NULL);
    if (!nemesis_is_fine(&report) || getenv("NEMESIS_KEEP"))
        _exit(1);
    nemesis_report_done(&report);
    return 0;
}
