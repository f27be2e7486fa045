/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_GRAPHS_PATTERN_H
#define NGD_GRAPHS_PATTERN_H

/*
 * Fusion patterns: each says which part of a graph may be replaced, and by what. docs/patterns.md has the text form.
 *
 *     pattern "add_rms_norm" {
 *       version 1
 *       dim D
 *       dtype X = f32 | f16 | bf16
 *       dtype G = f32 | f16 | bf16
 *       float eps
 *       input %a : X[*,D]
 *       input %b : X[*,D]
 *       input %gamma : G[D]
 *       source {
 *         %x = aten.add.Tensor(%a, %b)
 *         %y, %rstd = npu.rms_norm(%x, %gamma) {epsilon=eps}
 *         return %y, %rstd, %x
 *       }
 *       replacement {
 *         %y, %rstd, %x = npu.add_rms_norm(%a, %b, %gamma) {epsilon=eps}
 *         return %y, %rstd, %x
 *       }
 *     }
 *
 * A part of a graph matches if its operators, operands, attributes and types agree with the source, and no other node
 * uses a value that the source does not return. Dimensions may be expressions over bucketed symbols; two are equal if
 * they are equal for all values.
 *
 * A pattern is refused if it has a cycle, or an unbound dimension or scalar. It is also refused if the replacement
 * differs from the source in type, aliases an input, or writes other states; trying both sides on sample types shows
 * this. Immutable, reference counted.
 */
#include "base/digest.h"
#include "graphs/graph.h"

#define NGD_PATTERN_MAX_NODES  32
#define NGD_PATTERN_MAX_VALUES 96
#define NGD_PATTERN_MAX_IN     24 /* operands of a node */
#define NGD_PATTERN_MAX_OUT    8  /* results of a node */
#define NGD_PATTERN_MAX_DIMS   16
#define NGD_PATTERN_MAX_DTYPES 6
#define NGD_PATTERN_MAX_FLOATS 6
#define NGD_PATTERN_MAX_WHERES 16
#define NGD_PATTERN_MAX_NAME   64 /* with the terminator */
#define NGD_PATTERN_MAX_TEXT   (64u << 10)
#define NGD_PATTERN_DIM_MAX    1048576
#define NGD_PATTERN_NONE       UINT32_MAX

typedef enum ngd_pattern_phase {
    NGD_PATTERN_EARLY, /* before the linears that share an operand are merged */
    NGD_PATTERN_LATE,
    NGD_PATTERN_CUSTOM, /* only if an option names it */
    NGD_PATTERN_FIRST,  /* before the others: makes one operator of several smaller ones that spell it out */
} ngd_pattern_phase_t;

struct ngd_pattern_dim {
    char name[NGD_PATTERN_MAX_NAME];
    int64_t min, max, multiple;
    ngd_dim_t dim; /* its symbol in the pattern's expressions */
};

struct ngd_pattern_dtype {
    char name[NGD_PATTERN_MAX_NAME];
    uint32_t allowed; /* bit per dtype */
    uint32_t excess;  /* bit per allowed dtype for which the replacement rounds less: allow_excess_precision */
};

struct ngd_pattern_value {
    char name[NGD_PATTERN_MAX_NAME];
    bool is_input;
    uint32_t classes;   /* inputs: bit per ngd_value_class_t that matches */
    bool typed, prefix; /* prefix: any dimensions may precede the given ones */
    int dtype;          /* variable, or -1 - dtype */
    uint32_t rank;
    ngd_dim_t dims[NGD_MAX_RANK];
    uint32_t node, result; /* results: the node, and which of its results */
    uint32_t n_uses;       /* uses by nodes of the source */
    bool returned;
};

typedef enum ngd_pattern_attr_kind {
    NGD_PATTERN_ATTR_DEFAULT, /* source: must have its default; replacement: has it */
    NGD_PATTERN_ATTR_GIVEN,   /* value, with dimension expressions of the pattern */
    NGD_PATTERN_ATTR_FLOAT,   /* float variable `variable` */
    NGD_PATTERN_ATTR_DTYPE,   /* dtype variable */
    NGD_PATTERN_ATTR_ANY,     /* source: any value */
} ngd_pattern_attr_kind_t;

struct ngd_pattern_attr {
    ngd_pattern_attr_kind_t kind;
    int variable;
    double tolerance; /* relative; for a given float */
    struct ngd_attr_value value;
};

struct ngd_pattern_node {
    const struct ngd_op *op;
    uint32_t n_in, n_out;
    uint32_t in[NGD_PATTERN_MAX_IN]; /* values of the pattern; NGD_PATTERN_NONE for `none` */
    uint32_t out[NGD_PATTERN_MAX_OUT];
    struct ngd_pattern_attr attrs[NGD_OP_MAX_ATTRS];
};

struct ngd_pattern_side {
    uint32_t n_nodes, n_returns;
    struct ngd_pattern_node nodes[NGD_PATTERN_MAX_NODES];
    uint32_t returns[NGD_PATTERN_MAX_OUT];
};

typedef enum ngd_pattern_compare {
    NGD_PATTERN_EQ,
    NGD_PATTERN_NE,
    NGD_PATTERN_LT,
    NGD_PATTERN_LE,
    NGD_PATTERN_GT,
    NGD_PATTERN_GE
} ngd_pattern_compare_t;

static inline bool ngd_pattern_compare(ngd_pattern_compare_t c, int64_t a, int64_t b)
{
    switch (c) {
    case NGD_PATTERN_EQ:
        return a == b;
    case NGD_PATTERN_NE:
        return a != b;
    case NGD_PATTERN_LT:
        return a < b;
    case NGD_PATTERN_LE:
        return a <= b;
    case NGD_PATTERN_GT:
        return a > b;
    case NGD_PATTERN_GE:
        return a >= b;
    }
    return false;
}

struct ngd_pattern_where {
    ngd_pattern_compare_t compare;
    int variable; /* float variable, or -1: dimensions */
    ngd_dim_t a, b;
    double value, tolerance;
};

struct ngd_pattern {
    char name[NGD_PATTERN_MAX_NAME];
    uint32_t version;
    ngd_pattern_phase_t phase;
    char *doc, *text;         /* text: only this pattern's part */
    struct ngd_digest digest; /* of the text */
    struct ngd_expr_table *exprs;
    uint32_t n_dims, n_dtypes, n_floats, n_wheres, n_values;
    struct ngd_pattern_dim dims[NGD_PATTERN_MAX_DIMS];
    struct ngd_pattern_dtype dtypes[NGD_PATTERN_MAX_DTYPES];
    char floats[NGD_PATTERN_MAX_FLOATS][NGD_PATTERN_MAX_NAME];
    struct ngd_pattern_where wheres[NGD_PATTERN_MAX_WHERES];
    struct ngd_pattern_value values[NGD_PATTERN_MAX_VALUES];
    struct ngd_pattern_side source, replacement;
    /* The order in which the source's nodes are matched; the first is the anchor. */
    uint32_t order[NGD_PATTERN_MAX_NODES];
    struct ngd_arena *arena;
    int refs;
};

/* Parses a text of one or more patterns into a list, in order. If one is refused, all are. */
ngd_status_t ngd_patterns_parse(const char *text, size_t n, struct ngd_pattern **patterns, uint32_t max, uint32_t *n_p,
                                struct ngd_diag *diag);
/* Parses a text that a test has checked, without trying the patterns on sample types. */
ngd_status_t ngd_patterns_parse_trusted(const char *text, size_t n, struct ngd_pattern **patterns, uint32_t max,
                                        uint32_t *n_p, struct ngd_diag *diag);
/* Checks what the parser cannot. samples: also tries both sides on sample types. */
ngd_status_t ngd_pattern_check(struct ngd_pattern *p, bool samples, struct ngd_diag *diag);
struct ngd_pattern *ngd_pattern_ref(struct ngd_pattern *p);
struct ngd_pattern *ngd_pattern_unref(struct ngd_pattern *p); /* returns NULL; NULL is fine */
const char *ngd_pattern_phase_name(ngd_pattern_phase_t phase);

/* ---- sets of patterns ---- */
/* A set that graphs are rewritten with; the first pattern has priority. Immutable once shared; reference counted. */
struct ngd_pattern_set {
    uint32_t n, cap;
    struct ngd_pattern **patterns;
    struct ngd_digest digest; /* of all patterns, in order */
    int refs;
};
/* Returns the set of built-in patterns: the same object at each call, with a reference for the caller. NULL:
 * no memory. */
struct ngd_pattern_set *ngd_pattern_set_builtin(void);
const char *ngd_patterns_builtin_text(void);
ngd_status_t ngd_pattern_set_create(struct ngd_pattern_set **set_p);
/* Adds p, and takes a reference on it. Only before the set is shared. */
ngd_status_t ngd_pattern_set_add(struct ngd_pattern_set *set, struct ngd_pattern *p);
/* Checks that the set has all patterns in `names`, separated by commas. NOT_FOUND names the first missing one. */
ngd_status_t ngd_pattern_set_check(const struct ngd_pattern_set *set, const char *names, struct ngd_diag *diag);
struct ngd_pattern_set *ngd_pattern_set_ref(struct ngd_pattern_set *set);
struct ngd_pattern_set *ngd_pattern_set_unref(struct ngd_pattern_set *set); /* returns NULL; NULL is fine */

#endif
