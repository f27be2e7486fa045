/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The general heap and the arena.
 *
 * jemalloc, if linked, replaces malloc, so the code here calls malloc. Only its statistics have their own
 * entry point. It is a weak symbol, so that the same object works in a build without jemalloc (sanitizers
 * bring their own malloc).
 *
 * An arena is a chain of blocks. `cur` is being filled; the blocks after it are empty, kept by a reset.
 * A request that no kept block fits gets a new block.
 */
#include "base/mem.h"
#include <malloc.h>
#include <stdalign.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

extern int mallctl(const char *name, void *old, size_t *old_len, void *new, size_t new_len) __attribute__((weak));

static _Thread_local int64_t fail_after = -1;
static _Thread_local uint64_t thread_allocs;

/* Counts one allocation; returns false if the test hook makes it fail. */
static bool may_allocate(void)
{
    thread_allocs++;
    if (fail_after < 0)
        return true;
    if (fail_after == 0)
        return false;
    fail_after--;
    return true;
}

void *ngd_malloc(size_t bytes)
{
    if (!may_allocate())
        return NULL;
    return malloc(bytes ? bytes : 1); /* NULL means failure, also for 0 bytes */
}

void *ngd_calloc(size_t n, size_t bytes)
{
    size_t total;

    /* calloc would check this too, but under a sanitizer it ends the process instead of returning NULL. */
    if (__builtin_mul_overflow(n, bytes, &total) || !may_allocate())
        return NULL;
    return calloc(1, total ? total : 1);
}

void *ngd_realloc(void *ptr, size_t bytes)
{
    if (!may_allocate())
        return NULL;
    return realloc(ptr, bytes ? bytes : 1);
}

void *ngd_reallocarray(void *ptr, size_t n, size_t bytes)
{
    size_t total;

    if (__builtin_mul_overflow(n, bytes, &total))
        return NULL;
    return ngd_realloc(ptr, total);
}

void *ngd_aligned_alloc(size_t align, size_t bytes)
{
    void *p;

    if (!may_allocate())
        return NULL;
    if (align < sizeof(void *))
        align = sizeof(void *);
    return posix_memalign(&p, align, bytes ? bytes : 1) == 0 ? p : NULL;
}

void *ngd_memdup(const void *p, size_t n)
{
    void *copy = ngd_malloc(n);

    if (copy && n)
        memcpy(copy, p, n);
    return copy;
}

char *ngd_strndup(const char *s, size_t n)
{
    size_t len = strnlen(s, n);
    char *copy = ngd_malloc(len + 1);

    if (!copy)
        return NULL;
    memcpy(copy, s, len);
    copy[len] = '\0';
    return copy;
}

char *ngd_strdup(const char *s)
{
    return ngd_memdup(s, strlen(s) + 1);
}

void ngd_free(void *ptr)
{
    free(ptr);
}

void ngd_mem_fail_after(int64_t n)
{
    fail_after = n;
}

uint64_t ngd_mem_thread_allocs(void)
{
    return thread_allocs;
}

#define WARM_PIECE ((size_t)256 << 10) /* bytes; jemalloc cuts all but large requests from such pieces */
#define WARM_MAX   16
#define WARM_PAGE  4096

void ngd_mem_warm(size_t bytes)
{
    void *pieces[WARM_MAX];
    size_t n = bytes / WARM_PIECE < WARM_MAX ? bytes / WARM_PIECE : WARM_MAX, got = 0;

    if (!mallctl)
        return;
    for (; got < n && (pieces[got] = malloc(WARM_PIECE)) != NULL; got++)
        for (size_t at = 0; at < WARM_PIECE; at += WARM_PAGE)
            ((volatile char *)pieces[got])[at] = 0;
    while (got > 0)
        free(pieces[--got]);
}

#define ARENA_ALIGN 16

struct ngd_arena_block {
    struct ngd_arena_block *next;
    size_t cap;
    size_t used;
    alignas(ARENA_ALIGN) unsigned char data[];
};

void ngd_arena_init(struct ngd_arena *arena, size_t block_bytes)
{
    arena->head = NULL;
    arena->cur = NULL;
    arena->block_bytes = block_bytes;
}

void ngd_arena_fini(struct ngd_arena *arena)
{
    struct ngd_arena_block *block = arena->head;

    while (block) {
        struct ngd_arena_block *next = block->next;

        ngd_free(block);
        block = next;
    }
    arena->head = arena->cur = NULL;
}

/* Returns the link to the first block that is not in use. */
static struct ngd_arena_block **free_blocks(struct ngd_arena *arena)
{
    return arena->cur ? &arena->cur->next : &arena->head;
}

/*
 * Makes `cur` a block with room for bytes. Frees the kept blocks that it passes because they are too small. Otherwise
 * an arena whose requests grow a little with each use would keep a block of each size it ever had.
 */
static bool arena_advance(struct ngd_arena *arena, size_t bytes)
{
    struct ngd_arena_block **link = free_blocks(arena), *block;
    size_t cap = bytes > arena->block_bytes ? bytes : arena->block_bytes;
    size_t total;

    while ((block = *link) != NULL && block->cap < bytes) {
        *link = block->next;
        ngd_free(block);
    }
    if (!block) {
        if (__builtin_add_overflow(cap, sizeof(*block), &total) || !(block = ngd_aligned_alloc(ARENA_ALIGN, total)))
            return false;
        block->cap = cap;
        block->next = NULL;
        *link = block;
    }
    block->used = 0;
    arena->cur = block;
    return true;
}

void *ngd_arena_alloc(struct ngd_arena *arena, size_t bytes)
{
    size_t need;

    if (__builtin_add_overflow(bytes, (size_t)ARENA_ALIGN - 1, &need))
        return NULL;
    need &= ~(size_t)(ARENA_ALIGN - 1);
    if (need == 0)
        need = ARENA_ALIGN;
    if ((!arena->cur || arena->cur->cap - arena->cur->used < need) && !arena_advance(arena, need))
        return NULL;
    void *p = arena->cur->data + arena->cur->used;

    arena->cur->used += need;
    return p;
}

void *ngd_arena_calloc(struct ngd_arena *arena, size_t n, size_t bytes)
{
    size_t total;
    void *p;

    if (__builtin_mul_overflow(n, bytes, &total))
        return NULL;
    p = ngd_arena_alloc(arena, total);
    if (p)
        memset(p, 0, total);
    return p;
}

char *ngd_arena_strdup(struct ngd_arena *arena, const char *s)
{
    size_t n = strlen(s) + 1;
    char *copy = ngd_arena_alloc(arena, n);

    if (copy)
        memcpy(copy, s, n);
    return copy;
}

void ngd_arena_reset(struct ngd_arena *arena)
{
    arena->cur = NULL;
}

void ngd_arena_trim(struct ngd_arena *arena, size_t keep)
{
    struct ngd_arena_block **link = &arena->head, *block;
    size_t kept = 0;

    arena->cur = NULL;
    while ((block = *link) != NULL) {
        if (block->cap <= keep - kept) {
            kept += block->cap;
            link = &block->next;
        } else {
            *link = block->next;
            ngd_free(block);
        }
    }
}

size_t ngd_arena_bytes(const struct ngd_arena *arena)
{
    size_t n = 0;

    for (const struct ngd_arena_block *block = arena->head; block; block = block->next)
        n += sizeof(*block) + block->cap;
    return n;
}
