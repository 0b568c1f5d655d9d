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
/* Without what is advertised, data directories and diagnostics. */
struct cluster_settings room_settings_cluster(const struct settings *s);
#endif
