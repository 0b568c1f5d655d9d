/* Time, in one place. Leases, deadlines and latencies run on CLOCK_BOOTTIME, which goes on while the machine
 * sleeps and is never set; records carry wall clock milliseconds. Any thread. Pure cores take `now` as an
 * argument and never call these.
 */
#ifndef BROOK_BASE_CLOCK_H
#define BROOK_BASE_CLOCK_H

#include <stdint.h>

/* Nanoseconds or milliseconds since boot. */
int64_t clock_boot_ns(void);
int64_t clock_boot_ms(void);
/* Milliseconds since 1970-01-01 UTC. */
int64_t clock_wall_ms(void);
/* Nanoseconds of CPU time that this process has used, all threads. */
int64_t clock_cpu_ns(void);
#endif
