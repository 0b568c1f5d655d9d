/* Power cuts under file I/O: like faulty_io this defines the functions of broker/storage/file_io.h, for a
 * program that links it in front of libstorage.a.
 *
 * Everything below one directory is remembered as a list of changes: writes and truncations to a file, and
 * names that come, go and change in a directory. fdatasync covers the changes of that file, fsync of a
 * directory those of its names, and nothing else is covered: not a new file's name by its data's sync, nor
 * the reverse. After a cut every call fails, until the power is back: then the directory holds what was
 * covered and, of the rest, what came before a moment chosen at random, with the one write of that moment
 * done in part, or with zeros where its bytes were to be. (What was not covered does not survive in another
 * order than it was made in: recovery takes a hole with valid batches behind it for damage, and by decision
 * opens no such log.)
 *
 * Names are at most 127 bytes; renames stay within a directory. Calls from any thread; setting up from one.
 */
#ifndef BROOK_TESTS_POWER_CUT_H
#define BROOK_TESTS_POWER_CUT_H

#include <stdbool.h>
#include <stdint.h>

/* Begin, with `root` made anew and empty. */
void power_begin(const char *root);
/* The power goes when `calls` more calls that change something have been made (or covered something). 0: now.
 */
void power_cut_after(int calls);
bool power_is_cut(void);
/* The power is back: `root` is what survived. Descriptors from before must be closed. */
void power_restore(uint64_t *random);
/* Forget everything. */
void power_end(void);
#endif
