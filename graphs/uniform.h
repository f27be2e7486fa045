/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_GRAPHS_UNIFORM_H
#define NGD_GRAPHS_UNIFORM_H

/*
 * Tensors whose elements all have one value, which is known when a graph is rewritten: what aten.full and the like
 * make, and what elementwise operators make of such.
 *
 * A value is computed as a kernel computes it: floats in f32, each operation rounded once, and the result rounded to
 * its dtype; integers modulo their width. What a device might do in another way has no value here: functions that are
 * not rounded correctly everywhere (exp, sin, ...), NaN, and numbers too small to be normal, which some flush to zero.
 */
#include "graphs/rewrite.h"

struct ngd_uniform {
    double f;  /* of a float dtype, which has it exactly */
    int64_t i; /* of an integer or bool */
};

/* The value that an operator of the graph fills this with, or what this is a view of; false: none, or none that is good
 * for computing. */
bool ngd_uniform_of(const struct ngd_rewrite *rw, uint32_t value, struct ngd_uniform *u_p);

/* What an elementwise operator makes of operands with these values. */
bool ngd_uniform_compute(const struct ngd_rewrite *rw, const struct ngd_node *n, const struct ngd_uniform *in,
                         struct ngd_uniform *u_p);
/* A number as the dtype has it. */
bool ngd_uniform_round(ngd_dtype_t dtype, double v, struct ngd_uniform *u_p);
bool ngd_uniform_cast(ngd_dtype_t from, const struct ngd_uniform *x, ngd_dtype_t to, struct ngd_uniform *u_p);

static inline double ngd_uniform_number(ngd_dtype_t dtype, const struct ngd_uniform *u)
{
    return ngd_dtype_is_float(dtype) ? u->f : (double)u->i;
}
/* Bit for bit. */
bool ngd_uniform_equal(ngd_dtype_t dtype, const struct ngd_uniform *a, const struct ngd_uniform *b);

#endif
