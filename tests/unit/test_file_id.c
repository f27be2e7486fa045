/* SPDX-License-Identifier: Apache-2.0 */
#include "base/file_id.h"

#include "tests/unit/unit.h"
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static char path[] = "/tmp/npugraphd-test-id-XXXXXX";

static int make_file(void)
{
    const int fd = mkostemp(path, O_CLOEXEC);

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_int_eq(pwrite(fd, "old", 3, 0), 3);
    return fd;
}

static struct ngd_file_id identify(int fd)
{
    struct ngd_diag diag = {0};
    struct ngd_file_id id;

    ck_assert_int_eq(ngd_file_identify(fd, &id, &diag), NGD_OK);
    return id;
}

/* Waits until the file's time of change is settled, as the loader does before it reads. */
static struct ngd_file_id settle(int fd)
{
    struct ngd_file_id id = identify(fd);
    ngd_nsec_t wait;

    while ((wait = ngd_file_settles_in(&id, ngd_file_clock())) > 0) {
        const struct timespec ts = {wait / NGD_SEC, wait % NGD_SEC};

        ck_assert_int_le(wait, NGD_FILE_SETTLE_MAX);
        nanosleep(&ts, NULL);
        id = identify(fd);
    }
    return id;
}

START_TEST(what_is_written_has_another_id_though_size_and_mtime_are_restored)
{
    const int fd = make_file();

    for (int i = 0; i < 20; i++) {
        const struct ngd_file_id before = settle(fd), same = identify(fd);
        struct ngd_file_id after;
        struct stat sb;
        struct timespec times[2];

        ck_assert(ngd_file_id_equal(&before, &same));
        ck_assert_int_eq(fstat(fd, &sb), 0);
        ck_assert_int_eq(pwrite(fd, "new", 3, 0), 3);
        times[0] = sb.st_atim;
        times[1] = sb.st_mtim;
        ck_assert_int_eq(futimens(fd, times), 0);
        after = identify(fd);
        ck_assert_int_eq(after.mtime, before.mtime);
        ck_assert(!ngd_file_id_equal(&before, &after));
    }
    close(fd);
}
END_TEST

START_TEST(a_time_of_change_settles_when_its_step_is_over)
{
    const ngd_nsec_t now = 1000 * NGD_SEC;
    struct ngd_file_id id = {.ctime = now - 1};

    ck_assert_int_eq(ngd_file_settles_in(&id, now), 20 * NGD_MSEC - 1);
    ck_assert_int_eq(ngd_file_settles_in(&id, now + 20 * NGD_MSEC), 0);
    id.ctime = now; /* whole seconds: the file system may keep no more */
    ck_assert_int_eq(ngd_file_settles_in(&id, now + NGD_SEC), NGD_FILE_SETTLE_MAX - NGD_SEC);
    ck_assert_int_eq(ngd_file_settles_in(&id, now + NGD_FILE_SETTLE_MAX), 0);
    id.ctime = now + 60 * NGD_SEC; /* a clock ahead of ours */
    ck_assert_int_gt(ngd_file_settles_in(&id, now), NGD_FILE_SETTLE_MAX);
}
END_TEST

START_TEST(a_descriptor_that_is_none_is_an_error)
{
    struct ngd_diag diag = {0};
    struct ngd_file_id id;

    ck_assert_int_eq(ngd_file_identify(-1, &id, &diag), NGD_ERR_IO);
    ck_assert_int_ne(diag.text[0], '\0');
}
END_TEST

UNIT_MAIN("base/file_id", what_is_written_has_another_id_though_size_and_mtime_are_restored,
          a_time_of_change_settles_when_its_step_is_over, a_descriptor_that_is_none_is_an_error)
