/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "base/log.h"
#include "base/log_ring.h"
#include "tests/unit/unit.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <regex.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int pipe_fds[2];
static char got[65536];

/* Sends the log into a pipe. */
static void capture_start(void)
{
    ck_assert_int_eq(pipe2(pipe_fds, O_CLOEXEC), 0);
    ngd_log_set_fd(pipe_fds[1]);
}

/* Returns what was written. */
static const char *capture_end(void)
{
    size_t n = 0;
    ssize_t r;

    ngd_log_set_fd(2);
    close(pipe_fds[1]);
    while (n < sizeof(got) - 1 && (r = read(pipe_fds[0], got + n, sizeof(got) - 1 - n)) > 0)
        n += (size_t)r;
    got[n] = '\0';
    close(pipe_fds[0]);
    return got;
}

static bool matches(const char *text, const char *pattern)
{
    regex_t re;
    bool ok;

    ck_assert_int_eq(regcomp(&re, pattern, REG_EXTENDED | REG_NOSUB), 0);
    ok = regexec(&re, text, 0, NULL, 0) == 0;
    regfree(&re);
    return ok;
}

START_TEST(line_has_time_level_component_and_text)
{
    capture_start();
    ngd_warning("device", "slow replay device=%s us=%d", "host0", 12);
    ck_assert(matches(capture_end(), "^20[0-9]{2}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\\.[0-9]{3}Z "
                                     "warning device: slow replay device=host0 us=12\n$"));
}
END_TEST

START_TEST(line_for_the_journal_has_a_priority_and_no_time)
{
    char stream[64];
    struct stat st;

    capture_start();
    ck_assert_int_eq(fstat(pipe_fds[1], &st), 0);
    snprintf(stream, sizeof(stream), "%llu:%llu", (unsigned long long)st.st_dev, (unsigned long long)st.st_ino);
    setenv("JOURNAL_STREAM", stream, 1);
    ngd_error("rpc", "broken");
    ngd_info("rpc", "fine");
    unsetenv("JOURNAL_STREAM");
    ck_assert_str_eq(capture_end(), "<3>error rpc: broken\n<6>info rpc: fine\n");
}
END_TEST

START_TEST(inherited_journal_stream_of_another_file_is_not_believed)
{
    capture_start();
    setenv("JOURNAL_STREAM", "1:2", 1);
    ngd_error("rpc", "broken");
    unsetenv("JOURNAL_STREAM");
    ck_assert(matches(capture_end(), "^20.*Z error rpc: broken\n$"));
}
END_TEST

START_TEST(levels_above_the_set_one_are_not_written)
{
    capture_start();
    ngd_log_set_level(NGD_LOG_WARNING);
    ngd_notice("a", "no");
    ngd_debug("a", "no");
    ngd_warning("a", "yes");
    ngd_log_set_level(NGD_LOG_INFO);
    capture_end();
    ck_assert_ptr_null(strstr(got, "no\n"));
    ck_assert_ptr_nonnull(strstr(got, "yes\n"));
}
END_TEST

START_TEST(control_characters_cannot_forge_a_line)
{
    capture_start();
    ngd_error("rpc", "name=%s", "x\n2030-01-01T00:00:00.000Z error forged: y\x1b[31m\x7f\xff");
    capture_end();
    ck_assert_ptr_eq(strchr(got, '\n'), got + strlen(got) - 1);
    ck_assert_ptr_nonnull(strstr(got, "name=x\\n2030-01-01T00:00:00.000Z error forged: y\\x1b[31m\\x7f\\xff\n"));
}
END_TEST

START_TEST(long_line_is_cut_and_still_ends_in_a_newline)
{
    static char text[20000];

    memset(text, 'a', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    capture_start();
    ngd_error("rpc", "%s", text);
    capture_end();
    ck_assert_uint_lt(strlen(got), 4096); /* PIPE_BUF: written whole */
    ck_assert_ptr_nonnull(strstr(got, "a...\n"));
    memset(text, 1, sizeof(text) - 1); /* each grows to four characters */
    capture_start();
    ngd_error("rpc", "%s", text);
    capture_end();
    ck_assert_uint_lt(strlen(got), 4096);
    ck_assert_ptr_nonnull(strstr(got, "\\x01...\n"));
}
END_TEST

START_TEST(value_is_quoted_only_when_it_needs_to_be)
{
    char buf[NGD_LOG_VALUE_MAX], text[1000];

    ck_assert_str_eq(ngd_log_value("plain-word_1.2/x:y", buf), "plain-word_1.2/x:y");
    ck_assert_str_eq(ngd_log_value(NULL, buf), "-");
    ck_assert_str_eq(ngd_log_value("", buf), "\"\"");
    ck_assert_str_eq(ngd_log_value("two words", buf), "\"two words\"");
    ck_assert_str_eq(ngd_log_value("a=b", buf), "\"a=b\"");
    ck_assert_str_eq(ngd_log_value("say \"hi\" \\ \n", buf), "\"say \\\"hi\\\" \\\\ \\n\"");
    memset(text, 'z', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    ck_assert_uint_lt(strlen(ngd_log_value(text, buf)), NGD_LOG_VALUE_MAX);
    ck_assert_ptr_nonnull(strstr(buf, "zzz...\""));
    memset(text, '"', sizeof(text) - 1);
    ck_assert_uint_lt(strlen(ngd_log_value(text, buf)), NGD_LOG_VALUE_MAX);
}
END_TEST

START_TEST(errno_is_kept)
{
    capture_start();
    errno = ENOSPC;
    ngd_error("store", "x");
    ck_assert_int_eq(errno, ENOSPC);
    capture_end();
}
END_TEST

START_TEST(every_level_parses_from_its_name)
{
    ngd_log_level_t level;

    for (int i = NGD_LOG_ERROR; i <= NGD_LOG_DEBUG; i++) {
        ck_assert(ngd_log_level_parse(ngd_log_level_name((ngd_log_level_t)i), &level));
        ck_assert_int_eq(level, i);
    }
    ck_assert(!ngd_log_level_parse("loud", &level));
    ck_assert(!ngd_log_level_parse("", &level));
}
END_TEST

static void *chat(void *arg)
{
    for (int i = 0; i < 50; i++)
        ngd_error("chat", "%s", (const char *)arg);
    return NULL;
}

START_TEST(lines_of_several_threads_do_not_mix)
{
    pthread_t a, b;
    unsigned n = 0;

    capture_start();
    ck_assert_int_eq(pthread_create(&a, NULL, chat, (void *)"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"), 0);
    ck_assert_int_eq(pthread_create(&b, NULL, chat, (void *)"bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"), 0);
    pthread_join(a, NULL);
    pthread_join(b, NULL);
    capture_end();
    for (char *line = got, *end; (end = strchr(line, '\n')); line = end + 1, n++) {
        *end = '\0';
        ck_assert(matches(line, "^[^ ]*Z error chat: (a{40}|b{40})$"));
    }
    ck_assert_uint_eq(n, 100);
}
END_TEST

START_TEST(limit_leaves_lines_out_and_tells_how_many)
{
    static struct ngd_log_limit few, many = {.most = 25};
    unsigned n_few = 0, n_many = 0;

    capture_start();
    ngd_clock_set_fake(100 * NGD_SEC);
    for (int i = 0; i < 1000; i++) {
        ngd_log_limited(&few, NGD_LOG_WARNING, "few", "line %d", i);
        ngd_log_limited(&many, NGD_LOG_WARNING, "many", "line %d", i);
    }
    ngd_clock_set_fake(110 * NGD_SEC);
    ngd_log_limited(&few, NGD_LOG_WARNING, "few", "after");
    ngd_log_limited(&many, NGD_LOG_WARNING, "many", "after");
    ngd_clock_set_fake(-1);
    capture_end();
    for (const char *at = got; (at = strstr(at, " few: line ")); at++)
        n_few++;
    for (const char *at = got; (at = strstr(at, " many: line ")); at++)
        n_many++;
    ck_assert_uint_eq(n_few, NGD_LOG_LIMIT);
    ck_assert_uint_eq(n_many, 25);
    ck_assert(strstr(got, " few: 990 lines like the next one were left out\n"));
    ck_assert(strstr(got, " many: 975 lines like the next one were left out\n"));
}
END_TEST

START_TEST(json_line_is_one_object_with_its_four_members)
{
    static char text[5000];

    memset(text, '"', sizeof(text) - 1);
    capture_start();
    ngd_log_set_format(NGD_LOG_JSON);
    ngd_notice("rpc", "name=%s", "\"a\\b\"\n\xff");
    ngd_notice("rpc", "%s", text);
    ngd_log_set_format(NGD_LOG_TEXT);
    capture_end();
    ck_assert(matches(got,
                      "^\\{\"time\":\"20[0-9-]{8}T[0-9:]{8}\\.[0-9]{3}Z\",\"level\":\"notice\",\"component\":\"rpc\","
                      "\"text\":\"name=\\\\\"a\\\\\\\\b\\\\\"\\\\\\\\n\\\\\\\\xff\"\\}\n"));
    ck_assert(matches(strchr(got, '\n') + 1, "^\\{.*\"text\":\"(\\\\\")+\"\\}\n$"));
    ck_assert_uint_le(strlen(strchr(got, '\n') + 1), 4096);
}
END_TEST

/* ---- lines that are kept ---- */

static struct ngd_arena arena;

static struct ngd_log_lines read_ring(uint64_t after, ngd_log_level_t level, uint64_t since_ms, size_t limit)
{
    const struct ngd_log_query query = {.after = after, .level = level, .since_ms = since_ms, .limit = limit};
    struct ngd_log_lines lines;

    ck_assert_int_eq(ngd_log_ring_read(&query, &arena, &lines), NGD_OK);
    return lines;
}

static void ring_start(size_t bytes)
{
    ngd_arena_init(&arena, 4096);
    ck_assert_int_eq(ngd_log_ring_start(bytes), NGD_OK);
}

static void ring_end(void)
{
    ngd_log_ring_stop();
    ngd_arena_fini(&arena);
}

START_TEST(ring_has_lines_in_order_by_number_level_and_time)
{
    struct ngd_log_lines lines;

    ngd_log_ring_add(NGD_LOG_ERROR, 1, "early", "not kept", 8);
    ring_start(4096);
    ck_assert_uint_eq(read_ring(0, NGD_LOG_DEBUG, 0, 10).n, 0);
    ngd_log_ring_add(NGD_LOG_INFO, 1000, "a", "one", 3);
    ngd_log_ring_add(NGD_LOG_ERROR, 2000, "b", "two", 3);
    ngd_log_ring_add(NGD_LOG_INFO, 3000, "c", "", 0);
    lines = read_ring(0, NGD_LOG_DEBUG, 0, 10);
    ck_assert(lines.n == 3 && lines.last == 3 && lines.lost == 0);
    ck_assert_str_eq(lines.items[0].text, "one");
    ck_assert_str_eq(lines.items[1].component, "b");
    ck_assert_uint_eq(lines.items[1].time_ms, 2000);
    ck_assert_str_eq(lines.items[2].text, "");
    lines = read_ring(1, NGD_LOG_WARNING, 0, 10);
    ck_assert(lines.n == 1 && lines.items[0].number == 2 && lines.last == 3);
    lines = read_ring(0, NGD_LOG_DEBUG, 2000, 1);
    ck_assert(lines.n == 1 && lines.items[0].number == 2 && lines.last == 2);
    lines = read_ring(3, NGD_LOG_DEBUG, 0, 10);
    ck_assert(lines.n == 0 && lines.last == 3 && lines.lost == 0);
    lines = read_ring(99, NGD_LOG_DEBUG, 0, 10); /* of an earlier start */
    ck_assert(lines.n == 3 && lines.lost == 0);
    ring_end();
}
END_TEST

START_TEST(slow_reader_is_told_how_many_lines_it_lost)
{
    char text[32];
    struct ngd_log_lines lines;

    ring_start(1000); /* records wrap around its end at all places */
    for (unsigned i = 1; i <= 500; i++) {
        const int n = snprintf(text, sizeof(text), "line %u %.*s", i, (int)(i % 17), "xxxxxxxxxxxxxxxxx");

        ngd_log_ring_add(NGD_LOG_INFO, i, "test", text, (size_t)n);
        lines = read_ring(1, NGD_LOG_DEBUG, 0, 100);
        ck_assert_uint_eq(lines.last, i);
        ck_assert_uint_eq(lines.n + lines.lost, i - 1);
        if (i > 1)
            ck_assert_str_eq(lines.items[lines.n - 1].text, text);
    }
    ck_assert_uint_gt(lines.lost, 450);
    ck_assert_uint_gt(lines.n, 10);
    ring_end();
}
END_TEST

START_TEST(numbers_of_another_start_are_told_apart)
{
    struct ngd_log_query query = {.level = NGD_LOG_DEBUG, .limit = 100};
    struct ngd_log_lines lines;
    uint64_t earlier;

    ring_start(1000);
    ngd_log_ring_add(NGD_LOG_INFO, 1, "test", "one", 3);
    earlier = read_ring(0, NGD_LOG_DEBUG, 0, 10).start;
    ck_assert_uint_ne(earlier, 0);
    ring_end();
    ring_start(1000);
    for (unsigned i = 1; i <= 100; i++)
        ngd_log_ring_add(NGD_LOG_INFO, i, "test", "line", 4);
    for (query.after = 3; query.after < 200; query.after += 150) { /* fewer and more lines than there are now */
        query.start = earlier;
        ck_assert_int_eq(ngd_log_ring_read(&query, &arena, &lines), NGD_OK);
        ck_assert_uint_ne(lines.start, earlier);
        ck_assert_uint_gt(lines.n, 5);
        ck_assert_uint_eq(lines.n + lines.lost, 100); /* each line of this start is there, or counted */
    }
    query.start = lines.start;
    query.after = 99;
    ck_assert_int_eq(ngd_log_ring_read(&query, &arena, &lines), NGD_OK);
    ck_assert(lines.n == 1 && lines.lost == 0);
    query.start = earlier;
    query.after = 0;
    ck_assert_int_eq(ngd_log_ring_read(&query, &arena, &lines), NGD_OK);
    ck_assert_uint_eq(lines.lost, 0); /* nothing was read before */
    ring_end();
}
END_TEST

START_TEST(what_is_logged_is_kept_as_it_was_written)
{
    struct ngd_log_lines lines;

    ring_start(65536);
    capture_start();
    ngd_error("rpc", "a\nb=%d", 7);
    ngd_debug("rpc", "below the level");
    capture_end();
    lines = read_ring(0, NGD_LOG_DEBUG, 0, 10);
    ck_assert_uint_eq(lines.n, 1);
    ck_assert_str_eq(lines.items[0].text, "a\\nb=7");
    ck_assert_ptr_nonnull(strstr(got, "error rpc: a\\nb=7\n"));
    ring_end();
}
END_TEST

UNIT_MAIN("base/log", line_has_time_level_component_and_text, line_for_the_journal_has_a_priority_and_no_time,
          inherited_journal_stream_of_another_file_is_not_believed, levels_above_the_set_one_are_not_written,
          control_characters_cannot_forge_a_line, long_line_is_cut_and_still_ends_in_a_newline,
          value_is_quoted_only_when_it_needs_to_be, errno_is_kept, every_level_parses_from_its_name,
          lines_of_several_threads_do_not_mix, limit_leaves_lines_out_and_tells_how_many,
          json_line_is_one_object_with_its_four_members, ring_has_lines_in_order_by_number_level_and_time,
          slow_reader_is_told_how_many_lines_it_lost, numbers_of_another_start_are_told_apart,
          what_is_logged_is_kept_as_it_was_written)
