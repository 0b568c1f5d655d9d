#include "coordination/lease.h"

#include <string.h>

void lease_start(struct lease *l, int timeout_ms)
{
    memset(l, 0, sizeof *l);
    l->timeout_ns = (int64_t)timeout_ms * 1000000;
}

void lease_set_timeout(struct lease *l, int timeout_ms)
{
    l->timeout_ns = (int64_t)timeout_ms * 1000000;
}

void lease_end(struct lease *l)
{
    memset(l, 0, sizeof *l);
}

void lease_renew(struct lease *l, int64_t sent_ns)
{
    if (l->timeout_ns > 0 && sent_ns > l->proved_ns)
        l->proved_ns = sent_ns;
}

int64_t lease_until_ns(const struct lease *l)
{
    return l->proved_ns ? l->proved_ns + l->timeout_ns : 0;
}

int64_t lease_due_ns(const struct lease *l)
{
    if (l->timeout_ns == 0)
        return INT64_MAX;
    int64_t last = l->proved_ns > l->asked_ns ? l->proved_ns : l->asked_ns;
    return last ? last + l->timeout_ns / 4 : 0;
}

void lease_asked(struct lease *l, int64_t now_ns)
{
    l->asked_ns = now_ns;
}
