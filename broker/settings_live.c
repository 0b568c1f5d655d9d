#include "broker/settings_live.h"

void settings_live_init(struct settings_live *live, struct settings *settings)
{
    live->settings = settings;
    pthread_mutex_init(&live->lock, NULL);
}

void settings_live_done(struct settings_live *live)
{
    settings_free(live->settings);
    live->settings = NULL;
    pthread_mutex_destroy(&live->lock);
}

void settings_live_update(struct settings_live *live, struct settings *fresh)
{
    pthread_mutex_lock(&live->lock);
    settings_exchange(live->settings, fresh);
    pthread_mutex_unlock(&live->lock);
    settings_free(fresh);
}

void settings_live_visit(struct settings_live *live, settings_visitor *visitor, void *arg)
{
    pthread_mutex_lock(&live->lock);
    settings_visit(live->settings, visitor, arg);
    pthread_mutex_unlock(&live->lock);
}
