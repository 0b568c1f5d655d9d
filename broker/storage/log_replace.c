/* The swap of compacted segments for the old ones; FORMAT.md says what each crash in it leaves. */
#include "broker/storage/file.h"
#include "broker/storage/log_state.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static void path_of(const struct segment *s, const char *suffix, const char *aside, char path[PATH_MAX])
{
    char name[64];
    snprintf(name, sizeof name, "%s%s", suffix, aside);
    directory_segment_path(s->directory, s->base_offset, name, path);
}

static int rename_file(const struct segment *s, const char *suffix, const char *from, const char *to)
{
    char old[PATH_MAX], new[PATH_MAX];
    path_of(s, suffix, from, old);
    path_of(s, suffix, to, new);
    return io_rename(old, new);
}

static int unlink_file(const struct segment *s, const char *suffix)
{
    char path[PATH_MAX];
    path_of(s, suffix, "", path);
    return io_unlink(path) == 0 || errno == ENOENT ? 0 : -1;
}

/* The place of old[0], if all of `old` stand there as they were compacted, in front of the active one. */
static bool find_place(const struct log *log, struct segment *const *old, size_t count, size_t *ret_place)
{
    size_t place = 0;
    while (place < log->segments_count && log->segments[place] != old[0])
        place++;
    if (place + count >= log->segments_count)
        return false;
    for (size_t i = 0; i < count; i++)
        if (log->segments[place + i] != old[i])
            return false;
    *ret_place = place;
    return true;
}

/* Who reads goes on by the descriptor; so it must be open before the name is gone. The newest goes first: what
 * is left with the `.swap` is always the beginning of the range. */
static int remove_old(struct segment *const *old, size_t count)
{
    for (size_t i = count; i-- > 0;) {
        if (unlink_file(old[i], SUFFIX_INDEX) != 0 || unlink_file(old[i], SUFFIX_TIME_INDEX) != 0)
            return -1;
        if (i > 0 && unlink_file(old[i], SUFFIX_LOG) != 0)
            return -1;
    }
    return 0;
}

/* An index that can not have its name is done without. */
static void place_indexes(struct segment *made)
{
    if (rename_file(made, SUFFIX_INDEX, SUFFIX_CLEANED, "") != 0 ||
        rename_file(made, SUFFIX_TIME_INDEX, SUFFIX_CLEANED, "") != 0) {
        made->index_entries = 0;
        made->time_entries = 0;
        made->index_doubtful = true;
    }
}

/* From the commit (the `.swap` name on stable storage) on. The old names are gone durably before the new one
 * takes the first of them, since without the `.swap` nobody would know that they are covered. */
static int place_files(struct log *log, struct segment *const *old, size_t count, struct segment *made)
{
    const char *directory = directory_path(log->directory);
    if (io_sync_directory(directory) != 0 || remove_old(old, count) != 0)
        return -1;
    if (count > 1 && io_sync_directory(directory) != 0)
        return -1;
    place_indexes(made);
    if (rename_file(made, SUFFIX_LOG, SUFFIX_SWAP, "") != 0)
        return -1;
    made->aside = NULL;
    return 0;
}

static void place_in_list(struct log *log, size_t place, size_t count, struct segment *made)
{
    pthread_mutex_lock(&log->lock);
    log->segments[place] = segment_ref(made);
    log->segments_count -= count - 1;
    for (size_t i = place + 1; i < log->segments_count; i++)
        log->segments[i] = log->segments[i + count - 1];
    log->directory_dirty = true;
    pthread_mutex_unlock(&log->lock);
}

int log_replace(struct log *log, struct segment *const *old, size_t count, uint64_t generation,
                struct segment *made, struct brook_error *error)
{
    size_t place;
    int r = log_check_online(log, error);
    if (r != 0)
        return r;
    if (log->generation != generation || !find_place(log, old, count, &place))
        return -BROOK_E_AGAIN;
    for (size_t i = 0; i < count; i++)
        if (segment_unlink_soon(old[i]) != 0)
            return storage_error(error, "opening a segment of %s", directory_path(log->directory));
    if (rename_file(made, SUFFIX_LOG, SUFFIX_CLEANED, SUFFIX_SWAP) != 0)
        return storage_error(error, "renaming a compacted segment of %s", directory_path(log->directory));
    if (place_files(log, old, count, made) != 0) {
        log_go_offline(log, "a compacted segment could not take its place: %s", strerror(errno));
        return storage_error(error, "replacing segments of %s", directory_path(log->directory));
    }
    place_in_list(log, place, count, made);
    for (size_t i = 0; i < count; i++) {
        old[i]->index_doubtful = true; /* the names are the new one's */
        segment_unref(old[i]);
    }
    return 0;
}
