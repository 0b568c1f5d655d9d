/* CRC-32C (Castagnoli), as record batches use it. Check value: "123456789" -> 0xe3069283. Any thread. */
#ifndef BROOK_RECORD_CRC32C_H
#define BROOK_RECORD_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* Of `bytes` (0 and above) bytes; to continue a sum, pass the sum so far as `crc`, 0 at the start. */
uint32_t crc32c(uint32_t crc, const void *data, size_t bytes);
#endif
