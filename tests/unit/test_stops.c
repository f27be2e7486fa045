/* SPDX-License-Identifier: Apache-2.0 */
/* Tests stop strings in a text that comes in pieces: the text up to the first of them is shown, however it is cut. */
#include "client/hf/npugraph_hf.h"
#include "tests/unit/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct npugraph_stops *make(const char *const *strings, size_t n)
{
    struct npugraph_stops *stops = NULL;
    struct npugraph_error err = {0};

    ck_assert_msg(npugraph_stops_create(strings, n, &stops, &err) == 0, "%s", err.message);
    return stops;
}

/* Feeds the text in pieces of that size, and gives what was shown. Returns true if a stop string occurred. */
static bool run(const char *const *strings, size_t n, const char *text, size_t piece, char *shown)
{
    struct npugraph_stops *stops = make(strings, n);
    const size_t size = strlen(text);
    const char *out;
    size_t n_out, at = 0;
    bool met = false;

    shown[0] = '\0';
    for (size_t i = 0; i < size; i += piece) {
        met = npugraph_stops_add(stops, text + i, size - i < piece ? size - i : piece, &out, &n_out);
        memcpy(shown + at, out, n_out);
        at += n_out;
        if (met)
            break;
    }
    met = npugraph_stops_end(stops, &out, &n_out);
    memcpy(shown + at, out, n_out);
    shown[at + n_out] = '\0';
    npugraph_stops_destroy(stops);
    return met;
}

START_TEST(text_ends_before_the_first_stop_string_however_it_is_cut)
{
    static const struct {
        const char *stops[3];
        size_t n;
        const char *text, *shown;
        bool met;
    } cases[] = {
        {{"\n\n"}, 1, "one\ntwo\n\nthree", "one\ntwo", true},
        {{"END"}, 1, "the EN is no end, EENDE is", "the EN is no end, E", true},
        {{"aab"}, 1, "aaaaaab", "aaaa", true},
        {{"abcd", "bc"}, 2, "xabcz", "xa", true},
        {{"bc", "abcd"}, 2, "xabcdz", "x", true},
        {{"bc", "abcd"}, 2, "xabcabc!", "xa", true},
        {{"bc", "abcd"}, 2, "xabc", "xa", true},
        {{"c", "bcd", "abcde"}, 3, "xabcdf", "xa", true},
        {{"c", "bcd", "abcde"}, 3, "xabcde", "x", true},
        {{"stop"}, 1, "never sto", "never sto", false},
        {{"x"}, 1, "", "", false},
        {{"x"}, 1, "x", "", true},
        {{"\xe2\x82\xac"}, 1, "1 \xe2\x82\xac", "1 ", true},
        {{"whole text"}, 1, "whole text", "", true},
    };
    char shown[256];

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        for (size_t piece = 1; piece <= 30; piece++) {
            ck_assert_int_eq(run(cases[i].stops, cases[i].n, cases[i].text, piece, shown), cases[i].met);
            ck_assert_msg(strcmp(shown, cases[i].shown) == 0, "case %zu in pieces of %zu: \"%s\"", i, piece, shown);
        }
}
END_TEST

START_TEST(text_without_beginnings_of_stop_strings_is_shown_at_once)
{
    static const char *const strings[] = {"<|end|>", "User:"};
    struct npugraph_stops *stops = make(strings, 2);
    const char *out;
    size_t n;

    ck_assert(!npugraph_stops_add(stops, "Hello ", 6, &out, &n));
    ck_assert_uint_eq(n, 6);
    ck_assert(!npugraph_stops_add(stops, "you <|e", 7, &out, &n));
    ck_assert_uint_eq(n, 4); /* "<|e" might be one */
    ck_assert(!npugraph_stops_add(stops, "a", 1, &out, &n));
    ck_assert_uint_eq(n, 4);
    ck_assert(memcmp(out, "<|ea", 4) == 0);
    ck_assert(npugraph_stops_add(stops, " User: x", 8, &out, &n));
    ck_assert_uint_eq(n, 1);
    ck_assert(npugraph_stops_add(stops, "more", 4, &out, &n)); /* nothing comes after the end */
    ck_assert_uint_eq(n, 0);
    npugraph_stops_end(stops, &out, &n);
    ck_assert_uint_eq(n, 0);
    npugraph_stops_destroy(stops);
    npugraph_stops_destroy(NULL);
}
END_TEST

START_TEST(strings_that_are_too_many_too_long_or_empty_are_refused_in_words)
{
    const char *many[NPUGRAPH_STOPS_MAX + 1];
    char *megabytes = malloc((4 << 20) + 1);
    struct npugraph_stops *stops = NULL;
    struct npugraph_error err = {0};

    memset(megabytes, 'a', 4 << 20);
    megabytes[4 << 20] = '\0';
    for (int i = 0; i <= NPUGRAPH_STOPS_MAX; i++)
        many[i] = "x";
    ck_assert_int_ne(npugraph_stops_create(many, NPUGRAPH_STOPS_MAX + 1, &stops, &err), 0);
    ck_assert_str_eq(err.reason, "INVALID_ARGUMENT");
    ck_assert_ptr_nonnull(strstr(err.message, "at most 16"));
    many[1] = megabytes;
    ck_assert_int_ne(npugraph_stops_create(many, 2, &stops, &err), 0);
    ck_assert_ptr_nonnull(strstr(err.message, "stop string 2 is longer than 1024 bytes"));
    many[1] = "";
    ck_assert_int_ne(npugraph_stops_create(many, 2, &stops, &err), 0);
    ck_assert_ptr_nonnull(strstr(err.message, "empty"));
    ck_assert_ptr_null(stops);
    many[1] = megabytes + (4 << 20) - NPUGRAPH_STOP_LENGTH_MAX; /* the longest */
    ck_assert_int_eq(npugraph_stops_create(many, NPUGRAPH_STOPS_MAX, &stops, &err), 0);
    npugraph_stops_destroy(stops);
    free(megabytes);
}
END_TEST

UNIT_MAIN("client/stops", text_ends_before_the_first_stop_string_however_it_is_cut,
          text_without_beginnings_of_stop_strings_is_shown_at_once,
          strings_that_are_too_many_too_long_or_empty_are_refused_in_words)
