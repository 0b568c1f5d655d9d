/* Any bytes as one of the text files of a data directory: read or refused, and what is read keeps its order.
 */
#include "tests/fuzz/target.h"

#include "broker/storage/checkpoint.h"
#include "broker/storage/epochs.h"
#include "broker/storage/identity.h"
#include "broker/storage/partition_metadata.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void check_epochs(const char *path)
{
    struct epochs e = {0};
    if (epochs_load(&e, path) == 0)
        for (size_t i = 1; i < e.count; i++)
            FUZZ_CHECK(e.entries[i].epoch > e.entries[i - 1].epoch &&
                       e.entries[i].start_offset > e.entries[i - 1].start_offset);
    else
        FUZZ_CHECK(e.count == 0);
    epochs_done(&e);
}

static void check_offsets(const char *path)
{
    struct offset_checkpoint table = {0};
    if (offset_checkpoint_load(path, &table) == 0)
        for (size_t i = 0; i < table.count; i++)
            FUZZ_CHECK(offset_checkpoint_find(&table, table.entries[i].topic, table.entries[i].partition) >=
                       0);
    offset_checkpoint_done(&table);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    char path[64];
    struct identity identity;
    uint8_t topic_id[TOPIC_ID_BYTES];
    int fd = memfd_create("side", MFD_CLOEXEC);
    FUZZ_CHECK(fd >= 0 && write(fd, data, bytes) == (ssize_t)bytes);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    check_epochs(path);
    check_offsets(path);
    if (identity_load(path, &identity) == 0)
        FUZZ_CHECK(memchr(identity.cluster_id, '\0', sizeof identity.cluster_id) != NULL);
    (void)partition_metadata_load(path, topic_id);
    close(fd);
    return 0;
}
