/* Settings of libbrook: key = value, from one table with type, default, range and description.
 *
 * The important ones: `zookeeper.connect` or `bootstrap.servers`; producer: `acks`, `batch.size`, `linger.ms`,
 * `compression`, `buffer.memory`, `delivery.timeout.ms`; consumer: `group.id`, `auto.offset.reset`,
 * `enable.auto.commit`, `session.timeout.ms`, `partition.assignment.strategy`. All: brook_config_describe(), or
 * the manual page brook-config(5). One thread at a time per object.
 */
#ifndef BROOK_CONFIG_H
#define BROOK_CONFIG_H

#include <brook/err.h>
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

typedef struct brook_config brook_config;

/* Returns 0 or -BROOK_E_NOMEM. The caller owns *ret_config; handles copy what they need. */
int brook_config_new(brook_config **ret_config);
brook_config *brook_config_copy(const brook_config *config); /* NULL: out of memory */
void brook_config_free(brook_config *config);

/* Returns 0 or -BROOK_E_CONFIG: unknown key, or a value outside its type or range; the sentence says which. */
int brook_config_set(brook_config *config, const char *key, const char *value, struct brook_error *error);
/* The value as text ("" when empty), NULL for an unknown key. Good until the next set of that key. */
const char *brook_config_get(const brook_config *config, const char *key);
/* Read `key = value` lines (# comments). Returns 0; -BROOK_E_NOT_FOUND (no such file); -BROOK_E_CONFIG with file
 * and line of the first fault; -BROOK_E_IO. */
int brook_config_load(brook_config *config, const char *file, struct brook_error *error);

/* Called for each setting, in order. `range` and the rest are text for people. */
typedef void brook_config_visitor(void *arg, const char *key, const char *type, const char *standard,
                                  const char *range, const char *description);
void brook_config_describe(brook_config_visitor *visitor, void *arg);

/* Where log lines of handles made with this configuration go: level 0 debug, 1 info, 2 warn, 3 error. Called on
 * library threads: it must not call back in. NULL (as at first): nowhere. */
typedef void brook_log_callback(void *arg, int level, const char *subject, const char *message);
void brook_config_set_log(brook_config *config, brook_log_callback *callback, void *arg);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
