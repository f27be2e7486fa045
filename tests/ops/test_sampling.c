/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests the sampler: its random numbers against the known answers of Random123, its choice against the rule (k_sample.c
 * states it) computed by sorting in double, its frequencies against the probabilities, and corner cases.
 */
#include "devices/host/kernels/k_sample.h"
#include "tests/ops/each_isa.h"
#include "tests/ops/reference.h"
#include "tests/unit/unit.h"

START_TEST(philox_gives_the_known_answers)
{
    /* Random123, kat_vectors: philox4x32 10. */
    static const uint32_t known[][10] = {
        {0, 0, 0, 0, 0, 0, 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8},
        {0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0x408f276d, 0x41c83b0e, 0xa20bc7c6,
         0x6d5451fd},
        {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0xa4093822, 0x299f31d0, 0xd16cfe09, 0x94fdcceb, 0x5001e420,
         0x24126ea1},
    };

    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        uint32_t out[4];

        ngd_philox4x32(known[i], known[i] + 4, out);
        ck_assert_mem_eq(out, known[i] + 6, sizeof(out));
    }
    ck_assert_double_eq(ngd_sample_draw(0, 0), 0x6627e8d5 * 0x1p-32);
    ck_assert_double_ne(ngd_sample_draw(0, 1), ngd_sample_draw(1, 0));
    ck_assert_double_ne(ngd_sample_draw((int64_t)1 << 32, 0), ngd_sample_draw(0, 0));
    ck_assert_double_ne(ngd_sample_draw(0, (int64_t)1 << 32), ngd_sample_draw(0, 0));
    ck_assert_double_ne(ngd_sample_draw(-1, 0), ngd_sample_draw(0, 0));
}
END_TEST

/* ---- a sampler ---- */

#define ROWS 64

struct sampler {
    struct bench b;
    struct ready r;
    int64_t vocab;
    ngd_dtype_t dtype;
    struct numbers logits; /* [ROWS][vocab] */
    float temperature[ROWS], top_p[ROWS];
    int32_t top_k[ROWS], token[ROWS];
    int64_t seed[ROWS], offset[ROWS];
};

static void sampler_open(struct sampler *s, ngd_isa_t isa, ngd_dtype_t dtype, int64_t vocab)
{
    struct ngd_diag diag = {0};
    struct ngd_strbuf sb;

    memset(s, 0, sizeof(*s));
    s->vocab = vocab;
    s->dtype = dtype;
    bench_open(&s->b, isa, 2);
    ngd_strbuf_init(&sb);
    ngd_strbuf_printf(
        &sb,
        "npugraph 1\ngraph \"s\" {\n input %%l : %s[%d,%lld]\n input %%t : f32[%d]\n input %%k : i32[%d]\n"
        " input %%p : f32[%d]\n input %%s : i64[%d]\n input %%o : i64[%d]\n"
        " %%y = npu.top_k_top_p_sample(%%l, %%t, %%k, %%p, %%s, %%o)\n return \"y\" = %%y\n}\n",
        ngd_dtype_name(dtype), ROWS, (long long)vocab, ROWS, ROWS, ROWS, ROWS, ROWS);
    run_check(ready_open(&s->r, &s->b, ngd_strbuf_str(&sb), NULL, &diag), &diag, ngd_strbuf_str(&sb));
    ngd_strbuf_fini(&sb);
    numbers_open(&s->logits, dtype, ROWS * vocab);
    for (int i = 0; i < ROWS; i++) {
        s->temperature[i] = 1;
        s->top_p[i] = 1;
    }
}

static void sampler_close(struct sampler *s)
{
    numbers_close(&s->logits);
    ready_close(&s->r);
    bench_close(&s->b);
}

static void sampler_run(struct sampler *s)
{
    struct ngd_span in[6] = {{s->logits.data, numbers_bytes(&s->logits)},
                             {s->temperature, sizeof(s->temperature)},
                             {s->top_k, sizeof(s->top_k)},
                             {s->top_p, sizeof(s->top_p)},
                             {s->seed, sizeof(s->seed)},
                             {s->offset, sizeof(s->offset)}};
    struct ngd_out out = {s->token, sizeof(s->token)};
    struct ngd_launch launch = {.inputs = in, .outputs = &out};

    memset(s->token, 0xee, sizeof(s->token));
    run_check(ngd_stream_run(s->b.stream, s->r.inst, &launch), &launch.diag, "sampler");
    for (int i = 0; i < ROWS; i++)
        ck_assert_msg(s->token[i] >= 0 && s->token[i] < s->vocab, "row %d: token %d", i, s->token[i]);
}

static double *row_of(struct sampler *s, int i)
{
    return s->logits.value + (int64_t)i * s->vocab;
}

static void set_row(struct sampler *s, int i, const double *values)
{
    for (int64_t v = 0; v < s->vocab; v++)
        numbers_put(&s->logits, (int64_t)i * s->vocab + v, values[v]);
}

/* ---- the rule ---- */

struct kept {
    int64_t *ids; /* in the order of choice: by logit, then by id */
    double *p;    /* indexed by id; 0: not kept */
    double total;
};

static const double *sort_by;

static int by_logit(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    if (sort_by[x] != sort_by[y])
        return sort_by[x] > sort_by[y] ? -1 : 1;
    return x < y ? -1 : x > y;
}

/*
 * Finds the tokens that top_k and top_p keep, with top_p larger by `slack` of the sum. The kernel's sums differ from
 * these, so a token at the very edge may be kept or not.
 */
static void keep(struct sampler *s, int row, double slack, struct kept *k)
{
    const double *logit = row_of(s, row);
    int64_t n = s->vocab, n_p = 0;
    double sum = 0, before = 0;

    k->ids = calloc((size_t)n, sizeof(int64_t));
    k->p = calloc((size_t)n, sizeof(double));
    for (int64_t i = 0; i < n; i++)
        k->ids[i] = i;
    sort_by = logit;
    qsort(k->ids, (size_t)n, sizeof(int64_t), by_logit);
    if (s->top_k[row] > 0 && s->top_k[row] < n)
        n = s->top_k[row];
    for (int64_t i = 0; i < n; i++)
        sum += exp((logit[k->ids[i]] - logit[k->ids[0]]) / (double)s->temperature[row]);
    for (int64_t i = 0; i < n; i++) {
        double p = exp((logit[k->ids[i]] - logit[k->ids[0]]) / (double)s->temperature[row]);

        if (i && s->top_p[row] < 1 && before >= ((double)s->top_p[row] + slack) * sum)
            break;
        before += p;
        k->p[k->ids[i]] = p;
        n_p++;
    }
    k->total = 0;
    for (int64_t i = 0; i < n_p; i++)
        k->total += k->p[k->ids[i]];
}

static void kept_free(struct kept *k)
{
    free(k->ids);
    free(k->p);
}

/* Returns true if u times the sum is in the token's part of it, within the error of sums in f32. */
static bool is_chosen(struct sampler *s, int row, double slack)
{
    double u = ngd_sample_draw(s->seed[row], s->offset[row]), below = 0, off;
    struct kept k;
    bool ok;

    keep(s, row, slack, &k);
    off = 1e-5 * k.total;
    for (int64_t i = 0; i < s->token[row]; i++)
        below += k.p[i];
    ok = k.p[s->token[row]] > 0 && u * k.total >= below - off && u * k.total <= below + k.p[s->token[row]] + off;
    kept_free(&k);
    return ok;
}

START_TEST(choice_follows_the_rule)
{
    static const int64_t vocabs[] = {1, 2, 5, 100, 1023, 1024, 1025, 5000};
    static const ngd_dtype_t dtypes[] = {NGD_F32, NGD_F16, NGD_BF16};
    struct random r = {21};

    EACH_ISA (isa)
        for (size_t v = 0; v < 8; v++)
            for (size_t t = 0; t < 3; t++) {
                static struct sampler s;
                uint32_t edges = 0;

                sampler_open(&s, (ngd_isa_t)isa, dtypes[t], vocabs[v]);
                for (int64_t i = 0; i < ROWS * s.vocab; i++)
                    numbers_put(&s.logits, i, (v % 2 ? 3 : 12) * random_value(&r));
                for (int i = 0; i < ROWS; i++) {
                    s.temperature[i] = (float)(0.2 + 2 * fabs(random_value(&r)));
                    s.top_k[i] = i % 3 ? (int32_t)random_below(&r, vocabs[v] + 2) : 0;
                    s.top_p[i] = i % 4 ? (float)fabs(random_value(&r)) : 1;
                    s.seed[i] = (int64_t)random_u32(&r) << 20;
                    s.offset[i] = i * 7;
                }
                sampler_run(&s);
                for (int i = 0; i < ROWS; i++) {
                    bool ok = is_chosen(&s, i, 0);

                    edges += !ok;
                    ck_assert_msg(ok || is_chosen(&s, i, 1e-5) || is_chosen(&s, i, -1e-5),
                                  "%s, %s, vocabulary %lld, row %d: token %d, temperature %g, top_k %d, top_p %g",
                                  s.b.name, ngd_dtype_name(s.dtype), (long long)s.vocab, i, s.token[i],
                                  (double)s.temperature[i], s.top_k[i], (double)s.top_p[i]);
                }
                ck_assert_uint_le(edges, 2); /* edges are rare, or the rule is another one */
                sampler_close(&s);
            }
}
END_TEST

/* ---- frequencies ---- */

/* Chi square of 19 degrees of freedom that is exceeded once in 10^5.
 * The seeds are fixed, so the test is deterministic. */
#define CHI_SQUARE_19 57.0

static double chi_square(struct sampler *s, const double *p, uint32_t draws, bool by_seed)
{
    uint32_t count[20] = {0};
    double sum = 0;

    for (uint32_t at = 0; at < draws; at += ROWS) {
        for (uint32_t i = 0; i < ROWS; i++) {
            s->seed[i] = by_seed ? 123456789 + (int64_t)(at + i) : 42;
            s->offset[i] = by_seed ? 3 : at + i;
        }
        sampler_run(s);
        for (int i = 0; i < ROWS; i++)
            count[s->token[i]]++;
    }
    for (int v = 0; v < 20; v++) {
        double want = p[v] * draws;

        if (want == 0)
            ck_assert_uint_eq(count[v], 0);
        else
            sum += (count[v] - want) * (count[v] - want) / want;
    }
    return sum;
}

START_TEST(frequencies_are_the_probabilities)
{
    static const float temperatures[] = {0.5f, 1, 3};
    struct random r = {22};

    for (int c = 0; c < 12; c++) {
        static struct sampler s;
        struct kept k;
        double values[20], p[20], chi;

        sampler_open(&s, ngd_cpu_isa(), c % 2 ? NGD_BF16 : NGD_F32, 20);
        for (int v = 0; v < 20; v++)
            values[v] = 1.5 * random_value(&r);
        for (int i = 0; i < ROWS; i++) {
            set_row(&s, i, values);
            s.temperature[i] = temperatures[c % 3];
            s.top_k[i] = c / 3 == 1 || c / 3 == 3 ? 12 : 0;
            s.top_p[i] = c / 3 >= 2 ? 0.8f : 1;
        }
        keep(&s, 0, 0, &k);
        for (int v = 0; v < 20; v++)
            p[v] = k.p[v] / k.total;
        kept_free(&k);
        for (int by_seed = 0; by_seed < 2; by_seed++) {
            chi = chi_square(&s, p, 12800, by_seed);
            ck_assert_msg(chi < CHI_SQUARE_19, "case %d: chi square is %g", c, chi);
            ck_assert_msg(chi > 0.5, "case %d: chi square is %g: too even to be drawn", c, chi);
        }
        sampler_close(&s);
    }
}
END_TEST

/* ---- corner cases ---- */

/* Fills all rows with the same logits, and returns the set of drawn ids, a bit for each. */
static uint32_t drawn_set(struct sampler *s, const double *values)
{
    uint32_t set = 0;

    for (int i = 0; i < ROWS; i++) {
        set_row(s, i, values);
        s->seed[i] = i * 1000003;
        s->offset[i] = i;
    }
    sampler_run(s);
    for (int i = 0; i < ROWS; i++)
        set |= 1u << s->token[i];
    return set;
}

static void set_all(struct sampler *s, float temperature, int32_t k, float p)
{
    for (int i = 0; i < ROWS; i++) {
        s->temperature[i] = temperature;
        s->top_k[i] = k;
        s->top_p[i] = p;
    }
}

#define INF ((double)INFINITY)
#define NOT ((double)NAN)

/* The ids that 64 draws of a row of 8 must give: all that are possible. */
static const struct {
    const char *what;
    float temperature;
    int32_t top_k;
    float top_p;
    double logits[8];
    uint32_t drawn;
} ends[] = {
    {"all equal", 1, 0, 1, {2, 2, 2, 2, 2, 2, 2, 2}, 0xff},
    {"top_k 1", 5, 1, 1, {1, 2, 3, 2, 3, 1, 0, 0}, 1 << 2},
    {"top_k 1, all equal", 1, 1, 1, {0, 0, 0, 0, 0, 0, 0, 0}, 1},
    {"top_k 3 among ties", 1, 3, 1, {1, 5, 5, 5, 5, 1, 5, 1}, 0x0e},
    {"top_k of all", 1, 8, 1, {0, 0, 0, 0, 0, 0, 0, 0}, 0xff},
    {"top_k of more than all", 1, 1000000, 1, {0, 0, 0, 0, 0, 0, 0, 0}, 0xff},
    {"top_k below 0 is off", 1, -3, 1, {0, 0, 0, 0, 0, 0, 0, 0}, 0xff},
    {"top_p 0", 9, 0, 0, {1, 1, 4, 4, 1, 1, 1, 1}, 1 << 2},
    {"top_p below 0", 9, 0, -1, {1, 1, 4, 4, 1, 1, 1, 1}, 1 << 2},
    {"top_p above 1 is off", 1, 0, 2, {0, 0, 0, 0, 0, 0, 0, 0}, 0xff},
    {"top_p of a half among ties", 1, 0, 0.5f, {3, 3, 3, 3, 3, 3, 3, 3}, 0x0f},
    {"top_p of NaN is off", 1, 0, NAN, {0, 0, 0, 0, 0, 0, 0, 0}, 0xff},
    {"top_k, then top_p of what is left", 1, 4, 0.5f, {0, 0, 1, 1, 1, 1, 0, 0}, 0x0c},
    {"temperature 0", 0, 0, 1, {0, 1, 7, 7, 1, 0, 0, 0}, 1 << 2},
    {"temperature below 0", -1, 0, 1, {0, 1, 7, 7, 1, 0, 0, 0}, 1 << 2},
    {"temperature NaN", NAN, 0, 1, {0, 1, 7, 7, 1, 0, 0, 0}, 1 << 2},
    {"smallest temperature", 1e-45f, 0, 1, {0, 1, 7, 6.99, 1, 0, 0, 0}, 1 << 2},
    {"tiny temperature", 1e-39f, 0, 1, {0, 1, 7, 6.99, 1, 0, 0, 0}, 1 << 2},
    {"small temperature", 1e-30f, 0, 1, {0, 1, 7, 6.99, 1, 0, 0, 0}, 1 << 2},
    {"tiny temperature among ties", 1e-39f, 0, 1, {0, 1, 7, 7, 1, 0, 0, 0}, 0x0c},
    {"tiny temperature with -inf", 1e-39f, 0, 1, {-INF, 1, 7, 6, 1, 0, 0, 0}, 1 << 2},
    {"infinite temperature", INFINITY, 0, 1, {0, 1, 70, -50, 1, 0, 0, 0}, 0xff},
    {"infinite temperature with -inf", INFINITY, 0, 1, {0, 1, -INF, 1, 1, 0, 0, 0}, 0xfb},
    {"largest temperature", 3e38f, 0, 1, {0, 1, -INF, -50, 1, 0, 0, 0}, 0xfb},
    {"-inf is never drawn", 1, 0, 1, {1, -INF, 1, -INF, 1, -INF, 1, -INF}, 0x55},
    {"top_k reaching -inf", 1, 6, 1, {1, -INF, 1, -INF, 1, -INF, 1, -INF}, 0x55},
    {"all -inf", 1, 0, 1, {-INF, -INF, -INF, -INF, -INF, -INF, -INF, -INF}, 1},
    {"one that is not -inf", 1, 0, 0.1f, {-INF, -INF, -INF, -INF, -INF, 5, -INF, -INF}, 1 << 5},
    {"+inf", 1, 0, 1, {9, 9, INF, 9, INF, 9, 9, 9}, 1 << 2},
    {"NaN", 1, 0, 1, {9, 9, 9, NOT, 9, NOT, 9, 9}, 1 << 3},
    {"NaN beside +inf", 1, 0, 1, {9, INF, 9, 9, 9, NOT, 9, 9}, 1 << 5},
    {"NaN, greedily", 0, 0, 1, {9, 9, 9, 9, 9, 9, 9, NOT}, 1 << 7},
    {"-0 and 0 are equal", 0, 0, 1, {-1, -0.0, 0, -1, -1, -1, -1, -1}, 1 << 1},
    {"-0 and 0 are equal to top_k", 1, 1, 1, {-1, -0.0, 0, -1, -1, -1, -1, -1}, 1 << 1},
    {"far apart", 1, 0, 1, {3e38, -3e38, -3e38, -3e38, -3e38, -3e38, -3e38, -3e38}, 1},
    {"large and near", 1, 0, 1, {3e38, 3e38, 0, 0, 0, 0, 0, 0}, 3},
};

START_TEST(ends_of_the_parameters_and_of_the_logits_are_as_the_rule_says)
{
    EACH_ISA (isa) {
        static struct sampler s;

        sampler_open(&s, (ngd_isa_t)isa, NGD_F32, 8);
        for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
            uint32_t drawn;

            set_all(&s, ends[i].temperature, ends[i].top_k, ends[i].top_p);
            drawn = drawn_set(&s, ends[i].logits);
            ck_assert_msg(drawn == ends[i].drawn, "%s, %s: drew the set %#x, not %#x", s.b.name, ends[i].what, drawn,
                          ends[i].drawn);
        }
        sampler_close(&s);
    }
}
END_TEST

/* The same row gives the same token at any position, and the draw depends only on (seed, offset). */
START_TEST(token_depends_on_its_row_alone)
{
    static struct sampler s;
    struct random r = {23};
    double values[300];
    int32_t first;

    sampler_open(&s, ngd_cpu_isa(), NGD_F32, 300);
    for (int v = 0; v < 300; v++)
        values[v] = random_value(&r);
    set_all(&s, 0.9f, 50, 0.95f);
    for (int i = 0; i < ROWS; i++) {
        for (int v = 0; v < 300; v++)
            numbers_put(&s.logits, i * 300 + v, i % 3 ? 4 * random_value(&r) : values[v]);
        s.seed[i] = i % 3 ? i : 77;
        s.offset[i] = i % 3 ? 1 : 5;
    }
    sampler_run(&s);
    first = s.token[0];
    for (int i = 0; i < ROWS; i += 3)
        ck_assert_int_eq(s.token[i], first);
    sampler_close(&s);
}
END_TEST

UNIT_MAIN("ops/sampling", philox_gives_the_known_answers, choice_follows_the_rule, frequencies_are_the_probabilities,
          ends_of_the_parameters_and_of_the_logits_are_as_the_rule_says, token_depends_on_its_row_alone)
