/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_SCHEDULER_PROGRAM_EXECUTABLE_H
#define NGD_SCHEDULER_PROGRAM_EXECUTABLE_H

/* What program.c needs to make a cache of executables; the rest of executable.c is declared in program_int.h. */
#include "graphs/gcache.h"

/* ctx is the program. */
extern const struct ngd_gcache_ops ngd_executable_cache_ops;

#endif
