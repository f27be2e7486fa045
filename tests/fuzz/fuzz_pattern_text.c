/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzzing of the pattern parser and of what is done with what it accepts. Whatever the bytes are, the answer is
 * patterns or an error with a diagnosis; what was accepted parses again, from its own text, to the same digest, and may
 * be tried on a graph, which stays valid.
 *
 * With libFuzzer: clang -fsanitize=fuzzer,address,undefined -DNGD_LIBFUZZER ... Alone (make check): mutations of the
 * built-in patterns from a fixed seed, NGD_FUZZ_RUNS of them (default 3000). A failure aborts and leaves the text in
 * fuzz_pattern_text.crash.
 */
#include "base/mem.h"
#include "graphs/pass.h"
#include "graphs/pattern.h"
#include "graphs/pattern_match.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PATTERNS 64

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void demand(bool ok, const char *what, const uint8_t *data, size_t n)
{
    FILE *f;

    if (ok)
        return;
    fprintf(stderr, "fuzz_pattern_text: %s\n", what);
    f = fopen("fuzz_pattern_text.crash", "wb");
    if (f) {
        fwrite(data, 1, n, f);
        fclose(f);
    }
    abort();
}

static const char graph_text[] =
    "npugraph 1\ngraph \"g\" {\n  sym B 1..8 buckets 8\n  param %w : f32[4,4]\n  param %g : f32[4]\n  input %x : "
    "f32[B,4]\n"
    "  state %s : f32[4]\n  %a = aten.linear(%x, %w)\n  %b = aten.silu(%a)\n  %c = aten.linear(%x, %w)\n"
    "  %d = aten.mul.Tensor(%b, %c)\n  %e = aten.add.Tensor(%d, %x)\n  %n, %r = npu.rms_norm(%e, %g)\n"
    "  %f = aten.linear(%n, %w)\n  aten.copy_(%s, %g)\n  %h = aten.add.Tensor(%f, %s)\n  return \"h\" = %h\n}\n";

static ngd_status_t accept(void *ctx, const struct ngd_plan *plan, const struct ngd_plan_call *call,
                           uint32_t *strided_p, uint64_t *workspace_p, struct ngd_diag *diag)
{
    (void)ctx, (void)plan, (void)call, (void)diag;
    *strided_p = 0;
    *workspace_p = 0;
    return NGD_OK;
}

static void try_on_graph(const struct ngd_pattern *p, const uint8_t *data, size_t n)
{
    static const struct ngd_plan_target target = {.arch = "fuzz", .select = accept};
    const int64_t symbols[] = {8};
    struct ngd_graph *g = NULL, *after = NULL;
    struct ngd_diag diag = {0};
    struct ngd_graph_options options;
    struct ngd_pass_context ctx = {.target = &target, .options = &options, .symbols = symbols, .diag = &diag};

    demand(!ngd_graph_parse(graph_text, sizeof(graph_text) - 1, &g, &diag), diag.text, data, n);
    ngd_graph_options_init(&options);
    options.allow_excess_precision = n % 2; /* either way, and the same each time */
    demand(!ngd_rewrite_create(g, symbols, &ctx.rw, &diag), diag.text, data, n);
    for (uint32_t node = ctx.rw->first, next; node != NGD_NODE_NONE; node = next) {
        bool replaced = false;

        next = ctx.rw->nodes[node].next;
        demand(!ngd_pattern_apply(&ctx, p, node, &replaced), diag.text, data, n);
        if (replaced)
            break;
    }
    demand(!ngd_rewrite_seal(ctx.rw, &after, &diag), diag.text, data, n);
    ngd_graph_unref(after);
    ngd_rewrite_destroy(ctx.rw);
    ngd_graph_unref(g);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct ngd_pattern *p[PATTERNS], *again[1];
    struct ngd_diag diag = {0};
    uint32_t count = 0, one = 0;

    if (ngd_patterns_parse((const char *)data, n, p, PATTERNS, &count, &diag)) {
        demand(diag.text[0] != '\0', "refused without a diagnosis", data, n);
        return 0;
    }
    for (uint32_t i = 0; i < count; i++) {
        demand(!ngd_patterns_parse(p[i]->text, strlen(p[i]->text), again, 1, &one, &diag) && one == 1, diag.text, data,
               n);
        demand(ngd_digest_equal(&p[i]->digest, &again[0]->digest), "its own text has another digest", data, n);
        ngd_pattern_unref(again[0]);
        try_on_graph(p[i], data, n);
        ngd_pattern_unref(p[i]);
    }
    return 0;
}

#ifndef NGD_LIBFUZZER
static uint64_t state = 88172645463325252u;

static uint32_t draw(uint32_t n)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state >> 33) % n;
}

/* One of the built-in patterns. */
static size_t pick(char *to, size_t room)
{
    struct ngd_pattern_set *set = ngd_pattern_set_builtin();
    const char *text = set->patterns[draw(set->n)]->text;
    size_t n = strlen(text) < room ? strlen(text) : room;

    memcpy(to, text, n);
    ngd_pattern_set_unref(set);
    return n;
}

static size_t mutate(char *text, size_t n, size_t room)
{
    static const char *const words[] = {"%x", "[",  "]", "{", "}",   "dim N", "f32",   "aten.neg", "return", "=",
                                        "*",  "..", "~", "_", "1e9", "none",  "state", "where",    "mod",    "\""};
    const char *word = words[draw(sizeof(words) / sizeof(words[0]))];
    size_t at = draw((uint32_t)n), len = strlen(word);

    switch (draw(5)) {
    case 0:
        text[at] = (char)draw(256);
        return n;
    case 1:
        memmove(text + at, text + at + 1, n - at - 1);
        return n - 1;
    case 2:
        if (n + len >= room)
            return n;
        memmove(text + at + len, text + at, n - at);
        memcpy(text + at, word, len);
        return n + len;
    case 3: { /* a line goes to another place */
        size_t from = draw((uint32_t)n), m = 1 + draw(40);

        m = from + m > n ? n - from : m;
        m = at + m > n ? n - at : m;
        memmove(text + at, text + from, m);
        return n;
    }
    default:
        text[at] = "0123456789%.,ABXN"[draw(17)];
        return n;
    }
}

int main(void)
{
    const char *env = getenv("NGD_FUZZ_RUNS");
    uint64_t runs = env ? strtoull(env, NULL, 10) : 3000;
    static char text[16384];

    for (uint64_t i = 0; i < runs; i++) {
        size_t n = pick(text, sizeof(text) / 2);

        for (uint32_t k = draw(4); k > 0 && n > 1; k--)
            n = mutate(text, n, sizeof(text));
        LLVMFuzzerTestOneInput((const uint8_t *)text, n);
    }
    printf("%llu texts\n", (unsigned long long)runs);
    return 0;
}
#endif
