/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/model/seq_move.h"
#include "base/mem.h"
#include "scheduler/model/model_int.h"
#include <inttypes.h>
#include <string.h>

/* ---- export -------------------------------------------------------------------------------------------- */

static ngd_status_t export_blocks(struct ngd_seq *seq, struct ngd_seq_image *image, ngd_seq_put_fn put, void *ctx,
                                  struct ngd_diag *diag)
{
    struct ngd_model *model = seq->model;
    const uint64_t each = ngd_model_block_bytes(model);
    ngd_status_t status = NGD_OK;

    image->n_tables = model->n_groups;
    for (uint32_t g = 0; g < model->n_groups; g++) {
        const struct ngd_seq_table *t = &seq->tables[g];

        image->tables[g].first = t->first;
        image->tables[g].n = t->n;
        for (uint32_t i = t->first; i < t->n && status == NGD_OK; i++, image->kv_bytes += each)
            status = ngd_model_read_block(model, t->blocks[i], put, ctx, diag);
    }
    return status;
}

ngd_status_t ngd_seq_export(struct ngd_seq *seq, struct ngd_seq_image *image_p, ngd_seq_put_fn put, void *ctx,
                            struct ngd_diag *diag)
{
    struct ngd_seq_end end;
    ngd_status_t status = NGD_OK;

    if (ngd_binding_group(seq->model->graphs[NGD_DECODE].binding))
        return ngd_diag_set(diag, NGD_ERR_UNIMPLEMENTED, "its model runs on a group of devices");
    /* Like a fork: meanwhile no thread steps the sequence or takes its blocks. */
    status = ngd_seq_begin(seq, NGD_SEQ_FORK, 0, 0, NGD_PRIORITY_OWN, diag);
    if (status != NGD_OK)
        return status;
    *image_p = (struct ngd_seq_image){.tokens = seq->tokens,
                                      .fill = seq->fill,
                                      .n_prompt = seq->n_prompt,
                                      .n_given = seq->n_given,
                                      .position = seq->position,
                                      .shared = seq->shared,
                                      .chosen = seq->chosen,
                                      .delivered = seq->delivered,
                                      .draws = seq->draws,
                                      .sampling = seq->sampling,
                                      .allowed = seq->allowed.bits,
                                      .allowed_bytes = ngd_mask_bytes(seq->model->params.vocab),
                                      .ways = seq->ways,
                                      .ways_bytes = ((uint64_t)seq->fill + 7) / 8,
                                      .uncomputed = seq->fill - seq->computed,
                                      .part = seq->part,
                                      .priority = seq->own_priority,
                                      .logprobs = seq->has_logprobs ? &seq->logprobs : NULL};
    if (seq->position)
        status = export_blocks(seq, image_p, put, ctx, diag);
    (void)ngd_seq_give_back(seq, false, &end);
    ngd_seq_end(seq, &end);
    return status;
}

/* ---- import -------------------------------------------------------------------------------------------- */

static ngd_status_t bad_image(const struct ngd_model *model, const char *what, struct ngd_diag *diag)
{
    return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT, "a sequence of model \"%.64s\" comes with %s", model->name,
                        what);
}

ngd_status_t ngd_model_ways_of_parts(const struct ngd_model *model, const uint32_t *parts, size_t n, uint32_t n_prompt,
                                     uint32_t fill, uint8_t *ways, struct ngd_diag *diag)
{
    uint32_t end = n_prompt;
    bool ok = n % 2 == 0;

    ngd_model_step_ways(model, fill, ways);
    for (size_t i = 0; ok && i < n; i += 2) {
        ok = parts[i] >= end && parts[i + 1] > parts[i] && parts[i + 1] <= fill;
        end = parts[i + 1];
        if (ok)
            ngd_model_part_ways(model, parts[i], end, ways);
    }
    return ok ? NGD_OK : bad_image(model, "appended parts outside its context", diag);
}

static bool is_token(const struct ngd_model *model, int32_t token)
{
    return token >= 0 && (uint32_t)token < model->params.vocab;
}

static bool are_logprobs(const struct ngd_model *model, const struct ngd_logprobs *lp)
{
    bool ok = !lp || (lp->n_top <= NGD_LOGPROBS_MAX && is_token(model, lp->token));

    for (uint32_t i = 0; lp && ok && i < lp->n_top; i++)
        ok = is_token(model, lp->top[i].token);
    return ok;
}

static uint32_t most_of(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

/* Checks what is there of the context, and how tokens are chosen. */
static ngd_status_t check_image(const struct ngd_model *model, const struct ngd_seq_image *image, struct ngd_diag *diag)
{
    const uint32_t most = model->params.max_context;

    if (model->params.no_generation || ngd_binding_group(model->graphs[NGD_DECODE].binding))
        return bad_image(model, "more than the model can do", diag);
    if (image->fill == 0 || image->fill > most || image->n_prompt == 0 || image->n_prompt > image->fill ||
        image->n_given > most || image->position > image->fill || image->shared > image->n_prompt)
        return bad_image(model, "a position outside its context", diag);
    if (image->draws == 0 || image->draws - 1 > image->fill)
        return bad_image(model, "more or fewer draws than its tokens", diag);
    for (uint32_t i = 0; i < image->fill; i++)
        if (!is_token(model, image->tokens[i]))
            return bad_image(model, "a token outside the vocabulary", diag);
    if (!is_token(model, image->chosen) || !are_logprobs(model, image->logprobs))
        return bad_image(model, "a token outside the vocabulary", diag);
    if (image->ways && image->ways_bytes < ((uint64_t)image->fill + 7) / 8)
        return bad_image(model, "too few bits of how it was computed", diag);
    if (image->uncomputed > image->fill - most_of(image->position, image->n_prompt) ||
        image->part > image->fill - image->uncomputed)
        return bad_image(model, "a part that it has not appended", diag);
    if (image->priority >= NGD_PRIORITIES)
        return bad_image(model, "an unknown priority", diag);
    return ngd_model_check_sampling(model, &image->sampling, image->allowed, image->allowed ? image->allowed_bytes : 0,
                                    diag);
}

/* Checks that the tables have all blocks that the context needs, and no others, and that all their bytes came. */
static bool are_tables(const struct ngd_model *model, const struct ngd_seq_image *image)
{
    const uint32_t size = model->params.block_size, most = (model->params.max_context + size - 1) / size,
                   need = (image->position + size - 1) / size;
    uint64_t blocks = 0;

    if (image->n_tables != model->n_groups)
        return false;
    for (uint32_t g = 0; g < model->n_groups; g++) {
        const uint32_t first = image->tables[g].first, n = image->tables[g].n;

        if (n > most || n < need || first > ngd_model_first_block(model, g, image->position) || first > n)
            return false;
        blocks += n - first;
    }
    return image->kv_bytes % ngd_model_block_bytes(model) == 0 &&
           image->kv_bytes / ngd_model_block_bytes(model) == blocks;
}

/* Takes the blocks of the tables, all or none. */
static ngd_status_t take_tables_locked(struct ngd_model *model, struct ngd_seq *seq, const struct ngd_seq_image *image)
    NGD_REQUIRES(model->lock)
{
    uint32_t all = 0;
    ngd_status_t status;

    for (uint32_t g = 0; g < model->n_groups; g++)
        all += image->tables[g].n - image->tables[g].first;
    status = ngd_kv_check(model->kv, all, NULL);
    for (uint32_t g = 0; g < model->n_groups && status == NGD_OK; g++) {
        struct ngd_seq_table *t = &seq->tables[g];

        for (t->first = t->n = 0; t->first < image->tables[g].first; t->n = t->first)
            t->blocks[t->first++] = model->passed;
        status = ngd_kv_alloc(model->kv, image->tables[g].n - t->first, t->blocks + t->first, NULL);
        if (status == NGD_OK)
            t->n = image->tables[g].n;
    }
    seq->nameless = true; /* other sequences share only blocks that were computed here */
    if (status != NGD_OK)
        ngd_seq_release_blocks_locked(model, seq);
    else
        seq->position = image->position;
    return status;
}

/* Counts the sequence, and takes its blocks if there is room for them. */
static ngd_status_t admit_image(struct ngd_seq *seq, const struct ngd_seq_image *image, struct ngd_diag *diag)
{
    struct ngd_model *model = seq->model;
    ngd_status_t status;

    ngd_mutex_lock(&model->lock);
    status = ngd_model_check_count_locked(model, diag);
    if (status == NGD_OK)
        status = ngd_seq_count_locked(model, seq, image->fill, diag);
    if (status == NGD_OK) {
        if (image->position && are_tables(model, image))
            (void)take_tables_locked(model, seq, image);
        ngd_model_enlist_locked(model, seq);
        ngd_model_show_blocks(model);
    }
    ngd_mutex_unlock(&model->lock);
    return status;
}

static ngd_status_t fill_tables(struct ngd_seq *seq, const uint8_t *kv, struct ngd_diag *diag)
{
    const uint64_t each = ngd_model_block_bytes(seq->model);
    ngd_status_t status = NGD_OK;

    for (uint32_t g = 0; g < seq->model->n_groups; g++)
        for (uint32_t i = seq->tables[g].first; i < seq->tables[g].n && status == NGD_OK; i++, kv += each)
            status = ngd_model_write_block(seq->model, seq->tables[g].blocks[i], kv, diag);
    return status;
}

/* Sets what an operation would have left. */
static ngd_status_t set_image(struct ngd_seq *seq, const struct ngd_seq_image *image, const struct ngd_seq_owner *owner,
                              struct ngd_diag *diag)
{
    struct ngd_seq_mask mask;
    ngd_status_t status = ngd_seq_copy_mask(seq, image->allowed, &mask, diag);

    if (status != NGD_OK)
        return status;
    ngd_seq_move_mask(&seq->allowed, &mask);
    if (!seq->model->params.share_all_prefixes)
        memcpy(seq->root.b, &owner->key, sizeof(owner->key));
    seq->op = NGD_SEQ_NONE;
    if (image->ways)
        memcpy(seq->ways, image->ways, ((size_t)image->fill + 7) / 8);
    else
        ngd_model_step_ways(seq->model, image->fill, seq->ways);
    seq->computed = image->fill - image->uncomputed;
    seq->part = image->part;
    seq->n_prompt = image->n_prompt;
    seq->n_given = image->n_given;
    seq->shared = image->shared;
    seq->chosen = image->chosen;
    seq->delivered = image->delivered;
    seq->draws = image->draws;
    seq->priority = seq->own_priority = image->priority;
    seq->has_logprobs = image->logprobs != NULL;
    if (image->logprobs)
        seq->logprobs = *image->logprobs;
    return NGD_OK;
}

ngd_status_t ngd_seq_import(struct ngd_model *model, const struct ngd_seq_image *image, const uint8_t *kv,
                            const struct ngd_seq_owner *owner, struct ngd_seq **seq_p, struct ngd_diag *diag)
{
    struct ngd_seq *seq;
    ngd_status_t status = check_image(model, image, diag);

    if (status == NGD_OK)
        status = ngd_seq_new(model, image->tokens, image->fill, &image->sampling, owner->share, owner->usage,
                             owner->payer, &seq, diag);
    if (status != NGD_OK)
        return status;
    atomic_store(&seq->refs, 1); /* the caller's: it has no operation */
    status = set_image(seq, image, owner, diag);
    if (status == NGD_OK)
        status = admit_image(seq, image, diag);
    if (status != NGD_OK) {
        ngd_seq_discard(seq);
        return status;
    }
    ngd_model_ref(model);
    ngd_metric_inc(NGD_M_SEQUENCES);
    status = fill_tables(seq, kv, diag);
    if (status == NGD_OK)
        *seq_p = seq;
    else
        ngd_seq_close(seq);
    return status;
}

/* ---- operations that are repeated ------------------------------------------------------------------------ */

/* True if the step explains how a sequence of `at` tokens has become what it is. */
static bool is_done_before(const struct ngd_seq *seq, const struct ngd_step_params *p, uint32_t at)
{
    const uint32_t sure = p->n_append ? p->n_append : 1;

    return seq->fill > at && seq->fill - at >= sure && seq->fill - at - sure <= p->n_draft &&
           (p->forced < 0 || seq->tokens[at] == p->forced);
}

static ngd_status_t check_look_back(const struct ngd_seq *seq, const struct ngd_step_params *p, uint32_t at,
                                    struct ngd_diag *diag)
{
    if (!is_done_before(seq, p, at))
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT,
                            "the step is for a sequence of %" PRIu32 " tokens, but it has %" PRIu32
                            ", which this step alone does not explain",
                            at, seq->fill);
    if (p->want_logits || p->want_logprobs)
        return ngd_diag_set(diag, NGD_ERR_ANSWER_LOST,
                            "the step was done, and the sequence has %" PRIu32
                            " tokens; its logits and log-probabilities are not kept: go on from there",
                            seq->fill);
    return NGD_OK;
}

ngd_status_t ngd_seq_look_back(struct ngd_seq *seq, const struct ngd_step_params *p, uint32_t at,
                               struct ngd_step_result *result_p, bool *done_p, struct ngd_diag *diag)
{
    const uint32_t sure = p->n_append ? p->n_append : 1;
    ngd_status_t status = NGD_OK;

    ngd_mutex_lock(&seq->model->lock);
    *done_p = seq->op == NGD_SEQ_NONE && seq->fill != at;
    if (*done_p)
        status = check_look_back(seq, p, at, diag);
    if (*done_p && status == NGD_OK)
        *result_p = (struct ngd_step_result){.token = seq->chosen,
                                             .position = seq->fill,
                                             .vocab = seq->model->params.vocab,
                                             .accepted = seq->fill - at - sure,
                                             .batch = 1};
    ngd_mutex_unlock(&seq->model->lock);
    if (*done_p && status == NGD_OK)
        result_p->stop = ngd_model_is_stop(seq->model, result_p->token);
    return status;
}
