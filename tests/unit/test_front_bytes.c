/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "daemon/front/bytes.h"
#include "tests/unit/unit.h"
#include <string.h>

/* A connection that pauses after each frame drops its bytes one by one; the remaining bytes may not move. */
START_TEST(what_is_left_stays_where_it_is)
{
    struct front_bytes b = {0};
    uint8_t all[1000];
    const uint8_t *first;

    for (size_t i = 0; i < sizeof(all); i++)
        all[i] = (uint8_t)i;
    ck_assert(front_bytes_keep(&b, all, sizeof(all)));
    first = b.at;
    for (size_t i = 0; i < sizeof(all) - 1; i++) {
        front_bytes_drop(&b, 1);
        ck_assert_ptr_eq(b.at, first + i + 1);
        ck_assert_mem_eq(b.at, all + i + 1, sizeof(all) - i - 1);
    }
    front_bytes_drop(&b, 1);
    ck_assert(b.n == 0 && !b.at && !b.block); /* an idle connection keeps no block */
}
END_TEST

START_TEST(what_comes_goes_behind_in_the_same_block_if_it_fits)
{
    struct front_bytes b = {0};
    const uint8_t *block;

    ck_assert(front_bytes_keep(&b, (const uint8_t *)"abcdef", 6));
    ck_assert(front_bytes_keep(&b, (const uint8_t *)"", 0));
    block = b.block;
    front_bytes_drop(&b, 4);
    ck_assert(front_bytes_keep(&b, (const uint8_t *)"gh", 2));
    ck_assert_ptr_eq(b.block, block);
    ck_assert(b.n == 4 && memcmp(b.at, "efgh", 4) == 0);
    front_bytes_drop(&b, 1);
    ngd_mem_fail_after(0);
    ck_assert(!front_bytes_keep(&b, (const uint8_t *)"ijklmn", 6));
    ngd_mem_fail_after(-1);
    ck_assert(b.n == 3 && memcmp(b.at, "fgh", 3) == 0);
    ck_assert(front_bytes_keep(&b, (const uint8_t *)"ijklmn", 6));
    ck_assert(b.n == 9 && memcmp(b.at, "fghijklmn", 9) == 0);
    front_bytes_fini(&b);
}
END_TEST

UNIT_MAIN("daemon/front/bytes", what_is_left_stays_where_it_is, what_comes_goes_behind_in_the_same_block_if_it_fits)
