/* SPDX-License-Identifier: Apache-2.0 */
#include "client/lib/token.h"
#include "tests/unit/unit.h"
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char path[64];

static void write_file(const char *text)
{
    FILE *f = fopen(path, "w");

    ck_assert(f && fputs(text, f) >= 0 && fclose(f) == 0);
}

static void open_token(struct npugraph__token *t, const char *text)
{
    int fd;

    snprintf(path, sizeof(path), "/tmp/npugraph-token-XXXXXX");
    fd = mkstemp(path);
    ck_assert(fd >= 0 && close(fd) == 0);
    write_file(text);
    memset(t, 0, sizeof(*t));
    ck_assert_int_eq(npugraph__token_open(t, path, NULL), 0);
    ck_assert_uint_eq(t->number, 1);
}

static void close_token(struct npugraph__token *t)
{
    npugraph__token_close(t);
    unlink(path);
}

START_TEST(a_file_is_read_again_when_it_has_changed)
{
    struct npugraph__token t;

    open_token(&t, "first\n");
    npugraph__token_refresh(&t, false);
    ck_assert_uint_eq(t.number, 1);
    write_file("the second one\n"); /* two words */
    npugraph__token_refresh(&t, false);
    ck_assert_str_eq(t.header, "Bearer first");
    write_file("second-token");
    npugraph__token_refresh(&t, false);
    ck_assert_str_eq(t.header, "Bearer second-token");
    ck_assert_uint_eq(t.number, 2);
    write_file("second-token\n\n"); /* the same token */
    npugraph__token_refresh(&t, false);
    ck_assert_uint_eq(t.number, 2);
    unlink(path);
    npugraph__token_refresh(&t, true);
    ck_assert_str_eq(t.header, "Bearer second-token");
    close_token(&t);
}
END_TEST

START_TEST(a_change_that_the_files_time_does_not_show_is_seen_on_demand)
{
    struct npugraph__token t;
    struct timespec times[2];
    struct stat st;

    open_token(&t, "first-token");
    ck_assert_int_eq(stat(path, &st), 0);
    write_file("other-token");
    times[0] = st.st_atim;
    times[1] = st.st_mtim;
    ck_assert_int_eq(utimensat(AT_FDCWD, path, times, 0), 0);
    npugraph__token_refresh(&t, false);
    ck_assert_str_eq(t.header, "Bearer first-token");
    npugraph__token_refresh(&t, true);
    ck_assert_str_eq(t.header, "Bearer other-token");
    close_token(&t);
}
END_TEST

START_TEST(without_a_file_there_is_no_token)
{
    struct npugraph__token t = {0};
    struct npugraph_error err;

    ck_assert_int_eq(npugraph__token_open(&t, "", NULL), 0);
    npugraph__token_refresh(&t, true);
    ck_assert(!t.header && t.number == 0);
    ck_assert_int_ne(npugraph__token_open(&t, "/nonexistent/token", &err), 0);
    npugraph__token_close(&t);
}
END_TEST

UNIT_MAIN("client/token", a_file_is_read_again_when_it_has_changed,
          a_change_that_the_files_time_does_not_show_is_seen_on_demand, without_a_file_there_is_no_token)
