/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "scheduler/model/kv.h"
#include "tests/unit/unit.h"
#include <pthread.h>
#include <stdbool.h>
#include <string.h>

START_TEST(blocks_are_all_distinct_and_within_the_total)
{
    struct ngd_kv *kv;
    int32_t blocks[16];
    bool seen[16] = {false};

    ck_assert_int_eq(ngd_kv_create(16, 4, &kv), NGD_OK);
    ck_assert_uint_eq(ngd_kv_total(kv), 16);
    ck_assert_uint_eq(ngd_kv_block_size(kv), 4);
    ck_assert_int_eq(ngd_kv_alloc(kv, 10, blocks, NULL), NGD_OK);
    ck_assert_int_eq(ngd_kv_alloc(kv, 6, blocks + 10, NULL), NGD_OK);
    for (int i = 0; i < 16; i++) {
        ck_assert(blocks[i] >= 0 && blocks[i] < 16);
        ck_assert(!seen[blocks[i]]);
        seen[blocks[i]] = true;
    }
    ck_assert_uint_eq(ngd_kv_used(kv), 16);
    ngd_kv_unref(kv, blocks, 16);
    ck_assert_uint_eq(ngd_kv_used(kv), 0);
    ngd_kv_destroy(kv);
}
END_TEST

START_TEST(more_than_is_free_is_refused_whole)
{
    struct ngd_kv *kv;
    struct ngd_diag diag = {0};
    int32_t blocks[8];

    ck_assert_int_eq(ngd_kv_create(8, 16, &kv), NGD_OK);
    ck_assert_int_eq(ngd_kv_alloc(kv, 6, blocks, NULL), NGD_OK);
    ck_assert_int_eq(ngd_kv_alloc(kv, 3, blocks + 6, &diag), NGD_ERR_KV_EXHAUSTED);
    ck_assert_str_eq(
        diag.text, "3 KV blocks of 16 tokens are needed, but 2 of 8 are free; close a sequence, or give the model more "
                   "blocks");
    ck_assert_uint_eq(ngd_kv_used(kv), 6);
    ck_assert_int_eq(ngd_kv_alloc(kv, 2, blocks + 6, &diag), NGD_OK);
    ck_assert_int_eq(ngd_kv_alloc(kv, 0, NULL, &diag), NGD_OK);
    ngd_kv_unref(kv, blocks, 8);
    ngd_kv_destroy(kv);
}
END_TEST

START_TEST(shared_blocks_are_supposed_free_when_all_their_users_let_go)
{
    struct ngd_kv *kv;
    int32_t ours[3], theirs[3];

    ck_assert_int_eq(ngd_kv_create(4, 1, &kv), NGD_OK);
    ck_assert_int_eq(ngd_kv_alloc(kv, 3, ours, NULL), NGD_OK);
    memcpy(theirs, ours, sizeof(ours));
    ngd_kv_ref(kv, theirs, 2);
    ck_assert_int_eq(ngd_kv_alloc(kv, 1, theirs + 2, NULL), NGD_OK);
    ck_assert_uint_eq(ngd_kv_assume_released(kv, ours, 3), 1);
    ck_assert_uint_eq(ngd_kv_assume_released(kv, theirs, 3), 3);
    ck_assert_uint_eq(ngd_kv_unassume(kv, ours, 3), 3);
    ck_assert_uint_eq(ngd_kv_unassume(kv, theirs, 3), 1);
    ck_assert_uint_eq(ngd_kv_used(kv), 4);
    ngd_kv_unref(kv, ours, 3);
    ngd_kv_unref(kv, theirs, 3);
    ck_assert_uint_eq(ngd_kv_used(kv), 0);
    ngd_kv_destroy(kv);
}
END_TEST

START_TEST(shared_block_is_free_when_its_last_user_lets_go)
{
    struct ngd_kv *kv;
    int32_t blocks[3];

    ck_assert_int_eq(ngd_kv_create(4, 1, &kv), NGD_OK);
    ck_assert_int_eq(ngd_kv_alloc(kv, 3, blocks, NULL), NGD_OK);
    ngd_kv_ref(kv, blocks, 2);
    ngd_kv_unref(kv, blocks, 3);
    ck_assert_uint_eq(ngd_kv_used(kv), 2);
    ngd_kv_unref(kv, blocks, 2);
    ck_assert_uint_eq(ngd_kv_used(kv), 0);
    ngd_kv_destroy(kv);
}
END_TEST

START_TEST(create_refuses_nonsense_and_survives_a_lack_of_memory)
{
    struct ngd_kv *kv;

    ck_assert_int_eq(ngd_kv_create(0, 4, &kv), NGD_ERR_INVALID_ARGUMENT);
    ck_assert_int_eq(ngd_kv_create(4, 0, &kv), NGD_ERR_INVALID_ARGUMENT);
    ck_assert_int_eq(ngd_kv_create(UINT32_MAX, 4, &kv), NGD_ERR_INVALID_ARGUMENT);
    for (int64_t i = 0; i < 3; i++) {
        ngd_mem_fail_after(i);
        ck_assert_int_eq(ngd_kv_create(4, 4, &kv), NGD_ERR_NO_MEMORY);
    }
    ngd_mem_fail_after(-1);
    ngd_kv_destroy(NULL);
}
END_TEST

START_TEST(first_block_that_is_set_aside_is_given_to_nobody)
{
    struct ngd_kv *kv;
    struct ngd_diag diag = {0};
    int32_t blocks[4];

    ck_assert_int_eq(ngd_kv_create(4, 4, &kv), NGD_OK);
    ngd_kv_set_first_aside(kv);
    ck_assert_uint_eq(ngd_kv_total(kv), 3);
    ck_assert_uint_eq(ngd_kv_used(kv), 0);
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(ngd_kv_alloc(kv, 4, blocks, &diag), NGD_ERR_KV_EXHAUSTED);
        ck_assert_ptr_nonnull(strstr(diag.text, "3 of 3 are free"));
        ck_assert_int_eq(ngd_kv_alloc(kv, 3, blocks, NULL), NGD_OK);
        for (int k = 0; k < 3; k++)
            ck_assert_int_ne(blocks[k], 0);
        ngd_kv_unref(kv, blocks, 3);
    }
    ngd_kv_destroy(kv);
}
END_TEST

static void *churn(void *arg)
{
    struct ngd_kv *kv = arg;
    int32_t blocks[5];

    for (uint32_t i = 0; i < 20000; i++) {
        uint32_t n = 1 + i % 5;

        if (ngd_kv_alloc(kv, n, blocks, NULL) == NGD_OK)
            ngd_kv_unref(kv, blocks, n);
    }
    return NULL;
}

START_TEST(threads_that_take_and_give_lose_no_block)
{
    struct ngd_kv *kv;
    pthread_t t[4];

    ck_assert_int_eq(ngd_kv_create(12, 4, &kv), NGD_OK);
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(pthread_create(&t[i], NULL, churn, kv), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(t[i], NULL);
    ck_assert_uint_eq(ngd_kv_used(kv), 0);
    ngd_kv_destroy(kv);
}
END_TEST

UNIT_MAIN("scheduler/kv", blocks_are_all_distinct_and_within_the_total, more_than_is_free_is_refused_whole,
          shared_blocks_are_supposed_free_when_all_their_users_let_go, shared_block_is_free_when_its_last_user_lets_go,
          create_refuses_nonsense_and_survives_a_lack_of_memory, first_block_that_is_set_aside_is_given_to_nobody,
          threads_that_take_and_give_lose_no_block)
