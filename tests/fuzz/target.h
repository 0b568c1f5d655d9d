/* What every fuzz target is: one function that takes any bytes and must come back.
 *
 * It returns 0, keeps nothing from call to call that changes results, and crashes (assert, abort, sanitizer)
 * when the decoder breaks a promise. libFuzzer calls it in `make fuzz`, replay_main.c in `make check`.
 */
#ifndef BROOK_TESTS_FUZZ_TARGET_H
#define BROOK_TESTS_FUZZ_TARGET_H

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* Stays on whatever NDEBUG says. */
#define FUZZ_CHECK(condition) ((condition) ? (void)0 : __builtin_trap())
#endif
