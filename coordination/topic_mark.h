/* Which topic of that name: a node below the topic's own, named after its id.
 *
 *      /brokers/topics/<T>/id_<topic id>     empty
 *
 * Versions of nodes begin anew when a topic is deleted and made again under the same name: a write that was meant for a
 * state of the old one, conditional on its version, would go into the new one's, if that happens to have the same. So
 * whoever writes on behalf of a topic checks in the same multi that its mark is there. Topics that somebody made by
 * hand have none (znode_topic.is_marked). Threads: as of coordinator_multi.
 */
#ifndef BROOK_COORDINATION_TOPIC_MARK_H
#define BROOK_COORDINATION_TOPIC_MARK_H

#include "coordination/coordinator.h"
#include "coordination/znodes.h"

/* Add the making of it to the multi that makes the topic, behind the topic's node. */
void topic_mark_create(struct coordinator_multi *multi, const char *topic, const struct topic_id *topic_id);
/* Add the check: -BROOK_E_NO_NODE when that topic is not there any more. */
void topic_mark_check(struct coordinator_multi *multi, const char *topic, const struct topic_id *topic_id);
#endif
