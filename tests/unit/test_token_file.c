/* SPDX-License-Identifier: Apache-2.0 */
#include "base/token_file.h"
#include "base/mem.h"
#include "tests/unit/unit.h"
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define HASH "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

START_TEST(times_are_read_and_printed_in_utc_and_others_are_refused)
{
    static const struct {
        const char *text;
        int64_t time;
    } good[] = {{"1970-01-01T00:00:00Z", 0},
                {"2027-01-31T12:34:56Z", 1801398896},
                {"2028-02-29T00:00:00Z", 1835395200},
                {"9999-12-31T23:59:59Z", 253402300799},
                {"never", NGD_TOKEN_NEVER}};
    static const char *const bad[] = {"",
                                      "nevers",
                                      "1969-12-31T23:59:59Z",
                                      "2027-02-29T00:00:00Z",
                                      "2027-13-01T00:00:00Z",
                                      "2027-00-01T00:00:00Z",
                                      "2027-01-00T00:00:00Z",
                                      "2027-01-01T24:00:00Z",
                                      "2027-01-01T00:60:00Z",
                                      "2027-01-01T00:00:60Z",
                                      "2027-01-01 00:00:00Z",
                                      "2027-01-01T00:00:00",
                                      "2027-1-01T00:00:00ZZ",
                                      "-027-01-01T00:00:00Z",
                                      "2027-01-01T00:00:-1Z",
                                      "2027-01-01T00:00:00Z "};
    struct ngd_strbuf sb;
    int64_t t;

    ngd_strbuf_init(&sb);
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        ck_assert_msg(ngd_token_parse_time(good[i].text, strlen(good[i].text), &t), "%s", good[i].text);
        ck_assert_int_eq(t, good[i].time);
        ngd_strbuf_clear(&sb);
        ngd_token_print_time(t, &sb);
        ck_assert_str_eq(ngd_strbuf_str(&sb), good[i].text);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        ck_assert_msg(!ngd_token_parse_time(bad[i], strlen(bad[i]), &t), "%s", bad[i]);
    ngd_strbuf_fini(&sb);
}
END_TEST

static ngd_status_t print_again(void *ctx, const struct ngd_token_row *row, const char *line, size_t n,
                                struct ngd_diag *diag)
{
    (void)diag;
    ck_assert(n > 0 && line[n - 1] != '\n');
    ngd_token_print_row(row, ctx);
    return NGD_OK;
}

START_TEST(rows_are_printed_as_they_are_read_and_comments_and_blanks_are_left_out)
{
    static const char text[] = "# comment\n\n \t\r\na  " HASH "  never\n  b.c-d_9\t" HASH "\t2027-01-31T12:34:56Z  \r\n"
                               "   # another\nlast  " HASH "  never";
    struct ngd_diag diag = {0};
    struct ngd_strbuf sb;

    ngd_strbuf_init(&sb);
    ck_assert_int_eq(ngd_token_file_each("f", text, strlen(text), print_again, &sb, &diag), NGD_OK);
    ck_assert_str_eq(ngd_strbuf_str(&sb),
                     "a  " HASH "  never\nb.c-d_9  " HASH "  2027-01-31T12:34:56Z\nlast  " HASH "  never\n");
    ck_assert_int_eq(ngd_token_file_each("f", "", 0, print_again, &sb, &diag), NGD_OK);
    ngd_strbuf_fini(&sb);
}
END_TEST

/* Every prefix of a line, and every change of one byte, is read or refused with the line's number. */
START_TEST(damaged_lines_are_refused_with_their_number)
{
    static const char whole[] = "name  " HASH "  2027-01-31T12:34:56Z";
    char text[sizeof(whole) + 4];
    struct ngd_strbuf sb;

    ngd_strbuf_init(&sb);
    for (size_t n = 1; n < strlen(whole); n++) {
        struct ngd_diag diag = {0};

        snprintf(text, sizeof(text), "#\n\n%.*s", (int)n, whole);
        ck_assert_int_eq(ngd_token_file_each("f", text, strlen(text), print_again, &sb, &diag), NGD_ERR_CONFIG);
        ck_assert_ptr_nonnull(strstr(diag.text, "f:3: "));
    }
    for (size_t i = 0; i < strlen(whole); i++)
        for (int c = 0; c < 256; c++) {
            struct ngd_diag diag = {0};

            memcpy(text, whole, sizeof(whole));
            text[i] = (char)c;
            if (ngd_token_file_each("f", text, strlen(whole), print_again, &sb, &diag) != NGD_OK)
                ck_assert_int_eq(diag.status, NGD_ERR_CONFIG);
        }
    ngd_strbuf_fini(&sb);
}
END_TEST

START_TEST(tokens_that_are_short_long_or_not_ascii_are_not_hashed_or_repeated)
{
    char text[NGD_TOKEN_MAX + 2];
    struct ngd_digest hash;
    struct ngd_diag diag = {0};

    memset(text, 'x', sizeof(text));
    for (size_t n = 0; n <= NGD_TOKEN_MAX + 1; n++)
        ck_assert_int_eq(ngd_token_hash(text, n, &hash, &diag),
                         n < NGD_TOKEN_MIN || n > NGD_TOKEN_MAX ? NGD_ERR_INVALID_ARGUMENT : NGD_OK);
    for (int c = 0; c < 256; c++) {
        text[7] = (char)c;
        ck_assert_int_eq(ngd_token_hash(text, 40, &hash, &diag),
                         c > ' ' && c <= '~' ? NGD_OK : NGD_ERR_INVALID_ARGUMENT);
        ck_assert_ptr_null(strstr(diag.text, "xxx"));
    }
}
END_TEST

START_TEST(a_file_is_read_only_if_no_others_may_write_or_read_it)
{
    static const unsigned good[] = {0600, 0400, 0640, 0440, 0700}, bad[] = {0644, 0620, 0660, 0604, 0602, 0601, 0666};
    char path[] = "/tmp/test_token_file.XXXXXX", *text;
    const int fd = mkstemp(path);
    struct ngd_diag diag;
    size_t n;

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, "a\n", 2), 2);
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        ck_assert_int_eq(fchmod(fd, good[i]), 0);
        ck_assert_int_eq(ngd_token_file_read(path, &text, &n, &diag), NGD_OK);
        ck_assert_uint_eq(n, 2);
        ck_assert_str_eq(text, "a\n");
        ngd_free(text);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        ck_assert_int_eq(fchmod(fd, bad[i]), 0);
        ck_assert_int_eq(ngd_token_file_read(path, &text, &n, &diag), NGD_ERR_CONFIG);
        ck_assert_ptr_null(text);
    }
    close(fd);
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_int_eq(ngd_token_file_read(path, &text, &n, &diag), NGD_ERR_CONFIG);
}
END_TEST

UNIT_MAIN("base/token_file", times_are_read_and_printed_in_utc_and_others_are_refused,
          rows_are_printed_as_they_are_read_and_comments_and_blanks_are_left_out,
          damaged_lines_are_refused_with_their_number,
          tokens_that_are_short_long_or_not_ascii_are_not_hashed_or_repeated,
          a_file_is_read_only_if_no_others_may_write_or_read_it)
