/* libbrook: produce to, consume from and administer a Brook cluster.
 *
 *     #include <brook/brook.h>          cc ... $(pkg-config --cflags --libs brook)
 *
 * Conventions
 *   - Opaque handles, no global state. Each handle has one background thread that runs its connections; the
 *     application waits only where a call takes a timeout.
 *   - Functions return 0 or a negative number of <brook/err.h>; those with a `brook_error *error` also fill in a
 *     sentence that names the thing (NULL: not wanted). Nothing aborts, nothing prints.
 *   - Callbacks run only inside the application's own poll, flush or close calls, without locks held; they may
 *     call back in.
 *   - A handle may be used by several threads at once unless its header says otherwise.
 *   - `bytes` counts bytes, `ms` milliseconds, offsets count records and mean the *next* record to read.
 *   - After fork() a child may only free what it inherited (nothing is sent or closed cleanly then).
 */
#ifndef BROOK_BROOK_H
#define BROOK_BROOK_H

#include <brook/admin.h>
#include <brook/config.h>
#include <brook/consumer.h>
#include <brook/err.h>
#include <brook/producer.h>
#include <brook/stream.h>
#include <brook/types.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

#define BROOK_VERSION_TEXT "0.1.0"

/* Version of the library at run time: "0.1.0". */
const char *brook_version(void);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
