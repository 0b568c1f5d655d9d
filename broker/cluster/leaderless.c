#include "broker/cluster/leaderless.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

/* Brokers of one kind, as "broker 2" or "brokers 1,3". */
struct names {
    int count;
    char text[192];
};

struct words {
    char *text;
    size_t at;
};

static void add_name(struct names *n, int32_t broker_id)
{
    size_t at = 0;
    while (n->text[at])
        at++;
    snprintf(n->text + at, sizeof n->text - at, n->count ? ",%" PRId32 : "%" PRId32, broker_id);
    n->count++;
}

static const char *noun(const struct names *n)
{
    return n->count == 1 ? "broker" : "brokers";
}

/* Parts are joined by "; ". */
__attribute__((format(printf, 2, 3))) static void say(struct words *w, const char *format, ...)
{
    va_list args;
    int n = snprintf(w->text + w->at, LEADERLESS_TEXT_BYTES - w->at, "%s", w->at ? "; " : "");
    w->at += n > 0 ? (size_t)n : 0;
    if (w->at >= LEADERLESS_TEXT_BYTES)
        return;
    va_start(args, format);
    n = vsnprintf(w->text + w->at, LEADERLESS_TEXT_BYTES - w->at, format, args);
    va_end(args);
    w->at += n > 0 ? (size_t)n : 0;
    if (w->at >= LEADERLESS_TEXT_BYTES)
        w->at = LEADERLESS_TEXT_BYTES - 1;
}

static bool is_alive(const struct controller_case *c, int32_t broker_id)
{
    return controller_find_broker(c->alive, broker_id) != NULL;
}

static bool is_offline(const struct controller_case *c, int32_t broker_id)
{
    for (int32_t i = 0; i < c->offline_count; i++)
        if (c->offline[i] == broker_id)
            return true;
    return false;
}

static void say_offline(const struct controller_case *c, struct words *w)
{
    struct names offline = {0};
    for (int32_t i = 0; i < c->replicas->count; i++)
        if (is_offline(c, c->replicas->brokers[i]))
            add_name(&offline, c->replicas->brokers[i]);
    if (offline.count)
        say(w, "the log is offline on %s %s", noun(&offline), offline.text);
}

/* Every member of the ISR lives, and none has kept what it had. */
static void say_compared(const struct controller_case *c, struct words *w)
{
    struct names alive = {0}, away = {0};
    for (int32_t i = 0; i < c->replicas->count; i++)
        add_name(is_alive(c, c->replicas->brokers[i]) ? &alive : &away, c->replicas->brokers[i]);
    say(w, "%s %s compare%s logs: all that were in sync were stopped uncleanly", noun(&alive), alive.text,
        alive.count == 1 ? "s" : " their");
    if (away.count)
        say(w, "%s %s, not running, may have more and %s waited for for a while", noun(&away), away.text,
            away.count == 1 ? "is" : "are");
}

static void say_never_led(const struct controller_case *c, struct words *w)
{
    struct names all = {0};
    for (int32_t i = 0; i < c->replicas->count; i++)
        if (!is_alive(c, c->replicas->brokers[i]))
            add_name(&all, c->replicas->brokers[i]);
    if (all.count && all.count == c->replicas->count)
        say(w, "not made yet: waits for %s %s (not running)", noun(&all), all.text);
    else
        say(w, "not made yet: waits for the controller");
}

const char *leaderless_explain(const struct controller_case *c, char text[LEADERLESS_TEXT_BYTES])
{
    struct words w = {text, 0};
    struct names away = {0}, unclean = {0};
    bool any_counts = false;
    text[0] = '\0';
    if (!c->state)
        say_never_led(c, &w);
    if (!c->state || c->state->leader >= 0)
        return text;
    for (int32_t i = 0; i < c->state->isr_count; i++) {
        int32_t member = c->state->isr[i];
        bool counts = controller_counts(c, member);
        any_counts = any_counts || counts;
        if (!is_alive(c, member))
            add_name(&away, member);
        else if (!counts)
            add_name(&unclean, member);
    }
    if (any_counts)
        say(&w, "waits for the controller");
    else if (!away.count)
        say_compared(c, &w);
    else
        say(&w, "waits for %s %s (in sync, not running)", noun(&away), away.text);
    if (!any_counts && away.count && unclean.count)
        say(&w, "%s %s, in sync before, %s stopped uncleanly and may lack records", noun(&unclean), unclean.text,
            unclean.count == 1 ? "was" : "were");
    say_offline(c, &w);
    return text;
}
