/* SPDX-License-Identifier: Apache-2.0 */
/* trace start and trace stop: record what the stream slots do, as a Chrome trace or as arrivals for schedsim. */
#include "client/ctl/ctl.h"
#include "proto/npugraph.pb-c.h"

#include <errno.h>
#include <string.h>

static int start_trace(struct ctl *ctl, struct ctl_options *o)
{
    Npugraph__V1__StartTimelineRequest req = NPUGRAPH__V1__START_TIMELINE_REQUEST__INIT;
    Npugraph__V1__StartTimelineResponse *r;
    const char *name, *value;
    struct ctl_fields *f;
    uint64_t events = 0;

    while ((name = ctl_next_option(o, "", "events", &value)) != NULL) {
        if (strcmp(name, "?") == 0)
            return 2;
        if (!ctl_parse_uint(value, UINT32_MAX, &events) || events == 0)
            return ctl_usage(o->command, "--events takes a number of 1 or more");
    }
    if (ctl_next_argument(o) != NULL)
        return ctl_usage(o->command, "trace start takes no arguments");
    req.events = (uint32_t)events;
    r = (void *)ctl_call(ctl, "/npugraph.v1.Admin/StartTimeline", &req.base,
                         &npugraph__v1__start_timeline_response__descriptor);
    if (r == NULL)
        return 1;
    f = ctl_fields_new(ctl, NULL);
    ctl_field_int(f, "Recording, events at most", "events", r->events);
    ctl_fields_end(f);
    npugraph__free_message(r);
    return 0;
}

static Npugraph__V1__StopTimelineResponse *ask_to_stop(struct ctl *ctl, bool discard)
{
    Npugraph__V1__StopTimelineRequest req = NPUGRAPH__V1__STOP_TIMELINE_REQUEST__INIT;

    req.discard = discard;
    return (void *)ctl_call(ctl, "/npugraph.v1.Admin/StopTimeline", &req.base,
                            &npugraph__v1__stop_timeline_response__descriptor);
}

static int copy_pages(struct ctl *ctl, Npugraph__V1__TimelineForm form, FILE *out, const char *path)
{
    Npugraph__V1__ReadTimelineRequest req = NPUGRAPH__V1__READ_TIMELINE_REQUEST__INIT;
    bool written;

    req.form = form;
    do {
        Npugraph__V1__ReadTimelineResponse *r = (void *)ctl_call(ctl, "/npugraph.v1.Admin/ReadTimeline", &req.base,
                                                                 &npugraph__v1__read_timeline_response__descriptor);

        if (r == NULL)
            return 1;
        written = fputs(r->text, out) != EOF;
        req.begin = r->next;
        npugraph__free_message(r);
        if (!written) {
            ctl_error("%s: %s", path, strerror(errno));
            return 1;
        }
    } while (req.begin != 0);
    return 0;
}

/* The daemon drops the recording only after it has been written to the file. */
static int stop_and_write(struct ctl *ctl, Npugraph__V1__TimelineForm form, const char *path)
{
    Npugraph__V1__StopTimelineResponse *r = ask_to_stop(ctl, false);
    FILE *out = path != NULL && r != NULL ? fopen(path, "we") : stdout;
    int rc = r != NULL ? 0 : 1;

    if (rc == 0 && out == NULL) {
        ctl_error("%s: %s", path, strerror(errno));
        rc = 1;
    }
    if (rc == 0)
        rc = copy_pages(ctl, form, out, path != NULL ? path : "standard output");
    if (out != NULL && out != stdout && fclose(out) != 0 && rc == 0) {
        ctl_error("%s: %s", path, strerror(errno));
        rc = 1;
    }
    if (rc == 0 && path != NULL) {
        struct ctl_fields *f = ctl_fields_new(ctl, NULL);

        ctl_field_str(f, "Written", "file", path);
        ctl_field_int(f, "Events", "events", r->events);
        ctl_field_int(f, "Lost", "lost", r->lost);
        ctl_fields_end(f);
    }
    npugraph__free_message(r);
    if (rc == 0) {
        r = ask_to_stop(ctl, true);
        rc = r != NULL ? 0 : 1;
        npugraph__free_message(r);
    }
    return rc;
}

static int stop_trace(struct ctl *ctl, struct ctl_options *o)
{
    const char *name, *value, *path = NULL;
    int form = NGD_PB(TIMELINE_FORM, CHROME);

    while ((name = ctl_next_option(o, "", "output form", &value)) != NULL) {
        if (strcmp(name, "?") == 0)
            return 2;
        if (strcmp(name, "output") == 0)
            path = value;
        else if ((form = ctl_parse_word(o->command, name, &npugraph__v1__timeline_form__descriptor, value)) == 0)
            return 2;
    }
    if (ctl_next_argument(o) != NULL)
        return ctl_usage(o->command, "trace stop takes no arguments");
    return stop_and_write(ctl, form, path);
}

bool ctl_is_timeline(int argc, char **argv)
{
    return argc > 1 && (strcmp(argv[1], "start") == 0 || strcmp(argv[1], "stop") == 0);
}

int ctl_cmd_timeline(struct ctl *ctl, int argc, char **argv)
{
    struct ctl_options o = {ctl_find_command(argv[0]), argc, 2, argv};

    return strcmp(argv[1], "start") == 0 ? start_trace(ctl, &o) : stop_trace(ctl, &o);
}
