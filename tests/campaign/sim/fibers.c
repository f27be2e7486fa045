/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fibers: a context of its own for the start, setjmp and longjmp from then on, which cost no system call. Under
 * AddressSanitizer swapcontext does both, since that is what it knows.
 */
#undef _FORTIFY_SOURCE /* its longjmp knows one stack only */
#include "tests/campaign/sim/fibers.h"
#include "base/heap.h"
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#define FIBERS_MAX 512
#define STACK      ((size_t)512 << 10)
#define GUARD      ((size_t)4096)
#define EPOCH      (1000 * NGD_SEC) /* time 0 means "never" in places */
#define STANDSTILL 50000000u        /* switches without time: a loop that waits for nothing */

struct sim_fiber {
    char name[16];
    jmp_buf at;
    ucontext_t context;
    bool started, ended, ready;
    void *(*run)(void *arg);
    void *arg;
    char *stack;
    uint32_t number;
    uint64_t rank;
    ngd_nsec_t work;
    const void *own;
    /* While it waits. */
    const char *what;
    struct sim_queue *queue;
    struct sim_fiber *next, *prev;
    struct ngd_heap_node timer;
    bool timed, late;
    ngd_nsec_t until;
    struct sim_queue joiners;
};

static struct {
    struct sim_schedule schedule;
    uint64_t state, hash, switches, standing;
    ngd_nsec_t now;
    struct sim_fiber *self, *first;
    struct sim_fiber *ready[FIBERS_MAX];
    uint32_t n_ready, n;
    struct sim_fiber *all[FIBERS_MAX];
    struct ngd_heap timers;
    char *stacks[FIBERS_MAX]; /* of fibers that ended */
    uint32_t n_stacks;
} sim;

/* ---- chance ------------------------------------------------------------------------------------------- */

uint64_t sim_random(void)
{
    uint64_t z = (sim.state += 0x9e3779b97f4a7c15u);

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

uint64_t sim_below(uint64_t n)
{
    return (uint64_t)(((unsigned __int128)sim_random() * n) >> 64);
}

bool sim_chance(uint32_t n, uint32_t of)
{
    return n && sim_below(of) < n;
}

int64_t sim_between(int64_t least, int64_t most)
{
    int64_t low = least > 0 ? least : 1, v;
    uint64_t doublings = 0;

    while (low << (doublings + 1) <= most)
        doublings++;
    low <<= sim_below(doublings + 1);
    v = low + (int64_t)sim_below((uint64_t)low);
    return v < most ? v : most;
}

static void note(uint64_t value)
{
    sim.hash = (sim.hash ^ value) * 0x100000001b3u;
    sim.hash ^= sim.hash >> 29;
}

uint64_t sim_hash(void)
{
    return sim.hash;
}

uint64_t sim_switches(void)
{
    return sim.switches;
}

ngd_nsec_t sim_time(void)
{
    return sim.now;
}

/* ---- failure ------------------------------------------------------------------------------------------ */

void sim_fail(const char *fmt, ...)
{
    va_list ap;

    printf("FAILED at %.6f s, in %s: ", (double)(sim.now - EPOCH) / 1e9, sim.self ? sim.self->name : "?");
    va_start(ap, fmt);
    vprintf(fmt, ap);
    va_end(ap);
    printf("\n");
    for (uint32_t i = 0; i < sim.n; i++) {
        const struct sim_fiber *f = sim.all[i];

        if (f->timed)
            printf("  %-16s waits for %s until %.6f s\n", f->name, f->what, (double)(f->until - EPOCH) / 1e9);
        else
            printf("  %-16s %s%s\n", f->name, f->ready || f == sim.self ? "runs" : "waits for ",
                   f->ready || f == sim.self ? "" : f->what);
    }
    fflush(stdout);
    if (getenv("NGD_SIM_ABORT"))
        abort();
    _exit(3);
}

/* ---- who goes on -------------------------------------------------------------------------------------- */

static bool sooner(const struct ngd_heap_node *a, const struct ngd_heap_node *b)
{
    const struct sim_fiber *x = ngd_container_of(a, struct sim_fiber, timer),
                           *y = ngd_container_of(b, struct sim_fiber, timer);

    return x->until != y->until ? x->until < y->until : x->number < y->number;
}

static void make_ready(struct sim_fiber *f)
{
    f->ready = true;
    sim.ready[sim.n_ready++] = f;
}

static void unqueue(struct sim_fiber *f)
{
    struct sim_queue *q = f->queue;

    if (!q)
        return;
    if (f->prev)
        f->prev->next = f->next;
    else
        q->first = f->next;
    if (f->next)
        f->next->prev = f->prev;
    else
        q->last = f->prev;
    f->queue = NULL;
    f->next = f->prev = NULL;
}

static void wake(struct sim_fiber *f, bool late)
{
    unqueue(f);
    if (f->timed)
        ngd_heap_remove(&sim.timers, &f->timer);
    f->timed = false;
    f->late = late;
    if (late)
        f->rank = sim_random(); /* who looks again and again must let others go on */
    make_ready(f);
}

static void wake_those_due(void)
{
    struct ngd_heap_node *first;

    while ((first = ngd_heap_first(&sim.timers))) {
        struct sim_fiber *f = ngd_container_of(first, struct sim_fiber, timer);

        if (f->until > sim.now) {
            if (sim.n_ready)
                return;
            sim.now = f->until;
            sim.standing = 0;
        }
        wake(f, true);
    }
}

static struct sim_fiber *choose(void)
{
    uint32_t at = 0;
    struct sim_fiber *f;

    wake_those_due();
    if (!sim.n_ready)
        sim_fail("nobody can go on, and nobody waits for a time");
    if (!sim.schedule.by_rank)
        at = (uint32_t)sim_below(sim.n_ready);
    for (uint32_t i = 1; sim.schedule.by_rank && i < sim.n_ready; i++)
        if (sim.ready[i]->rank > sim.ready[at]->rank)
            at = i;
    f = sim.ready[at];
    sim.ready[at] = sim.ready[--sim.n_ready];
    f->ready = false;
    return f;
}

static void begin(void)
{
    struct sim_fiber *f = sim.self;

    (void)f->run(f->arg);
    f->ended = true;
    sim_wake_all(&f->joiners);
    (void)sim_wait(NULL, NGD_NSEC_NEVER, "nothing, it has ended");
}

static void prepare(struct sim_fiber *f)
{
    getcontext(&f->context);
    f->context.uc_stack.ss_sp = f->stack + GUARD;
    f->context.uc_stack.ss_size = STACK;
    f->context.uc_link = NULL;
    makecontext(&f->context, begin, 0);
    f->started = true;
}

#if defined(__SANITIZE_ADDRESS__)
static void change(struct sim_fiber *from, struct sim_fiber *to)
{
    if (!to->started)
        prepare(to);
    swapcontext(&from->context, &to->context);
}
#else
static void change(struct sim_fiber *from, struct sim_fiber *to)
{
    if (_setjmp(from->at))
        return;
    if (!to->started) {
        prepare(to);
        setcontext(&to->context);
    }
    _longjmp(to->at, 1);
}
#endif

/* The fiber that runs is in no list of those that are ready, or waits. */
static void go_on(void)
{
    struct sim_fiber *from = sim.self, *to = choose();

    note((uint64_t)to->number << 48 ^ (uint64_t)sim.now);
    if (to == from)
        return;
    sim.switches++;
    if (++sim.standing > STANDSTILL)
        sim_fail("%u switches, and time stands still", STANDSTILL);
    sim.self = to;
    change(from, to);
}

/* Its time came while others ran. */
static bool somebody_is_due(void)
{
    const struct ngd_heap_node *first = ngd_heap_first(&sim.timers);

    return first && ngd_container_of(first, struct sim_fiber, timer)->until <= sim.now;
}

void sim_point(void)
{
    if (sim_chance(sim.schedule.stall, 65536)) {
        sim_sleep_until(sim.now + 1 + (ngd_nsec_t)sim_below((uint64_t)sim.schedule.stall_most));
        return;
    }
    if (!sim_chance(sim.schedule.preempt, 1024) && !(somebody_is_due() && sim_chance(1, 2)))
        return;
    sim.self->rank = sim_random();
    make_ready(sim.self);
    go_on();
}

/* ---- waiting ------------------------------------------------------------------------------------------ */

bool sim_wait(struct sim_queue *queue, ngd_nsec_t until, const char *what)
{
    struct sim_fiber *f = sim.self;

    f->what = what;
    f->queue = queue;
    if (queue) {
        f->prev = queue->last;
        f->next = NULL;
        if (queue->last)
            queue->last->next = f;
        else
            queue->first = f;
        queue->last = f;
    }
    f->timed = until != NGD_NSEC_NEVER;
    f->until = until;
    f->late = false;
    if (f->timed)
        ngd_heap_push(&sim.timers, &f->timer);
    go_on();
    return !f->late;
}

void sim_wake_one(struct sim_queue *queue)
{
    struct sim_fiber *f = queue->first;
    uint32_t n = 0;

    for (struct sim_fiber *i = f; i; i = i->next)
        n++;
    if (!n)
        return;
    for (uint64_t skip = n > 1 ? sim_below(n) : 0; skip > 0; skip--)
        f = f->next;
    wake(f, false);
}

void sim_wake_all(struct sim_queue *queue)
{
    while (queue->first)
        wake(queue->first, false);
}

void sim_sleep_until(ngd_nsec_t t)
{
    if (t > sim.now)
        (void)sim_wait(NULL, t, "its time");
}

void sim_set_work(ngd_nsec_t each)
{
    sim.self->work = each;
}

ngd_nsec_t ngd_clock_real(void)
{
    if (sim.self && sim.self->work)
        sim_sleep_until(sim.now + sim.self->work);
    else if (sim.self)
        sim_point();
    if (sim.schedule.tick)
        sim.now += (ngd_nsec_t)sim_below((uint64_t)sim.schedule.tick);
    return sim.now;
}

/* ---- beginning and ending ----------------------------------------------------------------------------- */

struct sim_fiber *sim_self(void)
{
    return sim.self;
}

const void **sim_own(void)
{
    return &sim.self->own;
}

static char *stack_new(void)
{
    char *p;

    if (sim.n_stacks)
        return sim.stacks[--sim.n_stacks];
    p = mmap(NULL, STACK + GUARD, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED || mprotect(p, GUARD, PROT_NONE))
        sim_fail("no memory for the stack of a fiber");
    return p;
}

static struct sim_fiber *fiber_new(const char *name)
{
    struct sim_fiber *f = calloc(1, sizeof(*f));

    sim_check(f && sim.n < FIBERS_MAX, "too many fibers");
    snprintf(f->name, sizeof(f->name), "%s", name);
    f->number = sim.n;
    f->rank = sim_random();
    sim.all[sim.n++] = f;
    return f;
}

struct sim_fiber *sim_start(const char *name, void *(*run)(void *arg), void *arg)
{
    struct sim_fiber *f = fiber_new(name);

    f->run = run;
    f->arg = arg;
    f->stack = stack_new();
    make_ready(f);
    sim_point();
    return f;
}

void sim_join(struct sim_fiber *f)
{
    while (!f->ended)
        (void)sim_wait(&f->joiners, NGD_NSEC_NEVER, "a thread to end");
    if (f->stack)
        sim.stacks[sim.n_stacks++] = f->stack;
    f->stack = NULL;
    f->what = "nothing, it has ended";
}

void sim_run(uint64_t seed, const struct sim_schedule *schedule, void (*fn)(void *arg), void *arg)
{
    sim.schedule = *schedule;
    sim.state = seed ^ 0x5deece66du;
    sim.hash = 0xcbf29ce484222325u;
    sim.now = EPOCH;
    ngd_heap_init(&sim.timers, sooner);
    sim.self = sim.first = fiber_new("main");
    sim.self->started = true;
    fn(arg);
}
