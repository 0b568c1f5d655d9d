/* Handlers that are not there yet. */
#include "broker/handlers/handlers.h"

#define MISSING(name) \
    void name(struct request *r) \
    { \
        request_fail(r, BROOK_E_UNSUPPORTED, NULL); \
    }
MISSING(handle_commit_offsets)
MISSING(handle_fetch_offsets)
MISSING(handle_create_topics)
MISSING(handle_delete_topics)
MISSING(handle_add_partitions)
MISSING(handle_describe_configs)
MISSING(handle_list_groups)
MISSING(handle_describe_groups)
