/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/front/h2_streams.h"
#include "base/mem.h"

#define FIRST_CAP 16 /* a power of two, like all capacities */

void ngd_h2_streams_fini(struct ngd_h2_streams *streams)
{
    ngd_free(streams->table);
    *streams = (struct ngd_h2_streams){0};
}

/* Returns the preferred place of a stream. Client stream ids are odd and ascending, so half of the id serves as a
 * hash. */
static uint32_t home_of_stream(const struct ngd_h2_streams *streams, uint32_t id)
{
    return (id >> 1) & (streams->cap - 1);
}

static struct ngd_h2_stream *place_of_stream(const struct ngd_h2_streams *streams, uint32_t id)
{
    uint32_t i = home_of_stream(streams, id);

    while (streams->table[i].id != 0 && streams->table[i].id != id)
        i = (i + 1) & (streams->cap - 1);
    return &streams->table[i];
}

struct ngd_h2_stream *ngd_h2_streams_find(const struct ngd_h2_streams *streams, uint32_t id)
{
    struct ngd_h2_stream *stream;

    if (streams->count == 0 || id == 0)
        return NULL;
    stream = place_of_stream(streams, id);
    return stream->id == id ? stream : NULL;
}

static bool grow_streams(struct ngd_h2_streams *streams)
{
    struct ngd_h2_streams larger = {.cap = streams->cap ? 2 * streams->cap : FIRST_CAP, .count = streams->count};

    larger.table = NGD_NEW_N(struct ngd_h2_stream, larger.cap);
    if (!larger.table)
        return false;
    for (uint32_t i = 0; i < streams->cap; i++)
        if (streams->table[i].id != 0)
            *place_of_stream(&larger, streams->table[i].id) = streams->table[i];
    ngd_free(streams->table);
    *streams = larger;
    return true;
}

struct ngd_h2_stream *ngd_h2_streams_add(struct ngd_h2_streams *streams, uint32_t id)
{
    struct ngd_h2_stream *stream;

    if (2 * (streams->count + 1) > streams->cap && !grow_streams(streams))
        return NULL;
    stream = place_of_stream(streams, id);
    *stream = (struct ngd_h2_stream){.id = id};
    streams->count++;
    return stream;
}

/* Moves later entries up, so that no entry is behind a gap. */
void ngd_h2_streams_remove(struct ngd_h2_streams *streams, struct ngd_h2_stream *stream)
{
    uint32_t mask = streams->cap - 1, gap = (uint32_t)(stream - streams->table);

    for (uint32_t i = (gap + 1) & mask; streams->table[i].id != 0; i = (i + 1) & mask) {
        uint32_t at = home_of_stream(streams, streams->table[i].id);

        if (((i - at) & mask) >= ((i - gap) & mask)) {
            streams->table[gap] = streams->table[i];
            gap = i;
        }
    }
    streams->table[gap].id = 0;
    streams->count--;
}
