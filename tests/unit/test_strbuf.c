/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "base/strbuf.h"
#include "tests/unit/unit.h"
#include <string.h>

START_TEST(appends_of_all_kinds_concatenate)
{
    struct ngd_strbuf sb;

    ngd_strbuf_init(&sb);
    ck_assert_str_eq(ngd_strbuf_str(&sb), "");
    ngd_strbuf_append(&sb, "ab");
    ngd_strbuf_putc(&sb, 'c');
    ngd_strbuf_append_n(&sb, "defXX", 3);
    ngd_strbuf_printf(&sb, "%d-%s", 42, "x");
    ck_assert_str_eq(ngd_strbuf_str(&sb), "abcdef42-x");
    ck_assert_uint_eq(sb.len, 10);
    ngd_strbuf_clear(&sb);
    ck_assert_str_eq(ngd_strbuf_str(&sb), "");
    ngd_strbuf_fini(&sb);
}
END_TEST

START_TEST(printf_of_every_length_around_the_capacity_is_whole)
{
    char text[600];

    for (size_t n = 0; n < sizeof(text); n++) {
        struct ngd_strbuf sb;

        memset(text, 'x', n);
        text[n] = '\0';
        ngd_strbuf_init(&sb);
        ngd_strbuf_append(&sb, "head:");
        ngd_strbuf_printf(&sb, "%s", text);
        ck_assert_uint_eq(sb.len, n + 5);
        ck_assert_str_eq(ngd_strbuf_str(&sb) + 5, text);
        ngd_strbuf_fini(&sb);
    }
}
END_TEST

START_TEST(zero_bytes_inside_are_kept)
{
    struct ngd_strbuf sb;

    ngd_strbuf_init(&sb);
    ngd_strbuf_append_n(&sb, "a\0b", 3);
    ngd_strbuf_append(&sb, "c");
    ck_assert_uint_eq(sb.len, 4);
    ck_assert_mem_eq(sb.data, "a\0bc", 5);
    ngd_strbuf_fini(&sb);
}
END_TEST

START_TEST(failed_allocation_keeps_the_text_and_stops_appends)
{
    struct ngd_strbuf sb;
    char big[500];

    memset(big, 'y', sizeof(big) - 1);
    big[sizeof(big) - 1] = '\0';
    ngd_strbuf_init(&sb);
    ngd_strbuf_append(&sb, "kept");
    ngd_mem_fail_after(0);
    ngd_strbuf_printf(&sb, "%s", big);
    ngd_mem_fail_after(-1);
    ck_assert(sb.failed);
    ngd_strbuf_append(&sb, "not this");
    ck_assert_str_eq(ngd_strbuf_str(&sb), "kept");
    ck_assert_ptr_null(ngd_strbuf_steal(&sb));
    ngd_strbuf_append(&sb, "again");
    ck_assert_str_eq(ngd_strbuf_str(&sb), "again");
    ngd_strbuf_fini(&sb);
}
END_TEST

START_TEST(clear_after_a_failure_makes_it_usable)
{
    struct ngd_strbuf sb;

    ngd_strbuf_init(&sb);
    ngd_mem_fail_after(0);
    ngd_strbuf_append(&sb, "x");
    ngd_mem_fail_after(-1);
    ck_assert(sb.failed);
    ck_assert_str_eq(ngd_strbuf_str(&sb), "");
    ngd_strbuf_clear(&sb);
    ngd_strbuf_append(&sb, "y");
    ck_assert_str_eq(ngd_strbuf_str(&sb), "y");
    ngd_strbuf_fini(&sb);
}
END_TEST

START_TEST(steal_gives_an_owned_string_even_when_empty)
{
    struct ngd_strbuf sb;
    char *s;

    ngd_strbuf_init(&sb);
    s = ngd_strbuf_steal(&sb);
    ck_assert_str_eq(s, "");
    ngd_free(s);
    ngd_strbuf_append(&sb, "mine");
    s = ngd_strbuf_steal(&sb);
    ck_assert_str_eq(s, "mine");
    ck_assert_uint_eq(sb.len, 0);
    ngd_free(s);
    ngd_strbuf_fini(&sb);
}
END_TEST

START_TEST(json_string_escapes_what_json_forbids)
{
    static const struct {
        const char *in, *out;
    } cases[] = {
        {"plain", "\"plain\""},
        {"", "\"\""},
        {"a\"b\\c", "\"a\\\"b\\\\c\""},
        {"\n\t\r\x01\x1f", "\"\\n\\t\\r\\u0001\\u001f\""},
        {"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", "\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\""},
        {"\xff", "\"\xef\xbf\xbd\""},                                                 /* never valid */
        {"\xc0\x80", "\"\xef\xbf\xbd\xef\xbf\xbd\""},                                 /* overlong */
        {"\xed\xa0\x80", "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\""},                 /* surrogate */
        {"\xf4\x90\x80\x80", "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\""}, /* above U+10FFFF */
        {"a\xe2\x82", "\"a\xef\xbf\xbd\xef\xbf\xbd\""},                               /* cut */
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct ngd_strbuf sb;

        ngd_strbuf_init(&sb);
        ngd_strbuf_json_string(&sb, cases[i].in);
        ck_assert_str_eq(ngd_strbuf_str(&sb), cases[i].out);
        ngd_strbuf_fini(&sb);
    }
}
END_TEST

UNIT_MAIN("base/strbuf", appends_of_all_kinds_concatenate, printf_of_every_length_around_the_capacity_is_whole,
          zero_bytes_inside_are_kept, failed_allocation_keeps_the_text_and_stops_appends,
          clear_after_a_failure_makes_it_usable, steal_gives_an_owned_string_even_when_empty,
          json_string_escapes_what_json_forbids)
