/* SPDX-License-Identifier: Apache-2.0 */
/*
 * npu.top_k_top_p_sample: one token per row of logits. And the same for one row with min_p and typical_p, which the
 * operator has not (devices/sample.h).
 *
 * The rule, exactly:
 *
 *   - If temperature is <= 0 or NaN, or a logit is NaN or +infinity: the token is the lowest id among the largest
 * logits. NaN counts as the largest.
 *   - Otherwise p[i] = exp((logit[i] - max) / temperature). Ids are ordered by logit, largest first, equal ones by id.
 *   - top_k of 1..V-1 keeps the first top_k of that order.
 *   - top_p below 1 keeps, of these, each id whose predecessors have less than top_p of the sum of p. It always keeps
 *     the first.
 *   - min_p above 0 keeps, of these, each id with p >= min_p. (The largest p is 1.)
 *   - typical_p between 0 and 1 orders these by |-log q - H|, smallest first, where q = p / sum of p and H is the sum
 *     of -q log q. It keeps the shortest beginning whose sum of q reaches typical_p, and all that are equal to its
 * last.
 *   - The token is the first of the kept ids, in ascending order, whose running sum of p exceeds u times the sum of
 *     all kept. u is ngd_sample_draw(seed, offset). Sums are f64 over blocks of BLOCK ids, and f32 within a vector
 * pass.
 *
 * The kept ids are found by a radix select on the bits of the logit, without a sort. There are three histograms (12, 12
 * and 8 bits), each over the ids that the one before left undecided, with weights of 1 for top_k and of p for top_p.
 * The result is a limit: the smallest key that is kept, and how many of the ids with exactly this key are kept.
 */
#include "devices/host/kernels/k_sample.h"
#include "base/mem.h"
#include "devices/host/cpu.h"
#include "devices/sample.h"
#include <float.h>
#include <math.h>
#include <string.h>

#define BLOCK 1024 /* ids per partial sum */
#define BINS  4096

struct sample {
    int64_t vocab, row_bytes, size;
    int64_t steps[5]; /* elements of temperature, top_k, top_p, seed, offset */
    ngd_dtype_t type;
    uint64_t thread_workspace;
    const struct ngd_sample_table *table;
};

/* Scratch of one thread. */
struct scratch {
    float *p;     /* [vocab] */
    double *sums; /* [blocks], of p */
    double *bins; /* [BINS] */
    float *order; /* [vocab], for typical_p, which needs it; may be the row of logits */
};

/* The ids that are kept: those with keys above `key`, and the first `equal` ids with that key. */
struct limit {
    uint32_t key;
    int64_t equal;
};

/* ---- random numbers ----------------------------------------------------------------------------------- */

void ngd_philox4x32(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t c[4] = {counter[0], counter[1], counter[2], counter[3]}, k[2] = {key[0], key[1]};

    for (int round = 0; round < 10; round++) {
        const uint64_t a = (uint64_t)0xD2511F53u * c[0], b = (uint64_t)0xCD9E8D57u * c[2];
        const uint32_t next[4] = {(uint32_t)(b >> 32) ^ c[1] ^ k[0], (uint32_t)b, (uint32_t)(a >> 32) ^ c[3] ^ k[1],
                                  (uint32_t)a};

        memcpy(c, next, sizeof(c));
        k[0] += 0x9E3779B9u;
        k[1] += 0xBB67AE85u;
    }
    memcpy(out, c, sizeof(c));
}

double ngd_sample_draw(int64_t seed, int64_t offset)
{
    const uint32_t counter[4] = {(uint32_t)(uint64_t)offset, (uint32_t)((uint64_t)offset >> 32), 0, 0};
    const uint32_t key[2] = {(uint32_t)(uint64_t)seed, (uint32_t)((uint64_t)seed >> 32)};
    uint32_t out[4];

    ngd_philox4x32(counter, key, out);
    return out[0] * 0x1p-32;
}

/* ---- greedy ------------------------------------------------------------------------------------------- */

static float logit(const struct sample *s, const char *row, int64_t i)
{
    return ngd_float_at(row, s->type, i);
}

/* Finds the largest logit and the first id that has it. A NaN is larger than anything. */
static int64_t find_max(const struct sample *s, const char *row, float *max_p)
{
    float best = -INFINITY;
    int64_t at = 0, end;
    bool any_nan = false;

    for (int64_t b = 0; b < s->vocab && !any_nan; b += BLOCK) {
        const int64_t n = s->vocab - b < BLOCK ? s->vocab - b : BLOCK;
        bool nan;
        const float top = s->table->max[s->type](row + b * s->size, n, &nan);

        if (nan || top > best) {
            best = nan ? NAN : top;
            at = b;
            any_nan = nan;
        }
    }
    *max_p = best;
    end = at + BLOCK < s->vocab ? at + BLOCK : s->vocab;
    for (int64_t i = at; i < end; i++) {
        const float v = logit(s, row, i);

        if (any_nan ? v != v : v == best)
            return i;
    }
    return 0;
}

/* ---- keeping ------------------------------------------------------------------------------------------ */

/* Maps a float to bits whose order is that of its value; -0 maps to the key of 0. */
static uint32_t logit_key(const struct sample *s, const char *row, int64_t i)
{
    const float v = logit(s, row, i) + 0.0f;
    uint32_t u;

    memcpy(&u, &v, sizeof(u));
    return u & 0x80000000u ? ~u : u | 0x80000000u;
}

static bool limit_keeps(const struct limit *limit, uint32_t key, int64_t *equal_p)
{
    return key > limit->key || (key == limit->key && (*equal_p)++ < limit->equal);
}

/* Adds up weights (1, or p) by the digit of the key, over the ids that `within` keeps and whose higher digits are
 * `prefix`. */
static void count_digits(const struct sample *s, const struct scratch *w, const char *row, const struct limit *within,
                         bool by_p, uint32_t prefix, int shift, int bits)
{
    const uint32_t mask = (1u << bits) - 1;
    int64_t equal = 0;

    memset(w->bins, 0, ((size_t)mask + 1) * sizeof(double));
    for (int64_t i = 0; i < s->vocab; i++) {
        const uint32_t key = logit_key(s, row, i);

        if (limit_keeps(within, key, &equal) && (shift + bits >= 32 || key >> (shift + bits) == prefix))
            w->bins[key >> shift & mask] += by_p ? (double)w->p[i] : 1.0;
    }
}

/*
 * Goes from the largest digit down until *left is used up. Returns the digit where that happens, and *left becomes what
 * is left for it. If rounding asks for a little more than there is, the result is the smallest digit with any weight,
 * all of which is kept.
 */
static uint32_t narrow_key(const struct scratch *w, uint32_t prefix, int bits, double *left)
{
    uint32_t digit = 0;

    for (int64_t i = ((int64_t)1 << bits) - 1; i >= 0; i--) {
        if (w->bins[i] == 0)
            continue;
        digit = (uint32_t)i;
        if (w->bins[i] >= *left)
            return prefix << bits | digit;
        *left -= w->bins[i];
    }
    *left = w->bins[digit];
    return prefix << bits | digit;
}

/* Finds the limit of the shortest prefix of the order, within `within`, whose weights reach `target`. */
static struct limit select_first(const struct sample *s, const struct scratch *w, const char *row,
                                 const struct limit *within, bool by_p, double target)
{
    struct limit limit = {0};
    double left = target;
    int64_t equal = 0;

    for (int d = 0; d < 3; d++) {
        static const int shifts[] = {20, 8, 0}, bits[] = {12, 12, 8};

        count_digits(s, w, row, within, by_p, limit.key, shifts[d], bits[d]);
        limit.key = narrow_key(w, limit.key, bits[d], &left);
    }
    for (int64_t i = 0; i < s->vocab; i++) {
        if (logit_key(s, row, i) != limit.key || !limit_keeps(within, limit.key, &equal))
            continue;
        limit.equal++;
        left -= by_p ? (double)w->p[i] : 1.0;
        if (left <= 0)
            break;
    }
    return limit;
}

/* Sums p over the kept ids of `row`, in blocks. Sets p to 0 for ids that are not kept. */
static double sum_kept(const struct sample *s, const struct scratch *w, const char *row, const struct limit *limit)
{
    double total = 0;
    int64_t equal = 0;

    for (int64_t b = 0; b * BLOCK < s->vocab; b++) {
        const int64_t end = (b + 1) * BLOCK < s->vocab ? (b + 1) * BLOCK : s->vocab;
        double sum = 0;

        for (int64_t i = b * BLOCK; i < end; i++) {
            if (limit_keeps(limit, logit_key(s, row, i), &equal))
                sum += (double)w->p[i];
            else
                w->p[i] = 0;
        }
        w->sums[b] = sum;
        total += sum;
    }
    return total;
}

/* Keeps the ids whose p is at least min_p. */
static double keep_probable(const struct sample *s, const struct scratch *w, float min_p)
{
    double total = 0;

    for (int64_t b = 0; b * BLOCK < s->vocab; b++) {
        const int64_t end = (b + 1) * BLOCK < s->vocab ? (b + 1) * BLOCK : s->vocab;

        w->sums[b] = 0;
        for (int64_t i = b * BLOCK; i < end; i++) {
            if (w->p[i] < min_p)
                w->p[i] = 0;
            w->sums[b] += (double)w->p[i];
        }
        total += w->sums[b];
    }
    return total;
}

/* Keeps the ids that typical_p keeps. The order is that of a row of -|-log q - H|, largest first. */
static double keep_typical(const struct sample *s, const struct scratch *w, float typical_p, double total)
{
    const struct limit all = {.key = 0, .equal = s->vocab};
    const struct sample by_order = {.vocab = s->vocab, .type = NGD_F32};
    const char *row = (const char *)w->order;
    double entropy = 0;
    struct limit limit;

    for (int64_t i = 0; i < s->vocab; i++)
        if (w->p[i] > 0)
            entropy -= (double)w->p[i] / total * log((double)w->p[i] / total);
    for (int64_t i = 0; i < s->vocab; i++)
        w->order[i] = w->p[i] > 0 ? (float)-fabs(-log((double)w->p[i] / total) - entropy) : -INFINITY;
    limit = select_first(&by_order, w, row, &all, true, (double)typical_p * total);
    limit.equal = s->vocab;
    return sum_kept(&by_order, w, row, &limit);
}

/* ---- one row ------------------------------------------------------------------------------------------ */

static double weigh(const struct sample *s, const struct scratch *w, const char *row, float max, float temperature)
{
    /* Finite and not 0, so that at any temperature the largest logit gives exp(0) and -inf gives 0. */
    const float scale = fminf(fmaxf(1.0f / temperature, FLT_MIN), FLT_MAX);
    double total = 0;

    for (int64_t b = 0; b * BLOCK < s->vocab; b++) {
        const int64_t n = s->vocab - b * BLOCK < BLOCK ? s->vocab - b * BLOCK : BLOCK;

        w->sums[b] = (double)s->table->exp_sum[s->type](row + b * BLOCK * s->size, n, max, scale, w->p + b * BLOCK);
        total += w->sums[b];
    }
    return total;
}

/* Finds the first id whose running sum exceeds target: first its block, by the blocks' sums, then the id. */
static int64_t walk(const struct sample *s, const struct scratch *w, double target)
{
    const int64_t blocks = (s->vocab + BLOCK - 1) / BLOCK;
    double sum = 0;
    int64_t b = 0, last = -1, end;

    while (b + 1 < blocks && sum + w->sums[b] <= target)
        sum += w->sums[b++];
    /* Rounding may leave the additions within a block below its sum. Then the block's last id with any weight is it. */
    while (b > 0 && w->sums[b] == 0)
        b--;
    end = (b + 1) * BLOCK < s->vocab ? (b + 1) * BLOCK : s->vocab;
    for (int64_t i = b * BLOCK; i < end; i++) {
        if (w->p[i] == 0)
            continue;
        last = i;
        sum += (double)w->p[i];
        if (sum > target)
            break;
    }
    return last;
}

static int32_t sample_row(const struct sample *s, const struct scratch *w, const char *row,
                          const struct ngd_sample_choice *c)
{
    struct limit limit = {.key = 0, .equal = s->vocab};
    const bool by_k = c->top_k > 0 && c->top_k < s->vocab, by_p = c->top_p < 1;
    const double u = ngd_sample_draw(c->seed, c->offset);
    float max;
    int64_t best = find_max(s, row, &max), token;
    double total;

    if (!(c->temperature > 0) || !isfinite(max))
        return (int32_t)best;
    total = weigh(s, w, row, max, c->temperature);
    if (by_k) {
        limit = select_first(s, w, row, &limit, false, (double)c->top_k);
        total = sum_kept(s, w, row, &limit);
    }
    if (by_p) {
        limit = select_first(s, w, row, &limit, true, (double)(c->top_p > 0 ? c->top_p : 0) * total);
        total = sum_kept(s, w, row, &limit);
    }
    if (c->min_p > 0)
        total = keep_probable(s, w, c->min_p);
    if (c->typical_p > 0 && c->typical_p < 1)
        total = keep_typical(s, w, c->typical_p, total);
    token = walk(s, w, u * total);
    return (int32_t)(token < 0 ? best : token);
}

static struct ngd_sample_choice choice_of(const struct sample *s, const struct ngd_host_call *call, int64_t i)
{
    return (struct ngd_sample_choice){
        .temperature = ((const float *)(const void *)call->ptrs[1])[i * s->steps[0]],
        .top_k = ((const int32_t *)(const void *)call->ptrs[2])[i * s->steps[1]],
        .top_p = ((const float *)(const void *)call->ptrs[3])[i * s->steps[2]],
        .seed = ((const int64_t *)(const void *)call->ptrs[4])[i * s->steps[3]],
        .offset = ((const int64_t *)(const void *)call->ptrs[5])[i * s->steps[4]],
    };
}

/* Divides the scratch of one thread. */
static struct scratch scratch_at(char *base, int64_t vocab)
{
    struct scratch w = {.bins = (double *)(void *)base, .sums = (double *)(void *)base + BINS};

    w.p = (float *)(void *)(w.sums + (vocab + BLOCK - 1) / BLOCK);
    return w;
}

static void run_sample(const struct ngd_host_call *call, struct ngd_host_run *run, uint32_t part, uint32_t parts)
{
    const struct sample *s = call->params;
    int32_t *token = (void *)call->ptrs[6];
    char *base = call->workspace + ngd_host_thread * s->thread_workspace;
    const struct scratch w = scratch_at(base, s->vocab);
    int64_t begin, end;

    ngd_host_split(ngd_host_rows(call, run), 1, part, parts, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        const struct ngd_sample_choice c = choice_of(s, call, i);

        token[i] = s->vocab ? sample_row(s, &w, call->ptrs[0] + i * s->row_bytes, &c) : 0;
    }
}

/* ---- capture ------------------------------------------------------------------------------------------ */

static uint64_t workspace_of(int64_t vocab)
{
    const uint64_t blocks = (uint64_t)(vocab + BLOCK - 1) / BLOCK;

    return (BINS * sizeof(double) + blocks * sizeof(double) + (uint64_t)vocab * sizeof(float) + 63) & ~(uint64_t)63;
}

uint64_t ngd_sample_scratch(uint32_t vocab)
{
    return workspace_of(vocab);
}

int32_t ngd_sample_choose(float *logits, uint32_t vocab, const struct ngd_sample_choice *choice, char *scratch)
{
    const struct sample s = {
        .vocab = vocab, .size = sizeof(float), .type = NGD_F32, .table = NGD_BY_ISA(ngd_cpu_isa(), ngd_sample_table)};
    struct scratch w = scratch_at(scratch, vocab);
    float max;

    w.order = logits;
    (void)find_max(&s, (const char *)logits, &max);
    return max == -INFINITY ? -1 : sample_row(&s, &w, (const char *)logits, choice);
}

static ngd_status_t sample_select(const struct ngd_plan *plan, const struct ngd_plan_call *call, uint32_t threads,
                                  uint32_t *strided_p, uint64_t *workspace_p, struct ngd_diag *diag)
{
    const struct ngd_plan_tensor *logits = ngd_call_in(plan, call, 0);

    (void)diag;
    *strided_p = 0x3e | (logits->strides[1] == 1 || logits->dims[1] == 1);
    *workspace_p = workspace_of(logits->dims[1]) * threads;
    return NGD_OK;
}

static ngd_status_t sample_prepare(struct ngd_host_prepare *p, struct ngd_diag *diag)
{
    const struct ngd_plan_tensor *logits = ngd_call_in(p->plan, p->call, 0);
    struct sample *s = ngd_arena_calloc(p->arena, 1, sizeof(*s));

    if (!s)
        return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory for the parameters of %s", p->call->op->name);
    s->vocab = logits->dims[1];
    s->type = logits->dtype;
    s->size = (int64_t)ngd_dtype_bytes(s->type);
    s->row_bytes = logits->strides[0] * s->size;
    for (uint32_t i = 0; i < 5; i++)
        s->steps[i] = ngd_call_in(p->plan, p->call, i + 1)->strides[0];
    s->thread_workspace = workspace_of(s->vocab);
    s->table = NGD_BY_ISA(p->isa, ngd_sample_table);
    p->params = s;
    p->fn = run_sample;
    p->cost_ns = 100 + (double)(logits->dims[0] * s->vocab) * (p->isa == NGD_ISA_SCALAR ? 3 : 0.4);
    return NGD_OK;
}

extern const struct ngd_host_kernel ngd_host_sample;
const struct ngd_host_kernel ngd_host_sample = {.select = sample_select, .prepare = sample_prepare};
