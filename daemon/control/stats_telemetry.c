/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/control/stats_telemetry.h"
#include "base/mem.h"
#include "daemon/daemon.h"
#include "devices/telemetry.h"
#include <inttypes.h>

/* ---- Prometheus ---------------------------------------------------------------------------------------- */

static void put_family(struct ngd_strbuf *sb, const char *prefix, const char *name, const char *help)
{
    ngd_strbuf_printf(sb, "# HELP %s%s %s\n# TYPE %s%s gauge\n", prefix, name, help, prefix, name);
}

static void put_own_family(struct ngd_daemon *d, const struct ngd_telemetry *all, ngd_telemetry_id_t id,
                           struct ngd_strbuf *sb)
{
    const struct ngd_telemetry_row *row = ngd_telemetry_row(id);
    bool any = false;
    double value;

    for (size_t i = 0; i < d->n_devices; i++) {
        if (!ngd_telemetry_get(&all[i], id, &value))
            continue;
        if (!any)
            put_family(sb, "npugraphd_device_", row->name, row->help);
        any = true;
        ngd_strbuf_printf(sb, "npugraphd_device_%s{device=\"%s\"", row->name, ngd_device_info(d->devices[i])->name);
        if (all[i].physical != NGD_NUMBER_UNKNOWN)
            ngd_strbuf_printf(sb, ",chip=\"%" PRId32 "\"", all[i].physical);
        ngd_strbuf_printf(sb, "} %.15g\n", value);
    }
}

/* The exporter's label id is the chip's number in the machine. Without it there is no series: under another number the
 * values would be taken for another chip's. */
static void put_vendor_family(struct ngd_daemon *d, const struct ngd_telemetry *all, ngd_telemetry_id_t id,
                              struct ngd_strbuf *sb)
{
    const struct ngd_telemetry_row *row = ngd_telemetry_row(id);
    bool any = false;
    double value;

    for (size_t i = 0; i < d->n_devices; i++) {
        if (all[i].physical == NGD_NUMBER_UNKNOWN || !ngd_telemetry_get(&all[i], id, &value))
            continue;
        if (!any)
            put_family(sb, "", row->vendor, row->help);
        any = true;
        ngd_strbuf_printf(sb, "%s{id=\"%" PRId32 "\",device=\"%s\"} %.15g\n", row->vendor, all[i].physical,
                          ngd_device_info(d->devices[i])->name, ngd_telemetry_vendor_value(id, value));
    }
}

void ngd_stats_telemetry_prometheus(struct ngd_daemon *d, struct ngd_strbuf *sb)
{
    struct ngd_telemetry *all = NGD_NEW_N(struct ngd_telemetry, d->n_devices + 1);

    if (!all) {
        sb->failed = true;
        return;
    }
    for (size_t i = 0; i < d->n_devices; i++)
        ngd_telemetry_read(d->devices[i], &all[i]);
    for (int id = 0; id < NGD_TELEMETRY_MAX; id++) {
        put_own_family(d, all, (ngd_telemetry_id_t)id, sb);
        put_vendor_family(d, all, (ngd_telemetry_id_t)id, sb);
    }
    ngd_free(all);
}

/* ---- JSON, text ---------------------------------------------------------------------------------------- */

void ngd_stats_telemetry_json(struct ngd_device *dev, struct ngd_strbuf *sb)
{
    struct ngd_telemetry t;
    const char *comma = "";
    double value;

    ngd_telemetry_read(dev, &t);
    if (t.logical != NGD_NUMBER_UNKNOWN || t.physical != NGD_NUMBER_UNKNOWN) {
        ngd_strbuf_append(sb, "\"numbers\": {");
        if (t.logical != NGD_NUMBER_UNKNOWN)
            ngd_strbuf_printf(sb, "\"logical\": %" PRId32, t.logical);
        if (t.physical != NGD_NUMBER_UNKNOWN)
            ngd_strbuf_printf(sb, "%s\"physical\": %" PRId32, t.logical != NGD_NUMBER_UNKNOWN ? ", " : "", t.physical);
        ngd_strbuf_append(sb, "}, ");
    }
    ngd_strbuf_append(sb, "\"readings\": {");
    for (int id = 0; id < NGD_TELEMETRY_MAX; id++) {
        if (!ngd_telemetry_get(&t, (ngd_telemetry_id_t)id, &value))
            continue;
        ngd_strbuf_printf(sb, "%s\"%s\": %.15g", comma, ngd_telemetry_row((ngd_telemetry_id_t)id)->name, value);
        comma = ", ";
    }
    ngd_strbuf_append(sb, "}");
}
