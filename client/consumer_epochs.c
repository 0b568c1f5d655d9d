#include "client/consumer_epochs.h"

#include <assert.h>
#include <string.h>

void read_epochs_clear(struct read_epochs *e)
{
    e->count = 0;
}

static int find_before(const struct read_epochs *e, int64_t offset)
{
    int i = e->count - 1;
    while (i >= 0 && e->list[i].start >= offset)
        i--;
    return i;
}

int32_t read_epochs_before(const struct read_epochs *e, int64_t offset)
{
    int i = find_before(e, offset);
    return i < 0 ? -1 : e->list[i].epoch;
}

static void forget_from(struct read_epochs *e, int64_t offset)
{
    e->count = find_before(e, offset) + 1;
}

void read_epochs_note(struct read_epochs *e, int32_t epoch, int64_t offset)
{
    if (epoch < 0)
        return;
    forget_from(e, offset); /* it may be read again */
    int32_t last = read_epochs_before(e, offset);
    if (last == epoch)
        return;
    if (last > epoch)
        read_epochs_clear(e); /* no log goes that way */
    if (e->count == READ_EPOCHS_MAX)
        memmove(e->list, e->list + 1, (size_t)--e->count * sizeof e->list[0]);
    e->list[e->count].epoch = epoch;
    e->list[e->count++].start = offset;
}

int64_t read_epochs_cut(struct read_epochs *e, int64_t position, int32_t epoch, int64_t end)
{
    int last = find_before(e, position);
    assert(position > 0);
    /* What the other log does not have of ours begins with our first epoch above the one that it does have. */
    for (int i = 0; i <= last; i++)
        if (e->list[i].epoch > epoch && e->list[i].start < end)
            end = e->list[i].start;
    if (end >= position) /* it has that record, and yet has not */
        end = last >= 0 ? e->list[last].start : position - 1;
    if (end < 0)
        end = 0;
    forget_from(e, end);
    return end;
}
