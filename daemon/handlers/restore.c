/* SPDX-License-Identifier: Apache-2.0 */
/* Sequences.Open with `restore`: a sequence that was lost with its daemon or session, from what its client knows. */
#include "base/metrics.h"
#include "daemon/daemon.h"
#include "daemon/handlers/logprobs.h"
#include "daemon/handlers/priority.h"
#include "daemon/handlers/sampling.h"
#include "daemon/handlers/sequences.h"
#include "daemon/identity.h"
#include "daemon/models.h"
#include "daemon/rpc/rpc_call.h"
#include "daemon/session.h"
#include "scheduler/model/seq_move.h"

#include <inttypes.h>
#include <string.h>

static ngd_status_t check_model_id(struct ngd_model *model, const Npugraph__V1__OpenRequest *q, struct ngd_diag *diag)
{
    struct ngd_model_stats stats;

    ngd_model_stats(model, &stats);
    if (q->restore->model_id.len == sizeof(stats.id) &&
        memcmp(q->restore->model_id.data, &stats.id, sizeof(stats.id)) == 0)
        return NGD_OK;
    return ngd_diag_set(
        diag, NGD_ERR_MODEL_CHANGED,
        "model \"%.64s\" is not the one that the sequence had: it has other weights, operators, stop tokens "
        "or vocabulary; open a new sequence",
        q->model);
}

/* Finds how the parts were computed that steps appended. */
static ngd_status_t read_appended(struct ngd_call *call, const struct ngd_model *model,
                                  const Npugraph__V1__OpenRequest *q, struct ngd_seq_image *image,
                                  struct ngd_diag *diag)
{
    const Npugraph__V1__RestoredSequence *r = q->restore;
    uint8_t *ways = ngd_arena_calloc(&call->life, image->fill / 8 + 1, 1);

    image->ways = ways;
    image->ways_bytes = image->fill / 8 + 1;
    return ways ? ngd_model_ways_of_parts(model, r->appended, r->n_appended, image->n_prompt, image->fill, ways, diag)
                : NGD_ERR_NO_MEMORY;
}

static ngd_status_t read_lost(struct ngd_call *call, const struct ngd_model *model, const Npugraph__V1__OpenRequest *q,
                              struct ngd_seq_image *image, struct ngd_diag *diag)
{
    const Npugraph__V1__RestoredSequence *r = q->restore;
    struct ngd_logprobs *lp = NULL;
    ngd_status_t status;

    *image = (struct ngd_seq_image){.tokens = q->prompt,
                                    .fill = (uint32_t)q->n_prompt,
                                    .n_prompt = r->prompt_tokens,
                                    .n_given = r->given_tokens,
                                    .chosen = r->chosen,
                                    .delivered = r->delivered,
                                    .draws = r->draws,
                                    .allowed = q->allowed.len ? q->allowed.data : NULL,
                                    .allowed_bytes = q->allowed.len,
                                    .priority = ngd_priority_of(q->priority, NGD_PRIORITY_NORMAL)};
    if (r->logprobs && !(lp = ngd_arena_calloc(&call->life, 1, sizeof(*lp))))
        return NGD_ERR_NO_MEMORY;
    if (lp)
        ngd_logprobs_of_message(r->logprobs, lp);
    image->logprobs = lp;
    status = ngd_sampling_of_message(&call->life, q->sampling, &image->sampling);
    return status ? status : read_appended(call, model, q, image, diag);
}

/* Makes the sequence, whose opener is the call's object. */
static ngd_status_t import_lost(struct ngd_call *call, struct ngd_model *model, const Npugraph__V1__OpenRequest *q,
                                struct ngd_sequence_object *o, struct ngd_diag *diag)
{
    const struct ngd_seq_owner owner = {.key = call->identity->key,
                                        .share = ngd_session_share(call->session),
                                        .usage = ngd_session_usage(call->session),
                                        .payer = ngd_identity_payer(call->identity, NGD_QUOTA_HOST_BYTES)};
    struct ngd_seq_image image;
    ngd_status_t status = check_model_id(model, q, diag);

    if (status == NGD_OK)
        status = read_lost(call, model, q, &image, diag);
    return status ? status : ngd_seq_import(model, &image, NULL, &owner, &o->seq, diag);
}

static void reply_restored(struct ngd_call *call, const Npugraph__V1__OpenRequest *q, uint64_t id, struct ngd_seq *seq)
{
    Npugraph__V1__OpenResponse reply = NPUGRAPH__V1__OPEN_RESPONSE__INIT;
    struct ngd_model_stats stats;

    ngd_model_stats(ngd_seq_model(seq), &stats);
    reply.sequence = id;
    reply.token = q->restore->chosen;
    reply.position = (uint32_t)q->n_prompt;
    for (uint32_t i = 0; i < stats.n_stop_tokens; i++)
        reply.stop |= stats.stop_tokens[i] == reply.token;
    reply.model_id = (ProtobufCBinaryData){.data = stats.id.b, .len = sizeof(stats.id)};
    ngd_call_reply(call, &reply.base);
}

ngd_status_t ngd_sequence_restore(struct ngd_call *call, const Npugraph__V1__OpenRequest *q, struct ngd_diag *diag)
{
    struct ngd_sequence_object *o;
    struct ngd_model *model;
    uint64_t id;
    ngd_status_t status = ngd_models_get(call->daemon->models, call->identity, q->model, &model, diag);

    if (status != NGD_OK)
        return status;
    call->state = o = ngd_sequence_create(); /* the call's reference, given up by release() */
    status = o ? import_lost(call, model, q, o, diag) : NGD_ERR_NO_MEMORY;
    if (status == NGD_OK)
        status = ngd_sequence_adopt(call, call->session, o, &id, diag);
    if (status == NGD_OK) {
        ngd_metric_inc(NGD_M_SEQUENCES_RESTORED);
        reply_restored(call, q, id, o->seq);
    }
    ngd_model_unref(model);
    return status;
}
