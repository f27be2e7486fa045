/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that a kernel's result does not depend on its number of parts, and that nothing is written outside of it. */
#include "tests/ops/direct.h"
#include "tests/ops/each_isa.h"
#include "tests/ops/golden.h"
#include "tests/ops/random_io.h"

#define THREADS 4

static char *case_memory(const struct golden_case *c, const struct direct *d, uint32_t i)
{
    uint32_t n_inputs = 0, n_states = d->plan->graph->n_params;

    for (uint32_t k = 0; k < i; k++) {
        n_inputs += golden_class(c, k, false) == GOLDEN_INPUT;
        n_states += golden_class(c, k, false) == GOLDEN_STATE;
    }
    return golden_class(c, i, false) == GOLDEN_STATE ? d->bound[n_states] : direct_input(d, n_inputs);
}

/* Runs a case, and gives its results and written operands, one after the other. */
static void run_in_parts(const struct golden_case *c, const struct ngd_plan *plan, ngd_isa_t isa, uint32_t parts,
                         struct ngd_strbuf *made)
{
    struct ngd_host_value hosts[GOLDEN_MAX];
    uint32_t n_hosts = 0;
    struct direct d;

    direct_open(&d, plan, isa, THREADS);
    for (uint32_t i = 0; i < c->n_in; i++) {
        if (golden_class(c, i, false) == GOLDEN_HOST)
            hosts[n_hosts++] =
                (struct ngd_host_value){(const int64_t *)(const void *)c->in[i].data, (uint32_t)(c->in[i].bytes / 8)};
        else if (c->in[i].bytes)
            memcpy(case_memory(c, &d, i), c->in[i].data, c->in[i].bytes);
    }
    ck_assert_msg(direct_run(&d, NULL, hosts, parts) == NGD_OK, "%s", c->name);
    ck_assert_msg(direct_guards_intact(&d), "%s writes outside the pool", c->name);
    for (uint32_t i = 0; i < c->n_out; i++)
        ngd_strbuf_append_n(made, direct_output(&d, i), c->out[i].bytes);
    for (uint32_t i = 0; i < c->n_in; i++)
        if (c->op->mutates >> i & 1)
            ngd_strbuf_append_n(made, case_memory(c, &d, i), c->in[i].bytes);
    direct_close(&d);
}

static void check_parts(const struct golden_case *c, struct bench *b, ngd_isa_t isa)
{
    static const uint32_t parts[] = {2, 3, 7, 16};
    struct ngd_strbuf text, one, many;
    struct ngd_diag diag = {0};
    struct ready r = {0};

    ngd_strbuf_init(&text);
    golden_print(&text, c, false);
    if (ready_plan(&r, b, ngd_strbuf_str(&text), NULL, &diag) ==
        NGD_OK) { /* test_ops.c checks cases that cannot be planned */
        ngd_strbuf_init(&one);
        run_in_parts(c, r.plan, isa, 1, &one);
        for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
            ngd_strbuf_init(&many);
            run_in_parts(c, r.plan, isa, parts[i], &many);
            ck_assert_msg(many.len == one.len && (!one.len || memcmp(many.data, one.data, one.len) == 0),
                          "%s on %s: %u parts give another result than one", c->name, ngd_isa_name(isa), parts[i]);
            ngd_strbuf_fini(&many);
        }
        ngd_strbuf_fini(&one);
    }
    ready_close(&r);
    ngd_strbuf_fini(&text);
}

START_TEST(every_golden_case_cut_into_parts_gives_the_same_bits)
{
    struct golden g;

    golden_open(&g);
    EACH_ISA (isa) {
        struct bench b;

        bench_open(&b, (ngd_isa_t)isa, THREADS);
        for (size_t i = 0; i < json_array_size(g.cases); i++) {
            struct golden_case c = golden_case(&g, i);

            if (c.op)
                check_parts(&c, &b, (ngd_isa_t)isa);
        }
        bench_close(&b);
    }
    golden_close(&g);
}
END_TEST

/* A large transposition is computed in tiles, in parts that begin at rows. */
START_TEST(a_transposed_clone_of_any_size_and_type_is_exact_in_any_number_of_parts)
{
    static const char *const dtypes[] = {"i8", "bf16", "f32", "i64"};
    char body[200];

    for (size_t t = 0; t < 4; t++) {
        for (uint32_t parts = 1; parts <= 5; parts += 2) {
            struct ngd_strbuf text;
            struct ready r = {0};
            struct ngd_diag diag = {0};
            struct direct d;
            struct bench b;
            uint64_t size;

            snprintf(body, sizeof(body),
                     "input %%x : %s[3,37,50]\n%%v = aten.transpose.int(%%x) {dim0=1, dim1=2}\n%%y = aten.clone(%%v)",
                     dtypes[t]);
            ngd_strbuf_init(&text);
            run_text(&text, "", body);
            bench_open(&b, ngd_cpu_isa(), 1);
            ck_assert_int_eq(ready_plan(&r, &b, ngd_strbuf_str(&text), NULL, &diag), NGD_OK);
            direct_open(&d, r.plan, ngd_cpu_isa(), THREADS);
            size = r.plan->inputs[0].bytes / (3 * 37 * 50);
            for (uint64_t i = 0; i < r.plan->inputs[0].bytes; i++)
                direct_input(&d, 0)[i] = (char)rng();
            ck_assert_int_eq(direct_run(&d, NULL, NULL, parts), NGD_OK);
            for (uint64_t i = 0; i < 3 * 37 * 50; i++) {
                uint64_t m = i / (37 * 50), c = i / 37 % 50, row = i % 37;

                if (memcmp(direct_output(&d, 0) + i * size, direct_input(&d, 0) + ((m * 37 + row) * 50 + c) * size,
                           size))
                    ck_abort_msg("%s in %u parts: element %llu", dtypes[t], parts, (unsigned long long)i);
            }
            direct_close(&d);
            ready_close(&r);
            bench_close(&b);
            ngd_strbuf_fini(&text);
        }
    }
}
END_TEST

/* Keys and values may be written to one state, and their scales too. What comes last in a row of the graph's words, the
 * value, stays. direct_run() begins with the last part. */
START_TEST(keys_and_values_of_one_state_leave_the_same_bits_in_any_number_of_parts)
{
    static const char *const bodies[] = {
        "state %a : f32[2,4,3,16]\n%y = ngd.qk_norm_rope_scatter(%q, %k, %v, %c, %c, %l, %a, %a)",
        "state %a : i8[2,4,3,16]\nstate %s : f32[2,3,4]\n"
        "%y = ngd.qk_norm_rope_scatter(%q, %k, %v, %c, %c, %l, %a, %a, none, none, %s, %s)",
    };

    for (size_t t = 0; t < 2; t++) {
        struct direct d[2];
        struct ngd_strbuf text;
        struct ngd_diag diag = {0};
        struct ready r = {0};
        char body[600];
        struct bench b;

        snprintf(body, sizeof(body),
                 "input %%q : f32[6,3,16]\ninput %%k : f32[6,3,16]\ninput %%v : f32[6,3,16]\ninput %%c : f32[6,16]\n"
                 "input %%l : i32[6]\n%s",
                 bodies[t]);
        ngd_strbuf_init(&text);
        run_text(&text, "", body);
        bench_open(&b, ngd_cpu_isa(), 1);
        if (ready_plan(&r, &b, ngd_strbuf_str(&text), NULL, &diag) != NGD_OK)
            ck_abort_msg("%s", diag.text);
        for (int i = 0; i < 2; i++)
            direct_open(&d[i], r.plan, ngd_cpu_isa(), THREADS);
        for (uint32_t in = 0; in < 4; in++)
            for (uint64_t e = 0; e < r.plan->inputs[in].bytes / 4; e++)
                ((float *)(void *)direct_input(&d[0], in))[e] = (float)(rng() % 2001) / 1000 - 1;
        for (int32_t row = 0; row < 6; row++)
            ((int32_t *)(void *)direct_input(&d[0], 4))[row] = row < 5 ? row : 0; /* one slot twice */
        for (uint32_t in = 0; in < 5; in++)
            memcpy(direct_input(&d[1], in), direct_input(&d[0], in), r.plan->inputs[in].bytes);
        ck_assert_int_eq(direct_run(&d[0], NULL, NULL, 1), NGD_OK);
        ck_assert_int_eq(direct_run(&d[1], NULL, NULL, 9), NGD_OK);
        for (uint32_t i = 0; i < d[0].n_bound; i++)
            ck_assert_msg(memcmp(d[0].bound[i], d[1].bound[i], r.plan->bound[i].bytes) == 0, "%zu, state %u", t, i);
        for (int i = 0; i < 2; i++)
            direct_close(&d[i]);
        ready_close(&r);
        bench_close(&b);
        ngd_strbuf_fini(&text);
    }
}
END_TEST

UNIT_MAIN("ops/kernel_parts", every_golden_case_cut_into_parts_gives_the_same_bits,
          a_transposed_clone_of_any_size_and_type_is_exact_in_any_number_of_parts,
          keys_and_values_of_one_state_leave_the_same_bits_in_any_number_of_parts)
