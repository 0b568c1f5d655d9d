/* Bringing in what a look at an entry has to read from the disk: on a disk thread, while the loop goes on. */
#include "broker/handlers/pull_session.h"

#include <fcntl.h>
#include <stdlib.h>

struct pull_load {
    struct disk_work work;
    struct pull_entry *entry; /* NULL: nobody waits for it any more */
    struct partition *partition;
    struct pull_look look;
};

static void run(struct disk_work *work)
{
    struct pull_load *load = CONTAINER_OF(work, struct pull_load, work);
    const struct pull_look *k = &load->look;
    struct log_range range = {.fd = -1};
    if (log_read(partition_log(load->partition), k->offset, k->end_offset, k->bytes_max, k->whole_first,
                 k->first_bytes_max, &range) < 0)
        return; /* the look that follows meets it too, and tells */
    if (range.bytes)
        posix_fadvise(range.fd, range.position, (off_t)range.bytes, POSIX_FADV_WILLNEED);
    log_range_done(&range);
}

static void done(struct disk_work *work)
{
    struct pull_load *load = CONTAINER_OF(work, struct pull_load, work);
    struct pull_entry *e = load->entry;
    partition_unref(load->partition);
    if (e) {
        struct pull_session *s = e->session;
        pull_entry_drop_load(e);
        e->is_loaded = true;
        pull_entry_make_ready(e);
        if (s->parked)
            s->woken(s);
    }
    free(load);
}

bool pull_entry_load(struct pull_entry *e, struct partition *p, const struct pull_look *look)
{
    if (!e->load) {
        struct pull_load *load = malloc(sizeof *load);
        if (!load)
            return false;
        *load = (struct pull_load){
            .work = {.run = run, .done = done}, .entry = e, .partition = partition_ref(p), .look = *look};
        e->load = load;
        e->session->loading_count++;
        e->session->loop->ops->submit(e->session->loop, &load->work);
    }
    pull_entry_make_quiet(e);
    return true;
}

void pull_entry_drop_load(struct pull_entry *e)
{
    if (!e->load)
        return;
    e->load->entry = NULL;
    e->load = NULL;
    e->session->loading_count--;
}
