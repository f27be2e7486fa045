/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/sdnotify.h"
#include "base/mem.h"
#include "daemon/daemon.h"
#include "daemon/reactor.h"
#include <stdlib.h>
#include <unistd.h>

#ifdef NGD_HAVE_SYSTEMD
#include <systemd/sd-daemon.h>

struct ngd_sdnotify {
    const struct ngd_daemon *daemon;
    bool (*lives)(const struct ngd_daemon *d);
    struct ngd_reactor_watch *timer;
};

static void pat(void *arg)
{
    const struct ngd_sdnotify *sd = arg;

    if (sd->lives(sd->daemon))
        sd_notify(0, "WATCHDOG=1");
}

ngd_nsec_t ngd_sdnotify_watchdog(void)
{
    uint64_t usec = 0;

    return sd_watchdog_enabled(0, &usec) > 0 && usec < (uint64_t)INT64_MAX / NGD_USEC ? (ngd_nsec_t)usec * NGD_USEC : 0;
}

ngd_status_t ngd_sdnotify_start(struct ngd_daemon *d, bool (*lives)(const struct ngd_daemon *d))
{
    struct ngd_sdnotify *sd;
    const ngd_nsec_t within = ngd_sdnotify_watchdog();

    if (within == 0)
        return NGD_OK;
    sd = NGD_NEW(struct ngd_sdnotify);
    if (!sd)
        return NGD_ERR_NO_MEMORY;
    sd->daemon = d;
    sd->lives = lives;
    d->sdnotify = sd;
    return ngd_reactor_every(d->reactor, within / 3, pat, sd, &sd->timer);
}

void ngd_sdnotify_stop(struct ngd_daemon *d)
{
    if (!d->sdnotify)
        return;
    ngd_reactor_remove(d->sdnotify->timer);
    ngd_free(d->sdnotify);
    d->sdnotify = NULL;
}

void ngd_sdnotify_ready(const char *status_text)
{
    sd_notifyf(0, "READY=1\nSTATUS=%s", status_text);
}

void ngd_sdnotify_prepare_main(void)
{
    unsetenv("WATCHDOG_PID");
}

void ngd_sdnotify_main(void)
{
    sd_notifyf(0, "MAINPID=%ld", (long)getpid());
}

void ngd_sdnotify_status(const char *status_text)
{
    sd_notifyf(0, "STATUS=%s", status_text);
}

void ngd_sdnotify_stopping(const char *status_text)
{
    sd_notifyf(0, "STOPPING=1\nSTATUS=%s", status_text);
}

int ngd_sdnotify_listen_fds(int *first_p)
{
    *first_p = SD_LISTEN_FDS_START;
    return sd_listen_fds(1);
}

#else

ngd_status_t ngd_sdnotify_start(struct ngd_daemon *d, bool (*lives)(const struct ngd_daemon *d))
{
    (void)d;
    (void)lives;
    return NGD_OK;
}
void ngd_sdnotify_stop(struct ngd_daemon *d)
{
    (void)d;
}
ngd_nsec_t ngd_sdnotify_watchdog(void)
{
    return 0;
}
void ngd_sdnotify_prepare_main(void) {}
void ngd_sdnotify_main(void) {}
void ngd_sdnotify_ready(const char *status_text)
{
    (void)status_text;
}
void ngd_sdnotify_status(const char *status_text)
{
    (void)status_text;
}
void ngd_sdnotify_stopping(const char *status_text)
{
    (void)status_text;
}
int ngd_sdnotify_listen_fds(int *first_p)
{
    (void)first_p;
    return 0;
}

#endif
