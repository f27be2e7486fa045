/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DEVICES_COMM_H
#define NGD_DEVICES_COMM_H

/*
 * Communicators: groups of devices of one backend whose executables run collectives together.
 *
 * A rank is a device's place in the group. Each rank runs its own executable, captured for the communicator
 * (ngd_exec_create_in). Ranks meet in the order of their collectives: the n-th collective of one rank is the n-th of
 * all, with the same operator, dtype and shape. Launches of all ranks have to be under way at the same time, each on
 * its own stream. A rank is in one launch at a time.
 *
 * No rank waits for ever:
 *   - If two ranks do different things, every rank gets COLLECTIVE_MISMATCH, with a sentence that names both.
 *   - If a rank does not come within the time limit, the wait of the others ends with COLLECTIVE_TIMEOUT.
 *   - If a rank fails, the wait of the others ends at once with GROUP_BROKEN.
 * From then on the communicator is broken, since nobody knows which rank has which result. Launches return the reason
 * until it is reset.
 *
 * Threads: any. Memory: the creator and each executable hold a reference; ngd_comm_destroy gives back the creator's.
 * The devices stay open as long as the communicator exists.
 */
#include "base/clock.h"
#include "base/status.h"
#include <stdint.h>

struct ngd_comm;
struct ngd_device;

#define NGD_COMM_TIME_LIMIT (30 * NGD_SEC)

struct ngd_comm_params {
    const char *name;                  /* the group_name of graphs' collectives */
    struct ngd_device *const *devices; /* by rank; all of one backend, each once */
    uint32_t n;
    ngd_nsec_t time_limit; /* how long a rank waits for the others in a collective */
};

void ngd_comm_params_init(struct ngd_comm_params *params);
/* Creates a communicator and warms it up. Executables can be captured for it then. */
ngd_status_t ngd_comm_create(const struct ngd_comm_params *params, struct ngd_comm **comm_p, struct ngd_diag *diag);
/* Ends the waits of ranks that are in a collective. Executables of the communicator run no more; they may be destroyed
 * later. NULL is fine. */
void ngd_comm_destroy(struct ngd_comm *comm);
const char *ngd_comm_name(const struct ngd_comm *comm);
uint32_t ngd_comm_size(const struct ngd_comm *comm);
int ngd_comm_rank(const struct ngd_comm *comm, const struct ngd_device *dev); /* -1: the device is no rank of it */
/* Breaks the communicator; for a caller who knows that a rank will not come. */
void ngd_comm_abort(struct ngd_comm *comm, ngd_status_t status, const char *why);
/* Returns why the communicator is broken, NGD_OK if it is not. Not to be called while another thread resets it. */
ngd_status_t ngd_comm_status(struct ngd_comm *comm, struct ngd_diag *diag);
/* Makes the communicator usable again, from the first collective on, after all launches of all ranks have ended. BUSY
 * while one has not. */
ngd_status_t ngd_comm_reset(struct ngd_comm *comm, struct ngd_diag *diag);

#endif
