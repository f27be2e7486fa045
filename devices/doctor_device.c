/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/doctor_device.h"
#include "base/mem.h"
#include "devices/device_int.h"
#include "devices/doctor_run.h"
#include "graphs/graph.h"
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define MEMORY_BYTES ((uint64_t)1 << 20)
#define REPLAYS      50 /* replays that are timed */

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

/* ---- operators ----------------------------------------------------------------------------------- */

struct visit {
    struct ngd_doctor_device_report *report;
    struct ngd_doctor_bench device, reference;
    bool broken; /* the device had an error; later steps would only report it again */
};

static bool is_device_error(ngd_status_t status)
{
    return ngd_status_scope(status) == NGD_SCOPE_DEVICE;
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
    struct ngd_doctor_run *r = ngd_calloc(2, sizeof(*r));
    struct ngd_diag diag = {0};
    struct ngd_strbuf text;
    const char *wrong;
    ngd_nsec_t took = 0, other;
    ngd_status_t status = r ? ngd_doctor_run_open(&r[1], &v->reference, body, NULL, &diag) : NGD_ERR_NO_MEMORY;

    ngd_strbuf_init(&text);
    if (status == NGD_OK)
        status = ngd_doctor_run_replay(&r[1], &v->reference, false, &other);
    if (status == NGD_OK)
        status = ngd_doctor_run_open(&r[0], &v->device, body, NULL, &diag);
    if (status == NGD_OK) {
        status = ngd_doctor_run_replay(&r[0], &v->device, false, &took);
        diag = r[0].launch.diag;
    }
    if (status == NGD_OK && !ngd_doctor_run_same(&r[0], &r[1], &text, &status)) {
        diag = r[0].launch.diag;
        if (status == NGD_OK)
            ngd_doctor_device_add(v->report, name, "differs", took, "from the host's: %.180s", ngd_strbuf_str(&text));
    } else if (status == NGD_OK) {
        wrong = ngd_doctor_run_repeat(&r[0], &v->device, &status);
        diag = r[0].launch.diag;
        if (wrong)
            ngd_doctor_device_add(v->report, name, "differs", took, "%s gives other bits than the first", wrong);
        else if (status == NGD_OK)
            ngd_doctor_device_add(
                v->report, name, "passed", took,
                "results are the host's; a second replay and running operator by operator give the same bits%s%.200s",
                ngd_exec_note(r[0].exec) ? "; " : "", ngd_exec_note(r[0].exec) ? ngd_exec_note(r[0].exec) : "");
    }
    if (status)
        fail_step(v, name, status, &diag);
    if (r) {
        ngd_doctor_run_close(&r[0]);
        ngd_doctor_run_close(&r[1]);
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
    struct ngd_doctor_run *r = ngd_calloc(1, sizeof(*r));
    struct ngd_diag diag = {0};
    ngd_nsec_t took;
    ngd_status_t status = r ? ngd_doctor_run_open(r, &v->device, graphs[0].body, NULL, &diag) : NGD_ERR_NO_MEMORY;

    if (status == NGD_OK) {
        int32_t *indices = (int32_t *)(uintptr_t)r->inputs[0].data;

        indices[1] = 1000;
        status = ngd_doctor_run_replay(r, &v->device, false, &took);
        diag = r->launch.diag;
        if (status != NGD_ERR_INDEX_RANGE) {
            ngd_doctor_device_add(v->report, name, "failed", took, "was answered with %s", ngd_status_name(status));
            v->broken |= is_device_error(status);
            status = NGD_OK;
        } else {
            indices[1] = 1;
            status = ngd_doctor_run_replay(r, &v->device, false, &took);
            if (status == NGD_OK)
                ngd_doctor_device_add(v->report, name, "passed", took,
                                      "the replay was refused (%.120s), and the next one ran", diag.text);
            diag = r->launch.diag;
        }
    }
    if (status)
        fail_step(v, name, status, &diag);
    if (r)
        ngd_doctor_run_close(r);
    ngd_free(r);
}

static void check_time(struct visit *v, const char *name, const char *body)
{
    struct ngd_doctor_run *r = ngd_calloc(1, sizeof(*r));
    ngd_nsec_t took[REPLAYS], first = 0;
    struct ngd_diag diag = {0};
    ngd_status_t status = r ? ngd_doctor_run_open(r, &v->device, body, NULL, &diag) : NGD_ERR_NO_MEMORY;

    if (status == NGD_OK)
        status = ngd_doctor_run_replay(r, &v->device, false, &first);
    for (int i = 0; i < REPLAYS && status == NGD_OK; i++)
        status = ngd_doctor_run_replay(r, &v->device, false, &took[i]);
    if (status == NGD_OK) {
        ngd_doctor_run_sort(took, REPLAYS);
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
        ngd_doctor_run_close(r);
    ngd_free(r);
}

/* ---- the whole ----------------------------------------------------------------------------------- */

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
    status = ngd_doctor_bench_open(&v.device, &diag);
    if (status)
        fail_step(&v, "a stream of its own", status, &diag);
    else
        check_memory(&v);
    if (status == NGD_OK && !v.broken) {
        status = ngd_doctor_bench_reference(&v.reference, &diag);
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
    ngd_doctor_bench_close(&v.device);
    ngd_doctor_bench_close(&v.reference);
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
