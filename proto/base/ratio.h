/* Ratios between 0 and 1 as people write them ("0.5"), kept in millionths. Pure, any thread. */
#ifndef BROOK_BASE_RATIO_H
#define BROOK_BASE_RATIO_H

#include <stdbool.h>
#include <stdint.h>

#define RATIO_ONE_PPM 1000000
#define RATIO_TEXT_BYTES 16

/* "0", "0.25", "1.0": digits, at most six behind the point. False for anything else, and above 1. */
bool ratio_parse(const char *text, int32_t *ret_ppm);
/* The shortest text that means it. */
void ratio_format(int32_t ppm, char to[RATIO_TEXT_BYTES]);
#endif
