/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks that merged rows equal rows that ran alone bit for bit: random graphs of row-wise operators, random numbers of
 * rows, on each instruction set. Seeds are fixed; NGD_TEST_SEEDS sets how many.
 */
#include "scheduler/program/merge_prog.h"
#include "tests/ops/each_isa.h"
#include "tests/unit/sched_util.h"

#define COLUMNS  24
#define ROWS_MAX 8
#define CLIENTS  6
#define SEEDS    12

static uint32_t draw(uint64_t *seed, uint32_t n)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*seed >> 33) % n;
}

/* %a: f32[B,24] -> %b: f32[B,24]. %w: f32[24,24], %g: f32[24], %t: f32[24], %i: i64[B,24]. */
static const char *const steps[] = {
    "%b = aten.linear(%a, %w, %g)",
    "%b = aten.mm(%a, %w)",
    "%b = aten.addmm(%g, %a, %w)",
    "%b = aten.add.Tensor(%a, %g)",
    "%b = aten.tanh(%a)",
    "%b = aten.silu(%a)",
    "%b = aten._softmax(%a) {dim=1}",
    "%b = aten._log_softmax(%a) {dim=-1}",
    "%b = aten.layer_norm(%a, %g, %g) {normalized_shape=[24]}",
    "%b, %b.r = npu.rms_norm(%a, %g)",
    "%b.n, %b.r, %b = npu.add_rms_norm(%a, %a, %g)",
    "%b = aten.cumsum(%a) {dim=1}",
    "%b.m = aten.mean.dim(%a) {dim=[1], keepdim=true}\n%b = aten.sub.Tensor(%a, %b.m)",
    "%b.p, %b.q = aten.split_with_sizes(%a) {split_sizes=[10, 14], dim=1}\n%b = aten.cat(%b.q, %b.p) {dim=1}",
    "%b, %b.x = aten.topk(%a) {k=24, dim=1}",
    "%b = aten.gather(%a, %i) {dim=1}",
    "%b.v = aten.view(%a) {size=[B*4, 6]}\n%b.s = aten._softmax(%b.v) {dim=1}\n%b = aten.view(%b.s) {size=[B, 24]}",
    ("%b.v = aten.view(%a) {size=[B, 4, 6]}\n%b.t = aten.transpose.int(%b.v) {dim0=1, dim1=2}\n"
     "%b.m = aten.bmm(%b.v, %b.t)\n%b.o = aten.bmm(%b.m, %b.v)\n%b = aten.view(%b.o) {size=[B, 24]}"),
    "%b.x = aten.argmax(%a) {dim=1}\n%b.e = aten.embedding(%w, %b.x)\n%b = aten.add.Tensor(%a, %b.e)",
    "%b.o = aten.full() {size=[B, 24], fill_value=0.5}\n%b = aten.mul.Tensor(%a, %b.o)",
    "%b.s = aten.slice.Tensor(%a) {dim=1, start=3, end=9}\n%b = aten.constant_pad_nd(%b.s) {pad=[7, 11]}",
};
#define N_STEPS (sizeof(steps) / sizeof(steps[0]))

/* A template with %a and %b for numbered values. */
static void put_step(struct ngd_strbuf *sb, size_t step, int from, int to)
{
    for (const char *p = steps[step]; *p; p++) {
        if (p[0] == '%' && (p[1] == 'a' || p[1] == 'b') && (p[2] < 'a' || p[2] > 'z'))
            ngd_strbuf_printf(sb, "%%%d", p++[1] == 'a' ? from : to);
        else
            ngd_strbuf_putc(sb, *p);
    }
    ngd_strbuf_putc(sb, '\n');
}

static void make_text(uint64_t *seed, const char *buckets, struct ngd_strbuf *sb)
{
    int n = 3 + (int)draw(seed, 6);

    ngd_strbuf_init(sb);
    ngd_strbuf_printf(sb,
                      "npugraph 1\ngraph \"bits\" {\nsym B 1..64 batch buckets %s\nparam %%w : f32[24,24]\n"
                      "param %%g : f32[24]\ninput %%0 : f32[B,24]\ninput %%i : i64[B,24]\n",
                      buckets);
    for (int i = 0; i < n; i++)
        put_step(sb, draw(seed, N_STEPS), i, i + 1);
    ngd_strbuf_printf(sb, "%%w.x = aten.argmax(%%%d) {dim=1}\nreturn %%%d, %%w.x\n}\n", n, n);
}

struct client {
    struct call call;
    int64_t rows;
    float x[ROWS_MAX * COLUMNS], y[2][ROWS_MAX * COLUMNS]; /* alone, together */
    int64_t i[ROWS_MAX * COLUMNS], best[2][ROWS_MAX];
    struct ngd_span in[2];
    struct ngd_out out[2];
};

static void client_init(struct client *c, struct ngd_binding *b, int which)
{
    call_init(&c->call, b, 1);
    c->call.n = c->rows;
    c->in[0] = (struct ngd_span){c->x, (uint64_t)c->rows * COLUMNS * sizeof(float)};
    c->in[1] = (struct ngd_span){c->i, (uint64_t)c->rows * COLUMNS * sizeof(int64_t)};
    c->out[0] = (struct ngd_out){c->y[which], (uint64_t)c->rows * COLUMNS * sizeof(float)};
    c->out[1] = (struct ngd_out){c->best[which], (uint64_t)c->rows * sizeof(int64_t)};
    c->call.req.launch.inputs = c->in;
    c->call.req.launch.outputs = c->out;
    c->call.req.n_inputs = c->call.req.n_outputs = 2;
}

static void fill(uint64_t *seed, float *x, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        x[i] = (float)((int)draw(seed, 4001) - 2000) / 977.0f;
}

struct lab {
    struct bed bed;
    struct ngd_binding *holder_binding;
    struct ngd_buffer *buffers[2];
};

static void lab_open(struct lab *lab, int isa)
{
    static float w[COLUMNS * COLUMNS];
    struct ngd_sched_params params;
    struct ngd_device_params dp;
    struct ngd_diag diag = {0};
    uint64_t seed = 7;

    bed_params(&lab->bed, &params);
    ngd_device_close(lab->bed.dev);
    ngd_device_params_init(&dp);
    dp.backend = "host";
    dp.threads = 2;
    dp.memory_bytes = 256u << 20;
    dp.isa = ngd_isa_name((ngd_isa_t)isa);
    if (ngd_device_open(&dp, &lab->bed.dev, &diag))
        ck_abort_msg("%s", diag.text);
    params.inline_limit = 0;
    params.merge_wait = 0;
    bed_start(&lab->bed, &params);
    lab->holder_binding = bed_binding(&lab->bed, DOUBLE_TEXT, NULL);
    bed_warm(&lab->bed, lab->holder_binding, 2, 1);
    fill(&seed, w, COLUMNS * COLUMNS);
    lab->buffers[0] = bed_buffer(&lab->bed, w, sizeof(w), "w");
    lab->buffers[1] = bed_buffer(&lab->bed, w, COLUMNS * sizeof(float), "g");
}

static void lab_close(struct lab *lab)
{
    ngd_binding_unref(lab->holder_binding);
    for (int i = 0; i < 2; i++)
        ngd_buffer_unref(lab->buffers[i]);
    bed_close(&lab->bed);
}

static void capture(struct lab *lab, struct ngd_binding *b, int64_t rows)
{
    struct ngd_diag diag = {0};

    (void)lab;
    if (ngd_binding_capture(b, &rows, 1, NULL, false, NULL, &diag))
        ck_abort_msg("%s", diag.text);
}

/* Checks a graph, and returns how many of its requests ran together. */
static uint32_t check_graph(struct lab *lab, uint64_t seed, const char *buckets, const char *isa)
{
    static struct client clients[CLIENTS];
    struct ngd_program *prog;
    struct ngd_binding *b;
    struct ngd_strbuf text;
    struct call holder;
    struct gate gate;
    uint32_t together = 0;

    make_text(&seed, buckets, &text);
    prog = bed_program(&lab->bed, ngd_strbuf_str(&text), NULL);
    b = bed_bind(prog, lab->buffers);
    capture(lab, b, 64);
    for (int i = 0; i < CLIENTS; i++) {
        struct client *c = &clients[i];

        c->rows = 1 + draw(&seed, ROWS_MAX);
        fill(&seed, c->x, (uint32_t)c->rows * COLUMNS);
        for (int64_t k = 0; k < c->rows * COLUMNS; k++)
            c->i[k] = draw(&seed, COLUMNS);
        client_init(c, b, 0);
        call_run(&lab->bed, &c->call);
        ck_assert_msg(c->call.status == NGD_OK, "%s\n%s", c->call.text, ngd_strbuf_str(&text));
    }
    bed_settle(&lab->bed);
    call_occupy(&lab->bed, &holder, lab->holder_binding, &gate);
    for (int i = 0; i < CLIENTS; i++) {
        client_init(&clients[i], b, 1);
        call_submit(&lab->bed, &clients[i].call);
    }
    gate_open(&gate);
    call_wait(&holder);
    for (int i = 0; i < CLIENTS; i++) {
        const struct client *c = &clients[i];

        call_wait(&clients[i].call);
        ck_assert_msg(c->call.status == NGD_OK, "%s", c->call.text);
        ck_assert_msg(memcmp(c->y[0], c->y[1], (size_t)c->rows * COLUMNS * sizeof(float)) == 0 &&
                          memcmp(c->best[0], c->best[1], (size_t)c->rows * sizeof(int64_t)) == 0,
                      "%s, client %d of %d rows, with %u others: other bits\n%s", isa, i, (int)c->rows,
                      c->call.req.together - 1, ngd_strbuf_str(&text));
        together += c->call.req.together > 1;
    }
    ngd_binding_unref(b);
    ngd_program_unref(prog);
    ngd_strbuf_fini(&text);
    return together;
}

static uint64_t seeds(void)
{
    const char *env = getenv("NGD_TEST_SEEDS");

    return env ? strtoull(env, NULL, 10) : effort(SEEDS, "seeds");
}

START_TEST(rows_that_run_together_have_the_bits_of_those_alone)
{
    EACH_ISA (isa) {
        struct lab lab;

        lab_open(&lab, isa);
        for (uint64_t seed = 1; seed <= seeds(); seed++) {
            /* From eight rows on, alone and together are planned for different buckets; here all may share one. */
            ck_assert_uint_eq(check_graph(&lab, seed, "64", ngd_isa_name((ngd_isa_t)isa)), CLIENTS);
            check_graph(&lab, seed, "8, 40, 64", ngd_isa_name((ngd_isa_t)isa));
        }
        lab_close(&lab);
    }
}
END_TEST

START_TEST(a_bucket_that_would_change_bits_is_not_used)
{
    struct ngd_program *prog;
    struct ngd_binding *b;
    struct ngd_strbuf text;
    struct lab lab;
    uint64_t seed = 3;

    lab_open(&lab, (int)ngd_cpu_isa());
    make_text(&seed, "8, 40, 64", &text);
    prog = bed_program(&lab.bed, ngd_strbuf_str(&text), NULL);
    b = bed_bind(prog, lab.buffers);
    for (int64_t rows = 8; rows <= 64; rows += rows == 8 ? 32 : 24) {
        struct ngd_gcache_entry *entry;
        struct ngd_key key;

        capture(&lab, b, rows);
        ck_assert_int_eq(ngd_program_key(prog, &rows, 1, &key, NULL), NGD_OK);
        entry = ngd_program_lookup(prog, &key, NULL);
        ck_assert_ptr_nonnull(entry);
        if (rows < 48)
            ck_assert_int_lt(ngd_entry_executable(entry)->rows_limit, 48);
        else
            ck_assert_int_eq(ngd_entry_executable(entry)->rows_limit, INT64_MAX);
        ngd_gcache_put(entry);
    }
    ngd_binding_unref(b);
    ngd_program_unref(prog);
    ngd_strbuf_fini(&text);
    lab_close(&lab);
}
END_TEST

UNIT_MAIN("scheduler/merge bits", rows_that_run_together_have_the_bits_of_those_alone,
          a_bucket_that_would_change_bits_is_not_used)
