/* SPDX-License-Identifier: Apache-2.0 */
/* Tests which layers share a block table, and what a context holds in them. */
#include "client/hf/kv_groups.h"
#include "tests/unit/unit.h"
#include <stdio.h>
#include <string.h>

enum { MOST_LAYERS = 64, ROWS = 256 };

static struct npugraph__cache caches[MOST_LAYERS];
static struct npugraph__checkpoint ck = {.caches = caches};

/* Layers of which each every-th one sees all keys, and the others those of a window. every = 0: none sees all. */
static void make_layers(size_t n, size_t every, int64_t window)
{
    ck.n_caches = n;
    for (size_t i = 0; i < n; i++)
        caches[i] = (struct npugraph__cache){
            .heads = 2, .dim = {8, 8}, .placed = true, .window = every != 0 && (i + 1) % every == 0 ? 0 : window};
}

static struct npugraph__shape shape_of(uint32_t max_context)
{
    struct npugraph__shape shape = {.max_context = max_context, .block_size = 16};

    npugraph__groups_choose(&ck, max_context, ROWS, &shape.groups);
    return shape;
}

/* Checks that no two layers have one place, and that each is in a group with its window. */
static void check_places(const struct npugraph__shape *shape)
{
    static bool taken[NPUGRAPH__KV_GROUPS][MOST_LAYERS];

    memset(taken, 0, sizeof(taken));
    for (size_t i = 0; i < ck.n_caches; i++) {
        uint32_t group;
        size_t state;

        npugraph__groups_place(&ck, shape, i, &group, &state);
        ck_assert_uint_lt(group, shape->groups.n);
        ck_assert_uint_lt(state, npugraph__kv_states(&ck, &shape->groups));
        ck_assert(!taken[group][state]);
        taken[group][state] = true;
        ck_assert_int_eq(shape->groups.windows[group], caches[i].window < shape->max_context ? caches[i].window : 0);
    }
}

START_TEST(layers_are_divided_so_that_the_longest_context_holds_least)
{
    static const struct {
        size_t layers, every;
        int64_t window;
        uint32_t max_context, groups, states;
    } cases[] = {
        {62, 6, 1024, 32768, 7, 10}, /* Gemma 3 27B */
        {26, 6, 512, 32768, 7, 4},   /* Gemma 3 1B: 22 with a window, 4 without */
        {26, 2, 4096, 8192, 2, 13},  /* Gemma 2 2B */
        {24, 2, 128, 131072, 2, 12}, /* gpt-oss 20B */
        {32, 4, 4096, 8192, 4, 8},   /* Cohere2 */
        {3, 2, 11, 512, 3, 1},       {62, 6, 1024, 1024, 1, 62}, {32, 0, 4096, 32768, 1, 32},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct npugraph__shape shape;

        make_layers(cases[i].layers, cases[i].every, cases[i].window);
        shape = shape_of(cases[i].max_context);
        ck_assert_msg(shape.groups.n == cases[i].groups && npugraph__kv_states(&ck, &shape.groups) == cases[i].states,
                      "case %zu: %u groups of %zu", i, shape.groups.n, npugraph__kv_states(&ck, &shape.groups));
        check_places(&shape);
    }
}
END_TEST

/* One group is right for any layers. */
START_TEST(layers_that_cannot_share_states_are_one_group)
{
    struct npugraph__shape shape;

    make_layers(6, 2, 64);
    ck_assert_uint_eq(shape_of(4096).groups.n, 2);
    caches[3].heads = 4;
    ck_assert_uint_eq(shape_of(4096).groups.n, 0);
    make_layers(6, 2, 64);
    caches[5].placed = false;
    ck_assert_uint_eq(shape_of(4096).groups.n, 0);
    make_layers(9, 0, 64);
    for (size_t i = 0; i < 9; i++)
        caches[i].window = 64 + (int64_t)i;
    shape = shape_of(4096);
    ck_assert_uint_eq(shape.groups.n, 0);
    ck_assert_uint_eq(npugraph__kv_states(&ck, &shape.groups), 9);
    make_layers(64, 0, 2000); /* two kinds, of which one saves next to nothing and would pad the other */
    caches[0].window = 0;
    ck_assert_uint_eq(shape_of(2001).groups.n, 0);
}
END_TEST

START_TEST(longest_context_that_fits_is_found)
{
    static const uint32_t patterns[][2] = {{6, 2}, {6, 0}, {5, 3}, {4, 1}};

    for (size_t p = 0; p < sizeof(patterns) / sizeof(patterns[0]); p++) {
        struct npugraph__shape shape;

        make_layers(patterns[p][0], patterns[p][1], 100);
        shape = shape_of(1000);
        for (uint64_t blocks = 0; blocks < 260; blocks++) {
            const uint32_t got = npugraph__groups_context(&shape.groups, 16, ROWS, blocks, 1000);

            ck_assert_uint_le(npugraph__groups_blocks(&shape.groups, 16, ROWS, got), blocks);
            ck_assert(got == 1000 || npugraph__groups_blocks(&shape.groups, 16, ROWS, got + 1) > blocks);
        }
    }
}
END_TEST

UNIT_MAIN("client/kv_groups", layers_are_divided_so_that_the_longest_context_holds_least,
          layers_that_cannot_share_states_are_one_group, longest_context_that_fits_is_found)
