/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each rule of attention_rules.def on the simulator: calls that keep all of them are taken, and a call that breaks one
 * is refused with 561002 and the rule's name. First phases only, so that no memory is needed.
 */
#include "devices/ascend/acl.h"
#include "devices/ascend/attention.h"
#include "tests/backend/simulator.h"
#include "tests/unit/unit.h"

#define LENGTHS_MOST 4

struct call {
    bool tnd;
    int dtype;
    int64_t batches, rows, heads, kv_heads, d, block, blocks, cache_block, table_rows, table_width, sparse_mode, mask;
    int64_t queries[LENGTHS_MOST], contexts[LENGTHS_MOST];
    uint64_t n_queries, n_contexts;
    int64_t rope, rope_block; /* 0: none; of the block size of the cache */
};

static const struct call decode = {.dtype = NGD_ACL_FLOAT16,
                                   .batches = 2,
                                   .rows = 1,
                                   .heads = 4,
                                   .kv_heads = 2,
                                   .d = 64,
                                   .block = 128,
                                   .blocks = 8,
                                   .cache_block = 128,
                                   .table_rows = 2,
                                   .table_width = 2,
                                   .contexts = {100, 200},
                                   .n_contexts = 2};
static const struct call prefill = {.dtype = NGD_ACL_BF16,
                                    .batches = 2,
                                    .rows = 5,
                                    .heads = 4,
                                    .kv_heads = 2,
                                    .d = 48,
                                    .block = 128,
                                    .blocks = 8,
                                    .cache_block = 128,
                                    .table_rows = 2,
                                    .table_width = 2,
                                    .sparse_mode = 3,
                                    .mask = 2048,
                                    .queries = {5, 3},
                                    .contexts = {100, 200},
                                    .n_queries = 2,
                                    .n_contexts = 2};
static const struct call ragged = {.tnd = true,
                                   .dtype = NGD_ACL_BF16,
                                   .rows = 8,
                                   .heads = 4,
                                   .kv_heads = 2,
                                   .d = 128,
                                   .block = 128,
                                   .blocks = 8,
                                   .cache_block = 128,
                                   .table_rows = 2,
                                   .table_width = 2,
                                   .sparse_mode = 3,
                                   .mask = 2048,
                                   .queries = {5, 8},
                                   .contexts = {100, 200},
                                   .n_queries = 2,
                                   .n_contexts = 2};

/* ---- one first phase ----------------------------------------------------------------------------------- */

static struct aclTensor *tensor(const struct ngd_acl *acl, int dtype, uint64_t rank, const int64_t *dims)
{
    int64_t elements = 1;

    for (uint64_t i = 0; i < rank; i++)
        elements *= dims[i];
    return acl->aclCreateTensor(dims, rank, dtype, NULL, 0, NGD_ACL_FORMAT_ND, &elements, 1, NULL);
}

static ngd_acl_error_t ask(const struct ngd_acl *acl, const struct call *c)
{
    const int64_t rows[3] = {c->tnd ? c->rows : c->batches, c->tnd ? c->heads : c->rows,
                             c->tnd ? c->d : c->heads * c->d};
    const int64_t cache[3] = {c->blocks, c->cache_block, c->kv_heads * c->d};
    const int64_t table[2] = {c->table_rows, c->table_width}, mask[2] = {c->mask, c->mask};
    struct aclTensor *q = tensor(acl, c->dtype, 3, rows), *y = tensor(acl, c->dtype, 3, rows),
                     *t = tensor(acl, NGD_ACL_INT32, 2, table),
                     *m = c->mask ? tensor(acl, NGD_ACL_BOOL, 2, mask) : NULL;
    const struct aclTensor *k = tensor(acl, c->dtype, 3, cache), *v = tensor(acl, c->dtype, 3, cache);
    struct aclTensorList *keys = acl->aclCreateTensorList(&k, 1), *values = acl->aclCreateTensorList(&v, 1);
    struct aclIntArray *queries = c->n_queries ? acl->aclCreateIntArray(c->queries, c->n_queries) : NULL,
                       *contexts = acl->aclCreateIntArray(c->contexts, c->n_contexts);
    const int64_t q_rope[3] = {c->batches, c->rows, c->heads * c->rope};
    const int64_t k_rope[3] = {c->blocks, c->rope_block ? c->rope_block : c->cache_block, c->kv_heads * c->rope};
    struct aclTensor *qr = c->rope ? tensor(acl, c->dtype, 3, q_rope) : NULL,
                     *kr = c->rope ? tensor(acl, c->dtype, 3, k_rope) : NULL;
    struct aclOpExecutor *executor = NULL;
    char layout[] = "BSH", ragged_layout[] = "TND";
    uint64_t workspace = 0;
    ngd_acl_error_t code = acl->aclnnFusedInferAttentionScoreV3GetWorkspaceSize(
        q, keys, values, NULL, m, queries, contexts, NULL, NULL, NULL, NULL, NULL, NULL, NULL, t, NULL, NULL, NULL,
        NULL, NULL, NULL, NULL, NULL, NULL, qr, kr, NULL, c->heads, 1, INT32_MAX, INT32_MAX,
        c->tnd ? ragged_layout : layout, c->kv_heads, c->sparse_mode, 0, c->block, 0, false, 0, 0, y, NULL, &workspace,
        &executor);

    if (!code) {
        acl->aclSetAclOpExecutorRepeatable(executor);
        acl->aclDestroyAclOpExecutor(executor);
    }
    acl->aclDestroyTensor(q);
    acl->aclDestroyTensor(y);
    acl->aclDestroyTensor(t);
    if (m)
        acl->aclDestroyTensor(m);
    if (c->rope) {
        acl->aclDestroyTensor(qr);
        acl->aclDestroyTensor(kr);
    }
    acl->aclDestroyTensorList(keys);
    acl->aclDestroyTensorList(values);
    if (queries)
        acl->aclDestroyIntArray(queries);
    acl->aclDestroyIntArray(contexts);
    return code;
}

/* ---- calls that break one rule --------------------------------------------------------------------------- */

static const char *const names[] = {
#define NGD_ATTENTION_RULE(name, branches, holds, text, source) #name,
#include "devices/ascend/attention_rules.def"
#undef NGD_ATTENTION_RULE
};
#define RULES (sizeof(names) / sizeof(names[0]))
static bool broken[RULES];

static void refused(const struct ngd_acl *acl, const struct call *c, const char *name)
{
    char rule[80];
    const char *text;

    ck_assert_int_eq(ask(acl, c), NGD_ACL_NN_INNER_TILING);
    text = acl->aclGetRecentErrMsg();
    snprintf(rule, sizeof(rule), "(rule %s, ", name);
    ck_assert_msg(text && strstr(text, rule), "%s is not in: %s", rule, text ? text : "no text");
    for (size_t i = 0; i < RULES; i++)
        broken[i] |= strcmp(names[i], name) == 0;
}

#define REFUSED(name, base, ...) \
    do {                         \
        struct call c = base;    \
                                 \
        __VA_ARGS__;             \
        refused(acl, &c, name);  \
    } while (0)

static void break_rules_of_all(const struct ngd_acl *acl)
{
    REFUSED("DTYPE", decode, c.dtype = NGD_ACL_FLOAT);
    REFUSED("HEADS", decode, c.kv_heads = 3);
    REFUSED("HEAD_MOST", decode, c.d = 528);
    REFUSED("CACHE", decode, c.cache_block = 64);
    REFUSED("HIDDEN", decode, c.heads = c.kv_heads = 256, c.d = 512);
    REFUSED("TABLE", decode, c.table_rows = 3);
    REFUSED("BATCHES", decode, c.batches = c.table_rows = 65537, c.n_contexts = 1);
    REFUSED("CONTEXTS", decode, c.batches = c.table_rows = 3);
    REFUSED("CONTEXT_LEAST", decode, c.contexts[1] = -1);
    REFUSED("CONTEXT_MOST", decode, c.contexts[1] = 257);
    REFUSED("MASK", decode, c.sparse_mode = 3, c.mask = 1024);
    REFUSED("MASK", prefill, c.mask = 0);
}

static void break_rules_of_bsh(const struct ngd_acl *acl)
{
    REFUSED("DECODE_BLOCK", decode, c.block = c.cache_block = 104);
    REFUSED("DECODE_BLOCK", decode, c.block = c.cache_block = 1024);
    REFUSED("DECODE_KV_HEADS", decode, c.heads = c.kv_heads = 257, c.d = 16);
    REFUSED("PROMPT_BLOCK", prefill, c.block = c.cache_block = 64, c.table_width = 8);
    REFUSED("PROMPT_BLOCK", prefill, c.block = c.cache_block = 1152);
    REFUSED("PROMPT_HEAD", prefill, c.d = 40);
    REFUSED("PROMPT_CACHE", prefill, c.blocks = 2);
    REFUSED("PREFILL_QUERIES", prefill, c.batches = c.table_rows = 3, c.n_contexts = 3);
    REFUSED("PREFILL_QUERY_MOST", prefill, c.queries[0] = 6);
}

static void break_rules_of_latents(const struct ngd_acl *acl)
{
    struct call latent = decode;

    latent.d = 512;
    latent.kv_heads = 1;
    latent.rope = 64;
    ck_assert_int_eq(ask(acl, &latent), 0);
    REFUSED("LATENT_HEAD", latent, c.rope = 32);
    REFUSED("LATENT_HEAD", latent, c.d = 256);
    REFUSED("LATENT_HEADS", latent, c.heads = 24);
    REFUSED("LATENT_HEADS", latent, c.heads = 256);
    REFUSED("LATENT_HEADS", latent, c.kv_heads = 2);
    REFUSED("LATENT_CACHE", latent, c.rope_block = 64);
    REFUSED("LATENT_BLOCK", latent, c.block = c.cache_block = 32, c.table_width = 8);
    REFUSED("LATENT_MASK", latent, c.mask = 2048);
    simulator_set("api", "8.1");
    REFUSED("LATENT_8_1", latent, (void)0);
    simulator_set("api", "9.1");
}

static void break_rules_of_tnd(const struct ngd_acl *acl)
{
    REFUSED("PROMPT_BLOCK", ragged, c.block = c.cache_block = 16, c.table_width = 16);
    REFUSED("PROMPT_CACHE", ragged, c.blocks = 2);
    REFUSED("RAGGED_DTYPE", ragged, c.dtype = NGD_ACL_FLOAT16);
    REFUSED("RAGGED_HEAD", ragged, c.d = 32);
    REFUSED("RAGGED_GROUP", ragged, c.d = 192);
    REFUSED("RAGGED_SPARSE", ragged, c.sparse_mode = 2);
    REFUSED("RAGGED_LENGTHS", ragged, c.n_queries = 1, c.table_rows = 1, c.queries[0] = 8);
    REFUSED("RAGGED_ORDER", ragged, c.queries[0] = 9);
    REFUSED("RAGGED_LAST", ragged, c.rows = 9);
    REFUSED("RAGGED_ROWS", ragged, c.rows = c.queries[1] = 1048577);
    REFUSED("RAGGED_CONTEXT", ragged, c.contexts[0] = 4);
    REFUSED("RAGGED_NONE", ragged, c.contexts[0] = c.contexts[1] = 0, c.sparse_mode = c.mask = 0);
}

static void break_rules_of_versions(const struct ngd_acl *acl)
{
    simulator_set("soc", "Ascend310P3");
    REFUSED("CHIP", decode, (void)0);
    simulator_set("soc", "Ascend910B4");
    simulator_set("api", "8.3");
    REFUSED("RAGGED_HEAD", ragged, c.d = 64);
    simulator_set("api", "8.1");
    REFUSED("PREFILL_8_1", prefill, c.dtype = NGD_ACL_FLOAT16);
    REFUSED("RAGGED_8_1", ragged, (void)0);
    ck_assert_int_eq(ask(acl, &decode), 0);
    ck_assert_int_eq(ask(acl, &prefill), 0);
    simulator_set("api", "9.1");
}

START_TEST(each_rule_of_attention_is_refused_where_it_is_broken_and_only_there)
{
    struct call half = prefill, narrow = ragged;
    const struct ngd_acl *acl;
    struct ngd_diag diag = {0};

    simulator_set("soc", "Ascend910B4");
    ck_assert_msg(ngd_acl_load(simulator_dir(), NULL, &acl, &diag) == NGD_OK, "%s", diag.text);
    half.dtype = NGD_ACL_FLOAT16;
    narrow.d = 64;
    ck_assert_int_eq(ask(acl, &decode), 0);
    ck_assert_int_eq(ask(acl, &prefill), 0);
    ck_assert_int_eq(ask(acl, &ragged), 0);
    ck_assert_int_eq(ask(acl, &half), 0);
    ck_assert_int_eq(ask(acl, &narrow), 0);
    break_rules_of_all(acl);
    break_rules_of_bsh(acl);
    break_rules_of_latents(acl);
    break_rules_of_tnd(acl);
    break_rules_of_versions(acl);
    for (size_t i = 0; i < RULES; i++)
        ck_assert_msg(broken[i], "no call breaks rule %s", names[i]);
    ck_assert_int_eq(simulator_count("operands"), 0);
    ck_assert_int_eq(simulator_count("executors"), 0);
    ngd_acl_unload(acl);
}
END_TEST

START_TEST(chips_are_told_by_the_name_of_the_soc)
{
    ck_assert_int_eq(ngd_chip_by_soc("Ascend910B4-1"), NGD_CHIP_910B);
    ck_assert_int_eq(ngd_chip_by_soc("Ascend910_9382"), NGD_CHIP_910C);
    ck_assert_int_eq(ngd_chip_by_soc("Ascend910_9589"), NGD_CHIP_910_95);
    ck_assert_int_eq(ngd_chip_by_soc("Ascend310P3"), NGD_CHIP_310P);
    ck_assert_int_eq(ngd_chip_by_soc("Ascend950PR"), NGD_CHIP_950);
    ck_assert_int_eq(ngd_chip_by_soc("Ascend999"), NGD_CHIP_UNKNOWN);
    ck_assert_int_eq(ngd_chip_by_soc(NULL), NGD_CHIP_UNKNOWN);
}
END_TEST

UNIT_MAIN("ascend/aclsim_attention", each_rule_of_attention_is_refused_where_it_is_broken_and_only_there,
          chips_are_told_by_the_name_of_the_soc)
