/* Which ephemeral nodes the present session has, and how many bytes their paths take.
 *
 * The server writes all of them into one transaction when the session ends, and a few MiB of that stop the
 * ensemble: so there is a budget. A node counts from the moment its creation is sent until it is known not to
 * exist. Paths are with chroot. Owner thread only.
 */
#ifndef BROOK_COORDINATION_LEDGER_H
#define BROOK_COORDINATION_LEDGER_H

#include <stdbool.h>
#include <stddef.h>

struct ledger_entry;
struct ledger {
    struct ledger_entry *entries;
    size_t bytes;
    size_t bytes_max;
};

void ledger_clear(struct ledger *l);
/* Returns 0, -BROOK_E_TOO_MANY when the budget is used up, or -BROOK_E_NOMEM. Twice is once. */
int ledger_add(struct ledger *l, const char *path);
void ledger_remove(struct ledger *l, const char *path);
#endif
