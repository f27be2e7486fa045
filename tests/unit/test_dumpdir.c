/* SPDX-License-Identifier: Apache-2.0 */
#include "base/dumpdir.h"
#include "base/mem.h"
#include "base/npy.h"
#include "tests/unit/purse.h"
#include "tests/unit/unit.h"
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- npy ---------------------------------------------------------------------------------------------- */

static char *make(ngd_dtype_t dtype, const int64_t *dims, uint32_t rank, const void *data, size_t *n_p)
{
    void *file = NULL;

    ck_assert_int_eq(ngd_npy_make(dtype, dims, rank, data, &file, n_p), NGD_OK);
    return file;
}

START_TEST(npy_files_have_numpys_header_and_aligned_elements)
{
    const float data[6] = {0, 1, 2, 3, 4, 5};
    const int64_t dims[2] = {2, 3};
    size_t n, head;
    char *file = make(NGD_F32, dims, 2, data, &n);

    ck_assert(memcmp(file, "\x93NUMPY\x01\x00", 8) == 0);
    head = 10 + (size_t)((unsigned char)file[8] | (unsigned char)file[9] << 8);
    ck_assert_uint_eq(head % 64, 0);
    ck_assert_int_eq(file[head - 1], '\n');
    ck_assert(strncmp(file + 10, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }", 59) == 0);
    ck_assert_uint_eq(n, head + sizeof(data));
    ck_assert(memcmp(file + head, data, sizeof(data)) == 0);
    ngd_free(file);
}
END_TEST

START_TEST(npy_scalars_vectors_and_empty_tensors_have_the_right_shapes)
{
    static const struct {
        int64_t dims[3];
        uint32_t rank;
        const char *shape;
        size_t bytes;
    } cases[] = {
        {{0}, 0, "'shape': (), ", 8}, {{3}, 1, "'shape': (3,), ", 24}, {{2, 0, 5}, 3, "'shape': (2, 0, 5), ", 0}};
    const int64_t data[3] = {7, -8, 9};

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        size_t n;
        char *file = make(NGD_I64, cases[i].dims, cases[i].rank, data, &n);
        size_t head = 10 + (size_t)((unsigned char)file[8] | (unsigned char)file[9] << 8);
        char text[129] = "";

        memcpy(text, file + 10, head - 10 < 128 ? head - 10 : 128);
        ck_assert_msg(strstr(text, cases[i].shape) && strstr(text, "<i8"), "%s", text);
        ck_assert_uint_eq(n - head, cases[i].bytes);
        ngd_free(file);
    }
}
END_TEST

START_TEST(npy_widens_what_numpy_does_not_know_and_refuses_bad_shapes)
{
    const uint16_t data[2] = {ngd_f32_to_bf16(1.5f), ngd_f32_to_bf16(-4.0f)};
    const int64_t two = 2, negative = -1, huge[2] = {INT64_MAX, 4};
    size_t n, head;
    float wide[2];
    void *none = NULL;
    char *file = make(NGD_BF16, &two, 1, data, &n);

    head = 10 + (size_t)((unsigned char)file[8] | (unsigned char)file[9] << 8);
    ck_assert_uint_eq(n - head, sizeof(wide));
    memcpy(wide, file + head, sizeof(wide));
    ck_assert(wide[0] == 1.5f && wide[1] == -4.0f);
    ngd_free(file);
    ck_assert_int_eq(ngd_npy_make(NGD_F32, &negative, 1, data, &none, &n), NGD_ERR_OVERFLOW);
    ck_assert_int_eq(ngd_npy_make(NGD_F32, huge, 2, data, &none, &n), NGD_ERR_OVERFLOW);
    ck_assert_int_eq(ngd_npy_make(NGD_DTYPE_MAX, &two, 1, data, &none, &n), NGD_ERR_INVALID_ARGUMENT);
    ck_assert_ptr_null(none);
}
END_TEST

enum { COST = NGD_DUMP_FILE + NGD_DUMP_BLOCK }; /* cost of a file of a few bytes */

/* ---- directories -------------------------------------------------------------------------------------- */

struct place {
    char top[64], allowed[96], outside[96];
    const char *list[1];
    struct ngd_dumps dumps;
};

static void place_open(struct place *p)
{
    memset(p, 0, sizeof(*p));
    snprintf(p->top, sizeof(p->top), "/tmp/ngd-dumpdir-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(p->top));
    snprintf(p->allowed, sizeof(p->allowed), "%s/allowed", p->top);
    snprintf(p->outside, sizeof(p->outside), "%s/outside", p->top);
    ck_assert_int_eq(mkdir(p->allowed, 0700), 0);
    ck_assert_int_eq(mkdir(p->outside, 0700), 0);
    p->list[0] = p->allowed;
    ngd_dumps_init(&p->dumps, p->list, 1, 0);
}

static void place_close(struct place *p)
{
    char command[160];

    snprintf(command, sizeof(command), "rm -rf '%s'", p->top);
    ck_assert_int_eq(system(command), 0);
}

static bool exists(const char *dir, const char *name)
{
    char path[400];

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    return access(path, F_OK) == 0;
}

START_TEST(directories_below_an_allowed_one_are_made_and_written)
{
    struct place p;
    char path[200];
    int fd = -1;

    place_open(&p);
    ck_assert_int_eq(ngd_dumps_open(&p.dumps, NULL, "a//b/./c", &fd, NULL), NGD_OK);
    ck_assert_int_eq(ngd_dumps_write(&p.dumps, NULL, fd, "x/../y z.npy", "data", 4, NULL), NGD_OK);
    ck_assert(exists(p.allowed, "a/b/c/x_.._y_z.npy"));
    close(fd);
    snprintf(path, sizeof(path), "%s/a", p.allowed);
    ck_assert_int_eq(ngd_dumps_open(&p.dumps, NULL, path, &fd, NULL), NGD_OK);
    ck_assert_int_eq(ngd_dumps_write(&p.dumps, NULL, fd, ".hidden", "data", 4, NULL), NGD_OK);
    ck_assert(exists(p.allowed, "a/_hidden"));
    close(fd);
    ck_assert_int_eq(ngd_dumps_open(&p.dumps, NULL, p.allowed, &fd, NULL), NGD_OK);
    close(fd);
    place_close(&p);
}
END_TEST

START_TEST(paths_outside_and_through_links_are_refused_in_words)
{
    struct ngd_dumps none = {.lock = NGD_MUTEX_INITIALIZER(NGD_RANK_DUMPS)};
    struct ngd_diag diag = {0};
    struct place p;
    char link[200], beside[200];
    int fd = -1;

    place_open(&p);
    snprintf(link, sizeof(link), "%s/link", p.allowed);
    snprintf(beside, sizeof(beside), "%sx", p.allowed);
    ck_assert_int_eq(symlink(p.outside, link), 0);
    ck_assert_int_eq(ngd_dumps_check(&p.dumps, p.outside, &diag), NGD_ERR_PERMISSION_DENIED);
    ck_assert(strstr(diag.text, "dump-dir"));
    ck_assert_int_eq(ngd_dumps_check(&p.dumps, beside, &diag), NGD_ERR_PERMISSION_DENIED);
    ck_assert_int_eq(ngd_dumps_check(&p.dumps, "a/../../outside", &diag), NGD_ERR_PERMISSION_DENIED);
    ck_assert(strstr(diag.text, "\"..\""));
    ck_assert_int_eq(ngd_dumps_check(&p.dumps, "a/..b", NULL), NGD_OK);
    ck_assert_int_eq(ngd_dumps_check(&p.dumps, link, &diag), NGD_ERR_PERMISSION_DENIED);
    ck_assert(strstr(diag.text, "link"));
    ck_assert_int_eq(ngd_dumps_check(&p.dumps, "link/sub", &diag), NGD_ERR_PERMISSION_DENIED);
    ck_assert_int_eq(ngd_dumps_open(&p.dumps, NULL, link, &fd, &diag), NGD_ERR_PERMISSION_DENIED);
    ck_assert(strstr(diag.text, "link"));
    ck_assert_int_eq(ngd_dumps_open(&p.dumps, NULL, "link/sub", &fd, &diag), NGD_ERR_PERMISSION_DENIED);
    ck_assert(!exists(p.outside, "sub"));
    ck_assert_int_eq(ngd_dumps_check(&none, "a", &diag), NGD_ERR_PERMISSION_DENIED);
    ck_assert_int_eq(fd, -1);
    place_close(&p);
}
END_TEST

START_TEST(check_looks_at_what_is_there_and_makes_nothing)
{
    struct ngd_diag diag = {0};
    struct place p;
    char path[200];
    int fd = -1;

    place_open(&p);
    ck_assert_int_eq(ngd_dumps_check(&p.dumps, "a/b/c", NULL), NGD_OK);
    ck_assert(!exists(p.allowed, "a"));
    ck_assert_int_eq(ngd_dumps_open(&p.dumps, NULL, "a/b", &fd, NULL), NGD_OK);
    ck_assert_int_eq(ngd_dumps_write(&p.dumps, NULL, fd, "file", "data", 4, NULL), NGD_OK);
    close(fd);
    ck_assert_int_eq(ngd_dumps_check(&p.dumps, "a/b", NULL), NGD_OK);
    ck_assert_int_eq(ngd_dumps_check(&p.dumps, "a/b/c/d", NULL), NGD_OK);
    ck_assert_int_eq(ngd_dumps_check(&p.dumps, "a/b/file/d", &diag), NGD_ERR_PERMISSION_DENIED);
    ck_assert(strstr(diag.text, "not a directory"));
    if (geteuid() != 0) { /* root may write everywhere */
        snprintf(path, sizeof(path), "%s/a/b", p.allowed);
        ck_assert_int_eq(chmod(path, 0500), 0);
        ck_assert_int_eq(ngd_dumps_check(&p.dumps, "a/b/c", &diag), NGD_ERR_PERMISSION_DENIED);
        ck_assert_int_eq(chmod(path, 0700), 0);
    }
    snprintf(path, sizeof(path), "%s/gone", p.top);
    p.list[0] = path;
    ck_assert_int_eq(ngd_dumps_check(&p.dumps, "a", &diag), NGD_ERR_FILE_NOT_FOUND);
    ck_assert(strstr(diag.text, "/gone"));
    place_close(&p);
}
END_TEST

START_TEST(files_are_new_ones_and_within_the_budget)
{
    struct ngd_diag diag = {0};
    struct place p;
    char target[200];
    int fd = -1;

    place_open(&p);
    snprintf(target, sizeof(target), "%s/target", p.outside);
    ck_assert_int_eq(ngd_dumps_open(&p.dumps, NULL, "", &fd, NULL), NGD_OK);
    ck_assert_int_eq(ngd_dumps_write(&p.dumps, NULL, fd, "one", "1234", 4, NULL), NGD_OK);
    ck_assert_int_ne(ngd_dumps_write(&p.dumps, NULL, fd, "one", "1234", 4, &diag), NGD_OK);
    ck_assert_int_eq(symlinkat(target, fd, "two"), 0);
    ck_assert_int_ne(ngd_dumps_write(&p.dumps, NULL, fd, "two", "1234", 4, &diag), NGD_OK);
    ck_assert(!exists(p.outside, "target"));
    ck_assert_uint_eq(atomic_load(&p.dumps.written), COST); /* a failed write costs nothing */
    p.dumps.budget = atomic_load(&p.dumps.written) + COST + 1;
    ck_assert_int_eq(ngd_dumps_write(&p.dumps, NULL, fd, "three", "1234", 4, &diag), NGD_OK);
    ck_assert_int_eq(ngd_dumps_write(&p.dumps, NULL, fd, "four", "1234", 4, &diag), NGD_ERR_RESOURCE_EXHAUSTED);
    ck_assert(strstr(diag.text, "dump-limit"));
    ck_assert(!exists(p.allowed, "four"));
    close(fd);
    place_close(&p);
}
END_TEST

START_TEST(payers_are_charged_for_what_was_written_and_refused_one_by_one)
{
    struct purse mine = {.base.ops = &purse_ops, .limit = 2 * COST + 1}, yours = mine;
    struct ngd_diag diag = {0};
    struct place p;
    int fd = -1;

    place_open(&p);
    p.dumps.budget = 4 * COST;
    ck_assert_int_eq(ngd_dumps_open(&p.dumps, NULL, "", &fd, NULL), NGD_OK);
    ck_assert_int_eq(ngd_dumps_write(&p.dumps, &mine.base, fd, "one", "1234", 4, NULL), NGD_OK);
    ck_assert_int_eq(ngd_dumps_write(&p.dumps, &mine.base, fd, "two", "1234", 4, NULL), NGD_OK);
    ck_assert_int_ne(ngd_dumps_write(&p.dumps, &mine.base, fd, "two", "1", 1, NULL), NGD_OK); /* is there */
    ck_assert_uint_eq(mine.used, 2 * COST);
    ck_assert_int_eq(ngd_dumps_write(&p.dumps, &mine.base, fd, "three", "1234", 4, &diag), NGD_ERR_RESOURCE_EXHAUSTED);
    ck_assert(strstr(diag.text, "max-dump-bytes-per-identity"));
    ck_assert(!exists(p.allowed, "three"));
    ck_assert_uint_eq(mine.used, 2 * COST);
    ck_assert_uint_eq(atomic_load(&p.dumps.written), 2 * COST); /* refused writes charge nobody */
    ck_assert_int_eq(ngd_dumps_write(&p.dumps, &yours.base, fd, "three", "12345678", 8, NULL), NGD_OK);
    ck_assert_int_eq(ngd_dumps_write(&p.dumps, NULL, fd, "nobody's", "1234", 4, NULL), NGD_OK);
    ck_assert_int_eq(ngd_dumps_write(&p.dumps, &yours.base, fd, "four", "1", 1, &diag), NGD_ERR_RESOURCE_EXHAUSTED);
    ck_assert(strstr(diag.text, "dump-limit"));
    ck_assert_uint_eq(yours.used, COST);
    ngd_mem_fail_after(0);
    p.dumps.budget = 0;
    ck_assert_int_eq(ngd_dumps_write(&p.dumps, &yours.base, fd, "five", "1", 1, NULL), NGD_OK); /* known already */
    ngd_dumps_fini(&p.dumps);
    ck_assert_int_eq(ngd_dumps_write(&p.dumps, &yours.base, fd, "six", "1", 1, NULL), NGD_ERR_NO_MEMORY);
    ngd_mem_fail_after(-1);
    ck_assert(!exists(p.allowed, "six"));
    ck_assert(mine.used == 0 && mine.refs == 0 && yours.used == 0 && yours.refs == 0);
    close(fd);
    place_close(&p);
}
END_TEST

START_TEST(directories_and_empty_files_count_and_are_not_made_past_the_budget)
{
    struct purse mine = {.base.ops = &purse_ops, .limit = 2 * NGD_DUMP_BLOCK};
    struct ngd_diag diag = {0};
    struct place p;
    int fd = -1, none = -1;

    place_open(&p);
    ck_assert_int_eq(ngd_dumps_open(&p.dumps, &mine.base, "a/b", &fd, NULL), NGD_OK);
    close(fd);
    ck_assert_uint_eq(mine.used, 2 * NGD_DUMP_BLOCK);
    ck_assert_int_eq(ngd_dumps_open(&p.dumps, &mine.base, "a/c", &fd, &diag), NGD_ERR_RESOURCE_EXHAUSTED);
    ck_assert(strstr(diag.text, "max-dump-bytes-per-identity"));
    ck_assert(!exists(p.allowed, "a/c"));
    ck_assert_int_eq(ngd_dumps_open(&p.dumps, &mine.base, "a/b", &fd, NULL), NGD_OK); /* is there: costs nothing */
    ck_assert_uint_eq(mine.used, 2 * NGD_DUMP_BLOCK);
    ck_assert_uint_eq(atomic_load(&p.dumps.written), 2 * NGD_DUMP_BLOCK);
    mine.limit = 2 * NGD_DUMP_BLOCK + 2 * NGD_DUMP_FILE + 2 * NGD_DUMP_BLOCK;
    p.dumps.budget = mine.limit;
    ck_assert_int_eq(ngd_dumps_write(&p.dumps, &mine.base, fd, "none", "", 0, NULL), NGD_OK);
    ck_assert_uint_eq(mine.used, 2 * NGD_DUMP_BLOCK + NGD_DUMP_FILE);
    ck_assert_int_eq(ngd_dumps_write(&p.dumps, &mine.base, fd, "two", p.top, 1, NULL), NGD_OK);
    ck_assert_uint_eq(mine.used, 3 * NGD_DUMP_BLOCK + 2 * NGD_DUMP_FILE);
    ck_assert_int_eq(ngd_dumps_open(&p.dumps, NULL, "d/e", &none, &diag), NGD_ERR_RESOURCE_EXHAUSTED);
    ck_assert(strstr(diag.text, "dump-limit"));
    ck_assert(exists(p.allowed, "d") && !exists(p.allowed, "d/e"));
    close(fd);
    ngd_dumps_fini(&p.dumps);
    ck_assert(mine.used == 0 && mine.refs == 0);
    place_close(&p);
}
END_TEST

UNIT_MAIN("base/dumpdir", npy_files_have_numpys_header_and_aligned_elements,
          npy_scalars_vectors_and_empty_tensors_have_the_right_shapes,
          npy_widens_what_numpy_does_not_know_and_refuses_bad_shapes,
          directories_below_an_allowed_one_are_made_and_written, paths_outside_and_through_links_are_refused_in_words,
          check_looks_at_what_is_there_and_makes_nothing, files_are_new_ones_and_within_the_budget,
          payers_are_charged_for_what_was_written_and_refused_one_by_one,
          directories_and_empty_files_count_and_are_not_made_past_the_budget)
