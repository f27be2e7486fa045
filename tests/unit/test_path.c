/* SPDX-License-Identifier: Apache-2.0 */
#include "base/path.h"

#include "base/fault.h"
#include "tests/unit/unit.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

START_TEST(what_lies_below_a_directory)
{
    static const struct {
        const char *dir, *path, *below;
    } cases[] = {
        {"/a/b", "/a/b/c", "c"}, {"/a/b//", "/a/b///c/d", "c/d"}, {"/a/b", "/a/b", ""}, {"/a/b", "/a/bc", NULL},
        {"/a/b", "/a", NULL},    {"/", "/etc/x", "etc/x"},        {"/a", "rel", "rel"}, {"/a", "", ""},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const char *below = ngd_path_below(cases[i].dir, cases[i].path);

        if (cases[i].below)
            ck_assert_str_eq(below, cases[i].below);
        else
            ck_assert_ptr_null(below);
    }
}
END_TEST

START_TEST(a_parent_is_a_whole_component)
{
    ck_assert(ngd_path_has_parent("..") && ngd_path_has_parent("a/..") && ngd_path_has_parent("/../a//b"));
    ck_assert(!ngd_path_has_parent("") && !ngd_path_has_parent("..a/b../...") && !ngd_path_has_parent("a/./b"));
}
END_TEST

static char top[64];
static int dir;

static void make_tree(void)
{
    snprintf(top, sizeof(top), "/tmp/npugraphd-test-path-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(top));
    dir = open(top, O_PATH | O_DIRECTORY | O_CLOEXEC);
    ck_assert_int_ge(dir, 0);
    ck_assert(mkdirat(dir, "in", 0700) == 0 && mkdirat(dir, "in/deep", 0700) == 0 && mkdirat(dir, "out", 0700) == 0);
    for (int i = 0; i < 2; i++)
        close(openat(dir, i ? "in/deep/file" : "out/secret", O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    ck_assert(symlinkat("../out", dir, "in/link") == 0 && symlinkat("deep/file", dir, "in/file") == 0);
    ck_assert_int_eq(mkfifoat(dir, "in/fifo", 0600), 0);
    close(dir);
    dir = openat(AT_FDCWD, top, O_PATH | O_DIRECTORY | O_CLOEXEC);
}

static void remove_tree(void)
{
    static const char *const files[] = {"in/deep/file", "out/secret", "in/link", "in/file", "in/fifo"};

    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
        ck_assert_int_eq(unlinkat(dir, files[i], 0), 0);
    ck_assert(unlinkat(dir, "in/deep", AT_REMOVEDIR) == 0 && unlinkat(dir, "in", AT_REMOVEDIR) == 0);
    ck_assert(unlinkat(dir, "out", AT_REMOVEDIR) == 0 && rmdir(top) == 0);
    close(dir);
}

/* Opens a path below a directory; returns 0, or errno. */
static int try_open(int below, const char *path)
{
    const int fd = ngd_open_below(below, path);

    if (fd < 0)
        return errno;
    close(fd);
    return 0;
}

/* Opens, from "in", files that are there, files above, and targets of links. walking: without openat2. */
static void check_opens(bool walking)
{
    const int in = openat(dir, "in", O_PATH | O_DIRECTORY | O_CLOEXEC);

    ck_assert_int_eq(try_open(in, "deep/file"), 0);
    ck_assert_int_eq(try_open(in, "./deep//file"), 0);
    ck_assert_int_eq(try_open(in, "deep/"), 0);
    ck_assert_int_eq(try_open(in, "deep/none"), ENOENT);
    ck_assert_int_eq(try_open(in, "none/file"), ENOENT);
    ck_assert_int_eq(try_open(in, "deep/file/more"), ENOTDIR);
    ck_assert_int_eq(try_open(in, "../out/secret"), EXDEV);
    ck_assert_int_eq(try_open(in, "/etc/passwd"), EXDEV);
    ck_assert_int_eq(try_open(in, "link/secret"), walking ? ELOOP : EXDEV);
    ck_assert_int_eq(try_open(in, "link"), walking ? ELOOP : EXDEV);
    ck_assert_int_eq(try_open(in, "file"), walking ? ELOOP : 0);
    ck_assert_int_eq(try_open(in, "fifo"), 0); /* and it does not wait for a writer */
    close(in);
}

START_TEST(nothing_leads_out_of_the_directory)
{
    int before, after;

    make_tree();
    before = dup(dir);
    check_opens(false);
    ngd_fault_arm(NGD_FAULT_NO_OPENAT2, 0, 1000);
    if (NGD_FAULT_COMPILED)
        check_opens(true);
    ngd_fault_disarm_all();
    after = dup(dir);
    ck_assert_int_eq(after, before + 1); /* no descriptor is left */
    close(before);
    close(after);
    remove_tree();
}
END_TEST

/* Renames by any process of the machine make openat2 fail with EAGAIN. Links that stay below must still be followed. */
START_TEST(renames_meanwhile_do_not_make_a_link_lead_out)
{
    int in;

    if (!NGD_FAULT_COMPILED)
        return;
    make_tree();
    in = openat(dir, "in", O_PATH | O_DIRECTORY | O_CLOEXEC);
    ngd_fault_arm(NGD_FAULT_OPENAT2_AGAIN, 0, 999);
    ck_assert_int_eq(try_open(in, "file"), 0);
    ngd_fault_arm(NGD_FAULT_OPENAT2_AGAIN, 0, 10);
    ck_assert_int_eq(try_open(in, "link/secret"), EXDEV);
    ngd_fault_arm(NGD_FAULT_OPENAT2_AGAIN, 0, 1000000);
    ck_assert_int_eq(try_open(in, "file"), EAGAIN);
    ngd_fault_disarm_all();
    close(in);
    remove_tree();
}
END_TEST

UNIT_MAIN("base/path", what_lies_below_a_directory, a_parent_is_a_whole_component, nothing_leads_out_of_the_directory,
          renames_meanwhile_do_not_make_a_link_lead_out)
