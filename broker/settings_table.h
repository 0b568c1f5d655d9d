/* The rows behind settings.h. */
#ifndef BROOK_BROKER_SETTINGS_TABLE_H
#define BROOK_BROKER_SETTINGS_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum setting_type { SETTING_INT, SETTING_LONG, SETTING_TEXT, SETTING_CHOICE, SETTING_RATIO };

struct setting {
    const char *name;
    enum setting_type type;
    size_t offset;             /* in struct settings: int32_t, int64_t or char *; a ratio in millionths */
    const char *default_value; /* NULL: none; then it may be empty, or must be given */
    bool is_required;
    bool at_run_time;
    int64_t min;
    int64_t max;
    const char *unit;    /* "" or "bytes", "ms", ... */
    const char *choices; /* "a|b|c" */
    const char *description;
};

extern const struct setting settings_table[];
extern const size_t settings_table_count;

/* NULL: there is none of that name. */
const struct setting *settings_table_find(const char *name, size_t name_bytes);
#endif
