/* Runs a fuzz target over every file of its corpus, and over each file's beginnings, and says so in TAP.
 *
 * fuzz_batch reads $top_srcdir/tests/fuzz/corpus/batch; files named on the command line are run instead. The
 * input lies at the end of a page, so that reading behind it is caught without a sanitizer too. */
#include "tests/fuzz/target.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define INPUT_BYTES_MAX ((size_t)1 << 20)
/* Of longer files only so many beginnings are tried. */
#define CUTS_MAX 512

static uint8_t *input_end;

static bool map_input(void)
{
    uint8_t *map =
        mmap(NULL, INPUT_BYTES_MAX + 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED || mprotect(map + INPUT_BYTES_MAX, 65536, PROT_NONE) < 0)
        return false;
    input_end = map + INPUT_BYTES_MAX;
    return true;
}

static void run(const uint8_t *data, size_t bytes)
{
    uint8_t *input = input_end - bytes;
    memcpy(input, data, bytes);
    LLVMFuzzerTestOneInput(input, bytes);
}

static bool replay_file(const char *path)
{
    static uint8_t data[INPUT_BYTES_MAX];
    FILE *f = fopen(path, "rb");
    if (!f)
        return false;
    size_t bytes = fread(data, 1, sizeof data, f);
    fclose(f);
    size_t step = bytes / CUTS_MAX + 1;
    for (size_t cut = 0; cut < bytes; cut += step)
        run(data, cut);
    run(data, bytes);
    return true;
}

static void report(int number, const char *name, bool good)
{
    printf("%sok %d - %s\n", good ? "" : "not ", number, name);
    fflush(stdout);
}

static int is_input(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

static int replay_directory(const char *directory)
{
    struct dirent **entries;
    int count = scandir(directory, &entries, is_input, alphasort);
    printf("1..%d\n", count > 0 ? count : 1);
    if (count <= 0) {
        report(1, "the corpus is not empty", false);
        fprintf(stderr, "%s: no files\n", directory);
        return EXIT_FAILURE;
    }
    for (int i = 0; i < count; i++) {
        char path[PATH_MAX + 300];
        snprintf(path, sizeof path, "%s/%s", directory, entries[i]->d_name);
        fprintf(stderr, "# %s\n", path);
        report(i + 1, entries[i]->d_name, replay_file(path));
        free(entries[i]);
    }
    free(entries);
    return EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
    if (!map_input())
        return EXIT_FAILURE;
    if (argc > 1) {
        printf("1..%d\n", argc - 1);
        for (int i = 1; i < argc; i++)
            report(i, argv[i], replay_file(argv[i]));
        return EXIT_SUCCESS;
    }
    const char *top = getenv("top_srcdir");
    const char *what = strstr(program_invocation_short_name, "fuzz_");
    char directory[PATH_MAX];
    snprintf(directory, sizeof directory, "%s/tests/fuzz/corpus/%s", top ? top : ".", what ? what + 5 : "");
    return replay_directory(directory);
}
