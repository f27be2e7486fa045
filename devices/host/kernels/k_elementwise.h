/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DEVICES_HOST_KERNELS_K_ELEMENTWISE_H
#define NGD_DEVICES_HOST_KERNELS_K_ELEMENTWISE_H

/*
 * Elementwise functions, by name, type and instruction set. The kernels (k_elementwise.c for one operand, k_binary.c
 * for two) map operators to these names; nd.h walks the tensors.
 *
 * The operands of a run are the sources, then the destination. Functions of two operands take a step of 0 for either
 * source.
 */
#include "devices/host/kernels/by_isa.h"
#include "devices/host/kernels/nd.h"

typedef enum ngd_ew_unary {
#define NGD_EW_UNARY(NAME, ns, value) NGD_EW_##NAME,
#include "devices/host/kernels/k_elementwise.def"
    NGD_EW_UNARY_MAX
} ngd_ew_unary_t;
typedef enum ngd_ew_test {
#define NGD_EW_TEST(NAME, ns, truth) NGD_EW_TEST_##NAME,
#include "devices/host/kernels/k_elementwise.def"
    NGD_EW_TEST_MAX
} ngd_ew_test_t;
typedef enum ngd_ew_binary {
#define NGD_EW_BINARY(NAME, ns, value) NGD_EW_BINARY_##NAME,
#include "devices/host/kernels/k_elementwise.def"
    NGD_EW_BINARY_MAX
} ngd_ew_binary_t;
typedef enum ngd_ew_compare {
#define NGD_EW_COMPARE(NAME, ns, truth) NGD_EW_COMPARE_##NAME,
#include "devices/host/kernels/k_elementwise.def"
    NGD_EW_COMPARE_MAX
} ngd_ew_compare_t;

typedef enum ngd_ei {
    NGD_EI_NONE, /* no such function for integers */
#define NGD_EI_UNARY(NAME, value)   NGD_EI_##NAME,
#define NGD_EI_TEST(NAME, truth)    NGD_EI_TEST_##NAME,
#define NGD_EI_BINARY(NAME, value)  NGD_EI_BINARY_##NAME,
#define NGD_EI_COMPARE(NAME, truth) NGD_EI_COMPARE_##NAME,
#include "devices/host/kernels/k_elementwise_int.def"
    NGD_EI_MAX
} ngd_ei_t;

/* Constants that a run function gets besides its operands. */
struct ngd_ew_args {
    float f[2];
    int64_t i[2];
};

enum { NGD_FLOAT_TYPES = 3, NGD_INT_TYPES = 5 };
_Static_assert(NGD_F32 == 0 && NGD_F16 == 1 && NGD_BF16 == 2 && NGD_I8 == 3 && NGD_BOOL == 7, "tables index by dtype");

struct ngd_ew_table {
    ngd_nd_fn unary[NGD_EW_UNARY_MAX][NGD_FLOAT_TYPES];
    ngd_nd_fn test[NGD_EW_TEST_MAX][NGD_FLOAT_TYPES];
    ngd_nd_fn binary[NGD_EW_BINARY_MAX][NGD_FLOAT_TYPES];
    ngd_nd_fn compare[NGD_EW_COMPARE_MAX][NGD_FLOAT_TYPES];
};
NGD_ISA_TABLES(struct ngd_ew_table, ngd_ew);

/* Integers and bool, plain C: [function][dtype - NGD_I8]. */
extern const ngd_nd_fn ngd_ei[NGD_EI_MAX][NGD_INT_TYPES];

/* Parameters of both kernels: a walk, a function and its constants. */
struct ngd_ew_params {
    struct ngd_nd nd;
    ngd_nd_fn fn;
    struct ngd_ew_args args;
};
void ngd_ew_run(const struct ngd_host_call *call, struct ngd_host_run *run, uint32_t part, uint32_t parts);
/* Fills p from params->fn and args; ns is the function's cost per element. bcast as in nd.h. */
ngd_status_t ngd_ew_prepare(struct ngd_host_prepare *p, const struct ngd_ew_params *params, uint32_t bcast, double ns,
                            struct ngd_diag *diag);

#endif
