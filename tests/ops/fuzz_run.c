/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Run fuzzing: takes random graphs from text to plan to execution, in one process.
 *
 *     fuzz_run [--seconds N] [--seed S] [--runs N] [--one SEED] [--emit 1]
 * Graphs of two kinds take turns: any operators of the table (tests/unit/random_graph.h), and chains of views that end
 * in a sum (random_chain.h). Each runs on an instruction set of this machine
 *   - without passes, call by call; a call may touch only its own memory, which begins as NaN (checked.h);
 *   - under every set of options, with one thread and three, replayed and eager: status and bits must be those of
 *     the first run, where any NaN equals any other.
 * A failure prints its seed and the graph; --one runs one seed again. Ends with "N passed, N failed". With --emit all
 * results of nodes are outputs, and their values are printed: emit_case.h.
 *
 * scripts/campaign run calls it; a build with AddressSanitizer also finds reads outside a call's memory.
 */
#include "base/clock.h"
#include "graphs/compare.h"
#include "tests/ops/checked.h"
#include "tests/ops/each_isa.h"
#include "tests/ops/emit_case.h"
#include "tests/ops/random_chain.h"
#include "tests/unit/random_graph.h"
#include <signal.h>

#define ROOM ((uint64_t)4 << 20) /* larger graphs are left out */

static volatile uint64_t current;
static bool emit;

/* Prints the seed at a crash. */
static void on_crash(int signal_number)
{
    char text[64];
    const int n = snprintf(text, sizeof(text), "crash at --one %" PRIu64 "\n", current);

    if (write(STDOUT_FILENO, text, (size_t)n) < 0)
        _exit(2);
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

static void return_all(struct ngd_graph *g)
{
    for (uint32_t i = 0; i < g->n_nodes; i++)
        for (uint32_t k = 0; k < g->nodes[i].n_out; k++) {
            char name[24];

            snprintf(name, sizeof(name), "n%u.%u", i, k);
            (void)ngd_graph_add_output(g, name, g->nodes[i].out[k], NULL);
        }
}

static struct ngd_graph *any_graph(uint64_t seed)
{
    struct ngd_graph *g = make_lone_graph(seed, 1), *parsed = NULL;
    struct ngd_strbuf text;

    if (emit)
        return_all(g);
    if (ngd_graph_seal(g, NULL) != NGD_OK)
        return ngd_graph_unref(g);
    ngd_strbuf_init(&text);
    ngd_graph_print(g, &text);
    run_check(ngd_graph_parse(text.data, text.len, &parsed, &(struct ngd_diag){0}), &(struct ngd_diag){0}, "parse");
    ngd_strbuf_fini(&text);
    ngd_graph_unref(g);
    return parsed;
}

static struct ngd_graph *chain_graph(uint64_t seed)
{
    struct ngd_graph *g = NULL;
    struct ngd_diag diag = {0};
    struct chain c;

    make_text(&c, seed);
    if (emit) { /* behind the chain's own result */
        c.head.len -= strlen("\n}\n");
        for (uint32_t i = 1; i <= c.at; i++)
            ngd_strbuf_printf(&c.head, ", \"n%u\" = %%v%u", i, i);
        ngd_strbuf_append(&c.head, "\n}\n");
    }
    run_check(ngd_graph_parse(c.head.data, c.head.len, &g, &diag), &diag, ngd_strbuf_str(&c.head));
    ngd_strbuf_fini(&c.head);
    ngd_strbuf_fini(&c.text);
    return g;
}

static struct ngd_plan *plan_with(struct bench *b, struct ngd_graph *g, const int64_t *symbols,
                                  const struct ngd_graph_options *options)
{
    struct ngd_digest digest = {{0}};
    struct ngd_plan *plan = NULL;
    struct ngd_key key;

    if (ngd_key_make(g, &digest, symbols, g->n_symbols, &key, NULL) ||
        ngd_plan_create(g, &key, options, ngd_device_target(b->dev), &plan, NULL))
        return NULL;
    return plan;
}

/* Runs a plan without passes as run_plan does, but in guarded memory. Returns false if a call wrote other memory. */
static bool run_guarded(const struct ngd_plan *plan, ngd_isa_t isa, const int64_t *symbols, struct made *m)
{
    const struct ngd_plan_call *culprit;
    const struct ngd_graph *g = plan->graph;
    struct ngd_strbuf all;
    struct checked c;

    checked_open(&c, plan, isa, 3);
    for (uint32_t i = 0; i < g->n_inputs; i++)
        if (plan->inputs[i].tensor != NGD_PLAN_NONE)
            fill_bytes(direct_input(&c.d, i), g->values[g->inputs[i]].type.dtype, io_size(&plan->inputs[i], symbols),
                       200 + i);
    for (uint32_t i = 0; i < c.d.n_bound; i++)
        fill_bytes(c.d.bound[i], g->values[i < g->n_params ? g->params[i] : g->states[i - g->n_params]].type.dtype,
                   plan->bound[i].bytes, 100 + i);
    m->status = checked_run(&c, symbols, 3, &culprit);
    ngd_strbuf_init(&all);
    for (uint32_t i = 0; i < g->n_outputs; i++)
        ngd_strbuf_append_n(&all, direct_output(&c.d, i), ngd_plan_output_bytes(plan, i, symbols));
    for (uint32_t i = g->n_params; i < c.d.n_bound; i++)
        ngd_strbuf_append_n(&all, c.d.bound[i], plan->bound[i].bytes);
    m->bytes = all.len;
    m->data = calloc(all.len + 1, 1);
    if (all.len)
        memcpy(m->data, all.data, all.len);
    ngd_strbuf_fini(&all);
    checked_close(&c);
    if (culprit)
        printf("%s writes outside its memory\n", culprit->op->name);
    return !culprit;
}

/* Compares results. After a failed replay states may have any contents. */
static bool same_results(const struct ngd_plan *plan, const int64_t *symbols, const struct made *got,
                         const struct made *want)
{
    const struct ngd_graph *g = plan->graph;
    struct ngd_difference diff;
    uint64_t at = 0;

    if (want->status) /* for example an index out of range; if passes remove the unused node, the replay does not fail
                       */
        return got->status == want->status || got->status == NGD_OK;
    if (got->status || got->bytes != want->bytes)
        return false;
    for (uint32_t i = 0; i < g->n_outputs + g->n_states; i++) {
        const bool output = i < g->n_outputs;
        const uint32_t value = output ? g->outputs[i].value : g->states[i - g->n_outputs];
        const ngd_dtype_t t = g->values[value].type.dtype;
        const uint64_t bytes =
            output ? ngd_plan_output_bytes(plan, i, symbols) : plan->bound[g->n_params + i - g->n_outputs].bytes;

        if (!ngd_compare_bits(t, got->data + at, want->data + at, bytes / ngd_dtype_bytes(t), &diff))
            return false;
        at += bytes;
    }
    return true;
}

static bool fits(const struct ngd_graph *g, const struct ngd_plan *plan)
{
    if (g->n_hosts || g->n_inputs > 64 || g->n_outputs > 64 || g->n_params + g->n_states > 64 ||
        plan->pool_bytes > ROOM)
        return false;
    for (uint32_t i = 0; i < g->n_params + g->n_states; i++)
        if (plan->bound[i].bytes > ROOM)
            return false;
    return true;
}

/* Runs the graph under each set of options, and prints failures. */
static bool run_sets(struct bench *benches, struct ngd_graph *g, struct ngd_plan *plain, const int64_t *symbols,
                     const struct made *want)
{
    bool ok = true;

    for (size_t i = 0; i < N_OPTION_SETS; i++) {
        struct ngd_graph_options options;
        const bool passes = chain_options(i, &options);
        struct ngd_plan *plan = plan_with(&benches[i % 2], g, symbols, passes ? &options : NULL);
        struct made got = {.status = NGD_ERR_INTERNAL};

        if (plan)
            got = run_plan(&benches[i % 2], plan, symbols, NULL, i % 3 == 1);
        if (!plan || !same_results(plain, symbols, &got, want)) {
            printf("other results with %s on %s\n", option_sets[i] ? option_sets[i] : "no passes", benches[i % 2].name);
            ok = false;
        }
        free(got.data);
        ngd_plan_unref(plan);
    }
    return ok;
}

/* Runs a seed. Returns 1: passed; 0: failed; -1: not a graph, or too large. benches:
 * with one thread, and with three. */
static int run_seed(struct bench *benches, ngd_isa_t isa, uint64_t seed)
{
    struct ngd_graph *g = seed % 2 ? chain_graph(seed / 2) : any_graph(seed / 2);
    int64_t symbols[NGD_GRAPH_MAX_SYMBOLS] = {0};
    struct made want = {0};
    struct ngd_plan *plain;
    struct ngd_strbuf text;
    int result = -1;

    for (uint32_t i = 0; g && i < g->n_symbols; i++)
        symbols[i] =
            g->symbols[i].min + (int64_t)(seed / (i + 1) % (uint64_t)(g->symbols[i].max - g->symbols[i].min + 1));
    plain = g ? plan_with(&benches[1], g, symbols, NULL) : NULL; /* has room for its three parts */
    if (plain && fits(g, plain)) {
        result = run_guarded(plain, isa, symbols, &want);
        result = run_sets(benches, g, plain, symbols, &want) && result;
        if (emit && want.status == NGD_OK)
            emit_case(g, symbols, seed, benches[0].name, &want);
        free(want.data);
    }
    if (result == 0) {
        ngd_strbuf_init(&text);
        ngd_graph_print(g, &text);
        printf("failed: --one %" PRIu64 " (symbols from %" PRId64 ") on %s\n%s\n", seed, symbols[0], benches[0].name,
               ngd_strbuf_str(&text));
        ngd_strbuf_fini(&text);
    }
    ngd_plan_unref(plain);
    ngd_graph_unref(g);
    return result;
}

static uint64_t argument(int argc, char **argv, const char *name, uint64_t otherwise)
{
    for (int i = 1; i + 1 < argc; i++)
        if (strcmp(argv[i], name) == 0)
            return strtoull(argv[i + 1], NULL, 10);
    return otherwise;
}

static struct {
    uint64_t seconds, seed, one, runs;
} settings;

static uint64_t passed, failed;

/* Runs seed i; with --one on each instruction set. */
static void run_turn(struct bench (*benches)[2], uint64_t i, int last)
{
    const bool one = settings.one != UINT64_MAX;
    int isa = one ? 0 : (int)(i % (uint64_t)(last + 1));

    current = one ? settings.one : settings.seed + i;
    do {
        const int result = run_seed(benches[isa], (ngd_isa_t)isa, current);

        passed += result == 1;
        failed += result == 0;
    } while (one && ++isa <= last);
}

START_TEST(random_graphs)
{
    const ngd_nsec_t until = ngd_now() + (ngd_nsec_t)settings.seconds * NGD_SEC;
    const int last = (int)ngd_cpu_isa();
    struct bench benches[NGD_ISA_MAX][2];

    for (int isa = 0; isa <= last; isa++)
        for (uint32_t k = 0; k < 2; k++)
            bench_open(&benches[isa][k], (ngd_isa_t)isa, k ? 3 : 1);
    for (uint64_t i = 0; settings.seconds ? ngd_now() < until : i < settings.runs; i++)
        run_turn(benches, i, last);
    for (int isa = 0; isa <= last; isa++)
        for (uint32_t k = 0; k < 2; k++)
            bench_close(&benches[isa][k]);
}
END_TEST

/* The generators assert with libcheck, so the runs are a test of libcheck. */
int main(int argc, char **argv)
{
    static const int signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGABRT, SIGILL};
    Suite *suite = suite_create("run");
    TCase *tcase = tcase_create("run");
    SRunner *runner = srunner_create(suite);
    int broken;

    settings.seconds = argument(argc, argv, "--seconds", 0);
    settings.seed = argument(argc, argv, "--seed", 1) << 20;
    emit = argument(argc, argv, "--emit", 0) != 0;
    settings.one = argument(argc, argv, "--one", UINT64_MAX);
    settings.runs = settings.one == UINT64_MAX ? argument(argc, argv, "--runs", 400) : 1;
    for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
        signal(signals[i], on_crash);
    suite_add_tcase(suite, tcase);
    tcase_add_test(tcase, random_graphs);
    srunner_set_fork_status(runner, CK_NOFORK);
    srunner_run_all(runner, CK_NORMAL);
    broken = srunner_ntests_failed(runner);
    if (broken)
        printf("broken off at --one %" PRIu64 "\n", current);
    srunner_free(runner);
    printf("%" PRIu64 " passed, %" PRIu64 " failed\n", passed, failed + (uint64_t)broken);
    return failed || broken;
}
