/* SPDX-License-Identifier: Apache-2.0 */
/* The list of the probe's questions. See probe.h. */
#include "devices/ascend/issue.h"
#include "devices/ascend/probe.h"
#include "graphs/experts.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define OPERATORS_OF_PROCESS 24
#define LENGTH(list)         (uint32_t)(sizeof(list) / sizeof((list)[0]))

static const struct {
    const char *name;
    uint32_t (*count)(void);
    void (*fill)(uint32_t i, struct ascend_question *q);
} topics[ASCEND_TOPIC_MAX] = {
#define NGD_PROBE_TOPIC(ID, name, function, text) {name, ngd_ascend_number_of_##function, ngd_ascend_fill_##function},
#include "devices/ascend/probe_topics.def"
#undef NGD_PROBE_TOPIC
};

const char *ngd_ascend_answer_name(ascend_answer_t answer)
{
    static const char *const names[] = {
#define NGD_PROBE_ANSWER(ID, name, serves, text) name,
#include "devices/ascend/probe_answers.def"
#undef NGD_PROBE_ANSWER
    };

    return answer < ASCEND_ANSWER_MAX ? names[answer] : "?";
}

/* ---- operators ----------------------------------------------------------------------------------- */

static const struct {
    ngd_op_id_t op;
    const char *body;
} operators[] = {
#define NGD_PROBE_OPERATOR(ID, body) {NGD_OP_##ID, body},
#include "devices/ascend/probe_operators.def"
#undef NGD_PROBE_OPERATOR
};

static const ngd_dtype_t operator_dtypes[] = {NGD_F32, NGD_F16, NGD_BF16, NGD_I32, NGD_I64, NGD_BOOL};

static bool is_asked_in(uint32_t i, ngd_dtype_t dtype)
{
    const struct ascend_op *op = ngd_ascend_op_of(operators[i].op);

    if (op && op->dtypes == 1u << NGD_I8) /* its graph makes i8 of halves */
        return dtype == NGD_F16 || dtype == NGD_BF16;
    return op && op->dtypes & 1u << dtype;
}

uint32_t ngd_ascend_number_of_operator(void)
{
    static _Atomic uint32_t known;
    uint32_t n = known;

    for (uint32_t i = 0; i < LENGTH(operators) && !known; i++)
        for (uint32_t d = 0; d < LENGTH(operator_dtypes); d++)
            n += is_asked_in(i, operator_dtypes[d]);
    known = n;
    return n;
}

void ngd_ascend_fill_operator(uint32_t i, struct ascend_question *q)
{
    for (uint32_t o = 0; o < LENGTH(operators); o++)
        for (uint32_t d = 0; d < LENGTH(operator_dtypes); d++)
            if (is_asked_in(o, operator_dtypes[d]) && i-- == 0) {
                q->process = o / OPERATORS_OF_PROCESS;
                q->op = operators[o].op;
                q->body = operators[o].body;
                q->dtype = operator_dtypes[d];
                return;
            }
}

uint32_t ngd_ascend_question_of_operator(ngd_op_id_t op, ngd_dtype_t dtype)
{
    uint32_t n = ngd_ascend_question_first(ASCEND_TOPIC_OPERATOR);

    for (uint32_t o = 0; o < LENGTH(operators); o++)
        for (uint32_t d = 0; d < LENGTH(operator_dtypes); d++) {
            if (!is_asked_in(o, operator_dtypes[d]))
                continue;
            if (operators[o].op == op && operator_dtypes[d] == dtype)
                return n;
            n++;
        }
    return UINT32_MAX;
}

/* ---- attention ----------------------------------------------------------------------------------- */

static const enum ascend_way attention_ways[] = {ASCEND_WAY_ROWS, ASCEND_WAY_PREFILL, ASCEND_WAY_RAGGED};
static const int64_t attention_sides[] = {64, 80, 128, 192, 256}, attention_blocks[] = {16, 128, 256},
                     attention_queries[] = {1, 4};
static const ngd_dtype_t attention_dtypes[] = {NGD_F16, NGD_BF16};

uint32_t ngd_ascend_number_of_attention(void)
{
    return LENGTH(attention_ways) * LENGTH(attention_sides) * LENGTH(attention_blocks) * LENGTH(attention_dtypes) *
           LENGTH(attention_queries) * 2;
}

/* Takes the last digit off a number whose digits are of different bases. */
static uint32_t take_digit(uint32_t *number, uint32_t base)
{
    const uint32_t digit = *number % base;

    *number /= base;
    return digit;
}

void ngd_ascend_fill_attention(uint32_t i, struct ascend_question *q)
{
    q->op = NGD_OP_NPU_FUSED_INFER_ATTENTION_SCORE;
    q->full = take_digit(&i, 2);
    q->queries = attention_queries[take_digit(&i, LENGTH(attention_queries))];
    q->dtype = attention_dtypes[take_digit(&i, LENGTH(attention_dtypes))];
    q->block = attention_blocks[take_digit(&i, LENGTH(attention_blocks))];
    q->d = attention_sides[take_digit(&i, LENGTH(attention_sides))];
    q->process = i;
    q->way = attention_ways[i];
}

uint32_t ngd_ascend_question_of_attention(enum ascend_way way, int64_t d, int64_t block, ngd_dtype_t dtype,
                                          int64_t queries, bool full)
{
    const uint32_t first = ngd_ascend_question_first(ASCEND_TOPIC_ATTENTION), n = ngd_ascend_number_of_attention();

    for (uint32_t i = 0; i < n; i++) {
        struct ascend_question q = {0};

        ngd_ascend_fill_attention(i, &q);
        if (q.way == way && q.d == d && q.block == block && q.dtype == dtype && (q.queries > 1) == (queries > 1) &&
            q.full == full)
            return first + i;
    }
    return UINT32_MAX;
}

/* ---- latents ------------------------------------------------------------------------------------- */

#define LATENT_D 512

static const int64_t latent_blocks[] = {16, 128}, latent_heads[] = {16, 128};

uint32_t ngd_ascend_number_of_latent(void)
{
    return LENGTH(latent_blocks) * LENGTH(attention_dtypes) * LENGTH(latent_heads) * 2;
}

void ngd_ascend_fill_latent(uint32_t i, struct ascend_question *q)
{
    q->op = NGD_OP_NPU_FUSED_INFER_ATTENTION_SCORE;
    q->way = ASCEND_WAY_ROWS;
    q->d = LATENT_D;
    q->full = take_digit(&i, 2);
    q->queries = latent_heads[take_digit(&i, LENGTH(latent_heads))];
    q->dtype = attention_dtypes[take_digit(&i, LENGTH(attention_dtypes))];
    q->block = latent_blocks[i];
}

uint32_t ngd_ascend_question_of_latent(int64_t block, ngd_dtype_t dtype, int64_t heads, bool full)
{
    const uint32_t first = ngd_ascend_question_first(ASCEND_TOPIC_LATENT), n = ngd_ascend_number_of_latent();

    for (uint32_t i = 0; i < n; i++) {
        struct ascend_question q = {0};

        ngd_ascend_fill_latent(i, &q);
        if (q.block == block && q.dtype == dtype && (q.queries > 16) == (heads > 16) && q.full == full)
            return first + i;
    }
    return UINT32_MAX;
}

/* ---- experts ------------------------------------------------------------------------------------- */

/* Eight experts of [16,64]; a list has two in turns, so that it shows if one is taken for its neighbour. */
#define EIGHT(x, y) x ", " y ", " x ", " y ", " x ", " y ", " x ", " y
#define ROUTED                                                              \
    " input %x : @[4,64]\n input %i : i64[4,2]\n input %pos.c : f32[4,2]\n" \
    " %r, %to, %n = npu.moe_init_routing_v2(%x, %i) {expert_num=8}\n"
#define SUMMED                                                                                \
    " %z = npu.moe_finalize_routing(%p, %pos.c, %to)\n %y = aten._to_copy(%z) {dtype=bf16}\n" \
    " return \"y\" = %y\n"
#define PRODUCT(operands, attributes) \
    ROUTED " %p = $(%r, %n, " operands ") {group_list_type=1, transpose_weight=true" attributes "}\n" SUMMED
#define SCALED    ", antiquant_scale=true"
#define OF_GROUPS ", antiquant_scale=true, antiquant_offset=true, antiquant_group_size=32"

static const struct expert_form {
    const char *name;
    bool one;           /* one tensor has all experts */
    ngd_dtype_t weight; /* NGD_F32: floats */
    bool bias, groups;
    const char *body;
} expert_forms[] = {
    {"list.bias", false, NGD_F32, true, false,
     " param %g : @[16,64]\n param %h : @[16,64]\n param %b : @[16]\n param %c : @[16]\n" PRODUCT(
         EIGHT("%g", "%h") ", " EIGHT("%b", "%c"), ", bias=true")},
    {"one.bias", true, NGD_F32, true, false,
     " param %g : @[8,16,64]\n param %b : @[8,16]\n" PRODUCT("%g, %b", ", bias=true")},
    {"list.i8", false, NGD_I8, false, false,
     " param %g : i8[16,64]\n param %h : i8[16,64]\n param %s : @[16,1]\n param %t : @[16,1]\n" PRODUCT(
         EIGHT("%g", "%h") ", " EIGHT("%s", "%t"), SCALED)},
    {"one.i8", true, NGD_I8, false, false,
     " param %g : i8[8,16,64]\n param %s : @[8,16,1]\n" PRODUCT("%g, %s", SCALED)},
    {"list.int4", false, NGD_I32, false, false,
     " param %g : i32[16,8]\n param %h : i32[16,8]\n param %s : @[16,1]\n param %t : @[16,1]\n" PRODUCT(
         EIGHT("%g", "%h") ", " EIGHT("%s", "%t"), SCALED)},
    {"one.int4", true, NGD_I32, false, false,
     " param %g : i32[8,16,8]\n param %s : @[8,16,1]\n" PRODUCT("%g, %s", SCALED)},
    {"list.int4.groups", false, NGD_I32, false, true,
     " param %g : i32[16,8]\n param %h : i32[16,8]\n param %s : @[16,2]\n param %t : @[16,2]\n param %o : @[16,2]\n "
     "param %q : "
     "@[16,2]\n" PRODUCT(EIGHT("%g", "%h") ", " EIGHT("%s", "%t") ", " EIGHT("%o", "%q"), OF_GROUPS)},
    {"one.int4.groups", true, NGD_I32, false, true,
     " param %g : i32[8,16,8]\n param %s : @[8,16,2]\n param %o : @[8,16,2]\n" PRODUCT("%g, %s, %o", OF_GROUPS)},
};

uint32_t ngd_ascend_number_of_experts(void)
{
    return LENGTH(expert_forms) * LENGTH(attention_dtypes);
}

void ngd_ascend_fill_experts(uint32_t i, struct ascend_question *q)
{
    q->op = NGD_OP_NPU_GROUPED_MATMUL;
    q->dtype = attention_dtypes[take_digit(&i, LENGTH(attention_dtypes))];
    q->form = expert_forms[i].name;
    q->body = expert_forms[i].body;
}

/* The dtype in which the product runs: op_experts.c has the same. */
static ngd_dtype_t dtype_of_form(const struct ngd_plan *plan, const struct ngd_plan_call *call, uint32_t scale)
{
    const ngd_dtype_t x = plan->tensors[call->in[0]].dtype;

    if (!scale)
        return plan->tensors[call->in[NGD_EXPERTS_FIRST]].dtype;
    return x != NGD_F32 ? x : plan->tensors[call->in[scale]].dtype == NGD_BF16 ? NGD_BF16 : NGD_F16;
}

uint32_t ngd_ascend_question_of_experts(const struct ngd_plan *plan, const struct ngd_plan_call *call)
{
    const bool bias = ngd_call_int(call, "bias") != 0, scaled = ngd_call_int(call, "antiquant_scale") != 0;
    const bool offset = ngd_call_int(call, "antiquant_offset") != 0;
    const struct ngd_expert_lists l = ngd_expert_lists(call->n_in, bias,
                                                       (scaled ? NGD_ANTIQUANT_BIT(NGD_ANTIQUANT_SCALE) : 0) |
                                                           (offset ? NGD_ANTIQUANT_BIT(NGD_ANTIQUANT_OFFSET) : 0));
    const struct ngd_plan_tensor *w = &plan->tensors[call->in[NGD_EXPERTS_FIRST]];
    const ngd_dtype_t dtype = dtype_of_form(plan, call, l.antiquant[NGD_ANTIQUANT_SCALE]);

    for (uint32_t f = 0; f < LENGTH(expert_forms); f++) {
        const struct expert_form *form = &expert_forms[f];

        if (form->one != (l.n == 1) || form->weight != (scaled ? w->dtype : NGD_F32) || (!scaled && !bias) ||
            form->groups != (ngd_call_int(call, "antiquant_group_size") > 0))
            continue;
        for (uint32_t d = 0; d < LENGTH(attention_dtypes); d++)
            if (attention_dtypes[d] == dtype)
                return ngd_ascend_question_first(ASCEND_TOPIC_EXPERTS) + f * LENGTH(attention_dtypes) + d;
    }
    return UINT32_MAX;
}

/* ---- the other topics ---------------------------------------------------------------------------- */

static const ngd_dtype_t halves[] = {NGD_F16, NGD_BF16};

#define ONE_QUESTION(function)                                             \
    uint32_t ngd_ascend_number_of_##function(void)                         \
    {                                                                      \
        return 1;                                                          \
    }                                                                      \
    void ngd_ascend_fill_##function(uint32_t i, struct ascend_question *q) \
    {                                                                      \
        (void)i;                                                           \
        (void)q;                                                           \
    }
ONE_QUESTION(open)
ONE_QUESTION(streams)
ONE_QUESTION(context)
ONE_QUESTION(captures)
ONE_QUESTION(release)
ONE_QUESTION(update)

uint32_t ngd_ascend_number_of_slot(void)
{
    return LENGTH(halves);
}

void ngd_ascend_fill_slot(uint32_t i, struct ascend_question *q)
{
    q->op = NGD_OP_NPU_SCATTER_PA_KV_CACHE;
    q->dtype = halves[i];
}

static const struct {
    ngd_op_id_t op;
    ngd_dtype_t dtype;
    const char *body; /* '#' stands for the rows */
} pieces[] = {
    {NGD_OP_ATEN_ADD_TENSOR, NGD_F32, " input %x : @[#,128]\n %y = $(%x, %x)\n return \"y\" = %y\n"},
    {NGD_OP_ATEN_CLONE, NGD_F32, " input %x : @[#,128]\n %y = $(%x)\n return \"y\" = %y\n"},
    {NGD_OP_ATEN_MM, NGD_F16, " input %w : @[128,8]\n input %x : @[#,128]\n %y = $(%x, %w)\n return \"y\" = %y\n"},
};

uint32_t ngd_ascend_number_of_pieces(void)
{
    return LENGTH(pieces);
}

void ngd_ascend_fill_pieces(uint32_t i, struct ascend_question *q)
{
    q->op = pieces[i].op;
    q->dtype = pieces[i].dtype;
    q->body = pieces[i].body;
}

/* Of whole blocks of 16 rows and columns, and not. */
static const int64_t weight_columns[] = {32, 40};

static const struct {
    ngd_op_id_t op;
    const char *body; /* '#' stands for the columns */
} products[] = {
    {NGD_OP_ATEN_MM, " param %w : @[#,48]\n input %x : @[4,#]\n %y = $(%x, %w)\n return \"y\" = %y\n"},
    {NGD_OP_ATEN_LINEAR, " param %w : @[48,#]\n input %x : @[4,#]\n %y = $(%x, %w)\n return \"y\" = %y\n"},
};

uint32_t ngd_ascend_number_of_nz(void)
{
    return LENGTH(products) * LENGTH(halves) * LENGTH(weight_columns);
}

void ngd_ascend_fill_nz(uint32_t i, struct ascend_question *q)
{
    q->nz = true;
    q->columns = weight_columns[take_digit(&i, LENGTH(weight_columns))];
    q->dtype = halves[take_digit(&i, LENGTH(halves))];
    q->op = products[i].op;
    q->body = products[i].body;
}

/* ---- the list ------------------------------------------------------------------------------------ */

uint32_t ngd_ascend_question_first(ascend_topic_t topic)
{
    uint32_t n = 0;

    for (int t = 0; t < (int)topic; t++)
        n += topics[t].count();
    return n;
}

uint32_t ngd_ascend_question_count(void)
{
    return ngd_ascend_question_first(ASCEND_TOPIC_MAX);
}

void ngd_ascend_question(uint32_t i, struct ascend_question *q_p)
{
    int t = 0;

    while (t < ASCEND_TOPIC_MAX - 1 && i >= topics[t].count())
        i -= topics[t++].count();
    *q_p = (struct ascend_question){.topic = (ascend_topic_t)t, .op = NGD_OP_MAX, .way = ASCEND_WAY_MAX};
    topics[t].fill(i, q_p);
    q_p->process += (uint32_t)t << 16;
}

static const char *attention_layout_of(enum ascend_way way)
{
    return way == ASCEND_WAY_ROWS ? "BSH rows=one" : way == ASCEND_WAY_PREFILL ? "BSH rows=many" : "TND rows=many";
}

void ngd_ascend_question_print(const struct ascend_question *q, char text[ASCEND_QUESTION_TEXT])
{
    const char *name = topics[q->topic].name;

    if (q->topic == ASCEND_TOPIC_ATTENTION)
        snprintf(text, ASCEND_QUESTION_TEXT,
                 "%s layout=%s dtype=%s d=%" PRId64 " block=%" PRId64 " queries=%" PRId64 " keys=%s", name,
                 attention_layout_of(q->way), ngd_dtype_name(q->dtype), q->d, q->block, q->queries,
                 q->full ? "full" : "few");
    else if (q->topic == ASCEND_TOPIC_LATENT)
        snprintf(text, ASCEND_QUESTION_TEXT, "%s layout=%s dtype=%s block=%" PRId64 " heads=%" PRId64 " keys=%s", name,
                 attention_layout_of(q->way), ngd_dtype_name(q->dtype), q->block, q->queries, q->full ? "full" : "few");
    else if (q->form)
        snprintf(text, ASCEND_QUESTION_TEXT, "%s form=%s dtype=%s", name, q->form, ngd_dtype_name(q->dtype));
    else if (q->columns)
        snprintf(text, ASCEND_QUESTION_TEXT, "%s name=%s dtype=%s columns=%" PRId64, name, ngd_op_by_id(q->op)->name,
                 ngd_dtype_name(q->dtype), q->columns);
    else if (q->op != NGD_OP_MAX)
        snprintf(text, ASCEND_QUESTION_TEXT, "%s name=%s dtype=%s", name, ngd_op_by_id(q->op)->name,
                 ngd_dtype_name(q->dtype));
    else
        snprintf(text, ASCEND_QUESTION_TEXT, "%s", name);
}
