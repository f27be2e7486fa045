/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fault.h"
#include "base/mem.h"
#include "base/metrics.h"
#include "graphs/store.h"
#include "graphs/store_int.h"
#include "tests/unit/store_util.h"
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void refused(const char *what)
{
    struct ngd_store_params params = {.dir = store_dir};
    struct ngd_store *store = NULL;
    struct ngd_diag diag = {0};

    ck_assert_int_ne(ngd_store_open(&params, &store, &diag), NGD_OK);
    ck_assert_ptr_null(store);
    ck_assert_msg(strstr(diag.text, store_dir) && strstr(diag.text, what), "%s", diag.text);
}

/* ---- entries ------------------------------------------------------------------------------------------- */

struct thing {
    char identity[128];
    uint8_t payload[4000];
    struct ngd_store_entry entry;
};

static void make(struct thing *t, unsigned number, size_t bytes)
{
    snprintf(t->identity, sizeof(t->identity), NGD_STORE_FORMAT "\nkind plan\nnumber %u\n", number);
    for (size_t i = 0; i < bytes; i++)
        t->payload[i] = (uint8_t)(number * 31 + i * 7);
    t->entry = (struct ngd_store_entry){.identity = t->identity,
                                        .n_identity = strlen(t->identity),
                                        .notes = "made by a test\n",
                                        .n_notes = 15,
                                        .payload = t->payload,
                                        .n_payload = bytes};
}

static void put(struct ngd_store *store, struct thing *t, unsigned number, size_t bytes)
{
    struct ngd_diag diag = {0};

    make(t, number, bytes);
    if (ngd_store_put(store, &t->entry, &diag))
        ck_abort_msg("%s", diag.text);
}

static ngd_store_reason_t get(struct ngd_store *store, const struct thing *t)
{
    struct ngd_store_blob blob = {.data = NULL};
    ngd_store_reason_t reason = ngd_store_get(store, t->identity, strlen(t->identity), &blob);

    if (reason != NGD_STORE_FOUND) {
        ck_assert_ptr_null(blob.data);
        return reason;
    }
    ck_assert_uint_eq(blob.entry.n_payload, t->entry.n_payload);
    ck_assert_mem_eq(blob.entry.payload, t->payload, t->entry.n_payload);
    ck_assert_uint_eq(blob.entry.n_notes, 15);
    ngd_store_blob_fini(&blob);
    return reason;
}

static void path_of(const struct thing *t, char *path, size_t room)
{
    char name[NGD_STORE_NAME_MAX];

    ck_assert(ngd_store_name(t->identity, strlen(t->identity), name));
    snprintf(path, room, "%s/entries/%s", store_dir, name);
}

static void verify_clean(struct ngd_store *store, unsigned entries)
{
    uint32_t good = 0, bad = 9;

    ck_assert_int_eq(ngd_store_verify(store, NULL, NULL, &good, &bad, NULL), NGD_OK);
    ck_assert_uint_eq(bad, 0);
    if (entries)
        ck_assert_uint_eq(good, entries);
}

START_TEST(entry_comes_back_also_for_the_next_process)
{
    struct ngd_store *store;
    struct thing t;

    setup_dir();
    store = open_store(0);
    make(&t, 1, 100);
    ck_assert_int_eq(get(store, &t), NGD_STORE_ABSENT);
    put(store, &t, 1, 100);
    ck_assert_int_eq(get(store, &t), NGD_STORE_FOUND);
    put(store, &t, 1, 4000); /* replaced */
    ck_assert_int_eq(get(store, &t), NGD_STORE_FOUND);
    ngd_store_close(store);
    store = open_store(0);
    ck_assert_int_eq(get(store, &t), NGD_STORE_FOUND);
    make(&t, 2, 100);
    ck_assert_int_eq(get(store, &t), NGD_STORE_ABSENT);
    verify_clean(store, 1);
    ck_assert_uint_eq(count_files("tmp"), 0);
    ngd_store_close(store);
    teardown_dir();
}
END_TEST

/* Damages a file: the entry is a miss, the file is set aside, and a new one takes its place. */
static void check_damage(struct ngd_store *store, struct thing *t, const char *path, const uint8_t *data, size_t n)
{
    struct ngd_store_stats before, after;
    ngd_store_reason_t reason;

    write_file(path, data, n);
    ngd_store_stats(store, &before);
    reason = get(store, t);
    ngd_store_stats(store, &after);
    ck_assert_msg(reason == NGD_STORE_TRUNCATED || reason == NGD_STORE_CHECKSUM || reason == NGD_STORE_FORMAT_OTHER,
                  "%s", ngd_store_reason_name(reason));
    ck_assert_uint_eq(after.set_aside, before.set_aside + 1);
    ck_assert_uint_eq(after.misses, before.misses + 1);
    ck_assert_uint_eq(after.hits, before.hits);
    ck_assert_int_eq(access(path, F_OK), -1);
    ck_assert_int_eq(get(store, t), NGD_STORE_ABSENT);
}

START_TEST(every_changed_byte_sets_the_entry_aside)
{
    uint8_t data[1024];
    struct ngd_store *store;
    struct thing t;
    char path[256];
    size_t n;

    setup_dir();
    store = open_store(0);
    put(store, &t, 1, 200);
    path_of(&t, path, sizeof(path));
    n = read_file(path, data, sizeof(data));
    ck_assert_uint_gt(n, 200);
    for (size_t i = 0; i < n; i++) {
        data[i] ^= (uint8_t)(1 << i % 8);
        check_damage(store, &t, path, data, n);
        data[i] ^= (uint8_t)(1 << i % 8);
    }
    put(store, &t, 1, 200);
    ck_assert_int_eq(get(store, &t), NGD_STORE_FOUND);
    ck_assert_uint_le(count_files("aside"), NGD_STORE_ASIDE_MAX);
    ck_assert_uint_ge(ngd_metric_row_get(ngd_metric_row(NGD_M_STORE_SET_ASIDE, "checksum")), 200);
    ngd_store_close(store);
    teardown_dir();
}
END_TEST

START_TEST(every_truncation_and_more_bytes_set_the_entry_aside)
{
    uint8_t data[1024] = {0};
    struct ngd_store *store;
    struct thing t;
    char path[256];
    size_t n;

    setup_dir();
    store = open_store(0);
    put(store, &t, 1, 100);
    path_of(&t, path, sizeof(path));
    n = read_file(path, data, sizeof(data));
    for (size_t i = 0; i < n; i++)
        check_damage(store, &t, path, data, i);
    check_damage(store, &t, path, data, n + 1);
    write_file(path, data, n);
    ck_assert_int_eq(get(store, &t), NGD_STORE_FOUND);
    ngd_store_close(store);
    teardown_dir();
}
END_TEST

START_TEST(what_is_no_file_of_ours_is_set_aside)
{
    struct ngd_store *store;
    static struct thing t, other;
    char path[256], from[256];

    setup_dir();
    store = open_store(0);
    put(store, &t, 1, 100);
    put(store, &other, 2, 100);
    path_of(&t, path, sizeof(path));
    path_of(&other, from, sizeof(from));
    /* A good entry under the name of another. */
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_int_eq(link(from, path), 0);
    ck_assert_int_eq(get(store, &t), NGD_STORE_FOREIGN);
    ck_assert_int_eq(get(store, &other), NGD_STORE_FOUND);
    ck_assert_int_eq(symlink(from, path), 0);
    ck_assert_int_eq(get(store, &t), NGD_STORE_NOT_A_FILE);
    ck_assert_int_eq(mkdir(path, 0700), 0);
    ck_assert_int_eq(get(store, &t), NGD_STORE_NOT_A_FILE);
    ck_assert_int_eq(mkfifo(path, 0700), 0);
    ck_assert_int_eq(get(store, &t), NGD_STORE_NOT_A_FILE);
    ck_assert_int_eq(get(store, &t), NGD_STORE_ABSENT);
    if (geteuid() == 0) {
        put(store, &t, 1, 100);
        ck_assert_int_eq(chown(path, 1, 1), 0);
        ck_assert_int_eq(get(store, &t), NGD_STORE_FOREIGN);
    }
    put(store, &t, 1, 100);
    ck_assert_int_eq(get(store, &t), NGD_STORE_FOUND);
    ngd_store_close(store);
    teardown_dir();
}
END_TEST

START_TEST(entry_that_does_not_load_is_set_aside_by_its_user)
{
    struct ngd_store *store;
    struct thing t;

    setup_dir();
    store = open_store(0);
    put(store, &t, 1, 100);
    ck_assert_int_eq(get(store, &t), NGD_STORE_FOUND);
    ngd_store_set_aside(store, t.identity, strlen(t.identity), NGD_STORE_OUTDATED, NULL);
    ck_assert_int_eq(get(store, &t), NGD_STORE_ABSENT);
    ck_assert_uint_eq(count_files("aside"), 1);
    ck_assert_uint_eq(ngd_metric_row_get(ngd_metric_row(NGD_M_STORE_MISSES, "outdated")), 1);
    ngd_store_close(store);
    teardown_dir();
}
END_TEST

/* ---- directories --------------------------------------------------------------------------------------- */

START_TEST(bad_directories_are_refused_in_words)
{
    struct ngd_store *store;
    char path[160];

    setup_dir();
    write_file(store_dir, "x", 1);
    refused("is a link or no directory");
    ck_assert_int_eq(unlink(store_dir), 0);
    ck_assert_int_eq(symlink(store_base, store_dir), 0);
    refused("is a link or no directory");
    ck_assert_int_eq(unlink(store_dir), 0);
    ck_assert_int_eq(mkdir(store_dir, 0700), 0);
    ck_assert_int_eq(chmod(store_dir, 0770), 0);
    refused("chmod go-w");
    ck_assert_int_eq(chmod(store_dir, 0700), 0);
    if (geteuid() == 0) {
        ck_assert_int_eq(chown(store_dir, 1, 1), 0);
        refused("belongs to user 1");
        ck_assert_int_eq(chown(store_dir, 0, 0), 0);
    } else {
        ck_assert_int_eq(chmod(store_dir, 0500), 0);
        refused("Permission denied");
        ck_assert_int_eq(chmod(store_dir, 0700), 0);
    }
    snprintf(path, sizeof(path), "%s/entries", store_dir);
    ck_assert_int_eq(symlink(store_base, path), 0);
    refused("entries cannot be used");
    ck_assert_int_eq(unlink(path), 0);
    snprintf(path, sizeof(path), "%s/version", store_dir);
    write_file(path, "npugraph-store 99\n", 18);
    refused("give a directory of its own");
    ck_assert_int_eq(unlink(path), 0);
    store = open_store(0);
    ngd_store_close(store);
    remove_tree(store_dir);
    snprintf(store_dir, sizeof(store_dir), "%s/not/there", store_base);
    refused("No such file");
    teardown_dir();
}
END_TEST

/* A link in the place of each part of the store is refused and not followed, and the store's
 * entries are still there. */
START_TEST(links_inside_are_refused_and_not_followed)
{
    static const char *const parts[] = {"entries", "notes", "aside", "tmp", "lock", "version"};
    struct ngd_store *store;
    char outside[128], path[160], kept[160];
    struct thing t;

    setup_dir();
    store = open_store(0);
    put(store, &t, 1, 100);
    ngd_store_close(store);
    snprintf(outside, sizeof(outside), "%s/outside", store_base);
    snprintf(kept, sizeof(kept), "%s/kept", store_base);
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        bool dir = i < 4;

        if (dir)
            ck_assert_int_eq(mkdir(outside, 0700), 0);
        else
            write_file(outside, "theirs", 6);
        snprintf(path, sizeof(path), "%s/%s", store_dir, parts[i]);
        ck_assert_int_eq(rename(path, kept), 0);
        ck_assert_int_eq(symlink(outside, path), 0);
        refused(parts[i]);
        ck_assert_int_eq(unlink(path), 0);
        ck_assert_int_eq(rename(kept, path), 0);
        if (dir) {
            ck_assert_int_eq(rmdir(outside), 0); /* nothing was written into it */
        } else {
            uint8_t data[16];

            ck_assert_uint_eq(read_file(outside, data, sizeof(data)), 6);
            ck_assert_mem_eq(data, "theirs", 6);
            ck_assert_int_eq(unlink(outside), 0);
        }
    }
    store = open_store(0);
    ck_assert_int_eq(get(store, &t), NGD_STORE_FOUND);
    ngd_store_close(store);
    teardown_dir();
}
END_TEST

START_TEST(full_disk_is_counted_and_leaves_no_trace)
{
    struct ngd_store *store;
    struct ngd_store_stats stats;
    struct ngd_diag diag = {0};
    struct thing t;

    setup_dir();
    store = open_store(0);
    if (NGD_FAULT_COMPILED) {
        make(&t, 1, 100);
        ngd_fault_arm(NGD_FAULT_STORE_WRITE, 0, 1);
        ck_assert_int_eq(ngd_store_put(store, &t.entry, &diag), NGD_ERR_DISK_FULL);
        ngd_fault_arm(NGD_FAULT_STORE_SYNC, 0, 1);
        ck_assert_int_eq(ngd_store_put(store, &t.entry, &diag), NGD_ERR_IO);
        ck_assert_int_eq(get(store, &t), NGD_STORE_ABSENT);
        ck_assert_uint_eq(count_files("tmp"), 0);
        ngd_store_stats(store, &stats);
        ck_assert_uint_eq(stats.write_failures, 2);
        ck_assert_uint_eq(ngd_metric_row_get(ngd_metric_row(NGD_M_STORE_WRITE_FAILURES, "DISK_FULL")), 1);
    }
    put(store, &t, 1, 100);
    ck_assert_int_eq(get(store, &t), NGD_STORE_FOUND);
    ngd_store_close(store);
    if (NGD_FAULT_COMPILED) {
        ngd_fault_arm(NGD_FAULT_STORE_WRITE, 0, 1);
        refused("No space left");
    }
    teardown_dir();
}
END_TEST

/* ---- budget -------------------------------------------------------------------------------------------- */

static void set_used(const struct thing *t, time_t when)
{
    struct timespec times[2] = {{.tv_sec = when}, {.tv_sec = when}};
    char path[256];

    path_of(t, path, sizeof(path));
    ck_assert_int_eq(utimensat(AT_FDCWD, path, times, 0), 0);
}

START_TEST(least_recently_used_entries_go_when_the_budget_is_full)
{
    struct ngd_store *store;
    struct ngd_store_stats stats;
    static struct thing t[30];
    unsigned left = 0;

    setup_dir();
    store = open_store(20000); /* about 17 of these */
    for (unsigned i = 0; i < 12; i++) {
        put(store, &t[i], i, 1000);
        set_used(&t[i], 1000000 + (time_t)i);
    }
    ck_assert_int_eq(get(store, &t[0]), NGD_STORE_FOUND); /* now it is the newest */
    for (unsigned i = 12; i < 30; i++) {
        put(store, &t[i], i, 1000);
        set_used(&t[i], 2000000 + (time_t)i);
    }
    ngd_store_stats(store, &stats);
    ck_assert_uint_le(stats.bytes, 20000);
    ck_assert_uint_gt(stats.evictions, 10);
    ck_assert_int_eq(get(store, &t[29]), NGD_STORE_FOUND);
    ck_assert_int_eq(get(store, &t[0]), NGD_STORE_FOUND);
    for (unsigned i = 1; i < 12; i++)
        ck_assert_int_eq(get(store, &t[i]), NGD_STORE_ABSENT);
    for (unsigned i = 0; i < 30; i++)
        left += get(store, &t[i]) == NGD_STORE_FOUND;
    ck_assert_uint_eq(left, stats.entries);
    ck_assert_uint_ge(left, 13);
    ngd_store_close(store);
    teardown_dir();
}
END_TEST

START_TEST(entry_larger_than_the_budget_is_refused_and_evicts_nothing)
{
    struct ngd_store *store;
    struct ngd_diag diag = {0};
    static struct thing t, large;

    setup_dir();
    store = open_store(2000);
    put(store, &t, 1, 500);
    make(&large, 2, 3000);
    ck_assert_int_eq(ngd_store_put(store, &large.entry, &diag), NGD_ERR_RESOURCE_EXHAUSTED);
    ck_assert_ptr_nonnull(strstr(diag.text, "does not fit into a store of 2000 bytes"));
    ck_assert_int_eq(get(store, &t), NGD_STORE_FOUND);
    ngd_store_close(store);
    teardown_dir();
}
END_TEST

/* ---- owners -------------------------------------------------------------------------------------------- */

static void put_for(struct ngd_store *store, struct thing *t, unsigned number, const char *name, uint64_t limit)
{
    const struct ngd_store_payer payer = {name, limit};
    struct ngd_diag diag = {0};

    make(t, number, 1000);
    if (ngd_store_put_for(store, &t->entry, &payer, &diag))
        ck_abort_msg("%s", diag.text);
    set_used(t, 1000000 + (time_t)number);
}

static uint64_t held(struct ngd_store *store, const char *name)
{
    struct ngd_store_held h;

    ngd_store_held(store, name, &h);
    return h.bytes;
}

static uint64_t stored(struct ngd_store *store)
{
    struct ngd_store_stats stats;

    ngd_store_stats(store, &stats);
    return stats.bytes;
}

static bool is_there(const struct thing *t)
{
    char path[256];

    path_of(t, path, sizeof(path));
    return access(path, F_OK) == 0;
}

START_TEST(owner_at_the_limit_loses_the_oldest_of_its_own)
{
    static struct thing a, b[8], c;
    struct ngd_store *store;
    struct ngd_store_held h;
    struct ngd_diag diag = {0};

    setup_dir();
    store = open_store(0);
    put_for(store, &a, 1, "uid:1", 3000);
    put_for(store, &c, 2, "", 0);
    for (unsigned i = 0; i < 8; i++) {
        put_for(store, &b[i], 10 + i, "uid:2", 4000);
        ck_assert_uint_le(held(store, "uid:2"), 4000);
    }
    ck_assert(is_there(&a) && is_there(&c) && is_there(&b[7]) && is_there(&b[6]) && !is_there(&b[0]));
    ck_assert_uint_eq(held(store, "uid:1") + held(store, "uid:2") + held(store, ""), stored(store));
    make(&b[0], 30, 4000);
    ck_assert_int_eq(ngd_store_put_for(store, &b[0].entry, &(struct ngd_store_payer){"uid:2", 4000}, &diag),
                     NGD_ERR_QUOTA);
    ck_assert_ptr_nonnull(strstr(diag.text, "exceeds the 4000 bytes that uid:2 may have in the store"));
    ngd_store_held(store, "uid:2", &h);
    ck_assert_uint_eq(h.refused, 1);
    ck_assert(is_there(&b[7]));
    ngd_store_close(store);
    teardown_dir();
}
END_TEST

START_TEST(full_store_takes_from_nobody_and_then_from_who_has_most)
{
    static struct thing small[3], large[20], none[2];
    struct ngd_store *store;

    setup_dir();
    store = open_store(14000);
    for (unsigned i = 0; i < 3; i++)
        put_for(store, &small[i], i, "uid:1", 0);
    for (unsigned i = 0; i < 2; i++)
        put_for(store, &none[i], 90 + i, "", 0);
    for (unsigned i = 0; i < 20; i++)
        put_for(store, &large[i], 10 + i, "uid:2", 0);
    ck_assert(is_there(&small[0]) && is_there(&small[1]) && is_there(&small[2]));
    ck_assert(!is_there(&none[0]) && !is_there(&none[1]) && !is_there(&large[0]) && is_there(&large[19]));
    for (unsigned i = 0; i < 3; i++)
        put_for(store, &none[0], 50 + i, "uid:1", 0); /* the payer has less: the other gives still */
    ck_assert(is_there(&small[0]));
    ck_assert_uint_le(stored(store), 14000);
    ngd_store_close(store);
    teardown_dir();
}
END_TEST

START_TEST(store_is_full_where_the_next_bytes_pass_the_budget_or_the_limit)
{
    const struct ngd_store_payer free_of = {"uid:1", 0}, limited = {"uid:1", 5000};
    static struct thing one;
    struct ngd_store *store;
    uint64_t has;

    setup_dir();
    store = open_store(6000);
    put_for(store, &one, 1, "uid:1", 0);
    has = stored(store);
    ck_assert_uint_gt(has, 0);
    ck_assert(!ngd_store_is_full(store, &free_of, 6000 - has));
    ck_assert(ngd_store_is_full(store, &free_of, 6001 - has));
    ck_assert(!ngd_store_is_full(store, &limited, 5000 - has));
    ck_assert(ngd_store_is_full(store, &limited, 5001 - has));
    ngd_store_close(store);
    teardown_dir();
}
END_TEST

START_TEST(large_entry_takes_nothing_from_who_has_less)
{
    static struct thing small[2], large[2];
    struct ngd_store *store;
    struct ngd_store_held h;
    struct ngd_diag diag = {0};

    setup_dir();
    store = open_store(6000);
    for (unsigned i = 0; i < 2; i++)
        put_for(store, &small[i], i, "uid:1", 0);
    put_for(store, &large[0], 10, "uid:2", 0);
    make(&large[1], 11, 4000);
    ck_assert_int_eq(ngd_store_put_for(store, &large[1].entry, &(struct ngd_store_payer){"uid:2", 0}, &diag),
                     NGD_ERR_RESOURCE_EXHAUSTED);
    ck_assert_ptr_nonnull(strstr(diag.text, "its other owners have fewer bytes in it"));
    ck_assert(is_there(&small[0]) && is_there(&small[1]));
    ngd_store_held(store, "uid:2", &h);
    ck_assert_uint_eq(h.refused, 1);
    ck_assert_uint_eq(held(store, "uid:1") + held(store, "uid:2"), stored(store));
    ngd_store_close(store);
    teardown_dir();
}
END_TEST

START_TEST(entry_of_another_owner_is_neither_taken_over_nor_set_aside)
{
    static struct thing t, same;
    struct ngd_store *store;
    uint64_t bytes;

    setup_dir();
    store = open_store(0);
    put_for(store, &t, 1, "uid:1", 0);
    bytes = held(store, "uid:1");
    put_for(store, &same, 1, "uid:2", 0);
    put_for(store, &same, 1, "", 0);
    ck_assert(held(store, "uid:1") == bytes && held(store, "uid:2") == 0 && stored(store) == bytes);
    ngd_store_set_aside(store, t.identity, strlen(t.identity), NGD_STORE_DISTRUSTED, "uid:2");
    ngd_store_set_aside(store, t.identity, strlen(t.identity), NGD_STORE_DISTRUSTED, "");
    ck_assert(is_there(&t));
    ngd_store_set_aside(store, t.identity, strlen(t.identity), NGD_STORE_DISTRUSTED, "uid:1");
    ck_assert(!is_there(&t));
    put_for(store, &same, 1, "", 0); /* an entry without an owner may be taken over by any owner */
    put_for(store, &same, 1, "uid:2", 0);
    ck_assert(held(store, "") == 0 && held(store, "uid:2") == stored(store));
    ngd_store_close(store);
    teardown_dir();
}
END_TEST

/* Without memory or descriptors the owner of an entry is not known. */
START_TEST(entry_that_cannot_be_read_now_is_not_set_aside_by_others)
{
    static struct thing t;
    struct rlimit before, none;
    struct ngd_store *store;

    setup_dir();
    store = open_store(0);
    put_for(store, &t, 1, "uid:1", 0);
    ngd_mem_fail_after(0);
    ngd_store_set_aside(store, t.identity, strlen(t.identity), NGD_STORE_DISTRUSTED, "uid:2");
    ngd_mem_fail_after(-1);
    ck_assert(is_there(&t));
    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = before;
    none.rlim_cur = 3;
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &none), 0);
    ngd_store_set_aside(store, t.identity, strlen(t.identity), NGD_STORE_DISTRUSTED, "uid:2");
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &before), 0);
    ck_assert(is_there(&t));
    ngd_store_close(store);
    teardown_dir();
}
END_TEST

START_TEST(owners_are_counted_again_by_the_next_process_and_entries_that_go_are_not)
{
    static struct thing t[4];
    struct ngd_store *store;
    char name[NGD_STORE_NAME_MAX];
    uint64_t one;

    setup_dir();
    store = open_store(0);
    put_for(store, &t[0], 0, "uid:1", 0);
    one = held(store, "uid:1");
    ck_assert_uint_eq(one, stored(store));
    put_for(store, &t[0], 0, "uid:1", 0); /* replaced */
    ck_assert_uint_eq(held(store, "uid:1"), one);
    for (unsigned i = 1; i < 4; i++)
        put_for(store, &t[i], i, "uid:1", 0);
    ngd_store_close(store);
    store = open_store(0);
    ck_assert_uint_eq(held(store, "uid:1"), 4 * one);
    ck_assert(ngd_store_name(t[0].identity, strlen(t[0].identity), name));
    ck_assert_int_eq(ngd_store_remove(store, name, NULL), NGD_OK);
    ngd_store_set_aside(store, t[1].identity, strlen(t[1].identity), NGD_STORE_OUTDATED, NULL);
    ck_assert_uint_eq(held(store, "uid:1"), 2 * one);
    put_for(store, &t[0], 0, "uid:3", 0); /* the next writer owns it when it is gone */
    ck_assert_uint_eq(held(store, "uid:1"), 2 * one);
    ck_assert_uint_eq(held(store, "uid:3"), one);
    ck_assert_uint_eq(stored(store), 3 * one);
    ngd_store_close(store);
    teardown_dir();
}
END_TEST

/* ---- several processes --------------------------------------------------------------------------------- */

static void busy_child(unsigned who)
{
    struct ngd_store *store = open_store(60000);
    struct thing t;
    uint64_t seed = who + 1;

    for (int i = 0; i < 400; i++) {
        unsigned number;

        seed = seed * 6364136223846793005u + 1442695040888963407u;
        number = (unsigned)(seed >> 33) % 60;
        make(&t, number, 500 + number * 20);
        if (get(store, &t) != NGD_STORE_FOUND)
            put(store, &t, number, 500 + number * 20);
    }
    ngd_store_close(store);
    _exit(0);
}

START_TEST(processes_that_share_a_store_do_not_hurt_each_other)
{
    struct ngd_store *store;
    pid_t pids[3];

    setup_dir();
    ngd_store_close(open_store(0));
    for (unsigned i = 0; i < 3; i++) {
        pids[i] = fork();
        if (pids[i] == 0)
            busy_child(i);
    }
    for (unsigned i = 0; i < 3; i++) {
        int status = -1;

        ck_assert_int_eq(waitpid(pids[i], &status, 0), pids[i]);
        ck_assert_int_eq(status, 0);
    }
    store = open_store(0);
    verify_clean(store, 0);
    ck_assert_uint_eq(count_files("tmp"), 0);
    ck_assert_uint_eq(count_files("aside"), 0);
    ngd_store_close(store);
    teardown_dir();
}
END_TEST

static void add_line(void *ctx, const char *text, struct ngd_strbuf *changed)
{
    ngd_strbuf_printf(changed, "%s%u\n", text, *(unsigned *)ctx);
}

/* Writes entries for ever, and reports when the first one is stored. */
static void storing_child(unsigned round, int tell)
{
    struct ngd_store *store = open_store(100000);
    struct thing t;

    for (unsigned i = 0;; i++) {
        put(store, &t, (round * 7 + i) % 50, 1500);
        if (i == 0)
            ck_assert_int_eq(write(tell, "1", 1), 1);
        if (i % 8 == 7)
            ngd_store_note_change(store, "hot", add_line, &i, NULL);
    }
}

static void kill_one(unsigned round, uint64_t *seed)
{
    struct timespec pause = {.tv_nsec = 0};
    int ends[2], status = 0;
    char byte;
    pid_t pid;

    ck_assert_int_eq(pipe(ends), 0);
    pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0)
        storing_child(round, ends[1]);
    ck_assert_int_eq(read(ends[0], &byte, 1), 1);
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    pause.tv_nsec = (long)((*seed >> 33) % 2000000);
    nanosleep(&pause, NULL);
    ck_assert_int_eq(kill(pid, SIGKILL), 0);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    close(ends[0]);
    close(ends[1]);
}

START_TEST(killed_while_storing_leaves_a_clean_store)
{
    uint64_t seed = 99;
    unsigned swept = 0;

    setup_dir();
    ngd_store_close(open_store(0));
    for (unsigned round = 0; round < 500; round++) {
        struct ngd_store *store;

        kill_one(round, &seed);
        swept += count_files("tmp") > 0;
        store = open_store(0);
        verify_clean(store, 0);
        ck_assert_uint_eq(count_files("tmp"), 0);
        ngd_store_close(store);
    }
    ck_assert_uint_eq(count_files("aside"), 0);
    ck_assert_uint_ge(count_files("entries"), 40);
    ck_assert_uint_gt(swept, 0); /* some were hit in the middle of a write */
    teardown_dir();
}
END_TEST

/* ---- notes, import, care ------------------------------------------------------------------------------- */

START_TEST(notes_are_changed_not_lost_and_checked)
{
    struct ngd_store *a, *b;
    struct ngd_strbuf text;
    unsigned n = 1;
    char path[160];

    setup_dir();
    a = open_store(0);
    b = open_store(0);
    ngd_strbuf_init(&text);
    ck_assert(!ngd_store_note_read(a, "hot", &text));
    ck_assert_int_eq(ngd_store_note_change(a, "hot", add_line, &n, NULL), NGD_OK);
    n = 2;
    ck_assert_int_eq(ngd_store_note_change(b, "hot", add_line, &n, NULL), NGD_OK);
    ck_assert(ngd_store_note_read(a, "hot", &text));
    ck_assert_str_eq(ngd_strbuf_str(&text), "1\n2\n");
    ngd_strbuf_clear(&text);
    snprintf(path, sizeof(path), "%s/notes/hot", store_dir);
    write_file(path, "npgstor1 nonsense", 17);
    ck_assert(!ngd_store_note_read(a, "hot", &text));
    ck_assert_uint_eq(count_files("aside"), 1);
    ck_assert_int_eq(ngd_store_note_change(a, "hot", add_line, &n, NULL), NGD_OK);
    ck_assert(ngd_store_note_read(a, "hot", &text));
    ck_assert_str_eq(ngd_strbuf_str(&text), "2\n");
    ngd_strbuf_fini(&text);
    ngd_store_close(a);
    ngd_store_close(b);
    teardown_dir();
}
END_TEST

START_TEST(import_takes_good_entries_only)
{
    char path[256], name[NGD_STORE_NAME_MAX];
    struct ngd_diag diag = {0};
    uint8_t data[1024];
    struct ngd_store *store;
    struct thing t;
    size_t n;

    setup_dir();
    store = open_store(0);
    put(store, &t, 1, 100);
    path_of(&t, path, sizeof(path));
    n = read_file(path, data, sizeof(data));
    ck_assert_int_eq(ngd_store_remove(store, strrchr(path, '/') + 1, NULL), NGD_OK);
    ck_assert_int_eq(get(store, &t), NGD_STORE_ABSENT);
    data[n / 2] ^= 1;
    ck_assert_int_eq(ngd_store_import(store, data, n, name, &diag), NGD_ERR_FILE_CORRUPT);
    ck_assert_int_eq(ngd_store_import(store, data, n - 1, name, &diag), NGD_ERR_FILE_TRUNCATED);
    ck_assert_ptr_nonnull(strstr(diag.text, "not a good entry"));
    data[n / 2] ^= 1;
    ck_assert_int_eq(ngd_store_import(store, data, n, name, &diag), NGD_OK);
    ck_assert_str_eq(name, strrchr(path, '/') + 1);
    ck_assert_int_eq(get(store, &t), NGD_STORE_FOUND);
    ck_assert_int_eq(ngd_store_remove(store, "../../etc/passwd", &diag), NGD_ERR_NOT_FOUND);
    ngd_store_close(store);
    teardown_dir();
}
END_TEST

struct told {
    unsigned good, bad;
};

static void tell(void *ctx, const struct ngd_store_item *item, ngd_store_reason_t reason)
{
    struct told *told = ctx;

    ck_assert_uint_eq(strlen(item->name), 69);
    if (reason == NGD_STORE_FOUND)
        told->good++;
    else
        told->bad++;
}

START_TEST(verify_finds_what_is_bad_and_clear_removes_all)
{
    struct told told = {0, 0};
    uint32_t good = 0, bad = 0, removed = 0;
    struct ngd_store *store;
    struct thing t;
    char path[256];

    setup_dir();
    store = open_store(0);
    for (unsigned i = 0; i < 10; i++)
        put(store, &t, i, 100);
    path_of(&t, path, sizeof(path));
    write_file(path, "short", 5);
    ck_assert_int_eq(ngd_store_verify(store, tell, &told, &good, &bad, NULL), NGD_OK);
    ck_assert_uint_eq(good, 9);
    ck_assert_uint_eq(bad, 1);
    ck_assert_uint_eq(told.good, 9);
    ck_assert_uint_eq(told.bad, 1);
    verify_clean(store, 9);
    ck_assert_int_eq(ngd_store_clear(store, &removed, NULL), NGD_OK);
    ck_assert_uint_eq(removed, 9);
    ck_assert_uint_eq(count_files("entries") + count_files("aside"), 0);
    ngd_store_close(store);
    teardown_dir();
}
END_TEST

UNIT_MAIN("graphs/store", entry_comes_back_also_for_the_next_process, every_changed_byte_sets_the_entry_aside,
          every_truncation_and_more_bytes_set_the_entry_aside, what_is_no_file_of_ours_is_set_aside,
          entry_that_does_not_load_is_set_aside_by_its_user, bad_directories_are_refused_in_words,
          links_inside_are_refused_and_not_followed, full_disk_is_counted_and_leaves_no_trace,
          least_recently_used_entries_go_when_the_budget_is_full,
          store_is_full_where_the_next_bytes_pass_the_budget_or_the_limit,
          entry_larger_than_the_budget_is_refused_and_evicts_nothing, owner_at_the_limit_loses_the_oldest_of_its_own,
          full_store_takes_from_nobody_and_then_from_who_has_most, large_entry_takes_nothing_from_who_has_less,
          entry_of_another_owner_is_neither_taken_over_nor_set_aside,
          entry_that_cannot_be_read_now_is_not_set_aside_by_others,
          owners_are_counted_again_by_the_next_process_and_entries_that_go_are_not,
          processes_that_share_a_store_do_not_hurt_each_other, killed_while_storing_leaves_a_clean_store,
          notes_are_changed_not_lost_and_checked, import_takes_good_entries_only,
          verify_finds_what_is_bad_and_clear_removes_all)
