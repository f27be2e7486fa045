/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rounds. A rank's `posted` is the number of rounds that it has come to. A rank waits until all others' numbers are at
 * least its own. The numbers stay in step: in the first round of a collective each rank checks that all do the same
 * collective, which takes the same number of rounds.
 *
 * Sleeping. A rank that is about to sleep counts itself in `sleepers`, reads the bell, checks again, and sleeps on the
 * bell. A rank that posts rings the bell if there are sleepers. All of this is sequentially consistent, so one of the
 * two sees the other.
 *
 * Breaking. The first rank that finds a reason writes it to `why`, publishes it, and rings the bell. Each rank judges
 * what the ranks do from the same data, so it does not matter which one is first.
 */
#include "devices/meeting.h"
#include "base/mem.h"
#include "base/relax.h"
#include <inttypes.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SPINS 4000
#define NAP   (20 * NGD_MSEC) /* the longest time until a sleeper sees an error of its own launch */

enum { WHOLE, BREAKING, BROKEN };
enum { AWAY, LAUNCHED, RESETTING }; /* a rank's owner: nobody, a launch, a reset */

struct rank {
    alignas(64) _Atomic uint32_t posted;
    _Atomic int owner;
    alignas(64) uint32_t round; /* the next round; from here on only this rank writes */
    bool first;                 /* the next round is the first of its collective */
    uint64_t entered, begun;    /* collectives entered, in all and before this launch */
    char *stages;
    const struct ngd_collective *doing;
    struct ngd_collective what[2]; /* used in turn, like stages; all ranks read them */
};

struct ngd_meeting {
    const char *name;
    uint32_t n;
    ngd_nsec_t time_limit;
    _Atomic int state;
    struct ngd_diag why; /* written while BREAKING */
    alignas(64) _Atomic uint32_t bell;
    _Atomic uint32_t sleepers;
    struct rank ranks[];
};

ngd_status_t ngd_meeting_create(uint32_t n, const char *name, ngd_nsec_t time_limit, struct ngd_meeting **m_p)
{
    size_t bytes = (sizeof(struct ngd_meeting) + n * sizeof(struct rank) + 63) & ~(size_t)63;
    struct ngd_meeting *m = ngd_aligned_alloc(64, bytes);

    if (!m)
        return NGD_ERR_NO_MEMORY;
    memset(m, 0, bytes);
    m->name = name;
    m->n = n;
    m->time_limit = time_limit;
    for (uint32_t i = 0; i < n; i++) {
        m->ranks[i].stages = ngd_aligned_alloc(64, 2 * NGD_MEETING_STAGE);
        if (!m->ranks[i].stages) {
            ngd_meeting_destroy(m);
            return NGD_ERR_NO_MEMORY;
        }
        memset(m->ranks[i].stages, 0, 2 * NGD_MEETING_STAGE); /* faults the pages in */
    }
    *m_p = m;
    return NGD_OK;
}

void ngd_meeting_destroy(struct ngd_meeting *m)
{
    for (uint32_t i = 0; i < m->n; i++)
        ngd_free(m->ranks[i].stages);
    ngd_free(m);
}

/* ---- breaking and resetting ---------------------------------------------------------------------------- */

static void wake_ranks(struct ngd_meeting *m)
{
    atomic_fetch_add(&m->bell, 1);
    syscall(SYS_futex, &m->bell, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

static bool is_broken(const struct ngd_meeting *m)
{
    int state = atomic_load_explicit(&m->state, memory_order_acquire);

    for (uint32_t spin = 0; state == BREAKING; state = atomic_load_explicit(&m->state, memory_order_acquire))
        ngd_relax(spin++);
    return state == BROKEN;
}

void ngd_meeting_abort(struct ngd_meeting *m, ngd_status_t status, const char *why)
{
    int whole = WHOLE;

    if (!atomic_compare_exchange_strong(&m->state, &whole, BREAKING))
        return;
    ngd_diag_set(&m->why, status, "group \"%s\": %s", m->name, why);
    atomic_store(&m->state, BROKEN);
    wake_ranks(m);
}

ngd_status_t ngd_meeting_status(const struct ngd_meeting *m, struct ngd_diag *diag)
{
    if (!is_broken(m))
        return NGD_OK;
    return ngd_diag_set(diag, m->why.status, "%s", m->why.text);
}

/* A launch that begins meanwhile waits until the reset has ended. */
ngd_status_t ngd_meeting_reset(struct ngd_meeting *m, ngd_status_t (*mend)(void *arg, struct ngd_diag *diag), void *arg,
                               struct ngd_diag *diag)
{
    ngd_status_t status = NGD_OK;
    uint32_t n = 0;

    for (; n < m->n; n++) {
        int away = AWAY;

        if (!atomic_compare_exchange_strong(&m->ranks[n].owner, &away, RESETTING)) {
            status = ngd_diag_set(diag, NGD_ERR_BUSY, "group \"%s\": rank %u is in a launch", m->name, n);
            break;
        }
    }
    if (!status && mend)
        status = mend(arg, diag);
    for (uint32_t i = 0; i < n && !status; i++) {
        atomic_store(&m->ranks[i].posted, 0);
        m->ranks[i].round = 0;
        m->ranks[i].entered = 0;
    }
    if (!status)
        atomic_store(&m->state, WHOLE);
    while (n > 0)
        atomic_store(&m->ranks[--n].owner, AWAY);
    return status;
}

/* ---- what ranks do -------------------------------------------------------------------------------------- */

static bool collective_has_attr(const struct ngd_plan_call *call, const char *name)
{
    return ngd_op_attr_index(call->op, name, strlen(name)) >= 0;
}

static void say_parts(const struct ngd_plan_call *call, uint32_t ranks, uint64_t row_bytes, struct ngd_collective *what)
{
    const struct ngd_attr_value *sends = ngd_call_ints(call, "input_split_sizes");
    const struct ngd_attr_value *receives = ngd_call_ints(call, "output_split_sizes");

    what->split = true;
    for (uint32_t i = 0; i < ranks; i++) { /* as many as ranks: checked with the group */
        what->sends[i] = (uint64_t)sends->list[i] * row_bytes;
        what->receives[i] = (uint64_t)receives->list[i] * row_bytes;
    }
}

/* Describes a tensor without dimensions as [1]. */
void ngd_collective_say(const struct ngd_plan_call *call, const struct ngd_plan_tensor *x, uint32_t ranks,
                        struct ngd_collective *what, uint64_t *row_bytes_p)
{
    uint64_t row_bytes = ngd_dtype_bytes(x->dtype);

    memset(what, 0, sizeof(*what));
    what->op = call->op->name;
    what->reduce = collective_has_attr(call, "reduce_op") ? ngd_call_str(call, "reduce_op") : "";
    what->dtype = x->dtype;
    what->rank = x->rank ? x->rank : 1;
    what->dims[0] = 1;
    memcpy(what->dims, x->dims, x->rank * sizeof(what->dims[0]));
    if (collective_has_attr(call, "src"))
        what->src = (uint32_t)ngd_call_int(call, "src");
    for (uint32_t i = 1; i < x->rank; i++)
        row_bytes *= (uint64_t)x->dims[i];
    if (collective_has_attr(call, "input_split_sizes"))
        say_parts(call, ranks, row_bytes, what);
    *row_bytes_p = row_bytes;
}

static void describe_collective(const struct ngd_collective *c, char *text, size_t n)
{
    size_t at = (size_t)snprintf(text, n, "%s of %s[", c->op, ngd_dtype_name(c->dtype));

    for (uint32_t i = 0; i < c->rank && at < n; i++)
        at += (size_t)snprintf(text + at, n - at, "%s%" PRId64, i ? "," : "", c->dims[i]);
    if (at < n)
        at += (size_t)snprintf(text + at, n - at, "]%s%s", *c->reduce ? ", " : "", c->reduce);
    if (at < n && c->src)
        snprintf(text + at, n - at, ", from rank %u", c->src);
}

static bool same_collective(const struct ngd_collective *a, const struct ngd_collective *b)
{
    uint32_t first = a->split ? 1 : 0;

    if (a->open && b->open)
        return true;
    if (a->op != b->op || a->open != b->open || strcmp(a->reduce, b->reduce) != 0 || a->dtype != b->dtype ||
        a->rank != b->rank || a->split != b->split || a->src != b->src)
        return false;
    for (uint32_t i = first; i < a->rank; i++)
        if (a->dims[i] != b->dims[i])
            return false;
    return true;
}

static void break_different(struct ngd_meeting *m, uint32_t at, uint32_t other)
{
    char zero[200], one[200], why[NGD_DIAG_MAX];

    describe_collective(&m->ranks[0].what[at], zero, sizeof(zero));
    describe_collective(&m->ranks[other].what[at], one, sizeof(one));
    snprintf(why, sizeof(why),
             "rank 0 does %s, rank %u does %s: all ranks must call the same collectives in the same order", zero, other,
             one);
    ngd_meeting_abort(m, NGD_ERR_COLLECTIVE_MISMATCH, why);
}

static bool parts_fit(struct ngd_meeting *m, uint32_t at)
{
    char why[NGD_DIAG_MAX];

    for (uint32_t i = 0; i < m->n; i++) {
        for (uint32_t k = 0; k < m->n; k++) {
            uint64_t sent = m->ranks[i].what[at].sends[k], expected = m->ranks[k].what[at].receives[i];

            if (sent == expected)
                continue;
            snprintf(why, sizeof(why),
                     "%s: rank %u sends %" PRIu64 " bytes to rank %u, whose output_split_sizes expect %" PRIu64,
                     m->ranks[i].what[at].op, i, sent, k, expected);
            ngd_meeting_abort(m, NGD_ERR_COLLECTIVE_MISMATCH, why);
            return false;
        }
    }
    return true;
}

/* Each rank checks the same data and comes to the same verdict. */
static bool collectives_fit(struct ngd_meeting *m, uint32_t at)
{
    for (uint32_t i = 1; i < m->n; i++) {
        if (same_collective(&m->ranks[0].what[at], &m->ranks[i].what[at]))
            continue;
        break_different(m, at, i);
        return false;
    }
    return !m->ranks[0].what[at].split || parts_fit(m, at);
}

/* ---- a collective --------------------------------------------------------------------------------------- */

ngd_status_t ngd_meeting_begin(struct ngd_meeting *m, uint32_t rank, struct ngd_diag *diag)
{
    struct rank *me = &m->ranks[rank];
    char why[100];
    int owner = AWAY;

    for (uint32_t spin = 0; !atomic_compare_exchange_weak(&me->owner, &owner, LAUNCHED) && owner != LAUNCHED; spin++) {
        ngd_relax(spin);
        owner = AWAY;
    }
    if (owner == LAUNCHED) {
        snprintf(why, sizeof(why), "rank %u has two launches at the same time; run one after the other", rank);
        ngd_meeting_abort(m, NGD_ERR_GROUP_BROKEN, why);
        return ngd_diag_set(diag, NGD_ERR_GROUP_BROKEN, "group \"%s\": %s", m->name, why);
    }
    me->begun = me->entered;
    return NGD_OK;
}

void ngd_meeting_end(struct ngd_meeting *m, uint32_t rank, uint32_t expected, const char *why)
{
    struct rank *me = &m->ranks[rank];
    char text[NGD_DIAG_MAX];

    if (me->entered - me->begun < expected) {
        snprintf(text, sizeof(text), "rank %u failed: %.900s", rank, why);
        ngd_meeting_abort(m, NGD_ERR_GROUP_BROKEN, text);
    }
    atomic_store(&me->owner, AWAY);
}

bool ngd_meeting_enter(struct ngd_meeting *m, uint32_t rank, const struct ngd_collective *what)
{
    struct rank *me = &m->ranks[rank];

    if (is_broken(m))
        return false;
    me->doing = what;
    me->first = true;
    me->entered++;
    return true;
}

char *ngd_meeting_stage(struct ngd_meeting *m, uint32_t rank)
{
    return m->ranks[rank].stages + (m->ranks[rank].round & 1) * NGD_MEETING_STAGE;
}

const char *ngd_meeting_staged(const struct ngd_meeting *m, uint32_t rank, uint32_t other)
{
    return m->ranks[other].stages + ((m->ranks[rank].round - 1) & 1) * NGD_MEETING_STAGE;
}

const struct ngd_collective *ngd_meeting_said(const struct ngd_meeting *m, uint32_t rank, uint32_t other)
{
    return &m->ranks[other].what[(m->ranks[rank].round - 1) & 1];
}

/* ---- a round -------------------------------------------------------------------------------------------- */

/* Returns a rank that has not come to round `want`, m->n if all have. Round numbers wrap, and differ by at most one. */
static uint32_t find_missing(const struct ngd_meeting *m, uint32_t want)
{
    uint32_t i = 0;

    while (i < m->n && (int32_t)(atomic_load(&m->ranks[i].posted) - want) >= 0)
        i++;
    return i;
}

static void nap_in_round(struct ngd_meeting *m, uint32_t want)
{
    const struct timespec limit = {.tv_nsec = NAP};
    uint32_t bell;

    atomic_fetch_add(&m->sleepers, 1);
    bell = atomic_load(&m->bell);
    if (find_missing(m, want) < m->n && atomic_load(&m->state) == WHOLE)
        syscall(SYS_futex, &m->bell, FUTEX_WAIT_PRIVATE, bell, &limit, NULL, 0);
    atomic_fetch_sub(&m->sleepers, 1);
}

static void give_up(struct ngd_meeting *m, uint32_t rank, uint32_t missing)
{
    char why[NGD_DIAG_MAX];

    snprintf(why, sizeof(why), "rank %u did not come to collective %" PRIu64 " of rank %u, %s, within %g s", missing,
             m->ranks[rank].entered, rank, m->ranks[rank].doing->op, (double)m->time_limit / (double)NGD_SEC);
    ngd_meeting_abort(m, NGD_ERR_COLLECTIVE_TIMEOUT, why);
}

static bool wait_for_all(struct ngd_meeting *m, uint32_t rank, uint32_t want, const _Atomic int *own_error)
{
    ngd_nsec_t end = 0;
    char why[100];

    for (uint32_t spin = 0;; spin++) {
        uint32_t missing = find_missing(m, want);

        if (missing == m->n)
            return true;
        if (is_broken(m))
            return false;
        if (spin < SPINS) {
            ngd_relax(spin);
            continue;
        }
        if (atomic_load_explicit(own_error, memory_order_relaxed)) {
            snprintf(why, sizeof(why), "rank %u failed on another stream of its graph", rank);
            ngd_meeting_abort(m, NGD_ERR_GROUP_BROKEN, why);
            return false;
        }
        if (end == 0)
            end = ngd_now() + m->time_limit;
        else if (ngd_now() >= end)
            give_up(m, rank, missing);
        nap_in_round(m, want);
    }
}

bool ngd_meeting_round(struct ngd_meeting *m, uint32_t rank, const _Atomic int *own_error)
{
    struct rank *me = &m->ranks[rank];
    uint32_t at = me->round & 1;
    bool first = me->first;

    if (first)
        me->what[at] = *me->doing;
    me->first = false;
    me->round++;
    atomic_store(&me->posted, me->round);
    if (atomic_load(&m->sleepers))
        wake_ranks(m);
    if (!wait_for_all(m, rank, me->round, own_error))
        return false;
    return !first || collectives_fit(m, at);
}
