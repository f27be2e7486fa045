/* SPDX-License-Identifier: Apache-2.0 */
/* Readings of hardware: their ranges, the thread that reads them, and what the host device finds in files. */
#include "devices/telemetry.h"
#include "base/lock.h"
#include "base/mem.h"
#include "devices/device_int.h"
#include "tests/unit/unit.h"
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- the table -------------------------------------------------------------------------------------- */

START_TEST(what_is_outside_its_range_or_no_number_is_absent)
{
    struct ngd_telemetry t = {0};
    double v = -1;

    ngd_telemetry_set(&t, NGD_TELEMETRY_TEMPERATURE, NAN);
    ngd_telemetry_set(&t, NGD_TELEMETRY_TEMPERATURE, 1e9);
    ngd_telemetry_set(&t, NGD_TELEMETRY_POWER, -0.1);
    ngd_telemetry_set(&t, NGD_TELEMETRY_UTILIZATION, 1.01);
    ngd_telemetry_set(&t, NGD_TELEMETRY_ECC_DOUBLE, 4294967295.0);
    ck_assert_uint_eq(t.known, 0);
    ck_assert(!ngd_telemetry_get(&t, NGD_TELEMETRY_TEMPERATURE, &v));
    ck_assert(v == -1);
    ngd_telemetry_set(&t, NGD_TELEMETRY_TEMPERATURE, 0);
    ck_assert(ngd_telemetry_get(&t, NGD_TELEMETRY_TEMPERATURE, &v) && v == 0);
    ngd_telemetry_set(&t, NGD_TELEMETRY_TEMPERATURE, NAN);
    ck_assert(ngd_telemetry_get(&t, NGD_TELEMETRY_TEMPERATURE, &v) && v == 0);
}
END_TEST

START_TEST(vendors_values_are_in_mb_and_percent)
{
    ck_assert(ngd_telemetry_vendor_value(NGD_TELEMETRY_MEMORY_USED, 3.0 * 1048576) == 3);
    ck_assert(ngd_telemetry_vendor_value(NGD_TELEMETRY_UTILIZATION, 0.37) == 37);
    ck_assert(ngd_telemetry_vendor_value(NGD_TELEMETRY_POWER, 90.5) == 90.5);
}
END_TEST

/* ---- the thread ------------------------------------------------------------------------------------- */

static _Atomic bool hanging;
static _Atomic int samples, closed;

static void *fake_open(void *dev)
{
    (void)dev;
    return ngd_malloc(1);
}

static void fake_sample(void *source, struct ngd_telemetry *t)
{
    (void)source;
    while (atomic_load(&hanging))
        usleep(1000);
    ngd_telemetry_set(t, NGD_TELEMETRY_TEMPERATURE, 40 + atomic_fetch_add(&samples, 1));
    if (atomic_load(&samples) == 1)
        t->physical = 6;
}

static void fake_close(void *source)
{
    ngd_free(source);
    atomic_fetch_add(&closed, 1);
}

static void fake_numbers(void *dev, struct ngd_telemetry *t)
{
    (void)dev;
    t->logical = 1;
}

static const struct ngd_backend fake = {
    .telemetry = {.numbers = fake_numbers, .open = fake_open, .sample = fake_sample, .close = fake_close}};

static void open_fake(struct ngd_device *dev, ngd_nsec_t interval)
{
    struct ngd_diag diag = {0};

    memset(dev, 0, sizeof(*dev));
    dev->backend = &fake;
    dev->info.name = "fake:0";
    atomic_store(&hanging, false);
    atomic_store(&samples, 0);
    atomic_store(&closed, 0);
    ck_assert_int_eq(ngd_telemetry_start(dev, interval, &diag), NGD_OK);
}

static void wait_for(_Atomic int *count, int n)
{
    for (int i = 0; atomic_load(count) < n; i++) {
        ck_assert_int_lt(i, 20000);
        usleep(1000);
    }
}

static bool read_temperature(struct ngd_device *dev, double *v_p)
{
    struct ngd_telemetry t;

    ngd_telemetry_read(dev, &t);
    return ngd_telemetry_get(&t, NGD_TELEMETRY_TEMPERATURE, v_p);
}

START_TEST(readings_are_renewed_and_the_numbers_of_the_chip_stay)
{
    struct ngd_device dev;
    struct ngd_telemetry t;
    double v = 0;

    open_fake(&dev, NGD_MSEC);
    wait_for(&samples, 4); /* the third is kept by then */
    ck_assert(read_temperature(&dev, &v) && v >= 42);
    ngd_telemetry_read(&dev, &t);
    ck_assert_int_eq(t.logical, 1);
    ck_assert_int_eq(t.physical, 6);
    ngd_telemetry_stop(&dev);
    ck_assert_int_eq(closed, 1);
    ck_assert(!read_temperature(&dev, &v));
}
END_TEST

START_TEST(old_readings_are_dropped_and_an_interval_of_zero_reads_nothing)
{
    struct ngd_device dev;
    double v = 0;

    ngd_clock_set_fake(1000 * NGD_SEC);
    open_fake(&dev, 3600 * NGD_SEC); /* the second sample never comes */
    wait_for(&samples, 1);
    for (int i = 0; !read_temperature(&dev, &v); i++) {
        ck_assert_int_lt(i, 20000);
        usleep(1000);
    }
    ngd_clock_set_fake((1000 + 3 * 3600 + 1) * NGD_SEC);
    ck_assert(read_temperature(&dev, &v));
    ngd_clock_set_fake((1000 + 3 * 3600 + 3) * NGD_SEC);
    ck_assert(!read_temperature(&dev, &v));
    ngd_clock_set_fake(-1);
    ngd_telemetry_stop(&dev);
    open_fake(&dev, 0);
    ck_assert_ptr_null(dev.sampler);
    ck_assert(!read_temperature(&dev, &v));
    ngd_telemetry_stop(&dev);
}
END_TEST

/* The thread owns what it uses, so that it may return after its device is gone. */
START_TEST(a_call_that_hangs_does_not_hold_readers_or_the_stop)
{
    struct ngd_device *dev = ngd_malloc(sizeof(*dev));
    ngd_nsec_t begin;
    double v;

    ck_assert_ptr_nonnull(dev);
    open_fake(dev, NGD_MSEC);
    wait_for(&samples, 1);
    atomic_store(&hanging, true);
    usleep(20000);
    begin = ngd_clock_real();
    read_temperature(dev, &v);
    ck_assert_int_lt(ngd_clock_real() - begin, NGD_SEC / 4);
    ngd_telemetry_stop(dev);
    ck_assert_int_lt(ngd_clock_real() - begin, 5 * NGD_SEC);
    ck_assert_int_eq(closed, 0);
    ck_assert_ptr_null(dev->sampler);
    ngd_free(dev);
    atomic_store(&hanging, false);
    wait_for(&closed, 1);
}
END_TEST

/* ---- the host --------------------------------------------------------------------------------------- */

static char root[64];

/* Makes a file of the machine, with the folders above it; NULL removes it. */
static void put(const char *name, const char *text)
{
    char path[512];
    FILE *f;

    ck_assert_int_lt(snprintf(path, sizeof(path), "%s/%s", root, name), (int)sizeof(path));
    for (char *slash = strchr(path + strlen(root) + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(path, 0700);
        *slash = '/';
    }
    if (!text) {
        ck_assert_int_eq(unlink(path), 0);
        return;
    }
    f = fopen(path, "we");
    ck_assert_ptr_nonnull(f);
    fputs(text, f);
    fclose(f);
}

static const struct ngd_backend_telemetry *host;

static void *open_host(void)
{
    void *source;

    snprintf(root, sizeof(root), "/tmp/ngd_host_XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(root));
    setenv("NGD_HOST_ROOT", root, 1);
    host = &ngd_backend_find("host")->telemetry;
    source = host->open(NULL);
    ck_assert_ptr_nonnull(source);
    return source;
}

static void close_host(void *source)
{
    char command[128];

    host->close(source);
    unsetenv("NGD_HOST_ROOT");
    snprintf(command, sizeof(command), "rm -rf %s", root);
    ck_assert_int_eq(system(command), 0);
}

#define ABSENT (-12345.0)
static double sampled(void *source, ngd_telemetry_id_t id)
{
    struct ngd_telemetry t = {0};
    double v = ABSENT;

    host->sample(source, &t);
    ngd_telemetry_get(&t, id, &v);
    return v;
}

START_TEST(memory_is_the_machines_or_the_control_groups)
{
    void *s = open_host();

    ck_assert(sampled(s, NGD_TELEMETRY_MEMORY_TOTAL) == ABSENT);
    put("proc/meminfo", "MemTotal:       8192 kB\nMemFree:         100 kB\nMemAvailable:   2048 kB\n");
    ck_assert(sampled(s, NGD_TELEMETRY_MEMORY_TOTAL) == 8192 * 1024.0);
    ck_assert(sampled(s, NGD_TELEMETRY_MEMORY_USED) == 6144 * 1024.0);
    put("proc/self/cgroup", "1:name=systemd:/\n0::/a/b\n");
    put("sys/fs/cgroup/a/b/memory.max", "max\n");
    put("sys/fs/cgroup/a/memory.max", "4194304\n");
    put("sys/fs/cgroup/a/memory.current", "1500\n");
    ck_assert(sampled(s, NGD_TELEMETRY_MEMORY_TOTAL) == 4194304);
    ck_assert(sampled(s, NGD_TELEMETRY_MEMORY_USED) == 1500);
    put("sys/fs/cgroup/a/memory.stat", "anon 700\nactive_inactive_file 3\ninactive_file_x 4\ninactive_file 1501\n");
    ck_assert(sampled(s, NGD_TELEMETRY_MEMORY_USED) == 1500); /* that cannot be */
    put("sys/fs/cgroup/a/memory.stat", "anon 700\ninactive_anon 7\ninactive_file 500\nactive_file 300\n");
    ck_assert(sampled(s, NGD_TELEMETRY_MEMORY_USED) == 1000);
    put("sys/fs/cgroup/a/b/memory.max", "2097152\n");
    put("sys/fs/cgroup/a/b/memory.current", "7\n");
    ck_assert(sampled(s, NGD_TELEMETRY_MEMORY_USED) == 7);
    put("sys/fs/cgroup/a/b/memory.current", "-7\n");
    ck_assert(sampled(s, NGD_TELEMETRY_MEMORY_USED) == 1000);
    put("sys/fs/cgroup/a/memory.max", "99999999999999\n"); /* more than there is limits nothing */
    ck_assert(sampled(s, NGD_TELEMETRY_MEMORY_USED) == 6144 * 1024.0);
    put("proc/meminfo", "MemTotal:       8192 kB\nMemAvailable:   9000 kB\n");
    ck_assert(sampled(s, NGD_TELEMETRY_MEMORY_USED) == ABSENT);
    put("proc/meminfo", "MemTotal: plenty\n");
    ck_assert(sampled(s, NGD_TELEMETRY_MEMORY_TOTAL) == ABSENT);
    close_host(s);
}
END_TEST

START_TEST(temperature_is_the_hottest_sensor_of_the_cpus)
{
    static const char *const hostile[] = {
        "",          "\n",        "hot\n",  "47000 x\n", "4700000000000000000000000000\n",
        "-274000\n", "1000000\n", "0x10\n", " 47000\n"};
    void *s = open_host();
    char path[128], huge[10000];

    put("sys/class/hwmon/hwmon0/name", "nvme\n");
    put("sys/class/hwmon/hwmon0/temp1_input", "99000\n");
    put("sys/class/thermal/thermal_zone0/type", "acpitz\n");
    put("sys/class/thermal/thermal_zone0/temp", "20000\n");
    ck_assert(sampled(s, NGD_TELEMETRY_TEMPERATURE) == ABSENT);
    put("sys/class/thermal/thermal_zone1/type", "x86_pkg_temp\n");
    put("sys/class/thermal/thermal_zone1/temp", "51000\n");
    ck_assert(sampled(s, NGD_TELEMETRY_TEMPERATURE) == 51);
    put("sys/class/hwmon/hwmon1/name", "coretemp\n");
    put("sys/class/hwmon/hwmon1/temp1_input", "46500\n");
    put("sys/class/hwmon/hwmon1/temp2_input", "47250");
    put("sys/class/hwmon/hwmon1/temp2_crit", "100000\n");
    ck_assert(sampled(s, NGD_TELEMETRY_TEMPERATURE) == 47.25);
    put("sys/class/hwmon/hwmon1/temp2_input", NULL);
    put("sys/class/thermal/thermal_zone1/temp", NULL);
    for (size_t i = 0; i < sizeof(hostile) / sizeof(hostile[0]); i++) {
        put("sys/class/hwmon/hwmon1/temp1_input", hostile[i]);
        ck_assert_msg(sampled(s, NGD_TELEMETRY_TEMPERATURE) == ABSENT, "\"%s\"", hostile[i]);
    }
    memset(huge, '4', sizeof(huge) - 1);
    huge[sizeof(huge) - 1] = '\0';
    put("sys/class/hwmon/hwmon1/temp1_input", huge);
    put("sys/class/hwmon/hwmon1/name", huge);
    ck_assert(sampled(s, NGD_TELEMETRY_TEMPERATURE) == ABSENT);
    put("sys/class/hwmon/hwmon1/name", "coretemp\n");
    put("sys/class/hwmon/hwmon1/temp1_input", NULL);
    snprintf(path, sizeof(path), "%s/sys/class/hwmon/hwmon1/temp1_input", root);
    ck_assert_int_eq(mkfifo(path, 0600), 0); /* reading it would never end */
    ck_assert(sampled(s, NGD_TELEMETRY_TEMPERATURE) == ABSENT);
    close_host(s);
}
END_TEST

static void put_package(int n, const char *energy)
{
    char name[128];

    snprintf(name, sizeof(name), "sys/class/powercap/intel-rapl:%d/name", n);
    put(name, n == 0 ? "package-0\n" : n == 1 ? "package-1\n" : "psys\n");
    snprintf(name, sizeof(name), "sys/class/powercap/intel-rapl:%d/max_energy_range_uj", n);
    put(name, "262143328850\n");
    snprintf(name, sizeof(name), "sys/class/powercap/intel-rapl:%d/energy_uj", n);
    put(name, energy);
}

START_TEST(power_is_the_energy_of_all_packages_between_two_readings)
{
    void *s = open_host();

    ngd_clock_set_fake(10 * NGD_SEC);
    put_package(0, "1000000\n");
    put_package(1, "262143328849\n");
    put_package(2, "5\n");
    put("sys/class/powercap/intel-rapl:0:0/name", "package-9\n");
    put("sys/class/powercap/intel-rapl:0:0/energy_uj", "77\n");
    ck_assert(sampled(s, NGD_TELEMETRY_POWER) == ABSENT); /* there is no reading before */
    ngd_clock_set_fake(12 * NGD_SEC);
    put_package(0, "81000000\n"); /* 80 J */
    put_package(1, "19999999\n"); /* 20 J, past the end of its range */
    ck_assert_double_eq_tol(sampled(s, NGD_TELEMETRY_POWER), 50, 1e-6);
    ck_assert(sampled(s, NGD_TELEMETRY_POWER) == ABSENT); /* no time has passed */
    ngd_clock_set_fake(14 * NGD_SEC);
    put_package(1, "-1\n");
    ck_assert(sampled(s, NGD_TELEMETRY_POWER) == ABSENT); /* not the sum of some of them */
    ngd_clock_set_fake(16 * NGD_SEC);
    put_package(1, "20000000\n");
    ck_assert(sampled(s, NGD_TELEMETRY_POWER) == ABSENT); /* the reading before was none */
    ngd_clock_set_fake(17 * NGD_SEC);
    put_package(1, "21000000\n");
    ck_assert_double_eq_tol(sampled(s, NGD_TELEMETRY_POWER), 1, 1e-6);
    /* At 1000 W the counter passes its range in 262.1 s. */
    ngd_clock_set_fake((17 + 262) * NGD_SEC);
    put_package(1, "52421000000\n");
    ck_assert_double_eq_tol(sampled(s, NGD_TELEMETRY_POWER), 200, 1e-6);
    ngd_clock_set_fake((17 + 262 + 263) * NGD_SEC);
    ck_assert(sampled(s, NGD_TELEMETRY_POWER) == ABSENT);
    ngd_clock_set_fake((17 + 262 + 264) * NGD_SEC);
    ck_assert_double_eq_tol(sampled(s, NGD_TELEMETRY_POWER), 0, 1e-6);
    ngd_clock_set_fake(-1);
    close_host(s);
}
END_TEST

UNIT_MAIN("telemetry", what_is_outside_its_range_or_no_number_is_absent, vendors_values_are_in_mb_and_percent,
          readings_are_renewed_and_the_numbers_of_the_chip_stay,
          old_readings_are_dropped_and_an_interval_of_zero_reads_nothing,
          a_call_that_hangs_does_not_hold_readers_or_the_stop, memory_is_the_machines_or_the_control_groups,
          temperature_is_the_hottest_sensor_of_the_cpus, power_is_the_energy_of_all_packages_between_two_readings)
