/* SPDX-License-Identifier: Apache-2.0 */
/* logs: lines of the daemon's log, as the daemon writes them; with --follow as they come. */
#include "base/clock.h"
#include "base/config.h"
#include "base/stamp.h"
#include "client/ctl/ctl.h"
#include "client/ctl/ctl_watch.h"

#include <inttypes.h>
#include <string.h>
#include <time.h>

#define LOGS      "/npugraph.v1.Admin/Logs"
#define PAGE      1000 /* lines of a call; the daemon's maximum */
#define SINCE_MAX (365 * 24 * 3600 * NGD_SEC)

/* Prints a line in one of the log's two forms. */
static void print_log(struct ctl *ctl, const Npugraph__V1__LogLine *line)
{
    char stamp[NGD_STAMP_ROOM];
    json_t *o;

    ngd_stamp_print((int64_t)line->time_ms, stamp);
    if (!ctl->json) {
        fprintf(ctl->out, "%s %s %s: %s\n", stamp, line->level, line->component, line->text);
        return;
    }
    o = json_pack("{s:s, s:s, s:s, s:s}", "time", stamp, "level", line->level, "component", line->component, "text",
                  line->text);
    json_dumpf(o, stdout, JSON_COMPACT);
    putchar('\n');
    json_decref(o);
}

/* Says what is missing before the lines of an answer. */
static void tell_lost(const Npugraph__V1__LogsRequest *req, const Npugraph__V1__LogsResponse *r)
{
    const bool again = req->start != 0 && r->start != req->start;

    fflush(stdout);
    if (again)
        fprintf(stderr, "npugraphctl: the daemon has started again: what it logged at its end may be missing\n");
    if (r->lost > 0)
        fprintf(stderr, "npugraphctl: %" PRIu64 " lines were lost: the daemon keeps the newest ones only\n", r->lost);
}

/*
 * Asks for lines. A daemon that has answered before and cannot be reached is waited for, for as long as --timeout: it
 * may be starting again, or another one in its place. NULL after printing the error.
 */
static Npugraph__V1__LogsResponse *ask_logs(struct ctl *ctl, const Npugraph__V1__LogsRequest *req)
{
    const ngd_nsec_t end = ngd_now() + (ngd_nsec_t)ctl->connect.timeout_ms * NGD_MSEC;
    struct npugraph_error err = {0};
    ProtobufCMessage *reply = NULL;

    if (req->start == 0)
        return (void *)ctl_call(ctl, LOGS, &req->base, &npugraph__v1__logs_response__descriptor);
    while ((ctl->client == NULL && npugraph_connect(&ctl->connect, &ctl->client, &err) != 0) ||
           npugraph__unary(ctl->client, LOGS, &req->base, &npugraph__v1__logs_response__descriptor, &reply, &err) !=
               0) {
        if (strcmp(err.reason, "UNREACHABLE") != 0 || ngd_now() >= end) {
            ctl_fail(&err);
            return NULL;
        }
        npugraph_disconnect(ctl->client); /* a new connection tries at once */
        ctl->client = NULL;
        nanosleep(&(struct timespec){.tv_nsec = 50 * NGD_MSEC}, NULL);
    }
    return (void *)reply;
}

/* Prints what the daemon has after the last line that was printed, a page at a time. */
static int print_logs(struct ctl *ctl, void *arg)
{
    Npugraph__V1__LogsRequest *req = arg;
    size_t n;

    do {
        Npugraph__V1__LogsResponse *r = ask_logs(ctl, req);

        if (r == NULL)
            return 1;
        tell_lost(req, r);
        for (size_t i = 0; i < r->n_lines; i++)
            print_log(ctl, r->lines[i]);
        n = r->n_lines;
        req->after = r->last;
        req->start = r->start;
        npugraph__free_message(r);
    } while (n == PAGE);
    return 0;
}

/* Reads a time before now, or one of RFC 3339. */
static bool read_since(const char *value, Npugraph__V1__LogsRequest *req)
{
    ngd_nsec_t since;
    int64_t ms;

    if (ngd_stamp_parse(value, strlen(value), &ms)) {
        req->since_time_ms = (uint64_t)ms;
        return true;
    }
    if (ngd_parse_time(value, &since) != NGD_OK || since < NGD_MSEC || since > SINCE_MAX)
        return false;
    req->since_ms = (uint64_t)(since / NGD_MSEC);
    return true;
}

int ctl_cmd_logs(struct ctl *ctl, int argc, char **argv)
{
    struct ctl_options o = {ctl_find_command(argv[0]), argc, 1, argv};
    Npugraph__V1__LogsRequest req = NPUGRAPH__V1__LOGS_REQUEST__INIT;
    const char *name, *value;
    bool follow = false;

    req.limit = PAGE;
    while ((name = ctl_next_option(&o, "follow", "level since", &value)) != NULL) {
        if (strcmp(name, "?") == 0)
            return 2;
        if (strcmp(name, "follow") == 0)
            follow = true;
        else if (strcmp(name, "level") == 0)
            req.level = (char *)(uintptr_t)value; /* the daemon knows the levels */
        else if (!read_since(value, &req))
            return ctl_usage(o.command,
                             "--since takes a time from 1ms to 8760h before now, such as 10m, or a time of day "
                             "with its zone, such as 2026-11-28T10:28:00Z or 2026-11-28T11:28:00+01:00");
    }
    if (ctl_next_argument(&o) != NULL)
        return ctl_usage(o.command, "logs takes no arguments");
    return ctl_follow(ctl, follow, print_logs, &req);
}
