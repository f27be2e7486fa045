/* SPDX-License-Identifier: Apache-2.0 */
/* npugraphctl top: looks at the daemon repeatedly, and shows what happened between two looks. */
#include "client/ctl/ctl_top.h"
#include "base/config.h"
#include "client/ctl/ctl_screen.h"

#include <stdlib.h>
#include <string.h>

#define INTERVAL_DEFAULT NGD_SEC
#define INTERVAL_MIN     (100 * NGD_MSEC)
#define INTERVAL_MAX     (3600 * NGD_SEC)
#define COUNT_MAX        1000000000u

struct top {
    struct ctl *ctl;
    uint64_t interval, count, shown; /* ns; updates to show, 0: until the user quits; updates shown */
    struct top_look before, now;     /* the last two looks */
};

/* ---- one look ---------------------------------------------------------------------------------------------- */

static void free_look(struct top_look *look)
{
    npugraph__free_message(look->status);
    npugraph__free_message(look->stats);
    npugraph__free_message(look->devices);
    npugraph__free_message(look->models);
    npugraph__free_message(look->shares);
    npugraph__free_message(look->sessions);
    memset(look, 0, sizeof(*look));
}

/* Makes a call. An error is kept, and printed after the screen is left. */
static void *ask_daemon(struct top *top, const char *method, const ProtobufCMessage *request,
                        const ProtobufCMessageDescriptor *type, struct npugraph_error *err)
{
    ProtobufCMessage *reply = NULL;

    if (err->code == 0 && npugraph__unary(top->ctl->client, method, request, type, &reply, err) != 0)
        return NULL;
    return reply;
}

static bool take_look(struct top *top, struct top_look *l, struct npugraph_error *err)
{
    Npugraph__V1__StatusRequest status = NPUGRAPH__V1__STATUS_REQUEST__INIT;
    Npugraph__V1__StatsRequest stats = NPUGRAPH__V1__STATS_REQUEST__INIT;
    Npugraph__V1__DevicesRequest devices = NPUGRAPH__V1__DEVICES_REQUEST__INIT;
    Npugraph__V1__ListModelsRequest models = NPUGRAPH__V1__LIST_MODELS_REQUEST__INIT;
    Npugraph__V1__ListSharesRequest shares = NPUGRAPH__V1__LIST_SHARES_REQUEST__INIT;
    Npugraph__V1__ListSessionsRequest sessions = NPUGRAPH__V1__LIST_SESSIONS_REQUEST__INIT;

    stats.form = NGD_PB(STATS_FORM, PROMETHEUS);
    l->at = ctl_screen_now();
    l->devices =
        ask_daemon(top, "/npugraph.v1.Admin/Devices", &devices.base, &npugraph__v1__devices_response__descriptor, err);
    l->shares = ask_daemon(top, "/npugraph.v1.Admin/ListShares", &shares.base,
                           &npugraph__v1__list_shares_response__descriptor, err);
    l->sessions = ask_daemon(top, "/npugraph.v1.Admin/ListSessions", &sessions.base,
                             &npugraph__v1__list_sessions_response__descriptor, err);
    l->models = ask_daemon(top, "/npugraph.v1.Sequences/ListModels", &models.base,
                           &npugraph__v1__list_models_response__descriptor, err);
    l->stats = ask_daemon(top, "/npugraph.v1.Admin/Stats", &stats.base, &npugraph__v1__stats_response__descriptor, err);
    l->status =
        ask_daemon(top, "/npugraph.v1.Admin/Status", &status.base, &npugraph__v1__status_response__descriptor, err);
    return err->code == 0;
}

/* ---- showing ----------------------------------------------------------------------------------------------- */

static void show_frame(struct top *top)
{
    char *frame = NULL;
    size_t n = 0;
    FILE *to = open_memstream(&frame, &n);

    if (to == NULL)
        return;
    top->ctl->out = to;
    ctl_top_print(top->ctl, &top->before, &top->now);
    top->ctl->out = stdout;
    if (fclose(to) == 0)
        ctl_screen_show(frame);
    free(frame);
}

/* Shows an update. Returns false if nobody reads standard output any more. */
static bool show(struct top *top)
{
    if (ctl_screen_on()) {
        show_frame(top);
        return true;
    }
    if (top->shown > 0 && !top->ctl->json)
        putchar('\n');
    ctl_top_print(top->ctl, &top->before, &top->now);
    ctl_flush_line(top->ctl);
    return fflush(stdout) == 0 && ferror(stdout) == 0;
}

static void redraw(struct top *top)
{
    if (top->shown > 0)
        show_frame(top);
    else
        ctl_screen_show("Measuring the first interval; q leaves.\n");
}

static bool watch_daemon(struct top *top, struct npugraph_error *err)
{
    struct top_look fresh = {0};

    if (!take_look(top, &top->now, err))
        return false;
    if (ctl_screen_on())
        redraw(top);
    while (top->count == 0 || top->shown < top->count) {
        ctl_screen_event_t event = ctl_screen_wait(top->now.at + top->interval);

        if (event == CTL_SCREEN_QUIT)
            return true;
        if (event == CTL_SCREEN_REDRAW) {
            redraw(top);
            continue;
        }
        if (!take_look(top, &fresh, err)) {
            free_look(&fresh);
            return false;
        }
        free_look(&top->before);
        top->before = top->now;
        top->now = fresh;
        if (!show(top))
            return true;
        top->shown++;
    }
    return true;
}

/* ---- the command ------------------------------------------------------------------------------------------- */

static int parse_top_options(struct top *top, int argc, char **argv)
{
    struct ctl_options o = {ctl_find_command(argv[0]), argc, 1, argv};
    const char *name, *value;
    ngd_nsec_t t;

    while ((name = ctl_next_option(&o, "", "interval count", &value)) != NULL) {
        if (strcmp(name, "?") == 0)
            return 2;
        if (strcmp(name, "interval") == 0) {
            if (ngd_parse_time(value, &t) != NGD_OK || t < INTERVAL_MIN || t > INTERVAL_MAX)
                return ctl_usage(o.command, "--interval takes a time from 100ms to 1h, such as 2s");
            top->interval = (uint64_t)t;
        } else if (!ctl_parse_uint(value, COUNT_MAX, &top->count) || top->count == 0) {
            return ctl_usage(o.command, "--count takes a number from 1 to %u", COUNT_MAX);
        }
    }
    return ctl_next_argument(&o) != NULL ? ctl_usage(o.command, "top takes no arguments but options") : 0;
}

int ctl_cmd_top(struct ctl *ctl, int argc, char **argv)
{
    struct top top = {.ctl = ctl, .interval = INTERVAL_DEFAULT};
    struct npugraph_error err = {0};
    int rc = parse_top_options(&top, argc, argv);

    if (rc != 0)
        return rc;
    if (!ctl_connect(ctl))
        return 1;
    ctl_screen_enter(ctl);
    rc = watch_daemon(&top, &err) ? 0 : 1;
    ctl_screen_leave();
    if (rc != 0)
        ctl_fail(&err);
    free_look(&top.before);
    free_look(&top.now);
    return rc;
}
