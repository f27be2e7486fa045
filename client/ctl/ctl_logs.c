/* SPDX-License-Identifier: Apache-2.0 */
/* logs: lines of the daemon's log, as the daemon writes them; with --follow as they come. */
#include "base/config.h"
#include "client/ctl/ctl.h"
#include "client/ctl/ctl_watch.h"

#include <inttypes.h>
#include <string.h>
#include <time.h>

#define PAGE      1000 /* lines of a call; the daemon's maximum */
#define SINCE_MAX (365 * 24 * 3600 * NGD_SEC)

static void put_stamp(uint64_t ms, char *to, size_t room)
{
    const time_t at = (time_t)(ms / 1000);
    struct tm tm;
    size_t n = 0;

    if (gmtime_r(&at, &tm) != NULL)
        n = strftime(to, room, "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(to + n, room - n, ".%03uZ", (unsigned)(ms % 1000));
}

/* Prints a line in one of the log's two forms. */
static void print_log(struct ctl *ctl, const Npugraph__V1__LogLine *line)
{
    char stamp[32];
    json_t *o;

    put_stamp(line->time_ms, stamp, sizeof(stamp));
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

/* Prints what the daemon has after the last line that was printed, a page at a time. */
static int print_logs(struct ctl *ctl, void *arg)
{
    Npugraph__V1__LogsRequest *req = arg;
    size_t n;

    do {
        Npugraph__V1__LogsResponse *r =
            (void *)ctl_call(ctl, "/npugraph.v1.Admin/Logs", &req->base, &npugraph__v1__logs_response__descriptor);

        if (r == NULL)
            return 1;
        if (r->lost > 0) {
            fflush(stdout);
            fprintf(stderr, "npugraphctl: %" PRIu64 " lines were lost: the daemon keeps the newest ones only\n",
                    r->lost);
        }
        for (size_t i = 0; i < r->n_lines; i++)
            print_log(ctl, r->lines[i]);
        n = r->n_lines;
        req->after = r->last;
        npugraph__free_message(r);
    } while (n == PAGE);
    return 0;
}

int ctl_cmd_logs(struct ctl *ctl, int argc, char **argv)
{
    struct ctl_options o = {ctl_find_command(argv[0]), argc, 1, argv};
    Npugraph__V1__LogsRequest req = NPUGRAPH__V1__LOGS_REQUEST__INIT;
    const char *name, *value;
    bool follow = false;
    ngd_nsec_t since;

    req.limit = PAGE;
    while ((name = ctl_next_option(&o, "follow", "level since", &value)) != NULL) {
        if (strcmp(name, "?") == 0)
            return 2;
        if (strcmp(name, "follow") == 0)
            follow = true;
        else if (strcmp(name, "level") == 0)
            req.level = (char *)(uintptr_t)value; /* the daemon knows the levels */
        else if (ngd_parse_time(value, &since) != NGD_OK || since < NGD_MSEC || since > SINCE_MAX)
            return ctl_usage(o.command, "--since takes a time from 1ms to 8760h before now, such as 10m");
        else
            req.since_ms = (uint64_t)(since / NGD_MSEC);
    }
    if (ctl_next_argument(&o) != NULL)
        return ctl_usage(o.command, "logs takes no arguments");
    return ctl_follow(ctl, follow, print_logs, &req);
}
