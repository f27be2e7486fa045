/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests caps of device time on virtual time: a device with some slots, and a clock that jumps from event to event. Then
 * held requests and sequences in a scheduler whose clock the test sets.
 */
#include "scheduler/lineup/cap.h"
#include "tests/unit/toy_model.h"

#define SLOTS_MAX 8

struct job {
    struct ngd_sched_item item;
    ngd_nsec_t length; /* its actual run time */
    ngd_nsec_t started, ended;
};

struct device {
    const struct ngd_sched_policy *policy;
    struct ngd_caps caps;
    ngd_nsec_t now;
    uint32_t n_slots;
    struct job *slots[SLOTS_MAX];
    bool again; /* jobs that have ended are pushed again */
};

static void device_open(struct device *d, const char *policy, uint32_t slots)
{
    void *state;

    memset(d, 0, sizeof(*d));
    d->policy = ngd_sched_policy_find(policy);
    ck_assert_int_eq(d->policy->create(&state), NGD_OK);
    ngd_caps_init(&d->caps, d->policy, state);
    d->n_slots = slots;
    d->now = NGD_SEC;
}

static void device_close(struct device *d)
{
    d->policy->destroy(d->caps.state);
}

static void job_init(struct job *job, struct ngd_account *account, ngd_nsec_t length)
{
    memset(job, 0, sizeof(*job));
    ngd_sched_item_init(&job->item, NULL);
    job->item.account = account;
    job->item.cost = job->length = length;
    job->started = job->ended = -1;
}

static void account_init(struct device *d, struct ngd_account *account, uint32_t percent)
{
    ngd_account_init(account, NGD_WEIGHT_DEFAULT);
    ngd_caps_set(&d->caps, account, percent * d->n_slots, d->now);
}

static void fill_slots(struct device *d)
{
    for (uint32_t i = 0; i < d->n_slots; i++) {
        struct ngd_sched_item *item = d->slots[i] ? NULL : ngd_caps_pop(&d->caps, d->now);

        if (!item)
            continue;
        d->slots[i] = ngd_container_of(item, struct job, item);
        d->slots[i]->started = d->now;
    }
}

static void end_job(struct device *d, uint32_t slot)
{
    struct job *job = d->slots[slot];

    d->slots[slot] = NULL;
    job->ended = d->now;
    job->item.account->used += job->length;
    ngd_caps_charge(&d->caps, job->item.account, job->length - job->item.cost, d->now);
    if (d->again)
        ngd_caps_push(&d->caps, &job->item, d->now);
}

static bool is_full(const struct device *d)
{
    for (uint32_t i = 0; i < d->n_slots; i++)
        if (!d->slots[i])
            return false;
    return true;
}

/* Runs until no job is left, or the next event is later than `until`. */
static void run(struct device *d, ngd_nsec_t until)
{
    for (;;) {
        ngd_nsec_t next;
        int slot = -1;

        fill_slots(d);
        next = is_full(d) ? NGD_NSEC_NEVER : ngd_caps_next(&d->caps);
        for (uint32_t i = 0; i < d->n_slots; i++) {
            const struct job *job = d->slots[i];

            if (job && job->started + job->length <= next) {
                next = job->started + job->length;
                slot = (int)i;
            }
        }
        if (next == NGD_NSEC_NEVER || next > until)
            break;
        d->now = next;
        if (slot >= 0)
            end_job(d, (uint32_t)slot);
    }
    if (until != NGD_NSEC_NEVER)
        d->now = until;
}

/* Runs a backlog of a capped account for 20 s, and checks that it gets its part of the time, up to
 * the time of one job. */
static void check_part(const char *policy, uint32_t slots, uint32_t percent, ngd_nsec_t length, bool cost_known)
{
    enum { DEPTH = 20 };
    static struct job jobs[DEPTH];
    const ngd_nsec_t time = 20 * NGD_SEC;
    struct ngd_account account;
    ngd_nsec_t part, burst;
    struct device d;

    device_open(&d, policy, slots);
    account_init(&d, &account, percent);
    d.again = true;
    for (int i = 0; i < DEPTH; i++) {
        job_init(&jobs[i], &account, length);
        if (!cost_known)
            jobs[i].item.cost = 0;
        ngd_caps_push(&d.caps, &jobs[i].item, d.now);
    }
    run(&d, d.now + time);
    part = time / 100 * percent * slots;
    burst = NGD_CAP_BURST / 100 * percent * slots;
    ck_assert_int_le(account.used, part + burst + (ngd_nsec_t)slots * length);
    ck_assert_int_ge(account.used, part - (ngd_nsec_t)slots * length);
    device_close(&d);
}

START_TEST(capped_account_gets_its_part_and_no_more_though_the_device_is_idle)
{
    check_part("fair", 1, 25, NGD_MSEC, true);
    check_part("fair", 1, 1, NGD_MSEC, true);
    check_part("fair", 1, 99, 100 * NGD_USEC, true);
    check_part("fair", 1, 30, 700 * NGD_MSEC, true); /* one job takes more than the account can save up */
    check_part("fair", 4, 25, NGD_MSEC, true);
    check_part("fair", 3, 10, NGD_MSEC, false);
    check_part("fifo", 2, 40, NGD_MSEC, true);
}
END_TEST

START_TEST(what_a_cap_leaves_the_others_get)
{
    enum { DEPTH = 8 };
    static struct job jobs[2][DEPTH];
    struct ngd_account accounts[2];
    struct device d;

    device_open(&d, "fair", 2);
    account_init(&d, &accounts[0], 20);
    account_init(&d, &accounts[1], 0);
    d.again = true;
    for (int i = 0; i < 2 * DEPTH; i++) {
        job_init(&jobs[i % 2][i / 2], &accounts[i % 2], NGD_MSEC);
        ngd_caps_push(&d.caps, &jobs[i % 2][i / 2].item, d.now);
    }
    run(&d, d.now + 10 * NGD_SEC);
    ck_assert_int_le(llabs((long long)(accounts[0].used - 4 * NGD_SEC)), 50 * NGD_MSEC);
    ck_assert_int_le(llabs((long long)(accounts[1].used - 16 * NGD_SEC)), 50 * NGD_MSEC);
    device_close(&d);
}
END_TEST

START_TEST(account_that_was_idle_has_saved_up_a_burst_and_not_more)
{
    enum { N = 60 };
    static struct job jobs[N];
    struct ngd_account account;
    struct device d;
    uint32_t at_once = 0;

    device_open(&d, "fair", 1);
    account_init(&d, &account, 10);
    d.now += 1000 * NGD_SEC;
    for (int i = 0; i < N; i++) {
        job_init(&jobs[i], &account, NGD_MSEC);
        ngd_caps_push(&d.caps, &jobs[i].item, d.now);
    }
    run(&d, NGD_NSEC_NEVER);
    for (int i = 1; i < N; i++)
        at_once += jobs[i].started == jobs[i - 1].ended;
    ck_assert_uint_ge(at_once, 9); /* 10 ms, and the time that it earns meanwhile */
    ck_assert_uint_le(at_once, 12);
    ck_assert_int_ge(jobs[N - 1].ended - jobs[0].started, 480 * NGD_MSEC);
    device_close(&d);
}
END_TEST

/* Admitted jobs end in time, and refused jobs would have been late, up to the time of one job. */
START_TEST(deadlines_are_foretold)
{
    enum { N = 400 };
    static struct job jobs[N];
    struct ngd_account account;
    struct device d;
    uint32_t draw = 5, taken = 0, missed = 0;

    device_open(&d, "fair", 1);
    account_init(&d, &account, 30);
    for (int i = 0; i < N; i++) {
        struct ngd_sched_item *item = &jobs[i].item;
        const ngd_nsec_t left = d.slots[0] ? d.slots[0]->started + d.slots[0]->length - d.now : 0;

        draw = draw * 1664525u + 1013904223u;
        job_init(&jobs[i], &account, NGD_MSEC);
        item->deadline = d.now + 60 * NGD_MSEC;
        if (ngd_caps_late(&d.caps, item, d.now, &left, 1) <= 0) {
            ngd_caps_push(&d.caps, item, d.now);
            taken++;
        }
        run(&d, d.now + (draw >> 8) % (3 * NGD_MSEC));
    }
    run(&d, NGD_NSEC_NEVER);
    for (int i = 0; i < N; i++)
        missed += jobs[i].ended > jobs[i].item.deadline;
    ck_assert_uint_eq(missed, 0);
    /* In about 600 ms: 30 % of the time, the burst, and the jobs that are still queued at the end. */
    ck_assert_uint_ge(taken, 190);
    ck_assert_uint_le(taken, 260);
    device_close(&d);
}
END_TEST

static struct job *pop(struct device *d)
{
    struct ngd_sched_item *item = ngd_caps_pop(&d->caps, d->now);

    return item ? ngd_container_of(item, struct job, item) : NULL;
}

START_TEST(held_items_go_by_class_then_deadline_then_age_and_can_be_withdrawn)
{
    static struct job jobs[6], other;
    struct ngd_account account, open;
    struct device d;

    device_open(&d, "fair", 1);
    account_init(&d, &account, 50);
    account_init(&d, &open, 0);
    ngd_caps_charge(&d.caps, &account, NGD_SEC, d.now);
    for (int i = 0; i < 6; i++) {
        job_init(&jobs[i], &account, NGD_MSEC);
        jobs[i].item.priority = i == 4 ? NGD_PRIORITY_HIGH : NGD_PRIORITY_NORMAL;
        jobs[i].item.deadline = i == 3 ? d.now + 5 * NGD_SEC : NGD_NSEC_NEVER;
        ngd_caps_push(&d.caps, &jobs[i].item, d.now);
    }
    job_init(&other, &open, NGD_MSEC);
    ngd_caps_push(&d.caps, &other.item, d.now);
    ck_assert_ptr_eq(pop(&d), &other);
    ck_assert_ptr_null(pop(&d));
    ngd_caps_remove(&d.caps, &jobs[1].item, d.now);
    d.now = ngd_caps_next(&d.caps);
    ck_assert_int_ge(d.now, NGD_SEC + 1900 * NGD_MSEC); /* it owed 950 ms */
    ck_assert_ptr_eq(pop(&d), &jobs[4]);
    ck_assert_ptr_null(pop(&d)); /* that one has closed it again */
    d.now += 10 * NGD_MSEC;
    ck_assert_ptr_eq(pop(&d), &jobs[3]);
    ck_assert_ptr_eq(pop(&d), &jobs[0]);
    ngd_caps_set(&d.caps, &account, 0, d.now);
    ck_assert_ptr_eq(pop(&d), &jobs[2]);
    ck_assert_ptr_eq(pop(&d), &jobs[5]);
    ck_assert_ptr_null(pop(&d));
    ck_assert_int_eq(ngd_caps_next(&d.caps), NGD_NSEC_NEVER);
    ck_assert_uint_eq(d.caps.n_held, 0);
    device_close(&d);
}
END_TEST

/* One held item is in a less urgent class; another has no deadline, and the others have one. */
START_TEST(held_items_are_not_overtaken_for_ever)
{
    enum { N = 200 };
    static struct job jobs[N], low, patient;
    struct ngd_account account;
    bool low_ran = false, patient_ran = false;
    struct device d;

    device_open(&d, "fair", 1);
    account_init(&d, &account, 3);
    ngd_caps_charge(&d.caps, &account, NGD_SEC, d.now);
    job_init(&low, &account, 10 * NGD_MSEC);
    low.item.priority = NGD_PRIORITY_LOW;
    ngd_caps_push(&d.caps, &low.item, d.now);
    job_init(&patient, &account, 10 * NGD_MSEC);
    patient.item.priority = NGD_PRIORITY_HIGH;
    patient.item.arrival = d.now;
    ngd_caps_push(&d.caps, &patient.item, d.now);
    for (int i = 0; i < N && !(low_ran && patient_ran); i++) {
        struct job *job;

        job_init(&jobs[i], &account, 10 * NGD_MSEC);
        jobs[i].item.priority = NGD_PRIORITY_HIGH;
        jobs[i].item.arrival = d.now;
        jobs[i].item.deadline = d.now + NGD_SEC;
        ngd_caps_push(&d.caps, &jobs[i].item, d.now);
        d.now = ngd_caps_next(&d.caps);
        job = pop(&d);
        low_ran |= job == &low;
        patient_ran |= job == &patient;
    }
    ck_assert(low_ran);
    ck_assert(patient_ran);
    while (ngd_caps_next(&d.caps) != NGD_NSEC_NEVER) {
        d.now = ngd_caps_next(&d.caps);
        ck_assert_ptr_nonnull(pop(&d));
    }
    device_close(&d);
}
END_TEST

START_TEST(no_item_is_lost_or_repeated_whatever_is_held_withdrawn_and_let_go)
{
    enum { N = 200, ACCOUNTS = 4 };
    static struct job jobs[N];
    struct ngd_account accounts[ACCOUNTS];
    bool in[N] = {false};
    struct device d;
    uint32_t draw = 3, n_in = 0;

    device_open(&d, "fair", 1);
    for (uint32_t i = 0; i < ACCOUNTS; i++)
        account_init(&d, &accounts[i], i * 20);
    for (int step = 0; step < 20000; step++) {
        struct job *job;
        uint32_t i;

        draw = draw * 1664525u + 1013904223u;
        i = (draw >> 8) % N;
        d.now += (draw >> 8) % NGD_MSEC;
        if (draw >> 31) {
            job = pop(&d);
            if (job) {
                ck_assert(in[job - jobs]);
                in[job - jobs] = false;
                n_in--;
            }
        } else if (in[i]) {
            ngd_caps_remove(&d.caps, &jobs[i].item, d.now);
            in[i] = false;
            n_in--;
        } else {
            job_init(&jobs[i], &accounts[i % ACCOUNTS], (draw >> 8) % NGD_MSEC);
            jobs[i].item.uncapped = i % 7 == 0;
            ngd_caps_push(&d.caps, &jobs[i].item, d.now);
            in[i] = true;
            n_in++;
        }
    }
    d.caps.stopping = true;
    for (; n_in > 0; n_in--) {
        struct job *job = pop(&d);

        ck_assert_ptr_nonnull(job);
        ck_assert(in[job - jobs]);
        in[job - jobs] = false;
    }
    ck_assert_ptr_null(pop(&d));
    for (uint32_t i = 0; i < ACCOUNTS; i++)
        ck_assert_int_eq(accounts[i].cap.queued, 0);
    device_close(&d);
}
END_TEST

/* ---- in a scheduler ----------------------------------------------------------------------------------- */

static struct ngd_share *open_share(struct bed *bed, const char *name, uint32_t percent)
{
    struct ngd_share_params params;
    struct ngd_share *share;
    struct ngd_diag diag = {0};

    ngd_share_params_init(&params);
    params.device_percent = percent;
    if (ngd_share_open(bed->sched, name, &params, &share, &diag))
        ck_abort_msg("%s", diag.text);
    return share;
}

static void use_up(struct bed *bed, struct ngd_share *share, ngd_nsec_t time)
{
    ngd_share_charge(&bed->sched->queues[0], &share->accounts[0], time, 0);
}

static ngd_nsec_t held_of(const struct ngd_share *share)
{
    struct ngd_share_stats stats;

    ngd_share_stats(share, &stats);
    return stats.held;
}

START_TEST(request_beyond_the_cap_waits_while_the_device_is_idle_and_others_are_served)
{
    struct ngd_share *capped, *other;
    struct ngd_binding *binding;
    struct call mine, theirs, late, gone;
    struct bed bed;

    bed_open(&bed, 1, NGD_SEC); /* short ones run inline */
    binding = bed_binding(&bed, DOUBLE_TEXT, NULL);
    bed_warm(&bed, binding, 2, 3);
    ngd_clock_set_fake(NGD_SEC);
    capped = open_share(&bed, "uid:1000", 10);
    other = open_share(&bed, "uid:1001", 0);
    use_up(&bed, capped, 110 * NGD_MSEC); /* it may use 10: it owes as much as it earns in a second */
    call_init(&mine, binding, 2);
    call_init(&theirs, binding, 2);
    call_init(&gone, binding, 2);
    call_init(&late, binding, 2);
    mine.req.share = gone.req.share = late.req.share = capped;
    theirs.req.share = other;
    late.req.deadline = ngd_now() + NGD_SEC / 2;
    call_submit(&bed, &mine);
    call_submit(&bed, &gone);
    ck_assert_int_eq(ngd_sched_submit(bed.sched, &late.req, &late.diag), NGD_ERR_DEADLINE_EXCEEDED);
    call_run(&bed, &theirs);
    call_check(&theirs);
    ck_assert_uint_eq(atomic_load(&mine.answers), 0);
    ngd_sched_cancel(bed.sched, &gone.req);
    call_wait(&gone);
    ck_assert_int_eq(gone.status, NGD_ERR_CANCELLED);
    ngd_clock_set_fake(3 * NGD_SEC);
    call_init(&theirs, binding, 2);
    call_run(&bed, &theirs); /* wakes the worker, which sleeps by the real clock */
    call_wait(&mine);
    call_check(&mine);
    ck_assert_int_eq(held_of(capped), 2 * NGD_SEC);
    ck_assert_uint_eq(row_count(NGD_M_IDENTITY_HELD_SECONDS, "uid:1000"), 2000000);
    ngd_clock_set_fake(-1);
    ngd_share_unref(capped);
    ngd_share_unref(other);
    ngd_binding_unref(binding);
    bed_close(&bed);
}
END_TEST

START_TEST(worker_that_sleeps_wakes_when_what_is_held_may_go)
{
    struct ngd_share *capped;
    struct ngd_binding *binding;
    struct call call;
    struct bed bed;
    ngd_nsec_t open_at;

    bed_open(&bed, 2, 0);
    capped = open_share(&bed, "uid:1000", 50);
    binding = bed_binding(&bed, DOUBLE_TEXT, NULL);
    bed_warm(&bed, binding, 2, 1);
    use_up(&bed, capped, 110 * NGD_MSEC);
    open_at = ngd_cap_open_at(&capped->accounts[0]);
    call_init(&call, binding, 2);
    call.req.share = capped;
    call_run(&bed, &call);
    call_check(&call);
    ck_assert_int_ge(ngd_now(), open_at);
    use_up(&bed, capped, 1000 * NGD_SEC); /* stopping the scheduler does not wait for that */
    call_init(&call, binding, 2);
    call.req.share = capped;
    call_submit(&bed, &call);
    ngd_sched_stop(bed.sched);
    call_wait(&call);
    ck_assert_int_eq(call.status, NGD_ERR_CANCELLED);
    ngd_share_unref(capped);
    ngd_binding_unref(binding);
    bed_close(&bed);
}
END_TEST

static const int32_t prompt[] = {3, 17, 0, 9, 22, 5, 5, 12};

static void queue_open(struct toy *t, struct toy_seq *s, struct ngd_share *share, uint32_t n)
{
    const struct ngd_seq_params params = {
        .prompt = prompt, .n_prompt = n, .priority = NGD_PRIORITY_NORMAL, .share = share};
    struct ngd_diag diag = {0};

    memset(s, 0, sizeof(*s));
    gate_init(&s->answered);
    if (ngd_seq_open(t->model, &params, toy_done, s, &s->seq, &diag))
        ck_abort_msg("%s", diag.text);
}

static uint32_t answers(struct toy_seq *s)
{
    uint32_t n;

    ngd_mutex_lock(&s->answered.lock);
    n = s->answered.arrived;
    ngd_mutex_unlock(&s->answered.lock);
    return n;
}

START_TEST(sequences_beyond_the_cap_wait_and_the_others_of_their_model_go_on)
{
    static struct toy t;
    struct toy_seq mine, theirs, prompted, stopped, closed;
    struct ngd_share *capped, *other;

    toy_open(&t, 1);
    ngd_clock_set_fake(NGD_SEC);
    capped = open_share(&t.bed, "uid:1000", 10);
    other = open_share(&t.bed, "uid:1001", 0);
    queue_open(&t, &mine, capped, 4);
    toy_wait(&mine);
    toy_ok(&mine);
    queue_open(&t, &theirs, other, 4);
    toy_wait(&theirs);
    ck_assert_int_eq(theirs.token, toy_next(&t, prompt, 4));
    use_up(&t.bed, capped, 120 * NGD_MSEC);
    toy_queue_step(&mine, prompt[4]);
    queue_open(&t, &prompted, capped, 5);
    queue_open(&t, &stopped, capped, 6);
    queue_open(&t, &closed, capped, 6);
    for (int i = 4; i < 6; i++)
        toy_step(&theirs, prompt[i]);
    ck_assert_int_eq(theirs.token, toy_next(&t, prompt, 6));
    ck_assert_uint_eq(answers(&mine), 1);
    ck_assert_uint_eq(answers(&prompted), 0);
    ngd_seq_cancel(stopped.seq);
    toy_wait(&stopped);
    ck_assert_int_eq(stopped.status, NGD_ERR_CANCELLED);
    ngd_seq_close(closed.seq);
    toy_wait(&closed);
    ck_assert_int_eq(closed.status, NGD_ERR_CANCELLED);
    ngd_clock_set_fake(10 * NGD_SEC);
    toy_step(&theirs, prompt[6]);
    toy_wait(&mine);
    toy_wait(&prompted);
    toy_ok(&mine);
    toy_ok(&prompted);
    ngd_clock_set_fake(-1);
    ck_assert_int_eq(mine.token, toy_next(&t, prompt, 5));
    ck_assert_int_eq(prompted.token, toy_next(&t, prompt, 5));
    ngd_seq_close(mine.seq);
    ngd_seq_close(theirs.seq);
    ngd_seq_close(prompted.seq);
    ngd_seq_close(stopped.seq);
    ngd_share_unref(capped);
    ngd_share_unref(other);
    toy_close(&t);
}
END_TEST

/* If all of a model's sequences are held, the model waits in the queue, and only time makes it go on. */
START_TEST(model_whose_sequences_are_all_held_goes_on_in_time)
{
    static struct toy t;
    struct toy_seq a;
    struct ngd_share *capped;
    ngd_nsec_t open_at;

    toy_open(&t, 2);
    capped = open_share(&t.bed, "uid:1000", 50);
    queue_open(&t, &a, capped, 4);
    toy_wait(&a);
    use_up(&t.bed, capped, 110 * NGD_MSEC);
    open_at = ngd_cap_open_at(&capped->accounts[0]);
    toy_step(&a, prompt[4]);
    ck_assert_int_ge(ngd_now(), open_at);
    ck_assert_int_eq(a.token, toy_next(&t, prompt, 5));
    ngd_seq_close(a.seq);
    ngd_share_unref(capped);
    toy_close(&t);
}
END_TEST

START_TEST(account_that_has_opened_is_open_when_it_is_looked_at_again)
{
    struct ngd_account account;
    struct device d;
    struct job job;

    device_open(&d, "fair", 1);
    account_init(&d, &account, 11);
    job_init(&job, &account, NGD_CAP_BURST / 100 * 11); /* exactly what its cap allows */
    ngd_caps_push(&d.caps, &job.item, d.now);
    ck_assert_ptr_eq(ngd_caps_pop(&d.caps, d.now), &job.item);
    ck_assert_int_gt(ngd_cap_open_at(&account), d.now);
    d.now = ngd_cap_open_at(&account);
    ngd_caps_charge(&d.caps, &account, 0, d.now);
    ck_assert_int_le(ngd_cap_open_at(&account), d.now);
    device_close(&d);
}
END_TEST

UNIT_MAIN("scheduler/cap", capped_account_gets_its_part_and_no_more_though_the_device_is_idle,
          what_a_cap_leaves_the_others_get, account_that_was_idle_has_saved_up_a_burst_and_not_more,
          account_that_has_opened_is_open_when_it_is_looked_at_again, deadlines_are_foretold,
          held_items_go_by_class_then_deadline_then_age_and_can_be_withdrawn, held_items_are_not_overtaken_for_ever,
          no_item_is_lost_or_repeated_whatever_is_held_withdrawn_and_let_go,
          request_beyond_the_cap_waits_while_the_device_is_idle_and_others_are_served,
          worker_that_sleeps_wakes_when_what_is_held_may_go,
          sequences_beyond_the_cap_wait_and_the_others_of_their_model_go_on,
          model_whose_sequences_are_all_held_goes_on_in_time)
