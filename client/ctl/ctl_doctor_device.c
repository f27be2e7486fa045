/* SPDX-License-Identifier: Apache-2.0 */
/*
 * doctor device: checks a device, and prints the steps as a table or writes them as a report that can be sent. With
 * --probe it is npugraphd that asks the device, without a daemon.
 */
#include "base/mem.h"
#include "client/ctl/ctl.h"
#include "proto/npugraph.pb-c.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

/* The daemon gives up on a device that hangs after a minute (NGD_ASCEND_LIMIT_MS), and reports that in its answer. So
 * the call waits longer. */
#define LIMIT_MS 300000

typedef const Npugraph__V1__DoctorDeviceResponse report_t;

static void print_steps(struct ctl *ctl, report_t *r)
{
    static const struct ctl_column columns[] = {
        {"STEP", "step", false}, {"RESULT", "verdict", false}, {"TOOK", "took", true}, {"", "text", false}};
    struct ctl_table *t = ctl_table_new(ctl, "steps", columns, sizeof(columns) / sizeof(columns[0]));

    ctl_table_prose(t, 3);
    for (size_t i = 0; i < r->n_steps; i++) {
        ctl_row(t);
        ctl_str(t, r->steps[i]->name);
        ctl_verdict(t, r->steps[i]->verdict);
        ctl_us(t, (double)r->steps[i]->nanoseconds / 1000);
        ctl_str(t, r->steps[i]->text);
    }
    ctl_table_end(t, "");
    if (ctl->json) {
        json_object_set_new(ctl->root, "device", json_string(r->device));
        json_object_set_new(ctl->root, "description", json_string(r->description));
        json_object_set_new(ctl->root, "version", json_string(r->version));
        json_object_set_new(ctl->root, "capabilities", json_string(r->capabilities));
        json_object_set_new(ctl->root, "healthy", json_boolean(r->healthy));
        json_object_set_new(ctl->root, "verdict", json_string(r->verdict));
    } else {
        printf("\n%s: %s.\n", r->healthy ? "Healthy" : "Not healthy", r->verdict);
    }
}

static void write_device_report(FILE *f, report_t *r)
{
    struct utsname machine = {0};

    uname(&machine);
    fprintf(f, "npugraphd %s, device %s: %s\n%s %s, %s\n\n%s: %s.\n\n", r->version, r->device, r->description,
            machine.sysname, machine.release, machine.machine, r->healthy ? "Healthy" : "Not healthy", r->verdict);
    for (size_t i = 0; i < r->n_steps; i++)
        fprintf(f, "%-32s %-8s %12.1f us  %s\n", r->steps[i]->name,
                ngd_word_of(&npugraph__v1__doctor_verdict__descriptor, r->steps[i]->verdict).text,
                (double)r->steps[i]->nanoseconds / 1000, r->steps[i]->text);
    fprintf(f, "\n%s", r->capabilities);
}

static int write_report(const char *path, report_t *r)
{
    FILE *f = fopen(path, "we");
    bool ok = f != NULL;

    if (ok) {
        write_device_report(f, r);
        ok = !ferror(f);
        ok = fclose(f) == 0 && ok;
    }
    if (!ok)
        ctl_error("%s: %s", path, strerror(errno));
    return ok ? 0 : 1;
}

/* ---- the probe: a run of npugraphd on this machine, since it needs no daemon ------------------------------- */

struct probe_run {
    char **args; /* npugraphd, n arguments, NULL */
    int n;
    bool failed; /* memory was short */
};

/* Each of this program's argc arguments gives at most one. */
static void open_probe_run(struct probe_run *p, int argc)
{
    static char name[] = "npugraphd";

    *p = (struct probe_run){.args = calloc((size_t)argc + 2, sizeof(*p->args))};
    p->failed = p->args == NULL;
    if (!p->failed)
        p->args[0] = name;
}

static void add_argument(struct probe_run *p, const char *name, const char *value)
{
    struct ngd_strbuf sb;

    if (p->failed)
        return;
    ngd_strbuf_init(&sb);
    ngd_strbuf_printf(&sb, "--%s=%s", name, value);
    p->args[++p->n] = ngd_strbuf_steal(&sb);
    p->failed = p->args[p->n] == NULL;
}

static void close_probe_run(struct probe_run *p)
{
    for (int i = 1; i <= p->n; i++)
        ngd_free(p->args[i]);
    free(p->args);
}

/* Becomes npugraphd: the one beside this program, the one in the sbin beside its folder, or that of PATH. */
static int run_probe_here(struct probe_run *p)
{
    static const char *const places[] = {"npugraphd", "../sbin/npugraphd"};
    char self[512], path[600];
    const ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    char *slash;

    if (p->failed) {
        fputs("npugraphctl: no memory for the arguments of npugraphd\n", stderr);
        return 1;
    }
    self[n > 0 ? n : 0] = '\0';
    slash = strrchr(self, '/');
    for (size_t i = 0; slash != NULL && i < sizeof(places) / sizeof(places[0]); i++) {
        snprintf(path, sizeof(path), "%.*s/%s", (int)(slash - self), self, places[i]);
        execv(path, p->args);
    }
    execvp("npugraphd", p->args);
    ctl_error("npugraphd, which probes devices, cannot be run: %s", strerror(errno));
    return 1;
}

static int doctor_or_probe(struct ctl *ctl, int argc, char **argv, struct probe_run *probe)
{
    Npugraph__V1__DoctorDeviceRequest req = NPUGRAPH__V1__DOCTOR_DEVICE_REQUEST__INIT;
    Npugraph__V1__DoctorDeviceResponse *r;
    struct ctl_options o = {ctl_find_command(argv[0]), argc, 2, argv};
    const char *name, *value, *device = NULL, *path = NULL;
    struct npugraph_connect_params usual;
    bool probing = false;
    int rc;

    npugraph_connect_params_init(&usual);
    if (ctl->connect.timeout_ms == usual.timeout_ms)
        ctl->connect.timeout_ms = LIMIT_MS;
    while ((name = ctl_next_beside(&o, "", "report probe config ascend-libs ascend-lib-names", &value, &device,
                                   "one device at a time")) != NULL) {
        if (strcmp(name, "?") == 0)
            return 2;
        if (strcmp(name, "report") == 0)
            path = value;
        else
            add_argument(probe, name, value);
        probing |= strcmp(name, "probe") == 0;
    }
    if (probe->n > 0 && (!probing || path != NULL))
        return ctl_usage(o.command, "%s",
                         probing ? "--report and --probe are two things; ask for one"
                                 : "--config, --ascend-libs and --ascend-lib-names go with --probe");
    if (probing) {
        if (device != NULL)
            add_argument(probe, "device", device);
        return run_probe_here(probe);
    }
    if (device != NULL)
        req.device = (char *)(uintptr_t)device;
    r = (void *)ctl_call(ctl, "/npugraph.v1.Admin/DoctorDevice", &req.base,
                         &npugraph__v1__doctor_device_response__descriptor);
    if (r == NULL)
        return 1;
    print_steps(ctl, r);
    rc = r->healthy ? 0 : 1;
    if (path != NULL && write_report(path, r) != 0)
        rc = 1;
    npugraph__free_message(r);
    return rc;
}

int ctl_doctor_device(struct ctl *ctl, int argc, char **argv)
{
    struct probe_run probe;
    int rc;

    open_probe_run(&probe, argc);
    rc = doctor_or_probe(ctl, argc, argv, &probe);
    close_probe_run(&probe);
    return rc;
}
