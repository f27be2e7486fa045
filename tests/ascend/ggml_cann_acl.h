/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_TESTS_ASCEND_GGML_CANN_ACL_H
#define NGD_TESTS_ASCEND_GGML_CANN_ACL_H

/*
 * What ggml-cann includes of CANN's headers, under the vendor's names: tests/ascend/ggml_cann.py puts it in the place
 * of acl/acl.h, aclnn/ and aclnnop/. Functions are declared from our tables. Values are those of acl_base.h, acl_rt.h
 * and acl_mdl.h of CANN 8.1.RC1.
 */
#include <cstddef>
#include <cstdint>

typedef int32_t aclError, aclnnStatus, ngd_acl_error_t;
typedef void *aclrtStream, *aclrtEvent, *aclrtContext, *aclmdlRI, *aclrtDrvMemHandle;
typedef struct aclTensor aclTensor;
typedef struct aclScalar aclScalar;
typedef struct aclIntArray aclIntArray;
typedef struct aclTensorList aclTensorList;
typedef struct aclOpExecutor aclOpExecutor;

#define ACL_EVENT_SYNC 0x1u

enum { ACL_SUCCESS = 0 };

enum aclDataType {
    ACL_DT_UNDEFINED = -1,
    ACL_FLOAT,
    ACL_FLOAT16,
    ACL_INT8,
    ACL_INT32,
    ACL_UINT8,
    ACL_INT16 = 6,
    ACL_INT64 = 9,
    ACL_DOUBLE = 11,
    ACL_BOOL = 12,
    ACL_BF16 = 27,
    ACL_INT4 = 29,
};

enum aclFormat { ACL_FORMAT_NCHW = 0, ACL_FORMAT_ND = 2, ACL_FORMAT_FRACTAL_NZ = 29, ACL_FORMAT_NCL = 47 };

enum aclrtMemMallocPolicy { ACL_MEM_MALLOC_HUGE_FIRST };

enum aclrtMemcpyKind {
    ACL_MEMCPY_HOST_TO_HOST,
    ACL_MEMCPY_HOST_TO_DEVICE,
    ACL_MEMCPY_DEVICE_TO_HOST,
    ACL_MEMCPY_DEVICE_TO_DEVICE
};

enum aclrtMemAttr { ACL_HBM_MEM = 1, ACL_HBM_MEM_HUGE = 4 };

enum aclrtMemHandleType { ACL_MEM_HANDLE_TYPE_NONE };

enum aclrtMemAllocationType { ACL_MEM_ALLOCATION_TYPE_PINNED };

enum aclrtMemLocationType { ACL_MEM_LOCATION_TYPE_HOST, ACL_MEM_LOCATION_TYPE_DEVICE };

enum aclrtMemGranularityOptions { ACL_RT_MEM_ALLOC_GRANULARITY_MINIMUM, ACL_RT_MEM_ALLOC_GRANULARITY_RECOMMENDED };

enum aclmdlRICaptureMode { ACL_MODEL_RI_CAPTURE_MODE_GLOBAL };

struct aclrtMemLocation {
    uint32_t id;
    aclrtMemLocationType type;
};

typedef struct ngd_acl_physical {
    aclrtMemHandleType handleType;
    aclrtMemAllocationType allocationType;
    aclrtMemAttr memAttr;
    aclrtMemLocation location;
    uint64_t reserve;
} aclrtPhysicalMemProp;

struct ngd_acl_version;

extern "C" {
#define NGD_ACL_PHASE1                                       uint64_t *, aclOpExecutor **
#define NGD_ACL(name, result, args, library, since, instead) result name args;
#include "../../devices/ascend/acl_symbols.def"
#include "../../devices/ascend/sim/sim_symbols.def"
#undef NGD_ACL

#define DECLARE_OPERATOR(name, args)                    \
    ngd_acl_error_t aclnn##name##GetWorkspaceSize args; \
    ngd_acl_error_t aclnn##name(void *, uint64_t, aclOpExecutor *, void *);
#define NGD_ACLNN(name, args, since, instead) DECLARE_OPERATOR(name, args)
/* ggml-cann declares this one itself, since no header of CANN 8.1 has it. */
#define RotaryPositionEmbedding               RotaryPositionEmbeddingOfOurTable
#include "../../devices/ascend/aclnn_symbols.def"
#include "../../devices/ascend/sim/sim_aclnn_symbols.def"
#undef RotaryPositionEmbedding
#undef NGD_ACLNN
}

#endif
