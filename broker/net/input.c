#include "broker/net/input.h"

#include "proto/base/err.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

/* Below this a partly filled buffer is not worth a receive of its own. */
#define ROOM_BYTES_MIN ((size_t)4 << 10)
/* With a large frame's last bytes so many of what follows are taken along: the next prefix comes for free,
 * and little has to be copied if a large frame follows. */
#define ALONG_BYTES ((size_t)4 << 10)
/* Waking up for less than this is as cheap as telling the kernel not to. */
#define LOWAT_BYTES_MIN ((size_t)16 << 10)

void input_init(struct input *in, struct pool *buffers, struct pool *frames)
{
    *in =
        (struct input){.buffers = buffers, .buffer_bytes = POOL_SLAB_BYTES_MIN, .frames = frames, .lowat = 1};
}

void input_done(struct input *in)
{
    slab_unref(in->buffer);
    slab_unref(in->frame);
    in->buffer = NULL;
    in->frame = NULL;
    in->start = in->end = 0;
}

/* Whether nobody but this connection looks at the buffer: then its bytes may be moved. */
static bool buffer_is_ours(const struct input *in)
{
    return atomic_load_explicit(&in->buffer->refs, memory_order_acquire) == 1;
}

static int ensure_room(struct input *in, size_t bytes)
{
    if (in->buffer && in->start == in->end && buffer_is_ours(in))
        in->start = in->end = 0;
    if (in->buffer && in->buffer->capacity - in->end >= bytes)
        return 0;
    size_t held = in->end - in->start;
    if (in->buffer && buffer_is_ours(in) && in->buffer->capacity - held >= bytes) {
        memmove(in->buffer->data, in->buffer->data + in->start, held);
    } else {
        struct slab *fresh =
            pool_take(in->buffers, held + bytes > in->buffer_bytes ? held + bytes : in->buffer_bytes);
        if (!fresh)
            return -BROOK_E_BUSY;
        if (held)
            memcpy(fresh->data, in->buffer->data + in->start, held);
        slab_unref(in->buffer);
        in->buffer = fresh;
    }
    in->start = 0;
    in->end = held;
    return 0;
}

static ssize_t receive(int fd, struct iovec *iov, size_t count)
{
    struct msghdr message = {.msg_iov = iov, .msg_iovlen = count};
    ssize_t n;
    do
        n = recvmsg(fd, &message, MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return errno == EAGAIN || errno == EWOULDBLOCK ? -BROOK_E_AGAIN : -BROOK_E_DISCONNECTED;
    return n;
}

static ssize_t read_small(struct input *in, int fd)
{
    int r = ensure_room(in, in->missing > ROOM_BYTES_MIN ? in->missing : ROOM_BYTES_MIN);
    if (r < 0)
        return r;
    struct iovec iov = {.iov_base = in->buffer->data + in->end, .iov_len = in->buffer->capacity - in->end};
    ssize_t n = receive(fd, &iov, 1);
    if (n > 0)
        in->end += (size_t)n;
    return n;
}

static ssize_t read_large(struct input *in, int fd)
{
    size_t left = in->frame_total - in->frame_have;
    struct iovec iov[2] = {{.iov_base = in->frame->data + in->frame_have, .iov_len = left}};
    size_t count = 1;
    if (ensure_room(in, ALONG_BYTES) == 0) {
        iov[1] = (struct iovec){.iov_base = in->buffer->data + in->end, .iov_len = ALONG_BYTES};
        count = 2;
    }
    ssize_t n = receive(fd, iov, count);
    if (n <= 0)
        return n;
    size_t into_frame = (size_t)n < left ? (size_t)n : left;
    in->frame_have += into_frame;
    in->end += (size_t)n - into_frame;
    return n;
}

ssize_t input_read(struct input *in, int fd)
{
    return in->frame && in->frame_have < in->frame_total ? read_large(in, fd) : read_small(in, fd);
}

static void hand_out(uint8_t *at, const struct frame_prefix *prefix, struct slab *slab,
                     struct input_frame *ret)
{
    ret->envelope = at + FRAME_PREFIX_BYTES;
    ret->envelope_bytes = prefix->envelope_bytes;
    ret->records = at + FRAME_PREFIX_BYTES + prefix->envelope_bytes;
    ret->records_bytes = prefix->records_bytes;
    ret->slab = slab;
}

void input_grant(struct input *in, struct slab *slab)
{
    size_t held = in->end - in->start;
    memcpy(slab->data, in->buffer->data + in->start, held);
    in->start = in->end;
    in->frame = slab;
    in->frame_have = held;
    in->frame_total = in->wanted;
    in->wanted = 0;
}

static int begin_large(struct input *in, const struct frame_prefix *prefix, size_t total)
{
    in->frame_prefix = *prefix;
    in->wanted = total;
    struct slab *slab = in->hold ? NULL : pool_take(in->frames, total);
    if (!slab)
        return -BROOK_E_BUSY;
    input_grant(in, slab);
    return -BROOK_E_AGAIN;
}

int input_next(struct input *in, uint32_t frame_bytes_max, uint32_t envelope_bytes_max,
               struct input_frame *ret, struct brook_error *error)
{
    if (in->frame) {
        if (in->frame_have < in->frame_total)
            return -BROOK_E_AGAIN;
        hand_out(in->frame->data, &in->frame_prefix, in->frame, ret);
        in->frame = NULL;
        return 0;
    }
    in->missing = 0;
    size_t held = in->end - in->start;
    if (!held)
        return -BROOK_E_AGAIN;
    uint8_t *at = in->buffer->data + in->start;
    struct frame_prefix prefix;
    int r = frame_parse(at, held, frame_bytes_max, envelope_bytes_max, &prefix, error);
    if (r < 0)
        return r;
    size_t total = (size_t)prefix.frame_bytes + 4;
    if (held < total) {
        if (total > INPUT_SMALL_FRAME_BYTES)
            return begin_large(in, &prefix, total);
        in->missing = total - held;
        return -BROOK_E_AGAIN;
    }
    hand_out(at, &prefix, slab_ref(in->buffer), ret);
    in->start += total;
    return 0;
}

void input_settle(struct input *in, int fd)
{
    size_t wanted = 1;
    if (in->frame) {
        size_t left = in->frame_total - in->frame_have;
        wanted = left < INPUT_LOWAT_BYTES_MAX ? left : INPUT_LOWAT_BYTES_MAX;
        if (wanted < LOWAT_BYTES_MIN)
            wanted = 1;
    }
    int lowat = (int)wanted;
    if (lowat != in->lowat && setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &lowat, sizeof lowat) == 0)
        in->lowat = lowat;
    if (in->buffer && in->start == in->end) {
        slab_unref(in->buffer);
        in->buffer = NULL;
        in->start = in->end = 0;
    }
}

const uint8_t *input_peek(const struct input *in, size_t *ret_bytes)
{
    *ret_bytes = in->end - in->start;
    return in->buffer ? in->buffer->data + in->start : NULL;
}

bool input_is_half(const struct input *in)
{
    return in->frame || in->start != in->end;
}
