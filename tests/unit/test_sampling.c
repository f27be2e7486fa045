/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests the choice of tokens beside the graph (scheduler/model/sampling.c): against transformers' processors
 * (tests/golden/sampling.json), by the definition of each parameter on rows made for it, and at the borders.
 */
#include "base/mem.h"
#include "devices/host/kernels/k_sample.h"
#include "scheduler/model/model_int.h"
#include "scheduler/model/sampling.h"
#include "tests/unit/unit.h"
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- against transformers ---- */

#define DRAWS 600
#define EDGE  2e-5 /* share of the sum at which sums in f32 may decide otherwise */

static json_t *load_golden(void)
{
    const char *top = getenv("top_srcdir");
    char path[4096];
    json_error_t e;
    json_t *root;

    snprintf(path, sizeof(path), "%s/tests/golden/sampling.json", top != NULL ? top : ".");
    root = json_load_file(path, 0, &e);
    ck_assert_msg(root != NULL, "%s: %s", path, e.text);
    return root;
}

static double number(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

static uint32_t read_tokens(const json_t *array, int32_t *tokens, size_t room)
{
    ck_assert_uint_le(json_array_size(array), room);
    for (size_t i = 0; i < json_array_size(array); i++)
        tokens[i] = (int32_t)json_integer_value(json_array_get(array, i));
    return (uint32_t)json_array_size(array);
}

/* One case: parameters with their lists, the row, and the probabilities that are expected. */
struct golden {
    struct ngd_sampling how;
    struct ngd_sampler_row row;
    struct ngd_logit_bias bias[16];
    int32_t bad[64], context[128], stops[8];
    uint32_t ends[16];
    uint8_t mask[512];
    float logits[4096];
    double p[4096];
    uint32_t vocab;
};

static void read_lists(const json_t *sampling, struct golden *g)
{
    const json_t *bias = json_object_get(sampling, "logit_bias"), *bad = json_object_get(sampling, "bad_words");
    uint32_t n = 0;

    for (size_t i = 0; i < json_array_size(bias); i++)
        g->bias[i] = (struct ngd_logit_bias){(int32_t)json_integer_value(json_array_get(json_array_get(bias, i), 0)),
                                             (float)json_number_value(json_array_get(json_array_get(bias, i), 1))};
    for (size_t i = 0; i < json_array_size(bad); i++) {
        n += read_tokens(json_array_get(bad, i), g->bad + n, 64 - n);
        g->ends[i] = n;
    }
    g->how.bias = g->bias;
    g->how.n_bias = (uint32_t)json_array_size(bias);
    g->how.bad_tokens = g->bad;
    g->how.bad_ends = g->ends;
    g->how.n_bad_words = (uint32_t)json_array_size(bad);
}

static void read_sampling(const json_t *s, struct golden *g)
{
    g->how = (struct ngd_sampling){
        .temperature = (float)number(s, "temperature"),
        .top_k = (int32_t)number(s, "top_k"),
        .top_p = (float)number(s, "top_p"),
        .min_p = (float)number(s, "min_p"),
        .typical_p = (float)number(s, "typical_p"),
        .repetition_penalty = (float)number(s, "repetition_penalty"),
        .presence_penalty = (float)number(s, "presence_penalty"),
        .frequency_penalty = (float)number(s, "frequency_penalty"),
        .min_tokens = (uint32_t)number(s, "min_tokens"),
    };
    read_lists(s, g);
}

static void read_logits(const json_t *root, struct golden *g)
{
    const json_t *all = json_object_get(root, "logits");

    for (size_t i = 0; i < json_array_size(all); i++) {
        const json_t *row = json_array_get(all, i);

        if (json_integer_value(json_array_get(row, 0)) != g->vocab)
            continue;
        for (uint32_t v = 0; v < g->vocab; v++)
            g->logits[v] = (float)json_number_value(json_array_get(json_array_get(row, 1), v));
    }
}

static void read_case(const json_t *root, const json_t *c, struct golden *g)
{
    const json_t *allowed = json_object_get(c, "allowed"), *expected = json_object_get(c, "expected");

    memset(g, 0, sizeof(*g));
    g->vocab = (uint32_t)number(c, "vocab");
    ck_assert_uint_le(g->vocab, 4096);
    read_sampling(json_object_get(c, "sampling"), g);
    read_logits(root, g);
    for (size_t i = 0; i < json_array_size(allowed); i++) {
        const uint32_t token = (uint32_t)json_integer_value(json_array_get(allowed, i));

        g->mask[token / 8] |= (uint8_t)(1u << token % 8);
    }
    for (size_t i = 0; i < json_array_size(expected); i++) {
        const json_t *e = json_array_get(expected, i);

        g->p[json_integer_value(json_array_get(e, 0))] = json_number_value(json_array_get(e, 1));
    }
    g->row = (struct ngd_sampler_row){
        .logits = g->logits,
        .tokens = g->context,
        .n = read_tokens(json_object_get(c, "context"), g->context, 128),
        .n_given = (uint32_t)number(c, "given"),
        .mask = allowed ? g->mask : NULL,
        .stops = {g->stops},
        .n_stops = {read_tokens(json_object_get(root, "stops"), g->stops, 8)},
    };
}

/* Draws, and compares each token with the one that the probabilities give for the same random number. Returns how many
 * draws were too near to an edge to tell. */
static uint32_t compare_draws(struct golden *g, const char *name)
{
    struct ngd_sampler sampler;
    struct ngd_diag diag = {0};
    uint32_t edges = 0;

    ck_assert_int_eq(ngd_sampling_check(&g->how, g->vocab, &diag), NGD_OK);
    ck_assert(ngd_sampler_init(&sampler, g->vocab));
    for (uint32_t d = 0; d < DRAWS; d++) {
        const double u = ngd_sample_draw((int64_t)g->how.seed, d);
        double below = 0;
        int32_t token = -1;

        g->row.draw = d;
        if (ngd_sampler_choose(&sampler, &g->how, &g->row, &token, &diag))
            ck_abort_msg("%s: %s", name, diag.text);
        for (int32_t i = 0; i < token; i++)
            below += g->p[i];
        ck_assert_msg(g->p[token] > 0, "%s: token %d was drawn, which transformers excludes", name, token);
        ck_assert_msg(u >= below - EDGE && u <= below + g->p[token] + EDGE,
                      "%s: token %d has %.7f to %.7f, and %.7f was drawn", name, token, below, below + g->p[token], u);
        edges += u < below || u > below + g->p[token];
    }
    for (uint32_t i = 0; i < g->vocab; i++)
        ck_assert_uint_eq(sampler.counts[i], 0);
    ngd_sampler_fini(&sampler);
    return edges;
}

START_TEST(draws_have_the_probabilities_of_transformers)
{
    static struct golden g;
    json_t *root = load_golden(), *cases = json_object_get(root, "cases");
    uint32_t edges = 0;

    ck_assert_uint_ge(json_array_size(cases), 300);
    for (size_t i = 0; i < json_array_size(cases); i++) {
        char *name = json_dumps(json_object_get(json_array_get(cases, i), "sampling"), JSON_COMPACT);

        read_case(root, json_array_get(cases, i), &g);
        g.how.seed = i;
        edges += compare_draws(&g, name);
        free(name);
    }
    ck_assert_uint_le(edges, 20); /* of some 180,000: edges are rare, or the rule is another one */
    json_decref(root);
}
END_TEST

/* ---- by definition ---- */

#define V 9
struct small {
    struct ngd_sampler sampler;
    struct ngd_sampling how;
    struct ngd_sampler_row row;
    float logits[V];
    struct ngd_diag diag;
};

static void small_open(struct small *s)
{
    *s = (struct small){.logits = {0, 1, 2, 3, 4, 5, 6, 7, 8}};
    s->row.logits = s->logits;
    ck_assert(ngd_sampler_init(&s->sampler, V));
}

static int32_t small_choose(struct small *s)
{
    int32_t token = -1;

    if (ngd_sampler_choose(&s->sampler, &s->how, &s->row, &token, &s->diag))
        ck_abort_msg("%s", s->diag.text);
    return token;
}

START_TEST(penalties_count_what_was_generated_and_repetition_all)
{
    static const int32_t context[] = {8, 7, 7, 6};
    struct small s;

    small_open(&s);
    s.row.tokens = context;
    s.row.n = 4;
    s.row.n_given = 1;
    s.how.presence_penalty = 5;
    ck_assert_int_eq(small_choose(&s), 8); /* given, so not penalised */
    s.how.presence_penalty = 0;
    s.how.repetition_penalty = 4;
    ck_assert_int_eq(small_choose(&s), 5); /* 8 / 4, 7 / 4, 6 / 4 */
    s.how.repetition_penalty = 1;
    s.row.n_given = 0;
    s.how.frequency_penalty = 1.5f;
    ck_assert_int_eq(small_choose(&s), 8); /* 6.5; 7 - 3; 4.5 */
    s.how.frequency_penalty = 4;
    ck_assert_int_eq(small_choose(&s), 5); /* 4; -1; 2 */
    s.how.frequency_penalty = -3;
    ck_assert_int_eq(small_choose(&s), 7); /* 11; 13; 9 */
    ck_assert_float_eq(s.logits[8], 8);    /* the row is not changed */
    ngd_sampler_fini(&s.sampler);
}
END_TEST

START_TEST(bad_words_end_where_the_context_has_their_beginning)
{
    static const int32_t context[] = {3, 4}, words[] = {8, 4, 7, 3, 4, 6, 4, 4, 5};
    static const uint32_t ends[] = {1, 3, 6, 9};
    struct small s;

    small_open(&s);
    s.row.tokens = context;
    s.how.bad_tokens = words;
    s.how.bad_ends = ends;
    s.how.n_bad_words = 4;
    ck_assert_int_eq(small_choose(&s), 7); /* an empty context ends no word but the one of one token */
    s.row.n = 1;
    ck_assert_int_eq(small_choose(&s), 7);
    s.row.n = 2;
    ck_assert_int_eq(small_choose(&s), 5); /* 8; 4 7; 3 4 6 */
    ngd_sampler_fini(&s.sampler);
}
END_TEST

START_TEST(stop_tokens_wait_for_min_tokens)
{
    static const int32_t context[] = {0, 0, 0}, own[] = {8, -1, V}, theirs[] = {7};
    struct small s;

    small_open(&s);
    s.row.tokens = context;
    s.row.n_given = 1;
    s.row.stops[0] = own;
    s.row.n_stops[0] = 3;
    s.row.stops[1] = theirs;
    s.row.n_stops[1] = 1;
    s.how.min_tokens = 2;
    for (s.row.n = 1; s.row.n <= 3; s.row.n++)
        ck_assert_int_eq(small_choose(&s), s.row.n < 3 ? 6 : 8);
    ngd_sampler_fini(&s.sampler);
}
END_TEST

START_TEST(masks_leave_what_they_allow_and_may_leave_nothing)
{
    uint8_t mask[2] = {0x14, 0xfe}; /* 2 and 4; bits behind the vocabulary mean nothing */
    const int32_t word[] = {4, 2};
    const uint32_t ends[] = {1, 2};
    struct small s;
    int32_t token = 77;

    small_open(&s);
    s.row.mask = mask;
    ck_assert_int_eq(ngd_mask_check(mask, 2, V, &s.diag), NGD_OK);
    ck_assert_int_eq(small_choose(&s), 4);
    s.how.temperature = 50;
    for (s.row.draw = 0; s.row.draw < 50; s.row.draw++) {
        token = small_choose(&s);
        ck_assert(token == 2 || token == 4);
    }
    s.how.bad_tokens = word;
    s.how.bad_ends = ends;
    s.how.n_bad_words = 2;
    token = 77;
    ck_assert_int_eq(ngd_sampler_choose(&s.sampler, &s.how, &s.row, &token, &s.diag), NGD_ERR_SAMPLING);
    ck_assert_int_eq(token, 77);
    ck_assert_ptr_nonnull(strstr(s.diag.text, "no token"));
    mask[0] = 0;
    ck_assert_int_eq(ngd_mask_check(mask, 2, V, &s.diag), NGD_ERR_SAMPLING);
    ck_assert_int_eq(ngd_mask_check(mask, 1, V, &s.diag), NGD_ERR_SAMPLING);
    ck_assert_int_eq(ngd_mask_check(mask, 3, V, &s.diag), NGD_ERR_SAMPLING);
    ngd_sampler_fini(&s.sampler);
}
END_TEST

START_TEST(odd_logits_give_a_token)
{
    const float odd[] = {NAN, INFINITY, -INFINITY, 3e38f, -3e38f, 0.0f};
    const struct ngd_logit_bias bias[] = {{1, 1e6f}, {1, 1e6f}, {2, -1e6f}};
    static const int32_t context[] = {0, 1, 2, 3, 4, 5, 6, 7, 8};
    struct small s;

    small_open(&s);
    s.row.tokens = context;
    s.row.n = V;
    s.how = (struct ngd_sampling){.min_p = 1,
                                  .typical_p = 0.5f,
                                  .repetition_penalty = 100,
                                  .frequency_penalty = 100,
                                  .presence_penalty = -100,
                                  .bias = bias,
                                  .n_bias = 3};
    for (int i = 0; i < 6 * 6 * 6; i++) {
        s.logits[i % V] = odd[i % 6];
        s.logits[(i / 6) % V] = odd[(i / 6) % 6];
        s.logits[(i / 36) % V] = odd[(i / 36) % 6];
        for (int t = 0; t < 3; t++) {
            int32_t token;

            s.how.temperature = t ? (float)t * 50 : 0;
            token = small_choose(&s);
            ck_assert(token >= 0 && token < V);
        }
    }
    ngd_sampler_fini(&s.sampler);
}
END_TEST

/* ---- parameters ---- */

START_TEST(values_outside_their_ranges_are_refused_by_name)
{
    static const int32_t bad[] = {0, V};
    static const uint32_t one[] = {2}, empty[] = {0}, long_one[] = {NGD_BAD_WORD_MAX + 1};
    static const struct ngd_logit_bias high[] = {{V, 0}}, below[] = {{-1, 0}}, nan[] = {{0, NAN}},
                                       large[] = {{0, 2e6f}};
    static const int32_t zeros[NGD_BAD_WORD_MAX + 1];
    const struct {
        const char *name;
        struct ngd_sampling how;
    } cases[] = {
        {"temperature", {.temperature = NAN}},
        {"top_k", {.top_k = -1}},
        {"top_p", {.top_p = 1.5f}},
        {"min_p", {.min_p = -0.1f}},
        {"min_p", {.min_p = NAN}},
        {"typical_p", {.typical_p = 1.1f}},
        {"repetition_penalty", {.repetition_penalty = -1}},
        {"repetition_penalty", {.repetition_penalty = INFINITY}},
        {"presence_penalty", {.presence_penalty = 101}},
        {"frequency_penalty", {.frequency_penalty = NAN}},
        {"logit_bias", {.bias = high, .n_bias = 1}},
        {"logit_bias", {.bias = below, .n_bias = 1}},
        {"logit_bias", {.bias = nan, .n_bias = 1}},
        {"logit_bias", {.bias = large, .n_bias = 1}},
        {"logit_bias", {.n_bias = NGD_LOGIT_BIAS_MAX + 1}},
        {"bad word", {.bad_tokens = bad, .bad_ends = one, .n_bad_words = 1}},
        {"bad word", {.bad_tokens = bad, .bad_ends = empty, .n_bad_words = 1}},
        {"bad word", {.bad_tokens = zeros, .bad_ends = long_one, .n_bad_words = 1}},
        {"bad words", {.n_bad_words = NGD_BAD_WORDS_MAX + 1}},
    };
    struct ngd_diag diag;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        ck_assert_msg(ngd_sampling_check(&cases[i].how, V, &diag) != NGD_OK, "case %zu: %s", i, cases[i].name);
        ck_assert_msg(strstr(diag.text, cases[i].name) != NULL, "case %zu: %s", i, diag.text);
    }
}
END_TEST

START_TEST(copies_have_their_own_lists)
{
    struct ngd_logit_bias bias[] = {{1, 2}, {3, 4}};
    int32_t bad[] = {5, 6, 7};
    uint32_t ends[] = {1, 3};
    struct ngd_sampling from = {.top_k = 3,
                                .bias = bias,
                                .n_bias = 2,
                                .bad_tokens = bad,
                                .bad_ends = ends,
                                .n_bad_words = 2},
                        to;

    ck_assert(ngd_sampling_copy(&from, &to));
    ck_assert_uint_eq(ngd_sampling_bytes(&from), 2 * 8 + 2 * 4 + 3 * 4);
    bias[1].token = bad[2] = 0;
    ck_assert_int_eq(to.bias[1].token, 3);
    ck_assert_int_eq(to.bad_tokens[2], 7);
    ck_assert_uint_eq(to.bad_ends[1], 3);
    ck_assert_int_eq(to.top_k, 3);
    ngd_sampling_free(&to);
    ngd_mem_fail_after(0);
    ck_assert(!ngd_sampling_copy(&from, &to));
    ngd_mem_fail_after(-1);
    from = (struct ngd_sampling){.top_k = 4};
    ck_assert(ngd_sampling_copy(&from, &to)); /* needs no memory */
    ck_assert_ptr_null(ngd_sampling_needs_logits(&to));
    ngd_sampling_free(&to);
}
END_TEST

START_TEST(the_most_probable_tokens_are_those_of_the_largest_logits)
{
    /* All negative: an empty place of the list is no logit. */
    static const float logits[] = {-9, -2, -7, -2.5f, -8, -3};
    static const int32_t order[] = {1, 3, 5, 2, 4, 0};
    struct ngd_logprobs lp;

    for (uint32_t top = 0; top <= 6; top++) {
        memset(&lp, 0, sizeof(lp));
        ngd_logprobs_of(logits, 6, 4, top, &lp);
        ck_assert_uint_eq(lp.n_top, top);
        for (uint32_t i = 0; i < top; i++) {
            ck_assert_int_eq(lp.top[i].token, order[i]);
            ck_assert_float_eq_tol(lp.top[i].logprob - lp.logprob, logits[order[i]] - logits[4], 1e-5f);
        }
    }
}
END_TEST

UNIT_MAIN("scheduler/sampling", the_most_probable_tokens_are_those_of_the_largest_logits,
          draws_have_the_probabilities_of_transformers, penalties_count_what_was_generated_and_repetition_all,
          bad_words_end_where_the_context_has_their_beginning, stop_tokens_wait_for_min_tokens,
          masks_leave_what_they_allow_and_may_leave_nothing, odd_logits_give_a_token,
          values_outside_their_ranges_are_refused_by_name, copies_have_their_own_lists)
