/* Which names are legal, in one place: topics, groups, members, client ids. Pure, any thread. */
#ifndef BROOK_BASE_NAMES_H
#define BROOK_BASE_NAMES_H

#include <stdbool.h>
#include <stddef.h>

/* Kafka's limit of 249 keeps room for "-<partition>.<id>-delete" in a file name of 255 bytes; a group and a
 * topic together stay within 300 bytes (the ZooKeeper ephemeral budget, coordination/README.md). */
#define TOPIC_NAME_BYTES_MAX 200
#define GROUP_NAME_BYTES_MAX 100
#define MEMBER_ID_BYTES_MAX 120
#define CLIENT_ID_BYTES_MAX 255

/* One or more of [A-Za-z0-9._-], at most TOPIC_NAME_BYTES_MAX, not "." or "..". `name` need not end in NUL. */
bool name_is_legal_topic(const void *name, size_t bytes);
/* The same alphabet, at most GROUP_NAME_BYTES_MAX. */
bool name_is_legal_group(const void *name, size_t bytes);
/* The same alphabet and ':', at most MEMBER_ID_BYTES_MAX. */
bool name_is_legal_member(const void *name, size_t bytes);
#endif
