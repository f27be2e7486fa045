/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams in software: an ordered queue, and the thread that executes its items.
 *
 * `running` says that one thread executes an item outside the lock. It is the stream's own thread, or a caller of run()
 * that found the stream idle and keeps the work on its own CPU, without a thread switch. The stream's thread starts
 * with the first item that has to be queued; a stream that is only used with run() never has one.
 *
 *   idle --run()--> running (caller) --done--> idle
 *   idle --launch()--> queued --thread--> running (thread) --done--> idle, or the next item
 *
 * A device error becomes sticky: new launches are refused and queued ones complete with STREAM_ERROR. Events and
 * callbacks continue, so that nobody waits for ever. reset() clears the error. An error in a request's data stays with
 * its launch.
 */
#include "devices/serial.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/mem.h"
#include <assert.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum item_kind { ITEM_LAUNCH, ITEM_CALLBACK, ITEM_RECORD, ITEM_WAIT };

struct item {
    enum item_kind kind;
    void *inst;
    struct ngd_launch *launch;
    bool *done; /* LAUNCH from run(): set under the lock, `idle` is signalled */
    void (*fn)(void *arg);
    void *arg;
    struct ngd_serial_event *event;
    uint64_t ticket;
};

struct ngd_serial {
    struct ngd_mutex lock;
    struct ngd_cond work; /* the stream's thread waits on it */
    struct ngd_cond idle; /* callers that wait for the stream wait on it */
    struct item *ring NGD_GUARDED_BY(lock);
    uint32_t head NGD_GUARDED_BY(lock), n NGD_GUARDED_BY(lock), cap NGD_GUARDED_BY(lock);
    bool running NGD_GUARDED_BY(lock);
    bool stop NGD_GUARDED_BY(lock);
    bool started NGD_GUARDED_BY(lock);
    _Atomic int sticky; /* ngd_status_t */
    pthread_t thread;
    const struct ngd_serial_ops *ops;
    void *ctx;
    char name[16];
};

static bool serial_is_idle(const struct ngd_serial *s) NGD_REQUIRES(s->lock)
{
    return !s->running && s->n == 0;
}

/* ---- executing one item, without the lock, by the thread that set `running` ---------------------------- */

static ngd_status_t serial_refuse(struct ngd_serial *s, void *inst, ngd_status_t status)
{
    if (status && s->ops->refused)
        s->ops->refused(s->ctx, inst, status);
    return status;
}

static ngd_status_t refuse_when_sticky(struct ngd_serial *s, void *inst, struct ngd_launch *launch)
{
    int sticky = atomic_load(&s->sticky);

    if (!sticky)
        return NGD_OK;
    launch->status = ngd_diag_set(&launch->diag, NGD_ERR_STREAM_ERROR, "stream %s has an earlier error (%s); reset it",
                                  s->name, ngd_status_name((ngd_status_t)sticky));
    return serial_refuse(s, inst, launch->status);
}

static void execute_launch(struct ngd_serial *s, void *inst, struct ngd_launch *launch)
{
    ngd_status_t status;

    if (refuse_when_sticky(s, inst, launch))
        return;
    status = s->ops->launch(s->ctx, inst, launch);
    if (status && ngd_status_scope(status) == NGD_SCOPE_DEVICE)
        ngd_serial_poison(s, status);
}

static void serial_execute(struct ngd_serial *s, const struct item *item)
{
    switch (item->kind) {
    case ITEM_LAUNCH:
        execute_launch(s, item->inst, item->launch);
        break;
    case ITEM_CALLBACK:
        item->fn(item->arg);
        break;
    case ITEM_RECORD:
        ngd_serial_event_complete(item->event, item->ticket);
        break;
    case ITEM_WAIT:
        ngd_serial_event_await(item->event, item->ticket);
        break;
    }
}

/* ---- the queue --------------------------------------------------------------------------------------- */

static void *serial_main(void *arg)
{
    struct ngd_serial *s = arg;

    ngd_mutex_lock(&s->lock);
    for (;;) {
        struct item item;

        while (s->running || (s->n == 0 && !s->stop))
            ngd_cond_wait(&s->work, &s->lock);
        if (s->n == 0)
            break;
        item = s->ring[s->head];
        s->head = (s->head + 1) % s->cap;
        s->n--;
        s->running = true;
        ngd_mutex_unlock(&s->lock);
        serial_execute(s, &item);
        ngd_mutex_lock(&s->lock);
        s->running = false;
        if (item.kind == ITEM_LAUNCH && item.done)
            *item.done = true;
        if ((item.kind == ITEM_LAUNCH && item.done) || s->n == 0)
            ngd_cond_broadcast(&s->idle);
    }
    ngd_mutex_unlock(&s->lock);
    return NULL;
}

static ngd_status_t serial_grow(struct ngd_serial *s) NGD_REQUIRES(s->lock)
{
    uint32_t cap = s->cap ? s->cap * 2 : 16;
    struct item *ring = NGD_NEW_N(struct item, cap);

    if (!ring)
        return NGD_ERR_NO_MEMORY;
    for (uint32_t i = 0; i < s->n; i++)
        ring[i] = s->ring[(s->head + i) % s->cap];
    ngd_free(s->ring);
    s->ring = ring;
    s->cap = cap;
    s->head = 0;
    return NGD_OK;
}

static ngd_status_t serial_push(struct ngd_serial *s, const struct item *item) NGD_REQUIRES(s->lock)
{
    ngd_status_t status;

    if (s->n == s->cap) {
        status = serial_grow(s);
        if (status)
            return status;
    }
    if (!s->started) {
        int err = ngd_thread_start(&s->thread, s->name, serial_main, s);

        if (err)
            return ngd_status_from_errno(err);
        s->started = true;
    }
    s->ring[(s->head + s->n++) % s->cap] = *item;
    ngd_cond_signal(&s->work);
    return NGD_OK;
}

static ngd_status_t serial_enqueue(struct ngd_serial *s, const struct item *item)
{
    ngd_status_t status;

    ngd_mutex_lock(&s->lock);
    status = serial_push(s, item);
    ngd_mutex_unlock(&s->lock);
    return status;
}

/* Waits until nothing is queued and nothing runs. */
static void serial_drain(struct ngd_serial *s) NGD_REQUIRES(s->lock)
{
    while (!serial_is_idle(s))
        ngd_cond_wait(&s->idle, &s->lock);
}

/* ---- lifecycle --------------------------------------------------------------------------------------- */

ngd_status_t ngd_serial_create(const char *name, const struct ngd_serial_ops *ops, void *ctx, void **stream_p)
{
    struct ngd_serial *s = NGD_NEW(struct ngd_serial);

    if (!s)
        return NGD_ERR_NO_MEMORY;
    snprintf(s->name, sizeof(s->name), "%s", name);
    s->ops = ops;
    s->ctx = ctx;
    ngd_mutex_init(&s->lock, NGD_RANK_STREAM);
    ngd_cond_init(&s->work);
    ngd_cond_init(&s->idle);
    *stream_p = s;
    return NGD_OK;
}

void ngd_serial_destroy(void *dev, void *stream)
{
    struct ngd_serial *s = stream;
    bool started;

    (void)dev;
    ngd_mutex_lock(&s->lock);
    serial_drain(s);
    s->stop = true;
    started = s->started;
    ngd_cond_signal(&s->work);
    ngd_free(s->ring);
    s->ring = NULL;
    ngd_mutex_unlock(&s->lock);
    if (started)
        pthread_join(s->thread, NULL);
    s->ops->fini(s->ctx);
    ngd_cond_fini(&s->idle);
    ngd_cond_fini(&s->work);
    ngd_mutex_fini(&s->lock);
    ngd_free(s);
}

/* ---- launches ---------------------------------------------------------------------------------------- */

ngd_status_t ngd_serial_launch(void *stream, void *inst, struct ngd_launch *launch)
{
    struct ngd_serial *s = stream;
    ngd_status_t status = refuse_when_sticky(s, inst, launch);

    if (status)
        return status;
    return serial_refuse(s, inst,
                         serial_enqueue(s, &(struct item){.kind = ITEM_LAUNCH, .inst = inst, .launch = launch}));
}

/* Queues the launch and waits until it is done. If it returns an error, the launch was not queued. */
static ngd_status_t run_queued(struct ngd_serial *s, void *inst, struct ngd_launch *launch) NGD_REQUIRES(s->lock)
{
    bool done = false;
    ngd_status_t status =
        serial_push(s, &(struct item){.kind = ITEM_LAUNCH, .inst = inst, .launch = launch, .done = &done});

    while (!status && !done)
        ngd_cond_wait(&s->idle, &s->lock);
    return status;
}

ngd_status_t ngd_serial_run(void *stream, void *inst, struct ngd_launch *launch)
{
    struct ngd_serial *s = stream;
    ngd_status_t status = refuse_when_sticky(s, inst, launch);

    if (status)
        return status;
    ngd_mutex_lock(&s->lock);
    if (!serial_is_idle(s)) {
        status = run_queued(s, inst, launch);
        ngd_mutex_unlock(&s->lock);
        if (status)
            launch->status = serial_refuse(s, inst, status);
        return launch->status;
    }
    s->running = true;
    ngd_mutex_unlock(&s->lock);
    execute_launch(s, inst, launch);
    ngd_mutex_lock(&s->lock);
    s->running = false;
    ngd_cond_broadcast(&s->idle);
    if (s->n)
        ngd_cond_signal(&s->work);
    ngd_mutex_unlock(&s->lock);
    return launch->status;
}

bool ngd_serial_ready(void *stream, void *inst)
{
    struct ngd_serial *s = stream;

    return !s->ops->ready || s->ops->ready(s->ctx, inst);
}

ngd_status_t ngd_serial_callback(void *stream, void (*fn)(void *arg), void *arg)
{
    return serial_enqueue(stream, &(struct item){.kind = ITEM_CALLBACK, .fn = fn, .arg = arg});
}

/* ---- waiting, errors --------------------------------------------------------------------------------- */

ngd_status_t ngd_serial_status(void *stream)
{
    struct ngd_serial *s = stream;

    return (ngd_status_t)atomic_load(&s->sticky);
}

ngd_status_t ngd_serial_sync(void *stream)
{
    struct ngd_serial *s = stream;

    ngd_mutex_lock(&s->lock);
    serial_drain(s);
    ngd_mutex_unlock(&s->lock);
    return ngd_serial_status(s);
}

void ngd_serial_reset(void *stream)
{
    struct ngd_serial *s = stream;
    bool usable;

    ngd_mutex_lock(&s->lock);
    serial_drain(s);
    s->running = true; /* nobody launches meanwhile */
    ngd_mutex_unlock(&s->lock);
    usable = !s->ops->reset || s->ops->reset(s->ctx) == NGD_OK;
    ngd_mutex_lock(&s->lock);
    s->running = false;
    if (usable)
        atomic_store(&s->sticky, NGD_OK);
    ngd_cond_broadcast(&s->idle);
    if (s->n)
        ngd_cond_signal(&s->work);
    ngd_mutex_unlock(&s->lock);
}

void ngd_serial_poison(void *stream, ngd_status_t status)
{
    static struct ngd_log_limit limit;
    struct ngd_serial *s = stream;
    int none = NGD_OK;

    /* The first error is the cause; later ones are its consequences. */
    if (atomic_compare_exchange_strong(&s->sticky, &none, (int)status))
        ngd_log_limited(&limit, NGD_LOG_ERROR, "devices",
                        "stream %s has a device error, it takes no launches until it is reset status=%s", s->name,
                        ngd_status_name(status));
}

/* ---- events ------------------------------------------------------------------------------------------ */

ngd_status_t ngd_serial_event_record(void *event, void *stream)
{
    struct ngd_serial *s = stream;
    uint64_t ticket;
    ngd_status_t status = ngd_serial_event_take(event, &ticket);
    bool now;

    if (status)
        return status;
    ngd_mutex_lock(&s->lock);
    now = serial_is_idle(s);
    if (!now)
        status = serial_push(s, &(struct item){.kind = ITEM_RECORD, .event = event, .ticket = ticket});
    ngd_mutex_unlock(&s->lock);
    /* Complete also a ticket that could not be queued: another thread may wait for it already. */
    if (now || status)
        ngd_serial_event_complete(event, ticket);
    return status;
}

ngd_status_t ngd_serial_event_wait(void *stream, void *event)
{
    uint64_t ticket = ngd_serial_event_last(event);

    if (ngd_serial_event_done(event, ticket))
        return NGD_OK;
    return serial_enqueue(stream, &(struct item){.kind = ITEM_WAIT, .event = event, .ticket = ticket});
}
