/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A library of operators that is found before the simulator's (libcust_opapi.so), and whose attention over a paged
 * cache is odd. With 4 heads for each of the cache, TND with blocks of 128 gives wrong results, and one padded sequence
 * with a head dimension of 64 and blocks of 256 ends the process. With one head in all it never returns. If
 * NGD_ODD_HELPER is a descriptor, a process of its own keeps that open, and nothing else.
 */
#include "devices/ascend/acl_abi.h"
#include <dlfcn.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HELPER_SECONDS 120 /* after which one that nobody ends does so itself */

#pragma GCC visibility push(default)
#define NGD_ACLNN(name, args, since, instead) ngd_acl_error_t aclnn##name##GetWorkspaceSize args;
#include "devices/ascend/aclnn_symbols.def"
#undef NGD_ACLNN
ngd_acl_error_t aclnnFusedInferAttentionScoreV3(void *workspace, uint64_t bytes, struct aclOpExecutor *executor,
                                                void *stream);
#pragma GCC visibility pop

__attribute__((constructor)) static void start_helper(void)
{
    const char *text = getenv("NGD_ODD_HELPER");

    if (!text || fork() != 0)
        return;
    for (int fd = 0; fd < 1024; fd++)
        if (fd != atoi(text))
            close(fd);
    alarm(HELPER_SECONDS);
    for (;;)
        pause();
}

static void *simulated(const char *name)
{
    void *library = dlopen("libopapi.so", RTLD_LAZY | RTLD_NOLOAD);

    return library ? dlsym(library, name) : NULL;
}

/* The probe's scale is 4 / sqrt(D). */
static int is_of_64(double scale)
{
    return fabs(scale - 0.5) < 1e-6;
}

ngd_acl_error_t aclnnFusedInferAttentionScoreV3GetWorkspaceSize(
    const struct aclTensor *query, const struct aclTensorList *key, const struct aclTensorList *value,
    const struct aclTensor *pse_shift, const struct aclTensor *mask, const struct aclIntArray *lengths,
    const struct aclIntArray *lengths_kv, const struct aclTensor *deq_scale1, const struct aclTensor *quant_scale1,
    const struct aclTensor *deq_scale2, const struct aclTensor *quant_scale2, const struct aclTensor *quant_offset2,
    const struct aclTensor *antiquant_scale, const struct aclTensor *antiquant_offset,
    const struct aclTensor *block_table, const struct aclTensor *query_padding, const struct aclTensor *kv_padding,
    const struct aclTensor *key_scale, const struct aclTensor *key_offset, const struct aclTensor *value_scale,
    const struct aclTensor *value_offset, const struct aclTensor *key_prefix, const struct aclTensor *value_prefix,
    const struct aclIntArray *prefix_len, const struct aclTensor *query_rope, const struct aclTensor *key_rope,
    const struct aclTensor *key_rope_scale, int64_t heads, double scale, int64_t pre_tokens, int64_t next_tokens,
    char *layout, int64_t kv_heads, int64_t sparse_mode, int64_t inner_precise, int64_t block_size,
    int64_t antiquant_mode, bool softmax_lse_flag, int64_t key_antiquant_mode, int64_t value_antiquant_mode,
    const struct aclTensor *out, const struct aclTensor *softmax_lse, NGD_ACL_PHASE1)
{
    __typeof__(&aclnnFusedInferAttentionScoreV3GetWorkspaceSize) phase1 =
        (__typeof__(phase1))simulated("aclnnFusedInferAttentionScoreV3GetWorkspaceSize");
    const bool grouped = heads == 4 * kv_heads, odd = grouped && block_size == 256 && is_of_64(scale);

    if (odd && strcmp(layout, "BSH") == 0 && sparse_mode == 3) {
        signal(SIGSEGV, SIG_DFL); /* sanitizers have a handler, which exits */
        raise(SIGSEGV);
    }
    while (heads == 1)
        pause();
    if (grouped && block_size == 128 && strcmp(layout, "TND") == 0)
        scale *= 2;
    return phase1(query, key, value, pse_shift, mask, lengths, lengths_kv, deq_scale1, quant_scale1, deq_scale2,
                  quant_scale2, quant_offset2, antiquant_scale, antiquant_offset, block_table, query_padding,
                  kv_padding, key_scale, key_offset, value_scale, value_offset, key_prefix, value_prefix, prefix_len,
                  query_rope, key_rope, key_rope_scale, heads, scale, pre_tokens, next_tokens, layout, kv_heads,
                  sparse_mode, inner_precise, block_size, antiquant_mode, softmax_lse_flag, key_antiquant_mode,
                  value_antiquant_mode, out, softmax_lse, workspace_p, executor_p);
}

ngd_acl_error_t aclnnFusedInferAttentionScoreV3(void *workspace, uint64_t bytes, struct aclOpExecutor *executor,
                                                void *stream)
{
    ngd_aclnn_run_t run = (ngd_aclnn_run_t)simulated("aclnnFusedInferAttentionScoreV3");

    return run(workspace, bytes, executor, stream);
}
