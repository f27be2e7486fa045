/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests guards that compare expressions over symbols: text, canonical form, digest, bytes, refusals, and diagnoses of
 * values. Random guards are compared with an evaluator in 128 bits that was written from the text's grammar alone.
 */
#include "graphs/graph_pack.h"
#include "graphs/guard.h"
#include "tests/unit/effort.h"
#include "tests/unit/graph_util.h"
#include <inttypes.h>

/* Returns the guards of a graph that declares these, as they are printed, one on each line. */
static char *guards_of(const char *guards)
{
    char body[2000], *text, *end;
    struct ngd_strbuf sb;
    struct ngd_graph *g;

    snprintf(body, sizeof(body),
             "sym A 1..9\nsym T 1..64\nsym B 1..6 buckets 4, 8\n%s\ninput %%a : f32[A]\ninput %%t : f32[T]\n"
             "input %%b : f32[B]\nreturn %%a, %%t, %%b",
             guards);
    g = parse_body(body);
    text = print_graph(g);
    ngd_strbuf_init(&sb);
    for (const char *at = text; (at = strstr(at, "  guard ")) != NULL; at = end) {
        end = strchr(at, '\n');
        ngd_strbuf_append_n(&sb, at + 2, (size_t)(end - at - 1));
    }
    ngd_strbuf_append(&sb, "");
    ngd_free(text);
    ngd_graph_unref(g);
    return ngd_strbuf_steal(&sb);
}

START_TEST(a_guard_is_printed_in_its_canonical_form)
{
    static const struct {
        const char *text, *printed;
    } cases[] = {
        {"guard mod(T, 8) == 0", "guard mod(T, 8) == 0\n"},
        {"guard 0 == mod(T, 8)", "guard mod(T, 8) == 0\n"},
        {"guard T>4", "guard T > 4\n"},
        {"guard 4 < T", "guard T > 4\n"},
        {"guard 4 >= T", "guard T <= 4\n"},
        {"guard A != 2*T", "guard A != T*2\n"},
        {"guard T*2 != A", "guard A != T*2\n"},
        {"guard A > T", "guard T < A\n"},
        {"guard T <= A", "guard T <= A\n"},
        {"guard A >= T", "guard T <= A\n"},
        {"guard T - 8 <= -2", "guard T - 8 <= -2\n"},
        {"guard T + A < 40 + 2*3", "guard A + T < 46\n"},
        {"guard floordiv(T, 3)*A == 6", "guard A*floordiv(T, 3) == 6\n"},
        {"guard B != 3", "guard B != 3\n"},
        /* in one order, and once */
        {"guard T != 5 guard A != 5 guard 5 != T guard T < 60", "guard A != 5\nguard T != 5\nguard T < 60\n"},
        {"guard T < 60 guard T != 5 guard A != 5", "guard A != 5\nguard T != 5\nguard T < 60\n"},
        /* guards that the ranges decide are left out; replays ask for B in 1..6, but may run at 8 */
        {"guard T <= 64 guard 1 <= A guard T + A >= 2 guard 1 < 2 guard mod(T*8, 8) == 0 guard B < 7", ""},
        {"guard max(T, 3) >= 3 guard min(A, T) <= T guard A*T >= A guard B <= 5", "guard B <= 5\n"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char *printed = guards_of(cases[i].text), *again = guards_of(cases[i].printed);

        ck_assert_msg(strcmp(printed, cases[i].printed) == 0, "%s: %s", cases[i].text, printed);
        ck_assert_str_eq(again, printed);
        ngd_free(printed);
        ngd_free(again);
    }
}
END_TEST

START_TEST(guards_are_part_of_the_digest_in_whatever_order_they_stand)
{
    const char *plain = digest_of("sym T 1..64\ninput %t : f32[T]\nreturn %t"),
               *ab = digest_of("sym T 1..64\nguard T != 3\nguard mod(T, 2) == 1\ninput %t : f32[T]\nreturn %t"),
               *ba = digest_of("sym T 1..64\ninput %t : f32[T]\nguard 1 == mod(T, 2)\nguard T != 3\nreturn %t"),
               *other = digest_of("sym T 1..64\nguard T != 4\nguard mod(T, 2) == 1\ninput %t : f32[T]\nreturn %t");

    ck_assert_str_eq(ab, ba);
    ck_assert_str_ne(ab, plain);
    ck_assert_str_ne(ab, other);
    ck_assert_str_eq(plain, digest_of("sym T 1..64\nguard T < 65\ninput %t : f32[T]\nreturn %t"));
}
END_TEST

START_TEST(a_symbol_may_be_used_by_a_guard_only)
{
    static const struct refusal refusals[] = {
        {"sym T 1..9\nguard T < 10\ninput %x : f32[4]\nreturn %x", NGD_ERR_GRAPH_SYMBOL,
         "symbol T is declared|no guard that can fail"},
    };
    struct ngd_graph *g = parse_body("sym T 1..9\nguard T < 5\ninput %x : f32[4]\nreturn %x");

    ck_assert_uint_eq(g->n_relations, 1);
    ngd_graph_unref(g);
    CHECK_REFUSALS(refusals);
}
END_TEST

START_TEST(guards_that_make_no_sense_are_refused_in_words)
{
    static const struct refusal refusals[] = {
        {"sym T 1..9\nguard T", NGD_ERR_GRAPH_PARSE, "line 5|a relation (== != < <= > >=)"},
        {"sym T 1..9\nguard T = 4", NGD_ERR_GRAPH_PARSE, "a relation|found '='"},
        {"sym T 1..9\nguard T ! 4", NGD_ERR_GRAPH_PARSE, "'!' does not belong"},
        {"sym T 1..9\nguard T =< 4", NGD_ERR_GRAPH_PARSE, "a relation|found '='"},
        {"sym T 1..9\nguard < 4", NGD_ERR_GRAPH_PARSE, "expected a number, a symbol or '('|found <"},
        {"sym T 1..9\nguard T ==", NGD_ERR_GRAPH_PARSE, "expected a number, a symbol or '('"},
        {"sym T 1..9\nguard 2 < T < 5", NGD_ERR_GRAPH_PARSE, "line 4, column 13|a second guard"},
        {"sym T 1..9\nguard T %8 == 0", NGD_ERR_GRAPH_PARSE, "a relation"},
        {"sym T 1..9\nguard U == 0", NGD_ERR_GRAPH_SYMBOL, "symbol U is not declared"},
        {"guard T == 2\nsym T 1..9", NGD_ERR_GRAPH_SYMBOL, "symbol T is not declared"},
        {"sym guard 1..9", NGD_ERR_GRAPH_SYMBOL, "\"guard\" cannot name a symbol"},
        {"stream \"s\" {\nguard 1 == 1\n}", NGD_ERR_GRAPH_PARSE, "outside of streams"},
        /* never */
        {"sym T 2..9\nguard T > 100", NGD_ERR_GRAPH_SYMBOL, "line 4: guard T > 100, with T in 2..9 never holds"},
        {"sym T 2..9\nguard 1 == 2", NGD_ERR_GRAPH_SYMBOL, "guard 1 == 2 never holds"},
        {"sym T 2..9\nguard mod(T, 4) == 4", NGD_ERR_GRAPH_SYMBOL, "never holds"},
        {"sym T 2..9\nguard T*8 != 8*T", NGD_ERR_GRAPH_SYMBOL, "never holds"},
        {"sym T 2..9\nsym U 2..3\nguard T*U < U", NGD_ERR_GRAPH_SYMBOL, "never holds"},
        {"sym B 1..6 buckets 8\nguard B >= 7", NGD_ERR_GRAPH_SYMBOL, "with B in 1..6 never holds"},
        /* what cannot be computed for all values in range */
        {"sym T 0..9\nguard mod(8, T) == 0", NGD_ERR_GRAPH_SYMBOL, "divisor can be 0"},
        {"sym T 1..9\nguard floordiv(8, T - 1) == 0", NGD_ERR_GRAPH_SYMBOL, "divisor can be 0"},
        {"sym T 1..9\nguard mod(8, 0) == 0", NGD_ERR_GRAPH_SYMBOL, "divisor can be 0"},
        {"sym T 1..2147483647\nguard T*T*T < 5", NGD_ERR_OVERFLOW, "overflows 64 bits within the symbols' ranges"},
        {"sym T 1..9\nguard T < 9223372036854775808", NGD_ERR_OVERFLOW, "does not fit 64 bits"},
        {"sym T 1..9\nguard T - 9223372036854775805 < 7", NGD_ERR_OVERFLOW, "overflows 64 bits"},
        {"sym T 1..9\nguard T*9223372036854775807 < 7", NGD_ERR_OVERFLOW, "overflows 64 bits"},
    };

    CHECK_REFUSALS(refusals);
}
END_TEST

START_TEST(more_or_dearer_guards_than_the_limits_are_refused)
{
    struct ngd_strbuf sb;

    ngd_strbuf_init(&sb);
    ngd_strbuf_append(&sb, "npugraph 1\ngraph \"t\" {\nsym T 1..100\n");
    for (int i = 2; i < 67; i++)
        ngd_strbuf_printf(&sb, "guard T != %d guard T != %d\n", i, i);
    check_text_refused(sb.data, sb.len, NGD_ERR_GRAPH_TOO_LARGE, "line 68|more than 64 guards");
    ngd_strbuf_clear(&sb);
    ngd_strbuf_append(&sb, "npugraph 1\ngraph \"t\" {\nsym T 1..100\nsym U 1..100\n");
    for (int i = 0; i < 60; i++) {
        ngd_strbuf_append(&sb, "guard U <= ");
        for (int k = 0; k < 30; k++)
            ngd_strbuf_printf(&sb, "mod(T + %d, %d) + ", k, 50 + i + k);
        ngd_strbuf_append(&sb, "1\n");
    }
    check_text_refused(sb.data, sb.len, NGD_ERR_GRAPH_TOO_LARGE, "more than 4096 operands together");
    ngd_strbuf_fini(&sb);
}
END_TEST

START_TEST(a_guard_that_fails_is_named_with_the_values_of_both_sides)
{
    static const struct {
        const char *guard;
        int64_t a, t, b;
        const char *text; /* NULL: it holds */
    } cases[] = {
        {"mod(T, 8) == 0", 1, 16, 1, NULL},
        {"mod(T, 8) == 0", 1, 11, 1, "guard mod(T, 8) == 0 does not hold: mod(T, 8) is 3 with T = 11"},
        {"T != 1", 1, 1, 1, "guard T != 1 does not hold: T is 1"},
        {"A <= T", 4, 4, 1, NULL},
        {"A <= T", 4, 3, 1, "guard A <= T does not hold: A is 4 and T is 3"},
        {"A <= T*2", 4, 1, 1, "guard A <= T*2 does not hold: A is 4 and T*2 is 2 with T = 1"},
        {"A + T < 12", 9, 3, 1, "guard A + T < 12 does not hold: A + T is 12 with A = 9, T = 3"},
        {"A*T == B*B + 8", 4, 3, 2, NULL},
        {"A*T == B*B + 8", 4, 4, 2,
         "guard A*T == B*B + 8 does not hold: A*T is 16 and B*B + 8 is 12 with A = 4, T = 4, B = 2"},
        {"B != 3", 1, 1, 4, NULL},
        {"B != 3", 1, 1, 3, "guard B != 3 does not hold: B is 3"},
        {"floordiv(1 - T, 2) >= -3", 1, 7, 1, NULL},
        {"floordiv(1 - T, 2) >= -3", 1, 8, 1,
         "guard floordiv(-T + 1, 2) >= -3 does not hold: floordiv(-T + 1, 2) is -4 with T = 8"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const int64_t symbols[3] = {cases[i].a, cases[i].t, cases[i].b};
        struct ngd_diag diag = {0};
        char body[1000];
        struct ngd_graph *g;
        uint64_t before;

        snprintf(body, sizeof(body),
                 "sym A 1..9\nsym T 1..64\nsym B 1..6 buckets 4, 8\nguard %s\ninput %%a : f32[A]\n"
                 "input %%t : f32[T]\ninput %%b : f32[B]\nreturn %%a, %%t, %%b",
                 cases[i].guard);
        g = parse_body(body);
        ck_assert_uint_eq(g->n_relations, 1);
        before = ngd_mem_thread_allocs();
        if (cases[i].text) {
            ck_assert_int_eq(ngd_guard_check_relations(g, symbols, &diag), NGD_ERR_GUARD_FAILED);
            ck_assert_str_eq(diag.text, cases[i].text);
            ck_assert_int_eq(ngd_guard_check_relations(g, symbols, NULL), NGD_ERR_GUARD_FAILED);
        } else {
            ck_assert_int_eq(ngd_guard_check_relations(g, symbols, &diag), NGD_OK);
            ck_assert_uint_eq(ngd_mem_thread_allocs(), before);
        }
        ngd_graph_unref(g);
    }
}
END_TEST

START_TEST(values_up_to_the_largest_are_computed_exactly)
{
    struct ngd_graph *g = parse_body("sym A 1..2147483647\nsym B 1..2147483647\nguard A*B <= 4611686014132420608\n"
                                     "guard A*B - B >= 0 - A\ninput %x : f32[4]\nreturn %x");
    const int64_t largest[2] = {INT32_MAX, INT32_MAX}, less[2] = {INT32_MAX, INT32_MAX - 1}, ones[2] = {1, 1};
    struct ngd_diag diag = {0};

    ck_assert_int_eq(ngd_guard_check_relations(g, largest, &diag), NGD_ERR_GUARD_FAILED);
    check_says("", "A*B is 4611686014132420609 with A = 2147483647, B = 2147483647", diag.text);
    ck_assert_int_eq(ngd_guard_check_relations(g, less, NULL), NGD_OK);
    ck_assert_int_eq(ngd_guard_check_relations(g, ones, NULL), NGD_OK);
    ngd_graph_unref(g);
    /* near the ends of 64 bits a quotient times its divisor lies outside of them */
    g = parse_body("sym A 1..9\nsym B 1..2147483647\nguard mod(A - 9223372036854710271, 12884901893) != 7874172251\n"
                   "guard mod(A - 9223372036854710271, B) != 1873835664\ninput %x : f32[4]\nreturn %x");
    ck_assert_int_eq(ngd_guard_check_relations(g, (int64_t[]){3, 1}, &diag), NGD_ERR_GUARD_FAILED);
    ck_assert_str_eq(diag.text,
                     "guard A + 7874172248 != 7874172251 does not hold: A + 7874172248 is 7874172251 with A = 3");
    ck_assert_int_eq(ngd_guard_check_relations(g, (int64_t[]){1, 2000000011}, &diag), NGD_ERR_GUARD_FAILED);
    check_says("", "is 1873835664 with A = 1, B = 2000000011", diag.text);
    ck_assert_int_eq(ngd_guard_check_relations(g, (int64_t[]){1, 2000000010}, NULL), NGD_OK);
    ngd_graph_unref(g);
}
END_TEST

START_TEST(guards_come_back_from_bytes)
{
    struct ngd_graph *g = parse_body("sym A 1..9\nsym B 1..6 buckets 4, 8\nguard floordiv(A*B, 3) != A\nguard B > 2\n"
                                     "guard A == 3*B\ninput %x : f32[A]\ninput %y : f32[B]\nreturn %x, %y"),
                     *again = NULL;
    char *a = print_graph(g), *b;
    struct ngd_strbuf bytes;
    struct ngd_diag diag = {0};

    ngd_strbuf_init(&bytes);
    ngd_graph_pack(g, &bytes);
    ck_assert_msg(ngd_graph_unpack(bytes.data, bytes.len, &again, &diag) == NGD_OK, "%s", diag.text);
    b = print_graph(again);
    ck_assert_uint_eq(again->n_relations, 3);
    ck_assert_str_eq(a, b);
    ck_assert(ngd_graph_digest_holds(again));
    ngd_strbuf_fini(&bytes);
    ngd_free(a);
    ngd_free(b);
    ngd_graph_unref(g);
    ngd_graph_unref(again);
}
END_TEST

START_TEST(the_builder_takes_dimensions_of_its_graph_only)
{
    struct ngd_graph *g;
    struct ngd_type type = {.dtype = NGD_F32, .rank = 1};
    uint32_t x;

    ck_assert_int_eq(ngd_graph_create("b", &g), NGD_OK);
    ck_assert_int_eq(ngd_graph_add_symbol(g, "T", 1, 9, &type.dims[0], NULL), NGD_OK);
    ck_assert_int_eq(ngd_graph_add_relation(g, type.dims[0], NGD_RELATION_MAX, 4, NULL), NGD_ERR_INVALID_ARGUMENT);
    ck_assert_int_eq(ngd_graph_add_relation(g, INT64_MIN + 77, NGD_RELATION_LT, 4, NULL), NGD_ERR_INVALID_ARGUMENT);
    ck_assert_int_eq(ngd_graph_add_relation(g, 4, NGD_RELATION_LT, INT64_MIN + 77, NULL), NGD_ERR_INVALID_ARGUMENT);
    ck_assert_int_eq(ngd_graph_add_relation(g, type.dims[0], NGD_RELATION_LT, 4, NULL), NGD_OK);
    ck_assert_int_eq(ngd_graph_add_input(g, NGD_VALUE_INPUT, "x", NULL, &type, &x, NULL), NGD_OK);
    ck_assert_int_eq(ngd_graph_add_output(g, "x", x, NULL), NGD_OK);
    ck_assert_int_eq(ngd_graph_seal(g, NULL), NGD_OK);
    ck_assert_int_eq(ngd_graph_add_relation(g, type.dims[0], NGD_RELATION_LT, 3, NULL), NGD_ERR_INVALID_ARGUMENT);
    ck_assert_uint_eq(g->n_relations, 1);
    ngd_graph_unref(g);
}
END_TEST

/* ---- random guards, compared with another evaluator ------------------------------------------------------ */

#define SYMBOLS 3

struct world {
    uint64_t seed;
    int64_t min[SYMBOLS], max[SYMBOLS];
    const char *at; /* position in the text that is evaluated */
    const int64_t *values;
    bool undefined; /* a divisor below 1, or more than 128 bits could hold */
};

static uint32_t draw(struct world *w, uint32_t n)
{
    w->seed = w->seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(w->seed >> 33) % n;
}

static void make_expr(struct world *w, int depth, struct ngd_strbuf *sb)
{
    static const char *const functions[] = {"floordiv", "mod", "min", "max"};
    uint32_t kind = depth == 0 ? draw(w, 2) : draw(w, 9);

    if (kind == 0) {
        ngd_strbuf_printf(sb, "%c", 'A' + (char)draw(w, SYMBOLS));
    } else if (kind == 1) {
        uint32_t how = draw(w, 16);

        if (how == 0)
            ngd_strbuf_printf(sb, "%" PRId64, INT64_MAX - draw(w, 3));
        else
            ngd_strbuf_printf(sb, "%u", how < 11 ? draw(w, 12) : draw(w, UINT32_MAX));
    } else if (kind < 5) {
        ngd_strbuf_putc(sb, '(');
        make_expr(w, depth - 1, sb);
        ngd_strbuf_printf(sb, " %c ", "+-*"[kind - 2]);
        make_expr(w, depth - 1, sb);
        ngd_strbuf_putc(sb, ')');
    } else {
        ngd_strbuf_printf(sb, "%s(", functions[kind - 5]);
        make_expr(w, depth - 1, sb);
        ngd_strbuf_append(sb, ", ");
        make_expr(w, depth - 1, sb);
        ngd_strbuf_putc(sb, ')');
    }
}

static __int128 eval_text(struct world *w);

/* Skips `between` ("(" or ", " or " + "), and evaluates an operand. */
static __int128 eval_behind(struct world *w, const char *between)
{
    w->at += strspn(w->at, between);
    return eval_text(w);
}

/* Evaluates the text at w->at, which make_expr has written. */
static __int128 eval_text(struct world *w)
{
    static const __int128 huge = (__int128)1 << 100;
    char op = *w->at;
    __int128 a = 0, b, r;

    if (op >= 'A' && op < 'A' + SYMBOLS) {
        w->at++;
        return w->values[op - 'A'];
    }
    if (op >= '0' && op <= '9') {
        for (; *w->at >= '0' && *w->at <= '9'; w->at++)
            a = a * 10 + (*w->at - '0');
        return a;
    }
    if (op == 'm') /* mod, min, max */
        op = w->at[1] == 'o' ? '%' : w->at[1] == 'i' ? '<' : '>';
    w->at += strcspn(w->at, "(") + 1;
    a = eval_text(w);
    if (op == '(')
        op = w->at[1];
    b = eval_behind(w, ", +-*");
    w->at++;
    if (((op == 'f' || op == '%') && b < 1) || a > huge || a < -huge || b > huge || b < -huge) {
        w->undefined = true;
        return 0;
    }
    switch (op) {
    case '+':
        return a + b;
    case '-':
        return a - b;
    case '*':
        w->undefined = w->undefined || (a && b && (a > 0 ? a : -a) > huge / (b > 0 ? b : -b));
        return w->undefined ? 0 : a * b;
    case '<':
        return a < b ? a : b;
    case '>':
        return a > b ? a : b;
    default:
        r = a % b < 0 ? a % b + b : a % b;
        return op == '%' ? r : (a - r) / b;
    }
}

static bool oracle(struct world *w, const char *left, const char *op, const char *right)
{
    __int128 l, r;

    w->at = left;
    l = eval_text(w);
    w->at = right;
    r = eval_text(w);
    if (strcmp(op, "==") == 0)
        return l == r;
    if (strcmp(op, "!=") == 0)
        return l != r;
    return op[0] == '<' ? l < r || (op[1] && l == r) : l > r || (op[1] && l == r);
}

static void random_values(struct world *w, int64_t *values)
{
    for (int i = 0; i < SYMBOLS; i++) {
        uint32_t how = draw(w, 4);
        uint64_t range = (uint64_t)(w->max[i] - w->min[i]) + 1;

        values[i] = how == 0 ? w->min[i] : how == 1 ? w->max[i] : w->min[i] + (int64_t)(draw(w, UINT32_MAX) % range);
    }
}

static struct ngd_graph *parse_relation(struct world *w, const char *left, const char *op, const char *right,
                                        ngd_status_t *status_p, struct ngd_diag *diag)
{
    struct ngd_graph *g = NULL;
    struct ngd_strbuf sb;

    ngd_strbuf_init(&sb);
    ngd_strbuf_append(&sb, "npugraph 1\ngraph \"t\" {\n");
    for (int i = 0; i < SYMBOLS; i++)
        ngd_strbuf_printf(&sb, "sym %c %" PRId64 "..%" PRId64 "%s\n", 'A' + i, w->min[i], w->max[i],
                          i == 1 && w->max[i] < 1000 ? " buckets 2000" : "");
    ngd_strbuf_printf(&sb, "guard %s %s %s\ninput %%a : u8[A]\ninput %%b : u8[B]\ninput %%c : u8[C]\n", left, op,
                      right);
    ngd_strbuf_append(&sb, "return %a, %b, %c\n}\n");
    *status_p = ngd_graph_parse(sb.data, sb.len, &g, diag);
    ngd_strbuf_fini(&sb);
    return g;
}

enum { ACCEPTED, ALWAYS, NEVER, REFUSED, OUTCOMES };

static int check_relation(struct world *w)
{
    static const char *const ops[] = {"==", "!=", "<", "<=", ">", ">="};
    const char *op = ops[draw(w, 6)];
    struct ngd_diag diag = {0};
    struct ngd_strbuf left, right;
    struct ngd_graph *g;
    ngd_status_t status;
    int outcome;

    for (int i = 0; i < SYMBOLS; i++) {
        w->min[i] = draw(w, 3);
        w->max[i] = w->min[i] + (draw(w, 4) ? draw(w, 20) : INT32_MAX - 2);
    }
    ngd_strbuf_init(&left);
    ngd_strbuf_init(&right);
    make_expr(w, 3, &left);
    make_expr(w, 2, &right);
    g = parse_relation(w, left.data, op, right.data, &status, &diag);
    outcome = g ? g->n_relations ? ACCEPTED : ALWAYS : strstr(diag.text, "never holds") ? NEVER : REFUSED;
    if (outcome == REFUSED)
        ck_assert_msg(status == NGD_ERR_OVERFLOW || status == NGD_ERR_GRAPH_SYMBOL || status == NGD_ERR_GRAPH_TOO_LARGE,
                      "%s: %s", ngd_status_name(status), diag.text);
    for (int i = 0; outcome != REFUSED && i < 40; i++) {
        int64_t values[SYMBOLS];
        bool want;

        random_values(w, values);
        w->values = values;
        w->undefined = false;
        want = oracle(w, left.data, op, right.data);
        ck_assert_msg(!w->undefined, "%s %s %s", left.data, op, right.data);
        ck_assert_msg(want ==
                          (outcome == ALWAYS || (outcome == ACCEPTED && !ngd_guard_check_relations(g, values, NULL))),
                      "%s %s %s with %lld, %lld, %lld: outcome %d: %s", left.data, op, right.data, (long long)values[0],
                      (long long)values[1], (long long)values[2], outcome, diag.text);
    }
    ngd_strbuf_fini(&left);
    ngd_strbuf_fini(&right);
    ngd_graph_unref(g);
    return outcome;
}

START_TEST(random_guards_hold_when_another_evaluator_says_so)
{
    uint64_t n = effort(4000, "random guards"), of[OUTCOMES] = {0};
    struct world w = {.seed = 4711};

    for (uint64_t i = 0; i < n; i++)
        of[check_relation(&w)]++;
    for (int i = 0; i < OUTCOMES; i++)
        ck_assert_msg(of[i] > n / 50 || n < 400, "only %llu of outcome %d", (unsigned long long)of[i], i);
}
END_TEST

START_TEST(an_input_of_another_type_is_named_with_what_differs)
{
    struct ngd_graph *g =
        parse_body("sym T 1..64\nguard T < 60\ninput %t : f32[T,2*T+1]\ninput %i : i64[]\nreturn %t, %i");
    const struct ngd_input_type good[2] = {{NGD_F32, 2, {3, 7}}, {NGD_I64, 0, {0}}};
    const int64_t symbols[1] = {3};
    const struct {
        uint32_t input;
        struct ngd_input_type type;
        const char *text;
    } cases[] = {
        {0, {NGD_F16, 2, {3, 7}}, "input \"t\": dtype is f16 (guard == f32)"},
        {0, {NGD_F32, 1, {3}}, "input \"t\": rank is 1 (guard == 2)"},
        {0, {NGD_F32, 2, {4, 7}}, "input \"t\": dimension 0 is 4 (guard == T, which is 3)"},
        {0, {NGD_F32, 2, {3, 6}}, "input \"t\": dimension 1 is 6 (guard == T*2 + 1, which is 7)"},
        {1, {NGD_I32, 0, {0}}, "input \"i\": dtype is i32 (guard == i64)"},
        {1, {NGD_I64, 1, {1}}, "input \"i\": rank is 1 (guard == 0)"},
    };
    struct ngd_diag diag = {0};

    ck_assert_int_eq(ngd_guard_check_types(g, symbols, good, 2, &diag), NGD_OK);
    ck_assert_int_eq(ngd_guard_check_types(g, symbols, good, 1, &diag), NGD_ERR_INPUT_COUNT);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct ngd_input_type types[2] = {good[0], good[1]};

        types[cases[i].input] = cases[i].type;
        ck_assert_int_eq(ngd_guard_check_types(g, symbols, types, 2, &diag), NGD_ERR_GUARD_FAILED);
        ck_assert_str_eq(diag.text, cases[i].text);
    }
    ngd_graph_unref(g);
}
END_TEST

UNIT_MAIN("graphs/graph guards", a_guard_is_printed_in_its_canonical_form,
          guards_are_part_of_the_digest_in_whatever_order_they_stand, a_symbol_may_be_used_by_a_guard_only,
          guards_that_make_no_sense_are_refused_in_words, more_or_dearer_guards_than_the_limits_are_refused,
          a_guard_that_fails_is_named_with_the_values_of_both_sides, values_up_to_the_largest_are_computed_exactly,
          guards_come_back_from_bytes, the_builder_takes_dimensions_of_its_graph_only,
          an_input_of_another_type_is_named_with_what_differs, random_guards_hold_when_another_evaluator_says_so)
