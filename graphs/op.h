/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_GRAPHS_OP_H
#define NGD_GRAPHS_OP_H

/*
 * The operator table (ops.def): one row describes one operator.
 *
 * Names and semantics are those of PyTorch's core ATen operators ("aten.add.Tensor") and of Ascend's
 * fused ones ("npu.rms_norm"). Operands are tensors (or host parameters where the row says so), in the
 * order of the schema; everything else is a named attribute, typed by the row's attribute schema:
 *
 *     "dim:int keepdim:bool=false eps:float=1e-06 dims:ints dtype:dtype approximate:str=none"
 *
 * An attribute without a default is required. int and ints may be symbolic (dimension expressions).
 * Threads: the table is constant after ngd_op_table_init().
 */
#include "base/digest.h"
#include "base/dtype.h"
#include "base/status.h"
#include <stdint.h>

struct ngd_graph;
struct ngd_node;

typedef enum ngd_op_id {
#define NGD_OP(ID, name, min_in, max_in, n_out, shape, rows, flags, mutates, host, attrs, doc) NGD_OP_##ID,
#include "graphs/ops.def"
#undef NGD_OP
    NGD_OP_MAX
} ngd_op_id_t;

typedef enum ngd_op_flags {
    NGD_OPF_ELEMENTWISE = 1 << 0, /* result element i depends on operands' (broadcast) element i only */
    NGD_OPF_VIEW = 1 << 1,        /* result may alias operand 0: no data moves when strides allow it */
    NGD_OPF_RANDOM = 1 << 2,      /* hidden generator state: refused at registration */
    NGD_OPF_SYNC = 1 << 3,        /* the host waits for the device: refused */
    NGD_OPF_DATA_SHAPE = 1 << 4,  /* result shape depends on data: refused */
    NGD_OPF_COMMUTES = 1 << 5,
    NGD_OPF_IDENTITY = 1 << 6, /* result equals operand 0 when types are equal */
    NGD_OPF_RECORD = 1 << 7,   /* records an event of its stream: no kernel */
    NGD_OPF_WAIT = 1 << 8,     /* its stream waits for an event: no kernel */
    NGD_OPF_UPDATE = 1 << 9,   /* the result is operand 0 with some elements replaced or added to: it may overwrite
                                  operand 0, and no other operand */
    /* Other devices take part, so it runs exactly as often and in the order that the graph says, even if its result is
     * not read. Has an attribute group_name. */
    NGD_OPF_COLLECTIVE = 1 << 10,
    /* The order of its sums may depend on the memory layout of operands after operand 0: pass_layout.c. */
    NGD_OPF_LAYOUT = 1 << 11,
} ngd_op_flags_t;
#define NGD_OPF_EVENT (NGD_OPF_RECORD | NGD_OPF_WAIT)

/* How rows (indices of dimension 0) of results depend on rows of operands.
 * This decides whether padding is invisible. */
typedef enum ngd_rows {
    NGD_ROWS_NONE,    /* no bucketed symbol may occur in this operator's operands */
    NGD_ROWS_LEADING, /* row i of each result depends on row i of operands that have the symbol, and on all of the
                         others */
    NGD_ROWS_SHAPE,   /* the shape rule's own check decides (views, broadcasting, an axis that must not be 0) */
} ngd_rows_t;

typedef enum ngd_attr_type {
    NGD_ATTR_INT,   /* ngd_dim_t */
    NGD_ATTR_INTS,  /* list of ngd_dim_t */
    NGD_ATTR_FLOAT, /* double */
    NGD_ATTR_BOOL,
    NGD_ATTR_STR,
    NGD_ATTR_DTYPE,
} ngd_attr_type_t;

#define NGD_OP_MAX_ATTRS 12
#define NGD_OP_VARIADIC  255

struct ngd_attr_schema {
    char name[28];
    ngd_attr_type_t type;
    bool required;
    /* default, when not required: */
    int64_t def_int; /* INT, BOOL, DTYPE (-1 = "same as operand 0") */
    double def_float;
    char def_str[16];
    /* INTS default is the empty list */
};

struct ngd_attr_value {
    int64_t i;           /* INT: ngd_dim_t (concrete in a plan); BOOL; DTYPE (-1 none); FLOAT: see ngd_scalar */
    double f;            /* FLOAT */
    const char *s;       /* STR */
    const int64_t *list; /* INTS: ngd_dim_t each */
    uint32_t n;          /* INTS */
};

/*
 * A number of a graph. Most are an f64. If it is an integer that f64 cannot represent (an odd one above 2^53, for
 * example), i has it and f has the nearest f64; otherwise i is 0. So integer computations lose nothing, and all others
 * use f.
 */
struct ngd_scalar {
    double f;
    int64_t i;
};

static inline struct ngd_scalar ngd_attr_scalar(const struct ngd_attr_value *a)
{
    return (struct ngd_scalar){a->f, a->i};
}
/* Returns the scalar of an integer. */
static inline struct ngd_scalar ngd_scalar_of_int(int64_t v)
{
    const double f = (double)v; /* integers close to 2^63 become 2^63, which is no int64_t */

    return (struct ngd_scalar){f, f < 0x1p63 && (int64_t)f == v ? 0 : v};
}
/* Converts to f32 with a single rounding. */
static inline float ngd_scalar_f32(struct ngd_scalar s)
{
    return s.i ? (float)s.i : (float)s.f;
}
/* Converts to an integer, rounding towards 0. A value beyond 64 bits becomes the nearest int64_t, NaN becomes 0. */
static inline int64_t ngd_scalar_i64(struct ngd_scalar s)
{
    return s.i ? s.i : s.f >= 0x1p63 ? INT64_MAX : s.f <= -0x1p63 ? INT64_MIN : s.f == s.f ? (int64_t)s.f : 0;
}

struct ngd_op {
    ngd_op_id_t id;
    const char *name;
    uint8_t min_in, max_in; /* operands; max NGD_OP_VARIADIC for lists */
    uint8_t n_out;          /* results; NGD_OP_VARIADIC when an attribute decides (split) */
    uint32_t flags;
    ngd_rows_t rows;
    uint32_t mutates; /* bit per operand: written in place; must be a state input or a view of one */
    uint32_t host;    /* bit per operand: a host parameter (i64 scalar or list), which may change without a capture */
    const char *doc;
    uint8_t n_attrs;
    struct ngd_attr_schema attrs[NGD_OP_MAX_ATTRS];
    /* Checks the operands' types and sets the types of the node's results. The diagnosis names the operand or
     * attribute that is wrong. */
    ngd_status_t (*shape)(struct ngd_graph *graph, struct ngd_node *node, struct ngd_diag *diag);
    /* Returns true if the padding of a bucketed symbol in the node's types stays invisible. The types are known to have
     * the symbol in dimension 0 only, as symbol*constant. False: *why_p says what mixes rows ("reduces dimension 0").
     */
    bool (*rows_ok)(const struct ngd_graph *graph, const struct ngd_node *node, uint32_t symbol, const char **why_p);
};

/* Parses the attribute schemas; idempotent, thread-safe. All functions below call it. */
void ngd_op_table_init(void);
const struct ngd_op *ngd_op_by_id(ngd_op_id_t id);
/* Computes the digest of the table without its descriptions. Plans made with another table have another digest. */
void ngd_op_table_digest(struct ngd_digest *digest_p);
const struct ngd_op *ngd_op_find(const char *name, size_t n); /* NULL = none */
const char *ngd_op_suggest(const char *name, size_t n); /* most similar name, for a diagnosis; NULL: none is similar */
/* Returns the value with which an operator fills its result (aten.full, aten.zeros_like, ...), given its attributes. */
struct ngd_scalar ngd_op_fill_value(const struct ngd_op *op, const struct ngd_attr_value *attrs);
/* Returns a bit for each dimension that a reduction with these attributes reduces, in a tensor of that rank. */
uint32_t ngd_op_reduced_axes(const struct ngd_op *op, const struct ngd_attr_value *attrs, uint32_t rank);
int ngd_op_attr_index(const struct ngd_op *op, const char *name, size_t n); /* -1 = none */

#endif
