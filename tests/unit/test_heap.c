/* SPDX-License-Identifier: Apache-2.0 */
#include "base/heap.h"
#include "tests/unit/unit.h"
#include <stdint.h>

struct item {
    struct ngd_heap_node node;
    uint32_t key;
    bool in;
};

static bool before(const struct ngd_heap_node *a, const struct ngd_heap_node *b)
{
    return ngd_container_of(a, struct item, node)->key < ngd_container_of(b, struct item, node)->key;
}

static uint32_t draw(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

START_TEST(elements_leave_in_order)
{
    struct ngd_heap heap;
    struct item items[500];
    uint32_t state = 1, last = 0;

    ngd_heap_init(&heap, before);
    ck_assert(ngd_heap_empty(&heap));
    ck_assert_ptr_null(ngd_heap_first(&heap));
    for (int i = 0; i < 500; i++) {
        items[i].key = draw(&state) % 100;
        ngd_heap_push(&heap, &items[i].node);
    }
    for (int i = 0; i < 500; i++) {
        struct item *it = ngd_container_of(ngd_heap_first(&heap), struct item, node);

        ck_assert_uint_ge(it->key, last);
        last = it->key;
        ngd_heap_remove(&heap, &it->node);
    }
    ck_assert(ngd_heap_empty(&heap));
}
END_TEST

/* Compares the heap with a search through all elements. */
START_TEST(removal_from_anywhere_keeps_the_order)
{
    enum { N = 64 };
    struct ngd_heap heap;
    struct item items[N] = {0};
    uint32_t state = 7;

    ngd_heap_init(&heap, before);
    for (int step = 0; step < 20000; step++) {
        struct item *it = &items[draw(&state) % N];
        uint32_t least = UINT32_MAX;

        if (it->in) {
            ngd_heap_remove(&heap, &it->node);
        } else {
            it->key = draw(&state) % 1000;
            ngd_heap_push(&heap, &it->node);
        }
        it->in = !it->in;
        for (int i = 0; i < N; i++)
            if (items[i].in && items[i].key < least)
                least = items[i].key;
        ck_assert(ngd_heap_empty(&heap) == (least == UINT32_MAX));
        if (!ngd_heap_empty(&heap))
            ck_assert_uint_eq(ngd_container_of(ngd_heap_first(&heap), struct item, node)->key, least);
    }
}
END_TEST

UNIT_MAIN("heap", elements_leave_in_order, removal_from_anywhere_keeps_the_order)
