/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_TESTS_FUZZ_H
#define NGD_TESTS_FUZZ_H

/*
 * What a fuzz target has in common with the others. A target is one file, fuzz_<parser>.c, that defines
 * LLVMFuzzerTestOneInput and fuzz_runs. It is built in two ways:
 *
 *   make check       with tests/fuzz/fuzz_main.c: runs the corpus (tests/fuzz/corpus/<parser>/), what fuzz_seed gives,
 * and fuzz_runs mutations of them from a fixed seed (NGD_FUZZ_RUNS, NGD_FUZZ_SECONDS and NGD_FUZZ_SEED override). A
 * failure leaves the input in fuzz_<parser>.crash and aborts.
 *   --enable-fuzzer  with clang's libFuzzer, guided by coverage: scripts/campaign fuzz.
 *
 * tests/fuzz/dict/<parser>.dict has words of the language, for both.
 */
#include "base/mem.h"
#include "base/strbuf.h"
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* Mutations in `make check`: as many as take about a second. */
extern const uint32_t fuzz_runs;

/* Optional: the i-th input that code makes, for formats that change with the code. False behind the last one. */
bool fuzz_seed(uint32_t i, struct ngd_strbuf *out) __attribute__((weak));

/* Optional: another directory of inputs, below the source folder. */
extern const char *const fuzz_more __attribute__((weak));

/* Ends the process when `ok` is false: `what` says which promise was broken. */
void fuzz_demand(bool ok, const char *what);

/* The input as a text in memory of exactly n + 1 bytes, so that a read past its end is seen; ngd_free. */
static inline char *fuzz_text(const uint8_t *data, size_t n)
{
    char *text = ngd_malloc(n + 1);

    fuzz_demand(text != NULL, "out of memory");
    if (n)
        memcpy(text, data, n);
    text[n] = '\0';
    return text;
}

#endif
