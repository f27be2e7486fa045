/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Groups of NPUs: HCCL's communicators, and the meeting of the ranks before each launch.
 *
 * HCCL waits for ever (half an hour) for a rank that does not come, or that does something else, and leaves the stream
 * hanging. So ranks meet on the host first (devices/meeting.h), when each is about to launch: they compare a
 * digest of all their collectives in order, with the rows of this launch, and only if it differs the collectives one by
 * one. Nothing reaches a device before all are there and agree. What can still happen is that a rank's device fails
 * inside a launch: then it breaks the group, and the others, who look at that while they wait, abort their streams.
 *
 * Communicators are made and warmed up before any capture. After a rank was stopped inside a collective they are made
 * anew by reset; graphs that were captured for the old ones are captured again.
 *
 * A rank's launches run on a stream of the group (its seat), whichever stream they were launched on, since HCCL wants
 * all collectives of a communicator on a device issued in one context (docs/decisions/0024). A rank is in one launch at
 * a time (devices/meeting.h), so the seat's stream needs no lock.
 */
#include "devices/ascend/group_span.h"
#include "base/digest.h"
#include "base/log.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define WARM_BYTES 64

/* ---- communicators of HCCL ----------------------------------------------------------------------- */

/*
 * HCCL makes the communicators of one NPU one after the other (hicann/hccl 09300b70, user guide,
 * api_comm_impl:42). A thread takes all devices of its group at once, so that no two wait for each other. Nobody
 * waits for a group that spans daemons: it waits itself, and who knows for how long.
 */
static struct ngd_mutex joining_lock = NGD_MUTEX_INITIALIZER(NGD_RANK_COMMUNICATORS);
static struct ngd_cond joining_ended = {.c = PTHREAD_COND_INITIALIZER};
/* One at a time, so that they do not take all threads. */
static bool span_is_joining NGD_GUARDED_BY(joining_lock);

static enum ascend_joining find_joining_locked(const struct ascend_comm *comm) NGD_REQUIRES(joining_lock)
{
    enum ascend_joining most = ngd_ascend_spans(comm) && span_is_joining ? ASCEND_JOINING_SPAN : ASCEND_NOT_JOINING;

    for (uint32_t i = 0; i < comm->n; i++)
        if (comm->seats[i].dev->joining > most)
            most = comm->seats[i].dev->joining;
    return most;
}

static void set_joining_locked(struct ascend_comm *comm, enum ascend_joining joining) NGD_REQUIRES(joining_lock)
{
    for (uint32_t i = 0; i < comm->n; i++)
        comm->seats[i].dev->joining = joining;
    if (ngd_ascend_spans(comm))
        span_is_joining = joining != ASCEND_NOT_JOINING;
}

static ngd_status_t begin_joining(struct ascend_comm *comm, struct ngd_diag *diag)
{
    enum ascend_joining busy;

    ngd_mutex_lock(&joining_lock);
    while ((busy = find_joining_locked(comm)) == ASCEND_JOINING_HERE)
        ngd_cond_wait(&joining_ended, &joining_lock);
    if (!busy)
        set_joining_locked(comm, ngd_ascend_spans(comm) ? ASCEND_JOINING_SPAN : ASCEND_JOINING_HERE);
    ngd_mutex_unlock(&joining_lock);
    if (!busy)
        return NGD_OK;
    return ngd_diag_set(
        diag, NGD_ERR_BUSY,
        "group \"%.64s\": another group waits for its ranks in other daemons; try again when it has been "
        "made, or given up",
        comm->name);
}

static void end_joining(struct ascend_comm *comm)
{
    ngd_mutex_lock(&joining_lock);
    set_joining_locked(comm, ASCEND_NOT_JOINING);
    ngd_cond_broadcast(&joining_ended);
    ngd_mutex_unlock(&joining_lock);
}

/* Graphs go before the communicator whose handle they have inside, and that goes before its context. */
static void leave_seat(struct ascend_comm *comm, struct ascend_seat *seat)
{
    ngd_ascend_drop_graphs(&seat->stream);
    if (seat->hccl && seat->stream.context)
        (void)ngd_ascend_enter_to_release(seat->dev, seat->stream.context);
    if (seat->hccl && comm->acl->HcclCommDestroy(seat->hccl))
        ngd_warning("devices", "group \"%s\": the communicator of %s could not be destroyed, ignoring", comm->name,
                    seat->dev->name);
    seat->hccl = NULL;
    ngd_ascend_stream_close(&seat->stream);
}

static void leave_all(struct ascend_comm *comm)
{
    for (uint32_t i = 0; i < comm->n; i++)
        leave_seat(comm, &comm->seats[i]);
}

/* A rank that joins: a thread of its own, since HCCL's calls wait for the other ranks. */
struct joiner {
    struct ascend_comm *comm;
    struct ascend_seat *seat;
    uint32_t rank;
    const void *root; /* root information of HCCL */
    pthread_t thread;
    ngd_status_t status;
    struct ngd_diag diag;
};

static void fail_to_join(struct joiner *j, ngd_acl_error_t code, const char *name)
{
    char what[160];

    snprintf(what, sizeof(what), "group \"%.64s\", rank %u on %s: %s", j->comm->name, j->rank, j->seat->dev->name,
             name);
    j->status = ngd_acl_fail(j->comm->acl, code, what, &j->diag);
}

static void reduce_once(struct joiner *j, void *mem)
{
    const struct ngd_acl *acl = j->comm->acl;
    void *stream = j->seat->stream.stream;
    ngd_acl_error_t code = acl->aclrtMemset(mem, WARM_BYTES, 0, WARM_BYTES);

    if (!code)
        code = acl->HcclAllReduce(mem, mem, 1, NGD_HCCL_FP32, NGD_HCCL_SUM, j->seat->hccl, stream);
    if (code) {
        fail_to_join(j, code, "the first collective");
        return;
    }
    code = acl->aclrtSynchronizeStreamWithTimeout(stream, j->seat->dev->limit_ms);
    if (code) {
        fail_to_join(j, code, "the end of the first collective");
        acl->aclrtStreamAbort(stream);
    }
}

/* HCCL connects its ranks at their first collective, and cannot do that in a capture. */
static void warm_up_rank(struct joiner *j)
{
    const struct ngd_acl *acl = j->comm->acl;
    void *mem = NULL;
    ngd_acl_error_t code = acl->aclrtMalloc(&mem, WARM_BYTES, NGD_ACL_MALLOC_HUGE_FIRST);

    if (code) {
        fail_to_join(j, code, "device memory");
        return;
    }
    reduce_once(j, mem);
    acl->aclrtFree(mem);
}

static void *join_main(void *arg)
{
    struct joiner *j = arg;
    ngd_acl_error_t code;

    j->status = ngd_ascend_stream_renew(&j->seat->stream, &j->diag);
    if (j->status)
        return NULL;
    atomic_store(&j->comm->root_given, true);
    code = j->comm->acl->HcclCommInitRootInfo(j->comm->size, j->root, j->rank, &j->seat->hccl);
    if (code) {
        j->seat->hccl = NULL;
        fail_to_join(j, code, "its communicator");
    } else {
        warm_up_rank(j);
    }
    return NULL;
}

/* The rank's own failure is the cause to report, not that others waited for it. */
static ngd_status_t judge_joiners(const struct joiner *joiners, uint32_t n, struct ngd_diag *diag)
{
    const struct joiner *worst = NULL;

    for (uint32_t i = 0; i < n; i++)
        if (joiners[i].status &&
            (!worst || (worst->status == NGD_ERR_DEVICE_FAULT && joiners[i].status != worst->status)))
            worst = &joiners[i];
    if (!worst)
        return NGD_OK;
    return ngd_diag_set(diag, worst->status, "%s", worst->diag.text);
}

static ngd_status_t join_all(struct ascend_comm *comm, const void *root, struct ngd_diag *diag)
{
    struct joiner *joiners = NGD_NEW_N(struct joiner, comm->n);
    uint32_t n = 0;
    ngd_status_t status;
    int err = 0;

    if (!joiners)
        return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory for group \"%s\"", comm->name);
    for (; n < comm->n && !err; n += !err) {
        joiners[n].comm = comm;
        joiners[n].seat = &comm->seats[n];
        joiners[n].rank = comm->first + n;
        joiners[n].root = root;
        err = ngd_thread_start(&joiners[n].thread, "hccl", join_main, &joiners[n]);
    }
    for (uint32_t i = 0; i < n; i++)
        pthread_join(joiners[i].thread, NULL);
    status = err ? ngd_diag_set(diag, ngd_status_from_errno(err), "group \"%s\": no thread for rank %u", comm->name,
                                comm->first + n)
                 : judge_joiners(joiners, comm->n, diag);
    ngd_free(joiners);
    return status;
}

/*
 * By root information and not by HcclCommInitAll, which makes communicators in the devices' default contexts
 * (yzh1703456/cann-hccl d218e8b0, op_base.cc, GetDeviceComm): here each is made and used in the context of its seat.
 */
static ngd_status_t join_here(struct ascend_comm *comm, struct ngd_diag *diag)
{
    const struct ascend_device *first = comm->seats[0].dev;
    char root[NGD_HCCL_ROOT_BYTES], what[160];
    ngd_status_t status = ngd_ascend_enter(first, first->context, diag);
    ngd_acl_error_t code;

    if (status)
        return status;
    code = comm->acl->HcclGetRootInfo(root);
    if (code) {
        snprintf(what, sizeof(what), "group \"%.64s\": root information of %s", comm->name, first->name);
        return ngd_acl_fail(comm->acl, code, what, diag);
    }
    return join_all(comm, root, diag);
}

/* While it joins: so a root is not lost to a group that was refused for another one's sake. */
static ngd_status_t join_by_root(struct ascend_comm *comm, const void *root, struct ngd_diag *diag)
{
    ngd_status_t status = comm->first ? NGD_OK : ngd_ascend_use_root(comm->name, root, diag);

    if (status)
        return status;
    status = join_all(comm, root, diag);
    if (!comm->first)
        ngd_ascend_end_root(root, !atomic_load(&comm->root_given));
    return status;
}

/* root: of a group that spans daemons; NULL: one is made. */
static ngd_status_t make_hccl(struct ascend_comm *comm, const void *root, struct ngd_diag *diag)
{
    ngd_status_t status = begin_joining(comm, diag);

    if (status)
        return status;
    if (root)
        ngd_info("devices", "group \"%.64s\": its ranks in other daemons are waited for", comm->name);
    status = root ? join_by_root(comm, root, diag) : join_here(comm, diag);
    end_joining(comm);
    if (status)
        leave_all(comm);
    else
        atomic_fetch_add(&comm->generation, 1);
    return status;
}

/* ---- the slots of backend.h ---------------------------------------------------------------------- */

ngd_status_t ngd_ascend_check_hccl(const struct ngd_acl *acl, struct ngd_diag *diag)
{
    if (acl->HcclCommInitRootInfo)
        return NGD_OK;
    return ngd_diag_set(diag, NGD_ERR_UNIMPLEMENTED,
                        "device backend \"ascend\" has no collectives: CANN has no libhccl.so here, or it lacks a "
                        "function; install CANN's communication library");
}

static void fill_seats(struct ascend_comm *comm, void *const *devs, uint32_t n, const struct ngd_comm_span *span)
{
    comm->n = comm->size = n;
    if (span) {
        comm->size = span->size;
        comm->first = span->first;
    }
    for (uint32_t i = 0; i < n; i++) {
        comm->seats[i].dev = devs[i];
        ngd_ascend_stream_init_in_group(&comm->seats[i].stream, devs[i], comm->name);
    }
}

static ngd_status_t open_words(struct ascend_comm *comm, struct ngd_diag *diag)
{
    ngd_status_t status = NGD_OK;

    for (uint32_t i = 0; i < comm->n && !status; i++) {
        status = ngd_ascend_enter(comm->seats[i].dev, comm->seats[i].dev->context, diag);
        if (!status)
            status = ngd_ascend_words_open(&comm->seats[i], comm->size, diag);
    }
    return status;
}

/*
 * What HCCL says about other daemons' ranks is not this device's fault, nor ours. All else that CANN says is its own.
 */
static ngd_status_t blame_daemons(ngd_status_t status, struct ngd_diag *diag)
{
    const ngd_acl_error_t code = status && diag ? ngd_acl_code_of(diag) : 0;
    const bool wrong = code == NGD_HCCL_E_PARA;

    if (!wrong && code != NGD_HCCL_E_TIMEOUT && code != NGD_ACL_RT_STREAM_SYNC_TIMEOUT)
        return status;
    ngd_diag_prefix(diag, wrong ? "do all daemons say the same number of ranks, and each rank once? "
                                : "the daemons of the group did not come together: ");
    status = wrong ? NGD_ERR_INVALID_ARGUMENT : NGD_ERR_COLLECTIVE_TIMEOUT;
    if (diag)
        diag->status = status;
    return status;
}

static ngd_status_t join_span(struct ascend_comm *comm, const void *root, struct ngd_diag *diag)
{
    ngd_status_t status = open_words(comm, diag);

    return status ? status : blame_daemons(make_hccl(comm, root, diag), diag);
}

ngd_status_t ngd_ascend_comm_join(void *const *devs, uint32_t n, const char *name, ngd_nsec_t time_limit,
                                  const struct ngd_comm_span *span, void **comm_p, struct ngd_diag *diag)
{
    const struct ascend_device *first = devs[0];
    struct ascend_comm *comm;
    const void *root = NULL;
    ngd_status_t status = ngd_ascend_check_hccl(first->acl, diag);

    if (status == NGD_OK && span)
        status = ngd_ascend_check_root(name, span, &root, diag);
    if (status)
        return status;
    comm = NGD_NEW(struct ascend_comm);
    if (!comm)
        return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory for group \"%s\"", name);
    comm->acl = first->acl;
    comm->name = name;
    comm->time_limit = time_limit;
    fill_seats(comm, devs, n, span);
    status = ngd_meeting_create(n, name, time_limit, &comm->meeting);
    if (status) {
        ngd_free(comm);
        return ngd_diag_set(diag, status, "no host memory for the %u ranks of group \"%s\"", n, name);
    }
    status = span ? join_span(comm, root, diag) : make_hccl(comm, NULL, diag);
    if (status) {
        ngd_ascend_comm_destroy(comm);
        return status;
    }
    *comm_p = comm;
    return NGD_OK;
}

ngd_status_t ngd_ascend_comm_create(void *const *devs, uint32_t n, const char *name, ngd_nsec_t time_limit,
                                    void **comm_p, struct ngd_diag *diag)
{
    return ngd_ascend_comm_join(devs, n, name, time_limit, NULL, comm_p, diag);
}

void ngd_ascend_comm_destroy(void *comm_v)
{
    struct ascend_comm *comm = comm_v;

    leave_all(comm);
    for (uint32_t i = 0; i < comm->n; i++)
        ngd_ascend_words_close(&comm->seats[i]);
    ngd_meeting_destroy(comm->meeting);
    ngd_free(comm);
}

void ngd_ascend_comm_abort(void *comm_v, ngd_status_t status, const char *why)
{
    struct ascend_comm *comm = comm_v;

    ngd_meeting_abort(comm->meeting, status, why);
    atomic_store(&comm->given_up, true); /* who sees it asks the meeting why */
}

ngd_status_t ngd_ascend_comm_status(void *comm_v, struct ngd_diag *diag)
{
    const struct ascend_comm *comm = comm_v;

    return ngd_meeting_status(comm->meeting, diag);
}

/* A launch that did not come to its collectives leaves them whole, and may still have broken what it ran on. */
static bool needs_mending(const struct ascend_comm *comm)
{
    bool needs = atomic_load(&comm->spoiled);

    for (uint32_t i = 0; i < comm->n; i++)
        needs |= comm->seats[i].stream.broken || !comm->seats[i].stream.context;
    return needs;
}

static ngd_status_t mend_hccl_group(void *comm_v, struct ngd_diag *diag)
{
    struct ascend_comm *comm = comm_v;
    struct ngd_diag why = {0};
    ngd_status_t status;

    atomic_store(&comm->given_up, false);
    if (!needs_mending(comm))
        return NGD_OK;
    leave_all(comm);
    if (ngd_ascend_spans(comm)) {
        ngd_meeting_status(comm->meeting, &why);
        return ngd_diag_set(diag, NGD_ERR_GROUP_BROKEN, "%.600s; all daemons of the group have to make a new one",
                            why.text);
    }
    status = make_hccl(comm, NULL, diag);
    if (!status)
        atomic_store(&comm->spoiled, false);
    return status;
}

ngd_status_t ngd_ascend_comm_reset(void *comm_v, struct ngd_diag *diag)
{
    struct ascend_comm *comm = comm_v;

    return ngd_meeting_reset(comm->meeting, mend_hccl_group, comm, diag);
}

/* ---- what an executable does in its groups ------------------------------------------------------- */

static uint64_t mix_group_digest(uint64_t h, uint64_t v)
{
    return ngd_hash64(&v, sizeof(v), h);
}

static uint64_t mix_text(uint64_t h, const char *text)
{
    return ngd_hash64(text, strlen(text) + 1, h);
}

/* Without what is each rank's own (parts), or each launch's (rows). */
static uint64_t digest(uint64_t h, const struct ascend_said *said)
{
    const struct ngd_collective *c = &said->what;

    h = mix_text(mix_text(h, c->op), c->reduce);
    h = mix_group_digest(mix_group_digest(mix_group_digest(h, c->dtype), c->rank), c->src);
    for (uint32_t i = c->split || said->row_sym != NGD_NO_ROW_SYM; i < c->rank; i++)
        h = mix_group_digest(h, (uint64_t)c->dims[i]);
    return h;
}

static bool is_of(const struct ngd_plan_call *call, const char *name)
{
    return (call->op->flags & NGD_OPF_COLLECTIVE) && strcmp(ngd_call_str(call, "group_name"), name) == 0;
}

static ngd_status_t say_all(struct ascend_exec *exec, struct ascend_group *g)
{
    const struct ngd_plan *plan = exec->plan;
    uint32_t n = 0;

    for (uint32_t i = 0; i < plan->n_calls; i++)
        n += is_of(&plan->calls[i], g->name);
    g->says = ngd_arena_calloc(&exec->arena, n + 1, sizeof(*g->says));
    if (!g->says)
        return NGD_ERR_NO_MEMORY;
    for (uint32_t i = 0; i < plan->n_calls; i++) {
        const struct ngd_plan_call *call = &plan->calls[i];
        struct ascend_said *said = &g->says[g->n_says];
        const struct ngd_plan_tensor *x;
        uint64_t row_bytes;

        if (!is_of(call, g->name))
            continue;
        x = &plan->tensors[call->in[0]];
        ngd_collective_say(call, x, g->size, &said->what, &row_bytes);
        said->row_sym = x->row_sym;
        said->row_mult = x->row_mult;
        g->digest = digest(g->digest, said);
        g->n_says++;
    }
    return NGD_OK;
}

ngd_status_t ngd_ascend_find_groups(struct ascend_exec *exec, const struct ngd_backend_group *groups, uint32_t n,
                                    struct ngd_diag *diag)
{
    exec->comms = ngd_arena_calloc(&exec->arena, n + 1, sizeof(*exec->comms));
    for (uint32_t i = 0; i < n && exec->comms; i++) {
        struct ascend_group g = {
            .name = groups[i].name, .comm = groups[i].comm, .rank = groups[i].rank, .size = groups[i].size};
        uint32_t at = exec->n_comms;

        if (say_all(exec, &g))
            return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory for an executable");
        /* All ranks meet in their groups in one order, whichever their graphs name first. */
        for (; at > 0 && (uintptr_t)exec->comms[at - 1].comm > (uintptr_t)g.comm; at--)
            exec->comms[at] = exec->comms[at - 1];
        exec->comms[at] = g;
        exec->n_comms++;
    }
    return exec->comms ? NGD_OK : ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory for an executable");
}

/* The first group's: the groups of a device share their context. */
struct ascend_stream *ngd_ascend_group_stream(const struct ascend_exec *exec)
{
    return &ngd_ascend_seat(&exec->comms[0])->stream;
}

uint64_t ngd_ascend_group_stamp(const struct ascend_exec *exec)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < exec->n_comms; i++)
        sum += atomic_load_explicit(&exec->comms[i].comm->generation, memory_order_relaxed);
    return sum;
}

/* ---- meeting ------------------------------------------------------------------------------------- */

static const _Atomic int never; /* ranks here have one thread */

/* Of this launch: rows are those that it has. */
static struct ngd_collective actual(const struct ascend_said *said, const int64_t *symbols)
{
    struct ngd_collective what = said->what;

    if (said->row_sym != NGD_NO_ROW_SYM)
        what.dims[0] = symbols[said->row_sym] * said->row_mult;
    return what;
}

static bool meet_one(const struct ascend_group *g, const struct ngd_collective *what)
{
    const uint32_t place = g->rank - g->comm->first;

    return ngd_meeting_enter(g->comm->meeting, place, what) && ngd_meeting_round(g->comm->meeting, place, &never);
}

static void say_counts(const struct ascend_group *g, uint32_t other, int64_t theirs)
{
    char why[160];

    snprintf(why, sizeof(why), "rank %u runs %u collectives, rank %u %" PRId64 ": all ranks call the same ones",
             g->rank, g->n_says, g->comm->first + other, theirs);
    ngd_meeting_abort(g->comm->meeting, NGD_ERR_COLLECTIVE_MISMATCH, why);
}

/* One by one: the first that differs is found by all, in the words of the meeting. */
static bool compare_all(const struct ascend_group *g, const int64_t *symbols, const int64_t *counts)
{
    uint32_t least = g->n_says;

    for (uint32_t i = 0; i < g->comm->n; i++)
        if (counts[i] < (int64_t)least)
            least = (uint32_t)counts[i];
    for (uint32_t i = 0; i < least; i++) {
        struct ngd_collective what = actual(&g->says[i], symbols);

        if (!meet_one(g, &what))
            return false;
    }
    for (uint32_t i = 0; i < g->comm->n; i++) {
        if (counts[i] == g->n_says)
            continue;
        say_counts(g, i, counts[i]);
        return false;
    }
    return true;
}

/* Parts of different sizes fit or not, whatever the digest says. */
static bool compare_parts(const struct ascend_group *g, const int64_t *symbols)
{
    for (uint32_t i = 0; i < g->n_says; i++) {
        struct ngd_collective what;

        if (!g->says[i].what.split || ngd_ascend_spans(g->comm)) /* there the words have the parts of all ranks */
            continue;
        what = actual(&g->says[i], symbols);
        if (!meet_one(g, &what))
            return false;
    }
    return true;
}

static bool meet_group_ranks(const struct ascend_group *g, const int64_t *symbols)
{
    struct ngd_collective all = {.op = g->says[0].what.op, .reduce = "", .rank = 2, .open = true};
    int64_t counts[NGD_GROUP_MAX_RANKS];
    uint64_t h = g->digest;
    bool same = true;

    for (uint32_t i = 0; i < g->n_says; i++)
        if (g->says[i].row_sym != NGD_NO_ROW_SYM)
            h = mix_group_digest(h, (uint64_t)(symbols[g->says[i].row_sym] * g->says[i].row_mult));
    all.dims[0] = (int64_t)h;
    all.dims[1] = g->n_says;
    if (!meet_one(g, &all))
        return false;
    for (uint32_t i = 0; i < g->comm->n; i++) {
        const struct ngd_collective *said = ngd_meeting_said(g->comm->meeting, g->rank - g->comm->first, i);

        same &= said->dims[0] == all.dims[0];
        counts[i] = said->dims[1];
    }
    return same ? compare_parts(g, symbols) : compare_all(g, symbols, counts);
}

ngd_status_t ngd_ascend_groups_begin(const struct ascend_exec *exec, uint32_t *n_p, struct ngd_diag *diag)
{
    ngd_status_t status = NGD_OK;

    for (*n_p = 0; *n_p < exec->n_comms && !status; *n_p += !status) {
        const struct ascend_group *g = &exec->comms[*n_p];

        status = ngd_meeting_begin(g->comm->meeting, g->rank - g->comm->first, diag);
        if (!status)
            ngd_ascend_seat(g)->spoken = !ngd_ascend_spans(g->comm);
    }
    for (uint32_t i = 0; i < exec->n_comms && !status; i++)
        status = ngd_meeting_status(exec->comms[i].comm->meeting, diag);
    return status;
}

ngd_status_t ngd_ascend_groups_meet(const struct ascend_exec *exec, const struct ngd_launch *launch,
                                    struct ngd_diag *diag)
{
    ngd_status_t status = NGD_OK;

    for (uint32_t i = 0; i < exec->n_comms && !status; i++) {
        const struct ascend_group *g = &exec->comms[i];

        if (!meet_group_ranks(g, launch->symbols))
            status = ngd_meeting_status(g->comm->meeting, diag);
        else if (ngd_ascend_spans(g->comm))
            status = ngd_ascend_exchange_words(g, launch, NULL, diag);
    }
    return status;
}

static void fail_in_group(const struct ascend_group *g, const char *how, const char *why)
{
    char text[NGD_DIAG_MAX];

    snprintf(text, sizeof(text), "rank %u %s: %.900s", g->rank, how, why);
    ngd_meeting_abort(g->comm->meeting, NGD_ERR_GROUP_BROKEN, text);
}

void ngd_ascend_groups_excuse(const struct ascend_exec *exec, uint32_t n, const struct ngd_launch *launch)
{
    for (uint32_t i = 0; i < n; i++)
        if (!ngd_ascend_seat(&exec->comms[i])->spoken)
            fail_in_group(&exec->comms[i], "failed", launch->diag.text);
    for (uint32_t i = 0; i < n; i++) {
        const struct ascend_group *g = &exec->comms[i];
        struct ascend_seat *seat = ngd_ascend_seat(g);
        struct ngd_diag ignored = {0};

        if (!seat->spoken && seat->stream.context && !seat->stream.broken && !atomic_load(&g->comm->given_up) &&
            ngd_ascend_enter(seat->dev, seat->stream.context, &ignored) == NGD_OK)
            (void)ngd_ascend_exchange_words(g, launch, launch->diag.text, &ignored);
    }
}

bool ngd_ascend_groups_span(const struct ascend_exec *exec)
{
    bool spans = false;

    for (uint32_t i = 0; i < exec->n_comms; i++)
        spans |= ngd_ascend_spans(exec->comms[i].comm);
    return spans;
}

void ngd_ascend_groups_end(const struct ascend_exec *exec, uint32_t n, const struct ngd_launch *launch)
{
    for (uint32_t i = 0; i < n; i++)
        ngd_meeting_end(exec->comms[i].comm->meeting, exec->comms[i].rank - exec->comms[i].comm->first, 1,
                        launch->diag.text);
}

ngd_status_t ngd_ascend_groups_broken(const struct ascend_exec *exec, struct ngd_diag *diag)
{
    ngd_status_t status = NGD_OK;

    for (uint32_t i = 0; i < exec->n_comms && !status; i++)
        status = ngd_meeting_status(exec->comms[i].comm->meeting, diag);
    return status;
}

void ngd_ascend_groups_fail(const struct ascend_exec *exec, const char *how, const char *why)
{
    for (uint32_t i = 0; i < exec->n_comms; i++)
        fail_in_group(&exec->comms[i], how, why);
}

void ngd_ascend_groups_spoil(const struct ascend_exec *exec)
{
    for (uint32_t i = 0; i < exec->n_comms; i++)
        atomic_store(&exec->comms[i].comm->spoiled, true);
}
