#include "proto/base/ratio.h"

#include <stdio.h>
#include <string.h>

bool ratio_parse(const char *text, int32_t *ret_ppm)
{
    if (text[0] != '0' && text[0] != '1')
        return false;
    int32_t ppm = (text[0] - '0') * RATIO_ONE_PPM;
    const char *at = text + 1;
    if (*at == '.' && at[1] != '\0') {
        at++;
        for (int32_t worth = RATIO_ONE_PPM / 10; *at >= '0' && *at <= '9' && worth > 0; worth /= 10)
            ppm += (*at++ - '0') * worth;
    }
    if (*at != '\0' || ppm > RATIO_ONE_PPM)
        return false;
    *ret_ppm = ppm;
    return true;
}

void ratio_format(int32_t ppm, char to[RATIO_TEXT_BYTES])
{
    snprintf(to, RATIO_TEXT_BYTES, "%d.%06d", (int)(ppm / RATIO_ONE_PPM), (int)(ppm % RATIO_ONE_PPM));
    size_t n = strlen(to);
    while (n > 3 && to[n - 1] == '0') /* "0.0" and "1.0" stay so */
        to[--n] = '\0';
}
