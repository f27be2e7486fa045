/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests policies on virtual time: a device with some slots that runs items of given lengths, and a clock that jumps
 * from event to event. Nothing sleeps, and no thread is started.
 */
#include "base/mem.h"
#include "scheduler/lineup/policy.h"
#include "tests/unit/unit.h"
#include <math.h>
#include <string.h>

#define SLOTS_MAX 8

struct job {
    struct ngd_sched_item item;
    ngd_nsec_t length; /* its actual run time */
    ngd_nsec_t started, ended;
};

struct bed {
    const struct ngd_sched_policy *policy;
    void *state;
    ngd_nsec_t now;
    uint32_t n_slots;
    struct job *slots[SLOTS_MAX];
    uint32_t queued;
    void (*ended)(struct bed *bed, struct job *job); /* NULL: nothing more */
};

static void bed_open(struct bed *bed, const char *policy, uint32_t slots)
{
    memset(bed, 0, sizeof(*bed));
    bed->policy = ngd_sched_policy_find(policy);
    ck_assert_ptr_nonnull(bed->policy);
    ck_assert_int_eq(bed->policy->create(&bed->state), NGD_OK);
    bed->n_slots = slots;
    bed->now = NGD_SEC;
}

static void bed_close(struct bed *bed)
{
    bed->policy->destroy(bed->state);
}

static void job_init(struct job *job, struct ngd_account *account, ngd_nsec_t length)
{
    memset(job, 0, sizeof(*job));
    ngd_sched_item_init(&job->item, NULL);
    job->item.account = account;
    job->item.cost = job->length = length;
    job->started = job->ended = -1;
}

static void push(struct bed *bed, struct job *job)
{
    job->item.arrival = bed->now;
    bed->policy->push(bed->state, &job->item, bed->now);
    bed->queued++;
}

static void fill_slots(struct bed *bed)
{
    for (uint32_t i = 0; i < bed->n_slots; i++) {
        struct ngd_sched_item *item = bed->slots[i] ? NULL : bed->policy->pop(bed->state, bed->now);

        if (!item)
            continue;
        bed->queued--;
        bed->slots[i] = ngd_container_of(item, struct job, item);
        bed->slots[i]->started = bed->now;
    }
}

static void end_job(struct bed *bed, uint32_t slot)
{
    struct job *job = bed->slots[slot];

    bed->slots[slot] = NULL;
    bed->now = job->ended = job->started + job->length;
    job->item.account->used += job->length;
    if (bed->policy->charge)
        bed->policy->charge(bed->state, job->item.account, job->length - job->item.cost);
    if (bed->ended)
        bed->ended(bed, job);
}

/* Runs until no job is left, or the next event is later than `until`. */
static void run(struct bed *bed, ngd_nsec_t until)
{
    for (;;) {
        ngd_nsec_t next = NGD_NSEC_NEVER;
        uint32_t slot = 0;

        fill_slots(bed);
        for (uint32_t i = 0; i < bed->n_slots; i++) {
            if (bed->slots[i] && bed->slots[i]->started + bed->slots[i]->length < next) {
                next = bed->slots[i]->started + bed->slots[i]->length;
                slot = i;
            }
        }
        if (next == NGD_NSEC_NEVER || next > until)
            break;
        end_job(bed, slot);
    }
    if (until != NGD_NSEC_NEVER)
        bed->now = until;
}

static void push_again(struct bed *bed, struct job *job)
{
    push(bed, job);
}

static double share(struct ngd_account *accounts, int n, int i)
{
    double sum = 0;

    for (int k = 0; k < n; k++)
        sum += (double)accounts[k].used;
    return (double)accounts[i].used / sum;
}

/* ---- shares -------------------------------------------------------------------------------------------- */

/* Runs three accounts that always have `depth` jobs waiting for 30 s. Each account's jobs have their own length. */
static void check_shares(uint32_t slots, const ngd_nsec_t *lengths, bool costs_known)
{
    enum { DEPTH = 12 };
    static const uint32_t weights[3] = {100, 200, 400};
    struct ngd_account accounts[3];
    static struct job jobs[3][DEPTH];
    struct bed bed;

    bed_open(&bed, "fair", slots);
    bed.ended = push_again;
    for (int a = 0; a < 3; a++) {
        ngd_account_init(&accounts[a], weights[a]);
        for (int j = 0; j < DEPTH; j++) {
            job_init(&jobs[a][j], &accounts[a], lengths[a]);
            if (!costs_known)
                jobs[a][j].item.cost = 0;
            push(&bed, &jobs[a][j]);
        }
    }
    run(&bed, bed.now + 30 * NGD_SEC);
    for (int a = 0; a < 3; a++)
        ck_assert_double_le(fabs(share(accounts, 3, a) / (weights[a] / 700.0) - 1), 0.01);
    bed_close(&bed);
}

START_TEST(backlogged_accounts_share_the_device_by_their_weights)
{
    check_shares(1, (const ngd_nsec_t[]){NGD_MSEC, NGD_MSEC, NGD_MSEC}, true);
    check_shares(4, (const ngd_nsec_t[]){NGD_MSEC, NGD_MSEC, NGD_MSEC}, true);
}
END_TEST

START_TEST(shares_are_of_time_and_not_of_replays)
{
    check_shares(1, (const ngd_nsec_t[]){100 * NGD_USEC, 7 * NGD_MSEC, NGD_MSEC}, true);
    check_shares(3, (const ngd_nsec_t[]){9 * NGD_MSEC, 30 * NGD_USEC, NGD_MSEC}, true);
}
END_TEST

START_TEST(shares_hold_when_costs_are_known_only_afterwards)
{
    check_shares(1, (const ngd_nsec_t[]){100 * NGD_USEC, 7 * NGD_MSEC, NGD_MSEC}, false);
    check_shares(2, (const ngd_nsec_t[]){NGD_MSEC, 5 * NGD_MSEC, 2 * NGD_MSEC}, false);
}
END_TEST

/* A client that asks for little gets it after at most the replay that runs and one more of the flood's. */
START_TEST(a_light_account_waits_for_one_replay_beside_a_flooding_one)
{
    struct ngd_account flood, light;
    static struct job jobs[200], own;
    struct bed bed;

    bed_open(&bed, "fair", 1);
    bed.ended = NULL;
    ngd_account_init(&flood, 100);
    ngd_account_init(&light, 100);
    for (int i = 0; i < 200; i++) {
        job_init(&jobs[i], &flood, NGD_MSEC);
        push(&bed, &jobs[i]);
    }
    for (int i = 0; i < 50; i++) {
        ngd_nsec_t asked;

        run(&bed, bed.now + 3 * NGD_MSEC + 300 * NGD_USEC);
        asked = bed.now;
        job_init(&own, &light, 100 * NGD_USEC);
        push(&bed, &own);
        run(&bed, bed.now + 2 * NGD_MSEC);
        ck_assert_int_ge(own.started, asked);
        ck_assert_int_le(own.started - asked, NGD_MSEC);
    }
    run(&bed, NGD_NSEC_NEVER);
    bed_close(&bed);
}
END_TEST

START_TEST(idle_time_is_not_saved_up)
{
    enum { N = 400 };
    struct ngd_account busy, idle;
    static struct job a[N], b[N];
    uint32_t early = 0;
    struct bed bed;

    bed_open(&bed, "fair", 1);
    ngd_account_init(&busy, 100);
    ngd_account_init(&idle, 100);
    for (int i = 0; i < N; i++) {
        job_init(&a[i], &busy, NGD_MSEC);
        push(&bed, &a[i]);
    }
    run(&bed, bed.now + 100 * NGD_MSEC);
    for (int i = 0; i < N; i++) {
        job_init(&b[i], &idle, NGD_MSEC);
        push(&bed, &b[i]);
    }
    run(&bed, bed.now + 100 * NGD_MSEC);
    for (int i = 0; i < N; i++)
        early += b[i].started >= 0;
    /* It gets half of the time, and a little more because it was away; without the bound it would get all. */
    ck_assert_uint_ge(early, 50);
    ck_assert_uint_le(early, 56);
    run(&bed, NGD_NSEC_NEVER);
    bed_close(&bed);
}
END_TEST

/* Inline runs are charged but never queued. */
START_TEST(time_that_nobody_else_wanted_is_owed_to_nobody)
{
    enum { N = 100 };
    static struct job a[N], b[N];
    struct ngd_account old, fresh;
    const ngd_nsec_t none = 0;
    struct bed bed;

    bed_open(&bed, "fair", 1);
    bed.ended = push_again;
    ngd_account_init(&old, 100);
    ngd_account_init(&fresh, 100);
    for (int i = 0; i < 100000; i++)
        bed.policy->charge(bed.state, &old, 100 * NGD_USEC);
    /* Ten seconds of its own do not cost it a deadline. */
    job_init(&a[0], &old, NGD_MSEC);
    a[0].item.deadline = bed.now + 2 * NGD_MSEC;
    ck_assert_int_le(bed.policy->late(bed.state, &a[0].item, bed.now, &none, 1), 0);
    for (int i = 0; i < N; i++) {
        job_init(&b[i], &fresh, NGD_MSEC);
        push(&bed, &b[i]);
        job_init(&a[i], &old, NGD_MSEC);
        push(&bed, &a[i]);
    }
    run(&bed, bed.now + NGD_SEC);
    ck_assert_double_le(fabs((double)old.used / (double)fresh.used - 1), 0.02);
    bed_close(&bed);
}
END_TEST

/* ---- classes, deadlines --------------------------------------------------------------------------------- */

START_TEST(a_more_urgent_class_goes_first_and_the_others_do_not_starve)
{
    struct ngd_account high, low;
    static struct job urgent[10], patient[20];
    struct bed bed;
    uint32_t served = 0;

    bed_open(&bed, "fair", 1);
    bed.ended = NULL;
    ngd_account_init(&high, 1);
    ngd_account_init(&low, 1000);
    for (int i = 0; i < 20; i++) {
        job_init(&patient[i], &low, 10 * NGD_MSEC);
        patient[i].item.priority = NGD_PRIORITY_LOW;
        push(&bed, &patient[i]);
    }
    for (int i = 0; i < 10; i++) {
        job_init(&urgent[i], &high, 10 * NGD_MSEC);
        urgent[i].item.priority = NGD_PRIORITY_HIGH;
        push(&bed, &urgent[i]);
    }
    run(&bed, bed.now + 100 * NGD_MSEC);
    for (int i = 0; i < 10; i++)
        ck_assert_int_ge(urgent[i].ended, 0);
    /* From now on urgent jobs always come. */
    bed.ended = push_again;
    for (int i = 0; i < 10; i++)
        push(&bed, &urgent[i]);
    for (int i = 0; i < 20; i++)
        served += patient[i].started >= 0;
    ck_assert_uint_le(served, 1);
    run(&bed, bed.now + 2 * NGD_SEC);
    served = 0;
    for (int i = 0; i < 20; i++)
        served += patient[i].started >= 0;
    /* One turn in two to three tenths of a second. */
    ck_assert_uint_ge(served, 6);
    ck_assert_uint_le(served, 11);
    bed_close(&bed);
}
END_TEST

START_TEST(the_earliest_deadline_of_an_account_goes_first)
{
    static const ngd_nsec_t deadlines[] = {50, 10, NGD_NSEC_NEVER, 30, 10, NGD_NSEC_NEVER};
    static const int order[] = {1, 4, 3, 0, 2, 5}; /* equal ones in the order of arrival */
    struct ngd_account account;
    struct job jobs[6];
    struct bed bed;

    bed_open(&bed, "fair", 1);
    ngd_account_init(&account, 100);
    for (int i = 0; i < 6; i++) {
        job_init(&jobs[i], &account, NGD_MSEC);
        jobs[i].item.deadline = deadlines[i];
        push(&bed, &jobs[i]);
    }
    for (int i = 0; i < 6; i++) {
        struct ngd_sched_item *item = bed.policy->pop(bed.state, bed.now);

        ck_assert_ptr_eq(item, &jobs[order[i]].item);
    }
    ck_assert_ptr_null(bed.policy->pop(bed.state, bed.now));
    bed_close(&bed);
}
END_TEST

/* An account whose jobs always have tight deadlines, beside a calm account that always waits. */
START_TEST(one_accounts_deadlines_do_not_take_anothers_share)
{
    enum { N = 1500 };
    static struct job a[N], b[2];
    struct ngd_account hasty, calm;
    const ngd_nsec_t none = 0;
    uint32_t refused = 0;
    struct bed bed;

    bed_open(&bed, "fair", 1);
    ngd_account_init(&hasty, 100);
    ngd_account_init(&calm, 100);
    for (int i = 0; i < 2; i++)
        job_init(&b[i], &calm, NGD_MSEC);
    for (int i = 0; i < N; i++) {
        for (int k = 0; k < 2; k++) {
            if (b[k].started < 0 ? i == 0 : b[k].ended >= b[k].started) {
                b[k].started = b[k].ended = -1;
                push(&bed, &b[k]);
            }
        }
        job_init(&a[i], &hasty, NGD_MSEC);
        a[i].item.deadline = bed.now + 4 * NGD_MSEC;
        if (bed.policy->late(bed.state, &a[i].item, bed.now, &none, 1) > 0)
            refused++;
        else
            push(&bed, &a[i]);
        run(&bed, bed.now + NGD_MSEC);
        for (int k = 0; k <= i; k++)
            ck_assert(a[k].ended < 0 || a[k].ended <= a[k].item.deadline);
    }
    ck_assert_uint_gt(refused, N / 3);
    /* The lead of the hasty account is bounded, however long the test runs. */
    ck_assert_int_le(hasty.used - calm.used, 60 * NGD_MSEC);
    run(&bed, NGD_NSEC_NEVER);
    bed_close(&bed);
}
END_TEST

/* Admitted jobs end in time, on a device with two slots and with known lengths. */
START_TEST(what_was_taken_in_ends_in_time)
{
    enum { N = 2000 };
    static struct job jobs[N];
    struct ngd_account accounts[3];
    uint32_t draw = 17, taken = 0;
    struct bed bed;

    bed_open(&bed, "fair", 2);
    for (int i = 0; i < 3; i++)
        ngd_account_init(&accounts[i], 100);
    for (int i = 0; i < N; i++) {
        ngd_nsec_t left[2];

        draw = draw * 1664525u + 1013904223u;
        job_init(&jobs[i], &accounts[i % 3], (draw >> 8) % (2 * NGD_MSEC) + 1);
        jobs[i].item.deadline = bed.now + (draw >> 3) % (30 * NGD_MSEC);
        for (int k = 0; k < 2; k++)
            left[k] = bed.slots[k] ? bed.slots[k]->started + bed.slots[k]->length - bed.now : 0;
        if (bed.policy->late(bed.state, &jobs[i].item, bed.now, left, 2) <= 0) {
            push(&bed, &jobs[i]);
            taken++;
        }
        run(&bed, bed.now + (draw >> 7) % NGD_MSEC);
    }
    run(&bed, NGD_NSEC_NEVER);
    for (int i = 0; i < N; i++)
        ck_assert(jobs[i].ended <= jobs[i].item.deadline);
    ck_assert_uint_gt(taken, N / 3);
    ck_assert_uint_lt(taken, N);
    bed_close(&bed);
}
END_TEST

/* ---- every policy ---------------------------------------------------------------------------------------- */

/* Makes random pushes, pops and removals: each pushed item comes out once, or was removed, and costs add up. */
START_TEST(no_policy_loses_or_repeats_an_item)
{
    enum { N = 40, ACCOUNTS = 5 };
    for (const struct ngd_sched_policy *const *p = ngd_sched_policies(); *p; p++) {
        struct ngd_account accounts[ACCOUNTS];
        static struct job jobs[N];
        bool in[N] = {false};
        uint32_t draw = 5, n_in = 0;
        struct bed bed;

        bed_open(&bed, (*p)->name, 1);
        for (uint32_t i = 0; i < ACCOUNTS; i++)
            ngd_account_init(&accounts[i], 1 + 100 * i);
        for (int step = 0; step < 20000; step++) {
            uint32_t i;

            draw = draw * 1664525u + 1013904223u;
            i = (draw >> 16) % N;
            bed.now += draw % NGD_MSEC;
            if (in[i] && draw & 1) {
                bed.policy->remove(bed.state, &jobs[i].item);
                n_in -= in[i];
                in[i] = false;
            } else if (!in[i]) {
                job_init(&jobs[i], &accounts[i % ACCOUNTS], draw % 5000);
                jobs[i].item.priority = (ngd_priority_t)(draw % NGD_PRIORITIES);
                jobs[i].item.deadline = draw & 2 ? NGD_NSEC_NEVER : bed.now + draw % 1000;
                push(&bed, &jobs[i]);
                in[i] = true;
                n_in++;
            } else {
                struct ngd_sched_item *item = bed.policy->pop(bed.state, bed.now);
                ptrdiff_t k = ngd_container_of(item, struct job, item) - jobs;

                ck_assert(in[k]);
                in[k] = false;
                n_in--;
            }
            if (n_in == 0)
                ck_assert_ptr_null(bed.policy->pop(bed.state, bed.now));
        }
        while (n_in--)
            ck_assert_ptr_nonnull(bed.policy->pop(bed.state, bed.now));
        ck_assert_ptr_null(bed.policy->pop(bed.state, bed.now));
        job_init(&jobs[0], &accounts[0], 1);
        ck_assert_int_eq(bed.policy->ahead(bed.state, &jobs[0].item), 0);
        bed_close(&bed);
    }
}
END_TEST

/* If no other item comes, an item waits as long as `ahead` predicts when it is pushed. */
START_TEST(the_time_ahead_foretells_the_start)
{
    for (const struct ngd_sched_policy *const *p = ngd_sched_policies(); *p; p++) {
        uint32_t draw = 11;

        for (int round = 0; round < 200; round++) {
            enum { N = 60, ACCOUNTS = 4 };
            struct ngd_account accounts[ACCOUNTS];
            static struct job jobs[N], last;
            ngd_nsec_t ahead, waited;
            struct bed bed;

            bed_open(&bed, (*p)->name, 1);
            for (uint32_t i = 0; i < ACCOUNTS; i++)
                ngd_account_init(&accounts[i], 100 * (i + 1));
            for (int i = 0; i < N; i++) {
                draw = draw * 1664525u + 1013904223u;
                job_init(&jobs[i], &accounts[(draw >> 16) % ACCOUNTS], 50 * NGD_USEC + (draw >> 12) % (100 * NGD_USEC));
                push(&bed, &jobs[i]);
            }
            job_init(&last, &accounts[round % ACCOUNTS], 75 * NGD_USEC);
            ahead = bed.policy->ahead(bed.state, &last.item);
            push(&bed, &last);
            waited = -bed.now;
            run(&bed, NGD_NSEC_NEVER);
            waited += last.started;
            /* Within the length of an item for each account. */
            ck_assert_int_le(llabs((long long)(waited - ahead)), ACCOUNTS * 150 * NGD_USEC);
            bed_close(&bed);
        }
    }
}
END_TEST

UNIT_MAIN("scheduler/policy", backlogged_accounts_share_the_device_by_their_weights,
          shares_are_of_time_and_not_of_replays, shares_hold_when_costs_are_known_only_afterwards,
          a_light_account_waits_for_one_replay_beside_a_flooding_one, idle_time_is_not_saved_up,
          time_that_nobody_else_wanted_is_owed_to_nobody, a_more_urgent_class_goes_first_and_the_others_do_not_starve,
          the_earliest_deadline_of_an_account_goes_first, one_accounts_deadlines_do_not_take_anothers_share,
          what_was_taken_in_ends_in_time, no_policy_loses_or_repeats_an_item, the_time_ahead_foretells_the_start)
