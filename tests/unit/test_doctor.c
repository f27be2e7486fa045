/* SPDX-License-Identifier: Apache-2.0 */
/* Tests forms of a graph and the doctor with the patterns of the program, on the real host device. */
#include "graphs/pattern.h"
#include "scheduler/diag/doctor.h"
#include "scheduler/diag/verify_form.h"
#include "tests/unit/sched_util.h"

/* Its replacement is wrong, so that the results show that it is used. */
static const char *const triple = "pattern \"triple\" {\n  version 1\n  dim N\n  input %x : f32[N]\n  source { %y = "
                                  "aten.add.Tensor(%x, %x) return %y }\n"
                                  "  replacement { %y = aten.mul.Scalar(%x) {other=3} return %y }\n}\n";

static struct ngd_pattern_set *registered(void)
{
    struct ngd_pattern_set *set = NULL;
    struct ngd_pattern *p = NULL;
    uint32_t n = 0;

    ck_assert_int_eq(ngd_patterns_parse(triple, strlen(triple), &p, 1, &n, NULL), NGD_OK);
    ck_assert_int_eq(ngd_pattern_set_create(&set), NGD_OK);
    ck_assert_int_eq(ngd_pattern_set_add(set, p), NGD_OK);
    ngd_pattern_unref(p);
    return set;
}

static struct ngd_program *open_with(struct bed *bed, const char *text, struct ngd_pattern_set *set)
{
    struct ngd_graph *g = bed_graph(text);
    struct ngd_graph_options options;
    struct ngd_program *prog = NULL;

    ngd_graph_options_init(&options);
    ck_assert_int_eq(ngd_program_open(bed->sched, bed->dev, g, &options, set, &prog, NULL, NULL), NGD_OK);
    ngd_graph_unref(g);
    return prog;
}

static float tried(struct bed *bed, struct ngd_program *prog, struct ngd_pattern_set *patterns)
{
    static const float x[2] = {1, 10};
    static const int64_t two = 2;
    const struct ngd_span input = {x, sizeof(x)};
    const struct ngd_launch launch = {.symbols = &two, .inputs = &input};
    struct ngd_verify_results results = {0};
    struct ngd_diag diag = {0};
    struct ngd_key key;
    struct ngd_verify_form form = {.slot = bed_slot(bed, 0),
                                   .graph = prog->graph,
                                   .key = &key,
                                   .options = &prog->options,
                                   .passes = true,
                                   .patterns = patterns,
                                   .launch = &launch};
    float y;

    ck_assert_int_eq(ngd_program_key(prog, &two, 1, &key, NULL), NGD_OK);
    if (ngd_verify_form_run(&form, &results, NULL, &diag))
        ck_abort_msg("%s", diag.text);
    ck_assert_uint_eq(results.n, 1);
    memcpy(&y, (const float *)results.list[0].data + 1, sizeof(y));
    ngd_verify_results_fini(&results);
    return y;
}

START_TEST(a_form_runs_with_the_patterns_that_it_is_given)
{
    struct ngd_pattern_set *set = registered();
    struct ngd_program *prog;
    struct bed bed;

    bed_open(&bed, 1, 0);
    prog = open_with(&bed, DOUBLE_TEXT, set);
    ck_assert_float_eq(tried(&bed, prog, set), 30);
    ck_assert_float_eq(tried(&bed, prog, NULL), 20);
    ngd_program_unref(prog);
    ngd_pattern_set_unref(set);
    bed_close(&bed);
}
END_TEST

static void doctor(struct ngd_program *prog, struct ngd_doctor_report *report)
{
    const struct ngd_doctor_params params = {.prog = prog, .seed = 3};
    struct ngd_diag diag = {0};

    if (ngd_doctor_run(&params, report, &diag))
        ck_abort_msg("%s", diag.text);
}

START_TEST(doctor_blames_a_registered_pattern_that_lies)
{
    static struct ngd_doctor_report report;
    struct ngd_pattern_set *set = registered();
    struct ngd_program *with, *without;
    struct bed bed;

    bed_open(&bed, 1, 0);
    with = open_with(&bed, DOUBLE_TEXT, set);
    doctor(with, &report);
    ck_assert(!report.healthy);
    ck_assert_msg(strncmp(report.step, "pass fuse", 9) == 0, "%s", report.verdict);
    ck_assert_ptr_nonnull(strstr(report.node, "aten.mul.Scalar"));
    without = open_with(&bed, DOUBLE_TEXT, NULL); /* another client's binding of the same graph */
    doctor(without, &report);
    ck_assert_msg(report.healthy, "%s", report.verdict);
    ngd_program_unref(with);
    ngd_program_unref(without);
    ngd_pattern_set_unref(set);
    bed_close(&bed);
}
END_TEST

/* A pass replaces a symbol by a number, so that nothing uses the symbol any more. */
START_TEST(doctor_looks_at_graphs_whose_symbols_became_numbers)
{
    static struct ngd_doctor_report report;
    struct ngd_program *prog;
    struct bed bed;

    bed_open(&bed, 1, 0);
    prog =
        open_with(&bed,
                  "npugraph 1\ngraph \"g\" {\n  sym N 1..8\n  input %x : f32[N,4]\n  %a = aten.clone(%x)\n"
                  "  %b = aten.exp(%a)\n  %c = aten.exp(%x)\n  %d = aten.add.Tensor(%b, %c)\n  return \"d\" = %d\n}\n",
                  NULL);
    doctor(prog, &report);
    ck_assert_msg(report.healthy, "%s", report.verdict);
    ck_assert_uint_gt(report.n_steps, 4); /* and passes were among them */
    ngd_program_unref(prog);
    bed_close(&bed);
}
END_TEST

UNIT_MAIN("scheduler/doctor", a_form_runs_with_the_patterns_that_it_is_given,
          doctor_blames_a_registered_pattern_that_lies, doctor_looks_at_graphs_whose_symbols_became_numbers)
