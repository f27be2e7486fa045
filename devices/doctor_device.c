/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/doctor_device.h"
#include "base/mem.h"
#include "devices/device_int.h"
#include "graphs/compare.h"
#include "graphs/graph.h"
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MEMORY_BYTES   ((uint64_t)1 << 20)
#define REFERENCE_ROOM ((uint64_t)16 << 20) /* memory of the host device that results are compared with */
#define REPLAYS        50                   /* replays that are timed */
#define HOST_VALUE     4                    /* value of every host parameter: rows and keys of the attention */
#define MAX_SLOTS      8                    /* inputs, outputs, params and states of a graph */

static const struct {
    const char *name, *body;
} graphs[] = {
#define NGD_DOCTOR_DEVICE(name, body) {name, body},
#include "devices/doctor_device.def"
#undef NGD_DOCTOR_DEVICE
};

/* ---- the report ---------------------------------------------------------------------------------- */

void ngd_doctor_device_add(struct ngd_doctor_device_report *report, const char *name, const char *verdict,
                           ngd_nsec_t took, const char *fmt, ...)
{
    struct ngd_doctor_device_step *step;
    va_list ap;

    if (report->n_steps == NGD_DOCTOR_DEVICE_STEPS)
        return;
    step = &report->steps[report->n_steps++];
    snprintf(step->name, sizeof(step->name), "%s", name);
    step->verdict = verdict;
    step->took = took;
    va_start(ap, fmt);
    vsnprintf(step->text, sizeof(step->text), fmt, ap);
    va_end(ap);
    if (strcmp(verdict, "failed") != 0 && strcmp(verdict, "differs") != 0)
        return;
    if (report->healthy)
        snprintf(report->verdict, sizeof(report->verdict), "%s %s: %.400s", name, verdict, step->text);
    report->healthy = false;
}

/* ---- one graph on one device --------------------------------------------------------------------- */

struct bench {
    struct ngd_device *dev;
    struct ngd_stream *stream;
    struct ngd_pool *pool;
};

struct run {
    struct ngd_graph *graph;
    struct ngd_plan *plan;
    struct ngd_exec *exec;
    struct ngd_instance *inst;
    struct ngd_buffer *bound[MAX_SLOTS]; /* params, then states */
    uint32_t n_bound;
    struct ngd_span inputs[MAX_SLOTS];
    struct ngd_out outputs[MAX_SLOTS];
    struct ngd_host_value hosts[MAX_SLOTS];
    struct ngd_launch launch;
};

static const int64_t host_value = HOST_VALUE;

static uint64_t elements_of(const struct ngd_graph *g, const struct ngd_type *type)
{
    uint64_t n = 1;

    for (uint32_t d = 0; d < type->rank; d++) {
        int64_t size = 0;

        if (ngd_expr_eval(g->exprs, type->dims[d], NULL, &size) || size < 0)
            return 0;
        n *= (uint64_t)size;
    }
    return n;
}

/* Returns the value of element i: within -1..1, and different for any 64 neighbours. Integers (fill_value) are 0..3,
 * which are valid rows, slots and blocks in all graphs. */
static float drawn(const char *name, uint64_t i)
{
    if (strncmp(name, "zero", 4) == 0)
        return 0;
    if (strncmp(name, "one", 3) == 0)
        return 1;
    return (float)((i * 37 + 11) % 64) / 32.0f - 1.0f;
}

static void fill_value(const struct ngd_value *v, void *data, uint64_t n)
{
    size_t size = ngd_dtype_bytes(v->type.dtype);

    for (uint64_t i = 0; i < n; i++) {
        float f = drawn(v->name, i);
        uint16_t half = v->type.dtype == NGD_F16 ? ngd_f32_to_f16(f) : ngd_f32_to_bf16(f);
        int64_t whole = strncmp(v->name, "zero", 4) == 0 ? 0 : (int64_t)(i % 4);
        const void *from = v->type.dtype == NGD_F32                                ? (const void *)&f
                           : v->type.dtype == NGD_F16 || v->type.dtype == NGD_BF16 ? (const void *)&half
                                                                                   : (const void *)&whole;

        memcpy((char *)data + i * size, from, size);
    }
}

static void close_run(struct run *r)
{
    ngd_instance_destroy(r->inst);
    ngd_exec_unref(r->exec);
    for (uint32_t i = 0; i < r->n_bound; i++)
        ngd_buffer_unref(r->bound[i]);
    for (uint32_t i = 0; i < MAX_SLOTS; i++) {
        ngd_free((void *)(uintptr_t)r->inputs[i].data);
        ngd_free(r->outputs[i].data);
    }
    ngd_plan_unref(r->plan);
    ngd_graph_unref(r->graph);
    memset(r, 0, sizeof(*r));
}

static ngd_status_t plan_run(struct run *r, struct ngd_device *dev, const char *body, struct ngd_diag *diag)
{
    struct ngd_digest options = {{0}};
    struct ngd_strbuf text;
    struct ngd_key key;
    ngd_status_t status;

    ngd_strbuf_init(&text);
    ngd_strbuf_printf(&text, "npugraph 1\ngraph \"doctor\" {\n%s}\n", body);
    status = text.failed ? NGD_ERR_NO_MEMORY
                         : ngd_graph_parse(ngd_strbuf_str(&text), strlen(ngd_strbuf_str(&text)), &r->graph, diag);
    ngd_strbuf_fini(&text);
    if (status == NGD_OK)
        status = ngd_key_make(r->graph, &options, NULL, 0, &key, diag);
    if (status == NGD_OK)
        status = ngd_plan_create(r->graph, &key, NULL, ngd_device_target(dev), &r->plan, diag);
    return status;
}

static ngd_status_t make_bound(struct run *r, struct ngd_device *dev, struct ngd_diag *diag)
{
    const struct ngd_graph *g = r->graph;
    ngd_status_t status = NGD_OK;

    for (uint32_t i = 0; i < g->n_params + g->n_states && status == NGD_OK; i++) {
        const struct ngd_value *v = &g->values[i < g->n_params ? g->params[i] : g->states[i - g->n_params]];
        uint64_t n = elements_of(g, &v->type), bytes = n * ngd_dtype_bytes(v->type.dtype);
        void *data = ngd_malloc(bytes);

        status = data
                     ? ngd_buffer_create(dev, r->plan->bound[i].bytes, NGD_BUFFER_GENERAL, "doctor", &r->bound[i], diag)
                     : NGD_ERR_NO_MEMORY;
        if (status == NGD_OK) {
            r->n_bound++;
            fill_value(v, data, n);
            status = ngd_buffer_write(r->bound[i], 0, data, bytes, diag);
        }
        ngd_free(data);
    }
    return status;
}

static ngd_status_t make_launch(struct run *r)
{
    const struct ngd_graph *g = r->graph;

    for (uint32_t i = 0; i < g->n_inputs; i++) {
        const struct ngd_value *v = &g->values[g->inputs[i]];
        uint64_t n = elements_of(g, &v->type);
        void *data = ngd_calloc(n, ngd_dtype_bytes(v->type.dtype));

        if (!data)
            return NGD_ERR_NO_MEMORY;
        fill_value(v, data, n);
        r->inputs[i] = (struct ngd_span){data, n * ngd_dtype_bytes(v->type.dtype)};
    }
    for (uint32_t i = 0; i < g->n_hosts; i++)
        r->hosts[i] = (struct ngd_host_value){&host_value, 1};
    for (uint32_t i = 0; i < g->n_outputs; i++) {
        uint64_t bytes = ngd_plan_output_bytes(r->plan, i, NULL);

        r->outputs[i] = (struct ngd_out){ngd_calloc(1, bytes), bytes};
        if (!r->outputs[i].data)
            return NGD_ERR_NO_MEMORY;
    }
    r->launch = (struct ngd_launch){.inputs = r->inputs, .hosts = r->hosts, .outputs = r->outputs};
    return NGD_OK;
}

/* Captures the graph and fills its buffers. Closes the run again if that fails. */
static ngd_status_t open_run(struct run *r, struct bench *b, const char *body, struct ngd_diag *diag)
{
    ngd_status_t status;

    memset(r, 0, sizeof(*r));
    status = plan_run(r, b->dev, body, diag);
    if (status == NGD_OK)
        status = ngd_exec_create(b->dev, r->plan, &r->exec, diag);
    if (status == NGD_OK)
        status = make_bound(r, b->dev, diag);
    if (status == NGD_OK)
        status = ngd_instance_create(r->exec, r->bound, r->n_bound, b->pool, &r->inst, diag);
    if (status == NGD_OK)
        status = make_launch(r);
    if (status)
        close_run(r);
    return status;
}

static ngd_status_t replay_run(struct run *r, struct bench *b, bool eager, ngd_nsec_t *took_p)
{
    ngd_nsec_t begin = ngd_now();
    ngd_status_t status;

    r->launch.eager = eager;
    r->launch.status = NGD_OK;
    status = ngd_stream_run(b->stream, r->inst, &r->launch);
    *took_p = ngd_now() - begin;
    return status;
}

/* ---- operators ----------------------------------------------------------------------------------- */

struct visit {
    struct ngd_doctor_device_report *report;
    struct bench device, reference;
    bool broken; /* the device had an error; later steps would only report it again */
};

static bool is_device_error(ngd_status_t status)
{
    return ngd_status_scope(status) == NGD_SCOPE_DEVICE;
}

/* Compares outputs, then states. Returns true if all are the same; otherwise text says which one differs and how. */
static bool compare(struct run *got, struct run *want, struct ngd_strbuf *text)
{
    const struct ngd_graph *g = want->graph;
    struct ngd_difference diff;

    for (uint32_t i = 0; i < g->n_outputs; i++) {
        const struct ngd_type *type = &g->values[g->outputs[i].value].type;
        uint64_t n = elements_of(g, type);

        if (!ngd_compare(type->dtype, got->outputs[i].data, want->outputs[i].data, n, &diff)) {
            ngd_strbuf_printf(text, "output \"%s\": ", g->outputs[i].name);
            ngd_difference_print(&diff, n, text);
            return false;
        }
    }
    for (uint32_t i = 0; i < g->n_states; i++) {
        const struct ngd_value *v = &g->values[g->states[i]];
        uint64_t n = elements_of(g, &v->type), bytes = n * ngd_dtype_bytes(v->type.dtype);
        void *a = ngd_malloc(bytes), *b = ngd_malloc(bytes);
        struct ngd_diag diag = {0};
        bool same = a && b && ngd_buffer_read(got->bound[g->n_params + i], 0, a, bytes, &diag) == NGD_OK &&
                    ngd_buffer_read(want->bound[g->n_params + i], 0, b, bytes, &diag) == NGD_OK;

        if (!same) {
            ngd_strbuf_printf(text, "state %%%s cannot be read: %.100s", v->name, diag.text);
        } else if (!ngd_compare(v->type.dtype, a, b, n, &diff)) {
            same = false;
            ngd_strbuf_printf(text, "state %%%s: ", v->name);
            ngd_difference_print(&diff, n, text);
        }
        ngd_free(a);
        ngd_free(b);
        if (!same)
            return false;
    }
    return true;
}

/* Checks that a second replay, and an eager run operator by operator, give the bits of the first replay. Returns which
 * of the two does not, NULL if both do. */
static const char *repeat(struct visit *v, struct run *r, ngd_status_t *status_p)
{
    static const char *const ways[] = {"a second replay", "running it operator by operator"};
    const char *wrong = NULL;
    uint64_t bytes = r->outputs[0].bytes;
    void *first = ngd_malloc(bytes);
    ngd_nsec_t took;

    *status_p = first ? NGD_OK : NGD_ERR_NO_MEMORY;
    if (first)
        memcpy(first, r->outputs[0].data, bytes);
    for (size_t i = 0; i < 2 && *status_p == NGD_OK && !wrong; i++) {
        memset(r->outputs[0].data, 0, bytes);
        *status_p = replay_run(r, &v->device, i == 1, &took);
        if (*status_p == NGD_OK && memcmp(first, r->outputs[0].data, bytes) != 0)
            wrong = ways[i];
    }
    ngd_free(first);
    return wrong;
}

static void fail_step(struct visit *v, const char *name, ngd_status_t status, const struct ngd_diag *diag)
{
    bool missing = status == NGD_ERR_OP_UNSUPPORTED;

    ngd_doctor_device_add(v->report, name, missing ? "missing" : "failed", 0, "%s: %.200s", ngd_status_name(status),
                          diag->text);
    v->broken |= is_device_error(status);
}

static void check_operator(struct visit *v, const char *name, const char *body)
{
    struct run *r = ngd_calloc(2, sizeof(*r));
    struct ngd_diag diag = {0};
    struct ngd_strbuf text;
    const char *wrong;
    ngd_nsec_t took = 0, other;
    ngd_status_t status = r ? open_run(&r[1], &v->reference, body, &diag) : NGD_ERR_NO_MEMORY;

    ngd_strbuf_init(&text);
    if (status == NGD_OK)
        status = replay_run(&r[1], &v->reference, false, &other);
    if (status == NGD_OK)
        status = open_run(&r[0], &v->device, body, &diag);
    if (status == NGD_OK) {
        status = replay_run(&r[0], &v->device, false, &took);
        diag = r[0].launch.diag;
    }
    if (status == NGD_OK && !compare(&r[0], &r[1], &text)) {
        ngd_doctor_device_add(v->report, name, "differs", took, "from the host's: %.180s", ngd_strbuf_str(&text));
    } else if (status == NGD_OK) {
        wrong = repeat(v, &r[0], &status);
        diag = r[0].launch.diag;
        if (wrong)
            ngd_doctor_device_add(v->report, name, "differs", took, "%s gives other bits than the first", wrong);
        else if (status == NGD_OK)
            ngd_doctor_device_add(
                v->report, name, "passed", took,
                "results are the host's; a second replay and running operator by operator give the same bits");
    }
    if (status)
        fail_step(v, name, status, &diag);
    if (r) {
        close_run(&r[0]);
        close_run(&r[1]);
    }
    ngd_free(r);
    ngd_strbuf_fini(&text);
}

/* ---- the other steps ----------------------------------------------------------------------------- */

static void check_memory(struct visit *v)
{
    uint32_t *there = ngd_malloc(MEMORY_BYTES), *back = ngd_malloc(MEMORY_BYTES);
    struct ngd_buffer *buf = NULL;
    struct ngd_diag diag = {0};
    ngd_nsec_t begin = ngd_now();
    ngd_status_t status =
        there && back ? ngd_buffer_create(v->device.dev, MEMORY_BYTES, NGD_BUFFER_GENERAL, "doctor", &buf, &diag)
                      : NGD_ERR_NO_MEMORY;

    for (uint32_t i = 0; status == NGD_OK && i < MEMORY_BYTES / sizeof(*there); i++)
        there[i] = i * 2654435761u;
    if (status == NGD_OK)
        status = ngd_buffer_write(buf, 0, there, MEMORY_BYTES, &diag);
    if (status == NGD_OK)
        status = ngd_buffer_read(buf, 0, back, MEMORY_BYTES, &diag);
    if (status)
        fail_step(v, "memory", status, &diag);
    else if (memcmp(there, back, MEMORY_BYTES) != 0)
        ngd_doctor_device_add(v->report, "memory", "differs", ngd_now() - begin,
                              "the bytes that were read are not those that were written");
    else
        ngd_doctor_device_add(v->report, "memory", "passed", ngd_now() - begin,
                              "1 MiB written and read back; %" PRIu64 " of %" PRIu64 " MiB used",
                              ngd_device_used_bytes(v->device.dev) >> 20,
                              ngd_device_info(v->device.dev)->memory_bytes >> 20);
    ngd_buffer_unref(buf);
    ngd_free(there);
    ngd_free(back);
}

static void check_memory_limit(struct visit *v)
{
    uint64_t budget = ngd_device_info(v->device.dev)->memory_bytes;
    struct ngd_diag diag = {0};
    ngd_status_t status = ngd_device_check_room(v->device.dev, budget + 1, "the doctor", &diag);

    ngd_doctor_device_add(v->report, "more memory than there is",
                          status == NGD_ERR_NO_DEVICE_MEMORY ? "passed" : "failed", 0,
                          status ? "refused: %.200s" : "was not refused%s", diag.text);
}

/* Checks that an index outside its table ends the request and nothing else. */
static void check_mistake(struct visit *v)
{
    static const char name[] = "an index outside its table";
    struct run *r = ngd_calloc(1, sizeof(*r));
    struct ngd_diag diag = {0};
    ngd_nsec_t took;
    ngd_status_t status = r ? open_run(r, &v->device, graphs[0].body, &diag) : NGD_ERR_NO_MEMORY;

    if (status == NGD_OK) {
        int32_t *indices = (int32_t *)(uintptr_t)r->inputs[0].data;

        indices[1] = 1000;
        status = replay_run(r, &v->device, false, &took);
        diag = r->launch.diag;
        if (status != NGD_ERR_INDEX_RANGE) {
            ngd_doctor_device_add(v->report, name, "failed", took, "was answered with %s", ngd_status_name(status));
            v->broken |= is_device_error(status);
            status = NGD_OK;
        } else {
            indices[1] = 1;
            status = replay_run(r, &v->device, false, &took);
            if (status == NGD_OK)
                ngd_doctor_device_add(v->report, name, "passed", took,
                                      "the replay was refused (%.120s), and the next one ran", diag.text);
            diag = r->launch.diag;
        }
    }
    if (status)
        fail_step(v, name, status, &diag);
    if (r)
        close_run(r);
    ngd_free(r);
}

static int by_time(const void *a, const void *b)
{
    ngd_nsec_t x = *(const ngd_nsec_t *)a, y = *(const ngd_nsec_t *)b;

    return (x > y) - (x < y);
}

static void check_time(struct visit *v, const char *name, const char *body)
{
    struct run *r = ngd_calloc(1, sizeof(*r));
    ngd_nsec_t took[REPLAYS], first = 0;
    struct ngd_diag diag = {0};
    ngd_status_t status = r ? open_run(r, &v->device, body, &diag) : NGD_ERR_NO_MEMORY;

    if (status == NGD_OK)
        status = replay_run(r, &v->device, false, &first);
    for (int i = 0; i < REPLAYS && status == NGD_OK; i++)
        status = replay_run(r, &v->device, false, &took[i]);
    if (status == NGD_OK) {
        qsort(took, REPLAYS, sizeof(took[0]), by_time);
        ngd_doctor_device_add(v->report, name, "passed", took[REPLAYS / 2],
                              "the first replay, with its capture, took %.0f us; half of %d took less than %.1f us, "
                              "all less than %.1f us",
                              (double)first / NGD_USEC, REPLAYS, (double)took[REPLAYS / 2] / NGD_USEC,
                              (double)took[REPLAYS - 1] / NGD_USEC);
    } else {
        if (r && r->inst)
            diag = r->launch.diag;
        if (status != NGD_ERR_OP_UNSUPPORTED)
            fail_step(v, name, status, &diag);
    }
    if (r)
        close_run(r);
    ngd_free(r);
}

/* ---- the whole ----------------------------------------------------------------------------------- */

static ngd_status_t open_bench(struct bench *b, struct ngd_diag *diag)
{
    ngd_status_t status = ngd_stream_create(b->dev, "doctor", &b->stream, diag);

    return status ? status : ngd_pool_create(b->dev, "doctor", &b->pool);
}

static void close_bench(struct bench *b)
{
    if (b->stream) {
        if (ngd_stream_status(b->stream) != NGD_OK)
            ngd_stream_reset(b->stream);
        ngd_stream_destroy(b->stream);
    }
    ngd_pool_destroy(b->pool);
}

/* Opens the reference: plain C on one CPU, which the tests compare everything else with too. */
static ngd_status_t open_reference(struct bench *b, struct ngd_diag *diag)
{
    struct ngd_device_params params;
    ngd_status_t status;

    ngd_device_params_init(&params);
    params.backend = "host";
    params.isa = "scalar";
    params.threads = 1;
    params.memory_bytes = REFERENCE_ROOM;
    status = ngd_device_open(&params, &b->dev, diag);
    return status ? status : open_bench(b, diag);
}

static void check_operators(struct visit *v)
{
    for (size_t i = 0; i < sizeof(graphs) / sizeof(graphs[0]); i++) {
        if (v->broken)
            ngd_doctor_device_add(v->report, graphs[i].name, "skipped", 0, "the device had an error before");
        else
            check_operator(v, graphs[i].name, graphs[i].body);
    }
}

/* Runs all steps on the open device. */
static void run_all_steps(struct ngd_device *dev, struct ngd_doctor_device_report *report)
{
    struct visit v = {.report = report, .device = {.dev = dev}};
    struct ngd_diag diag = {0};
    ngd_status_t status;

    if (dev->backend->lifecycle.doctor)
        dev->backend->lifecycle.doctor(dev->index, true, report);
    status = open_bench(&v.device, &diag);
    if (status)
        fail_step(&v, "a stream of its own", status, &diag);
    else
        check_memory(&v);
    if (status == NGD_OK && !v.broken) {
        status = open_reference(&v.reference, &diag);
        if (status)
            fail_step(&v, "the host device to compare with", status, &diag);
        else
            check_operators(&v);
    }
    if (status == NGD_OK && !v.broken)
        check_memory_limit(&v);
    if (status == NGD_OK && !v.broken)
        check_mistake(&v);
    for (size_t i = 0; i < sizeof(graphs) / sizeof(graphs[0]) && status == NGD_OK && !v.broken; i++) {
        if (strcmp(graphs[i].name, "aten.linear") == 0)
            check_time(&v, "time of a product", graphs[i].body);
        else if (strcmp(graphs[i].name, "npu.fused_infer_attention_score") == 0)
            check_time(&v, "time of an attention", graphs[i].body);
    }
    close_bench(&v.device);
    close_bench(&v.reference);
    if (v.reference.dev)
        ngd_device_close(v.reference.dev);
}

static void clear_report(struct ngd_doctor_device_report *report)
{
    memset(report, 0, sizeof(*report));
    report->healthy = true;
}

void ngd_doctor_device(struct ngd_device *dev, struct ngd_doctor_device_report *report)
{
    clear_report(report);
    run_all_steps(dev, report);
    if (report->healthy)
        snprintf(report->verdict, sizeof(report->verdict), "device %s does what it should", ngd_device_info(dev)->name);
}

void ngd_doctor_device_refused(const struct ngd_device_params *params, const char *why,
                               struct ngd_doctor_device_report *report, struct ngd_strbuf *description,
                               struct ngd_strbuf *capabilities)
{
    const struct ngd_backend *backend = params->backend ? ngd_backend_find(params->backend) : NULL;
    struct ngd_diag diag = {0};
    struct ngd_device *dev = NULL;
    ngd_nsec_t begin;
    ngd_status_t status;

    clear_report(report);
    ngd_doctor_device_add(report, "opening at start", "missing", 0, "%s", why);
    begin = ngd_now();
    status = ngd_device_open(params, &dev, &diag);
    if (status) {
        if (backend && backend->lifecycle.doctor)
            backend->lifecycle.doctor(params->index, false, report);
        ngd_doctor_device_add(report, "opening", "failed", ngd_now() - begin, "%s", diag.text);
        snprintf(report->verdict, sizeof(report->verdict), "device %s:%u does not open: %.400s", params->backend,
                 (unsigned)params->index, diag.text);
        return;
    }
    ngd_doctor_device_add(report, "opening", "passed", ngd_now() - begin,
                          "it opens now: restart the daemon to serve with it");
    run_all_steps(dev, report);
    if (report->healthy)
        snprintf(report->verdict, sizeof(report->verdict),
                 "device %s does what it should now, but was not open when the daemon started: restart it",
                 ngd_device_info(dev)->name);
    if (description)
        ngd_strbuf_append(description, ngd_device_info(dev)->description);
    if (capabilities)
        ngd_device_describe(dev, capabilities);
    ngd_device_close(dev);
}
