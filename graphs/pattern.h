/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_GRAPHS_PATTERN_H
#define NGD_GRAPHS_PATTERN_H

/*
 * Fusion patterns: data that says which part of a graph may be replaced by what (docs/patterns.md has the text form).
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
 * A part matches when operators, operands, attributes and types agree, and what the source does not return is used by
 * nobody else. Dimensions may be expressions over bucketed symbols; they are equal when they are for all values.
 *
 * A pattern is refused when it has a cycle, an unbound dimension or scalar, or a replacement that differs from the
 * source in type, aliases an input, or writes other states. That is found by trying both sides on sample types.
 * Immutable, reference counted.
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
    NGD_PATTERN_EARLY, /* before linears of one operand are merged */
    NGD_PATTERN_LATE,
    NGD_PATTERN_CUSTOM, /* only where an option names it */
    NGD_PATTERN_FIRST,  /* before the others: what is written out in smaller operators becomes the operator */
} ngd_pattern_phase_t;

struct ngd_pattern_dim {
    char name[NGD_PATTERN_MAX_NAME];
    int64_t min, max, multiple;
    ngd_dim_t dim; /* in the pattern's expressions */
};

struct ngd_pattern_dtype {
    char name[NGD_PATTERN_MAX_NAME];
    uint32_t allowed; /* bit per dtype */
    uint32_t excess;  /* of those, where the source rounds what the replacement does not: allow_excess_precision */
};

struct ngd_pattern_value {
    char name[NGD_PATTERN_MAX_NAME];
    bool is_input;
    uint32_t classes;   /* inputs: bit per ngd_value_class_t that may stand here */
    bool typed, prefix; /* prefix: any dimensions may come before those given */
    int dtype;          /* variable, or -1 - dtype */
    uint32_t rank;
    ngd_dim_t dims[NGD_MAX_RANK];
    uint32_t node, result; /* results */
    uint32_t n_uses;       /* by nodes of the source */
    bool returned;
};

typedef enum ngd_pattern_attr_kind {
    NGD_PATTERN_ATTR_DEFAULT, /* source: must have its default; replacement: has it */
    NGD_PATTERN_ATTR_GIVEN,   /* value, with dimension expressions of the pattern */
    NGD_PATTERN_ATTR_FLOAT,   /* float variable `variable` */
    NGD_PATTERN_ATTR_DTYPE,   /* dtype variable */
    NGD_PATTERN_ATTR_ANY,     /* source: whatever it is */
} ngd_pattern_attr_kind_t;

struct ngd_pattern_attr {
    ngd_pattern_attr_kind_t kind;
    int variable;
    double tolerance; /* of a given float: relative */
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
    char *doc, *text;         /* text: of this pattern alone */
    struct ngd_digest digest; /* of the text */
    struct ngd_expr_table *exprs;
    uint32_t n_dims, n_dtypes, n_floats, n_wheres, n_values;
    struct ngd_pattern_dim dims[NGD_PATTERN_MAX_DIMS];
    struct ngd_pattern_dtype dtypes[NGD_PATTERN_MAX_DTYPES];
    char floats[NGD_PATTERN_MAX_FLOATS][NGD_PATTERN_MAX_NAME];
    struct ngd_pattern_where wheres[NGD_PATTERN_MAX_WHERES];
    struct ngd_pattern_value values[NGD_PATTERN_MAX_VALUES];
    struct ngd_pattern_side source, replacement;
    /* The order in which the source's nodes are looked for; the first is the anchor. */
    uint32_t order[NGD_PATTERN_MAX_NODES];
    struct ngd_arena *arena;
    int refs;
};

/* Text of one pattern or more -> a list of them, in order. Checked as a whole: all or none. */
ngd_status_t ngd_patterns_parse(const char *text, size_t n, struct ngd_pattern **patterns, uint32_t max, uint32_t *n_p,
                                struct ngd_diag *diag);
/* The same for a text that a test has checked: without trying the patterns on sample types. */
ngd_status_t ngd_patterns_parse_trusted(const char *text, size_t n, struct ngd_pattern **patterns, uint32_t max,
                                        uint32_t *n_p, struct ngd_diag *diag);
/* What the parser cannot see; samples: tries both sides on sample types. */
ngd_status_t ngd_pattern_check(struct ngd_pattern *p, bool samples, struct ngd_diag *diag);
struct ngd_pattern *ngd_pattern_ref(struct ngd_pattern *p);
struct ngd_pattern *ngd_pattern_unref(struct ngd_pattern *p); /* returns NULL; NULL is fine */
const char *ngd_pattern_phase_name(ngd_pattern_phase_t phase);

/* ---- the sets that graphs are rewritten with ---- */

/* Immutable once it is used; reference counted. Order: priority. */
struct ngd_pattern_set {
    uint32_t n, cap;
    struct ngd_pattern **patterns;
    struct ngd_digest digest; /* of all of them, in order */
    int refs;
};
/* Those that are built in; the same object at each call, with a reference for the caller. NULL: no memory. */
struct ngd_pattern_set *ngd_pattern_set_builtin(void);
const char *ngd_patterns_builtin_text(void);
ngd_status_t ngd_pattern_set_create(struct ngd_pattern_set **set_p);
/* Takes a reference on p; before the set is shared. */
ngd_status_t ngd_pattern_set_add(struct ngd_pattern_set *set, struct ngd_pattern *p);
/* NOT_FOUND names the first of these, separated by commas, that the set lacks. */
ngd_status_t ngd_pattern_set_check(const struct ngd_pattern_set *set, const char *names, struct ngd_diag *diag);
struct ngd_pattern_set *ngd_pattern_set_ref(struct ngd_pattern_set *set);
struct ngd_pattern_set *ngd_pattern_set_unref(struct ngd_pattern_set *set); /* returns NULL; NULL is fine */

#endif
