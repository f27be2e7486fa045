/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests decoders that PyTorch has exported to ATen operators (tests/golden/layers, see tests/golden/README.md). Some
 * decode steps run on the host device: eagerly with the graph as it is, and as replays with all passes. Both must give
 * PyTorch's results, and the same bits. The number of calls of a layer after the passes is checked too, which shows if
 * a pattern no longer matches what PyTorch exports.
 *
 * bf16 decoders have no exact result, because each order of sums rounds differently. Their reference is the f32
 * decoder, and their distance from it may be no larger than PyTorch's. With excess precision they are fused as in f32,
 * and their distance may be no larger either.
 */
#include "tests/ops/device_run.h"
#include "tests/ops/each_isa.h"
#include "tests/ops/golden.h"
#include "tests/unit/unit.h"

#define MAX_ROWS   8
#define MAX_LOGITS 1024
#define MAX_MADE   (64u << 10) /* bytes of all logits and states in bf16 */

/* Decoders, and the number of calls of a layer: without passes, with passes, and with excess precision allowed. */
struct decoder {
    const char *name;
    uint32_t as_it_is, fused, allowed;
};
static const struct decoder files[] = {
    {"hf_aot", 48, 6, 6},   {"hf_flat_aot", 47, 6, 6}, {"hf_flat_export", 47, 6, 6},
    {"vllm_aot", 51, 6, 6}, {"vllm_export", 51, 6, 6},
};
#define N_FILES (sizeof(files) / sizeof(files[0]))

static const struct decoder narrow_files[] = {{"hf_aot_bf16", 56, 49, 6}, {"vllm_aot_bf16", 67, 57, 7}};
#define N_NARROW (sizeof(narrow_files) / sizeof(narrow_files[0]))

typedef enum way { AS_IT_IS, FUSED, ALLOWED, N_WAYS } way_t;

struct layers {
    struct golden g;
    int64_t rows, steps;
    struct golden_case logits, states; /* their tolerances */
};

static void layers_open(struct layers *l)
{
    json_t *tolerance;

    memset(l, 0, sizeof(*l));
    golden_load(&l->g, "layers/layers.json", "layers/layers.safetensors");
    l->rows = json_integer_value(json_object_get(l->g.cases, "rows"));
    l->steps = json_integer_value(json_object_get(l->g.cases, "steps"));
    tolerance = json_object_get(l->g.cases, "tolerance");
    l->logits.rel = json_number_value(json_object_get(json_object_get(tolerance, "logits"), "rel"));
    l->logits.abs = json_number_value(json_object_get(json_object_get(tolerance, "logits"), "abs"));
    l->states.rel = json_number_value(json_object_get(json_object_get(tolerance, "states"), "rel"));
    l->states.abs = json_number_value(json_object_get(json_object_get(tolerance, "states"), "abs"));
    ck_assert(l->rows > 0 && l->rows <= MAX_ROWS && l->steps > 0 && l->logits.abs > 0 && l->states.abs > 0);
}

static struct golden_tensor tensor_of(const struct layers *l, const char *prefix, const char *name)
{
    char full[256];

    snprintf(full, sizeof(full), "%s%s", prefix, name);
    return golden_tensor(&l->g, full);
}

/* ---- one decoder on a device ---- */

/* Writes a tensor at byte `at` of a buffer of its dtype, or of f32, which is exact. Returns the end. */
static uint64_t write_as(struct ngd_buffer *buf, ngd_dtype_t dtype, uint64_t at, const struct golden_tensor *t)
{
    const uint64_t n = t->bytes / ngd_dtype_bytes(t->dtype);
    float *wide = calloc(n, sizeof(*wide));
    struct ngd_diag diag = {0};

    if (dtype == t->dtype) {
        run_check(ngd_buffer_write(buf, at, t->data, t->bytes, &diag), &diag, "write");
        free(wide);
        return at + t->bytes;
    }
    ck_assert_int_eq(dtype, NGD_F32);
    for (uint64_t i = 0; i < n; i++)
        wide[i] = (float)golden_value(t->dtype, t->data, i);
    run_check(ngd_buffer_write(buf, at, wide, n * sizeof(*wide), &diag), &diag, "write");
    free(wide);
    return at + n * sizeof(*wide);
}

/* Fills the bound buffers. A param is a tensor of the file, or several concatenated; a state begins as a tensor of the
 * file. */
static void fill_bound(const struct layers *l, struct ready *r)
{
    const struct ngd_graph *g = r->graph;

    for (uint32_t i = 0; i < r->n_bound; i++) {
        const bool param = i < g->n_params;
        const struct ngd_value *v = &g->values[param ? g->params[i] : g->states[i - g->n_params]];
        const char *label = v->label;
        json_t *parts = json_object_get(json_object_get(l->g.cases, "merged"), label), *part;
        struct golden_tensor t;
        uint64_t at = 0;
        size_t k;

        json_array_foreach(parts, k, part)
        {
            t = golden_tensor(&l->g, json_string_value(part));
            at = write_as(r->bound[i], v->type.dtype, at, &t);
        }
        if (!parts) {
            t = tensor_of(l, param ? "" : "before.", label);
            at = write_as(r->bound[i], v->type.dtype, 0, &t);
        }
        ck_assert_uint_eq(at, r->plan->bound[i].bytes);
    }
}

static void decoder_open(struct ready *r, const struct layers *l, struct bench *b, const char *file, way_t way)
{
    struct ngd_graph_options options;
    struct ngd_diag diag = {0};
    char name[128], *text;
    size_t n;

    memset(r, 0, sizeof(*r));
    ngd_graph_options_init(&options);
    options.allow_excess_precision = way == ALLOWED;
    snprintf(name, sizeof(name), "layers/%s.txt", file);
    text = golden_read(name, &n);
    run_check(ready_plan_with(r, b, way == AS_IT_IS ? NULL : &options, text, &l->rows, &diag), &diag, file);
    run_check(ready_bind(r, b, NULL, 0, &diag), &diag, file);
    free(text);
    fill_bound(l, r);
}

/* Returns the step's input with this label; the file has all steps one after the other. */
static struct golden_tensor fed(const struct layers *l, const struct ngd_graph *g, uint32_t value, int64_t step)
{
    struct golden_tensor t = tensor_of(l, "step.", g->values[value].label);

    t.bytes /= (uint64_t)l->steps;
    t.data += (uint64_t)step * t.bytes;
    return t;
}

static void decoder_step(struct ready *r, const struct layers *l, struct bench *b, int64_t step, bool eager,
                         void *logits)
{
    const struct ngd_graph *g = r->graph;
    struct ngd_host_value hosts[4];
    struct ngd_span in[8];
    struct ngd_out out = {logits, ngd_plan_output_bytes(r->plan, 0, &l->rows)};
    struct ngd_launch launch = {.symbols = &l->rows, .inputs = in, .hosts = hosts, .outputs = &out, .eager = eager};
    struct ngd_diag diag = {0};

    ck_assert(g->n_inputs <= 8 && g->n_hosts <= 4 && g->n_outputs == 1 && out.bytes <= MAX_LOGITS * sizeof(float));
    for (uint32_t i = 0; i < g->n_inputs; i++) {
        const struct golden_tensor t = fed(l, g, g->inputs[i], step);

        in[i] = (struct ngd_span){t.data, t.bytes};
    }
    for (uint32_t i = 0; i < g->n_hosts; i++) {
        const struct golden_tensor t = fed(l, g, g->hosts[i], step);

        hosts[i] = (struct ngd_host_value){(const int64_t *)(const void *)t.data, (uint32_t)(t.bytes / 8)};
    }
    run_check(ngd_launch_check(r->plan, &launch, g->n_inputs, g->n_hosts, 1, &diag), &diag, "step");
    run_check(ngd_stream_run(b->stream, r->inst, &launch), &launch.diag, "step");
}

/* ---- comparison ---- */

static void is_right(const struct golden_case *tolerance, const struct golden_tensor *want, const void *got,
                     const char *what, int64_t step)
{
    uint64_t at;
    const double e = golden_compare(tolerance, want, got, &at);

    ck_assert_msg(e <= 1, "%s, step %lld: element %llu is %.9g, PyTorch has %.9g: %.3g times what is allowed", what,
                  (long long)step, (unsigned long long)at, golden_value(want->dtype, got, at),
                  golden_value(want->dtype, want->data, at), e);
}

static void states_are_right(const struct layers *l, const struct ready *plain, const struct ready *fused,
                             const char *what)
{
    for (uint32_t i = plain->graph->n_params; i < plain->n_bound; i++) {
        const char *label = plain->graph->values[plain->graph->states[i - plain->graph->n_params]].label;
        const struct golden_tensor want = tensor_of(l, "after.", label);
        const int ordinal = ngd_graph_find_input(fused->graph, NGD_VALUE_STATE, label);
        char *got = malloc(want.bytes), *other = malloc(want.bytes);
        struct ngd_diag diag = {0};

        ck_assert_int_ge(ordinal, 0);
        ck_assert_uint_eq(want.bytes, plain->plan->bound[i].bytes);
        run_check(ngd_buffer_read(plain->bound[i], 0, got, want.bytes, &diag), &diag, label);
        run_check(
            ngd_buffer_read(fused->bound[fused->graph->n_params + (uint32_t)ordinal], 0, other, want.bytes, &diag),
            &diag, label);
        is_right(&l->states, &want, got, what, l->steps);
        ck_assert_msg(memcmp(got, other, want.bytes) == 0, "%s: passes change %s", what, label);
        free(got);
        free(other);
    }
}

/* Checks all steps of one file, without and with passes. */
static void decoder_is_right(const struct layers *l, struct bench *b, const char *file, way_t way)
{
    static float logits[2][MAX_LOGITS];
    struct golden_tensor want = golden_tensor(&l->g, "logits");
    struct ready plain, fused;
    char what[128];

    snprintf(what, sizeof(what), "%s (%s)", file, b->name);
    decoder_open(&plain, l, b, file, AS_IT_IS);
    decoder_open(&fused, l, b, file, way);
    want.bytes /= (uint64_t)l->steps;
    for (int64_t step = 0; step < l->steps; step++, want.data += want.bytes) {
        decoder_step(&plain, l, b, step, true, logits[0]);
        decoder_step(&fused, l, b, step, false, logits[1]);
        ck_assert_uint_eq(want.bytes, ngd_plan_output_bytes(plain.plan, 0, &l->rows));
        is_right(&l->logits, &want, logits[0], what, step);
        ck_assert_msg(memcmp(logits[0], logits[1], want.bytes) == 0, "%s, step %lld: passes change the logits", what,
                      (long long)step);
    }
    states_are_right(l, &plain, &fused, what);
    ready_close(&plain);
    ready_close(&fused);
}

START_TEST(decoders_written_in_aten_give_what_pytorch_gives_with_and_without_passes)
{
    struct layers l;

    layers_open(&l);
    EACH_ISA (isa) {
        struct bench b;

        bench_open(&b, (ngd_isa_t)isa, 1);
        for (size_t i = 0; i < N_FILES; i++)
            for (way_t way = FUSED; way < N_WAYS; way++)
                decoder_is_right(&l, &b, files[i].name, way);
        bench_close(&b);
    }
    golden_close(&l.g);
}
END_TEST

/* ---- fusion ---- */

/* Returns the number of calls from one attention to the next, which is that of a layer. */
static uint32_t calls_of_a_layer(const struct ngd_plan *plan)
{
    uint32_t last = plan->n_calls, between = 0;

    for (uint32_t c = 0; c < plan->n_calls; c++) {
        if (plan->calls[c].op->id != NGD_OP_NPU_FUSED_INFER_ATTENTION_SCORE)
            continue;
        between = last < c ? c - last : 0;
        last = c;
    }
    return between;
}

static void count_calls(const struct layers *l, struct bench *b, const struct decoder *d)
{
    static const char *const how[N_WAYS] = {"as it is", "after the passes", "with excess precision"};
    const uint32_t want[N_WAYS] = {d->as_it_is, d->fused, d->allowed};

    for (way_t way = AS_IT_IS; way < N_WAYS; way++) {
        struct ready r;
        uint32_t calls;

        decoder_open(&r, l, b, d->name, way);
        calls = calls_of_a_layer(r.plan);
        if (getenv("NGD_TEST_VERBOSE"))
            fprintf(stderr, "%s, %s: %u calls of a layer, %u in all\n", d->name, how[way], calls, r.plan->n_calls);
        ck_assert_msg(calls == want[way], "%s: a layer is %u calls %s, not %u", d->name, calls, how[way], want[way]);
        ready_close(&r);
    }
}

START_TEST(layers_written_in_aten_become_as_few_calls_as_they_are_known_to)
{
    struct layers l;
    struct bench b;

    layers_open(&l);
    bench_open(&b, NGD_ISA_SCALAR, 1);
    for (size_t i = 0; i < N_FILES; i++)
        count_calls(&l, &b, &files[i]);
    for (size_t i = 0; i < N_NARROW; i++)
        count_calls(&l, &b, &narrow_files[i]);
    bench_close(&b);
    golden_close(&l.g);
}
END_TEST

/* ---- bf16 ---- */

/* Root mean square of the errors of a decoder's logits, or of its states, against f32. */
struct off {
    double sum;
    uint64_t n;
};

static void add_off(struct off *off, ngd_dtype_t dtype, const void *got, const struct golden_tensor *meant)
{
    const uint64_t n = meant->bytes / ngd_dtype_bytes(meant->dtype);

    for (uint64_t i = 0; i < n; i++) {
        const double e = golden_value(dtype, got, i) - golden_value(meant->dtype, meant->data, i);

        off->sum += e * e;
    }
    off->n += n;
}

static double off_by(const struct off *off)
{
    return sqrt(off->sum / (double)off->n);
}

/* Runs all steps of a decoder in one way; logits and states go to `made`, one after the other. */
static uint64_t run_narrow(const struct layers *l, struct bench *b, const char *file, way_t way, char *made,
                           struct off *logits, struct off *states)
{
    struct golden_tensor meant = golden_tensor(&l->g, "logits");
    struct ready r;
    uint64_t at = 0;

    decoder_open(&r, l, b, file, way);
    meant.bytes /= (uint64_t)l->steps;
    for (int64_t step = 0; step < l->steps; step++, meant.data += meant.bytes) {
        decoder_step(&r, l, b, step, way == AS_IT_IS, made + at);
        add_off(logits, NGD_BF16, made + at, &meant);
        at += ngd_plan_output_bytes(r.plan, 0, &l->rows);
    }
    for (uint32_t i = r.graph->n_params; i < r.n_bound; i++) {
        const char *label = r.graph->values[r.graph->states[i - r.graph->n_params]].label;
        const struct golden_tensor after = tensor_of(l, "after.", label);
        struct ngd_diag diag = {0};

        run_check(ngd_buffer_read(r.bound[i], 0, made + at, r.plan->bound[i].bytes, &diag), &diag, label);
        add_off(states, NGD_BF16, made + at, &after);
        at += r.plan->bound[i].bytes;
    }
    ready_close(&r);
    ck_assert_uint_le(at, MAX_MADE);
    return at;
}

/* Checks that the error is that of PyTorch's own logits, with some tolerance for other orders of sums. */
static void narrow_is_right(const struct layers *l, const struct golden *narrow, struct bench *b, const char *file)
{
    static char made[N_WAYS][MAX_MADE];
    const struct golden_tensor meant = golden_tensor(&l->g, "logits");
    struct off logits[N_WAYS] = {{0}}, states[N_WAYS] = {{0}}, pytorch = {0};
    struct golden_tensor theirs;
    char name[128];
    uint64_t n = 0;

    snprintf(name, sizeof(name), "%s.logits", file);
    theirs = golden_tensor(narrow, name);
    add_off(&pytorch, theirs.dtype, theirs.data, &meant);
    for (way_t way = AS_IT_IS; way < N_WAYS; way++)
        n = run_narrow(l, b, file, way, made[way], &logits[way], &states[way]);
    if (getenv("NGD_TEST_VERBOSE"))
        fprintf(stderr,
                "%s (%s): logits are off by %.3g in PyTorch, %.3g as it is, %.3g with excess precision; states %.3g, "
                "%.3g\n",
                file, b->name, off_by(&pytorch), off_by(&logits[AS_IT_IS]), off_by(&logits[ALLOWED]),
                off_by(&states[AS_IT_IS]), off_by(&states[ALLOWED]));
    ck_assert_msg(memcmp(made[AS_IT_IS], made[FUSED], n) == 0, "%s (%s): passes change bits", file, b->name);
    ck_assert_msg(memcmp(made[AS_IT_IS], made[ALLOWED], n) != 0, "%s: excess precision has the same bits", file);
    ck_assert_msg(off_by(&logits[AS_IT_IS]) <= 1.15 * off_by(&pytorch), "%s (%s): off by %g, PyTorch by %g", file,
                  b->name, off_by(&logits[AS_IT_IS]), off_by(&pytorch));
    ck_assert_msg(off_by(&logits[ALLOWED]) <= 1.1 * off_by(&logits[AS_IT_IS]) &&
                      off_by(&states[ALLOWED]) <= 1.1 * off_by(&states[AS_IT_IS]),
                  "%s (%s): excess precision makes it worse", file, b->name);
}

START_TEST(decoders_in_bf16_are_no_further_off_than_pytorch_and_no_further_where_they_round_less)
{
    struct golden narrow;
    struct layers l;

    layers_open(&l);
    golden_load(&narrow, "layers/layers.json", "layers/bf16.safetensors");
    EACH_ISA (isa) {
        struct bench b;

        bench_open(&b, (ngd_isa_t)isa, 1);
        for (size_t i = 0; i < N_NARROW; i++)
            narrow_is_right(&l, &narrow, &b, narrow_files[i].name);
        bench_close(&b);
    }
    golden_close(&narrow);
    golden_close(&l.g);
}
END_TEST

UNIT_MAIN("layers", decoders_written_in_aten_give_what_pytorch_gives_with_and_without_passes,
          layers_written_in_aten_become_as_few_calls_as_they_are_known_to,
          decoders_in_bf16_are_no_further_off_than_pytorch_and_no_further_where_they_round_less)
