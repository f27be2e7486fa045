/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_HANDOVER_HANDOVER_INT_H
#define NGD_DAEMON_HANDOVER_HANDOVER_INT_H

/* Shared by take.c (the new daemon's side) and give.c (the old one's). */
#include "base/lock.h"
#include "daemon/handover/depart.h"
#include "daemon/handover/describe.h"
#include "daemon/handover/handover.h"
#include "daemon/handover/packet.h"
#include "daemon/handover/pause.h"
#include "daemon/jobs.h"

struct ngd_options;
struct ngd_reactor_watch;

typedef enum give_phase {
    GIVE_NONE,
    GIVE_HELLO,
    GIVE_DESCRIBING,
    GIVE_OFFERED,
    GIVE_FREEZING,
    GIVE_PASSING,
    GIVE_PASSED
} give_phase_t;

struct ngd_handover {
    struct ngd_daemon *daemon;

    struct ngd_mutex talk; /* for other threads than the loop's that send to `old` or `next` */

    /* From the daemon before. */
    int old; /* -1: none, or it is gone. Written under `talk` once this daemon serves */
    struct ngd_reactor_watch *old_watch;
    struct ngd_description offer; /* what it described last */
    struct ngd_pause pause;       /* of the sessions that came. By `talk` once this daemon serves */
    size_t n_came;                /* how many came */
    char path[108];               /* of replace-socket; "": none */

    /* To the next one. */
    int fd; /* listens at path; -1: none */
    struct ngd_reactor_watch *watch;
    int next; /* -1: none. Written under `talk` */
    struct ngd_reactor_watch *next_watch, *timer;
    give_phase_t phase;
    uint32_t pid;     /* of the next one, as it says */
    ngd_nsec_t until; /* GIVE_HELLO, GIVE_PASSING: when it must have answered */
    uint32_t rounds;  /* offers made */
    struct ngd_description given;

    ngd_nsec_t frozen;            /* GIVE_FREEZING: when it began */
    struct ngd_departure leaving; /* sessions that move, from when they are frozen */

    /* The description under way, or the departure. */
    struct ngd_job job;
    struct ngd_departure fresh_leaving;
    struct ngd_mutex lock;
    struct ngd_cond over;
    bool running NGD_GUARDED_BY(lock);
    ngd_status_t status; /* of the job, when it is over */
    struct ngd_diag diag;
    struct ngd_description fresh;
    uint64_t promises; /* their count before the description */
    bool wanted;       /* false: whoever asked for it is gone */
};

/* Prints the path of the option replace-socket. "": there is to be none. */
ngd_status_t ngd_handover_path(const struct ngd_options *o, char path[108], struct ngd_diag *diag);
void ngd_handover_stop_giving(struct ngd_handover *h);
/* Tells the next daemon, from any thread, that the client of a session that moved has left. */
void ngd_handover_tell_left(void *ctx, uint64_t session, bool broken);
/* Watches the daemon before, from when this one serves. */
ngd_status_t ngd_handover_watch_old(struct ngd_handover *h);
/* Tells the daemon before that it need not come back. */
void ngd_handover_leave_old(struct ngd_handover *h);
/* Runs fn ahead of other threads while sessions wait, on a busy machine too, and returns when it has ended. */
void ngd_handover_hurry(void (*fn)(void *arg), void *arg);
void ngd_handover_take_time(void); /* for tests that end one of the processes here */

#endif
