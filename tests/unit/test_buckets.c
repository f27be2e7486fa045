/* SPDX-License-Identifier: Apache-2.0 */
#include "graphs/buckets.h"
#include "base/lock.h"
#include "base/mem.h"
#include "tests/unit/graph_util.h"
#include <pthread.h>

static uint64_t rng_state = 88172645463325252u;

static uint64_t rng(void)
{
    rng_state ^= rng_state << 13;
    rng_state ^= rng_state >> 7;
    rng_state ^= rng_state << 17;
    return rng_state;
}

/* ---- sizes -------------------------------------------------------------------------------------------- */

START_TEST(sizes_are_counted_and_read_in_order)
{
    struct ngd_sizes *s = NGD_NEW(struct ngd_sizes);
    struct ngd_size_count list[NGD_SIZES_MAX];

    ck_assert_uint_eq(ngd_sizes_read(s, list), 0);
    for (int i = 0; i < 5; i++)
        ngd_sizes_note(s, 40);
    ngd_sizes_note(s, 0);
    ngd_sizes_note(s, 7);
    ngd_sizes_note(s, 7);
    ck_assert_uint_eq(ngd_sizes_read(s, list), 3);
    ck_assert(list[0].size == 0 && list[0].count == 1);
    ck_assert(list[1].size == 7 && list[1].count == 2);
    ck_assert(list[2].size == 40 && list[2].count == 5);
    ngd_sizes_clear(s);
    ck_assert_uint_eq(ngd_sizes_read(s, list), 0);
    ngd_sizes_note(s, 7);
    ck_assert_uint_eq(ngd_sizes_read(s, list), 1);
    ngd_free(s);
}
END_TEST

START_TEST(sizes_without_a_place_count_at_the_next_larger_one_or_beyond)
{
    struct ngd_sizes *s = NGD_NEW(struct ngd_sizes);
    struct ngd_size_count list[NGD_SIZES_MAX];
    uint64_t counted = 0;

    for (int64_t i = 0; i < NGD_SIZES_MAX; i++)
        ngd_sizes_note(s, 10 * i);
    for (int64_t i = 0; i < 100; i++)
        ngd_sizes_note(s, 10 * i + 5);
    ngd_sizes_note(s, 10 * NGD_SIZES_MAX);
    ck_assert_uint_eq(ngd_sizes_read(s, list), NGD_SIZES_MAX);
    ck_assert_uint_eq(atomic_load(&s->beyond), 1);
    for (uint32_t i = 0; i < NGD_SIZES_MAX; i++) {
        counted += list[i].count;
        ck_assert_uint_eq(list[i].count, i >= 1 && i <= 100 ? 2 : 1);
    }
    ck_assert_uint_eq(counted, NGD_SIZES_MAX + 100);
    ngd_free(s);
}
END_TEST

#define NOTES 200000

static void *note_many(void *arg)
{
    for (int i = 0; i < NOTES; i++)
        ngd_sizes_note(arg, i * 7919 % 97);
    return NULL;
}

START_TEST(counts_of_threads_add_up)
{
    struct ngd_sizes *s = NGD_NEW(struct ngd_sizes);
    struct ngd_size_count list[NGD_SIZES_MAX];
    pthread_t threads[4];
    uint64_t sum = 0;
    uint32_t n;

    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(ngd_thread_start(&threads[i], "note", note_many, s), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    n = ngd_sizes_read(s, list);
    ck_assert_uint_eq(n, 97);
    for (uint32_t i = 0; i < n; i++)
        sum += list[i].count;
    ck_assert_uint_eq(sum, 4 * NOTES);
    ngd_free(s);
}
END_TEST

/* ---- proposals ---------------------------------------------------------------------------------------- */

/* Returns the least padding of list[0..n) with at most k buckets, by trying all sets. */
static uint64_t try_all(const struct ngd_size_count *list, uint32_t n, uint32_t k)
{
    uint64_t best = UINT64_MAX;

    for (uint32_t mask = 0; mask < 1u << n; mask++) {
        struct ngd_bucket_set set = {0};
        uint64_t padding;

        if ((uint32_t)__builtin_popcount(mask) > k || !(mask & (1u << (n - 1))))
            continue;
        for (uint32_t i = 0; i < n; i++)
            if (mask & (1u << i))
                set.sizes[set.n++] = list[i].size;
        padding = ngd_buckets_padding(&set, list, n);
        best = padding < best ? padding : best;
    }
    return best;
}

START_TEST(proposal_pads_as_little_as_any_set)
{
    for (int round = 0; round < 300; round++) {
        struct ngd_size_count list[10];
        uint32_t n = 1 + (uint32_t)(rng() % 10), k = 1 + (uint32_t)(rng() % 10);
        struct ngd_bucket_set set;
        int64_t size = 0, max;

        for (uint32_t i = 0; i < n; i++) {
            size += (int64_t)(1 + rng() % (1u << rng() % 10));
            list[i] = (struct ngd_size_count){size, 1 + rng() % (1u << rng() % 12)};
        }
        max = size + (int64_t)(rng() % 3);
        ck_assert_int_eq(ngd_buckets_propose(list, n, k, max, &set, NULL), NGD_OK);
        ck_assert_uint_le(set.n, k + (max > size));
        ck_assert_int_eq(set.sizes[set.n - 1], max);
        for (uint32_t i = 1; i < set.n; i++)
            ck_assert_int_lt(set.sizes[i - 1], set.sizes[i]);
        ck_assert_uint_eq(ngd_buckets_padding(&set, list, n), try_all(list, n, k));
    }
}
END_TEST

START_TEST(proposal_for_many_sizes_and_captures_is_quick_and_never_worse_with_more_captures)
{
    static struct ngd_size_count list[NGD_SIZES_MAX];
    uint64_t before = UINT64_MAX;
    struct ngd_bucket_set set;

    for (uint32_t i = 0; i < NGD_SIZES_MAX; i++)
        list[i] = (struct ngd_size_count){(int64_t)i * 11 + (int64_t)(rng() % 10), 1 + rng() % 1000};
    for (uint32_t k = 1; k < NGD_MAX_BUCKETS; k++) {
        uint64_t padding;

        ck_assert_int_eq(ngd_buckets_propose(list, NGD_SIZES_MAX, k, 10000, &set, NULL), NGD_OK);
        padding = ngd_buckets_padding(&set, list, NGD_SIZES_MAX);
        ck_assert_uint_lt(padding, before);
        before = padding;
    }
}
END_TEST

START_TEST(proposal_without_sizes_is_the_maximum_and_bad_numbers_are_refused)
{
    struct ngd_size_count one = {9, 1};
    struct ngd_bucket_set set = {0};
    struct ngd_diag diag = {0};

    ck_assert_int_eq(ngd_buckets_propose(NULL, 0, 4, 64, &set, &diag), NGD_OK);
    ck_assert(set.n == 1 && set.sizes[0] == 64);
    ck_assert_int_eq(ngd_buckets_propose(&one, 1, 0, 64, &set, &diag), NGD_ERR_INVALID_ARGUMENT);
    ck_assert_int_eq(ngd_buckets_propose(&one, 1, NGD_MAX_BUCKETS, 64, &set, &diag), NGD_ERR_INVALID_ARGUMENT);
    ck_assert_int_eq(ngd_buckets_propose(&one, 1, 2, 8, &set, &diag), NGD_ERR_INVALID_ARGUMENT);
    ck_assert_str_eq(diag.text, "size 9 is above the symbol's maximum 8");
}
END_TEST

START_TEST(sets_that_a_symbol_cannot_have_are_refused_in_words)
{
    struct ngd_graph *g = parse_body("sym B 2..16 buckets 4, 16\n sym N 1..4\n input %x : f32[B,N]\n"
                                     " %y = aten.neg(%x)\n return %y");
    static const struct {
        uint32_t symbol;
        struct ngd_bucket_set set;
        const char *says;
    } bad[] = {
        {1, {1, {4}}, "is exact"},         {0, {0, {0}}, "takes 1 to"},
        {0, {2, {8, 8}}, "not ascending"}, {0, {2, {1, 16}}, "not ascending within 2..16"},
        {0, {1, {17}}, "not ascending"},   {0, {2, {4, 15}}, "below its maximum 16"},
    };
    struct ngd_bucket_set good = {3, {2, 5, 16}}, present;

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct ngd_diag diag = {0};

        ck_assert_int_eq(ngd_buckets_check(&g->symbols[bad[i].symbol], &bad[i].set, &diag), NGD_ERR_INVALID_ARGUMENT);
        ck_assert_msg(strstr(diag.text, bad[i].says) != NULL, "%s", diag.text);
    }
    ck_assert_int_eq(ngd_buckets_check(&g->symbols[0], &good, NULL), NGD_OK);
    ngd_buckets_of_symbol(&g->symbols[0], &present);
    ck_assert(present.n == 2 && present.sizes[0] == 4 && present.sizes[1] == 16);
    ngd_buckets_of_symbol(&g->symbols[1], &present);
    ck_assert_uint_eq(present.n, 0);
    ngd_graph_unref(g);
}
END_TEST

UNIT_MAIN("graphs/buckets", sizes_are_counted_and_read_in_order,
          sizes_without_a_place_count_at_the_next_larger_one_or_beyond, counts_of_threads_add_up,
          proposal_pads_as_little_as_any_set,
          proposal_for_many_sizes_and_captures_is_quick_and_never_worse_with_more_captures,
          proposal_without_sizes_is_the_maximum_and_bad_numbers_are_refused,
          sets_that_a_symbol_cannot_have_are_refused_in_words)
