/* SPDX-License-Identifier: Apache-2.0 */
/* Admin.Logs: returns lines of the daemon's log. They name identities, files and models of everybody, so that the
 * method needs the role admin. */
#include "base/clock.h"
#include "base/log_ring.h"
#include "daemon/daemon.h"
#include "daemon/handlers/borrow.h"
#include "daemon/handlers/methods.h"
#include "proto/npugraph.pb-c.h"
#include <inttypes.h>
#include <time.h>

#define DEFAULT_LINES 100
#define MAX_LINES     1000

static ngd_status_t read_query(const Npugraph__V1__LogsRequest *q, struct ngd_log_query *query, struct ngd_diag *diag)
{
    struct timespec now;
    uint64_t now_ms;

    *query = (struct ngd_log_query){
        .start = q->start, .after = q->after, .since_ms = q->since_time_ms, .level = NGD_LOG_DEBUG, .limit = q->limit};
    if (q->limit > MAX_LINES)
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT, "limit is %" PRIu32 "; allowed: 0 to %d", q->limit,
                            MAX_LINES);
    if (q->limit == 0)
        query->limit = DEFAULT_LINES;
    if (*q->level && !ngd_log_level_parse(q->level, &query->level))
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT,
                            "level is \"%.32s\"; allowed: error, warning, notice, info, debug", q->level);
    clock_gettime(CLOCK_REALTIME, &now);
    now_ms = (uint64_t)now.tv_sec * 1000 + (uint64_t)(now.tv_nsec / NGD_MSEC);
    if (q->since_ms && q->since_ms < now_ms && now_ms - q->since_ms > query->since_ms)
        query->since_ms = now_ms - q->since_ms;
    return NGD_OK;
}

static bool fill_lines(struct ngd_arena *arena, const struct ngd_log_lines *lines, Npugraph__V1__LogsResponse *r)
{
    Npugraph__V1__LogLine *items = ngd_arena_calloc(arena, lines->n + 1, sizeof(*items));

    r->lines = ngd_arena_calloc(arena, lines->n + 1, sizeof(*r->lines));
    if (!items || !r->lines)
        return false;
    for (size_t i = 0; i < lines->n; i++) {
        const struct ngd_log_line *line = &lines->items[i];

        npugraph__v1__log_line__init(&items[i]);
        items[i].number = line->number;
        items[i].time_ms = line->time_ms;
        items[i].level = ngd_borrow(ngd_log_level_name(line->level));
        items[i].component = ngd_borrow(line->component);
        items[i].text = ngd_borrow(line->text);
        r->lines[i] = &items[i];
    }
    r->n_lines = lines->n;
    r->start = lines->start;
    r->last = lines->last;
    r->lost = lines->lost;
    return true;
}

static void read_logs(struct ngd_call *call, const void *msg)
{
    Npugraph__V1__LogsResponse r = NPUGRAPH__V1__LOGS_RESPONSE__INIT;
    struct ngd_log_query query;
    struct ngd_log_lines lines;
    struct ngd_diag diag = {0};
    ngd_status_t status = read_query(msg, &query, &diag);

    if (status == NGD_OK)
        status = ngd_log_ring_read(&query, &call->arena, &lines);
    if (status == NGD_OK && !fill_lines(&call->arena, &lines, &r))
        status = NGD_ERR_NO_MEMORY;
    if (status == NGD_OK)
        ngd_call_reply(call, &r.base);
    else
        ngd_call_fail(call, status, diag.text[0] ? &diag : NULL);
}

const struct ngd_rpc_ops ngd_rpc_admin_logs = {.request = read_logs};
