/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A sequence's context: its tokens, and which of their keys and values are in KV blocks.
 *
 * Tokens: [0, position) are in the blocks. [position, fill) must get there before the next token can be chosen: the
 * prompt at first, and all tokens after the sequence has lost its blocks.
 *
 * Names: each full block gets a name (kv.h), so that sequences with the same beginning share blocks. A block's bits
 * depend on its tokens and on the kernels that computed it, which a device may choose by the planned number of rows.
 * Blocks of different choices have different names, so the output of a sequence does not depend on whether another one
 * has computed its beginning. A sequence that has lost its blocks computes each row again in the way in which it was
 * computed, so its output does not depend on that either. Names begin with the sequence's owner: a client that found
 * blocks of others could learn from the time of a prompt what they asked.
 */
#include "base/fault.h"
#include "base/mem.h"
#include "graphs/buckets.h"
#include "scheduler/model/model_int.h"
#include <assert.h>
#include <string.h>

static const struct ngd_symbol *row_symbol(const struct ngd_model *model, int kind)
{
    return &ngd_program_graph(ngd_binding_program(model->graphs[kind].binding))->symbols[0];
}

/* ---- ways --------------------------------------------------------------------------------------------- */

static uint32_t wide_rows(const struct ngd_model *model)
{
    return ngd_device_info(model->queue->dev)->wide_rows;
}

/* Gets the buckets that a graph has now: others may be applied while it is used. */
static void get_buckets(const struct ngd_model *model, int kind, struct ngd_bucket_set *set_p)
{
    ngd_program_buckets(ngd_binding_program(model->graphs[kind].binding), 0, set_p);
}

static uint32_t planned_rows(const struct ngd_model *model, int kind, uint32_t rows)
{
    struct ngd_bucket_set set;

    get_buckets(model, kind, &set);
    for (uint32_t i = 0; i < set.n; i++)
        if (set.sizes[i] >= rows)
            return (uint32_t)set.sizes[i];
    return rows;
}

uint32_t ngd_model_way(const struct ngd_model *model, int kind, uint32_t rows)
{
    const uint32_t wide = wide_rows(model);

    return wide && planned_rows(model, kind, rows) >= wide;
}

uint32_t ngd_model_way_of(const struct ngd_model *model, struct ngd_gcache_entry *entry)
{
    const uint32_t wide = wide_rows(model);

    return wide && ngd_exec_plan(ngd_entry_executable(entry)->exec)->symbols[0] >= wide;
}

/* Returns the most rows that a graph's executables compute in a way. 0: none does. */
static uint32_t most_rows_in_way(const struct ngd_model *model, int kind, uint32_t way)
{
    const uint32_t max = model->graphs[kind].roles.max_rows;
    struct ngd_bucket_set set;
    uint32_t rows = 0;

    if (ngd_model_way(model, kind, max) == way)
        return max;
    get_buckets(model, kind, &set);
    for (uint32_t i = 0; way == 0 && i < set.n && set.sizes[i] < wide_rows(model); i++)
        rows = (uint32_t)set.sizes[i];
    return rows;
}

/* Returns how rows behind a prompt are computed again in a way; rows: the most of one sequence. */
static struct ngd_chunk again_in_way(const struct ngd_model *model, uint32_t way)
{
    struct ngd_chunk most = {.kind = NGD_PREFILL, .rows = most_rows_in_way(model, NGD_PREFILL, way)};

    if (!most.rows && !model->params.no_generation)
        most = (struct ngd_chunk){.kind = NGD_DECODE, .rows = most_rows_in_way(model, NGD_DECODE, way)};
    if (!most.rows) /* nothing is computed in it here, whatever a client says */
        most = (struct ngd_chunk){.kind = NGD_PREFILL, .rows = model->graphs[NGD_PREFILL].roles.max_rows};
    most.planned = most.most = most.rows;
    if (most.kind == NGD_DECODE && !model->drafts)
        most.rows = 1;
    return most;
}

static uint32_t way_of_row(const struct ngd_seq *seq, uint32_t row)
{
    return seq->ways[row / 8] >> row % 8 & 1;
}

static void set_ways(uint8_t *ways, uint32_t from, uint32_t end, uint32_t way)
{
    for (uint32_t row = from; row < end; row++) {
        ways[row / 8] &= (uint8_t) ~(1u << row % 8);
        ways[row / 8] |= (uint8_t)(way << row % 8);
    }
}

void ngd_model_step_ways(const struct ngd_model *model, uint32_t end, uint8_t *ways)
{
    set_ways(ways, 0, end, ngd_model_way(model, NGD_DECODE, 1));
}

void ngd_model_part_ways(const struct ngd_model *model, uint32_t begin, uint32_t end, uint8_t *ways)
{
    const uint32_t max = model->graphs[NGD_PREFILL].roles.max_rows;

    for (uint32_t rows; begin < end; begin += rows) {
        rows = end - begin < max ? end - begin : max;
        set_ways(ways, begin, begin + rows, ngd_model_way(model, NGD_PREFILL, rows));
    }
}

/* Returns how many rows, at most `most` from a row on, were computed in its way. */
static uint32_t count_same_way(const struct ngd_seq *seq, uint32_t row, uint32_t most)
{
    uint32_t n = 1;

    while (n < most && way_of_row(seq, row + n) == way_of_row(seq, row))
        n++;
    return n;
}

/* ---- chunks ------------------------------------------------------------------------------------------- */

/*
 * Returns the next chunk behind the prompt of a sequence that has lost its blocks. Its rows were computed before, by
 * steps and for appended parts, and are computed again in the same way. If the prefill graph has only executables of
 * the other way, as on `host` for what steps computed, it is for the decode graph.
 */
static struct ngd_chunk chunk_again(const struct ngd_seq *seq)
{
    const uint32_t way = way_of_row(seq, seq->position), left = seq->computed - seq->position;
    struct ngd_chunk chunk = again_in_way(seq->model, way);

    chunk.rows = count_same_way(seq, seq->position, left < chunk.rows ? left : chunk.rows);
    if (!way)
        chunk.planned = chunk.rows; /* fewer rows are not wide either */
    return chunk;
}

/*
 * Returns the next chunk of a prompt, or of a part that was appended behind it. Where its chunks end depends on the
 * prompt or the part alone. If the first rows of a chunk were found in shared blocks, or if it runs in pieces because
 * steps wait, it is still planned as a whole, so that each row is computed in the same way.
 */
static struct ngd_chunk chunk_of_part(const struct ngd_seq *seq)
{
    const uint32_t max = seq->model->graphs[NGD_PREFILL].roles.max_rows, at = seq->position;
    const uint32_t part = at < seq->n_prompt ? 0 : seq->part, part_end = at < seq->n_prompt ? seq->n_prompt : seq->fill;
    const uint32_t begin = at - (at - part) % max, end = part_end - begin < max ? part_end : begin + max;

    return (struct ngd_chunk){.kind = NGD_PREFILL, .rows = end - at, .planned = end - begin};
}

struct ngd_chunk ngd_seq_chunk(const struct ngd_seq *seq)
{
    const bool again = seq->position >= seq->n_prompt && seq->position < seq->computed;
    struct ngd_chunk chunk = again ? chunk_again(seq) : chunk_of_part(seq);

    if (row_symbol(seq->model, chunk.kind)->policy == NGD_SYMBOL_EXACT)
        chunk.planned = chunk.rows; /* such an executable computes exactly this number of rows */
    else if (chunk.kind == NGD_PREFILL && chunk.rows > seq->model->pace.rows)
        chunk.rows = seq->model->pace.rows;
    return chunk;
}

/* ---- names -------------------------------------------------------------------------------------------- */

/* Returns the name of a group's block. Blocks of one place in a context have other layers' keys in each group. */
static struct ngd_digest name_in_group(const struct ngd_digest *name, uint32_t group)
{
    struct ngd_digest own = *name;

    own.b[0] ^= (uint8_t)group;
    return own;
}

/* Gives the name seq->name to block n_named of each group, which no window has passed yet. */
static void publish_block_locked(struct ngd_model *model, struct ngd_seq *seq, const int32_t *tokens)
    NGD_REQUIRES(model->lock)
{
    for (uint32_t g = 0; g < model->n_groups; g++) {
        const struct ngd_digest name = name_in_group(&seq->name, g);

        assert(seq->n_named >= seq->tables[g].first && seq->n_named < seq->tables[g].n);
        ngd_kv_publish(model->kv, seq->tables[g].blocks[seq->n_named], &name, tokens);
    }
}

/* Names blocks that have become full. Blocks after one without a name cannot be found, so they get none. */
static void name_blocks_locked(struct ngd_model *model, struct ngd_seq *seq) NGD_REQUIRES(model->lock)
{
    const uint32_t size = model->params.block_size;

    if (model->params.no_prefix_sharing || seq->nameless)
        return;
    while (seq->n_named < seq->position / size && count_same_way(seq, seq->n_named * size, size) == size) {
        const uint32_t from = seq->n_named * size;

        ngd_kv_name(model->kv, seq->n_named ? &seq->name : &seq->root, seq->tokens + from, way_of_row(seq, from),
                    &seq->name);
        publish_block_locked(model, seq, seq->tokens + from);
        seq->n_named++;
    }
}

void ngd_seq_advance(struct ngd_seq *seq, uint32_t rows, uint32_t way)
{
    struct ngd_model *model = seq->model;

    ngd_mutex_lock(&model->lock);
    set_ways(seq->ways, seq->position, seq->position + rows, way);
    seq->position += rows;
    if (seq->fill < seq->position)
        seq->fill = seq->position;
    if (seq->computed < seq->position)
        seq->computed = seq->position;
    name_blocks_locked(model, seq);
    if (seq->position == seq->fill)
        ngd_seq_slide_locked(model, seq, 1);
    ngd_mutex_unlock(&model->lock);
}

/* Returns how the token at a position of the prompt is computed if nothing is shared. */
static uint32_t way_of(const struct ngd_seq *seq, uint32_t position)
{
    const uint32_t max = seq->model->graphs[NGD_PREFILL].roles.max_rows, begin = position - position % max;

    return ngd_model_way(seq->model, NGD_PREFILL, seq->n_prompt - begin < max ? seq->n_prompt - begin : max);
}

/*
 * Looks up block i in all groups, whose name is `name`, and notes in runs how many blocks were found in a row up to it.
 * Returns how many blocks a prefix that ends with this one may have: i + 1, or 0. *goes_on: a longer one is possible.
 */
static uint32_t look_up_block(const struct ngd_model *model, struct ngd_seq *seq, const struct ngd_digest *name,
                              uint32_t i, uint32_t *runs, bool *goes_on)
{
    const uint32_t size = model->params.block_size;
    bool whole = true;

    for (uint32_t g = 0; g < model->n_groups && *goes_on; g++) {
        const struct ngd_digest own = name_in_group(name, g);
        const int32_t block = ngd_kv_find(model->kv, &own, seq->tokens + (size_t)i * size);

        seq->tables[g].blocks[i] = block;
        runs[g] = block < 0 ? 0 : runs[g] + 1;
        *goes_on = block >= 0 || model->windows[g];
        whole = whole && runs[g] >= i + 1 - ngd_model_first_block(model, g, (i + 1) * size);
    }
    return *goes_on && whole ? i + 1 : 0;
}

/* Takes the first n blocks, which were looked up, but for those that a window has passed at their end. */
static void take_prefix_locked(struct ngd_model *model, struct ngd_seq *seq, uint32_t n) NGD_REQUIRES(model->lock)
{
    for (uint32_t g = 0; g < model->n_groups; g++) {
        struct ngd_seq_table *t = &seq->tables[g];

        t->first = ngd_model_first_block(model, g, n * model->params.block_size);
        t->n = n;
        for (uint32_t i = 0; i < t->first; i++)
            t->blocks[i] = model->passed;
        ngd_kv_ref(model->kv, t->blocks + t->first, n - t->first);
    }
    seq->n_named = n;
    seq->position = n * model->params.block_size;
}

/*
 * A prefix may be shared if the blocks are there that its last row needs: in a group with a window, those of the window
 * before its end, even if others before them are not there any more.
 */
void ngd_seq_share_prefix_locked(struct ngd_model *model, struct ngd_seq *seq)
{
    const uint32_t size = model->params.block_size;
    struct ngd_digest name = seq->root;
    uint32_t runs[NGD_KV_GROUPS_MAX] = {0}, best = 0;
    bool goes_on = ngd_seq_may_share(seq);

    /* At least one token must be computed, for its logits. */
    for (uint32_t i = 0; goes_on && (i + 1) * size < seq->n_prompt; i++) {
        const uint32_t at = i * size, way = way_of(seq, at);

        if (way_of(seq, at + size - 1) != way)
            break;
        ngd_kv_name(model->kv, &name, seq->tokens + at, way, &name);
        if (look_up_block(model, seq, &name, i, runs, &goes_on)) {
            best = i + 1;
            seq->name = name;
        }
    }
    take_prefix_locked(model, seq, best);
}

/* ---- copies ------------------------------------------------------------------------------------------- */

static uint64_t state_block_bytes(const struct ngd_type *type)
{
    uint64_t n = ngd_dtype_bytes(type->dtype);

    for (uint32_t d = 1; d < type->rank; d++)
        n *= (uint64_t)type->dims[d];
    return n;
}

static ngd_status_t copy_state(struct ngd_buffer *state, uint64_t bytes, int32_t from, int32_t to)
{
    void *room = ngd_malloc(bytes);
    ngd_status_t status = room ? ngd_buffer_read(state, (uint64_t)from * bytes, room, bytes, NULL) : NGD_ERR_NO_MEMORY;

    if (status == NGD_OK)
        status = ngd_buffer_write(state, (uint64_t)to * bytes, room, bytes, NULL);
    ngd_free(room);
    return status;
}

/* Copies a block in all states. All are KV states, whose dimension 0 is the block number (contract.c). */
static ngd_status_t copy_block_of(const struct ngd_binding *binding, int32_t from, int32_t to)
{
    const struct ngd_graph *graph = ngd_program_graph(ngd_binding_program(binding));
    ngd_status_t status = NGD_OK;

    for (uint32_t i = 0; i < graph->n_states && status == NGD_OK; i++)
        status = copy_state(binding->buffers[graph->n_params + i],
                            state_block_bytes(&graph->values[graph->states[i]].type), from, to);
    return status;
}

ngd_status_t ngd_model_copy_block(struct ngd_model *model, int32_t from, int32_t to, struct ngd_diag *diag)
{
    const struct ngd_binding *binding = model->graphs[NGD_DECODE].binding;
    ngd_status_t status = NGD_OK;

    for (uint32_t r = 0; r < ngd_binding_ranks(binding) && status == NGD_OK; r++)
        status = copy_block_of(ngd_binding_rank(binding, r), from, to);
    if (status)
        ngd_diag_set(diag, status, "a KV block cannot be copied: %s", ngd_status_text(status));
    return status;
}

/* ---- contents, for another process ---------------------------------------------------------------------- */

static struct ngd_buffer *state_of(const struct ngd_binding *binding, uint32_t i, uint64_t *bytes_p)
{
    const struct ngd_graph *graph = ngd_program_graph(ngd_binding_program(binding));

    *bytes_p = state_block_bytes(&graph->values[graph->states[i]].type);
    return binding->buffers[graph->n_params + i];
}

static uint32_t count_states(const struct ngd_model *model)
{
    return ngd_program_graph(ngd_binding_program(model->graphs[NGD_DECODE].binding))->n_states;
}

uint64_t ngd_model_block_bytes(const struct ngd_model *model)
{
    uint64_t all = 0, bytes;

    for (uint32_t i = 0; i < count_states(model); i++, all += bytes)
        (void)state_of(model->graphs[NGD_DECODE].binding, i, &bytes);
    return all;
}

ngd_status_t ngd_model_read_block(struct ngd_model *model, int32_t block, ngd_seq_put_fn put, void *ctx,
                                  struct ngd_diag *diag)
{
    void *room = ngd_malloc(ngd_model_block_bytes(model) + 1);
    ngd_status_t status = room ? NGD_OK : NGD_ERR_NO_MEMORY;

    for (uint32_t i = 0; i < count_states(model) && status == NGD_OK; i++) {
        uint64_t bytes;
        struct ngd_buffer *state = state_of(model->graphs[NGD_DECODE].binding, i, &bytes);

        status = ngd_buffer_read(state, (uint64_t)block * bytes, room, bytes, diag);
        if (status == NGD_OK)
            status = put(ctx, room, bytes, diag);
    }
    ngd_free(room);
    return status;
}

ngd_status_t ngd_model_write_block(struct ngd_model *model, int32_t block, const uint8_t *data, struct ngd_diag *diag)
{
    ngd_status_t status = NGD_OK;

    for (uint32_t i = 0; i < count_states(model) && status == NGD_OK; i++) {
        uint64_t bytes;
        struct ngd_buffer *state = state_of(model->graphs[NGD_DECODE].binding, i, &bytes);

        status = ngd_buffer_write(state, (uint64_t)block * bytes, data, bytes, diag);
        data += bytes;
    }
    return status;
}

/* ---- for tests of what is read before it is written ----------------------------------------------------- */

static void poison_state(struct ngd_buffer *state, uint64_t bytes, const int32_t *blocks, uint32_t n)
{
    void *room = ngd_malloc(bytes);

    if (!room)
        return;
    memset(room, 0xff, bytes);
    for (uint32_t i = 0; i < n; i++)
        (void)ngd_buffer_write(state, (uint64_t)blocks[i] * bytes, room, bytes, NULL);
    ngd_free(room);
}

void ngd_model_poison_blocks(struct ngd_model *model, const int32_t *blocks, uint32_t n)
{
    const struct ngd_binding *binding = model->graphs[NGD_DECODE].binding;

    for (uint32_t r = 0; r < ngd_binding_ranks(binding); r++) {
        const struct ngd_binding *rank = ngd_binding_rank(binding, r);
        const struct ngd_graph *graph = ngd_program_graph(ngd_binding_program(rank));

        for (uint32_t i = 0; i < graph->n_states; i++)
            poison_state(rank->buffers[graph->n_params + i], state_block_bytes(&graph->values[graph->states[i]].type),
                         blocks, n);
    }
}
