/* SPDX-License-Identifier: Apache-2.0 */
#include "base/config.h"
#include "base/fault.h"
#include "base/mem.h"
#include "tests/unit/unit.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct options {
    bool flag;
    int64_t count;
    uint64_t bytes;
    ngd_nsec_t wait;
    char *name;
    int mode;
    struct ngd_config_list dirs;
    uint64_t any;
    char **sources;
};

static const struct ngd_config_option table[] = {
    {"flag", NGD_CONFIG_BOOL, offsetof(struct options, flag), "no", 0, 0, NULL, "A switch.", NGD_CONFIG_RESTART},
    {"count", NGD_CONFIG_INT, offsetof(struct options, count), "5", -10, 100, NULL, "How many.", NGD_CONFIG_RELOAD},
    {"bytes", NGD_CONFIG_SIZE, offsetof(struct options, bytes), "64M", 4096, 1ll << 40, NULL, "How large.",
     NGD_CONFIG_RESTART},
    {"wait", NGD_CONFIG_TIME, offsetof(struct options, wait), "10s", NGD_MSEC, 3600 * NGD_SEC, NULL, "How long.",
     NGD_CONFIG_RESTART},
    {"name", NGD_CONFIG_STRING, offsetof(struct options, name), "", 0, 0, NULL, "Whose. See npugraphd(8).",
     NGD_CONFIG_SET},
    {"mode", NGD_CONFIG_ENUM, offsetof(struct options, mode), "exact", 0, 0, "exact bucket eager", "Which.",
     NGD_CONFIG_RESTART},
    {"dir", NGD_CONFIG_LIST, offsetof(struct options, dirs), "/srv/a\n/srv/b", 0, 0, NULL, "Where.", NGD_CONFIG_RELOAD},
    {"any", NGD_CONFIG_SIZE, offsetof(struct options, any), "0", 0, 0, NULL, "Without bounds.", NGD_CONFIG_RESTART},
    NGD_CONFIG_END(offsetof(struct options, sources)),
};

static struct options opts;
static struct ngd_diag diag;

static ngd_status_t read_text(const char *text)
{
    memset(&diag, 0, sizeof(diag));
    return ngd_config_read_text(table, &opts, text, strlen(text), "test.conf", &diag);
}

static void start(void)
{
    ck_assert_int_eq(ngd_config_init(table, &opts, NULL), NGD_OK);
}

/* Checks that the text is refused with exactly this diagnosis. */
static void refuses(const char *text, const char *want)
{
    ck_assert_int_eq(read_text(text), NGD_ERR_CONFIG);
    ck_assert_int_eq(diag.status, NGD_ERR_CONFIG);
    ck_assert_str_eq(diag.text, want);
}

START_TEST(defaults_are_set_through_the_same_parsers)
{
    start();
    ck_assert(!opts.flag);
    ck_assert_int_eq(opts.count, 5);
    ck_assert_uint_eq(opts.bytes, 64u << 20);
    ck_assert_int_eq(opts.wait, 10 * NGD_SEC);
    ck_assert_str_eq(opts.name, "");
    ck_assert_int_eq(opts.mode, 0);
    ck_assert_uint_eq(opts.dirs.n, 2);
    ck_assert_str_eq(opts.dirs.items[1], "/srv/b");
    ngd_config_fini(table, &opts);
    ck_assert_ptr_null(opts.name);
    ngd_config_fini(table, &opts);
}
END_TEST

START_TEST(file_sets_values_and_skips_comments_and_blanks)
{
    start();
    ck_assert_int_eq(read_text("# comment\n\n  flag = yes  \r\n\tcount=-3\nbytes = 2G\nwait = 250ms\n"
                               "name = two words # and a sign = too\nmode = eager\nany = 7T"),
                     NGD_OK);
    ck_assert(opts.flag);
    ck_assert_int_eq(opts.count, -3);
    ck_assert_uint_eq(opts.bytes, 2ull << 30);
    ck_assert_int_eq(opts.wait, 250 * NGD_MSEC);
    ck_assert_str_eq(opts.name, "two words # and a sign = too");
    ck_assert_int_eq(opts.mode, 2);
    ck_assert_uint_eq(opts.any, 7ull << 40);
    ngd_config_fini(table, &opts);
}
END_TEST

START_TEST(list_replaces_its_default_then_adds_and_can_be_emptied)
{
    start();
    ck_assert_int_eq(read_text("dir = /x\ndir = /y z\n"), NGD_OK);
    ck_assert_uint_eq(opts.dirs.n, 2);
    ck_assert_str_eq(opts.dirs.items[0], "/x");
    ck_assert_str_eq(opts.dirs.items[1], "/y z");
    ck_assert_int_eq(ngd_config_set(table, &opts, "dir", "/w", NULL), NGD_OK);
    ck_assert_uint_eq(opts.dirs.n, 3);
    ck_assert_int_eq(ngd_config_set(table, &opts, "dir", "", NULL), NGD_OK);
    ck_assert_uint_eq(opts.dirs.n, 0);
    ngd_config_fini(table, &opts);
}
END_TEST

START_TEST(unknown_name_is_refused_with_line_suggestion_and_what_is_allowed)
{
    start();
    refuses(
        "flag = yes\n\ncuont = 1\n",
        "test.conf:3: unknown option \"cuont\" (did you mean count?); allowed: flag, count, bytes, wait, name, mode, "
        "dir, any");
    refuses("something-else = 1\n",
            "test.conf:1: unknown option \"something-else\"; allowed: flag, count, bytes, wait, name, mode, dir, any");
    ngd_config_fini(table, &opts);
}
END_TEST

START_TEST(bad_value_is_refused_with_line_and_what_is_allowed)
{
    start();
    refuses("flag = maybe", "test.conf:1: flag: \"maybe\" is neither yes nor no; allowed: yes or no");
    refuses("\ncount = 101", "test.conf:2: count: \"101\" is out of range; allowed: an integer, -10 to 100");
    refuses("count = 5x", "test.conf:1: count: \"5x\" is not an integer; allowed: an integer, -10 to 100");
    refuses("count = ", "test.conf:1: count: \"\" is not an integer; allowed: an integer, -10 to 100");
    refuses("count = 99999999999999999999",
            "test.conf:1: count: \"99999999999999999999\" is out of range; allowed: an integer, -10 to 100");
    refuses("bytes = 12Q",
            "test.conf:1: bytes: \"12Q\" is not a size; allowed: bytes, or a number with K, M, G or T, 4K to 1T");
    refuses("bytes = 1",
            "test.conf:1: bytes: \"1\" is out of range; allowed: bytes, or a number with K, M, G or T, 4K to 1T");
    refuses("wait = 10",
            "test.conf:1: wait: \"10\" is not a time; allowed: a number with us, ms, s, m or h, 1ms to 1h");
    refuses("wait = 2h",
            "test.conf:1: wait: \"2h\" is out of range; allowed: a number with us, ms, s, m or h, 1ms to 1h");
    refuses("mode = exac", "test.conf:1: mode: \"exac\" is not a choice; allowed: one of: exact, bucket, eager");
    refuses("mode = ", "test.conf:1: mode: \"\" is not a choice; allowed: one of: exact, bucket, eager");
    refuses("name = a\x01z", "test.conf:1: name: \"a\\u0001z\" has control characters; allowed: text");
    ngd_config_fini(table, &opts);
}
END_TEST

START_TEST(repeated_name_is_refused_with_both_lines)
{
    start();
    refuses("count = 1\n# x\ncount = 2\n", "test.conf:3: count was set in line 1 already; allowed: once");
    ngd_config_fini(table, &opts);
}
END_TEST

START_TEST(line_without_equals_and_zero_byte_are_refused)
{
    static const char zero[] = "flag = yes\nna\0me = x\n";

    start();
    refuses("flag yes\n",
            "test.conf:1: not of the form \"name = value\"; allowed: this form, empty lines, and lines that "
            "start with #");
    memset(&diag, 0, sizeof(diag));
    ck_assert_int_eq(ngd_config_read_text(table, &opts, zero, sizeof(zero) - 1, "test.conf", &diag), NGD_ERR_CONFIG);
    ck_assert_str_eq(diag.text, "test.conf:2: has a zero byte; allowed: text");
    ngd_config_fini(table, &opts);
}
END_TEST

START_TEST(file_that_cannot_be_read_is_named)
{
    start();
    memset(&diag, 0, sizeof(diag));
    ck_assert_int_eq(ngd_config_read_file(table, &opts, "/nonexistent/x.conf", &diag), NGD_ERR_FILE_NOT_FOUND);
    ck_assert_str_eq(diag.text, "/nonexistent/x.conf: cannot be read: No such file or directory");
    ck_assert_int_eq(ngd_config_read_file(table, &opts, "/", &diag), NGD_ERR_CONFIG);
    ck_assert_int_eq(ngd_config_read_file(table, &opts, "/dev/zero", &diag), NGD_ERR_CONFIG);
    ngd_config_fini(table, &opts);
}
END_TEST

START_TEST(file_is_read_and_its_path_is_in_the_diagnosis)
{
    char path[] = "/tmp/ngd-config-XXXXXX", want[128];
    int fd = mkstemp(path);

    start();
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, "count = 9\nbad\n", 14), 14);
    close(fd);
    memset(&diag, 0, sizeof(diag));
    ck_assert_int_eq(ngd_config_read_file(table, &opts, path, &diag), NGD_ERR_CONFIG);
    snprintf(want, sizeof(want), "%s:2: not of the form", path);
    ck_assert_int_eq(strncmp(diag.text, want, strlen(want)), 0);
    ck_assert_int_eq(opts.count, 9);
    if (NGD_FAULT_COMPILED) {
        ngd_fault_arm(NGD_FAULT_CONFIG_READ, 0, 1);
        ck_assert_int_eq(ngd_config_read_file(table, &opts, path, &diag), NGD_ERR_CONFIG);
        ck_assert_ptr_nonnull(strstr(diag.text, "Input/output error"));
    }
    unlink(path);
    ngd_config_fini(table, &opts);
}
END_TEST

START_TEST(out_of_memory_at_any_allocation_is_a_status_and_leaks_nothing)
{
    static const char text[] = "name = abc\ndir = /x\ndir = /y\ncount = 1\n";

    for (int n = 0; n < 40; n++) {
        ngd_status_t status;

        ngd_mem_fail_after(n);
        status = ngd_config_init(table, &opts, &diag);
        if (status == NGD_OK)
            status = ngd_config_read_text(table, &opts, text, sizeof(text) - 1, "x", &diag);
        ngd_mem_fail_after(-1);
        ck_assert(status == NGD_OK || status == NGD_ERR_NO_MEMORY);
        ngd_config_fini(table, &opts);
        if (status == NGD_OK)
            return;
    }
    ck_abort_msg("40 allocations were not enough");
}
END_TEST

START_TEST(sizes_parse_exactly_or_not_at_all)
{
    static const char *const bad[] = {"", "K", "1k", "1 K", "1KB", "-1", "+1", "1.5G", "0x10", "1K ", "\xc2\xb5"};
    uint64_t v = 77;

    ck_assert_int_eq(ngd_parse_size("0", &v), NGD_OK);
    ck_assert_uint_eq(v, 0);
    ck_assert_int_eq(ngd_parse_size("18446744073709551615", &v), NGD_OK);
    ck_assert_uint_eq(v, UINT64_MAX);
    ck_assert_int_eq(ngd_parse_size("16777215T", &v), NGD_OK);
    ck_assert_uint_eq(v, 16777215ull << 40);
    v = 77;
    ck_assert_int_eq(ngd_parse_size("16777216T", &v), NGD_ERR_OUT_OF_RANGE);
    ck_assert_int_eq(ngd_parse_size("18446744073709551616", &v), NGD_ERR_OUT_OF_RANGE);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        ck_assert_int_eq(ngd_parse_size(bad[i], &v), NGD_ERR_INVALID_ARGUMENT);
    ck_assert_uint_eq(v, 77);
}
END_TEST

START_TEST(times_need_a_unit_unless_they_are_zero)
{
    ngd_nsec_t t = 77;

    ck_assert_int_eq(ngd_parse_time("0", &t), NGD_OK);
    ck_assert_int_eq(t, 0);
    ck_assert_int_eq(ngd_parse_time("5us", &t), NGD_OK);
    ck_assert_int_eq(t, 5 * NGD_USEC);
    ck_assert_int_eq(ngd_parse_time("2h", &t), NGD_OK);
    ck_assert_int_eq(t, 7200 * NGD_SEC);
    ck_assert_int_eq(ngd_parse_time("3m", &t), NGD_OK);
    ck_assert_int_eq(t, 180 * NGD_SEC);
    ck_assert_int_eq(ngd_parse_time("5", &t), NGD_ERR_INVALID_ARGUMENT);
    ck_assert_int_eq(ngd_parse_time("5 s", &t), NGD_ERR_INVALID_ARGUMENT);
    ck_assert_int_eq(ngd_parse_time("3000000h", &t), NGD_ERR_OUT_OF_RANGE);
    ck_assert_int_eq(t, 180 * NGD_SEC);
}
END_TEST

START_TEST(sample_file_reads_back_as_the_defaults)
{
    struct ngd_strbuf sb;
    char *text, *w;

    start();
    ngd_strbuf_init(&sb);
    ngd_config_describe(table, NGD_CONFIG_SAMPLE, &sb);
    ck_assert_ptr_nonnull(strstr(ngd_strbuf_str(&sb), "\n#bytes = 64M\n"));
    ck_assert_ptr_nonnull(strstr(ngd_strbuf_str(&sb), "\n#dir = /srv/a\n#dir = /srv/b\n"));
    /* Uncomments every "#name" line, as an operator would; lines of text begin with "# ". */
    text = w = ngd_strbuf_steal(&sb);
    for (char *r = text; *r; r++)
        if (!(*r == '#' && (r == text || r[-1] == '\n' || r[-1] == '#') && r[1] != ' '))
            *w++ = *r;
    *w = '\0';
    ck_assert_int_eq(read_text(text), NGD_OK);
    ck_assert_uint_eq(opts.dirs.n, 2);
    ck_assert_int_eq(opts.wait, 10 * NGD_SEC);
    ngd_free(text);
    ngd_config_fini(table, &opts);
}
END_TEST

START_TEST(descriptions_name_every_option_its_default_and_its_bounds)
{
    struct ngd_strbuf sb;

    for (int style = NGD_CONFIG_HELP; style <= NGD_CONFIG_SAMPLE; style++) {
        ngd_strbuf_init(&sb);
        ngd_config_describe(table, (ngd_config_style_t)style, &sb);
        for (const struct ngd_config_option *o = table; o->name; o++)
            ck_assert_ptr_nonnull(strstr(ngd_strbuf_str(&sb), o->name));
        ck_assert_ptr_nonnull(strstr(ngd_strbuf_str(&sb), "reload"));
        ck_assert_ptr_nonnull(strstr(ngd_strbuf_str(&sb), "restart"));
        ngd_strbuf_fini(&sb);
    }
    ngd_config_describe(table, NGD_CONFIG_HELP, &sb);
    ck_assert_ptr_nonnull(strstr(ngd_strbuf_str(&sb), "  --count=N\n      How many. Allowed: an integer, -10 to 100. "
                                                      "Default: 5."));
    ngd_strbuf_clear(&sb);
    ngd_config_describe(table, NGD_CONFIG_ROFF, &sb);
    ck_assert_ptr_nonnull(strstr(ngd_strbuf_str(&sb), ".TP\n\\fB\\-\\-count\\fR=\\fIN\\fR\n"));
    ngd_strbuf_fini(&sb);
}
END_TEST

static const struct ngd_config_option *option_called(const char *name)
{
    const struct ngd_config_option *opt = table;

    while (strcmp(opt->name, name) != 0)
        opt++;
    return opt;
}

static void is_from(const char *name, const char *want)
{
    ck_assert_str_eq(ngd_config_source(table, option_called(name), &opts), want);
}

START_TEST(options_remember_where_they_were_set)
{
    start();
    is_from("count", "default");
    ck_assert_int_eq(read_text("\ncount = 7\ndir = /x\ndir = /y\n"), NGD_OK);
    is_from("count", "test.conf:2");
    is_from("dir", "test.conf:3, test.conf:4");
    ck_assert_int_eq(ngd_config_set(table, &opts, "count", "8", NULL), NGD_OK);
    is_from("count", "command line");
    is_from("name", "default");
    for (int i = 0; i < 1000; i++) /* bounded, however many there are */
        ck_assert_int_eq(ngd_config_set(table, &opts, "dir", "/z", NULL), NGD_OK);
    ck_assert_uint_lt(strlen(ngd_config_source(table, option_called("dir"), &opts)), 1100);
    ngd_config_fini(table, &opts);
}
END_TEST

START_TEST(values_print_as_a_file_has_them)
{
    static const char text[] = "flag = yes\ncount = -3\nbytes = 2G\nwait = 250ms\nname = two words\nmode = eager\n"
                               "dir = /x\ndir = /y\nany = 0\n";
    struct ngd_strbuf sb;

    start();
    ck_assert_int_eq(read_text(text), NGD_OK);
    ngd_strbuf_init(&sb);
    for (const struct ngd_config_option *opt = table; opt->name; opt++) {
        struct ngd_strbuf value;

        ngd_strbuf_init(&value);
        ngd_config_print(opt, &opts, &value);
        for (char *rest = NULL, *item = strtok_r((char *)ngd_strbuf_str(&value), "\n", &rest); item;
             item = strtok_r(NULL, "\n", &rest))
            ngd_strbuf_printf(&sb, "%s = %s\n", opt->name, item);
        ngd_strbuf_fini(&value);
    }
    ck_assert_str_eq(ngd_strbuf_str(&sb), text);
    ngd_strbuf_fini(&sb);
    ngd_config_fini(table, &opts);
}
END_TEST

static char seen[256];

static void note(void *ctx, const struct ngd_config_option *opt, bool taken)
{
    size_t n = strlen(seen);

    (void)ctx;
    snprintf(seen + n, sizeof(seen) - n, "%s%s ", taken ? "+" : "-", opt->name);
}

START_TEST(reload_takes_what_can_change_and_names_the_rest)
{
    static const char text[] = "count = 6\nbytes = 8K\nname = new\ndir = /new\n";
    struct options fresh;

    start();
    ck_assert_int_eq(ngd_config_init(table, &fresh, NULL), NGD_OK);
    ck_assert_int_eq(ngd_config_read_text(table, &fresh, text, strlen(text), "new.conf", NULL), NGD_OK);
    seen[0] = '\0';
    ngd_config_reload(table, &opts, &fresh, note, NULL);
    ck_assert_str_eq(seen, "+count -bytes +name +dir ");
    ck_assert_int_eq(opts.count, 6);
    ck_assert_uint_eq(opts.bytes, 64u << 20);
    ck_assert_str_eq(opts.name, "new");
    ck_assert_str_eq(opts.dirs.items[0], "/new");
    is_from("count", "new.conf:1");
    is_from("bytes", "default");
    /* The old memory is the other's now, to be freed once nobody reads it. */
    ck_assert_str_eq(fresh.name, "");
    ck_assert_str_eq(fresh.dirs.items[1], "/srv/b");
    ngd_config_fini(table, &fresh);
    ngd_config_fini(table, &opts);
}
END_TEST

START_TEST(option_is_replaced_by_one_value_and_a_list_by_any_number)
{
    char *values[] = {"/x", "/y"}, *number[] = {"7"}, *bad[] = {"500"};

    start();
    ck_assert_int_eq(read_text("dir = /a\n"), NGD_OK);
    ck_assert_int_eq(ngd_config_replace(table, &opts, option_called("dir"), values, 2, "me", NULL), NGD_OK);
    ck_assert_uint_eq(opts.dirs.n, 2);
    ck_assert_str_eq(opts.dirs.items[0], "/x");
    is_from("dir", "me");
    ck_assert_int_eq(ngd_config_replace(table, &opts, option_called("dir"), NULL, 0, "me", NULL), NGD_OK);
    ck_assert_uint_eq(opts.dirs.n, 0);
    ck_assert_int_eq(ngd_config_replace(table, &opts, option_called("count"), number, 1, "me", NULL), NGD_OK);
    ck_assert_int_eq(opts.count, 7);
    ck_assert_int_eq(ngd_config_replace(table, &opts, option_called("count"), bad, 1, "me", &diag), NGD_ERR_CONFIG);
    ck_assert_int_eq(ngd_config_replace(table, &opts, option_called("count"), values, 2, "me", &diag), NGD_ERR_CONFIG);
    ck_assert_str_eq(diag.text, "count: 2 values; allowed: one");
    ck_assert_int_eq(opts.count, 7);
    ngd_config_fini(table, &opts);
}
END_TEST

START_TEST(copy_is_equal_remembers_sources_and_has_memory_of_its_own)
{
    struct options copy;

    start();
    ck_assert_int_eq(read_text("count = 9\nname = a\ndir = /x\nany = 3\nwait = 7s\nmode = eager\nflag = yes\n"),
                     NGD_OK);
    ck_assert_int_eq(ngd_config_copy(table, &copy, &opts), NGD_OK);
    for (const struct ngd_config_option *opt = table; opt->name; opt++) {
        ck_assert(ngd_config_same(opt, &opts, &copy));
        ck_assert_str_eq(ngd_config_source(table, opt, &opts), ngd_config_source(table, opt, &copy));
    }
    ck_assert_int_eq(ngd_config_set(table, &opts, "name", "b", NULL), NGD_OK);
    ck_assert_str_eq(copy.name, "a");
    ck_assert_int_eq(ngd_config_copy_option(table, option_called("name"), &copy, &opts), NGD_OK);
    ck_assert_str_eq(copy.name, "b");
    ngd_config_fini(table, &opts);
    ck_assert_str_eq(copy.dirs.items[0], "/x");
    ngd_config_fini(table, &copy);
}
END_TEST

UNIT_MAIN("base/config", defaults_are_set_through_the_same_parsers, file_sets_values_and_skips_comments_and_blanks,
          list_replaces_its_default_then_adds_and_can_be_emptied,
          unknown_name_is_refused_with_line_suggestion_and_what_is_allowed,
          bad_value_is_refused_with_line_and_what_is_allowed, repeated_name_is_refused_with_both_lines,
          line_without_equals_and_zero_byte_are_refused, file_that_cannot_be_read_is_named,
          file_is_read_and_its_path_is_in_the_diagnosis, out_of_memory_at_any_allocation_is_a_status_and_leaks_nothing,
          sizes_parse_exactly_or_not_at_all, times_need_a_unit_unless_they_are_zero,
          sample_file_reads_back_as_the_defaults, descriptions_name_every_option_its_default_and_its_bounds,
          options_remember_where_they_were_set, values_print_as_a_file_has_them,
          reload_takes_what_can_change_and_names_the_rest, option_is_replaced_by_one_value_and_a_list_by_any_number,
          copy_is_equal_remembers_sources_and_has_memory_of_its_own)
