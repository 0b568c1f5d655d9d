#include "tests/support/guard.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

void guard_init(struct guard *guard, size_t bytes_max)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t room = (bytes_max + page - 1) / page * page;
    guard->map_bytes = room + page;
    guard->map = mmap(NULL, guard->map_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (guard->map == MAP_FAILED)
        abort();
    guard->end = guard->map + room;
    if (mprotect(guard->end, page, PROT_NONE) < 0)
        abort();
}

void guard_done(struct guard *guard)
{
    munmap(guard->map, guard->map_bytes);
}

uint8_t *guard_room(const struct guard *guard, size_t bytes)
{
    assert(bytes <= (size_t)(guard->end - guard->map));
    return guard->end - bytes;
}

uint8_t *guard_copy(const struct guard *guard, const void *data, size_t bytes)
{
    uint8_t *room = guard_room(guard, bytes);
    if (bytes > 0)
        memcpy(room, data, bytes);
    return room;
}
