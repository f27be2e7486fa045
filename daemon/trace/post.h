/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_TRACE_POST_H
#define NGD_DAEMON_TRACE_POST_H

/*
 * Sends one HTTP/1.1 request to a collector over a connection of its own, and reads the head of the answer.
 *
 * Why not a library: a request a second to one address, in plain HTTP, from a thread that may wait. Redirects are not
 * followed. Threads: the exporter's. Bounds: NGD_TRACE_ANSWER bytes of the answer are read, and the time `until`.
 */
#include "base/clock.h"
#include "base/status.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NGD_TRACE_ANSWER 4096

struct ngd_trace_endpoint {
    bool local;          /* host is the path of a Unix socket */
    char host[256];      /* without brackets */
    char port[6];        /* decimal */
    char path[256];      /* begins with "/" */
    char authority[272]; /* for the header Host */
};

/* Reads "http://HOST[:PORT][/PATH]" or "unix:/PATH"; without a port it is 4318, without a path /v1/traces. */
bool ngd_trace_endpoint_parse(const char *text, struct ngd_trace_endpoint *endpoint_p);

struct ngd_trace_answer {
    int code;             /* of HTTP; 0: there was no answer */
    uint32_t retry_after; /* seconds; 0: the answer says nothing */
    uint64_t rejected;    /* spans that the collector says it did not take */
    const char *why;      /* a literal: why there was no answer */
};
/* until: in ngd_clock_real(); another thread may lower it. */
void ngd_trace_post(const struct ngd_trace_endpoint *endpoint, const char *body, size_t n, const _Atomic int64_t *until,
                    struct ngd_trace_answer *answer_p);

#endif
