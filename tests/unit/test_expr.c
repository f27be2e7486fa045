/* SPDX-License-Identifier: Apache-2.0 */
#include "graphs/expr.h"
#include "base/mem.h"
#include "tests/unit/unit.h"
#include <stdio.h>

static struct ngd_expr_table *table;
static ngd_dim_t T, B; /* T 1..1024, B 1..16 */

static void begin(void)
{
    ck_assert_int_eq(ngd_expr_table_create(&table), NGD_OK);
    ck_assert_int_eq(ngd_expr_declare(table, "T", 1, 1024, &T), NGD_OK);
    ck_assert_int_eq(ngd_expr_declare(table, "B", 1, 16, &B), NGD_OK);
}

static void end(void)
{
    ngd_expr_table_destroy(table);
    table = NULL;
}

static ngd_dim_t make(ngd_expr_op_t op, ngd_dim_t a, ngd_dim_t b)
{
    ngd_dim_t dim = 0;

    ck_assert_int_eq(ngd_expr_make(table, op, a, b, &dim), NGD_OK);
    return dim;
}

static ngd_dim_t add(ngd_dim_t a, ngd_dim_t b)
{
    return make(NGD_EXPR_ADD, a, b);
}
static ngd_dim_t sub(ngd_dim_t a, ngd_dim_t b)
{
    return make(NGD_EXPR_SUB, a, b);
}
static ngd_dim_t mul(ngd_dim_t a, ngd_dim_t b)
{
    return make(NGD_EXPR_MUL, a, b);
}
static ngd_dim_t quo(ngd_dim_t a, ngd_dim_t b)
{
    return make(NGD_EXPR_FLOORDIV, a, b);
}
static ngd_dim_t mod(ngd_dim_t a, ngd_dim_t b)
{
    return make(NGD_EXPR_MOD, a, b);
}
static ngd_dim_t min(ngd_dim_t a, ngd_dim_t b)
{
    return make(NGD_EXPR_MIN, a, b);
}
static ngd_dim_t max(ngd_dim_t a, ngd_dim_t b)
{
    return make(NGD_EXPR_MAX, a, b);
}

static void ck_text(ngd_dim_t dim, const char *text)
{
    struct ngd_strbuf sb;

    ngd_strbuf_init(&sb);
    ngd_expr_print(table, dim, &sb);
    ck_assert_str_eq(ngd_strbuf_str(&sb), text);
    ngd_strbuf_fini(&sb);
}

START_TEST(polynomials_that_are_equal_have_one_name)
{
    begin();
    ck_assert_int_eq(add(T, B), add(B, T));
    ck_assert_int_eq(mul(add(T, 1), add(B, 2)), add(add(mul(T, B), mul(T, 2)), add(B, 2)));
    ck_assert_int_eq(sub(add(T, B), B), T);
    ck_assert_int_eq(sub(T, T), 0);
    ck_assert_int_eq(mul(T, 0), 0);
    ck_assert_int_eq(mul(sub(T, B), add(T, B)), sub(mul(T, T), mul(B, B)));
    ck_assert_int_ne(mul(T, 2), mul(T, 3));
    end();
}
END_TEST

START_TEST(expressions_print_in_an_order_that_does_not_depend_on_their_making)
{
    begin();
    ck_text(add(1, mul(8, T)), "T*8 + 1");
    ck_text(add(mul(B, T), sub(3, T)), "T*B - T + 3");
    ck_text(sub(5, T), "-T + 5");
    ck_text(min(8, T), "min(T, 8)");
    ck_text(max(min(B, T), 3), "max(min(T, B), 3)");
    ck_text(quo(add(T, 7), 8), "floordiv(T + 7, 8)");
    ck_text(mod(T, 8), "mod(T, 8)");
    ck_text(-3, "-3");
    end();
}
END_TEST

START_TEST(division_is_exact_where_the_divisor_divides)
{
    begin();
    ck_assert_int_eq(quo(mul(T, 8), 8), T);
    ck_assert_int_eq(mod(mul(T, 8), 8), 0);
    ck_assert_int_eq(quo(add(mul(T, 8), 3), 8), T);
    ck_assert_int_eq(mod(add(mul(T, 8), 3), 8), 3);
    ck_assert_int_eq(quo(mul(T, B), B), T);
    ck_assert_int_eq(quo(mul(T, 4), 8), quo(T, 2));
    ck_assert_int_eq(quo(quo(T, 2), 4), quo(T, 8));
    ck_assert_int_eq(mod(mod(T, 16), 4), mod(T, 4));
    ck_assert_int_eq(quo(B, 17), 0); /* by bounds */
    ck_assert_int_eq(mod(B, 17), B);
    ck_assert_int_eq(quo(-7, 2), -4);
    ck_assert_int_eq(mod(-7, 2), 1);
    end();
}
END_TEST

START_TEST(exact_division_of_polynomials_says_when_there_is_a_rest)
{
    ngd_dim_t q = 77;
    bool exact;

    begin();
    ck_assert_int_eq(ngd_expr_divide(table, sub(mul(T, T), mul(B, B)), add(T, B), &exact, &q), NGD_OK);
    ck_assert(exact);
    ck_assert_int_eq(q, sub(T, B));
    q = 77;
    ck_assert_int_eq(ngd_expr_divide(table, add(T, 1), 2, &exact, &q), NGD_OK);
    ck_assert(!exact);
    ck_assert_int_eq(q, 77);
    ck_assert_int_eq(ngd_expr_divide(table, T, 0, &exact, &q), NGD_OK);
    ck_assert(!exact);
    end();
}
END_TEST

START_TEST(min_and_max_are_decided_by_bounds)
{
    begin();
    ck_assert_int_eq(min(T, 1024), T);
    ck_assert_int_eq(max(T, 1), T);
    ck_assert_int_eq(min(T, add(T, B)), T);
    ck_assert_int_eq(max(T, add(T, B)), add(T, B));
    ck_assert_int_eq(min(min(T, B), B), min(T, B));
    ck_assert_int_eq(min(T, B), min(B, T));
    ck_assert(ngd_expr_always_le(table, min(T, B), B));
    ck_assert(ngd_expr_always_le(table, T, max(T, B)));
    ck_assert(!ngd_expr_always_le(table, T, B));
    ck_assert_int_eq(min(T, quo(T, 2)), quo(T, 2));
    ck_assert_int_eq(max(mod(T, B), T), T);
    ck_assert(ngd_expr_always_le(table, min(quo(T, 3), 5), max(T, B)));
    end();
}
END_TEST

/* Makes a random expression, and computes its value on numbers at the same time. */
static ngd_dim_t grow(uint64_t *seed, int depth, const int64_t *symbols, int64_t *value_p)
{
    ngd_dim_t dim;
    int64_t a, b;
    uint32_t r = (uint32_t)((*seed = *seed * 6364136223846793005u + 1442695040888963407u) >> 33);

    if (depth == 0 || r % 5 == 0) {
        *value_p = r % 3 == 0 ? (int64_t)(r % 11) : symbols[r % 2];
        return r % 3 == 0 ? (ngd_dim_t)(r % 11) : r % 2 ? B : T;
    }
    dim = grow(seed, depth - 1, symbols, &a);
    switch (r % 7) {
    case 0:
        dim = add(dim, grow(seed, depth - 1, symbols, &b));
        *value_p = a + b;
        break;
    case 1:
        dim = sub(dim, grow(seed, depth - 1, symbols, &b));
        *value_p = a - b;
        break;
    case 2:
        dim = mul(dim, r % 9);
        *value_p = a * (r % 9);
        break;
    case 3:
        b = 1 + r % 12;
        dim = quo(dim, b);
        *value_p = (a - ((a % b) + b) % b) / b;
        break;
    case 4:
        b = 1 + r % 12;
        dim = mod(dim, b);
        *value_p = ((a % b) + b) % b;
        break;
    case 5:
        dim = min(dim, grow(seed, depth - 1, symbols, &b));
        *value_p = a < b ? a : b;
        break;
    default:
        dim = max(dim, grow(seed, depth - 1, symbols, &b));
        *value_p = a > b ? a : b;
        break;
    }
    return dim;
}

START_TEST(simplified_expressions_have_the_value_of_what_they_were_made_from)
{
    for (uint64_t i = 0; i < 20000; i++) {
        int64_t symbols[2], want, got, lo, hi;
        uint64_t seed = i;
        ngd_dim_t dim;

        begin();
        symbols[0] = 1 + (int64_t)(i * 7919 % 1024);
        symbols[1] = 1 + (int64_t)(i * 31 % 16);
        dim = grow(&seed, 5, symbols, &want);
        ck_assert_int_eq(ngd_expr_eval(table, dim, symbols, &got), NGD_OK);
        ck_assert_msg(got == want, "seed %llu: %lld, not %lld", (unsigned long long)i, (long long)got, (long long)want);
        ck_assert_int_eq(ngd_expr_bounds(table, dim, &lo, &hi), NGD_OK);
        ck_assert_msg(lo <= got && got <= hi, "seed %llu: %lld outside its bounds", (unsigned long long)i,
                      (long long)got);
        end();
    }
}
END_TEST

START_TEST(bounds_see_that_terms_share_factors)
{
    int64_t lo, hi;

    begin();
    ck_assert_int_eq(ngd_expr_bounds(table, mul(sub(T, 1), B), &lo, &hi), NGD_OK);
    ck_assert_int_eq(lo, 0);
    ck_assert_int_eq(ngd_expr_bounds(table, mul(mul(sub(T, 1), add(B, 2)), sub(17, B)), &lo, &hi), NGD_OK);
    ck_assert_int_le(lo, 0);
    ck_assert(ngd_expr_always_le(table, B, mul(B, T)));
    ck_assert(!ngd_expr_always_le(table, add(B, 1), mul(B, T)));
    end();
}
END_TEST

START_TEST(a_divisor_that_may_be_zero_is_refused)
{
    ngd_dim_t z, dim = 0;

    begin();
    ck_assert_int_eq(ngd_expr_declare(table, "Z", 0, 4, &z), NGD_OK);
    ck_assert_int_eq(ngd_expr_make(table, NGD_EXPR_FLOORDIV, T, z, &dim), NGD_ERR_GRAPH_SYMBOL);
    ck_assert_int_eq(ngd_expr_make(table, NGD_EXPR_MOD, T, 0, &dim), NGD_ERR_GRAPH_SYMBOL);
    ck_assert_int_eq(ngd_expr_make(table, NGD_EXPR_FLOORDIV, T, -2, &dim), NGD_ERR_GRAPH_SYMBOL);
    ck_assert_int_eq(ngd_expr_make(table, NGD_EXPR_FLOORDIV, T, max(z, 1), &dim), NGD_OK);
    end();
}
END_TEST

START_TEST(overflow_is_an_error_and_never_wraps)
{
    ngd_dim_t dim = 0, big;
    int64_t v, symbols[] = {1024, 16};

    begin();
    ck_assert_int_eq(ngd_expr_make(table, NGD_EXPR_ADD, INT64_MAX, 1, &dim), NGD_ERR_OVERFLOW);
    ck_assert_int_eq(ngd_expr_make(table, NGD_EXPR_MUL, INT64_MAX, 2, &dim), NGD_ERR_OVERFLOW);
    ck_assert_int_eq(ngd_expr_make(table, NGD_EXPR_MUL, T, INT64_MAX, &dim), NGD_ERR_OVERFLOW);
    ck_assert_int_eq(ngd_expr_make(table, NGD_EXPR_SUB, NGD_DIM_EXPR_LAST + 1, 1, &dim), NGD_ERR_OVERFLOW);
    big = mul(T, INT64_MAX / 1024);
    ck_assert_int_eq(ngd_expr_make(table, NGD_EXPR_ADD, big, mul(B, INT64_MAX / 16), &dim), NGD_ERR_OVERFLOW);
    ck_assert_int_eq(ngd_expr_eval(table, big, symbols, &v), NGD_OK);
    symbols[0] = INT64_MAX; /* outside the range */
    ck_assert_int_eq(ngd_expr_eval(table, big, symbols, &v), NGD_ERR_OVERFLOW);
    end();
}
END_TEST

START_TEST(expressions_past_the_limits_are_too_large)
{
    ngd_status_t status = NGD_OK;
    ngd_dim_t dim, other, s[14];
    char name[16];

    begin();
    dim = T;
    for (int i = 0; i < 40 && !status; i++) /* depth */
        status = ngd_expr_make(table, i % 2 ? NGD_EXPR_MIN : NGD_EXPR_MAX, dim, i % 2 ? 900 - i : 2 + i, &dim);
    ck_assert_int_eq(status, NGD_ERR_GRAPH_TOO_LARGE);
    end();

    begin();
    dim = T;
    status = NGD_OK;
    for (int i = 0; i < 30 && !status; i++) { /* an atom that shares its operand: evaluation would double each time */
        status = ngd_expr_make(table, NGD_EXPR_ADD, B, dim, &other);
        if (!status)
            status = ngd_expr_make(table, NGD_EXPR_MUL, dim, 3, &dim);
        if (!status)
            status = ngd_expr_make(table, NGD_EXPR_MIN, dim, other, &dim);
        if (!status)
            status = ngd_expr_make(table, NGD_EXPR_MOD, dim, 1000 - i, &dim);
    }
    ck_assert_int_eq(status, NGD_ERR_GRAPH_TOO_LARGE);
    end();

    begin();
    for (int i = 0; i < 13; i++) {
        snprintf(name, sizeof(name), "s%d", i);
        ck_assert_int_eq(ngd_expr_declare(table, name, 0, 2, &s[i]), NGD_OK);
    }
    dim = s[0];
    status = NGD_OK;
    for (int i = 1; i < 13 && !status; i++) /* degree */
        status = ngd_expr_make(table, NGD_EXPR_MUL, dim, s[i], &dim);
    ck_assert_int_eq(status, NGD_ERR_GRAPH_TOO_LARGE);
    dim = add(s[0], 1);
    status = NGD_OK;
    for (int i = 1; i < 10 && !status; i++) /* terms */
        status = ngd_expr_make(table, NGD_EXPR_MUL, dim, add(s[i], 1), &dim);
    ck_assert_int_eq(status, NGD_ERR_GRAPH_TOO_LARGE);
    end();

    begin();
    status = NGD_OK;
    for (int i = 2; i < 70000 && !status; i++) /* number */
        status = ngd_expr_make(table, NGD_EXPR_MUL, T, i, &dim);
    ck_assert_int_eq(status, NGD_ERR_GRAPH_TOO_LARGE);
    end();
}
END_TEST

START_TEST(multiples_of_a_symbol_are_recognised)
{
    uint32_t symbol = 9;
    int64_t mult = 0;

    begin();
    ck_assert(ngd_expr_is_multiple(table, T, &symbol, &mult) && symbol == 0 && mult == 1);
    ck_assert(ngd_expr_is_multiple(table, mul(B, 8), &symbol, &mult) && symbol == 1 && mult == 8);
    ck_assert(!ngd_expr_is_multiple(table, 8, &symbol, &mult));
    ck_assert(!ngd_expr_is_multiple(table, add(B, 1), &symbol, &mult));
    ck_assert(!ngd_expr_is_multiple(table, mul(B, T), &symbol, &mult));
    ck_assert(!ngd_expr_is_multiple(table, mul(B, B), &symbol, &mult));
    ck_assert(!ngd_expr_is_multiple(table, sub(0, T), &symbol, &mult));
    ck_assert(!ngd_expr_is_multiple(table, min(B, 8), &symbol, &mult));
    ck_assert(ngd_expr_uses(table, min(B, 8), 1));
    ck_assert(!ngd_expr_uses(table, min(B, 8), 0));
    ck_assert_uint_eq(ngd_expr_symbols(table, mul(B, T)), 3);
    end();
}
END_TEST

START_TEST(a_symbol_is_widened_before_its_use_only)
{
    int64_t lo, hi;

    begin();
    ck_assert_int_eq(ngd_expr_widen(table, 1, 32), NGD_OK);
    ck_assert_int_eq(ngd_expr_bounds(table, B, &lo, &hi), NGD_OK);
    ck_assert_int_eq(hi, 32);
    mul(T, 2);
    ck_assert_int_eq(ngd_expr_widen(table, 1, 64), NGD_OK);
    mul(B, 2);
    ck_assert_int_eq(ngd_expr_widen(table, 1, 128), NGD_ERR_BUSY);
    ck_assert_int_eq(ngd_expr_widen(table, 7, 128), NGD_ERR_GRAPH_SYMBOL);
    end();
}
END_TEST

START_TEST(a_dimension_of_another_table_is_refused)
{
    ngd_dim_t dim = 0;
    int64_t v, symbols[2] = {1, 1};

    begin();
    ck_assert_int_eq(ngd_expr_make(table, NGD_EXPR_ADD, INT64_MIN + 500, 1, &dim), NGD_ERR_INVALID_ARGUMENT);
    ck_assert_int_eq(ngd_expr_eval(table, INT64_MIN + 500, symbols, &v), NGD_ERR_INVALID_ARGUMENT);
    end();
}
END_TEST

START_TEST(a_failed_allocation_leaves_the_table_usable)
{
    for (int64_t n = 0; n < 12; n++) {
        ngd_dim_t dim = 0;
        ngd_status_t status;

        begin();
        ngd_mem_fail_after(n);
        status = ngd_expr_make(table, NGD_EXPR_MUL, T, B, &dim);
        if (!status)
            status = ngd_expr_make(table, NGD_EXPR_FLOORDIV, dim, 7, &dim);
        ngd_mem_fail_after(-1);
        ck_assert(status == NGD_OK || status == NGD_ERR_NO_MEMORY);
        ck_text(quo(mul(T, B), 7), "floordiv(T*B, 7)");
        end();
    }
}
END_TEST

UNIT_MAIN("graphs/expr", polynomials_that_are_equal_have_one_name,
          expressions_print_in_an_order_that_does_not_depend_on_their_making,
          division_is_exact_where_the_divisor_divides, exact_division_of_polynomials_says_when_there_is_a_rest,
          min_and_max_are_decided_by_bounds, simplified_expressions_have_the_value_of_what_they_were_made_from,
          bounds_see_that_terms_share_factors, a_divisor_that_may_be_zero_is_refused,
          overflow_is_an_error_and_never_wraps, expressions_past_the_limits_are_too_large,
          multiples_of_a_symbol_are_recognised, a_symbol_is_widened_before_its_use_only,
          a_dimension_of_another_table_is_refused, a_failed_allocation_leaves_the_table_usable)
