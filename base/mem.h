/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_BASE_MEM_H
#define NGD_BASE_MEM_H

/*
 * The general heap (jemalloc when configured) and a bump arena for per-request memory.
 *
 * Why: all allocations go through this header, so that tests can fail the n-th one, and can prove that the replay
 * path does not allocate (ngd_mem_thread_allocs).
 * Threads: heap calls from any thread; an arena belongs to one owner at a time.
 * Memory: all functions return NULL on failure; ngd_free(NULL) does nothing.
 */
#include <stddef.h>
#include <stdint.h>

void *ngd_malloc(size_t bytes);
void *ngd_calloc(size_t n, size_t bytes); /* overflow-checked, zeroed */
void *ngd_realloc(void *ptr, size_t bytes);
void *ngd_reallocarray(void *ptr, size_t n, size_t bytes); /* overflow-checked */
void *ngd_aligned_alloc(size_t align, size_t bytes);       /* free with ngd_free */
char *ngd_strdup(const char *s);
char *ngd_strndup(const char *s, size_t n);
void *ngd_memdup(const void *p, size_t n);
void ngd_free(void *ptr);

/* With the address sanitizer, moves a small array that is about to get an element, as growing may move it at any time:
 * a pointer into it that is used afterwards is found by every test, not only by the one whose array happens to be full.
 */
static inline void ngd_move_array(void **array, size_t bytes)
{
#if defined(__SANITIZE_ADDRESS__)
    void *p = *array && bytes < 65536 ? ngd_realloc(*array, bytes) : NULL;

    if (p)
        *array = p;
#else
    (void)array;
    (void)bytes;
#endif
}

#define NGD_NEW(type)      ((type *)ngd_calloc(1, sizeof(type)))
#define NGD_NEW_N(type, n) ((type *)ngd_calloc((n), sizeof(type)))

/* Tests: fails every allocation of this thread from the n-th on (0: the next one; -1: never, the default). */
void ngd_mem_fail_after(int64_t n);
/* Returns how many allocations the calling thread has made through this header since it started. */
uint64_t ngd_mem_thread_allocs(void);
/*
 * Pre-faults `bytes` of the calling thread's heap; called when the thread starts. Its first allocations then do not
 * wait for the kernel's page faults, which cost as much as the work that uses the pages. Works with jemalloc only:
 * other heaps give free memory back to the system.
 */
void ngd_mem_warm(size_t bytes);

/* Arena: allocations are freed together by reset, which keeps the blocks for reuse. */
struct ngd_arena {
    struct ngd_arena_block *head;
    struct ngd_arena_block *cur;
    size_t block_bytes;
};
void ngd_arena_init(struct ngd_arena *arena, size_t block_bytes); /* allocates nothing yet */
void ngd_arena_fini(struct ngd_arena *arena);
void *ngd_arena_alloc(struct ngd_arena *arena, size_t bytes); /* 16-byte aligned; NULL on failure */
void *ngd_arena_calloc(struct ngd_arena *arena, size_t n, size_t bytes);
char *ngd_arena_strdup(struct ngd_arena *arena, const char *s);
void ngd_arena_reset(struct ngd_arena *arena);
void ngd_arena_trim(struct ngd_arena *arena, size_t keep); /* resets, and keeps blocks of at most `keep` bytes in all */
size_t ngd_arena_bytes(const struct ngd_arena *arena);     /* bytes of all its blocks */

#endif
