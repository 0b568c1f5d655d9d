#include "client/cli/format.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

int format_check(const char *format, struct brook_error *error)
{
    for (const char *p = format; *p; p++) {
        if (*p == '%' && (!p[1] || !strchr("tpoTkvh%", *++p)))
            return brook_error_set(error, BROOK_E_INVALID, "unknown directive %%%c in the format", *p);
        if (*p == '\\' && (!p[1] || !strchr("nt\\0", *++p)))
            return brook_error_set(error, BROOK_E_INVALID, "unknown escape \\%c in the format", *p);
    }
    return 0;
}

static void print_headers(const struct brook_message *m, FILE *out)
{
    struct brook_header h;
    for (size_t i = 0; i < m->headers_count && brook_message_header(m, i, &h) == 0; i++) {
        if (i)
            fputc(',', out);
        fwrite(h.key, 1, h.key_bytes, out);
        fputc('=', out);
        if (h.value)
            fwrite(h.value, 1, h.value_bytes, out);
    }
}

static void print_directive(char letter, const char *topic, int32_t partition, const struct brook_message *m, FILE *out)
{
    switch (letter) {
    case 't': fputs(topic, out); break;
    case 'p': fprintf(out, "%" PRId32, partition); break;
    case 'o': fprintf(out, "%" PRId64, m->offset); break;
    case 'T': fprintf(out, "%" PRId64, m->timestamp); break;
    case 'k':
        if (m->key)
            fwrite(m->key, 1, m->key_bytes, out);
        break;
    case 'v':
        if (m->value)
            fwrite(m->value, 1, m->value_bytes, out);
        break;
    case 'h': print_headers(m, out); break;
    default: fputc(letter, out); break;
    }
}

void format_print(const char *format, const char *topic, int32_t partition, const struct brook_message *m, FILE *out)
{
    for (const char *p = format; *p; p++) {
        if (*p == '%') {
            print_directive(*++p, topic, partition, m, out);
        } else if (*p == '\\') {
            static const char from[] = "nt\\0", to[] = "\n\t\\\0";
            fputc(to[strchr(from, *++p) - from], out);
        } else {
            fputc(*p, out);
        }
    }
}

static char *base64(const void *data, size_t bytes)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const uint8_t *p = data;
    char *text = malloc((bytes + 2) / 3 * 4 + 1);
    if (!text)
        abort();
    size_t n = 0;
    for (size_t i = 0; i < bytes; i += 3) {
        uint32_t group = (uint32_t)p[i] << 16;
        group |= i + 1 < bytes ? (uint32_t)p[i + 1] << 8 : 0;
        group |= i + 2 < bytes ? p[i + 2] : 0;
        text[n++] = digits[group >> 18];
        text[n++] = digits[group >> 12 & 63];
        text[n++] = i + 1 < bytes ? digits[group >> 6 & 63] : '=';
        text[n++] = i + 2 < bytes ? digits[group & 63] : '=';
    }
    text[n] = '\0';
    return text;
}

void format_json_bytes(json_t *object, const char *name, const void *data, size_t bytes)
{
    if (!data) {
        json_object_set_new(object, name, json_null());
        return;
    }
    json_t *text = json_stringn(data, bytes);
    if (text) {
        json_object_set_new(object, name, text);
        return;
    }
    char *encoded = base64(data, bytes);
    char key[32];
    snprintf(key, sizeof key, "%s_base64", name);
    json_object_set_new(object, key, json_string(encoded));
    free(encoded);
}

static json_t *headers_json(const struct brook_message *m)
{
    json_t *list = json_array();
    struct brook_header h;
    for (size_t i = 0; i < m->headers_count && brook_message_header(m, i, &h) == 0; i++) {
        json_t *pair = json_object();
        format_json_bytes(pair, "key", h.key, h.key_bytes);
        format_json_bytes(pair, "value", h.value, h.value_bytes);
        json_array_append_new(list, pair);
    }
    return list;
}

json_t *format_json(const char *topic, int32_t partition, const struct brook_message *m)
{
    json_t *object = json_pack("{s:s,s:i,s:I,s:I}", "topic", topic, "partition", partition, "offset",
                               (json_int_t)m->offset, "timestamp", (json_int_t)m->timestamp);
    format_json_bytes(object, "key", m->key, m->key_bytes);
    format_json_bytes(object, "value", m->value, m->value_bytes);
    if (m->headers_count)
        json_object_set_new(object, "headers", headers_json(m));
    return object;
}
