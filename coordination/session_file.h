/* The file that remembers sessions: the present one, and those of earlier processes of ours that nobody has
 * closed yet. Its lines are `session <id, hex> <password, hex>`, newest first; mode 0600, replaced whole.
 * A damaged file counts as empty: what it protects from is a delay, no more. Owner thread only; blocks on the
 * disk. Not synced: it is of use to a process that was killed, not after the machine lost its power for
 * longer than a session lives.
 */
#ifndef BROOK_COORDINATION_SESSION_FILE_H
#define BROOK_COORDINATION_SESSION_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SESSION_PASSWORD_BYTES 16
/* A process that dies again and again before it could close its predecessor's session. */
#define SESSION_FILE_ENTRIES_MAX 8

struct session_key {
    int64_t id;
    char password[SESSION_PASSWORD_BYTES];
};

struct session_file {
    char *path; /* NULL: nothing is kept */
    struct session_key keys[SESSION_FILE_ENTRIES_MAX];
    size_t count;
};

/* Read `path` (may be NULL or missing). Returns 0 or -BROOK_E_NOMEM. */
int session_file_open(struct session_file *f, const char *path);
void session_file_done(struct session_file *f);
/* NULL: not there. Borrowed until the next change. */
const struct session_key *session_file_find(const struct session_file *f, int64_t id);
/* Put `key` first (the oldest goes when there are too many), or take `id` out; then replace the file.
 * Return 0 or -BROOK_E_IO (the change holds in memory). */
int session_file_add(struct session_file *f, const struct session_key *key);
int session_file_remove(struct session_file *f, int64_t id);
#endif
