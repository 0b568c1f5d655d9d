/* A configuration file of the library: refused with a sentence, or loaded; what was loaded is written down and loads
 * again to the same, and so does a copy. */
#include "client/config.h"
#include "tests/fuzz/target.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static int load(const void *data, size_t bytes, brook_config *config)
{
    char path[64];
    struct brook_error error = {0};
    int fd = memfd_create("config", MFD_CLOEXEC);
    if (fd < 0 || write(fd, data, bytes) != (ssize_t)bytes)
        abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int r = brook_config_load(config, path, &error);
    FUZZ_CHECK(r == 0 || r == -BROOK_E_CONFIG || r == -BROOK_E_NOMEM);
    FUZZ_CHECK(r == 0 || (error.code == -r && error.text[0] && strlen(error.text) < sizeof error.text));
    close(fd);
    return r;
}

struct printing {
    const brook_config *config;
    FILE *to;
};

static void print_key(void *arg, const char *key, const char *type, const char *standard, const char *range,
                      const char *description)
{
    const struct printing *p = arg;
    const char *value = brook_config_get(p->config, key);
    FUZZ_CHECK(value != NULL);
    fprintf(p->to, "%s=%s\n", key, value);
}

static char *print(const brook_config *config, size_t *ret_bytes)
{
    char *text;
    struct printing p = {config, open_memstream(&text, ret_bytes)};
    if (!p.to)
        abort();
    brook_config_describe(print_key, &p);
    fclose(p.to);
    return text;
}

static void expect_same(const brook_config *config, const char *text, size_t bytes)
{
    size_t bytes_again;
    char *again = print(config, &bytes_again);
    FUZZ_CHECK(bytes == bytes_again && memcmp(text, again, bytes) == 0);
    free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    brook_config *first, *second;
    size_t text_bytes;
    if (brook_config_new(&first) < 0 || brook_config_new(&second) < 0)
        abort();
    int r = load(data, bytes, first);
    /* After a fault too: what stood before it was taken over and must be whole. */
    char *text = print(first, &text_bytes);
    FUZZ_CHECK(load(text, text_bytes, second) == 0);
    expect_same(second, text, text_bytes);
    brook_config *copy = brook_config_copy(first);
    if (!copy)
        abort();
    for (enum config_id id = 0; id < CONFIG_COUNT; id++)
        FUZZ_CHECK(config_number(first, id) == config_number(second, id) &&
                   config_number(first, id) == config_number(copy, id));
    if (r == 0)
        FUZZ_CHECK(load(data, bytes, copy) == 0);
    expect_same(copy, text, text_bytes);
    brook_config_free(copy);
    free(text);
    brook_config_free(first);
    brook_config_free(second);
    return 0;
}
