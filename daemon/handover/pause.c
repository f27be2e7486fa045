/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/handover/pause.h"
#include "base/log.h"
#include "base/metrics.h"
#include "base/strbuf.h"

#define BELIEVED (60 * NGD_SEC) /* a longer time of the old daemon is not one of a pause */

static const struct {
    const char *name, *text;
} parts_of_pause[] = {
#define NGD_PAUSE(id, name, text) {name, text},
#include "daemon/handover/pauses.def"
#undef NGD_PAUSE
};

void ngd_pause_put(const struct ngd_pause *p, Npugraph__Handover__V1__Go *go)
{
    go->frozen_at = (uint64_t)p->began;
    go->begin_ns = (uint64_t)p->part[NGD_PAUSE_BEGIN];
    go->quiet_ns = (uint64_t)p->part[NGD_PAUSE_QUIET];
    go->describe_ns = (uint64_t)p->part[NGD_PAUSE_DESCRIBE];
}

void ngd_pause_begin(struct ngd_pause *p, const Npugraph__Handover__V1__Go *go)
{
    const uint64_t now = (uint64_t)ngd_now(), passed = now - go->frozen_at;
    const uint64_t told[] = {go->begin_ns, go->quiet_ns, go->describe_ns};
    uint64_t known = 0;

    *p = (struct ngd_pause){.began = (ngd_nsec_t)now, .mark = (ngd_nsec_t)now};
    if (go->frozen_at > now || passed > (uint64_t)BELIEVED)
        return;
    for (size_t i = 0; i < sizeof(told) / sizeof(told[0]); i++) {
        if (told[i] > passed - known)
            return;
        known += told[i];
    }
    p->began = (ngd_nsec_t)go->frozen_at;
    for (size_t i = 0; i < sizeof(told) / sizeof(told[0]); i++)
        p->part[i] = (ngd_nsec_t)told[i];
    p->part[NGD_PAUSE_PASS] = (ngd_nsec_t)(passed - known);
}

void ngd_pause_mark(struct ngd_pause *p, ngd_pause_part_t part)
{
    const ngd_nsec_t now = ngd_now();

    p->part[part] += now - p->mark;
    p->mark = now;
}

void ngd_pause_open(struct ngd_pause *p, size_t n)
{
    p->sessions = p->waiting = n;
}

bool ngd_pause_came(struct ngd_pause *p)
{
    if (p->waiting == 0)
        return false;
    ngd_pause_mark(p, p->came++ ? NGD_PAUSE_LAST : NGD_PAUSE_FIRST);
    ngd_metric_observe(NGD_M_SESSION_PAUSE_SECONDS, p->mark - p->began);
    return --p->waiting == 0;
}

bool ngd_pause_end(struct ngd_pause *p)
{
    const bool some = p->waiting > 0;

    p->waiting = 0;
    return some;
}

void ngd_pause_tell(const struct ngd_pause *p)
{
    struct ngd_strbuf sb;

    ngd_strbuf_init(&sb);
    for (size_t i = 0; i < NGD_PAUSE_PARTS; i++) {
        ngd_metric_row_add(ngd_metric_row(NGD_M_HANDOVER_PAUSE_SECONDS, parts_of_pause[i].name),
                           (uint64_t)(p->part[i] / NGD_USEC));
        ngd_strbuf_printf(&sb, "%s%.1f ms %s", i ? ", " : "", (double)p->part[i] / (double)NGD_MSEC,
                          parts_of_pause[i].text);
    }
    if (!sb.failed)
        ngd_notice("handover", "%zu of %zu clients have come, the last one after %.1f ms: %s", p->came, p->sessions,
                   (double)(p->mark - p->began) / (double)NGD_MSEC, ngd_strbuf_str(&sb));
    ngd_strbuf_fini(&sb);
}
