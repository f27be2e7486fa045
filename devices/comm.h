/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DEVICES_COMM_H
#define NGD_DEVICES_COMM_H

/*
 * Communicators: groups of devices of one backend whose executables run collectives together.
 *
 * A rank is a device's place in the group. Each rank runs an executable of its own, captured for the communicator
 * (ngd_exec_create_in), and ranks meet in the order of their collectives: the n-th of one is the n-th of all, with the
 * same operator, dtype and shape. Launches of all ranks have to be under way at the same time, on streams of their
 * own; a rank is in one launch at a time.
 *
 * No rank waits for ever. Where ranks do not fit together, each gets COLLECTIVE_MISMATCH and a sentence that names
 * both; a rank that does not come within the time limit ends the wait of the others with COLLECTIVE_TIMEOUT, a rank
 * that fails ends it at once with GROUP_BROKEN. From then on the communicator is broken, since nobody knows who has
 * which result: launches answer with the reason until it is reset.
 *
 * Threads: any. Memory: executables hold references, the maker's is given back by destroy; devices stay open as long.
 */
#include "base/clock.h"
#include "base/status.h"
#include <stdint.h>

struct ngd_comm;
struct ngd_device;

#define NGD_COMM_TIME_LIMIT (30 * NGD_SEC)

struct ngd_comm_params {
    const char *name;                  /* the group_name of graphs' collectives */
    struct ngd_device *const *devices; /* by rank; of one backend, each once */
    uint32_t n;
    ngd_nsec_t time_limit; /* for the others to come to a collective */
};

void ngd_comm_params_init(struct ngd_comm_params *params);
/* Ready for captures: made and warmed up. */
ngd_status_t ngd_comm_create(const struct ngd_comm_params *params, struct ngd_comm **comm_p, struct ngd_diag *diag);
/* Ranks that are in a collective end; executables of it may be destroyed later, and run no more. NULL is fine. */
void ngd_comm_destroy(struct ngd_comm *comm);
const char *ngd_comm_name(const struct ngd_comm *comm);
uint32_t ngd_comm_size(const struct ngd_comm *comm);
int ngd_comm_rank(const struct ngd_comm *comm, const struct ngd_device *dev); /* -1: none */
/* Breaks it: for who knows that a rank will not come. */
void ngd_comm_abort(struct ngd_comm *comm, ngd_status_t status, const char *why);
/* Why it is broken; NGD_OK: it is not. Not while another thread resets it. */
ngd_status_t ngd_comm_status(struct ngd_comm *comm, struct ngd_diag *diag);
/* Usable again, from the first collective on: for when all launches of all ranks have ended. BUSY while one has not. */
ngd_status_t ngd_comm_reset(struct ngd_comm *comm, struct ngd_diag *diag);

#endif
