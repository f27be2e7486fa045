/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs: list, show, dot, plan, map; options. */
#include "client/ctl/ctl.h"
#include "proto/npugraph.pb-c.h"

#include <inttypes.h>
#include <string.h>

void ctl_print_sizes(const Npugraph__V1__GraphInfo *info, const int64_t *symbols, size_t n, struct ngd_strbuf *sb)
{
    for (size_t i = 0; i < n && i < info->n_symbols; i++)
        ngd_strbuf_printf(sb, "%s%s = %" PRId64, i > 0 ? ", " : "", info->symbols[i]->name, symbols[i]);
}

/* Prints a digest in the form that other commands take: with the graph's number if it is registered in several ways. */
static void put_graph_digest(const struct ctl *ctl, struct ctl_table *t, const Npugraph__V1__ListGraphsResponse *r,
                             const Npugraph__V1__GraphInfo *g)
{
    char text[100];
    size_t n = 0;

    for (size_t i = 0; i < r->n_graphs; i++)
        n += strcmp(r->graphs[i]->digest, g->digest) == 0;
    snprintf(text, sizeof(text), n > 1 && !ctl->json ? "%.*s/%llu" : "%.*s", ctl->json ? 64 : 12, g->digest,
             (unsigned long long)g->number);
    ctl_str(t, text);
}

static int print_graphs(struct ctl *ctl)
{
    static const struct ctl_column columns[] = {
        {"DIGEST", "digest", false},
        {"GRAPH", "name", false},
        {"NODES", "nodes", true},
        {"HELD BY", "registrations", true},
        {"CAPTURES", "captures", true},
        {"REPLAYS", "replays", true},
        {"HITS", "cache_hits", true},
        {"MISSES", "cache_misses", true},
        {"EVICTED", "evictions", true},
        {"POOL", "pool_bytes", true},
        {"MERGED", "merged_requests", true},
        {"OPTIONS", "options", false},
        /* Numbers are for programs; people only see them if they tell graphs apart. */
        {"NUMBER", "number", true},
        {"DEVICE", "device", false},
    };
    const size_t n = sizeof(columns) / sizeof(columns[0]) - (ctl->json ? 0 : 2);
    Npugraph__V1__ListGraphsRequest req = NPUGRAPH__V1__LIST_GRAPHS_REQUEST__INIT;
    Npugraph__V1__ListGraphsResponse *r =
        (void *)ctl_call(ctl, "/npugraph.v1.Graphs/List", &req.base, &npugraph__v1__list_graphs_response__descriptor);
    struct ctl_table *t;

    if (r == NULL)
        return 1;
    t = ctl_table_new(ctl, "graphs", columns, n);
    ctl_table_prose(t, 11);
    ctl_table_details(t);
    for (size_t i = 0; i < r->n_graphs; i++) {
        const Npugraph__V1__GraphInfo *g = r->graphs[i];

        ctl_row(t);
        put_graph_digest(ctl, t, r, g);
        ctl_str(t, g->name);
        ctl_int(t, g->nodes);
        ctl_int(t, g->registrations);
        ctl_int(t, g->captures);
        ctl_int(t, g->replays);
        ctl_int(t, g->cache_hits);
        ctl_int(t, g->cache_misses);
        ctl_int(t, g->evictions);
        ctl_bytes(t, g->pool_bytes);
        ctl_int(t, g->merged_requests);
        ctl_str(t, g->options);
        if (ctl->json) {
            ctl_int(t, g->number);
            ctl_str(t, g->device);
        }
    }
    ctl_table_end(t, "No graphs.");
    npugraph__free_message(r);
    return 0;
}

static int describe_graph(struct ctl *ctl, Npugraph__V1__DescribeRequest *req, const char *file)
{
    Npugraph__V1__DescribeResponse *r =
        (void *)ctl_call(ctl, "/npugraph.v1.Graphs/Describe", &req->base, &npugraph__v1__describe_response__descriptor);
    int rc = 0;

    if (r == NULL)
        return 1;
    if (file != NULL)
        rc = ctl_write_file(ctl, file, r->text);
    else if (ctl->json)
        json_object_set_new(ctl->root, "text", json_string(r->text));
    else
        fputs(r->text, ctl->out);
    npugraph__free_message(r);
    return rc;
}

int ctl_cmd_graphs(struct ctl *ctl, int argc, char **argv)
{
    static const struct {
        const char *word;
        Npugraph__V1__DescribeForm form;
    } forms[] = {{"show", NGD_PB(DESCRIBE_FORM, TEXT)},
                 {"dot", NGD_PB(DESCRIBE_FORM, DOT)},
                 {"plan", NGD_PB(DESCRIBE_FORM, PLAN)},
                 {"map", NGD_PB(DESCRIBE_FORM, MAP)}};
    struct ctl_options o = {ctl_find_command(argv[0]), argc, 3, argv};
    Npugraph__V1__DescribeRequest req = NPUGRAPH__V1__DESCRIBE_REQUEST__INIT;
    const char *name, *value, *file = NULL;

    if (argc == 1 || (argc == 2 && strcmp(argv[1], "list") == 0))
        return print_graphs(ctl);
    for (size_t i = 0; argc >= 3 && i < sizeof(forms) / sizeof(forms[0]); i++)
        if (strcmp(argv[1], forms[i].word) == 0)
            req.form = forms[i].form;
    if (req.form == NGD_PB(DESCRIBE_FORM, UNSPECIFIED) || argv[2][0] == '-')
        return ctl_usage(o.command, "graphs takes list, or show, dot, plan or map with a digest");
    req.digest = argv[2];
    while ((name = ctl_next_option(&o, "", "key svg", &value)) != NULL) {
        if (strcmp(name, "?") == 0)
            return 2;
        if (strcmp(name, "key") == 0)
            req.key = (char *)(uintptr_t)value;
        else
            file = value;
    }
    if (ctl_next_argument(&o) != NULL)
        return ctl_usage(o.command, "one graph at a time");
    if (file != NULL && req.form != NGD_PB(DESCRIBE_FORM, MAP))
        return ctl_usage(o.command, "--svg belongs to map");
    if (req.key[0] != '\0' && req.form != NGD_PB(DESCRIBE_FORM, PLAN) && req.form != NGD_PB(DESCRIBE_FORM, MAP))
        return ctl_usage(o.command,
                         "--key belongs to plan and map: show and dot are of the graph as it was registered");
    if (file != NULL)
        req.form = NGD_PB(DESCRIBE_FORM, SVG);
    return describe_graph(ctl, &req, file);
}

int ctl_cmd_options(struct ctl *ctl, int argc, char **argv)
{
    static const struct ctl_column columns[] = {
        {"OPTION", "name", false},     {"TYPE", "type", false},           {"DEFAULT", "default", false},
        {"KEY", "in_key", false},      {"CAPTURE", "per_capture", false}, {"SUPPORTED", "supported", false},
        {"ALLOWED", "allowed", false}, {"EFFECT", "effect", false},
    };
    Npugraph__V1__ListOptionsRequest req = NPUGRAPH__V1__LIST_OPTIONS_REQUEST__INIT;
    Npugraph__V1__ListOptionsResponse *r;
    struct ctl_table *t;

    if (ctl_no_arguments(argc, argv) != 0)
        return 2;
    r = (void *)ctl_call(ctl, "/npugraph.v1.Graphs/ListOptions", &req.base,
                         &npugraph__v1__list_options_response__descriptor);
    if (r == NULL)
        return 1;
    t = ctl_table_new(ctl, "options", columns, sizeof(columns) / sizeof(columns[0]));
    ctl_table_prose(t, 6);
    for (size_t i = 0; i < r->n_options; i++) {
        const Npugraph__V1__OptionInfo *o = r->options[i];

        ctl_row(t);
        ctl_str(t, o->name);
        ctl_word(t, &npugraph__v1__option_type__descriptor, o->type);
        ctl_str(t, o->default_value);
        ctl_bool(t, o->in_key);
        ctl_bool(t, o->per_capture);
        ctl_bool(t, o->supported);
        ctl_str(t, o->allowed);
        ctl_str(t, o->effect);
    }
    ctl_table_end(t, "No options.");
    npugraph__free_message(r);
    return 0;
}
