/* InitProducer: a producer id that nobody else has. */
#include "broker/handlers/handlers.h"

#include "broker/cluster/cluster.h"

static void got_id(void *arg, int err, int64_t producer_id)
{
    struct request *r = arg;
    Brook__Response response = BROOK__RESPONSE__INIT;
    Brook__InitProducerResponse body = BROOK__INIT_PRODUCER_RESPONSE__INIT;
    if (err < 0) {
        request_fail(r, -err, "a new producer id: %s", brook_error_text(err));
        return;
    }
    body.has_producer_id = body.has_producer_epoch = true;
    body.producer_id = producer_id;
    body.producer_epoch = 0;
    response.body_case = BROOK__RESPONSE__BODY_INIT_PRODUCER;
    response.init_producer = &body;
    request_reply(r, &response, NULL, 0);
}

void handle_init_producer(struct request *r)
{
    if (cluster_new_producer_id(r->loop->cluster, r->loop->inbox, got_id, r) < 0)
        request_fail(r, BROOK_E_NOMEM, NULL);
}
