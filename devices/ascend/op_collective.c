/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Builders of collectives, which are HCCL's. It reduces neither to an average nor to products of bf16: the first is a
 * sum that is divided, the second is made in f32.
 */
#include "devices/ascend/group.h"
#include "devices/ascend/issue.h"
#include <string.h>

#define T(v) ngd_ascend_tensor(c, &(v))

static const struct ascend_group *group_of(struct ascend_issue *c)
{
    const char *name = ngd_call_str(c->call, "group_name");

    for (uint32_t i = 0; i < c->inst->exec->n_comms; i++)
        if (strcmp(c->inst->exec->comms[i].name, name) == 0)
            return &c->inst->exec->comms[i];
    return NULL;
}

static int hccl_dtype(ngd_dtype_t dtype)
{
    switch (dtype) {
    case NGD_F32:
        return NGD_HCCL_FP32;
    case NGD_F16:
        return NGD_HCCL_FP16;
    case NGD_BF16:
        return NGD_HCCL_BFP16;
    case NGD_I32:
        return NGD_HCCL_INT32;
    case NGD_I64:
        return NGD_HCCL_INT64;
    case NGD_I8:
        return NGD_HCCL_INT8;
    default:
        return NGD_HCCL_UINT8;
    }
}

static int hccl_reduce(const char *name)
{
    static const struct {
        const char *name;
        int reduce;
    } rows[] = {{"sum", NGD_HCCL_SUM},
                {"avg", NGD_HCCL_SUM},
                {"product", NGD_HCCL_PROD},
                {"max", NGD_HCCL_MAX},
                {"min", NGD_HCCL_MIN}};

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (strcmp(rows[i].name, name) == 0)
            return rows[i].reduce;
    return -1;
}

/* The communicator's handle; NULL: the call is only measured, or refused. */
static void *enter_collective(struct ascend_issue *c, uint32_t *ranks_p)
{
    const struct ascend_group *g;

    if (!c->acl->HcclAllReduce)
        ngd_ascend_refuse(c,
                          "CANN has no libhccl.so here, or it lacks a function; install CANN's communication library");
    if (c->status || c->mode != ASCEND_ISSUE)
        return NULL;
    g = group_of(c);
    if (!g) {
        ngd_ascend_refuse(c, "its group is not among those of the executable");
        return NULL;
    }
    *ranks_p = g->size;
    return ngd_ascend_seat(g)->hccl;
}

static char *collective_address(const struct ascend_view *v)
{
    return v->base + v->offset * (int64_t)ngd_dtype_bytes(v->dtype);
}

static uint64_t collective_elements(const struct ascend_view *v)
{
    return (uint64_t)ngd_ascend_count(v);
}

/* x reduced into y: elements of both that this rank has are the caller's. */
static void issue_reduce(struct ascend_issue *c, bool scatter)
{
    const char *how = ngd_call_str(c->call, "reduce_op");
    struct ascend_view x = ngd_ascend_in(c, 0), y = ngd_ascend_out(c, 0), to = y;
    bool wide = x.dtype == NGD_BF16 && strcmp(how, "product") == 0;
    int op = hccl_reduce(how);
    uint32_t ranks = 1;
    void *comm = enter_collective(c, &ranks);

    if (op < 0 || (strcmp(how, "avg") == 0 && !ngd_dtype_is_float(x.dtype)))
        ngd_ascend_refuse(c, "there is no reduction \"%s\" of %s", how, ngd_dtype_name(x.dtype));
    if (wide) {
        x = ngd_ascend_cast(c, &x, NGD_F32);
        to = ngd_ascend_temp(c, NGD_F32, y.rank, y.dims);
    }
    if (comm && !c->status && collective_elements(&x)) {
        int dtype = hccl_dtype(x.dtype);

        ngd_ascend_called(c, scatter ? "HcclReduceScatter" : "HcclAllReduce",
                          scatter ? c->acl->HcclReduceScatter(collective_address(&x), collective_address(&to),
                                                              collective_elements(&to), dtype, op, comm, c->stream)
                                  : c->acl->HcclAllReduce(collective_address(&x), collective_address(&to),
                                                          collective_elements(&x), dtype, op, comm, c->stream));
    }
    if (wide)
        ngd_ascend_store(c, &to, &y);
    if (strcmp(how, "avg") == 0)
        ASCEND_RUN(c, Divs, T(y), ngd_ascend_scalar(c, ranks, NGD_F32), T(y));
}

void ngd_ascend_build_all_reduce(struct ascend_issue *c)
{
    issue_reduce(c, false);
}

void ngd_ascend_build_reduce_scatter(struct ascend_issue *c)
{
    issue_reduce(c, true);
}

void ngd_ascend_build_all_gather(struct ascend_issue *c)
{
    struct ascend_view x = ngd_ascend_in(c, 0), y = ngd_ascend_out(c, 0);
    uint32_t ranks = 1;
    void *comm = enter_collective(c, &ranks);

    if (comm && collective_elements(&x))
        ngd_ascend_called(c, "HcclAllGather",
                          c->acl->HcclAllGather(collective_address(&x), collective_address(&y), collective_elements(&x),
                                                hccl_dtype(x.dtype), comm, c->stream));
}

/* HCCL's is in place: all copy theirs, and all but the source's are overwritten. */
void ngd_ascend_build_broadcast(struct ascend_issue *c)
{
    struct ascend_view x = ngd_ascend_in(c, 0), y = ngd_ascend_out(c, 0);
    uint32_t ranks = 1;
    void *comm = enter_collective(c, &ranks);

    ngd_ascend_store(c, &x, &y);
    if (comm && !c->status && collective_elements(&y))
        ngd_ascend_called(c, "HcclBroadcast",
                          c->acl->HcclBroadcast(collective_address(&y), collective_elements(&y), hccl_dtype(y.dtype),
                                                (uint32_t)ngd_call_int(c->call, "src"), comm, c->stream));
}

static void list_parts(const struct ngd_attr_value *rows, uint32_t ranks, uint64_t row, uint64_t *counts,
                       uint64_t *from)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < ranks; i++) {
        from[i] = sum;
        counts[i] = (uint64_t)rows->list[i] * row;
        sum += counts[i];
    }
}

void ngd_ascend_build_all_to_all(struct ascend_issue *c)
{
    struct ascend_view x = ngd_ascend_in(c, 0), y = ngd_ascend_out(c, 0);
    uint64_t sends[NGD_GROUP_MAX_RANKS], send_at[NGD_GROUP_MAX_RANKS];
    uint64_t receives[NGD_GROUP_MAX_RANKS], receive_at[NGD_GROUP_MAX_RANKS];
    uint64_t row = 1;
    uint32_t ranks = 1;
    void *comm = enter_collective(c, &ranks);

    if (!comm)
        return;
    for (uint32_t i = 1; i < x.rank; i++)
        row *= (uint64_t)x.dims[i];
    list_parts(ngd_call_ints(c->call, "input_split_sizes"), ranks, row, sends, send_at);
    list_parts(ngd_call_ints(c->call, "output_split_sizes"), ranks, row, receives, receive_at);
    ngd_ascend_called(c, "HcclAlltoAllV",
                      c->acl->HcclAlltoAllV(collective_address(&x), sends, send_at, hccl_dtype(x.dtype),
                                            collective_address(&y), receives, receive_at, hccl_dtype(y.dtype), comm,
                                            c->stream));
}
