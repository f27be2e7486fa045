/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log_ring.h"
#include "base/clock.h"
#include "base/lock.h"
#include <string.h>
#include <time.h>

#define COMPONENT_MAX 64

struct record {
    uint64_t number, time_ms;
    uint32_t n_component, n_text; /* bytes that follow */
    ngd_log_level_t level;
};

static struct {
    struct ngd_mutex lock;
    char *bytes NGD_GUARDED_BY(lock); /* NULL: nothing is kept */
    size_t size NGD_GUARDED_BY(lock);
    size_t first NGD_GUARDED_BY(lock), used NGD_GUARDED_BY(lock); /* the oldest record begins at `first` */
    uint64_t start NGD_GUARDED_BY(lock);
    uint64_t n_lines NGD_GUARDED_BY(lock); /* so far; the number of the newest line */
} ring = {.lock = NGD_MUTEX_INITIALIZER(NGD_RANK_LOG)};

/* Copies n bytes that begin `offset` bytes behind the oldest record, over the end of the memory if need be. */
static void read_bytes(size_t offset, void *to, size_t n) NGD_REQUIRES(ring.lock)
{
    const size_t at = (ring.first + offset) % ring.size, head = n < ring.size - at ? n : ring.size - at;

    memcpy(to, ring.bytes + at, head);
    memcpy((char *)to + head, ring.bytes, n - head);
}

static void append_bytes(const void *from, size_t n) NGD_REQUIRES(ring.lock)
{
    const size_t at = (ring.first + ring.used) % ring.size, head = n < ring.size - at ? n : ring.size - at;

    memcpy(ring.bytes + at, from, head);
    memcpy(ring.bytes, (const char *)from + head, n - head);
    ring.used += n;
}

static size_t record_bytes(const struct record *r)
{
    return sizeof(*r) + r->n_component + r->n_text;
}

static void drop_oldest(void) NGD_REQUIRES(ring.lock)
{
    struct record oldest;

    read_bytes(0, &oldest, sizeof(oldest));
    ring.first = (ring.first + record_bytes(&oldest)) % ring.size;
    ring.used -= record_bytes(&oldest);
}

ngd_status_t ngd_log_ring_start(size_t bytes)
{
    char *memory = ngd_malloc(bytes);
    struct timespec now;

    if (!memory)
        return NGD_ERR_NO_MEMORY;
    clock_gettime(CLOCK_REALTIME, &now);
    ngd_mutex_lock(&ring.lock);
    ring.bytes = memory;
    ring.size = bytes;
    ring.start = (uint64_t)now.tv_sec * NGD_SEC + (uint64_t)now.tv_nsec;
    ngd_mutex_unlock(&ring.lock);
    return NGD_OK;
}

void ngd_log_ring_stop(void)
{
    char *memory;

    ngd_mutex_lock(&ring.lock);
    memory = ring.bytes;
    ring.bytes = NULL;
    ring.first = ring.used = 0;
    ring.n_lines = 0;
    ngd_mutex_unlock(&ring.lock);
    ngd_free(memory);
}

void ngd_log_ring_add(ngd_log_level_t level, uint64_t time_ms, const char *component, const char *text, size_t n)
{
    struct record r = {.time_ms = time_ms, .level = level, .n_component = (uint32_t)strnlen(component, COMPONENT_MAX)};

    r.n_text = (uint32_t)n;
    ngd_mutex_lock(&ring.lock);
    if (ring.bytes) {
        r.number = ++ring.n_lines;
        while (ring.used && ring.size - ring.used < record_bytes(&r))
            drop_oldest();
        if (record_bytes(&r) <= ring.size) {
            append_bytes(&r, sizeof(r));
            append_bytes(component, r.n_component);
            append_bytes(text, r.n_text);
        }
    }
    ngd_mutex_unlock(&ring.lock);
}

/* Copies a text of n bytes that begins at `offset`. NULL: no memory. */
static const char *copy_text(size_t offset, size_t n, struct ngd_arena *arena) NGD_REQUIRES(ring.lock)
{
    char *copy = ngd_arena_alloc(arena, n + 1);

    if (!copy)
        return NULL;
    read_bytes(offset, copy, n);
    copy[n] = '\0';
    return copy;
}

static bool copy_line(const struct record *r, size_t offset, struct ngd_arena *arena, struct ngd_log_line *line)
    NGD_REQUIRES(ring.lock)
{
    *line = (struct ngd_log_line){.number = r->number, .time_ms = r->time_ms, .level = r->level};
    line->component = copy_text(offset + sizeof(*r), r->n_component, arena);
    line->text = copy_text(offset + sizeof(*r) + r->n_component, r->n_text, arena);
    return line->component && line->text;
}

static ngd_status_t read_locked(const struct ngd_log_query *q, struct ngd_arena *arena, struct ngd_log_lines *lines)
    NGD_REQUIRES(ring.lock)
{
    const bool same = q->after <= ring.n_lines && (q->start == 0 || q->start == ring.start);
    const uint64_t after = same ? q->after : 0; /* a number of another start means nothing here */
    struct record r;

    lines->start = ring.start;
    lines->last = after;
    for (size_t offset = 0; offset < ring.used && lines->n < q->limit; offset += record_bytes(&r)) {
        read_bytes(offset, &r, sizeof(r));
        if (r.number <= after)
            continue;
        if (lines->last == after && q->after > 0)
            lines->lost = r.number - after - 1;
        lines->last = r.number;
        if (r.level > q->level || r.time_ms < q->since_ms)
            continue;
        if (!copy_line(&r, offset, arena, &lines->items[lines->n]))
            return NGD_ERR_NO_MEMORY;
        lines->n++;
    }
    return NGD_OK;
}

ngd_status_t ngd_log_ring_read(const struct ngd_log_query *q, struct ngd_arena *arena, struct ngd_log_lines *lines_p)
{
    struct ngd_log_lines lines = {.items = ngd_arena_calloc(arena, q->limit, sizeof(*lines.items))};
    ngd_status_t status;

    if (!lines.items)
        return NGD_ERR_NO_MEMORY;
    ngd_mutex_lock(&ring.lock);
    status = read_locked(q, arena, &lines);
    ngd_mutex_unlock(&ring.lock);
    if (status == NGD_OK)
        *lines_p = lines;
    return status;
}
