/* SPDX-License-Identifier: Apache-2.0 */
/* Entries of the store as text for people: guards, options, graph, plan, kernels. */
#include "base/le.h"
#include "base/mem.h"
#include "graphs/graph_pack.h"
#include "graphs/plan_pack.h"
#include "scheduler/program/program_int.h"
#include "scheduler/program/stored.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Parses " B=16 T=1" into the values of the graph's symbols, in their order. */
static bool parse_symbols(const struct ngd_graph *graph, const char *text, int64_t *values)
{
    for (uint32_t i = 0; i < graph->n_symbols; i++) {
        size_t n = strlen(graph->symbols[i].name);
        char *end;

        text += strspn(text, " ");
        if (strncmp(text, graph->symbols[i].name, n) != 0 || text[n] != '=')
            return false;
        values[i] = strtoll(text + n + 1, &end, 10);
        if (end == text + n + 1)
            return false;
        text = end;
    }
    return text[strspn(text, " ")] == '\0';
}

/* Rebuilds the entry's key. Not inlined, so that its large buffer has a stack frame of its own. */
static __attribute__((noinline)) bool entry_key(const struct ngd_store_entry *e, const struct ngd_graph *graph,
                                                struct ngd_key *key_p)
{
    char hex[NGD_DIGEST_HEX + 8], symbols[4096] = "";
    struct ngd_key key = {.graph = graph->digest, .n_symbols = graph->n_symbols};

    return ngd_store_line(e->identity, e->n_identity, "key", hex, sizeof(hex)) &&
           ngd_stored_digest(hex, &key.options) &&
           (graph->n_symbols == 0 || ngd_store_line(e->identity, e->n_identity, "symbols", symbols, sizeof(symbols))) &&
           parse_symbols(graph, symbols, key.symbols) && (*key_p = key, true);
}

static void option_lines(const struct ngd_store_entry *e, struct ngd_graph_options *options)
{
    ngd_graph_options_init(options);
    for (int i = 0; i < NGD_OPTION_MAX; i++) {
        char name[80], value[NGD_OPTION_TEXT_MAX];
        const struct ngd_option_info *info = ngd_option_info((ngd_option_id_t)i);

        snprintf(name, sizeof(name), "option.%s", info->name);
        if (info->in_key && ngd_store_line(e->identity, e->n_identity, name, value, sizeof(value)))
            (void)ngd_graph_options_set(options, info->name, value, NULL);
    }
}

/* Finds a device of the kind that the plan was made for. */
static struct ngd_device *entry_device(struct ngd_sched *sched, const struct ngd_store_entry *e)
{
    char said[1024] = "", is[1024];

    if (!ngd_store_line(e->identity, e->n_identity, "device", said, sizeof(said)))
        return NULL;
    for (uint32_t i = 0; i < ngd_sched_n_devices(sched); i++) {
        const struct ngd_device_info *info = ngd_device_info(ngd_sched_device(sched, i));

        snprintf(is, sizeof(is), "%s, %u threads", info->arch, (unsigned)info->threads);
        if (strcmp(is, said) == 0)
            return ngd_sched_device(sched, i);
    }
    return NULL;
}

static void show_plan(struct ngd_sched *sched, const struct ngd_store_entry *e, struct ngd_graph *source,
                      struct ngd_strbuf *sb)
{
    struct ngd_device *dev = entry_device(sched, e);
    struct ngd_graph_options options;
    struct ngd_plan *plan = NULL;
    struct ngd_diag diag = {0};
    struct ngd_key key;

    ngd_strbuf_append(sb, "\n# plan\n");
    option_lines(e, &options);
    if (!dev)
        ngd_strbuf_append(sb, "# it is for a device that this daemon does not serve\n");
    else if (!entry_key(e, source, &key))
        ngd_strbuf_append(sb, "# its key does not match its graph\n");
    else if (ngd_plan_unpack(source, &key, &options, ngd_device_target(dev), e->payload, e->n_payload, &plan, &diag))
        ngd_strbuf_printf(sb, "# it does not load: %s\n", diag.text);
    else
        ngd_plan_print(plan, sb);
    ngd_plan_unref(plan);
}

static void show_made(const struct ngd_store_entry *e, struct ngd_strbuf *sb)
{
    struct ngd_graph *made = NULL;
    struct ngd_diag diag = {0};

    ngd_strbuf_append(sb, "\n# graph after the passes\n");
    if (ngd_plan_unpack_graph(e->payload, e->n_payload, &made, &diag))
        ngd_strbuf_printf(sb, "# it does not load: %s\n", diag.text);
    else if (!made)
        ngd_strbuf_append(sb, "# the passes changed nothing\n");
    else if (!ngd_graph_digest_holds(made))
        ngd_strbuf_append(sb, "# its digest is wrong\n");
    else
        ngd_graph_print(made, sb);
    ngd_graph_unref(made);
}

static void show_plan_entry(struct ngd_sched *sched, const struct ngd_store_entry *e, struct ngd_strbuf *sb)
{
    struct ngd_graph *source = NULL;
    struct ngd_digest digest;
    char hex[NGD_DIGEST_HEX + 8];

    if (ngd_store_line(e->identity, e->n_identity, "graph", hex, sizeof(hex)) && ngd_stored_digest(hex, &digest))
        source = ngd_stored_graph(sched, &digest);
    ngd_strbuf_append(sb, "\n# graph as it was registered\n");
    if (source)
        ngd_graph_print(source, sb);
    else
        ngd_strbuf_append(sb, "# not in the store\n");
    show_made(e, sb);
    if (source)
        show_plan(sched, e, source, sb);
    ngd_graph_unref(source);
}

/* The payload is texts, each with its size in front (stored.c). */
static void show_patterns(const struct ngd_store_entry *e, struct ngd_strbuf *sb)
{
    ngd_strbuf_append(sb, "\n# patterns\n");
    for (size_t at = 0; e->n_payload - at >= 4;) {
        size_t n = (size_t)ngd_le_get(e->payload + at, 4);

        at += 4;
        if (n > e->n_payload - at)
            break;
        ngd_strbuf_append_n(sb, e->payload + at, n);
        ngd_strbuf_putc(sb, '\n');
        at += n;
    }
}

ngd_store_reason_t ngd_stored_show(struct ngd_sched *sched, const char *name, struct ngd_strbuf *sb)
{
    struct ngd_store_blob blob;
    ngd_store_reason_t reason = ngd_store_get_named(sched->params.store, name, &blob);
    char kind[16];

    if (reason != NGD_STORE_FOUND)
        return reason;
    ngd_strbuf_printf(sb, "# entry %s, %zu bytes\n# identity: what it depends on\n", name, blob.n);
    ngd_strbuf_append_n(sb, blob.entry.identity, blob.entry.n_identity);
    ngd_strbuf_append(sb, "# notes\n");
    ngd_strbuf_append_n(sb, blob.entry.notes, blob.entry.n_notes);
    if (ngd_store_line(blob.entry.identity, blob.entry.n_identity, "kind", kind, sizeof(kind))) {
        if (strcmp(kind, "plan") == 0) {
            show_plan_entry(sched, &blob.entry, sb);
        } else if (strcmp(kind, "graph") == 0) {
            ngd_strbuf_append(sb, "\n# graph\n");
            ngd_strbuf_append_n(sb, blob.entry.payload, blob.entry.n_payload);
        } else if (strcmp(kind, "patterns") == 0) {
            show_patterns(&blob.entry, sb);
        }
    }
    ngd_store_blob_fini(&blob);
    return NGD_STORE_FOUND;
}
