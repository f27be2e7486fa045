/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/rpc/read_memory.h"
#include "bench/rpc/bench_rpc.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PIECE (4u << 20) /* claimed at a time: a descheduled thread delays the others by one piece at most */

struct reader {
    const char *data;
    uint64_t bytes;
    int n;
    pthread_t threads[64];
    pthread_barrier_t begin, end;
    _Atomic uint64_t next;
    _Atomic uint64_t sink;
    bool stop;
};

typedef uint64_t (*read_fn)(const char *p, uint64_t bytes);

#if defined(__x86_64__)
typedef uint64_t wide __attribute__((vector_size(64)));

/* Each group of lines has four independent streams of loads. The prefetch reaches further than the hardware's own. */
__attribute__((target("avx512f"))) static uint64_t read_avx512(const char *p, uint64_t bytes)
{
    wide a = {0}, b = {0}, c = {0}, d = {0};

    for (uint64_t i = 0; i + 256 <= bytes; i += 256) {
        for (int l = 0; l < 256; l += 64)
            __builtin_prefetch(p + i + 4096 + l);
        a ^= *(const wide *)(const void *)(p + i);
        b ^= *(const wide *)(const void *)(p + i + 64);
        c ^= *(const wide *)(const void *)(p + i + 128);
        d ^= *(const wide *)(const void *)(p + i + 192);
    }
    a ^= b ^ c ^ d;
    return a[0] ^ a[1] ^ a[2] ^ a[3] ^ a[4] ^ a[5] ^ a[6] ^ a[7];
}
#endif

static uint64_t read_plain(const char *p, uint64_t bytes)
{
    typedef uint64_t vec __attribute__((vector_size(16)));
    vec a = {0}, b = {0}, c = {0}, d = {0};

    for (uint64_t i = 0; i + 64 <= bytes; i += 64) {
        __builtin_prefetch(p + i + 4096);
        a ^= *(const vec *)(const void *)(p + i);
        b ^= *(const vec *)(const void *)(p + i + 16);
        c ^= *(const vec *)(const void *)(p + i + 32);
        d ^= *(const vec *)(const void *)(p + i + 48);
    }
    a ^= b ^ c ^ d;
    return a[0] ^ a[1];
}

static read_fn choose_read(void)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f"))
        return read_avx512;
#endif
    return read_plain;
}

static void *read_pieces(void *arg)
{
    struct reader *r = arg;
    read_fn fn = choose_read();

    for (;;) {
        uint64_t sum = 0, at;

        pthread_barrier_wait(&r->begin);
        if (r->stop)
            return NULL;
        while ((at = atomic_fetch_add(&r->next, PIECE)) < r->bytes)
            sum ^= fn(r->data + at, r->bytes - at < PIECE ? r->bytes - at : PIECE);
        atomic_fetch_xor(&r->sink, sum); /* without a use of the sum the compiler drops the loads */
        pthread_barrier_wait(&r->end);
    }
}

struct reader *reader_open(uint64_t bytes, int threads)
{
    struct reader *r = calloc(1, sizeof(*r));
    char *data = mmap(NULL, bytes + 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (r == NULL || data == MAP_FAILED || threads > 64)
        bench_fail("no memory for a buffer of %llu bytes", (unsigned long long)bytes);
    madvise(data, bytes + 8192, MADV_HUGEPAGE);
    memset(data, 0x5a, bytes + 8192);
    r->data = data;
    r->bytes = bytes;
    r->n = threads;
    pthread_barrier_init(&r->begin, NULL, (unsigned)threads + 1);
    pthread_barrier_init(&r->end, NULL, (unsigned)threads + 1);
    for (int i = 0; i < threads; i++)
        if (pthread_create(&r->threads[i], NULL, read_pieces, r) != 0)
            bench_fail("a thread cannot be started");
    return r;
}

double reader_run(struct reader *r)
{
    ngd_nsec_t begin;

    atomic_store(&r->next, 0);
    begin = ngd_now();
    pthread_barrier_wait(&r->begin);
    pthread_barrier_wait(&r->end);
    return (double)(ngd_now() - begin);
}

void reader_close(struct reader *r)
{
    r->stop = true;
    pthread_barrier_wait(&r->begin);
    for (int i = 0; i < r->n; i++)
        pthread_join(r->threads[i], NULL);
    munmap((void *)(uintptr_t)r->data, r->bytes + 8192);
    free(r);
}
