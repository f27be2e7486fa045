/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests allow_excess_precision: compares norms, rotations and gates, as models write them in bf16 and f16, with their
 * exact results, computed here in double. Without the option they have the bits of the graph without passes. With it
 * they are one call. Its error is no larger than that of the original, and within the roundings that are left.
 */
#include "graphs/graph_int.h"
#include "tests/ops/each_isa.h"
#include "tests/ops/reference.h"
#include "tests/unit/unit.h"

#define ROWS  24 /* rows of all tensors: tokens times heads */
#define HEADS 3
#define D     48
#define EPS   1e-5
#define SEEDS 16
#define ALL   (ROWS * D)
#define TABLE (ROWS / HEADS * D)

enum { A, B, C, N_OPERANDS };

/* A form that models spell out: its operands %a, %b, %c and results %y, %x, all of the dtype TYPE. */
struct form {
    const char *name;
    int64_t size[N_OPERANDS]; /* elements; the last dimension is D, or half of it */
    const char *text;
    void (*mean)(const struct numbers in[N_OPERANDS], double *y, double *x);
    double roundings; /* number of roundings that are left */
    double noise;     /* factor by which its error may be larger by chance; 1: it rounds less often than the original */
};

/* ---- exact results ---- */

static void rms_norm_row(const double *x, const double *gamma, double *y)
{
    double squares = 0;

    for (int i = 0; i < D; i++)
        squares += x[i] * x[i];
    for (int i = 0; i < D; i++)
        y[i] = x[i] / sqrt(squares / D + EPS) * gamma[i];
}

static void mean_norm(const struct numbers in[N_OPERANDS], double *y, double *x)
{
    (void)x;
    for (int64_t row = 0; row < ROWS; row++)
        rms_norm_row(in[A].value + row * D, in[B].value, y + row * D);
}

static void mean_add_norm(const struct numbers in[N_OPERANDS], double *y, double *x)
{
    for (int64_t i = 0; i < ROWS * D; i++)
        x[i] = in[A].value[i] + in[B].value[i];
    for (int64_t row = 0; row < ROWS; row++)
        rms_norm_row(x + row * D, in[C].value, y + row * D);
}

/* Rotates heads with tables of a head, or of half a head. */
static void rotate(const struct numbers in[N_OPERANDS], double *y, int64_t table)
{
    const int64_t half = D / 2;

    for (int64_t row = 0; row < ROWS; row++) {
        const int64_t t = row / HEADS;
        const double *x = in[A].value + row * D, *cosine = in[B].value + t * table, *sine = in[C].value + t * table;

        for (int64_t i = 0; i < half; i++) {
            y[row * D + i] = x[i] * cosine[i] - x[half + i] * sine[i];
            y[row * D + half + i] = x[half + i] * cosine[table - half + i] + x[i] * sine[table - half + i];
        }
    }
}

static void mean_rotary(const struct numbers in[N_OPERANDS], double *y, double *x)
{
    (void)x;
    rotate(in, y, D);
}

static void mean_rotary_halves(const struct numbers in[N_OPERANDS], double *y, double *x)
{
    (void)x;
    rotate(in, y, D / 2);
}

static void mean_gate(const struct numbers in[N_OPERANDS], double *y, double *x)
{
    (void)x;
    for (int64_t row = 0; row < ROWS; row++)
        for (int64_t i = 0; i < D / 2; i++) {
            const double g = in[A].value[row * D + i], u = in[A].value[row * D + D / 2 + i];

            y[row * D / 2 + i] = g / (1 + exp(-g)) * u;
        }
}

/* ---- texts ---- */

#define NORM                                                      \
    "  %square = aten.pow.Tensor_Scalar(%wide) {exponent=2}\n"    \
    "  %mean = aten.mean.dim(%square) {dim=[-1], keepdim=true}\n" \
    "  %shifted = aten.add.Scalar(%mean) {other=1e-05}\n"         \
    "  %rstd = aten.rsqrt(%shifted)\n"                            \
    "  %n = aten.mul.Tensor(%wide, %rstd)\n"                      \
    "  %rounded = aten._to_copy(%n) {dtype=TYPE}\n"
#define TURN(x)                                                     \
    "  %u = aten.mul.Tensor(" x ", %b)\n"                           \
    "  %x1 = aten.slice.Tensor(" x ") {dim=-1, start=0, end=24}\n"  \
    "  %x2 = aten.slice.Tensor(" x ") {dim=-1, start=24, end=48}\n" \
    "  %minus = aten.neg(%x2)\n"                                    \
    "  %turned = aten.cat(%minus, %x1) {dim=-1}\n"                  \
    "  %v = aten.mul.Tensor(%turned, %c)\n"                         \
    "  %y = aten.add.Tensor(%u, %v)\n"

static const struct form forms[] = {
    {"Llama's norm",
     {ALL, D},
     "  input %a : TYPE[2,12,48]\n  input %b : TYPE[48]\n"
     "  %wide = aten._to_copy(%a) {dtype=f32}\n" NORM "  %y = aten.mul.Tensor(%b, %rounded)\n  return \"y\" = %y\n",
     mean_norm,
     1,
     1},
    {"vLLM's norm of a residual",
     {ALL, ALL, D},
     "  input %a : TYPE[24,48]\n  input %b : TYPE[24,48]\n  input %c : TYPE[48]\n"
     "  %wa = aten._to_copy(%a) {dtype=f32}\n  %wb = aten._to_copy(%b) {dtype=f32}\n"
     "  %wide = aten.add.Tensor(%wa, %wb)\n  %x = aten._to_copy(%wide) {dtype=TYPE}\n" NORM
     "  %y = aten.mul.Tensor(%rounded, %c)\n  return \"y\" = %y, \"x\" = %x\n",
     mean_add_norm,
     2,
     1.1},
    {"vLLM's last norm",
     {ALL, ALL, D},
     "  input %a : TYPE[24,48]\n  input %b : TYPE[24,48]\n  input %c : TYPE[48]\n"
     "  %wa = aten._to_copy(%a) {dtype=f32}\n  %wb = aten._to_copy(%b) {dtype=f32}\n"
     "  %wide = aten.add.Tensor(%wb, %wa)\n" NORM "  %y = aten.mul.Tensor(%rounded, %c)\n  return \"y\" = %y\n",
     mean_add_norm,
     2,
     1.1},
    {"a rotation of rows",
     {ALL, TABLE, TABLE},
     "  input %a : TYPE[8,3,48]\n  input %b : TYPE[8,1,48]\n  input %c : TYPE[8,1,48]\n" TURN(
         "%a") "  return \"y\" = %y\n",
     mean_rotary,
     1,
     1},
    {"transformers' rotation",
     {ALL, TABLE, TABLE},
     "  input %a : TYPE[2,4,3,48]\n  input %b : TYPE[2,1,4,48]\n  input %c : TYPE[2,1,4,48]\n"
     "  %t = aten.transpose.int(%a) {dim0=1, dim1=2}\n" TURN(
         "%t") "  %back = aten.transpose.int(%y) {dim0=1, dim1=2}\n  return \"y\" = %back\n",
     mean_rotary,
     1,
     1},
    {"vLLM's rotation",
     {ALL, TABLE / 2, TABLE / 2},
     "  input %a : TYPE[8,3,48]\n  input %b : TYPE[8,1,24]\n  input %c : TYPE[8,1,24]\n"
     "  %x1, %x2 = aten.split_with_sizes(%a) {split_sizes=[24,24], dim=-1}\n"
     "  %p = aten.mul.Tensor(%x1, %b)\n  %q = aten.mul.Tensor(%x2, %c)\n  %y1 = aten.sub.Tensor(%p, %q)\n"
     "  %r = aten.mul.Tensor(%x2, %b)\n  %s = aten.mul.Tensor(%x1, %c)\n  %y2 = aten.add.Tensor(%r, %s)\n"
     "  %y = aten.cat(%y1, %y2) {dim=-1}\n  return \"y\" = %y\n",
     mean_rotary_halves,
     1,
     1},
    {"a gate",
     {ALL},
     "  input %a : TYPE[24,48]\n  %g, %u = aten.split_with_sizes(%a) {split_sizes=[24,24], dim=-1}\n"
     "  %s = aten.silu(%g)\n  %y = aten.mul.Tensor(%s, %u)\n  return \"y\" = %y\n",
     mean_gate,
     1,
     1},
    {"a gate of slices",
     {ALL},
     "  input %a : TYPE[24,48]\n  %g = aten.slice.Tensor(%a) {dim=-1, start=0, end=24}\n"
     "  %u = aten.slice.Tensor(%a) {dim=-1, start=24, end=48}\n"
     "  %s = aten.silu(%g)\n  %y = aten.mul.Tensor(%s, %u)\n  return \"y\" = %y\n",
     mean_gate,
     1,
     1},
};

/* ---- runs ---- */

struct run {
    struct ready r;
    uint32_t n;
    char *data[2]; /* the results, as they are stored */
    uint64_t bytes[2];
};

static void text_of(const struct form *f, ngd_dtype_t dtype, struct ngd_strbuf *sb)
{
    ngd_strbuf_init(sb);
    ngd_strbuf_append(sb, "npugraph 1\ngraph \"written\" {\n");
    for (const char *at = f->text, *next; *at; at = next) {
        const char *type = strstr(at, "TYPE");

        next = type ? type + 4 : at + strlen(at);
        ngd_strbuf_printf(sb, "%.*s%s", (int)(type ? type - at : next - at), at, type ? ngd_dtype_name(dtype) : "");
    }
    ngd_strbuf_append(sb, "}\n");
}

static void run_form(struct run *run, const struct form *f, struct bench *b, const struct numbers in[N_OPERANDS],
                     const struct ngd_graph_options *options)
{
    struct ngd_span spans[N_OPERANDS];
    struct ngd_out outs[2];
    struct ngd_launch launch = {.inputs = spans, .outputs = outs};
    const struct ngd_graph *g;
    struct ngd_diag diag = {0};
    struct ngd_strbuf sb;

    memset(run, 0, sizeof(*run));
    text_of(f, in[A].dtype, &sb);
    run_check(ready_plan_with(&run->r, b, options, ngd_strbuf_str(&sb), NULL, &diag), &diag, f->name);
    run_check(ready_bind(&run->r, b, NULL, 0, &diag), &diag, f->name);
    ngd_strbuf_fini(&sb);
    g = run->r.graph;
    for (uint32_t i = 0; i < g->n_inputs; i++)
        spans[i] = (struct ngd_span){in[i].data, numbers_bytes(&in[i])};
    for (run->n = 0; run->n < g->n_outputs; run->n++) {
        run->bytes[run->n] = ngd_plan_output_bytes(run->r.plan, run->n, NULL);
        run->data[run->n] = calloc(run->bytes[run->n], 1);
        outs[run->n] = (struct ngd_out){run->data[run->n], run->bytes[run->n]};
    }
    run_check(ngd_launch_check(run->r.plan, &launch, g->n_inputs, g->n_hosts, g->n_outputs, &diag), &diag, f->name);
    run_check(ngd_stream_run(b->stream, run->r.inst, &launch), &launch.diag, f->name);
}

static void run_close(struct run *run)
{
    ready_close(&run->r);
    for (uint32_t i = 0; i < run->n; i++)
        free(run->data[i]);
}

static void same_bits(const struct form *f, const struct run *a, const struct run *b, const struct bench *bench)
{
    for (uint32_t i = 0; i < a->n; i++)
        ck_assert_msg(memcmp(a->data[i], b->data[i], a->bytes[i]) == 0, "%s (%s): other bits without the option",
                      f->name, bench->name);
}

/* Returns the sum of the squared errors of a result. *furthest_p: the largest error, relative to the allowed one. */
static double error_of(const struct form *f, const struct run *run, uint32_t which, ngd_dtype_t dtype,
                       const double *want, double *furthest_p)
{
    double sum = 0;

    *furthest_p = 0;
    for (int64_t i = 0; i < (int64_t)(run->bytes[which] / ngd_dtype_bytes(dtype)); i++) {
        const double e = fabs(numbers_got(dtype, run->data[which], i) - want[i]);
        /* Sums in f32 are not exact either, and large terms that cancel leave a small result with their error. */
        const double room = f->roundings * rounding_of(dtype, want[i]) * 1.01 + 2e-6;

        sum += e * e;
        *furthest_p = fmax(*furthest_p, e / room);
    }
    return sum;
}

static uint32_t small_calls(const struct ngd_plan *plan)
{
    uint32_t n = 0;

    for (uint32_t c = 0; c < plan->n_calls; c++)
        n += (plan->calls[c].op->flags & NGD_OPF_ELEMENTWISE) != 0;
    return n;
}

struct errors {
    double written, fused; /* squares, summed over seeds */
};

static void check_once(struct bench *b, const struct form *f, ngd_dtype_t dtype, uint64_t seed, struct errors *e)
{
    static double want[2][ROWS * D];
    struct ngd_graph_options off, on;
    struct random r = {seed * UINT64_C(0x9e3779b97f4a7c15) + 3};
    struct numbers in[N_OPERANDS];
    struct run plain, same, fused;
    double furthest, ignored;

    for (int i = 0; i < N_OPERANDS; i++) /* with other magnitudes each time, because numbers just above a power of two
                                            have the largest relative rounding */
        numbers_random(&in[i], dtype, f->size[i], exp2(1 + random_value(&r)), &r);
    f->mean(in, want[0], want[1]);
    ngd_graph_options_init(&off);
    on = off;
    on.allow_excess_precision = true;
    run_form(&plain, f, b, in, NULL);
    run_form(&same, f, b, in, &off);
    run_form(&fused, f, b, in, &on);
    same_bits(f, &plain, &same, b);
    ck_assert_msg(small_calls(same.r.plan) > 1, "%s: fused without the option", f->name);
    ck_assert_msg(small_calls(fused.r.plan) == 0, "%s (%s): %u calls are left", f->name, ngd_dtype_name(dtype),
                  small_calls(fused.r.plan));
    e->written += error_of(f, &plain, 0, dtype, want[0], &ignored);
    e->fused += error_of(f, &fused, 0, dtype, want[0], &furthest);
    for (uint32_t i = 0; i < fused.n; i++) {
        error_of(f, &fused, i, dtype, want[i], &furthest);
        ck_assert_msg(furthest <= 1, "%s (%s, %s): result %u is %.3g times as far off as roundings explain", f->name,
                      ngd_dtype_name(dtype), b->name, i, furthest);
    }
    run_close(&plain);
    run_close(&same);
    run_close(&fused);
    for (int i = 0; i < N_OPERANDS; i++)
        numbers_close(&in[i]);
}

START_TEST(what_rounds_less_is_no_further_from_what_is_meant_and_without_the_option_nothing_changes)
{
    static const ngd_dtype_t dtypes[] = {NGD_BF16, NGD_F16};

    EACH_ISA (isa) {
        struct bench b;

        bench_open(&b, (ngd_isa_t)isa, 1);
        for (size_t i = 0; i < 2 * sizeof(forms) / sizeof(forms[0]); i++) {
            const struct form *f = &forms[i / 2];
            const ngd_dtype_t dtype = dtypes[i % 2];
            struct errors e = {0, 0};

            for (uint64_t seed = 0; seed < SEEDS; seed++)
                check_once(&b, f, dtype, seed, &e);
            if (getenv("NGD_TEST_VERBOSE"))
                fprintf(stderr, "%s, %s, %s: error %.3f of what was written\n", b.name, f->name, ngd_dtype_name(dtype),
                        sqrt(e.fused / e.written));
            ck_assert_msg(e.written > 0 && sqrt(e.fused / e.written) <= f->noise,
                          "%s (%s, %s): the error is %.3f times that of what was written", f->name,
                          ngd_dtype_name(dtype), b.name, sqrt(e.fused / e.written));
        }
        bench_close(&b);
    }
}
END_TEST

UNIT_MAIN("ops/excess", what_rounds_less_is_no_further_from_what_is_meant_and_without_the_option_nothing_changes)
