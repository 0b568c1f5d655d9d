/* A static member's place in state.dir: one process at a time. Any thread. */
#ifndef BROOK_CLIENT_STATE_LOCK_H
#define BROOK_CLIENT_STATE_LOCK_H

struct brook_error;

/* Create and lock `path`. The lock goes with the descriptor *ret_fd, which the caller closes, and with the
 * process. Returns 0; -BROOK_E_LOCKED: another process has it; -BROOK_E_IO (no such directory, not allowed,
 * ...). */
int state_lock_take(const char *path, int *ret_fd, struct brook_error *error);
#endif
