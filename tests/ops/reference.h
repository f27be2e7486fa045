/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_TESTS_OPS_REFERENCE_H
#define NGD_TESTS_OPS_REFERENCE_H

/* Helpers for tests that compare kernels with a definition in double: tensors of random values in any dtype. */
#include "base/dtype.h"
#include "tests/ops/device_run.h"
#include <math.h>

#define REFERENCE __attribute__((unused)) static

struct random {
    uint64_t state;
};

REFERENCE uint32_t random_u32(struct random *r)
{
    r->state = r->state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(r->state >> 32);
}

REFERENCE int64_t random_below(struct random *r, int64_t n)
{
    return (int64_t)(random_u32(r) % (uint64_t)n);
}

/* Returns a value in [-1, 1). */
REFERENCE double random_value(struct random *r)
{
    return (double)(int32_t)random_u32(r) * 0x1p-31;
}

/* Elements as they are stored, and their values. */
struct numbers {
    ngd_dtype_t dtype;
    int64_t n;
    char *data;
    double *value;
};

REFERENCE void numbers_put(struct numbers *t, int64_t i, double v)
{
    if (t->dtype == NGD_F32) {
        const float f = (float)v;

        memcpy(t->data + i * 4, &f, 4);
        t->value[i] = (double)f;
    } else if (t->dtype == NGD_I8) {
        t->data[i] = (char)nearbyint(v);
        t->value[i] = nearbyint(v);
    } else {
        const uint16_t h = t->dtype == NGD_F16 ? ngd_f32_to_f16((float)v) : ngd_f32_to_bf16((float)v);

        memcpy(t->data + i * 2, &h, 2);
        t->value[i] = (double)(t->dtype == NGD_F16 ? ngd_f16_to_f32(h) : ngd_bf16_to_f32(h));
    }
}

REFERENCE void numbers_open(struct numbers *t, ngd_dtype_t dtype, int64_t n)
{
    *t = (struct numbers){.dtype = dtype,
                          .n = n,
                          .data = calloc((size_t)n + 1, ngd_dtype_bytes(dtype)),
                          .value = calloc((size_t)n + 1, sizeof(double))};
}

REFERENCE void numbers_random(struct numbers *t, ngd_dtype_t dtype, int64_t n, double scale, struct random *r)
{
    numbers_open(t, dtype, n);
    for (int64_t i = 0; i < n; i++)
        numbers_put(t, i, scale * random_value(r));
}

REFERENCE void numbers_close(struct numbers *t)
{
    free(t->data);
    free(t->value);
}

REFERENCE uint64_t numbers_bytes(const struct numbers *t)
{
    return (uint64_t)t->n * ngd_dtype_bytes(t->dtype);
}

REFERENCE double numbers_got(ngd_dtype_t dtype, const char *data, int64_t i)
{
    uint16_t h;
    float f;

    if (dtype == NGD_F32) {
        memcpy(&f, data + i * 4, 4);
        return (double)f;
    }
    memcpy(&h, data + i * 2, 2);
    return (double)(dtype == NGD_F16 ? ngd_f16_to_f32(h) : ngd_bf16_to_f32(h));
}

/* Returns half a step of the dtype at v: the error of the last rounding. */
REFERENCE double rounding_of(ngd_dtype_t dtype, double v)
{
    if (dtype == NGD_F16)
        return fmax(fabs(v) * 0x1p-11, 0x1p-25);
    return fabs(v) * (dtype == NGD_BF16 ? 0x1p-8 : 0x1p-24);
}

#endif
