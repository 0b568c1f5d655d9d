/* The handlers, one per body of Request; broker/net/dispatch.c is the table that calls them.
 * Each follows the rules of request.h.
 */
#ifndef BROOK_HANDLERS_HANDLERS_H
#define BROOK_HANDLERS_HANDLERS_H

#include "broker/handlers/request.h"

void handle_hello(struct request *r);
void handle_metadata(struct request *r);
void handle_produce(struct request *r);
void handle_pull(struct request *r);
void handle_list_offsets(struct request *r);
void handle_commit_offsets(struct request *r);
void handle_fetch_offsets(struct request *r);
void handle_create_topics(struct request *r);
void handle_delete_topics(struct request *r);
void handle_add_partitions(struct request *r);
void handle_describe_configs(struct request *r);
void handle_list_groups(struct request *r);
void handle_describe_groups(struct request *r);
void handle_elect_leaders(struct request *r);
void handle_reassign(struct request *r);
void handle_list_reassignments(struct request *r);
void handle_epoch_end(struct request *r);
void handle_init_producer(struct request *r);
void handle_describe_replicas(struct request *r);
void handle_delete_records(struct request *r);
void handle_alter_configs(struct request *r);

/* The connection is gone and all its requests have ended: free what handlers kept for it (pull sessions). */
void handlers_peer_gone(struct request_peer *peer);
/* Answer all parked pulls of the connection now (the loop stops, or the peer has half closed). */
void handlers_peer_wake(struct request_peer *peer);
#endif
