/* SPDX-License-Identifier: Apache-2.0 */
/* Tests how long prompts delay decode steps, on virtual time: a device with given times of calls. */
#include "scheduler/model/prompt_pace.h"
#include "tests/unit/unit.h"

#define MANY 4000 /* steps */

/* A prompt's chunks as a list of calls between which the device can stop; the model's turns as batch.c takes them. */
struct world {
    struct ngd_pace pace;
    ngd_nsec_t now, step; /* of a decode step */
    ngd_nsec_t call;      /* of each call of a chunk of 256 rows */
    ngd_nsec_t fixed;     /* the part of it that does not depend on the rows */
    uint32_t calls;       /* of a chunk */
    bool pauses;
    /* The chunk under way. */
    uint32_t left, rows;
    ngd_nsec_t longest;
    /* What happened. */
    ngd_nsec_t slices, delays[MANY];
    uint64_t prompt_rows;
};

static void world_open(struct world *w, uint32_t percent)
{
    *w = (struct world){.step = 20 * NGD_MSEC, .call = 4 * NGD_MSEC, .calls = 100, .pauses = true, .now = NGD_SEC};
    ngd_pace_init(&w->pace, percent, 256);
}

static ngd_nsec_t call_time(const struct world *w)
{
    return w->fixed + (w->call - w->fixed) * w->rows / 256;
}

/* Runs calls until the next one would exceed the slice, at least one. */
static ngd_nsec_t run_slice(struct world *w, ngd_nsec_t slice)
{
    const ngd_nsec_t call = call_time(w);
    ngd_nsec_t t = 0;

    do {
        t += call;
        w->left--;
    } while (w->left && (!w->pauses || t + call <= slice));
    w->longest = w->pauses ? call : t;
    return t;
}

static ngd_nsec_t turn_of_prompt(struct world *w, bool steps_wait)
{
    ngd_nsec_t t;

    if (!w->left) {
        w->left = w->calls;
        w->rows = w->pace.rows;
    }
    t = run_slice(w, ngd_pace_slice(&w->pace, w->now, steps_wait));
    ngd_pace_sliced(&w->pace, t);
    w->now += t;
    w->slices += t;
    if (!w->left) {
        ngd_pace_chunk(&w->pace, w->now, w->rows, w->longest);
        w->prompt_rows += w->rows;
    }
    return t;
}

/* Runs a generation beside an endless prompt, so that a step always waits. delays: the time between two steps. */
static void run_generation(struct world *w)
{
    for (uint32_t i = 0; i < MANY; i++) {
        (void)ngd_pace_may_run(&w->pace, true); /* the step's own turn */
        w->now += w->step;
        ngd_pace_stepped(&w->pace, w->now, w->step);
        w->delays[i] = ngd_pace_may_run(&w->pace, true) ? turn_of_prompt(w, true) : 0;
    }
}

static ngd_nsec_t worst(const struct world *w, uint32_t from)
{
    ngd_nsec_t most = 0;

    for (uint32_t i = from; i < MANY; i++)
        most = w->delays[i] > most ? w->delays[i] : most;
    return most;
}

START_TEST(no_step_waits_longer_than_its_share_where_the_device_can_stop)
{
    static const uint32_t percents[] = {20, 40, 100, 300};
    static struct world w;

    for (int i = 0; i < 4; i++) {
        world_open(&w, percents[i]);
        run_generation(&w);
        ck_assert_int_le(worst(&w, 0), w.step * percents[i] / 100 + 1);
        /* The prompt also uses at least half of its share; whole calls do not allow more. */
        ck_assert_int_ge(w.slices, (ngd_nsec_t)MANY * w.step * percents[i] / 100 / 2);
        ck_assert_uint_gt(w.prompt_rows, 0);
    }
}
END_TEST

START_TEST(calls_that_are_too_long_get_fewer_rows_until_they_fit)
{
    static struct world w;

    world_open(&w, 40);
    w.call = 50 * NGD_MSEC; /* as attention's over a long context */
    w.fixed = NGD_MSEC;
    run_generation(&w);
    ck_assert_int_le(worst(&w, 1500), w.step * 40 / 100 + 1);
    ck_assert_uint_lt(w.pace.rows, 64);
    ck_assert_uint_ge(w.pace.rows, 8);
}
END_TEST

START_TEST(devices_that_cannot_stop_get_chunks_that_fit)
{
    static struct world w;

    world_open(&w, 40);
    w.pauses = false;
    w.calls = 10; /* 40 ms for 256 rows, beside steps of 20 */
    run_generation(&w);
    ck_assert_int_le(worst(&w, 500), w.step * 40 / 100 + 1);
    ck_assert_int_ge(w.slices, (ngd_nsec_t)MANY * w.step * 40 / 100 / 4);
}
END_TEST

START_TEST(what_fewer_rows_do_not_help_keeps_its_rows_and_is_paid_for_by_waiting)
{
    static struct world w;

    world_open(&w, 40);
    w.call = 15 * NGD_MSEC; /* all of it fixed, and more than the share of 8 */
    w.fixed = 15 * NGD_MSEC;
    w.calls = 8;
    run_generation(&w);
    ck_assert_uint_ge(w.pace.rows, 64);
    ck_assert_int_le(worst(&w, 0), 15 * NGD_MSEC);
    ck_assert_int_le(w.slices, (ngd_nsec_t)MANY * w.step * 40 / 100 + 100 * NGD_MSEC);
}
END_TEST

START_TEST(one_stretch_of_a_second_does_not_stop_prompts_for_long)
{
    static struct world w;
    uint32_t steps = 0;

    world_open(&w, 40);
    ngd_pace_stepped(&w.pace, w.now, w.step);
    ck_assert(ngd_pace_may_run(&w.pace, true));
    ngd_pace_sliced(&w.pace, NGD_SEC);
    while (!ngd_pace_may_run(&w.pace, true)) {
        w.now += w.step;
        ngd_pace_stepped(&w.pace, w.now, w.step);
        ck_assert_uint_lt(++steps, 20);
    }
    ck_assert_uint_gt(steps, 5);
}
END_TEST

START_TEST(steps_that_come_again_after_their_client_has_thought_wait_for_one_slice)
{
    static struct world w;

    world_open(&w, 40);
    for (int i = 0; i < 1000; i++) {
        ngd_nsec_t ready;

        w.now += w.step;
        ngd_pace_stepped(&w.pace, w.now, w.step);
        ready = w.now + (i * 37 % 23 + 1) * NGD_MSEC; /* the client's next step */
        while (w.now < ready) {
            ck_assert(ngd_pace_may_run(&w.pace, false));
            turn_of_prompt(&w, false);
        }
        ck_assert_int_le(w.now - ready, w.step * 40 / 100 + 1);
    }
}
END_TEST

START_TEST(nobody_steps_so_chunks_are_whole_and_slices_as_long_as_others_can_bear)
{
    static struct world w;

    world_open(&w, 40);
    w.pace.rows = 16;
    ngd_pace_stepped(&w.pace, w.now, w.step);
    w.now += 2 * NGD_SEC;
    ck_assert(ngd_pace_may_run(&w.pace, false));
    ck_assert_int_eq(ngd_pace_slice(&w.pace, w.now, false), 20 * NGD_MSEC);
    w.left = 0;
    for (int i = 0; i < 200; i++)
        turn_of_prompt(&w, false);
    ck_assert_uint_eq(w.pace.rows, 256);
}
END_TEST

START_TEST(without_a_bound_chunks_run_in_one_piece)
{
    static struct world w;

    world_open(&w, 0);
    for (int i = 0; i < 10; i++) {
        ngd_pace_stepped(&w.pace, w.now, w.step);
        ck_assert(ngd_pace_may_run(&w.pace, true));
        ck_assert_int_eq(ngd_pace_slice(&w.pace, w.now, true), NGD_NSEC_NEVER);
        ck_assert_int_eq(turn_of_prompt(&w, true), w.call * w.calls);
    }
}
END_TEST

UNIT_MAIN("scheduler/pace", no_step_waits_longer_than_its_share_where_the_device_can_stop,
          calls_that_are_too_long_get_fewer_rows_until_they_fit, devices_that_cannot_stop_get_chunks_that_fit,
          what_fewer_rows_do_not_help_keeps_its_rows_and_is_paid_for_by_waiting,
          one_stretch_of_a_second_does_not_stop_prompts_for_long,
          steps_that_come_again_after_their_client_has_thought_wait_for_one_slice,
          nobody_steps_so_chunks_are_whole_and_slices_as_long_as_others_can_bear,
          without_a_bound_chunks_run_in_one_piece)
