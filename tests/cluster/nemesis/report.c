#include "tests/cluster/nemesis/nemesis.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>

/* What is counted, what it is called, and whether it must be 0. */
struct line {
    const char *name;
    int64_t value;
    bool must_be_none;
};
#define LINES_MAX 32

static size_t lines_of(const struct nemesis_report *r, struct line *ret)
{
    const struct verdict *v = &r->verdict;
    const struct line lines[] = {
        {"acknowledged", v->acknowledged, false},
        {"in_log", v->in_log, false},
        {"seen", v->seen, false},
        {"seen_again", v->seen_again, false},
        {"not_stored", r->not_stored, false},
        {"unknown", r->unknown, false},
        {"lost", v->lost, true},
        {"moved", v->moved, true},
        {"duplicated", v->duplicated, r->idempotent},
        {"out_of_order", v->out_of_order, r->idempotent},
        {"acknowledged_out_of_order", v->acknowledged_out_of_order, true},
        {"foreign", v->foreign, true},
        {"vanished", v->vanished, true},
        {"skipped", v->skipped, true},
        {"backwards", v->backwards, true},
        {"missed_by_groups", v->missed, true},
        {"deleted", v->deleted, false},
        {"dropped", v->dropped, true},
        {"undeleted", v->undeleted, true},
        {"replicas_compared", r->replicas_compared, false},
        {"replicas_different", r->replicas_different, true},
        {"high_watermark_answers", r->watermark_answers, false},
        {"high_watermark_back", r->watermark_breaches, true},
        {"state_breaches", r->state_breaches, true},
        {"offset_breaches", r->offset_breaches, true},
        {"surprises", r->surprises, true},
    };
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++)
        ret[i] = lines[i];
    return sizeof lines / sizeof lines[0];
}

bool nemesis_is_fine(const struct nemesis_report *r)
{
    struct line lines[LINES_MAX];
    size_t n = lines_of(r, lines);
    for (size_t i = 0; i < n; i++)
        if (lines[i].must_be_none && lines[i].value != 0)
            return false;
    return r->verdict.acknowledged > 0;
}

/* Over all faults of a kind. */
struct summary {
    int64_t count, leaderless_ms, silent_ms;
};

static int64_t longer(int64_t ms, const struct gap *gap)
{
    return gap->to_ms - gap->from_ms > ms ? gap->to_ms - gap->from_ms : ms;
}

static struct summary summary_of(const struct nemesis_report *r, enum fault_kind kind)
{
    struct summary s = {0};
    for (size_t i = 0; i < r->faults_count; i++) {
        const struct nemesis_fault *f = &r->faults[i];
        if (f->fault.kind != kind)
            continue;
        s.count++;
        s.leaderless_ms = longer(s.leaderless_ms, &f->leaderless);
        s.silent_ms = longer(s.silent_ms, &f->silent);
    }
    return s;
}

void nemesis_report_print(const struct nemesis_options *o, const struct nemesis_report *r, FILE *out)
{
    struct line lines[LINES_MAX];
    size_t n = lines_of(r, lines);
    fprintf(out, "\nseed %" PRIu64 ", %d brokers, %d replicas, %d partitions, topics: %s, %zu faults in %.0f s\n",
            o->seed, o->brokers, o->replicas, o->partitions, topics_kind_name(o->topics), r->faults_count,
            (double)r->run_ms / 1000);
    for (size_t i = 0; i < n; i++)
        fprintf(out, "  %-26s %10" PRId64 "%s\n", lines[i].name, lines[i].value,
                !lines[i].must_be_none ? "" : lines[i].value ? "   must be 0" : "   (0)");
    fprintf(out, "  %-26s %10s %18s %18s\n", "longest, ms", "times", "without a leader", "without an ack");
    for (int kind = 0; kind < FAULT_KINDS; kind++) {
        struct summary s = summary_of(r, (enum fault_kind)kind);
        if (s.count)
            fprintf(out, "  %-26s %10" PRId64 " %18" PRId64 " %18" PRId64 "\n", fault_name((enum fault_kind)kind), s.count,
                    s.leaderless_ms, s.silent_ms);
    }
    fprintf(out, "%s\n", nemesis_is_fine(r) ? "all holds" : "FAILED");
}

static void set_gap(json_t *j, const char *name, const struct gap *gap)
{
    json_t *g = json_object();
    json_object_set_new(g, "partition", json_integer(gap->partition));
    json_object_set_new(g, "from_ms", json_integer(gap->from_ms));
    json_object_set_new(g, "to_ms", json_integer(gap->to_ms));
    json_object_set_new(j, name, g);
}

static json_t *fault_json(const struct nemesis_fault *f)
{
    json_t *j = json_object();
    json_object_set_new(j, "kind", json_string(fault_name(f->fault.kind)));
    json_object_set_new(j, "broker", json_integer(f->fault.broker));
    json_object_set_new(j, "from_ms", json_integer(f->from_ms));
    json_object_set_new(j, "to_ms", json_integer(f->to_ms));
    set_gap(j, "without_leader", &f->leaderless);
    set_gap(j, "without_ack", &f->silent);
    return j;
}

void nemesis_report_json(const struct nemesis_options *o, const struct nemesis_report *r, FILE *out)
{
    struct line lines[LINES_MAX];
    size_t n = lines_of(r, lines);
    json_t *j = json_object(), *faults = json_array();
    json_object_set_new(j, "seed", json_integer((json_int_t)o->seed));
    json_object_set_new(j, "brokers", json_integer(o->brokers));
    json_object_set_new(j, "replicas", json_integer(o->replicas));
    json_object_set_new(j, "partitions", json_integer(o->partitions));
    json_object_set_new(j, "topics", json_string(topics_kind_name(o->topics)));
    json_object_set_new(j, "mode", json_string(o->mode == NETWORK_HOSTS ? "hosts" : "loopback"));
    json_object_set_new(j, "idempotent", json_boolean(r->idempotent));
    json_object_set_new(j, "run_ms", json_integer(r->run_ms));
    for (size_t i = 0; i < n; i++)
        json_object_set_new(j, lines[i].name, json_integer(lines[i].value));
    for (size_t i = 0; i < r->faults_count; i++)
        json_array_append_new(faults, fault_json(&r->faults[i]));
    json_object_set_new(j, "faults", faults);
    json_object_set_new(j, "fine", json_boolean(nemesis_is_fine(r)));
    json_dumpf(j, out, JSON_INDENT(1) | JSON_PRESERVE_ORDER);
    fputc('\n', out);
    json_decref(j);
}

void nemesis_report_done(struct nemesis_report *r)
{
    free(r->faults);
    r->faults = NULL;
}
