/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DEVICES_SERIAL_H
#define NGD_DEVICES_SERIAL_H

/*
 * Streams and events in software, for backends whose launch() blocks until its work is done. All stream functions of
 * backend.h except `create` can point here. The backend's ops say what a launch does.
 *
 * Threads: as backend.h says. A stream calls launch() on one thread at a time: the stream's own, or a caller of run().
 * Memory: the stream takes ctx, and passes it to fini() when it is destroyed.
 */
#include "devices/device.h"

struct ngd_serial;
struct ngd_serial_event;

struct ngd_serial_ops {
    /* Runs one launch to its end; fills status, diag and device_time. A status of device scope becomes sticky. */
    ngd_status_t (*launch)(void *ctx, void *inst, struct ngd_launch *launch);
    /* Optional. Called if a launch will not run, because the stream has an error or the launch could not be queued. Any
     * thread. */
    void (*refused)(void *ctx, void *inst, ngd_status_t status);
    /* Optional. As ngd_backend_stream.ready; without it, instances are always ready. */
    bool (*ready)(void *ctx, void *inst);
    /* Optional. Makes the idle stream usable again. If it fails, the stream keeps its error. */
    ngd_status_t (*reset)(void *ctx);
    void (*fini)(void *ctx);
};

ngd_status_t ngd_serial_create(const char *name, const struct ngd_serial_ops *ops, void *ctx, void **stream_p);
void ngd_serial_destroy(void *dev, void *stream);
ngd_status_t ngd_serial_launch(void *stream, void *inst, struct ngd_launch *launch);
ngd_status_t ngd_serial_run(void *stream, void *inst, struct ngd_launch *launch);
bool ngd_serial_ready(void *stream, void *inst);
ngd_status_t ngd_serial_callback(void *stream, void (*fn)(void *arg), void *arg);
ngd_status_t ngd_serial_sync(void *stream);
ngd_status_t ngd_serial_status(void *stream);
void ngd_serial_reset(void *stream);
void ngd_serial_poison(void *stream, ngd_status_t status);
ngd_status_t ngd_serial_event_record(void *event, void *stream);
ngd_status_t ngd_serial_event_wait(void *stream, void *event);

/* serial_event.c */
ngd_status_t ngd_serial_event_create(void *dev, void **event_p);
void ngd_serial_event_destroy(void *dev, void *event);
bool ngd_serial_event_query(const void *event);
ngd_status_t ngd_serial_event_sync(void *event);
/* A record takes a ticket when it is queued, and completes the ticket when the stream reaches the record. NO_MEMORY: it
 * took none. */
ngd_status_t ngd_serial_event_take(struct ngd_serial_event *event, uint64_t *ticket_p);
void ngd_serial_event_complete(struct ngd_serial_event *event, uint64_t ticket);
uint64_t ngd_serial_event_last(const struct ngd_serial_event *event); /* the newest ticket; 0 = never recorded */
bool ngd_serial_event_done(const struct ngd_serial_event *event, uint64_t ticket);
void ngd_serial_event_await(struct ngd_serial_event *event, uint64_t ticket);

/* Initialises the stream functions of struct ngd_backend. The backend brings its own `create`. */
#define NGD_SERIAL_STREAM(create_fn)                                                                              \
    {                                                                                                             \
        .create = (create_fn), .destroy = ngd_serial_destroy, .launch = ngd_serial_launch, .run = ngd_serial_run, \
        .ready = ngd_serial_ready, .callback = ngd_serial_callback, .sync = ngd_serial_sync,                      \
        .status = ngd_serial_status, .reset = ngd_serial_reset, .poison = ngd_serial_poison,                      \
        .event_create = ngd_serial_event_create, .event_destroy = ngd_serial_event_destroy,                       \
        .event_record = ngd_serial_event_record, .event_wait = ngd_serial_event_wait,                             \
        .event_query = ngd_serial_event_query, .event_sync = ngd_serial_event_sync                                \
    }

#endif
