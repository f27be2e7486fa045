/* SPDX-License-Identifier: Apache-2.0 */
/* events: what the daemon noted about captures and replays, oldest first, a line each; with --follow as it happens. */
#include "client/ctl/ctl.h"
#include "client/ctl/ctl_watch.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LIMIT_MAX 1000u /* of the daemon, for one call */

/* The events of the last answer, as far as they were printed. One that happens again counts on, also behind others. */
struct seen {
    size_t n;
    uint64_t number[LIMIT_MAX], count[LIMIT_MAX];
};

static void print_line(struct ctl *ctl, const Npugraph__V1__FlightEvent *e, uint64_t times)
{
    const time_t now = time(NULL), at = now - (time_t)(e->last_ms_ago / 1000);
    char stamp[32] = "?";
    struct tm tm;

    if (localtime_r(&at, &tm) != NULL)
        strftime(stamp, sizeof(stamp), "%Y-%m-%d %H:%M:%S", &tm);
    fprintf(ctl->out, "%s  %-18s", stamp, e->reason);
    if (times > 1)
        fprintf(ctl->out, " %" PRIu64 " times", times);
    if (e->graph[0] != '\0')
        fprintf(ctl->out, "  %s", e->graph);
    if (e->tag != 0)
        fprintf(ctl->out, "  tag:%" PRIu64, e->tag);
    fprintf(ctl->out, "%s%s\n", e->text[0] != '\0' ? "  " : "", e->text);
}

static void print_object(const Npugraph__V1__FlightEvent *e, uint64_t times)
{
    json_t *o = json_pack("{s:I, s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:s}", "number", (json_int_t)e->number, "kind",
                          e->kind, "reason", e->reason, "graph", e->graph, "digest", e->digest, "key", e->key, "tag",
                          (json_int_t)e->tag, "count", (json_int_t)times, "last_ms_ago", (json_int_t)e->last_ms_ago,
                          "text", e->text);

    json_dumpf(o, stdout, JSON_COMPACT);
    putchar('\n');
    json_decref(o);
}

/* Returns how often an event happened before the last answer. Only its newest events are kept by the daemon, so that an
 * older one that is not among them was seen. */
static uint64_t told_before(const struct seen *seen, const Npugraph__V1__FlightEvent *e)
{
    for (size_t i = 0; i < seen->n; i++)
        if (seen->number[i] == e->number)
            return seen->count[i];
    return seen->n > 0 && e->number < seen->number[seen->n - 1] ? e->count : 0;
}

/* Prints what is new since the last answer. Answers have the newest event first. */
static void print_new(struct ctl *ctl, const Npugraph__V1__ExplainResponse *r, struct seen *seen)
{
    for (size_t i = r->n_events; i-- > 0;) {
        const Npugraph__V1__FlightEvent *e = r->events[i];
        const uint64_t before = told_before(seen, e);

        if (e->count <= before)
            continue;
        if (ctl->json)
            print_object(e, e->count - before);
        else
            print_line(ctl, e, e->count - before);
    }
    seen->n = r->n_events < LIMIT_MAX ? r->n_events : LIMIT_MAX;
    for (size_t i = 0; i < seen->n; i++) {
        seen->number[i] = r->events[i]->number;
        seen->count[i] = r->events[i]->count;
    }
}

/* What is asked for, and what was printed of it. */
struct events {
    Npugraph__V1__ExplainRequest req;
    struct seen seen;
};

static int print_new_events(struct ctl *ctl, void *arg)
{
    struct events *events = arg;
    Npugraph__V1__ExplainResponse *r = (void *)ctl_call(ctl, "/npugraph.v1.Graphs/Explain", &events->req.base,
                                                        &npugraph__v1__explain_response__descriptor);

    if (r == NULL)
        return 1;
    print_new(ctl, r, &events->seen);
    events->req.limit = LIMIT_MAX; /* of later answers */
    npugraph__free_message(r);
    return 0;
}

int ctl_cmd_events(struct ctl *ctl, int argc, char **argv)
{
    struct ctl_options o = {ctl_find_command(argv[0]), argc, 1, argv};
    static struct events events = {.req = NPUGRAPH__V1__EXPLAIN_REQUEST__INIT};
    const char *name, *value, *subject = NULL;
    bool follow = false;
    uint64_t n;

    while ((name = ctl_next_beside(&o, "follow", "limit", &value, &subject, CTL_ONE_SUBJECT)) != NULL) {
        if (strcmp(name, "?") == 0)
            return 2;
        if (strcmp(name, "follow") == 0)
            follow = true;
        else if (!ctl_parse_uint(value, LIMIT_MAX, &n) || n == 0)
            return ctl_usage(o.command, "--limit takes a number from 1 to %u", LIMIT_MAX);
        else
            events.req.limit = (uint32_t)n;
    }
    if (subject != NULL && ctl_choose_subject(o.command, (char *)(uintptr_t)subject, &events.req) != 0)
        return 2;
    return ctl_follow(ctl, follow, print_new_events, &events);
}
