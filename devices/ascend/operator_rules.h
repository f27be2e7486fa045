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

#define NGD_OPERATOR_OPERANDS 8 /* the rules look at no more of them */

struct ngd_operator_tensor {
    bool present;
    int dtype;
    uint32_t rank;
    const int64_t *dims; /* borrowed */
};

/* One call. Operands beyond n are absent. */
struct ngd_operator_case {
    const char *function; /* without "aclnn" */
    uint32_t n;
    struct ngd_operator_tensor t[NGD_OPERATOR_OPERANDS];
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
                                {NGD_ACL_BOOL, "bool"}};

#define SELF      (1u << 0)
#define OTHER     (1u << 1)
#define OUT1      (1u << 1)
#define THIRD     (1u << 2)
#define FOURTH    (1u << 3)
#define FIFTH     (1u << 4)
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
#undef BOTH
#undef CONDITION
#undef F32
#undef F16
#undef BF16
#undef F64
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
#define HAS(i)      (o->t[i].present)
#define DTYPE(i)    (o->t[i].dtype)
#define RANK(i)     (o->t[i].rank)
#define DIM(i, k)   ngd_operator_dim(o, i, k)
#define LAST(i)     ngd_operator_last(o, i)
#define ELEMENTS(i) ngd_operator_elements(o, i)
#define SIZE(i)     ngd_operator_size(o->t[i].dtype)
#define is_prefix   ngd_operator_is_prefix
#define are_alike   ngd_operator_are_alike
#define ends_with   ngd_operator_ends_with
#define is_rows_of  ngd_operator_is_rows_of
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
    return ngd_operator_breaks_dtypes(o, chip, refusal);
}

#undef ON_910B
#undef ON_910C
#undef ON_910
#undef ON_950
#undef ON_310P
#undef ON_ALL

#endif
