/* SPDX-License-Identifier: Apache-2.0 */
#include "base/list.h"
#include "tests/unit/unit.h"

struct item {
    int v;
    struct ngd_list link;
};

START_TEST(elements_come_in_the_order_of_insertion)
{
    struct ngd_list head;
    struct item a = {.v = 1}, b = {.v = 2}, c = {.v = 0};
    int want = 0;

    ngd_list_init(&head);
    ck_assert(ngd_list_empty(&head));
    ngd_list_push_back(&head, &a.link);
    ngd_list_push_back(&head, &b.link);
    ngd_list_push_front(&head, &c.link);
    ngd_list_for_each (pos, &head)
        ck_assert_int_eq(ngd_container_of(pos, struct item, link)->v, want++);
    ck_assert_int_eq(want, 3);
}
END_TEST

START_TEST(removal_while_walking_is_safe_and_repeatable)
{
    struct ngd_list head;
    struct item items[5];

    ngd_list_init(&head);
    for (int i = 0; i < 5; i++)
        ngd_list_push_back(&head, &items[i].link);
    ngd_list_for_each_safe (pos, tmp, &head) {
        ngd_list_remove(pos);
        ngd_list_remove(pos);
    }
    ck_assert(ngd_list_empty(&head));
    ck_assert_ptr_null(ngd_list_pop_front(&head));
}
END_TEST

UNIT_MAIN("base/list", elements_come_in_the_order_of_insertion, removal_while_walking_is_safe_and_repeatable)
