#include "coordination/znodes_json.h"

#include <stdlib.h>
#include <string.h>

void json_cleanup(json_t **value)
{
    json_decref(*value);
}

static int bad(struct brook_error *error, const char *key, const char *what)
{
    return brook_error_set(error, BROOK_E_BAD_ZNODE, "field \"%s\" %s", key, what);
}

/* Kafka wrote the version of /cluster/id as a text and all others as numbers. */
static int check_version(const json_t *root, int min, int max, struct brook_error *error)
{
    const json_t *version = json_object_get(root, "version");
    int64_t number = -1;
    if (!version)
        return 0;
    if (json_is_integer(version))
        number = json_integer_value(version);
    else if (json_is_string(version))
        text_to_int64(json_string_value(version), json_string_length(version), &number);
    if (number < min || number > max)
        return brook_error_set(error, BROOK_E_BAD_ZNODE, "a version that is not %d to %d", min, max);
    return 0;
}

int json_load_object(const char *data, size_t bytes, int version_min, int version_max, json_t **ret,
                     struct brook_error *error)
{
    json_error_t fault;
    if (!data)
        bytes = 0;
    AUTO_JSON json_t *root = json_loadb(data ? data : "", bytes, JSON_REJECT_DUPLICATES, &fault);
    if (!root)
        return brook_error_set(error, BROOK_E_BAD_ZNODE, "not JSON: %s at byte %d", fault.text,
                               fault.position);
    if (!json_is_object(root))
        return brook_error_set(error, BROOK_E_BAD_ZNODE, "not a JSON object");
    int r = check_version(root, version_min, version_max, error);
    if (r < 0)
        return r;
    *ret = root;
    root = NULL;
    return 0;
}

char *json_to_text(json_t *root)
{
    return root ? json_dumps(root, JSON_COMPACT) : NULL;
}

/* Find `key`; null counts as missing. *ret is NULL when it is missing and that is allowed. */
static int find(const json_t *object, const char *key, enum json_need need, json_t **ret,
                struct brook_error *error)
{
    json_t *value = json_object_get(object, key);
    if (!value || json_is_null(value)) {
        if (need == JSON_REQUIRED)
            return bad(error, key, "is missing");
        value = NULL;
    }
    *ret = value;
    return 0;
}

int json_get_int64(const json_t *object, const char *key, enum json_need need, int64_t min, int64_t max,
                   int64_t *ret, struct brook_error *error)
{
    json_t *value;
    int64_t number = 0;
    int r = find(object, key, need, &value, error);
    if (r < 0 || !value)
        return r;
    /* Kafka writes timestamps and block bounds as texts. */
    if (json_is_integer(value))
        number = json_integer_value(value);
    else if (!json_is_string(value) ||
             text_to_int64(json_string_value(value), json_string_length(value), &number) < 0)
        return bad(error, key, "is not a whole number");
    if (number < min || number > max)
        return bad(error, key, "is out of range");
    *ret = number;
    return 0;
}

int json_get_int32(const json_t *object, const char *key, enum json_need need, int32_t min, int32_t max,
                   int32_t *ret, struct brook_error *error)
{
    int64_t wide = *ret;
    int r = json_get_int64(object, key, need, min, max, &wide, error);
    if (r == 0)
        *ret = (int32_t)wide;
    return r;
}

int json_get_bool(const json_t *object, const char *key, enum json_need need, bool *ret,
                  struct brook_error *error)
{
    json_t *value;
    int r = find(object, key, need, &value, error);
    if (r < 0 || !value)
        return r;
    if (!json_is_boolean(value))
        return bad(error, key, "is not true or false");
    *ret = json_is_true(value);
    return 0;
}

int json_get_text(const json_t *object, const char *key, enum json_need need, size_t bytes_max, char **ret,
                  struct brook_error *error)
{
    json_t *value;
    int r = find(object, key, need, &value, error);
    if (r < 0 || !value)
        return r;
    if (!json_is_string(value))
        return bad(error, key, "is not a text");
    if (json_string_length(value) > bytes_max)
        return bad(error, key, "is too long");
    char *copy = strdup(json_string_value(value));
    if (!copy)
        return -BROOK_E_NOMEM;
    *ret = copy;
    return 0;
}

int json_get_object(const json_t *object, const char *key, enum json_need need, json_t **ret,
                    struct brook_error *error)
{
    json_t *value;
    int r = find(object, key, need, &value, error);
    if (r < 0 || !value)
        return r;
    if (!json_is_object(value))
        return bad(error, key, "is not an object");
    *ret = value;
    return 0;
}

int json_get_array(const json_t *object, const char *key, enum json_need need, json_t **ret,
                   struct brook_error *error)
{
    json_t *value;
    int r = find(object, key, need, &value, error);
    if (r < 0 || !value)
        return r;
    if (!json_is_array(value))
        return bad(error, key, "is not an array");
    *ret = value;
    return 0;
}

static int compare_int32(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

static bool has_duplicates(const int32_t *numbers, size_t count)
{
    int32_t *sorted = malloc(count * sizeof *sorted);
    if (!sorted)
        return true;
    memcpy(sorted, numbers, count * sizeof *sorted);
    qsort(sorted, count, sizeof *sorted, compare_int32);
    bool found = false;
    for (size_t i = 1; i < count && !found; i++)
        found = sorted[i] == sorted[i - 1];
    free(sorted);
    return found;
}

int json_to_int32s(const json_t *array, const char *what, int32_t min, int32_t max, size_t count_max,
                   int32_t **ret, size_t *ret_count, struct brook_error *error)
{
    size_t count = json_array_size(array);
    if (!json_is_array(array))
        return bad(error, what, "is not an array");
    if (count > count_max)
        return bad(error, what, "has too many entries");
    if (count == 0) {
        *ret = NULL;
        *ret_count = 0;
        return 0;
    }
    int32_t *numbers = calloc(count, sizeof *numbers);
    if (!numbers)
        return -BROOK_E_NOMEM;
    for (size_t i = 0; i < count; i++) {
        const json_t *entry = json_array_get(array, i);
        json_int_t number = json_integer_value(entry);
        if (!json_is_integer(entry) || number < min || number > max) {
            free(numbers);
            return bad(error, what, "holds something else than numbers in range");
        }
        numbers[i] = (int32_t)number;
    }
    if (has_duplicates(numbers, count)) {
        free(numbers);
        return bad(error, what, "names a number twice");
    }
    *ret = numbers;
    *ret_count = count;
    return 0;
}

json_t *json_from_int32s(const int32_t *numbers, size_t count)
{
    json_t *array = json_array();
    for (size_t i = 0; array && i < count; i++)
        if (json_array_append_new(array, json_integer(numbers[i])) < 0) {
            json_decref(array);
            return NULL;
        }
    return array;
}

int32_t json_key_number(const char *key, int32_t max)
{
    int64_t number;
    if (*key == '-' || text_to_int64(key, strlen(key), &number) < 0 || number > max)
        return -1;
    return (int32_t)number;
}

int text_to_int64(const char *text, size_t bytes, int64_t *ret)
{
    bool negative = bytes > 0 && text[0] == '-';
    size_t first = negative ? 1 : 0;
    int64_t value = 0;
    if (bytes == first || (text[first] == '0' && (bytes > first + 1 || negative)))
        return -BROOK_E_BAD_ZNODE;
    for (size_t i = first; i < bytes; i++) {
        if (text[i] < '0' || text[i] > '9')
            return -BROOK_E_BAD_ZNODE;
        int digit = text[i] - '0';
        /* Downwards, as the negative range is the larger one. */
        if (__builtin_mul_overflow(value, 10, &value) || __builtin_sub_overflow(value, digit, &value))
            return -BROOK_E_BAD_ZNODE;
    }
    if (!negative && value == INT64_MIN)
        return -BROOK_E_BAD_ZNODE;
    *ret = negative ? value : -value;
    return 0;
}
