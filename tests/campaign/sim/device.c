/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a launch takes is spent before its kernels run, where it looks for its stop and its end as kernels do; a launch
 * that may pause spends it between its calls, each time it looks at the clock, since it decides there where to pause.
 */
#include "tests/campaign/sim/device.h"
#include "base/log.h"
#include "base/mem.h"
#include "devices/device_int.h"
#include "devices/host/host.h"
#include "devices/serial.h"
#include "tests/campaign/sim/fibers.h"
#include <string.h>

#define LOOKS 8 /* for its stop, while a launch runs */

struct sim_device_params sim_device;
struct sim_device_counts sim_device_counts;
static ngd_nsec_t lost_until;

struct sim_exec {
    void *host;
    const struct ngd_plan *plan;
    ngd_nsec_t service;
};
struct sim_inst {
    struct sim_exec *exec;
    void *host;
};

extern const struct ngd_backend ngd_backend_host;

/* ---- code --------------------------------------------------------------------------------------------- */

static int64_t rows_of(const struct ngd_plan *plan)
{
    return plan->graph->n_symbols ? plan->symbols[0] : 1;
}

/* Of a graph by its name, so that all its executables are alike; a row more costs a 16th of the first. */
static ngd_nsec_t service_of(const struct ngd_plan *plan)
{
    uint64_t h = 14695981039346656037u;

    for (const char *p = plan->graph->name; *p; p++)
        h = (h ^ (uint8_t)*p) * 1099511628211u;
    return sim_device.service * (ngd_nsec_t)(1 + (h >> 20) % sim_device.spread) / 16 * (15 + rows_of(plan));
}

ngd_nsec_t sim_device_longest(int64_t rows)
{
    return sim_device.service * (ngd_nsec_t)sim_device.spread / 16 * (15 + rows) * SIM_OUTLIER * 5 / 4;
}

static ngd_status_t instantiate(void *dev, const struct ngd_plan *plan, const struct ngd_backend_group *groups,
                                uint32_t n_groups, void **exec_p, uint64_t *bytes_p, struct ngd_diag *diag)
{
    struct sim_exec *exec = NGD_NEW(struct sim_exec);
    ngd_status_t status;

    sim_check(exec != NULL, "no memory");
    sim_sleep_until(sim_time() + sim_between(NGD_MSEC, 300 * NGD_MSEC)); /* a capture takes its time */
    exec->plan = plan;
    exec->service = service_of(plan);
    status = ngd_backend_host.code.instantiate(dev, plan, groups, n_groups, &exec->host, bytes_p, diag);
    if (status)
        ngd_free(exec);
    else
        *exec_p = exec;
    return status;
}

static void destroy(void *dev, void *exec_v)
{
    struct sim_exec *exec = exec_v;

    ngd_backend_host.code.destroy(dev, exec->host);
    memset(exec, 0xa5, sizeof(*exec));
    ngd_free(exec);
}

static ngd_status_t bind(void *dev, void *exec_v, void *pool_mem, void *const *bound_mem, uint32_t n, void **inst_p,
                         struct ngd_diag *diag)
{
    struct sim_exec *exec = exec_v;
    struct sim_inst *inst = *inst_p;
    ngd_status_t status;

    if (!inst) {
        inst = NGD_NEW(struct sim_inst);
        sim_check(inst != NULL, "no memory");
        inst->exec = exec;
    }
    status = ngd_backend_host.code.bind(dev, exec->host, pool_mem, bound_mem, n, &inst->host, diag);
    if (status && !*inst_p)
        ngd_free(inst);
    else
        *inst_p = inst;
    return status;
}

static void unbind(void *dev, void *inst_v)
{
    struct sim_inst *inst = inst_v;

    ngd_backend_host.code.unbind(dev, inst->host);
    memset(inst, 0xa5, sizeof(*inst));
    ngd_free(inst);
}

/* ---- launches ----------------------------------------------------------------------------------------- */

static ngd_nsec_t draw_time(const struct sim_exec *exec)
{
    const ngd_nsec_t t = exec->service / 100 * (ngd_nsec_t)(90 + sim_below(21));

    return sim_chance(1, 50) ? t * SIM_OUTLIER : t;
}

static ngd_status_t stops(const struct ngd_launch *launch)
{
    if (launch->stop && atomic_load(launch->stop))
        return NGD_ERR_CANCELLED;
    return launch->stop_at && sim_time() >= launch->stop_at ? NGD_ERR_REPLAY_STOPPED : NGD_OK;
}

static ngd_status_t spend(const struct ngd_launch *launch, ngd_nsec_t t)
{
    const ngd_nsec_t begin = sim_time();

    for (int i = 1; i <= LOOKS; i++) {
        const ngd_nsec_t at = begin + t / LOOKS * i;
        ngd_status_t status;

        sim_sleep_until(launch->stop_at && launch->stop_at < at ? launch->stop_at : at);
        status = stops(launch);
        if (status)
            return status;
    }
    return NGD_OK;
}

static ngd_status_t fails(void)
{
    if (sim_device.faults_end)
        return NGD_OK;
    if (sim_chance(sim_device.fault, 100000)) {
        sim_device_counts.faults++;
        return NGD_ERR_DEVICE_FAULT;
    }
    if (!sim_chance(sim_device.lost, 100000))
        return NGD_OK;
    sim_device_counts.losses++;
    lost_until = sim_time() + sim_device.lost_for;
    return NGD_ERR_DEVICE_LOST;
}

static ngd_status_t end_early(struct sim_inst *inst, struct ngd_launch *launch, ngd_status_t status, ngd_nsec_t took)
{
    launch->status = ngd_diag_set(&launch->diag, status, "stopped at node 0 (simulated)");
    launch->device_time = took;
    launch->paused = false;
    ngd_host_not_run(inst->host, launch->diag.text);
    if (status == NGD_ERR_CANCELLED || status == NGD_ERR_REPLAY_STOPPED)
        sim_device_counts.stopped++;
    return status;
}

static ngd_status_t run(void *ctx, void *inst_v, struct ngd_launch *launch)
{
    struct sim_inst *inst = inst_v;
    const ngd_nsec_t begin = sim_time(), t = draw_time(inst->exec);
    const bool slices = launch->pause_at != 0;
    ngd_status_t status = slices ? NGD_OK : spend(launch, t);
    ngd_nsec_t spent = sim_time() - begin;

    (void)ctx;
    sim_device_counts.launches++;
    if (!status)
        status = fails();
    if (status)
        return end_early(inst, launch, status, spent);
    if (slices)
        sim_set_work(t / (inst->exec->plan->n_calls + 2) + 1);
    status = ngd_host_launch(inst->host, NULL, launch);
    sim_set_work(0);
    launch->device_time += spent;
    sim_device_counts.paused += launch->paused;
    spent = sim_time() - begin;
    sim_device_counts.longest = spent > sim_device_counts.longest ? spent : sim_device_counts.longest;
    return status;
}

static void refused(void *ctx, void *inst_v, ngd_status_t status)
{
    struct sim_inst *inst = inst_v;

    (void)ctx;
    ngd_host_not_run(inst->host, ngd_status_text(status));
}

static ngd_status_t reset(void *ctx)
{
    (void)ctx;
    sim_sleep_until(sim_time() + sim_between(NGD_MSEC, NGD_SEC));
    return sim_time() < lost_until && !sim_device.faults_end ? NGD_ERR_DEVICE_LOST : NGD_OK;
}

static void fini(void *ctx)
{
    (void)ctx;
}

static const struct ngd_serial_ops stream_ops = {.launch = run, .refused = refused, .reset = reset, .fini = fini};

static ngd_status_t stream_create(void *dev, const char *name, void **stream_p, struct ngd_diag *diag)
{
    (void)dev;
    (void)diag;
    return ngd_serial_create(name, &stream_ops, NULL, stream_p);
}

/* ---- the table of backends, instead of devices/backends.c ----------------------------------------------- */

static struct ngd_backend backend;

const struct ngd_backend *ngd_backend_find(const char *name)
{
    if (!backend.api) {
        backend = ngd_backend_host;
        backend.code.instantiate = instantiate;
        backend.code.destroy = destroy;
        backend.code.bind = bind;
        backend.code.unbind = unbind;
        backend.code.static_source = NULL;
        backend.code.static_toolchain = NULL;
        backend.code.static_compile = NULL;
        backend.code.static_adopt = NULL;
        backend.stream.create = stream_create;
    }
    return strcmp(name, "host") == 0 ? &backend : NULL;
}

const char *const *ngd_device_backends(void)
{
    static const char *const names[] = {"host", NULL};

    return names;
}
