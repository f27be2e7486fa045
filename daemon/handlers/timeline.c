/* SPDX-License-Identifier: Apache-2.0 */
/* Admin.StartTimeline, StopTimeline, ReadTimeline. */
#include "base/log.h"
#include "daemon/daemon.h"
#include "daemon/handlers/methods.h"
#include "daemon/identity.h"
#include "proto/npugraph.pb-c.h"
#include "proto/word.h"
#include "scheduler/record/timeline.h"
#include <string.h>

#define PAGE_BYTES (256u << 10) /* about; one more event fits any max-message */

static void start_timeline(struct ngd_call *call, const void *msg)
{
    const Npugraph__V1__StartTimelineRequest *q = msg;
    Npugraph__V1__StartTimelineResponse r = NPUGRAPH__V1__START_TIMELINE_RESPONSE__INIT;
    char identity[NGD_LOG_VALUE_MAX];
    struct ngd_diag diag = {0};
    ngd_status_t status;

    r.events = q->events ? q->events : NGD_TIMELINE_EVENTS;
    status = ngd_timeline_start(call->daemon->sched, r.events, &diag);
    if (status) {
        ngd_call_fail(call, status, &diag);
        return;
    }
    ngd_notice("daemon", "timeline started by identity=%s", ngd_log_value(call->identity->name, identity));
    ngd_call_reply(call, &r.base);
}

static void stop_timeline(struct ngd_call *call, const void *msg)
{
    const Npugraph__V1__StopTimelineRequest *q = msg;
    Npugraph__V1__StopTimelineResponse r = NPUGRAPH__V1__STOP_TIMELINE_RESPONSE__INIT;
    struct ngd_timeline_status status;

    ngd_timeline_stop(call->daemon->sched, q->discard, &status);
    r.was_on = status.on;
    r.events = status.kept;
    r.lost = status.lost;
    ngd_call_reply(call, &r.base);
}

static void read_page(struct ngd_call *call, const void *msg)
{
    const Npugraph__V1__ReadTimelineRequest *q = msg;
    Npugraph__V1__ReadTimelineResponse r = NPUGRAPH__V1__READ_TIMELINE_RESPONSE__INIT;
    ngd_timeline_form_t form = q->form == NGD_PB(TIMELINE_FORM, ARRIVALS) ? NGD_TIMELINE_ARRIVALS : NGD_TIMELINE_CHROME;
    struct ngd_diag diag = {0};
    struct ngd_strbuf sb;
    ngd_status_t status;

    ngd_strbuf_init(&sb);
    status = ngd_timeline_print(call->daemon->sched, form, q->begin, PAGE_BYTES, &sb, &r.next, &diag);
    if (status == NGD_OK) {
        r.text = (char *)(uintptr_t)ngd_strbuf_str(&sb);
        ngd_call_reply(call, &r.base);
    } else {
        ngd_call_fail(call, status, diag.text[0] ? &diag : NULL);
    }
    ngd_strbuf_fini(&sb);
}

const struct ngd_rpc_ops ngd_rpc_admin_start_timeline = {.request = start_timeline};
const struct ngd_rpc_ops ngd_rpc_admin_stop_timeline = {.request = stop_timeline};
const struct ngd_rpc_ops ngd_rpc_admin_read_timeline = {.request = read_page};
