#include "tests/unit/cluster/dirs_world.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static void note_line(void *arg, enum diag_level level, const char *subject, const char *message)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* disk threads have something to say, too */
    struct world *w = arg;
    pthread_mutex_lock(&lock);
    if (level == DIAG_ERROR && (strstr(message, "a sync failed") || strstr(message, "the data directory")))
        w->is_distrusted = true;
    if (level == DIAG_ERROR) {
        snprintf(w->last_error, sizeof w->last_error, "%s %s", subject, message);
        w->errors++;
    } else if (level == DIAG_WARN) {
        snprintf(w->last_warning, sizeof w->last_warning, "%s %s", subject, message);
        w->warnings++;
    }
    pthread_mutex_unlock(&lock);
}

static void opened(void *arg, const struct brook_error *error)
{
    struct world *w = arg;
    w->open_code = error->code;
    w->is_opened = true;
}

static void changed(void *arg, const char *topic, int32_t number)
{
    struct world *w = arg;
    (void)topic;
    hosting_follow_one(w->hosting, w->topic, number);
}

static void closed(void *arg, bool clean)
{
    struct world *w = arg;
    w->is_closed = true;
    w->was_clean = clean;
}

void world_put_topic(struct world *w, uint8_t id)
{
    struct znode_topic node = {.topic_id = {{id}}, .partitions_count = PARTITIONS};
    node.replicas = calloc(PARTITIONS, sizeof *node.replicas);
    for (int i = 0; i < PARTITIONS; i++) {
        node.replicas[i] = (struct znode_replicas){calloc(1, sizeof(int32_t)), 1};
        node.replicas[i].brokers[0] = BROKER;
    }
    ck_assert_int_eq(image_put_topic(w->image, "t", &node, id, &w->topic), 0);
}

void world_put_state(struct world *w, int partition, int32_t epoch)
{
    struct znode_state state = {.leader = BROKER, .leader_epoch = epoch, .isr_count = 1};
    state.isr[0] = BROKER;
    state.isr_epochs[0] = w->broker_epoch;
    ck_assert_int_eq(image_set_state(w->topic, partition, &state, epoch), 0);
    hosting_follow_one(w->hosting, w->topic, partition);
}

/* ---- waiting ---------------------------------------------------------------------------------------- */

static bool is_opened(void *arg)
{
    struct world *w = arg;
    inbox_drain(&w->inbox);
    return w->is_opened;
}

static bool is_closed(void *arg)
{
    struct world *w = arg;
    inbox_drain(&w->inbox);
    return w->is_closed;
}

static bool is_led(void *arg)
{
    struct world *w = arg;
    inbox_drain(&w->inbox);
    return hosting_leads(w->hosting, w->topic, w->awaited);
}

bool world_is_hosted(void *arg)
{
    struct world *w = arg;
    inbox_drain(&w->inbox);
    return hosting_find(w->hosting, w->topic, w->awaited) != NULL;
}

bool world_is_led_at_last(void *arg)
{
    struct world *w = arg;
    w->now_ms += HOSTING_RETRY_MS + 1;
    hosting_tick(w->hosting, w->now_ms);
    return is_led(arg);
}

bool world_is_told(void *arg)
{
    struct world *w = arg;
    w->now_ms += HOSTING_SPACE_MS;
    hosting_tick(w->hosting, w->now_ms);
    inbox_drain(&w->inbox);
    return (int)(w->errors + w->warnings) >= w->awaited;
}

bool world_is_led_or_told(void *arg)
{
    struct world *w = arg;
    return is_led(arg) || w->errors > 0;
}

void world_wait_led(struct world *w, int partition)
{
    w->awaited = partition;
    ck_assert_msg(suite_wait(is_led, w, 5000), "partition %d is not led: %s", partition, w->last_error);
}

void world_wait_told(struct world *w, int lines)
{
    w->awaited = lines;
    ck_assert(suite_wait(world_is_told, w, 5000));
}

/* ---- a life ----------------------------------------------------------------------------------------- */

void world_init(struct world *w, const char *name, int dirs_count)
{
    faulty_reset();
    faulty_free_bytes("", -1);
    *w = (struct world){.now_ms = 1000, .dirs_count = dirs_count};
    w->diag = (struct diag){.level_min = DIAG_INFO, .sink = note_line, .sink_arg = w};
    w->config = (struct topic_config){.log = fixture_settings(), .message_bytes_max = 1 << 20};
    w->config.log.retention_ms = -1;
    for (int i = 0; i < DIRS; i++) {
        snprintf(w->paths[i], sizeof w->paths[i], "%.3000s-%c", fixture_log_path(name), 'a' + i);
        suite_remove_tree(w->paths[i]);
    }
    ck_assert_int_eq(inbox_init(&w->inbox), 0);
    ck_assert_int_eq(image_new(&w->config, &w->image), 0);
    world_put_topic(w, 1);
}

static void noted(void *arg, int64_t broker_epoch)
{
    struct world *w = arg;
    w->noted_epoch = broker_epoch;
}

bool world_is_noted(void *arg)
{
    struct world *w = arg;
    inbox_drain(&w->inbox);
    return w->noted_epoch == w->broker_epoch;
}

int world_start(struct world *w)
{
    const char *dirs[DIRS] = {w->paths[0], w->paths[1]};
    struct hosting_settings settings = {.broker_id = BROKER,
                                        .data_dirs = dirs,
                                        .data_dirs_count = (size_t)w->dirs_count,
                                        .disk_threads = 1,
                                        .retention_check_ms = HOSTING_CHECKPOINT_MS,
                                        .free_bytes_min = ROOM,
                                        .defaults = &w->config,
                                        .diag = &w->diag};
    struct hosting_events events = {opened, changed, noted, closed, w, NULL, NULL};
    struct brook_error error = {0};
    w->is_opened = w->is_closed = false;
    w->broker_epoch++;
    ck_assert_int_eq(hosting_new(&settings, &w->inbox, &events, &w->hosting), 0);
    w->open_code = -hosting_lock(w->hosting, &error);
    if (w->open_code) {
        snprintf(w->last_error, sizeof w->last_error, "%s", error.text);
        return w->open_code;
    }
    hosting_open(w->hosting, CLUSTER);
    ck_assert(suite_wait(is_opened, w, 5000));
    if (!w->open_code)
        hosting_set_broker_epoch(w->hosting, w->broker_epoch);
    return w->open_code;
}

void world_stop(struct world *w)
{
    hosting_close(w->hosting);
    ck_assert(suite_wait(is_closed, w, 10000));
    hosting_free(w->hosting);
    w->hosting = NULL;
}

void world_done(struct world *w)
{
    image_free(w->image);
    inbox_done(&w->inbox);
}

bool world_is_there(const struct world *w, int dir, const char *name)
{
    char path[PATH_MAX + 64];
    struct stat st;
    snprintf(path, sizeof path, "%s/%s", w->paths[dir], name);
    return stat(path, &st) == 0;
}

bool world_has_partition(const struct world *w, int dir, int partition)
{
    char name[32];
    snprintf(name, sizeof name, "t-%d", partition);
    return world_is_there(w, dir, name);
}

int world_dir_of(const struct world *w, int partition)
{
    ck_assert_int_ne(world_has_partition(w, 0, partition), world_has_partition(w, 1, partition));
    return world_has_partition(w, 0, partition) ? 0 : 1;
}

struct asked {
    struct world *world;
    struct partition_append append;
    bool is_answered;
};

static void note_answer(struct partition_append *a)
{
    CONTAINER_OF(a, struct asked, append)->is_answered = true;
}

static bool is_answered(void *arg)
{
    struct asked *asked = arg;
    inbox_drain(&asked->world->inbox);
    return asked->is_answered;
}

int world_append(struct world *w, int partition)
{
    struct partition *p = hosting_find(w->hosting, w->topic, partition);
    if (!p)
        return BROOK_E_NOT_LEADER;
    struct log_batch batch = batches_make(2, T0, 0, 100, (uint32_t)w->stored[partition]);
    struct asked asked = {.world = w,
                          .append = {.batches = &batch, .batches_count = 1, .inbox = &w->inbox, .done = note_answer}};
    partition_enqueue(p, &asked.append);
    partition_drain(p, &w->inbox);
    ck_assert(suite_wait(is_answered, &asked, 5000)); /* retention may have the append lock */
    if (asked.append.error.code == 0) {
        ck_assert_int_eq(asked.append.base_offset, w->stored[partition]);
        w->stored[partition] += 2;
    }
    batches_free(&batch);
    return asked.append.error.code;
}

void world_check_records(struct world *w, int partition)
{
    struct log *log = partition_log(hosting_find(w->hosting, w->topic, partition));
    ck_assert_int_eq(log_end_offset(log), w->stored[partition]);
    ck_assert_int_eq(fixture_read_all(log, 0, true), w->stored[partition]);
}

void world_begin(struct world *w, const char *name)
{
    world_init(w, name, DIRS);
    ck_assert_int_eq(world_start(w), 0);
    for (int i = 0; i < PARTITIONS; i++) {
        world_put_state(w, i, 0);
        world_wait_led(w, i);
        for (int k = 0; k < 3; k++)
            ck_assert_int_eq(world_append(w, i), 0);
    }
}

void world_begin_again(struct world *w)
{
    ck_assert_int_eq(world_start(w), 0);
    for (int i = 0; i < PARTITIONS; i++) {
        world_put_state(w, i, (int32_t)w->broker_epoch);
        world_wait_led(w, i);
        world_check_records(w, i);
        ck_assert_int_eq(world_append(w, i), 0);
    }
}
