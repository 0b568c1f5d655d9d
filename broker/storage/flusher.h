/* The flusher: threads that do nothing but log_flush(), so that all who wait for a log's disk share its
 * syncs.
 *
 * Each log has an entry, which is submitted once and is then flushed by whichever thread is free: everything
 * appended before that moment is covered by the one sync (group commit), and different logs are synced in
 * parallel, which lets a journalling file system commit for all of them at once. Threads are started as they
 * are needed, up to the limit; an idle flusher costs one thread.
 *
 * Knows logs, and not who waits for them. Any thread may call; `flushed` runs on a flusher thread, without
 * any lock of the flusher held. Times are clock_boot_ns().
 */
#ifndef BROOK_STORAGE_FLUSHER_H
#define BROOK_STORAGE_FLUSHER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

struct flusher;
struct log;

/* Syncs under way at one time. A thread that waits in fdatasync costs its stack's used pages only. */
#define FLUSHER_THREADS_MAX 32
/* Entries that are due at a later time are looked at this often. */
#define FLUSHER_TICK_NS ((int64_t)5 * 1000 * 1000)

#define FLUSHER_NEVER INT64_MAX

/* Embedded in whoever owns the log, who keeps both alive from flusher_submit() until `flushed` says never. */
struct flusher_entry {
    struct log *log;
    /* The flush has ended with log_flush()'s `result`; -BROOK_E_CLOSED: there was none, the flusher is
     * stopping. Returns when to flush again, as for flusher_submit(), or FLUSHER_NEVER: then the entry is its
     * owner's again from inside this call on. */
    int64_t (*flushed)(struct flusher_entry *entry, int result);
    /* the flusher's */
    TAILQ_ENTRY(flusher_entry) link;
    int64_t due_ns;
    bool is_waiting; /* for its time */
    bool is_hurried;
};

/* Returns 0, -BROOK_E_NOMEM or -BROOK_E_IO (no thread could be started). */
int flusher_new(int threads_max, struct flusher **ret_flusher);
/* Let flushes under way end, give back what is queued, join the threads; what is submitted from now on is
 * refused. May be called again. NULL is fine. */
void flusher_stop(struct flusher *flusher);
/* After flusher_stop() (or does it). NULL is fine. */
void flusher_free(struct flusher *flusher);

/* Flush the entry's log at `due_ns` or a tick later; 0: as soon as a thread is free. The entry must not be
 * submitted already. Returns false when the flusher is stopped: `flushed` is not called then. */
bool flusher_submit(struct flusher *flusher, struct flusher_entry *entry, int64_t due_ns);
/* Of an entry that was submitted: if it still waits for its time, its time is now. */
void flusher_hurry(struct flusher *flusher, struct flusher_entry *entry);
#endif
