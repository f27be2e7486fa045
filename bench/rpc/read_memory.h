/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_BENCH_RPC_READ_MEMORY_H
#define NGD_BENCH_RPC_READ_MEMORY_H

/* The machine's read bandwidth: threads that do nothing but load. */
#include <stdint.h>

struct reader;

/* A buffer of so many bytes in huge pages where the system has them, and the threads, asleep. */
struct reader *reader_open(uint64_t bytes, int threads);
/* Nanoseconds in which all threads together read the buffer once. */
double reader_run(struct reader *r);
void reader_close(struct reader *r);

#endif
