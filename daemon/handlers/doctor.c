/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs.Doctor and Graphs.Trace. They take long, so they run on job threads. */
#include "daemon/daemon.h"
#include "daemon/handlers/graphs.h"
#include "daemon/handlers/methods.h"
#include "daemon/identity.h"
#include "daemon/jobs.h"
#include "daemon/session.h"
#include "proto/word.h"
#include "scheduler/diag/doctor.h"

#include <string.h>

struct doctor_call {
    struct ngd_job job;
    struct ngd_call *call;
    const Npugraph__V1__DoctorRequest *q;
    struct ngd_program *prog;    /* a reference */
    struct ngd_binding *binding; /* a reference; NULL if the graph was named by its digest */
    struct ngd_span *inputs;
    struct ngd_host_value *hosts;
};

static ngd_status_t find_subject(struct doctor_call *e, struct ngd_diag *diag)
{
    struct ngd_object *o;
    ngd_status_t status;

    /* It takes memory for all params and states, and a slot's time, which no identity is charged for. */
    if (!e->q->graph && !e->call->identity->admin)
        return ngd_diag_set(
            diag, NGD_ERR_PERMISSION_DENIED,
            "%s may not run the doctor on others' graphs: name the graph by its id in your session, or be an admin "
            "identity",
            e->call->identity->name);
    if (!e->q->graph)
        return ngd_rpc_find_program(e->call, 0, e->q->digest, false, &e->prog, diag);
    if (!e->call->session)
        return ngd_diag_set(diag, NGD_ERR_SESSION_REQUIRED,
                            "a graph's id belongs to a session; without one, name the graph by its digest");
    status = ngd_session_get(e->call->session, e->q->graph, NGD_OBJECT_GRAPH, &o, diag);
    if (status != NGD_OK)
        return status;
    e->binding = ngd_graph_object_binding(ngd_container_of(o, struct ngd_graph_object, base));
    e->prog = ngd_program_ref(ngd_binding_program(e->binding));
    ngd_object_unref(o);
    return NGD_OK;
}

/* Reads inputs and hosts. Their sizes are checked when they run. */
static ngd_status_t read_lists(struct doctor_call *e)
{
    const Npugraph__V1__DoctorRequest *q = e->q;

    e->inputs = ngd_arena_calloc(&e->call->life, q->n_inputs + 1, sizeof(*e->inputs));
    e->hosts = ngd_arena_calloc(&e->call->life, q->n_hosts + 1, sizeof(*e->hosts));
    if (!e->inputs || !e->hosts)
        return NGD_ERR_NO_MEMORY;
    for (size_t i = 0; i < q->n_inputs; i++)
        e->inputs[i] = (struct ngd_span){q->inputs[i].data, q->inputs[i].len};
    for (size_t i = 0; i < q->n_hosts; i++)
        e->hosts[i] = (struct ngd_host_value){q->hosts[i]->values, (uint32_t)q->hosts[i]->n_values};
    return NGD_OK;
}

static void fill_params(const struct doctor_call *e, struct ngd_doctor_params *params)
{
    const Npugraph__V1__DoctorRequest *q = e->q;

    *params = (struct ngd_doctor_params){.prog = e->prog, .binding = e->binding, .seed = q->seed};
    if (q->n_symbols) {
        params->symbols = q->symbols;
        params->n_symbols = (uint32_t)q->n_symbols;
    }
    if (q->n_inputs) {
        params->inputs = e->inputs;
        params->n_inputs = (uint32_t)q->n_inputs;
    }
    if (q->n_hosts) {
        params->hosts = e->hosts;
        params->n_hosts = (uint32_t)q->n_hosts;
    }
}

static void finish_doctor_call(struct doctor_call *e, ngd_status_t status, const ProtobufCMessage *reply,
                               const struct ngd_diag *diag)
{
    ngd_binding_unref(e->binding);
    ngd_program_unref(e->prog);
    if (status == NGD_OK)
        ngd_call_reply(e->call, reply);
    else
        ngd_call_fail(e->call, status, diag);
}

static void begin_doctor_call(struct ngd_call *call, const void *msg, void (*fn)(struct ngd_job *job))
{
    struct doctor_call *e = ngd_arena_calloc(&call->life, 1, sizeof(*e));
    struct ngd_diag diag = {0};
    ngd_status_t status = NGD_ERR_NO_MEMORY;

    if (!e) {
        ngd_call_fail(call, status, NULL);
        return;
    }
    *e = (struct doctor_call){.job = {.fn = fn, .slow = true}, .call = call, .q = msg};
    status = find_subject(e, &diag);
    if (status == NGD_OK)
        status = read_lists(e);
    if (status == NGD_OK)
        ngd_jobs_add_for(call->daemon->jobs, &e->job, call->identity->key);
    else
        finish_doctor_call(e, status, NULL, &diag);
}

/* ---- Doctor ------------------------------------------------------------------------------------------- */

static bool fill_report(struct ngd_arena *arena, const struct ngd_doctor_report *r, Npugraph__V1__DoctorResponse *reply)
{
    reply->steps = ngd_arena_calloc(arena, r->n_steps + 1u, sizeof(*reply->steps));
    for (uint32_t i = 0; reply->steps && i < r->n_steps; i++) {
        const struct ngd_doctor_step *s = &r->steps[i];
        Npugraph__V1__DoctorStep *m = ngd_arena_calloc(arena, 1, sizeof(*m));

        if (!m)
            return false;
        npugraph__v1__doctor_step__init(m);
        m->name = (char *)(uintptr_t)s->name;
        m->verdict = ngd_word_value(&npugraph__v1__doctor_verdict__descriptor, s->verdict);
        m->text = (char *)(uintptr_t)s->text;
        m->nanoseconds = (uint64_t)s->duration;
        reply->steps[reply->n_steps++] = m;
    }
    reply->symbols = (int64_t *)(uintptr_t)r->symbols;
    reply->n_symbols = r->n_symbols;
    reply->healthy = r->healthy;
    reply->step = (char *)(uintptr_t)r->step;
    reply->node = (char *)(uintptr_t)r->node;
    reply->verdict = (char *)(uintptr_t)r->verdict;
    return reply->steps != NULL;
}

static void doctor_job(struct ngd_job *job)
{
    struct doctor_call *e = ngd_container_of(job, struct doctor_call, job);
    Npugraph__V1__DoctorResponse reply = NPUGRAPH__V1__DOCTOR_RESPONSE__INIT;
    struct ngd_doctor_report *report = ngd_arena_calloc(&e->call->life, 1, sizeof(*report));
    struct ngd_doctor_params params;
    struct ngd_diag diag = {0};
    ngd_status_t status = NGD_ERR_NO_MEMORY;

    fill_params(e, &params);
    if (report)
        status = ngd_doctor_run(&params, report, &diag);
    if (status == NGD_OK && !fill_report(&e->call->life, report, &reply))
        status = NGD_ERR_NO_MEMORY;
    finish_doctor_call(e, status, &reply.base, &diag);
}

static void doctor_graph(struct ngd_call *call, const void *msg)
{
    begin_doctor_call(call, msg, doctor_job);
}

const struct ngd_rpc_ops ngd_rpc_graphs_doctor = {.request = doctor_graph};

/* ---- Trace -------------------------------------------------------------------------------------------- */

static void trace_job(struct ngd_job *job)
{
    struct doctor_call *e = ngd_container_of(job, struct doctor_call, job);
    Npugraph__V1__TraceResponse reply = NPUGRAPH__V1__TRACE_RESPONSE__INIT;
    struct ngd_doctor_params params;
    struct ngd_strbuf json;
    struct ngd_diag diag = {0};
    ngd_status_t status;

    fill_params(e, &params);
    ngd_strbuf_init(&json);
    status = ngd_doctor_trace(&params, &json, &diag);
    reply.json = (char *)(uintptr_t)ngd_strbuf_str(&json);
    finish_doctor_call(e, status, &reply.base, &diag);
    ngd_strbuf_fini(&json);
}

static void trace_graph(struct ngd_call *call, const void *msg)
{
    begin_doctor_call(call, msg, trace_job);
}

const struct ngd_rpc_ops ngd_rpc_graphs_trace = {.request = trace_graph};
