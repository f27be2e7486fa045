/* SPDX-License-Identifier: Apache-2.0 */
/* Tests requests that run: their order, their threads, their statistics. */
#include "tests/unit/sched_util.h"
#include <stdatomic.h>

/* ---- running ------------------------------------------------------------------------------------------ */

START_TEST(request_runs_and_its_times_are_told)
{
    struct bed bed;
    struct ngd_binding *b;
    struct call c;

    bed_open(&bed, 1, 0);
    b = bed_binding(&bed, DOUBLE_TEXT, NULL);
    call_init(&c, b, 5);
    call_run(&bed, &c);
    call_check(&c);
    ck_assert_int_eq(atomic_load(&c.req.state), NGD_REQUEST_DONE);
    ck_assert(c.req.started >= c.req.submitted);
    ck_assert(c.req.launch.device_time > 0);
    ck_assert(!pthread_equal(c.thread, pthread_self()));
    ngd_binding_unref(b);
    bed_close(&bed);
}
END_TEST

START_TEST(requests_of_one_order_are_answered_in_their_order)
{
    enum { N = 40 };
    struct bed bed;
    struct ngd_binding *b;
    struct ngd_order *order;
    _Atomic uint32_t rank = 0;
    static struct call c[N];

    bed_open(&bed, 3, 10 * NGD_SEC);
    b = bed_binding(&bed, DOUBLE_TEXT, NULL);
    ck_assert_int_eq(ngd_order_create(&order), NGD_OK);
    /* Different keys: some are captured already, some must wait for it. */
    for (int i = 0; i < N; i++) {
        call_init(&c[i], b, 1 + i % 7);
        c[i].req.order = order;
        c[i].order = &rank;
        call_submit(&bed, &c[i]);
    }
    for (int i = 0; i < N; i++) {
        call_wait(&c[i]);
        call_check(&c[i]);
        ck_assert_uint_eq(c[i].rank, (uint32_t)i);
    }
    ngd_order_destroy(order);
    ngd_binding_unref(b);
    bed_close(&bed);
}
END_TEST

START_TEST(orders_do_not_wait_for_one_another)
{
    struct bed bed;
    struct ngd_binding *b;
    struct ngd_order *slow, *quick;
    struct call first, second, other;
    struct gate gate;

    bed_open(&bed, 2, 0);
    b = bed_binding(&bed, DOUBLE_TEXT, NULL);
    ck_assert_int_eq(ngd_order_create(&slow), NGD_OK);
    ck_assert_int_eq(ngd_order_create(&quick), NGD_OK);
    gate_init(&gate);
    call_init(&first, b, 2);
    first.req.order = slow;
    first.gate = &gate;
    call_submit(&bed, &first);
    gate_await(&gate, 1);
    call_init(&second, b, 2);
    second.req.order = slow;
    call_submit(&bed, &second);
    ck_assert_int_eq(atomic_load(&second.req.state), NGD_REQUEST_ORDERED);
    call_init(&other, b, 2);
    other.req.order = quick;
    call_run(&bed, &other);
    call_check(&other);
    ck_assert_uint_eq(atomic_load(&second.answers), 0);
    gate_open(&gate);
    call_wait(&first);
    call_wait(&second);
    call_check(&second);
    ngd_order_destroy(slow);
    ngd_order_destroy(quick);
    ngd_binding_unref(b);
    bed_close(&bed);
}
END_TEST

START_TEST(short_replay_of_an_idle_slot_runs_on_the_submitting_thread)
{
    struct bed bed;
    struct ngd_binding *b;
    struct call c;

    bed_open(&bed, 1, 10 * NGD_SEC);
    b = bed_binding(&bed, DOUBLE_TEXT, NULL);
    /* The worker runs it until its time is known. */
    for (int i = 0; i < 3; i++) {
        bed_settle(&bed);
        call_init(&c, b, 2);
        call_run(&bed, &c);
        ck_assert(!c.req.inline_run);
    }
    bed_settle(&bed);
    call_init(&c, b, 2);
    call_submit(&bed, &c);
    ck_assert_uint_eq(atomic_load(&c.answers), 1);
    call_check(&c);
    ck_assert(c.req.inline_run);
    ck_assert(pthread_equal(c.thread, pthread_self()));
    ck_assert_int_eq(bed_counted(&bed, NGD_M_INLINE_RUNS), 1);
    ngd_binding_unref(b);
    bed_close(&bed);
}
END_TEST

/* A device may capture when it runs an instance for the first time. The thread that receives calls must not wait for
 * that. */
START_TEST(first_replay_of_a_binding_runs_on_a_worker_however_short_it_is)
{
    struct bed bed;
    struct ngd_binding *first, *second;
    struct call c;

    bed_open(&bed, 1, 10 * NGD_SEC);
    first = bed_binding(&bed, DOUBLE_TEXT, NULL);
    second = bed_bind(first->prog, NULL);
    bed_warm(&bed, first, 2, 4);
    bed_settle(&bed);
    for (int i = 0; i < 2; i++) {
        call_init(&c, second, 2);
        call_run(&bed, &c);
        call_check(&c);
        ck_assert(c.req.inline_run == (i > 0));
        ck_assert(pthread_equal(c.thread, pthread_self()) == (i > 0));
        bed_settle(&bed);
    }
    ngd_binding_unref(second);
    ngd_binding_unref(first);
    bed_close(&bed);
}
END_TEST

/* Its shadow is planned, run operator by operator, and compared. */
START_TEST(verified_replay_runs_on_a_worker_however_short_it_is)
{
    struct ngd_graph_options options;
    struct ngd_binding *b;
    struct bed bed;
    struct call c;

    bed_open(&bed, 1, 10 * NGD_SEC);
    ngd_graph_options_init(&options);
    options.verify_every_n = 1;
    b = bed_binding(&bed, DOUBLE_TEXT, &options);
    bed_warm(&bed, b, 2, 4);
    bed_settle(&bed);
    call_init(&c, b, 2);
    call_run(&bed, &c);
    call_check(&c);
    ck_assert(!c.req.inline_run);
    bed_settle(&bed);
    ngd_binding_unref(b);
    bed_close(&bed);
}
END_TEST

/* Makes the instance of n elements in one slot, as a worker would. */
static void make_instance(struct bed *bed, struct ngd_binding *b, int64_t n, uint32_t slot)
{
    struct ngd_diag diag = {0};
    struct ngd_gcache_entry *entry;
    struct ngd_instance *inst;
    struct ngd_key key;

    ck_assert_int_eq(ngd_program_key(b->prog, &n, 1, &key, &diag), NGD_OK);
    ck_assert_int_eq(ngd_program_capture(b->prog, &key, &entry, NULL, &diag), NGD_OK);
    ck_assert_int_eq(ngd_binding_instance(b, bed_slot(bed, slot), ngd_entry_executable(entry), &inst, &diag), NGD_OK);
    ngd_gcache_put(entry);
}

START_TEST(inline_run_takes_the_idle_slot_that_has_the_instance)
{
    enum { SLOTS = 3 };
    struct bed bed;
    struct ngd_binding *first, *b[SLOTS];
    struct call c;

    bed_open(&bed, SLOTS, 10 * NGD_SEC);
    first = bed_binding(&bed, DOUBLE_TEXT, NULL);
    bed_warm(&bed, first, 2, 4);
    bed_settle(&bed);
    for (uint32_t i = 0; i < SLOTS; i++) {
        b[i] = bed_bind(first->prog, NULL);
        make_instance(&bed, b[i], 2, i);
        call_init(&c, b[i], 2);
        call_run(&bed, &c);
        call_check(&c);
        ck_assert(c.req.inline_run);
        ngd_binding_unref(b[i]);
    }
    ngd_binding_unref(first);
    bed_close(&bed);
}
END_TEST

START_TEST(nothing_runs_inline_while_the_slot_is_used_or_something_waits)
{
    struct bed bed;
    struct ngd_binding *b;
    struct call busy, queued, c;
    struct gate gate;

    bed_open(&bed, 1, 10 * NGD_SEC);
    b = bed_binding(&bed, DOUBLE_TEXT, NULL);
    bed_warm(&bed, b, 2, 3);
    bed_settle(&bed);
    /* Eager runs are never inline, so that the worker is the one at the gate. */
    gate_init(&gate);
    call_init(&busy, b, 2);
    busy.req.launch.eager = true;
    busy.gate = &gate;
    call_submit(&bed, &busy);
    gate_await(&gate, 1);
    call_init(&queued, b, 2);
    call_submit(&bed, &queued);
    call_init(&c, b, 2);
    call_submit(&bed, &c);
    ck_assert_uint_eq(atomic_load(&queued.answers) + atomic_load(&c.answers), 0);
    ck_assert_int_eq(atomic_load(&c.req.state), NGD_REQUEST_QUEUED);
    gate_open(&gate);
    call_wait(&busy);
    call_wait(&queued);
    call_wait(&c);
    ck_assert(!queued.req.inline_run && !c.req.inline_run);
    ngd_binding_unref(b);
    bed_close(&bed);
}
END_TEST

/* A thread that runs a request inline and stops in done(), while it holds the slot. */
static void *submit_at_gate(void *arg)
{
    struct call *c = arg;
    struct ngd_sched *sched = c->req.binding->prog->sched;

    ck_assert_int_eq(ngd_sched_submit(sched, &c->req, &c->diag), NGD_OK);
    return NULL;
}

START_TEST(worker_takes_what_was_queued_during_an_inline_run)
{
    struct bed bed;
    struct ngd_binding *b;
    struct call inl, c;
    struct gate gate;
    pthread_t t;

    bed_open(&bed, 1, 10 * NGD_SEC);
    b = bed_binding(&bed, DOUBLE_TEXT, NULL);
    bed_warm(&bed, b, 2, 3);
    bed_settle(&bed);
    gate_init(&gate);
    call_init(&inl, b, 2);
    inl.gate = &gate;
    ck_assert_int_eq(pthread_create(&t, NULL, submit_at_gate, &inl), 0);
    gate_await(&gate, 1);
    ck_assert(inl.req.inline_run);
    call_init(&c, b, 2);
    call_submit(&bed, &c);
    ck_assert_uint_eq(atomic_load(&c.answers), 0);
    gate_open(&gate);
    call_wait(&c);
    call_check(&c);
    ck_assert(!c.req.inline_run);
    pthread_join(t, NULL);
    ngd_binding_unref(b);
    bed_close(&bed);
}
END_TEST

START_TEST(replay_path_allocates_nothing)
{
    struct bed bed;
    struct ngd_binding *b;
    struct call c;
    uint64_t before;

    bed_open(&bed, 1, 10 * NGD_SEC);
    b = bed_binding(&bed, DOUBLE_TEXT, NULL);
    bed_warm(&bed, b, 2, 4);
    bed_settle(&bed);
    before = ngd_mem_thread_allocs();
    for (int i = 0; i < 100; i++) {
        call_init(&c, b, 2);
        call_submit(&bed, &c);
        ck_assert(c.req.inline_run);
    }
    ck_assert_uint_eq(ngd_mem_thread_allocs(), before);
    ngd_binding_unref(b);
    bed_close(&bed);
}
END_TEST

/* done() may submit again while its thread still holds the slot. */
struct chain {
    struct call c;
    struct ngd_sched *sched;
    uint32_t left;
    struct gate over;
};

static void chain_done(struct ngd_request *req, ngd_status_t status, const struct ngd_diag *diag)
{
    struct chain *chain = req->user;
    struct ngd_diag d = {0};

    (void)diag;
    ck_assert_int_eq(status, NGD_OK);
    if (--chain->left == 0) {
        gate_open(&chain->over);
        return;
    }
    call_init(&chain->c, req->binding, 2);
    chain->c.req.done = chain_done;
    chain->c.req.user = chain;
    ck_assert_int_eq(ngd_sched_submit(chain->sched, &chain->c.req, &d), NGD_OK);
}

START_TEST(done_may_submit_the_next_request)
{
    struct bed bed;
    struct ngd_binding *b;
    struct chain chain = {.left = 20000};

    bed_open(&bed, 1, 10 * NGD_SEC);
    b = bed_binding(&bed, DOUBLE_TEXT, NULL);
    bed_warm(&bed, b, 2, 4);
    chain.sched = bed.sched;
    gate_init(&chain.over);
    call_init(&chain.c, b, 2);
    chain.c.req.done = chain_done;
    chain.c.req.user = &chain;
    ck_assert_int_eq(ngd_sched_submit(bed.sched, &chain.c.req, NULL), NGD_OK);
    gate_pass(&chain.over);
    bed_settle(&bed);
    ngd_binding_unref(b);
    bed_close(&bed);
}
END_TEST

/* ---- many threads ------------------------------------------------------------------------------------- */

struct mob {
    struct bed *bed;
    struct ngd_binding *binding;
    uint32_t seed;
    uint32_t ok, cancelled;
};

static uint32_t draw(uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 8;
}

#define MOB_ROUND 16

static void *mob_main(void *arg)
{
    struct mob *m = arg;
    struct ngd_order *order;
    struct call *c = ngd_calloc(MOB_ROUND, sizeof(*c));
    _Atomic uint32_t rank;

    ck_assert_int_eq(ngd_order_create(&order), NGD_OK);
    for (int round = 0; round < 40; round++) {
        uint32_t last = 0;

        atomic_store(&rank, 0);
        for (int i = 0; i < MOB_ROUND; i++) {
            call_init(&c[i], m->binding, 1 + draw(&m->seed) % 6);
            c[i].req.order = i % 2 ? order : NULL;
            c[i].order = i % 2 ? &rank : NULL;
            call_submit(m->bed, &c[i]);
            if (draw(&m->seed) % 4 == 0)
                ngd_sched_cancel(m->bed->sched, &c[draw(&m->seed) % (uint32_t)(i + 1)].req);
        }
        for (int i = 0; i < MOB_ROUND; i++) {
            call_wait(&c[i]);
            if (c[i].status == NGD_ERR_CANCELLED) {
                m->cancelled++;
                continue;
            }
            call_check(&c[i]);
            m->ok++;
            if (i % 2) {
                ck_assert(c[i].rank >= last);
                last = c[i].rank;
            }
        }
    }
    ngd_order_destroy(order);
    ngd_free(c);
    return NULL;
}

START_TEST(many_threads_get_every_answer_once_and_in_order)
{
    struct ngd_graph_options options;
    struct ngd_sched_params params;
    struct bed bed;
    struct mob mobs[8];
    pthread_t t[8];
    uint32_t total = 0;

    bed_params(&bed, &params);
    params.slots = 2;
    params.capture_threads = 2;
    params.inline_limit = 10 * NGD_SEC;
    bed_start(&bed, &params);
    ngd_graph_options_init(&options);
    options.capture_limit = 4; /* of six keys: evictions all the time, and eager runs when all four are in use */
    for (int i = 0; i < 8; i++) {
        options.capture_limit_policy = i % 2 ? NGD_GCACHE_EAGER : NGD_GCACHE_EVICT;
        mobs[i] = (struct mob){.bed = &bed, .seed = (uint32_t)i + 1};
        mobs[i].binding = bed_binding(&bed, DOUBLE_TEXT, &options);
        ck_assert_int_eq(pthread_create(&t[i], NULL, mob_main, &mobs[i]), 0);
    }
    for (int i = 0; i < 8; i++) {
        pthread_join(t[i], NULL);
        total += mobs[i].ok + mobs[i].cancelled;
        ck_assert_uint_gt(mobs[i].ok, 0);
        ngd_binding_unref(mobs[i].binding);
    }
    ck_assert_uint_eq(total, 8 * 40 * MOB_ROUND);
    ck_assert_int_eq(bed_counted(&bed, NGD_M_QUEUE_DEPTH), 0);
    bed_close(&bed);
}
END_TEST

UNIT_MAIN("scheduler/sched", request_runs_and_its_times_are_told, requests_of_one_order_are_answered_in_their_order,
          orders_do_not_wait_for_one_another, short_replay_of_an_idle_slot_runs_on_the_submitting_thread,
          first_replay_of_a_binding_runs_on_a_worker_however_short_it_is,
          verified_replay_runs_on_a_worker_however_short_it_is, inline_run_takes_the_idle_slot_that_has_the_instance,
          nothing_runs_inline_while_the_slot_is_used_or_something_waits,
          worker_takes_what_was_queued_during_an_inline_run, replay_path_allocates_nothing,
          done_may_submit_the_next_request, many_threads_get_every_answer_once_and_in_order)
