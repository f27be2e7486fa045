/* SPDX-License-Identifier: Apache-2.0 */
/* How each backend is opened and made to fail in the conformance suite: one row each, besides its row in backends.def.
 */
#include "tests/backend/conform.h"
#include "base/fault.h"
#include "tests/backend/simulator.h"

static const char *nothing_missing(void)
{
    return NULL;
}

/* ---- host ---- */

static void host_params(struct ngd_device_params *params)
{
    params->threads = 2;
}

static const char *host_arm(enum conform_fault fault)
{
    static const ngd_fault_t points[] = {
        [CONFORM_FAULT] = NGD_FAULT_HOST_FAULT,
        [CONFORM_LOST] = NGD_FAULT_HOST_LOST,
        [CONFORM_HANG] = NGD_FAULT_HOST_HANG,
        [CONFORM_ALLOC] = NGD_FAULT_HOST_ALLOC,
    };

    if (!NGD_FAULT_COMPILED)
        return "this build has no fault points; configure with --enable-fault";
    ngd_fault_arm(points[fault], 0, 1);
    return NULL;
}

static void host_disarm(void)
{
    ngd_fault_disarm_all();
}

/* ---- ascend, on the simulator of CANN, or on CANN itself ---- */

static const char *ascend_libs(void)
{
    const char *dir = getenv("NGD_TEST_ASCEND_LIBS");

    return dir && *dir ? dir : NULL;
}

static const char *ascend_simulated(void)
{
    return ascend_libs() ? NULL : "NGD_TEST_ASCEND_LIBS does not name the folder of CANN's libraries";
}

static void ascend_params(struct ngd_device_params *params)
{
    if (ascend_libs()) {
        params->ascend_libs = ascend_libs();
        return;
    }
    /*
     * The time limit of a replay, which ends a hang. With a sanitizer on a busy machine, one attention operator can
     * take a second.
     */
    setenv("NGD_ASCEND_LIMIT_MS", getenv("SANITIZER") ? "8000" : "1000", 1);
    simulator_set("devices", "3"); /* the largest group in the tests has 3 ranks */
    params->ascend_libs = simulator_dir();
    params->nz_weights = true;
}

static const char *ascend_arm(enum conform_fault fault)
{
    static const char *const how[] = {[CONFORM_FAULT] = "fault", [CONFORM_LOST] = "lost", [CONFORM_HANG] = "hang"};

    if (ascend_libs())
        return "NPUs do not fail on request";
    if (fault == CONFORM_ALLOC)
        SIMULATOR(ngd_aclsim_fail_call)("aclrtMalloc", 0, NGD_ACL_RT_MEMORY_ALLOCATION);
    else
        SIMULATOR(ngd_aclsim_break)(0, how[fault]);
    return NULL;
}

static void ascend_disarm(void)
{
    if (ascend_libs())
        return;
    SIMULATOR(ngd_aclsim_fail_call)(NULL, -1, 0);
    SIMULATOR(ngd_aclsim_break)(0, "ok");
}

static void ascend_shuffle(uint32_t seed)
{
    char text[16];

    snprintf(text, sizeof(text), "%u", seed);
    if (!ascend_libs())
        simulator_set("shuffle", text);
}

static const struct conform_backend rows[] = {
    {
        .name = "host",
        .missing = nothing_missing,
        .params = host_params,
        .arm = host_arm,
        .disarm = host_disarm,
        .mixed_tolerance = 1,
        .quantised_tolerance = 1,
        .model_tolerance = 1,
        .exact_rows = true,
        .tolerance = 1,
    },
    {
        .name = "ascend",
        .missing = nothing_missing,
        .simulated = ascend_simulated,
        .params = ascend_params,
        .arm = ascend_arm,
        .disarm = ascend_disarm,
        .shuffle = ascend_shuffle,
        .checks_first = true,
        .mixed_tolerance = 8192,   /* f32's rounding is 2^-13 times bf16's, and two operands are rounded */
        .quantised_tolerance = 16, /* dequantised weights are rounded to bf16 or f16 */
        .model_tolerance = 32,
        .tolerance = 1,
    },
};

/* ---- selection ---- */

static const struct conform_backend *find_row(const char *name)
{
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (strcmp(rows[i].name, name) == 0)
            return &rows[i];
    return NULL;
}

static bool is_named(const char *list, const char *name)
{
    size_t n = strlen(name);

    for (const char *p = list; p; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL)
        if (strncmp(p, name, n) == 0 && (p[n] == ',' || p[n] == '\0'))
            return true;
    return false;
}

const char *conform_why_not(int i)
{
    const char *name = ngd_device_backends()[i], *selected = getenv("NGD_TEST_BACKENDS");
    const struct conform_backend *row = find_row(name);

    if (selected && *selected && !is_named(selected, name))
        return "NGD_TEST_BACKENDS does not name it";
    if (!row) {
        fprintf(stderr, "backend %s has no row in tests/backend/backends.c\n", name);
        exit(EXIT_FAILURE);
    }
    return row->missing();
}

const struct conform_backend *conform_backend(int i)
{
    const char *const *names = ngd_device_backends();

    for (int k = 0; names[k]; k++)
        if (!conform_why_not(k) && i-- == 0)
            return find_row(names[k]);
    return NULL;
}

uint32_t conform_count(void)
{
    uint32_t n = 0;

    while (conform_backend((int)n))
        n++;
    return n;
}
