/* SPDX-License-Identifier: Apache-2.0 */
/* config.json, generation_config.json and the shard index of a Hugging Face checkpoint. */
#include "client/hf/checkpoint.h"
#include "client/lib/error.h"

#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_DIM ((int64_t)1 << 31)

static json_t *read_json(const char *dir, const char *file, bool required, struct npugraph_error *err)
{
    char path[PATH_MAX];
    json_error_t e;
    bool missing;
    json_t *root;

    snprintf(path, sizeof(path), "%s/%s", dir, file);
    root = json_load_file(path, 0, &e);
    if (root != NULL && json_is_object(root))
        return root;
    missing =
        root == NULL && json_error_code(&e) == json_error_cannot_open_file; /* e has a code only after a failure */
    if (required || !missing)
        npugraph__error(err, 3, missing ? "FILE_NOT_FOUND" : "FILE_CORRUPT", "%s: %s", path,
                        root != NULL ? "is not a JSON object" : e.text);
    json_decref(root);
    return NULL;
}

/* ---- fields; the first error is kept -------------------------------------------------------------------- */

struct reader {
    json_t *root;
    struct npugraph_error *err;
    int rc;
};

static void refuse_config(struct reader *r, const char *reason, const char *key, const char *what)
{
    if (r->rc == 0)
        r->rc = npugraph__error(r->err, 3, reason, "config.json: %s %s", key, what);
}

static json_t *config_field(struct reader *r, const char *key)
{
    json_t *v = json_object_get(r->root, key);

    return json_is_null(v) ? NULL : v;
}

static int64_t get_int(struct reader *r, const char *key, int64_t def)
{
    json_t *v = config_field(r, key);

    if (v == NULL && def >= 0)
        return def;
    if (!json_is_integer(v) || json_integer_value(v) < 1 || json_integer_value(v) > MAX_DIM) {
        refuse_config(r, "FILE_CORRUPT", key, v == NULL ? "is missing" : "must be an integer of 1 or more");
        return 1;
    }
    return json_integer_value(v);
}

static double get_number(struct reader *r, const char *key, double def)
{
    json_t *v = config_field(r, key);

    if (v == NULL)
        return def;
    if (!json_is_number(v) || !(json_number_value(v) > 0)) {
        refuse_config(r, "FILE_CORRUPT", key, "must be a positive number");
        return 1;
    }
    return json_number_value(v);
}

static bool get_bool(struct reader *r, const char *key, bool def)
{
    json_t *v = config_field(r, key);

    if (v != NULL && !json_is_boolean(v))
        refuse_config(r, "FILE_CORRUPT", key, "must be true or false");
    return v != NULL ? json_is_true(v) : def;
}

static const char *get_string(struct reader *r, const char *key, const char *def)
{
    json_t *v = config_field(r, key);

    if (v != NULL && !json_is_string(v))
        refuse_config(r, "FILE_CORRUPT", key, "must be a string");
    return json_is_string(v) ? json_string_value(v) : def;
}

/* ---- the architecture ------------------------------------------------------------------------------------ */

static void read_architecture(struct reader *r, struct npugraph__config *c)
{
    json_t *list = config_field(r, "architectures");
    const char *name = json_is_array(list) ? json_string_value(json_array_get(list, 0)) : NULL;

    if (name == NULL || (strcmp(name, "Qwen3ForCausalLM") != 0 && strcmp(name, "LlamaForCausalLM") != 0)) {
        refuse_config(r, "FILE_UNSUPPORTED", "architectures",
                      "must name Qwen3ForCausalLM or LlamaForCausalLM; others are not supported");
        return;
    }
    snprintf(c->architecture, sizeof(c->architecture), "%s", name);
    c->qk_norm = strcmp(name, "Qwen3ForCausalLM") == 0;
    if (strcmp(get_string(r, "hidden_act", "silu"), "silu") != 0)
        refuse_config(r, "FILE_UNSUPPORTED", "hidden_act", "must be \"silu\"");
    if (get_bool(r, "use_sliding_window", false))
        refuse_config(r, "FILE_UNSUPPORTED", "use_sliding_window", "is set: sliding windows are not supported");
    if (config_field(r, "quantization_config") != NULL)
        refuse_config(r, "FILE_UNSUPPORTED", "quantization_config", "is set: quantised checkpoints are not supported");
}

static void read_model_sizes(struct reader *r, struct npugraph__config *c)
{
    c->vocab = get_int(r, "vocab_size", -1);
    c->hidden = get_int(r, "hidden_size", -1);
    c->layers = get_int(r, "num_hidden_layers", -1);
    c->heads = get_int(r, "num_attention_heads", -1);
    c->kv_heads = get_int(r, "num_key_value_heads", c->heads);
    c->head_dim = get_int(r, "head_dim", c->hidden / c->heads > 0 ? c->hidden / c->heads : 1);
    c->ffn = get_int(r, "intermediate_size", -1);
    c->max_positions = get_int(r, "max_position_embeddings", 2048);
    c->rms_eps = get_number(r, "rms_norm_eps", 1e-6);
    c->tied = get_bool(r, "tie_word_embeddings", false);
    c->attention_bias = get_bool(r, "attention_bias", false);
    c->mlp_bias = get_bool(r, "mlp_bias", false);
    if (c->heads % c->kv_heads != 0)
        refuse_config(r, "FILE_CORRUPT", "num_attention_heads", "must be a multiple of num_key_value_heads");
    if (c->head_dim % 2 != 0)
        refuse_config(r, "FILE_UNSUPPORTED", "head_dim", "must be even");
    if (c->layers > 1024)
        refuse_config(r, "FILE_UNSUPPORTED", "num_hidden_layers", "is larger than 1024");
}

static void read_rope_scaling(struct reader *r, struct npugraph__config *c)
{
    const char *type = get_string(r, "rope_type", get_string(r, "type", "default"));

    c->rope_factor = get_number(r, "factor", 1);
    if (strcmp(type, "default") == 0)
        return;
    if (strcmp(type, "linear") == 0) {
        c->rope = ROPE_LINEAR;
        return;
    }
    if (strcmp(type, "llama3") != 0) {
        refuse_config(r, "FILE_UNSUPPORTED", "rope_scaling", "must be of type default, linear or llama3");
        return;
    }
    c->rope = ROPE_LLAMA3;
    c->rope_low_freq = get_number(r, "low_freq_factor", 1);
    c->rope_high_freq = get_number(r, "high_freq_factor", 4);
    c->rope_original = get_number(r, "original_max_position_embeddings", (double)c->max_positions);
    if (c->rope_high_freq <= c->rope_low_freq)
        refuse_config(r, "FILE_CORRUPT", "high_freq_factor", "must be larger than low_freq_factor");
}

/* Older files have rope_theta and rope_scaling; newer files have both in rope_parameters. */
static void read_rope(struct reader *r, struct npugraph__config *c)
{
    json_t *whole = r->root, *params = config_field(r, "rope_parameters"), *scaling = config_field(r, "rope_scaling");

    c->rope_theta = get_number(r, "rope_theta", 10000);
    if (params == NULL)
        params = scaling;
    if (params == NULL)
        return;
    if (!json_is_object(params)) {
        refuse_config(r, "FILE_CORRUPT", "rope_scaling", "must be an object");
        return;
    }
    r->root = params;
    c->rope_theta = get_number(r, "rope_theta", c->rope_theta);
    read_rope_scaling(r, c);
    r->root = whole;
}

static void add_stop(struct npugraph__config *c, const json_t *v)
{
    if (json_is_integer(v) && c->n_stop < NPUGRAPH__MAX_STOP && json_integer_value(v) >= 0 &&
        json_integer_value(v) < c->vocab)
        c->stop[c->n_stop++] = (int32_t)json_integer_value(v);
}

static void read_stop(const json_t *root, struct npugraph__config *c)
{
    const json_t *v = json_object_get(root, "eos_token_id");
    size_t i;
    json_t *item;

    add_stop(c, v);
    json_array_foreach((json_t *)v, i, item) add_stop(c, item);
}

int npugraph__config_read(const char *dir, struct npugraph__config *c, struct npugraph_error *err)
{
    json_t *root = read_json(dir, "config.json", true, err), *generation;
    struct reader r = {root, err, 0};

    if (root == NULL)
        return 3;
    memset(c, 0, sizeof(*c));
    read_architecture(&r, c);
    if (r.rc == 0)
        read_model_sizes(&r, c);
    if (r.rc == 0)
        read_rope(&r, c);
    if (r.rc == 0) {
        generation = read_json(dir, "generation_config.json", false, NULL);
        read_stop(generation != NULL && json_object_get(generation, "eos_token_id") != NULL ? generation : root, c);
        json_decref(generation);
    }
    json_decref(root);
    return r.rc;
}

/* ---- weights --------------------------------------------------------------------------------------------- */

/* The ways in which ranks divide a weight. */
enum split { WHOLE = -1, ROWS = 0, COLUMNS = 1 };

static struct npugraph__weight *add_weight(struct npugraph__weights *w, const char *name, int64_t rows, int64_t cols,
                                           enum split split)
{
    struct npugraph__weight *x = &w->items[w->n++];

    snprintf(x->name, sizeof(x->name), "%s", name);
    x->rank = cols != 0 ? 2 : 1;
    x->shape[0] = x->full[0] = rows;
    x->shape[1] = x->full[1] = cols;
    x->split = (int)split;
    return x;
}

/* If a linear's rows are divided, its bias is divided with them. If its columns are, the ranks' results are summed, so
 * only one rank has the bias. */
static void add_layer_weight(struct npugraph__weights *w, int64_t layer, const char *part, int64_t rows, int64_t cols,
                             bool bias, enum split split)
{
    char name[96];

    snprintf(name, sizeof(name), "model.layers.%" PRId64 ".%s.weight", layer, part);
    add_weight(w, name, rows, cols, split);
    if (!bias)
        return;
    snprintf(name, sizeof(name), "model.layers.%" PRId64 ".%s.bias", layer, part);
    add_weight(w, name, rows, 0, split == ROWS ? ROWS : WHOLE)->first = split == COLUMNS;
}

static void list_layer(const struct npugraph__config *c, struct npugraph__weights *w, int64_t i)
{
    int64_t q = c->heads * c->head_dim, kv = c->kv_heads * c->head_dim;

    add_layer_weight(w, i, "input_layernorm", c->hidden, 0, false, WHOLE);
    add_layer_weight(w, i, "self_attn.q_proj", q, c->hidden, c->attention_bias, ROWS);
    add_layer_weight(w, i, "self_attn.k_proj", kv, c->hidden, c->attention_bias, ROWS);
    add_layer_weight(w, i, "self_attn.v_proj", kv, c->hidden, c->attention_bias, ROWS);
    add_layer_weight(w, i, "self_attn.o_proj", c->hidden, q, c->attention_bias, COLUMNS);
    if (c->qk_norm) {
        add_layer_weight(w, i, "self_attn.q_norm", c->head_dim, 0, false, WHOLE);
        add_layer_weight(w, i, "self_attn.k_norm", c->head_dim, 0, false, WHOLE);
    }
    add_layer_weight(w, i, "post_attention_layernorm", c->hidden, 0, false, WHOLE);
    add_layer_weight(w, i, "mlp.gate_proj", c->ffn, c->hidden, c->mlp_bias, ROWS);
    add_layer_weight(w, i, "mlp.up_proj", c->ffn, c->hidden, c->mlp_bias, ROWS);
    add_layer_weight(w, i, "mlp.down_proj", c->hidden, c->ffn, c->mlp_bias, COLUMNS);
}

void npugraph__weights_divide(struct npugraph__weights *w, uint32_t rank, uint32_t ranks)
{
    for (size_t i = 0; i < w->n; i++) {
        struct npugraph__weight *x = &w->items[i];

        x->shape[0] = x->full[0];
        x->shape[1] = x->full[1];
        x->begin = 0;
        x->buffer = 0;
        x->absent = x->first && rank > 0;
        if (x->split < 0 || ranks < 2)
            continue;
        x->shape[x->split] /= ranks;
        x->begin = x->shape[x->split] * rank;
    }
}

int npugraph__config_divide(const struct npugraph__config *c, uint32_t ranks, struct npugraph__config *part_p,
                            struct npugraph_error *err)
{
    const struct {
        const char *name;
        int64_t value;
    } divided[] = {
        {"num_attention_heads", c->heads}, {"num_key_value_heads", c->kv_heads}, {"intermediate_size", c->ffn}};

    for (size_t i = 0; i < sizeof(divided) / sizeof(divided[0]); i++)
        if (divided[i].value % ranks != 0)
            return npugraph__error(err, 3, "INVALID_ARGUMENT",
                                   "%s is %" PRId64 ", which %u devices cannot divide evenly among them",
                                   divided[i].name, divided[i].value, ranks);
    *part_p = *c;
    part_p->heads /= ranks;
    part_p->kv_heads /= ranks;
    part_p->ffn /= ranks;
    return 0;
}

static char *intern_file(struct npugraph__weights *w, const char *name)
{
    for (size_t i = 0; i < w->n_files; i++)
        if (strcmp(w->files[i], name) == 0)
            return w->files[i];
    return w->files[w->n_files++] = strdup(name); /* files has room for one per weight */
}

static int find_shards(const char *dir, struct npugraph__weights *w, struct npugraph_error *err)
{
    struct npugraph_error e = {0};
    json_t *index = read_json(dir, "model.safetensors.index.json", false, &e), *map;
    int rc = 0;

    if (index == NULL && e.code != 0) {
        *err = e;
        return e.code;
    }
    map = json_object_get(index, "weight_map");
    for (size_t i = 0; rc == 0 && i < w->n; i++) {
        const char *file =
            index == NULL ? "model.safetensors" : json_string_value(json_object_get(map, w->items[i].name));

        if (file == NULL)
            rc = npugraph__error(err, 5, "TENSOR_MISSING", "model.safetensors.index.json lacks %s", w->items[i].name);
        else if (strchr(file, '/') != NULL)
            rc = npugraph__error(err, 3, "FILE_CORRUPT", "model.safetensors.index.json: %s lies in another directory",
                                 file);
        else if ((w->items[i].file = intern_file(w, file)) == NULL)
            rc = npugraph__error(err, 8, "NO_MEMORY", "out of memory");
    }
    json_decref(index);
    return rc;
}

int npugraph__weights_list(const char *dir, const struct npugraph__config *c, struct npugraph__weights *w,
                           struct npugraph_error *err)
{
    size_t max = (size_t)c->layers * 20 + 3;
    int rc;

    memset(w, 0, sizeof(*w));
    w->items = calloc(max, sizeof(*w->items));
    w->files = calloc(max, sizeof(*w->files));
    if (w->items == NULL || w->files == NULL) {
        npugraph__weights_fini(w);
        return npugraph__error(err, 8, "NO_MEMORY", "out of memory");
    }
    add_weight(w, "model.embed_tokens.weight", c->vocab, c->hidden, WHOLE);
    for (int64_t i = 0; i < c->layers; i++)
        list_layer(c, w, i);
    add_weight(w, "model.norm.weight", c->hidden, 0, WHOLE);
    if (!c->tied)
        add_weight(w, "lm_head.weight", c->vocab, c->hidden, WHOLE);
    rc = find_shards(dir, w, err);
    if (rc != 0)
        npugraph__weights_fini(w);
    return rc;
}

void npugraph__weights_fini(struct npugraph__weights *w)
{
    for (size_t i = 0; i < w->n_files; i++)
        free(w->files[i]);
    free(w->files);
    free(w->items);
    memset(w, 0, sizeof(*w));
}

struct npugraph__weight *npugraph__weights_find(const struct npugraph__weights *w, const char *name)
{
    for (size_t i = 0; i < w->n; i++)
        if (strcmp(w->items[i].name, name) == 0)
            return &w->items[i];
    return NULL;
}
