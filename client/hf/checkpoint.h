/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NPUGRAPH_CHECKPOINT_H
#define NPUGRAPH_CHECKPOINT_H

/*
 * Hugging Face checkpoints of decoder models: what a family of models (client/hf/families) makes of config.json, which
 * are the weights, the KV caches, the rotary tables and the text of two graphs. The daemon knows nothing of
 * checkpoints: it gets the graphs and a decode contract.
 */
#include "base/strbuf.h"
#include "client/lib/npugraph.h"
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#define NPUGRAPH__MAX_STOP 16
#define NPUGRAPH__GROUP    "tp" /* the group of ranks that a model on several devices has */

/* ---- weights ---- */

/* How ranks divide a weight. */
enum npugraph__split {
    NPUGRAPH__WHOLE,   /* each rank has all of it */
    NPUGRAPH__ROWS,    /* each rank has some of its rows */
    NPUGRAPH__COLUMNS, /* each rank has some of its columns */
    NPUGRAPH__FIRST,   /* only rank 0 has it, since it would be added once for each rank otherwise */
};

/* What a weight's elements are, and what is done with them when they are loaded. */
struct npugraph__kind {
    const char *name;   /* for families */
    const char *dtype;  /* of the loaded tensor; NULL: f32, f16 or bf16, as the file has it */
    const char *change; /* struct npugraph_slice has it; NULL: none */
    uint32_t numbers;   /* that an element has; 0: it is no parameter of the model */
    bool group_index;   /* it says in which group each column of another weight is */
};
/* Returns the kind with a name; NULL: there is none. */
const struct npugraph__kind *npugraph__kind_find(const char *name);

#define NPUGRAPH__DIMS 4 /* of a weight, at most */

/* A weight of the model, as a rank of a tensor-parallel group has it. A single device has all of it. */
struct npugraph__weight {
    char name[96];
    char stored[128];              /* its name in the file */
    uint32_t rank;                 /* dimensions */
    int64_t full[NPUGRAPH__DIMS];  /* shape of all ranks' together */
    int64_t shape[NPUGRAPH__DIMS]; /* shape on this rank */
    int64_t begin;                 /* where the rank's slice begins in the dimension that is divided */
    enum npugraph__split split;
    const struct npugraph__kind *kind;
    bool absent; /* this rank does not have it */
    /* A group index has the next four. */
    size_t group;      /* columns of a group */
    bool fixed;        /* the load fails unless groups lie side by side */
    int32_t *order;    /* after loading: the columns in the order of groups; NULL: they are in it */
    size_t same_order; /* 1 + the number of an earlier group index with this order, whose parameter serves; 0: none */
    size_t ordered_by; /* 1 + the number of the weight's group index; 0: it has none */
    bool apart;        /* made() reads it; the model's graphs do not */
    const char *file;  /* shard, below the directory */
    char dtype[16];    /* of floats after loading; the graph's text needs it */
    uint64_t buffer;   /* after loading; 0 = not yet */
    uint64_t bytes;
};
struct npugraph__weights {
    struct npugraph__weight *items;
    size_t n;
    json_t *by_name; /* numbers of items */
    char **files;    /* distinct shards */
    size_t n_files;
};
/* Returns the number of elements that all ranks have together. */
double npugraph__weight_elements(const struct npugraph__weight *w);
/* Changes the list to what rank `rank` of `ranks` has, without buffers. */
void npugraph__weights_divide(struct npugraph__weights *weights, uint32_t rank, uint32_t ranks);
/* Says that it is a parameter of a graph: a group index is one if columns have another order than groups. */
bool npugraph__weight_is_param(const struct npugraph__weight *w);
struct npugraph__weight *npugraph__weights_find(const struct npugraph__weights *weights, const char *name);
struct npugraph__weight *npugraph__weights_stored(const struct npugraph__weights *weights, const char *name);

/* A weight that is made of others, once, when they are loaded. */
struct npugraph__made {
    char label[96];
    char dtype[16]; /* once a graph is written */
    int64_t rows, columns;
};

/* ---- what a layer keeps, and tables ---- */

/*
 * The KV cache of a layer: two states of [blocks, rows of a block, heads, dim], for keys and for values. Caches in i8
 * and f8 have two more, [blocks, heads, rows of a block], for the scales of keys and of values. The heads are those of
 * a rank.
 */
#define NPUGRAPH__CACHE_STATES 4
struct npugraph__cache {
    char label[NPUGRAPH__CACHE_STATES][32];
    int64_t heads, dim[2];
    int64_t window; /* keys that a row of the layer sees, itself among them; 0: all */
    bool placed;    /* the family has given the window, and uses the slots and the table that cache() returns */
    bool scaled;    /* the family uses the scales that cache() returns for a cache in i8 or f8 */
};

enum npugraph__rope_kind { ROPE_DEFAULT, ROPE_LINEAR, ROPE_LLAMA3, ROPE_YARN, ROPE_LONG, ROPE_GIVEN };

/* Rotary tables: two parameters f32[max_context, dim], cosines and sines. Frequencies are those of transformers'
 * modeling_rope_utils. */
struct npugraph__rope {
    char label[2][32]; /* of cosines and sines */
    int64_t dim;
    enum npugraph__rope_kind kind;
    double theta, factor;
    double low_freq, high_freq;  /* llama3 */
    double original;             /* llama3, yarn: the positions that the model was trained with */
    double beta_fast, beta_slow; /* yarn */
    bool truncate;               /* yarn: the ramp begins and ends at whole dimensions */
    double scale;                /* of cosines and sines; yarn, longrope */
    double *factors;             /* longrope: one for each pair of dimensions; given: the frequencies themselves */
};
/* Computes a table for positions 0..max_context-1, in f32 as transformers does. */
void npugraph__rope_table(const struct npugraph__rope *rope, uint32_t max_context, float *cos_out, float *sin_out);

/* ---- the checkpoint ---- */

/* How a file names the tensors that families call "model.layers.0..." and "lm_head.weight". Files of models that read
 * images too have the last two: BEHIND is that of transformers before 4.52, INSIDE that of later ones. */
enum npugraph__names {
    NAMES_WHOLE,  /* by these names */
    NAMES_BARE,   /* without "model." in front */
    NAMES_BEHIND, /* with "language_model." in front */
    NAMES_INSIDE, /* with "model.language_model." for "model." */
};

struct npugraph__checkpoint {
    char architecture[64];
    int64_t vocab, hidden, layers, positions;
    struct npugraph__weights weights;
    struct npugraph__made *made;
    size_t n_made;
    struct npugraph__cache *caches;
    size_t n_caches;
    struct npugraph__rope *ropes;
    size_t n_ropes;
    int32_t stop[NPUGRAPH__MAX_STOP];
    uint32_t n_stop;
    uint32_t ranks;
    char backend[32]; /* of the device, "ascend"; empty: not known */
    json_t *config;
    const json_t *fields; /* of config, or of its text_config */
    char *own_source;     /* of the family that lies beside the weights, DIR/npugraph.lua; NULL: there is none */
    size_t own_len;
    struct npugraph__gguf *gguf; /* NULL: safetensors */
    bool headless;               /* for embeddings alone: no weights choose tokens, and there is no graph of steps */
    bool unit;                   /* embeddings have the length 1 */
    enum npugraph__names names;  /* of the file; of a file without an index those that are tried now */
    bool parts;                  /* the file has parts for images or sound, too */
    bool has_head;               /* such a file has an lm_head.weight */
    enum npugraph_pooling pooling;
};

/*
 * Groups of layers that see the same keys, each with a block table of its own: kv_groups.c. A block has a place in
 * `states` pairs of states, one for each layer of its group.
 */
#define NPUGRAPH__KV_GROUPS 8
struct npugraph__groups {
    uint32_t n;      /* 0 or 1: all layers are in one group, and each has states of its own */
    uint32_t states; /* if there are several */
    int64_t windows[NPUGRAPH__KV_GROUPS];
};

/* Sizes of the graphs, chosen by the caller. */
struct npugraph__shape {
    uint32_t max_context, block_size, num_blocks, table_blocks, max_batch, prefill_chunk;
    uint32_t prefill_seqs; /* sequences of which a prompts' replay takes rows */
    const char *kv_dtype;  /* as the graph's text has it */
    struct npugraph__groups groups;
};

/* States of a layer's cache: 2 of floats, 4 with scales. */
size_t npugraph__cache_states(const struct npugraph__shape *shape);

/* What a checkpoint is read for. */
struct npugraph__purpose {
    uint32_t ranks;      /* devices that divide it */
    bool embedding;      /* without its head, as a checkpoint that has none or is for embeddings is read in any case */
    const char *backend; /* of these devices; NULL: not known */
};

/*
 * Reads a GGUF file, or DIR/config.json, and has the model's family describe it.
 * Reads the stop tokens (generation_config.json has them first) and the index of shards. The caller frees *ck_p. Fails
 * with the field of config.json that is wrong or not supported, or with the line of the family's file.
 */
int npugraph__checkpoint_read(const char *path, const struct npugraph__purpose *purpose,
                              struct npugraph__checkpoint **ck_p, struct npugraph_error *err);
/* The same for the text of a config.json alone; weights have no shards then. */
int npugraph__checkpoint_parse(const char *config, size_t len, uint32_t ranks, struct npugraph__checkpoint **ck_p,
                               struct npugraph_error *err);
/*
 * Reads what a directory's modules.json says of embeddings, as sentence-transformers writes it: headless, pooling,
 * unit. Refuses what is not supported by its name. Without modules.json nothing changes.
 */
int npugraph__embedding_read(const char *dir, struct npugraph__checkpoint *ck, struct npugraph_error *err);
/* DIR/FILE as a JSON value; NULL: it is not there, or *err says what is wrong with it. */
json_t *npugraph__read_json(const char *dir, const char *file, struct npugraph_error *err);
/* Sets has_head if the files of a directory have a head by any of the names. It stays set. dir: NULL changes nothing.
 */
void npugraph__find_head(struct npugraph__checkpoint *ck, const char *dir);
/* Has all weights be found by other names, the next ones of enum npugraph__names. tries: how many have been tried.
 * Returns false if those were all. */
bool npugraph__weights_rename(struct npugraph__checkpoint *ck, int tries);
/* What errors call the file that has the fields. */
const char *npugraph__config_name(const struct npugraph__checkpoint *ck);
void npugraph__checkpoint_free(struct npugraph__checkpoint *ck);
/* Appends the text of the graph for prefill or for decode steps, of the rank that the weights were divided for. */
int npugraph__checkpoint_graph(const struct npugraph__checkpoint *ck, const struct npugraph__shape *shape,
                               const char *name, bool prefill, struct ngd_strbuf *sb, struct npugraph_error *err);
/* Appends the text of the graph that makes what ck->made names: states, which one replay writes. */
int npugraph__checkpoint_made_graph(const struct npugraph__checkpoint *ck, const char *name, struct ngd_strbuf *sb,
                                    struct npugraph_error *err);

#endif
