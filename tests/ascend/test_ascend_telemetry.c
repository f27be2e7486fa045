/* SPDX-License-Identifier: Apache-2.0 */
/* The numbers of NPUs by ASCEND_RT_VISIBLE_DEVICES, and what DCMI and CANN tell of a chip. */
#include "devices/telemetry.h"
#include "devices/ascend/visible.h"
#include "devices/device_int.h"
#include "devices/doctor_device.h"
#include "tests/ascend/simulated.h"
#include <unistd.h>

/* ---- the variable ----------------------------------------------------------------------------------- */

/* Rows by runtime.cc of hicann/runtime 681ef76: SplitString and GetVisibleDevices. */
static const struct {
    const char *text;
    uint32_t devices;
    ngd_visible_state_t state;
    uint32_t n, logical[4];
    bool cut;
} variables[] = {
    {NULL, 8, NGD_VISIBLE_ALL, 0, {0}, false},
    {"", 8, NGD_VISIBLE_NONE, 0, {0}, false},
    {"1", 8, NGD_VISIBLE_SOME, 1, {1}, false},
    {"1,2,3", 8, NGD_VISIBLE_SOME, 3, {1, 2, 3}, false},
    {"0,7", 8, NGD_VISIBLE_SOME, 2, {0, 7}, false},
    {"007,7", 8, NGD_VISIBLE_DOUBLE, 0, {0}, false},
    {"1, 2,3", 8, NGD_VISIBLE_SOME, 1, {1}, true},   /* as the documents say */
    {"1,3,8", 8, NGD_VISIBLE_SOME, 2, {1, 3}, true}, /* as the documents say */
    {"1,,2", 8, NGD_VISIBLE_SOME, 1, {1}, true},
    {"1,", 8, NGD_VISIBLE_SOME, 1, {1}, false},
    {"1;2", 8, NGD_VISIBLE_SOME, 1, {1}, true},
    {"1,x", 8, NGD_VISIBLE_SOME, 1, {1}, true},
    {"1,99999999999999999999", 8, NGD_VISIBLE_SOME, 1, {1}, true},
    {"1,4294967298", 8, NGD_VISIBLE_SOME, 1, {1}, true}, /* not 2 */
    {"2,1", 8, NGD_VISIBLE_ORDER, 0, {0}, false},
    {"1,2,2", 8, NGD_VISIBLE_DOUBLE, 0, {0}, false},
    {"0,9,0", 8, NGD_VISIBLE_SOME, 1, {0}, true}, /* what comes behind 9 does not count */
    {" 1", 8, NGD_VISIBLE_NONE, 0, {0}, false},
    {",1", 8, NGD_VISIBLE_NONE, 0, {0}, false},
    {"-1", 8, NGD_VISIBLE_NONE, 0, {0}, false},
    {"8", 8, NGD_VISIBLE_NONE, 0, {0}, false},
    {"0,1,1", 2, NGD_VISIBLE_SOME, 2, {0, 1}, true}, /* as many as there are: the rest is not read */
};

START_TEST(variable_is_read_as_cann_reads_it)
{
    for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++) {
        struct ngd_visible v;

        ngd_visible_parse(variables[i].text, variables[i].devices, &v);
        ck_assert_msg(v.state == variables[i].state && v.n == variables[i].n, "\"%s\": state %d, %u devices",
                      variables[i].text, v.state, v.n);
        ck_assert_msg(memcmp(v.logical, variables[i].logical, v.n * sizeof(v.logical[0])) == 0, "\"%s\"",
                      variables[i].text);
        ck_assert_msg(v.cut == variables[i].cut, "\"%s\"", variables[i].text);
        ck_assert_ptr_nonnull(ngd_visible_explain(&v));
    }
}
END_TEST

START_TEST(only_the_first_128_characters_of_the_variable_count)
{
    char text[200] = "";
    struct ngd_visible v;

    for (int i = 10; i < 60; i++)
        snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s%d", i > 10 ? "," : "", i);
    ngd_visible_parse(text, 64, &v);
    ck_assert_int_eq(v.state, NGD_VISIBLE_SOME);
    ck_assert_uint_eq(v.n, 43); /* 42 of three characters each, and two more */
    ck_assert_uint_eq(v.logical[42], 52);
    ck_assert(v.cut);
}
END_TEST

/* ---- numbers ---------------------------------------------------------------------------------------- */

static void set_variable(const char *name, const char *value)
{
    if (value)
        setenv(name, value, 1);
    else
        unsetenv(name);
}

static void numbers_of(uint32_t user, struct ngd_telemetry *t)
{
    struct ngd_diag diag = {0};
    struct bench b;

    must(simulated_open(&b, user, "1000", &diag), &diag);
    ngd_telemetry_read(b.dev, t);
    close_device(&b);
}

START_TEST(user_logical_and_physical_numbers_are_told_apart)
{
    struct ngd_telemetry t;

    simulator_set("devices", "4");
    numbers_of(1, &t);
    ck_assert_int_eq(t.logical, 1);
    ck_assert_int_eq(t.physical, 1);
    set_variable("NGD_ACLSIM_PHYSICAL", "4,5,6,7");
    set_variable(NGD_VISIBLE_NAME, "1,3");
    numbers_of(1, &t);
    ck_assert_int_eq(t.logical, 3);
    ck_assert_int_eq(t.physical, 7);
    /* CANN that cannot be asked: the variable tells the logical number, and nothing the physical one. */
    simulator_set("api", "8.1");
    numbers_of(0, &t);
    ck_assert_int_eq(t.logical, 1);
    ck_assert_int_eq(t.physical, NGD_NUMBER_UNKNOWN);
    simulator_set("api", "9.1");
    set_variable("NGD_ACLSIM_PHYSICAL", NULL);
    set_variable(NGD_VISIBLE_NAME, NULL);
    simulator_set("devices", "1");
}
END_TEST

START_TEST(device_that_the_variable_hides_does_not_open_and_the_reason_is_said)
{
    static const struct {
        const char *text, *words;
    } cases[] = {
        {"0", "from 0"}, {"1,0", "do not rise"}, {"", "begin with the number"}, {"0,0", "names a device twice"}};

    simulator_set("devices", "2");
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct ngd_device_params params;
        struct ngd_device *dev = NULL;
        struct ngd_diag diag = {0};

        set_variable(NGD_VISIBLE_NAME, cases[i].text);
        simulated_params(&params, 1, "1000");
        ck_assert_int_ne(ngd_device_open(&params, &dev, &diag), NGD_OK);
        ck_assert_msg(strstr(diag.text, NGD_VISIBLE_NAME) && strstr(diag.text, cases[i].words), "\"%s\": %s",
                      cases[i].text, diag.text);
        nothing_is_left(cases[i].text);
    }
    set_variable(NGD_VISIBLE_NAME, NULL);
    simulator_set("devices", "1");
}
END_TEST

START_TEST(node_that_is_missing_is_looked_for_by_the_physical_number)
{
    char dir[] = "/tmp/ngd_nodes_XXXXXX";
    struct ngd_device_params params;
    struct ngd_device *dev = NULL;
    struct ngd_diag diag = {0};

    ck_assert_ptr_nonnull(mkdtemp(dir));
    setenv("NGD_ASCEND_DEV_ROOT", dir, 1);
    simulator_set("devices", "4");
    set_variable("NGD_ACLSIM_PHYSICAL", "4,5,6,7");
    set_variable(NGD_VISIBLE_NAME, "1,3");
    SIMULATOR(ngd_aclsim_fail_call)("aclrtCreateContext", 0, 207006);
    simulated_params(&params, 1, "1000");
    ck_assert_int_eq(ngd_device_open(&params, &dev, &diag), NGD_ERR_PERMISSION_DENIED);
    ck_assert_msg(strstr(diag.text, "davinci7 is not there"), "%s", diag.text);
    nothing_is_left("no permission");
    unsetenv("NGD_ASCEND_DEV_ROOT");
    set_variable("NGD_ACLSIM_PHYSICAL", NULL);
    set_variable(NGD_VISIBLE_NAME, NULL);
    simulator_set("devices", "1");
    rmdir(dir);
}
END_TEST

/* ---- readings --------------------------------------------------------------------------------------- */

/* What a sample of device `user` gives while the simulated DCMI is in this state. */
static void sample_with(uint32_t user, const char *state, struct ngd_telemetry *t)
{
    const struct ngd_backend_telemetry *ops = &ngd_backend_find("ascend")->telemetry;
    struct ngd_diag diag = {0};
    struct bench b;
    void *source;

    setenv("NGD_DCMISIM", state, 1);
    must(simulated_open(&b, user, "1000", &diag), &diag);
    source = ops->open(b.dev->handle);
    ck_assert_ptr_nonnull(source);
    memset(t, 0, sizeof(*t));
    ops->sample(source, t);
    ops->close(source);
    close_device(&b);
    unsetenv("NGD_DCMISIM");
}

static double value_in(const struct ngd_telemetry *t, ngd_telemetry_id_t id)
{
    double v = -12345;

    ngd_telemetry_get(t, id, &v);
    return v;
}

START_TEST(readings_have_the_units_of_their_rows)
{
    struct ngd_telemetry t;

    sample_with(0,
                "temperature=47,power=1234,hbm_total=32768,hbm_used=1024,hbm_temperature=51,bandwidth=9,aicore=100,"
                "vector=0,single_now=1,double_now=2,single_all=3,double_all=4,single_pages=5,double_pages=6",
                &t);
    ck_assert_uint_eq(t.known, (UINT32_C(1) << NGD_TELEMETRY_MAX) - 1);
    ck_assert(value_in(&t, NGD_TELEMETRY_TEMPERATURE) == 47);
    ck_assert_double_eq_tol(value_in(&t, NGD_TELEMETRY_POWER), 123.4, 1e-9);
    ck_assert(value_in(&t, NGD_TELEMETRY_MEMORY_TOTAL) == 34359738368.0);
    ck_assert(value_in(&t, NGD_TELEMETRY_MEMORY_USED) == 1073741824.0);
    ck_assert(value_in(&t, NGD_TELEMETRY_MEMORY_TEMPERATURE) == 51);
    ck_assert_double_eq_tol(value_in(&t, NGD_TELEMETRY_BANDWIDTH_UTILIZATION), 0.09, 1e-9);
    ck_assert_double_eq_tol(value_in(&t, NGD_TELEMETRY_UTILIZATION), 1, 1e-9);
    ck_assert(value_in(&t, NGD_TELEMETRY_VECTOR_UTILIZATION) == 0);
    ck_assert(value_in(&t, NGD_TELEMETRY_HEALTH) == 1);
    ck_assert(value_in(&t, NGD_TELEMETRY_ECC_SINGLE) == 1);
    ck_assert(value_in(&t, NGD_TELEMETRY_ECC_DOUBLE) == 2);
    ck_assert(value_in(&t, NGD_TELEMETRY_ECC_SINGLE_ALL) == 3);
    ck_assert(value_in(&t, NGD_TELEMETRY_ECC_DOUBLE_ALL) == 4);
    ck_assert(value_in(&t, NGD_TELEMETRY_PAGES_SINGLE) == 5);
    ck_assert(value_in(&t, NGD_TELEMETRY_PAGES_DOUBLE) == 6);
}
END_TEST

#define BIT(id) (UINT32_C(1) << NGD_TELEMETRY_##id)

/* Which readings are absent, and no others are, in each state. */
START_TEST(what_a_function_does_not_answer_is_absent_alone)
{
    static const uint32_t ecc = BIT(ECC_SINGLE) | BIT(ECC_DOUBLE) | BIT(ECC_SINGLE_ALL) | BIT(ECC_DOUBLE_ALL) |
                                BIT(PAGES_SINGLE) | BIT(PAGES_DOUBLE),
                          hbm = BIT(MEMORY_TOTAL) | BIT(MEMORY_USED) | BIT(MEMORY_TEMPERATURE) |
                                BIT(BANDWIDTH_UTILIZATION),
                          all = (UINT32_C(1) << NGD_TELEMETRY_MAX) - 1;
    static const struct {
        const char *state;
        uint32_t absent;
    } states[] = {
        {"fail.dcmi_get_device_temperature=-8005", BIT(TEMPERATURE)},
        {"temperature=-99999", BIT(TEMPERATURE)},
        {"fail.dcmi_get_device_power_info=-8255", BIT(POWER)},
        {"power=-1", BIT(POWER)},
        {"fail.dcmi_get_device_health=-8013", BIT(HEALTH)},
        {"health=4294967295", BIT(HEALTH)},
        {"fail.dcmi_get_device_hbm_info=-8255", hbm},
        {"hbm_used=99999999", BIT(MEMORY_USED)},
        {"hbm_total=0,hbm_used=0", BIT(MEMORY_TOTAL)},
        {"bandwidth=4294967295", BIT(BANDWIDTH_UTILIZATION)},
        {"fail.dcmi_get_device_ecc_info=-8255", ecc},
        {"ecc=0", ecc},
        {"double_now=4294967295", BIT(ECC_DOUBLE)},
        /* CANN tells it instead. */
        {"fail.dcmi_get_device_utilization_rate=-8255", 0},
        {"aicore=101", 0},
        {"fail.dcmi_get_card_id_device_id_from_logicid=-8007", all & ~(BIT(UTILIZATION) | BIT(VECTOR_UTILIZATION))},
        {"chips=0", all & ~(BIT(UTILIZATION) | BIT(VECTOR_UTILIZATION))},
    };

    for (size_t i = 0; i < sizeof(states) / sizeof(states[0]); i++) {
        struct ngd_telemetry t;

        sample_with(0, states[i].state, &t);
        ck_assert_msg(t.known == (all & ~states[i].absent), "%s: known 0x%x, absent should be 0x%x", states[i].state,
                      t.known, states[i].absent);
    }
}
END_TEST

START_TEST(dcmi_is_asked_for_the_logical_number_and_tells_the_physical_one)
{
    struct ngd_telemetry t;

    simulator_set("devices", "4");
    simulator_set("api", "8.1");
    set_variable("NGD_ACLSIM_PHYSICAL", "4,5,6,7");
    set_variable(NGD_VISIBLE_NAME, "1,3");
    sample_with(1, "temperature=50", &t);
    ck_assert(value_in(&t, NGD_TELEMETRY_TEMPERATURE) == 53); /* the simulated chips' differ by their number */
    ck_assert_int_eq(t.logical, 3);
    ck_assert_int_eq(t.physical, 7);
    sample_with(0, "temperature=50,fail.dcmi_get_device_phyid_from_logicid=-8005", &t);
    ck_assert(value_in(&t, NGD_TELEMETRY_TEMPERATURE) == 51);
    ck_assert_int_eq(t.physical, NGD_NUMBER_UNKNOWN);
    simulator_set("api", "9.1");
    set_variable("NGD_ACLSIM_PHYSICAL", NULL);
    set_variable(NGD_VISIBLE_NAME, NULL);
    simulator_set("devices", "1");
}
END_TEST

/* A thread that a stop leaves behind goes on when its device is closed. */
START_TEST(readings_that_outlive_their_device_keep_cann)
{
    const struct ngd_backend_telemetry *ops = &ngd_backend_find("ascend")->telemetry;
    struct ngd_telemetry t = {0};
    struct ngd_diag diag = {0};
    struct bench b;
    void *source;
    char *log;

    setenv("NGD_DCMISIM", "chips=0", 1);
    must(simulated_open(&b, 0, "1000", &diag), &diag);
    source = ops->open(b.dev->handle);
    ck_assert_ptr_nonnull(source);
    close_device(&b);
    simulator_set("log", "1");
    SIMULATOR(ngd_aclsim_log_clear)();
    ops->sample(source, &t);
    ops->close(source);
    log = SIMULATOR(ngd_aclsim_log)();
    ck_assert_msg(log && strcmp(log, "aclrtGetDeviceUtilizationRate\naclFinalize\n") == 0, "%s", log);
    free(log);
    simulator_set("log", "0");
    ck_assert_double_ge(value_in(&t, NGD_TELEMETRY_UTILIZATION), 0);
    unsetenv("NGD_DCMISIM");
}
END_TEST

UNIT_MAIN("ascend/telemetry", variable_is_read_as_cann_reads_it, only_the_first_128_characters_of_the_variable_count,
          user_logical_and_physical_numbers_are_told_apart,
          device_that_the_variable_hides_does_not_open_and_the_reason_is_said,
          node_that_is_missing_is_looked_for_by_the_physical_number, readings_have_the_units_of_their_rows,
          what_a_function_does_not_answer_is_absent_alone,
          dcmi_is_asked_for_the_logical_number_and_tells_the_physical_one, readings_that_outlive_their_device_keep_cann)
