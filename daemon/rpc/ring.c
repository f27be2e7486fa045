/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/rpc/ring_int.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/memfd.h"
#include "base/metrics.h"
#include "base/relax.h"
#include "base/wakeup.h"
#include "daemon/daemon.h"
#include "daemon/identity.h"
#include "daemon/rpc/rpc_method.h"
#include "daemon/rpc/rpc_server.h"
#include "daemon/session.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define EVENTS     64
#define SPIN_LEAST NGD_USEC
#define LOOK_EACH  (50 * NGD_USEC) /* while some rings are busy, those that sleep are looked at so often */
#define ALL_LANES  ((1u << NGD_RING_LANES) - 1)

/* ---- references ------------------------------------------------------------------------------------------ */

void ring_ref(struct ngd_ring *ring)
{
    atomic_fetch_add_explicit(&ring->refs, 1, memory_order_relaxed);
}

static void free_ring(struct ngd_ring *ring)
{
    struct ngd_rings *rings = ring->rings;

    ring_lanes_fini(ring);
    if (ring->words)
        munmap(ring->words, sizeof(*ring->words));
    if (ring->event >= 0)
        close(ring->event);
    ngd_charge_end(&ring->charge);
    ngd_session_unref(ring->session);
    ngd_identity_unref(ring->identity);
    ngd_free(ring);
    atomic_fetch_sub_explicit(&rings->live, 1, memory_order_release);
}

void ring_unref(struct ngd_ring *ring)
{
    if (atomic_fetch_sub_explicit(&ring->refs, 1, memory_order_acq_rel) == 1)
        free_ring(ring);
}

static void wake_thread(struct ngd_rings *rings)
{
    const uint64_t one = 1;

    atomic_store(&rings->look, true);
    if (write(rings->wake, &one, sizeof(one)) < 0)
        ngd_debug("ring", "the eventfd cannot be written: %s", strerror(errno));
}

static void ask_end(struct ngd_ring *ring)
{
    if (!atomic_exchange(&ring->end_asked, true))
        wake_thread(ring->rings);
}

/* ---- as a session's stream ------------------------------------------------------------------------------- */

static struct ngd_ring *ring_of_stream(struct ngd_client_stream *stream)
{
    return ngd_container_of(stream, struct ngd_ring, stream);
}

static void ring_stream_ref(struct ngd_client_stream *stream)
{
    ring_ref(ring_of_stream(stream));
}

static void ring_stream_unref(struct ngd_client_stream *stream)
{
    ring_unref(ring_of_stream(stream));
}

static void ring_stream_end(struct ngd_client_stream *stream, ngd_status_t status, const char *text)
{
    (void)status;
    (void)text; /* the session's own stream has said it */
    ask_end(ring_of_stream(stream));
}

static const struct ngd_client_stream_ops ring_stream_ops = {
    .ref = ring_stream_ref, .unref = ring_stream_unref, .end = ring_stream_end};

/* ---- the thread ------------------------------------------------------------------------------------------ */

static void activate(struct ngd_ring *ring)
{
    if (ring->active || ring->ended)
        return;
    ring->active = true;
    atomic_store(&ring->words->sleeping, 0);
    ngd_list_push_back(&ring->rings->active, &ring->active_link);
}

/* Ends a ring: its client is woken, its requests are cancelled, and it goes when the last of them has ended. */
static void end_ring(struct ngd_ring *ring)
{
    if (ring->ended)
        return;
    ring->ended = true;
    ngd_list_remove(&ring->link);
    if (ring->active)
        ngd_list_remove(&ring->active_link);
    epoll_ctl(ring->rings->epoll, EPOLL_CTL_DEL, ring->event, NULL);
    atomic_store(&ring->words->ended, 1);
    for (uint32_t i = 0; i < NGD_RING_LANES; i++) {
        ring_lane_cancel(&ring->lanes[i]);
        syscall(SYS_futex, &ring->words->lanes[i].answered, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
    }
    ngd_session_detach(ring->session, &ring->stream);
    ngd_metric_dec(NGD_M_RINGS);
    ring_unref(ring);
}

static void end_for_breach(struct ngd_ring *ring)
{
    static struct ngd_log_limit limit = {.most = NGD_LOG_LIMIT_CALL};

    ngd_log_limited(&limit, NGD_LOG_WARNING, "ring", "a ring of %s is ended: its client wrote what no client may write",
                    ring->identity->name);
    end_ring(ring);
}

/* Takes the bits of lanes that a client has set. Most often there are none, which costs no exchange. */
static uint32_t take_bits(_Atomic uint32_t *word)
{
    return atomic_load_explicit(word, memory_order_relaxed) ? atomic_exchange(word, 0) & ALL_LANES : 0;
}

/* Takes what the client has asked for. False: nothing. */
static bool serve_ring(struct ngd_ring *ring)
{
    const uint32_t bits = take_bits(&ring->words->pending); /* first: who gave a lane up set its bit before these */
    const uint32_t cancelled = take_bits(&ring->words->cancelled);
    uint32_t cpu;

    if (!(bits | cancelled))
        return false;
    cpu = (uint32_t)sched_getcpu();
    ring_ref(ring); /* a breach ends the ring here, and its client may be gone */
    for (uint32_t i = 0; cancelled && i < NGD_RING_LANES; i++)
        if (cancelled >> i & 1)
            ring_lane_cancel(&ring->lanes[i]); /* first: a lane that was given up may have a new request */
    for (uint32_t i = 0; bits >> i && !ring->ended; i++) {
        if (!(bits >> i & 1))
            continue;
        ngd_metric_inc(NGD_M_RING_REQUESTS);
        ring->rings->same_cpu = ring->words->lanes[i].cpu == cpu;
        if (!ring_lane_take(&ring->lanes[i]))
            end_for_breach(ring);
    }
    if (bits)
        atomic_store_explicit(&ring->words->cpu, cpu, memory_order_relaxed);
    /* Here, since all rings together may have requests for longer than the watchdog waits. */
    ngd_beat_answer(&ring->rings->beat);
    ring_unref(ring);
    return bits != 0;
}

static bool serve_active(struct ngd_rings *rings)
{
    bool any = false;

    ngd_list_for_each_safe (pos, tmp, &rings->active)
        any |= serve_ring(ngd_container_of(pos, struct ngd_ring, active_link));
    return any;
}

/* Takes new rings, and ends those that someone asked to end. */
static void look_at_rings(struct ngd_rings *rings)
{
    struct ngd_list *first;

    if (!atomic_exchange(&rings->look, false))
        return;
    do {
        ngd_mutex_lock(&rings->lock);
        first = ngd_list_pop_front(&rings->incoming);
        ngd_mutex_unlock(&rings->lock);
        if (first) {
            struct ngd_ring *ring = ngd_container_of(first, struct ngd_ring, link);
            struct epoll_event ev = {.events = EPOLLIN | EPOLLET, .data.ptr = ring};

            ngd_list_push_back(&rings->all, &ring->link);
            ngd_metric_inc(NGD_M_RINGS);
            if (epoll_ctl(rings->epoll, EPOLL_CTL_ADD, ring->event, &ev) < 0)
                atomic_store(&ring->end_asked, true);
            activate(ring);
        }
    } while (first);
    ngd_list_for_each_safe (pos, tmp, &rings->all) {
        struct ngd_ring *ring = ngd_container_of(pos, struct ngd_ring, link);

        if (atomic_load(&ring->end_asked) || atomic_load(&rings->stopping))
            end_ring(ring);
    }
}

/* Says that the thread will sleep. False: a request has come meanwhile. */
static bool announce_sleep(struct ngd_rings *rings)
{
    bool none = true;

    ngd_list_for_each (pos, &rings->active)
        atomic_store(&ngd_container_of(pos, struct ngd_ring, active_link)->words->sleeping, 1);
    ngd_list_for_each (pos, &rings->active) {
        const struct ngd_ring *ring = ngd_container_of(pos, struct ngd_ring, active_link);

        none = none && !atomic_load(&ring->words->pending) && !atomic_load(&ring->words->cancelled);
    }
    if (none) {
        while (!ngd_list_empty(&rings->active))
            ngd_container_of(ngd_list_pop_front(&rings->active), struct ngd_ring, active_link)->active = false;
        return true;
    }
    ngd_list_for_each (pos, &rings->active)
        atomic_store(&ngd_container_of(pos, struct ngd_ring, active_link)->words->sleeping, 0);
    return false;
}

/* Activates the rings whose clients have woken the thread, after at most `timeout` ms; -1: when there is one. The
 * clients' eventfds are never read: a client could take what is there and make the read block. */
static void take_wakeups(struct ngd_rings *rings, int timeout)
{
    struct epoll_event events[EVENTS];
    const int n = epoll_wait(rings->epoll, events, EVENTS, timeout);
    bool woken = false;
    uint64_t count;

    for (int i = 0; i < n; i++) {
        if (events[i].data.ptr)
            activate(events[i].data.ptr);
        else
            woken = true;
    }
    if (woken && read(rings->wake, &count, sizeof(count)) < 0 && errno != EAGAIN)
        ngd_debug("ring", "the eventfd cannot be read: %s", strerror(errno));
}

/* Looks for requests until there were none for `spin`. A ring that is never silent must not keep others asleep. */
static void serve_while_busy(struct ngd_rings *rings, ngd_nsec_t spin)
{
    ngd_nsec_t last = ngd_now(), looked = last;
    uint32_t turn = 0;

    for (;;) {
        bool any;
        ngd_nsec_t now;

        if (atomic_load_explicit(&rings->look, memory_order_relaxed))
            look_at_rings(rings);
        any = serve_active(rings);
        now = ngd_now();
        if (any) {
            last = now;
            turn = 0;
        } else if (rings->same_cpu || now - last >= spin) {
            return;
        }
        if (now - looked >= LOOK_EACH) {
            take_wakeups(rings, 0);
            looked = now;
        }
        ngd_relax(++turn);
    }
}

/* Half the time if looking was in vain, all of it if a request came soon after the thread slept. */
static ngd_nsec_t adapt_spin(ngd_nsec_t spin, ngd_nsec_t most, ngd_nsec_t slept)
{
    if (slept < most)
        return most;
    return spin / 2 < SPIN_LEAST ? 0 : spin / 2;
}

static void *run_rings(void *arg)
{
    struct ngd_rings *rings = arg;
    ngd_nsec_t spin = ngd_config_get(rings->daemon->options.local_spin);

    ngd_wakeup_ask(NGD_WAKEUP_SLICE);
    while (!atomic_load(&rings->stopping)) {
        const ngd_nsec_t most = ngd_config_get(rings->daemon->options.local_spin);
        ngd_nsec_t from;

        serve_while_busy(rings, spin < most ? spin : most);
        ngd_beat_answer(&rings->beat);
        if (!announce_sleep(rings))
            continue;
        from = ngd_now();
        take_wakeups(rings, -1);
        spin = adapt_spin(spin, most, ngd_now() - from);
    }
    atomic_store(&rings->look, true);
    look_at_rings(rings); /* ends all */
    return NULL;
}

void ngd_rings_ask(struct ngd_rings *rings)
{
    if (rings->started && ngd_beat_ask(&rings->beat))
        wake_thread(rings);
}

const struct ngd_beat *ngd_rings_beat(const struct ngd_rings *rings)
{
    return &rings->beat;
}

/* ---- rings ----------------------------------------------------------------------------------------------- */

/* If the kernel promises no memory for what was promised before, a hole that the client punches may find none when the
 * daemon touches it, which would end the daemon. */
static bool memory_is_strict(void)
{
    char text[4] = "";
    const int fd = open("/proc/sys/vm/overcommit_memory", O_RDONLY | O_CLOEXEC);
    const ssize_t n = fd >= 0 ? read(fd, text, sizeof(text) - 1) : -1;

    if (fd >= 0)
        close(fd);
    return n <= 0 || text[0] == '2';
}

static ngd_status_t map_ring(struct ngd_ring *ring, int fds[2], struct ngd_diag *diag)
{
    const size_t bytes = sizeof(*ring->words);
    void *p = MAP_FAILED;
    ngd_status_t status;

    fds[0] = memfd_create("npugraph-ring", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    ring->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    fds[1] = ring->event >= 0 ? fcntl(ring->event, F_DUPFD_CLOEXEC, 0) : -1;
    if (fds[0] >= 0 && fds[1] >= 0 && ftruncate(fds[0], (off_t)bytes) == 0 &&
        fcntl(fds[0], F_ADD_SEALS, NGD_MEMFD_SIZED) == 0)
        p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fds[0], 0);
    if (p != MAP_FAILED) {
        ring->words = p;
        ring->words->magic = NGD_RING_MAGIC;
        return NGD_OK;
    }
    status = ngd_diag_set(diag, ngd_status_from_errno(errno), "a ring cannot be made: %s", strerror(errno));
    for (int i = 0; i < 2; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    return status;
}

static ngd_status_t make_ring(struct ngd_rings *rings, struct ngd_session *session, struct ngd_ring **ring_p,
                              int fds[2], struct ngd_diag *diag)
{
    struct ngd_identity *identity = ngd_session_identity(session);
    struct ngd_charge charge = {0};
    struct ngd_ring *ring;
    ngd_status_t status = ngd_charge_begin(&charge, ngd_identity_payer(identity, NGD_QUOTA_HOST_BYTES),
                                           sizeof(*ring) + sizeof(*ring->words), diag);

    ring = status == NGD_OK ? NGD_NEW(struct ngd_ring) : NULL;
    if (!ring) {
        ngd_session_unref(session);
        ngd_charge_end(&charge);
        return status != NGD_OK ? status : ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "out of host memory for a ring");
    }
    atomic_fetch_add(&rings->live, 1);
    ring->rings = rings;
    ring->refs = 1;
    ring->event = -1;
    ring->charge = ngd_charge_move(&charge);
    ring->session = session;
    ring->identity = ngd_identity_ref(identity);
    ring->stream.ops = &ring_stream_ops;
    ngd_list_init(&ring->stream.link);
    ngd_list_init(&ring->link);
    ngd_list_init(&ring->active_link);
    ring_lanes_init(ring);
    status = map_ring(ring, fds, diag);
    if (status != NGD_OK)
        ring_unref(ring);
    else
        *ring_p = ring;
    return status;
}

ngd_status_t ngd_ring_open(struct ngd_rings *rings, struct ngd_session *session, struct ngd_ring **ring_p, int fds[2],
                           struct ngd_diag *diag)
{
    struct ngd_ring *ring = NULL;
    ngd_status_t status;

    if (ngd_config_get(rings->daemon->options.local_transport) == NGD_LOCAL_TRANSPORT_OFF || memory_is_strict()) {
        ngd_session_unref(session);
        return ngd_diag_set(diag, NGD_ERR_UNIMPLEMENTED,
                            "the daemon offers no rings: local-transport is off, or vm.overcommit_memory is 2");
    }
    status = make_ring(rings, session, &ring, fds, diag);
    if (!ring)
        return status;
    ring_ref(ring); /* the list's */
    ngd_session_count_call(session);
    ngd_mutex_lock(&rings->lock);
    ngd_list_push_back(&rings->incoming, &ring->link);
    ngd_mutex_unlock(&rings->lock);
    ngd_session_attach(session, &ring->stream); /* ends it if the session has ended */
    wake_thread(rings);
    *ring_p = ring;
    return NGD_OK;
}

void ngd_ring_close(struct ngd_ring *ring)
{
    ask_end(ring);
    ring_unref(ring);
}

ngd_status_t ngd_rings_create(struct ngd_daemon *d, struct ngd_rings **rings_p)
{
    struct ngd_rings *rings = NGD_NEW(struct ngd_rings);
    struct epoll_event ev = {.events = EPOLLIN};

    if (!rings)
        return NGD_ERR_NO_MEMORY;
    rings->daemon = d;
    ngd_mutex_init(&rings->lock, NGD_RANK_RINGS);
    ngd_list_init(&rings->incoming);
    ngd_list_init(&rings->all);
    ngd_list_init(&rings->active);
    rings->methods[NGD_RING_REPLAY] = ngd_rpc_server_method(d->rpc, "/npugraph.v1.Graphs/ReplayStream");
    rings->methods[NGD_RING_STEP] = ngd_rpc_server_method(d->rpc, "/npugraph.v1.Sequences/StepStream");
    rings->epoll = epoll_create1(EPOLL_CLOEXEC);
    rings->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (rings->epoll < 0 || rings->wake < 0 || epoll_ctl(rings->epoll, EPOLL_CTL_ADD, rings->wake, &ev) < 0) {
        ngd_rings_destroy(rings);
        return NGD_ERR_RESOURCE_EXHAUSTED;
    }
    *rings_p = rings;
    return NGD_OK;
}

ngd_status_t ngd_rings_start(struct ngd_rings *rings)
{
    if (ngd_thread_start(&rings->thread, "ring", run_rings, rings) != 0)
        return NGD_ERR_RESOURCE_EXHAUSTED;
    rings->started = true;
    return NGD_OK;
}

void ngd_rings_stop(struct ngd_rings *rings)
{
    if (!rings->started)
        return;
    atomic_store(&rings->stopping, true);
    wake_thread(rings);
    pthread_join(rings->thread, NULL);
    rings->started = false;
    while (atomic_load_explicit(&rings->live, memory_order_acquire) != 0) /* handlers may still owe an answer */
        nanosleep(&(struct timespec){.tv_nsec = NGD_MSEC}, NULL);
}

void ngd_rings_destroy(struct ngd_rings *rings)
{
    if (!rings)
        return;
    ngd_rings_stop(rings);
    if (rings->epoll >= 0)
        close(rings->epoll);
    if (rings->wake >= 0)
        close(rings->wake);
    ngd_mutex_fini(&rings->lock);
    ngd_free(rings);
}
