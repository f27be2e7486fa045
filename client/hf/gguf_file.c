/* SPDX-License-Identifier: Apache-2.0 */
/* Opens GGUF files, reads values of their metadata, and translates names of tensors. */
#include "client/hf/gguf.h"
#include "client/lib/error.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- the file ---- */

bool npugraph__gguf_is(const char *path)
{
    uint8_t first[4];
    struct stat sb;
    bool is;
    int fd;

    if (stat(path, &sb) != 0 || !S_ISREG(sb.st_mode))
        return false;
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return false;
    is = pread(fd, first, 4, 0) == 4 && ngd_gguf_is(first);
    close(fd);
    return is;
}

int npugraph__gguf_open(const char *path, struct npugraph__gguf **g_p, struct npugraph_error *err)
{
    struct npugraph__gguf *g = calloc(1, sizeof(*g));
    struct ngd_diag diag = {0};
    ngd_status_t status;

    if (g == NULL)
        return npugraph__error(err, 8, "NO_MEMORY", "out of memory");
    snprintf(g->path, sizeof(g->path), "%s", path);
    g->from = (struct npugraph__source){g->path, err};
    g->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (g->fd < 0 || fstat(g->fd, &g->as_opened) != 0 || !S_ISREG(g->as_opened.st_mode)) {
        npugraph__error(err, 5, "FILE_NOT_FOUND", "%.500s: %s", path,
                        g->fd < 0 ? strerror(errno) : "is not a regular file");
        npugraph__gguf_close(g);
        return 5;
    }
    status = ngd_gguf_read(g->fd, (uint64_t)g->as_opened.st_size, &g->header, &diag);
    if (status != NGD_OK) {
        const bool memory = status == NGD_ERR_NO_MEMORY;

        npugraph__error(err, memory ? 8 : 3, memory ? "NO_MEMORY" : ngd_status_name(status), "%.500s: %s", path,
                        memory ? "out of memory" : diag.text);
        npugraph__gguf_close(g);
        return memory ? 8 : 3;
    }
    *g_p = g;
    return 0;
}

void npugraph__gguf_close(struct npugraph__gguf *g)
{
    if (g == NULL)
        return;
    if (g->fd >= 0)
        close(g->fd);
    ngd_gguf_fini(&g->header);
    free(g);
}

int npugraph__gguf_check_unchanged(struct npugraph__gguf *g)
{
    const struct stat *was = &g->as_opened;
    struct stat now;

    if (stat(g->path, &now) == 0 && now.st_dev == was->st_dev && now.st_ino == was->st_ino &&
        now.st_size == was->st_size && now.st_mtim.tv_sec == was->st_mtim.tv_sec &&
        now.st_mtim.tv_nsec == was->st_mtim.tv_nsec)
        return 0;
    return npugraph__error(g->from.err, 3, "FILE_CORRUPT", "%.500s: was changed while it was loaded; load it again",
                           g->path);
}

/* ---- what is made ---- */

void npugraph__gguf_set(struct npugraph__gguf *g, json_t *object, const char *name, json_t *value)
{
    g->no_memory |= json_object_set_new(object, name, value) != 0;
}

void npugraph__gguf_add(struct npugraph__gguf *g, json_t *list, json_t *value)
{
    g->no_memory |= json_array_append_new(list, value) != 0;
}

/* ---- metadata ---- */

/* Finds a value that is no array. *found_p is false if the key is absent. */
static int find_scalar(const struct npugraph__gguf *g, const char *key, const struct ngd_gguf_value **v_p)
{
    *v_p = ngd_gguf_value(&g->header, key);
    if (*v_p != NULL && (*v_p)->array)
        return npugraph__unsupported(&g->from, "metadata %s: is an array; one value is supported", key);
    return 0;
}

int npugraph__gguf_int(const struct npugraph__gguf *g, const char *key, int64_t *v_p)
{
    const struct ngd_gguf_value *v;
    int rc = find_scalar(g, key, &v);

    if (rc != 0 || v == NULL)
        return rc;
    return ngd_gguf_take_int(v, &(const uint8_t *){v->data}, v_p)
               ? 0
               : npugraph__corrupt(&g->from, "metadata %s: is not an integer below 2^63", key);
}

int npugraph__gguf_number(const struct npugraph__gguf *g, const char *key, double *v_p)
{
    const struct ngd_gguf_value *v;
    int rc = find_scalar(g, key, &v);

    if (rc != 0 || v == NULL)
        return rc;
    return ngd_gguf_take_number(v, &(const uint8_t *){v->data}, v_p)
               ? 0
               : npugraph__corrupt(&g->from, "metadata %s: is not a number", key);
}

int npugraph__gguf_bool(const struct npugraph__gguf *g, const char *key, bool *v_p)
{
    const struct ngd_gguf_value *v;
    int rc = find_scalar(g, key, &v);

    if (rc != 0 || v == NULL)
        return rc;
    if (v->type != NGD_GGUF_BOOL)
        return npugraph__corrupt(&g->from, "metadata %s: is not a bool", key);
    *v_p = *v->data != 0;
    return 0;
}

int npugraph__gguf_text(const struct npugraph__gguf *g, const char *key, char *to, size_t size)
{
    const struct ngd_gguf_value *v;
    const char *s;
    size_t n;
    int rc = find_scalar(g, key, &v);

    if (rc != 0 || v == NULL)
        return rc;
    if (!ngd_gguf_take_string(v, &(const uint8_t *){v->data}, &s, &n))
        return npugraph__corrupt(&g->from, "metadata %s: is not a string", key);
    for (size_t i = 0; i < n && n < size; i++)
        if ((unsigned char)s[i] < 0x20 || (unsigned char)s[i] >= 0x7f) /* it is printed when it is refused */
            return npugraph__corrupt(&g->from, "metadata %s: is not printable ASCII", key);
    if (n >= size)
        return npugraph__unsupported(&g->from, "metadata %s: has more than %zu bytes", key, size - 1);
    memcpy(to, s, n);
    to[n] = '\0';
    return 0;
}

/* ---- names of tensors ---- */

static const char *const whole_names[][2] = {
    {"model.embed_tokens", "token_embd"},
    {"model.norm", "output_norm"},
    {"lm_head", "output"},
};
static const char *const layer_names[][2] = {
    {"input_layernorm", "attn_norm"},
    {"self_attn.q_proj", "attn_q"},
    {"self_attn.k_proj", "attn_k"},
    {"self_attn.v_proj", "attn_v"},
    {"self_attn.o_proj", "attn_output"},
    {"self_attn.sinks", "attn_sinks.weight"},
    {"self_attn.q_a_proj", "attn_q_a"},
    {"self_attn.q_a_layernorm", "attn_q_a_norm"},
    {"self_attn.q_b_proj", "attn_q_b"},
    {"self_attn.kv_a_proj_with_mqa", "attn_kv_a_mqa"},
    {"self_attn.kv_a_layernorm", "attn_kv_a_norm"},
    {"self_attn.kv_b_proj", "attn_kv_b"},
    {"self_attn.k_b_proj", "attn_k_b"},
    {"self_attn.v_b_proj", "attn_v_b"},
    {"self_attn.q_norm", "attn_q_norm"},
    {"self_attn.k_norm", "attn_k_norm"},
    {"post_self_attn_layernorm", "post_attention_norm"},
    {"post_attention_layernorm", "ffn_norm"},
    {"post_mlp_layernorm", "post_ffw_norm"},
    {"mlp.gate_proj", "ffn_gate"},
    {"mlp.up_proj", "ffn_up"},
    {"mlp.down_proj", "ffn_down"},
    {"mlp.gate_up_proj", "ffn_up"},
    {"self_attn.qkv_proj", "attn_qkv"},
    {"mlp.gate.e_score_correction_bias", "exp_probs_b.bias"},
    {"mlp.gate", "ffn_gate_inp"},
    {"mlp.router", "ffn_gate_inp"},
    {"mlp.experts.gate_proj", "ffn_gate_exps"},
    {"mlp.experts.up_proj", "ffn_up_exps"},
    {"mlp.experts.down_proj", "ffn_down_exps"},
    {"mlp.shared_expert_gate", "ffn_gate_inp_shexp"},
    {"mlp.shared_expert.gate_proj", "ffn_gate_shexp"},
    {"mlp.shared_expert.up_proj", "ffn_up_shexp"},
    {"mlp.shared_expert.down_proj", "ffn_down_shexp"},
    {"mlp.shared_experts.gate_proj", "ffn_gate_shexp"},
    {"mlp.shared_experts.up_proj", "ffn_up_shexp"},
    {"mlp.shared_experts.down_proj", "ffn_down_shexp"},
    {"block_sparse_moe.gate", "ffn_gate_inp"},
    {"block_sparse_moe.experts.w1", "ffn_gate_exps"},
    {"block_sparse_moe.experts.w3", "ffn_up_exps"},
    {"block_sparse_moe.experts.w2", "ffn_down_exps"},
};

/* Names that mean something else where there are norms behind attention and MLP. */
static const char *const behind_names[][2] = {
    {"post_attention_layernorm", "post_attention_norm"},
    {"pre_feedforward_layernorm", "ffn_norm"},
    {"post_feedforward_layernorm", "post_ffw_norm"},
};

/* Writes prefix, the translation of the beginning of `name`, and the rest: ".weight", ".weight.scales", ".bias", or
 * nothing. */
static bool translate_name(const char *const (*table)[2], size_t n, const char *prefix, const char *name, char *to,
                           size_t size)
{
    for (size_t i = 0; i < n; i++) {
        const size_t len = strlen(table[i][0]);

        if (strncmp(name, table[i][0], len) == 0 && (name[len] == '.' || name[len] == '\0'))
            return (size_t)snprintf(to, size, "%s%s%s", prefix, table[i][1], name + len) < size;
    }
    return false;
}

bool npugraph__gguf_name(const struct npugraph__gguf *g, const char *name, char *to, size_t size)
{
    char prefix[32];
    int layer, n = 0;

    if (sscanf(name, "model.layers.%9d.%n", &layer, &n) != 1 || n == 0)
        return translate_name(whole_names, sizeof(whole_names) / sizeof(whole_names[0]), "", name, to, size);
    snprintf(prefix, sizeof(prefix), "blk.%d.", layer);
    if (g->norms_behind &&
        translate_name(behind_names, sizeof(behind_names) / sizeof(behind_names[0]), prefix, name + n, to, size))
        return true;
    return translate_name(layer_names, sizeof(layer_names) / sizeof(layer_names[0]), prefix, name + n, to, size);
}

const struct ngd_gguf_tensor *npugraph__gguf_find(const struct npugraph__gguf *g, const char *name)
{
    static const char *const planes[] = {".scales", ".minima", ".block_scales", ".block_minima", ".i8"};
    const struct ngd_gguf_tensor *t = ngd_gguf_tensor(&g->header, name);
    const size_t n = strlen(name);
    char whole[128];

    for (size_t i = 0; t == NULL && i < sizeof(planes) / sizeof(planes[0]); i++) {
        const size_t k = strlen(planes[i]);

        if (n <= k || n - k >= sizeof(whole) || strcmp(name + n - k, planes[i]) != 0)
            continue;
        memcpy(whole, name, n - k);
        whole[n - k] = '\0';
        t = ngd_gguf_tensor(&g->header, whole);
    }
    return t;
}
