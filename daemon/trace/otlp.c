/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/trace/otlp.h"

#include "daemon/trace/trace.h"
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

enum { KIND_INTERNAL = 1, KIND_SERVER = 2 };
enum { STATUS_ERROR = 2 };
/* Of a span: sampled; and whether its parent is another process's, which is known. */
enum { FLAG_SAMPLED = 0x001, FLAG_KNOWN = 0x100, FLAG_REMOTE = 0x200 };

static void put_id(struct ngd_strbuf *sb, const char *key, const uint8_t *id, size_t n)
{
    ngd_strbuf_printf(sb, "\"%s\":\"", key);
    for (size_t i = 0; i < n; i++)
        ngd_strbuf_printf(sb, "%02x", id[i]);
    ngd_strbuf_append(sb, "\",");
}

/* ---- attributes ------------------------------------------------------------------------------------------ */

/* Begins an attribute; *any: there is one before it. */
static void begin_attribute(struct ngd_strbuf *sb, bool *any, const char *key)
{
    ngd_strbuf_printf(sb, "%s{\"key\":\"%s\",\"value\":{", *any ? "," : "", key);
    *any = true;
}

static void put_attribute_text(struct ngd_strbuf *sb, bool *any, const char *key, const char *value)
{
    if (!*value)
        return;
    begin_attribute(sb, any, key);
    ngd_strbuf_append(sb, "\"stringValue\":");
    ngd_strbuf_json_string(sb, value);
    ngd_strbuf_append(sb, "}}");
}

static void put_attribute_number(struct ngd_strbuf *sb, bool *any, const char *key, int64_t value)
{
    begin_attribute(sb, any, key);
    ngd_strbuf_printf(sb, "\"intValue\":\"%" PRId64 "\"}}", value);
}

static void put_attribute_hash(struct ngd_strbuf *sb, bool *any, const char *key, uint64_t hash)
{
    begin_attribute(sb, any, key);
    ngd_strbuf_printf(sb, "\"stringValue\":\"%016" PRIx64 "\"}}", hash);
}

/* Puts the service and the method of "/service/method". */
static void put_rpc_names(struct ngd_strbuf *sb, bool *any, const char *path)
{
    const char *slash = strrchr(path, '/');

    put_attribute_text(sb, any, "rpc.system", "grpc");
    begin_attribute(sb, any, "rpc.service");
    ngd_strbuf_printf(sb, "\"stringValue\":\"%.*s\"}}", (int)(slash - path - 1), path + 1);
    put_attribute_text(sb, any, "rpc.method", slash + 1);
}

static void put_attributes(struct ngd_strbuf *sb, const struct ngd_trace_record *r)
{
    bool any = false;

    ngd_strbuf_append(sb, "\"attributes\":[");
    put_rpc_names(sb, &any, r->path);
    put_attribute_number(sb, &any, "rpc.grpc.status_code", ngd_status_grpc(r->status));
    if (r->status != NGD_OK)
        put_attribute_text(sb, &any, "npugraph.reason", ngd_status_name(r->status));
    put_attribute_text(sb, &any, "npugraph.identity", r->identity);
    if (r->session)
        put_attribute_number(sb, &any, "npugraph.session", (int64_t)r->session);
    if (r->message)
        put_attribute_text(sb, &any, "npugraph.unit", "message");
    if (r->name_key)
        put_attribute_text(sb, &any, r->name_key, r->name);
    put_attribute_text(sb, &any, "npugraph.device", r->device);
    if (r->key)
        put_attribute_hash(sb, &any, "npugraph.key", r->key);
    for (uint32_t i = 0; i < r->n_numbers; i++)
        put_attribute_number(sb, &any, r->numbers[i].key, r->numbers[i].value);
    ngd_strbuf_append(sb, "]");
}

/* ---- spans ----------------------------------------------------------------------------------------------- */

static void put_span_head(struct ngd_strbuf *sb, const struct ngd_trace_record *r, const uint8_t id[NGD_SPAN_ID],
                          const uint8_t *parent)
{
    ngd_strbuf_append(sb, "{");
    put_id(sb, "traceId", r->trace, NGD_TRACE_ID);
    put_id(sb, "spanId", id, NGD_SPAN_ID);
    if (parent)
        put_id(sb, "parentSpanId", parent, NGD_SPAN_ID);
    if (r->state[0]) {
        ngd_strbuf_append(sb, "\"traceState\":");
        ngd_strbuf_json_string(sb, r->state);
        ngd_strbuf_append(sb, ",");
    }
}

static void put_span_times(struct ngd_strbuf *sb, int kind, int flags, ngd_nsec_t begin, ngd_nsec_t end)
{
    ngd_strbuf_printf(
        sb, "\"kind\":%d,\"flags\":%d,\"startTimeUnixNano\":\"%" PRId64 "\",\"endTimeUnixNano\":\"%" PRId64 "\",", kind,
        flags, begin, end);
}

static void put_call_span(struct ngd_strbuf *sb, const struct ngd_trace_record *r, ngd_nsec_t offset)
{
    put_span_head(sb, r, r->span, r->has_parent ? r->parent : NULL);
    ngd_strbuf_printf(sb, "\"name\":\"%s\",", r->path + 1);
    put_span_times(sb, KIND_SERVER, FLAG_SAMPLED | FLAG_KNOWN | (r->has_parent ? FLAG_REMOTE : 0), r->begin + offset,
                   r->end + offset);
    put_attributes(sb, r);
    if (r->status != NGD_OK) {
        ngd_strbuf_printf(sb, ",\"status\":{\"code\":%d,\"message\":", STATUS_ERROR);
        ngd_strbuf_json_string(sb, r->text);
        ngd_strbuf_append(sb, "}");
    }
    ngd_strbuf_append(sb, "}");
}

static void put_part_spans(struct ngd_strbuf *sb, const struct ngd_trace_record *r, ngd_nsec_t offset)
{
    uint8_t ids[NGD_TRACE_RECORD_PARTS][NGD_SPAN_ID];

    for (uint32_t i = 0; i < r->n_parts; i++) {
        const int in = r->parts[i].in; /* an earlier one */

        ngd_trace_make_span_id(ids[i]);
        ngd_strbuf_append(sb, ",\n");
        put_span_head(sb, r, ids[i], in >= 0 ? ids[in] : r->span);
        ngd_strbuf_printf(sb, "\"name\":\"%s\",", ngd_trace_part_name((ngd_trace_part_t)r->parts[i].what));
        put_span_times(sb, KIND_INTERNAL, FLAG_SAMPLED | FLAG_KNOWN, r->parts[i].begin + offset,
                       (r->parts[i].end < r->end ? r->parts[i].end : r->end) + offset);
        ngd_strbuf_append(sb, "\"attributes\":[]}");
    }
}

static void put_resource(struct ngd_strbuf *sb, const char *instance)
{
    char host[256] = "";
    bool any = false;

    (void)gethostname(host, sizeof(host) - 1);
    ngd_strbuf_append(sb, "\"resource\":{\"attributes\":[");
    put_attribute_text(sb, &any, "service.name", "npugraphd");
    put_attribute_text(sb, &any, "service.version", PACKAGE_VERSION);
    put_attribute_text(sb, &any, "service.instance.id", instance);
    put_attribute_text(sb, &any, "host.name", host);
    put_attribute_number(sb, &any, "process.pid", getpid());
    ngd_strbuf_append(sb, "]}");
}

uint32_t ngd_otlp_print(const struct ngd_trace_record *records, uint32_t n, const char *instance, ngd_nsec_t offset,
                        struct ngd_strbuf *sb)
{
    uint32_t spans = 0;

    ngd_strbuf_append(sb, "{\"resourceSpans\":[{");
    put_resource(sb, instance);
    ngd_strbuf_append(sb, ",\"scopeSpans\":[{\"scope\":{\"name\":\"npugraphd\",\"version\":\"" PACKAGE_VERSION
                          "\"},\"spans\":[\n");
    for (uint32_t i = 0; i < n; i++) {
        if (i > 0)
            ngd_strbuf_append(sb, ",\n");
        put_call_span(sb, &records[i], offset);
        put_part_spans(sb, &records[i], offset);
        spans += 1 + records[i].n_parts;
    }
    ngd_strbuf_append(sb, "]}]}]}\n");
    return spans;
}
