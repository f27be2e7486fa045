/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random operations on sequences of models with windows, in pools that are too small for all of them: openings with
 * common beginnings, steps, drafts, appended tokens, forks, cancels and closes, several at a time. Each token is
 * checked against the one that the whole context gives. At the end of a model no block is in use, and none was freed
 * twice (asserts of kv.c); a row that reads a block which was given back fails (window_util.h).
 */
#include "tests/unit/window_util.h"

enum { ACTORS = 6, LONGEST = 120, ROUNDS = 60, MODELS = 32 };

struct actor {
    struct toy_seq s;
    int32_t text[TOY_CONTEXT + 1];
    uint32_t n;
    bool open, waits, cancelled;
    bool opening;      /* its first operation is under way */
    bool behind;       /* an operation failed, and text[n] was to be appended: the next one appends it */
    uint32_t appended; /* tokens that the operation appends for sure */
    int32_t draft[3];
    uint32_t n_draft;
};

struct stress {
    struct toy t;
    struct actor actors[ACTORS];
    int32_t texts[3][LONGEST];
    uint32_t seed, failed, done, shared, accepted;
};

static uint32_t pick(struct stress *x, uint32_t n)
{
    x->seed = x->seed * 1664525u + 1013904223u;
    return (x->seed >> 8) % n;
}

/* ---- models ------------------------------------------------------------------------------------------- */

static void open_model(struct stress *x)
{
    static const uint32_t windows[] = {1, 2, 3, 5, 8, 15, 16, 17, 33}, sizes[] = {1, 2, 3, 4, 8, 16};
    struct ngd_model_params params;
    struct ngd_diag diag = {0};
    struct toy *t = &x->t;
    uint32_t all, span, need;

    window_bed(t, windows[pick(x, 9)], pick(x, 2), 0);
    t->block = sizes[pick(x, 6)];
    t->preempt = pick(x, 2);
    t->together = pick(x, 2) ? 3 : 0;
    t->no_sharing = pick(x, 4) == 0;
    all = (LONGEST + 8 + t->block - 1) / t->block;
    span = (t->window + (t->together ? TOY_CHUNK_TOGETHER : TOY_CHUNK) - 2) / t->block + 2;
    need = (span < all ? span : all) + (t->two ? all : 0);
    t->blocks = need + pick(x, 2 * need);
    ck_assert_uint_le(t->blocks * t->block, TOY_BLOCKS * TOY_BLOCK);
    toy_params(t, &params);
    if (ngd_model_create(t->bed.sched, &params, &t->model, &diag))
        ck_abort_msg("%s", diag.text);
    toy_params_fini(&params);
    for (int i = 0; i < 3; i++)
        window_text(x->texts[i], LONGEST, pick(x, 1000));
    memcpy(x->texts[1], x->texts[0], 70 * sizeof(int32_t));
}

/* ---- operations --------------------------------------------------------------------------------------- */

static void begin_open(struct stress *x, struct actor *a)
{
    struct ngd_diag diag = {0};
    const int32_t *text = x->texts[pick(x, 3)];

    a->n = 1 + pick(x, LONGEST - 20);
    memcpy(a->text, text, a->n * sizeof(*text));
    if (pick(x, 3) == 0)
        a->text[a->n - 1] = (int32_t)pick(x, TOY_VOCAB);
    a->appended = 0;
    if (toy_try_open(&x->t, &a->s, a->text, a->n, NULL, false, &diag)) {
        ck_assert_msg(!x->t.preempt && strstr(diag.text, "KV blocks"), "%s", diag.text);
        x->failed++;
        return;
    }
    a->open = a->waits = a->opening = true;
    a->behind = false;
}

static void begin_fork(struct stress *x, struct actor *a, struct actor *parent)
{
    const struct ngd_sampling greedy = {0};
    struct ngd_diag diag = {0};

    memset(&a->s, 0, sizeof(a->s));
    gate_init(&a->s.answered);
    if (plain_fork(parent->s.seq, &greedy, false, toy_done, &a->s, &a->s.seq, &diag)) {
        ck_assert_msg(!x->t.preempt, "%s", diag.text);
        x->failed++;
        return;
    }
    memcpy(a->text, parent->text, parent->n * sizeof(a->text[0]));
    a->n = parent->n;
    a->appended = 0;
    a->open = a->waits = a->opening = true;
    a->behind = false;
}

/* A step, with a draft that begins right if luck has it, or with appended tokens. */
static void begin_step(struct stress *x, struct actor *a)
{
    struct ngd_step_params p;
    struct ngd_diag diag = {0};
    int32_t append[30], next = a->behind ? a->text[a->n] : a->s.token;

    ngd_step_params_init(&p);
    a->appended = 1;
    a->text[a->n] = next;
    p.forced = a->behind ? next : -1;
    if (pick(x, 3) == 0) {
        a->n_draft = p.n_draft = 1 + pick(x, 3);
        p.draft = a->draft;
        for (uint32_t i = 0; i < p.n_draft; i++) {
            double logits[TOY_VOCAB];

            a->draft[i] = 0;
            toy_logits(&x->t, a->text, a->n + 1 + i, logits);
            for (int32_t v = 1; v < TOY_VOCAB; v++)
                a->draft[i] = logits[v] > logits[a->draft[i]] ? v : a->draft[i];
            a->draft[i] = pick(x, 4) ? a->draft[i] : (int32_t)pick(x, TOY_VOCAB);
            a->text[a->n + 1 + i] = a->draft[i];
        }
    } else if (pick(x, 5) == 0 && a->n + 30 < LONGEST) {
        a->appended = p.n_append = 1 + pick(x, 30);
        window_text(append, p.n_append, pick(x, 1000));
        memcpy(a->text + a->n, append, p.n_append * sizeof(append[0]));
        p.append = append;
        p.forced = -1;
    }
    if (ngd_seq_step(a->s.seq, &p, toy_done, &a->s, &diag)) {
        ck_assert_msg(!x->t.preempt && strstr(diag.text, "KV blocks"), "%s", diag.text);
        x->failed++;
        a->text[a->n] = next;
        return;
    }
    a->waits = true;
}

static void close_actor(struct actor *a)
{
    a->open = false;
    ngd_seq_close(a->s.seq);
}

static void begin_something(struct stress *x, struct actor *a)
{
    struct actor *other = &x->actors[pick(x, ACTORS)];

    a->n_draft = 0;
    a->cancelled = false;
    a->opening = false;
    if (!a->open && other->open && !other->waits && pick(x, 2))
        begin_fork(x, a, other);
    else if (!a->open)
        begin_open(x, a);
    else if (a->n + 8 > LONGEST || pick(x, 12) == 0)
        close_actor(a);
    else
        begin_step(x, a);
    if (a->waits && pick(x, 15) == 0) {
        a->cancelled = true;
        ngd_seq_cancel(a->s.seq);
    }
}

static void end_operation_of(struct stress *x, struct actor *a)
{
    a->waits = false;
    toy_wait(&a->s);
    if (a->s.status) {
        ck_assert_msg((a->s.status == NGD_ERR_CANCELLED && a->cancelled) ||
                          (a->s.status == NGD_ERR_KV_EXHAUSTED && !x->t.preempt),
                      "%s: %s", ngd_status_name(a->s.status), a->s.text);
        x->failed++;
        if (a->opening) {
            close_actor(a);
            return;
        }
        a->n += a->appended - 1;
        a->behind = true;
        ck_assert_uint_eq(a->s.position, a->n);
        return;
    }
    a->opening = a->behind = false;
    x->done++;
    x->shared += a->s.shared;
    x->accepted += a->s.accepted;
    ck_assert_uint_le(a->s.accepted, a->n_draft);
    a->n += a->appended + a->s.accepted;
    ck_assert_uint_eq(a->s.position, a->n);
    window_expect(&x->t, a->text, a->n, a->s.token);
}

START_TEST(random_operations_give_the_tokens_of_whole_contexts)
{
    static struct stress x;
    struct ngd_model_stats stats;
    const char *env = getenv("NGD_TEST_SEEDS"); /* more models, for a longer search */
    const uint32_t n = env ? (uint32_t)strtoul(env, NULL, 10) : (uint32_t)effort(MODELS, "models");

    for (uint32_t i = 0; i < n; i++) {
        x.seed = 7919 * i + 1;
        open_model(&x);
        for (int round = 0; round < ROUNDS; round++) {
            for (int k = 0; k < ACTORS; k++)
                begin_something(&x, &x.actors[k]);
            for (int k = 0; k < ACTORS; k++)
                if (x.actors[k].waits)
                    end_operation_of(&x, &x.actors[k]);
        }
        for (int k = 0; k < ACTORS; k++)
            if (x.actors[k].open)
                close_actor(&x.actors[k]);
        ngd_model_stats(x.t.model, &stats);
        ck_assert(x.t.preempt || stats.preemptions == 0);
        window_close(&x.t);
    }
    printf("%u operations, %u refused or cancelled, %u tokens shared, %u of drafts\n", x.done, x.failed, x.shared,
           x.accepted);
    ck_assert_uint_gt(x.done, n * ROUNDS);
    ck_assert_uint_gt(x.failed, 0);
    ck_assert_uint_gt(x.shared, 0);
    ck_assert_uint_gt(x.accepted, 0);
}
END_TEST

UNIT_MAIN("scheduler/windows_stress", random_operations_give_the_tokens_of_whole_contexts)
