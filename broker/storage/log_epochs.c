#include "broker/storage/directory.h"
#include "broker/storage/log_state.h"

#include <limits.h>

int log_epochs_assign(struct log *log, int32_t epoch, int64_t start_offset)
{
    pthread_mutex_lock(&log->lock);
    int r = epochs_assign(&log->epochs, epoch, start_offset);
    pthread_mutex_unlock(&log->lock);
    return r;
}

void log_epochs_cut_end(struct log *log, int64_t end_offset)
{
    pthread_mutex_lock(&log->lock);
    epochs_cut_end(&log->epochs, end_offset);
    pthread_mutex_unlock(&log->lock);
}

void log_epochs_cut_start(struct log *log, int64_t start_offset)
{
    pthread_mutex_lock(&log->lock);
    epochs_cut_start(&log->epochs, start_offset);
    pthread_mutex_unlock(&log->lock);
}

void log_epochs_save(struct log *log)
{
    if (!log->epochs.dirty)
        return;
    char path[PATH_MAX];
    directory_file_path(log->directory, EPOCHS_FILE, path);
    epochs_save(&log->epochs, path, false, NULL);
}

int32_t log_last_epoch(struct log *log)
{
    pthread_mutex_lock(&log->lock);
    int32_t epoch = epochs_last(&log->epochs);
    pthread_mutex_unlock(&log->lock);
    return epoch;
}

void log_look_at_epochs(struct log *log,
                        void (*look)(void *arg, const struct epochs *epochs, int64_t start_offset, int64_t end_offset),
                        void *arg)
{
    pthread_mutex_lock(&log->lock);
    look(arg, &log->epochs, log->start_offset, log->end_offset);
    pthread_mutex_unlock(&log->lock);
}
