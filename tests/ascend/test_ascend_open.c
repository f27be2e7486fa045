/* SPDX-License-Identifier: Apache-2.0 */
/* Devices that do not open: what is missing, closed or taken is named. */
#include "devices/ascend/acl.h"
#include "devices/ascend/acl_environment.h"
#include "devices/doctor_device.h"
#include "devices/device_int.h"
#include "tests/ascend/step.h"
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

static void refused_with(ngd_status_t status, const char *a, const char *b)
{
    struct ngd_device_params params;
    struct ngd_device *dev = NULL;
    struct ngd_diag diag = {0};
    ngd_status_t got;

    params_of(&params, 0);
    got = ngd_device_open(&params, &dev, &diag);
    ck_assert_msg(got == status, "%s: %s", ngd_status_name(got), diag.text);
    ck_assert_msg(strstr(diag.text, a) && strstr(diag.text, b), "\"%s\" and \"%s\" are not in \"%s\"", a, b, diag.text);
    nothing_is_left(a);
}

static void touch(const char *dir, const char *name, int mode)
{
    char path[300];
    int fd;

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    fd = open(path, O_CREAT | O_RDWR, 0600);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(fchmod(fd, (mode_t)mode), 0);
    close(fd);
}

static void clear(const char *dir)
{
    static const char *const names[] = {"davinci0", "davinci_manager", "devmm_svm", "hisi_hdc"};
    char path[300];

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        snprintf(path, sizeof(path), "%s/%s", dir, names[i]);
        unlink(path);
    }
    rmdir(dir);
}

START_TEST(device_that_does_not_open_names_the_node_that_is_missing_or_closed)
{
    char dir[] = "/tmp/ngd_nodes_XXXXXX";

    ck_assert_ptr_nonnull(mkdtemp(dir));
    setenv("NGD_ASCEND_DEV_ROOT", dir, 1);
    simulator_set("devices", "0");
    refused_with(NGD_ERR_NOT_FOUND, "CANN sees 0", "davinci0 is not there");
    touch(dir, "davinci0", 0600);
    refused_with(NGD_ERR_NOT_FOUND, "davinci_manager is not there", "HDK");
    if (geteuid() != 0) { /* root may do anything */
        touch(dir, "davinci_manager", 0);
        refused_with(NGD_ERR_NOT_FOUND, "davinci_manager cannot be read", "HwHiAiUser");
    }
    touch(dir, "davinci_manager", 0600);
    touch(dir, "devmm_svm", 0600);
    touch(dir, "hisi_hdc", 0600);
    refused_with(NGD_ERR_NOT_FOUND, "CANN sees 0", "npu-smi info");
    simulator_set("devices", "1");
    SIMULATOR(ngd_aclsim_fail_call)("aclrtCreateContext", 0, 207006);
    refused_with(NGD_ERR_PERMISSION_DENIED, "207006", "HwHiAiUser");
    unsetenv("NGD_ASCEND_DEV_ROOT");
    clear(dir);
}
END_TEST

static const struct ngd_doctor_device_step *find_step(const struct ngd_doctor_device_report *report, const char *name)
{
    for (uint32_t i = 0; i < report->n_steps; i++)
        if (strcmp(report->steps[i].name, name) == 0)
            return &report->steps[i];
    ck_abort_msg("no step \"%s\"", name);
}

/* A driver may take an open and a close of a node that is in use for more than a look at it. */
START_TEST(nodes_are_tried_except_those_that_the_process_has_open)
{
    void (*doctor)(uint32_t, bool, struct ngd_doctor_device_report *) = ngd_backend_find("ascend")->lifecycle.doctor;
    struct ngd_doctor_device_report *report = ngd_calloc(1, sizeof(*report));
    char dir[] = "/tmp/ngd_nodes_XXXXXX", path[64];
    int fd;

    ck_assert_ptr_nonnull(report);
    ck_assert_ptr_nonnull(mkdtemp(dir));
    setenv("NGD_ASCEND_DEV_ROOT", dir, 1);
    touch(dir, "davinci0", 0600);
    touch(dir, "davinci_manager", 0600);
    snprintf(path, sizeof(path), "%s/davinci_manager", dir);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    ck_assert_int_ge(fd, 0);
    doctor(0, false, report);
    ck_assert_str_eq(find_step(report, "node davinci0")->verdict, "passed");
    ck_assert_ptr_nonnull(strstr(find_step(report, "node davinci0")->text, "can open it"));
    ck_assert_str_eq(find_step(report, "node davinci_manager")->verdict, "passed");
    ck_assert_ptr_nonnull(strstr(find_step(report, "node davinci_manager")->text, "has it open"));
    ck_assert_str_eq(find_step(report, "node devmm_svm")->verdict, "failed");
    close(fd);
    memset(report, 0, sizeof(*report));
    doctor(0, true, report);
    ck_assert_ptr_nonnull(strstr(find_step(report, "node davinci_manager")->text, "can open it"));
    ck_assert_str_eq(find_step(report, "node devmm_svm")->verdict, "missing");
    ngd_free(report);
    unsetenv("NGD_ASCEND_DEV_ROOT");
    clear(dir);
}
END_TEST

START_TEST(device_that_others_use_is_refused_when_nothing_is_left_and_names_how_to_see_who)
{
    struct ngd_diag diag = {0};
    struct bench b;

    simulator_set("hbm", "1G");
    simulator_set("taken", "1020M");
    refused_with(NGD_ERR_NO_DEVICE_MEMORY, "others use all but 4 MiB of its 1024 MiB", "npu-smi info");
    SIMULATOR(ngd_aclsim_fail_call)("aclrtCreateContext", 0, 507033); /* of another container */
    refused_with(NGD_ERR_DEVICE_LOST, "507033", "another container or process may hold the device");
    simulator_set("taken", "0");
    simulator_set("hbm", "4G");
    must(open_device(&b, 0, &diag), &diag);
    close_device(&b);
}
END_TEST

/* A library whose function is a shell that answers something of its own. */
START_TEST(codes_that_nobody_knows_are_answered_with_their_number_and_the_call)
{
    static const struct {
        const char *call;
        int code;
        const char *words;
    } cases[] = {
        {"aclrtCreateContext", 4242, "answers 4242 (an unknown code)"},
        {"aclrtGetMemInfo", -1, "answers -1 (an unknown code)"},
        {"aclrtGetDeviceCount", 578123, "an unknown code of the device"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        SIMULATOR(ngd_aclsim_fail_call)(cases[i].call, 0, cases[i].code);
        refused_with(cases[i].code > 500000 ? NGD_ERR_DEVICE_FAULT : NGD_ERR_INTERNAL, cases[i].words, "ascend:0");
    }
}
END_TEST

static void forget_environment(void)
{
    static const char *const names[] = {"ASCEND_HOME_PATH", "ASCEND_OPP_PATH", "ASCEND_PROCESS_LOG_PATH",
                                        "ASCEND_TOOLKIT_HOME"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        unsetenv(names[i]);
}

/* Of a thread that was joined the kernel may show a trace for a moment. */
static void wait_until_alone(void)
{
    for (int i = 0; i < 1000000 && !ngd_acl_is_alone(); i++)
        sched_yield();
    ck_assert(ngd_acl_is_alone());
}

/* As under systemd: no variable of CANN, a home that is not writable, and a folder of the unit's own for logs. */
START_TEST(environment_is_derived_from_where_the_libraries_are)
{
    void (*doctor)(uint32_t, bool, struct ngd_doctor_device_report *) = ngd_backend_find("ascend")->lifecycle.doctor;
    struct ngd_doctor_device_report *report = ngd_calloc(1, sizeof(*report));
    char cann[] = "/tmp/ngd_cann_XXXXXX", path[64], libs[80], target[PATH_MAX];
    struct ngd_device_params params;
    struct ngd_diag diag = {0};
    struct ready r = {0};
    struct bench b;
    int64_t n = 2;

    forget_environment();
    setenv("HOME", "/nonexistent", 1);
    ck_assert_ptr_nonnull(mkdtemp(cann));
    setenv("LOGS_DIRECTORY", cann, 1);
    ck_assert_ptr_nonnull(realpath(simulator_dir(), target));
    snprintf(path, sizeof(path), "%s/aarch64-linux", cann);
    ck_assert_int_eq(mkdir(path, 0700), 0);
    snprintf(libs, sizeof(libs), "%s/lib64", path);
    ck_assert_int_eq(symlink(target, libs), 0);
    simulator_set("need_opp", "1");
    params_of(&params, 0);
    params.ascend_libs = libs;
    /* Without operators beside the libraries: what is missing is named. */
    must(simulated_open_with(&b, &params, &diag), &diag);
    ck_assert_int_eq(ready_open(&r, &b, GRAPH, &n, &diag), NGD_ERR_UNAVAILABLE);
    ck_assert_msg(strstr(diag.text, "561107") && strstr(diag.text, "ASCEND_OPP_PATH"), "%s", diag.text);
    doctor(0, true, report);
    ck_assert_str_eq(find_step(report, "environment ASCEND_OPP_PATH")->verdict, "missing");
    close_device(&b);
    snprintf(path, sizeof(path), "%s/opp", cann);
    ck_assert_int_eq(mkdir(path, 0700), 0);
    wait_until_alone();
    must(simulated_open_with(&b, &params, &diag), &diag);
    must(ready_open(&r, &b, GRAPH, &n, &diag), &diag);
    ready_close(&r);
    ck_assert_str_eq(getenv("ASCEND_OPP_PATH"), path);
    ck_assert_str_eq(getenv("ASCEND_HOME_PATH"), cann);
    ck_assert_ptr_nonnull(strstr(getenv("ASCEND_PROCESS_LOG_PATH"), cann));
    memset(report, 0, sizeof(*report));
    doctor(0, true, report);
    ck_assert_str_eq(find_step(report, "environment ASCEND_OPP_PATH")->verdict, "passed");
    ck_assert_ptr_nonnull(strstr(find_step(report, "environment ASCEND_OPP_PATH")->text, "where the libraries are"));
    close_device(&b);
    simulator_set("need_opp", "0");
    rmdir(path);
    unlink(libs);
    snprintf(path, sizeof(path), "%s/aarch64-linux", cann);
    rmdir(path);
    rmdir(cann);
    ngd_free(report);
}
END_TEST

/* ---- where CANN's home is found ---------------------------------------------------------------------- */

/* A folder of CANN with operators and the simulator's libraries, which are files of its own. */
struct cann {
    char home[32], libs[64];
};

static void shell(const char *fmt, const char *a, const char *b)
{
    char command[2400];

    snprintf(command, sizeof(command), fmt, a, b);
    ck_assert_msg(system(command) == 0, "%s", command);
}

static struct cann make_cann(void)
{
    struct cann c = {.home = "/tmp/ngd_cann_XXXXXX"};

    ck_assert_ptr_nonnull(mkdtemp(c.home));
    snprintf(c.libs, sizeof(c.libs), "%s/lib64", c.home);
    shell("mkdir -p %s %s/opp", c.libs, c.home);
    shell("cp %s/lib*.so %s", simulator_dir(), c.libs);
    forget_environment();
    return c;
}

static void remove_cann(const struct cann *c)
{
    shell("rm -r %s%s", c->home, "");
    forget_environment();
}

static ngd_status_t load_once(const char *dir, const char *names)
{
    const struct ngd_acl *acl;
    struct ngd_diag diag = {0};
    ngd_status_t status = ngd_acl_load(dir, names, &acl, &diag);

    if (status == NGD_OK)
        ngd_acl_unload(acl);
    return status;
}

/* The folders where CANN installs itself, or the one that was named, are not where this library is. */
START_TEST(library_with_a_path_says_where_cann_is)
{
    const struct cann c = make_cann();
    char names[200], back[PATH_MAX], other[PATH_MAX];

    snprintf(names, sizeof(names), "libascendcl.so=%s/libascendcl.so", c.libs);
    ck_assert_ptr_nonnull(realpath(simulator_dir(), other));
    for (int i = 0; i < 4; i++) {
        forget_environment();
        if (i == 1)
            setenv("ASCEND_TOOLKIT_HOME", "/nonexistent", 1);
        if (i == 3) { /* a path from where the daemon was started */
            ck_assert_ptr_nonnull(getcwd(back, sizeof(back)));
            ck_assert_int_eq(chdir(c.home), 0);
            snprintf(names, sizeof(names), "libascendcl.so=lib64/libascendcl.so");
        }
        ck_assert_int_eq(load_once(i == 2 ? other : NULL, names), NGD_OK);
        ck_assert_str_eq(getenv("ASCEND_HOME_PATH"), c.home);
        ck_assert_int_eq(strncmp(getenv("ASCEND_OPP_PATH"), c.home, strlen(c.home)), 0);
    }
    ck_assert_int_eq(chdir(back), 0);
    remove_cann(&c);
}
END_TEST

/* One library of somebody's own, without operators beside it. */
START_TEST(folder_of_the_others_says_where_cann_is_if_a_library_lies_apart)
{
    const struct cann c = make_cann(), apart = make_cann();
    char names[200], path[80];

    shell("rmdir %s/opp%s", apart.home, "");
    snprintf(names, sizeof(names), "libascendcl.so=%s/libascendcl.so", apart.libs);
    ck_assert_int_eq(load_once(c.libs, names), NGD_OK);
    snprintf(path, sizeof(path), "%s/opp", c.home);
    ck_assert_str_eq(getenv("ASCEND_OPP_PATH"), path);
    remove_cann(&apart);
    remove_cann(&c);
}
END_TEST

static _Atomic bool other_ends;

static void *other_thread(void *arg)
{
    while (!other_ends)
        sched_yield();
    return arg;
}

/* As the doctor of a device that did not open at the start. The thread might be in getenv(). */
START_TEST(environment_is_left_alone_while_other_threads_run)
{
    void (*doctor)(uint32_t, bool, struct ngd_doctor_device_report *) = ngd_backend_find("ascend")->lifecycle.doctor;
    struct ngd_doctor_device_report *report = ngd_calloc(1, sizeof(*report));
    const struct cann c = make_cann();
    pthread_t thread;

    ck_assert_ptr_nonnull(report);
    ck_assert_int_eq(pthread_create(&thread, NULL, other_thread, NULL), 0);
    ck_assert_int_eq(load_once(c.libs, NULL), NGD_OK);
    ck_assert_ptr_null(getenv("ASCEND_OPP_PATH"));
    ck_assert_ptr_null(getenv("ASCEND_HOME_PATH"));
    doctor(0, true, report);
    ck_assert_str_eq(find_step(report, "environment ASCEND_OPP_PATH")->verdict, "missing");
    ck_assert_ptr_nonnull(strstr(find_step(report, "environment ASCEND_OPP_PATH")->text, "restart the daemon"));
    other_ends = true;
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    wait_until_alone();
    ck_assert_int_eq(load_once(c.libs, NULL), NGD_OK);
    ck_assert_ptr_nonnull(getenv("ASCEND_OPP_PATH"));
    ngd_free(report);
    remove_cann(&c);
}
END_TEST

UNIT_MAIN("ascend/open", device_that_does_not_open_names_the_node_that_is_missing_or_closed,
          nodes_are_tried_except_those_that_the_process_has_open,
          device_that_others_use_is_refused_when_nothing_is_left_and_names_how_to_see_who,
          codes_that_nobody_knows_are_answered_with_their_number_and_the_call,
          environment_is_derived_from_where_the_libraries_are, library_with_a_path_says_where_cann_is,
          folder_of_the_others_says_where_cann_is_if_a_library_lies_apart,
          environment_is_left_alone_while_other_threads_run)
