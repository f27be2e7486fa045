/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DEVICES_ASCEND_OPERATOR_RULES_H
#define NGD_DEVICES_ASCEND_OPERATOR_RULES_H

/*
 * Which operands CANN's operators take: operator_rules.def, evaluated. The backend and the simulator include it in one
 * source each (rules.c, sim_rules.c). Pure functions, without memory of their own. A chip or a function without a row
 * is refused nothing.
 */
#include "devices/ascend/acl_abi.h"
#include "devices/ascend/chips.h"
#include <stdio.h>

#define NGD_OPERATOR_OPERANDS   8 /* the rules look at no more of them */
#define NGD_OPERATOR_ATTRIBUTES 5

/* A tensor, or the first one of a list. Of i4, dims and strides count half bytes. */
struct ngd_operator_tensor {
    bool present;
    int dtype;
    uint32_t rank;
    const int64_t *dims, *strides; /* borrowed; strides NULL: contiguous */
    uint32_t length;               /* of the list; 0: it is none */
    bool mixed;                    /* the list's tensors differ in dtype, shape or strides */
};

/* One call. Operands beyond n are absent. */
struct ngd_operator_case {
    const char *function; /* without "aclnn" */
    uint32_t n;
    struct ngd_operator_tensor t[NGD_OPERATOR_OPERANDS];
    int64_t
        attribute[NGD_OPERATOR_ATTRIBUTES]; /* integers, in the order of the first phase, where rules are about them */
};

struct ngd_operator_refusal {
    int code;
    const char *source;
    char text[240];
};

struct ngd_operator_dtypes {
    const char *function;
    uint32_t operands, chips, dtypes; /* bits; of dtypes as aclDataType numbers them */
    const char *source;
};

static const struct {
    int dtype;
    const char *name;
} ngd_operator_dtype_names[] = {{NGD_ACL_FLOAT, "float32"}, {NGD_ACL_FLOAT16, "float16"}, {NGD_ACL_BF16, "bfloat16"},
                                {NGD_ACL_DOUBLE, "double"}, {NGD_ACL_INT8, "int8"},       {NGD_ACL_UINT8, "uint8"},
                                {NGD_ACL_INT16, "int16"},   {NGD_ACL_UINT16, "uint16"},   {NGD_ACL_INT32, "int32"},
                                {NGD_ACL_UINT32, "uint32"}, {NGD_ACL_INT64, "int64"},     {NGD_ACL_UINT64, "uint64"},
                                {NGD_ACL_BOOL, "bool"},     {NGD_ACL_INT4, "int4"}};

#define SELF      (1u << 0)
#define OTHER     (1u << 1)
#define OUT1      (1u << 1)
#define THIRD     (1u << 2)
#define FOURTH    (1u << 3)
#define FIFTH     (1u << 4)
#define SIXTH     (1u << 5)
#define SEVENTH   (1u << 6)
#define EIGHTH    (1u << 7)
#define BOTH      (SELF | OTHER)
#define CONDITION SELF
#define ON_910B   (1u << NGD_CHIP_910B)
#define ON_910C   (1u << NGD_CHIP_910C)
#define ON_910    (ON_910B | ON_910C)
#define ON_950    (1u << NGD_CHIP_950 | 1u << NGD_CHIP_910_95)
#define ON_310P   (1u << NGD_CHIP_310P)
#define ON_ALL    (ON_910 | ON_950 | ON_310P)
#define F32       (1u << NGD_ACL_FLOAT)
#define F16       (1u << NGD_ACL_FLOAT16)
#define BF16      (1u << NGD_ACL_BF16)
#define F64       (1u << NGD_ACL_DOUBLE)
#define I4        (1u << NGD_ACL_INT4)
#define I8        (1u << NGD_ACL_INT8)
#define U8        (1u << NGD_ACL_UINT8)
#define I16       (1u << NGD_ACL_INT16)
#define U16       (1u << NGD_ACL_UINT16)
#define I32       (1u << NGD_ACL_INT32)
#define U32       (1u << NGD_ACL_UINT32)
#define I64       (1u << NGD_ACL_INT64)
#define U64       (1u << NGD_ACL_UINT64)
#define BOOL      (1u << NGD_ACL_BOOL)
static const struct ngd_operator_dtypes ngd_operator_dtype_rows[] = {
#define NGD_OPERATOR_RULE(function, name, chips, code, holds, text, source)
#define NGD_OPERATOR_DTYPES(function, operands, chips, dtypes, source) {#function, operands, chips, dtypes, source},
#include "devices/ascend/operator_rules.def"
#undef NGD_OPERATOR_DTYPES
#undef NGD_OPERATOR_RULE
};
#undef SELF
#undef OTHER
#undef OUT1
#undef THIRD
#undef FOURTH
#undef FIFTH
#undef SIXTH
#undef SEVENTH
#undef EIGHTH
#undef BOTH
#undef CONDITION
#undef F32
#undef F16
#undef BF16
#undef F64
#undef I4
#undef I8
#undef U8
#undef I16
#undef U16
#undef I32
#undef U32
#undef I64
#undef U64
#undef BOOL

/* The row that refuses the dtype; NULL: the operand may have it. */
static inline const struct ngd_operator_dtypes *ngd_operator_dtype_refusal(const char *function, uint32_t operand,
                                                                           int dtype, ngd_chip_t chip)
{
    for (size_t i = 0; i < sizeof(ngd_operator_dtype_rows) / sizeof(ngd_operator_dtype_rows[0]); i++) {
        const struct ngd_operator_dtypes *row = &ngd_operator_dtype_rows[i];

        if ((row->operands >> operand & 1) && (row->chips >> chip & 1) && !(row->dtypes >> dtype & 1) &&
            strcmp(row->function, function) == 0)
            return row;
    }
    return NULL;
}

static inline const char *ngd_operator_dtype_name(int dtype)
{
    for (size_t i = 0; i < sizeof(ngd_operator_dtype_names) / sizeof(ngd_operator_dtype_names[0]); i++)
        if (ngd_operator_dtype_names[i].dtype == dtype)
            return ngd_operator_dtype_names[i].name;
    return "another dtype";
}

/* "operand 0 is bool; on 910B (A2) it is float32, int32" */
static inline void ngd_operator_explain(const struct ngd_operator_dtypes *row, uint32_t operand, int dtype,
                                        ngd_chip_t chip, struct ngd_operator_refusal *refusal)
{
    size_t room = sizeof(refusal->text), at = 0;
    const char *separator = "";
    int n = snprintf(refusal->text, room, "operand %u is %s; on %s it is ", (unsigned)operand,
                     ngd_operator_dtype_name(dtype), ngd_chip_info(chip)->name);

    at = n < 0 ? 0 : (size_t)n;
    for (size_t i = 0; i < sizeof(ngd_operator_dtype_names) / sizeof(ngd_operator_dtype_names[0]) && at < room; i++) {
        if (!(row->dtypes >> ngd_operator_dtype_names[i].dtype & 1))
            continue;
        n = snprintf(refusal->text + at, room - at, "%s%s", separator, ngd_operator_dtype_names[i].name);
        at += n < 0 ? 0 : (size_t)n;
        separator = ", ";
    }
    refusal->code = NGD_ACL_NN_PARAM_INVALID;
    refusal->source = row->source;
}

/* ---- for the expressions of rules ----------------------------------------------------------------------- */

static inline int64_t ngd_operator_dim(const struct ngd_operator_case *o, uint32_t operand, uint32_t dim)
{
    return dim < o->t[operand].rank ? o->t[operand].dims[dim] : 0;
}

static inline int64_t ngd_operator_last(const struct ngd_operator_case *o, uint32_t operand)
{
    return o->t[operand].rank ? o->t[operand].dims[o->t[operand].rank - 1] : 0;
}

static inline int64_t ngd_operator_elements(const struct ngd_operator_case *o, uint32_t operand)
{
    int64_t n = 1;

    for (uint32_t i = 0; i < o->t[operand].rank; i++)
        n *= o->t[operand].dims[i];
    return n;
}

static inline int64_t ngd_operator_size(int dtype)
{
    switch (dtype) {
    case NGD_ACL_INT8:
    case NGD_ACL_UINT8:
    case NGD_ACL_BOOL:
        return 1;
    case NGD_ACL_FLOAT16:
    case NGD_ACL_BF16:
    case NGD_ACL_INT16:
    case NGD_ACL_UINT16:
        return 2;
    case NGD_ACL_FLOAT:
    case NGD_ACL_INT32:
    case NGD_ACL_UINT32:
        return 4;
    default:
        return 8;
    }
}

/* The first dimensions of b are those of a. */
static inline bool ngd_operator_is_prefix(const struct ngd_operator_case *o, uint32_t a, uint32_t b)
{
    for (uint32_t i = 0; i < o->t[a].rank; i++)
        if (i >= o->t[b].rank || o->t[a].dims[i] != o->t[b].dims[i])
            return false;
    return true;
}

static inline bool ngd_operator_are_alike(const struct ngd_operator_case *o, uint32_t a, uint32_t b)
{
    return o->t[a].rank == o->t[b].rank && ngd_operator_is_prefix(o, a, b);
}

/* The last dimensions of a are those of b. */
static inline bool ngd_operator_ends_with(const struct ngd_operator_case *o, uint32_t a, uint32_t b)
{
    const uint32_t n = o->t[a].rank, m = o->t[b].rank;

    for (uint32_t i = 0; i < m; i++)
        if (m > n || o->t[a].dims[n - m + i] != o->t[b].dims[i])
            return false;
    return true;
}

/* The last two dimensions lie in memory in the other order (Ops::NN::IsTransposeLastTwoDims). */
static inline bool ngd_operator_is_transposed(const struct ngd_operator_case *o, uint32_t i)
{
    const struct ngd_operator_tensor *t = &o->t[i];
    const uint32_t n = t->rank;
    int64_t step;

    if (n < 2 || !t->strides || t->strides[n - 2] != 1 || t->strides[n - 1] != t->dims[n - 2] ||
        (t->dims[n - 2] == 1 && t->dims[n - 1] == 1))
        return false;
    step = t->dims[n - 2] * t->dims[n - 1];
    for (uint32_t d = n - 2; d-- > 0; step *= t->dims[d])
        if (t->strides[d] != step)
            return false;
    return true;
}

static inline bool ngd_operator_is_contiguous(const struct ngd_operator_case *o, uint32_t i)
{
    int64_t step = 1;

    for (uint32_t d = o->t[i].rank; o->t[i].strides && d-- > 0; step *= o->t[i].dims[d])
        if (o->t[i].dims[d] != 1 && o->t[i].strides[d] != step)
            return false;
    return true;
}

/* A bias of n columns: [n] or [1, n]. */
static inline bool ngd_operator_is_row(const struct ngd_operator_case *o, uint32_t i, int64_t n)
{
    return ngd_operator_last(o, i) == n && (o->t[i].rank == 1 || (o->t[i].rank == 2 && o->t[i].dims[0] == 1));
}

/* A scale for all of k rows and n columns, for each column, or for each group of rows and column. */
static inline bool ngd_operator_is_scale(const struct ngd_operator_case *o, uint32_t i, int64_t k, int64_t n,
                                         int64_t group)
{
    const struct ngd_operator_tensor *t = &o->t[i];

    if (group > 0)
        return t->rank == 2 && t->dims[0] == (k + group - 1) / group && t->dims[1] == n;
    return ngd_operator_is_row(o, i, n) || ngd_operator_is_row(o, i, 1);
}

/* Each dimension of a is 1 or that of b. */
static inline bool ngd_operator_is_rows_of(const struct ngd_operator_case *o, uint32_t a, uint32_t b)
{
    for (uint32_t i = 0; i < o->t[a].rank; i++)
        if (o->t[a].dims[i] != 1 && o->t[a].dims[i] != ngd_operator_dim(o, b, i))
            return false;
    return true;
}

/* ---- one call ------------------------------------------------------------------------------------------- */

static inline bool ngd_operator_breaks_dtypes(const struct ngd_operator_case *o, ngd_chip_t chip,
                                              struct ngd_operator_refusal *refusal)
{
    for (uint32_t i = 0; i < NGD_OPERATOR_OPERANDS && i < o->n; i++) {
        const struct ngd_operator_dtypes *row =
            o->t[i].present ? ngd_operator_dtype_refusal(o->function, i, o->t[i].dtype, chip) : NULL;

        if (row) {
            ngd_operator_explain(row, i, o->t[i].dtype, chip, refusal);
            return true;
        }
    }
    return false;
}

/* Says which rule refuses the call; false: none does. */
static inline bool ngd_operator_refuses(const struct ngd_operator_case *o, ngd_chip_t chip, int cann,
                                        struct ngd_operator_refusal *refusal)
{
    (void)cann;
#define HAS(i)        (o->t[i].present)
#define DTYPE(i)      (o->t[i].dtype)
#define RANK(i)       (o->t[i].rank)
#define DIM(i, k)     ngd_operator_dim(o, i, k)
#define LAST(i)       ngd_operator_last(o, i)
#define ELEMENTS(i)   ngd_operator_elements(o, i)
#define SIZE(i)       ngd_operator_size(o->t[i].dtype)
#define is_prefix     ngd_operator_is_prefix
#define are_alike     ngd_operator_are_alike
#define ends_with     ngd_operator_ends_with
#define is_rows_of    ngd_operator_is_rows_of
#define is_transposed ngd_operator_is_transposed
#define is_contiguous ngd_operator_is_contiguous
#define is_row        ngd_operator_is_row
#define is_scale      ngd_operator_is_scale
#define LENGTH(i)     (o->t[i].length)
#define MIXED(i)      (o->t[i].mixed)
#define ATTRIBUTE(i)  (o->attribute[i])
#define NGD_OPERATOR_DTYPES(f, o, c, d, s)
#define NGD_OPERATOR_RULE(function_, name_, chips_, code_, holds_, text_, source_)                                     \
    if (((chips_) >> chip & 1) && strcmp(o->function, #function_) == 0 && !(holds_)) {                                 \
        refusal->code = NGD_ACL_NN_##code_;                                                                            \
        refusal->source = source_;                                                                                     \
        snprintf(refusal->text, sizeof(refusal->text), "rule %s on %s: %s", #name_, ngd_chip_info(chip)->name, text_); \
        return true;                                                                                                   \
    }
#include "devices/ascend/operator_rules.def"
#undef NGD_OPERATOR_RULE
#undef NGD_OPERATOR_DTYPES
#undef HAS
#undef DTYPE
#undef RANK
#undef DIM
#undef LAST
#undef ELEMENTS
#undef SIZE
#undef is_prefix
#undef are_alike
#undef ends_with
#undef is_rows_of
#undef is_transposed
#undef is_contiguous
#undef is_row
#undef is_scale
#undef LENGTH
#undef MIXED
#undef ATTRIBUTE
    return ngd_operator_breaks_dtypes(o, chip, refusal);
}

#undef ON_910B
#undef ON_910C
#undef ON_910
#undef ON_950
#undef ON_310P
#undef ON_ALL

#endif
