// SPDX-License-Identifier: Apache-2.0
// The names that the vendor's examples launch kernels by (C++, as in their kernel_ops.h).
#include "tests/ascend/acl_samples_kernels.h"

extern "C" int aclrtSynchronizeStream(void *stream);

static int launch(sample_kind kind, void *stream, const void *x, uint32_t n, int value = 0)
{
    sample_args args = {{x, nullptr, nullptr}, n, 0, value};

    return sample_launch(kind, stream, &args);
}

void EasyOP(uint32_t n, void *stream, uint32_t *x)
{
    launch(SAMPLE_COUNT, stream, x, n);
}

void LongOP(uint32_t n, void *stream, uint32_t *x)
{
    launch(SAMPLE_LONG, stream, x, n);
}

void ShortOP(uint32_t n, void *stream, uint32_t *x)
{
    launch(SAMPLE_DOUBLE, stream, x, n);
}

void ErrorOP(uint32_t n, void *stream)
{
    launch(SAMPLE_FAIL, stream, nullptr, n);
}

// These two print from the device, which is shown when the stream is waited for: the examples destroy it by force.
void WriteDo(uint32_t n, void *stream, int *x, int value)
{
    launch(SAMPLE_WRITE, stream, x, n, value);
    aclrtSynchronizeStream(stream);
}

void ReadDo(uint32_t n, void *stream, int *x)
{
    launch(SAMPLE_READ, stream, x, n);
    aclrtSynchronizeStream(stream);
}

int32_t VectorAddDo(uint32_t, void *stream, float *a, float *b, float *out, float alpha, uint32_t n)
{
    sample_args args = {{a, b, out}, n, alpha, 0};

    return sample_launch(SAMPLE_ADD, stream, &args);
}

void AddDo(uint32_t blocks, void *stream, float *a, float *b, float *out, uint32_t n)
{
    VectorAddDo(blocks, stream, a, b, out, 1, n);
}
