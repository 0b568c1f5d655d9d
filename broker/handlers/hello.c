/* Hello: versions, limits, who we are. */
#include "broker/handlers/handlers.h"

#include "broker/storage/producer_state.h"

#define VERSION_MIN 1
#define VERSION_MAX 1

static void fill(const struct request *r, Brook__HelloResponse *hello)
{
    const struct handler_settings *s = r->loop->settings;
    hello->has_version = true;
    hello->version = r->peer->version;
    hello->has_software = true;
    hello->software = envelope_text(s->software);
    hello->has_broker_id = true;
    hello->broker_id = s->broker_id;
    hello->has_message_bytes_max = true;
    hello->message_bytes_max = (uint32_t)s->message_bytes_max;
    hello->has_frame_bytes_max = true;
    hello->frame_bytes_max = s->frame_bytes_max;
    hello->has_partitions_per_request_max = true;
    hello->partitions_per_request_max = s->partitions_per_request_max;
    hello->has_idempotent_batches_in_flight_max = true;
    hello->idempotent_batches_in_flight_max = PRODUCER_BATCHES_MAX;
    if (r->loop->view && view_cluster_id(r->loop->view)) {
        hello->has_cluster_id = true;
        hello->cluster_id = envelope_text(view_cluster_id(r->loop->view));
    }
}

void handle_hello(struct request *r)
{
    const Brook__HelloRequest *asked = r->message->hello;
    uint32_t version = asked->version_max < VERSION_MAX ? asked->version_max : VERSION_MAX;
    if (version < VERSION_MIN || version < asked->version_min) {
        request_fail(r, BROOK_E_UNSUPPORTED_VERSION,
                     "this broker speaks protocol versions %d to %d, the client %u to %u", VERSION_MIN,
                     VERSION_MAX, asked->version_min, asked->version_max);
        return;
    }
    r->peer->version = version;
    Brook__Response response = BROOK__RESPONSE__INIT;
    Brook__HelloResponse hello = BROOK__HELLO_RESPONSE__INIT;
    fill(r, &hello);
    response.body_case = BROOK__RESPONSE__BODY_HELLO;
    response.hello = &hello;
    request_reply(r, &response, NULL, 0);
}
