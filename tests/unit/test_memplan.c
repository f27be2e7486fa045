/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "graphs/memplan.h"
#include "tests/unit/unit.h"
#include <stdbool.h>
#include <string.h>
#include <time.h>

#define ALIGN 64

static uint64_t rng_state;

static uint64_t rng(void)
{
    rng_state ^= rng_state << 13;
    rng_state ^= rng_state >> 7;
    rng_state ^= rng_state << 17;
    return rng_state;
}

static uint64_t up(uint64_t v)
{
    return (v + ALIGN - 1) & ~(uint64_t)(ALIGN - 1);
}

/* Checks every pair of blocks. Plain comparisons in the loop, because an assertion of libcheck costs more than
 * planning. */
static void verify(const struct ngd_memplan_block *b, uint32_t n, uint64_t peak)
{
    for (uint32_t i = 0; i < n; i++) {
        ck_assert_uint_eq(b[i].offset % ALIGN, 0);
        ck_assert_uint_le(b[i].offset + up(b[i].bytes), peak);
        for (uint32_t j = i + 1; j < n; j++) {
            bool meet = b[i].first <= b[j].last && b[j].first <= b[i].last;
            bool overlap = b[i].offset < b[j].offset + b[j].bytes && b[j].offset < b[i].offset + b[i].bytes;

            if (meet && overlap && b[i].bytes && b[j].bytes)
                ck_abort_msg("blocks %u and %u overlap", i, j);
        }
    }
}

static double plan_and_verify(struct ngd_memplan_block *b, uint32_t n)
{
    uint64_t peak = 1, bound = 1;

    ck_assert_int_eq(ngd_memplan(b, n, ALIGN, &peak, &bound), NGD_OK);
    ck_assert_uint_ge(peak, bound);
    verify(b, n, peak);
    return bound ? (double)peak / (double)bound : 1.0;
}

struct builder {
    struct ngd_memplan_block blocks[4096];
    uint32_t n, step;
};

/* Adds a result of the current step; use() sets its last use. */
static uint32_t make(struct builder *b, uint64_t bytes)
{
    b->blocks[b->n] = (struct ngd_memplan_block){.bytes = bytes, .first = b->step, .last = b->step};
    return b->n++;
}

static void use(struct builder *b, uint32_t block)
{
    b->blocks[block].last = b->step;
}

struct shape {
    uint64_t rows, hidden, heads, kv_heads, head_dim, ffn, vocab, elem;
    uint32_t layers;
};

static uint32_t norm(struct builder *b, const struct shape *s, uint32_t x)
{
    uint32_t y = make(b, s->rows * s->hidden * s->elem);

    make(b, s->rows * 4); /* rstd, which is never read */
    use(b, x);
    b->step++;
    return y;
}

static uint32_t linear(struct builder *b, const struct shape *s, uint32_t x, uint64_t out)
{
    uint32_t y = make(b, s->rows * out * s->elem);

    make(b, s->rows * 256 + 4096); /* workspace */
    use(b, x);
    b->step++;
    return y;
}

static uint32_t combine(struct builder *b, uint32_t x, uint32_t y)
{
    uint32_t z = make(b, b->blocks[x].bytes);

    use(b, x);
    use(b, y);
    b->step++;
    return z;
}

static uint32_t decoder_layer(struct builder *b, const struct shape *s, uint32_t x, uint32_t rope)
{
    uint32_t n = norm(b, s, x), q, k, v, a, gate, up_;

    q = linear(b, s, n, s->heads * s->head_dim);
    k = linear(b, s, n, s->kv_heads * s->head_dim);
    v = linear(b, s, n, s->kv_heads * s->head_dim);
    q = combine(b, combine(b, q, q), rope);
    k = combine(b, combine(b, k, k), rope);
    use(b, k); /* scatter into the cache */
    use(b, v);
    b->step++;
    a = combine(b, q, q);
    x = combine(b, x, linear(b, s, a, s->hidden));
    n = norm(b, s, x);
    gate = linear(b, s, n, s->ffn);
    up_ = linear(b, s, n, s->ffn);
    gate = combine(b, combine(b, gate, gate), up_);
    return combine(b, x, linear(b, s, gate, s->hidden));
}

static void decoder(struct builder *b, const struct shape *s)
{
    uint32_t inputs[6], rope, x;

    memset(b, 0, sizeof(*b));
    for (int i = 0; i < 6; i++)
        inputs[i] = make(b, s->rows * (i == 5 ? 512 : 8));
    rope = make(b, s->rows * s->head_dim * 8);
    x = make(b, s->rows * s->hidden * s->elem);
    b->step++;
    for (uint32_t l = 0; l < s->layers; l++)
        x = decoder_layer(b, s, x, rope);
    for (int i = 0; i < 6; i++)
        use(b, inputs[i]);
    x = linear(b, s, norm(b, s, x), s->vocab);
    make(b, s->rows * 4);
    use(b, x);
}

START_TEST(peak_of_decoders_is_within_5_percent_of_the_lower_bound)
{
    static struct builder b;
    static const uint64_t rows[] = {1, 2, 3, 8, 16, 37, 128, 512};
    static const struct shape shapes[] = {
        {0, 1024, 16, 8, 128, 3072, 151936, 2, 28},
        {0, 1024, 16, 8, 128, 3072, 151936, 4, 28},
        {0, 4096, 32, 8, 128, 14336, 128256, 2, 32},
        {0, 64, 4, 2, 16, 192, 512, 4, 28},
        {0, 96, 6, 1, 16, 160, 50, 4, 3},
        {0, 2048, 32, 32, 64, 5632, 32000, 2, 22},
    };

    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        for (size_t r = 0; r < sizeof(rows) / sizeof(rows[0]); r++) {
            struct shape s = shapes[i];
            double ratio;

            s.rows = rows[r];
            decoder(&b, &s);
            ratio = plan_and_verify(b.blocks, b.n);
            ck_assert_msg(ratio <= 1.05, "shape %zu, %u rows: %.4f", i, (unsigned)s.rows, ratio);
        }
    }
}
END_TEST

START_TEST(blocks_of_random_graphs_do_not_overlap)
{
    static struct ngd_memplan_block b[800];
    double worst = 1, sum = 0;

    rng_state = 88172645463325252u;
    for (int round = 0; round < 30; round++) {
        uint32_t n = 1 + (uint32_t)(rng() % 800), steps = 1 + (uint32_t)(rng() % 400),
                 span = 1 + (uint32_t)(rng() % 40);
        double ratio;

        for (uint32_t i = 0; i < n; i++) {
            uint32_t first = (uint32_t)(rng() % steps);

            b[i] = (struct ngd_memplan_block){
                .bytes = rng() % (1u << (1 + rng() % 20)), .first = first, .last = first + (uint32_t)(rng() % span)};
        }
        ratio = plan_and_verify(b, n);
        worst = ratio > worst ? ratio : worst;
        sum += ratio;
    }
    ck_assert_msg(sum / 30 <= 1.05 && worst <= 1.25, "mean %.3f, worst %.3f", sum / 30, worst);
}
END_TEST

START_TEST(blocks_that_never_meet_share_memory)
{
    struct ngd_memplan_block b[3] = {{1000, 0, 1, 0}, {1000, 2, 3, 0}, {1000, 4, 9, 0}};
    uint64_t peak, bound;

    ck_assert_int_eq(ngd_memplan(b, 3, ALIGN, &peak, &bound), NGD_OK);
    ck_assert_uint_eq(peak, 1024);
    ck_assert_uint_eq(bound, 1024);
}
END_TEST

START_TEST(last_step_of_one_and_first_of_another_is_a_meeting)
{
    struct ngd_memplan_block b[2] = {{64, 0, 1, 0}, {64, 1, 2, 0}};
    uint64_t peak, bound;

    ck_assert_int_eq(ngd_memplan(b, 2, ALIGN, &peak, &bound), NGD_OK);
    ck_assert_uint_eq(peak, 128);
}
END_TEST

START_TEST(blocks_of_no_bytes_and_no_blocks_need_no_memory)
{
    struct ngd_memplan_block b[2] = {{0, 0, 100, 7}, {0, 3, 3, 7}};
    uint64_t peak = 1, bound = 1;

    ck_assert_int_eq(ngd_memplan(b, 2, ALIGN, &peak, &bound), NGD_OK);
    ck_assert_uint_eq(peak, 0);
    ck_assert_uint_eq(b[0].offset, 0);
    ck_assert_int_eq(ngd_memplan(NULL, 0, ALIGN, &peak, &bound), NGD_OK);
    ck_assert_uint_eq(bound, 0);
}
END_TEST

START_TEST(sizes_beyond_int64_and_bad_arguments_are_refused)
{
    struct ngd_memplan_block b[2] = {{UINT64_MAX, 0, 0, 0}, {64, 0, 0, 0}};
    uint64_t peak = 7, bound = 7;

    ck_assert_int_eq(ngd_memplan(b, 2, ALIGN, &peak, &bound), NGD_ERR_OVERFLOW);
    b[0].bytes = b[1].bytes = (uint64_t)1 << 62;
    ck_assert_int_eq(ngd_memplan(b, 2, ALIGN, &peak, &bound), NGD_ERR_OVERFLOW);
    b[0] = (struct ngd_memplan_block){64, 2, 1, 0};
    ck_assert_int_eq(ngd_memplan(b, 1, ALIGN, &peak, &bound), NGD_ERR_INVALID_ARGUMENT);
    ck_assert_int_eq(ngd_memplan(b, 1, 48, &peak, &bound), NGD_ERR_INVALID_ARGUMENT);
    ck_assert_uint_eq(peak, 7);
}
END_TEST

START_TEST(same_blocks_get_the_same_offsets)
{
    static struct ngd_memplan_block a[300], b[300];
    uint64_t pa, pb, bound;

    rng_state = 12345;
    for (uint32_t i = 0; i < 300; i++) {
        a[i] =
            (struct ngd_memplan_block){.bytes = rng() % 5000, .first = i / 3, .last = i / 3 + (uint32_t)(rng() % 30)};
        b[i] = a[i];
        b[i].offset = 999;
    }
    ck_assert_int_eq(ngd_memplan(a, 300, ALIGN, &pa, &bound), NGD_OK);
    ck_assert_int_eq(ngd_memplan(b, 300, ALIGN, &pb, &bound), NGD_OK);
    for (uint32_t i = 0; i < 300; i++)
        ck_assert_uint_eq(a[i].offset, b[i].offset);
}
END_TEST

/* Checks by a sweep, because n * n pairs would take longer than the planning. */
static void verify_all_live(const struct ngd_memplan_block *b, uint32_t n, uint64_t peak)
{
    uint8_t *owned = ngd_calloc(1, peak / ALIGN + 1);

    ck_assert_ptr_nonnull(owned);
    for (uint32_t i = 0; i < n; i++) {
        for (uint64_t u = b[i].offset / ALIGN; u < (b[i].offset + up(b[i].bytes)) / ALIGN; u++) {
            if (owned[u]++)
                ck_abort_msg("block %u overlaps another", i);
        }
    }
    ngd_free(owned);
}

START_TEST(planning_65536_blocks_takes_seconds_at_most)
{
    enum { N = 65536 };
    struct ngd_memplan_block *b = NGD_NEW_N(struct ngd_memplan_block, N);
    uint64_t peak, bound;
    clock_t began;

    ck_assert_ptr_nonnull(b);
    rng_state = 99;
    for (int kind = 0; kind < 3; kind++) {
        for (uint32_t i = 0; i < N; i++) {
            uint32_t first = kind == 0 ? 0 : i, life = kind == 0 ? N : kind == 1 ? 4 : (uint32_t)(rng() % N);

            b[i] = (struct ngd_memplan_block){.bytes = 1 + rng() % 4096, .first = first, .last = first + life};
        }
        began = clock();
        ck_assert_int_eq(ngd_memplan(b, N, ALIGN, &peak, &bound), NGD_OK);
        /* CPU time of this process, so that the load of the machine does not count; generous for sanitizers. A
         * quadratic planner takes minutes. */
        ck_assert_int_lt((clock() - began) / CLOCKS_PER_SEC, 40);
        if (kind == 0)
            verify_all_live(b, N, peak);
        ck_assert_msg((double)peak <= 1.3 * (double)bound, "kind %d: %f", kind, (double)peak / (double)bound);
    }
    ngd_free(b);
}
END_TEST

START_TEST(every_failed_allocation_is_reported)
{
    struct ngd_memplan_block b[3] = {{100, 0, 1, 5}, {1000, 1, 3, 5}, {300, 2, 4, 5}};
    ngd_status_t status = NGD_ERR_NO_MEMORY;
    uint64_t peak = 7, bound = 7;
    int n = 0;

    while (status == NGD_ERR_NO_MEMORY && n < 100) {
        ngd_mem_fail_after(n++);
        status = ngd_memplan(b, 3, ALIGN, &peak, &bound);
        ngd_mem_fail_after(-1);
        ck_assert_int_eq(peak == 7, status == NGD_ERR_NO_MEMORY);
    }
    ck_assert_int_eq(status, NGD_OK);
    ck_assert_int_gt(n, 5);
}
END_TEST

UNIT_MAIN("graphs/memplan", peak_of_decoders_is_within_5_percent_of_the_lower_bound,
          blocks_of_random_graphs_do_not_overlap, blocks_that_never_meet_share_memory,
          last_step_of_one_and_first_of_another_is_a_meeting, blocks_of_no_bytes_and_no_blocks_need_no_memory,
          sizes_beyond_int64_and_bad_arguments_are_refused, same_blocks_get_the_same_offsets,
          planning_65536_blocks_takes_seconds_at_most, every_failed_allocation_is_reported)
