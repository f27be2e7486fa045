/* SPDX-License-Identifier: Apache-2.0 */
/* What builders ask of operator_rules.def before they call CANN: another dtype, another operator, or a refusal. */
#include "devices/ascend/issue.h"
#include "devices/ascend/operator_rules.h"

/* "Erf" of "aclnnErf" */
static const char *function_of(const struct ascend_issue *c)
{
    return c->op->name + strlen("aclnn");
}

bool ngd_ascend_takes(const struct ascend_issue *c, const char *function, uint32_t operand, ngd_dtype_t dtype)
{
    return !ngd_operator_dtype_refusal(function, operand, ngd_ascend_dtype(dtype), c->dev->chip);
}

/* The probe's answers are CANN's: on its device the rules refuse nothing, and choose no other operators. */
static bool is_probed(const struct ascend_device *dev)
{
    return dev->hold != NULL;
}

/* The dtype itself, or a wider one that the operand may have; false: there is none. */
static bool find_wider(const struct ascend_issue *c, const char *function, uint32_t operand, ngd_dtype_t *dtype)
{
    static const ngd_dtype_t integers[] = {NGD_I32, NGD_I64};
    const bool real = ngd_dtype_is_float(*dtype);

    if (ngd_ascend_takes(c, function, operand, *dtype))
        return true;
    if (!ngd_ascend_takes(c, "Cast", 0, *dtype))
        return false;
    for (size_t i = 0; i < (real ? 1 : sizeof(integers) / sizeof(integers[0])); i++) {
        const ngd_dtype_t wider = real ? NGD_F32 : integers[i];

        if (ngd_ascend_takes(c, function, operand, wider)) {
            *dtype = wider;
            return true;
        }
    }
    return false;
}

static void refuse_dtype(struct ascend_issue *c, const char *function, uint32_t operand, ngd_dtype_t dtype)
{
    const int number = ngd_ascend_dtype(dtype);
    const struct ngd_operator_dtypes *row = ngd_operator_dtype_refusal(function, operand, number, c->dev->chip);
    struct ngd_operator_refusal refusal = {0};

    if (is_probed(c->dev))
        return;
    if (row)
        ngd_operator_explain(row, operand, number, c->dev->chip, &refusal);
    ngd_ascend_refuse(c, "aclnn%s: %s", function, refusal.text);
}

struct ascend_view ngd_ascend_adapt(struct ascend_issue *c, const char *function, uint32_t operand,
                                    const struct ascend_view *v)
{
    ngd_dtype_t dtype = v->dtype;

    if (find_wider(c, function, operand, &dtype))
        return ngd_ascend_cast(c, v, dtype);
    refuse_dtype(c, function, operand, dtype);
    return *v;
}

void ngd_ascend_check_self(struct ascend_issue *c, ngd_dtype_t dtype)
{
    if (!c->op->collective && !(c->op->dtypes & ASCEND_ROUNDS) && !find_wider(c, function_of(c), 0, &dtype))
        refuse_dtype(c, function_of(c), 0, dtype);
    for (uint32_t i = 0; i < c->call->n_in + c->call->n_out; i++) {
        const uint32_t tensor = i < c->call->n_in ? c->call->in[i] : c->call->out[i - c->call->n_in];

        /* A dtype that cannot even be cast is none of the chip's. */
        if (tensor != NGD_PLAN_NONE && !ngd_ascend_takes(c, "Cast", 0, c->plan->tensors[tensor].dtype))
            refuse_dtype(c, "Cast", 0, c->plan->tensors[tensor].dtype);
    }
}

struct ascend_view ngd_ascend_adapt_self(struct ascend_issue *c, const struct ascend_view *v)
{
    return ngd_ascend_adapt(c, function_of(c), 0, v);
}

struct ascend_view ngd_ascend_result(struct ascend_issue *c, const struct ascend_view *y, ngd_dtype_t before,
                                     ngd_dtype_t after)
{
    if (y->dtype != before || before == after || y->dtype == NGD_BOOL) /* comparisons give bool of any dtype */
        return *y;
    return ngd_ascend_temp(c, after, y->rank, y->dims);
}

void ngd_ascend_put_result(struct ascend_issue *c, const struct ascend_view *z, const struct ascend_view *y)
{
    if (z->dtype != y->dtype)
        ngd_ascend_store(c, z, y);
}

static int dtype_of(const struct ascend_view *v)
{
    return v->int4 ? NGD_ACL_INT4 : ngd_ascend_dtype(v->dtype);
}

bool ngd_ascend_breaks(const struct ascend_device *dev, const struct ascend_rule_call *call,
                       char text[ASCEND_RULE_ROOM])
{
    struct ngd_operator_case o = {.function = call->function, .n = NGD_OPERATOR_OPERANDS};
    struct ngd_operator_refusal refusal;

    for (uint32_t i = 0; i < NGD_OPERATOR_OPERANDS; i++)
        if (call->views[i])
            o.t[i] = (struct ngd_operator_tensor){.present = true,
                                                  .dtype = dtype_of(call->views[i]),
                                                  .rank = call->views[i]->rank,
                                                  .dims = call->views[i]->dims,
                                                  .strides = call->views[i]->strides,
                                                  .length = call->lengths[i]};
    memcpy(o.attribute, call->attributes, sizeof(o.attribute));
    if (is_probed(dev) || !ngd_operator_refuses(&o, dev->chip, dev->cann, &refusal))
        return false;
    snprintf(text, ASCEND_RULE_ROOM, "aclnn%s: %s", call->function, refusal.text);
    return true;
}

void ngd_ascend_check_rules(struct ascend_issue *c, const struct ascend_rule_call *call)
{
    char text[ASCEND_RULE_ROOM];

    if (!c->status && ngd_ascend_breaks(c->dev, call, text))
        ngd_ascend_refuse(c, "%s", text);
}

bool ngd_ascend_refuses(const struct ascend_device *dev, const char *function, const struct ascend_view *const *views,
                        uint32_t n, char text[ASCEND_RULE_ROOM])
{
    struct ascend_rule_call call = {.function = function};

    for (uint32_t i = 0; i < n && i < NGD_OPERATOR_OPERANDS; i++)
        call.views[i] = views[i];
    return ngd_ascend_breaks(dev, &call, text);
}

static struct ngd_operator_tensor planned(const struct ngd_plan_tensor *t, ngd_dtype_t dtype)
{
    return (struct ngd_operator_tensor){
        .present = true, .dtype = ngd_ascend_dtype(dtype), .rank = t->rank, .dims = t->dims};
}

/* Rows are written as the caches' dtypes; a call without rows writes nothing. */
static bool is_scatter_taken(const struct ascend_device *dev, const struct ngd_plan *plan,
                             const struct ngd_plan_call *call)
{
    const struct ngd_plan_tensor *t = plan->tensors;
    const ngd_dtype_t keys = t[call->in[3]].dtype, values = t[call->in[4]].dtype;
    const struct ngd_operator_case o = {.function = "ScatterPaKvCache",
                                        .n = 5,
                                        .t = {planned(&t[call->in[0]], keys), planned(&t[call->in[3]], keys),
                                              planned(&t[call->in[2]], t[call->in[2]].dtype),
                                              planned(&t[call->in[1]], values), planned(&t[call->in[4]], values)}};
    struct ngd_operator_refusal refusal;

    return is_probed(dev) || ngd_plan_elements(&t[call->in[0]]) == 0 ||
           !ngd_operator_refuses(&o, dev->chip, dev->cann, &refusal);
}

bool ngd_ascend_scatters_by_rows(const struct ascend_device *dev, const struct ngd_plan *plan,
                                 const struct ngd_plan_call *call)
{
    return !dev->skips_slots || !is_scatter_taken(dev, plan, call);
}
