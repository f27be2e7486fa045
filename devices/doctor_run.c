/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/doctor_run.h"
#include "base/mem.h"
#include "graphs/compare.h"
#include "graphs/graph.h"
#include <stdlib.h>
#include <string.h>

#define REFERENCE_ROOM ((uint64_t)64 << 20) /* memory of the host device that results are compared with */
#define HOST_VALUE     4                    /* value of every host parameter: rows and keys of the attention */

/* ---- devices --------------------------------------------------------------------------------------- */

ngd_status_t ngd_doctor_bench_open(struct ngd_doctor_bench *b, struct ngd_diag *diag)
{
    ngd_status_t status = ngd_stream_create(b->dev, "doctor", &b->stream, diag);

    return status ? status : ngd_pool_create(b->dev, "doctor", &b->pool);
}

void ngd_doctor_bench_close(struct ngd_doctor_bench *b)
{
    if (b->stream) {
        if (ngd_stream_status(b->stream) != NGD_OK)
            ngd_stream_reset(b->stream);
        ngd_stream_destroy(b->stream);
    }
    ngd_pool_destroy(b->pool);
}

ngd_status_t ngd_doctor_bench_reference(struct ngd_doctor_bench *b, struct ngd_diag *diag)
{
    struct ngd_device_params params;
    ngd_status_t status;

    ngd_device_params_init(&params);
    params.backend = "host";
    params.isa = "scalar";
    params.threads = 1;
    params.memory_bytes = REFERENCE_ROOM;
    status = ngd_device_open(&params, &b->dev, diag);
    return status ? status : ngd_doctor_bench_open(b, diag);
}

/* ---- a graph ------------------------------------------------------------------------------------ */

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

/* What the name of a value says about its elements (doctor_run.h). */
enum drawing { DRAW_ANY, DRAW_ZERO, DRAW_ONE, DRAW_POSITIVE, DRAW_LAST, DRAW_MINUS };

static enum drawing drawing_of(const char *name)
{
    static const struct {
        const char *prefix;
        enum drawing drawing;
    } names[] = {
        {"zero", DRAW_ZERO}, {"one", DRAW_ONE}, {"pos", DRAW_POSITIVE}, {"last", DRAW_LAST}, {"minus", DRAW_MINUS}};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strncmp(name, names[i].prefix, strlen(names[i].prefix)) == 0)
            return names[i].drawing;
    return DRAW_ANY;
}

/* The period 67 divides no size of a row or block, so that reading another one shows in the results. */
static float drawn(enum drawing how, uint64_t i)
{
    const float f = (float)((i * 37 + 11) % 67) / 32.0f - 33.0f / 32.0f;

    if (how == DRAW_ZERO || how == DRAW_ONE)
        return how == DRAW_ONE;
    return how == DRAW_POSITIVE ? (f < 0 ? -f : f) + 0.125f : f;
}

static int64_t drawn_integer(enum drawing how, bool boolean, uint64_t i, uint64_t n)
{
    switch (how) {
    case DRAW_ZERO:
        return 0;
    case DRAW_LAST:
        return (int64_t)(n - 1 - i);
    case DRAW_MINUS:
        return i % 2 ? -1 : (int64_t)(i % 4);
    case DRAW_POSITIVE:
        return boolean ? i % 3 > 0 : (int64_t)(i % 3 + 1);
    default:
        return (int64_t)(i % (boolean ? 2 : 4));
    }
}

static void fill_value(const struct ngd_value *v, void *data, uint64_t n)
{
    const enum drawing how = drawing_of(v->name);
    const ngd_dtype_t dtype = v->type.dtype;
    const size_t size = ngd_dtype_bytes(dtype);

    for (uint64_t i = 0; i < n; i++) {
        float f = drawn(how, i);
        uint16_t half = dtype == NGD_F16 ? ngd_f32_to_f16(f) : ngd_f32_to_bf16(f);
        int64_t whole = drawn_integer(how, dtype == NGD_BOOL, i, n);
        const void *from = dtype == NGD_F32                        ? (const void *)&f
                           : dtype == NGD_F16 || dtype == NGD_BF16 ? (const void *)&half
                                                                   : (const void *)&whole;

        memcpy((char *)data + i * size, from, size);
    }
}

void ngd_doctor_run_close(struct ngd_doctor_run *r)
{
    ngd_instance_destroy(r->inst);
    ngd_exec_unref(r->exec);
    for (uint32_t i = 0; i < r->n_bound; i++)
        ngd_buffer_unref(r->bound[i]);
    for (uint32_t i = 0; i < NGD_DOCTOR_RUN_SLOTS; i++) {
        ngd_free((void *)(uintptr_t)r->inputs[i].data);
        ngd_free(r->outputs[i].data);
    }
    ngd_plan_unref(r->plan);
    ngd_graph_unref(r->graph);
    memset(r, 0, sizeof(*r));
}

static ngd_status_t plan_run(struct ngd_doctor_run *r, struct ngd_device *dev, const char *body, struct ngd_diag *diag)
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

static ngd_status_t make_bound(struct ngd_doctor_run *r, struct ngd_device *dev, struct ngd_diag *diag)
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

static ngd_status_t make_launch(struct ngd_doctor_run *r, const struct ngd_host_value *hosts)
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
        r->hosts[i] = hosts ? hosts[i] : (struct ngd_host_value){&host_value, 1};
    for (uint32_t i = 0; i < g->n_outputs; i++) {
        uint64_t bytes = ngd_plan_output_bytes(r->plan, i, NULL);

        r->outputs[i] = (struct ngd_out){ngd_calloc(1, bytes), bytes};
        if (!r->outputs[i].data)
            return NGD_ERR_NO_MEMORY;
    }
    r->launch = (struct ngd_launch){.inputs = r->inputs, .hosts = r->hosts, .outputs = r->outputs};
    return NGD_OK;
}

ngd_status_t ngd_doctor_run_open(struct ngd_doctor_run *r, struct ngd_doctor_bench *b, const char *body,
                                 const struct ngd_host_value *hosts, struct ngd_diag *diag)
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
        status = make_launch(r, hosts);
    if (status)
        ngd_doctor_run_close(r);
    return status;
}

ngd_status_t ngd_doctor_run_replay(struct ngd_doctor_run *r, struct ngd_doctor_bench *b, bool eager, ngd_nsec_t *took_p)
{
    ngd_nsec_t begin = ngd_now();
    ngd_status_t status;

    r->launch.eager = eager;
    r->launch.status = NGD_OK;
    status = ngd_stream_run(b->stream, r->inst, &r->launch);
    *took_p = ngd_now() - begin;
    return status;
}

static int by_duration(const void *a, const void *b)
{
    ngd_nsec_t x = *(const ngd_nsec_t *)a, y = *(const ngd_nsec_t *)b;

    return (x > y) - (x < y);
}

void ngd_doctor_run_sort(ngd_nsec_t *took, size_t n)
{
    qsort(took, n, sizeof(*took), by_duration);
}

/* ---- results --------------------------------------------------------------------------------------- */

static ngd_status_t read_states(struct ngd_doctor_run *got, struct ngd_doctor_run *want, uint32_t i, void *a, void *b,
                                uint64_t bytes)
{
    struct ngd_diag *diag = &got->launch.diag;
    ngd_status_t status;

    if (!a || !b)
        return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory to compare states");
    status = ngd_buffer_read(got->bound[i], 0, a, bytes, diag);
    return status ? status : ngd_buffer_read(want->bound[i], 0, b, bytes, diag);
}

bool ngd_doctor_run_same(struct ngd_doctor_run *got, struct ngd_doctor_run *want, struct ngd_strbuf *text,
                         ngd_status_t *status_p)
{
    const struct ngd_graph *g = want->graph;
    struct ngd_difference diff;

    *status_p = NGD_OK;
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
        bool same;

        *status_p = read_states(got, want, g->n_params + i, a, b, bytes);
        same = *status_p == NGD_OK && ngd_compare(v->type.dtype, a, b, n, &diff);
        if (!same && *status_p == NGD_OK) {
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

const char *ngd_doctor_run_repeat(struct ngd_doctor_run *r, struct ngd_doctor_bench *b, ngd_status_t *status_p)
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
        *status_p = ngd_doctor_run_replay(r, b, i == 1, &took);
        if (*status_p == NGD_OK && memcmp(first, r->outputs[0].data, bytes) != 0)
            wrong = ways[i];
    }
    ngd_free(first);
    return wrong;
}
