/* SPDX-License-Identifier: Apache-2.0 */
/* npugraphd's main function: options, start, loop, stop. */
#include "base/fault.h"
#include "base/log.h"
#include "base/log_ring.h"
#include "daemon/control/settings.h"
#include "daemon/control/stop_guard.h"
#include "daemon/daemon.h"
#include "daemon/device_list.h"
#include "daemon/reactor.h"
#include "daemon/sdnotify.h"
#include "daemon/startup.h"
#include <stdio.h>
#include <stdlib.h>

#define LOG_BYTES (256 * 1024) /* of lines that Admin.Logs can return */

/* Documented in npugraphd(8). */
enum { EXIT_OK = 0, EXIT_FAILED = 1, EXIT_CONFIG = 2, EXIT_OTHER_DAEMON = 3, EXIT_STUCK = 4 };

static int exit_code_of(ngd_status_t status)
{
    if (status == NGD_ERR_CONFIG || status == NGD_ERR_FILE_NOT_FOUND)
        return EXIT_CONFIG;
    return status == NGD_ERR_BUSY ? EXIT_OTHER_DAEMON : EXIT_FAILED;
}

static int run_daemon(struct ngd_daemon *d)
{
    struct ngd_diag diag = {0};
    ngd_status_t status;

    ngd_settings_log(&d->options);
    if (ngd_log_ring_start(LOG_BYTES) != NGD_OK)
        ngd_warning("daemon", "no host memory to keep lines of the log for npugraphctl logs");
    status = ngd_fault_init(&diag);
    if (status == NGD_OK && d->options.replace)
        ngd_sdnotify_prepare_main();
    if (status == NGD_OK)
        status = ngd_startup(d, &diag);
    if (status != NGD_OK) {
        ngd_error("daemon", "cannot start: %s", diag.text);
        return exit_code_of(status);
    }
    ngd_reactor_run(d->reactor);
    if (ngd_stop_guard_start(d, d->options.stop_grace, EXIT_STUCK, &d->stop_guard) != NGD_OK)
        ngd_warning("daemon", "the stop guard's thread cannot be started; the stop may take for ever");
    ngd_shutdown(d);
    ngd_stop_guard_stop(d->stop_guard);
    ngd_notice("daemon", "stopped");
    return d->exit_code;
}

/* Probes the first device of the options. Nothing of the daemon is started, and another one may run. */
static int run_probe(const struct ngd_daemon *d)
{
    struct ngd_device_params params;
    struct ngd_diag diag = {0};
    const char *first = ngd_device_list_first(d, &diag);
    char backend[32];
    ngd_status_t status;

    ngd_settings_log(&d->options);
    status = first ? ngd_device_list_parse(d, first, backend, &params, &diag) : NGD_ERR_CONFIG;
    if (status == NGD_OK)
        status = ngd_device_probe(&params, d->options.probe, &diag);
    if (status)
        fprintf(stderr, "npugraphd: %s\n", diag.text);
    return status == NGD_ERR_CONFIG ? EXIT_CONFIG : status ? EXIT_FAILED : EXIT_OK;
}

int main(int argc, char **argv)
{
    static struct ngd_daemon d;
    ngd_options_action_t action;
    const char *config_path;
    struct ngd_diag diag = {0};
    int code;

    if (ngd_options_parse(&d.options, argc, argv, &config_path, &action, &diag) != NGD_OK) {
        fprintf(stderr, "npugraphd: %s\n", diag.text);
        return EXIT_CONFIG;
    }
    if (action == NGD_OPTIONS_PROBE) {
        code = run_probe(&d);
        ngd_options_fini(&d.options);
        return code;
    }
    if (action != NGD_OPTIONS_RUN) {
        ngd_options_print(action);
        ngd_options_fini(&d.options);
        return EXIT_OK;
    }
    d.argc = argc;
    d.argv = argv;
    code = run_daemon(&d);
    ngd_options_fini(&d.options);
    return code;
}
