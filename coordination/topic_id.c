#include "coordination/znodes.h"

#include <string.h>
#include <sys/random.h>

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

void topic_id_random(struct topic_id *ret)
{
    size_t have = 0;
    while (have < sizeof ret->bytes) {
        ssize_t n = getrandom(ret->bytes + have, sizeof ret->bytes - have, 0);
        if (n > 0)
            have += (size_t)n;
    }
    /* A version 4 UUID, as Kafka's: never zero. */
    ret->bytes[6] = (uint8_t)((ret->bytes[6] & 0x0f) | 0x40);
    ret->bytes[8] = (uint8_t)((ret->bytes[8] & 0x3f) | 0x80);
}

bool topic_id_is_zero(const struct topic_id *id)
{
    static const struct topic_id zero;
    return topic_id_equal(id, &zero);
}

bool topic_id_equal(const struct topic_id *a, const struct topic_id *b)
{
    return memcmp(a->bytes, b->bytes, sizeof a->bytes) == 0;
}

void topic_id_format(const struct topic_id *id, char text[TOPIC_ID_TEXT_BYTES])
{
    unsigned bits = 0, held = 0;
    size_t n = 0;
    for (size_t i = 0; i < sizeof id->bytes; i++) {
        bits = (bits << 8) | id->bytes[i];
        for (held += 8; held >= 6; held -= 6)
            text[n++] = alphabet[(bits >> (held - 6)) & 63];
    }
    text[n++] = alphabet[(bits << (6 - held)) & 63];
    text[n] = '\0';
}

int topic_id_parse(const char *text, struct topic_id *ret)
{
    struct topic_id id;
    unsigned bits = 0, held = 0;
    size_t n = 0;
    if (strlen(text) != TOPIC_ID_TEXT_BYTES - 1)
        return -BROOK_E_INVALID;
    for (; *text; text++) {
        const char *at = strchr(alphabet, *text);
        if (!at)
            return -BROOK_E_INVALID;
        bits = (bits << 6) | (unsigned)(at - alphabet);
        held += 6;
        if (held >= 8) {
            held -= 8;
            id.bytes[n++] = (uint8_t)(bits >> held);
        }
    }
    /* The last character carries four bits that must be zero, or two texts would mean one id. */
    if (bits & ((1u << held) - 1))
        return -BROOK_E_INVALID;
    *ret = id;
    return 0;
}
