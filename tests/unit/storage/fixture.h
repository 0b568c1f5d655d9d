/* What the tests of the log share: a log in a fresh directory, shorthand for appending and reading whole. */
#ifndef BROOK_TESTS_STORAGE_FIXTURE_H
#define BROOK_TESTS_STORAGE_FIXTURE_H

#include "broker/storage/log.h"
#include "tests/support/batches.h"
#include "tests/support/suite.h"

#include <stdlib.h>

#define T0 INT64_C(1700000000000)

/* A path for a log that is not there yet. Static. */
const char *fixture_log_path(const char *name);
/* Small segments, an index entry for every batch but the first, no delays. */
struct log_settings fixture_settings(void);

extern const struct log_hint fixture_clean;
extern const struct log_hint fixture_unclean;

/* Open, or fail the test. */
struct log *fixture_open(const char *path, const struct log_settings *settings, const struct log_hint *hint);
struct log *fixture_open_reporting(const char *path, const struct log_settings *settings,
                                   const struct log_hint *hint, struct log_recovery *ret_recovery);
/* Append one batch of `records_count` records and return its base offset. */
int64_t fixture_append(struct log *log, int records_count, int64_t timestamp, size_t value_bytes);
/* Read everything from `from` to the end, check every checksum and that offsets rise without a gap (with
 * `gapless`), and return how many records there were. */
int64_t fixture_read_all(struct log *log, int64_t from, bool gapless);
/* The batch that a read at `offset` begins with. */
struct batch_header fixture_read_first(struct log *log, int64_t offset);

/* "<directory>/<name>" */
void fixture_path(char buffer[PATH_MAX], const char *directory, const char *name);
/* Whole files. */
size_t fixture_load(const char *directory, const char *name, void **ret_data);
void fixture_store(const char *directory, const char *name, const void *data, size_t bytes);
void fixture_copy_directory(const char *from, const char *to);
/* How many files of the directory end in `suffix`. */
int fixture_count_files(const char *directory, const char *suffix);
#endif
