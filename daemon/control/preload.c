/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/control/preload.h"

#include "base/lock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/metrics.h"
#include "daemon/child.h"
#include "daemon/control/listener.h"
#include "daemon/daemon.h"
#include "daemon/health.h"
#include "daemon/load_line.h"
#include "daemon/models.h"
#include "daemon/reactor.h"
#include "daemon/sdnotify.h"
#include "daemon/sockets.h"
#include "scheduler/model/model.h"
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define LOOK_EVERY  (100 * NGD_MSEC)
#define RETRY_FIRST (5 * NGD_SEC)
#define RETRY_MOST  (300 * NGD_SEC)
#define WORDS_OWN   10 /* words of the command besides those of the line */

struct wanted {
    char *entry; /* of the option */
    struct ngd_load_line line;
    ngd_preload_state_t state;
    char error[512];
    ngd_nsec_t began, next, delay;
};

struct wanted_list {
    struct wanted *items;
    size_t n;
};

struct ngd_preload {
    struct ngd_daemon *daemon;
    struct ngd_reactor_watch *timer; /* NULL: nothing is missing */
    struct ngd_child child;
    struct wanted *running;   /* NULL: no child, or one that was killed */
    struct wanted_list fresh; /* between prepare and commit */
    struct ngd_mutex lock;    /* only the loop changes `now`, under this lock; so the loop reads it without */
    struct wanted_list now;
};

/* ---- lists ------------------------------------------------------------------------------------------------- */

static void free_wanted(struct wanted_list *list)
{
    for (size_t i = 0; i < list->n; i++) {
        ngd_load_line_fini(&list->items[i].line);
        ngd_free(list->items[i].entry);
    }
    ngd_free(list->items);
    *list = (struct wanted_list){0};
}

static ngd_status_t make_wanted(const struct ngd_config_list *entries, struct wanted_list *list, struct ngd_diag *diag)
{
    ngd_status_t status = NGD_OK;

    *list = (struct wanted_list){.items = NGD_NEW_N(struct wanted, entries->n + 1)};
    if (!list->items)
        return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "load: out of memory");
    while (list->n < entries->n && status == NGD_OK) {
        struct wanted *w = &list->items[list->n];

        status = ngd_load_line_parse(entries->items[list->n], &w->line, diag);
        w->entry = status == NGD_OK ? ngd_strdup(entries->items[list->n]) : NULL;
        list->n += status == NGD_OK;
        if (status == NGD_OK && !w->entry)
            status = ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "load: out of memory");
    }
    if (status != NGD_OK)
        free_wanted(list);
    return status;
}

static const char *name_of(const struct wanted *w)
{
    return w->line.words[0];
}

static struct wanted *find_wanted_entry(const struct wanted_list *list, const char *entry)
{
    for (size_t i = 0; i < list->n; i++)
        if (strcmp(list->items[i].entry, entry) == 0)
            return &list->items[i];
    return NULL;
}

static struct wanted *find_wanted_name(const struct wanted_list *list, const char *name)
{
    for (size_t i = 0; i < list->n; i++)
        if (strcmp(name_of(&list->items[i]), name) == 0)
            return &list->items[i];
    return NULL;
}

/* ---- what is there ----------------------------------------------------------------------------------------- */

struct presence {
    char owner[32];
    const char *name;
    bool found;
};

static void look_at_model(void *ctx, const struct ngd_model_listed *listed)
{
    struct presence *p = ctx;
    struct ngd_model_stats stats;

    ngd_model_stats(listed->model, &stats);
    p->found |= strcmp(listed->owner, p->owner) == 0 && strcmp(stats.name, p->name) == 0;
}

/* Returns whether the daemon's user has a model of that name: it was loaded before, or another daemon gave it. */
static bool has_wanted_model(struct ngd_daemon *d, const char *name)
{
    struct presence p = {.name = name};

    snprintf(p.owner, sizeof(p.owner), "uid:%lu", (unsigned long)geteuid());
    ngd_models_for_each(d->models, NULL, look_at_model, &p);
    return p.found;
}

static size_t count_missing(const struct wanted_list *list)
{
    size_t missing = 0;

    for (size_t i = 0; i < list->n; i++)
        missing += list->items[i].state != NGD_PRELOAD_LOADED;
    return missing;
}

/* Tells everybody who asks or waits how many are missing. */
static void tell_missing_models(struct ngd_preload *p)
{
    const size_t missing = count_missing(&p->now);
    const unsigned before = atomic_exchange(&p->daemon->missing_models, (unsigned)missing);
    char text[80] = "serving";

    if (missing == before)
        return;
    ngd_metric_set(NGD_M_MISSING_MODELS, (int64_t)missing);
    ngd_metric_set(NGD_M_READY, ngd_daemon_ready(p->daemon));
    if (ngd_daemon_state(p->daemon) != NGD_DAEMON_SERVING)
        return;
    if (missing)
        snprintf(text, sizeof(text), "serving; %zu of %zu models of the option load are missing", missing, p->now.n);
    ngd_sdnotify_status(text);
    if ((missing == 0) != (before == 0))
        ngd_health_changed(p->daemon->health);
}

static void set_preload_state(struct ngd_preload *p, struct wanted *w, ngd_preload_state_t state, const char *error)
{
    ngd_mutex_lock(&p->lock);
    w->state = state;
    snprintf(w->error, sizeof(w->error), "%s", error);
    if (state == NGD_PRELOAD_FAILED) {
        w->delay = !w->delay ? RETRY_FIRST : 2 * w->delay < RETRY_MOST ? 2 * w->delay : RETRY_MOST;
        w->next = ngd_now() + w->delay;
    }
    ngd_mutex_unlock(&p->lock);
    tell_missing_models(p);
}

static void fail_wanted(struct ngd_preload *p, struct wanted *w, const char *why)
{
    ngd_metric_inc(NGD_M_LOAD_FAILURES);
    set_preload_state(p, w, NGD_PRELOAD_FAILED, why);
    ngd_error("daemon", "load: model %s cannot be loaded: %s; the next attempt is in %lld s", name_of(w), why,
              (long long)(w->delay / NGD_SEC));
}

/* ---- a load ------------------------------------------------------------------------------------------------ */

/* Prints the path of npugraphctl: beside npugraphd, or in the folder of programs for users. */
static bool find_program(char *path, size_t room)
{
    static const char *const places[] = {"npugraphctl", "../bin/npugraphctl"};
    const ssize_t n = readlink("/proc/self/exe", path, room - 1);
    size_t dir;

    path[n > 0 ? n : 0] = '\0';
    dir = strrchr(path, '/') ? (size_t)(strrchr(path, '/') - path) + 1 : 0;
    for (size_t i = 0; dir && i < sizeof(places) / sizeof(places[0]); i++)
        if (snprintf(path + dir, room - dir, "%s", places[i]) < (int)(room - dir) && access(path, X_OK) == 0)
            return true;
    return false;
}

static void take_unix_address(void *ctx, const char *address)
{
    char *first = ctx;

    if (!*first && strncmp(address, "unix:", 5) == 0)
        snprintf(first, NGD_ADDRESS_MAX, "%s", address);
}

/* The environment of a load: nothing of ours that says where a daemon is or who calls it. */
static void make_environment(char **env, size_t room)
{
    static const char *const kept[] = {"LD_LIBRARY_PATH=", "NPUGRAPH_FAMILIES=", "TMPDIR=",       "ASAN_OPTIONS=",
                                       "LSAN_OPTIONS=",    "TSAN_OPTIONS=",      "UBSAN_OPTIONS="};
    size_t n = 0;

    env[n++] = (char *)(uintptr_t) "PATH=/usr/bin:/bin";
    env[n++] = (char *)(uintptr_t) "LC_ALL=C.UTF-8";
    for (char **e = environ; *e; e++)
        for (size_t i = 0; i < sizeof(kept) / sizeof(kept[0]); i++)
            if (n + 1 < room && strncmp(*e, kept[i], strlen(kept[i])) == 0)
                env[n++] = *e;
    env[n] = NULL;
}

static ngd_status_t start_loader(struct ngd_preload *p, const struct wanted *w, struct ngd_diag *diag)
{
    char program[PATH_MAX], address[NGD_ADDRESS_MAX] = "";
    char *argv[NGD_LOAD_WORDS_MAX + WORDS_OWN], *env[16];
    size_t n = 0;

    ngd_listeners_for_each(p->daemon->listeners, take_unix_address, address);
    if (!address[0])
        return ngd_diag_set(diag, NGD_ERR_CONFIG, "the daemon listens on no Unix socket, which loads need");
    if (!find_program(program, sizeof(program)))
        return ngd_diag_set(diag, NGD_ERR_FILE_NOT_FOUND,
                            "npugraphctl is not installed beside npugraphd, or in ../bin");
    argv[n++] = program;
    argv[n++] = (char *)(uintptr_t) "--address";
    argv[n++] = address;
    argv[n++] = (char *)(uintptr_t) "--quiet";
    argv[n++] = (char *)(uintptr_t) "load";
    argv[n++] = (char *)(uintptr_t) "--name";
    memcpy(&argv[n], w->line.words, w->line.n * sizeof(*argv));
    n += w->line.n;
    argv[n] = NULL;
    make_environment(env, sizeof(env) / sizeof(env[0]));
    return ngd_child_start(&p->child, argv, env, diag);
}

static void begin_wanted(struct ngd_preload *p, struct wanted *w)
{
    struct ngd_diag diag = {0};

    if (has_wanted_model(p->daemon, name_of(w))) {
        set_preload_state(p, w, NGD_PRELOAD_LOADED, "");
        return;
    }
    if (start_loader(p, w, &diag) != NGD_OK) {
        fail_wanted(p, w, diag.text);
        return;
    }
    p->running = w;
    w->began = ngd_now();
    set_preload_state(p, w, NGD_PRELOAD_LOADING, "");
    ngd_info("daemon", "load: loading model %s from %s", name_of(w), w->line.words[1]);
}

static void end_wanted(struct ngd_preload *p, int status)
{
    struct wanted *w = p->running;
    char line[400], why[440];

    p->running = NULL;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
        set_preload_state(p, w, NGD_PRELOAD_LOADED, "");
        ngd_notice("daemon", "load: model %s is loaded, after %.1f s", name_of(w),
                   (double)(ngd_now() - w->began) / NGD_SEC);
        return;
    }
    ngd_child_last_line(&p->child, line, sizeof(line));
    if (WIFSIGNALED(status))
        snprintf(why, sizeof(why), "npugraphctl was ended by signal %d%s%s", WTERMSIG(status), line[0] ? ": " : "",
                 line);
    else
        snprintf(why, sizeof(why), "%s", line[0] ? line : "npugraphctl failed without a word");
    fail_wanted(p, w, why);
}

/* The process is reaped when it has ended. */
static void give_up_loader(struct ngd_preload *p)
{
    struct wanted *w = p->running;

    ngd_child_kill(&p->child);
    p->running = NULL;
    if (w)
        set_preload_state(p, w, NGD_PRELOAD_WAITING, "");
}

static struct wanted *next_wanted(struct ngd_preload *p)
{
    const ngd_nsec_t now = ngd_now();

    for (size_t i = 0; i < p->now.n; i++)
        if (p->now.items[i].state == NGD_PRELOAD_WAITING)
            return &p->now.items[i];
    for (size_t i = 0; i < p->now.n; i++)
        if (p->now.items[i].state == NGD_PRELOAD_FAILED && now >= p->now.items[i].next)
            return &p->now.items[i];
    return NULL;
}

/* While another daemon takes over, what runs may still end. Once it has, all loads are the other one's, and the session
 * of one that runs would keep this daemon. */
static void look_at_loads(void *arg)
{
    struct ngd_preload *p = arg;
    struct ngd_daemon *d = p->daemon;
    struct wanted *next;
    int status;

    if (p->running && (ngd_daemon_state(d) != NGD_DAEMON_SERVING || atomic_load(&d->replaced)))
        give_up_loader(p); /* first: what stops us may have ended the load as well, which is no failure then */
    if (p->child.pid && ngd_child_ended(&p->child, &status) && p->running)
        end_wanted(p, status);
    if (p->child.pid || ngd_daemon_state(d) != NGD_DAEMON_SERVING || atomic_load(&d->next_pid))
        return;
    next = next_wanted(p);
    if (next)
        begin_wanted(p, next);
    if (atomic_load(&d->missing_models) == 0) {
        ngd_reactor_remove(p->timer);
        p->timer = NULL;
    }
}

/* ---- reload ------------------------------------------------------------------------------------------------ */

ngd_status_t ngd_preload_prepare(struct ngd_daemon *d, const struct ngd_options *fresh, struct ngd_diag *diag)
{
    struct ngd_preload *p = d->preload;
    ngd_status_t status = make_wanted(&fresh->load, &p->fresh, diag);

    if (status == NGD_OK && !p->timer && fresh->load.n)
        status = ngd_reactor_every(d->reactor, LOOK_EVERY, look_at_loads, p, &p->timer);
    if (status != NGD_OK)
        free_wanted(&p->fresh);
    return status;
}

/* Says what the reload does not do. */
static void tell_kept(const struct wanted_list *before, const struct wanted_list *now)
{
    for (size_t i = 0; i < before->n; i++) {
        const struct wanted *old = &before->items[i], *w = find_wanted_name(now, name_of(old));

        if (old->state != NGD_PRELOAD_LOADED)
            continue;
        if (!w)
            ngd_notice("daemon", "load: model %s has no entry any more; it stays until npugraphctl unload",
                       name_of(old));
        else if (w->state == NGD_PRELOAD_LOADED && strcmp(w->entry, old->entry) != 0)
            ngd_warning("daemon",
                        "load: the entry of model %s changed, and the model stays as it is; unload it and reload, to "
                        "have it loaded anew",
                        name_of(old));
    }
}

/* A load that runs goes on if its entry is still there. */
static void take_wanted_list(struct ngd_preload *p)
{
    struct wanted *goes_on = p->running ? find_wanted_entry(&p->fresh, p->running->entry) : NULL;
    struct wanted_list old = p->now;

    for (size_t i = 0; i < p->fresh.n; i++)
        if (has_wanted_model(p->daemon, name_of(&p->fresh.items[i])))
            p->fresh.items[i].state = NGD_PRELOAD_LOADED;
    if (goes_on) {
        goes_on->state = NGD_PRELOAD_LOADING;
        goes_on->began = p->running->began;
        p->running = goes_on;
    } else {
        give_up_loader(p);
    }
    ngd_mutex_lock(&p->lock);
    p->now = p->fresh;
    ngd_mutex_unlock(&p->lock);
    p->fresh = (struct wanted_list){0};
    tell_kept(&old, &p->now);
    free_wanted(&old);
    tell_missing_models(p);
}

void ngd_preload_commit(struct ngd_daemon *d, bool take)
{
    if (take)
        take_wanted_list(d->preload);
    else
        free_wanted(&d->preload->fresh);
}

/* ---- life, and for the status --------------------------------------------------------------------------------- */

ngd_status_t ngd_preload_start(struct ngd_daemon *d, struct ngd_diag *diag)
{
    struct ngd_preload *p = d->preload = NGD_NEW(struct ngd_preload);
    ngd_status_t status;

    if (!p)
        return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "out of memory");
    p->daemon = d;
    ngd_mutex_init(&p->lock, NGD_RANK_PRELOAD);
    status = ngd_preload_prepare(d, &d->options, diag);
    if (status == NGD_OK)
        take_wanted_list(p);
    return status;
}

void ngd_preload_stop(struct ngd_daemon *d)
{
    struct ngd_preload *p = d->preload;

    if (!p)
        return;
    ngd_child_fini(&p->child);
    ngd_reactor_remove(p->timer);
    free_wanted(&p->fresh);
    free_wanted(&p->now);
    ngd_mutex_fini(&p->lock);
    ngd_free(p);
    d->preload = NULL;
}

void ngd_preload_for_each(struct ngd_preload *p, void (*fn)(void *ctx, const struct ngd_preload_info *info), void *ctx)
{
    ngd_mutex_lock(&p->lock);
    for (size_t i = 0; i < p->now.n; i++) {
        const struct wanted *w = &p->now.items[i];

        fn(ctx, &(struct ngd_preload_info){name_of(w), w->state, w->error, w->next});
    }
    ngd_mutex_unlock(&p->lock);
}
