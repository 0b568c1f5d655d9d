/* Small readers of JSON objects, shared by the znodes_*.c files. They know types and ranges, not fields.
 * Readers return 0 or -BROOK_E_BAD_ZNODE with a sentence that names the field; `*ret` stays untouched then,
 * and also when an optional field is missing. Pure, any thread.
 */
#ifndef BROOK_COORDINATION_ZNODES_JSON_H
#define BROOK_COORDINATION_ZNODES_JSON_H

#include "coordination/znodes.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A local reference that is dropped at scope end. */
#define AUTO_JSON __attribute__((cleanup(json_cleanup)))
void json_cleanup(json_t **value);

/* Parse bytes that must be one JSON object with a "version" in [min, max], or without one. The caller owns
 * *ret. Duplicate keys are refused: two readers could see two truths. */
int json_load_object(const char *data, size_t bytes, int version_min, int version_max, json_t **ret,
                     struct brook_error *error);
/* One line of JSON, free()d by the caller; NULL when out of memory or when `root` is NULL. */
char *json_to_text(json_t *root);

enum json_need { JSON_OPTIONAL, JSON_REQUIRED };
int json_get_int64(const json_t *object, const char *key, enum json_need need, int64_t min, int64_t max,
                   int64_t *ret, struct brook_error *error);
int json_get_int32(const json_t *object, const char *key, enum json_need need, int32_t min, int32_t max,
                   int32_t *ret, struct brook_error *error);
int json_get_bool(const json_t *object, const char *key, enum json_need need, bool *ret,
                  struct brook_error *error);
/* A copy of a text without NUL inside and of at most `bytes_max` bytes; null counts as missing. */
int json_get_text(const json_t *object, const char *key, enum json_need need, size_t bytes_max, char **ret,
                  struct brook_error *error);
/* Borrowed member of the given type. */
int json_get_object(const json_t *object, const char *key, enum json_need need, json_t **ret,
                    struct brook_error *error);
int json_get_array(const json_t *object, const char *key, enum json_need need, json_t **ret,
                   struct brook_error *error);

/* A whole array of different numbers in [min, max], at most `count_max` of them. On success the caller owns
 * *ret (NULL when the array is empty). `what` names the array in sentences. */
int json_to_int32s(const json_t *array, const char *what, int32_t min, int32_t max, size_t count_max,
                   int32_t **ret, size_t *ret_count, struct brook_error *error);
/* NULL when out of memory. */
json_t *json_from_int32s(const int32_t *numbers, size_t count);

/* {"topic":[0,3]}. What was read so far is in *ret, whatever is returned; both begin as none. */
int json_to_partitions(json_t *object, struct znode_change_partitions **ret, size_t *ret_count,
                       struct brook_error *error);
json_t *json_from_partitions(const struct znode_change_partitions *list, size_t count);
void znode_partitions_free(struct znode_change_partitions *list, size_t count);

/* "0", "17": canonical decimal in [0, max], -1 otherwise. */
int32_t json_key_number(const char *key, int32_t max);
/* The whole text as a number: canonical decimal, as much as 64 bits hold. Returns 0 or -BROOK_E_BAD_ZNODE. */
int text_to_int64(const char *text, size_t bytes, int64_t *ret);
#endif
