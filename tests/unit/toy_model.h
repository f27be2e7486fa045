/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_TESTS_TOY_MODEL_H
#define NGD_TESTS_TOY_MODEL_H

/*
 * A model of one attention layer on the scheduler's public interface, and its expected tokens, computed in double from
 * the whole context. A wrong block, position, length or row anywhere changes the next token.
 *
 *   k = ek[token] + pos[position], v = ev[token], q = eq[token] + pos[position]; logits = attention(q, k, v) * w
 *
 * The layer may have a window, and there may be a second one beside it that sees all keys, in the same states with a
 * table of its own; its values are ek[token]: logits = (attention of the window + attention) * w
 */
#include "tests/unit/sched_util.h"
#include "scheduler/model/model_int.h"
#include "tests/unit/plain_seq.h"

#ifndef TOY_SIZES /* a test may have others */
#define TOY_SIZES                                                                                           \
    TOY_BLOCK = 2, TOY_BLOCKS = 40, TOY_FEW = 16, TOY_CONTEXT = 13, TOY_CHUNK = 4, TOY_CHUNK_TOGETHER = 12, \
    TOY_BATCH = 4
#endif
enum { TOY_VOCAB = 24, TOY_DIM = 8, TOY_SIZES };

/* What is odd about the graphs of a model with two layers. */
enum toy_odd {
    TOY_NOTHING_ODD,
    TOY_TABLE_NARROW,    /* the second layer's table is too narrow */
    TOY_TABLE_ELSEWHERE, /* a node that is no attention has the first layer's table */
    TOY_READS_FIRST,     /* the second layer reads before it writes */
};

struct toy {
    struct bed bed;
    struct ngd_model *model;
    uint32_t blocks; /* TOY_BLOCKS, or fewer */
    uint32_t block;  /* TOY_BLOCK, or less */
    uint32_t window; /* keys that a row sees; 0: all */
    bool two;        /* a second layer sees all */
    enum toy_odd odd;
    bool no_sharing; /* of prefixes */
    bool preempt;
    uint32_t together;             /* prompts that the prefill graph takes; 0: one, as its shapes say */
    bool greedy;                   /* graphs without sampling inputs and logits */
    bool embeds, mean, headless;   /* prefill returns hidden states: of the last row, or all; or nothing else */
    const char *guard;             /* of the decode graph; NULL: none */
    struct ngd_buffer *buffers[7]; /* ek, ev, eq, pos, w, kc, vc */
    float ek[TOY_VOCAB][TOY_DIM], ev[TOY_VOCAB][TOY_DIM], eq[TOY_VOCAB][TOY_DIM], pos[TOY_CONTEXT][TOY_DIM],
        w[TOY_VOCAB][TOY_DIM];
};

/* ---- graphs ---- */

static inline void toy_text(const struct toy *t, struct ngd_strbuf *sb, bool decode)
{
    const char *n = decode ? "B" : "T", *seqs = decode ? "B" : t->together ? "S" : "1";
    const int chunk = t->together ? TOY_CHUNK_TOGETHER : TOY_CHUNK;
    const uint32_t width = (TOY_CONTEXT + t->block - 1) / t->block;
    static const char write[] = " npu.scatter_pa_kv_cache(%k, %v2, %slots2, %kc, %vc)\n";
    char window[64] = "";

    ngd_strbuf_printf(sb, "npugraph 1\ngraph \"toy %s\" {\n", decode ? "decode" : "prefill");
    if (decode)
        ngd_strbuf_printf(sb, " sym B 1..%d buckets 1, 2, 4\n", TOY_BATCH);
    else
        ngd_strbuf_printf(sb, " sym T 1..%d buckets %d\n", chunk, chunk);
    if (!decode && t->together)
        ngd_strbuf_printf(sb, " sym S 1..%u buckets %u\n", t->together, t->together);
    if (decode && t->guard)
        ngd_strbuf_printf(sb, " guard %s\n", t->guard);
    for (int i = 0; i < 3; i++)
        ngd_strbuf_printf(sb, " param %%e%c : f32[%d,%d]\n", "kvq"[i], TOY_VOCAB, TOY_DIM);
    ngd_strbuf_printf(sb, " param %%pos : f32[%d,%d]\n param %%w : f32[%d,%d]\n", TOY_CONTEXT, TOY_DIM, TOY_VOCAB,
                      TOY_DIM);
    ngd_strbuf_printf(sb, " state %%kc : f32[%u,%u,1,%d]\n state %%vc : f32[%u,%u,1,%d]\n", t->blocks, t->block,
                      TOY_DIM, t->blocks, t->block, TOY_DIM);
    ngd_strbuf_printf(sb, " input %%tokens : i32[%s]\n input %%positions : i32[%s]\n input %%slots : i32[%s]\n", n, n,
                      n);
    ngd_strbuf_printf(sb, " input %%table : i32[%s,%u]\n", seqs, width);
    if (t->two)
        ngd_strbuf_printf(sb, " input %%slots2 : i32[%s]\n input %%table2 : i32[%s,%u]\n", n, seqs,
                          t->odd == TOY_TABLE_NARROW ? width - 1 : width);
    if (!decode)
        ngd_strbuf_printf(sb, " input %%rows : i32[%s]\n", seqs);
    if (!t->greedy && !t->headless)
        ngd_strbuf_printf(sb,
                          " input %%temperature : f32[%s]\n input %%top_k : i32[%s]\n input %%top_p : f32[%s]\n"
                          " input %%seed : i64[%s]\n input %%offset : i64[%s]\n",
                          seqs, seqs, seqs, seqs, seqs);
    ngd_strbuf_printf(sb, " host %%ql : i64[%s]\n host %%kl : i64[%s]\n", seqs, seqs);
    ngd_strbuf_printf(sb,
                      " %%p = aten.embedding(%%pos, %%positions)\n %%k0 = aten.embedding(%%ek, %%tokens)\n"
                      " %%k1 = aten.add.Tensor(%%k0, %%p)\n %%k = aten.view(%%k1) {size=[%s,1,%d]}\n"
                      " %%v0 = aten.embedding(%%ev, %%tokens)\n %%v = aten.view(%%v0) {size=[%s,1,%d]}\n"
                      " npu.scatter_pa_kv_cache(%%k, %%v, %%slots, %%kc, %%vc)\n",
                      n, TOY_DIM, n, TOY_DIM);
    if (t->window)
        snprintf(window, sizeof(window), ", sparse_mode=4, pre_tokens=%u, next_tokens=0", t->window - 1);
    ngd_strbuf_printf(sb,
                      " %%q0 = aten.embedding(%%eq, %%tokens)\n %%q1 = aten.add.Tensor(%%q0, %%p)\n"
                      " %%q = aten.view(%%q1) {size=[%s,1,%d]}\n"
                      " %%a = npu.fused_infer_attention_score(%%q, %%kc, %%vc, %%table, %%ql, %%kl) {num_heads=1, "
                      "num_key_value_heads=1, scale=1.0, block_size=%u%s}\n",
                      n, TOY_DIM, t->block, window);
    if (t->two)
        ngd_strbuf_printf(sb,
                          " %%v2 = aten.view(%%k0) {size=[%s,1,%d]}\n%s"
                          " %%b = npu.fused_infer_attention_score(%%q, %%kc, %%vc, %%table2, %%ql, %%kl) {num_heads=1, "
                          "num_key_value_heads=1, scale=1.0, block_size=%u}\n%s %%c = aten.add.Tensor(%%a, %%b)\n",
                          n, TOY_DIM, t->odd == TOY_READS_FIRST ? "" : write, t->block,
                          t->odd == TOY_READS_FIRST ? write : "");
    if (t->odd == TOY_TABLE_ELSEWHERE)
        ngd_strbuf_append(sb, " %twice = aten.add.Tensor(%table, %table)\n");
    ngd_strbuf_printf(sb, " %%a2 = aten.view(%%%s) {size=[%s,%d]}\n", t->two ? "c" : "a", n, TOY_DIM);
    if (!decode)
        ngd_strbuf_append(sb, " %last = aten.index.Tensor(%a2, %rows)\n");
    if (t->headless) {
        ngd_strbuf_printf(sb, " return \"hidden\" = %%%s\n}\n", t->mean ? "a2" : "last");
        return;
    }
    ngd_strbuf_printf(sb, " %%logits = aten.linear(%%%s, %%w)\n", decode ? "a2" : "last");
    ngd_strbuf_append(sb, t->greedy
                              ? " %best = aten.argmax(%logits) {dim=-1}\n %token = aten._to_copy(%best) {dtype=i32}\n"
                                " return \"token\" = %token\n}\n"
                              : " %token = npu.top_k_top_p_sample(%logits, %temperature, %top_k, %top_p, %seed, "
                                "%offset)\n return \"token\" = %token, \"logits\" = %logits");
    if (!t->greedy)
        ngd_strbuf_printf(sb, "%s%s\n}\n", decode || !t->embeds ? "" : ", \"hidden\" = ",
                          decode || !t->embeds ? ""
                          : t->mean            ? "%a2"
                                               : "%last");
}

static inline struct ngd_binding *toy_binding(struct toy *t, bool decode)
{
    struct ngd_program *prog;
    struct ngd_binding *binding;
    struct ngd_strbuf sb;

    ngd_strbuf_init(&sb);
    toy_text(t, &sb, decode);
    prog = bed_program(&t->bed, ngd_strbuf_str(&sb), NULL);
    binding = bed_bind(prog, t->buffers);
    ngd_program_unref(prog);
    ngd_strbuf_fini(&sb);
    return binding;
}

/* ---- the model ---- */

static const char *const toy_states[] = {"kc", "vc"};
static const struct ngd_kv_group_labels toy_group = {"slots2", "table2"};
static const int32_t toy_stop[] = {TOY_VOCAB - 1};

static inline void toy_params(struct toy *t, struct ngd_model_params *params)
{
    *params = (struct ngd_model_params){
        .name = "toy",
        .description = "one attention layer",
        .prefill = toy_binding(t, false),
        .decode = t->headless ? NULL : toy_binding(t, true),
        .no_generation = t->headless,
        .contract =
            {
                .tokens = "tokens",
                .positions = "positions",
                .slot_mapping = "slots",
                .block_table = "table",
                .query_lens = "ql",
                .context_lens = "kl",
                .logits_rows = "rows",
                .temperature = "temperature",
                .top_k = "top_k",
                .top_p = "top_p",
                .seed = "seed",
                .offset = "offset",
                .token_output = "token",
                .logits_output = "logits",
                .kv_states = toy_states,
                .n_kv_states = 2,
                .more_groups = &toy_group,
                .n_more_groups = t->two,
            },
        .block_size = t->block,
        .num_blocks = t->blocks,
        .max_context = TOY_CONTEXT,
        .vocab = TOY_VOCAB,
        .stop_tokens = toy_stop,
        .n_stop_tokens = 1,
        .max_sequences = 10,
        .no_prefix_sharing = t->no_sharing,
        .preempt = t->preempt,
    };
    if (t->headless) {
        struct ngd_decode_contract *c = &params->contract;

        params->decode = ngd_binding_ref(params->prefill);
        c->token_output = c->temperature = c->top_k = c->top_p = c->seed = c->offset = c->logits_output = "";
    }
    if (t->embeds) {
        params->contract.hidden_output = "hidden";
        params->contract.pooling = t->mean ? NGD_POOLING_MEAN : NGD_POOLING_LAST;
    }
    if (t->greedy) {
        struct ngd_decode_contract *c = &params->contract;

        c->temperature = c->top_k = c->top_p = c->seed = c->offset = c->logits_output = "";
    }
}

static inline void toy_params_fini(struct ngd_model_params *params)
{
    ngd_binding_unref(params->prefill);
    ngd_binding_unref(params->decode);
}

static inline void toy_fill(float *p, int n, uint32_t seed)
{
    for (int i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        p[i] = (float)(int32_t)seed * 0x1p-30f;
    }
}

/* Makes weights and a cache on the bed's device. */
static inline void toy_weights(struct toy *t)
{
    const uint64_t kv = (uint64_t)TOY_BLOCKS * TOY_BLOCK * TOY_DIM * sizeof(float);

    toy_fill(&t->ek[0][0], TOY_VOCAB * TOY_DIM, 1);
    toy_fill(&t->ev[0][0], TOY_VOCAB * TOY_DIM, 2);
    toy_fill(&t->eq[0][0], TOY_VOCAB * TOY_DIM, 3);
    toy_fill(&t->pos[0][0], TOY_CONTEXT * TOY_DIM, 4);
    toy_fill(&t->w[0][0], TOY_VOCAB * TOY_DIM, 5);
    t->buffers[0] = bed_buffer(&t->bed, t->ek, sizeof(t->ek), "ek");
    t->buffers[1] = bed_buffer(&t->bed, t->ev, sizeof(t->ev), "ev");
    t->buffers[2] = bed_buffer(&t->bed, t->eq, sizeof(t->eq), "eq");
    t->buffers[3] = bed_buffer(&t->bed, t->pos, sizeof(t->pos), "pos");
    t->buffers[4] = bed_buffer(&t->bed, t->w, sizeof(t->w), "w");
    t->buffers[5] = bed_buffer(&t->bed, NULL, kv, "kc");
    t->buffers[6] = bed_buffer(&t->bed, NULL, kv, "vc");
}

/* Opens a device, a scheduler and weights, but no model. */
static inline void toy_bed(struct toy *t, uint32_t slots)
{
    memset(t, 0, sizeof(*t));
    t->blocks = TOY_BLOCKS;
    t->block = TOY_BLOCK;
    bed_open(&t->bed, slots, 0);
    toy_weights(t);
}

static inline void toy_create(struct toy *t)
{
    struct ngd_model_params params;
    struct ngd_diag diag = {0};

    toy_params(t, &params);
    if (ngd_model_create(t->bed.sched, &params, &t->model, &diag))
        ck_abort_msg("%s", diag.text);
    toy_params_fini(&params);
}

static inline void toy_open(struct toy *t, uint32_t slots)
{
    toy_bed(t, slots);
    toy_create(t);
}

/* Opens a model with so few KV blocks that they run out. */
static inline void toy_open_few(struct toy *t)
{
    toy_bed(t, 1);
    t->blocks = TOY_FEW;
    t->no_sharing = true; /* these tests check the numbers of blocks */
    toy_create(t);
}

static inline void toy_close(struct toy *t)
{
    if (t->model) {
        struct ngd_model_stats stats;

        ngd_model_stats(t->model, &stats);
        ck_assert_uint_eq(stats.sequences, 0);
        ck_assert_uint_eq(stats.blocks_used, 0);
    }
    ngd_model_unref(t->model);
    for (int i = 0; i < 7; i++)
        ngd_buffer_unref(t->buffers[i]);
    bed_close(&t->bed);
}

static inline uint32_t toy_blocks_used(struct toy *t)
{
    struct ngd_model_stats stats;

    ngd_model_stats(t->model, &stats);
    return stats.blocks_used;
}

/* ---- expected tokens ---- */

/* Adds the values that the last row sees from `first` on. */
static inline void toy_attend(const struct toy *t, const float (*values)[TOY_DIM], const int32_t *context,
                              uint32_t first, uint32_t n, double *out)
{
    double score[TOY_CONTEXT], sum = 0;

    for (uint32_t i = first; i < n; i++) {
        score[i] = 0;
        for (int d = 0; d < TOY_DIM; d++)
            score[i] +=
                ((double)t->eq[context[n - 1]][d] + t->pos[n - 1][d]) * ((double)t->ek[context[i]][d] + t->pos[i][d]);
        sum += score[i] = exp(score[i]);
    }
    for (uint32_t i = first; i < n; i++)
        for (int d = 0; d < TOY_DIM; d++)
            out[d] += score[i] / sum * values[context[i]][d];
}

static inline void toy_logits(const struct toy *t, const int32_t *context, uint32_t n, double *logits)
{
    double out[TOY_DIM] = {0};

    toy_attend(t, t->ev, context, t->window && n > t->window ? n - t->window : 0, n, out);
    if (t->two)
        toy_attend(t, t->ek, context, 0, n, out);
    for (int v = 0; v < TOY_VOCAB; v++) {
        logits[v] = 0;
        for (int d = 0; d < TOY_DIM; d++)
            logits[v] += out[d] * t->w[v][d];
    }
}

/* Returns the greedy token. Fails on a near tie, because the test would then depend on luck. */
static inline int32_t toy_next(const struct toy *t, const int32_t *context, uint32_t n)
{
    double logits[TOY_VOCAB], second = -INFINITY;
    int32_t best = 0;

    toy_logits(t, context, n, logits);
    for (int32_t v = 1; v < TOY_VOCAB; v++)
        best = logits[v] > logits[best] ? v : best;
    for (int32_t v = 0; v < TOY_VOCAB; v++)
        second = v != best && logits[v] > second ? logits[v] : second;
    ck_assert_msg(logits[best] - second > 1e-5, "tokens %d and another are nearly the same", best);
    return best;
}

/* ---- sequences ---- */

struct toy_seq {
    struct ngd_seq *seq;
    struct gate answered; /* arrived counts answers */
    uint32_t expected;
    struct gate *hold; /* the callback waits here */
    /* The last answer. */
    ngd_status_t status;
    char text[NGD_DIAG_MAX];
    int32_t token;
    bool stop, has_logits;
    uint32_t position, batch, shared, accepted;
    float logits[TOY_VOCAB], hidden[TOY_DIM];
    struct ngd_logprobs logprobs[64]; /* of each token of the answer, or of the generation */
    bool has_logprobs[64];
    /* The tokens of a generation. */
    int32_t tokens[64];
    uint32_t n_tokens, cancel_at;
    char finish[16];
};

static inline void toy_answer(struct toy_seq *s)
{
    if (s->hold)
        gate_pass(s->hold);
    ngd_mutex_lock(&s->answered.lock);
    s->answered.arrived++;
    ngd_cond_broadcast(&s->answered.cond);
    ngd_mutex_unlock(&s->answered.lock);
}

static inline void toy_done(void *user, struct ngd_seq *seq, const struct ngd_step_result *r)
{
    struct toy_seq *s = user;

    ck_assert_ptr_eq(seq, s->seq);
    s->status = r->status;
    snprintf(s->text, sizeof(s->text), "%s", r->status && r->diag ? r->diag->text : "");
    s->token = r->token;
    s->stop = r->stop;
    s->position = r->position;
    s->batch = r->batch;
    s->shared = r->shared;
    s->accepted = r->accepted;
    s->has_logits = r->logits != NULL;
    memset(s->has_logprobs, 0, sizeof(s->has_logprobs));
    for (uint32_t i = 0; r->logprobs && i <= r->accepted; i++) {
        s->has_logprobs[i] = true;
        s->logprobs[i] = r->logprobs[i];
    }
    if (r->logits)
        memcpy(s->logits, r->logits, sizeof(s->logits));
    if (r->hidden)
        memcpy(s->hidden, r->hidden, sizeof(s->hidden));
    toy_answer(s);
}

static inline void toy_on_token(void *user, struct ngd_seq *seq, int32_t token, uint32_t position,
                                const struct ngd_logprobs *logprobs)
{
    struct toy_seq *s = user;

    ck_assert_ptr_eq(seq, s->seq);
    s->position = position;
    s->has_logprobs[s->n_tokens % 64] = logprobs != NULL;
    if (logprobs)
        s->logprobs[s->n_tokens % 64] = *logprobs;
    if (s->n_tokens < 64)
        s->tokens[s->n_tokens] = token;
    s->n_tokens++;
    if (s->n_tokens == s->cancel_at)
        ngd_seq_cancel(seq);
}

static inline void toy_generated(void *user, struct ngd_seq *seq, const char *finish, ngd_status_t status,
                                 const struct ngd_diag *diag)
{
    struct toy_seq *s = user;

    ck_assert_ptr_eq(seq, s->seq);
    s->status = status;
    snprintf(s->finish, sizeof(s->finish), "%s", finish ? finish : "");
    snprintf(s->text, sizeof(s->text), "%s", status && diag ? diag->text : "");
    toy_answer(s);
}

static inline void toy_wait(struct toy_seq *s)
{
    gate_await(&s->answered, ++s->expected);
    ck_assert_uint_eq(s->answered.arrived, s->expected); /* one answer for each operation */
}

static inline ngd_status_t toy_try_open(struct toy *t, struct toy_seq *s, const int32_t *prompt, uint32_t n,
                                        const struct ngd_sampling *sampling, bool logits, struct ngd_diag *diag)
{
    struct ngd_seq_params params = {
        .prompt = prompt, .n_prompt = n, .want_logits = logits, .priority = NGD_PRIORITY_NORMAL};

    memset(s, 0, sizeof(*s));
    gate_init(&s->answered);
    if (sampling)
        params.sampling = *sampling;
    return ngd_seq_open(t->model, &params, toy_done, s, &s->seq, diag);
}

/* Queues the opening of a sequence without waiting for it. */
static inline void toy_queue_open(struct toy *t, struct toy_seq *s, const int32_t *prompt, uint32_t n,
                                  const struct ngd_sampling *sampling)
{
    struct ngd_diag diag = {0};

    if (toy_try_open(t, s, prompt, n, sampling, false, &diag))
        ck_abort_msg("%s", diag.text);
}

static inline void toy_ok(const struct toy_seq *s)
{
    if (s->status)
        ck_abort_msg("%s: %s", ngd_status_name(s->status), s->text);
}

static inline void toy_seq_open(struct toy *t, struct toy_seq *s, const int32_t *prompt, uint32_t n,
                                const struct ngd_sampling *sampling)
{
    toy_queue_open(t, s, prompt, n, sampling);
    toy_wait(s);
    toy_ok(s);
}

static inline void toy_queue_step(struct toy_seq *s, int32_t forced)
{
    struct ngd_diag diag = {0};

    if (plain_step(s->seq, forced, false, toy_done, s, &diag))
        ck_abort_msg("%s", diag.text);
}

static inline void toy_step(struct toy_seq *s, int32_t forced)
{
    toy_queue_step(s, forced);
    toy_wait(s);
    toy_ok(s);
}

/* Appends to said the token that was chosen and those of plain steps to the end of the context, and closes the
 * sequence. Returns the number of tokens in said, which had n. */
static inline uint32_t toy_say_rest(struct toy_seq *s, int32_t *said, uint32_t n)
{
    said[n++] = s->token;
    while (s->position < TOY_CONTEXT) {
        toy_step(s, -1);
        said[n++] = s->token;
    }
    ngd_seq_close(s->seq);
    return n;
}

static inline void toy_queue_generate(struct toy_seq *s, uint32_t max, bool ignore_stop)
{
    struct ngd_diag diag = {0};

    s->n_tokens = 0;
    if (plain_generate(s->seq, max, ignore_stop, toy_on_token, toy_generated, s, &diag))
        ck_abort_msg("%s", diag.text);
}

static inline void toy_generate(struct toy_seq *s, uint32_t max, bool ignore_stop)
{
    toy_queue_generate(s, max, ignore_stop);
    toy_wait(s);
}

#endif
