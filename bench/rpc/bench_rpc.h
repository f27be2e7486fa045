/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_BENCH_RPC_BENCH_RPC_H
#define NGD_BENCH_RPC_BENCH_RPC_H

/* Helpers of the benches that use a daemon: samples and their spread, options, random checkpoints. */
#include "base/clock.h"
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

void bench_fail(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));

/* ---- samples ---- */

struct samples {
    double *v;
    size_t n, room;
};

void samples_add(struct samples *s, double v);
/* Returns the value below which the part q of the samples lies; 0.5 gives the median. Sorts them. */
double samples_quantile(struct samples *s, double q);
/* Prints one line: the median, the middle 80 %, the number of samples. The values are multiplied by scale. */
void samples_print(struct samples *s, const char *what, const char *unit, double scale);
void samples_free(struct samples *s);

/* ---- options: "--name N", "--name", all known ones in one table ---- */

struct bench_option {
    const char *name;
    int64_t *number; /* exactly one of the three is set */
    const char **text;
    bool *flag;
};
/* Ends the program with a list of the options if an argument is not known. */
void bench_options(int argc, char **argv, const struct bench_option *options, size_t n);

/* ---- random checkpoints ---- */

struct bench_shape {
    int64_t layers, hidden, heads, kv_heads, head_dim, ffn, vocab;
    bool tied;
};

#define BENCH_SHAPE_QWEN3_0_6B             \
    ((struct bench_shape){.layers = 28,    \
                          .hidden = 1024,  \
                          .heads = 16,     \
                          .kv_heads = 8,   \
                          .head_dim = 128, \
                          .ffn = 3072,     \
                          .vocab = 151936, \
                          .tied = true})

/* The model of the latency benches: many operators and hardly any arithmetic. */
#define BENCH_SHAPE_TINY                  \
    ((struct bench_shape){.layers = 28,   \
                          .hidden = 64,   \
                          .heads = 4,     \
                          .kv_heads = 2,  \
                          .head_dim = 16, \
                          .ffn = 128,     \
                          .vocab = 512,   \
                          .tied = true})

/* Writes DIR/config.json and DIR/model.safetensors (bf16). Creates DIR if needed. */
void bench_checkpoint_write(const char *dir, const struct bench_shape *shape);
/*
 * Returns the bytes of weights that a decode step reads: all of them, except that only rows are read of an untied
 * embedding.
 */
uint64_t bench_decode_bytes(const struct bench_shape *shape);

/* Returns a port of 127.0.0.1 that was free a moment ago. */
int bench_free_port(void);

/* Creates a directory for the program's files below $TMPDIR or /tmp. bench_dir_remove removes it with its files. */
char *bench_dir_make(void);
void bench_dir_remove(char *dir);

#endif
