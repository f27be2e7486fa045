/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "scheduler/program/hot_note.h"
#include "tests/unit/unit.h"
#include <stdio.h>
#include <string.h>

enum { MAX = 8 };

static uint64_t runs_of(const struct ngd_hot_list *list, const char *key)
{
    for (uint32_t i = 0; i < list->n; i++)
        if (strcmp(list->items[i].key, key) == 0)
            return list->items[i].runs;
    return 0;
}

static void add(struct ngd_hot_list *list, const char *key, uint64_t runs)
{
    ngd_hot_list_add(list, key, strlen(key), runs, MAX);
}

static void add_many(struct ngd_hot_list *list, const char *name, uint64_t runs)
{
    for (int i = 0; i < 2 * MAX; i++) {
        char key[32];

        snprintf(key, sizeof(key), "%s%d", name, i);
        add(list, key, runs);
    }
}

START_TEST(a_full_list_keeps_the_keys_that_run_most)
{
    struct ngd_hot_list list = {.items = NULL};

    add_many(&list, "once", 1);
    ck_assert_uint_eq(list.n, MAX);
    add(&list, "often", 40000);
    ck_assert_uint_eq(runs_of(&list, "often"), 40000);
    ck_assert_uint_eq(list.n, MAX);
    add_many(&list, "again", 1); /* no more than those that are there */
    ck_assert_uint_eq(runs_of(&list, "again0"), 0);
    add_many(&list, "twice", 2);
    add(&list, "often", 1);
    ck_assert_uint_eq(runs_of(&list, "often"), 40001);
    ck_assert_uint_eq(runs_of(&list, "twice0"), 2);
    ck_assert_uint_eq(list.n, MAX);
    ngd_hot_list_fini(&list);
}
END_TEST

START_TEST(a_note_with_too_many_keys_is_read_by_their_runs)
{
    struct ngd_hot_list list = {.items = NULL};

    ngd_hot_list_parse(&list, "1\ta\n2\tb\n3\tc\n9\td\n", 2);
    ck_assert_uint_eq(list.n, 2);
    ck_assert_str_eq(list.items[0].key, "d");
    ck_assert_str_eq(list.items[1].key, "c");
    ngd_hot_list_fini(&list);
    ngd_hot_list_add(&list, "x", 1, 1, 0); /* no room at all */
    ck_assert_uint_eq(list.n, 0);
}
END_TEST

START_TEST(without_memory_a_full_list_stays_as_it_is)
{
    struct ngd_hot_list list = {.items = NULL};

    add_many(&list, "once", 1);
    ngd_mem_fail_after(0);
    add(&list, "often", 40000);
    ngd_mem_fail_after(-1);
    ck_assert_uint_eq(runs_of(&list, "often"), 0);
    ck_assert_uint_eq(runs_of(&list, "once0"), 1);
    ck_assert_uint_eq(list.n, MAX);
    ngd_hot_list_fini(&list);
}
END_TEST

UNIT_MAIN("scheduler/program/hot_note", a_full_list_keeps_the_keys_that_run_most,
          a_note_with_too_many_keys_is_read_by_their_runs, without_memory_a_full_list_stays_as_it_is)
