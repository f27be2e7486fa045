/* SPDX-License-Identifier: Apache-2.0 */
/* explain: shows why replays did not simply run. buckets: shows sizes seen, and the buckets that would pad them least.
 */
#include "client/ctl/ctl.h"
#include "proto/npugraph.pb-c.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- explain ---------------------------------------------------------------------------------------------- */

static void print_keys(struct ctl *ctl, const Npugraph__V1__ExplainResponse *r)
{
    static const struct ctl_column columns[] = {
        {"KEY", "key", false},
        {"GUARDS", "symbols", false},
        {"USES", "uses", true},
        {"REPLAYS", "replays", true},
        {"PADDED", "padded_replays", true},
        {"TAKES", "expected_us", true},
        {"CAPTURE", "capture_us", true},
        {"KERNELS", "kernels", true},
        {"POOL", "pool_bytes", true},
        {"STATIC", "static_kernels", false},
    };
    struct ctl_table *t = ctl_table_new(ctl, "keys", columns, sizeof(columns) / sizeof(columns[0]));

    for (size_t i = 0; i < r->n_keys; i++) {
        const Npugraph__V1__KeyInfo *k = r->keys[i];

        ctl_row(t);
        ctl_str(t, k->key);
        ctl_str(t, k->symbols);
        ctl_int(t, k->uses);
        ctl_int(t, k->replays);
        ctl_int(t, k->padded_replays);
        ctl_us(t, (double)k->expected_ns / 1000);
        ctl_us(t, (double)k->capture_ns / 1000);
        ctl_int(t, k->kernels);
        ctl_bytes(t, k->pool_bytes);
        ctl_str(t, k->static_kernels);
    }
    ctl_table_end(t, "No executables.");
}

/* Prints the guards that each request must satisfy, in addition to the guards of keys. */
static void print_guards(struct ctl *ctl, const Npugraph__V1__ExplainResponse *r)
{
    static const struct ctl_column columns[] = {{"EACH REPLAY ALSO NEEDS", "guard", false}};
    struct ctl_table *t = ctl_table_new(ctl, "guards", columns, sizeof(columns) / sizeof(columns[0]));

    for (size_t i = 0; i < r->n_guards; i++) {
        ctl_row(t);
        ctl_str(t, r->guards[i]);
    }
    ctl_table_end(t, "");
    if (!ctl->json)
        fputc('\n', ctl->out);
}

static void print_events(struct ctl *ctl, const Npugraph__V1__ExplainResponse *r)
{
    static const struct ctl_column columns[] = {
        {"AGO", "last_ms_ago", true}, {"TIMES", "count", true}, {"REASON", "reason", false}, {"GRAPH", "graph", false},
        {"KEY", "key", false},        {"TAG", "tag", true},     {"WHAT", "text", false},
    };
    struct ctl_table *t = ctl_table_new(ctl, "events", columns, sizeof(columns) / sizeof(columns[0]));

    ctl_table_prose(t, 6);
    for (size_t i = 0; i < r->n_events; i++) {
        const Npugraph__V1__FlightEvent *e = r->events[i];

        ctl_row(t);
        ctl_ms(t, e->last_ms_ago);
        ctl_int(t, e->count);
        ctl_str(t, e->reason);
        ctl_str(t, e->graph);
        ctl_str(t, e->key);
        ctl_int(t, e->tag);
        ctl_str(t, e->text);
    }
    ctl_table_end(t, "Nothing was noted.");
}

static void print_counts(struct ctl *ctl, const Npugraph__V1__ExplainResponse *r)
{
    static const struct ctl_column columns[] = {
        {"KIND", "kind", false}, {"REASON", "reason", false}, {"IN ALL", "count", true}};
    struct ctl_table *t = ctl_table_new(ctl, "counts", columns, sizeof(columns) / sizeof(columns[0]));

    for (size_t i = 0; i < r->n_counts; i++) {
        ctl_row(t);
        ctl_str(t, r->counts[i]->kind);
        ctl_str(t, r->counts[i]->reason);
        ctl_int(t, r->counts[i]->count);
    }
    ctl_table_end(t, "Nothing was counted.");
}

int ctl_choose_subject(const struct ctl_command *command, char *text, Npugraph__V1__ExplainRequest *req)
{
    if (strncmp(text, "tag:", 4) == 0)
        return ctl_parse_uint(text + 4, UINT64_MAX, &req->tag) && req->tag > 0
                   ? 0
                   : ctl_usage(command, "%s is not a request's tag, such as tag:7", text);
    if (strncmp(text, "key:", 4) == 0)
        req->key = text + 4;
    else if (strlen(text) == 16 && strchr(text, '/') == NULL)
        req->key = text;
    else
        req->digest = text;
    return 0;
}

static int parse_explain(const struct ctl_command *command, int argc, char **argv, Npugraph__V1__ExplainRequest *req)
{
    struct ctl_options o = {command, argc, 1, argv};
    const char *name, *value, *subject = NULL;
    uint64_t n;

    while ((name = ctl_next_beside(&o, "", "limit", &value, &subject, CTL_ONE_SUBJECT)) != NULL) {
        if (strcmp(name, "?") == 0)
            return 2;
        if (!ctl_parse_uint(value, 1000, &n) || n == 0)
            return ctl_usage(command, "--limit takes a number from 1 to 1000");
        req->limit = (uint32_t)n;
    }
    return subject != NULL ? ctl_choose_subject(command, (char *)(uintptr_t)subject, req) : 0;
}

int ctl_cmd_explain(struct ctl *ctl, int argc, char **argv)
{
    Npugraph__V1__ExplainRequest req = NPUGRAPH__V1__EXPLAIN_REQUEST__INIT;
    Npugraph__V1__ExplainResponse *r;

    if (parse_explain(ctl_find_command(argv[0]), argc, argv, &req) != 0)
        return 2;
    r = (void *)ctl_call(ctl, "/npugraph.v1.Graphs/Explain", &req.base, &npugraph__v1__explain_response__descriptor);
    if (r == NULL)
        return 1;
    if (req.digest[0] != '\0') {
        if (r->n_guards > 0)
            print_guards(ctl, r);
        print_keys(ctl, r);
        if (!ctl->json)
            fputc('\n', ctl->out);
    }
    print_events(ctl, r);
    if (req.digest[0] == '\0' && req.key[0] == '\0' && req.tag == 0) {
        if (!ctl->json)
            fputc('\n', ctl->out);
        print_counts(ctl, r);
    }
    npugraph__free_message(r);
    return 0;
}

/* ---- buckets ---------------------------------------------------------------------------------------------- */

struct buckets {
    const struct ctl_command *command;
    Npugraph__V1__BucketsRequest req;
    int64_t set[64];
};

static bool parse_set(struct buckets *b, const char *text)
{
    char *end;

    b->req.set = b->set;
    for (b->req.n_set = 0; b->req.n_set < 64;) {
        long long v = strtoll(text, &end, 10);

        if (end == text || v < 0)
            return false;
        b->set[b->req.n_set++] = v;
        if (*end == '\0')
            return true;
        if (*end != ',')
            return false;
        text = end + 1;
    }
    return false;
}

static int take_bucket_option(struct buckets *b, const char *name, const char *value)
{
    uint64_t n;

    if (strcmp(name, "?") == 0)
        return 2;
    if (strcmp(name, "apply") == 0)
        b->req.apply = true;
    else if (strcmp(name, "symbol") == 0)
        b->req.symbol = (char *)(uintptr_t)value;
    else if (strcmp(name, "set") == 0 && !parse_set(b, value))
        return ctl_usage(b->command, "--set takes up to 64 numbers N,N,...");
    else if (strcmp(name, "captures") == 0) {
        if (!ctl_parse_uint(value, 63, &n) || n == 0)
            return ctl_usage(b->command, "--captures takes a number from 1 to 63");
        b->req.captures = (uint32_t)n;
    }
    return 0;
}

static int parse_bucket_options(struct buckets *b, int argc, char **argv)
{
    struct ctl_options o = {b->command, argc, 1, argv};
    const char *name, *value, *graph = NULL;

    while ((name = ctl_next_beside(&o, "apply", "captures symbol set", &value, &graph, "one graph at a time")) !=
           NULL) {
        int rc = take_bucket_option(b, name, value);

        if (rc != 0)
            return rc;
    }
    if (graph == NULL || graph[0] == '\0')
        return ctl_usage(b->command, "buckets needs a graph");
    b->req.digest = (char *)(uintptr_t)graph;
    return 0;
}

static void print_bucket_sizes(struct ctl *ctl, const Npugraph__V1__BucketsResponse *r)
{
    static const struct ctl_column columns[] = {{"SIZE", "size", true}, {"TIMES", "count", true}};
    struct ctl_table *t = ctl_table_new(ctl, "sizes", columns, sizeof(columns) / sizeof(columns[0]));

    for (size_t i = 0; i < r->n_sizes; i++) {
        ctl_row(t);
        ctl_int(t, (uint64_t)r->sizes[i]->size);
        ctl_int(t, r->sizes[i]->count);
    }
    ctl_table_end(t, "No sizes were seen.");
}

static void print_set(struct ctl_table *t, const char *what, const Npugraph__V1__BucketSet *set)
{
    char text[64 * 21] = "";
    size_t n = 0;

    for (size_t i = 0; set != NULL && i < set->n_buckets && n + 21 < sizeof(text); i++)
        n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%" PRId64, i ? "," : "", set->buckets[i]);
    ctl_row(t);
    ctl_str(t, what);
    ctl_str(t, n ? text : "exact");
    ctl_int(t, set != NULL ? set->captures : 0);
    ctl_int(t, set != NULL ? set->rows : 0);
    ctl_int(t, set != NULL ? set->padding : 0);
    ctl_ratio(t,
              set != NULL && set->rows + set->padding ? (double)set->padding / (double)(set->rows + set->padding) : 0);
}

int ctl_cmd_buckets(struct ctl *ctl, int argc, char **argv)
{
    static const struct ctl_column columns[] = {
        {"SET", "which", false}, {"BUCKETS", "buckets", false}, {"CAPTURES", "captures", true},
        {"ROWS", "rows", true},  {"PADDING", "padding", true},  {"PADDED", "padded_share", true},
    };
    struct buckets b = {ctl_find_command(argv[0]), NPUGRAPH__V1__BUCKETS_REQUEST__INIT, {0}};
    Npugraph__V1__BucketsResponse *r;
    struct ctl_table *t;

    if (parse_bucket_options(&b, argc, argv) != 0)
        return 2;
    r = (void *)ctl_call(ctl, "/npugraph.v1.Graphs/Buckets", &b.req.base, &npugraph__v1__buckets_response__descriptor);
    if (r == NULL)
        return 1;
    print_bucket_sizes(ctl, r);
    if (!ctl->json)
        printf("\nSymbol %s of graph %s:\n", r->symbol, r->graph);
    t = ctl_table_new(ctl, "sets", columns, sizeof(columns) / sizeof(columns[0]));
    print_set(t, "present", r->present);
    print_set(t, b.req.n_set ? "given" : "proposed", r->proposed);
    ctl_table_end(t, "");
    if (ctl->json)
        json_object_set_new(ctl->root, "applied", json_boolean(r->applied));
    else if (r->applied)
        printf("\nApplied; %u executables dropped.\n", (unsigned)r->dropped);
    else
        printf("\n--apply gives the symbol the %s set.\n", b.req.n_set ? "given" : "proposed");
    npugraph__free_message(r);
    return 0;
}
