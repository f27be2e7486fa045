/* SPDX-License-Identifier: Apache-2.0 */
#include "base/digest.h"
#include "tests/unit/unit.h"
#include <string.h>

/* Vectors of FIPS 180-2, appendix B. */
START_TEST(digest_is_sha_256)
{
    static const struct {
        const char *text, *hex;
    } cases[] = {
        {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
        {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
        {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
         "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct ngd_digest d;
        char hex[NGD_DIGEST_HEX];

        ngd_digest_of(cases[i].text, strlen(cases[i].text), &d);
        ngd_digest_hex(&d, hex);
        ck_assert_str_eq(hex, cases[i].hex);
    }
}
END_TEST

START_TEST(null_with_no_bytes_is_the_empty_text)
{
    struct ngd_digest a, b;

    ngd_digest_of(NULL, 0, &a);
    ngd_digest_of("", 0, &b);
    ck_assert(ngd_digest_equal(&a, &b));
    ngd_digest_of("x", 1, &b);
    ck_assert(!ngd_digest_equal(&a, &b));
}
END_TEST

START_TEST(hash_depends_on_every_bit_the_length_and_the_seed)
{
    unsigned char data[40] = {0};

    for (size_t n = 0; n <= sizeof(data); n++) {
        uint64_t h = ngd_hash64(data, n, 1);

        ck_assert_uint_eq(h, ngd_hash64(data, n, 1));
        ck_assert_uint_ne(h, ngd_hash64(data, n, 2));
        if (n < sizeof(data))
            ck_assert_uint_ne(h, ngd_hash64(data, n + 1, 1));
        for (size_t bit = 0; bit < 8 * n; bit++) {
            data[bit / 8] ^= (unsigned char)(1u << bit % 8);
            ck_assert_uint_ne(h, ngd_hash64(data, n, 1));
            data[bit / 8] ^= (unsigned char)(1u << bit % 8);
        }
    }
}
END_TEST

START_TEST(hash_of_small_integers_spreads_over_buckets)
{
    enum { KEYS = 65536, BUCKETS = 1024 };
    static unsigned low[BUCKETS], high[BUCKETS];

    for (uint64_t k = 0; k < KEYS; k++) {
        uint64_t h = ngd_hash64(&k, sizeof(k), 0);

        low[h % BUCKETS]++;
        high[h >> 54]++;
    }
    /* The mean is 64 and the standard deviation 8; six deviations are allowed. */
    for (int i = 0; i < BUCKETS; i++) {
        ck_assert_uint_gt(low[i], 16);
        ck_assert_uint_lt(low[i], 112);
        ck_assert_uint_gt(high[i], 16);
        ck_assert_uint_lt(high[i], 112);
    }
}
END_TEST

UNIT_MAIN("base/digest", digest_is_sha_256, null_with_no_bytes_is_the_empty_text,
          hash_depends_on_every_bit_the_length_and_the_seed, hash_of_small_integers_spreads_over_buckets)
