/* SPDX-License-Identifier: Apache-2.0 */
#include "base/handle.h"
#include "base/mem.h"
#include "tests/unit/unit.h"

static int objects[1000];

static struct ngd_handle_table *new_table(uint32_t max)
{
    struct ngd_handle_table *table = NULL;

    ck_assert_int_eq(ngd_handle_table_create(max, &table), NGD_OK);
    return table;
}

START_TEST(id_finds_its_object_until_it_is_removed_and_is_stale_after)
{
    struct ngd_handle_table *table = new_table(10);
    uint64_t id = 0;
    void *obj = NULL;

    ck_assert_int_eq(ngd_handle_add(table, &objects[0], &id), NGD_OK);
    ck_assert_uint_ne(id, 0);
    ck_assert_int_eq(ngd_handle_get(table, id, &obj), NGD_OK);
    ck_assert_ptr_eq(obj, &objects[0]);
    ck_assert_int_eq(ngd_handle_remove(table, id), NGD_OK);
    ck_assert_int_eq(ngd_handle_get(table, id, &obj), NGD_ERR_STALE_ID);
    ck_assert_int_eq(ngd_handle_remove(table, id), NGD_ERR_STALE_ID);
    ck_assert_uint_eq(ngd_handle_count(table), 0);
    ngd_handle_table_destroy(table);
}
END_TEST

START_TEST(id_of_a_reused_slot_does_not_find_the_new_object)
{
    struct ngd_handle_table *table = new_table(1);
    uint64_t old[100], id;
    void *obj;

    for (int i = 0; i < 100; i++) {
        ck_assert_int_eq(ngd_handle_add(table, &objects[i], &old[i]), NGD_OK);
        ck_assert_int_eq(ngd_handle_remove(table, old[i]), NGD_OK);
    }
    ck_assert_int_eq(ngd_handle_add(table, &objects[100], &id), NGD_OK);
    for (int i = 0; i < 100; i++)
        ck_assert_int_eq(ngd_handle_get(table, old[i], &obj), NGD_ERR_STALE_ID);
    ck_assert_int_eq(ngd_handle_get(table, id, &obj), NGD_OK);
    ngd_handle_table_destroy(table);
}
END_TEST

START_TEST(ids_that_were_never_given_out_are_unknown)
{
    struct ngd_handle_table *table = new_table(10);
    uint64_t id;
    void *obj;

    ck_assert_int_eq(ngd_handle_get(table, 0, &obj), NGD_ERR_UNKNOWN_ID);
    ck_assert_int_eq(ngd_handle_get(table, 1, &obj), NGD_ERR_UNKNOWN_ID);
    ck_assert_int_eq(ngd_handle_get(table, UINT64_MAX, &obj), NGD_ERR_UNKNOWN_ID);
    ck_assert_int_eq(ngd_handle_add(table, &objects[0], &id), NGD_OK);
    ck_assert_int_eq(ngd_handle_get(table, id + 1, &obj), NGD_ERR_UNKNOWN_ID);            /* next slot */
    ck_assert_int_eq(ngd_handle_get(table, id + (1ull << 32), &obj), NGD_ERR_UNKNOWN_ID); /* next generation */
    ck_assert_int_eq(ngd_handle_get(table, id - (1ull << 32), &obj), NGD_ERR_UNKNOWN_ID); /* before the first */
    ck_assert_int_eq(ngd_handle_get(table, id & ~(uint64_t)UINT32_MAX, &obj), NGD_ERR_UNKNOWN_ID);
    ngd_handle_remove(table, id);
    ck_assert_int_eq(ngd_handle_get(table, id + (1ull << 32), &obj), NGD_ERR_UNKNOWN_ID);
    ngd_handle_table_destroy(table);
}
END_TEST

START_TEST(table_refuses_more_than_max_and_takes_again_after_a_removal)
{
    struct ngd_handle_table *table = new_table(40);
    uint64_t id[41];

    for (int i = 0; i < 40; i++)
        ck_assert_int_eq(ngd_handle_add(table, &objects[i], &id[i]), NGD_OK);
    ck_assert_int_eq(ngd_handle_add(table, &objects[40], &id[40]), NGD_ERR_RESOURCE_EXHAUSTED);
    ck_assert_int_eq(ngd_handle_remove(table, id[7]), NGD_OK);
    ck_assert_int_eq(ngd_handle_add(table, &objects[40], &id[40]), NGD_OK);
    ck_assert_uint_eq(ngd_handle_count(table), 40);
    ngd_handle_table_destroy(table);
}
END_TEST

START_TEST(walk_visits_each_object_once)
{
    struct ngd_handle_table *table = new_table(1000);
    static bool seen[1000];
    static uint64_t id[1000];
    uint64_t at;
    uint32_t cursor = 0, n = 0;
    void *obj;

    for (int i = 0; i < 1000; i++)
        ck_assert_int_eq(ngd_handle_add(table, &objects[i], &id[i]), NGD_OK);
    for (int i = 0; i < 1000; i += 3)
        ngd_handle_remove(table, id[i]);
    while (ngd_handle_next(table, &cursor, &at, &obj)) {
        size_t i = (size_t)((int *)obj - objects);

        ck_assert(!seen[i]);
        ck_assert_uint_eq(at, id[i]);
        seen[i] = true;
        n++;
    }
    ck_assert_uint_eq(n, ngd_handle_count(table));
    for (int i = 0; i < 1000; i++)
        ck_assert_int_eq(seen[i], i % 3 != 0);
    ngd_handle_table_destroy(table);
}
END_TEST

START_TEST(two_tables_do_not_share_ids)
{
    /* Equal with a probability of 2^-32 each. */
    struct ngd_handle_table *a = new_table(1), *b = new_table(1);
    uint64_t id_a, id_b;

    ngd_handle_add(a, &objects[0], &id_a);
    ngd_handle_add(b, &objects[0], &id_b);
    ck_assert_uint_ne(id_a, id_b);
    ngd_handle_table_destroy(a);
    ngd_handle_table_destroy(b);
    ngd_handle_table_destroy(NULL);
}
END_TEST

START_TEST(out_of_memory_at_any_allocation_leaves_the_table_whole)
{
    struct ngd_handle_table *table = NULL;
    uint64_t id = 0, unused;
    void *obj;

    ngd_mem_fail_after(0);
    ck_assert_int_eq(ngd_handle_table_create(10, &table), NGD_ERR_NO_MEMORY);
    ngd_mem_fail_after(-1);
    ck_assert_ptr_null(table);
    table = new_table(100);
    for (int i = 0; i < 16; i++)
        ck_assert_int_eq(ngd_handle_add(table, &objects[i], &id), NGD_OK);
    ngd_mem_fail_after(0);
    ck_assert_int_eq(ngd_handle_add(table, &objects[16], &unused), NGD_ERR_NO_MEMORY);
    ngd_mem_fail_after(-1);
    ck_assert_uint_eq(ngd_handle_count(table), 16);
    ck_assert_int_eq(ngd_handle_get(table, id, &obj), NGD_OK);
    ck_assert_int_eq(ngd_handle_add(table, &objects[16], &id), NGD_OK);
    ngd_handle_table_destroy(table);
}
END_TEST

START_TEST(table_of_another_process_goes_on_with_its_ids)
{
    struct ngd_handle_table *from = new_table(10), *to = new_table(10);
    struct ngd_handle_origin origin;
    uint64_t ids[4], id;
    void *obj;

    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(ngd_handle_add(from, &objects[i], &ids[i]), NGD_OK);
    ck_assert_int_eq(ngd_handle_remove(from, ids[1]), NGD_OK);
    ck_assert_int_eq(ngd_handle_remove(from, ids[3]), NGD_OK);
    origin = ngd_handle_origin(from);
    ck_assert_int_eq(ngd_handle_begin_at(to, (struct ngd_handle_origin){origin.generation, 11}),
                     NGD_ERR_INVALID_ARGUMENT);
    ck_assert_int_eq(ngd_handle_begin_at(to, origin), NGD_OK);
    ck_assert_int_eq(ngd_handle_put(to, &objects[2], ids[2]), NGD_OK);
    ck_assert_int_eq(ngd_handle_put(to, &objects[0], ids[0]), NGD_OK);
    ck_assert_int_eq(ngd_handle_put(to, &objects[0], ids[0]), NGD_ERR_INVALID_ARGUMENT);
    for (uint64_t bad = 0; bad < 12; bad += bad == 0 ? 5 : 1) /* no slot, or one that was never used */
        ck_assert_int_eq(ngd_handle_put(to, &objects[0], (uint64_t)origin.generation << 32 | bad),
                         NGD_ERR_INVALID_ARGUMENT);
    ck_assert_int_eq(ngd_handle_get(to, ids[2], &obj), NGD_OK);
    ck_assert_ptr_eq(obj, &objects[2]);
    ck_assert_int_eq(ngd_handle_get(to, ids[1], &obj), NGD_ERR_STALE_ID);
    for (int i = 0; i < 6; i++) { /* new ids are in other slots */
        ck_assert_int_eq(ngd_handle_add(to, &objects[10 + i], &id), NGD_OK);
        ck_assert_int_eq(ngd_handle_get(from, id, &obj), NGD_ERR_UNKNOWN_ID);
    }
    ck_assert_int_eq(ngd_handle_remove(to, ids[0]), NGD_OK);
    ck_assert_int_eq(ngd_handle_get(to, ids[0], &obj), NGD_ERR_STALE_ID);
    ngd_handle_table_destroy(from);
    ngd_handle_table_destroy(to);
}
END_TEST

UNIT_MAIN("base/handle", table_of_another_process_goes_on_with_its_ids,
          id_finds_its_object_until_it_is_removed_and_is_stale_after, id_of_a_reused_slot_does_not_find_the_new_object,
          ids_that_were_never_given_out_are_unknown, table_refuses_more_than_max_and_takes_again_after_a_removal,
          walk_visits_each_object_once, two_tables_do_not_share_ids,
          out_of_memory_at_any_allocation_leaves_the_table_whole)
