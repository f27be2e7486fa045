/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sizes of a model's graphs and of its KV cache: what the caller asks for, what the checkpoint has, and what its
 * devices have left.
 */
#include "client/hf/model_shape.h"
#include "client/hf/kv_groups.h"
#include "client/lib/error.h"

#include <inttypes.h>
#include <limits.h>
#include <string.h>

#define DEFAULT_MAX_CONTEXT 4096
#define KEPT_PART           10 /* one in so many bytes of a device is left for the memory of replays */

/* What kv_dtype may be. */
static const struct kv_kind {
    const char *name, *dtype;
    uint64_t bytes;
    bool scaled;
} kv_kinds[] = {
    {"f32", "f32", 4, false}, {"f16", "f16", 2, false},      {"bf16", "bf16", 2, false},
    {"int8", "i8", 1, true},  {"fp8", "f8_e4m3fn", 1, true},
};
#define N_KV_KINDS (sizeof(kv_kinds) / sizeof(kv_kinds[0]))

/* The kind of a dtype that was chosen. */
static const struct kv_kind *kv_kind_of(const struct npugraph__shape *shape)
{
    const struct kv_kind *kind = kv_kinds;

    while (kind < kv_kinds + N_KV_KINDS - 1 && strcmp(kind->dtype, shape->kv_dtype) != 0)
        kind++;
    return kind;
}

int npugraph__choose_kv_dtype(const struct npugraph_model_params *p, const struct npugraph__checkpoint *ck,
                              const char *floats, struct npugraph__shape *shape, struct npugraph_error *err)
{
    const char *name = p->kv_dtype == NULL || strcmp(p->kv_dtype, "auto") == 0 ? floats : p->kv_dtype;
    const struct kv_kind *kind = kv_kinds;

    while (kind < kv_kinds + N_KV_KINDS && strcmp(kind->name, name) != 0)
        kind++;
    if (kind == kv_kinds + N_KV_KINDS)
        return npugraph__error(err, 3, "INVALID_ARGUMENT",
                               "kv_dtype is %.32s; it must be auto, f32, f16, bf16, int8 or fp8", name);
    for (size_t i = 0; kind->scaled && i < ck->n_caches; i++)
        if (!ck->caches[i].scaled)
            return npugraph__error(
                err, 12, "OP_UNSUPPORTED",
                "kv_dtype is %s, but the KV cache of %s can have floats only: give auto, f32, f16 or "
                "bf16",
                name, ck->architecture);
    shape->kv_dtype = kind->dtype;
    return 0;
}

size_t npugraph__cache_states(const struct npugraph__shape *shape)
{
    return kv_kind_of(shape)->scaled ? NPUGRAPH__CACHE_STATES : 2;
}

uint64_t npugraph__state_bytes(const struct npugraph__cache *c, const struct npugraph__shape *shape, size_t i)
{
    const uint64_t heads = (uint64_t)shape->num_blocks * shape->block_size * (uint64_t)c->heads;

    return i < 2 ? heads * (uint64_t)c->dim[i] * kv_kind_of(shape)->bytes : heads * sizeof(float);
}

/* Bytes of a block in all states, on one of the ranks. */
static uint64_t block_bytes(const struct npugraph__checkpoint *ck, const struct npugraph__shape *shape)
{
    const size_t n = npugraph__kv_states(ck, &shape->groups);
    struct npugraph__shape one = *shape;
    uint64_t bytes = 0;

    one.num_blocks = 1;
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < npugraph__cache_states(shape); k++)
            bytes += npugraph__state_bytes(&ck->caches[i], &one, k);
    return bytes;
}

static uint32_t blocks_of(uint32_t tokens, uint32_t block_size)
{
    return (uint32_t)(((uint64_t)tokens + block_size - 1) / block_size);
}

int npugraph__check_sizes(const struct npugraph_model_params *p, const struct npugraph__checkpoint *ck,
                          struct npugraph_error *err)
{
    struct npugraph__shape shape; /* the dtype of the weights is not known yet, but what the caller asks for is */

    if (p->max_context > ck->positions)
        return npugraph__error(err, 3, "INVALID_ARGUMENT",
                               "max_context %" PRIu32 " is more than the model's %" PRId64 " positions", p->max_context,
                               ck->positions);
    if (p->max_batch == 0 || p->prefill_chunk == 0)
        return npugraph__error(err, 3, "INVALID_ARGUMENT", "max_batch and prefill_chunk must be 1 or more");
    return npugraph__choose_kv_dtype(p, ck, "f32", &shape, err);
}

/* Rows of one sequence in a replay: of a slice, or with a draft. */
static uint32_t most_rows(const struct npugraph__shape *shape)
{
    const uint32_t rows = shape->prefill_chunk < shape->max_context ? shape->prefill_chunk : shape->max_context;

    return rows > shape->max_batch ? rows : shape->max_batch;
}

/* Blocks that a context of max_context tokens holds. */
static uint64_t blocks_each(const struct npugraph__shape *shape)
{
    return npugraph__groups_blocks(&shape->groups, shape->block_size, most_rows(shape), shape->max_context);
}

static bool all_slide(const struct npugraph__groups *groups)
{
    for (uint32_t g = 0; g < groups->n; g++)
        if (groups->windows[g] == 0)
            return false;
    return groups->n > 0;
}

/* Shortens slices with which so many blocks would not hold a context, although the windows of all layers fit. */
static void bound_slices(uint64_t blocks, struct npugraph__shape *shape)
{
    while (all_slide(&shape->groups) && shape->prefill_chunk > shape->block_size && blocks_each(shape) > blocks)
        shape->prefill_chunk /= 2;
}

/* Shortens a context that nobody asked for to what so many blocks hold. Returns the longest context. */
static uint32_t bound_context(const struct npugraph_model_params *p, uint64_t blocks, struct npugraph__shape *shape)
{
    const uint32_t tokens =
        npugraph__groups_context(&shape->groups, shape->block_size, most_rows(shape), blocks, shape->max_context);

    if (p->max_context == 0 && tokens > 0)
        shape->max_context = tokens;
    return tokens;
}

/* The cache has a size of the caller's, which bounds a context that nobody asked for. */
static int take_kv_bytes(const struct npugraph_model_params *p, uint64_t block, uint32_t ranks, uint32_t padding,
                         struct npugraph__shape *shape, uint64_t *blocks_p, struct npugraph_error *err)
{
    const uint64_t all = p->kv_bytes / (block * ranks), blocks = all > padding ? all - padding : 0;

    *blocks_p = all;
    bound_slices(blocks, shape);
    if (bound_context(p, blocks, shape) > 0)
        return 0;
    return npugraph__error(err, 3, "INVALID_ARGUMENT",
                           "kv_bytes %" PRIu64 " make %" PRIu64 " KV blocks of %" PRIu64
                           " bytes, of which the device keeps %" PRIu32 "; the shortest context holds %" PRIu32,
                           p->kv_bytes, all, block * ranks, padding, shape->groups.n > 1 ? shape->groups.n : 1);
}

/* What a device's memory is for, in front of what to do about it. */
static int refuse_cache(const struct npugraph__room *room, const char *what, uint64_t needed, const char *advice,
                        struct npugraph_error *err)
{
    const double mib = 1 << 20;

    return npugraph__error(err, 8, "NO_DEVICE_MEMORY",
                           "%s needs %.1f MiB of KV cache on %s, which has %.1f MiB left for it: its device-memory is "
                           "%.1f MiB, %.1f MiB are used, a tenth is kept for replays; %s",
                           what, (double)needed / mib, room->device, (double)npugraph__room_left(room) / mib,
                           (double)room->memory / mib, (double)room->used / mib, advice);
}

/* The device-memory with which a cache of `needed` bytes fits, in whole MiB. */
static uint64_t enough_memory(const struct npugraph__room *room, uint64_t needed)
{
    return (((room->used + needed) / (KEPT_PART - 1) * KEPT_PART) >> 20) + 1;
}

/* The cache gets room for max_batch whole contexts, or what is left; a context that nobody asked for is bounded by it.
 */
static int fill_room(const struct npugraph_model_params *p, const struct npugraph__room *room, uint64_t block,
                     uint32_t padding, struct npugraph__shape *shape, uint64_t *blocks_p, struct npugraph_error *err)
{
    const uint64_t fit = npugraph__room_left(room) / block;
    uint64_t each, wanted;
    uint32_t tokens;
    char what[64], advice[160];

    bound_slices(fit > padding ? fit - padding : 0, shape);
    each = blocks_each(shape);
    wanted = each * p->max_batch + padding;
    *blocks_p = fit < wanted ? fit : wanted;
    if (fit >= each + padding)
        return 0;
    tokens = fit > padding ? bound_context(p, fit - padding, shape) : 0;
    if (tokens > 0 && p->max_context == 0)
        return 0;
    if (tokens > 0)
        snprintf(advice, sizeof(advice),
                 "give max_context %" PRIu32 " or less, or the daemon a device-memory of %" PRIu64 "M", tokens,
                 enough_memory(room, (each + padding) * block));
    else
        snprintf(advice, sizeof(advice),
                 "unload a model, load one with fewer weights, or give the daemon a device-memory of %" PRIu64 "M",
                 enough_memory(room, (each + padding) * block));
    snprintf(what, sizeof(what), "a context of %" PRIu32 " tokens", shape->max_context);
    return refuse_cache(room, what, (each + padding) * block, advice, err);
}

/* A slice of a prompt is never longer than a context, nor than what the cache holds. */
static uint32_t longest_slice(const struct npugraph__shape *shape, uint32_t padding, uint32_t wanted)
{
    const uint64_t groups = shape->groups.n > 1 ? shape->groups.n : 1;
    uint64_t rows = (shape->num_blocks - padding) / groups * shape->block_size;

    if (rows > shape->max_context)
        rows = shape->max_context;
    if (rows == 0)
        rows = 1;
    return rows < wanted ? (uint32_t)rows : wanted;
}

uint64_t npugraph__room_left(const struct npugraph__room *room)
{
    const uint64_t kept = room->memory / KEPT_PART;

    return room->memory - kept > room->used ? room->memory - kept - room->used : 0;
}

/* Chooses the groups of layers and the number of blocks. A shorter context may have fewer groups with windows. */
static int choose_blocks(const struct npugraph_model_params *p, const struct npugraph__checkpoint *ck,
                         const struct npugraph__room *room, uint32_t padding, struct npugraph__shape *shape,
                         uint64_t *blocks_p, struct npugraph_error *err)
{
    uint32_t context;
    uint64_t block;
    int rc;

    do {
        context = shape->max_context;
        npugraph__groups_choose(ck, context, most_rows(shape), &shape->groups);
        block = block_bytes(ck, shape);
        rc = p->kv_bytes != 0 ? take_kv_bytes(p, block, ck->ranks, padding, shape, blocks_p, err)
                              : fill_room(p, room, block, padding, shape, blocks_p, err);
    } while (rc == 0 && shape->max_context != context);
    return rc;
}

int npugraph__choose_shape(const struct npugraph_model_params *p, const struct npugraph__checkpoint *ck,
                           const struct npugraph__room *room, uint32_t padding, struct npugraph__shape *shape,
                           struct npugraph_error *err)
{
    uint64_t blocks = 0;
    int rc;

    shape->max_batch = p->max_batch;
    shape->prefill_chunk = p->prefill_chunk;
    shape->max_context = p->max_context != 0                   ? p->max_context
                         : ck->positions < DEFAULT_MAX_CONTEXT ? (uint32_t)ck->positions
                                                               : DEFAULT_MAX_CONTEXT;
    rc = choose_blocks(p, ck, room, padding, shape, &blocks, err);
    if (rc != 0)
        return rc;
    if (blocks > INT32_MAX / shape->block_size)
        return npugraph__error(err, 3, "INVALID_ARGUMENT",
                               "the KV cache would have %" PRIu64 " blocks of %" PRIu32
                               " rows, more than slots count; give fewer kv_bytes or a smaller max_batch",
                               blocks, shape->block_size);
    shape->num_blocks = (uint32_t)blocks;
    shape->table_blocks = blocks_of(shape->max_context, shape->block_size);
    shape->prefill_chunk = longest_slice(shape, padding, shape->prefill_chunk);
    /* A device that has a block for padding computes the sequences that are not there, too. */
    shape->prefill_seqs = padding ? 1 : p->max_batch < shape->prefill_chunk ? p->max_batch : shape->prefill_chunk;
    return 0;
}
