/* SPDX-License-Identifier: Apache-2.0 */
/* Memory.LoadSafetensors: runs as a job on the loading threads, and sends its progress as messages. */
#include "base/le.h"
#include "daemon/daemon.h"
#include "daemon/handlers/methods.h"
#include "daemon/identity.h"
#include "daemon/jobs.h"
#include "daemon/loader.h"
#include "daemon/session.h"
#include "proto/npugraph.pb-c.h"
#include "proto/word.h"

struct load_call {
    struct ngd_job job;
    struct ngd_call *call;
    struct ngd_load load;
    uint64_t total;
    ngd_status_t lost; /* not OK: why a message could not be sent */
};

static bool progress(void *ctx, uint64_t done, uint64_t total)
{
    struct load_call *l = ctx;
    Npugraph__V1__LoadProgress m = NPUGRAPH__V1__LOAD_PROGRESS__INIT;

    l->total = total;
    m.bytes_done = done;
    m.bytes_total = total;
    if (ngd_call_unsent(l->call) == 0) /* a slow reader gets fewer messages */
        l->lost = ngd_call_send(l->call, &m.base);
    return l->lost == NGD_OK && !atomic_load(&l->call->cancelled);
}

/* Gives each object to the session. If a later one does not fit the quota, those before it stay the session's. */
static ngd_status_t add_objects(struct load_call *l, Npugraph__V1__LoadDone *done, struct ngd_diag *diag)
{
    struct ngd_arena *arena = &l->call->life;

    done->tensors = ngd_arena_calloc(arena, l->load.n_tensors + 1, sizeof(*done->tensors));
    for (size_t i = 0; done->tensors && i < l->load.n_tensors; i++) {
        struct ngd_loaded *t = &l->load.tensors[i];
        Npugraph__V1__LoadedTensor *m = ngd_arena_calloc(arena, 1, sizeof(*m));
        ngd_status_t status;

        if (!m)
            return NGD_ERR_NO_MEMORY;
        npugraph__v1__loaded_tensor__init(m);
        m->name = t->tensor->name;
        m->dtype = (char *)(uintptr_t)ngd_dtype_name(t->dtype);
        m->n_shape = t->tensor->rank;
        m->shape = t->shape;
        m->bytes = t->bytes;
        status = ngd_session_add(l->call->session, &t->object->base, &m->buffer, diag);
        if (status != NGD_OK)
            return status;
        t->object = NULL;
        done->tensors[done->n_tensors++] = m;
    }
    return done->tensors ? NGD_OK : NGD_ERR_NO_MEMORY;
}

static void take_back(struct load_call *l, const Npugraph__V1__LoadDone *done)
{
    for (size_t i = 0; i < done->n_tensors; i++)
        ngd_session_remove(l->call->session, done->tensors[i]->buffer, NGD_OBJECT_BUFFER, NULL);
}

static void load_job(struct ngd_job *job)
{
    struct load_call *l = ngd_container_of(job, struct load_call, job);
    Npugraph__V1__LoadProgress m = NPUGRAPH__V1__LOAD_PROGRESS__INIT;
    Npugraph__V1__LoadDone done = NPUGRAPH__V1__LOAD_DONE__INIT;
    struct ngd_call *call = l->call;
    struct ngd_diag diag = {0};
    ngd_status_t status = ngd_load_run(call->daemon->loader, &l->load, &diag);
    struct ngd_load load;

    if (l->lost != NGD_OK)
        status = l->lost;
    if (status == NGD_OK) {
        status = add_objects(l, &done, &diag);
        if (status != NGD_OK)
            take_back(l, &done);
    }
    done.shared = l->load.all_shared;
    m.bytes_done = m.bytes_total = l->total;
    m.done = &done;
    load = l->load; /* `l` is freed with the call; names and shapes in `done` belong to the load */
    if (status == NGD_OK)
        ngd_call_finish_with(call, &m.base);
    else
        ngd_call_fail(call, status, &diag);
    ngd_load_fini(&load);
}

/* Copies the order of columns, whose bytes are not aligned. One with a part of a number has no columns: it is refused.
 */
static bool read_order(struct ngd_call *call, const Npugraph__V1__TensorSlice *s, struct ngd_load_slice *slice)
{
    const size_t n = s->order.len % 4 == 0 ? s->order.len / 4 : 0;
    int32_t *order = ngd_arena_calloc(&call->life, n + 1, sizeof(*order));

    for (size_t i = 0; order && i < n; i++)
        order[i] = (int32_t)(uint32_t)ngd_le_get(s->order.data + 4 * i, 4);
    slice->order = order;
    slice->n_order = n;
    return order != NULL;
}

static ngd_status_t read_slices(struct ngd_call *call, const Npugraph__V1__LoadSafetensorsRequest *q,
                                struct ngd_load *load)
{
    struct ngd_load_slice *slices = ngd_arena_calloc(&call->life, q->n_slices + 1, sizeof(*slices));

    for (size_t i = 0; slices && i < q->n_slices; i++) {
        const Npugraph__V1__TensorSlice *s = q->slices[i];

        slices[i] = (struct ngd_load_slice){.name = s->name,
                                            .dim = s->dim,
                                            .begin = s->begin,
                                            .end = s->end,
                                            .change = ngd_change_find((int)s->change),
                                            .whole = s->shape,
                                            .rank = s->n_shape};
        if (s->order.len > 0 && !read_order(call, s, &slices[i]))
            return NGD_ERR_NO_MEMORY;
    }
    load->slices = slices;
    load->n_slices = q->n_slices;
    return slices ? NGD_OK : NGD_ERR_NO_MEMORY;
}

static void load_safetensors(struct ngd_call *call, const void *msg)
{
    const Npugraph__V1__LoadSafetensorsRequest *q = msg;
    struct load_call *l = ngd_arena_calloc(&call->life, 1, sizeof(*l));
    struct ngd_diag diag = {0};
    ngd_status_t status =
        l ? ngd_sched_find_device(call->daemon->sched, q->device, &l->load.dev, &diag) : NGD_ERR_NO_MEMORY;

    if (status == NGD_OK)
        status = read_slices(call, q, &l->load);
    if (status != NGD_OK) {
        ngd_call_fail(call, status, &diag);
        return;
    }
    l->call = call;
    l->load.payer = ngd_identity_payer(call->identity, NGD_QUOTA_BYTES);
    l->load.path = q->path;
    l->load.names = (const char *const *)q->tensors;
    l->load.n_names = q->n_tensors;
    l->load.progress = progress;
    l->load.ctx = l;
    l->job.fn = load_job;
    ngd_jobs_add_for(call->daemon->loads, &l->job, call->identity->key);
}

const struct ngd_rpc_ops ngd_rpc_memory_load = {.once = true, .request = load_safetensors};
