/* Which of our processes has the other end of a TCP connection over loopback: by /proc. Any thread. */
#ifndef BROOK_TESTS_NEMESIS_PEER_H
#define BROOK_TESTS_NEMESIS_PEER_H

#include <stdbool.h>
#include <sys/types.h>

/* The inode of the socket that is bound to `port` and connected to `to`; 0: not found. */
unsigned long peer_socket(int port, int to);
/* Whether the process has this socket open. */
bool peer_has_socket(pid_t pid, unsigned long inode);
#endif
