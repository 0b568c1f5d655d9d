/* Where the first broker is found: from `bootstrap.servers`, or in ZooKeeper under /brokers/ids.
 *
 * Offers addresses to the links; connects to nothing itself. Loop thread only, but for bootstrap_parse().
 */
#ifndef BROOK_CLIENT_BOOTSTRAP_H
#define BROOK_CLIENT_BOOTSTRAP_H

#include "client/links.h"

struct bootstrap;

/* Split "host:port,[v6]:port,host" (port 9092 where none is given). On success the caller owns *ret_addresses
 * and frees it with one free(). Returns 0, -BROOK_E_CONFIG with a sentence, or -BROOK_E_NOMEM. Pure. */
int bootstrap_parse(const char *text, struct links_address **ret_addresses, size_t *ret_count,
                    struct brook_error *error);
#define BOOTSTRAP_PORT 9092

int bootstrap_new(struct client *client, struct links *links, struct bootstrap **ret_bootstrap);
/* Offer nothing any more; answers may still come. */
void bootstrap_stop(struct bootstrap *bootstrap);
/* When no answer of ZooKeeper can come any more. NULL is fine. */
void bootstrap_free(struct bootstrap *bootstrap);
/* Look for addresses, unless that is under way or was just done. */
void bootstrap_search(struct bootstrap *bootstrap);
#endif
