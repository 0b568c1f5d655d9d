/* SipHash-2-4 with 128 bits of output: a hash of any bytes under a secret of 16 bytes. Whoever does not know
 * the secret can not prepare two inputs with one hash. Pure, any thread.
 */
#ifndef BROOK_STORAGE_SIPHASH_H
#define BROOK_STORAGE_SIPHASH_H

#include <stddef.h>
#include <stdint.h>

struct siphash {
    uint64_t words[2];
};

struct siphash siphash_128(const uint8_t secret[16], const void *data, size_t bytes);
#endif
