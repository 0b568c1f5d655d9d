/* So many bytes a second, shared by threads: each tells what it has read or written, and waits for as long as
 * that was ahead of the rate. Any thread.
 */
#ifndef BROOK_STORAGE_THROTTLE_H
#define BROOK_STORAGE_THROTTLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct throttle;

/* `bytes_per_s` below 1: without limit. Returns 0 or -BROOK_E_NOMEM. */
int throttle_new(int64_t bytes_per_s, struct throttle **ret_throttle);
/* Nobody waits in it. NULL is fine. */
void throttle_free(struct throttle *throttle);
/* Wait. Returns false, at once, when it was stopped. */
bool throttle_take(struct throttle *throttle, size_t bytes);
/* Let all go who wait, and who come. NULL is fine. */
void throttle_stop(struct throttle *throttle);
#endif
