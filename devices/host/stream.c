/* SPDX-License-Identifier: Apache-2.0 */
/* Streams of the host device: a queue in software (devices/serial.h) with a team of threads. */
#include "base/fault.h"
#include "base/mem.h"
#include "devices/host/host.h"
#include "devices/serial.h"
#include <time.h>
#include <unistd.h>

#define HANG_LIMIT_MS 200 /* the time limit after which the simulated device ends a hanging kernel */

/* Simulates faults that devices have and CPUs do not, if a test asks for one. */
static ngd_status_t injected(void)
{
    if (NGD_FAULT(HOST_FAULT))
        return NGD_ERR_DEVICE_FAULT;
    while (NGD_FAULT(HOST_STUCK))
        for (;;)
            pause();
    if (NGD_FAULT(HOST_LOST))
        return NGD_ERR_DEVICE_LOST;
    if (NGD_FAULT(HOST_HANG)) {
        nanosleep(&(struct timespec){.tv_nsec = HANG_LIMIT_MS * 1000000L}, NULL);
        return NGD_ERR_DEVICE_FAULT;
    }
    return NGD_OK;
}

static ngd_status_t run_launch(void *team, void *inst, struct ngd_launch *launch)
{
    ngd_status_t status = injected();

    if (status) {
        launch->status = ngd_diag_set(&launch->diag, status, "device host: a fault that a test asked for");
        ngd_host_not_run(inst, launch->diag.text);
        return status;
    }
    return ngd_host_launch(inst, team, launch);
}

static void stream_refused(void *team, void *inst, ngd_status_t status)
{
    (void)team;
    ngd_host_not_run(inst, ngd_status_text(status));
}

static void stream_fini_team(void *team)
{
    ngd_team_destroy(team);
}

static const struct ngd_serial_ops stream_ops = {
    .launch = run_launch, .refused = stream_refused, .fini = stream_fini_team};

ngd_status_t ngd_host_stream_create(void *dev_v, const char *name, void **stream_p, struct ngd_diag *diag)
{
    const struct host_device *dev = dev_v;
    struct ngd_team *team = NULL;
    ngd_status_t status;

    if (dev->threads > 1 && ngd_team_create(dev->threads, name, &team))
        return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory for the team of stream \"%.100s\"", name);
    status = ngd_serial_create(name, &stream_ops, team, stream_p);
    if (status) {
        ngd_team_destroy(team);
        return ngd_diag_set(diag, status, "no host memory for stream \"%.100s\"", name);
    }
    return NGD_OK;
}
