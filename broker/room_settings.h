/* What each room below is told of the settings: here alone is written which setting means which field.
 *
 * Pure. What is not a setting (addresses as bound, descriptors that there are, diagnostics, callbacks) is left 0
 * for the server to fill in. Strings are borrowed from `s`.
 */
#ifndef BROOK_BROKER_ROOM_SETTINGS_H
#define BROOK_BROKER_ROOM_SETTINGS_H

#include "broker/cluster/cluster.h"
#include "broker/net/net.h"
#include "broker/settings.h"

struct handler_settings room_settings_handlers(const struct settings *s);
/* Without listeners; connections_max as it was set. */
struct net_settings room_settings_net(const struct settings *s);
/* How many of the process's `descriptors` (RLIMIT_NOFILE) are for segment files: log.open.files.max where it was set and
 * there are so many, else half of them, or what max.connections leaves, whichever is more. */
size_t room_settings_open_files(const struct settings *s, uint64_t descriptors);
/* And for connections, once segments have their share: max.connections, or what is left. */
uint32_t room_settings_connections(const struct settings *s, uint64_t descriptors, size_t open_files);
/* Without what is advertised, data directories and diagnostics; open_files_max as it was set. */
struct cluster_settings room_settings_cluster(const struct settings *s);
#endif
