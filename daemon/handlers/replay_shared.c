/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/handlers/replay_shared.h"
#include "base/mem.h"
#include "daemon/daemon.h"
#include "daemon/rpc/rpc_call.h"
#include "daemon/session.h"
#include <inttypes.h>
#include <string.h>

#define ALIGNED(n)  (((n) + 63) & ~(uint64_t)63)
#define CHARGE_FROM (64u << 10) /* as for messages */

static ngd_status_t get_shared(struct ngd_call *call, uint64_t id, struct ngd_shared_object **object_p,
                               struct ngd_diag *diag)
{
    struct ngd_object *o;
    ngd_status_t status = ngd_session_get(call->session, id, NGD_OBJECT_SHARED, &o, diag);

    if (status == NGD_OK)
        *object_p = ngd_container_of(o, struct ngd_shared_object, base);
    return status;
}

static ngd_status_t find_target(struct ngd_replay_shared *s, struct ngd_call *call,
                                const struct ngd_shared_range *range, uint32_t n_outputs, struct ngd_diag *diag)
{
    struct ngd_shared_target *t = &s->targets[s->n_targets];
    ngd_status_t status;

    if (range->index >= n_outputs)
        return ngd_diag_set(diag, NGD_ERR_OUTPUT_UNKNOWN,
                            "shared_outputs names output %u, but the graph has only %u outputs", range->index,
                            n_outputs);
    if (s->by_output[range->index])
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT, "shared_outputs names output %u twice", range->index);
    status = get_shared(call, range->buffer, &t->object, diag);
    if (status != NGD_OK)
        return status;
    s->n_targets++;
    s->by_output[range->index] = t;
    t->offset = range->offset;
    t->room = range->bytes;
    return ngd_shared_check_range(t->object, range->offset, range->bytes, diag);
}

ngd_status_t ngd_replay_shared_find(struct ngd_replay_shared *s, struct ngd_call *call,
                                    const struct ngd_replay_message *m, uint32_t n_outputs, struct ngd_diag *diag)
{
    ngd_status_t status = NGD_OK;

    if (m->n_shared_outputs == 0)
        return NGD_OK;
    s->targets = ngd_arena_calloc(&call->arena, m->n_shared_outputs, sizeof(*s->targets));
    s->by_output = ngd_arena_calloc(&call->arena, n_outputs + 1u, sizeof(*s->by_output));
    if (!s->targets || !s->by_output)
        return NGD_ERR_NO_MEMORY;
    for (uint32_t i = 0; i < m->n_shared_outputs && status == NGD_OK; i++)
        status = find_target(s, call, &m->shared_outputs[i], n_outputs, diag);
    return status;
}

/* ---- the block ----------------------------------------------------------------------------------------- */

/* Checks what does not need the buffers, and sums up the bytes. */
static ngd_status_t sum_shared_bytes(const struct ngd_replay_shared *s, struct ngd_replay_message *m, uint64_t limit,
                                     uint64_t *total_p, struct ngd_diag *diag)
{
    uint64_t total = 0;

    for (uint32_t i = 0; i < m->n_shared_inputs && total <= limit; i++) {
        const struct ngd_shared_range *range = &m->shared_inputs[i];

        if (range->index >= m->n_inputs || m->inputs[range->index].bytes)
            return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT,
                                "shared_inputs names input %u, which has no empty entry in inputs", range->index);
        m->inputs[range->index].bytes = range->bytes; /* a second range for it is refused */
        total += range->bytes <= limit ? ALIGNED(range->bytes) : limit + 1;
    }
    for (uint32_t i = 0; i < s->n_targets && total <= limit; i++) {
        const struct ngd_shared_target *t = &s->targets[i];

        if (t->out->bytes > t->room)
            return ngd_diag_set(diag, NGD_ERR_BUFFER_RANGE,
                                "a result has %" PRIu64 " bytes, and its shared output has room for %" PRIu64,
                                t->out->bytes, t->room);
        total += t->out->bytes <= limit ? ALIGNED(t->out->bytes) : limit + 1;
    }
    if (total > limit)
        return ngd_diag_set(diag, NGD_ERR_MESSAGE_TOO_LARGE,
                            "the inputs and results in shared buffers have more than %" PRIu64 " bytes (max-message); "
                            "copy large tensors to buffers with Memory.Copy and bind them",
                            limit);
    *total_p = total;
    return NGD_OK;
}

static ngd_status_t make_block(struct ngd_replay_shared *s, struct ngd_call *call, uint64_t bytes,
                               struct ngd_diag *diag)
{
    ngd_status_t status = NGD_OK;

    if (bytes > CHARGE_FROM)
        status = ngd_charge_begin(&s->charge, ngd_identity_payer(call->identity, NGD_QUOTA_HOST_BYTES), bytes, diag);
    if (status != NGD_OK)
        return status;
    s->daemon = call->daemon;
    s->block = ngd_blocks_take(&s->daemon->blocks, bytes);
    return s->block ? NGD_OK : ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "out of host memory for %" PRIu64 " bytes", bytes);
}

static ngd_status_t read_input(struct ngd_call *call, const struct ngd_shared_range *range, uint8_t *to,
                               struct ngd_diag *diag)
{
    struct ngd_shared_object *o;
    ngd_status_t status = get_shared(call, range->buffer, &o, diag);

    if (status != NGD_OK)
        return status;
    status = ngd_shared_check_range(o, range->offset, range->bytes, diag);
    if (status == NGD_OK)
        status = ngd_shared_move(o, false, range->offset, to, range->bytes, call->daemon->copies, diag);
    ngd_object_unref(&o->base);
    return status;
}

ngd_status_t ngd_replay_shared_read(struct ngd_replay_shared *s, struct ngd_call *call, struct ngd_replay_message *m,
                                    struct ngd_out *outs, struct ngd_diag *diag)
{
    const uint64_t limit = call->daemon->options.max_message;
    uint64_t total = 0;
    ngd_status_t status;
    uint8_t *at;

    if (m->n_shared_inputs == 0 && s->n_targets == 0)
        return NGD_OK;
    for (uint32_t i = 0; i < s->n_targets; i++)
        s->targets[i].out = &outs[m->shared_outputs[i].index];
    status = sum_shared_bytes(s, m, limit, &total, diag);
    if (status == NGD_OK)
        status = make_block(s, call, total, diag);
    at = s->block ? s->block->data : NULL;
    for (uint32_t i = 0; i < m->n_shared_inputs && status == NGD_OK; i++) {
        const struct ngd_shared_range *range = &m->shared_inputs[i];

        status = read_input(call, range, at, diag);
        m->inputs[range->index] = (struct ngd_span){at, range->bytes};
        at += ALIGNED(range->bytes);
    }
    for (uint32_t i = 0; i < s->n_targets && status == NGD_OK; i++) {
        struct ngd_out *out = &outs[m->shared_outputs[i].index];

        out->data = at;
        at += ALIGNED(out->bytes);
    }
    return status;
}

ngd_status_t ngd_replay_shared_write(const struct ngd_replay_shared *s, struct ngd_diag *diag)
{
    ngd_status_t status = NGD_OK;

    for (uint32_t i = 0; i < s->n_targets && status == NGD_OK; i++) {
        const struct ngd_shared_target *t = &s->targets[i];

        status = ngd_shared_move(t->object, true, t->offset, t->out->data, t->out->bytes, s->daemon->copies, diag);
    }
    return status;
}

void ngd_replay_shared_end(struct ngd_replay_shared *s)
{
    for (uint32_t i = 0; i < s->n_targets; i++)
        ngd_object_unref(&s->targets[i].object->base);
    if (s->block)
        ngd_blocks_give(&s->daemon->blocks, s->block);
    ngd_charge_end(&s->charge);
    *s = (struct ngd_replay_shared){0};
}
