/* SPDX-License-Identifier: Apache-2.0 */
/*
 * operator_rules.def on the simulator: first phases answer as its rows say, on each chip and for each dtype; each other
 * rule refuses a call that breaks it.
 */
#include "devices/ascend/acl.h"
#include "devices/ascend/operator_rules.h"
#include "tests/backend/simulator.h"
#include "tests/unit/unit.h"

static const struct ngd_acl *acl;

static void open_acl(void)
{
    struct ngd_diag diag = {0};

    simulator_set("soc", "Ascend910B4");
    ck_assert_msg(ngd_acl_load(simulator_dir(), NULL, &acl, &diag) == NGD_OK, "%s", diag.text);
}

/* Ends a first phase. */
static ngd_acl_error_t ended(ngd_acl_error_t code, struct aclOpExecutor *executor)
{
    if (!code) {
        acl->aclSetAclOpExecutorRepeatable(executor);
        acl->aclDestroyAclOpExecutor(executor);
    }
    return code;
}

/* ---- rows of dtypes ---------------------------------------------------------------------------------------- */

typedef ngd_acl_error_t (*unary_fn)(const struct aclTensor *, struct aclTensor *, NGD_ACL_PHASE1);
typedef ngd_acl_error_t (*binary_fn)(const struct aclTensor *, const struct aclTensor *, struct aclTensor *,
                                     NGD_ACL_PHASE1);
typedef ngd_acl_error_t (*scalar_fn)(const struct aclTensor *, const struct aclScalar *, struct aclTensor *,
                                     NGD_ACL_PHASE1);

struct function {
    const char *name;
    size_t phase1; /* in struct ngd_acl */
    char form;     /* u: one operand, b: two, s: one and a scalar */
    bool compares;
};
#define FUNCTION(Name, form, compares)                                                 \
    {                                                                                  \
#Name, offsetof(struct ngd_acl, aclnn##Name##GetWorkspaceSize), form, compares \
    }
static const struct function functions[] = {
    FUNCTION(Abs, 'u', false),
    FUNCTION(Ceil, 'u', false),
    FUNCTION(Cos, 'u', false),
    FUNCTION(Erf, 'u', false),
    FUNCTION(Erfc, 'u', false),
    FUNCTION(Exp, 'u', false),
    FUNCTION(Floor, 'u', false),
    FUNCTION(Log, 'u', false),
    FUNCTION(Neg, 'u', false),
    FUNCTION(Reciprocal, 'u', false),
    FUNCTION(Relu, 'u', false),
    FUNCTION(Round, 'u', false),
    FUNCTION(Rsqrt, 'u', false),
    FUNCTION(Sigmoid, 'u', false),
    FUNCTION(Silu, 'u', false),
    FUNCTION(Sin, 'u', false),
    FUNCTION(Sqrt, 'u', false),
    FUNCTION(Tanh, 'u', false),
    FUNCTION(BitwiseNot, 'u', false),
    FUNCTION(Sign, 'u', false),
    FUNCTION(Trunc, 'u', false),
    FUNCTION(LogicalNot, 'u', true),
    FUNCTION(Mul, 'b', false),
    FUNCTION(Div, 'b', false),
    FUNCTION(Maximum, 'b', false),
    FUNCTION(Minimum, 'b', false),
    FUNCTION(EqTensor, 'b', true),
    FUNCTION(NeTensor, 'b', true),
    FUNCTION(LtTensor, 'b', true),
    FUNCTION(LeTensor, 'b', true),
    FUNCTION(GtTensor, 'b', true),
    FUNCTION(GeTensor, 'b', true),
    FUNCTION(LogicalAnd, 'b', true),
    FUNCTION(LogicalOr, 'b', true),
    FUNCTION(LogicalXor, 'b', true),
    FUNCTION(BitwiseAndTensor, 'b', false),
    FUNCTION(BitwiseOrTensor, 'b', false),
    FUNCTION(BitwiseXorTensor, 'b', false),
    FUNCTION(RemainderTensorTensor, 'b', false),
    FUNCTION(PowTensorTensor, 'b', false),
    FUNCTION(Muls, 's', false),
    FUNCTION(Divs, 's', false),
    FUNCTION(EqScalar, 's', true),
    FUNCTION(NeScalar, 's', true),
    FUNCTION(LtScalar, 's', true),
    FUNCTION(LeScalar, 's', true),
    FUNCTION(GtScalar, 's', true),
    FUNCTION(GeScalar, 's', true),
    FUNCTION(LeakyRelu, 's', false),
};
static const int dtypes[] = {NGD_ACL_FLOAT, NGD_ACL_FLOAT16, NGD_ACL_BF16,  NGD_ACL_DOUBLE, NGD_ACL_INT8,
                             NGD_ACL_UINT8, NGD_ACL_INT16,   NGD_ACL_INT32, NGD_ACL_INT64,  NGD_ACL_BOOL};

static struct aclTensor *four(int dtype)
{
    const int64_t n = 4;

    return acl->aclCreateTensor(&n, 1, dtype, NULL, 0, NGD_ACL_FORMAT_ND, &n, 1, NULL);
}

static ngd_acl_error_t ask_function(const struct function *f, int dtype)
{
    const void *at = (const char *)acl + f->phase1;
    struct aclTensor *x = four(dtype), *z = four(dtype), *y = four(f->compares ? NGD_ACL_BOOL : dtype);
    struct aclOpExecutor *executor = NULL;
    uint64_t bytes = 0;
    float one = 1;
    struct aclScalar *s = acl->aclCreateScalar(&one, NGD_ACL_FLOAT);
    ngd_acl_error_t code = f->form == 'u'   ? (*(const unary_fn *)at)(x, y, &bytes, &executor)
                           : f->form == 'b' ? (*(const binary_fn *)at)(x, z, y, &bytes, &executor)
                                            : (*(const scalar_fn *)at)(x, s, y, &bytes, &executor);

    acl->aclDestroyTensor(x);
    acl->aclDestroyTensor(y);
    acl->aclDestroyTensor(z);
    acl->aclDestroyScalar(s);
    return ended(code, executor);
}

static bool is_refused(const struct function *f, int dtype, ngd_chip_t chip)
{
    const uint32_t out = f->form == 'b' ? 2 : 1;

    return ngd_operator_dtype_refusal(f->name, 0, dtype, chip) ||
           ngd_operator_dtype_refusal(f->name, out, f->compares ? NGD_ACL_BOOL : dtype, chip);
}

START_TEST(dtypes_are_taken_as_the_rows_say_on_each_chip)
{
    static const char *const socs[] = {"Ascend910B4", "Ascend910_9382", "Ascend310P3", "Ascend950PR"};
    int refused = 0, taken = 0;

    open_acl();
    for (size_t s = 0; s < sizeof(socs) / sizeof(socs[0]); s++) {
        simulator_set("soc", socs[s]);
        for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
            for (size_t k = 0; k < sizeof(dtypes) / sizeof(dtypes[0]); k++) {
                const ngd_acl_error_t code = ask_function(&functions[i], dtypes[k]);
                const char *text = code ? acl->aclGetRecentErrMsg() : "";

                /* What the simulator itself does not compute is refused too, in other words. */
                if (is_refused(&functions[i], dtypes[k], ngd_chip_by_soc(socs[s])))
                    ck_assert_msg(code == NGD_ACL_NN_PARAM_INVALID, "%s takes %s on %s", functions[i].name,
                                  ngd_operator_dtype_name(dtypes[k]), socs[s]);
                else
                    ck_assert_msg(!text || !strstr(text, "; on "), "%s on %s: %s", functions[i].name, socs[s], text);
                refused += code != 0;
                taken += code == 0;
            }
        }
    }
    printf("%d calls were taken, %d were refused\n", taken, refused);
    ck_assert_int_gt(taken, refused);
    ck_assert_int_gt(refused, 100);
    simulator_set("soc", "Ascend910B4");
    ngd_acl_unload(acl);
}
END_TEST

/* ---- other rules --------------------------------------------------------------------------------------------- */

struct shape {
    int dtype;
    uint64_t rank;
    int64_t dims[4];
};

/* Operands as the rules number them; rank 9: absent. Attributes are the rules', too. */
struct call {
    const char *function;
    struct shape t[8];
    int n; /* operands; 0: 6 */
    bool turned[8], gapped[8],
        bf[8];           /* the transpose of what lies there; with gaps between rows; a list's 2nd is bf16 */
    uint32_t lengths[8]; /* of lists of this tensor; 0: it is none */
    int64_t attributes[5];
};
#define NONE  \
    {         \
        0, 9, \
        {     \
            0 \
        }     \
    }
#define H NGD_ACL_FLOAT16
#define F NGD_ACL_FLOAT
#define B NGD_ACL_BF16
static const struct call rms = {.function = "RmsNorm",
                                .t = {{H, 2, {3, 32}}, NONE, {H, 1, {32}}, {H, 2, {3, 32}}, {F, 2, {3, 1}}, NONE}};
static const struct call gemma = {.function = "GemmaRmsNorm",
                                  .t = {{H, 2, {3, 32}}, NONE, {H, 1, {32}}, {H, 2, {3, 32}}, {F, 2, {3, 1}}, NONE}};
static const struct call add_rms = {
    .function = "AddRmsNorm",
    .t = {{H, 2, {3, 32}}, {H, 2, {3, 32}}, {H, 1, {32}}, {H, 2, {3, 32}}, {F, 2, {3, 1}}, {H, 2, {3, 32}}}};
static const struct call layer = {.function = "LayerNorm",
                                  .t = {{H, 2, {3, 32}}, {H, 1, {32}}, {H, 1, {32}}, {H, 2, {3, 32}}, NONE, NONE}};
static const struct call rotary = {
    .function = "RotaryPositionEmbedding",
    .t = {{H, 4, {1, 5, 4, 64}}, {H, 4, {1, 5, 1, 64}}, {H, 4, {1, 5, 1, 64}}, {H, 4, {1, 5, 4, 64}}, NONE, NONE}};
static const struct call scatter = {.function = "ScatterPaKvCache",
                                    .t = {{H, 3, {5, 2, 16}},
                                          {H, 4, {3, 8, 2, 16}},
                                          {NGD_ACL_INT32, 1, {5}},
                                          {H, 3, {5, 2, 16}},
                                          {H, 4, {3, 8, 2, 16}},
                                          NONE}};
static const struct call quantize = {
    .function = "Quantize", .t = {{B, 2, {3, 32}}, {B, 1, {32}}, {B, 1, {32}}, {NGD_ACL_INT8, 2, {3, 32}}, NONE, NONE}};
static const struct call ascend_quant = {
    .function = "AscendQuantV3",
    .t = {{H, 2, {3, 32}}, {H, 1, {32}}, {H, 1, {32}}, {NGD_ACL_INT8, 2, {3, 32}}, NONE, NONE}};
static const struct call dynamic = {
    .function = "DynamicQuant",
    .t = {{H, 2, {3, 32}}, {H, 1, {32}}, {NGD_ACL_INT8, 2, {3, 32}}, {F, 1, {3}}, NONE, NONE}};
static const struct call gate = {.function = "SwiGluQuant",
                                 .t = {{H, 2, {3, 64}}, NONE, {NGD_ACL_INT8, 2, {3, 32}}, {F, 1, {3}}, NONE, NONE}};
static const struct call update = {
    .function = "ScatterNdUpdate",
    .t = {{H, 2, {8, 16}}, {NGD_ACL_INT32, 2, {5, 1}}, {H, 2, {5, 16}}, NONE, NONE, NONE}};

static const struct call quant_matmul = {.function = "WeightQuantBatchMatmulV2",
                                         .t = {{H, 2, {3, 64}},
                                               {NGD_ACL_INT8, 2, {64, 4}},
                                               {H, 2, {2, 4}},
                                               {H, 2, {2, 4}},
                                               NONE,
                                               NONE,
                                               {H, 1, {4}},
                                               {H, 2, {3, 4}}},
                                         .n = 8,
                                         .attributes = {32}};
static const struct call i8_matmul = {.function = "QuantMatmulV4",
                                      .t = {{NGD_ACL_INT8, 2, {3, 64}},
                                            {NGD_ACL_INT8, 2, {64, 4}},
                                            {F, 1, {4}},
                                            NONE,
                                            {F, 1, {3}},
                                            {NGD_ACL_INT32, 1, {4}},
                                            {B, 2, {3, 4}}},
                                      .n = 7};
static const struct call grouped = {
    .function = "GroupedMatmulV4",
    .t = {{H, 2, {6, 32}}, {H, 2, {32, 8}}, {NGD_ACL_INT64, 1, {3}}, {H, 2, {6, 8}}, NONE, NONE},
    .lengths = {1, 3, 0, 1},
    .attributes = {3, 0, 1, 0}};
static const struct call biased = {
    .function = "GroupedMatmulV4",
    .t = {{H, 2, {6, 32}}, {H, 2, {32, 8}}, {NGD_ACL_INT64, 1, {3}}, {H, 2, {6, 8}}, {H, 1, {8}}, NONE, NONE},
    .n = 7,
    .lengths = {1, 3, 0, 1, 3},
    .attributes = {3, 0, 1, 0}};
static const struct call antiquant = {.function = "GroupedMatmulV4",
                                      .t = {{H, 2, {6, 64}},
                                            {NGD_ACL_INT8, 2, {64, 8}},
                                            {NGD_ACL_INT64, 1, {3}},
                                            {H, 2, {6, 8}},
                                            NONE,
                                            {H, 1, {8}},
                                            {H, 1, {8}}},
                                      .n = 7,
                                      .lengths = {1, 3, 0, 1, 0, 3, 3},
                                      .attributes = {3, 0, 1, 0}};
static const struct call of_groups = {.function = "GroupedMatmulV4",
                                      .t = {{H, 2, {6, 64}},
                                            {NGD_ACL_INT4, 3, {3, 64, 8}},
                                            {NGD_ACL_INT64, 1, {3}},
                                            {H, 2, {6, 8}},
                                            {H, 2, {3, 8}},
                                            {H, 3, {3, 2, 8}},
                                            {H, 3, {3, 2, 8}}},
                                      .n = 7,
                                      .lengths = {1, 1, 0, 1, 1, 1, 1},
                                      .attributes = {3, 0, 1, 0}};
static const struct call clipped = {.function = "ClippedSwiglu",
                                    .t = {{H, 2, {3, 64}}, NONE, {H, 2, {3, 32}}, NONE, NONE, NONE}};
static const struct call gating = {.function = "MoeGatingTopKSoftmax",
                                   .t = {{H, 2, {3, 40}},
                                         {NGD_ACL_BOOL, 1, {3}},
                                         {H, 2, {3, 2}},
                                         {NGD_ACL_INT32, 2, {3, 2}},
                                         {NGD_ACL_INT32, 2, {3, 2}},
                                         NONE},
                                   .attributes = {2}};
static const struct call routing = {.function = "MoeInitRoutingV2",
                                    .t = {{H, 2, {3, 32}},
                                          {NGD_ACL_INT32, 2, {3, 2}},
                                          {H, 2, {6, 32}},
                                          {NGD_ACL_INT32, 1, {6}},
                                          {NGD_ACL_INT32, 1, {4}},
                                          NONE},
                                    .attributes = {0, 0, 4, 0, 2}};
static const struct call finalize = {
    .function = "MoeFinalizeRoutingV2",
    .t = {{F, 2, {6, 32}}, {NGD_ACL_INT32, 1, {6}}, NONE, NONE, NONE, {F, 2, {3, 2}}, NONE, {F, 2, {3, 32}}},
    .n = 8,
    .attributes = {2}};

static struct aclTensor *tensor_of(const struct call *c, int i, bool second)
{
    const struct shape *s = &c->t[i];
    int64_t strides[4] = {1, 1, 1, 1}, elements = 1;

    for (uint64_t k = s->rank; k-- > 0;) {
        strides[k] = elements;
        elements *= s->dims[k];
    }
    if (c->turned[i]) {
        strides[s->rank - 2] = 1;
        strides[s->rank - 1] = s->dims[s->rank - 2];
    }
    for (uint64_t k = 0; c->gapped[i] && k + 1 < s->rank; k++)
        strides[k] *= 2;
    if (c->gapped[i] && s->rank == 1)
        strides[0] = 2;
    elements *= 2;
    return acl->aclCreateTensor(s->dims, s->rank, second && c->bf[i] ? B : s->dtype, strides, 0, NGD_ACL_FORMAT_ND,
                                &elements, 1, NULL);
}

/* The lists own their tensors. */
static ngd_acl_error_t grouped_phase1(const struct call *c, struct aclTensor *groups, uint64_t *bytes,
                                      struct aclOpExecutor **executor)
{
    struct aclTensorList *lists[7] = {NULL};
    const int64_t *a = c->attributes;
    ngd_acl_error_t code;

    for (int k = 0; k < 7; k++) {
        struct aclTensor *t[160];

        for (uint32_t i = 0; i < c->lengths[k]; i++)
            t[i] = tensor_of(c, k, i == 1);
        if (c->lengths[k])
            lists[k] = acl->aclCreateTensorList((const struct aclTensor *const *)t, c->lengths[k]);
    }
    code = acl->aclnnGroupedMatmulV4GetWorkspaceSize(lists[0], lists[1], lists[4], NULL, NULL, lists[5], lists[6], NULL,
                                                     groups, NULL, NULL, NULL, a[0], a[1], a[2], a[3], lists[3], NULL,
                                                     NULL, bytes, executor);
    for (int k = 0; k < 7; k++)
        if (lists[k])
            acl->aclDestroyTensorList(lists[k]);
    return code;
}

static ngd_acl_error_t phase1_of(const struct call *c, struct aclTensor *const t[8], uint64_t *bytes,
                                 struct aclOpExecutor **executor)
{
    char norm[] = "Norm", none[] = "None", mode[] = "dynamic";
    const int64_t last = c->t[0].rank ? c->t[0].dims[c->t[0].rank - 1] : 1, *a = c->attributes;
    struct aclIntArray *normalized = acl->aclCreateIntArray(&last, 1);
    ngd_acl_error_t code = -1;

    if (strcmp(c->function, "RmsNorm") == 0)
        code = acl->aclnnRmsNormGetWorkspaceSize(t[0], t[2], 1e-6, t[3], t[4], bytes, executor);
    else if (strcmp(c->function, "GemmaRmsNorm") == 0)
        code = acl->aclnnGemmaRmsNormGetWorkspaceSize(t[0], t[2], 1e-6, t[3], t[4], bytes, executor);
    else if (strcmp(c->function, "AddRmsNorm") == 0)
        code = acl->aclnnAddRmsNormGetWorkspaceSize(t[0], t[1], t[2], 1e-6, t[3], t[4], t[5], bytes, executor);
    else if (strcmp(c->function, "LayerNorm") == 0)
        code =
            acl->aclnnLayerNormGetWorkspaceSize(t[0], normalized, t[1], t[2], 1e-5, t[3], NULL, NULL, bytes, executor);
    else if (strcmp(c->function, "RotaryPositionEmbedding") == 0)
        code = acl->aclnnRotaryPositionEmbeddingGetWorkspaceSize(t[0], t[1], t[2], 0, t[3], bytes, executor);
    else if (strcmp(c->function, "ScatterPaKvCache") == 0)
        code = acl->aclnnScatterPaKvCacheGetWorkspaceSize(t[0], t[1], t[2], t[3], t[4], NULL, NULL, NULL, norm, none,
                                                          NULL, NULL, bytes, executor);
    else if (strcmp(c->function, "Quantize") == 0)
        code = acl->aclnnQuantizeGetWorkspaceSize(t[0], t[1], t[2], c->t[3].dtype, -1, t[3], bytes, executor);
    else if (strcmp(c->function, "AscendQuantV3") == 0)
        code = acl->aclnnAscendQuantV3GetWorkspaceSize(t[0], t[1], t[2], false, "round", c->t[3].dtype, -1, t[3], bytes,
                                                       executor);
    else if (strcmp(c->function, "DynamicQuant") == 0)
        code = acl->aclnnDynamicQuantGetWorkspaceSize(t[0], t[1], t[2], t[3], bytes, executor);
    else if (strcmp(c->function, "SwiGluQuant") == 0)
        code = acl->aclnnSwiGluQuantGetWorkspaceSize(t[0], t[1], t[4], NULL, false, mode, t[2], t[3], bytes, executor);
    else if (strcmp(c->function, "ScatterNdUpdate") == 0)
        code = acl->aclnnScatterNdUpdateGetWorkspaceSize(t[0], t[1], t[2], bytes, executor);
    else if (strcmp(c->function, "WeightQuantBatchMatmulV2") == 0)
        code = acl->aclnnWeightQuantBatchMatmulV2GetWorkspaceSize(t[0], t[1], t[2], t[3], t[4], t[5], t[6], (int)a[0],
                                                                  t[7], bytes, executor);
    else if (strcmp(c->function, "QuantMatmulV4") == 0)
        code = acl->aclnnQuantMatmulV4GetWorkspaceSize(t[0], t[1], t[2], t[3], t[4], t[5], false, false, t[6], bytes,
                                                       executor);
    else if (strcmp(c->function, "GroupedMatmulV4") == 0)
        code = grouped_phase1(c, t[2], bytes, executor);
    else if (strcmp(c->function, "ClippedSwiglu") == 0)
        code = acl->aclnnClippedSwigluGetWorkspaceSize(t[0], t[1], -1, 1.702, 7, 1, true, t[2], bytes, executor);
    else if (strcmp(c->function, "MoeGatingTopKSoftmax") == 0)
        code = acl->aclnnMoeGatingTopKSoftmaxGetWorkspaceSize(t[0], t[1], a[0], t[2], t[3], t[4], bytes, executor);
    else if (strcmp(c->function, "MoeInitRoutingV2") == 0)
        code = acl->aclnnMoeInitRoutingV2GetWorkspaceSize(t[0], t[1], a[0], a[1], a[2], a[3], a[4], false, t[2], t[3],
                                                          t[4], NULL, bytes, executor);
    else if (strcmp(c->function, "MoeFinalizeRoutingV2") == 0)
        code = acl->aclnnMoeFinalizeRoutingV2GetWorkspaceSize(t[0], t[1], t[2], t[3], t[4], t[5], t[6], a[0], t[7],
                                                              bytes, executor);
    acl->aclDestroyIntArray(normalized);
    return code;
}

static ngd_acl_error_t ask(const struct call *c)
{
    struct aclTensor *t[8] = {NULL};
    const int n = c->n ? c->n : 6;
    struct aclOpExecutor *executor = NULL;
    uint64_t bytes = 0;
    ngd_acl_error_t code;

    for (int i = 0; i < n; i++)
        if (c->t[i].rank != 9 && !c->lengths[i])
            t[i] = tensor_of(c, i, false);
    code = phase1_of(c, t, &bytes, &executor);
    for (int i = 0; i < n; i++)
        if (t[i])
            acl->aclDestroyTensor(t[i]);
    return ended(code, executor);
}

static const struct {
    const char *function, *name;
    ngd_acl_error_t code;
} rules[] = {
#define NGD_OPERATOR_DTYPES(function, operands, chips, dtypes, source)
#define NGD_OPERATOR_RULE(function, name, chips, code, holds, text, source) {#function, #name, NGD_ACL_NN_##code},
#include "devices/ascend/operator_rules.def"
#undef NGD_OPERATOR_RULE
#undef NGD_OPERATOR_DTYPES
};
#define RULES (sizeof(rules) / sizeof(rules[0]))
static bool broken[RULES];

static void refused_by(const struct call *c, const char *name)
{
    const ngd_acl_error_t code = ask(c);
    const char *text = code ? acl->aclGetRecentErrMsg() : NULL;
    char rule[80];
    bool found = false;

    snprintf(rule, sizeof(rule), ": rule %s on ", name);
    ck_assert_msg(text && strstr(text, rule), "aclnn%s: \"%s\" is not in: %s", c->function, rule,
                  text ? text : "no text");
    for (size_t i = 0; i < RULES; i++) {
        if (strcmp(rules[i].function, c->function) == 0 && strcmp(rules[i].name, name) == 0) {
            ck_assert_int_eq(code, rules[i].code);
            found = broken[i] = true;
        }
    }
    ck_assert_msg(found, "there is no rule %s of %s", name, c->function);
}

#define REFUSED(base, name, ...) \
    do {                         \
        struct call c = base;    \
                                 \
        __VA_ARGS__;             \
        refused_by(&c, name);    \
    } while (0)

static void break_norms(void)
{
    REFUSED(rms, "GAMMA", c.t[2].dtype = B);
    REFUSED(rms, "SHAPE", c.t[2].dims[0] = 16);
    REFUSED(rms, "SHAPE", c.t[0].dims[0] = c.t[3].dims[0] = 0);
    REFUSED(rms, "RSTD", c.t[4].dims[0] = 2);
    REFUSED(gemma, "GAMMA", c.t[2].dtype = F);
    REFUSED(add_rms, "SAME", c.t[2].dtype = F);
    REFUSED(add_rms, "SHAPE", c.t[2].dims[0] = 16);
    REFUSED(layer, "WEIGHT", c.t[2].dtype = B);
}

static void break_decoders(void)
{
    REFUSED(rotary, "SAME", c.t[1].dtype = F);
    REFUSED(rotary, "RANK", c.t[2].rank = 3);
    REFUSED(rotary, "HEAD", c.t[0].dims[3] = c.t[1].dims[3] = c.t[2].dims[3] = c.t[3].dims[3] = 896);
    REFUSED(rotary, "EVEN", c.t[0].dims[3] = c.t[1].dims[3] = c.t[2].dims[3] = c.t[3].dims[3] = 63);
    REFUSED(rotary, "TABLES", c.t[2].dims[1] = 1);
    REFUSED(rotary, "HEADS", c.t[0].dims[2] = c.t[3].dims[2] = 1000);
    REFUSED(scatter, "SAME", c.t[3].dtype = c.t[4].dtype = B);
    REFUSED(scatter, "RANK", c.t[2].rank = 2, c.t[2].dims[1] = 1);
    REFUSED(scatter, "ROWS", c.t[3].dims[0] = 4);
    REFUSED(scatter, "FITS", c.t[1].dims[0] = c.t[4].dims[0] = 1, c.t[1].dims[1] = c.t[4].dims[1] = 4);
    REFUSED(update, "SAME", c.t[2].dtype = F);
}

static void break_quantisation(void)
{
    REFUSED(quantize, "BF16", c.t[0].dtype = F);
    REFUSED(quantize, "SCALES", c.t[2].dims[0] = 1);
    REFUSED(ascend_quant, "SCALES", c.t[1].dtype = c.t[2].dtype = F);
    REFUSED(ascend_quant, "SHAPE", c.t[1].rank = 0);
    REFUSED(dynamic, "SAME", c.t[1].dtype = B);
    REFUSED(dynamic, "SHAPE", c.t[3].rank = 2, c.t[3].dims[1] = 1);
    REFUSED(gate, "LAST", c.t[0].dims[1] = 8194, c.t[2].dims[1] = 4097);
}

static void break_quantised_products(void)
{
    static const struct shape scale = {NGD_ACL_INT64, 1, {4}};

    REFUSED(quant_matmul, "RESULT", c.t[7].dtype = B);
    REFUSED(quant_matmul, "RANK", c.t[0] = (struct shape){H, 3, {1, 3, 64}});
    REFUSED(quant_matmul, "SCALE", c.t[2].dtype = c.t[3].dtype = B);
    REFUSED(quant_matmul, "OFFSET", c.t[3].dtype = B);
    REFUSED(quant_matmul, "OFFSET", c.t[3].dims[0] = 1);
    REFUSED(quant_matmul, "BIAS", c.t[6].dtype = F);
    REFUSED(quant_matmul, "BIAS", c.t[0].dtype = c.t[2].dtype = c.t[3].dtype = c.t[6].dtype = c.t[7].dtype = B);
    REFUSED(quant_matmul, "X", c.gapped[0] = true);
    REFUSED(quant_matmul, "WEIGHT", c.gapped[1] = true);
    REFUSED(quant_matmul, "SCALE_ORDER", c.turned[2] = true);
    REFUSED(quant_matmul, "SCALE_ORDER", c.turned[3] = true);
    REFUSED(quant_matmul, "Y", c.gapped[7] = true);
    REFUSED(quant_matmul, "BIAS_ORDER", c.gapped[6] = true);
    REFUSED(quant_matmul, "SHAPES", c.t[1].dims[0] = 32);
    REFUSED(quant_matmul, "LEAST", c.t[0].dims[0] = c.t[7].dims[0] = 0);
    REFUSED(quant_matmul, "MOST", c.t[0].dims[1] = c.t[1].dims[0] = 65536);
    REFUSED(quant_matmul, "INT4", c.t[1].dtype = NGD_ACL_INT4,
            c.t[1].dims[1] = c.t[2].dims[1] = c.t[3].dims[1] = c.t[6].dims[0] = c.t[7].dims[1] = 3);
    REFUSED(quant_matmul, "GROUP", c.attributes[0] = 48);
    REFUSED(quant_matmul, "GROUP", c.attributes[0] = 64);
    REFUSED(quant_matmul, "GROUP", c.attributes[0] = -32);
    REFUSED(quant_matmul, "SCALES", c.t[2].dims[0] = c.t[3].dims[0] = 3);
    REFUSED(quant_matmul, "SCALES", c.attributes[0] = 0);
    REFUSED(quant_matmul, "BIASES", c.t[6].dims[0] = 5);
    REFUSED(quant_matmul, "RESULT", c.t[4] = scale);
}

#define WITHOUT(i) c.t[i] = (struct shape)NONE

static void break_i8_products(void)
{
    static const struct shape offset = {F, 1, {4}};

    REFUSED(i8_matmul, "SAME", c.t[1].dtype = NGD_ACL_INT32);
    REFUSED(i8_matmul, "RANK", c.t[6].rank = 1);
    REFUSED(i8_matmul, "SCALE_RANK", c.t[2] = (struct shape){F, 3, {1, 1, 4}});
    REFUSED(i8_matmul, "OFFSET", c.t[3] = offset);
    REFUSED(i8_matmul, "BF16_BIAS", c.t[5].dtype = B, c.t[6].dtype = H);
    REFUSED(i8_matmul, "BF16_SCALE", c.t[2].dtype = B, c.t[6].dtype = H);
    REFUSED(i8_matmul, "OF_BF16", c.t[2].dtype = NGD_ACL_INT64);
    REFUSED(i8_matmul, "OF_INT8", c.t[6].dtype = NGD_ACL_INT8);
    REFUSED(i8_matmul, "OF_INT32", c.t[2].dtype = NGD_ACL_INT64, c.t[6].dtype = NGD_ACL_INT32);
    REFUSED(i8_matmul, "INT32_BIAS", WITHOUT(4), c.t[5].dtype = F, c.t[6].dtype = NGD_ACL_INT32);
    REFUSED(i8_matmul, "TOKEN_RESULT", c.t[6].dtype = NGD_ACL_INT32);
    REFUSED(i8_matmul, "TOKEN_BIAS", c.t[5].dtype = H);
    REFUSED(i8_matmul, "TOKEN_SCALE", c.t[2].dtype = NGD_ACL_INT64, c.t[6].dtype = H);
    REFUSED(i8_matmul, "F16_BIAS", WITHOUT(4), c.t[5].dtype = H);
    REFUSED(i8_matmul, "F32_BIAS", WITHOUT(4), c.t[2].dtype = NGD_ACL_INT64, c.t[5].dtype = F, c.t[6].dtype = H);
    REFUSED(i8_matmul, "OF_FLOAT16", WITHOUT(4), c.t[6].dtype = H);
    REFUSED(i8_matmul, "SCALES", c.t[2].dims[0] = 3);
    REFUSED(i8_matmul, "OFFSETS", WITHOUT(4), c.t[2].dtype = NGD_ACL_INT64, c.t[3] = offset, c.t[3].dims[0] = 2,
            c.t[6].dtype = NGD_ACL_INT8);
    REFUSED(i8_matmul, "TOKENS", c.t[4].dims[0] = 4);
    REFUSED(i8_matmul, "BIASES", c.t[5].dims[0] = 3);
    REFUSED(i8_matmul, "SHAPES", c.t[0].dims[1] = 32);
    REFUSED(i8_matmul, "SHAPES", c.t[6].dims[0] = 4);
    REFUSED(i8_matmul, "LEAST", c.t[0].dims[1] = c.t[1].dims[0] = 0);
    REFUSED(i8_matmul, "MOST", WITHOUT(4), c.t[0].dims[1] = c.t[1].dims[0] = 65536);
}

static void break_chips_of_i8_products(void)
{
    simulator_set("soc", "Ascend950PR");
    REFUSED(i8_matmul, "SCALE_RANK_950", c.t[2] = (struct shape){F, 2, {1, 4}});
    REFUSED(i8_matmul, "TOKEN_BF16_950", c.t[5].dtype = H);
    REFUSED(i8_matmul, "TOKEN_F16_950", c.t[2].dtype = B, c.t[6].dtype = H);
    REFUSED(i8_matmul, "SCALE_950", WITHOUT(4), c.t[6].dtype = H);
    REFUSED(i8_matmul, "BIAS_950", WITHOUT(4), c.t[5].dtype = H);
    REFUSED(i8_matmul, "LEAST_950", c.t[0].dims[1] = c.t[1].dims[0] = 0);
    simulator_set("soc", "Ascend310P3");
    REFUSED(i8_matmul, "SCALE_310P", WITHOUT(4), c.t[6].dtype = H);
    REFUSED(i8_matmul, "NZ_310P", c.t[6].dtype = H);
    simulator_set("soc", "Ascend910B4");
}

static void break_mixtures(void)
{
    REFUSED(grouped, "GROUP_TYPE", c.attributes[1] = 1);
    REFUSED(grouped, "GROUP_LIST_TYPE", c.attributes[2] = 3);
    REFUSED(grouped, "SPLIT", c.attributes[0] = 0);
    REFUSED(grouped, "RESULTS", c.lengths[3] = 3);
    REFUSED(grouped, "LENGTH", c.lengths[1] = 129, c.t[2].dims[0] = 129);
    REFUSED(grouped, "SAME", c.t[1].dtype = B);
    REFUSED(grouped, "X", c.turned[0] = true);
    REFUSED(grouped, "RANK", c.lengths[1] = 1, c.t[2].dims[0] = 1);
    REFUSED(grouped, "RANK", c.t[1] = (struct shape){H, 3, {1, 32, 8}});
    REFUSED(grouped, "WEIGHTS", c.bf[1] = true);
    REFUSED(grouped, "SHAPES", c.t[1].dims[0] = 16);
    REFUSED(grouped, "MOST", c.t[0].dims[1] = c.t[1].dims[0] = 65536);
    REFUSED(grouped, "GROUPS", c.t[2].dims[0] = 2);
    REFUSED(grouped, "GROUPS", c.t[2].rank = 9);
    REFUSED(grouped, "GROUP_RANK", c.t[2] = (struct shape){NGD_ACL_INT64, 2, {3, 1}});
    REFUSED(antiquant, "FORMS", c.t[0].dtype = F);
    REFUSED(antiquant, "RESULT", c.t[3].dtype = B);
    REFUSED(biased, "BIAS", c.t[4].dtype = F);
    REFUSED(antiquant, "ANTIQUANT", c.lengths[6] = 0, c.t[6] = (struct shape)NONE);
    REFUSED(grouped, "ANTIQUANT", c.n = 7, c.lengths[5] = 3, c.t[5] = antiquant.t[5]);
    REFUSED(antiquant, "ANTIQUANT_DTYPES", c.t[5].dtype = c.t[6].dtype = B);
    REFUSED(biased, "LISTS", c.lengths[4] = 2);
    REFUSED(biased, "BIASES", c.t[4].dims[0] = 7);
    REFUSED(of_groups, "BIASES", c.t[4].dims[0] = 2);
    REFUSED(antiquant, "SCALES", c.t[5].dims[0] = c.t[6].dims[0] = 7);
    REFUSED(antiquant, "SCALES", c.t[5] = c.t[6] = (struct shape){H, 2, {2, 8}});
    REFUSED(of_groups, "SCALES", c.t[5].dims[0] = c.t[6].dims[0] = 2);
    REFUSED(of_groups, "OFFSETS", c.t[6].dims[1] = 4);
    REFUSED(of_groups, "GROUPS_OF_K", c.t[5].dims[1] = c.t[6].dims[1] = 3);
    REFUSED(of_groups, "GROUPS_OF_K", c.turned[1] = true, c.t[5].dims[1] = c.t[6].dims[1] = 64);
    REFUSED(of_groups, "INT4", c.t[1].dims[2] = c.t[3].dims[1] = c.t[4].dims[1] = c.t[5].dims[2] = c.t[6].dims[2] = 7);
    REFUSED(biased, "ALIKE", c.bf[4] = true);
    REFUSED(gating, "SAME", c.t[2].dtype = F);
    REFUSED(gating, "RANK", c.t[0] = (struct shape){H, 1, {40}});
    REFUSED(gating, "RANK", c.t[0] = (struct shape){H, 4, {1, 1, 3, 40}});
    REFUSED(gating, "LEAST", c.t[0].dims[0] = c.t[1].dims[0] = c.t[2].dims[0] = c.t[3].dims[0] = c.t[4].dims[0] = 0);
    REFUSED(gating, "FINISHED", c.t[1].dims[0] = 2);
    for (int i = 2; i < 5; i++)
        REFUSED(gating, "RESULTS", c.t[i].dims[0] = 2);
    REFUSED(gating, "K", c.attributes[0] = 0);
    REFUSED(gating, "K", c.attributes[0] = c.t[2].dims[1] = c.t[3].dims[1] = c.t[4].dims[1] = 41);
    REFUSED(gating, "MOST", c.t[0].dims[1] = 2000,
            c.attributes[0] = c.t[2].dims[1] = c.t[3].dims[1] = c.t[4].dims[1] = 1025);
    REFUSED(routing, "SAME", c.t[2].dtype = F);
    REFUSED(routing, "RANK", c.t[1].dims[0] = 2);
    REFUSED(routing, "ATTRIBUTES", c.attributes[0] = -1);
    REFUSED(routing, "DROP", c.attributes[3] = 2);
    REFUSED(routing, "COUNT", c.attributes[4] = 3);
    REFUSED(routing, "COUNT", c.attributes[2] = 0);
    REFUSED(routing, "ROWS", c.t[2].dims[0] = 5);
    REFUSED(routing, "DROPLESS", c.t[2] = (struct shape){H, 3, {4, 2, 32}});
    REFUSED(routing, "NUMBERS", c.t[3].dims[0] = 5);
    REFUSED(routing, "TOKENS", c.t[4].dtype = NGD_ACL_INT64);
    REFUSED(finalize, "SAME", c.t[7].dtype = H);
    REFUSED(finalize, "SCALES", c.t[0].dtype = c.t[7].dtype = H);
    REFUSED(finalize, "DROP", c.attributes[0] = 4);
    REFUSED(finalize, "NUMBERS", c.t[1] = (struct shape){NGD_ACL_INT32, 2, {3, 2}});
    REFUSED(finalize, "SCALE_RANK", c.t[5] = (struct shape){F, 1, {6}});
    REFUSED(finalize, "RANK", c.t[0] = (struct shape){F, 3, {2, 3, 32}});
    REFUSED(finalize, "EXTRA", c.t[3] = c.t[7]);
    REFUSED(finalize, "BIAS", c.t[4] = (struct shape){F, 2, {4, 32}});
    REFUSED(finalize, "SHAPES", c.t[7].dims[0] = 6);
}

static void break_chips_of_products(void)
{
    simulator_set("soc", "Ascend950PR");
    REFUSED(quant_matmul, "QUANT", c.t[4] = (struct shape){NGD_ACL_INT64, 1, {4}});
    REFUSED(quant_matmul, "BIAS_950", c.t[6].dtype = F);
    REFUSED(quant_matmul, "X_950", c.turned[0] = true);
    REFUSED(quant_matmul, "SCALE_ORDER_950", c.turned[1] = true);
    REFUSED(antiquant, "ANTIQUANT_950", (void)0);
    REFUSED(of_groups, "GROUPS_OF_K_950", c.t[5].dims[1] = c.t[6].dims[1] = 4);
    REFUSED(clipped, "CHIP", (void)0);
    simulator_set("soc", "Ascend310P3");
    REFUSED(quant_matmul, "RANK_310P", c.t[7].rank = 1);
    REFUSED(grouped, "SEPARATE_310P", (void)0);
    REFUSED(clipped, "CHIP", (void)0);
    REFUSED(routing, "DROP_310P", c.attributes[3] = 1);
    REFUSED(finalize, "CHIP_310P", (void)0);
    REFUSED(gating, "CHIP", (void)0);
    simulator_set("api", "8.3");
    REFUSED(routing, "CHIP_310P", (void)0);
    simulator_set("soc", "Ascend910B4");
    REFUSED(finalize, "SCALES", c.t[0].dtype = c.t[7].dtype = B);
    simulator_set("api", "9.1");
}

static void break_chips(void)
{
    simulator_set("soc", "Ascend310P3");
    REFUSED(rms, "GAMMA_310P", c.t[2].dtype = F);
    REFUSED(rms, "LAST_310P", c.t[0].dims[1] = c.t[2].dims[0] = c.t[3].dims[1] = 8);
    REFUSED(gemma, "CHIP", (void)0);
    REFUSED(rotary, "CHIP", (void)0);
    REFUSED(scatter, "CHIP", (void)0);
    REFUSED(gate, "CHIP", (void)0);
    REFUSED(dynamic, "LAST_310P", c.t[0].dims[1] = c.t[1].dims[0] = c.t[2].dims[1] = 24);
    simulator_set("api", "8.1");
    REFUSED(dynamic, "CHIP_8_1", (void)0);
    simulator_set("soc", "Ascend910_9382");
    REFUSED(gate, "CHIP_8_1", (void)0);
    simulator_set("api", "9.1");
    simulator_set("soc", "Ascend910B4");
}

START_TEST(each_rule_refuses_a_call_that_breaks_it_and_none_that_keeps_all)
{
    static const struct call *const kept[] = {&rms,       &gemma,        &add_rms,  &layer,     &rotary, &scatter,
                                              &quantize,  &ascend_quant, &dynamic,  &gate,      &update, &quant_matmul,
                                              &grouped,   &routing,      &finalize, &i8_matmul, &gating, &biased,
                                              &antiquant, &of_groups,    &clipped};

    open_acl();
    for (size_t i = 0; i < sizeof(kept) / sizeof(kept[0]); i++)
        ck_assert_msg(ask(kept[i]) == 0, "%s: %s", kept[i]->function, acl->aclGetRecentErrMsg());
    break_norms();
    break_decoders();
    break_quantisation();
    break_quantised_products();
    break_i8_products();
    break_mixtures();
    break_chips();
    break_chips_of_products();
    break_chips_of_i8_products();
    for (size_t i = 0; i < RULES; i++)
        ck_assert_msg(broken[i], "no call breaks rule %s of %s", rules[i].name, rules[i].function);
    ck_assert_int_eq(simulator_count("operands"), 0);
    ck_assert_int_eq(simulator_count("executors"), 0);
    ngd_acl_unload(acl);
}
END_TEST

UNIT_MAIN("ascend/aclsim_rules", dtypes_are_taken_as_the_rows_say_on_each_chip,
          each_rule_refuses_a_call_that_breaks_it_and_none_that_keeps_all)
