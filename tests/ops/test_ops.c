/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests conformance of the host device: runs every golden case of every operator on the real path, for every
 * instruction set of this machine, replayed and eager.
 *
 *     test_ops            the tests
 *     test_ops --report   the largest error of each operator, in units of its tolerance
 *     test_ops --bench    the time of each operator's first case, and of some calls of a model's sizes
 */
#include "tests/ops/each_isa.h"
#include "tests/ops/direct.h"
#include "tests/ops/golden_run.h"
#include "tests/unit/unit.h"
#include "base/clock.h"

static double worst[NGD_OP_MAX][NGD_ISA_MAX];
static uint32_t seen[NGD_OP_MAX];

/* ---- all cases ---- */

static uint32_t run_all(ngd_isa_t isa, uint32_t threads, bool params, bool eager)
{
    struct golden g;
    struct bench b;
    uint32_t wrong = 0;

    golden_open(&g);
    bench_open(&b, isa, threads);
    for (size_t i = 0; i < json_array_size(g.cases); i++) {
        struct golden_case c = golden_case(&g, i);
        double e;

        if (!c.op)
            continue;
        e = golden_run(&b, &c, params, eager, NULL);
        wrong += !(e <= 1);
        worst[c.op->id][isa] = fmax(worst[c.op->id][isa], e);
        seen[c.op->id]++;
    }
    bench_close(&b);
    golden_close(&g);
    return wrong;
}

static uint32_t run_every_isa(uint32_t threads, bool params, bool eager)
{
    uint32_t wrong = 0;

    EACH_ISA (isa)
        wrong += run_all((ngd_isa_t)isa, threads, params, eager);
    return wrong;
}

static void replay_on(ngd_isa_t isa)
{
    if (isa > ngd_cpu_isa())
        printf("skip - golden cases on %s: this machine (or this build) has no more than %s\n", ngd_isa_name(isa),
               ngd_isa_name(ngd_cpu_isa()));
    else
        ck_assert_uint_eq(run_all(isa, 1, false, false), 0);
}

START_TEST(every_golden_case_replayed_in_plain_c_is_within_tolerance)
{
    replay_on(NGD_ISA_SCALAR);
}
END_TEST

START_TEST(every_golden_case_replayed_with_avx2_is_within_tolerance)
{
    replay_on(NGD_ISA_AVX2);
}
END_TEST

START_TEST(every_golden_case_replayed_with_avx512_is_within_tolerance)
{
    replay_on(NGD_ISA_AVX512);
}
END_TEST

START_TEST(every_golden_case_replayed_with_avx512bf16_is_within_tolerance)
{
    replay_on(NGD_ISA_AVX512BF16);
}
END_TEST

START_TEST(every_golden_case_run_eagerly_is_within_tolerance)
{
    ck_assert_uint_eq(run_every_isa(1, false, true), 0);
}
END_TEST

START_TEST(every_golden_case_with_bound_operands_and_two_threads_is_within_tolerance)
{
    ck_assert_uint_eq(run_every_isa(2, true, false), 0);
}
END_TEST

/* ---- every operator ---- */

static bool is_refused(const struct ngd_op *op)
{
    return op->flags & (NGD_OPF_RANDOM | NGD_OPF_SYNC | NGD_OPF_DATA_SHAPE | NGD_OPF_EVENT);
}

START_TEST(every_operator_with_a_kernel_has_a_golden_case)
{
    struct golden g;

    golden_open(&g);
    for (size_t i = 0; i < json_array_size(g.cases); i++) {
        struct golden_case c = golden_case(&g, i);

        if (c.op)
            seen[c.op->id]++;
        else
            ck_assert_int_eq(strncmp(c.name, "sdpa/", 5), 0);
    }
    golden_close(&g);
    for (int id = 0; id < NGD_OP_MAX; id++) {
        const struct ngd_op *op = ngd_op_by_id((ngd_op_id_t)id);

        if (strncmp(op->name, "_c10d_functional.", 17) == 0) /* of several devices: tests/backend/collectives.c */
            continue;
        if (is_refused(op) == (seen[id] != 0))
            ck_abort_msg("%s %s", op->name,
                         seen[id] ? "is refused, but has a case" : "has no golden case in tests/golden/ops.json");
    }
}
END_TEST

START_TEST(every_operator_has_a_host_kernel_or_a_reason_to_have_none)
{
    for (int id = 0; id < NGD_OP_MAX; id++) {
        const struct ngd_op *op = ngd_op_by_id((ngd_op_id_t)id);
        const struct ngd_host_kernel *kernel = ngd_host_kernel_of((ngd_op_id_t)id);
        bool none = is_refused(op) || (op->flags & NGD_OPF_VIEW);

        if (none == (kernel != NULL))
            ck_abort_msg("%s: %s", op->name,
                         kernel ? "a view or refused operator has a kernel"
                                : "no row in kernels_basic.def or kernels_core.def");
        if (kernel)
            ck_assert(kernel->select && kernel->prepare);
    }
}
END_TEST

/* ---- report and bench ---- */

static int report(void)
{
    for (int isa = NGD_ISA_SCALAR; isa <= (int)ngd_cpu_isa(); isa++)
        run_all((ngd_isa_t)isa, 1, false, false);
    printf("%-34s", "largest error / tolerance");
    for (int isa = NGD_ISA_SCALAR; isa <= (int)ngd_cpu_isa(); isa++)
        printf(" %10s", ngd_isa_name((ngd_isa_t)isa));
    printf("\n");
    for (int id = 0; id < NGD_OP_MAX; id++) {
        if (!seen[id])
            continue;
        printf("%-34s", ngd_op_by_id((ngd_op_id_t)id)->name);
        for (int isa = NGD_ISA_SCALAR; isa <= (int)ngd_cpu_isa(); isa++)
            printf(" %10.3f", worst[id][isa]);
        printf("\n");
    }
    return 0;
}

/* Returns the nanoseconds of a replay with its copies, the best of some batches: the cost of the operator in a step. */
static double time_case(struct bench *b, const struct golden_case *c)
{
    struct golden_launch d = {0};
    struct ngd_launch launch = {.inputs = d.inputs, .hosts = d.hosts, .outputs = d.outputs};
    struct ngd_diag diag = {0};
    struct ngd_strbuf text;
    struct ready r;
    double best = INFINITY;

    ngd_strbuf_init(&text);
    golden_print(&text, c, false);
    run_check(ready_open(&r, b, ngd_strbuf_str(&text), NULL, &diag), &diag, c->name);
    golden_fill(c, &r, false, &d);
    for (int batch = 0; batch < 10; batch++) {
        ngd_nsec_t start = ngd_now();

        for (int i = 0; i < 200; i++)
            ngd_stream_run(b->stream, r.inst, &launch);
        best = fmin(best, (double)(ngd_now() - start) / 200);
    }
    for (uint32_t i = 0; i < c->n_out; i++)
        free(d.room[i]);
    ready_close(&r);
    ngd_strbuf_fini(&text);
    return best;
}

/* Larger calls, without the copies of a replay: the costs of decoding one row and of prefilling some. */
static const char *const sized[] = {
    "input %x : f32[1,1024]\ninput %g : bf16[1024]\n%y, %z = npu.rms_norm(%x, %g)",
    "input %x : f32[64,1024]\ninput %g : bf16[1024]\n%y, %z = npu.rms_norm(%x, %g)",
    "input %x : bf16[1,1024]\ninput %g : bf16[1024]\n%y, %z = npu.rms_norm(%x, %g)",
    "input %x : f32[1,16,128]\ninput %g : bf16[128]\n%y, %z = npu.rms_norm(%x, %g)",
    "input %x : f32[1,1024]\ninput %w : f32[1,1024]\ninput %g : bf16[1024]\n%y, %z, %s = npu.add_rms_norm(%x, %w, %g)",
    ("input %x : f32[1,1024]\ninput %w : f32[1024]\ninput %b : f32[1024]\n%y = aten.layer_norm(%x, %w, %b) "
     "{normalized_shape=[1024]}"),
    "input %x : f32[1,24,128]\ninput %c : f32[1,1,128]\ninput %w : f32[1,1,128]\n%y = npu.rotary_mul(%x, %c, %w)",
    "input %x : f32[1,6144]\n%y = npu.swiglu(%x)",
    "input %x : bf16[1,6144]\n%y = npu.swiglu(%x)",
    "input %x : f32[1,1024]\ninput %w : f32[1,1024]\n%y = aten.add.Tensor(%x, %w)",
    "input %x : f32[16,1024]\ninput %w : f32[1024]\n%y = aten.mul.Tensor(%x, %w)",
    "input %x : f32[16,1024]\ninput %w : f32[16,1]\n%y = aten.mul.Tensor(%x, %w)",
    "input %x : bf16[256,1024]\n%y = aten.gelu(%x)",
    "input %x : f32[256,1024]\n%y = aten._to_copy(%x) {dtype=bf16}",
    "input %x : f32[16,1024]\n%y = aten._softmax(%x) {dim=-1}",
    "input %x : f32[16,1024]\n%y = aten._softmax(%x) {dim=0}",
    "input %x : f32[256,1024]\n%y = aten.sum.dim_IntList(%x) {dim=[1]}",
    "input %x : f32[256,1024]\n%y = aten.sum.dim_IntList(%x) {dim=[0]}",
    "input %x : f32[1,151936]\n%y = aten.argmax(%x) {dim=-1}",
    "input %x : f32[1,151936]\n%y, %i = aten.topk(%x) {k=50}",
    "input %x : bf16[1024,3072]\n%v = aten.t(%x)\n%y = aten.clone(%v)",
    "input %x : f32[64,16,128]\n%v = aten.transpose.int(%x) {dim0=0, dim1=1}\n%y = aten.clone(%v)",
    "input %x : f32[64,16,128]\ninput %w : f32[64,8,128]\n%y = aten.cat(%x, %w) {dim=1}",
    "input %x : bf16[4096,1024]\ninput %w : i32[16]\n%y = aten.embedding(%x, %w)",
};

/* Returns the nanoseconds of a run of the plan's calls on one thread, with all operands zero. */
static double time_sized(struct bench *b, ngd_isa_t isa, const char *body)
{
    struct ngd_diag diag = {0};
    struct ngd_strbuf text;
    struct ready r = {0};
    struct direct d;
    double best = INFINITY;

    ngd_strbuf_init(&text);
    run_text(&text, "", body);
    run_check(ready_plan(&r, b, ngd_strbuf_str(&text), NULL, &diag), &diag, body);
    direct_open(&d, r.plan, isa, 1);
    memset(d.pool, 0, r.plan->pool_bytes);
    for (int batch = 0; batch < 20; batch++) {
        ngd_nsec_t start = ngd_now();
        int n = 0;

        while (ngd_now() - start < 500000 || n < 3)
            for (int i = 0; i < 16; i++, n++)
                (void)direct_run(&d, NULL, NULL, 1);
        best = fmin(best, (double)(ngd_now() - start) / n);
    }
    direct_close(&d);
    ready_close(&r);
    ngd_strbuf_fini(&text);
    return best;
}

static void time_all_sized(struct bench *b, int n)
{
    printf("\nns per call\n");
    for (size_t i = 0; i < sizeof(sized) / sizeof(sized[0]); i++) {
        for (int isa = 0; isa < n; isa++)
            printf("%10.0f ", time_sized(&b[isa], (ngd_isa_t)isa, sized[i]));
        for (const char *p = sized[i]; *p; p++)
            putchar(*p == '\n' ? ' ' : *p);
        putchar('\n');
    }
}

static int time_all(void)
{
    struct bench b[NGD_ISA_MAX];
    int n = (int)ngd_cpu_isa() + 1;
    struct golden g;

    golden_open(&g);
    for (int isa = 0; isa < n; isa++)
        bench_open(&b[isa], (ngd_isa_t)isa, 1);
    printf("%-40s", "ns per replay");
    for (int isa = 0; isa < n; isa++)
        printf(" %10s", ngd_isa_name((ngd_isa_t)isa));
    printf("\n");
    for (size_t i = 0; i < json_array_size(g.cases); i++) {
        struct golden_case c = golden_case(&g, i);

        if (!c.op || seen[c.op->id]++)
            continue;
        printf("%-40s", c.name);
        for (int isa = 0; isa < n; isa++)
            printf(" %10.0f", time_case(&b[isa], &c));
        printf("\n");
    }
    time_all_sized(b, n);
    for (int isa = 0; isa < n; isa++)
        bench_close(&b[isa]);
    golden_close(&g);
    return 0;
}

int main(int argc, char **argv)
{
    const TTest *const tests[] = {
        every_golden_case_replayed_in_plain_c_is_within_tolerance,
        every_golden_case_replayed_with_avx2_is_within_tolerance,
        every_golden_case_replayed_with_avx512_is_within_tolerance,
        every_golden_case_replayed_with_avx512bf16_is_within_tolerance,
        every_golden_case_run_eagerly_is_within_tolerance,
        every_golden_case_with_bound_operands_and_two_threads_is_within_tolerance,
        every_operator_with_a_kernel_has_a_golden_case,
        every_operator_has_a_host_kernel_or_a_reason_to_have_none,
    };

    if (argc > 1 && strcmp(argv[1], "--report") == 0)
        return report();
    if (argc > 1 && strcmp(argv[1], "--bench") == 0)
        return time_all();
    return unit_run("ops", tests, sizeof(tests) / sizeof(tests[0]));
}
