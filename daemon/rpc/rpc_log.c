/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/rpc/rpc_log.h"
#include "base/log.h"
#include <grpc/support/log.h>
#include <stdint.h>
#include <string.h>

#define LIMITS 256

/* Returns the limit of a message, which its place in gRPC's source identifies. Messages whose hashes collide share
 * one. */
static struct ngd_log_limit *limit_of_place(const char *file, int line)
{
    static struct ngd_log_limit limits[LIMITS];
    uint32_t hash = (uint32_t)line;

    for (; *file; file++)
        hash = hash * 31 + (uint8_t)*file;
    return &limits[hash % LIMITS];
}

static void log_line(gpr_log_func_args *args)
{
    ngd_log_level_t level = args->severity == GPR_LOG_SEVERITY_ERROR ? NGD_LOG_WARNING : NGD_LOG_DEBUG;
    char quoted[NGD_LOG_VALUE_MAX];

    if (level > ngd_log_get_level())
        return;
    ngd_log_limited(limit_of_place(args->file, args->line), level, "grpc", "gRPC reports: %s",
                    ngd_log_value(args->message, quoted));
}

void ngd_rpc_log_start(void)
{
    gpr_set_log_function(log_line);
    gpr_set_log_verbosity(GPR_LOG_SEVERITY_INFO);
}
