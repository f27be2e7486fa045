/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_CONTROL_PRELOAD_H
#define NGD_DAEMON_CONTROL_PRELOAD_H

/*
 * The models of the option `load`. At the start and at each reload, those that are not there are loaded, one after the
 * other, by `npugraphctl load` in a process of its own: checkpoints are read by the client's library, and one that ends
 * its process does not end the daemon. The process is a client on the daemon's Unix socket with the daemon's user, so
 * that user owns the models. A load that fails is tried again, after 5 s at first and after 5 min at most.
 *
 * The daemon is not ready (daemon.h) while a model is missing. A model counts as there once it was seen or loaded; one
 * that is unloaded later is not loaded again before the next reload.
 *
 * Threads: the loop's; for_each: any. Bounds: NGD_LOAD_LINES_MAX models, one process.
 */
#include "base/clock.h"
#include "base/status.h"

struct ngd_daemon;
struct ngd_options;
struct ngd_preload;

/* Values of WantedState in the protocol, less 1. */
typedef enum ngd_preload_state {
    NGD_PRELOAD_WAITING,
    NGD_PRELOAD_LOADING,
    NGD_PRELOAD_LOADED,
    NGD_PRELOAD_FAILED
} ngd_preload_state_t;

struct ngd_preload_info {
    const char *name;
    ngd_preload_state_t state;
    const char *error; /* FAILED: of the last attempt; otherwise "" */
    ngd_nsec_t next;   /* FAILED: when the next attempt begins */
};

/* Starts before the daemon serves; loads begin with the loop. */
ngd_status_t ngd_preload_start(struct ngd_daemon *d, struct ngd_diag *diag);
void ngd_preload_stop(struct ngd_daemon *d); /* ends a load that runs */
/* For a reload: as those of other parts (reload.c). */
ngd_status_t ngd_preload_prepare(struct ngd_daemon *d, const struct ngd_options *fresh, struct ngd_diag *diag);
void ngd_preload_commit(struct ngd_daemon *d, bool take);
/* fn runs under a lock, and copies what it keeps. */
void ngd_preload_for_each(struct ngd_preload *preload, void (*fn)(void *ctx, const struct ngd_preload_info *info),
                          void *ctx);

#endif
