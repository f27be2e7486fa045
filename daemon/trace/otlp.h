/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_TRACE_OTLP_H
#define NGD_DAEMON_TRACE_OTLP_H

/*
 * Prints records as an ExportTraceServiceRequest of OTLP in JSON: ids in hexadecimal, 64-bit numbers as strings. Why
 * JSON: a batch a second costs little, and no code of the protocol has to be carried.
 */
#include "base/strbuf.h"
#include "daemon/trace/record.h"

/*
 * instance: the process's id. offset: what turns times of records into Unix times, ns. Returns the number of spans.
 * sb->failed: no memory.
 */
uint32_t ngd_otlp_print(const struct ngd_trace_record *records, uint32_t n, const char *instance, ngd_nsec_t offset,
                        struct ngd_strbuf *sb);

#endif
