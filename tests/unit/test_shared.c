/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/shared.h"
#include "base/mem.h"
#include "daemon/blocks.h"
#include "tests/unit/unit.h"
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define BYTES 8192
#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

static struct ngd_identities *table;
static struct ngd_identity *identity;
static struct ngd_jobs *reaper;

static void setup(void)
{
    struct ngd_identities_params params = {.limits[NGD_QUOTA_SHARED_BYTES] = (uint64_t)128 << 20};

    ck_assert_int_eq(ngd_identities_create(&params, &table), NGD_OK);
    identity = ngd_identity_get(table, "uid:1");
    ck_assert_ptr_nonnull(identity);
    ck_assert_int_eq(ngd_jobs_create("reaper", 1, &reaper), NGD_OK);
}

static void teardown(void)
{
    ngd_jobs_destroy(reaper);
    ck_assert_uint_eq(identity->used[NGD_QUOTA_SHARED_BYTES], 0);
    ngd_identity_unref(identity);
    ngd_identities_destroy(table);
}

static int make_memfd(uint64_t bytes, int seals)
{
    int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(ftruncate(fd, (off_t)bytes), 0);
    ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, seals), 0);
    return fd;
}

static struct ngd_shared_object *adopt(uint64_t bytes, int seals)
{
    struct ngd_shared_object *o;

    ck_assert_int_eq(ngd_shared_adopt(make_memfd(bytes, seals), bytes, identity, reaper, &o, NULL), NGD_OK);
    ck_assert_uint_eq(o->bytes, bytes);
    return o;
}

START_TEST(bytes_are_read_and_written_at_their_place)
{
    struct ngd_shared_object *o;
    char text[8] = "";

    setup();
    o = adopt(BYTES, SEALS);
    ck_assert_uint_eq(identity->used[NGD_QUOTA_SHARED_BYTES], BYTES);
    ck_assert_int_eq(ngd_shared_write(o, BYTES - 3, "abc", 3, NULL), NGD_OK);
    ck_assert_int_eq(ngd_shared_read(o, BYTES - 5, text, 5, NULL), NGD_OK);
    ck_assert_int_eq(memcmp(text, "\0\0abc", 5), 0);
    ck_assert_int_eq(ngd_shared_read(o, BYTES, text, 0, NULL), NGD_OK);
    ngd_object_unref(&o->base);
    teardown();
}
END_TEST

START_TEST(a_range_is_within_the_buffer)
{
    static const struct {
        uint64_t offset, n;
        bool good;
    } ranges[] = {{0, 0, true},           {0, BYTES, true},
                  {BYTES, 0, true},       {BYTES, 1, false},
                  {0, BYTES + 1, false},  {1, BYTES, false},
                  {BYTES + 1, 0, false},  {UINT64_MAX, 2, false},
                  {2, UINT64_MAX, false}, {UINT64_MAX, UINT64_MAX, false}};
    struct ngd_shared_object *o;

    setup();
    o = adopt(BYTES, SEALS);
    for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++)
        ck_assert_int_eq(ngd_shared_check_range(o, ranges[i].offset, ranges[i].n, NULL),
                         ranges[i].good ? NGD_OK : NGD_ERR_BUFFER_RANGE);
    ngd_object_unref(&o->base);
    teardown();
}
END_TEST

START_TEST(memory_that_cannot_be_written_is_an_error)
{
    struct ngd_shared_object *o;
    struct ngd_diag diag = {0};
    char text[1];

    setup();
    o = adopt(BYTES, SEALS | F_SEAL_WRITE);
    ck_assert_int_eq(ngd_shared_write(o, 0, "a", 1, &diag), NGD_ERR_IO);
    ck_assert_ptr_nonnull(strstr(diag.text, "cannot be written"));
    ck_assert_int_eq(ngd_shared_read(o, 0, text, 1, NULL), NGD_OK);
    ck_assert_int_eq(ngd_shared_read(o, BYTES, text, 1, &diag),
                     NGD_ERR_IO); /* nobody asks for it: the end of the file */
    ngd_object_unref(&o->base);
    teardown();
}
END_TEST

START_TEST(what_is_refused_is_closed_and_not_charged)
{
    struct ngd_shared_object *o;
    int fd;

    setup();
    for (int missing = 0; missing < 3; missing++) {
        static const int seals[] = {SEALS & ~F_SEAL_SHRINK, SEALS & ~F_SEAL_GROW, SEALS & ~F_SEAL_SEAL};

        fd = make_memfd(BYTES, seals[missing]);
        ck_assert_int_eq(ngd_shared_adopt(fd, BYTES, identity, reaper, &o, NULL), NGD_ERR_INVALID_ARGUMENT);
        ck_assert_int_eq(fcntl(fd, F_GETFD), -1);
    }
    fd = make_memfd(BYTES, SEALS);
    ck_assert_int_eq(ngd_shared_adopt(fd, BYTES - 1, identity, reaper, &o, NULL), NGD_ERR_INVALID_ARGUMENT);
    fd = make_memfd((uint64_t)129 << 20, SEALS);
    ck_assert_int_eq(ngd_shared_adopt(fd, (uint64_t)129 << 20, identity, reaper, &o, NULL), NGD_ERR_QUOTA);
    ck_assert_int_eq(fcntl(fd, F_GETFD), -1);
    ck_assert_int_eq(ngd_shared_adopt(-1, BYTES, identity, reaper, &o, NULL), NGD_ERR_INVALID_ARGUMENT);
    fd = make_memfd(BYTES, SEALS);
    ngd_mem_fail_after(0);
    ck_assert_int_eq(ngd_shared_adopt(fd, BYTES, identity, reaper, &o, NULL), NGD_ERR_NO_MEMORY);
    ngd_mem_fail_after(-1);
    ck_assert_int_eq(fcntl(fd, F_GETFD), -1);
    teardown();
}
END_TEST

START_TEST(large_memory_is_closed_by_the_reaper)
{
    struct ngd_shared_object *o;
    int fd;

    setup();
    o = adopt((uint64_t)64 << 20, SEALS);
    fd = o->fd;
    ngd_object_unref(&o->base);
    while (ngd_jobs_pending(reaper) > 0)
        usleep(100);
    ck_assert_int_eq(fcntl(fd, F_GETFD), -1);
    ck_assert_uint_eq(identity->used[NGD_QUOTA_SHARED_BYTES], 0);
    teardown();
}
END_TEST

START_TEST(blocks_are_kept_and_larger_ones_replace_them)
{
    struct ngd_blocks blocks = {{NULL}};
    struct ngd_block *a = ngd_blocks_take(&blocks, 100), *b = ngd_blocks_take(&blocks, 0), *c;

    ck_assert_ptr_nonnull(a);
    ck_assert_ptr_nonnull(b);
    ck_assert_uint_eq((uintptr_t)a->data % 64, 0);
    memset(a->data, 1, a->bytes);
    ngd_blocks_give(&blocks, a);
    ngd_blocks_give(&blocks, b);
    ck_assert_ptr_eq(ngd_blocks_take(&blocks, 100), a);
    c = ngd_blocks_take(&blocks, 5000);
    ck_assert_ptr_nonnull(c);
    ck_assert_uint_ge(c->bytes, 5000);
    memset(c->data, 1, c->bytes);
    ngd_blocks_give(&blocks, a);
    ngd_blocks_give(&blocks, c);
    ngd_blocks_give(&blocks, ngd_blocks_take(&(struct ngd_blocks){{NULL}}, 1)); /* a third one is not kept */
    ngd_blocks_give(&blocks, ngd_blocks_take(&blocks, NGD_BLOCKS_MAX + 1));     /* nor a very large one */
    ngd_mem_fail_after(0);
    ck_assert_ptr_null(ngd_blocks_take(&blocks, 1 << 20));
    ngd_mem_fail_after(-1);
    ngd_blocks_fini(&blocks);
}
END_TEST

UNIT_MAIN("daemon/shared", bytes_are_read_and_written_at_their_place, a_range_is_within_the_buffer,
          memory_that_cannot_be_written_is_an_error, what_is_refused_is_closed_and_not_charged,
          large_memory_is_closed_by_the_reaper, blocks_are_kept_and_larger_ones_replace_them)
