/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_TESTS_OPS_RANDOM_CHAIN_H
#define NGD_TESTS_OPS_RANDOM_CHAIN_H

/*
 * Makes texts of random chains of views and no-ops that end in an operator whose sums have an order, and has the sets
 * of options under which a graph keeps its bits.
 */
#include "tests/ops/run_plan.h"
#include <inttypes.h>

#define CHAIN_RANK 4

/* A value of the chain. */
struct chain {
    struct random r;
    struct ngd_strbuf head, text; /* declarations, nodes */
    uint32_t rank, at;            /* the value's name is %v<at> */
    int64_t dims[CHAIN_RANK];
    const char *dtype;
};

REFERENCE void print_dims(struct ngd_strbuf *sb, const int64_t *dims, uint32_t rank)
{
    for (uint32_t d = 0; d < rank; d++)
        ngd_strbuf_printf(sb, "%s%" PRId64, d ? "," : "", dims[d]);
}

REFERENCE void add_permute(struct chain *c)
{
    int64_t order[CHAIN_RANK] = {0, 1, 2, 3}, dims[CHAIN_RANK];

    for (uint32_t d = c->rank; d-- > 1;) {
        const uint32_t other = (uint32_t)random_below(&c->r, d + 1);
        const int64_t swap = order[d];

        order[d] = order[other];
        order[other] = swap;
    }
    for (uint32_t d = 0; d < c->rank; d++)
        dims[d] = c->dims[order[d]];
    memcpy(c->dims, dims, sizeof(dims));
    ngd_strbuf_printf(&c->text, "%%v%u = aten.permute(%%v%u) {dims=[", c->at + 1, c->at);
    print_dims(&c->text, order, c->rank);
    ngd_strbuf_append(&c->text, "]}\n");
    c->at++;
}

REFERENCE void add_slice(struct chain *c)
{
    const int64_t dim = random_below(&c->r, c->rank), step = 1 + random_below(&c->r, 2);
    const int64_t start = c->dims[dim] > 2 ? random_below(&c->r, 2) : 0;

    ngd_strbuf_printf(&c->text,
                      "%%v%u = aten.slice.Tensor(%%v%u) {dim=%" PRId64 ", start=%" PRId64 ", step=%" PRId64 "}\n",
                      c->at + 1, c->at, dim, start, step);
    c->dims[dim] = (c->dims[dim] - start + step - 1) / step;
    c->at++;
}

/* Adds a dimension, and repeats along it. */
REFERENCE void add_expand(struct chain *c)
{
    const int64_t dim = random_below(&c->r, c->rank + 1);

    if (c->rank == CHAIN_RANK)
        return;
    ngd_strbuf_printf(&c->text, "%%v%u = aten.unsqueeze(%%v%u) {dim=%" PRId64 "}\n", c->at + 1, c->at, dim);
    memmove(&c->dims[dim + 1], &c->dims[dim], (c->rank - (size_t)dim) * sizeof(c->dims[0]));
    c->dims[dim] = 1 + random_below(&c->r, 5);
    c->rank++;
    ngd_strbuf_printf(&c->text, "%%v%u = aten.expand(%%v%u) {size=[", c->at + 2, c->at + 1);
    print_dims(&c->text, c->dims, c->rank);
    ngd_strbuf_append(&c->text, "]}\n");
    c->at += 2;
}

/* Merges two neighbouring dimensions. */
REFERENCE void add_merge(struct chain *c)
{
    const uint32_t dim = c->rank > 1 ? (uint32_t)random_below(&c->r, c->rank - 1) : 0;

    if (c->rank < 2)
        return;
    c->dims[dim] *= c->dims[dim + 1];
    memmove(&c->dims[dim + 1], &c->dims[dim + 2], (c->rank - dim - 2) * sizeof(c->dims[0]));
    c->rank--;
    ngd_strbuf_printf(&c->text, "%%v%u = aten.reshape(%%v%u) {shape=[", c->at + 1, c->at);
    print_dims(&c->text, c->dims, c->rank);
    ngd_strbuf_append(&c->text, "]}\n");
    c->at++;
}

REFERENCE void add_noop(struct chain *c)
{
    static const char *const noops[] = {"aten.clone(%%v%u)",
                                        "aten.mul.Scalar(%%v%u) {other=1}",
                                        "aten.sub.Scalar(%%v%u) {other=0}",
                                        "aten.alias(%%v%u)",
                                        "aten.pow.Tensor_Scalar(%%v%u) {exponent=1}",
                                        "aten.clamp(%%v%u)",
                                        "aten.neg(%%v%u)",
                                        "aten.lift_fresh_copy(%%v%u)",
                                        "aten.cat(%%v%u)"};

    ngd_strbuf_printf(&c->text, "%%v%u = ", c->at + 1);
    ngd_strbuf_printf(&c->text, noops[random_below(&c->r, sizeof(noops) / sizeof(noops[0]))], c->at);
    ngd_strbuf_append(&c->text, "\n");
    c->at++;
}

REFERENCE void add_dim_list(struct chain *c)
{
    bool any = false;

    ngd_strbuf_append(&c->text, "dim=[");
    for (uint32_t d = 0; d < c->rank; d++)
        if (random_below(&c->r, 2)) {
            ngd_strbuf_printf(&c->text, "%s%u", any ? "," : "", d);
            any = true;
        }
    ngd_strbuf_append(&c->text, any ? "]" : "-1]");
}

/* Uses the value as the weight of a product: a matrix, or one for each index of a batch. */
REFERENCE void add_weight(struct chain *c)
{
    const int64_t form = c->rank == 3 ? 2 : random_below(&c->r, 2); /* linear has [N,K], the others [K,N] */
    const int64_t k = c->dims[c->rank - (form == 1 ? 1 : 2)];
    static const char *const ops[] = {"mm", "linear", "bmm"};

    ngd_strbuf_printf(&c->head, "param %%w : %s[", c->dtype);
    if (c->rank == 3)
        ngd_strbuf_printf(&c->head, "%" PRId64 ",", c->dims[0]);
    ngd_strbuf_printf(&c->head, "%s,%" PRId64 "]\n", random_below(&c->r, 2) ? "5" : "60", k);
    ngd_strbuf_printf(&c->text, "%%y = aten.%s(%%w, %%v%u)\n", ops[form], c->at);
}

/* Adds the operator at the end of the chain; K is the last dimension. */
REFERENCE void add_end(struct chain *c)
{
    static const char *const lists[] = {"aten.sum.dim_IntList", "aten.mean.dim", "aten.amax", "aten.amin",
                                        "aten.var.correction"},
                             *const lines[] = {"aten.cumsum", "aten.prod.dim_int", "aten.argmax", "aten.argmin"};
    const int64_t k = c->dims[c->rank - 1];
    const uint32_t last = c->at;

    switch (c->rank == 2 || c->rank == 3 ? random_below(&c->r, 10) : 1 + random_below(&c->r, 9)) {
    case 0:
        add_weight(c);
        break;
    case 1:
        ngd_strbuf_printf(&c->text, "%%y = %s(%%v%u) {dim=%" PRId64 "}\n", lines[random_below(&c->r, 4)], last,
                          random_below(&c->r, c->rank));
        break;
    case 2:
        ngd_strbuf_printf(&c->text, "%%y = aten._softmax(%%v%u) {dim=%" PRId64 "}\n", last,
                          random_below(&c->r, c->rank));
        break;
    case 3:
        ngd_strbuf_printf(&c->text, "%%y = aten.layer_norm(%%v%u, none, none) {normalized_shape=[%" PRId64 "]}\n", last,
                          k);
        break;
    case 4: /* x of a product: its rows */
        ngd_strbuf_printf(&c->head, "param %%w : %s[7,%" PRId64 "]\n", c->dtype, k);
        ngd_strbuf_printf(&c->text, "%%y = aten.linear(%%v%u, %%w)\n", last);
        break;
    default:
        ngd_strbuf_printf(&c->text, "%%y = %s(%%v%u) {", lists[random_below(&c->r, 5)], last);
        add_dim_list(c);
        ngd_strbuf_printf(&c->text, ", keepdim=%s}\n", random_below(&c->r, 2) ? "true" : "false");
    }
}

REFERENCE int64_t some_dim(struct random *r)
{
    static const int64_t sizes[] = {1, 2, 3, 4, 5, 8, 16, 17, 31, 65, 130};

    return sizes[random_below(r, sizeof(sizes) / sizeof(sizes[0]))];
}

REFERENCE void make_text(struct chain *c, uint64_t seed)
{
    static const char *const dtypes[] = {"f32", "f32", "bf16", "f16"};
    int64_t n = 1;

    *c = (struct chain){.r = {seed * 2654435761u + 77}};
    ngd_strbuf_init(&c->head);
    ngd_strbuf_init(&c->text);
    c->dtype = dtypes[random_below(&c->r, 4)];
    c->rank = 1 + (uint32_t)random_below(&c->r, CHAIN_RANK);
    for (uint32_t d = 0; d < c->rank; d++) {
        c->dims[d] = some_dim(&c->r);
        if (n * c->dims[d] > 20000)
            c->dims[d] = 2;
        n *= c->dims[d];
    }
    if (random_below(&c->r, 20) == 0) /* longer than a block of a sum */
        c->rank = 2, c->dims[0] = 2, c->dims[1] = 9001;
    ngd_strbuf_printf(&c->head, "npugraph 1\ngraph \"bits\" {\ninput %%v0 : %s[", c->dtype);
    print_dims(&c->head, c->dims, c->rank);
    ngd_strbuf_append(&c->head, "]\n");
    for (int64_t i = 2 + random_below(&c->r, 5); i > 0; i--) {
        static void (*const steps[])(struct chain *) = {add_permute, add_permute, add_slice, add_expand,
                                                        add_merge,   add_noop,    add_noop,  add_noop};

        steps[random_below(&c->r, sizeof(steps) / sizeof(steps[0]))](c);
    }
    add_end(c);
    ngd_strbuf_append(&c->text, "return \"y\" = %y\n}\n");
    ngd_strbuf_append(&c->head, ngd_strbuf_str(&c->text));
}

/* Options as "name=value"; NULL: no passes at all. */
static const char *const option_sets[] = {
    NULL,
    "inplace_pass=true",
    "remove_noop_ops=false",
    "disable_passes=all",
    "disable_passes=simplify_views",
    "disable_passes=remove_noops,fold_constants",
    "disable_passes=hoist_views,merge_equals",
    "pattern_fusion_pass=false",
    "inplace_pass=false",
    "remove_cat_ops=false",
    "clone_input=false",
    "assign_streams=3",
};

/* Sets the options of set i. Returns false if the set is "no passes". */
REFERENCE bool chain_options(size_t i, struct ngd_graph_options *options)
{
    const char *set = option_sets[i];
    char name[64];

    ngd_graph_options_init(options);
    if (!set)
        return false;
    snprintf(name, sizeof(name), "%.*s", (int)strcspn(set, "="), set);
    run_check(ngd_graph_options_set(options, name, strchr(set, '=') + 1, NULL), &(struct ngd_diag){0}, set);
    return true;
}

#define N_OPTION_SETS (sizeof(option_sets) / sizeof(option_sets[0]))

#endif
