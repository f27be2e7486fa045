/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_TESTS_STORE_UTIL_H
#define NGD_TESTS_STORE_UTIL_H

/* Helpers for tests of the store: a directory that is removed after its test, and files in it. */
#include "graphs/store.h"
#include "tests/unit/unit.h"
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static char store_base[64], store_dir[96];

static inline void remove_tree(const char *path)
{
    DIR *d = opendir(path);

    for (const struct dirent *e; d && (e = readdir(d));) {
        char below[512];

        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        snprintf(below, sizeof(below), "%.250s/%.250s", path, e->d_name);
        if (unlink(below) != 0)
            remove_tree(below);
    }
    if (d)
        closedir(d);
    rmdir(path);
}

static inline void setup_dir(void)
{
    /* The directory is in memory if possible: thousands of fsyncs on a disk would take long and test nothing more. */
    snprintf(store_base, sizeof(store_base), "%s/ngd-store-XXXXXX",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    ck_assert_ptr_nonnull(mkdtemp(store_base));
    snprintf(store_dir, sizeof(store_dir), "%s/store", store_base);
}

static inline void teardown_dir(void)
{
    remove_tree(store_base);
}

static inline struct ngd_store *open_store(uint64_t budget)
{
    struct ngd_store_params params = {.dir = store_dir, .budget = budget};
    struct ngd_store *store = NULL;
    struct ngd_diag diag = {0};

    if (ngd_store_open(&params, &store, &diag))
        ck_abort_msg("%s", diag.text);
    return store;
}

static inline size_t read_file(const char *path, uint8_t *data, size_t room)
{
    FILE *f = fopen(path, "rb");
    size_t n;

    ck_assert_ptr_nonnull(f);
    n = fread(data, 1, room, f);
    fclose(f);
    return n;
}

static inline void write_file(const char *path, const void *data, size_t n)
{
    FILE *f = fopen(path, "wb");

    ck_assert_ptr_nonnull(f);
    ck_assert_uint_eq(fwrite(data, 1, n, f), n);
    fclose(f);
}

static inline unsigned count_files(const char *part)
{
    char path[160];
    unsigned n = 0;
    DIR *d;

    snprintf(path, sizeof(path), "%s/%s", store_dir, part);
    d = opendir(path);
    ck_assert_ptr_nonnull(d);
    while (readdir(d))
        n++;
    closedir(d);
    return n - 2;
}

#endif
