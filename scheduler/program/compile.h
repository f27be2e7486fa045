/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_SCHEDULER_PROGRAM_COMPILE_H
#define NGD_SCHEDULER_PROGRAM_COMPILE_H

/*
 * static_kernel_compile: executables whose kernels are compiled for their shapes in the background.
 *
 * A thread of low priority takes one executable after the other: the store may have its object, else the compiler makes
 * it, and then replays that begin later run it. Captures never wait for that, nor do replays; whatever goes wrong, the
 * executable goes on as it is, and why is counted (NGD_M_STATIC_KERNELS).
 */
#include "devices/device.h"
#include "graphs/options.h"

struct ngd_executable;

/* Queues x, of a group each rank's, once in its life, if the options ask for it. Any thread; does not block. */
void ngd_compile_later(struct ngd_executable *x, const struct ngd_graph_options *options);

#endif
