/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/rpc/crowd.h"

#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define READY_SECONDS 120

enum { A_MARK = 1, A_ROLE, A_FD, A_SEAT, A_ARG, A_ADDRESS, A_UID, A_PARENT, A_N };

void crowd_pause(ngd_nsec_t t)
{
    struct timespec ts = {(time_t)(t / NGD_SEC), (long)(t % NGD_SEC)};

    while (nanosleep(&ts, &ts) != 0)
        ;
}

/* ---- the parent ---- */

static struct board *map_board(int fd)
{
    struct board *board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    if (board == MAP_FAILED)
        bench_fail("no memory to share with the clients");
    return board;
}

void crowd_open(struct crowd *c, const char *address)
{
    memset(c, 0, sizeof(*c));
    c->address = address;
    c->fd = memfd_create("board", 0); /* the clients inherit it */
    if (c->fd < 0 || ftruncate(c->fd, sizeof(struct board)) != 0)
        bench_fail("no memory to share with the clients");
    c->board = map_board(c->fd);
}

void crowd_start(struct crowd *c, int seat, const char *role, uid_t uid, int64_t arg)
{
    char fd[16], number[16], value[24], user[16], parent[16];
    pid_t pid;

    snprintf(fd, sizeof(fd), "%d", c->fd);
    snprintf(number, sizeof(number), "%d", seat);
    snprintf(value, sizeof(value), "%lld", (long long)arg);
    snprintf(user, sizeof(user), "%u", (unsigned)uid);
    snprintf(parent, sizeof(parent), "%d", (int)getpid());
    pid = fork();
    if (pid < 0)
        bench_fail("fork fails");
    if (pid == 0) {
        execl("/proc/self/exe", "client", "--crowd", role, fd, number, value, c->address, user, parent, (char *)NULL);
        _exit(127);
    }
    c->pids[seat] = pid;
}

void crowd_wait_ready(struct crowd *c, int n)
{
    ngd_nsec_t end = ngd_now() + READY_SECONDS * NGD_SEC;

    for (int i = 0; i < n; i++) {
        while (c->pids[i] != 0 && !atomic_load(&c->board->seats[i].ready)) {
            if (ngd_now() > end || waitpid(c->pids[i], NULL, WNOHANG) == c->pids[i])
                bench_fail("client %d did not become ready", i);
            crowd_pause(5 * NGD_MSEC);
        }
    }
}

void crowd_kill(struct crowd *c, int seat)
{
    if (c->pids[seat] == 0)
        return;
    kill(c->pids[seat], SIGKILL);
    waitpid(c->pids[seat], NULL, 0);
    c->pids[seat] = 0;
    memset(&c->board->seats[seat], 0, offsetof(struct seat, samples));
}

void crowd_work(struct crowd *c, uint32_t n, ngd_nsec_t settle, ngd_nsec_t count)
{
    atomic_store(&c->board->working, n);
    crowd_pause(settle);
    for (int i = 0; i < CROWD_SEATS; i++) {
        atomic_store(&c->board->seats[i].done, 0);
        atomic_store(&c->board->seats[i].device, 0);
        atomic_store(&c->board->seats[i].rows, 0);
    }
    atomic_fetch_add(&c->board->epoch, 1);
    crowd_pause(count);
}

void crowd_samples(struct crowd *c, int seat, struct samples *to)
{
    const struct seat *s = &c->board->seats[seat];
    uint64_t n = atomic_load(&s->n_samples);

    if (atomic_load(&s->epoch) != atomic_load(&c->board->epoch))
        return;
    for (uint64_t i = 0; i < n && i < CROWD_SAMPLES; i++)
        samples_add(to, (double)s->samples[i]);
}

void crowd_close(struct crowd *c)
{
    atomic_store(&c->board->over, true);
    for (int i = 0; i < CROWD_SEATS; i++) {
        if (c->pids[i] == 0)
            continue;
        waitpid(c->pids[i], NULL, 0);
        c->pids[i] = 0;
    }
    munmap(c->board, sizeof(*c->board));
    close(c->fd);
}

/* ---- a client ---- */

static void become_user(uid_t uid)
{
    if (uid != 0 && (setgroups(0, NULL) != 0 || setgid(uid) != 0 || setuid(uid) != 0))
        bench_fail("client: cannot become user %u", (unsigned)uid);
}

void crowd_member_main(int argc, char **argv, const struct crowd_role *roles)
{
    struct member m;

    if (argc != A_N || strcmp(argv[A_MARK], "--crowd") != 0)
        return;
    become_user((uid_t)strtoul(argv[A_UID], NULL, 10));
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* after the change of user, which would undo it */
    if (getppid() != (pid_t)atoi(argv[A_PARENT]))
        _exit(0);
    m.board = map_board(atoi(argv[A_FD]));
    m.number = atoi(argv[A_SEAT]);
    m.seat = &m.board->seats[m.number];
    m.arg = strtoll(argv[A_ARG], NULL, 10);
    m.address = argv[A_ADDRESS];
    while (roles->name != NULL && strcmp(roles->name, argv[A_ROLE]) != 0)
        roles++;
    if (roles->name == NULL)
        bench_fail("client: there is no role %s", argv[A_ROLE]);
    roles->run(&m);
    exit(0);
}

struct npugraph_client *member_connect(const struct member *m, const char *name)
{
    struct npugraph_connect_params params;
    struct npugraph_client *client = NULL;
    struct npugraph_error err = {0};

    npugraph_connect_params_init(&params);
    params.address = m->address;
    params.client_name = name;
    if (npugraph_connect(&params, &client, &err) != 0)
        bench_fail("client %d: %s", m->number, err.message);
    return client;
}

void member_ready(struct member *m)
{
    atomic_store(&m->seat->ready, 1);
}

bool member_may_work(struct member *m)
{
    while (!atomic_load_explicit(&m->board->over, memory_order_relaxed)) {
        if ((uint32_t)m->number < atomic_load_explicit(&m->board->working, memory_order_relaxed))
            return true;
        crowd_pause(2 * NGD_MSEC);
    }
    return false;
}

void member_sample(struct member *m, ngd_nsec_t t)
{
    struct seat *s = m->seat;
    uint32_t epoch = atomic_load_explicit(&m->board->epoch, memory_order_relaxed);
    uint64_t n;

    if (atomic_load_explicit(&s->epoch, memory_order_relaxed) != epoch) {
        atomic_store(&s->n_samples, 0);
        atomic_store(&s->epoch, epoch);
        return; /* this sample began before the count did */
    }
    n = atomic_load_explicit(&s->n_samples, memory_order_relaxed);
    if (n < CROWD_SAMPLES)
        s->samples[n] = (uint64_t)t;
    atomic_store(&s->n_samples, n + 1);
}

/* ---- graphs ---- */

static void print_head(FILE *f, const char *name)
{
    fprintf(f, "npugraph 1\ngraph \"%s\" {\n  input %%x : f32[16]\n", name);
}

char *crowd_chain_text(const char *name, int n)
{
    char *text = NULL;
    size_t size;
    FILE *f = open_memstream(&text, &size);

    print_head(f, name);
    for (int i = 0; i < n; i++) {
        if (i == 0)
            fprintf(f, "  %%v0 = aten.tanh(%%x)\n");
        else
            fprintf(f, "  %%v%d = aten.cumsum(%%v%d) {dim=0}\n", i, i - 1);
    }
    fprintf(f, "  return \"y\" = %%v%d\n}\n", n - 1);
    fclose(f);
    return text;
}

char *crowd_products_text(const char *name, int n, int size)
{
    char *text = NULL;
    size_t bytes;
    FILE *f = open_memstream(&text, &bytes);

    print_head(f, name);
    fprintf(f, "  %%zero = aten.full() {size=[%d,%d], fill_value=0.001, dtype=f32}\n", size, size);
    fprintf(f, "  %%first = aten.select.int(%%x) {dim=0, index=0}\n  %%v0 = aten.add.Tensor(%%zero, %%first)\n");
    for (int i = 1; i <= n; i++)
        fprintf(f, "  %%v%d = aten.mm(%%v%d, %%v0)\n", i, i - 1);
    fprintf(f, "  %%y = aten.select.int(%%v%d) {dim=0, index=0}\n  return \"y\" = %%y\n}\n", n);
    fclose(f);
    return text;
}

void replayer_open(struct replayer *r, struct npugraph_client *client, const char *text)
{
    struct npugraph_error err = {0};

    memset(r, 0, sizeof(*r));
    r->client = client;
    for (int i = 0; i < 16; i++)
        r->x[i] = (float)(i + 1) / 64;
    r->input = (struct npugraph_input){r->x, sizeof(r->x)};
    r->replay.inputs = &r->input;
    r->replay.n_inputs = 1;
    if (npugraph_graph_register(client, NULL, text, NULL, 0, NULL, 0, &r->replay.graph, &err) != 0 ||
        npugraph_graph_capture(client, r->replay.graph, NULL, 0, false, NULL, &err) != 0 ||
        npugraph_replay_stream_open(client, &r->stream, &err) != 0)
        bench_fail("%s", err.message);
}

ngd_nsec_t replayer_run(struct replayer *r, bool *wrong_p)
{
    struct npugraph_error err = {0};
    const ngd_nsec_t begin = ngd_now();
    ngd_nsec_t took;

    if (npugraph_replay_stream_run(r->stream, &r->replay, &r->result, &err) != 0)
        bench_fail("replay: %s", err.message);
    took = ngd_now() - begin;
    if (r->expected == NULL) {
        r->n_expected = r->result->outputs[0].bytes;
        r->expected = malloc(r->n_expected);
        memcpy(r->expected, r->result->outputs[0].data, r->n_expected);
    } else if (r->result->outputs[0].bytes != r->n_expected ||
               memcmp(r->expected, r->result->outputs[0].data, r->n_expected) != 0) {
        *wrong_p = true;
    }
    return took;
}

void replayer_close(struct replayer *r)
{
    npugraph_result_free(r->result);
    npugraph_replay_stream_close(r->stream);
    free(r->expected);
}

void member_replay(struct member *m, const char *name, char *text, ngd_nsec_t every)
{
    struct npugraph_client *client = member_connect(m, name);
    struct replayer r;
    ngd_nsec_t next;

    replayer_open(&r, client, text);
    free(text);
    member_ready(m);
    next = ngd_now();
    while (member_may_work(m)) {
        bool wrong = false;

        member_sample(m, replayer_run(&r, &wrong));
        atomic_fetch_add(&m->seat->done, 1);
        atomic_fetch_add(&m->seat->wrong, wrong);
        next += every;
        if (next > ngd_now())
            crowd_pause(next - ngd_now());
        else
            next = ngd_now();
    }
    replayer_close(&r);
    npugraph_disconnect(client);
}

/* ---- statistics ---- */

double crowd_stat(struct npugraph_client *client, const char *path)
{
    json_t *root = live_stats(client), *at = root;
    char part[64];
    double value;

    for (const char *p = path; at != NULL && *p != '\0';) {
        size_t n = strcspn(p, ".");

        snprintf(part, sizeof(part), "%.*s", (int)n, p);
        at = json_is_array(at) ? json_array_get(at, (size_t)atoi(part)) : json_object_get(at, part);
        p += p[n] == '.' ? n + 1 : n;
    }
    if (!json_is_number(at))
        bench_fail("the statistics have no number %s", path);
    value = json_number_value(at);
    json_decref(root);
    return value;
}
