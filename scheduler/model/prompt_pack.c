/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which prompts share a replay of the prefill graph: the one whose turn it is, and of those behind it whichever fit.
 *
 * A sequence's results do not depend on what runs beside it. Its chunks end where they end alone (context.c), and a
 * replay that takes several is planned for rows that are computed in the same way as those of each chunk alone.
 *
 * Others fit if there is room for their rows: in the graph, and in what the pace allows while steps wait. They are in
 * the way of nobody: they are as urgent as the first one or more, take only blocks that are free, and wait if another
 * one's chunk is about to compute the beginning of their prompt, since they will share it.
 */
#include "scheduler/model/model_int.h"
#include <string.h>

bool ngd_prompt_fits(const struct ngd_model *model, const struct ngd_chunk *chunk, uint32_t planned)
{
    return chunk->kind == NGD_PREFILL && chunk->planned <= planned &&
           ngd_model_way(model, NGD_PREFILL, chunk->planned) == ngd_model_way(model, NGD_PREFILL, planned);
}

/* ---- what a replay has room for ------------------------------------------------------------------------- */

/* Returns the most rows that prompts together may have. */
static uint32_t most_prompt_rows(const struct ngd_model *model)
{
    const struct ngd_roles *roles = &model->graphs[NGD_PREFILL].roles;

    return roles->max_rows < model->pace.rows ? roles->max_rows : model->pace.rows;
}

uint32_t ngd_prompt_rows_locked(struct ngd_model *model, const struct ngd_seq *first)
{
    const struct ngd_chunk chunk = ngd_seq_chunk(first);
    const uint32_t most = most_prompt_rows(model);
    uint32_t rows = chunk.rows, planned = chunk.planned, n = 1;

    ngd_list_for_each (l, &model->ready[NGD_PREFILL]) {
        const struct ngd_seq *seq = ngd_container_of(l, struct ngd_seq, link);
        const struct ngd_chunk other = ngd_seq_chunk(seq);
        const uint32_t wanted = rows + other.rows > planned ? rows + other.rows : planned;

        if (n == model->graphs[NGD_PREFILL].roles.max_seqs || rows >= most)
            break;
        if (!ngd_seq_may_join(seq, first) || rows + other.rows > most || !ngd_prompt_fits(model, &chunk, wanted) ||
            other.kind != NGD_PREFILL ||
            ngd_model_way(model, NGD_PREFILL, other.planned) != ngd_model_way(model, NGD_PREFILL, wanted))
            continue;
        rows += other.rows;
        planned = wanted;
        n++;
    }
    return planned;
}

/* ---- who joins ------------------------------------------------------------------------------------------ */

/* Returns true if a's chunk computes a block that b, which has none yet, would share once it is there. */
static bool computes_beginning(const struct ngd_seq *a, const struct ngd_seq *b)
{
    const uint32_t size = a->model->params.block_size, end = a->position - a->position % size + size;

    return ngd_seq_may_share(b) && !ngd_seq_held(b) && end < b->n_prompt && end <= a->n_prompt &&
           memcmp(&a->root, &b->root, sizeof(a->root)) == 0 &&
           memcmp(a->tokens, b->tokens, end * sizeof(a->tokens[0])) == 0;
}

static bool waits_for_beginning(const struct ngd_prompt *p, uint32_t n, const struct ngd_seq *seq)
{
    for (uint32_t i = 0; i < n; i++)
        if (computes_beginning(p->seqs[i], seq))
            return true;
    return false;
}

uint32_t ngd_prompt_take_others(struct ngd_model *model, uint32_t planned)
{
    const uint32_t together = most_prompt_rows(model), most = together < planned ? together : planned;
    struct ngd_prompt *p = &model->prompt;
    struct ngd_seq *first = p->seqs[0];
    uint32_t n = 1, rows = first->rows;

    ngd_mutex_lock(&model->lock);
    ngd_list_for_each_safe (l, next, &model->ready[NGD_PREFILL]) {
        struct ngd_seq *seq = ngd_container_of(l, struct ngd_seq, link);
        struct ngd_chunk chunk = ngd_seq_chunk(seq);

        if (n == model->graphs[NGD_PREFILL].roles.max_seqs || rows >= most)
            break;
        if (!ngd_seq_may_join(seq, first) || rows + chunk.rows > most || !ngd_prompt_fits(model, &chunk, planned) ||
            waits_for_beginning(p, n, seq))
            continue;
        if (!ngd_seq_get_spare_blocks_locked(model, seq))
            break;                  /* nor would those behind it */
        chunk = ngd_seq_chunk(seq); /* shorter if blocks of others begin it */
        if (!ngd_prompt_fits(model, &chunk, planned))
            continue;
        ngd_seq_unready_locked(model, seq);
        seq->state = NGD_SEQ_RUNNING;
        seq->rows = chunk.rows;
        rows += chunk.rows;
        p->seqs[n++] = seq;
    }
    ngd_mutex_unlock(&model->lock);
    return n - 1;
}
