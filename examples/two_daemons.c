/* SPDX-License-Identifier: Apache-2.0 */
/* Decodes on several daemons at once, each with its part of the weights (docs/collectives.md, "Several daemons").
 *   cc two_daemons.c $(pkg-config --cflags --libs npugraph) -lpthread -o two_daemons
 *   ./two_daemons unix:/run/npugraphd/npugraphd.sock             # one daemon, the undivided model
 *   ./two_daemons unix:/run/npugraphd/npugraphd.sock other:50051 # the same tokens from two
 * The model is a toy: the token before and a state go through an MLP, whose rows and columns are divided. This program
 * needs the admin right in all daemons.
 */
#include <npugraph.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEVICE      "ascend:0"
#define VOCAB       32
#define WIDTH       8
#define INNER       16
#define STEPS       24
#define MOST        4 /* daemons */
#define FIRST_TOKEN 3

struct root {
    char bytes[NPUGRAPH_ROOT_MAX];
    size_t n;
};

/* One daemon, with a client and a thread of its own. */
struct side {
    const char *address;
    uint32_t rank, ranks;
    const struct root *root;
    struct npugraph_client *client;
    uint64_t graph;
    int32_t token; /* that the step takes, then the next one */
    uint64_t step;
    int (*work)(struct side *side, struct npugraph_error *err);
    struct npugraph_error err;
    int failed;
    pthread_t thread;
};

/* A table of the whole model: every daemon computes it, and uploads its part. */
static float weight(int table, int row, int column)
{
    uint32_t x = (uint32_t)(table * 7919 + row * 104729 + column * 1299709 + 17) * 2654435761u;

    return (float)((x >> 16) % 2001) / 1000.0f - 1.0f;
}

static int upload(struct side *s, int table, int row, int rows, int column, int columns, struct npugraph_binding *b,
                  struct npugraph_error *err)
{
    static const char *const names[] = {"emb", "up", "down", "seen"};
    float data[VOCAB * INNER];
    const size_t bytes = (size_t)(rows * columns) * sizeof(float);

    for (int r = 0; r < rows; r++)
        for (int c = 0; c < columns; c++)
            data[r * columns + c] = table == 3 ? 0.0f : weight(table, row + r, column + c);
    b->name = names[table];
    if (npugraph_buffer_alloc(s->client, DEVICE, bytes, b->name, &b->buffer, err) != 0)
        return -1;
    return npugraph_buffer_write(s->client, b->buffer, 0, data, bytes, err);
}

static void write_graph(const struct side *s, char *text, size_t room)
{
    const int inner = INNER / (int)s->ranks;

    snprintf(text, room,
             "npugraph 1\ngraph \"decode\" {\n"
             " param %%emb : f32[%d,%d]\n param %%up : f32[%d,%d]\n param %%down : f32[%d,%d]\n"
             " state %%seen : f32[1,%d]\n input %%t : i32[1]\n"
             " %%e = aten.embedding(%%emb, %%t)\n %%h = aten.add.Tensor(%%e, %%seen)\n"
             " %%u = aten.linear(%%h, %%up)\n %%r = aten.relu(%%u)\n %%p = aten.linear(%%r, %%down)\n"
             "%s"
             " %%o = aten.add.Tensor(%%h, %%%s)\n %%half = aten.mul.Scalar(%%o) {other=0.5}\n"
             " aten.copy_(%%seen, %%half)\n"
             " %%l = aten.linear(%%o, %%emb)\n %%y = aten.argmax(%%l) {dim=1}\n return \"y\" = %%y\n}\n",
             VOCAB, WIDTH, inner, WIDTH, WIDTH, inner, WIDTH,
             s->ranks > 1 ? " %m = _c10d_functional.all_reduce(%p) {reduce_op=\"sum\", group_name=\"tp\"}\n" : "",
             s->ranks > 1 ? "m" : "p");
}

/* Joins the group, uploads this daemon's part of the weights, and registers its graph. */
static int prepare(struct side *s, struct npugraph_error *err)
{
    const char *const devices[] = {DEVICE};
    const struct npugraph_span span = {
        .ranks = s->ranks, .first_rank = s->rank, .root = s->root->bytes, .root_bytes = s->root->n};
    const int inner = INNER / (int)s->ranks, from = (int)s->rank * inner;
    struct npugraph_place place = {.device = DEVICE};
    struct npugraph_binding b[4];
    uint64_t own;
    char text[2048];

    write_graph(s, text, sizeof(text));
    if (s->ranks > 1 && npugraph_group_join(s->client, "tp", devices, 1, &span, &place.group, err) != 0)
        return -1;
    if (upload(s, 0, 0, VOCAB, 0, WIDTH, &b[0], err) != 0 || upload(s, 1, from, inner, 0, WIDTH, &b[1], err) != 0 ||
        upload(s, 2, 0, WIDTH, from, inner, &b[2], err) != 0 || upload(s, 3, 0, 1, 0, WIDTH, &b[3], err) != 0 ||
        npugraph_graph_register(s->client, &place, text, b, 4, NULL, 0, &own, err) != 0)
        return -1;
    s->graph = own;
    return s->ranks > 1 ? npugraph_ranks_join(s->client, &own, 1, true, &s->graph, err) : 0;
}

static int step(struct side *s, struct npugraph_error *err)
{
    const struct npugraph_input input = {&s->token, sizeof(s->token)};
    /* A tag of its own for each step: daemons that mix steps up say so. */
    const struct npugraph_replay replay = {.graph = s->graph, .inputs = &input, .n_inputs = 1, .tag = s->step};
    struct npugraph_result *result = NULL;
    int64_t next;
    int rc = npugraph_replay(s->client, &replay, &result, err);

    if (rc == 0) {
        memcpy(&next, result->outputs[0].data, sizeof(next));
        s->token = (int32_t)next;
    }
    npugraph_result_free(result);
    return rc;
}

static void *side_main(void *arg)
{
    struct side *s = arg;

    s->failed = s->work(s, &s->err);
    return NULL;
}

/* The same work in all daemons at the same time: each waits for the others. */
static int in_all(struct side *sides, uint32_t n, int (*work)(struct side *, struct npugraph_error *))
{
    int failed = 0;

    for (uint32_t i = 0; i < n; i++) {
        sides[i].work = work;
        if (pthread_create(&sides[i].thread, NULL, side_main, &sides[i]) != 0)
            abort();
    }
    for (uint32_t i = 0; i < n; i++) {
        pthread_join(sides[i].thread, NULL);
        if (sides[i].failed)
            fprintf(stderr, "two_daemons: %s: %s [%s]\n", sides[i].address, sides[i].err.message, sides[i].err.reason);
        failed |= sides[i].failed;
    }
    return failed;
}

static int decode(struct side *sides, uint32_t n)
{
    for (uint64_t i = 1; i <= STEPS; i++) {
        for (uint32_t k = 0; k < n; k++)
            sides[k].step = i;
        if (in_all(sides, n, step) != 0)
            return 1;
        for (uint32_t k = 1; k < n; k++)
            if (sides[k].token != sides[0].token)
                return 1;
        printf("%d%c", sides[0].token, i == STEPS ? '\n' : ' ');
    }
    return 0;
}

int main(int argc, char **argv)
{
    const uint32_t n = (uint32_t)argc - 1;
    struct side sides[MOST] = {{0}};
    struct npugraph_connect_params params;
    struct npugraph_error err = {0};
    static struct root root;
    int failed = 0;

    if (n < 1 || n > MOST || INNER % n != 0) {
        fprintf(stderr, "usage: two_daemons ADDRESS... (1, 2 or 4)\n");
        return 2;
    }
    npugraph_connect_params_init(&params);
    for (uint32_t i = 0; i < n && !failed; i++) {
        sides[i] = (struct side){.address = argv[i + 1], .rank = i, .ranks = n, .root = &root, .token = FIRST_TOKEN};
        params.address = argv[i + 1];
        failed = npugraph_connect(&params, &sides[i].client, &err);
    }
    if (!failed && n > 1)
        failed = npugraph_group_root(sides[0].client, DEVICE, root.bytes, sizeof(root.bytes), &root.n, &err);
    if (failed)
        fprintf(stderr, "two_daemons: %s [%s]\n", err.message, err.reason);
    else
        failed = in_all(sides, n, prepare) != 0 || decode(sides, n) != 0;
    for (uint32_t i = 0; i < n; i++)
        npugraph_disconnect(sides[i].client);
    return failed ? 1 : 0;
}
