/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NPUGRAPH_GGUF_H
#define NPUGRAPH_GGUF_H

/*
 * A GGUF file as a checkpoint: its metadata become what config.json, tokenizer.json and tokenizer_config.json would
 * have, so that all behind them is one way (docs/gguf.md). What has no such form is refused with the key of the
 * metadata. Errors: FILE_* with the file's path and the field.
 */
#include "base/gguf.h"
#include "client/hf/source.h"
#include <jansson.h>
#include <sys/stat.h>

struct npugraph__gguf {
    struct ngd_gguf header;
    int fd;
    struct stat as_opened;
    char path[4096];
    struct npugraph__source from; /* path, and the error of the call that is under way */
    bool norms_behind;    /* npugraph__gguf_config has found an architecture with norms behind attention and MLP */
    bool merges_make_all; /* npugraph__gguf_tokenizer does not know ignore_merges, so merges must make each token */
    bool no_memory;       /* a part of what a call makes is missing */
};

/* True for a regular file that begins as a GGUF file does. */
bool npugraph__gguf_is(const char *path);
/* Opens a file and reads its header. The caller frees *g_p, and sets from.err before other calls. */
int npugraph__gguf_open(const char *path, struct npugraph__gguf **g_p, struct npugraph_error *err);
void npugraph__gguf_close(struct npugraph__gguf *g); /* NULL is fine */
/* Refuses a file that is another one now, or was written since it was opened: what was read of it is not what others
 * read. */
int npugraph__gguf_check_unchanged(struct npugraph__gguf *g);

/* Each gives a new reference. */
int npugraph__gguf_config(struct npugraph__gguf *g, json_t **config_p);
int npugraph__gguf_tokenizer(struct npugraph__gguf *g, json_t **root_p);
int npugraph__gguf_tokenizer_config(struct npugraph__gguf *g, json_t **config_p);

/* The name in the file of a tensor or a plane that a family names, "model.norm.weight": "output_norm.weight". False:
 * there is none. */
bool npugraph__gguf_name(const struct npugraph__gguf *g, const char *name, char *to, size_t size);
/* The tensor that has a name of the file, or a plane of that name; NULL: none. */
const struct ngd_gguf_tensor *npugraph__gguf_find(const struct npugraph__gguf *g, const char *name);

/* ---- for the files gguf_*.c ---- */

/* Set a field, or add an element, and take the reference. If there is no memory for it, g->no_memory says so, which
 * whoever began the object asks for at the end. */
void npugraph__gguf_set(struct npugraph__gguf *g, json_t *object, const char *name, json_t *value);
void npugraph__gguf_add(struct npugraph__gguf *g, json_t *list, json_t *value);
/* The value of a key. If the key is absent, the value stays as it is. A value of another type, or an array, is refused
 * with the key. */
int npugraph__gguf_int(const struct npugraph__gguf *g, const char *key, int64_t *v_p);
int npugraph__gguf_number(const struct npugraph__gguf *g, const char *key, double *v_p);
int npugraph__gguf_bool(const struct npugraph__gguf *g, const char *key, bool *v_p);
/* A copy of a string of at most size - 1 bytes, which are printable ASCII. */
int npugraph__gguf_text(const struct npugraph__gguf *g, const char *key, char *to, size_t size);

/* gguf_latent.c, for the architecture deepseek2: set in config.json the fields of heads, and those of experts, which
 * need the former; in its rope_scaling what yarn has besides. */
int npugraph__gguf_latent_heads(struct npugraph__gguf *g, json_t *config);
int npugraph__gguf_latent_experts(struct npugraph__gguf *g, json_t *config);
int npugraph__gguf_latent_yarn(struct npugraph__gguf *g, json_t *yarn);

#endif
