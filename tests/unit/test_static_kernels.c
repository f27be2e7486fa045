/* SPDX-License-Identifier: Apache-2.0 */
/* Tests static kernels of the host device: they compute the same bits as the generic ones; and a missing compiler. */
#include "devices/host/cpu.h"
#include "tests/ops/device_run.h"
#include "tests/ops/run_plan.h"
#include "tests/unit/effort.h"
#include "tests/unit/unit.h"
#include <pthread.h>
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#define COMPILER "/usr/bin/cc"
#define PATIENCE (effort_seconds() * NGD_SEC) /* a compilation takes seconds, of a CPU that may be busy */
enum { ROWS = 3, N = 48, K = 40 };

/* Rows of a bucket, and weights whose rows no vector divides. Few kernels: each takes the compiler seconds. */
static const char text[] = "npugraph 1\ngraph \"g\" {\nsym B 1..8 buckets 8\n"
                           "param %g : bf16[40]\nparam %a : bf16[48,40]\nparam %b : bf16[48,40]\ninput %x : f32[B,40]\n"
                           "%u, %v = ngd.rms_norm_linear(%x, %g, %a, %b) {sizes=[48,48]}\n"
                           "%y = aten.linear(%x, %a)\n"
                           "return \"u\" = %u, \"v\" = %v, \"y\" = %y\n}\n";

static void fill(struct ready *r)
{
    uint16_t some[N * K];

    for (size_t i = 0; i < N * K; i++)
        some[i] = (uint16_t)(0x3d00 + i * 2654435761u % 251 + (i % 3 == 0) * 0x8000u);
    for (uint32_t i = 0; i < r->n_bound; i++)
        ck_assert_int_eq(ngd_buffer_write(r->bound[i], 0, some, r->plan->bound[i].bytes, NULL), NGD_OK);
}

static void replay(struct bench *b, struct ready *r, int64_t rows, float y[3][ROWS * N])
{
    float x[ROWS * K];
    const struct ngd_span in = {x, (uint64_t)(rows * K) * sizeof(float)};
    struct ngd_out out[3];
    struct ngd_launch launch = {.inputs = &in, .outputs = out, .symbols = &rows};

    for (size_t i = 0; i < ROWS * K; i++)
        x[i] = (float)(i * 7 % 23) / 16 - 0.6f;
    for (int i = 0; i < 3; i++)
        out[i] = (struct ngd_out){y[i], (uint64_t)(rows * N) * sizeof(float)};
    ck_assert_msg(ngd_stream_run(b->stream, r->inst, &launch) == NGD_OK, "%s", launch.diag.text);
}

static ngd_static_result_t compile(struct ready *r, const char *compiler, ngd_nsec_t timeout, const _Atomic bool *stop,
                                   struct ngd_strbuf *object, struct ngd_diag *diag)
{
    const char *tmp = getenv("TMPDIR");
    struct ngd_strbuf source;
    struct ngd_static_work work = {.compiler = compiler, .dir = tmp ? tmp : "/tmp", .timeout = timeout, .stop = stop};
    ngd_static_result_t result;

    ngd_strbuf_init(&source);
    ck_assert_int_eq(ngd_exec_static_source(r->exec, &source, diag), NGD_OK);
    ck_assert_uint_gt(source.len, 0);
    work.source = source.data;
    result = ngd_exec_static_compile(r->exec, &work, object, diag);
    ngd_strbuf_fini(&source);
    return result;
}

static void open_both(struct bench *b, struct ready *r, ngd_isa_t isa)
{
    const int64_t bucket = 8;
    struct ngd_diag diag = {0};

    bench_open(b, isa, 1);
    ck_assert_msg(ready_open(r, b, text, &bucket, &diag) == NGD_OK, "%s", diag.text);
    fill(r);
}

static bool no_compiler(void)
{
    if (access(COMPILER, X_OK) == 0)
        return false;
    printf("skip - static kernels against generic ones: no " COMPILER "\n");
    return true;
}

/* A thread that replays all the time, and must always get the same result. */
struct busy {
    struct bench *b;
    struct ready *r;
    const void *want;
    _Atomic uint32_t replays;
    _Atomic bool stop, differs;
};

static void *replay_all_the_time(void *arg)
{
    static float y[3][ROWS * N];
    struct busy *busy = arg;

    while (!atomic_load(&busy->stop)) {
        replay(busy->b, busy->r, ROWS, y);
        if (memcmp(busy->want, y, sizeof(y)) != 0)
            atomic_store(&busy->differs, true);
        atomic_fetch_add(&busy->replays, 1);
    }
    return NULL;
}

static void wait_for_replays(struct busy *busy, uint32_t n)
{
    for (uint32_t before = atomic_load(&busy->replays); atomic_load(&busy->replays) - before < n;)
        sched_yield();
}

/* Adopts the object while replays run before, meanwhile and after. */
static void adopt_beside_replays(struct bench *b, struct ready *r, const struct ngd_strbuf *object, const void *want)
{
    struct busy busy = {.b = b, .r = r, .want = want};
    struct ngd_diag diag = {0};
    pthread_t thread;
    ngd_status_t status;

    ck_assert_int_eq(pthread_create(&thread, NULL, replay_all_the_time, &busy), 0);
    wait_for_replays(&busy, 10);
    status = ngd_exec_static_adopt(r->exec, object->data, object->len, &diag);
    wait_for_replays(&busy, 10);
    atomic_store(&busy.stop, true);
    pthread_join(thread, NULL);
    ck_assert_msg(status == NGD_OK, "%s", diag.text);
    ck_assert(!atomic_load(&busy.differs));
}

START_TEST(static_kernels_give_the_bits_of_the_generic_ones_for_any_rows)
{
    static float before[ROWS][3][ROWS * N], after[3][ROWS * N];
    struct ngd_strbuf object;
    struct ngd_diag diag = {0};
    struct bench b;
    struct ready r;

    if (no_compiler())
        return;
    open_both(&b, &r, ngd_cpu_isa());
    ngd_strbuf_init(&object);
    ck_assert_msg(compile(&r, COMPILER, PATIENCE, NULL, &object, &diag) == NGD_STATIC_COMPILED, "%s", diag.text);
    for (int64_t rows = 1; rows <= ROWS; rows++)
        replay(&b, &r, rows, before[rows - 1]);
    adopt_beside_replays(&b, &r, &object, before[ROWS - 1]);
    for (int64_t rows = 1; rows <= ROWS; rows++) {
        replay(&b, &r, rows, after);
        for (int i = 0; i < 3; i++)
            ck_assert_msg(memcmp(before[rows - 1][i], after[i], (size_t)(rows * N) * sizeof(float)) == 0,
                          "%s, %d rows, result %d", b.name, (int)rows, i);
    }
    ngd_strbuf_fini(&object);
    ready_close(&r);
    bench_close(&b);
}
END_TEST

/* ---- layers of decoders ---- */

/* Writes a decoder's layer with random sizes and dtypes, for `rows` sequences, each at its own position. */
static void draw_layer(struct random *r, int rows, struct ngd_strbuf *sb)
{
    static const char *const caches[] = {"f32", "f16", "bf16", "i8"};
    const char *x = random_below(r, 2) ? "f32" : "bf16", *cache = caches[random_below(r, 4)],
               *gamma = strcmp(x, "f32") == 0 && random_below(r, 2) ? "f32" : "bf16";
    const int kv = 1 + (int)random_below(r, 3), heads = kv * (1 + (int)random_below(r, 3));
    const int d = 8 * (1 + (int)random_below(r, 5)), h = 8 * (2 + (int)random_below(r, 9)) + (int)random_below(r, 2),
              ffn = 16 + (int)random_below(r, 100), block = 4 << random_below(r, 3);
    const bool scaled = strcmp(cache, "i8") == 0;
    const char *scales = scaled ? ", %ks, %vs" : "";

    ngd_strbuf_printf(sb, "npugraph 1\ngraph \"layer\" {\nparam %%g1 : %s[%d]\nparam %%g2 : %s[%d]\n", gamma, h, gamma,
                      h);
    ngd_strbuf_printf(sb, "param %%wq : bf16[%d,%d]\nparam %%wk : bf16[%d,%d]\nparam %%wv : bf16[%d,%d]\n", heads * d,
                      h, kv * d, h, kv * d, h);
    ngd_strbuf_printf(sb, "param %%wo : bf16[%d,%d]\nparam %%wg : bf16[%d,%d]\nparam %%wu : bf16[%d,%d]\n", h,
                      heads * d, ffn, h, ffn, h);
    ngd_strbuf_printf(sb, "param %%wd : bf16[%d,%d]\nparam %%gq : %s[%d]\nparam %%gk : %s[%d]\n", h, ffn, gamma, d,
                      gamma, d);
    ngd_strbuf_printf(sb, "state %%keys : %s[6,%d,%d,%d]\nstate %%values : %s[6,%d,%d,%d]\n", cache, block, kv, d,
                      cache, block, kv, d);
    if (scaled)
        ngd_strbuf_printf(sb, "state %%ks : f32[6,%d,%d]\nstate %%vs : f32[6,%d,%d]\n", kv, block, kv, block);
    ngd_strbuf_printf(sb, "input %%x : %s[%d,%d]\ninput %%cos : f32[%d,%d]\ninput %%sin : f32[%d,%d]\n", x, rows, h,
                      rows, d, rows, d);
    ngd_strbuf_printf(sb,
                      "input %%slots : i32[%d]\ninput %%table : i32[%d,2]\nhost %%ql : i64[%d]\nhost %%kl : i64[%d]\n",
                      rows, rows, rows, rows);
    ngd_strbuf_printf(sb, "%%q, %%k, %%v = ngd.rms_norm_linear(%%x, %%g1, %%wq, %%wk, %%wv) {sizes=[%d,%d,%d]}\n",
                      heads * d, kv * d, kv * d);
    ngd_strbuf_printf(sb, "%%qh = aten.view(%%q) {size=[%d,%d,%d]}\n%%kh = aten.view(%%k) {size=[%d,%d,%d]}\n", rows,
                      heads, d, rows, kv, d);
    ngd_strbuf_printf(sb, "%%vh = aten.view(%%v) {size=[%d,%d,%d]}\n", rows, kv, d);
    ngd_strbuf_printf(
        sb,
        "%%qr = ngd.qk_norm_rope_scatter(%%qh, %%kh, %%vh, %%cos, %%sin, %%slots, %%keys, %%values, %%gq, %%gk%s)\n",
        scales);
    ngd_strbuf_printf(sb,
                      "%%a = npu.fused_infer_attention_score(%%qr, %%keys, %%values, %%table, %%ql, %%kl%s%s) "
                      "{num_heads=%d, num_key_value_heads=%d, scale=0.25, block_size=%d%s}\n",
                      scaled ? ", none, none, none" : "", scales, heads, kv, block,
                      scaled ? ", key_antiquant_mode=5, value_antiquant_mode=5" : "");
    if (scaled) /* a latent cache has floats */
        ngd_strbuf_append(sb, "%b = aten.neg(%a)\n");
    else
        ngd_strbuf_printf(sb,
                          "%%b = npu.fused_infer_attention_score(%%qr, %%keys, %%keys, %%table, %%ql, %%kl, %%qr, "
                          "%%values) {num_heads=%d, num_key_value_heads=%d, scale=0.25, block_size=%d}\n",
                          heads, kv, block);
    ngd_strbuf_printf(sb, "%%af = aten.view(%%a) {size=[%d,%d]}\n%%m = ngd.linear_add(%%af, %%wo, %%x)\n", rows,
                      heads * d);
    ngd_strbuf_append(sb, "%p = ngd.rms_norm_linear_swiglu(%m, %g2, %wg, %wu)\n%y = ngd.linear_add(%p, %wd, %m)\n"
                          "%z = aten.linear(%y, %wg)\nreturn \"y\" = %y, \"z\" = %z, \"a\" = %a, \"b\" = %b\n}\n");
}

/* Returns the results of a replay of r's executable on random data, the same data each time. The caller frees data. */
static struct made run_layer(struct bench *b, struct ready *r, int rows)
{
    static const int64_t ql[3] = {1, 2, 3}, kl[3] = {3, 5, 4};
    const struct ngd_host_value hosts[] = {{ql, (uint32_t)rows}, {kl, (uint32_t)rows}};
    struct ngd_instance *inst = NULL;
    struct ngd_diag diag = {0};
    struct made m = {0};
    static struct any a;
    struct ngd_launch launch = {.inputs = a.in, .hosts = hosts, .outputs = a.out};

    any_open(&a, b, r->plan, NULL, &m);
    run_check(ngd_instance_create(r->exec, a.bound, r->n_bound, b->pool, &inst, &diag), &diag, "instance");
    m.status = ngd_stream_run(b->stream, inst, &launch);
    ck_assert_msg(m.status == NGD_OK, "%s", launch.diag.text);
    ngd_instance_destroy(inst);
    any_close(&a, r->plan, &m);
    return m;
}

static void check_layer(ngd_isa_t isa, uint32_t threads, uint64_t seed)
{
    struct random random = {seed};
    const int rows = 1 + (int)(seed % 3);
    struct ngd_strbuf layer, object;
    struct ngd_diag diag = {0};
    struct made before, after;
    struct bench b;
    struct ready r;

    ngd_strbuf_init(&layer);
    ngd_strbuf_init(&object);
    for (int i = 0; i < 8; i++)
        (void)random_u32(&random);
    draw_layer(&random, rows, &layer);
    bench_open(&b, isa, threads);
    ck_assert_msg(ready_open(&r, &b, layer.data, NULL, &diag) == NGD_OK, "%s\n%s", diag.text, layer.data);
    before = run_layer(&b, &r, rows);
    ck_assert_msg(compile(&r, COMPILER, PATIENCE, NULL, &object, &diag) == NGD_STATIC_COMPILED, "%s\n%s", diag.text,
                  layer.data);
    ck_assert_msg(ngd_exec_static_adopt(r.exec, object.data, object.len, &diag) == NGD_OK, "%s", diag.text);
    after = run_layer(&b, &r, rows);
    ck_assert_msg(before.bytes == after.bytes && memcmp(before.data, after.data, before.bytes) == 0,
                  "%s, seed %llu: other bits\n%s", b.name, (unsigned long long)seed, layer.data);
    free(before.data);
    free(after.data);
    ngd_strbuf_fini(&object);
    ngd_strbuf_fini(&layer);
    ready_close(&r);
    bench_close(&b);
}

static void check_layers(ngd_isa_t isa, uint32_t threads)
{
    const char *env = getenv("NGD_TEST_SEEDS");
    const uint64_t n = env ? strtoull(env, NULL, 10) : 1;

    for (uint64_t seed = 1; seed <= n && isa <= ngd_cpu_isa() && !no_compiler(); seed++)
        check_layer(isa, threads, seed * 3 + (uint64_t)isa);
}

/* Compiling takes long, and a compiled kernel is the same under a sanitizer, where the best
 * instruction set is enough. */
static bool left_out(const char *which)
{
    if (effort_percent() == 100)
        return false;
    printf("reduced - static kernels in %s: 0 of 1 layer\n", which);
    return true;
}

START_TEST(layers_in_plain_c_give_the_bits_of_the_generic_kernels)
{
    if (!left_out("plain C"))
        check_layers(NGD_ISA_SCALAR, 1);
}
END_TEST

START_TEST(layers_in_avx2_give_the_bits_of_the_generic_kernels)
{
#if defined(__x86_64__)
    if (!left_out("AVX2"))
        check_layers(NGD_ISA_AVX2, 2);
#endif
}
END_TEST

START_TEST(layers_in_the_best_instructions_give_the_bits_of_the_generic_kernels)
{
    if (ngd_cpu_isa() != NGD_ISA_SCALAR)
        check_layers(ngd_cpu_isa(), 1);
}
END_TEST

START_TEST(objects_that_are_none_or_damaged_are_refused_and_replays_go_on)
{
    static float before[3][ROWS * N], after[3][ROWS * N];
    struct ngd_diag diag = {0};
    struct bench b;
    struct ready r;

    open_both(&b, &r, NGD_ISA_SCALAR);
    replay(&b, &r, 2, before);
    ck_assert_int_ne(ngd_exec_static_adopt(r.exec, "no object", 9, &diag), NGD_OK);
    ck_assert(diag.text[0] != '\0');
    replay(&b, &r, 2, after);
    ck_assert_int_eq(memcmp(before, after, sizeof(before)), 0);
    ready_close(&r);
    bench_close(&b);
}
END_TEST

START_TEST(compilers_that_are_absent_hang_or_are_stopped_are_told_apart)
{
    char path[] = "/tmp/ngd-static-XXXXXX";
    const int fd = mkstemp(path);
    static const char script[] = "#!/bin/sh\nsleep 1000 & wait\n";
    const _Atomic bool stop = true;
    struct ngd_strbuf object;
    struct ngd_diag diag = {0};
    struct bench b;
    struct ready r;

    ck_assert(fd >= 0 && write(fd, script, sizeof(script) - 1) == (ssize_t)sizeof(script) - 1);
    ck_assert(fchmod(fd, 0700) == 0 && close(fd) == 0);
    ngd_strbuf_init(&object);
    open_both(&b, &r, NGD_ISA_SCALAR);
    ck_assert_int_eq(compile(&r, "/nowhere/cc", NGD_SEC, NULL, &object, &diag), NGD_STATIC_NO_COMPILER);
    ck_assert(strstr(diag.text, "/nowhere/cc") != NULL);
    ck_assert_int_eq(compile(&r, path, NGD_SEC / 10, NULL, &object, &diag), NGD_STATIC_TIMEOUT);
    ck_assert_int_eq(compile(&r, path, 60 * NGD_SEC, &stop, &object, &diag), NGD_STATIC_STOPPED);
    ck_assert_int_eq(compile(&r, "/bin/false", 60 * NGD_SEC, NULL, &object, &diag), NGD_STATIC_FAILED);
    ck_assert_str_eq(diag.text, "/bin/false ended with status 1: it said nothing");
    ck_assert_int_eq(compile(&r, "/bin/true", 60 * NGD_SEC, NULL, &object, &diag), NGD_STATIC_FAILED);
    ck_assert_str_eq(diag.text,
                     "/bin/true ended with status 0 and wrote no object, or one above 16 MiB: is it a C compiler?");
    ck_assert_uint_eq(object.len, 0);
    ready_close(&r);
    bench_close(&b);
    unlink(path);
}
END_TEST

UNIT_MAIN("devices/host/static", static_kernels_give_the_bits_of_the_generic_ones_for_any_rows,
          layers_in_plain_c_give_the_bits_of_the_generic_kernels, layers_in_avx2_give_the_bits_of_the_generic_kernels,
          layers_in_the_best_instructions_give_the_bits_of_the_generic_kernels,
          objects_that_are_none_or_damaged_are_refused_and_replays_go_on,
          compilers_that_are_absent_hang_or_are_stopped_are_told_apart)
