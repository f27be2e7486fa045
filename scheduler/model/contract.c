/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The check of the contract is a table of roles, each with kind, dtype and shape. Each input of a graph must have a
 * role, since nothing else would feed it.
 */
#include "scheduler/model/contract.h"
#include "base/strbuf.h"
#include "scheduler/program/group.h"
#include "scheduler/program/program_int.h"
#include <inttypes.h>
#include <string.h>

#define HIDDEN_MAX (1 << 20) /* elements */

const struct ngd_role_info ngd_role_infos[NGD_ROLE_MAX] = {
    [NGD_ROLE_TOKENS] = {"tokens", NGD_ROLE_INPUT, NGD_PER_ROW, NGD_I32},
    [NGD_ROLE_POSITIONS] = {"positions", NGD_ROLE_INPUT, NGD_PER_ROW, NGD_I32},
    [NGD_ROLE_SLOTS] = {"slot_mapping", NGD_ROLE_INPUT, NGD_PER_ROW, NGD_I32},
    [NGD_ROLE_TABLE] = {"block_table", NGD_ROLE_INPUT, NGD_PER_SEQ_TABLE, NGD_I32},
    [NGD_ROLE_QUERY_LENS] = {"query_lens", NGD_ROLE_HOST, NGD_PER_SEQ, NGD_I64},
    [NGD_ROLE_CONTEXT_LENS] = {"context_lens", NGD_ROLE_HOST, NGD_PER_SEQ, NGD_I64},
    [NGD_ROLE_LOGITS_ROWS] = {"logits_rows", NGD_ROLE_INPUT, NGD_PER_SEQ, NGD_I32},
    [NGD_ROLE_TEMPERATURE] = {"temperature", NGD_ROLE_INPUT, NGD_PER_RESULT, NGD_F32},
    [NGD_ROLE_TOP_K] = {"top_k", NGD_ROLE_INPUT, NGD_PER_RESULT, NGD_I32},
    [NGD_ROLE_TOP_P] = {"top_p", NGD_ROLE_INPUT, NGD_PER_RESULT, NGD_F32},
    [NGD_ROLE_SEED] = {"seed", NGD_ROLE_INPUT, NGD_PER_RESULT, NGD_I64},
    [NGD_ROLE_OFFSET] = {"offset", NGD_ROLE_INPUT, NGD_PER_RESULT, NGD_I64},
    [NGD_ROLE_TOKEN] = {"token_output", NGD_ROLE_OUTPUT, NGD_PER_RESULT, NGD_I32},
    [NGD_ROLE_LOGITS] = {"logits_output", NGD_ROLE_OUTPUT, NGD_PER_RESULT_VOCAB, NGD_F32},
    [NGD_ROLE_HIDDEN] = {"hidden_output", NGD_ROLE_OUTPUT, NGD_PER_POOLED, NGD_F32},
#define GROUP(g)                                                                                                       \
    [NGD_ROLE_GROUPS + 2 * (g) + 0] = {"more_groups[" #g "].slot_mapping", NGD_ROLE_INPUT, NGD_PER_ROW, NGD_I32},      \
                                 [NGD_ROLE_GROUPS + 2 * (g) + 1] = {"more_groups[" #g "].block_table", NGD_ROLE_INPUT, \
                                                                    NGD_PER_SEQ_TABLE, NGD_I32}
    GROUP(0),
    GROUP(1),
    GROUP(2),
    GROUP(3),
    GROUP(4),
    GROUP(5),
    GROUP(6),
#undef GROUP
};
_Static_assert(NGD_KV_GROUPS_MAX == 8, "a row for each group behind the first one");

static const char *const kinds[] = {
    [NGD_ROLE_INPUT] = "user input",
    [NGD_ROLE_HOST] = "host parameter",
    [NGD_ROLE_OUTPUT] = "output",
};

static const char *label_of_group(const struct ngd_decode_contract *c, uint32_t i)
{
    const struct ngd_kv_group_labels *group = &c->more_groups[i / 2];

    if (i / 2 >= c->n_more_groups)
        return NULL;
    return i % 2 ? group->block_table : group->slot_mapping;
}

/* Returns the label that the contract gives to a role; NULL = the role is absent. */
static const char *label_of(const struct ngd_decode_contract *c, ngd_role_t role)
{
    const char *const labels[NGD_ROLE_GROUPS] = {
        [NGD_ROLE_TOKENS] = c->tokens,
        [NGD_ROLE_POSITIONS] = c->positions,
        [NGD_ROLE_SLOTS] = c->slot_mapping,
        [NGD_ROLE_TABLE] = c->block_table,
        [NGD_ROLE_QUERY_LENS] = c->query_lens,
        [NGD_ROLE_CONTEXT_LENS] = c->context_lens,
        [NGD_ROLE_LOGITS_ROWS] = c->logits_rows,
        [NGD_ROLE_TEMPERATURE] = c->temperature,
        [NGD_ROLE_TOP_K] = c->top_k,
        [NGD_ROLE_TOP_P] = c->top_p,
        [NGD_ROLE_SEED] = c->seed,
        [NGD_ROLE_OFFSET] = c->offset,
        [NGD_ROLE_TOKEN] = c->token_output,
        [NGD_ROLE_LOGITS] = c->logits_output,
        [NGD_ROLE_HIDDEN] = c->hidden_output,
    };
    const char *label = role < NGD_ROLE_GROUPS ? labels[role] : label_of_group(c, role - NGD_ROLE_GROUPS);

    return label && label[0] ? label : NULL;
}

static bool is_sampling(ngd_role_t role)
{
    return role >= NGD_ROLE_TEMPERATURE && role <= NGD_ROLE_OFFSET;
}

/* A model chooses tokens, or returns hidden states, or does both. */
static bool is_optional(const struct ngd_model_params *p, ngd_role_t role)
{
    if (role >= NGD_ROLE_GROUPS)
        return (uint32_t)(role - NGD_ROLE_GROUPS) / 2 >= p->contract.n_more_groups;
    if (role == NGD_ROLE_TOKEN || role == NGD_ROLE_HIDDEN)
        return p->no_generation == (role == NGD_ROLE_TOKEN);
    return role == NGD_ROLE_LOGITS_ROWS || role == NGD_ROLE_LOGITS || is_sampling(role);
}

/* The check of one graph. */
struct check {
    const struct ngd_model_params *params;
    const struct ngd_graph *graph;
    const char *which; /* "prefill" or "decode", for diagnoses */
    bool decode;
    struct ngd_roles roles;
    struct ngd_diag *diag;
};

/* ---- the symbol --------------------------------------------------------------------------------------- */

static ngd_status_t check_symbol(const struct check *c, const struct ngd_symbol *s)
{
    if (s->policy != NGD_SYMBOL_BUCKETS && s->min != s->max)
        return ngd_diag_set(
            c->diag, NGD_ERR_MODEL_CONTRACT,
            "symbol %s of the %s graph is exact, so every size would need a capture; declare it as: sym %s "
            "%" PRId64 "..%" PRId64 " buckets %" PRId64,
            s->name, c->which, s->name, s->min, s->max, s->max);
    if (s->min > 1 || s->max < 1)
        return ngd_diag_set(c->diag, NGD_ERR_MODEL_CONTRACT,
                            "symbol %s of the %s graph ranges over %" PRId64 "..%" PRId64 "; the range must include 1",
                            s->name, c->which, s->min, s->max);
    return NGD_OK;
}

static ngd_status_t check_symbols(struct check *c)
{
    const struct ngd_symbol *s = c->graph->symbols;
    const uint32_t n = c->graph->n_symbols;
    ngd_status_t status = NGD_OK;

    if (c->decode && n != 1)
        return ngd_diag_set(c->diag, NGD_ERR_MODEL_CONTRACT,
                            "the decode graph has %" PRIu32 " symbols; it must have exactly one, B (the sequences of a "
                            "step), as in: sym B 1..16 buckets 16",
                            n);
    if (n < 1 || n > 2)
        return ngd_diag_set(c->diag, NGD_ERR_MODEL_CONTRACT,
                            "the prefill graph has %" PRIu32 " symbols; it must have T (the rows of a chunk), as in: "
                            "sym T 1..16 buckets 16, and may have a second one, S (the sequences of a chunk)",
                            n);
    for (uint32_t i = 0; i < n && !status; i++)
        status = check_symbol(c, &s[i]);
    if (status)
        return status;
    if (c->graph->n_relations)
        return ngd_diag_set(c->diag, NGD_ERR_MODEL_CONTRACT,
                            "the %s graph has guards that can fail, but the daemon chooses from 1 to %" PRId64
                            " rows for each step: register a graph without guards, valid for all of these sizes",
                            c->which, s->max);
    c->roles.n_symbols = n;
    c->roles.max_rows = (uint32_t)s[0].max;
    c->roles.max_seqs = c->decode ? (uint32_t)s[0].max : n == 2 ? (uint32_t)s[1].max : 1;
    return NGD_OK;
}

/* ---- types -------------------------------------------------------------------------------------------- */

static const struct ngd_value *role_value(const struct check *c, ngd_role_kind_t kind, int index)
{
    const struct ngd_graph *g = c->graph;

    if (kind == NGD_ROLE_OUTPUT)
        return &g->values[g->outputs[index].value];
    return &g->values[kind == NGD_ROLE_HOST ? g->hosts[index] : g->inputs[index]];
}

/* Computes the type that a role must have. The graph chooses dimension 1 of the block table and of hidden states, a
 * constant. */
static void expected_type(const struct check *c, ngd_role_t role, const struct ngd_type *actual,
                          struct ngd_type *type_p)
{
    const struct ngd_role_info *info = &ngd_role_infos[role];
    ngd_dim_t rows = c->graph->symbols[0].dim;
    ngd_dim_t seqs = c->decode ? rows : c->roles.n_symbols == 2 ? c->graph->symbols[1].dim : 1;
    ngd_dim_t results = c->roles.result_per_row ? rows : seqs;
    const ngd_dim_t width = actual->rank == 2 && actual->dims[1] > 0 ? actual->dims[1] : 1;

    *type_p = (struct ngd_type){.dtype = info->dtype, .rank = 1};
    type_p->dims[0] = info->shape == NGD_PER_ROW ? rows : info->shape >= NGD_PER_RESULT ? results : seqs;
    if (info->shape == NGD_PER_SEQ_TABLE) {
        type_p->rank = 2;
        type_p->dims[1] = width;
    } else if (info->shape == NGD_PER_POOLED) {
        type_p->rank = 2;
        type_p->dims[0] = c->roles.hidden_per_row ? rows : seqs;
        type_p->dims[1] = width;
    } else if (info->shape == NGD_PER_RESULT_VOCAB) {
        type_p->rank = 2;
        type_p->dims[1] = (ngd_dim_t)c->params->vocab;
    }
}

static bool types_equal(const struct ngd_type *a, const struct ngd_type *b)
{
    return a->dtype == b->dtype && a->rank == b->rank && memcmp(a->dims, b->dims, a->rank * sizeof(a->dims[0])) == 0;
}

static const char *meaning(const struct check *c, ngd_role_t role)
{
    const bool several = c->decode || c->roles.n_symbols == 2;

    switch (ngd_role_infos[role].shape) {
    case NGD_PER_ROW:
        return "one for each token row";
    case NGD_PER_SEQ:
        return several ? "one for each sequence" : "one: a chunk belongs to one sequence";
    case NGD_PER_SEQ_TABLE:
        return several ? "a row of block numbers for each sequence"
                       : "one row of block numbers: a chunk belongs to one sequence";
    case NGD_PER_RESULT:
        return c->roles.result_per_row
                   ? "one for each row of logits, which is each token row as there is no logits_rows"
                   : "one for each row of logits";
    case NGD_PER_RESULT_VOCAB:
        return "a row of vocab logits for each token that is chosen";
    case NGD_PER_POOLED:
        return c->roles.hidden_per_row ? "a hidden state for each token row" : "a hidden state for each sequence";
    }
    return "";
}

static ngd_status_t check_role_type(const struct check *c, ngd_role_t role, const char *label,
                                    const struct ngd_value *v)
{
    const struct ngd_role_info *info = &ngd_role_infos[role];
    struct ngd_strbuf has, must;
    struct ngd_type type;

    expected_type(c, role, &v->type, &type);
    if (types_equal(&v->type, &type))
        return NGD_OK;
    ngd_strbuf_init(&has);
    ngd_strbuf_init(&must);
    ngd_type_print(c->graph, &v->type, &has);
    ngd_type_print(c->graph, &type, &must);
    ngd_diag_set(c->diag, NGD_ERR_MODEL_CONTRACT, "%s: %s \"%.100s\" of the %s graph is %s; it must be %s (%s)",
                 info->name, kinds[info->kind], label, c->which, ngd_strbuf_str(&has), ngd_strbuf_str(&must),
                 meaning(c, role));
    ngd_strbuf_fini(&has);
    ngd_strbuf_fini(&must);
    return NGD_ERR_MODEL_CONTRACT;
}

/* ---- roles -------------------------------------------------------------------------------------------- */

static int find_labelled(const struct ngd_graph *graph, ngd_role_kind_t kind, const char *label)
{
    if (kind == NGD_ROLE_OUTPUT)
        return ngd_graph_find_output(graph, label);
    return ngd_graph_find_input(graph, kind == NGD_ROLE_HOST ? NGD_VALUE_HOST : NGD_VALUE_INPUT, label);
}

/* Returns true for logits_rows of a decode graph: each of its rows is a sequence, so it need not select rows. Hidden
 * states are those of prompts. */
static bool may_lack(const struct check *c, ngd_role_t role)
{
    return (role == NGD_ROLE_LOGITS_ROWS || role == NGD_ROLE_HIDDEN) && c->decode;
}

static ngd_status_t resolve_role(struct check *c, ngd_role_t role)
{
    const struct ngd_role_info *info = &ngd_role_infos[role];
    const char *label = label_of(&c->params->contract, role);
    int index;

    c->roles.index[role] = -1;
    if (!label && is_optional(c->params, role))
        return NGD_OK;
    if (!label)
        return ngd_diag_set(c->diag, NGD_ERR_MODEL_CONTRACT, "the contract gives no label for %s, which is required",
                            info->name);
    index = find_labelled(c->graph, info->kind, label);
    if (index < 0 && may_lack(c, role))
        return NGD_OK;
    if (index < 0)
        return ngd_diag_set(c->diag, NGD_ERR_MODEL_CONTRACT, "%s: the %s graph has no %s labelled \"%.100s\"",
                            info->name, c->which, kinds[info->kind], label);
    c->roles.index[role] = index;
    return NGD_OK;
}

static ngd_status_t check_sampling_roles(const struct check *c)
{
    ngd_role_t first = NGD_ROLE_TEMPERATURE;

    for (ngd_role_t role = first; is_sampling(role); role++)
        if ((c->roles.index[role] < 0) != (c->roles.index[first] < 0))
            return ngd_diag_set(
                c->diag, NGD_ERR_MODEL_CONTRACT,
                "the contract must label all of temperature, top_k, top_p, seed and offset, or none; %s is %s",
                ngd_role_infos[role].name, c->roles.index[role] < 0 ? "missing" : "there");
    return NGD_OK;
}

static ngd_status_t check_block_table(struct check *c, uint32_t group)
{
    const struct ngd_model_params *p = c->params;
    const struct ngd_value *v = role_value(c, NGD_ROLE_INPUT, c->roles.index[ngd_role_table(group)]);
    uint64_t width = (uint64_t)v->type.dims[1];

    if (width * p->block_size < p->max_context)
        return ngd_diag_set(c->diag, NGD_ERR_MODEL_CONTRACT,
                            "block_table: \"%.100s\" of the %s graph has %" PRIu64 " blocks of %" PRIu32
                            " tokens for each sequence, which is too few for a context of %" PRIu32,
                            v->label, c->which, width, p->block_size, p->max_context);
    if (width > INT32_MAX)
        return ngd_diag_set(c->diag, NGD_ERR_MODEL_CONTRACT, "block_table: \"%.100s\" of the %s graph is too wide",
                            v->label, c->which);
    if (group && width != c->roles.table_width)
        return ngd_diag_set(c->diag, NGD_ERR_MODEL_CONTRACT,
                            "block_table: \"%.100s\" of the %s graph has %" PRIu64 " blocks for each sequence; it must "
                            "have %" PRIu32 ", as the table of the first group of layers has",
                            v->label, c->which, width, c->roles.table_width);
    c->roles.table_width = (uint32_t)width;
    return NGD_OK;
}

static ngd_status_t check_block_tables(struct check *c)
{
    ngd_status_t status = NGD_OK;

    for (uint32_t g = 0; g <= c->params->contract.n_more_groups && !status; g++)
        status = check_block_table(c, g);
    return status;
}

/* Checks that exactly one role names each input of a kind. */
static ngd_status_t check_cover(const struct check *c, ngd_role_kind_t kind, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        const struct ngd_value *v = role_value(c, kind, (int)i);
        const char *first = NULL;

        for (ngd_role_t role = 0; role < NGD_ROLE_MAX; role++) {
            if (ngd_role_infos[role].kind != kind || c->roles.index[role] != (int)i)
                continue;
            if (first)
                return ngd_diag_set(c->diag, NGD_ERR_MODEL_CONTRACT,
                                    "%s \"%.100s\" of the %s graph has two roles, %s and %s", kinds[kind], v->label,
                                    c->which, first, ngd_role_infos[role].name);
            first = ngd_role_infos[role].name;
        }
        if (!first)
            return ngd_diag_set(
                c->diag, NGD_ERR_MODEL_CONTRACT,
                "%s \"%.100s\" of the %s graph has no role in the contract, so it would never get a value", kinds[kind],
                v->label, c->which);
    }
    return NGD_OK;
}

void ngd_contract_no_roles(struct ngd_roles *roles_p)
{
    *roles_p = (struct ngd_roles){0};
    for (ngd_role_t role = 0; role < NGD_ROLE_MAX; role++)
        roles_p->index[role] = -1;
}

static ngd_status_t take_hidden_size(struct check *c)
{
    const int64_t size = role_value(c, NGD_ROLE_OUTPUT, c->roles.index[NGD_ROLE_HIDDEN])->type.dims[1];

    if (size > HIDDEN_MAX)
        return ngd_diag_set(c->diag, NGD_ERR_MODEL_CONTRACT,
                            "hidden_output has %" PRId64 " elements for each row; at most %d are allowed", size,
                            HIDDEN_MAX);
    c->roles.hidden_size = (uint32_t)size;
    return NGD_OK;
}

ngd_status_t ngd_contract_resolve(const struct ngd_model_params *params, bool decode, struct ngd_roles *roles_p,
                                  struct ngd_diag *diag)
{
    struct check c = {
        .params = params,
        .graph = ngd_program_graph(ngd_binding_program(decode ? params->decode : params->prefill)),
        .which = decode ? "decode" : "prefill",
        .decode = decode,
        .diag = diag,
    };
    ngd_status_t status = check_symbols(&c);

    if (!status && params->contract.n_more_groups >= NGD_KV_GROUPS_MAX)
        return ngd_diag_set(diag, NGD_ERR_MODEL_CONTRACT,
                            "the contract has %" PRIu32 " groups of layers; at most %d are allowed",
                            params->contract.n_more_groups + 1, NGD_KV_GROUPS_MAX);
    for (ngd_role_t role = 0; role < NGD_ROLE_MAX && !status; role++)
        status = resolve_role(&c, role);
    if (status)
        return status;
    c.roles.result_per_row = !decode && c.roles.index[NGD_ROLE_LOGITS_ROWS] < 0;
    c.roles.hidden_per_row = !decode && (c.roles.result_per_row || params->contract.pooling == NGD_POOLING_MEAN);
    for (ngd_role_t role = 0; role < NGD_ROLE_MAX && !status; role++) {
        int index = c.roles.index[role];

        if (index >= 0)
            status = check_role_type(&c, role, label_of(&params->contract, role),
                                     role_value(&c, ngd_role_infos[role].kind, index));
    }
    if (!status && c.roles.index[NGD_ROLE_HIDDEN] >= 0)
        status = take_hidden_size(&c);
    if (!status)
        status = check_sampling_roles(&c);
    if (!status)
        status = check_block_tables(&c);
    if (!status)
        status = check_cover(&c, NGD_ROLE_INPUT, c.graph->n_inputs);
    if (!status)
        status = check_cover(&c, NGD_ROLE_HOST, c.graph->n_hosts);
    if (!status)
        *roles_p = c.roles;
    return status;
}

/* ---- states ------------------------------------------------------------------------------------------- */

static ngd_status_t check_state(const struct ngd_model_params *p, const struct ngd_binding *binding, const char *which,
                                const char *label, struct ngd_buffer **buf_p, struct ngd_diag *diag)
{
    const struct ngd_graph *graph = ngd_program_graph(ngd_binding_program(binding));
    int index = ngd_graph_find_input(graph, NGD_VALUE_STATE, label);
    const struct ngd_type *type;
    struct ngd_strbuf sb;

    if (index < 0)
        return ngd_diag_set(diag, NGD_ERR_MODEL_CONTRACT, "kv_states: the %s graph has no state labelled \"%.100s\"",
                            which, label);
    *buf_p = binding->buffers[graph->n_params + (uint32_t)index];
    type = &graph->values[graph->states[index]].type;
    if (type->rank >= 2 && type->dims[0] == (ngd_dim_t)p->num_blocks &&
        (type->dims[1] == (ngd_dim_t)p->block_size ||
         (type->rank == 3 && type->dims[2] == (ngd_dim_t)p->block_size))) /* scales of each head's rows */
        return NGD_OK;
    ngd_strbuf_init(&sb);
    ngd_type_print(graph, type, &sb);
    ngd_diag_set(
        diag, NGD_ERR_MODEL_CONTRACT,
        "kv_states: state \"%.100s\" of the %s graph is %s; its first dimensions must be num_blocks and block_size, "
        "%" PRIu32 " and %" PRIu32 "; of scales, block_size may be the last of three",
        label, which, ngd_strbuf_str(&sb), p->num_blocks, p->block_size);
    ngd_strbuf_fini(&sb);
    return NGD_ERR_MODEL_CONTRACT;
}

static ngd_status_t check_state_count(const struct ngd_model_params *p, const struct ngd_binding *binding,
                                      const char *which, struct ngd_diag *diag)
{
    const struct ngd_graph *graph = ngd_program_graph(ngd_binding_program(binding));

    for (uint32_t i = 0; i < graph->n_states; i++) {
        const struct ngd_value *v = &graph->values[graph->states[i]];
        bool listed = false;

        for (uint32_t k = 0; k < p->contract.n_kv_states && !listed; k++)
            listed = ngd_graph_find_input(graph, NGD_VALUE_STATE, p->contract.kv_states[k]) == (int)i;
        if (!listed)
            return ngd_diag_set(
                diag, NGD_ERR_MODEL_CONTRACT,
                "state \"%.100s\" of the %s graph is not among kv_states; sequences can share no other state", v->label,
                which);
    }
    return NGD_OK;
}

/* Checks the states of one rank, whose bindings these are. */
static ngd_status_t check_rank_states(const struct ngd_model_params *params, const struct ngd_binding *prefill,
                                      const struct ngd_binding *decode, struct ngd_diag *diag)
{
    ngd_status_t status;

    for (uint32_t i = 0; i < params->contract.n_kv_states; i++) {
        const char *label = params->contract.kv_states[i];
        struct ngd_buffer *a, *b;

        status = check_state(params, prefill, "prefill", label, &a, diag);
        if (!status)
            status = check_state(params, decode, "decode", label, &b, diag);
        if (status)
            return status;
        if (!ngd_buffer_same(a, b))
            return ngd_diag_set(diag, NGD_ERR_MODEL_CONTRACT,
                                "kv_states: \"%.100s\" is bound to different buffers in the two graphs", label);
    }
    status = check_state_count(params, prefill, "prefill", diag);
    return status ? status : check_state_count(params, decode, "decode", diag);
}

ngd_status_t ngd_contract_check_states(const struct ngd_model_params *params, struct ngd_diag *diag)
{
    const uint32_t n = ngd_binding_ranks(params->decode); /* prefill has as many: model.c */
    ngd_status_t status = NGD_OK;

    for (uint32_t r = 0; r < n && !status; r++) {
        status =
            check_rank_states(params, ngd_binding_rank(params->prefill, r), ngd_binding_rank(params->decode, r), diag);
        if (status && n > 1)
            ngd_diag_prefix(diag, "rank %" PRIu32 ": ", r);
    }
    return status;
}

/* ---- windows ------------------------------------------------------------------------------------------ */

static bool node_has(const struct ngd_node *node, uint32_t value)
{
    for (uint32_t k = 0; k < node->n_in; k++)
        if (node->in[k] == value)
            return true;
    return false;
}

/* Returns the value of an integer attribute, or -1 if the operator has no such one. */
static int64_t attribute_of(const struct ngd_node *node, const char *name)
{
    const int i = ngd_op_attr_index(node->op, name, strlen(name));

    return i >= 0 && node->op->attrs[i].type == NGD_ATTR_INT ? node->attrs[i].i : -1;
}

/* Returns the keys that a row of this node sees at most, or 0. */
static uint32_t window_of_node(const struct ngd_node *node)
{
    const int64_t before = attribute_of(node, "pre_tokens");

    return attribute_of(node, "sparse_mode") == 4 && before >= 0 && before < INT32_MAX ? (uint32_t)before + 1 : 0;
}

/* Returns the widest window of those nodes of a graph that have the table, or 0. */
static uint32_t window_of_table(const struct ngd_graph *g, uint32_t table)
{
    uint32_t widest = 0;

    for (uint32_t i = 0; i < g->n_nodes; i++) {
        const uint32_t window = window_of_node(&g->nodes[i]);

        if (!node_has(&g->nodes[i], table))
            continue;
        if (!window)
            return 0;
        widest = window > widest ? window : widest;
    }
    return widest;
}

static const struct ngd_graph *contract_graph(const struct ngd_binding *binding)
{
    return ngd_program_graph(ngd_binding_program(binding));
}

/* Returns the value of the group's input in a graph whose contract was checked. */
static uint32_t group_value(const struct ngd_graph *g, const struct ngd_decode_contract *c, ngd_role_t role)
{
    return g->inputs[find_labelled(g, NGD_ROLE_INPUT, label_of(c, role))];
}

uint32_t ngd_contract_window(const struct ngd_model_params *params, uint32_t group)
{
    const struct ngd_graph *graphs[2] = {contract_graph(params->prefill), contract_graph(params->decode)};
    uint32_t widest = 0;

    for (int i = 0; i < 2; i++) {
        const uint32_t window =
            window_of_table(graphs[i], group_value(graphs[i], &params->contract, ngd_role_table(group)));

        if (!window)
            return 0;
        widest = window > widest ? window : widest;
    }
    return widest < params->max_context ? widest : 0;
}

/* ---- drafts ------------------------------------------------------------------------------------------- */

static bool node_mutates_state(const struct ngd_node *node, uint32_t state)
{
    for (uint32_t k = 0; k < node->n_in; k++)
        if (node->in[k] == state)
            return node->op->mutates >> k & 1;
    return false;
}

/* Returns true if the first node that uses the value writes it. */
static bool written_first(const struct ngd_graph *g, uint32_t value)
{
    for (uint32_t i = 0; i < g->n_nodes; i++)
        if (node_has(&g->nodes[i], value))
            return node_mutates_state(&g->nodes[i], value);
    return false;
}

/* The same for a state that layers of several groups use: each group writes its own blocks of it. */
static bool group_writes_first(const struct ngd_graph *g, const struct ngd_decode_contract *c, uint32_t group,
                               uint32_t state)
{
    const uint32_t slots = group_value(g, c, ngd_role_slots(group)), table = group_value(g, c, ngd_role_table(group));

    for (uint32_t i = 0; i < g->n_nodes; i++)
        if (node_has(&g->nodes[i], state) && (node_has(&g->nodes[i], slots) || node_has(&g->nodes[i], table)))
            return node_mutates_state(&g->nodes[i], state);
    return true;
}

bool ngd_contract_writes_first(const struct ngd_model_params *params)
{
    const struct ngd_graph *g = contract_graph(params->decode);
    const struct ngd_decode_contract *c = &params->contract;

    for (uint32_t i = 0; i < g->n_states; i++) {
        if (!written_first(g, g->states[i]))
            return false;
        for (uint32_t group = 0; group <= c->n_more_groups && c->n_more_groups; group++)
            if (!group_writes_first(g, c, group, g->states[i]))
                return false;
    }
    return true;
}
