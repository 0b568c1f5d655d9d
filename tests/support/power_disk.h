/* Disks whose power can be cut under a process that runs: each is an ext4 file system of its own on a loop device,
 * mounted at a directory. A cut shuts the file system down as it is, without writing anything more
 * (EXT4_IOC_SHUTDOWN, the journal unflushed), and mounts it anew: there is what the kernel had put on the device by
 * then, which is all that was synced (fsync, fdatasync, and what a commit of the journal took along), and nothing of
 * the page cache's rest. A killed process loses nothing; one whose disk was cut, everything that it did not sync.
 *
 * For root, where loop devices are allowed. One thread. All but power_disks_begin() print and abort when they can
 * not. */
#ifndef BROOK_TESTS_POWER_DISK_H
#define BROOK_TESTS_POWER_DISK_H

/* Before the first one: mounts of this process and its children are their own from now on, and go with the last of
 * them. Tries one below `directory`, which must exist. Returns NULL, or what keeps this machine from it. */
const char *power_disks_begin(const char *directory);

/* Make an empty one and mount it at `directory`, which is made; its image lies beside it as `directory`.img. */
void power_disk_mount(const char *directory);
/* Take it off again; the image stays. */
void power_disk_unmount(const char *directory);
/* The power went, and is back. Nobody may have a file open there. */
void power_disk_cut(const char *directory);
#endif
