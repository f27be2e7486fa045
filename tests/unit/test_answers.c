/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/answers.h"
#include "base/mem.h"
#include "daemon/identity.h"
#include "tests/unit/unit.h"
#include <string.h>

static struct ngd_identities *table;
static struct ngd_identity *identity;
static struct ngd_answers *answers;
static const int method;

static void setup(void)
{
    const struct ngd_identities_params params = {0};

    ck_assert_int_eq(ngd_identities_create(&params, &table), NGD_OK);
    identity = ngd_identity_get(table, "uid:1");
    ck_assert_ptr_nonnull(identity);
    ck_assert_int_eq(ngd_answers_create(identity, &answers), NGD_OK);
}

static void teardown(void)
{
    ngd_answers_destroy(answers);
    ngd_identity_unref(identity);
    ngd_identities_destroy(table);
}

static ngd_answer_place_t begin(struct ngd_asker *asker)
{
    ngd_answer_place_t place;
    uint8_t *data;
    size_t n;

    *asker = (struct ngd_asker){.method = &method, .request_id = "r"};
    ngd_list_init(&asker->link);
    place = ngd_answers_begin(answers, asker, 1, &data, &n);
    ngd_free(data);
    return place;
}

/* A leader, and three that wait. */
static void lead_and_wait(struct ngd_asker *askers)
{
    ck_assert_int_eq(begin(&askers[0]), NGD_ANSWER_LEADS);
    for (int i = 1; i < 4; i++)
        ck_assert_int_eq(begin(&askers[i]), NGD_ANSWER_WAITS);
}

START_TEST(those_that_wait_are_handed_over_once_and_in_order)
{
    struct ngd_asker askers[4];
    struct ngd_list waiting;

    setup();
    ngd_list_init(&waiting);
    lead_and_wait(askers);
    ngd_answers_succeeded(answers, &askers[0], (const uint8_t *)"abc", 3, &waiting);
    for (int i = 1; i < 4; i++) {
        ck_assert_msg(!ngd_answers_leave(answers, &askers[i]), "who ended the leader has it");
        ck_assert_ptr_eq(ngd_asker_pop(&waiting), &askers[i]);
    }
    ck_assert(ngd_list_empty(&waiting));
    ck_assert_int_eq(begin(&askers[1]), NGD_ANSWER_GIVEN);
    teardown();
}
END_TEST

START_TEST(one_that_leaves_is_not_handed_over)
{
    struct ngd_asker askers[4];
    struct ngd_list waiting;

    setup();
    ngd_list_init(&waiting);
    lead_and_wait(askers);
    ck_assert(ngd_answers_leave(answers, &askers[2]));
    ck_assert_msg(!ngd_answers_leave(answers, &askers[2]), "it left already");
    ck_assert_msg(!ngd_answers_leave(answers, &askers[0]), "a leader does not wait");
    ck_assert_ptr_null(ngd_answers_failed(answers, &askers[0], false, &waiting));
    ck_assert_ptr_eq(ngd_asker_pop(&waiting), &askers[1]);
    ck_assert_ptr_eq(ngd_asker_pop(&waiting), &askers[3]);
    ck_assert(ngd_list_empty(&waiting));
    ck_assert_int_eq(begin(&askers[0]), NGD_ANSWER_LEADS);
    teardown();
}
END_TEST

START_TEST(one_that_left_does_not_become_the_leader)
{
    struct ngd_asker askers[4];
    struct ngd_list waiting;

    setup();
    ngd_list_init(&waiting);
    lead_and_wait(askers);
    ck_assert(ngd_answers_leave(answers, &askers[1]));
    ck_assert_ptr_eq(ngd_answers_failed(answers, &askers[0], true, &waiting), &askers[2]);
    ck_assert(ngd_list_empty(&waiting));
    ck_assert_msg(!ngd_answers_leave(answers, &askers[2]), "it leads");
    ck_assert(ngd_answers_leave(answers, &askers[3]));
    ck_assert_ptr_null(ngd_answers_failed(answers, &askers[2], true, &waiting));
    ck_assert(ngd_list_empty(&waiting));
    teardown();
}
END_TEST

UNIT_MAIN("daemon/answers", those_that_wait_are_handed_over_once_and_in_order, one_that_leaves_is_not_handed_over,
          one_that_left_does_not_become_the_leader)
