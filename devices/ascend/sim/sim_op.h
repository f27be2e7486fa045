/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DEVICES_ASCEND_SIM_SIM_OP_H
#define NGD_DEVICES_ASCEND_SIM_SIM_OP_H

/*
 * Operators of the simulator. The first phase checks operands and copies all that the kernel needs, host lists too,
 * into a call: from then on the program may change or free them, as on a device. The second phase queues the call as a
 * kernel.
 */
#include "devices/ascend/sim/sim_abi.h"
#include <string.h>

#define SIM_MAX_RANK     8
#define SIM_MAX_OPERANDS 20
#define SIM_MAX_LIST     64
#define SIM_MAX_TENSORS  1024 /* of a list */

struct aclTensor {
    int dtype;
    uint32_t rank;
    int64_t dims[SIM_MAX_RANK], strides[SIM_MAX_RANK];
    int64_t offset, storage; /* elements */
    int format;
    uint32_t storage_rank;
    int64_t storage_dims[SIM_MAX_RANK];
    void *data;
};

struct aclScalar {
    double f;
    int64_t i;
    int dtype;
};

struct aclIntArray {
    uint64_t n;
    int64_t v[];
};

struct aclTensorList {
    uint64_t n;
    const struct aclTensor *t[];
};

/* An operand as the kernel sees it. */
struct sim_view {
    int dtype;
    uint32_t rank;
    bool present;
    int64_t dims[SIM_MAX_RANK], strides[SIM_MAX_RANK];
    int64_t reach; /* elements that the kernel may touch; 0: those that dims and strides say */
    int64_t rows;  /* in NZ: of the matrix that lies there, of which the view may be the transpose; 0: in ND */
    bool transposed;
    uint32_t length; /* it is the first tensor of a list of so many; 0: of none */
    uint32_t others; /* where the list's second tensor is in `others` of the operator */
    bool mixed;      /* whose tensors differ in dtype, shape or strides */
    char *p;         /* first element; a device address until the kernel runs */
};

struct sim_op {
    struct sim_kernel kernel;
    void (*run)(struct sim_op *op);
    int code; /* first complaint of the checks */
    uint32_t n;
    struct sim_view t[SIM_MAX_OPERANDS];
    char **others; /* where the other tensors of lists begin, device addresses */
    uint32_t n_others;
    int64_t i[8]; /* the first ones are the attributes of operator_rules.def, where there are rows about them */
    double f[4];
    int64_t *list[2];
    uint64_t n_list[2];
    int variant;
    uint64_t workspace;
};

/* Building. Every function may be called after a complaint and then does nothing. */
SIM_EXPORT struct sim_op *ngd_aclsim_op(const char *name, void (*run)(struct sim_op *op));
SIM_EXPORT struct sim_view *ngd_aclsim_operand(struct sim_op *op, const struct aclTensor *tensor); /* required */
SIM_EXPORT struct sim_view *ngd_aclsim_packed(struct sim_op *op, const struct aclTensor *tensor);  /* may be i4 */
SIM_EXPORT struct sim_view *ngd_aclsim_optional(struct sim_op *op, const struct aclTensor *tensor);
/* Required, and a matrix in NZ; all others take ND only. */
SIM_EXPORT struct sim_view *ngd_aclsim_weight(struct sim_op *op, const struct aclTensor *tensor);
/* A list of tensors, perhaps of i4, as one operand. */
SIM_EXPORT struct sim_view *ngd_aclsim_tensors(struct sim_op *op, const struct aclTensorList *list); /* required */
SIM_EXPORT struct sim_view *ngd_aclsim_optional_tensors(struct sim_op *op, const struct aclTensorList *list);
/* Of a kernel that runs: where tensor i of the list begins. */
SIM_EXPORT char *ngd_aclsim_of_list(const struct sim_op *op, const struct sim_view *v, int64_t i);
SIM_EXPORT void ngd_aclsim_list(struct sim_op *op, int which, const struct aclIntArray *array);
/* A bound of the simulator, or a rule that no source proves; rules of public sources are in operator_rules.def. */
SIM_EXPORT void ngd_aclsim_check(struct sim_op *op, bool ok, const char *what);
/* What operator_rules.def refuses. Finishing asks it too; operators ask first where checks of their own would hide it.
 */
SIM_EXPORT void ngd_aclsim_rules(struct sim_op *op);
SIM_EXPORT int ngd_aclsim_finish(struct sim_op *op, uint64_t *workspace_p, struct aclOpExecutor **executor_p);
/* What another operator's first phase planned is called `name` from now on; returns code, which is that phase's. */
SIM_EXPORT int ngd_aclsim_as(const char *name, int code, struct aclOpExecutor **executor_p);
/* injected: not 0: it fails with that, and has used the executor up nevertheless, as the real one does. */
SIM_EXPORT int ngd_aclsim_execute(const char *name, void *workspace, uint64_t bytes, struct aclOpExecutor *executor,
                                  void *stream, int injected);

/* A product of any dtypes and batches; sim_op_product.c. */
int sim_any_product(const char *name, const struct aclTensor *self, const struct aclTensor *mat2,
                    const struct aclTensor *out, int8_t cube_math_type, NGD_ACL_PHASE1);

/* ---- elements ------------------------------------------------------------------------------------ */

static inline size_t sim_size(int dtype)
{
    switch (dtype) {
    case NGD_ACL_INT64:
    case NGD_ACL_DOUBLE:
        return 8;
    case NGD_ACL_FLOAT:
    case NGD_ACL_INT32:
        return 4;
    case NGD_ACL_FLOAT16:
    case NGD_ACL_BF16:
    case NGD_ACL_INT16:
        return 2;
    case NGD_ACL_INT8:
    case NGD_ACL_UINT8:
    case NGD_ACL_BOOL:
        return 1;
    default:
        return 0;
    }
}

/* Bytes of so many elements; of INT4, of which sim_size knows none, two are in a byte. */
static inline int64_t sim_bytes(int dtype, int64_t elements)
{
    return dtype == NGD_ACL_INT4 ? (elements + 1) / 2 : elements * (int64_t)sim_size(dtype);
}

static inline bool sim_is_float(int dtype)
{
    return dtype == NGD_ACL_FLOAT || dtype == NGD_ACL_FLOAT16 || dtype == NGD_ACL_BF16 || dtype == NGD_ACL_DOUBLE;
}

static inline bool sim_is_half(int dtype)
{
    return dtype == NGD_ACL_FLOAT16 || dtype == NGD_ACL_BF16;
}

static inline float sim_from_f16(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, e = (h >> 10) & 31u, m = h & 0x3ffu, u;
    float f;

    if (e == 0) {
        f = (float)m * 0x1p-24f;
        memcpy(&u, &f, 4);
        u |= sign;
    } else {
        u = sign | (e == 31 ? 0x7f800000u : (e + 112) << 23) | m << 13;
    }
    memcpy(&f, &u, 4);
    return f;
}

static inline uint16_t sim_to_f16(float f)
{
    uint32_t u, sign, a;
    float scaled;

    memcpy(&u, &f, 4);
    sign = u >> 16 & 0x8000u;
    a = u & 0x7fffffffu;
    if (a > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u);
    if (a >= 0x477ff000u)
        return (uint16_t)(sign | 0x7c00u);
    if (a < 0x38800000u) { /* subnormal: the addition rounds to nearest even */
        memcpy(&scaled, &a, 4);
        scaled += 0.5f;
        memcpy(&a, &scaled, 4);
        return (uint16_t)(sign | (a - 0x3f000000u));
    }
    a += 0xfffu + (a >> 13 & 1u);
    return (uint16_t)(sign | ((a - 0x38000000u) >> 13));
}

static inline float sim_from_bf16(uint16_t h)
{
    uint32_t u = (uint32_t)h << 16;
    float f;

    memcpy(&f, &u, 4);
    return f;
}

static inline uint16_t sim_to_bf16(float f)
{
    uint32_t u;

    memcpy(&u, &f, 4);
    if ((u & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)(u >> 16 | 0x40u);
    return (uint16_t)((u + 0x7fffu + (u >> 16 & 1u)) >> 16);
}

static inline int64_t sim_load_int(const char *p, int dtype)
{
    int64_t v64;
    int32_t v32;
    int16_t v16;

    switch (dtype) {
    case NGD_ACL_INT64:
        memcpy(&v64, p, 8);
        return v64;
    case NGD_ACL_INT16:
        memcpy(&v16, p, 2);
        return v16;
    case NGD_ACL_INT32:
        memcpy(&v32, p, 4);
        return v32;
    case NGD_ACL_INT8:
        return (int8_t)*p;
    default:
        return (uint8_t)*p;
    }
}

static inline double sim_load(const char *p, int dtype)
{
    uint16_t h;
    float f;
    double d;

    switch (dtype) {
    case NGD_ACL_FLOAT:
        memcpy(&f, p, 4);
        return f;
    case NGD_ACL_FLOAT16:
        memcpy(&h, p, 2);
        return sim_from_f16(h);
    case NGD_ACL_BF16:
        memcpy(&h, p, 2);
        return sim_from_bf16(h);
    case NGD_ACL_DOUBLE:
        memcpy(&d, p, 8);
        return d;
    default:
        return (double)sim_load_int(p, dtype);
    }
}

static inline void sim_store_int(char *p, int dtype, int64_t v)
{
    int32_t v32 = (int32_t)v;
    int16_t v16 = (int16_t)v;

    switch (dtype) {
    case NGD_ACL_INT64:
        memcpy(p, &v, 8);
        break;
    case NGD_ACL_INT16:
        memcpy(p, &v16, 2);
        break;
    case NGD_ACL_INT32:
        memcpy(p, &v32, 4);
        break;
    case NGD_ACL_BOOL:
        *p = v != 0;
        break;
    default:
        *p = (char)v;
    }
}

static inline void sim_store(char *p, int dtype, double v)
{
    float f = (float)v;
    uint16_t h;

    switch (dtype) {
    case NGD_ACL_FLOAT:
        memcpy(p, &f, 4);
        break;
    case NGD_ACL_FLOAT16:
        h = sim_to_f16(f);
        memcpy(p, &h, 2);
        break;
    case NGD_ACL_BF16:
        h = sim_to_bf16(f);
        memcpy(p, &h, 2);
        break;
    case NGD_ACL_DOUBLE:
        memcpy(p, &v, 8);
        break;
    case NGD_ACL_BOOL:
        *p = v != 0;
        break;
    default:
        sim_store_int(p, dtype, v != v ? 0 : v >= 0x1p63 ? INT64_MAX : v <= -0x1p63 ? INT64_MIN : (int64_t)v);
    }
}

/* The dtype that two operands are computed in, as PyTorch promotes them. */
static inline int sim_promote(int a, int b)
{
    if (a == b)
        return a;
    if (sim_is_float(a) && sim_is_float(b))
        return a == NGD_ACL_DOUBLE || b == NGD_ACL_DOUBLE ? NGD_ACL_DOUBLE : NGD_ACL_FLOAT;
    if (sim_is_float(a) || sim_is_float(b))
        return sim_is_float(a) ? a : b;
    if ((a == NGD_ACL_UINT8 && b == NGD_ACL_INT8) || (a == NGD_ACL_INT8 && b == NGD_ACL_UINT8))
        return NGD_ACL_INT16;
    if (a == NGD_ACL_BOOL || b == NGD_ACL_BOOL)
        return a == NGD_ACL_BOOL ? b : a;
    return sim_size(a) >= sim_size(b) ? a : b;
}

/* What is left of v in a dtype. */
static inline double sim_round(double v, int dtype)
{
    char to[8];

    sim_store(to, dtype, v);
    return sim_load(to, dtype);
}

static inline int64_t sim_elements(const struct sim_view *v)
{
    int64_t n = 1;

    for (uint32_t i = 0; i < v->rank; i++)
        n *= v->dims[i];
    return n;
}

/* Address of the element with this row-major number. */
static inline char *sim_at(const struct sim_view *v, int64_t n)
{
    int64_t at = 0;

    for (uint32_t i = v->rank; i-- > 0;) {
        at += n % v->dims[i] * v->strides[i];
        n /= v->dims[i];
    }
    return v->p + at * (int64_t)sim_size(v->dtype);
}

/* Where element (row, column) of a matrix in NZ lies. */
static inline int64_t sim_nz_at(int64_t rows, int64_t c0, int64_t row, int64_t column)
{
    int64_t blocks = (rows + 15) / 16;

    return ((column / c0 * blocks + row / 16) * 16 + row % 16) * c0 + column % c0;
}

static inline bool sim_same_shape(const struct sim_view *a, const struct sim_view *b)
{
    return a->rank == b->rank && memcmp(a->dims, b->dims, a->rank * sizeof(a->dims[0])) == 0;
}

static inline bool sim_contiguous(const struct sim_view *v)
{
    int64_t step = 1;

    for (uint32_t i = v->rank; i-- > 0;) {
        if (v->dims[i] != 1 && v->strides[i] != step)
            return false;
        step *= v->dims[i];
    }
    return true;
}

#endif
