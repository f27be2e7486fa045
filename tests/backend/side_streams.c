/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams inside a graph: random graphs with nodes on several streams, with and without core limits, give the same bits
 * as the same graphs on one stream. Where a device can be told in which order to run the streams, this holds for any
 * order.
 */
#include "tests/backend/conform.h"
#include "base/strbuf.h"
#include "tests/ops/reference.h"

#define ROWS    4
#define COLUMNS 16
#define NODES   28
#define GRAPHS  24

/* Adds a node that reads earlier values. All have the same shape, and their values stay small. */
static void add_node(struct ngd_strbuf *sb, struct random *r, uint32_t n)
{
    uint32_t a = (uint32_t)random_below(r, n), b = (uint32_t)random_below(r, n);

    switch (random_below(r, 5)) {
    case 0:
        ngd_strbuf_printf(sb, "%%v%u = aten.linear(%%v%u, %%w)\n", n, a);
        break;
    case 1:
        ngd_strbuf_printf(sb, "%%v%u = aten.tanh(%%v%u)\n", n, a);
        break;
    case 2:
        ngd_strbuf_printf(sb, "%%v%u = aten.maximum(%%v%u, %%v%u)\n", n, a, b);
        break;
    case 3:
        ngd_strbuf_printf(sb, "%%v%u = aten.neg(%%v%u)\n", n, a);
        break;
    default:
        ngd_strbuf_printf(sb, "%%v%u = aten.sub.Tensor(%%v%u, %%v%u)\n", n, a, b);
    }
}

/* The same seed gives the same nodes with streams and without. */
static void make_text(struct ngd_strbuf *sb, uint32_t seed, bool streams)
{
    static const char *const names[] = {NULL, "a", "b", "c"};
    struct random r = {seed}, place = {seed + 1000};

    ngd_strbuf_printf(sb, "npugraph 1\ngraph \"g\" {\nparam %%w : f32[%d,%d]\ninput %%v0 : f32[%d,%d]\n", COLUMNS,
                      COLUMNS, ROWS, COLUMNS);
    for (uint32_t i = 1; i <= NODES; i++) {
        const char *name = names[random_below(&place, 4)];
        bool limited = random_below(&place, 4) == 0;

        if (streams && name)
            ngd_strbuf_printf(sb, "stream \"%s\" {\n", name);
        if (streams && limited)
            ngd_strbuf_append(sb, "limit_core_num 1, 1 {\n");
        add_node(sb, &r, i);
        if (streams && limited)
            ngd_strbuf_append(sb, "}\n");
        if (streams && name)
            ngd_strbuf_append(sb, "}\n");
    }
    ngd_strbuf_printf(sb, "return \"x\" = %%v%d, \"y\" = %%v%d, \"z\" = %%v%d\n}\n", NODES, NODES - 1, NODES / 2);
}

struct outputs {
    float y[3][ROWS * COLUMNS];
};

static void run_once(struct conform *c, struct ready *r, const float *x, bool eager, struct outputs *out)
{
    struct conform_io io;

    conform_io_init(&io, NULL);
    io.in[0] = (struct ngd_span){x, ROWS * COLUMNS * sizeof(float)};
    for (int i = 0; i < 3; i++)
        io.out[i] = (struct ngd_out){out->y[i], sizeof(out->y[i])};
    memset(out, 0x55, sizeof(*out));
    io.launch.eager = eager;
    if (ngd_stream_run(c->b.stream, r->inst, &io.launch))
        ck_abort_msg("%s: %s", ngd_status_name(io.launch.status), io.launch.diag.text);
}

static void fill_graph(struct ready *r, float *x, uint32_t seed)
{
    struct random random = {seed + 7};
    float w[COLUMNS * COLUMNS];

    for (int i = 0; i < COLUMNS * COLUMNS; i++)
        w[i] = (float)random_value(&random) / 4;
    for (int i = 0; i < ROWS * COLUMNS; i++)
        x[i] = (float)random_value(&random);
    CONFORM_OK(ngd_buffer_write(r->bound[0], 0, w, sizeof(w), &diag_));
}

static void check_graph(struct conform *c, uint32_t seed)
{
    struct ngd_strbuf one = {0}, several = {0};
    float x[ROWS * COLUMNS];
    struct outputs want, got;
    struct ready r;

    make_text(&one, seed, false);
    make_text(&several, seed, true);
    conform_ready(&r, c, one.data, NULL);
    fill_graph(&r, x, seed);
    run_once(c, &r, x, false, &want);
    ready_close(&r);
    conform_ready(&r, c, several.data, NULL);
    fill_graph(&r, x, seed);
    for (uint32_t turn = 0; turn < 5; turn++) {
        if (c->backend->shuffle)
            c->backend->shuffle(turn * 1000 + seed);
        run_once(c, &r, x, turn == 4, &got);
        if (memcmp(&got, &want, sizeof(got)) != 0)
            ck_abort_msg("seed %u, launch %u: other bits than on one stream:\n%s", seed, turn, several.data);
    }
    if (c->backend->shuffle)
        c->backend->shuffle(0);
    ready_close(&r);
    ngd_strbuf_fini(&one);
    ngd_strbuf_fini(&several);
}

START_TEST(random_graphs_on_several_streams_have_the_bits_of_one_stream)
{
    struct conform c;

    conform_open(&c, _i);
    for (uint32_t seed = 0; seed < GRAPHS; seed++)
        check_graph(&c, seed);
    conform_close(&c);
}
END_TEST

TCase *conform_side_streams(void)
{
    TCase *tcase = tcase_create("side streams");

    CONFORM_ADD(tcase, random_graphs_on_several_streams_have_the_bits_of_one_stream);
    return tcase;
}
