/* Reading settings inside the library: by identifier, checked and converted when they were set.
 *
 * Wraps the table of client/config_keys.h; the public face is <brook/config.h>. A configuration is not
 * locked: handles take a copy and only read it, which any thread may do.
 */
#ifndef BROOK_CLIENT_CONFIG_H
#define BROOK_CLIENT_CONFIG_H

#include "client/config_keys.h"
#include "proto/base/diag.h"

#include <brook/config.h>
#include <stdbool.h>
#include <stdint.h>

enum config_id {
#define X(id, key, kind, standard, least, most, choices, description) CONFIG_##id,
    CONFIG_KEYS(X)
#undef X
        CONFIG_COUNT
};

/* The value as text, never NULL. Good for the configuration's life. */
const char *config_text(const brook_config *config, enum config_id id);
/* A number, bytes or ms; of a flag 0 or 1; of a choice the 0-based place among its choices. */
int64_t config_number(const brook_config *config, enum config_id id);
/* The same for values whose range fits an int. */
int config_int(const brook_config *config, enum config_id id);
bool config_flag(const brook_config *config, enum config_id id);
/* Whether a text is not empty. */
/* Whether brook_config_set() was called for it. */
bool config_is_set(const brook_config *config, enum config_id id);
bool config_has(const brook_config *config, enum config_id id);

/* Fill *diag so that lines go to the configuration's log callback (nowhere when there is none). `config` is
 * borrowed for the life of *diag. */
void config_diag(const brook_config *config, struct diag *diag);
#endif
