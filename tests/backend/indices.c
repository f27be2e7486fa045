/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Indices from any source. An index that is out of range fails its launch and nothing else, a negative index counts
 * from the end where it does in PyTorch, and other readers of the indices see them unchanged.
 */
#include "tests/backend/conform.h"

#define ROWS  4
#define WIDTH 3

/* What an operator does with x[4,3], indices i[2] (or j, the same as a column), and v[2,3]. */
enum effect { TAKE_ROWS, TAKE_FIRST, PUT_FIRST, PUT_SEVEN, ADD_FIRST, PUT_ROWS, ADD_ROWS };

static const struct {
    const char *node;
    enum effect effect;
    bool from_end;
} ops[] = {
    {"aten.embedding(%x, %i)", TAKE_ROWS, false},
    {"aten.index.Tensor(%x, %i)", TAKE_ROWS, true},
    {"aten.index_select(%x, %i) {dim=0}", TAKE_ROWS, false},
    {"aten.gather(%x, %j) {dim=0}", TAKE_FIRST, false},
    {"aten.scatter.src(%x, %j, %v) {dim=0}", PUT_FIRST, false},
    {"aten.scatter.value(%x, %j) {dim=-2, value=7}", PUT_SEVEN, false},
    {"aten.scatter_add(%x, %j, %v) {dim=0}", ADD_FIRST, false},
    {"aten.index_put(%x, %i, %v)", PUT_ROWS, true},
    {"aten.index_put(%x, %i, %v) {accumulate=true}", ADD_ROWS, true},
    {"aten.index_copy(%x, %i, %v) {dim=0}", PUT_ROWS, false},
};

/* The output k shows the values of the indices that other nodes read. */
static const struct {
    const char *name, *text;
} sources[] = {
    {"an input", " input %i : DTYPE[2]\n input %b : DTYPE[2]\n %k = aten.add.Tensor(%b, %b)\n"},
    {"an input that others read", " input %i : DTYPE[2]\n input %b : DTYPE[2]\n %k = aten.add.Tensor(%i, %b)\n"},
    {"a copy of an input",
     " input %c : DTYPE[2]\n input %b : DTYPE[2]\n %i = aten.clone(%c)\n %k = aten.add.Tensor(%c, %b)\n"},
    {"a result",
     " input %a : DTYPE[2]\n input %b : DTYPE[2]\n %i = aten.add.Tensor(%a, %b)\n %k = aten.sub.Tensor(%i, %b)\n"},
};
enum { FROM_INPUT, FROM_SHARED, FROM_COPY, FROM_RESULT };

static const int32_t pairs[][2] = {
    {0, 3}, {2, 1}, {-1, 0}, {-4, 2}, {1, 4}, {-5, 1}, {INT32_MAX, 0}, {0, INT32_MIN}, {INT32_MIN, INT32_MAX}};

static void expect(enum effect effect, const float *x, const float *v, const int64_t *row, float *y)
{
    if (effect >= PUT_FIRST)
        memcpy(y, x, ROWS * WIDTH * sizeof(*y));
    for (int n = 0; n < 2; n++) {
        for (int w = 0; w < WIDTH; w++) {
            float *at = &y[row[n] * WIDTH + w];
            bool first = w == 0;

            if (effect == TAKE_ROWS)
                y[n * WIDTH + w] = x[row[n] * WIDTH + w];
            else if (effect == TAKE_FIRST && first)
                y[n] = x[row[n] * WIDTH];
            else if (effect == PUT_ROWS || (effect == PUT_FIRST && first))
                *at = v[n * WIDTH + w];
            else if (effect == PUT_SEVEN && first)
                *at = 7;
            else if (effect == ADD_ROWS || (effect == ADD_FIRST && first))
                *at += v[n * WIDTH + w];
        }
    }
}

static uint32_t count_of(enum effect effect)
{
    return effect == TAKE_ROWS ? 2 * WIDTH : effect == TAKE_FIRST ? 2 : ROWS * WIDTH;
}

struct probe {
    struct ready r;
    struct conform_io io;
    float x[ROWS * WIDTH], v[2 * WIDTH], y[ROWS * WIDTH];
    char a[16], b[16], k[16]; /* two integers each */
    bool wide;
};

static void put_integers(bool wide, char *to, int64_t first, int64_t second)
{
    int64_t both[2] = {first, second};
    int32_t narrow[2] = {(int32_t)first, (int32_t)second};

    memcpy(to, wide ? (void *)both : (void *)narrow, wide ? sizeof(both) : sizeof(narrow));
}

static int64_t get_integer(bool wide, const char *from, int i)
{
    int64_t v;
    int32_t narrow;

    memcpy(&v, from + (wide ? 8 * i : 0), 8);
    memcpy(&narrow, from + (wide ? 0 : 4 * i), 4);
    return wide ? v : narrow;
}

static void probe_open(struct probe *p, struct conform *c, size_t op, size_t source, bool wide)
{
    const uint64_t integers = wide ? 16 : 8;
    char text[800], where[300];
    const char *dtype = wide ? "i64" : "i32", *at;
    size_t n = 0;

    for (const char *s = sources[source].text; *s && n + 4 < sizeof(where);) {
        if (strncmp(s, "DTYPE", 5) == 0) {
            n += (size_t)snprintf(where + n, sizeof(where) - n, "%s", dtype);
            s += 5;
        } else {
            where[n++] = *s++;
        }
    }
    where[n] = '\0';
    at = strstr(ops[op].node, "%v") ? " input %v : f32[2,3]\n" : "";
    snprintf(text, sizeof(text),
             "npugraph 1\ngraph \"p\" {\n input %%x : f32[4,3]\n%s%s %%j = aten.view(%%i) {size=[2, 1]}\n"
             " %%y = %s\n return \"y\" = %%y, \"k\" = %%k\n}\n",
             where, at, ops[op].node);
    memset(p, 0, sizeof(*p));
    p->wide = wide;
    for (int i = 0; i < ROWS * WIDTH; i++)
        p->x[i] = (float)(i + 1);
    for (int i = 0; i < 2 * WIDTH; i++)
        p->v[i] = (float)(100 * (i + 1));
    conform_ready(&p->r, c, text, NULL);
    conform_io_init(&p->io, NULL);
    p->io.in[0] = (struct ngd_span){p->x, sizeof(p->x)};
    p->io.in[1] = (struct ngd_span){p->a, integers};
    p->io.in[2] = (struct ngd_span){p->b, integers};
    p->io.in[3] = (struct ngd_span){p->v, sizeof(p->v)};
    p->io.out[0] = (struct ngd_out){p->y, count_of(ops[op].effect) * sizeof(float)};
    p->io.out[1] = (struct ngd_out){p->k, integers};
}

/* The indices are a + b if the source is a result, else a. */
static void probe_set(struct probe *p, size_t source, const int32_t *pair)
{
    const int64_t minus = source == FROM_RESULT ? 1 : 0;

    put_integers(p->wide, p->a, pair[0] - minus, pair[1] - minus);
    put_integers(p->wide, p->b, 1, 1);
    memset(p->y, 0x7f, sizeof(p->y));
    memset(p->k, 0x7f, sizeof(p->k));
}

/* Subtracting 1 from the least i32 would wrap around. */
static bool pair_fits(bool wide, size_t source, const int32_t *pair)
{
    return wide || source != FROM_RESULT || (pair[0] != INT32_MIN && pair[1] != INT32_MIN);
}

static void probe_check(struct probe *p, struct conform *c, size_t op, size_t source, const int32_t *pair)
{
    const int64_t lowest = ops[op].from_end ? -ROWS : 0;
    const bool good = pair[0] >= lowest && pair[0] < ROWS && pair[1] >= lowest && pair[1] < ROWS;
    const int64_t row[2] = {pair[0] + (pair[0] < 0 ? ROWS : 0), pair[1] + (pair[1] < 0 ? ROWS : 0)};
    float want[ROWS * WIDTH], untouched[ROWS * WIDTH];
    ngd_status_t status;

    probe_set(p, source, pair);
    memcpy(untouched, p->y, sizeof(untouched));
    status = ngd_stream_run(c->b.stream, p->r.inst, &p->io.launch);
    if (status != (good ? NGD_OK : NGD_ERR_INDEX_RANGE))
        ck_abort_msg("%s from %s, %s, indices %d and %d%s: %s %s", ops[op].node, sources[source].name,
                     p->wide ? "i64" : "i32", pair[0], pair[1], p->io.launch.eager ? ", eager" : "",
                     ngd_status_name(status), p->io.launch.diag.text);
    CONFORM_OK(ngd_stream_status(c->b.stream));
    if (!good) {
        conform_says(p->io.launch.diag.text, "index");
        ck_assert_mem_eq(p->y, untouched, sizeof(untouched));
        return;
    }
    expect(ops[op].effect, p->x, p->v, row, want);
    for (uint32_t i = 0; i < count_of(ops[op].effect); i++)
        if (p->y[i] != want[i])
            ck_abort_msg("%s from %s, %s, indices %d and %d: element %u is %g, not %g", ops[op].node,
                         sources[source].name, p->wide ? "i64" : "i32", pair[0], pair[1], i, (double)p->y[i],
                         (double)want[i]);
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(get_integer(p->wide, p->k, i), source == FROM_INPUT    ? 2
                                                        : source == FROM_RESULT ? pair[i] - 1
                                                                                : pair[i] + 1);
}

START_TEST(index_means_the_same_wherever_it_comes_from)
{
    struct conform c;
    struct probe p;

    conform_open(&c, _i);
    for (size_t op = 0; op < sizeof(ops) / sizeof(ops[0]); op++) {
        for (size_t kind = 0; kind < 2 * sizeof(sources) / sizeof(sources[0]); kind++) {
            const size_t source = kind / 2;

            probe_open(&p, &c, op, source, kind % 2);
            for (size_t k = 0; k < 2 * sizeof(pairs) / sizeof(pairs[0]); k++) {
                p.io.launch.eager = k % 2;
                if (pair_fits(p.wide, source, pairs[k / 2]))
                    probe_check(&p, &c, op, source, pairs[k / 2]);
            }
            ready_close(&p.r);
        }
    }
    conform_close(&c);
}
END_TEST

/* x has 3 rows in a bucket of 4, and its end is that of the actual rows. Other operators take no such x. */
START_TEST(rows_of_a_bucket_end_where_the_launch_does)
{
    static const struct {
        const char *body;
        bool from_end;
    } cases[] = {
        {" input %i : i64[1]\n %y = aten.index.Tensor(%x, %i)\n", true},
        {" input %h : i64[1]\n %i = aten.mul.Tensor(%h, %h)\n %y = aten.index.Tensor(%x, %i)\n", false}, /* 4, 9, 16 */
    };
    static const int64_t given[] = {0, 1, 2, 3, 4, -1, -3, -4};
    const int64_t rows = 3, planned = 4;
    const float x[6] = {1, 2, 3, 4, 5, 6};
    struct conform_io io;
    struct conform c;
    struct ready r;

    conform_open(&c, _i);
    for (size_t k = 0; k < sizeof(cases) / sizeof(cases[0]); k++) {
        char text[400];

        snprintf(
            text, sizeof(text),
            "npugraph 1\ngraph \"b\" {\n sym B 1..8 buckets 4, 8\n input %%x : f32[B,2]\n%s return \"y\" = %%y\n}\n",
            cases[k].body);
        conform_ready(&r, &c, text, &planned);
        for (size_t i = 0; i < 2 * sizeof(given) / sizeof(given[0]); i++) {
            int64_t index = given[i / 2], row = k == 1 ? index * index : index;
            bool good = row < rows && row >= (cases[k].from_end ? -rows : 0);
            float y[2] = {0};
            ngd_status_t status;

            row += row < 0 ? rows : 0;
            conform_io_init(&io, &rows);
            io.launch.eager = i % 2;
            io.in[0] = (struct ngd_span){x, sizeof(x)};
            io.in[1] = (struct ngd_span){&index, sizeof(index)};
            io.out[0] = (struct ngd_out){y, sizeof(y)};
            status = ngd_stream_run(c.b.stream, r.inst, &io.launch);
            ck_assert_msg(status == (good ? NGD_OK : NGD_ERR_INDEX_RANGE), "%sindex %d: %s %s", cases[k].body,
                          (int)index, ngd_status_name(status), io.launch.diag.text);
            ck_assert_float_eq(y[0], good ? x[2 * row] : 0);
            ck_assert_float_eq(y[1], good ? x[2 * row + 1] : 0);
        }
        ready_close(&r);
    }
    conform_close(&c);
}
END_TEST

/* The rows of padding compute the index -1, which must not fail the launch. A launch may have no other rows. */
START_TEST(computed_indices_of_padding_are_nobodys)
{
    const int64_t planned = 4;
    const float x[4] = {10, 11, 12, 13};
    int64_t rows, from[3] = {4, 1, 3};
    float y[3];
    struct conform_io io;
    struct conform c;
    struct ready r;

    conform_open(&c, _i);
    conform_ready(&r, &c,
                  "npugraph 1\ngraph \"c\" {\n sym B 0..8 buckets 4, 8\n input %s : i64[B]\n input %o : i64[1]\n"
                  " input %x : f32[4,1]\n %i = aten.sub.Tensor(%s, %o)\n %y = aten.embedding(%x, %i)\n"
                  " return \"y\" = %y\n}\n",
                  &planned);
    for (int round = 0; round < 8; round++) {
        const int64_t one = 1;
        const bool wrong = round >= 6;

        rows = round % 4;
        from[2] = wrong ? 5 : 3; /* the index of the last of three rows, plus 1 */
        conform_io_init(&io, &rows);
        io.launch.eager = round % 2;
        io.in[0] = (struct ngd_span){from, (uint64_t)rows * 8};
        io.in[1] = (struct ngd_span){&one, 8};
        io.in[2] = (struct ngd_span){x, sizeof(x)};
        io.out[0] = (struct ngd_out){y, (uint64_t)rows * 4};
        if (wrong && rows == 3) {
            ck_assert_int_eq(ngd_stream_run(c.b.stream, r.inst, &io.launch), NGD_ERR_INDEX_RANGE);
            continue;
        }
        CONFORM_OK(ngd_stream_run(c.b.stream, r.inst, &io.launch));
        for (int i = 0; i < rows; i++)
            ck_assert_float_eq(y[i], x[from[i] - 1]);
    }
    ready_close(&r);
    conform_close(&c);
}
END_TEST

START_TEST(computed_indices_may_be_none)
{
    const float x[4] = {10, 11, 12, 13};
    float y[4] = {0};
    struct conform_io io;
    struct conform c;
    struct ready r;

    conform_open(&c, _i);
    conform_ready(&r, &c,
                  "npugraph 1\ngraph \"n\" {\n input %a : i64[0]\n input %x : f32[4,1]\n %i = aten.add.Tensor(%a, %a)\n"
                  " %t = aten.index.Tensor(%x, %i)\n %v = aten.add.Tensor(%t, %t)\n"
                  " %y = aten.index_put(%x, %i, %v)\n return \"y\" = %y\n}\n",
                  NULL);
    conform_io_init(&io, NULL);
    io.in[1] = (struct ngd_span){x, sizeof(x)};
    io.out[0] = (struct ngd_out){y, sizeof(y)};
    for (int eager = 0; eager < 2; eager++) {
        io.launch.eager = eager;
        memset(y, 0, sizeof(y));
        CONFORM_OK(ngd_stream_run(c.b.stream, r.inst, &io.launch));
        ck_assert_mem_eq(y, x, sizeof(x));
    }
    ready_close(&r);
    conform_close(&c);
}
END_TEST

TCase *conform_indices(void)
{
    TCase *tcase = tcase_create("indices");

    CONFORM_ADD(tcase, index_means_the_same_wherever_it_comes_from, rows_of_a_bucket_end_where_the_launch_does,
                computed_indices_of_padding_are_nobodys, computed_indices_may_be_none);
    return tcase;
}
