#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the examples of CANN's public runtime repository on the simulator.

    tests/ascend/acl_samples.py RUNTIME_CHECKOUT BUILD_DIR [NAME...]

Programs that this project did not write, compiled against their own headers and linked with the simulator's libraries:
where the simulator understands the interface otherwise than its makers do, an example stops or prints something else. Not
part of the build: it needs a checkout of that repository (hicann/runtime). Of the operators' headers, which are in other
repositories, declarations are made from our tables; kernels are those of acl_samples_kernels.c.
Each example must end with 0 in time and print what its README says, line after line, and no error but those named here.
"""
import os
import re
import subprocess
import sys
import tempfile

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CC = os.environ.get("CC", "cc").split()
CXX = os.environ.get("CXX", "c++").split()
LIMIT_S = 60

ADDED = [f"result[{i}] = {v:.1f} (expected: {v:.1f})" for i, v in enumerate(1.5 * (k + 1) for k in range(8))]
VECTOR = "The vector data is: {}".format


def vector(values):
    return VECTOR("  ".join(f"{v:.4f}" for v in values))


MODEL = vector((v + 2 * 1.1) * 2 for v in range(1, 9))
BEFORE = vector(v + 2 * 1.1 + 2 * 1.1 for v in range(1, 9))
AFTER = vector(v + 2 * 1.1 + 2 * 2.2 for v in range(1, 9))
STREAM, EVENT, CONTEXT = "1_basic_features/stream", "1_basic_features/event", "1_basic_features/context"
DEVICE, MEMORY = "1_basic_features/device", "1_basic_features/memory"
CALLBACK, MODEL_RI = "2_advanced_features/callback", "2_advanced_features/model_ri"

# Folder, what it prints in this order, and of "more": further sources, devices, errors that it provokes, files it reads.
SAMPLES = [
    ("0_quickstart/0_hello_cann", ADDED + ["Sample run successfully!"], {}),
    ("0_quickstart/1_error_handling",
     ["Current run mode: ACL_HOST", "Diagnostics: ret=100000, peekErr=100000, lastErr=100000, recentErrMsg=",
      "Verbose error info: errorType=0, tryRepair=0, hasDetail=0",
      "After diagnostics are consumed once: peekErr=0, lastErr=0, recentErrMsg=<null>", "ACL finalize successfully"],
     {"errors": ["Diagnostics: ret=100000"]}),
    ("0_quickstart/2_system_info",
     ["version string: 9.1.0", "version number: 90100000", "Current run mode: ACL_HOST",
      "Float conversion: 1.625000 -> 0x3e80 -> 1.625000", "ACL_FLOAT=4, ACL_FLOAT16=2, ACL_INT64=8"], {}),
    ("0_quickstart/4_custom_kernel_launch", ADDED + ["Sample run successfully"], {}),
    (f"{CONTEXT}/0_context_query",
     ["Get current context successfully", "Get current default stream successfully", "cube core limit: 24",
      "vector core limit: 48", "[SUCCESS]"], {}),
    (f"{DEVICE}/0_device_normal", [f"result[{i}] is: {v:.6f}" for i, v in
                                   enumerate((1.2, 2.2, 3.2, 5.4, 6.4, 7.4, 9.6, 10.6))] + ["successfully"], {}),
    (f"{DEVICE}/1_device_multi_thread",
     ["deviceCount: 1", "deviceStatus: 0", "RunMode is ACL_HOST", "memoryUtilization -1", "VECTOR_CORE 1."]
     + [f"hostDst[{i}]: {2 * i:.6f} " for i in range(10)] + ["successfully"], {}),
    (f"{DEVICE}/2_device_P2P", ["Device 0 to device 1 memcpy success", "Device 1 to host memcpy success", "verify success!",
                                "successfully"], {"devices": 2}),
    (f"{EVENT}/0_event_status",
     ["After create event, current event status is 0", "before synchronize, current event status is 0",
      "After synchronize, current event status is 1", "The answer is 1", "Resource cleanup completed"], {}),
    (f"{EVENT}/1_event_timestamp",
     ["After completing the short task, the answer is 0", "Start event timestamp: ", "End event timestamp: ",
      "After completing the long task, the answer is 1", "The short task consume time 15", "Resource cleanup"], {}),
    (f"{STREAM}/0_simple_stream",
     ["default stream, the current result is: 1", "created stream, the current result is: 2", "stream status is: 0",
      "After loop, the current result is: 3002", "Resource cleanup completed"], {}),
    (f"{STREAM}/1_stream_with_failure_mode",
     ["aclrtSynchronizeStream(stream) returned error code 507015", "Without failure mode, the result is 2",
      "aclrtSynchronizeStream(stream) returned error code 507015", "the current result is: 1", "aclrtStreamStop returned 0",
      "aclrtStreamAbort returned 0", "sample successfully"],
     {"errors": ["aclrtSynchronizeStream(stream) returned error code 507015"]}),
    (f"{STREAM}/2_multi_stream",
     ["Use stream synchronize", "The answer is 2", "returned error code 507046", "Use event synchronize", "The answer is 2",
      "returned error code 507047", "Use notify synchronize", "The answer is 2", "Resource cleanup completed"],
     {"errors": ["returned error code 507046", "returned error code 507047"]}),
    (f"{STREAM}/3_stream_config_query",
     ["Create stream with config successfully", "Stream id: ", "Stream flags: 0", "Stream priority: 0", "[SUCCESS]"], {}),
    (f"{CALLBACK}/1_callback_hostfunc",
     ["Hostfunc callback!!!", "the current result is: 1", "Resource cleanup completed"], {"more": ["callback_utils.cpp"]}),
    (f"{CALLBACK}/2_callback_exception",
     ["The last task id is: ", "Exception occurred, callback function", "The error device id is 0",
      "The error code id is 507015", "aclrtSynchronizeStream(stream_) returned error code 507015",
      "the current num is: 1", "Thread exit", "sample successfully"],
     {"more": ["callback_utils.cpp", "2_callback_exception/exception_callback_sample.cpp"],
      "errors": ["returned error code 507015", "runtime diagnostics"], "any_order": True}),
    (f"{MODEL_RI}/0_simple_model", [MODEL] * 4, {"more": ["model_utils.cpp"]}),
    (f"{MODEL_RI}/1_model_update", [BEFORE, "Update alpha value", AFTER], {"more": ["model_utils.cpp"]}),
    (f"{MODEL_RI}/4_model_sync_external",
     ["Scenario 1", "Check result success", "Scenario 2", "Check result success", "Scenario 3", "Check result success"],
     {"more": ["model_utils.cpp"]}),
    (f"{MEMORY}/0_h2h_memory_copy", ["Source data: 123", "Destination data: 123"], {}),
    (f"{MEMORY}/1_h2d_sync_memory_copy", ["Source data: 123", "Destination data: 123"], {}),
    (f"{MEMORY}/2_h2d_async_memory_copy", ["Source data: 123", "Destination data: 123"], {}),
    (f"{MEMORY}/3_d2h_sync_memory_copy", ["Source data: 123", "Destination data: 123"], {}),
    (f"{MEMORY}/4_d2h_async_memory_copy", ["Source data: 123", "Destination data: 123"], {}),
    (f"{MEMORY}/5_d2d_sync_memory_copy", ["Source data: 123", "Destination data: 123"], {}),
    (f"{MEMORY}/6_d2d_async_memory_copy", ["Source data: 123", "Destination data: 123"], {}),
    (f"{MEMORY}/9_multistream_sync_memory",
     ["Flag value after the writing thread starts: 123", "Stream B: write data",
      "Flag value read by the waiting thread: 123"],
     {"more": ["9_multistream_sync_memory/file_ops.cpp"], "folders": ["file"], "any_order": True}),
    ("2_advanced_features/built_in_task/0_reduce_task",
     [f"result[{i}] = {2 * (i + 1):.6f}" for i in range(4)] + ["Sample Run Successfully"], {}),
]

NOT_RUN = [
    ("0_quickstart/3_cross_version", "asks for attributes of an installed package"),
    (f"{CALLBACK}/0_simple_callback",
     "launches a host function on a stream with a subscribed thread, which the runtime's own sources refuse (107011)"),
    (f"{MODEL_RI}/2_model_switch", "builds a graph from persistent streams and labels instead of a capture"),
    (f"{MODEL_RI}/3_cond_model", "conditions inside a graph: not simulated, the backend captures none"),
    (f"{MEMORY}/7, 8, 10 to 12, ipcevent, notify", "memory, events and notifies shared between processes"),
    ("kernel, label, tdt_*, built_in_task/1", "kernels in the device's own format, labels, queues and random numbers"),
    ("3_memory_advanced to 6_scenarios", "allocators of other kinds, repair, profiling, dumps, models of the offline compiler"),
]

# The headers of the operators, which the examples include: declared from our tables.
STUB = r"""
#pragma once
#include "acl/acl.h"
#include "devices/ascend/acl_abi.h"
typedef struct aclTensor aclTensor;
typedef struct aclScalar aclScalar;
typedef struct aclIntArray aclIntArray;
typedef struct aclTensorList aclTensorList;
typedef struct aclOpExecutor aclOpExecutor;
extern "C" {
#define DECLARE_ASCENDCL(name, result, args)
#define DECLARE_NNOPBASE(name, result, args) result name args;
#define DECLARE_OPAPI(name, result, args) result name args;
#define DECLARE_HCCL(name, result, args)
#define NGD_ACL(name, result, args, library, since, instead) DECLARE_##library(name, result, args)
#include "devices/ascend/acl_symbols.def"
#undef NGD_ACL
#define NGD_ACLNN(name, args, since, instead)           \
    ngd_acl_error_t aclnn##name##GetWorkspaceSize args; \
    ngd_acl_error_t aclnn##name(void *, uint64_t, struct aclOpExecutor *, void *);
#include "devices/ascend/aclnn_symbols.def"
}
"""


def run(command, **more):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", **more)


def build(work, checkout, libraries, folder, more):
    """The program, or None and what the compiler said."""
    here = os.path.join(checkout, "example", folder)
    sources = [os.path.join(here, "main.cpp")] + [os.path.join(os.path.dirname(here), s) for s in more.get("more", ())]
    include = [os.path.join(checkout, "include/external"), os.path.join(checkout, "pkg_inc"), os.path.join(checkout, "example"),
               here, os.path.dirname(here), work, TOP]
    program = os.path.join(work, folder.replace("/", "_"))
    done = run([*CXX, "-std=c++17", "-w", "-O1", "-o", program, *sources, os.path.join(work, "kernels.o"),
                os.path.join(work, "names.o"), *(f"-I{d}" for d in include), f"-L{libraries}", f"-Wl,-rpath,{libraries}",
                "-lopapi", "-lnnopbase", "-lascendcl", "-lpthread", "-ldl"])
    return (None, done.stdout) if done.returncode else (program, "")


def missing_line(text, lines, any_order):
    """The first of lines that the text lacks, after those before it."""
    at = 0
    for line in lines:
        found = text.find(line, 0 if any_order else at)
        if found < 0:
            return line
        at = found + len(line)
    return None


def execute(program, work, lines, more):
    """None, or what is wrong with the run."""
    folder = tempfile.mkdtemp(dir=work)
    for name in more.get("folders", ()):
        os.mkdir(os.path.join(folder, name))
    env = dict(os.environ, NGD_ACLSIM_DEVICES=str(more.get("devices", 1)))
    try:
        done = run([program], cwd=folder, env=env, timeout=LIMIT_S)
    except subprocess.TimeoutExpired as late:
        return f"does not end in {LIMIT_S} s", (late.stdout or b"").decode(errors="replace")
    if done.returncode:
        return f"ends with {done.returncode}", done.stdout
    text = re.sub(r"[ \t]+", " ", done.stdout)
    absent = missing_line(text, [re.sub(r"[ \t]+", " ", line).strip() for line in lines], more.get("any_order"))
    if absent:
        return f"does not print \"{absent}\"", done.stdout
    for line in done.stdout.splitlines():
        if "[ERROR]" in line and not any(e in line for e in more.get("errors", ())):
            return f"prints {line}", done.stdout
    return None, done.stdout


def build_kernels(work, libraries):
    for name in ("aclnnop/aclnn_add.h", "aclnnop/aclnn_mul.h", "aclnn/acl_meta.h"):
        path = os.path.join(work, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as f:
            f.write(STUB)
    for command in ([*CC, "-std=gnu11", "-c", "-O1", f"-I{TOP}", f"{TOP}/tests/ascend/acl_samples_kernels.c", "-o", f"{work}/kernels.o"],
                    [*CXX, "-c", "-O1", f"-I{TOP}", f"{TOP}/tests/ascend/acl_samples_kernels.cpp", "-o", f"{work}/names.o"]):
        done = run(command)
        if done.returncode:
            sys.exit(f"the kernels do not build:\n{done.stdout}")
    if not os.path.exists(os.path.join(libraries, "libascendcl.so")):
        sys.exit(f"no simulator in {libraries}: build it first (make devices/ascend/sim/libopapi.la)")


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    checkout = os.path.abspath(sys.argv[1])
    libraries = os.path.join(os.path.abspath(sys.argv[2]), "devices/ascend/sim/.libs")
    wanted = sys.argv[3:]
    failed = passed = 0
    with tempfile.TemporaryDirectory() as work:
        build_kernels(work, libraries)
        print(f"{'sample':60} {'built':6} {'ran':6} result")
        for folder, lines, more in SAMPLES:
            if wanted and not any(w in folder for w in wanted):
                continue
            program, text = build(work, checkout, libraries, folder, more)
            wrong, text = execute(program, work, lines, more) if program else ("does not build", text)
            ended = program and not (wrong or "").startswith(("ends", "does not end"))
            print(f"{folder:60} {'yes' if program else 'no':6} {'yes' if ended else 'no':6} {wrong or 'right'}", flush=True)
            if wrong:
                print("    " + "\n    ".join(text.splitlines()[-25:]))
            failed += bool(wrong)
            passed += not wrong
    print("\nnot run:")
    for folder, why in NOT_RUN:
        print(f"  {folder}: {why}")
    print(f"{passed} passed, {failed} failed")
    sys.exit(1 if failed or not passed else 0)


main()
