/* SPDX-License-Identifier: Apache-2.0 */
/* Builders of mixtures of experts. routing.c says which numbers they may be given. */
#include "devices/ascend/issue.h"
#include "graphs/experts.h"
#include <string.h>

#define T(v) ngd_ascend_tensor(c, &(v))

#define GATING_COLUMNS 32 /* its kernel pads a row to a multiple of them */
#define INT4_OF_I32    8

/* Softmax, and the largest of it. */
static void gate_by_parts(struct ascend_issue *c, struct ascend_view *x, struct ascend_view *y,
                          struct ascend_view *experts, int64_t k)
{
    struct ascend_view shares = ngd_ascend_temp(c, x->dtype, x->rank, x->dims),
                       chosen = ngd_ascend_temp(c, NGD_I64, y->rank, y->dims);

    ASCEND_RUN(c, Softmax, T(*x), -1, T(shares));
    ASCEND_RUN(c, Topk, T(shares), k, -1, true, true, T(*y), T(chosen));
    ngd_ascend_store(c, &chosen, experts);
}

/*
 * Where the kernel pads a row, it gives padding a share of -1: smaller than all others but perhaps NaN. So that a row
 * of NaN has no expert that there isn't, the numbers are limited.
 */
void ngd_ascend_build_moe_gating(struct ascend_issue *c)
{
    struct ascend_view x = ngd_ascend_in(c, 0), y = ngd_ascend_out(c, 0), experts = ngd_ascend_out(c, 1),
                       rows = ngd_ascend_temp(c, NGD_I32, y.rank, y.dims), to = experts;
    const int64_t k = ngd_call_int(c->call, "k"), n = x.dims[x.rank - 1];
    const struct ascend_rule_call call = {
        .function = "MoeGatingTopKSoftmax", .views = {&x, NULL, &y, &experts, &rows}, .attributes = {k}};
    char text[ASCEND_RULE_ROOM];

    if (ngd_ascend_breaks(c->dev, &call, text)) {
        gate_by_parts(c, &x, &y, &experts, k);
        return;
    }
    if (n % GATING_COLUMNS)
        to = ngd_ascend_temp(c, NGD_I32, y.rank, y.dims);
    ASCEND_RUN(c, MoeGatingTopKSoftmax, T(x), NULL, k, T(y), T(to), T(rows));
    if (n % GATING_COLUMNS)
        ASCEND_RUN(c, Clamp, T(to), ngd_ascend_scalar(c, 0, NGD_I32), ngd_ascend_scalar(c, (double)(n - 1), NGD_I32),
                   T(experts));
}

void ngd_ascend_build_moe_init_routing(struct ascend_issue *c)
{
    struct ascend_view x = ngd_ascend_in(c, 0), experts = ngd_ascend_in(c, 1), y = ngd_ascend_out(c, 0),
                       to = ngd_ascend_out(c, 1), counts = ngd_ascend_out(c, 2);
    const int64_t n = ngd_call_int(c->call, "expert_num");
    struct ascend_view tokens = ngd_ascend_temp(c, NGD_I32, 1, counts.dims);

    experts = ngd_ascend_cast(c, &experts, NGD_I32);
    ngd_ascend_check_rules(c, &(struct ascend_rule_call){.function = "MoeInitRoutingV2",
                                                         .views = {&x, &experts, &y, &to, &tokens},
                                                         .attributes = {0, 0, n, 0, 2}});
    ASCEND_RUN(c, MoeInitRoutingV2, T(x), T(experts), 0, 0, n, 0, /* counted */ 2, false, T(y), T(to), T(tokens), NULL);
    ngd_ascend_store(c, &tokens, &counts);
}

static struct aclTensorList *list_of(struct ascend_issue *c, const struct ascend_view *v)
{
    return ngd_ascend_list(c, v, 1);
}

/* ---- npu.grouped_matmul -------------------------------------------------------------------------- */

/* One product of rows by experts. Operands of CANN's lists are tensors by expert, or one with all experts in front. */
struct grouped {
    struct ngd_expert_lists lists;
    bool stacked;      /* lists have one tensor, which has a dimension of experts in front */
    ngd_dtype_t dtype; /* of x and of what is computed */
    int64_t k, n;
    int64_t group; /* columns of K that share a scale; 0: all */
};

/* A list beside the weights: as it lies, or as copies in another dtype, with all experts one behind the other. */
struct grouped_list {
    const struct grouped *of;
    uint32_t first;            /* operand; 0: zeros for all experts alike */
    bool is_antiquant;         /* else a bias */
    struct ascend_view copies; /* rank 0: there are none */
};

/* With a dimension of one expert in front, if CANN wants one and the graph's tensor has none. */
static struct ascend_view stacked_view(const struct grouped *g, const struct ascend_view *v, uint32_t rank)
{
    struct ascend_view t = *v;

    if (!g->stacked || v->rank > rank)
        return t;
    for (uint32_t i = t.rank++; i > 0; i--) {
        t.dims[i] = t.dims[i - 1];
        t.strides[i] = t.strides[i - 1];
    }
    t.dims[0] = 1;
    t.strides[0] = ngd_ascend_count(v);
    return t;
}

/* i32 numbers as eight int4 each, along the last dimension of what is contiguous. */
static struct ascend_view expert_int4(const struct ascend_view *words)
{
    int64_t dims[NGD_MAX_RANK];
    struct ascend_view w = *words;

    memcpy(dims, w.dims, sizeof(dims));
    dims[w.rank - 1] *= INT4_OF_I32;
    w = ngd_ascend_reshape(&w, w.rank, dims);
    w.int4 = true;
    w.offset *= INT4_OF_I32;
    w.storage *= INT4_OF_I32;
    return w;
}

/* [K,N], or [E,K,N]: of weights as checkpoints have them the transpose of what lies there. */
static struct ascend_view expert_weight(struct ascend_issue *c, const void *of, uint32_t e)
{
    const struct grouped *g = of;
    struct ascend_view w = ngd_ascend_in(c, NGD_EXPERTS_FIRST + e);

    if (w.rank < 2)
        return w;
    if (w.dtype == NGD_I32)
        w = expert_int4(&w);
    if (ngd_call_int(c->call, "transpose_weight"))
        w = ngd_ascend_transpose(&w);
    return stacked_view(g, &w, 2);
}

/* [N], or with groups [G,N], of an expert or with all of them in front, as CANN reads it, of a tensor of the graph. */
static struct ascend_view list_view(struct ascend_issue *c, const struct grouped_list *l, uint32_t e)
{
    const struct grouped *g = l->of;
    struct ascend_view v = ngd_ascend_in(c, l->first + e);
    const uint32_t lead = ngd_ascend_in(c, NGD_EXPERTS_FIRST).rank == 3;

    if (l->is_antiquant && g->group)
        v = ngd_ascend_transpose(&v);
    else if (l->is_antiquant && v.rank == 2 + lead) /* [N,1] */
        v.rank--;
    else if (l->is_antiquant && v.rank == 1 + lead && v.dims[lead] != g->n) { /* one for all columns */
        v.dims[lead] = g->n;
        v.strides[lead] = 0;
    }
    return stacked_view(g, &v, g->group && l->is_antiquant ? 2 : 1);
}

static struct ascend_view list_element(struct ascend_issue *c, const void *of, uint32_t e)
{
    const struct grouped_list *l = of;
    struct ascend_view v = l->copies;

    if (!v.rank)
        return list_view(c, l, e);
    if (l->first && !l->of->stacked) {
        const int64_t size = v.strides[0];

        v.rank--;
        memmove(v.dims, v.dims + 1, v.rank * sizeof(v.dims[0]));
        memmove(v.strides, v.strides + 1, v.rank * sizeof(v.strides[0]));
        v.offset += size * e;
    }
    return v;
}

/* Brings what is no list of CANN's into one: of another dtype, or one number for all columns. */
static void copy_list(struct ascend_issue *c, struct grouped_list *l, ngd_dtype_t dtype)
{
    const struct ascend_view v = list_view(c, l, 0);
    int64_t dims[NGD_MAX_RANK] = {l->of->lists.n};
    const uint32_t lead = l->of->stacked ? 0 : 1;
    struct grouped_list to = *l;

    if (v.dtype == dtype && v.strides[v.rank - 1] > 0)
        return;
    memcpy(dims + lead, v.dims, v.rank * sizeof(dims[0]));
    to.copies = ngd_ascend_temp(c, dtype, v.rank + lead, dims);
    for (uint32_t e = 0; e < l->of->lists.n && !c->status; e++) {
        const struct ascend_view from = list_view(c, l, e), at = list_element(c, &to, e);

        ngd_ascend_store(c, &from, &at);
        ngd_ascend_release_operands(c);
    }
    l->copies = to.copies;
}

/* Offsets that are all 0: CANN takes no scales without offsets on A2 and A3. */
static void make_zeros(struct ascend_issue *c, struct grouped_list *l, const struct ascend_view *scale)
{
    l->copies = ngd_ascend_temp(c, scale->dtype, scale->rank, scale->dims);
    ASCEND_RUN(c, InplaceFillScalar, T(l->copies), ngd_ascend_scalar(c, 0, NGD_F32));
    ngd_ascend_release_operands(c);
}

static struct aclTensorList *grouped_list(struct ascend_issue *c, const struct grouped_list *l)
{
    return l->of ? ngd_ascend_list_by(c, list_element, l, l->of->lists.n) : NULL;
}

static bool has_antiquant_scale(const struct ngd_plan_call *call)
{
    return ngd_call_int(call, "antiquant_scale") != 0;
}

/* What CANN's operator has no form of. */
static void refuse_forms(struct ascend_issue *c)
{
    const ngd_dtype_t w = c->plan->tensors[c->call->in[NGD_EXPERTS_FIRST]].dtype;

    if (ngd_call_int(c->call, "group_list_type") != 1)
        ngd_ascend_refuse(c,
                          "group_list_type must be 1: what npu.moe_init_routing_v2 gives are the rows of each expert");
    if (!has_antiquant_scale(c->call))
        return;
    if (w == NGD_U8)
        ngd_ascend_refuse(c,
                          "aclnnGroupedMatmulV4 takes no experts in MXFP4: npugraphctl load makes floats of those of "
                          "a checkpoint; give others as f16 or bf16");
    else if (w != NGD_I8 && w != NGD_I32)
        ngd_ascend_refuse(c, "aclnnGroupedMatmulV4 takes experts in i8, int4, f16 and bf16, but not in %s",
                          ngd_dtype_name(w));
    if (ngd_call_int(c->call, "antiquant_group_columns") > 1 || ngd_call_int(c->call, "antiquant_block_scale") ||
        ngd_call_int(c->call, "antiquant_minimum") || ngd_call_int(c->call, "antiquant_zero"))
        ngd_ascend_refuse(c,
                          "aclnnGroupedMatmulV4 takes experts with groups of one column, and no block scales, minima "
                          "or antiquant_zero: give int4 with offsets, or i8 with a scale for each row");
}

/* x and scales have one dtype of half precision beside quantised weights; f32 is rounded to that of the scales, or to
 * f16, which has the more digits. */
static ngd_dtype_t dtype_of_experts(const struct ascend_issue *c, const struct ngd_expert_lists *l)
{
    const struct ngd_plan_tensor *t = c->plan->tensors;
    const ngd_dtype_t x = t[c->call->in[0]].dtype;
    ngd_dtype_t scale;

    if (!has_antiquant_scale(c->call))
        return t[c->call->in[NGD_EXPERTS_FIRST]].dtype;
    scale = t[c->call->in[l->antiquant[NGD_ANTIQUANT_SCALE]]].dtype;
    return x != NGD_F32 ? x : scale == NGD_BF16 ? NGD_BF16 : NGD_F16;
}

static struct grouped read_expert_product(const struct ascend_issue *c, const struct ascend_view *x,
                                          const struct ascend_view *y)
{
    uint32_t has = 0;
    struct grouped g = {.k = x->dims[1], .n = y->dims[1]};
    const int64_t size = ngd_call_int(c->call, "antiquant_group_size");

    for (uint32_t i = 0; i < NGD_ANTIQUANTS; i++)
        has |= ngd_call_int(c->call, ngd_antiquant_names[i].name) ? NGD_ANTIQUANT_BIT(i) : 0;
    g.lists = ngd_expert_lists(c->call->n_in, ngd_call_int(c->call, "bias") != 0, has);
    g.stacked = g.lists.n == 1;
    g.dtype = dtype_of_experts(c, &g.lists);
    g.group = size < g.k ? size : 0;
    return g;
}

struct grouped_lists {
    struct grouped_list bias, scale, offset;
};

static struct grouped_lists gather_expert_lists(struct ascend_issue *c, const struct grouped *g)
{
    const uint32_t *antiquant = g->lists.antiquant;
    struct grouped_lists l = {0};
    struct ascend_view scale;

    if (g->lists.bias) {
        l.bias = (struct grouped_list){.of = g, .first = g->lists.bias};
        copy_list(c, &l.bias, g->dtype == NGD_BF16 ? NGD_F32 : g->dtype);
    }
    if (!has_antiquant_scale(c->call))
        return l;
    l.scale = (struct grouped_list){.of = g, .first = antiquant[NGD_ANTIQUANT_SCALE], .is_antiquant = true};
    copy_list(c, &l.scale, g->dtype);
    l.offset = (struct grouped_list){.of = g, .first = antiquant[NGD_ANTIQUANT_OFFSET], .is_antiquant = true};
    scale = list_element(c, &l.scale, 0);
    if (l.offset.first)
        copy_list(c, &l.offset, g->dtype);
    else
        make_zeros(c, &l.offset, &scale);
    return l;
}

/* Operand i of the rules. */
static void add_to_rules(struct ascend_issue *c, struct ascend_rule_call *call, uint32_t i,
                         const struct grouped_list *l, struct ascend_view *room)
{
    if (!l->of)
        return;
    *room = list_element(c, l, 0);
    call->views[i] = room;
    call->lengths[i] = l->of->lists.n;
}

void ngd_ascend_build_grouped_matmul(struct ascend_issue *c)
{
    struct ascend_view x = ngd_ascend_in(c, 0), groups = ngd_ascend_in(c, 1), y = ngd_ascend_out(c, 0), z = y;
    const struct grouped g = read_expert_product(c, &x, &y);
    struct ascend_view weight = expert_weight(c, &g, 0), first[3];
    struct ascend_rule_call rules = {
        .function = "GroupedMatmulV4", .lengths = {1, g.lists.n, 0, 1}, .attributes = {3, 0, 1, 0}};
    struct grouped_lists l;

    refuse_forms(c);
    if (g.group && g.k % g.group)
        ngd_ascend_refuse(c, "antiquant_group_size, %lld, must divide K, %lld", (long long)g.group, (long long)g.k);
    if (c->status)
        return;
    x = ngd_ascend_cast(c, &x, g.dtype);
    if (z.dtype != g.dtype)
        z = ngd_ascend_temp(c, g.dtype, y.rank, y.dims);
    ngd_ascend_release_operands(c);
    l = gather_expert_lists(c, &g);
    rules.views[0] = &x;
    rules.views[1] = &weight;
    rules.views[2] = &groups;
    rules.views[3] = &z;
    add_to_rules(c, &rules, 4, &l.bias, &first[0]);
    add_to_rules(c, &rules, 5, &l.scale, &first[1]);
    add_to_rules(c, &rules, 6, &l.offset, &first[2]);
    ngd_ascend_check_rules(c, &rules);
    ASCEND_RUN(c, GroupedMatmulV4, list_of(c, &x), ngd_ascend_list_by(c, expert_weight, &g, g.lists.n),
               grouped_list(c, &l.bias), NULL, NULL, grouped_list(c, &l.scale), grouped_list(c, &l.offset), NULL,
               T(groups), NULL, NULL, NULL, /* one result */ 3, /* rows are split */ 0, /* counted */ 1, 0,
               list_of(c, &z), NULL, NULL);
    if (z.dtype != y.dtype)
        ngd_ascend_store(c, &z, &y);
}

void ngd_ascend_build_moe_finalize_routing(struct ascend_issue *c)
{
    struct ascend_view x = ngd_ascend_in(c, 0), scales = ngd_ascend_in(c, 1), to = ngd_ascend_in(c, 2),
                       y = ngd_ascend_out(c, 0), z = y;
    const int64_t mode = ngd_call_int(c->call, "drop_pad_mode");
    struct ascend_rule_call call = {.function = "MoeFinalizeRoutingV2",
                                    .views = {&x, &to, NULL, NULL, NULL, &scales, NULL, &z},
                                    .attributes = {mode}};
    char text[ASCEND_RULE_ROOM];

    /* No version takes scales of f32 beside f16, and a probe has no rules. The sum is made in f32 anyway. */
    if (x.dtype == NGD_F16 || ngd_ascend_breaks(c->dev, &call, text)) {
        x = ngd_ascend_cast(c, &x, NGD_F32);
        z = y.dtype == NGD_F32 ? y : ngd_ascend_temp(c, NGD_F32, y.rank, y.dims);
    }
    ngd_ascend_check_rules(c, &call);
    ASCEND_RUN(c, MoeFinalizeRoutingV2, T(x), T(to), NULL, NULL, NULL, T(scales), NULL, mode, T(z));
    if (z.dtype != y.dtype)
        ngd_ascend_store(c, &z, &y);
}
