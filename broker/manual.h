/* brookd's manual page, made from its table of settings. One thread. */
#ifndef BROOK_BROKER_MANUAL_H
#define BROOK_BROKER_MANUAL_H

#include <stdio.h>

/* Write brookd(8) in troff. Returns 0 or -BROOK_E_NOMEM. */
int manual_print(FILE *to);
#endif
