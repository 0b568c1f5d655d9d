/* A configuration file: refused with reasons, or loaded; what is printed of it loads again to the same. */
#include "broker/settings.h"
#include "proto/base/err.h"
#include "tests/fuzz/target.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static int load(const void *data, size_t bytes, struct settings **ret)
{
    char path[64];
    struct settings_faults faults = {0};
    int fd = memfd_create("settings", MFD_CLOEXEC);
    if (fd < 0 || write(fd, data, bytes) != (ssize_t)bytes)
        return -BROOK_E_IO;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int r = settings_load(path, NULL, 0, ret, &faults);
    FUZZ_CHECK((r == -BROOK_E_CONFIG) == (faults.count > 0) || r == -BROOK_E_NOMEM);
    settings_faults_done(&faults);
    close(fd);
    return r;
}

static char *print(const struct settings *s, size_t *ret_bytes)
{
    char *text = NULL;
    FILE *to = open_memstream(&text, ret_bytes);
    if (!to)
        return NULL;
    settings_print(s, to);
    fclose(to);
    return text;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct settings *first, *second;
    size_t first_bytes, second_bytes;
    if (load(data, bytes, &first) < 0)
        return 0;
    char *text = print(first, &first_bytes);
    if (text && load(text, first_bytes, &second) == 0) {
        char *again = print(second, &second_bytes);
        FUZZ_CHECK(again && first_bytes == second_bytes && memcmp(text, again, first_bytes) == 0);
        free(again);
        settings_free(second);
    }
    free(text);
    settings_free(first);
    return 0;
}
