/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each large piece is a mapping. Small pieces come from an arena of jemalloc. Its memory is mapped here, aligned to
 * huge pages, so that the kernel can use them. It stays mapped, but unused pages go back to the system. If all pages of
 * a huge page have gone back, its next use gets a huge page again.
 *
 * jemalloc's functions are found as weak symbols: in a program that is not linked with it, small pieces come from the
 * heap and from mappings of small pages.
 */
#include "base/pages.h"
#include "base/mem.h"
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define HUGE_PAGE  ((uint64_t)2 << 20)
#define HUGE_FROM  (2 * HUGE_PAGE)
#define PIECE      ((uint64_t)32 << 20)
#define HEAP_BELOW (16u << 10) /* bytes: norm weights and the like, which would waste most of a page each */

static void *map(uint64_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    return p == MAP_FAILED ? NULL : p;
}

static void *map_huge(uint64_t bytes)
{
    uint64_t want;
    char *p, *q;

    if (__builtin_add_overflow(bytes, HUGE_PAGE, &want) || !(p = map(want)))
        return NULL;
    q = (char *)(((uintptr_t)p + HUGE_PAGE - 1) & ~(uintptr_t)(HUGE_PAGE - 1));
    if (q > p)
        munmap(p, (size_t)(q - p));
    if (p + want > q + bytes)
        munmap(q + bytes, (size_t)(p + want - (q + bytes)));
    madvise(q, bytes, MADV_HUGEPAGE); /* the kernel may refuse: the memory is only slower then */
    return q;
}

/* ---- the arena ---- */

#ifdef NGD_HAVE_JEMALLOC

#include <jemalloc/jemalloc.h>

extern __typeof__(mallctl) mallctl __attribute__((weak));
extern __typeof__(mallocx) mallocx __attribute__((weak));
extern __typeof__(sdallocx) sdallocx __attribute__((weak));

static pthread_once_t once = PTHREAD_ONCE_INIT;
static unsigned arena; /* 0, an arena of jemalloc's own, means that there is none */

static void *arena_map(extent_hooks_t *hooks, void *at, size_t bytes, size_t align, bool *zero, bool *commit,
                       unsigned index)
{
    (void)hooks, (void)index;
    if (at || align > HUGE_PAGE)
        return NULL;
    *zero = *commit = true;
    return map_huge(bytes);
}

static bool arena_purge(extent_hooks_t *hooks, void *p, size_t bytes, size_t offset, size_t n, unsigned index)
{
    (void)hooks, (void)bytes, (void)index;
    return madvise((char *)p + offset, n, MADV_DONTNEED) != 0;
}

/* Returns false, which allows the split. Nothing is ever unmapped, so jemalloc may split anywhere. */
static bool arena_split(extent_hooks_t *hooks, void *p, size_t bytes, size_t a, size_t b, bool committed,
                        unsigned index)
{
    (void)hooks, (void)p, (void)bytes, (void)a, (void)b, (void)committed, (void)index;
    return false;
}

static bool arena_merge(extent_hooks_t *hooks, void *p, size_t a, void *q, size_t b, bool committed, unsigned index)
{
    (void)hooks, (void)p, (void)a, (void)q, (void)b, (void)committed, (void)index;
    return false;
}

static extent_hooks_t arena_hooks = {
    .alloc = arena_map,
    .purge_forced = arena_purge,
    .split = arena_split,
    .merge = arena_merge,
};

/* Makes the arena give freed pages back at once instead of keeping them for the next use. */
static bool purge_at_once(unsigned index)
{
    static const char *const which[] = {"dirty", "muzzy"};
    ssize_t ms = 0;
    int wrong = 0;
    char name[64];

    for (size_t i = 0; i < sizeof(which) / sizeof(which[0]); i++) {
        snprintf(name, sizeof(name), "arena.%u.%s_decay_ms", index, which[i]);
        wrong |= mallctl(name, NULL, NULL, &ms, sizeof(ms));
    }
    return !wrong;
}

static void arena_create(void)
{
    extent_hooks_t *hooks = &arena_hooks;
    unsigned index;
    size_t len = sizeof(index);

    if (mallctl && mallocx && sdallocx && mallctl("arenas.create", &index, &len, &hooks, sizeof(hooks)) == 0 &&
        purge_at_once(index))
        arena = index;
}

static bool arena_ready(void)
{
    pthread_once(&once, arena_create);
    return arena != 0;
}

static void *arena_alloc(uint64_t bytes)
{
    return mallocx(bytes, MALLOCX_ARENA(arena) | MALLOCX_TCACHE_NONE | MALLOCX_ALIGN(64) | MALLOCX_ZERO);
}

static void arena_free(void *p, uint64_t bytes)
{
    sdallocx(p, bytes, MALLOCX_TCACHE_NONE | MALLOCX_ALIGN(64));
}

static uint64_t arena_figure(const char *what)
{
    char name[64];
    size_t bytes = 0, len = sizeof(bytes);

    snprintf(name, sizeof(name), "stats.arenas.%u.%s.allocated", arena, what);
    return mallctl(name, &bytes, &len, NULL, 0) == 0 ? bytes : 0;
}

#else

static bool arena_ready(void)
{
    return false;
}

static void *arena_alloc(uint64_t bytes)
{
    (void)bytes;
    return NULL;
}

static void arena_free(void *p, uint64_t bytes)
{
    (void)p, (void)bytes;
}

static uint64_t arena_figure(const char *what)
{
    (void)what;
    return 0;
}

#endif

uint64_t ngd_pages_in_heap(void)
{
    return arena_ready() ? arena_figure("small") + arena_figure("large") : 0;
}

/* ---- any piece ---- */

static uint64_t page_rounded(uint64_t bytes)
{
    return (bytes + 4095) & ~(uint64_t)4095;
}

static void *heap_alloc(uint64_t bytes)
{
    void *p = ngd_aligned_alloc(64, bytes);

    if (p)
        memset(p, 0, bytes);
    return p;
}

void *ngd_pages_alloc(uint64_t bytes)
{
    if (bytes > UINT64_MAX - HUGE_PAGE)
        return NULL;
    if (bytes >= HUGE_FROM)
        return map_huge(page_rounded(bytes));
    if (bytes && arena_ready())
        return arena_alloc(bytes);
    return bytes < HEAP_BELOW ? heap_alloc(bytes) : map(page_rounded(bytes));
}

/* Unmaps in pieces: the kernel holds a lock while it frees pages, and threads that map memory wait for it. */
static void unmap(char *p, uint64_t bytes)
{
    for (uint64_t at = 0; bytes > PIECE && at < bytes; at += PIECE)
        madvise(p + at, bytes - at < PIECE ? bytes - at : PIECE, MADV_DONTNEED);
    munmap(p, bytes);
}

void ngd_pages_free(void *p, uint64_t bytes)
{
    if (bytes && bytes < HUGE_FROM && arena_ready())
        arena_free(p, bytes);
    else if (bytes < HEAP_BELOW)
        ngd_free(p);
    else
        unmap(p, page_rounded(bytes));
}
