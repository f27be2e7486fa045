/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WORKER_METRICS_H
#define WORKER_METRICS_H

#include <stdatomic.h>
#include <stdbool.h>

/* Any thread may count. */
extern struct counts {
    atomic_ulong read, done, refused, retries, connects, tokens, in_flight;
} counts;

void metrics_count_first(double seconds); /* the time to the first token of a prompt */
/* Serves them at HOST:PORT, an IPv4 address, from a thread of its own. Port 0 is one that is free. Says which. */
bool metrics_serve(const char *address);

#endif
