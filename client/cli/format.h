/* How one record is printed: by a format for people, or as JSON. One thread. */
#ifndef BROOK_CLI_FORMAT_H
#define BROOK_CLI_FORMAT_H

#include <brook/consumer.h>
#include <jansson.h>
#include <stdio.h>

/* Check a format: %t topic, %p partition, %o offset, %T timestamp (ms), %k key, %v value, %h headers, %%; \n \t \\ \0.
 * Returns 0, or -BROOK_E_INVALID with a sentence. */
int format_check(const char *format, struct brook_error *error);
void format_print(const char *format, const char *topic, int32_t partition, const struct brook_message *m, FILE *out);
/* Set object[name] to a string, to null for NULL, or, for bytes that are not UTF-8, object[name_base64]. */
void format_json_bytes(json_t *object, const char *name, const void *data, size_t bytes);
json_t *format_json(const char *topic, int32_t partition, const struct brook_message *m);
#endif
