/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_TESTS_ASCEND_ACL_SAMPLES_KERNELS_H
#define NGD_TESTS_ASCEND_ACL_SAMPLES_KERNELS_H

/* Between acl_samples_kernels.cpp, which has the names that the examples call, and acl_samples_kernels.c. */
#include <stdint.h>

enum sample_kind {
    SAMPLE_COUNT,
    SAMPLE_LONG,
    SAMPLE_DOUBLE,
    SAMPLE_FAIL,
    SAMPLE_WRITE,
    SAMPLE_READ,
    SAMPLE_ADD,
};

struct sample_args {
    const void *addr[3]; /* of the device; up to the first NULL */
    uint32_t n;          /* elements of 32 bits */
    float alpha;
    int value;
};

#ifdef __cplusplus
extern "C"
#endif
    int
    sample_launch(enum sample_kind kind, void *stream, const struct sample_args *args);

#endif
