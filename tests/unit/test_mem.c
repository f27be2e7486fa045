/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "base/mem_stats.h"
#include "base/pages.h"
#include "tests/unit/unit.h"
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

START_TEST(zero_bytes_give_a_pointer_because_null_means_failure)
{
    void *p = ngd_malloc(0), *q = ngd_calloc(0, 8), *r = ngd_realloc(NULL, 0);

    ck_assert_ptr_nonnull(p);
    ck_assert_ptr_nonnull(q);
    ck_assert_ptr_nonnull(r);
    ngd_free(p);
    ngd_free(q);
    ngd_free(r);
    ngd_free(NULL);
}
END_TEST

START_TEST(products_that_overflow_fail)
{
    char *p = ngd_malloc(4);

    ck_assert_ptr_nonnull(p);
    ck_assert_ptr_null(ngd_calloc(SIZE_MAX / 2, 3));
    ck_assert_ptr_null(ngd_reallocarray(p, SIZE_MAX / 2, 3));
    p[3] = 1; /* a failed realloc leaves the old memory */
    ngd_free(p);
}
END_TEST

START_TEST(calloc_memory_is_zero)
{
    unsigned char *p = ngd_malloc(4096);

    memset(p, 0xff, 4096);
    ngd_free(p);
    p = ngd_calloc(64, 64);
    for (int i = 0; i < 4096; i++)
        ck_assert_int_eq(p[i], 0);
    ngd_free(p);
}
END_TEST

START_TEST(aligned_memory_is_aligned)
{
    for (size_t align = 1; align <= 4096; align *= 2) {
        void *p = ngd_aligned_alloc(align, 100);

        ck_assert_ptr_nonnull(p);
        ck_assert_uint_eq((uintptr_t)p % align, 0);
        ngd_free(p);
    }
}
END_TEST

START_TEST(copies_are_equal_and_terminated)
{
    char *a = ngd_strdup("hello"), *b = ngd_strndup("hello", 3), *c = ngd_strndup("hi", 100), *d = ngd_memdup("xy", 2);

    ck_assert_str_eq(a, "hello");
    ck_assert_str_eq(b, "hel");
    ck_assert_str_eq(c, "hi");
    ck_assert_mem_eq(d, "xy", 2);
    ngd_free(a);
    ngd_free(b);
    ngd_free(c);
    ngd_free(d);
}
END_TEST

START_TEST(fail_after_fails_the_nth_allocation_and_all_later_ones)
{
    void *p;

    ngd_mem_fail_after(2);
    p = ngd_malloc(1);
    ck_assert_ptr_nonnull(p);
    ngd_free(p);
    p = ngd_strdup("x");
    ck_assert_ptr_nonnull(p);
    ngd_free(p);
    ck_assert_ptr_null(ngd_malloc(1));
    ck_assert_ptr_null(ngd_calloc(1, 1));
    ck_assert_ptr_null(ngd_realloc(NULL, 1));
    ck_assert_ptr_null(ngd_aligned_alloc(64, 64));
    ck_assert_ptr_null(ngd_strdup("x"));
    ck_assert_ptr_null(ngd_strndup("x", 1));
    ck_assert_ptr_null(ngd_memdup("x", 1));
    ngd_mem_fail_after(-1);
    p = ngd_malloc(1);
    ck_assert_ptr_nonnull(p);
    ngd_free(p);
}
END_TEST

static void *allocate_elsewhere(void *arg)
{
    uint64_t *count = arg;
    void *p = ngd_malloc(1);

    *count = p ? ngd_mem_thread_allocs() : 0;
    ngd_free(p);
    return NULL;
}

START_TEST(hook_and_count_belong_to_the_calling_thread)
{
    uint64_t before = ngd_mem_thread_allocs(), other = 0;
    pthread_t thread;

    ngd_mem_fail_after(0);
    ck_assert_int_eq(pthread_create(&thread, NULL, allocate_elsewhere, &other), 0);
    pthread_join(thread, NULL);
    ngd_mem_fail_after(-1);
    ck_assert_uint_eq(other, 1);
    ck_assert_uint_eq(ngd_mem_thread_allocs(), before);
}
END_TEST

START_TEST(heap_bytes_grow_with_what_is_in_use)
{
    uint64_t before = ngd_mem_heap_bytes(), with;
    char *p;

    if (before == 0)
        return; /* an allocator that cannot tell, such as a sanitizer's */
    p = ngd_malloc(8 << 20);
    ck_assert_ptr_nonnull(p);
    memset(p, 1, 8 << 20);
    with = ngd_mem_heap_bytes();
    ck_assert_uint_ge(with, before + (8 << 20));
    ngd_free(p);
    ck_assert_uint_lt(ngd_mem_heap_bytes(), with);
}
END_TEST

/* ---- pre-faulted memory ---- */

#define PIECES 8
#define PIECE  (96u << 10) /* the largest arrays of a decoder's plan are of such sizes */
#define PAGES  (PIECES * PIECE / 4096)

extern int mallctl(const char *name, void *old, size_t *old_len, void *new, size_t new_len) __attribute__((weak));

struct thread {
    size_t warm;
    long faults; /* page faults of its first allocations */
    void *pieces[PIECES];
};

static long faults_of_thread(void)
{
    struct rusage usage = {.ru_minflt = -1};

    (void)getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_minflt;
}

static void *allocate_first(void *arg)
{
    struct thread *t = arg;
    long before;

    ngd_mem_warm(t->warm);
    before = faults_of_thread();
    for (int i = 0; i < PIECES; i++) {
        t->pieces[i] = ngd_malloc(PIECE);
        if (t->pieces[i])
            memset(t->pieces[i], i, PIECE);
    }
    t->faults = faults_of_thread() - before;
    return NULL;
}

START_TEST(first_allocations_of_a_warmed_thread_take_hardly_a_page_fault)
{
    struct thread t = {.warm = 2u << 20};
    pthread_t thread;

    ck_assert_int_eq(pthread_create(&thread, NULL, allocate_first, &t), 0);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    if (mallctl)                                     /* other heaps do not keep free memory */
        ck_assert_int_lt(t.faults, (long)PAGES / 2); /* the kernel may take pages back, but not so many so soon */
    for (int i = 0; i < PIECES; i++) {
        ck_assert_ptr_nonnull(t.pieces[i]);
        ngd_free(t.pieces[i]);
    }
}
END_TEST

START_TEST(warming_is_bounded_and_keeps_nothing)
{
    const uint64_t before = ngd_mem_heap_bytes();

    ngd_mem_warm(SIZE_MAX);
    ngd_mem_warm(0);
    ck_assert_uint_lt(ngd_mem_heap_bytes(), before + (64u << 10));
}
END_TEST

/* ---- pages ---- */

#define MAX_PIECE ((uint64_t)6 << 20)

static uint64_t piece(int i)
{
    static const uint64_t some[] = {0, 1, 64, 4095, 4096, 16384, 20000, 1 << 20, (4 << 20) - 1, 4 << 20, MAX_PIECE};

    return some[(size_t)i % (sizeof(some) / sizeof(some[0]))];
}

START_TEST(pages_are_zeroed_and_aligned_and_do_not_overlap)
{
    enum { PIECES_OF_PAGES = 22 };
    static const char zeros[MAX_PIECE];
    char *p[PIECES_OF_PAGES];

    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < PIECES_OF_PAGES; i++) {
            p[i] = ngd_pages_alloc(piece(i));
            ck_assert_ptr_nonnull(p[i]);
            ck_assert_uint_eq((uintptr_t)p[i] % 64, 0);
            ck_assert_int_eq(memcmp(p[i], zeros, piece(i)), 0);
            memset(p[i], i + 1, piece(i));
        }
        for (int i = 0; i < PIECES_OF_PAGES; i++) {
            for (uint64_t at = 0; at < piece(i); at++)
                if (p[i][at] != i + 1)
                    ck_abort_msg("piece %d was written by another", i);
            ngd_pages_free(p[i], piece(i));
        }
    }
    ck_assert_ptr_null(ngd_pages_alloc(UINT64_MAX));
    ck_assert_ptr_null(ngd_pages_alloc(UINT64_MAX / 2));
}
END_TEST

/* Counts the pages in memory; an unmapped page is not in memory. */
static size_t pages_in_memory(char *p, size_t bytes)
{
    char *at = (char *)(((uintptr_t)p + 4095) & ~(uintptr_t)4095);
    unsigned char there;
    size_t n = 0;

    for (; at + 4096 <= p + bytes; at += 4096)
        n += mincore(at, 4096, &there) == 0 && (there & 1);
    return n;
}

START_TEST(pages_go_back_to_the_system_when_they_are_freed)
{
    const uint64_t bytes = 3 << 20, heap = ngd_mem_heap_bytes();
    char *p = ngd_pages_alloc(bytes);

    ck_assert_ptr_nonnull(p);
    memset(p, 1, bytes);
    ck_assert_uint_ge(pages_in_memory(p, bytes), bytes / 4096 - 1);
    ck_assert_uint_lt(ngd_mem_heap_bytes(), heap + bytes / 2);
    ngd_pages_free(p, bytes);
    ck_assert_uint_eq(pages_in_memory(p, bytes), 0);
}
END_TEST

START_TEST(arena_memory_is_aligned_and_does_not_overlap)
{
    struct ngd_arena arena;
    unsigned char *p[100];

    ngd_arena_init(&arena, 256);
    for (int i = 0; i < 100; i++) {
        size_t n = (size_t)(i * 7 % 300) + 1; /* some larger than a block */

        p[i] = ngd_arena_alloc(&arena, n);
        ck_assert_ptr_nonnull(p[i]);
        ck_assert_uint_eq((uintptr_t)p[i] % 16, 0);
        memset(p[i], i, n);
    }
    for (int i = 0; i < 100; i++)
        for (int j = 0; j < i * 7 % 300 + 1; j++)
            ck_assert_int_eq(p[i][j], i);
    ngd_arena_fini(&arena);
}
END_TEST

START_TEST(arena_after_reset_allocates_nothing_for_the_same_requests)
{
    struct ngd_arena arena;
    uint64_t after_first = 0;

    ngd_arena_init(&arena, 128);
    for (int round = 0; round < 5; round++) {
        for (int i = 0; i < 50; i++)
            ck_assert_ptr_nonnull(ngd_arena_alloc(&arena, (size_t)(i * 37 % 400)));
        if (round == 0)
            after_first = ngd_mem_thread_allocs();
        ngd_arena_reset(&arena);
    }
    ck_assert_uint_eq(ngd_mem_thread_allocs(), after_first);
    ngd_arena_fini(&arena);
}
END_TEST

START_TEST(arena_without_memory_returns_null_and_stays_usable)
{
    struct ngd_arena arena;
    char *s;

    ngd_arena_init(&arena, 64);
    ngd_mem_fail_after(0);
    ck_assert_ptr_null(ngd_arena_alloc(&arena, 10));
    ck_assert_ptr_null(ngd_arena_strdup(&arena, "x"));
    ngd_mem_fail_after(-1);
    ck_assert_ptr_null(ngd_arena_alloc(&arena, SIZE_MAX));
    ck_assert_ptr_null(ngd_arena_alloc(&arena, SIZE_MAX - 32));
    ck_assert_ptr_null(ngd_arena_calloc(&arena, SIZE_MAX / 2, 4));
    s = ngd_arena_strdup(&arena, "still here");
    ck_assert_str_eq(s, "still here");
    ngd_arena_fini(&arena);
    ngd_arena_fini(&arena);
}
END_TEST

START_TEST(arena_calloc_clears_reused_memory)
{
    struct ngd_arena arena;
    unsigned char *p;

    ngd_arena_init(&arena, 1024);
    memset(ngd_arena_alloc(&arena, 512), 0xee, 512);
    ngd_arena_reset(&arena);
    p = ngd_arena_calloc(&arena, 8, 64);
    for (int i = 0; i < 512; i++)
        ck_assert_int_eq(p[i], 0);
    ngd_arena_fini(&arena);
}
END_TEST

START_TEST(arena_whose_requests_grow_keeps_room_for_the_last_ones)
{
    struct ngd_arena arena;

    ngd_arena_init(&arena, 128);
    for (size_t n = 200; n < 20000; n += 16) {
        ck_assert_ptr_nonnull(ngd_arena_alloc(&arena, n));
        ck_assert_ptr_nonnull(ngd_arena_alloc(&arena, 64));
        ngd_arena_reset(&arena);
    }
    ck_assert_uint_le(ngd_arena_bytes(&arena), 32768);
    ngd_arena_fini(&arena);
}
END_TEST

START_TEST(arena_without_memory_for_a_larger_block_stays_usable)
{
    struct ngd_arena arena;

    ngd_arena_init(&arena, 64);
    ck_assert_ptr_nonnull(ngd_arena_alloc(&arena, 64));
    ck_assert_ptr_nonnull(ngd_arena_alloc(&arena, 64));
    ngd_arena_reset(&arena);
    ck_assert_ptr_nonnull(ngd_arena_alloc(&arena, 64));
    ngd_mem_fail_after(0);
    ck_assert_ptr_null(ngd_arena_alloc(&arena, 1000)); /* the second block was too small, and is gone */
    ngd_mem_fail_after(-1);
    for (int i = 0; i < 10; i++)
        memset(ngd_arena_alloc(&arena, 64), i, 64);
    ngd_arena_fini(&arena);
}
END_TEST

START_TEST(trimmed_arena_keeps_what_it_may_and_can_be_used_again)
{
    struct ngd_arena arena;
    uint64_t before;
    size_t kept;

    ngd_arena_init(&arena, 128);
    ngd_arena_trim(&arena, 0); /* of nothing */
    ck_assert_ptr_nonnull(ngd_arena_alloc(&arena, 5000));
    for (int i = 0; i < 10; i++)
        ck_assert_ptr_nonnull(ngd_arena_alloc(&arena, 128));
    ngd_arena_trim(&arena, 300);
    kept = ngd_arena_bytes(&arena);
    ck_assert_uint_ge(kept, 256); /* two of the small ones */
    ck_assert_uint_le(kept, 400);
    before = ngd_mem_thread_allocs();
    ck_assert_ptr_nonnull(ngd_arena_alloc(&arena, 128));
    ck_assert_ptr_nonnull(ngd_arena_alloc(&arena, 128));
    ck_assert_uint_eq(ngd_mem_thread_allocs(), before);
    ngd_arena_trim(&arena, SIZE_MAX);
    ck_assert_uint_eq(ngd_arena_bytes(&arena), kept);
    ngd_arena_trim(&arena, 0);
    ck_assert_uint_eq(ngd_arena_bytes(&arena), 0);
    ck_assert_ptr_nonnull(ngd_arena_alloc(&arena, 1));
    ngd_arena_fini(&arena);
}
END_TEST

UNIT_MAIN("base/mem", zero_bytes_give_a_pointer_because_null_means_failure, products_that_overflow_fail,
          calloc_memory_is_zero, aligned_memory_is_aligned, copies_are_equal_and_terminated,
          fail_after_fails_the_nth_allocation_and_all_later_ones, hook_and_count_belong_to_the_calling_thread,
          heap_bytes_grow_with_what_is_in_use, first_allocations_of_a_warmed_thread_take_hardly_a_page_fault,
          warming_is_bounded_and_keeps_nothing, pages_are_zeroed_and_aligned_and_do_not_overlap,
          pages_go_back_to_the_system_when_they_are_freed, arena_memory_is_aligned_and_does_not_overlap,
          arena_after_reset_allocates_nothing_for_the_same_requests, arena_without_memory_returns_null_and_stays_usable,
          arena_calloc_clears_reused_memory, arena_whose_requests_grow_keeps_room_for_the_last_ones,
          arena_without_memory_for_a_larger_block_stays_usable, trimmed_arena_keeps_what_it_may_and_can_be_used_again)
