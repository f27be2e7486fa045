/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NPUGRAPH_CHECKPOINT_H
#define NPUGRAPH_CHECKPOINT_H

/*
 * Hugging Face checkpoints of decoder models: reads config.json, lists the tensors that it implies, and writes the
 * graphs. The daemon knows nothing of checkpoints: it gets two graphs and a decode contract.
 * The definitions are Qwen3ForCausalLM and LlamaForCausalLM of the transformers library (modeling_qwen3,
 * modeling_llama, modeling_rope_utils).
 */
#include "base/strbuf.h"
#include "client/lib/npugraph.h"
#include <stdbool.h>
#include <stdint.h>

#define NPUGRAPH__MAX_STOP 16

enum npugraph__rope { ROPE_DEFAULT, ROPE_LINEAR, ROPE_LLAMA3 };

struct npugraph__config {
    char architecture[48];
    int64_t vocab, hidden, layers, heads, kv_heads, head_dim, ffn, max_positions;
    double rms_eps, rope_theta;
    bool tied, qk_norm, attention_bias, mlp_bias;
    enum npugraph__rope rope;
    double rope_factor, rope_low_freq, rope_high_freq, rope_original;
    int32_t stop[NPUGRAPH__MAX_STOP];
    uint32_t n_stop;
};

/* Reads DIR/config.json, and the stop tokens of generation_config.json. Refuses, by name, what is not supported. */
int npugraph__config_read(const char *dir, struct npugraph__config *config_p, struct npugraph_error *err);

/* A weight that the architecture needs, as a rank of a tensor-parallel group has it. A single device has all of it. */
struct npugraph__weight {
    char name[96];
    int64_t full[2];  /* shape in the file */
    int64_t shape[2]; /* shape on this rank */
    int64_t begin;    /* where the rank's slice begins in dimension `split` */
    int split;        /* dimension that ranks divide; -1: each rank has all of it */
    bool first;       /* only rank 0 has it, since it would be added once for each rank otherwise */
    bool absent;      /* this rank does not have it */
    uint32_t rank;
    const char *file; /* shard, below the directory */
    char dtype[8];    /* after loading */
    uint64_t buffer;  /* after loading; 0 = not yet */
    uint64_t bytes;
};
struct npugraph__weights {
    struct npugraph__weight *items;
    size_t n;
    char **files; /* distinct shards */
    size_t n_files;
};
/* Lists the weights of the config, with the shard of each from the index (without an index: model.safetensors). */
int npugraph__weights_list(const char *dir, const struct npugraph__config *config, struct npugraph__weights *weights_p,
                           struct npugraph_error *err);
/* Changes the list to what rank `rank` of `ranks` has, without buffers. npugraph__config_divide has checked that the
 * config's heads and ffn divide. */
void npugraph__weights_divide(struct npugraph__weights *weights, uint32_t rank, uint32_t ranks);
/* Computes the config of one rank: its heads, KV heads and ffn. Fails if they do not divide by `ranks`. */
int npugraph__config_divide(const struct npugraph__config *config, uint32_t ranks, struct npugraph__config *part_p,
                            struct npugraph_error *err);
void npugraph__weights_fini(struct npugraph__weights *weights);
struct npugraph__weight *npugraph__weights_find(const struct npugraph__weights *weights, const char *name);

#define NPUGRAPH__GROUP "tp"

/* Sizes of the graphs, chosen by the caller. */
struct npugraph__shape {
    uint32_t max_context, block_size, num_blocks, table_blocks, max_batch, prefill_chunk;
    uint32_t
        ranks; /* above 1: the graph is for one rank of group NPUGRAPH__GROUP, with the rank's config and weights */
    const char *kv_dtype;
};

/* Computes the cos and sin tables f32[max_context, head_dim], as transformers does in f32. */
void npugraph__rope_tables(const struct npugraph__config *config, uint32_t max_context, float *cos_out, float *sin_out);
void npugraph__kv_label(char *to, size_t room, int64_t layer, bool value);
/* Appends the text of the graph for prefill or for decode steps. */
void npugraph__graph_text(const struct npugraph__config *config, const struct npugraph__weights *weights,
                          const struct npugraph__shape *shape, const char *name, bool prefill, struct ngd_strbuf *sb);

#endif
