#include "tests/cluster/nemesis/peer.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

unsigned long peer_socket(int port, int to)
{
    char line[512];
    unsigned long found = 0;
    FILE *f = fopen("/proc/net/tcp", "re");
    while (f && !found && fgets(line, sizeof line, f)) {
        unsigned local, remote;
        unsigned long inode;
        if (sscanf(line, " %*d: %*x:%x %*x:%x %*x %*x:%*x %*x:%*x %*x %*d %*d %lu", &local, &remote, &inode) == 3 &&
            local == (unsigned)port && remote == (unsigned)to)
            found = inode;
    }
    if (f)
        fclose(f);
    return found;
}

bool peer_has_socket(pid_t pid, unsigned long inode)
{
    char path[64], wanted[64], link[64];
    bool found = false;
    snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    snprintf(wanted, sizeof wanted, "socket:[%lu]", inode);
    DIR *dir = opendir(path);
    for (struct dirent *e; dir && !found && (e = readdir(dir)) != NULL;) {
        ssize_t bytes = readlinkat(dirfd(dir), e->d_name, link, sizeof link - 1);
        if (bytes > 0) {
            link[bytes] = '\0';
            found = strcmp(link, wanted) == 0;
        }
    }
    if (dir)
        closedir(dir);
    return found;
}
