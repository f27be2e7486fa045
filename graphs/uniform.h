/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_GRAPHS_UNIFORM_H
#define NGD_GRAPHS_UNIFORM_H

/*
 * Uniform tensors: all elements have one value, which is known when a graph is rewritten. aten.full and similar
 * operators make them, and elementwise operators make them of others.
 *
 * A value is computed as a kernel computes it: floats in f32, each operation rounded once, and the result rounded to
 * its dtype; integers modulo their width. A result that devices may compute differently counts as unknown: functions
 * that are not correctly rounded everywhere (exp, sin, ...), NaN, and subnormal numbers, which some flush to zero.
 */
#include "graphs/rewrite.h"

struct ngd_uniform {
    double f;  /* float dtypes: the value, which the dtype has exactly */
    int64_t i; /* integers and bools */
};

/* Gives the value that an operator fills this tensor with, or the tensor that it is a view of. False: it is not
 * uniform, or the value cannot be used in computations. */
bool ngd_uniform_of(const struct ngd_rewrite *rw, uint32_t value, struct ngd_uniform *u_p);

/* Computes the result of an elementwise operator for operands with these values. */
bool ngd_uniform_compute(const struct ngd_rewrite *rw, const struct ngd_node *n, const struct ngd_uniform *in,
                         struct ngd_uniform *u_p);
/* Rounds a number to the dtype. */
bool ngd_uniform_round(ngd_dtype_t dtype, double v, struct ngd_uniform *u_p);
bool ngd_uniform_cast(ngd_dtype_t from, const struct ngd_uniform *x, ngd_dtype_t to, struct ngd_uniform *u_p);

static inline double ngd_uniform_number(ngd_dtype_t dtype, const struct ngd_uniform *u)
{
    return ngd_dtype_is_float(dtype) ? u->f : (double)u->i;
}
/* Compares bit for bit. */
bool ngd_uniform_equal(ngd_dtype_t dtype, const struct ngd_uniform *a, const struct ngd_uniform *b);

#endif
