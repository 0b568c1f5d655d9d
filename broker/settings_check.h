/* What is wrong with settings as a whole, and saying so. */
#ifndef BROOK_BROKER_SETTINGS_CHECK_H
#define BROOK_BROKER_SETTINGS_CHECK_H

#include "broker/settings.h"

/* One more line; without memory for it it is lost, which settings_load() answers with an error all the same.
 */
void settings_fault(struct settings_faults *faults, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* What is missing, and what does not go together. */
void settings_check(const struct settings *s, struct settings_faults *faults);
/* Whether the setting was in the file or in an option. The name is one of the table. */
bool settings_is_given(const struct settings *s, const char *name);
#endif
