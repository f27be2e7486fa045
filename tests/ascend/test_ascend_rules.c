/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The backend by operator_rules.def: on each chip and version it plans every golden case of every operator, or refuses
 * it in its own words. CANN is never asked for what its public sources refuse.
 */
#include "tests/ascend/simulated.h"
#include "tests/ops/golden_run.h"

struct platform {
    const char *soc, *api;
};

/* Plans the case; counts it. */
static void plan_case(struct bench *b, const struct golden_case *g, const struct platform *p, int *planned,
                      int *refused)
{
    struct ngd_diag diag = {0};
    struct ngd_strbuf text;
    struct ready r = {0};
    ngd_status_t status;

    ngd_strbuf_init(&text);
    golden_print(&text, g, false);
    status = ready_plan(&r, b, ngd_strbuf_str(&text), NULL, &diag);
    ck_assert_msg(status == NGD_OK || !strstr(diag.text, "CANN answers"), "%s on %s with CANN %s: %s\n%s", g->name,
                  p->soc, p->api, diag.text, ngd_strbuf_str(&text));
    *planned += status == NGD_OK;
    *refused += status == NGD_ERR_OP_UNSUPPORTED;
    ready_close(&r);
    ngd_strbuf_fini(&text);
}

static void plan_cases(const struct platform *p)
{
    static struct golden_case one; /* static, since it is large */
    struct ngd_diag diag = {0};
    int planned = 0, refused = 0;
    struct golden g;
    struct bench b;

    simulator_set("soc", p->soc);
    simulator_set("api", p->api);
    must(simulated_open(&b, 0, "2000", &diag), &diag);
    golden_open(&g);
    for (size_t i = 0; i < json_array_size(g.cases); i++) {
        one = golden_case(&g, i);
        if (one.op && strncmp(one.op->name, "_c10d_functional.", 17) != 0 &&
            !(one.op->flags & (NGD_OPF_RANDOM | NGD_OPF_SYNC | NGD_OPF_DATA_SHAPE | NGD_OPF_EVENT)))
            plan_case(&b, &one, p, &planned, &refused);
    }
    printf("%s with CANN %s: %d cases are planned, %d are refused by the backend\n", p->soc, p->api, planned, refused);
    ck_assert_int_gt(planned, 100);
    golden_close(&g);
    close_device(&b);
}

START_TEST(no_golden_case_is_refused_by_cann_on_any_chip_or_version)
{
    static const struct platform platforms[] = {
        {"Ascend910B4", "8.1"},    {"Ascend910B4", "8.5"}, {"Ascend910_9382", "8.1"},
        {"Ascend910_9382", "8.3"}, {"Ascend950PR", "9.1"}, {"Ascend310P3", "8.2"},
    };

    for (size_t i = 0; i < sizeof(platforms) / sizeof(platforms[0]); i++)
        plan_cases(&platforms[i]);
    simulator_set("api", "9.1");
    simulator_set("soc", "Ascend910B-simulator");
}
END_TEST

/* What was refused on 910B by CANN before the backend knew the rules; golden cases check the results. */
START_TEST(dtypes_that_a_chip_does_not_take_are_computed_in_others)
{
    static const struct {
        const char *body, *soc;
        ngd_status_t status;
        const char *text;
    } cases[] = {
        {" input %x : bf16[4]\n %y = aten.erf(%x)", "Ascend910B4", NGD_OK, ""},
        {" input %x : bf16[4]\n %y = aten.erf(%x)", "Ascend910_9382", NGD_OK, ""},
        {" input %x : bool[4]\n %y = aten.ge.Tensor(%x, %x)", "Ascend910B4", NGD_OK, ""},
        {" input %x : bool[4]\n %y = aten.cumsum(%x) {dim=0}", "Ascend910B4", NGD_OK, ""},
        {" input %x : bf16[4,8]\n %y, %z = aten.var_mean.correction(%x) {dim=[1]}", "Ascend910B4", NGD_OK, ""},
        {" input %x : bf16[4,2,1024]\n input %c : bf16[4,1024]\n %y = npu.rotary_mul(%x, %c, %c)", "Ascend910B4",
         NGD_OK, ""},
        {" input %x : f32[4]\n input %m : bool[4]\n %y = aten.masked_fill.Scalar(%x, %m) {value=7}", "Ascend910B4",
         NGD_OK, ""},
        {" input %x : bf16[4]\n %y = aten.erf(%x)", "Ascend310P3", NGD_ERR_OP_UNSUPPORTED,
         "operand 0 is bfloat16; on 310P it is float32, float16"},
        {" input %x : bool[4]\n input %a : bf16[4]\n %y = aten.where.self(%x, %a, %a)", "Ascend310P3",
         NGD_ERR_OP_UNSUPPORTED, "aclnnCast: operand 0 is bfloat16; on 310P it is float32, float16"},
        {" input %x : f16[4]\n %y = aten.erf(%x)", "Ascend310P3", NGD_OK, ""},
        {" input %x : f16[4,32]\n param %w : f16[32]\n %y, %z = npu.gemma_rms_norm(%x, %w)", "Ascend310P3",
         NGD_ERR_OP_UNSUPPORTED, "on 310P: the chip has the operator"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct ngd_diag diag = {0};
        struct ngd_strbuf text;
        struct ready r = {0};
        struct bench b;

        simulator_set("soc", cases[i].soc);
        must(simulated_open(&b, 0, "2000", &diag), &diag);
        ngd_strbuf_init(&text);
        run_text(&text, "", cases[i].body);
        ck_assert_msg(ready_plan(&r, &b, ngd_strbuf_str(&text), NULL, &diag) == cases[i].status &&
                          strstr(diag.text, cases[i].text),
                      "%s on %s: %s", cases[i].body, cases[i].soc, diag.text);
        ready_close(&r);
        ngd_strbuf_fini(&text);
        close_device(&b);
    }
    simulator_set("soc", "Ascend910B-simulator");
}
END_TEST

UNIT_MAIN("ascend/rules", no_golden_case_is_refused_by_cann_on_any_chip_or_version,
          dtypes_that_a_chip_does_not_take_are_computed_in_others)
