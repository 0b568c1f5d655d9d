#include "broker/command_line.h"

#include <malloc.h>

int main(int argc, char **argv)
{
    /* Large blocks are slabs of our own; malloc must neither map nor trim on the hot path. Idle loops trim.
     */
    mallopt(M_MMAP_THRESHOLD, 64 << 20);
    mallopt(M_TRIM_THRESHOLD, 512 << 20);
    mallopt(M_TOP_PAD, 1 << 20);
    mallopt(M_ARENA_MAX, 4);
    return command_line_run(argc, argv);
}
