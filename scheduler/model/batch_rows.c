/* SPDX-License-Identifier: Apache-2.0 */
/* Fills the staging memory that a replay of a model's graph reads: token rows, sequences and sampling parameters. */
#include "scheduler/model/model_int.h"
#include <string.h>

void ngd_rows_put(struct ngd_model_graph *mg, uint32_t row, const struct ngd_seq *seq, uint32_t position, int32_t token)
{
    const uint32_t size = seq->model->params.block_size, at = position / size;

    NGD_STAGED(mg, TOKENS, int32_t)[row] = token;
    NGD_STAGED(mg, POSITIONS, int32_t)[row] = (int32_t)position;
    for (uint32_t g = 0; g < seq->model->n_groups; g++)
        ((int32_t *)mg->staging.data[ngd_role_slots(g)])[row] =
            seq->tables[g].blocks[at] * (int32_t)size + (int32_t)(position % size);
}

/* Entries of a table's row after the sequence's blocks are never read, since its context ends before them. */
void ngd_rows_put_seq(struct ngd_model_graph *mg, uint32_t i, const struct ngd_seq *seq, uint32_t last_row,
                      uint32_t context)
{
    for (uint32_t g = 0; g < seq->model->n_groups; g++)
        memcpy((int32_t *)mg->staging.data[ngd_role_table(g)] + (size_t)i * mg->roles.table_width,
               seq->tables[g].blocks, seq->tables[g].n * sizeof(int32_t));
    NGD_STAGED(mg, QUERY_LENS, int64_t)[i] = (int64_t)last_row + 1;
    NGD_STAGED(mg, CONTEXT_LENS, int64_t)[i] = context;
    if (mg->staging.data[NGD_ROLE_LOGITS_ROWS])
        NGD_STAGED(mg, LOGITS_ROWS, int32_t)[i] = (int32_t)last_row;
}

void ngd_rows_put_sampling(struct ngd_model_graph *mg, uint32_t result, const struct ngd_seq *seq, uint64_t draws)
{
    const struct ngd_sampling *s = &seq->sampling;

    if (!mg->staging.data[NGD_ROLE_TEMPERATURE])
        return;
    /* The operator's choice is not used if the worker chooses; a greedy one costs least. */
    NGD_STAGED(mg, TEMPERATURE, float)[result] = seq->samples ? 0 : s->temperature;
    NGD_STAGED(mg, TOP_K, int32_t)[result] = s->top_k;
    NGD_STAGED(mg, TOP_P, float)[result] = s->top_p > 0.0f ? s->top_p : 1.0f;
    NGD_STAGED(mg, SEED, int64_t)[result] = (int64_t)s->seed;
    NGD_STAGED(mg, OFFSET, int64_t)[result] = (int64_t)draws;
}

static bool is_wanted(const struct ngd_rows_want *want, ngd_role_t role)
{
    return role == NGD_ROLE_TOKEN ? want->token : role == NGD_ROLE_HIDDEN ? want->hidden : want->logits;
}

void ngd_rows_size(struct ngd_model *model, struct ngd_model_graph *mg, uint32_t rows, uint32_t seqs,
                   struct ngd_rows_want want)
{
    const uint64_t results = mg->roles.result_per_row ? rows : seqs;
    const uint64_t counts[] = {
        [NGD_PER_ROW] = rows,
        [NGD_PER_SEQ] = seqs,
        [NGD_PER_SEQ_TABLE] = (uint64_t)seqs * mg->roles.table_width,
        [NGD_PER_RESULT] = results,
        [NGD_PER_RESULT_VOCAB] = results * model->params.vocab,
        [NGD_PER_POOLED] = (uint64_t)(mg->roles.hidden_per_row ? rows : seqs) * mg->roles.hidden_size,
    };

    for (ngd_role_t role = 0; role < NGD_ROLE_MAX; role++) {
        const struct ngd_role_info *info = &ngd_role_infos[role];
        uint64_t bytes = counts[info->shape] * ngd_dtype_bytes(info->dtype);
        int i = mg->roles.index[role];

        if (i < 0)
            continue;
        if (info->kind == NGD_ROLE_INPUT)
            mg->inputs[i].bytes = bytes;
        else if (info->kind == NGD_ROLE_HOST)
            mg->hosts[i].n = seqs;
        else
            mg->outputs[i] =
                is_wanted(&want, role) ? (struct ngd_out){mg->staging.data[role], bytes} : (struct ngd_out){0};
    }
    mg->symbols[0] = rows;
    mg->symbols[1] = seqs;
    mg->launch.symbols = mg->symbols;
    mg->launch.inputs = mg->inputs;
    mg->launch.hosts = mg->hosts;
    mg->launch.outputs = mg->outputs;
    mg->launch.eager = ngd_binding_program(mg->binding)->options.force_eager;
}
