/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/device_list.h"
#include "base/log.h"
#include "base/mem.h"
#include "devices/telemetry.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint32_t count_host_devices(const struct ngd_config_list *list)
{
    uint32_t n = 0;

    for (size_t i = 0; i < list->n; i++)
        n += strcmp(list->items[i], "host") == 0 || strncmp(list->items[i], "host:", 5) == 0;
    return n;
}

ngd_status_t ngd_device_list_parse(const struct ngd_daemon *d, const char *text, char backend[static 32],
                                   struct ngd_device_params *params_p, struct ngd_diag *diag)
{
    const char *colon = strchr(text, ':');
    char *end = NULL;

    ngd_device_params_init(params_p);
    snprintf(backend, 32, "%.*s", colon ? (int)(colon - text) : (int)strlen(text), text);
    params_p->backend = backend;
    if (colon) {
        params_p->index = (uint32_t)strtoul(colon + 1, &end, 10);
        if (colon[1] < '0' || colon[1] > '9' || *end)
            return ngd_diag_set(diag, NGD_ERR_CONFIG, "device %s: allowed: BACKEND or BACKEND:INDEX", text);
    }
    params_p->memory_bytes = d->options.device_memory;
    params_p->sharers = count_host_devices(&d->options.device);
    params_p->threads = (uint32_t)d->options.threads;
    params_p->ascend_libs = d->options.ascend_libs;
    params_p->ascend_lib_names = d->options.ascend_lib_names;
    params_p->nz_weights = d->options.nz_weights != 0;
    params_p->device_facts = d->options.device_facts;
    params_p->isa = ngd_isa_names[d->options.isa];
    return NGD_OK;
}

/* True if the daemon may serve without a device that failed like this. A fault of one device is no reason not to serve
 * with the others; a fault of the configuration is. */
static bool may_go_on_without(const char *backend, ngd_status_t status)
{
    bool known = false;

    for (const char *const *name = ngd_device_backends(); *name; name++)
        known |= strcmp(backend, *name) == 0;
    if (!known)
        return false;
    return status == NGD_ERR_UNAVAILABLE || status == NGD_ERR_NOT_FOUND || status == NGD_ERR_PERMISSION_DENIED ||
           status == NGD_ERR_NO_DEVICE_MEMORY || status == NGD_ERR_NO_STREAMS ||
           ngd_status_scope(status) == NGD_SCOPE_DEVICE;
}

static void keep_refused(struct ngd_daemon *d, const char *backend, const struct ngd_device_params *params,
                         const struct ngd_diag *why)
{
    struct ngd_refused_device *r = &d->refused[d->n_refused++];

    snprintf(r->backend, sizeof(r->backend), "%s", backend);
    r->params = *params;
    r->params.backend = r->backend;
    r->why = *why;
    snprintf(r->name, sizeof(r->name), "%.31s:%u", backend, (unsigned)params->index);
}

/* Opens one device, or returns why it was refused. The caller goes on without it unless *fatal_p is set. */
static ngd_status_t open_one(struct ngd_daemon *d, const char *text, bool *fatal_p, struct ngd_diag *diag)
{
    struct ngd_device_params params;
    const struct ngd_device_info *info;
    char backend[32];
    ngd_status_t status = ngd_device_list_parse(d, text, backend, &params, diag);

    *fatal_p = status != NGD_OK;
    if (status)
        return status;
    status = ngd_device_open(&params, &d->devices[d->n_devices], diag);
    if (status) {
        ngd_diag_prefix(diag, "device %s: ", text);
        *fatal_p = !may_go_on_without(backend, status);
        keep_refused(d, backend, &params, diag);
        return status;
    }
    info = ngd_device_info(d->devices[d->n_devices++]);
    ngd_notice("daemon", "device %s: %s, %llu MiB, %u threads", info->name, info->description,
               (unsigned long long)(info->memory_bytes >> 20), info->threads);
    return NGD_OK;
}

/* Warns of devices that are the same hardware, which an operator may take for more of it. */
static void warn_of_shared_hardware(const struct ngd_daemon *d)
{
    uint64_t bytes = 0;
    unsigned n = 0;

    for (size_t i = 0; i < d->n_devices; i++) {
        if (strcmp(ngd_device_info(d->devices[i])->backend, "host") == 0) {
            bytes += ngd_device_info(d->devices[i])->memory_bytes;
            n++;
        }
    }
    if (n > 1)
        ngd_warning(
            "daemon",
            "%u host devices share the CPUs and the memory of this machine, so they are no faster than one; their "
            "memory budgets are %llu MiB together. For one device with all CPUs, set device = host",
            n, (unsigned long long)(bytes >> 20));
}

/* Starts the threads that read the hardware. All devices are open by then: CANN's environment is set only while the
 * process has one thread. */
static void start_readings(struct ngd_daemon *d)
{
    struct ngd_diag diag = {0};

    for (size_t i = 0; i < d->n_devices; i++)
        if (ngd_telemetry_start(d->devices[i], d->options.telemetry_interval, &diag))
            ngd_warning("daemon", "%s; its readings are absent", diag.text);
}

const char *ngd_device_list_first(const struct ngd_daemon *d, struct ngd_diag *diag)
{
    if (d->options.device.n)
        return d->options.device.items[0];
    ngd_diag_set(diag, NGD_ERR_CONFIG, "no device is configured; set the option device");
    return NULL;
}

ngd_status_t ngd_device_list_start(struct ngd_daemon *d, struct ngd_diag *diag)
{
    ngd_status_t status = NGD_OK;

    if (!ngd_device_list_first(d, diag))
        return NGD_ERR_CONFIG;

    d->devices = NGD_NEW_N(struct ngd_device *, d->options.device.n + 1);
    d->refused = NGD_NEW_N(struct ngd_refused_device, d->options.device.n + 1);
    if (!d->devices || !d->refused)
        return NGD_ERR_NO_MEMORY;
    for (size_t i = 0; i < d->options.device.n; i++) {
        struct ngd_diag why = {0};
        bool fatal;
        ngd_status_t opened = open_one(d, d->options.device.items[i], &fatal, &why);

        if (opened == NGD_OK)
            continue;
        if (status == NGD_OK) {
            status = opened;
            if (diag)
                *diag = why;
        }
        if (fatal)
            return opened;
        ngd_error("daemon", "%s; going on without it", why.text);
    }
    warn_of_shared_hardware(d);
    start_readings(d);
    return d->n_devices > 0 ? NGD_OK : status;
}

void ngd_device_list_stop(struct ngd_daemon *d)
{
    while (d->n_devices > 0)
        ngd_device_close(d->devices[--d->n_devices]);
    ngd_free(d->devices);
    ngd_free(d->refused);
    d->devices = NULL;
    d->refused = NULL;
    d->n_refused = 0;
}

const struct ngd_refused_device *ngd_device_list_find_refused(const struct ngd_daemon *d, const char *name)
{
    for (size_t i = 0; i < d->n_refused; i++)
        if (strcmp(d->refused[i].name, name) == 0)
            return &d->refused[i];
    return NULL;
}
