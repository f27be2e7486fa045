/* SPDX-License-Identifier: Apache-2.0 */
/* Admin.DoctorDevice. It takes seconds, so it runs on a job thread. A device that did not open is opened for it. */
#include "daemon/daemon.h"
#include "daemon/device_list.h"
#include "daemon/handlers/borrow.h"
#include "daemon/handlers/methods.h"
#include "daemon/identity.h"
#include "daemon/jobs.h"
#include "devices/doctor_device.h"
#include "proto/npugraph.pb-c.h"
#include "proto/word.h"

#include <string.h>

struct doctor_call {
    struct ngd_job job;
    struct ngd_call *call;
    struct ngd_device *dev; /* the open device, or: */
    const struct ngd_refused_device *refused;
    struct ngd_doctor_device_report *report;
};

static bool fill_steps(struct doctor_call *c, Npugraph__V1__DoctorDeviceResponse *r)
{
    const struct ngd_doctor_device_report *report = c->report;

    r->steps = ngd_arena_calloc(&c->call->life, report->n_steps + 1u, sizeof(*r->steps));
    for (uint32_t i = 0; r->steps && i < report->n_steps; i++) {
        Npugraph__V1__DoctorStep *m = ngd_arena_calloc(&c->call->life, 1, sizeof(*m));

        if (!m)
            return false;
        npugraph__v1__doctor_step__init(m);
        m->name = ngd_borrow(report->steps[i].name);
        m->verdict = ngd_word_value(&npugraph__v1__doctor_verdict__descriptor, report->steps[i].verdict);
        m->text = ngd_borrow(report->steps[i].text);
        m->nanoseconds = (uint64_t)report->steps[i].took;
        r->steps[r->n_steps++] = m;
    }
    return r->steps != NULL;
}

static void doctor_device_job(struct ngd_job *job)
{
    struct doctor_call *c = ngd_container_of(job, struct doctor_call, job);
    struct ngd_strbuf description, capabilities; /* not in `c`, which is freed with the call */
    Npugraph__V1__DoctorDeviceResponse r = NPUGRAPH__V1__DOCTOR_DEVICE_RESPONSE__INIT;

    ngd_strbuf_init(&description);
    ngd_strbuf_init(&capabilities);
    if (c->dev) {
        ngd_doctor_device(c->dev, c->report);
        ngd_strbuf_append(&description, ngd_device_info(c->dev)->description);
        ngd_device_describe(c->dev, &capabilities);
    } else {
        ngd_doctor_device_refused(&c->refused->params, c->refused->why.text, c->report, &description, &capabilities);
    }
    r.device = ngd_borrow(c->dev ? ngd_device_info(c->dev)->name : c->refused->name);
    r.description = ngd_borrow(ngd_strbuf_str(&description));
    r.version = ngd_borrow(PACKAGE_VERSION);
    r.capabilities = ngd_borrow(ngd_strbuf_str(&capabilities));
    r.healthy = c->report->healthy;
    r.verdict = c->report->verdict;
    if (fill_steps(c, &r) && !description.failed && !capabilities.failed)
        ngd_call_reply(c->call, &r.base);
    else
        ngd_call_fail(c->call, NGD_ERR_NO_MEMORY, NULL);
    ngd_strbuf_fini(&description);
    ngd_strbuf_fini(&capabilities);
}

/* Finds a device that is open, or one that was refused at the start. */
static ngd_status_t find_device_to_examine(struct doctor_call *c, const struct ngd_daemon *d, const char *name,
                                           struct ngd_diag *diag)
{
    for (size_t i = 0; i < d->n_devices && !c->dev; i++)
        if (*name == '\0' || strcmp(ngd_device_info(d->devices[i])->name, name) == 0)
            c->dev = d->devices[i];
    if (!c->dev)
        c->refused = ngd_device_list_find_refused(d, name);
    if (c->dev || c->refused)
        return NGD_OK;
    return ngd_diag_set(
        diag, NGD_ERR_NOT_FOUND,
        "there is no device \"%.40s\", neither open (npugraphctl devices lists those) nor refused when the "
        "daemon started; name it in the daemon's options (device)",
        name);
}

static void doctor_device(struct ngd_call *call, const void *msg)
{
    const Npugraph__V1__DoctorDeviceRequest *q = msg;
    struct doctor_call *c = ngd_arena_calloc(&call->life, 1, sizeof(*c));
    struct ngd_diag diag = {0};

    if (c)
        c->report = ngd_arena_calloc(&call->life, 1, sizeof(*c->report));
    if (!c || !c->report) {
        ngd_call_fail(call, NGD_ERR_NO_MEMORY, NULL);
        return;
    }
    find_device_to_examine(c, call->daemon, q->device, &diag);
    if (diag.status) {
        ngd_call_fail(call, diag.status, &diag);
        return;
    }
    c->call = call;
    c->job.fn = doctor_device_job;
    c->job.slow = true;
    ngd_jobs_add_for(call->daemon->jobs, &c->job, call->identity->key);
}

const struct ngd_rpc_ops ngd_rpc_admin_doctor_device = {.request = doctor_device};
