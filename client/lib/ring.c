/* SPDX-License-Identifier: Apache-2.0 */
#include "client/lib/ring.h"
#include "base/relax.h"
#include "base/ring.h"
#include "client/lib/error.h"
#include "client/lib/local.h"

#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SPIN_MOST  50000 /* ns that a lane looks for its answer before it sleeps */
#define SPIN_LEAST 1000
#define LOOK_AFTER 100000000 /* ns of sleep after which the daemon is looked at: it may have been killed */
#define CLOCK_EACH 16        /* turns between two looks at the clock */

struct npugraph__ring_map {
    struct ngd_ring_words *words;
    int socket, event;
    uint32_t timeout_ms;
    pid_t owner;            /* a forked child has the mapping too, and its lanes are its parent's */
    _Atomic uint32_t taken; /* a bit for each lane */
};

struct npugraph__lane {
    struct npugraph__ring_map *map;
    uint32_t index, number;
    int64_t spin;
    bool lost; /* its last request was not answered: the lane cannot be used again */
};

/* ---- the ring ------------------------------------------------------------------------------------------ */

void npugraph__ring_init(struct npugraph__ring *ring, bool wanted)
{
    pthread_mutex_init(&ring->lock, NULL);
    ring->wanted = wanted;
    ring->map = NULL;
}

static void unmap_ring(struct npugraph__ring_map *map)
{
    if (map->words != NULL)
        munmap(map->words, sizeof(*map->words));
    close(map->socket);
    close(map->event);
    free(map);
}

void npugraph__ring_close(struct npugraph__ring *ring)
{
    if (ring->map != NULL)
        unmap_ring(ring->map);
    ring->map = NULL;
    pthread_mutex_destroy(&ring->lock);
}

bool npugraph__ring_is_open(struct npugraph__ring *ring)
{
    bool open;

    pthread_mutex_lock(&ring->lock);
    open = ring->map != NULL && atomic_load(&ring->map->words->ended) == 0;
    pthread_mutex_unlock(&ring->lock);
    return open;
}

/* Maps a ring of our layout; NULL: it has another one. */
static struct ngd_ring_words *map_words(int memory, uint32_t layout)
{
    struct stat st;
    void *p;

    if (layout != NGD_RING_MAGIC || fstat(memory, &st) != 0 || (size_t)st.st_size != sizeof(struct ngd_ring_words))
        return NULL;
    p = mmap(NULL, sizeof(struct ngd_ring_words), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, memory, 0);
    return p != MAP_FAILED ? p : NULL;
}

/* Opens the ring; without one, everything goes over gRPC. */
static struct npugraph__ring_map *open_map(const struct npugraph__session *session, uint32_t timeout_ms)
{
    Npugraph__V1__LocalRequest req = NPUGRAPH__V1__LOCAL_REQUEST__INIT;
    Npugraph__V1__OpenRing open = NPUGRAPH__V1__OPEN_RING__INIT;
    struct npugraph__ring_map *map;
    Npugraph__V1__LocalResponse *answer;
    int fds[NPUGRAPH__LOCAL_FDS] = {-1, -1}, socket = -1;

    req.ring = &open;
    if (*session->local == '\0' || npugraph__local_ask(session, timeout_ms, &req, -1, &socket, fds, &answer, NULL) != 0)
        return NULL;
    map = calloc(1, sizeof(*map));
    if (map != NULL) {
        *map = (struct npugraph__ring_map){.words = map_words(fds[0], answer->layout),
                                           .socket = socket,
                                           .event = fds[1],
                                           .timeout_ms = timeout_ms,
                                           .owner = getpid()};
    } else {
        close(socket);
        close(fds[1]);
    }
    close(fds[0]);
    npugraph__v1__local_response__free_unpacked(answer, NULL);
    if (map != NULL && map->words == NULL) {
        unmap_ring(map);
        map = NULL;
    }
    return map;
}

static void wake_daemon(const struct npugraph__ring_map *map)
{
    const uint64_t one = 1;

    if (atomic_load(&map->words->sleeping) != 0 && write(map->event, &one, sizeof(one)) < 0)
        return; /* the counter is full: the daemon is being woken */
}

/* ---- lanes --------------------------------------------------------------------------------------------- */

/* Returns the number of a lane that is ours from now on; NGD_RING_LANES: all are taken. */
static uint32_t take_index(struct npugraph__ring_map *map)
{
    uint32_t taken = atomic_load(&map->taken), i;

    do {
        for (i = 0; i < NGD_RING_LANES && (taken >> i & 1) != 0;)
            i++;
        if (i == NGD_RING_LANES)
            return i;
    } while (!atomic_compare_exchange_weak(&map->taken, &taken, taken | 1u << i));
    return i;
}

struct npugraph__lane *npugraph__lane_take(struct npugraph__ring *ring, const struct npugraph__session *session,
                                           uint32_t timeout_ms)
{
    struct npugraph__lane *lane = NULL;
    struct npugraph__ring_map *map;
    uint32_t index;

    pthread_mutex_lock(&ring->lock);
    if (ring->wanted && ring->map == NULL)
        ring->map = open_map(session, timeout_ms);
    ring->wanted = false;
    map = ring->map;
    pthread_mutex_unlock(&ring->lock);
    if (map == NULL || atomic_load(&map->words->ended) != 0 || (index = take_index(map)) == NGD_RING_LANES)
        return NULL;
    lane = calloc(1, sizeof(*lane));
    if (lane == NULL) {
        atomic_fetch_and(&map->taken, ~(1u << index));
        return NULL;
    }
    *lane = (struct npugraph__lane){
        .map = map, .index = index, .number = atomic_load(&map->words->lanes[index].answered), .spin = SPIN_MOST};
    return lane;
}

void npugraph__lane_give(struct npugraph__lane *lane)
{
    if (lane != NULL && !lane->lost && lane->map->owner == getpid()) {
        atomic_fetch_or(&lane->map->words->cancelled, 1u << lane->index); /* lets go of the graph or sequence */
        wake_daemon(lane->map);
        atomic_fetch_and(&lane->map->taken, ~(1u << lane->index));
    }
    free(lane);
}

/* ---- a request ----------------------------------------------------------------------------------------- */

static int64_t nanoseconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void submit(struct npugraph__lane *lane, uint32_t method, const ProtobufCMessage *message)
{
    struct ngd_ring_words *words = lane->map->words;
    struct ngd_ring_lane_words *l = &words->lanes[lane->index];

    l->n_request = (uint32_t)protobuf_c_message_pack(message, words->requests[lane->index]);
    l->method = method;
    l->cpu = (uint32_t)sched_getcpu();
    l->number = ++lane->number;
    atomic_store_explicit(&l->waits, 0, memory_order_relaxed);
    atomic_fetch_or(&words->pending, 1u << lane->index);
    wake_daemon(lane->map);
}

static bool is_answered(const struct npugraph__lane *lane)
{
    return atomic_load_explicit(&lane->map->words->lanes[lane->index].answered, memory_order_acquire) == lane->number;
}

static bool spin_for_answer(const struct npugraph__lane *lane)
{
    const bool apart = atomic_load_explicit(&lane->map->words->cpu, memory_order_relaxed) != (uint32_t)sched_getcpu();
    const int64_t end = apart && lane->spin > 0 ? nanoseconds() + lane->spin : 0;
    bool over = end == 0;

    for (uint32_t turn = 1; !over; turn++) {
        if (is_answered(lane))
            return true;
        ngd_relax(turn);
        over = turn % CLOCK_EACH == 0 && nanoseconds() >= end;
    }
    return is_answered(lane);
}

/* True if the daemon does not look at the ring any more. */
static bool is_ring_over(const struct npugraph__ring_map *map)
{
    struct pollfd p = {.fd = map->socket, .events = POLLIN};

    return atomic_load(&map->words->ended) != 0 || poll(&p, 1, 0) > 0;
}

/* Sleeps until the answer is there. False: it does not come, or not in time. */
static bool sleep_for_answer(const struct npugraph__lane *lane, int64_t end)
{
    struct ngd_ring_lane_words *l = &lane->map->words->lanes[lane->index];
    const struct timespec most = {.tv_nsec = LOOK_AFTER};
    bool over = false;

    for (;;) {
        uint32_t seen;

        atomic_store(&l->waits, 1);
        seen = atomic_load(&l->answered);
        if (seen == lane->number)
            return true;
        if (over)
            return false;
        if (syscall(SYS_futex, &l->answered, FUTEX_WAIT, seen, &most, NULL, 0) != 0 && errno == ETIMEDOUT)
            over = is_ring_over(lane->map);
        over = over || atomic_load(&lane->map->words->ended) != 0 || (end != 0 && nanoseconds() >= end);
    }
}

/* Looks for the answer as long as that was worth it last time, then sleeps. */
static bool await_answer(struct npugraph__lane *lane)
{
    const uint32_t timeout = lane->map->timeout_ms;
    int64_t begin;
    bool answered;

    if (spin_for_answer(lane))
        return true;
    begin = nanoseconds();
    answered = sleep_for_answer(lane, timeout != 0 ? begin + (int64_t)timeout * 1000000 : 0);
    if (nanoseconds() - begin < SPIN_MOST)
        lane->spin = SPIN_MOST;
    else
        lane->spin = lane->spin / 2 < SPIN_LEAST ? 0 : lane->spin / 2;
    return answered;
}

static int give_lane_up(struct npugraph__lane *lane, struct npugraph_error *err)
{
    lane->lost = true;
    if (is_ring_over(lane->map))
        return npugraph__error(err, 14, "UNREACHABLE", "the daemon has ended the connection");
    atomic_fetch_or(&lane->map->words->cancelled, 1u << lane->index);
    wake_daemon(lane->map);
    return npugraph__error(err, 4, "", "Deadline Exceeded");
}

static int take_failure(const uint8_t *data, size_t n, struct npugraph_error *err)
{
    Npugraph__V1__ReplayError *e = npugraph__v1__replay_error__unpack(NULL, n, data);
    int rc;

    if (e == NULL)
        return npugraph__error(err, 13, "", "the daemon's answer is not valid");
    rc = npugraph__error(err, e->code, e->reason, "%s", e->message);
    npugraph__v1__replay_error__free_unpacked(e, NULL);
    return rc;
}

int npugraph__lane_send(struct npugraph__lane *lane, uint32_t method, const ProtobufCMessage *message)
{
    if (lane->lost || atomic_load(&lane->map->words->ended) != 0 ||
        protobuf_c_message_get_packed_size(message) > NGD_RING_MESSAGE)
        return NPUGRAPH__ELSEWHERE;
    submit(lane, method, message);
    return 0;
}

int npugraph__lane_receive(struct npugraph__lane *lane, const ProtobufCMessageDescriptor *type,
                           ProtobufCMessage **reply_p, struct npugraph_error *err)
{
    const struct ngd_ring_words *words = lane->map->words;
    const struct ngd_ring_lane_words *l = &words->lanes[lane->index];

    if (!await_answer(lane))
        return give_lane_up(lane, err);
    if (l->kind == NGD_RING_ELSEWHERE)
        return NPUGRAPH__ELSEWHERE;
    if (l->n_answer > NGD_RING_MESSAGE)
        return npugraph__error(err, 13, "", "the daemon's answer is not valid");
    if (l->kind == NGD_RING_FAILED)
        return take_failure(words->answers[lane->index], l->n_answer, err);
    *reply_p = protobuf_c_message_unpack(type, NULL, l->n_answer, words->answers[lane->index]);
    return *reply_p != NULL ? 0 : npugraph__error(err, 13, "", "the daemon's answer is not valid");
}

int npugraph__lane_exchange(struct npugraph__lane *lane, uint32_t method, const ProtobufCMessage *message,
                            const ProtobufCMessageDescriptor *type, ProtobufCMessage **reply_p,
                            struct npugraph_error *err)
{
    const int rc = npugraph__lane_send(lane, method, message);

    return rc != 0 ? rc : npugraph__lane_receive(lane, type, reply_p, err);
}
