/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Embeddings: the hidden state of a prompt's last row, or the mean of those of all rows. An open that embeds is a
 * prompt like any other up to its answer, so it shares replays, blocks and turns with prompts of generations.
 *
 * A mean adds rows in the order of the prompt, each once, whichever chunks they come in. So its bits depend on the
 * prompt alone. A sequence that lost its blocks computes rows again, which are not added again.
 */
#include "base/mem.h"
#include "scheduler/model/model_int.h"
#include <math.h>

ngd_status_t ngd_seq_make_pool(struct ngd_seq *seq, struct ngd_diag *diag)
{
    const uint32_t size = seq->model->graphs[NGD_PREFILL].roles.hidden_size;
    ngd_status_t status;

    seq->embed = true;
    if (seq->model->params.contract.pooling != NGD_POOLING_MEAN)
        return NGD_OK;
    status = ngd_charge_grow(&seq->charge, (uint64_t)size * (sizeof(double) + sizeof(float)), diag);
    if (status)
        return status;
    seq->pool = ngd_calloc(size, sizeof(double) + sizeof(float)); /* sums, then their mean */
    return seq->pool ? NGD_OK : ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory for an embedding");
}

static const float *hidden_row(const struct ngd_model *model, uint32_t row)
{
    const struct ngd_model_graph *mg = &model->graphs[NGD_PREFILL];

    return NGD_STAGED(mg, HIDDEN, float) + (size_t)row * mg->roles.hidden_size;
}

void ngd_seq_pool(struct ngd_seq *seq, uint32_t first)
{
    const uint32_t size = seq->model->graphs[NGD_PREFILL].roles.hidden_size, end = seq->position + seq->rows;

    for (; seq->n_pooled < end; seq->n_pooled++) {
        const float *row = hidden_row(seq->model, first + seq->n_pooled - seq->position);

        for (uint32_t i = 0; i < size; i++)
            seq->pool[i] += row[i];
    }
}

/* Writes the mean behind the sums. */
static const float *mean_of(struct ngd_seq *seq, uint32_t size)
{
    float *mean = (float *)(void *)(seq->pool + size);

    for (uint32_t i = 0; i < size; i++)
        mean[i] = (float)(seq->pool[i] / seq->n_pooled);
    return mean;
}

void ngd_seq_finish_embedding(struct ngd_seq *seq, uint32_t at, struct ngd_step_result *result)
{
    const uint32_t size = seq->model->graphs[NGD_PREFILL].roles.hidden_size;
    const float *hidden = seq->pool ? mean_of(seq, size) : hidden_row(seq->model, at);
    struct ngd_diag diag;
    uint32_t i = 0;

    while (i < size && isfinite(hidden[i]))
        i++;
    if (i < size) {
        ngd_diag_set(&diag, NGD_ERR_NOT_FINITE,
                     "element %u of the prompt's hidden state is not finite in model \"%.64s\"; its weights or their "
                     "dtype do not fit this prompt",
                     (unsigned)i, seq->model->name);
        ngd_seq_fail(seq, NGD_ERR_NOT_FINITE, &diag);
        return;
    }
    result->hidden = hidden;
    result->logits = NULL;
    ngd_seq_finish_step(seq, result);
}
