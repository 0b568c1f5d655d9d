#include "tests/support/power_disk.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#define IMAGE_BYTES (512 << 20) /* a sparse file */
#define UNMOUNT_TRIES 500
#define UNMOUNT_PAUSE_US 10000

/* Of the kernel's <linux/ext4.h>, which not every system has. */
#define EXT4_IOC_SHUTDOWN _IOR('X', 125, unsigned)
#define GOING_FLAGS_NOLOGFLUSH 2u

__attribute__((format(printf, 1, 2))) static bool run(const char *format, ...)
{
    char command[3 * PATH_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(command, sizeof command, format, args);
    va_end(args);
    return system(command) == 0;
}

static void give_up(const char *what, const char *directory)
{
    fprintf(stderr, "power_disk: %s: %s\n", directory, what);
    abort();
}

/* Nothing is written that was not asked for: no commit of the journal by the clock, no data because a file was
 * renamed. */
static bool attach(const char *directory)
{
    return run("mount -t ext4 -o loop,commit=300,noauto_da_alloc '%s.img' '%s'", directory, directory);
}

static bool make(const char *directory)
{
    char image[PATH_MAX];
    snprintf(image, sizeof image, "%.4000s.img", directory);
    int fd = open(image, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    bool is_made = fd >= 0 && ftruncate(fd, IMAGE_BYTES) == 0;
    if (fd >= 0)
        close(fd);
    return is_made && (mkdir(directory, 0755) == 0 || errno == EEXIST) &&
           run("mkfs.ext4 -q -F -m 0 -E lazy_itable_init=1,lazy_journal_init=1 -J size=8 '%s'", image) &&
           attach(directory);
}

/* Whoever was killed a moment ago may still be on its way out. */
static bool detach(const char *directory)
{
    for (int i = 0; i < UNMOUNT_TRIES; i++) {
        if (umount(directory) == 0)
            return true;
        if (errno != EBUSY)
            return false;
        usleep(UNMOUNT_PAUSE_US);
    }
    return false;
}

static bool shut_down(const char *directory)
{
    unsigned flags = GOING_FLAGS_NOLOGFLUSH;
    int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool is_down = fd >= 0 && ioctl(fd, EXT4_IOC_SHUTDOWN, &flags) == 0;
    if (fd >= 0)
        close(fd);
    return is_down;
}

/* In a directory of its own that goes again. */
static const char *try_one(const char *directory)
{
    char path[PATH_MAX], image[PATH_MAX];
    snprintf(path, sizeof path, "%.3900s/power-try", directory);
    snprintf(image, sizeof image, "%.3900s/power-try.img", directory);
    bool is_made = make(path);
    bool is_down = is_made && shut_down(path);
    if (is_made)
        detach(path);
    rmdir(path);
    unlink(image);
    if (!is_made)
        return "a file system in a file can not be made or mounted";
    return is_down ? NULL : "ext4 can not be shut down";
}

const char *power_disks_begin(const char *directory)
{
    if (geteuid() != 0)
        return "only root may mount a file system";
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0)
        return "no mount namespace of its own";
    return try_one(directory);
}

void power_disk_mount(const char *directory)
{
    if (!make(directory))
        give_up("no file system could be mounted", directory);
}

void power_disk_unmount(const char *directory)
{
    if (!detach(directory))
        give_up("it could not be taken off", directory);
}

void power_disk_cut(const char *directory)
{
    if (!shut_down(directory))
        give_up("it could not be shut down", directory);
    if (!detach(directory) || !attach(directory))
        give_up("it could not be mounted anew", directory);
}
