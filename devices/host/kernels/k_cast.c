/* SPDX-License-Identifier: Apache-2.0 */
/* aten._to_copy, and the casts that other kernels use. Casts from or to integers are plain C, since such tensors are
 * small. */
#include "devices/host/kernels/k_cast.h"
#include "devices/host/kernels/k_copy.h"
#include "devices/host/kernels/k_elementwise.h"
#include "devices/host/kernels/typed.h"

#define CAST(S, D, value)                                                                       \
    static void cast_##S##_##D(char *const *p, const int64_t *step, int64_t n, const void *arg) \
    {                                                                                           \
        const ngd_el_##S *s = (const void *)p[0];                                               \
        ngd_el_##D *d = (void *)p[1];                                                           \
        (void)step;                                                                             \
        (void)arg;                                                                              \
        for (int64_t i = 0; i < n; i++)                                                         \
            d[i] = (value);                                                                     \
    }
#define FLOAT_TO_INTS(S)                                                             \
    CAST(S, i8, (int8_t)ngd_float_to_int(ngd_get_##S(s[i]), INT8_MIN, INT8_MAX))     \
    CAST(S, u8, (uint8_t)ngd_float_to_int(ngd_get_##S(s[i]), 0, UINT8_MAX))          \
    CAST(S, i32, (int32_t)ngd_float_to_int(ngd_get_##S(s[i]), INT32_MIN, INT32_MAX)) \
    CAST(S, i64, ngd_float_to_int(ngd_get_##S(s[i]), INT64_MIN, INT64_MAX))          \
    CAST(S, b8, ngd_get_##S(s[i]) != 0)
#define INT_TO_ALL(S)                                        \
    CAST(S, f32, (float)ngd_get_##S(s[i]))                   \
    CAST(S, f16, ngd_f32_to_f16((float)ngd_get_##S(s[i])))   \
    CAST(S, bf16, ngd_f32_to_bf16((float)ngd_get_##S(s[i]))) \
    CAST(S, i8, (int8_t)ngd_get_##S(s[i]))                   \
    CAST(S, u8, (uint8_t)ngd_get_##S(s[i]))                  \
    CAST(S, i32, (int32_t)ngd_get_##S(s[i]))                 \
    CAST(S, i64, ngd_get_##S(s[i]))                          \
    CAST(S, b8, ngd_get_##S(s[i]) != 0)
FLOAT_TO_INTS(f32)
FLOAT_TO_INTS(f16)
FLOAT_TO_INTS(bf16)
INT_TO_ALL(i8)
INT_TO_ALL(u8)
INT_TO_ALL(i32)
INT_TO_ALL(i64)
INT_TO_ALL(b8)

#define TO_INTS(S)                                                                                              \
    [NGD_I8] = cast_##S##_i8, [NGD_U8] = cast_##S##_u8, [NGD_I32] = cast_##S##_i32, [NGD_I64] = cast_##S##_i64, \
    [NGD_BOOL] = cast_##S##_b8
#define TO_ALL(S)                                                                                        \
    {                                                                                                    \
        [NGD_F32] = cast_##S##_f32, [NGD_F16] = cast_##S##_f16, [NGD_BF16] = cast_##S##_bf16, TO_INTS(S) \
    }
static const ngd_nd_fn casts[NGD_DTYPE_MAX][NGD_DTYPE_MAX] = {
    [NGD_F32] = {TO_INTS(f32)}, [NGD_F16] = {TO_INTS(f16)}, [NGD_BF16] = {TO_INTS(bf16)}, [NGD_I8] = TO_ALL(i8),
    [NGD_U8] = TO_ALL(u8),      [NGD_I32] = TO_ALL(i32),    [NGD_I64] = TO_ALL(i64),      [NGD_BOOL] = TO_ALL(b8),
};

ngd_nd_fn ngd_cast_fn(ngd_dtype_t from, ngd_dtype_t to, ngd_isa_t isa)
{
    if (from == to)
        return NULL;
    if (ngd_dtype_is_float(from) && ngd_dtype_is_float(to))
        return NGD_BY_ISA(isa, ngd_cast)->fn[from][to];
    return casts[from][to];
}

static ngd_status_t prepare_cast(struct ngd_host_prepare *p, struct ngd_diag *diag)
{
    ngd_dtype_t from = ngd_call_in(p->plan, p->call, 0)->dtype, to = ngd_call_out(p->plan, p->call, 0)->dtype;
    struct ngd_ew_params e = {.fn = ngd_cast_fn(from, to, p->isa)};

    if (from == to)
        return ngd_host_clone.prepare(p, diag);
    return ngd_ew_prepare(p, &e, 0, ngd_dtype_is_float(from) && ngd_dtype_is_float(to) ? 0.05 : 0.5, diag);
}

const struct ngd_host_kernel ngd_host_cast = {.select = ngd_select_strided, .prepare = prepare_cast};
