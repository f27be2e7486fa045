/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sizes of a model's graphs and of its KV cache: what the caller asks for, what the checkpoint has, and what its
 * devices have left.
 */
#include "client/hf/model_shape.h"
#include "client/lib/error.h"

#include <inttypes.h>
#include <limits.h>
#include <string.h>

#define DEFAULT_MAX_CONTEXT 4096
#define KEPT_PART           10 /* one in so many bytes of a device is left for the memory of replays */

uint64_t npugraph__kv_element(const struct npugraph__shape *shape)
{
    return strcmp(shape->kv_dtype, "f32") == 0 ? 4 : 2;
}

/* Bytes of a block in the caches of all layers, on one of the ranks. */
static uint64_t block_bytes(const struct npugraph__checkpoint *ck, const struct npugraph__shape *shape)
{
    uint64_t row = 0;

    for (size_t i = 0; i < ck->n_caches; i++)
        row += (uint64_t)ck->caches[i].heads * ((uint64_t)ck->caches[i].dim[0] + (uint64_t)ck->caches[i].dim[1]);
    return row * shape->block_size * npugraph__kv_element(shape);
}

static uint32_t blocks_of(uint32_t tokens, uint32_t block_size)
{
    return (uint32_t)(((uint64_t)tokens + block_size - 1) / block_size);
}

int npugraph__check_sizes(const struct npugraph_model_params *p, const struct npugraph__checkpoint *ck,
                          struct npugraph_error *err)
{
    if (p->max_context > ck->positions)
        return npugraph__error(err, 3, "INVALID_ARGUMENT",
                               "max_context %" PRIu32 " is more than the model's %" PRId64 " positions", p->max_context,
                               ck->positions);
    if (p->max_batch == 0 || p->prefill_chunk == 0)
        return npugraph__error(err, 3, "INVALID_ARGUMENT", "max_batch and prefill_chunk must be 1 or more");
    return 0;
}

/* The cache has a size of the caller's, which bounds a context that nobody asked for. */
static int take_kv_bytes(const struct npugraph_model_params *p, uint64_t block, uint32_t ranks, uint32_t padding,
                         struct npugraph__shape *shape, uint64_t *blocks_p, struct npugraph_error *err)
{
    *blocks_p = p->kv_bytes / (block * ranks);
    if (*blocks_p > padding) {
        const uint64_t tokens = (*blocks_p - padding) * shape->block_size;

        if (p->max_context == 0 && tokens < shape->max_context)
            shape->max_context = (uint32_t)tokens;
        return 0;
    }
    return npugraph__error(err, 3, "INVALID_ARGUMENT",
                           "kv_bytes %" PRIu64 " make %" PRIu64 " KV blocks of %" PRIu64
                           " bytes, of which the device keeps %" PRIu32,
                           p->kv_bytes, *blocks_p, block * ranks, padding);
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
    const uint64_t each = blocks_of(shape->max_context, shape->block_size);
    const uint64_t wanted = each * p->max_batch + padding, fit = npugraph__room_left(room) / block;
    uint64_t tokens;
    char what[64], advice[160];

    *blocks_p = fit < wanted ? fit : wanted;
    if (fit >= each + padding)
        return 0;
    tokens = fit > padding ? (fit - padding) * shape->block_size : 0;
    if (tokens > 0 && p->max_context == 0) {
        shape->max_context = (uint32_t)tokens;
        return 0;
    }
    if (tokens > 0)
        snprintf(advice, sizeof(advice),
                 "give max_context %" PRIu64 " or less, or the daemon a device-memory of %" PRIu64 "M", tokens,
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
    uint64_t rows = (uint64_t)(shape->num_blocks - padding) * shape->block_size;

    if (rows > shape->max_context)
        rows = shape->max_context;
    return rows < wanted ? (uint32_t)rows : wanted;
}

uint64_t npugraph__room_left(const struct npugraph__room *room)
{
    const uint64_t kept = room->memory / KEPT_PART;

    return room->memory - kept > room->used ? room->memory - kept - room->used : 0;
}

int npugraph__choose_shape(const struct npugraph_model_params *p, const struct npugraph__checkpoint *ck,
                           const struct npugraph__room *room, uint32_t padding, struct npugraph__shape *shape,
                           struct npugraph_error *err)
{
    const uint64_t block = block_bytes(ck, shape);
    uint64_t blocks;
    int rc;

    shape->max_batch = p->max_batch;
    shape->max_context = p->max_context != 0                   ? p->max_context
                         : ck->positions < DEFAULT_MAX_CONTEXT ? (uint32_t)ck->positions
                                                               : DEFAULT_MAX_CONTEXT;
    rc = p->kv_bytes != 0 ? take_kv_bytes(p, block, ck->ranks, padding, shape, &blocks, err)
                          : fill_room(p, room, block, padding, shape, &blocks, err);
    if (rc != 0)
        return rc;
    if (blocks > INT32_MAX / shape->block_size)
        return npugraph__error(err, 3, "INVALID_ARGUMENT",
                               "the KV cache would have %" PRIu64 " blocks of %" PRIu32
                               " rows, more than slots count; give fewer kv_bytes or a smaller max_batch",
                               blocks, shape->block_size);
    shape->num_blocks = (uint32_t)blocks;
    shape->table_blocks = blocks_of(shape->max_context, shape->block_size);
    shape->prefill_chunk = longest_slice(shape, padding, p->prefill_chunk);
    /* A device that has a block for padding computes the sequences that are not there, too. */
    shape->prefill_seqs = padding ? 1 : p->max_batch < shape->prefill_chunk ? p->max_batch : shape->prefill_chunk;
    return 0;
}
