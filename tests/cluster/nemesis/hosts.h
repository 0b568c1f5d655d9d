/* Network namespaces as separate hosts, by `ip` (root): the NETWORK_HOSTS of network.h. Names hold the process id:
 * bridge bn<pid>, namespaces brook-nemesis-<pid>-<broker>, links bn<pid>v<broker>. */
#ifndef BROOK_TESTS_NEMESIS_HOSTS_H
#define BROOK_TESTS_NEMESIS_HOSTS_H

struct brokers_place;
struct hosts;

/* Never NULL: says what is missing and exits. */
struct hosts *hosts_new(int count);
/* Remove all of it. NULL is fine. */
void hosts_free(struct hosts *h);
void hosts_sweep(void);
const char *hosts_zookeeper_address(const struct hosts *h);
void hosts_place(const struct hosts *h, int id, struct brokers_place *place);
/* As network_cut() and network_heal(). */
void hosts_cut(const struct hosts *h, int from, int to);
void hosts_heal(const struct hosts *h, int from, int to);
#endif
