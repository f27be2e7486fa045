/* SPDX-License-Identifier: Apache-2.0 */
/* Buffers: contents, ranges, budgets, references. */
#include "tests/backend/conform.h"
#include <inttypes.h>

#define ROUNDED(n) (((n) + 63) / 64 * 64)

static unsigned char pattern(uint64_t i)
{
    return (unsigned char)(i * 31 + (i >> 8) * 7 + 1);
}

static void fill_pattern(unsigned char *p, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        p[i] = pattern(i);
}

/* Sizes around the limits where allocators change their method. */
static const uint64_t sizes[] = {1,     3,     63,    64,    65,      4095,          4096,          4097,
                                 16383, 16384, 16385, 65536, 1 << 20, (4 << 20) - 1, (4 << 20) + 65};
#define N_SIZES (sizeof(sizes) / sizeof(sizes[0]))

START_TEST(buffer_of_any_size_is_zeroed_aligned_and_counted)
{
    struct conform c;
    uint64_t used = 0;
    struct ngd_buffer *bufs[N_SIZES];

    conform_open(&c, _i);
    for (size_t s = 0; s < N_SIZES; s++) {
        unsigned char *got = malloc(sizes[s]);

        bufs[s] = conform_buffer(&c, NULL, sizes[s], "sized");
        used += ROUNDED(sizes[s]);
        ck_assert_uint_eq(ngd_device_used_bytes(c.b.dev), used);
        ck_assert_uint_eq(ngd_buffer_bytes(bufs[s]), sizes[s]);
        memset(got, 0xee, sizes[s]);
        CONFORM_OK(ngd_buffer_read(bufs[s], 0, got, sizes[s], &diag_));
        for (uint64_t i = 0; i < sizes[s]; i++)
            if (got[i] != 0) /* a passed assertion writes a line too, which would be too many here */
                ck_abort_msg("byte %" PRIu64 " of %" PRIu64 " is %u", i, sizes[s], got[i]);
        if (ngd_device_info(c.b.dev)->host_memory)
            ck_assert_uint_eq((uintptr_t)ngd_buffer_host_ptr(bufs[s]) % 64, 0);
        else
            ck_assert_ptr_null(ngd_buffer_host_ptr(bufs[s]));
        free(got);
    }
    for (size_t s = 0; s < N_SIZES; s++)
        ngd_buffer_unref(bufs[s]);
    conform_close(&c);
}
END_TEST

START_TEST(buffer_whose_memory_was_used_before_is_zeroed_again)
{
    struct conform c;

    conform_open(&c, _i);
    for (int round = 0; round < 20; round++)
        for (size_t s = 0; s < 6; s++) {
            static unsigned char data[4096], got[4096];
            uint64_t n = sizes[s] < sizeof(data) ? sizes[s] : sizeof(data);
            struct ngd_buffer *buf = conform_buffer(&c, NULL, n, "again");

            CONFORM_OK(ngd_buffer_read(buf, 0, got, n, &diag_));
            for (uint64_t i = 0; i < n; i++)
                if (got[i] != 0)
                    ck_abort_msg("byte %" PRIu64 " of %" PRIu64 " is %u", i, n, got[i]);
            memset(data, 0xff, n);
            CONFORM_OK(ngd_buffer_write(buf, 0, data, n, &diag_));
            ngd_buffer_unref(buf);
        }
    conform_close(&c);
}
END_TEST

START_TEST(buffer_written_in_pieces_reads_back_whole_and_in_pieces)
{
    struct conform c;

    conform_open(&c, _i);
    for (size_t s = 0; s < N_SIZES; s++) {
        uint64_t n = sizes[s], step = n / 3 + 1;
        unsigned char *data = malloc(n), *got = calloc(1, n);
        struct ngd_buffer *buf = conform_buffer(&c, NULL, n, "pieces");

        fill_pattern(data, n);
        for (uint64_t at = 0; at < n; at += step)
            CONFORM_OK(ngd_buffer_write(buf, at, data + at, n - at < step ? n - at : step, &diag_));
        CONFORM_OK(ngd_buffer_read(buf, 0, got, n, &diag_));
        ck_assert_mem_eq(got, data, n);
        memset(got, 0, n);
        for (uint64_t at = n / 2; at < n; at += step / 2 + 1)
            CONFORM_OK(ngd_buffer_read(buf, at, got + at, n - at < step / 2 + 1 ? n - at : step / 2 + 1, &diag_));
        ck_assert_mem_eq(got + n / 2, data + n / 2, n - n / 2);
        ngd_buffer_unref(buf);
        free(data);
        free(got);
    }
    conform_close(&c);
}
END_TEST

START_TEST(buffer_of_no_bytes_exists_and_counts_as_the_smallest_unit)
{
    struct conform c;
    struct ngd_buffer *buf;
    char byte = 'x';

    conform_open(&c, _i);
    buf = conform_buffer(&c, NULL, 0, "empty");
    ck_assert_uint_eq(ngd_buffer_bytes(buf), 0);
    ck_assert_uint_eq(ngd_device_used_bytes(c.b.dev), 64);
    CONFORM_OK(ngd_buffer_write(buf, 0, NULL, 0, &diag_));
    CONFORM_OK(ngd_buffer_read(buf, 0, NULL, 0, &diag_));
    ck_assert_int_eq(ngd_buffer_write(buf, 0, &byte, 1, NULL), NGD_ERR_BUFFER_RANGE);
    ngd_buffer_unref(buf);
    conform_close(&c);
}
END_TEST

START_TEST(range_outside_a_buffer_is_refused_by_name_and_touches_nothing)
{
    static const struct {
        uint64_t offset, n;
    } bad[] = {{0, 101},        {100, 1},        {101, 0},        {50, 51},        {UINT64_MAX, 1},
               {1, UINT64_MAX}, {UINT64_MAX, 2}, {0, UINT64_MAX}, {UINT64_MAX, 0}, {50, UINT64_MAX - 49}};
    unsigned char data[100], got[100];
    struct conform c;
    struct ngd_buffer *buf;

    conform_open(&c, _i);
    fill_pattern(data, sizeof(data));
    buf = conform_buffer(&c, data, sizeof(data), "hundred");
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct ngd_diag diag = {0};

        ck_assert_int_eq(ngd_buffer_write(buf, bad[i].offset, data, bad[i].n, &diag), NGD_ERR_BUFFER_RANGE);
        conform_says(diag.text, "hundred|100 bytes|offset");
        ck_assert_int_eq(ngd_buffer_read(buf, bad[i].offset, got, bad[i].n, &diag), NGD_ERR_BUFFER_RANGE);
        ck_assert_int_eq(ngd_buffer_read(buf, bad[i].offset, got, bad[i].n, NULL), NGD_ERR_BUFFER_RANGE);
    }
    CONFORM_OK(ngd_buffer_write(buf, 100, data, 0, &diag_)); /* no bytes at the end of the buffer */
    CONFORM_OK(ngd_buffer_read(buf, 0, got, 100, &diag_));
    ck_assert_mem_eq(got, data, 100);
    ngd_buffer_unref(buf);
    conform_close(&c);
}
END_TEST

START_TEST(buffer_knows_its_label_kind_device_and_a_generation_of_its_own)
{
    static const ngd_buffer_kind_t kinds[] = {NGD_BUFFER_GENERAL, NGD_BUFFER_WEIGHTS, NGD_BUFFER_KV};
    uint64_t seen[300];
    struct conform c;

    conform_open(&c, _i);
    for (uint32_t i = 0; i < 300; i++) {
        struct ngd_buffer *buf = NULL;
        char label[32];

        snprintf(label, sizeof(label), "buffer %u", i);
        CONFORM_OK(ngd_buffer_create(c.b.dev, 64, kinds[i % 3], label, &buf, &diag_));
        ck_assert_str_eq(ngd_buffer_label(buf), label);
        ck_assert_int_eq(ngd_buffer_kind(buf), kinds[i % 3]);
        ck_assert_ptr_eq(ngd_buffer_device(buf), c.b.dev);
        seen[i] = ngd_buffer_generation(buf);
        ck_assert_uint_ne(seen[i], 0);
        for (uint32_t k = 0; k < i; k++)
            ck_assert_uint_ne(seen[i], seen[k]);
        ngd_buffer_unref(buf);
    }
    conform_close(&c);
}
END_TEST

START_TEST(buffer_lives_until_its_last_reference_goes)
{
    struct conform c;
    struct ngd_buffer *buf;
    char got[4] = "";

    conform_open(&c, _i);
    buf = conform_buffer(&c, "abc", 4, "shared");
    ck_assert(ngd_buffer_is_last(buf));
    ck_assert_ptr_eq(ngd_buffer_ref(buf), buf);
    ck_assert(!ngd_buffer_is_last(buf));
    ck_assert_ptr_null(ngd_buffer_unref(buf));
    ck_assert(ngd_buffer_is_last(buf));
    CONFORM_OK(ngd_buffer_read(buf, 0, got, 4, &diag_));
    ck_assert_str_eq(got, "abc");
    ck_assert_ptr_null(ngd_buffer_unref(buf));
    ck_assert_ptr_null(ngd_buffer_unref(NULL));
    ck_assert_uint_eq(ngd_device_used_bytes(c.b.dev), 0);
    conform_close(&c);
}
END_TEST

/* ---- budgets ---- */

/*
 * Holders are listed by kind and size and not by label: labels are the words of their owners, and others read the
 * refusal.
 */
START_TEST(buffer_above_the_budget_is_refused_with_the_shortage_and_the_largest_holders)
{
    struct ngd_buffer *bufs[5], *buf = NULL;
    static const uint64_t bytes[] = {1024, 8192, 4096, 2048, 512};
    static const char *const labels[] = {"one KiB", "eight KiB", "four KiB", "two KiB", "half"};
    struct ngd_diag diag = {0};
    struct conform c;

    conform_open_budget(&c, _i, 16384);
    for (int i = 0; i < 5; i++)
        bufs[i] = conform_buffer(&c, NULL, bytes[i], labels[i]);
    ck_assert_int_eq(ngd_buffer_create(c.b.dev, 513, NGD_BUFFER_WEIGHTS, "too much", &buf, &diag),
                     NGD_ERR_NO_DEVICE_MEMORY);
    ck_assert_ptr_null(buf);
    ck_assert_int_eq(diag.status, NGD_ERR_NO_DEVICE_MEMORY);
    conform_says(diag.text, "too much|576 bytes|16.0 KiB|15.5 KiB|8.0 KiB|4.0 KiB|2.0 KiB");
    conform_says(diag.text, ngd_device_info(c.b.dev)->name);
    /* The three largest, largest first. */
    conform_says(diag.text, "largest holders: buffer (8.0 KiB), buffer (4.0 KiB), buffer (2.0 KiB)");
    for (int i = 0; i < 5; i++)
        ck_assert_ptr_null(strstr(diag.text, labels[i]));
    ck_assert_uint_eq(ngd_device_used_bytes(c.b.dev), 15872);
    ck_assert_int_eq(ngd_buffer_create(c.b.dev, 513, NGD_BUFFER_WEIGHTS, NULL, &buf, NULL), NGD_ERR_NO_DEVICE_MEMORY);
    CONFORM_OK(ngd_buffer_create(c.b.dev, 512, NGD_BUFFER_GENERAL, "just fits", &buf, &diag_));
    ck_assert_uint_eq(ngd_device_used_bytes(c.b.dev), 16384);
    ngd_buffer_unref(buf);
    for (int i = 0; i < 5; i++)
        ngd_buffer_unref(bufs[i]);
    conform_close(&c);
}
END_TEST

START_TEST(buffer_of_a_huge_size_is_refused_without_an_overflow)
{
    static const uint64_t huge[] = {UINT64_MAX,      UINT64_MAX - 62,         UINT64_MAX - 63,
                                    UINT64_MAX - 64, (uint64_t)INT64_MAX + 1, (uint64_t)1 << 62};
    struct conform c;

    conform_open(&c, _i);
    for (size_t i = 0; i < sizeof(huge) / sizeof(huge[0]); i++) {
        struct ngd_buffer *buf = NULL;
        struct ngd_diag diag = {0};

        ck_assert_int_eq(ngd_buffer_create(c.b.dev, huge[i], NGD_BUFFER_GENERAL, "huge", &buf, &diag),
                         NGD_ERR_NO_DEVICE_MEMORY);
        ck_assert_ptr_null(buf);
        conform_says(diag.text, "huge");
        ck_assert_int_eq(ngd_device_check_room(c.b.dev, huge[i], "a huge load", &diag), NGD_ERR_NO_DEVICE_MEMORY);
        conform_says(diag.text, "a huge load");
        ck_assert_uint_eq(ngd_device_used_bytes(c.b.dev), 0);
    }
    conform_close(&c);
}
END_TEST

/* The device itself refuses. The reservation goes back, and a buffer that fits can still be created. */
START_TEST(buffer_that_the_budget_allows_and_the_device_has_not_is_refused_and_given_back)
{
    struct conform c;
    struct ngd_buffer *buf = NULL;
    struct ngd_diag diag = {0};

    conform_open_budget(&c, _i, (uint64_t)1 << 62);
    ck_assert_int_eq(ngd_buffer_create(c.b.dev, (uint64_t)1 << 60, NGD_BUFFER_KV, "an exbibyte", &buf, &diag),
                     NGD_ERR_NO_DEVICE_MEMORY);
    ck_assert_ptr_null(buf);
    conform_says(diag.text, "an exbibyte");
    ck_assert_uint_eq(ngd_device_used_bytes(c.b.dev), 0);
    buf = conform_buffer(&c, "ok", 3, "small");
    ngd_buffer_unref(buf);
    conform_close(&c);
}
END_TEST

START_TEST(room_is_checked_without_taking_it)
{
    struct conform c;
    struct ngd_diag diag = {0};
    struct ngd_buffer *buf;

    conform_open_budget(&c, _i, 4096);
    buf = conform_buffer(&c, NULL, 1000, "resident");
    CONFORM_OK(ngd_device_check_room(c.b.dev, 3072, "a load", &diag_));
    CONFORM_OK(ngd_device_check_room(c.b.dev, 0, "nothing", &diag_));
    ck_assert_int_eq(ngd_device_check_room(c.b.dev, 3073, "a load", &diag), NGD_ERR_NO_DEVICE_MEMORY);
    conform_says(diag.text, "a load|3073 bytes|buffer (1.0 KiB)");
    ck_assert_uint_eq(ngd_device_used_bytes(c.b.dev), 1024);
    ngd_buffer_unref(buf);
    conform_close(&c);
}
END_TEST

struct listing {
    uint32_t n;
    char labels[4][32];
    uint64_t bytes[4], generations[4];
    ngd_buffer_kind_t kinds[4];
};

static void list_holder(void *ctx, const char *label, ngd_buffer_kind_t kind, uint64_t bytes, uint64_t generation)
{
    struct listing *l = ctx;

    ck_assert_uint_lt(l->n, 4);
    snprintf(l->labels[l->n], sizeof(l->labels[0]), "%s", label);
    l->kinds[l->n] = kind;
    l->bytes[l->n] = bytes;
    l->generations[l->n++] = generation;
}

START_TEST(buffers_and_pools_are_listed_with_what_they_count)
{
    struct conform_double d;
    struct listing l = {0};
    struct ngd_buffer *w = NULL, *kv = NULL;
    struct conform c;

    conform_open(&c, _i);
    CONFORM_OK(ngd_buffer_create(c.b.dev, 1, NGD_BUFFER_WEIGHTS, "w", &w, &diag_));
    CONFORM_OK(ngd_buffer_create(c.b.dev, 130, NGD_BUFFER_KV, "kv", &kv, &diag_));
    conform_double_open(&d, &c, 1);
    ngd_device_for_each_buffer(c.b.dev, list_holder, &l);
    ck_assert_uint_eq(l.n, 3);
    ck_assert_str_eq(l.labels[0], "w");
    ck_assert_uint_eq(l.bytes[0], 64);
    ck_assert_uint_eq(l.generations[0], ngd_buffer_generation(w));
    ck_assert_int_eq(l.kinds[1], NGD_BUFFER_KV);
    ck_assert_uint_eq(l.bytes[1], 192);
    ck_assert_str_eq(l.labels[2], "test pool");
    ck_assert_int_eq(l.kinds[2], NGD_BUFFER_POOL);
    ck_assert_uint_eq(l.generations[2], 0);
    ck_assert_uint_eq(l.bytes[2], ngd_pool_bytes(c.b.pool));
    ck_assert_uint_eq(l.bytes[0] + l.bytes[1] + l.bytes[2], ngd_device_used_bytes(c.b.dev));
    conform_double_close(&d);
    ngd_buffer_unref(w);
    ngd_buffer_unref(kv);
    conform_close(&c);
}
END_TEST

/* ---- threads ---- */

struct churn {
    struct ngd_device *dev;
    uint32_t seed;
    uint32_t made, refused;
};

static void *churn(void *arg)
{
    struct churn *t = arg;

    for (uint32_t i = 0; i < 400; i++) {
        struct ngd_buffer *bufs[4] = {NULL};

        for (int k = 0; k < 4; k++) {
            struct ngd_diag diag = {0};
            uint64_t n;
            ngd_status_t status;

            t->seed = t->seed * 1103515245u + 12345u;
            n = (t->seed >> 16) % 40000;
            status = ngd_buffer_create(t->dev, n, NGD_BUFFER_GENERAL, "churn", &bufs[k], &diag);
            if (status && status != NGD_ERR_NO_DEVICE_MEMORY)
                abort();
            t->made += !status;
            t->refused += !!status;
            if (ngd_device_used_bytes(t->dev) > ngd_device_info(t->dev)->memory_bytes)
                abort();
        }
        for (int k = 0; k < 4; k++)
            ngd_buffer_unref(bufs[k]);
    }
    return NULL;
}

START_TEST(budget_holds_under_threads_and_ends_at_nothing)
{
    struct conform c;
    struct churn t[4];
    pthread_t threads[4];
    uint32_t refused = 0, made = 0;

    conform_open_budget(&c, _i, 200000);
    for (uint32_t i = 0; i < 4; i++) {
        t[i] = (struct churn){.dev = c.b.dev, .seed = i + 1};
        ck_assert_int_eq(ngd_thread_start(&threads[i], "churn", churn, &t[i]), 0);
    }
    for (uint32_t i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        refused += t[i].refused;
        made += t[i].made;
    }
    ck_assert_uint_eq(made + refused, 4 * 400 * 4);
    ck_assert_uint_gt(made, 0);
    conform_close(&c);
}
END_TEST

TCase *conform_memory(void)
{
    TCase *tcase = tcase_create("memory");

    CONFORM_ADD(
        tcase, buffer_of_any_size_is_zeroed_aligned_and_counted, buffer_whose_memory_was_used_before_is_zeroed_again,
        buffer_written_in_pieces_reads_back_whole_and_in_pieces,
        buffer_of_no_bytes_exists_and_counts_as_the_smallest_unit,
        range_outside_a_buffer_is_refused_by_name_and_touches_nothing,
        buffer_knows_its_label_kind_device_and_a_generation_of_its_own, buffer_lives_until_its_last_reference_goes,
        buffer_above_the_budget_is_refused_with_the_shortage_and_the_largest_holders,
        buffer_of_a_huge_size_is_refused_without_an_overflow,
        buffer_that_the_budget_allows_and_the_device_has_not_is_refused_and_given_back,
        room_is_checked_without_taking_it, buffers_and_pools_are_listed_with_what_they_count,
        budget_holds_under_threads_and_ends_at_nothing);
    return tcase;
}
