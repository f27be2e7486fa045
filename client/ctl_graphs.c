/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs: list, show, dot, plan. */
#include "client/ctl.h"
#include "proto/npugraph.pb-c.h"

#include <string.h>

static int list_graphs(struct ctl *ctl)
{
    static const struct ctl_column columns[] = {
        {"DIGEST", "digest", false},        {"GRAPH", "name", false},         {"NODES", "nodes", true},
        {"HELD BY", "registrations", true}, {"CAPTURES", "captures", true},   {"REPLAYS", "replays", true},
        {"HITS", "cache_hits", true},       {"MISSES", "cache_misses", true}, {"EVICTED", "evictions", true},
        {"POOL", "pool_bytes", true},
    };
    Npugraph__V1__ListGraphsRequest req = NPUGRAPH__V1__LIST_GRAPHS_REQUEST__INIT;
    Npugraph__V1__ListGraphsResponse *r =
        (void *)ctl_call(ctl, "/npugraph.v1.Graphs/List", &req.base, &npugraph__v1__list_graphs_response__descriptor);
    struct ctl_table *t;
    char digest[80];

    if (r == NULL)
        return 1;
    t = ctl_table_new(ctl, "graphs", columns, sizeof(columns) / sizeof(columns[0]));
    for (size_t i = 0; i < r->n_graphs; i++) {
        const Npugraph__V1__GraphInfo *g = r->graphs[i];

        ctl_row(t);
        snprintf(digest, sizeof(digest), "%.*s", ctl->json ? 64 : 12, g->digest);
        ctl_str(t, digest);
        ctl_str(t, g->name);
        ctl_int(t, g->nodes);
        ctl_int(t, g->registrations);
        ctl_int(t, g->captures);
        ctl_int(t, g->replays);
        ctl_int(t, g->cache_hits);
        ctl_int(t, g->cache_misses);
        ctl_int(t, g->evictions);
        ctl_bytes(t, g->pool_bytes);
    }
    ctl_table_end(t, "No graphs.");
    npugraph__free_message(r);
    return 0;
}

int ctl_cmd_graphs(struct ctl *ctl, int argc, char **argv)
{
    const struct ctl_command *command = ctl_find_command(argv[0]);
    Npugraph__V1__DescribeRequest req = NPUGRAPH__V1__DESCRIBE_REQUEST__INIT;
    Npugraph__V1__DescribeResponse *r;

    if (argc == 1 || (argc == 2 && strcmp(argv[1], "list") == 0))
        return list_graphs(ctl);
    if (argc != 3 || (strcmp(argv[1], "show") != 0 && strcmp(argv[1], "dot") != 0 && strcmp(argv[1], "plan") != 0))
        return ctl_usage(command, "graphs takes list, or show, dot or plan with a digest");
    req.digest = argv[2];
    req.form = strcmp(argv[1], "show") == 0 ? (char *)"text" : argv[1];
    r = (void *)ctl_call(ctl, "/npugraph.v1.Graphs/Describe", &req.base, &npugraph__v1__describe_response__descriptor);
    if (r == NULL)
        return 1;
    if (ctl->json)
        json_object_set_new(ctl->root, "text", json_string(r->text));
    else
        fputs(r->text, stdout);
    npugraph__free_message(r);
    return 0;
}
