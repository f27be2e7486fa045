/* SPDX-License-Identifier: Apache-2.0 */
/* Builders of mixtures of experts. routing.c says which numbers they may be given. */
#include "devices/ascend/issue.h"

#define T(v) ngd_ascend_tensor(c, &(v))

#define GATING_COLUMNS 32 /* its kernel pads a row to a multiple of them */

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

/* One weight is stacked: [1,K,N]. */
static struct ascend_view expert_weight(struct ascend_issue *c, uint32_t e)
{
    struct ascend_view w = ngd_ascend_in(c, 2 + e), t = w;
    const bool turned = ngd_call_int(c->call, "transpose_weight") != 0;
    const uint32_t first = c->call->n_in == 3 ? 1 : 0;

    t.rank = first + 2;
    t.dims[first] = w.dims[turned ? 1 : 0];
    t.dims[first + 1] = w.dims[turned ? 0 : 1];
    t.strides[first] = turned ? 1 : w.dims[1];
    t.strides[first + 1] = turned ? w.dims[1] : 1;
    if (first) {
        t.dims[0] = 1;
        t.strides[0] = w.dims[0] * w.dims[1];
    }
    return t;
}

static struct aclTensorList *list_of(struct ascend_issue *c, const struct ascend_view *v)
{
    return ngd_ascend_list(c, v, 1);
}

/* Other lists than weights. */
static bool has_lists(const struct ngd_plan_call *call)
{
    return ngd_call_int(call, "bias") != 0 || ngd_call_int(call, "antiquant_scale") != 0;
}

void ngd_ascend_build_grouped_matmul(struct ascend_issue *c)
{
    struct ascend_view x = ngd_ascend_in(c, 0), groups = ngd_ascend_in(c, 1), y = ngd_ascend_out(c, 0), z = y, weight;
    const uint32_t experts = c->call->n_in - 2;
    const int64_t type = ngd_call_int(c->call, "group_list_type");

    if (has_lists(c->call) || ngd_ascend_in(c, 2).rank != 2) {
        ngd_ascend_refuse(c, "weights of experts must be floats, a tensor each, without biases");
        return;
    }
    weight = expert_weight(c, 0);
    if (type != 1)
        ngd_ascend_refuse(c,
                          "group_list_type must be 1: what npu.moe_init_routing_v2 gives are the rows of each expert");
    x = ngd_ascend_cast(c, &x, weight.dtype);
    if (z.dtype != x.dtype)
        z = ngd_ascend_temp(c, x.dtype, y.rank, y.dims);
    ngd_ascend_check_rules(c, &(struct ascend_rule_call){.function = "GroupedMatmulV4",
                                                         .views = {&x, &weight, &groups, &z},
                                                         .lengths = {1, experts, 0, 1},
                                                         .attributes = {3, 0, type, 0}});
    ASCEND_RUN(c, GroupedMatmulV4, list_of(c, &x), ngd_ascend_list_by(c, expert_weight, experts), NULL, NULL, NULL,
               NULL, NULL, NULL, T(groups), NULL, NULL, NULL, /* one result */ 3, /* rows are split */ 0, type, 0,
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
