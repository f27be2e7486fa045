/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_SCHEDULER_PROGRAM_COMPILE_H
#define NGD_SCHEDULER_PROGRAM_COMPILE_H

/*
 * static_kernel_compile: compiles the kernels of executables for their shapes, in the background.
 *
 * A thread of low priority takes one executable after another. It loads the object from the store or runs the compiler.
 * Replays that begin later use the object. Neither captures nor replays wait for it. If something fails, the executable
 * stays as it is, and the reason is counted (NGD_M_STATIC_KERNELS).
 */
#include "devices/device.h"
#include "graphs/options.h"

struct ngd_executable;

/*
 * Queues x if the options ask for it, once in its life; for a gang, the executables of all ranks. Any thread; does not
 * block.
 */
void ngd_compile_later(struct ngd_executable *x, const struct ngd_graph_options *options);

#endif
