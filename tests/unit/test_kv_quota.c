/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the quota of KV blocks of an identity: refusals past the limit, exact counts, blocks given back by a close. */
#include "tests/unit/toy_model.h"

static const int32_t prompt[TOY_CONTEXT] = {3, 17, 0, 9, 22, 5, 5, 12, 20, 1, 8, 14, 2};

struct quota {
    struct toy t;
    struct ngd_share *limited, *other;
};

static struct ngd_share *open_share(struct toy *t, const char *name, uint64_t limit)
{
    struct ngd_share_params params;
    struct ngd_share *share;
    struct ngd_diag diag = {0};

    ngd_share_params_init(&params);
    params.kv_limit = limit;
    if (ngd_share_open(t->bed.sched, name, &params, &share, &diag))
        ck_abort_msg("%s", diag.text);
    return share;
}

static void quota_open(struct quota *q, uint64_t limit, uint32_t blocks, bool preempt)
{
    toy_bed(&q->t, 1);
    q->t.blocks = blocks;
    q->t.preempt = preempt;
    toy_create(&q->t);
    q->limited = open_share(&q->t, "uid:1000", limit);
    q->other = open_share(&q->t, "uid:1001", 0);
}

static uint64_t counted(const struct ngd_share *share)
{
    struct ngd_share_stats stats;

    ngd_share_stats(share, &stats);
    return stats.kv_blocks;
}

static void quota_close(struct quota *q)
{
    ck_assert_uint_eq(counted(q->limited), 0);
    ck_assert_uint_eq(counted(q->other), 0);
    ck_assert_uint_eq(row_count(NGD_M_IDENTITY_KV_BLOCKS, "uid:1000"), 0);
    ngd_share_unref(q->limited);
    ngd_share_unref(q->other);
    toy_close(&q->t);
}

static ngd_status_t try_open(struct quota *q, struct toy_seq *s, struct ngd_share *share, uint32_t n,
                             struct ngd_diag *diag)
{
    const struct ngd_seq_params params = {
        .prompt = prompt, .n_prompt = n, .priority = NGD_PRIORITY_NORMAL, .share = share};

    memset(s, 0, sizeof(*s));
    gate_init(&s->answered);
    return ngd_seq_open(q->t.model, &params, toy_done, s, &s->seq, diag);
}

static void open_for(struct quota *q, struct toy_seq *s, struct ngd_share *share, uint32_t n)
{
    struct ngd_diag diag = {0};

    if (try_open(q, s, share, n, &diag))
        ck_abort_msg("%s", diag.text);
    toy_wait(s);
    toy_ok(s);
}

START_TEST(prompt_that_would_take_more_is_refused_and_a_close_makes_room)
{
    static struct quota q;
    struct toy_seq a, b, c;
    struct ngd_diag diag = {0};

    quota_open(&q, 6, TOY_BLOCKS, false);
    open_for(&q, &a, q.limited, 7); /* four, of which the next one shares three: it counts for all */
    ck_assert_uint_eq(counted(q.limited), 4);
    ck_assert_int_eq(try_open(&q, &b, q.limited, 5, &diag), NGD_ERR_QUOTA);
    ck_assert_str_eq(diag.text, "the sequences of uid:1000 take 4 of 6 KV blocks (max-kv-blocks-per-identity); 3 more "
                                "do not fit: close one first");
    open_for(&q, &b, q.limited, 4);
    ck_assert_uint_eq(counted(q.limited), 6);
    ck_assert_uint_eq(row_count(NGD_M_IDENTITY_KV_BLOCKS, "uid:1000"), 6);
    ck_assert_int_eq(try_open(&q, &c, q.limited, 1, &diag), NGD_ERR_QUOTA);
    open_for(&q, &c, q.other, TOY_CONTEXT); /* another one has no bound */
    ck_assert_uint_eq(counted(q.other), 7);
    ngd_seq_close(c.seq);
    ngd_seq_close(a.seq);
    ck_assert_uint_eq(counted(q.limited), 2);
    open_for(&q, &a, q.limited, 8);
    ngd_seq_close(a.seq);
    ngd_seq_close(b.seq);
    quota_close(&q);
}
END_TEST

START_TEST(step_and_fork_that_would_take_more_are_refused_and_leave_the_sequence_as_it_is)
{
    static const struct ngd_sampling greedy;
    static struct quota q;
    struct toy_seq a, b, child;
    struct ngd_diag diag = {0};

    quota_open(&q, 6, TOY_BLOCKS, false);
    open_for(&q, &a, q.limited, 5); /* three, and room for one token in the last */
    open_for(&q, &b, q.limited, 5);
    toy_step(&a, -1);
    ck_assert_uint_eq(counted(q.limited), 6);
    ck_assert_int_eq(plain_step(a.seq, -1, false, toy_done, &a, &diag), NGD_ERR_QUOTA);
    ck_assert_int_eq(plain_fork(b.seq, &greedy, false, toy_done, &child, &child.seq, &diag), NGD_ERR_QUOTA);
    ck_assert_uint_eq(counted(q.limited), 6);
    toy_step(&b, -1);
    ngd_seq_close(b.seq);
    toy_step(&a, -1);
    ck_assert_uint_eq(counted(q.limited), 4);
    ck_assert_uint_eq(a.position, 7);
    ngd_seq_close(a.seq);
    quota_close(&q);
}
END_TEST

START_TEST(generation_that_would_take_more_fails_behind_the_tokens_that_fit)
{
    static struct quota q;
    struct toy_seq a;
    int32_t context[TOY_CONTEXT + 1];

    quota_open(&q, 4, TOY_BLOCKS, false);
    open_for(&q, &a, q.limited, 5);
    toy_generate(&a, 9, true);
    ck_assert_int_eq(a.status, NGD_ERR_QUOTA);
    memcpy(context, prompt, sizeof(prompt));
    ck_assert_uint_eq(a.n_tokens, 4); /* behind 5 tokens, and each of the three that fill four blocks */
    for (uint32_t n = 5; n < 9; n++) {
        context[n] = toy_next(&q.t, context, n);
        ck_assert_int_eq(a.tokens[n - 5], context[n]);
    }
    ck_assert_uint_eq(counted(q.limited), 4);
    ngd_seq_close(a.seq);
    quota_close(&q);
}
END_TEST

START_TEST(blocks_that_were_given_up_still_count)
{
    static struct quota q;
    struct toy_seq mine, theirs;
    struct ngd_seq_info info;

    quota_open(&q, 7, 7, true);
    open_for(&q, &mine, q.limited, 9);
    open_for(&q, &theirs, q.other, TOY_CONTEXT);
    ngd_seq_info(mine.seq, &info);
    ck_assert_uint_eq(info.blocks, 0);
    ck_assert_uint_eq(counted(q.limited), 5);
    toy_step(&mine, -1);
    ck_assert_uint_eq(counted(q.limited), 5);
    ngd_seq_close(mine.seq);
    ngd_seq_close(theirs.seq);
    quota_close(&q);
}
END_TEST

enum { THREADS = 4, OPENS = 60, LIMIT = 9 };

struct opener {
    pthread_t thread;
    struct quota *q;
    uint32_t opened, refused;
};

static void *open_and_close(void *arg)
{
    struct opener *o = arg;

    for (uint32_t i = 0; i < OPENS; i++) {
        struct toy_seq s;
        struct ngd_diag diag = {0};
        ngd_status_t status = try_open(o->q, &s, o->q->limited, 1 + i % 8, &diag);

        if (status) {
            ck_assert_int_eq(status, NGD_ERR_QUOTA);
            o->refused++;
            sched_yield();
            continue;
        }
        ck_assert_uint_le(counted(o->q->limited), LIMIT);
        if (i % 3 == 0) { /* sometimes before its prompt is done */
            ngd_seq_close(s.seq);
            toy_wait(&s);
        } else {
            toy_wait(&s);
            toy_ok(&s);
            ngd_seq_close(s.seq);
        }
        o->opened++;
    }
    return NULL;
}

START_TEST(threads_that_open_and_close_never_have_more_than_the_limit)
{
    static struct quota q;
    static struct opener openers[THREADS];
    uint32_t opened = 0;

    quota_open(&q, LIMIT, TOY_BLOCKS, false);
    for (int i = 0; i < THREADS; i++) {
        openers[i] = (struct opener){.q = &q};
        ck_assert_int_eq(pthread_create(&openers[i].thread, NULL, open_and_close, &openers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(openers[i].thread, NULL);
        ck_assert_uint_eq(openers[i].opened + openers[i].refused, OPENS);
        opened += openers[i].opened;
    }
    ck_assert_uint_gt(opened, 0);
    quota_close(&q);
}
END_TEST

UNIT_MAIN("scheduler/kv_quota", prompt_that_would_take_more_is_refused_and_a_close_makes_room,
          step_and_fork_that_would_take_more_are_refused_and_leave_the_sequence_as_it_is,
          generation_that_would_take_more_fails_behind_the_tokens_that_fit, blocks_that_were_given_up_still_count,
          threads_that_open_and_close_never_have_more_than_the_limit)
