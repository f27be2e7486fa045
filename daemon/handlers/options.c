/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs.ListOptions: lists the table of options. */
#include "daemon/daemon.h"
#include "daemon/handlers/borrow.h"
#include "daemon/handlers/methods.h"
#include "graphs/options.h"
#include "proto/npugraph.pb-c.h"
#include "proto/word.h"

static ngd_status_t fill_option(struct ngd_call *call, ngd_option_id_t id, Npugraph__V1__OptionInfo *item)
{
    const struct ngd_option_info *info = ngd_option_info(id);
    struct ngd_strbuf allowed;

    npugraph__v1__option_info__init(item);
    ngd_strbuf_init(&allowed);
    ngd_option_print_allowed(id, &allowed);
    item->allowed = allowed.failed ? NULL : ngd_arena_strdup(&call->arena, ngd_strbuf_str(&allowed));
    ngd_strbuf_fini(&allowed);
    item->name = ngd_borrow(info->name);
    item->type = ngd_word_value(&npugraph__v1__option_type__descriptor, ngd_option_type_name(info->type));
    item->default_value = ngd_borrow(info->def);
    item->effect = ngd_borrow(info->effect);
    item->in_key = info->in_key;
    item->per_capture = info->per_capture;
    item->supported = info->supported;
    return item->allowed ? NGD_OK : NGD_ERR_NO_MEMORY;
}

static void list_options(struct ngd_call *call, const void *msg)
{
    Npugraph__V1__ListOptionsResponse r = NPUGRAPH__V1__LIST_OPTIONS_RESPONSE__INIT;
    Npugraph__V1__OptionInfo *items = ngd_arena_calloc(&call->arena, NGD_OPTION_MAX, sizeof(*items));
    ngd_status_t status = NGD_OK;

    (void)msg;
    r.options = ngd_arena_calloc(&call->arena, NGD_OPTION_MAX, sizeof(*r.options));
    if (!items || !r.options)
        status = NGD_ERR_NO_MEMORY;
    for (int i = 0; i < NGD_OPTION_MAX && status == NGD_OK; i++) {
        status = fill_option(call, (ngd_option_id_t)i, &items[i]);
        r.options[r.n_options++] = &items[i];
    }
    if (status == NGD_OK)
        ngd_call_reply(call, &r.base);
    else
        ngd_call_fail(call, status, NULL);
}

const struct ngd_rpc_ops ngd_rpc_graphs_list_options = {.request = list_options};
