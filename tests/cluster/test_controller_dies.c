/* A controller ends at each write of each thing that it does: at the k-th, which does not arrive, or is carried out and
 * it never learns. The next one finishes the thing, all brokers agree with what is stored, and nothing that was
 * acknowledged is lost. And one that is deposed instead and comes back changes nothing with the writes it had sent.
 *
 * With BROOK_QUICK=1 some of them, as the seed says.
 */
#include "tests/cluster/controller_deeds.h"

#include "proto/base/clock.h"

#include <stdio.h>
#include <string.h>

#define RECORDS 60
#define QUICK_ROUNDS 8
#define WRITES_MAX 20
#define ENDLESS 1000000

enum fate {
    KILLED_WITHHELD,
    KILLED_SWALLOWED,
    DEPOSED,   /* its session lives, and its writes arrive when another has finished */
    OVERTAKEN, /* they arrive before the other has written anything: but for its epoch nothing refuses them */
    EXPIRED,   /* its session does not live */
    FATES
};
static const char *const fate_names[FATES] = {"killed, write withheld", "killed, answer swallowed", "deposed",
                                              "overtaken", "expired"};

struct attempt {
    struct stage *s;
    const struct deed *deed;
    enum fate fate;
    unsigned kth;
    char what[160];
    char alive[STAGE_BROKERS + 1];
    char asked[STAGE_BROKERS + 1];
    struct agreement agreement;
};

static bool is_killed(const struct attempt *a)
{
    return a->fate == KILLED_WITHHELD || a->fate == KILLED_SWALLOWED;
}

static bool is_over(const struct attempt *a)
{
    return is_killed(a) || a->fate == EXPIRED;
}

static bool is_withheld(const struct attempt *a)
{
    return a->fate == KILLED_WITHHELD || a->fate == DEPOSED || a->fate == OVERTAKEN;
}

/* `away`: the actor is dead or cut off. */
static void set_living(struct attempt *a, bool is_away)
{
    const struct stage *s = a->s;
    char *alive = a->alive, *asked = a->asked;
    for (int32_t id = 1; id <= STAGE_BROKERS; id++) {
        bool is_registered = id != s->victim && !(is_away && id == s->actor && is_over(a));
        if (is_registered)
            *alive++ = (char)('0' + id);
        if (is_registered && id != s->sleeper && !(is_away && id == s->actor))
            *asked++ = (char)('0' + id);
    }
    *alive = *asked = '\0';
    a->agreement = (struct agreement){.r = s->r, .alive = a->alive, .asked = a->asked};
}

/* ---- the deed --------------------------------------------------------------------------------------------- */

static void choose_parts(struct attempt *a)
{
    struct stage *s = a->s;
    int count = 0;
    s->round++;
    s->victim = 0;
    s->may_be_nothing = false;
    s->actor = s->controller = replicated_wait_controller(s->r, -1);
    for (int32_t id = 1; id <= STAGE_BROKERS && count < 2; id++)
        if (id != s->controller)
            s->others[count++] = id;
    a->deed->prepare(s);
    s->asked = is_killed(a) ? s->actor : s->others[0];
}

static bool is_done(struct attempt *a)
{
    return (!a->deed->is_done || a->deed->is_done(a->s)) && agreement_holds(&a->agreement);
}

static bool is_shut(const struct attempt *a)
{
    return zookeeper_gate_is_shut(a->s->gates[a->s->actor]);
}

static bool is_shut_or_done(void *arg)
{
    return is_shut(arg) || is_done(arg);
}

static bool is_done_without(void *arg)
{
    return is_done(arg);
}

static void wait_for(struct attempt *a, bool (*condition)(void *arg), const char *what)
{
    if (!replicated_wait(a->s->r, condition, a, REPLICATED_WAIT_MS))
        ck_abort_msg("%s: %s: %s", a->what, what, a->agreement.why);
}

static bool is_shut_now(void *arg)
{
    return is_shut(arg);
}

/* Returns whether the write came. */
static bool act(struct attempt *a)
{
    struct stage *s = a->s;
    struct zookeeper_gate *gate = s->gates[s->actor];
    zookeeper_gate_arm(gate, a->kth, is_withheld(a) ? ZOOKEEPER_GATE_WITHHOLD : ZOOKEEPER_GATE_SWALLOW);
    a->deed->begin(s);
    set_living(a, false);
    wait_for(a, is_shut_or_done, "not begun, not done");
    if (zookeeper_gate_disarm(gate))
        return false;
    wait_for(a, is_shut_now, "no answer to swallow");
    return true;
}

/* ---- what becomes of the controller ----------------------------------------------------------------------- */

static bool has_answers(void *arg)
{
    struct attempt *a = arg;
    struct zookeeper_gate_late late = zookeeper_gate_late(a->s->gates[a->s->actor]);
    return late.answered == late.count;
}

/* What it had sent arrives. */
static void let_through(struct attempt *a)
{
    struct zookeeper_gate *gate = a->s->gates[a->s->actor];
    zookeeper_gate_open(gate);
    wait_for(a, has_answers, "late writes are not answered");
    struct zookeeper_gate_late late = zookeeper_gate_late(gate);
    ck_assert_msg(late.count > 0 && late.carried_out == 0, "%s: %u of %u late writes were carried out", a->what,
                  late.carried_out, late.count);
}

static void depose(struct stage *s)
{
    coordinator_delete(s->r->zk, PATH_CONTROLLER, -1, caller_begin(&s->r->caller));
    int err = caller_end(&s->r->caller)->err;
    ck_assert(err == 0 || err == -BROOK_E_NO_NODE);
}

struct heir {
    struct attempt *a;
    int32_t broker;
};

static bool is_heir_stopped(void *arg)
{
    const struct heir *heir = arg;
    return zookeeper_gate_is_shut(heir->a->s->gates[heir->broker]);
}

/* Each other may claim the seat, and whoever gets it writes nothing more for now. One whose claim was withheld is
 * overtaken already. */
static void overtake(struct attempt *a)
{
    struct stage *s = a->s;
    struct heir heir = {.a = a};
    if (replicated_wait_controller(s->r, -1) != s->actor)
        return let_through(a);
    for (const char *id = a->asked; *id; id++)
        zookeeper_gate_arm(s->gates[*id - '0'], 2, ZOOKEEPER_GATE_WITHHOLD);
    depose(s);
    heir.broker = replicated_wait_controller(s->r, s->actor);
    ck_assert_msg(replicated_wait(s->r, is_heir_stopped, &heir, REPLICATED_WAIT_MS), "%s: %d writes nothing", a->what,
                  heir.broker);
    let_through(a);
    for (const char *id = a->asked; *id; id++)
        zookeeper_gate_open(s->gates[*id - '0']);
}

static void strike(struct attempt *a)
{
    struct stage *s = a->s;
    set_living(a, true);
    s->may_be_nothing = a->fate == KILLED_WITHHELD && a->kth == 1;
    if (is_killed(a))
        brokers_kill(s->r->b, s->actor);
    if (is_over(a)) {
        zookeeper_gate_cut(s->gates[s->actor]);
        stage_expire(s, s->actor);
    } else if (a->fate == OVERTAKEN) {
        overtake(a);
    } else {
        depose(s);
    }
    replicated_wait_controller(s->r, s->actor);
    wait_for(a, is_done_without, "not finished by the next controller");
}

static void come_back(struct attempt *a)
{
    struct stage *s = a->s;
    struct zookeeper_gate *gate = s->gates[s->actor];
    if (a->deed->tempt && !is_killed(a))
        a->deed->tempt(s);
    if (is_over(a))
        zookeeper_gate_open(gate);
    if (is_killed(a))
        brokers_restart(s->r->b, s->actor);
    else if (a->fate == EXPIRED)
        zookeeper_gate_arm(gate, ENDLESS, ZOOKEEPER_GATE_WITHHOLD);
    else if (a->fate == DEPOSED)
        let_through(a);
}

static bool is_kept(void *arg)
{
    struct attempt *a = arg;
    return a->deed->is_kept(a->s);
}

static void conclude(struct attempt *a, bool has_come)
{
    struct stage *s = a->s;
    if (a->deed->restore)
        a->deed->restore(s);
    if (s->is_asking)
        raw_close(&s->client);
    s->is_asking = false;
    stage_wait_whole(s, a->what);
    if (a->deed->is_kept && !(a->deed->tempt && has_come && !is_killed(a)))
        wait_for(a, is_kept, "disks do not hold what they should");
    if (has_come && a->fate == EXPIRED) {
        unsigned writes = zookeeper_gate_writes(s->gates[s->actor]);
        ck_assert_msg(writes == 0, "%s: %u writes in the next session", a->what, writes);
        ck_assert(zookeeper_gate_disarm(s->gates[s->actor]));
    }
    if (a->deed->is_unhurt && has_come && !is_killed(a))
        ck_assert_msg(a->deed->is_unhurt(s), "%s: late writes have hurt", a->what);
    replicated_flush(s->r);
    if (a->deed->clean)
        a->deed->clean(s);
}

/* Returns whether the deed takes so many writes. */
static bool attempt(struct stage *s, const struct deed *deed, enum fate fate, unsigned kth)
{
    struct attempt a = {.s = s, .deed = deed, .fate = fate, .kth = kth};
    int64_t began_ms = clock_boot_ms();
    snprintf(a.what, sizeof a.what, "%s, controller %s at write %u", deed->name, fate_names[fate], kth);
    stage_wait_whole(s, a.what);
    choose_parts(&a);
    replicated_send(s->r, RECORDS);
    bool has_come = act(&a);
    if (has_come) {
        strike(&a);
        come_back(&a);
    }
    conclude(&a, has_come);
    fprintf(stderr, "# %s%s: %lld ms\n", a.what, has_come ? "" : " (there is none)",
            (long long)(clock_boot_ms() - began_ms));
    return has_come;
}

/* ---- tests -------------------------------------------------------------------------------------------------- */

static void attempt_some(struct stage *s)
{
    for (int i = 0; i < QUICK_ROUNDS; i++) {
        const struct deed *deed = &controller_deeds[suite_random_below(&s->seed, (uint64_t)controller_deeds_count)];
        enum fate fate = (enum fate)suite_random_below(&s->seed, FATES);
        if (!attempt(s, deed, fate, 1 + (unsigned)suite_random_below(&s->seed, 3)))
            attempt(s, deed, fate, 1);
    }
}

/* At each of its writes, killed in both manners. */
static void kill_at_all(struct stage *s)
{
    for (int i = 0; i < controller_deeds_count; i++) {
        const struct deed *deed = &controller_deeds[i];
        unsigned kth = 1;
        for (; kth < WRITES_MAX && attempt(s, deed, KILLED_WITHHELD, kth); kth++)
            attempt(s, deed, KILLED_SWALLOWED, kth);
        ck_assert_msg(kth > 1 && kth < WRITES_MAX, "%s takes %u writes", deed->name, kth - 1);
    }
}

/* At each of its writes, deposed in one of the manners. */
static void depose_at_all(struct stage *s)
{
    for (int i = 0; i < controller_deeds_count; i++) {
        const struct deed *deed = &controller_deeds[i];
        unsigned kth = 1;
        while (kth < WRITES_MAX &&
               attempt(s, deed, DEPOSED + (enum fate)suite_random_below(&s->seed, FATES - DEPOSED), kth))
            kth++;
        ck_assert_msg(kth > 1 && kth < WRITES_MAX, "%s takes %u writes", deed->name, kth - 1);
    }
}

START_TEST(a_controller_killed_at_any_write_leaves_nothing_half_done)
{
    struct stage *s = stage_begin();
    if (suite_is_quick())
        attempt_some(s);
    else
        kill_at_all(s);
    replicated_check(s->r);
    stage_end(s);
}
END_TEST

START_TEST(a_controller_deposed_at_any_write_changes_nothing_more)
{
    struct stage *s = stage_begin();
    depose_at_all(s);
    replicated_check(s->r);
    stage_end(s);
}
END_TEST

SUITE_MAIN("cluster/controller_dies", SUITE_TEST_SLOW(a_controller_killed_at_any_write_leaves_nothing_half_done, 240),
           SUITE_TEST_SLOW(a_controller_deposed_at_any_write_changes_nothing_more, 240))
