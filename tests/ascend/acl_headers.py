#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares devices/ascend's own declarations of CANN with the vendor's headers.

    tests/ascend/acl_headers.py INCLUDE_DIR...

The folders are those of an installed CANN (include, and the one with aclnnop/). Not part of the build: no vendor header is
needed for that. A C++ compiler compares each function's arguments one by one (pointers with pointers, numbers with numbers
of the same size) and each value. Prints what is not in these headers, which is right for functions of newer versions.
"""
import os
import re
import subprocess
import sys
import tempfile

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CXX = os.environ.get("CXX", "c++")

# Ours -> the vendor's.
VALUES = {
    "NGD_ACL_REPEAT_INITIALIZE": "ACL_ERROR_REPEAT_INITIALIZE", "NGD_ACL_RT_PARAM_INVALID": "ACL_ERROR_RT_PARAM_INVALID",
    "NGD_ACL_RT_STREAM_CAPTURED": "ACL_ERROR_RT_STREAM_CAPTURED", "NGD_ACL_RT_EVENT_CAPTURED": "ACL_ERROR_RT_EVENT_CAPTURED",
    "NGD_ACL_RT_STREAM_UNJOINED": "ACL_ERROR_RT_STREAM_UNJOINED", "NGD_ACL_RT_CAPTURE_MODE": "ACL_ERROR_RT_CAPTURE_MODE_NOT_SUPPORT",
    "NGD_ACL_RT_TASK_GROUP_STATUS": "ACL_ERROR_STREAM_TASK_GROUP_STATUS",
    "NGD_ACL_RT_NO_STREAM_RESOURCE": "ACL_ERROR_RT_NO_STREAM_RESOURCE",
    "NGD_ACL_RT_RESOURCE_ALLOC_FAIL": "ACL_ERROR_RT_RESOURCE_ALLOC_FAIL",
    "NGD_ACL_RT_MEMORY_ALLOCATION": "ACL_ERROR_RT_MEMORY_ALLOCATION", "NGD_ACL_RT_LOST_HEARTBEAT": "ACL_ERROR_RT_LOST_HEARTBEAT",
    "NGD_ACL_RT_MODEL_EXECUTE": "ACL_ERROR_RT_MODEL_EXECUTE", "NGD_ACL_RT_AICORE_EXCEPTION": "ACL_ERROR_RT_AICORE_EXCEPTION",
    "NGD_ACL_RT_STREAM_SYNC_TIMEOUT": "ACL_ERROR_RT_STREAM_SYNC_TIMEOUT",
    "NGD_ACL_RT_CAPTURE_INVALIDATED": "ACL_ERROR_RT_STREAM_CAPTURE_INVALIDATED",
    "NGD_ACL_COPY_H2H": "ACL_MEMCPY_HOST_TO_HOST", "NGD_ACL_COPY_H2D": "ACL_MEMCPY_HOST_TO_DEVICE",
    "NGD_ACL_COPY_D2H": "ACL_MEMCPY_DEVICE_TO_HOST", "NGD_ACL_COPY_D2D": "ACL_MEMCPY_DEVICE_TO_DEVICE",
    "NGD_ACL_MALLOC_HUGE_FIRST": "ACL_MEM_MALLOC_HUGE_FIRST", "NGD_ACL_MEM_HBM": "ACL_HBM_MEM",
    "NGD_ACL_MEM_HBM_HUGE": "ACL_HBM_MEM_HUGE", "NGD_ACL_LOCATION_DEVICE": "ACL_MEM_LOCATION_TYPE_DEVICE",
    "NGD_ACL_GRANULARITY_LEAST": "ACL_RT_MEM_ALLOC_GRANULARITY_MINIMUM",
    "NGD_ACL_RUN_DEVICE": "ACL_DEVICE", "NGD_ACL_RUN_HOST": "ACL_HOST",
    "NGD_ACL_STREAM_COMPLETE": "ACL_STREAM_STATUS_COMPLETE", "NGD_ACL_STREAM_PENDING": "ACL_STREAM_STATUS_NOT_READY",
    "NGD_ACL_EVENT_PENDING": "ACL_EVENT_RECORDED_STATUS_NOT_READY", "NGD_ACL_EVENT_COMPLETE": "ACL_EVENT_RECORDED_STATUS_COMPLETE",
    "NGD_ACL_STREAM_FAST_LAUNCH": "ACL_STREAM_FAST_LAUNCH", "NGD_ACL_STREAM_FAST_SYNC": "ACL_STREAM_FAST_SYNC",
    "NGD_ACL_EVENT_SYNC": "ACL_EVENT_SYNC", "NGD_ACL_EVENT_TIME_LINE": "ACL_EVENT_TIME_LINE",
    "NGD_ACL_EVENT_EXTERNAL": "ACL_EVENT_EXTERNAL", "NGD_ACL_STOP_ON_FAILURE": "ACL_STOP_ON_FAILURE",
    "NGD_ACL_EVENT_SEEN_OUTSIDE": "ACL_EVENT_RECORD_EXTERNAL", "NGD_ACL_INVALID_PARAM": "ACL_ERROR_INVALID_PARAM",
    "NGD_ACL_RT_STREAM_SUBSCRIBE": "ACL_ERROR_RT_STREAM_SUBSCRIBE", "NGD_ACL_RT_STREAM_NO_CB_REG": "ACL_ERROR_RT_STREAM_NO_CB_REG",
    "NGD_ACL_RT_WAIT_TIMEOUT": "ACL_ERROR_RT_WAIT_TIMEOUT", "NGD_ACL_RT_TASK_TIMEOUT": "ACL_ERROR_RT_TASK_TIMEOUT",
    "NGD_ACL_RT_EVENT_TIMESTAMP_INVALID": "ACL_ERROR_RT_EVENT_TIMESTAMP_INVALID",
    "NGD_ACL_CAPTURE_GLOBAL": "ACL_MODEL_RI_CAPTURE_MODE_GLOBAL", "NGD_ACL_CAPTURE_THREAD_LOCAL": "ACL_MODEL_RI_CAPTURE_MODE_THREAD_LOCAL",
    "NGD_ACL_CAPTURE_RELAXED": "ACL_MODEL_RI_CAPTURE_MODE_RELAXED", "NGD_ACL_CAPTURE_NONE": "ACL_MODEL_RI_CAPTURE_STATUS_NONE",
    "NGD_ACL_CAPTURE_ACTIVE": "ACL_MODEL_RI_CAPTURE_STATUS_ACTIVE", "NGD_ACL_CAPTURE_INVALID": "ACL_MODEL_RI_CAPTURE_STATUS_INVALIDATED",
    "NGD_ACL_FLOAT": "ACL_FLOAT", "NGD_ACL_FLOAT16": "ACL_FLOAT16", "NGD_ACL_INT8": "ACL_INT8", "NGD_ACL_INT32": "ACL_INT32",
    "NGD_ACL_UINT8": "ACL_UINT8", "NGD_ACL_INT64": "ACL_INT64", "NGD_ACL_DOUBLE": "ACL_DOUBLE", "NGD_ACL_BOOL": "ACL_BOOL",
    "NGD_ACL_RT_FFTS_PLUS_TIMEOUT": "ACL_ERROR_RT_FFTS_PLUS_TIMEOUT",
    **{f"NGD_HCCL_E_{e}": f"HCCL_E_{e}" for e in ("PARA", "PTR", "MEMORY", "NOT_SUPPORT", "TIMEOUT", "RUNTIME")},
    "NGD_HCCL_E_OPEN_FILE": "HCCL_E_OPEN_FILE_FAILURE",
    **{f"NGD_HCCL_{t}": f"HCCL_DATA_TYPE_{t}" for t in ("INT8", "INT16", "INT32", "FP16", "FP32", "INT64", "UINT64", "UINT8", "UINT16",
                                                      "UINT32", "FP64", "BFP16")},
    **{f"NGD_HCCL_{r}": f"HCCL_REDUCE_{r}" for r in ("SUM", "PROD", "MAX", "MIN")},
    "NGD_ACL_BF16": "ACL_BF16", "NGD_ACL_INT16": "ACL_INT16", "NGD_ACL_INT4": "ACL_INT4", "NGD_ACL_FORMAT_ND": "ACL_FORMAT_ND", "NGD_ACL_FORMAT_NZ": "ACL_FORMAT_FRACTAL_NZ",
    "NGD_ACL_PACKAGE_CANN": "ACL_PKG_NAME_CANN",
}

# Our struct and the vendor's, and their fields.
STRUCTS = {
    ("ngd_acl_physical", "aclrtPhysicalMemProp"): {
        "handle_type": "handleType", "allocation_type": "allocationType", "attribute": "memAttr", "location": "location.id",
        "location_type": "location.type", "reserve": "reserve"},
    ("ngd_acl_version", "aclCANNPackageVersion"): {
        "version": "version", "major": "majorVersion", "minor": "minorVersion", "release": "releaseVersion",
        "patch": "patchVersion", "reserved": "reserved"},
}

PRELUDE = r"""
#include <type_traits>
#include "devices/ascend/acl_abi.h"
template <class A, class B> constexpr bool alike()
{
    if (std::is_void_v<A> || std::is_void_v<B>)
        return std::is_void_v<A> && std::is_void_v<B>;
    else if (std::is_pointer_v<A> || std::is_pointer_v<B>)
        return std::is_pointer_v<A> && std::is_pointer_v<B>;
    else
        return sizeof(A) == sizeof(B) && std::is_floating_point_v<A> == std::is_floating_point_v<B>;
}
template <class A, class B> struct fits : std::false_type {};
template <class R, class... A, class S, class... B> struct fits<R (*)(A...), S (*)(B...)> {
    static constexpr bool value = [] {
        if constexpr (sizeof...(A) != sizeof...(B))
            return false;
        else
            return alike<R, S>() && (alike<A, B>() && ...);
    }();
};
"""


def rows(name, macro):
    with open(os.path.join(TOP, "devices/ascend", name), encoding="utf-8") as f:
        return re.findall(rf"^{macro}\((\w+)", f.read(), re.M)


def headers(folders):
    """Relative names of the headers that may declare something of ours."""
    for folder in folders:
        for sub in ("acl", "aclnn", "aclnnop", "aclnnop/level2", "hccl"):
            path = os.path.join(folder, sub)
            for name in sorted(os.listdir(path)) if os.path.isdir(path) else ():
                if name.endswith(".h"):
                    yield f"{sub}/{name}", os.path.join(path, name)


def compile_text(text, folders):
    with tempfile.NamedTemporaryFile("w", suffix=".cpp") as f:
        f.write(text)
        f.flush()
        run = subprocess.run([CXX, "-std=c++17", "-fsyntax-only", "-w", f"-I{TOP}", *(f"-I{d}" for d in folders), f.name],
                             capture_output=True, text=True)
    return run.returncode, run.stderr


def main():
    folders = sys.argv[1:]
    if not folders:
        sys.exit(__doc__)
    where = {}
    for name, path in headers(folders):
        with open(path, encoding="utf-8", errors="replace") as f:
            for word in set(re.findall(r"\b((?:acl|Hccl)\w+)\s*\(", f.read())):
                where.setdefault(word, name)
    runtime = rows("acl_symbols.def", "NGD_ACL") + rows("sim/sim_symbols.def", "NGD_ACL")
    ops = [f"aclnn{op}GetWorkspaceSize"
           for op in rows("aclnn_symbols.def", "NGD_ACLNN") + rows("sim/sim_aclnn_symbols.def", "NGD_ACLNN")]
    known = [s for s in runtime + ops if s in where]
    absent = [s for s in runtime + ops if s not in where]
    base = [h for h in ("acl/acl.h", "acl/acl_rt.h", "acl/acl_mdl.h", "aclnn/acl_meta.h", "hccl/hccl.h")
            if any(os.path.exists(os.path.join(d, h)) for d in folders)]
    includes = "".join(f'#include "{h}"\n' for h in dict.fromkeys(base + [where[s] for s in known]))
    ours = ("#define NGD_ACL(name, result, args, library, since, instead) using our_##name = result(*) args;\n"
            '#include "devices/ascend/acl_symbols.def"\n#include "devices/ascend/sim/sim_symbols.def"\n#undef NGD_ACL\n'
            "#define NGD_ACLNN(name, args, since, instead) using our_aclnn##name##GetWorkspaceSize = ngd_acl_error_t(*) args;\n"
            '#include "devices/ascend/aclnn_symbols.def"\n#include "devices/ascend/sim/sim_aclnn_symbols.def"\n')
    checks = "".join(f'static_assert(fits<our_{s}, decltype(&::{s})>::value, "{s} of {where[s]}");\n' for s in known)
    code, text = compile_text(includes + PRELUDE + ours + checks, folders)
    wrong = re.findall(r"static assertion failed: (.*)", text) or re.findall(r"error: (.*)", text) if code else []
    for line in wrong:
        print(f"not ok - {line}")
    unknown = []
    for mine, theirs in VALUES.items():
        code, text = compile_text(f"{includes}{PRELUDE}static_assert((long){mine} == (long){theirs}, \"differs\");\n", folders)
        if code and "static assertion failed" in text:
            print(f"not ok - {mine} is not {theirs}")
            wrong.append(mine)
        elif code:
            unknown.append(theirs)
    for (mine, theirs), fields in STRUCTS.items():
        same = "".join(f"static_assert(offsetof({mine}, {a}) == offsetof({theirs}, {b}), \"{a}\");\n" for a, b in fields.items())
        code, text = compile_text(f"{includes}{PRELUDE}#include <cstddef>\nstatic_assert(sizeof({mine}) == sizeof({theirs}), \"size\");\n{same}",
                                  folders)
        if code:
            print(f"not ok - struct {mine} is not {theirs}: {text}")
            wrong.append(mine)
    print(f"{len(known)} functions, {len(STRUCTS)} struct(s) and {len(VALUES) - len(unknown)} values compared, {len(wrong)} differ")
    print(f"not in these headers: {', '.join(absent + unknown) or 'nothing'}")
    sys.exit(1 if wrong else 0)


main()
