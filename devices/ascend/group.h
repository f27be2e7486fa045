/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DEVICES_ASCEND_GROUP_H
#define NGD_DEVICES_ASCEND_GROUP_H

/* Groups of NPUs: communicators of HCCL, and what a launch does about them. See group.c. */
#include "devices/ascend/ascend.h"
#include "devices/comm.h"
#include "devices/meeting.h"

/* A rank's place: its device, and all that its launches and collectives run on. */
struct ascend_seat {
    struct ascend_device *dev;
    struct ascend_stream stream;
    void *hccl;
    void *words, *device_words; /* group_span.c; NULL: all ranks are here */
    bool spoken;                /* in this launch: it has sent its word */
};

struct ascend_comm {
    struct ngd_meeting *meeting;
    const struct ngd_acl *acl;
    const char *name;
    uint32_t n;           /* ranks that are here */
    uint32_t size, first; /* ranks of all daemons, and the first of those that are here */
    ngd_nsec_t time_limit;
    _Atomic bool given_up; /* nobody shall wait for ranks of other daemons any more */
    struct ascend_seat seats[NGD_GROUP_MAX_RANKS];
    _Atomic uint64_t generation; /* of the communicators: graphs have their handles inside */
    _Atomic bool spoiled;        /* a rank was stopped inside a collective */
    _Atomic bool root_given;     /* to HCCL, for a communicator */
};

struct ascend_said {
    struct ngd_collective what; /* with the planned rows */
    uint8_t row_sym;
    int64_t row_mult;
};

/* An executable's part in a group. */
struct ascend_group {
    const char *name;
    struct ascend_comm *comm;
    uint32_t rank, size;
    uint32_t n_says;
    struct ascend_said *says; /* its collectives, in order */
    uint64_t digest;          /* of these */
};

/* UNIMPLEMENTED: CANN has no HCCL here. */
ngd_status_t ngd_ascend_check_hccl(const struct ngd_acl *acl, struct ngd_diag *diag);

/* The slots of backend.h. */
ngd_status_t ngd_ascend_comm_create(void *const *devs, uint32_t n, const char *name, ngd_nsec_t time_limit,
                                    void **comm_p, struct ngd_diag *diag);
ngd_status_t ngd_ascend_comm_join(void *const *devs, uint32_t n, const char *name, ngd_nsec_t time_limit,
                                  const struct ngd_comm_span *span, void **comm_p, struct ngd_diag *diag);
void ngd_ascend_comm_destroy(void *comm);
void ngd_ascend_comm_abort(void *comm, ngd_status_t status, const char *why);
ngd_status_t ngd_ascend_comm_status(void *comm, struct ngd_diag *diag);
ngd_status_t ngd_ascend_comm_reset(void *comm, struct ngd_diag *diag);

ngd_status_t ngd_ascend_find_groups(struct ascend_exec *exec, const struct ngd_backend_group *groups, uint32_t n,
                                    struct ngd_diag *diag);
static inline bool ngd_ascend_spans(const struct ascend_comm *comm)
{
    return comm->size != comm->n;
}
static inline struct ascend_seat *ngd_ascend_seat(const struct ascend_group *g)
{
    return &g->comm->seats[g->rank - g->comm->first];
}
bool ngd_ascend_groups_span(const struct ascend_exec *exec); /* any of its groups has ranks in other daemons */

/* Where an executable with collectives runs, whichever stream it is launched on. */
struct ascend_stream *ngd_ascend_group_stream(const struct ascend_exec *exec);
/* Changes when a communicator of the executable was made anew: its graph is of the old one. */
uint64_t ngd_ascend_group_stamp(const struct ascend_exec *exec);

/* A launch begins in all groups: *n_p know of it, whatever it answers; groups_end is for those. */
ngd_status_t ngd_ascend_groups_begin(const struct ascend_exec *exec, uint32_t *n_p, struct ngd_diag *diag);
/* All ranks of all groups are about to launch the same collectives. */
ngd_status_t ngd_ascend_groups_meet(const struct ascend_exec *exec, const struct ngd_launch *launch,
                                    struct ngd_diag *diag);
/* The launch has failed before it met, and had begun in n groups: ranks in other daemons are told why, if they have not
 * been. First the ranks that are here: they wait for this one, and their words are waited for too. */
void ngd_ascend_groups_excuse(const struct ascend_exec *exec, uint32_t n, const struct ngd_launch *launch);
void ngd_ascend_groups_end(const struct ascend_exec *exec, uint32_t n, const struct ngd_launch *launch);
/* Why a group is broken; NGD_OK: none is. */
ngd_status_t ngd_ascend_groups_broken(const struct ascend_exec *exec, struct ngd_diag *diag);
/* Nobody shall wait for this rank: "rank 1 <how>: <why>". */
void ngd_ascend_groups_fail(const struct ascend_exec *exec, const char *how, const char *why);
void ngd_ascend_groups_spoil(const struct ascend_exec *exec);

#endif
