#include "proto/wire/channel_parts.h"

#include "proto/base/clock.h"
#include "proto/base/err.h"
#include "proto/wire/frame.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define GATHER_MAX 128
/* Sent per turn before others get theirs. */
#define SEND_BYTES_PER_TURN ((size_t)8 << 20)

/* ---- requests without a reply ----------------------------------------------------------------------- */

static struct oneway *oneway_at(struct channel *c, uint64_t number)
{
    return &c->oneways[number & (c->oneways_capacity - 1)];
}

void channel_end_oneways(struct channel *c, int err)
{
    while (c->oneways_head != c->oneways_tail) {
        struct oneway one = *oneway_at(c, c->oneways_head++);
        int why = err == -BROOK_E_DISCONNECTED && outbox_is_whole(&c->outbox, one.first)
                      ? -BROOK_E_CONNECT_FAILED
                      : err;
        if (one.sent)
            one.sent(one.arg, why);
    }
}

void channel_finish_oneways(struct channel *c)
{
    while (c->oneways_head != c->oneways_tail) {
        struct oneway one = *oneway_at(c, c->oneways_head);
        if (one.end > outbox_head(&c->outbox))
            return;
        c->oneways_head++;
        if (one.sent)
            one.sent(one.arg, 0);
    }
}

/* ---- out of the outbox ------------------------------------------------------------------------------ */

static void wait_writable(struct channel *c)
{
    c->blocked = true;
    event_add(c->writable, NULL);
}

void channel_flush_later(struct channel *c)
{
    if (c->flushing || c->blocked || !c->tcp_connected)
        return;
    c->flushing = true;
    event_active(c->flush, EV_WRITE, 1);
}

void channel_flush_now(struct channel *c)
{
    size_t sent_in_turn = 0;
    while (c->tcp_connected && c->outbox.bytes > 0 && !c->blocked) {
        struct iovec iov[GATHER_MAX];
        struct msghdr message = {.msg_iov = iov};
        uint64_t until = c->state == CHANNEL_READY ? UINT64_MAX : c->hello_end;
        message.msg_iovlen = outbox_gather(&c->outbox, until, iov, GATHER_MAX);
        if (message.msg_iovlen == 0)
            return;
        if (sent_in_turn >= SEND_BYTES_PER_TURN) {
            channel_flush_later(c);
            return;
        }
        size_t gathered = 0;
        for (size_t i = 0; i < message.msg_iovlen; i++)
            gathered += iov[i].iov_len;
        ssize_t n = sendmsg(c->fd, &message, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno != EAGAIN) {
            channel_close_connection(c, BROOK_E_DISCONNECTED, strerror(errno));
            return;
        }
        if (n > 0)
            outbox_consume(&c->outbox, (size_t)n);
        if (n < 0 || (size_t)n < gathered)
            wait_writable(c);
        sent_in_turn += n > 0 ? (size_t)n : 0;
    }
    /* What was dropped at the front is gone, too. */
    outbox_consume(&c->outbox, 0);
}

void channel_on_flush(evutil_socket_t fd, short what, void *arg)
{
    struct channel *c = arg;
    channel_enter(c);
    c->flushing = false;
    channel_flush_now(c);
    if (c->fd >= 0)
        channel_finish_oneways(c);
    channel_leave(c);
}

/* ---- into the outbox -------------------------------------------------------------------------------- */

static void copy_records(uint8_t *to, const struct iovec *records, size_t records_count)
{
    for (size_t i = 0; i < records_count; i++) {
        if (records[i].iov_len > 0)
            memcpy(to, records[i].iov_base, records[i].iov_len);
        to += records[i].iov_len;
    }
}

/* Put the frame into the outbox. */
int channel_pack(struct channel *c, Brook__Request *request, const struct iovec *records,
                 size_t records_count, bool copy_all)
{
    size_t records_bytes = 0;
    for (size_t i = 0; i < records_count; i++)
        records_bytes += records[i].iov_len;
    request->has_correlation_id = 1;
    if (c->client_id[0]) {
        request->has_client_id = 1;
        request->client_id = envelope_text(c->client_id);
    }
    size_t envelope_bytes = brook__request__get_packed_size(request);
    if (envelope_bytes > ENVELOPE_BYTES_MAX_BROKER || records_bytes > UINT32_MAX - 4 - envelope_bytes)
        return -BROOK_E_FRAME_TOO_LARGE;

    bool copy = copy_all || records_bytes <= CHANNEL_COPY_BYTES_MAX;
    size_t own = FRAME_PREFIX_BYTES + envelope_bytes + (copy ? records_bytes : 0);
    uint8_t *to = outbox_reserve(&c->outbox, own, 1 + (copy ? 0 : records_count));
    if (!to)
        return -BROOK_E_NOMEM;
    frame_write_prefix(to, (uint32_t)envelope_bytes, (uint32_t)records_bytes);
    brook__request__pack(request, to + FRAME_PREFIX_BYTES);
    if (copy)
        copy_records(to + FRAME_PREFIX_BYTES + envelope_bytes, records, records_count);
    outbox_commit(&c->outbox, own);
    for (size_t i = 0; !copy && i < records_count; i++)
        if (records[i].iov_len > 0)
            outbox_borrow(&c->outbox, records[i].iov_base, records[i].iov_len);
    return 0;
}

/* The first send of a turn reads the clock for all. */
static void begin_send(struct channel *c)
{
    if (c->depth == 0 && !c->flushing)
        c->now_ns = clock_boot_ns();
}

static void end_send(struct channel *c)
{
    c->used_ns = c->now_ns;
    channel_flush_later(c);
    if (c->depth == 0)
        channel_arm_timer(c);
}

int channel_send(struct channel *c, Brook__Request *request, const struct iovec *records,
                 size_t records_count, int deadline_ms, channel_callback *callback, void *arg)
{
    if (c->state == CHANNEL_IDLE || c->closing)
        return -BROOK_E_DISCONNECTED;
    begin_send(c);
    if (c->pending.live_count + c->pending.late_count >= CHANNEL_REQUESTS_MAX)
        return -BROOK_E_TOO_MANY;
    struct pending_request *slot = pending_add(&c->pending);
    if (!slot)
        return -BROOK_E_NOMEM;
    request->correlation_id = slot->correlation_id;
    if (deadline_ms > 0 && !request->has_deadline_ms) {
        request->has_deadline_ms = 1;
        request->deadline_ms = (uint32_t)deadline_ms;
    }
    slot->first = outbox_tail(&c->outbox);
    int r = channel_pack(c, request, records, records_count, callback == NULL);
    if (r < 0) {
        pending_remove(&c->pending, slot);
        return r;
    }
    slot->end = outbox_tail(&c->outbox);
    slot->callback = callback;
    slot->arg = arg;
    slot->sent_ns = c->now_ns;
    slot->deadline_ns = deadline_ms > 0 ? c->now_ns + deadline_ms * NS_PER_MS : NEVER;
    c->deadline_first_ns = earliest(c->deadline_first_ns, slot->deadline_ns);
    end_send(c);
    return 0;
}

static int grow_oneways(struct channel *c)
{
    size_t queued = (size_t)(c->oneways_tail - c->oneways_head);
    if (queued < c->oneways_capacity)
        return 0;
    size_t capacity = c->oneways_capacity ? c->oneways_capacity * 2 : 64;
    struct oneway *wider = malloc(capacity * sizeof *wider);
    if (!wider)
        return -BROOK_E_NOMEM;
    for (uint64_t n = c->oneways_head; n != c->oneways_tail; n++)
        wider[n & (capacity - 1)] = *oneway_at(c, n);
    free(c->oneways);
    c->oneways = wider;
    c->oneways_capacity = capacity;
    return 0;
}

int channel_send_oneway(struct channel *c, Brook__Request *request, const struct iovec *records,
                        size_t records_count, void (*sent)(void *arg, int err), void *arg)
{
    if (c->state == CHANNEL_IDLE || c->closing)
        return -BROOK_E_DISCONNECTED;
    begin_send(c);
    int r = grow_oneways(c);
    if (r < 0)
        return r;
    request->correlation_id = ++c->pending.serial << CHANNEL_PLACE_BITS | PENDING_MAX;
    uint64_t first = outbox_tail(&c->outbox);
    r = channel_pack(c, request, records, records_count, sent == NULL);
    if (r < 0)
        return r;
    *oneway_at(c, c->oneways_tail++) =
        (struct oneway){.first = first, .end = outbox_tail(&c->outbox), .sent = sent, .arg = arg};
    end_send(c);
    return 0;
}
