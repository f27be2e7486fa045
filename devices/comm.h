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
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ngd_comm;
struct ngd_device;

/* A group that has ranks in several daemons: this one has the ranks first .. first + n - 1 of `size`. */
struct ngd_comm_span {
    uint32_t size, first;
    const void *root; /* from ngd_comm_root, in the daemon of rank 0; the same bytes in all daemons */
    size_t root_bytes;
};
#define NGD_COMM_ROOT_MAX 8192

#define NGD_COMM_TIME_LIMIT (30 * NGD_SEC)

struct ngd_comm_params {
    const char *name;                  /* the group_name of graphs' collectives */
    struct ngd_device *const *devices; /* by rank; all of one backend, each once */
    uint32_t n;
    ngd_nsec_t time_limit;            /* how long a rank waits for the others in a collective */
    const struct ngd_comm_span *span; /* NULL: all ranks are here */
};

void ngd_comm_params_init(struct ngd_comm_params *params);
/*
 * Makes what the daemons of one group need to find one another. It is used for one group, soon. Whoever has it can take
 * part in that group. root: room for NGD_COMM_ROOT_MAX bytes. UNIMPLEMENTED: the backend's groups are of one daemon.
 */
ngd_status_t ngd_comm_root(struct ngd_device *dev, void *root, size_t *bytes_p, struct ngd_diag *diag);
/* Creates a communicator and warms it up. Executables can be captured for it then. With a span, it waits until all
 * daemons have come, for as long as the backend does; BUSY: one of its devices is joining another group. */
ngd_status_t ngd_comm_create(const struct ngd_comm_params *params, struct ngd_comm **comm_p, struct ngd_diag *diag);
/* Ends the waits of ranks that are in a collective. Executables of the communicator run no more; they may be destroyed
 * later. NULL is fine. */
void ngd_comm_destroy(struct ngd_comm *comm);
const char *ngd_comm_name(const struct ngd_comm *comm);
uint32_t ngd_comm_size(const struct ngd_comm *comm);                          /* of all daemons */
uint32_t ngd_comm_first(const struct ngd_comm *comm);                         /* the first rank that is here */
int ngd_comm_rank(const struct ngd_comm *comm, const struct ngd_device *dev); /* -1: the device is no rank of it */
/* Breaks the communicator; for a caller who knows that a rank will not come. */
void ngd_comm_abort(struct ngd_comm *comm, ngd_status_t status, const char *why);
/* Returns why the communicator is broken, NGD_OK if it is not. Not to be called while another thread resets it. */
ngd_status_t ngd_comm_status(struct ngd_comm *comm, struct ngd_diag *diag);
/* Makes the communicator usable again, from the first collective on, after all launches of all ranks have ended. BUSY
 * while one has not. GROUP_BROKEN: only a new group would do, since its ranks are in several daemons. */
ngd_status_t ngd_comm_reset(struct ngd_comm *comm, struct ngd_diag *diag);

#endif
