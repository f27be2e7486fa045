/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams: each has a context of its own, so that a capture on one forbids nothing to the others, and a fault on one is
 * mended by making its context anew. The queue in front is devices/serial.h.
 *
 * Groups' launches run on streams of their own, one for each rank, because HCCL wants all collectives of a communicator
 * issued in one context. All groups of a device share that context, so that a graph may have collectives of several
 * (docs/decisions/0024). A stream that breaks leaves the context to the others, and the device's next one is new.
 */
#include "base/log.h"
#include "devices/ascend/group.h"
#include <stdio.h>
#include <string.h>

ngd_status_t ngd_ascend_stream_fail(const struct ascend_stream *s, ngd_acl_error_t code, const char *name,
                                    struct ngd_diag *diag)
{
    char what[160];

    snprintf(what, sizeof(what), "device %s, stream %.60s: %s", s->dev->name, s->name, name);
    return ngd_acl_fail(s->dev->acl, code, what, diag);
}

/* ---- contexts ------------------------------------------------------------------------------------ */

static ngd_acl_error_t create_context(struct ascend_device *dev, void **context_p)
{
    ngd_acl_error_t code = dev->acl->aclrtCreateContext(context_p, dev->index);

    if (code == 0)
        ngd_ascend_count_streams(dev, 1); /* its default stream */
    return code;
}

static void destroy_context(struct ascend_device *dev, void *context)
{
    dev->acl->aclrtDestroyContext(context);
    ngd_ascend_count_streams(dev, -1);
}

static struct ascend_shared *find_shared(struct ascend_device *dev)
{
    struct ascend_shared *shared;

    ngd_mutex_lock(&dev->lock);
    shared = dev->shared;
    if (shared)
        shared->refs++;
    ngd_mutex_unlock(&dev->lock);
    return shared;
}

static ngd_status_t take_shared(struct ascend_stream *s, struct ngd_diag *diag)
{
    struct ascend_shared *shared = find_shared(s->dev);
    ngd_acl_error_t code;

    if (!shared) {
        shared = NGD_NEW(struct ascend_shared);
        if (!shared)
            return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory for a context of %s", s->dev->name);
        code = create_context(s->dev, &shared->context);
        if (code) {
            ngd_free(shared);
            return ngd_ascend_stream_fail(s, code, "a context", diag);
        }
        shared->refs = 1;
        ngd_mutex_lock(&s->dev->lock);
        s->dev->shared = shared;
        ngd_mutex_unlock(&s->dev->lock);
    }
    s->shared = shared;
    s->context = shared->context;
    return ngd_ascend_enter(s->dev, s->context, diag);
}

static void leave_shared(struct ascend_stream *s)
{
    struct ascend_shared *shared = s->shared;
    bool last;

    ngd_mutex_lock(&s->dev->lock);
    last = --shared->refs == 0;
    if (s->dev->shared == shared && (last || s->broken))
        s->dev->shared = NULL;
    ngd_mutex_unlock(&s->dev->lock);
    s->shared = NULL;
    if (!last)
        return;
    destroy_context(s->dev, shared->context);
    ngd_free(shared);
}

static ngd_status_t take_stream_context(struct ascend_stream *s, struct ngd_diag *diag)
{
    ngd_acl_error_t code;

    if (s->of_group)
        return take_shared(s, diag);
    code = create_context(s->dev, &s->context);
    if (code == 0)
        return NGD_OK;
    s->context = NULL;
    return ngd_ascend_stream_fail(s, code, "a context", diag);
}

static void leave_stream_context(struct ascend_stream *s)
{
    if (s->shared)
        leave_shared(s);
    else
        destroy_context(s->dev, s->context);
    s->context = NULL;
}

/* ---- streams ------------------------------------------------------------------------------------- */

static void close_context(struct ascend_stream *s)
{
    const struct ngd_acl *acl = s->dev->acl;

    if (!s->context)
        return;
    ngd_ascend_drop_graphs(s);
    if (ngd_ascend_enter_to_release(s->dev, s->context)) {
        for (uint32_t i = 0; i < s->n_events; i++)
            acl->aclrtDestroyEvent(s->events[i]);
        /* By force: what hangs would keep this thread. */
        for (uint32_t i = 0; i < s->n_sides; i++)
            acl->aclrtDestroyStreamForce(s->sides[i]);
        if (s->limits.stream)
            acl->aclrtDestroyStreamForce(s->limits.stream);
        if (s->update)
            acl->aclrtDestroyStreamForce(s->update);
        if (s->stream)
            acl->aclrtDestroyStreamForce(s->stream);
    }
    ngd_ascend_count_streams(s->dev,
                             -(s->stream != NULL) - (s->update != NULL) - (s->limits.stream != NULL) - (int)s->n_sides);
    leave_stream_context(s);
    ngd_ascend_count_events(s->dev, -(int)s->n_events);
    ngd_free(s->events);
    ngd_free(s->sides);
    s->events = s->sides = NULL;
    s->n_events = s->n_sides = 0;
    s->limits = (struct ascend_limits){0};
    s->stream = s->update = NULL;
}

static ngd_status_t open_stream_context(struct ascend_stream *s, struct ngd_diag *diag)
{
    const struct ngd_acl *acl = s->dev->acl;
    ngd_status_t status = take_stream_context(s, diag);
    ngd_acl_error_t code;

    if (status) {
        close_context(s);
        return status;
    }
    code = acl->aclrtCreateStreamWithConfig(&s->stream, 0, NGD_ACL_STREAM_FAST_LAUNCH);
    if (code) {
        s->stream = NULL;
    } else {
        ngd_ascend_count_streams(s->dev, 1);
        /* Without it, what comes after a failed operator would run on what that left: caches are written in place. */
        code = acl->aclrtSetStreamFailureMode(s->stream, NGD_ACL_STOP_ON_FAILURE);
    }
    if (code) {
        status = ngd_ascend_stream_fail(s, code, "a stream that stops on failure", diag);
        close_context(s);
        return status;
    }
    s->broken = false;
    return NGD_OK;
}

static ngd_status_t grow_events(struct ascend_stream *s, uint32_t n, struct ngd_diag *diag)
{
    void **events = ngd_reallocarray(s->events, n, sizeof(*events));

    if (!events)
        return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory for %u events", (unsigned)n);
    s->events = events;
    while (s->n_events < n) {
        ngd_acl_error_t code = s->dev->acl->aclrtCreateEventWithFlag(&s->events[s->n_events], NGD_ACL_EVENT_EXTERNAL);

        if (code)
            return ngd_ascend_stream_fail(s, code, "an event for host parameters", diag);
        s->n_events++;
        ngd_ascend_count_events(s->dev, 1);
    }
    return NGD_OK;
}

ngd_status_t ngd_ascend_stream_task_groups(struct ascend_stream *s, uint32_t n, struct ngd_diag *diag)
{
    if (n && !s->update) {
        ngd_acl_error_t code = s->dev->acl->aclrtCreateStreamWithConfig(&s->update, 0, NGD_ACL_STREAM_FAST_LAUNCH);

        if (code) {
            s->update = NULL;
            return ngd_ascend_stream_fail(s, code, "a stream for host parameters", diag);
        }
        ngd_ascend_count_streams(s->dev, 1);
    }
    return n > s->n_events ? grow_events(s, n, diag) : NGD_OK;
}

ngd_status_t ngd_ascend_stream_sides(struct ascend_stream *s, uint32_t n, struct ngd_diag *diag)
{
    void **sides;

    if (n <= s->n_sides)
        return NGD_OK;
    sides = ngd_reallocarray(s->sides, n, sizeof(*sides));
    if (!sides)
        return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory for %u side streams", (unsigned)n);
    s->sides = sides;
    while (s->n_sides < n) {
        ngd_acl_error_t code =
            s->dev->acl->aclrtCreateStreamWithConfig(&s->sides[s->n_sides], 0, NGD_ACL_STREAM_FAST_LAUNCH);

        if (code)
            return ngd_ascend_stream_fail(s, code, "a side stream", diag);
        s->n_sides++;
        ngd_ascend_count_streams(s->dev, 1);
    }
    return NGD_OK;
}

ngd_status_t ngd_ascend_stream_renew(struct ascend_stream *s, struct ngd_diag *diag)
{
    close_context(s);
    return open_stream_context(s, diag);
}

void ngd_ascend_stream_init_in_group(struct ascend_stream *s, struct ascend_device *dev, const char *name)
{
    *s = (struct ascend_stream){.dev = dev, .of_group = true};
    snprintf(s->name, sizeof(s->name), "%s", name);
    ngd_list_init(&s->captured);
}

void ngd_ascend_stream_close(struct ascend_stream *s)
{
    close_context(s);
}

/* ---- as a stream of devices/serial.h ------------------------------------------------------------- */

static ngd_status_t reset(void *ctx)
{
    struct ascend_stream *s = ctx;
    struct ngd_diag diag = {0};
    ngd_status_t status;

    if (!s->broken && s->context)
        return NGD_OK; /* an error that was only claimed (a test's) */
    status = ngd_ascend_stream_renew(s, &diag);
    if (status)
        ngd_error("devices", "device %s, stream %s: its context cannot be made anew: %s", s->dev->name, s->name,
                  diag.text);
    else
        ngd_notice("devices", "device %s, stream %s: context made anew, its graphs are captured again when needed",
                   s->dev->name, s->name);
    return status;
}

static void stream_fini(void *ctx)
{
    struct ascend_stream *s = ctx;

    close_context(s);
    ngd_free(s);
}

/* Nobody waits for a rank whose launch is not taken. */
static void stream_call_refused(void *ctx, void *inst_v, ngd_status_t status)
{
    const struct ascend_inst *inst = inst_v;

    (void)ctx;
    ngd_ascend_groups_fail(inst->exec, "does not run", ngd_status_text(status));
}

static const struct ngd_serial_ops stream_ops = {.launch = ngd_ascend_launch,
                                                 .refused = stream_call_refused,
                                                 .ready = ngd_ascend_ready,
                                                 .reset = reset,
                                                 .fini = stream_fini};

ngd_status_t ngd_ascend_stream_create(void *dev, const char *name, void **stream_p, struct ngd_diag *diag)
{
    struct ascend_stream *s = NGD_NEW(struct ascend_stream);
    ngd_status_t status;

    if (!s)
        return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory for stream \"%.100s\"", name);
    s->dev = dev;
    snprintf(s->name, sizeof(s->name), "%s", name);
    ngd_list_init(&s->captured);
    status = open_stream_context(s, diag);
    if (status == NGD_OK) {
        status = ngd_serial_create(name, &stream_ops, s, stream_p);
        if (status)
            ngd_diag_set(diag, status, "no host memory for stream \"%.100s\"", name);
    }
    if (status)
        stream_fini(s);
    return status;
}
