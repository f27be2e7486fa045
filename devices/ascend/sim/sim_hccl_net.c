/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks in other processes, which may be in other network namespaces or machines.
 *
 * Root information names the process that gave it, and where that listens: at HCCL_IF_IP, as HCCL's does, or at
 * 127.0.0.1. A hub (a thread of that process) takes one connection for each rank, checks who they are, and tells all of
 * them when all have come. Then each rank sends what it does and its data, and gets everybody's when all have sent the
 * same; each computes its own result. If all ranks turn out to be of one process, they meet in its memory, and the hub
 * ends.
 *
 * A peer that dies is not told of: HcclGetCommAsyncError reports failed queue entries of RDMA only (hicann/hcomm
 * 78ad2b9d, comm_mgr_c/HcclGetCommAsyncError). The others' collectives hang until their limit, or
 * until their streams are aborted.
 */
#include "devices/ascend/sim/sim_hccl.h"
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#define ROOT_MAGIC    "npugraphd-sim"
#define HELLO_MAGIC   0x6e70752d72616e6bull
#define NAP_MS        2
#define HELLO_MS      1000
#define FRAME_MAX     ((uint64_t)1 << 30)
#define OTHER_NUMBERS (4 * HCCL_MAX_RANKS)

struct hello {
    uint64_t magic, nonce;
    uint32_t n, rank;
};

/* What a rank sends in a round; then 4 * n numbers if it is an exchange, then its data. */
struct frame {
    uint32_t kind, dtype, reduce, root;
    uint64_t count, bytes;
};

struct part {
    bool here;
    struct frame head;
    uint64_t numbers[OTHER_NUMBERS];
    char *data;
};

struct hub {
    struct hub *next;
    int key, listener;
    uint64_t nonce;
    uint32_t n, joined;
    int fds[HCCL_MAX_RANKS];
    struct part parts[HCCL_MAX_RANKS];
    uint64_t until;
    bool remote, done; /* under the lock */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct hub *hubs;

static uint64_t process_nonce(void)
{
    static uint64_t nonce;

    pthread_mutex_lock(&lock);
    while (!nonce)
        if (getrandom(&nonce, sizeof(nonce), 0) != sizeof(nonce))
            nonce = 0;
    pthread_mutex_unlock(&lock);
    return nonce;
}

/* A round is several small writes and then an answer: none waits for the other side's acknowledgement. */
static void send_at_once(int fd)
{
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
}

/* ---- bytes --------------------------------------------------------------------------------------- */

static bool send_all(int fd, const void *data, uint64_t n)
{
    const char *p = data;

    while (n) {
        ssize_t got = send(fd, p, n, MSG_NOSIGNAL);

        if (got <= 0 && errno != EINTR)
            return false;
        p += got > 0 ? got : 0;
        n -= got > 0 ? (uint64_t)got : 0;
    }
    return true;
}

static bool receive_all(int fd, void *data, uint64_t n)
{
    char *p = data;

    while (n) {
        ssize_t got = recv(fd, p, n, 0);

        if (got == 0 || (got < 0 && errno != EINTR))
            return false;
        p += got > 0 ? got : 0;
        n -= got > 0 ? (uint64_t)got : 0;
    }
    return true;
}

static uint64_t numbers_of(const struct frame *head, uint32_t n)
{
    return head->kind == HCCL_ALL_TO_ALL ? 4 * (uint64_t)n * sizeof(uint64_t) : 0;
}

static bool send_part(int fd, const struct part *part, uint32_t n)
{
    return send_all(fd, &part->head, sizeof(part->head)) && send_all(fd, part->numbers, numbers_of(&part->head, n)) &&
           send_all(fd, part->data, part->head.bytes);
}

static bool receive_part(int fd, struct part *part, uint32_t n)
{
    if (!receive_all(fd, &part->head, sizeof(part->head)) || part->head.bytes > FRAME_MAX ||
        !receive_all(fd, part->numbers, numbers_of(&part->head, n)))
        return false;
    part->data = malloc(part->head.bytes + 1);
    if (!part->data)
        abort();
    part->here = true;
    return receive_all(fd, part->data, part->head.bytes);
}

static void drop_part(struct part *part)
{
    free(part->data);
    part->data = NULL;
    part->here = false;
}

/* ---- the hub ------------------------------------------------------------------------------------- */

static void answer(int fd, uint32_t code)
{
    (void)send_all(fd, &code, sizeof(code));
}

/* HCCL refuses a rank that says another size, or that has come before (or hangs; then the limit ends it). */
static void take_rank(struct hub *hub, int fd)
{
    const struct timeval limit = {.tv_usec = HELLO_MS * 1000 - 1};
    struct hello hello;

    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    if (!receive_all(fd, &hello, sizeof(hello)) || hello.magic != HELLO_MAGIC || hello.nonce != hub->nonce) {
        close(fd);
        return;
    }
    if (!hub->n && hello.n <= HCCL_MAX_RANKS)
        hub->n = hello.n;
    if (hello.n != hub->n || hello.rank >= hub->n || hub->fds[hello.rank] >= 0) {
        answer(fd, NGD_HCCL_E_PARA);
        close(fd);
        return;
    }
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &(struct timeval){0}, sizeof(limit));
    send_at_once(fd);
    hub->fds[hello.rank] = fd;
    hub->joined++;
    pthread_mutex_lock(&lock);
    hub->remote = true;
    pthread_mutex_unlock(&lock);
    hccl_group_goes_out(hub->key);
}

static bool hub_is_done(struct hub *hub)
{
    bool done;

    pthread_mutex_lock(&lock);
    done = hub->done;
    pthread_mutex_unlock(&lock);
    return done;
}

static bool gather_ranks(struct hub *hub)
{
    while (!hub->n || hub->joined < hub->n) {
        struct pollfd p = {.fd = hub->listener, .events = POLLIN};
        int fd;

        if (hub_is_done(hub) || hccl_now_ms() >= hub->until)
            return false;
        if (poll(&p, 1, NAP_MS) <= 0)
            continue;
        fd = accept(hub->listener, NULL, NULL);
        if (fd >= 0)
            take_rank(hub, fd);
    }
    return true;
}

static bool parts_agree(const struct hub *hub)
{
    const struct part *a = &hub->parts[0];

    for (uint32_t i = 1; i < hub->n; i++) {
        const struct frame *b = &hub->parts[i].head;

        if (a->head.kind != b->kind || a->head.dtype != b->dtype || a->head.reduce != b->reduce ||
            a->head.root != b->root || a->head.count != b->count ||
            (a->head.bytes != b->bytes && b->kind != HCCL_ALL_TO_ALL))
            return false;
    }
    for (uint32_t i = 0; i < hub->n && a->head.kind == HCCL_ALL_TO_ALL; i++)
        for (uint32_t k = 0; k < hub->n; k++)
            if (hub->parts[i].numbers[k] != hub->parts[k].numbers[2 * hub->n + i])
                return false;
    return true;
}

static bool end_round(struct hub *hub)
{
    bool sent = true;

    if (!parts_agree(hub))
        return true; /* they wait, as on devices */
    for (uint32_t r = 0; r < hub->n && sent; r++)
        for (uint32_t i = 0; i < hub->n && sent; i++)
            sent = send_part(hub->fds[r], &hub->parts[i], hub->n);
    for (uint32_t i = 0; i < hub->n; i++)
        drop_part(&hub->parts[i]);
    return sent;
}

/* Until a rank goes away: then no round ends any more. */
static void run_rounds(struct hub *hub)
{
    for (uint32_t here = 0;;) {
        struct pollfd p[HCCL_MAX_RANKS];

        for (uint32_t i = 0; i < hub->n; i++)
            p[i] = (struct pollfd){.fd = hub->fds[i], .events = POLLIN};
        if (poll(p, hub->n, -1) < 0 && errno != EINTR)
            return;
        for (uint32_t i = 0; i < hub->n; i++) {
            if (!p[i].revents)
                continue;
            if (hub->parts[i].here || !receive_part(hub->fds[i], &hub->parts[i], hub->n))
                return;
            here++;
        }
        if (here < hub->n)
            continue;
        if (!end_round(hub))
            return;
        here = hub->parts[0].here ? here : 0;
    }
}

static void *hub_main(void *arg)
{
    struct hub *hub = arg;
    bool all = gather_ranks(hub);

    for (uint32_t i = 0; i < HCCL_MAX_RANKS; i++)
        if (hub->fds[i] >= 0)
            answer(hub->fds[i], all ? 0 : NGD_HCCL_E_TIMEOUT);
    close(hub->listener);
    pthread_mutex_lock(&lock);
    for (struct hub **at = &hubs; *at; at = &(*at)->next) {
        if (*at == hub) {
            *at = hub->next;
            break;
        }
    }
    pthread_mutex_unlock(&lock);
    if (all)
        run_rounds(hub);
    for (uint32_t i = 0; i < HCCL_MAX_RANKS; i++) {
        if (hub->fds[i] >= 0)
            close(hub->fds[i]);
        drop_part(&hub->parts[i]);
    }
    free(hub);
    return NULL;
}

static int listen_somewhere(struct sockaddr_in *at)
{
    const char *ip = getenv("HCCL_IF_IP");
    socklen_t n = sizeof(*at);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    *at = (struct sockaddr_in){.sin_family = AF_INET};
    if (fd >= 0 && inet_pton(AF_INET, ip ? ip : "127.0.0.1", &at->sin_addr) == 1 &&
        bind(fd, (struct sockaddr *)at, sizeof(*at)) == 0 && listen(fd, HCCL_MAX_RANKS) == 0 &&
        getsockname(fd, (struct sockaddr *)at, &n) == 0)
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

int hccl_root_open(int key, char *info, size_t room)
{
    struct hub *hub = calloc(1, sizeof(*hub));
    struct sockaddr_in at;
    char ip[INET_ADDRSTRLEN];
    pthread_t thread;

    if (!hub)
        abort();
    for (uint32_t i = 0; i < HCCL_MAX_RANKS; i++)
        hub->fds[i] = -1;
    hub->key = key;
    hub->nonce = process_nonce();
    hub->until = hccl_now_ms() + ngd_aclsim_setting("hccl_connect_ms");
    hub->listener = listen_somewhere(&at);
    if (hub->listener < 0) {
        free(hub);
        return ngd_aclsim_fail(NGD_HCCL_E_NETWORK, "the same", "cannot listen at HCCL_IF_IP");
    }
    inet_ntop(AF_INET, &at.sin_addr, ip, sizeof(ip));
    snprintf(info, room, "%s %d %016llx %s %u", ROOT_MAGIC, key, (unsigned long long)hub->nonce, ip,
             ntohs(at.sin_port));
    pthread_mutex_lock(&lock);
    hub->next = hubs;
    hubs = hub;
    pthread_mutex_unlock(&lock);
    if (pthread_create(&thread, NULL, hub_main, hub))
        abort();
    pthread_detach(thread);
    return 0;
}

static struct hub *find_hub_locked(int key)
{
    struct hub *hub = hubs;

    while (hub && hub->key != key)
        hub = hub->next;
    return hub;
}

void hccl_root_close(int key)
{
    struct hub *hub;

    pthread_mutex_lock(&lock);
    hub = find_hub_locked(key);
    if (hub)
        hub->done = true;
    pthread_mutex_unlock(&lock);
}

bool hccl_root_is_here(const struct hccl_root *root)
{
    const bool mine = root->nonce == process_nonce();
    struct hub *hub;
    bool here;

    pthread_mutex_lock(&lock);
    hub = mine ? find_hub_locked(root->key) : NULL;
    here = hub && !hub->remote;
    pthread_mutex_unlock(&lock);
    return here;
}

int hccl_root_parse(const void *info, struct hccl_root *root)
{
    char text[128];
    unsigned long long nonce;

    memcpy(text, info, sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    if (sscanf(text, ROOT_MAGIC " %d %16llx %15s %hu", &root->key, &nonce, root->ip, &root->port) != 4)
        return ngd_aclsim_fail(NGD_HCCL_E_PARA, "cannot connect, or crashes", "this is no root information");
    root->nonce = nonce;
    return 0;
}

/* ---- a rank -------------------------------------------------------------------------------------- */

/* A root that does not listen is tried again until the limit. */
static int connect_root(const struct hccl_root *root, uint64_t until)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(root->port)};

    if (inet_pton(AF_INET, root->ip, &to.sin_addr) != 1)
        return -1;
    for (;;) {
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

        if (fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof(to)) == 0) {
            send_at_once(fd);
            return fd;
        }
        if (fd >= 0)
            close(fd);
        if (hccl_now_ms() >= until)
            return -1;
        poll(NULL, 0, NAP_MS);
    }
}

/* 1: there is something to read; 0: the time is over; -1: the other side has gone. */
static int await_bytes(int fd, uint64_t until)
{
    while (hccl_now_ms() < until) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        char byte;

        if (poll(&p, 1, NAP_MS) > 0)
            return recv(fd, &byte, 1, MSG_PEEK) == 1 ? 1 : -1;
    }
    return 0;
}

int hccl_net_join(struct hccl_comm *comm, const struct hccl_root *root)
{
    struct hello hello = {.magic = HELLO_MAGIC, .nonce = root->nonce, .n = comm->group->n, .rank = comm->rank};
    uint64_t until = hccl_now_ms() + ngd_aclsim_setting("hccl_connect_ms");
    uint32_t code = NGD_HCCL_E_TIMEOUT;
    int fd = connect_root(root, until);

    if (fd >= 0 && send_all(fd, &hello, sizeof(hello)))
        while (await_bytes(fd, until) == 1 && !receive_all(fd, &code, sizeof(code)))
            ;
    if (fd >= 0 && code == 0) {
        comm->fd = fd;
        return 0;
    }
    if (fd >= 0)
        close(fd);
    return code == NGD_HCCL_E_PARA
               ? ngd_aclsim_fail((int)code, "hangs, or the same", "rank %u has come already, or others say %u ranks",
                                 comm->rank, comm->group->n)
               : ngd_aclsim_fail(NGD_HCCL_E_TIMEOUT, "the same, after HCCL_CONNECT_TIMEOUT (120 s)",
                                 "not all %u ranks came to make their communicators", comm->group->n);
}

bool hccl_net_send(struct hccl_comm *comm, const struct hccl_op *op, const void *data, uint64_t bytes)
{
    const uint32_t n = comm->group->n;
    struct part part = {.head = {.kind = op->kind,
                                 .dtype = (uint32_t)op->dtype,
                                 .reduce = (uint32_t)op->reduce,
                                 .root = op->root,
                                 .count = op->count,
                                 .bytes = bytes},
                        .data = (char *)(uintptr_t)data};

    if (op->kind == HCCL_ALL_TO_ALL)
        memcpy(part.numbers, op->sends, 4 * (size_t)n * sizeof(uint64_t));
    return !comm->cut && send_part(comm->fd, &part, n);
}

static void fill_op(const struct part *part, uint32_t n, struct hccl_op *op)
{
    *op = (struct hccl_op){.kind = part->head.kind,
                           .dtype = (int)part->head.dtype,
                           .reduce = (int)part->head.reduce,
                           .root = part->head.root,
                           .count = part->head.count};
    if (op->kind != HCCL_ALL_TO_ALL)
        return;
    op->sends = calloc(4 * (size_t)n, sizeof(uint64_t));
    if (!op->sends)
        abort();
    memcpy(op->sends, part->numbers, 4 * (size_t)n * sizeof(uint64_t));
    op->send_at = op->sends + n;
    op->receives = op->send_at + n;
    op->receive_at = op->receives + n;
}

int hccl_net_receive(struct hccl_comm *comm, uint64_t slice_ms, struct hccl_op *ops, char **data)
{
    const uint32_t n = comm->group->n;
    int there = comm->cut ? -1 : await_bytes(comm->fd, hccl_now_ms() + slice_ms);

    for (uint32_t i = 0; i < n && there == 1; i++) {
        struct part part = {0};

        if (!receive_part(comm->fd, &part, n))
            there = -1;
        else
            fill_op(&part, n, &ops[i]);
        data[i] = part.data;
    }
    comm->cut |= there < 0;
    return there;
}
