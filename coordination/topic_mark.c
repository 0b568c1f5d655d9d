#include "coordination/topic_mark.h"

#include "coordination/paths.h"

static const char *mark_path(struct path *path, const char *topic, const struct topic_id *topic_id)
{
    char id[TOPIC_ID_TEXT_BYTES];
    topic_id_format(topic_id, id);
    return path_topic_mark(path, topic, id);
}

void topic_mark_create(struct coordinator_multi *multi, const char *topic, const struct topic_id *topic_id)
{
    struct path path;
    coordinator_multi_create(multi, mark_path(&path, topic, topic_id), NULL, 0, ZNODE_PERSISTENT);
}

void topic_mark_check(struct coordinator_multi *multi, const char *topic, const struct topic_id *topic_id)
{
    struct path path;
    coordinator_multi_check(multi, mark_path(&path, topic, topic_id), -1);
}
