/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DEVICES_ASCEND_ACL_ABI_H
#define NGD_DEVICES_ASCEND_ACL_ABI_H

/*
 * CANN's C interface as this project calls it: handles, values and structs, declared here in plain C so that no vendor
 * header is needed to build. acl_symbols.def has the functions; tests/ascend/acl_headers.py compares both with a
 * directory of vendor headers.
 *
 * All handles are void *. Statuses are 32-bit integers, 0 is success. Values are those of CANN 8.1.RC1 to 9.1.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef int32_t ngd_acl_error_t;

/* Objects of libnnopbase; their tags are the vendor's, they are never looked into. */
struct aclTensor;
struct aclScalar;
struct aclIntArray;
struct aclTensorList;
struct aclOpExecutor;

/* ---- codes that are told apart; acl_errors.def has what each means for us ------------------------ */

#define NGD_ACL_INVALID_PARAM              100000
#define NGD_ACL_REPEAT_INITIALIZE          100002
#define NGD_ACL_INVALID_FILE               100003
#define NGD_ACL_RT_PARAM_INVALID           107000
#define NGD_ACL_RT_INVALID_DEVICEID        107001
#define NGD_ACL_RT_CONTEXT_NULL            107002
#define NGD_ACL_RT_STREAM_CONTEXT          107003
#define NGD_ACL_RT_MODEL_CONTEXT           107004
#define NGD_ACL_RT_EVENT_TIMESTAMP_INVALID 107006
#define NGD_ACL_RT_ADDR_UNALIGNED          107008
#define NGD_ACL_RT_FILE_OPEN               107009
#define NGD_ACL_RT_STREAM_SUBSCRIBE        107011
#define NGD_ACL_RT_THREAD_SUBSCRIBE        107012
#define NGD_ACL_RT_STREAM_NO_CB_REG        107015
#define NGD_ACL_RT_INVALID_HANDLE          107017
#define NGD_ACL_RT_WAIT_TIMEOUT            107019
#define NGD_ACL_RT_TASK_TIMEOUT            107020
#define NGD_ACL_RT_STREAM_ABORT            107023
#define NGD_ACL_RT_CAPTURE_DEPENDENCY      107024
#define NGD_ACL_RT_STREAM_UNJOINED         107025
#define NGD_ACL_RT_MODEL_CAPTURED          107026
#define NGD_ACL_RT_STREAM_CAPTURED         107027
#define NGD_ACL_RT_EVENT_CAPTURED          107028
#define NGD_ACL_RT_STREAM_NOT_CAPTURED     107029
#define NGD_ACL_RT_CAPTURE_MODE            107030
#define NGD_ACL_RT_CAPTURE_IMPLICIT        107031
#define NGD_ACL_RT_CAPTURE_CONFLICT        107032
#define NGD_ACL_RT_TASK_GROUP_STATUS       107033
#define NGD_ACL_RT_TASK_GROUP_INTR         107034
#define NGD_ACL_RT_CAPTURE_UNMATCHED       107036
#define NGD_ACL_RT_MODEL_RUNNING           107037
#define NGD_ACL_RT_CAPTURE_WRONG_THREAD    107038
#define NGD_ACL_RT_CAPTURE_BLOCK_ASYNC     107041
#define NGD_ACL_RT_FEATURE_NOT_SUPPORT     207000
#define NGD_ACL_RT_MEMORY_ALLOCATION       207001
#define NGD_ACL_RT_RESOURCE_ALLOC_FAIL     207005
#define NGD_ACL_RT_NO_EVENT_RESOURCE       207007
#define NGD_ACL_RT_NO_STREAM_RESOURCE      207008
#define NGD_ACL_RT_DEVICE_OOM              207018
#define NGD_ACL_RT_INTERNAL_ERROR          507000
#define NGD_ACL_RT_TASK_NOT_SUPPORT        507009
#define NGD_ACL_RT_LOST_HEARTBEAT          507010
#define NGD_ACL_RT_MODEL_EXECUTE           507011
#define NGD_ACL_RT_AICORE_TIMEOUT          507014
#define NGD_ACL_RT_AICORE_EXCEPTION        507015
#define NGD_ACL_RT_STREAM_SYNC_TIMEOUT     507046
#define NGD_ACL_RT_EVENT_SYNC_TIMEOUT      507047
#define NGD_ACL_RT_FFTS_PLUS_TIMEOUT       507048
#define NGD_ACL_RT_CAPTURE_INVALIDATED     507903
#define NGD_ACL_NN_PARAM_NULLPTR           161001
#define NGD_ACL_NN_PARAM_INVALID           161002
#define NGD_ACL_NN_RUNTIME_ERROR           361001
#define NGD_ACL_NN_INNER_TILING            561002
#define NGD_ACL_NN_INNER_KERNEL            561003
#define NGD_ACL_NN_INNER_NULLPTR           561103
#define NGD_ACL_NN_INNER_OPP_PATH          561107

/* ---- values -------------------------------------------------------------------------------------- */

/* aclrtMemcpyKind */
#define NGD_ACL_COPY_H2H 0
#define NGD_ACL_COPY_H2D 1
#define NGD_ACL_COPY_D2H 2
#define NGD_ACL_COPY_D2D 3

#define NGD_ACL_MALLOC_HUGE_FIRST 0 /* aclrtMemMallocPolicy */
#define NGD_ACL_MEM_HBM           1 /* aclrtMemAttr */
#define NGD_ACL_MEM_HBM_HUGE      4
#define NGD_ACL_LOCATION_DEVICE   1 /* aclrtMemLocationType */
#define NGD_ACL_GRANULARITY_LEAST 0 /* aclrtMemGranularityOptions */

/* aclCANNPackageVersion of aclsysGetCANNVersion, and the package that is CANN as a whole. */
struct ngd_acl_version {
    char version[128], major[64], minor[64], release[64], patch[64], reserved[128];
};
#define NGD_ACL_PACKAGE_CANN 0

/* aclrtPhysicalMemProp */
struct ngd_acl_physical {
    int handle_type, allocation_type, attribute;
    uint32_t location;
    int location_type;
    uint64_t reserve;
};

/* aclrtRunMode, aclrtStreamStatus, aclrtEventRecordedStatus: the last one counts the other way round */
#define NGD_ACL_RUN_DEVICE      0
#define NGD_ACL_RUN_HOST        1
#define NGD_ACL_STREAM_COMPLETE 0
#define NGD_ACL_STREAM_PENDING  1
#define NGD_ACL_EVENT_PENDING   0
#define NGD_ACL_EVENT_COMPLETE  1

/* flags of streams and events */
#define NGD_ACL_STREAM_FAST_LAUNCH 0x1u
#define NGD_ACL_STREAM_FAST_SYNC   0x2u
#define NGD_ACL_STOP_ON_FAILURE    1 /* the mode of a stream, and so of its context */
#define NGD_ACL_EVENT_SYNC         0x1u
#define NGD_ACL_EVENT_TIME_LINE    0x8u
#define NGD_ACL_EVENT_EXTERNAL     0x20u
#define NGD_ACL_EVENT_SEEN_OUTSIDE 1 /* of a record or a wait in a capture: it is for other streams and graphs */

/* aclmdlRICaptureMode, aclmdlRICaptureStatus */
#define NGD_ACL_CAPTURE_GLOBAL       0
#define NGD_ACL_CAPTURE_THREAD_LOCAL 1
#define NGD_ACL_CAPTURE_RELAXED      2
#define NGD_ACL_CAPTURE_NONE         0
#define NGD_ACL_CAPTURE_ACTIVE       1
#define NGD_ACL_CAPTURE_INVALID      2

/* aclDataType, aclFormat */
#define NGD_ACL_FLOAT     0
#define NGD_ACL_FLOAT16   1
#define NGD_ACL_INT8      2
#define NGD_ACL_INT32     3
#define NGD_ACL_UINT8     4
#define NGD_ACL_INT16     6
#define NGD_ACL_UINT16    7
#define NGD_ACL_UINT32    8
#define NGD_ACL_INT64     9
#define NGD_ACL_UINT64    10
#define NGD_ACL_DOUBLE    11
#define NGD_ACL_BOOL      12
#define NGD_ACL_BF16      27
#define NGD_ACL_INT4      29 /* two in a byte */
#define NGD_ACL_FORMAT_ND 2
#define NGD_ACL_FORMAT_NZ 29 /* fractals of 16 x 32 bytes; ngd_acl_fractal */

/* HcclResult, HcclDataType (numbered otherwise than aclDataType), HcclReduceOp */
#define NGD_HCCL_ROOT_BYTES    4108 /* of HcclRootInfo */
#define NGD_HCCL_E_PARA        1
#define NGD_HCCL_E_PTR         2
#define NGD_HCCL_E_MEMORY      3
#define NGD_HCCL_E_NOT_SUPPORT 5
#define NGD_HCCL_E_TIMEOUT     9
#define NGD_HCCL_E_OPEN_FILE   10
#define NGD_HCCL_E_RUNTIME     15
#define NGD_HCCL_E_NETWORK     19
#define NGD_HCCL_INT8          0
#define NGD_HCCL_INT16         1
#define NGD_HCCL_INT32         2
#define NGD_HCCL_FP16          3
#define NGD_HCCL_FP32          4
#define NGD_HCCL_INT64         5
#define NGD_HCCL_UINT64        6
#define NGD_HCCL_UINT8         7
#define NGD_HCCL_UINT16        8
#define NGD_HCCL_UINT32        9
#define NGD_HCCL_FP64          10
#define NGD_HCCL_BFP16         11
#define NGD_HCCL_SUM           0
#define NGD_HCCL_PROD          1
#define NGD_HCCL_MAX           2
#define NGD_HCCL_MIN           3

/* cubeMathType of matrix products */
#define NGD_ACL_CUBE_KEEP_DTYPE 0

/* Rounding of aclnnDivMod; 0: none. */
#define NGD_ACL_DIV_TRUNC 1
#define NGD_ACL_DIV_FLOOR 2

/* aclrtDevResLimitType */
#define NGD_ACL_CORES_CUBE   0
#define NGD_ACL_CORES_VECTOR 1

/* aclrtGetDeviceInfo */
#define NGD_ACL_ATTR_CUBE_CORES   102
#define NGD_ACL_ATTR_VECTOR_CORES 201

/* aclrtUtilizationInfo: percent, below 0 if not available; extend has to be NULL. */
struct ngd_acl_utilization {
    int32_t cube, vector, aicpu, memory;
    void *extend;
};

/*
 * The layout of a matrix of rows x columns in FRACTAL_NZ: columns/c0 x rows/16 blocks, rounded up and numbered along
 * rows first, each of 16 rows of c0 elements, which are 32 bytes. Operands have these four as the shape of their
 * storage.
 */
static inline void ngd_acl_fractal(int64_t rows, int64_t columns, int64_t element_bytes, int64_t shape[4])
{
    int64_t c0 = 32 / element_bytes;

    shape[0] = columns / c0 + (columns % c0 != 0);
    shape[1] = rows / 16 + (rows % 16 != 0);
    shape[2] = 16;
    shape[3] = c0;
}

/* The tail of every first-phase call of an operator, and its second phase. */
#define NGD_ACL_PHASE1 uint64_t *workspace_p, struct aclOpExecutor **executor_p
typedef ngd_acl_error_t (*ngd_aclnn_run_t)(void *workspace, uint64_t bytes, struct aclOpExecutor *executor,
                                           void *stream);

#endif
