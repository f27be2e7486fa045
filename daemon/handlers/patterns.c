/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs.RegisterPattern, ListPatterns, RemovePattern. */
#include "daemon/daemon.h"
#include "daemon/handlers/borrow.h"
#include "daemon/handlers/methods.h"
#include "daemon/patterns.h"
#include "proto/npugraph.pb-c.h"
#include "proto/word.h"
#include <string.h>

#define PATTERNS_PER_CALL 16
#define PATTERNS_LISTED   (3 * NGD_PATTERNS_PER_OWNER)

/* The pattern must outlive the answer's packing. */
static ngd_status_t fill_pattern(struct ngd_call *call, const struct ngd_pattern *p, const char *owner, bool text,
                                 Npugraph__V1__PatternInfo *item)
{
    char hex[NGD_DIGEST_HEX];

    npugraph__v1__pattern_info__init(item);
    ngd_digest_hex(&p->digest, hex);
    item->digest = ngd_arena_strdup(&call->arena, hex);
    item->name = ngd_borrow(p->name);
    item->version = p->version;
    item->phase = ngd_word_value(&npugraph__v1__pattern_phase__descriptor, ngd_pattern_phase_name(p->phase));
    item->doc = ngd_borrow(p->doc ? p->doc : "");
    item->owner = ngd_borrow(!owner ? "built-in" : owner[0] ? owner : "all");
    item->text = ngd_borrow(text ? p->text : "");
    return item->digest ? NGD_OK : NGD_ERR_NO_MEMORY;
}

static ngd_status_t fill_items(struct ngd_call *call, const struct ngd_pattern_item *items, uint32_t n,
                               const char *name, Npugraph__V1__PatternInfo ***list_p, size_t *n_p)
{
    Npugraph__V1__PatternInfo *infos = ngd_arena_calloc(&call->arena, n + 1u, sizeof(*infos));
    Npugraph__V1__PatternInfo **list = ngd_arena_calloc(&call->arena, n + 1u, sizeof(*list));
    ngd_status_t status = infos && list ? NGD_OK : NGD_ERR_NO_MEMORY;
    size_t used = 0;

    for (uint32_t i = 0; i < n && !status; i++) {
        if (name[0] && strcmp(name, items[i].pattern->name) != 0)
            continue;
        status = fill_pattern(call, items[i].pattern, items[i].owner, name[0] != '\0', &infos[used]);
        list[used] = &infos[used];
        used++;
    }
    *list_p = list;
    *n_p = used;
    return status;
}

static void list_patterns(struct ngd_call *call, const void *msg)
{
    const Npugraph__V1__ListPatternsRequest *q = msg;
    Npugraph__V1__ListPatternsResponse r = NPUGRAPH__V1__LIST_PATTERNS_RESPONSE__INIT;
    struct ngd_pattern_item items[PATTERNS_LISTED];
    uint32_t n = ngd_patterns_list(call->daemon->patterns, call->identity, items, PATTERNS_LISTED);
    struct ngd_diag diag = {0};
    ngd_status_t status = fill_items(call, items, n, q->name, &r.patterns, &r.n_patterns);

    if (status == NGD_OK && q->name[0] && r.n_patterns == 0)
        status = ngd_diag_set(&diag, NGD_ERR_NOT_FOUND, "there is no pattern \"%.64s\"", q->name);
    if (status == NGD_OK)
        ngd_call_reply(call, &r.base);
    else
        ngd_call_fail(call, status, &diag);
    for (uint32_t i = 0; i < n; i++)
        ngd_pattern_unref(items[i].pattern);
}

const struct ngd_rpc_ops ngd_rpc_graphs_list_patterns = {.request = list_patterns};

static void register_pattern(struct ngd_call *call, const void *msg)
{
    const Npugraph__V1__RegisterPatternRequest *q = msg;
    Npugraph__V1__RegisterPatternResponse r = NPUGRAPH__V1__REGISTER_PATTERN_RESPONSE__INIT;
    struct ngd_pattern *added[PATTERNS_PER_CALL];
    struct ngd_pattern_item items[PATTERNS_PER_CALL];
    uint32_t n = 0;
    struct ngd_diag diag = {0};
    ngd_status_t status = ngd_patterns_register(call->daemon->patterns, call->identity, q->text, q->for_all, added,
                                                PATTERNS_PER_CALL, &n, &diag);

    for (uint32_t i = 0; i < n; i++)
        items[i] = (struct ngd_pattern_item){added[i], q->for_all ? "" : call->identity->name};
    if (status == NGD_OK)
        status = fill_items(call, items, n, "", &r.patterns, &r.n_patterns);
    if (status == NGD_OK)
        ngd_call_reply(call, &r.base);
    else
        ngd_call_fail(call, status, &diag);
    for (uint32_t i = 0; i < n; i++)
        ngd_pattern_unref(added[i]);
}

const struct ngd_rpc_ops ngd_rpc_graphs_register_pattern = {.request = register_pattern};

static void remove_pattern(struct ngd_call *call, const void *msg)
{
    const Npugraph__V1__RemovePatternRequest *q = msg;
    Npugraph__V1__RemovePatternResponse r = NPUGRAPH__V1__REMOVE_PATTERN_RESPONSE__INIT;
    struct ngd_diag diag = {0};
    ngd_status_t status = ngd_patterns_remove(call->daemon->patterns, call->identity, q->name, q->for_all, &diag);

    if (status == NGD_OK)
        ngd_call_reply(call, &r.base);
    else
        ngd_call_fail(call, status, &diag);
}

const struct ngd_rpc_ops ngd_rpc_graphs_remove_pattern = {.request = remove_pattern};
