/* SPDX-License-Identifier: Apache-2.0 */
#include "base/stamp.h"
#include "tests/unit/unit.h"
#include <string.h>

static bool parse(const char *text, int64_t *ms_p)
{
    return ngd_stamp_parse(text, strlen(text), ms_p);
}

START_TEST(times_of_rfc_3339_are_read_with_their_zones)
{
    static const struct {
        const char *text;
        int64_t ms;
    } good[] = {{"1970-01-01T00:00:00Z", 0},
                {"2026-11-28T10:28:00Z", 1795861680000},
                {"2026-11-28t11:28:00.5+01:00", 1795861680500},
                {"2026-11-28 04:58:00.1239-05:30", 1795861680123},
                {"2026-11-28T10:28:00.000000001z", 1795861680000},
                {"2028-02-29T23:59:59.999Z", 1835481599999},
                {"1970-01-01T23:59:00+23:59", 0},
                {"9999-12-31T23:59:59Z", 253402300799000}};
    int64_t ms;

    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        ck_assert_msg(parse(good[i].text, &ms), "%s", good[i].text);
        ck_assert_msg(ms == good[i].ms, "%s is %lld", good[i].text, (long long)ms);
    }
}
END_TEST

START_TEST(other_texts_are_no_times)
{
    static const char *const bad[] = {"",
                                      "10m",
                                      "2026-11-28",
                                      "2026-11-28T10:28Z",
                                      "2026-11-28T10:28:00",
                                      "2026-11-28T10:28:00.Z",
                                      "2026-11-28T10:28:00.5",
                                      "2026-11-28T10:28:00,5Z",
                                      "2026-11-28T10:28:00ZZ",
                                      "2026-11-28T10:28:00+1:00",
                                      "2026-11-28T10:28:00+0100",
                                      "2026-11-28T10:28:00+24:00",
                                      "2026-11-28T10:28:00+01:60",
                                      "2026-11-28T10:28:00+0a:00",
                                      "2026-02-29T00:00:00Z",
                                      "2026-11-28T24:00:00Z",
                                      "2026-11-28T10:28:60Z",
                                      "1969-12-31T23:59:59Z",
                                      "1970-01-01T00:00:00+00:01",
                                      "-026-11-28T10:28:00Z",
                                      "2026-11-28_10:28:00Z"};
    int64_t ms;

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        ck_assert_msg(!parse(bad[i], &ms), "%s", bad[i]);
}
END_TEST

START_TEST(a_printed_time_is_read_again)
{
    char text[NGD_STAMP_ROOM];
    int64_t ms;

    for (int64_t at = 0; at < 253402300799000; at = at * 3 + 7) {
        ngd_stamp_print(at, text);
        ck_assert_msg(parse(text, &ms) && ms == at, "%s", text);
    }
    ngd_stamp_print(1795861680012, text);
    ck_assert_str_eq(text, "2026-11-28T10:28:00.012Z");
}
END_TEST

UNIT_MAIN("base/stamp", times_of_rfc_3339_are_read_with_their_zones, other_texts_are_no_times,
          a_printed_time_is_read_again)
