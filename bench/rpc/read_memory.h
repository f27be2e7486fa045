/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_BENCH_RPC_READ_MEMORY_H
#define NGD_BENCH_RPC_READ_MEMORY_H

/* Measures the machine's read bandwidth with threads that do nothing but load. */
#include <stdint.h>

struct reader;

/* Creates a buffer of so many bytes, in huge pages where the system has them, and the threads, which sleep. */
struct reader *reader_open(uint64_t bytes, int threads);
/* Returns the nanoseconds that all threads together take to read the buffer once. */
double reader_run(struct reader *r);
void reader_close(struct reader *r);

#endif
