/* SPDX-License-Identifier: Apache-2.0 */
/* config.json, generation_config.json and the shard index of a Hugging Face checkpoint. */
#include "base/le.h"
#include "client/hf/family.h"
#include "client/hf/gguf.h"
#include "client/hf/source.h"
#include "client/lib/error.h"

#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define HEADER_MAX (100u << 20) /* of a safetensors file, by the format */

json_t *npugraph__read_json(const char *dir, const char *file, struct npugraph_error *err)
{
    char path[PATH_MAX];
    json_error_t e;
    json_t *root;

    snprintf(path, sizeof(path), "%s/%s", dir, file);
    root = npugraph__load_json(path, 0, &e);
    if (root == NULL && json_error_code(&e) != json_error_cannot_open_file)
        npugraph__error(err, 3, "FILE_CORRUPT", "%s: %s", path, e.text);
    return root;
}

static json_t *read_json(const char *dir, const char *file, bool required, struct npugraph_error *err)
{
    char path[PATH_MAX];
    json_error_t e;
    bool missing;
    json_t *root;

    snprintf(path, sizeof(path), "%s/%s", dir, file);
    root = npugraph__load_json(path, 0, &e);
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

/* ---- the architecture ------------------------------------------------------------------------------------ */

static const char *first_architecture(const json_t *config)
{
    return json_string_value(json_array_get(json_object_get(config, "architectures"), 0));
}

/* The first architecture, which may be no name: the family's run refuses it then. transformers 4.57 wrote that of
 * Qwen2.5-VL into its text_config. */
static void read_architecture(struct npugraph__checkpoint *ck)
{
    const char *name = first_architecture(ck->config);

    if (name == NULL)
        name = first_architecture(json_object_get(ck->config, "text_config"));
    snprintf(ck->architecture, sizeof(ck->architecture), "%s", name != NULL ? name : "");
}

/* dir: where the checkpoint's own family may lie; NULL: nowhere. */
static int describe_checkpoint(struct npugraph__checkpoint *ck, const char *dir, struct npugraph_error *err)
{
    struct npugraph__family_run run = {.ck = ck, .dir = dir, .err = err};

    read_architecture(ck);
    return npugraph__family_run(&run);
}

static void add_stop(struct npugraph__checkpoint *c, const json_t *v)
{
    if (json_is_integer(v) && c->n_stop < NPUGRAPH__MAX_STOP && json_integer_value(v) >= 0 &&
        json_integer_value(v) < c->vocab)
        c->stop[c->n_stop++] = (int32_t)json_integer_value(v);
}

static void read_stop(const json_t *root, struct npugraph__checkpoint *c)
{
    const json_t *v = json_object_get(root, "eos_token_id");
    size_t i;
    json_t *item;

    add_stop(c, v);
    json_array_foreach((json_t *)v, i, item) add_stop(c, item);
}

static void read_stops(const char *dir, struct npugraph__checkpoint *ck)
{
    json_t *generation = read_json(dir, "generation_config.json", false, NULL);
    const json_t *const files[] = {generation, ck->config, ck->fields};
    size_t i = 0;

    while (i < 2 && json_object_get(files[i], "eos_token_id") == NULL)
        i++;
    read_stop(files[i], ck);
    json_decref(generation);
}

/* ---- weights --------------------------------------------------------------------------------------------- */

double npugraph__weight_elements(const struct npugraph__weight *w)
{
    double n = 1;

    for (uint32_t d = 0; d < w->rank; d++)
        n *= (double)w->full[d];
    return n;
}

bool npugraph__weight_is_param(const struct npugraph__weight *w)
{
    return !w->kind->group_index || (w->order != NULL && w->same_order == 0);
}

void npugraph__weights_divide(struct npugraph__weights *w, uint32_t rank, uint32_t ranks)
{
    for (size_t i = 0; i < w->n; i++) {
        struct npugraph__weight *x = &w->items[i];
        int dim = x->split == NPUGRAPH__COLUMNS;

        x->begin = x->split == NPUGRAPH__ROWS || x->split == NPUGRAPH__COLUMNS ? x->full[dim] / ranks * rank : 0;
        x->buffer = 0;
        x->absent = x->split == NPUGRAPH__FIRST && rank > 0;
    }
}

static char *intern_file(struct npugraph__weights *w, const char *name)
{
    for (size_t i = 0; i < w->n_files; i++)
        if (strcmp(w->files[i], name) == 0)
            return w->files[i];
    return w->files[w->n_files++] = strdup(name); /* files has room for one per weight */
}

/* ---- names ---- */

static void name_stored(struct npugraph__weight *w, enum npugraph__names names)
{
    static const char prefix[] = "model.";
    const char *const bare = strncmp(w->name, prefix, strlen(prefix)) == 0 ? w->name + strlen(prefix) : NULL;

    if (names == NAMES_BEHIND)
        snprintf(w->stored, sizeof(w->stored), "language_model.%s", w->name);
    else if (names == NAMES_INSIDE && bare != NULL)
        snprintf(w->stored, sizeof(w->stored), "%slanguage_model.%s", prefix, bare);
    else
        snprintf(w->stored, sizeof(w->stored), "%s", names == NAMES_BARE && bare != NULL ? bare : w->name);
}

/* How many ways of naming are tried. */
static int ways_of_naming(const struct npugraph__checkpoint *ck)
{
    return ck->parts ? NAMES_INSIDE + 1 : NAMES_BARE + 1;
}

bool npugraph__weights_rename(struct npugraph__checkpoint *ck, int tries)
{
    const int ways = ways_of_naming(ck);

    ck->names = (enum npugraph__names)((ck->names + 1) % ways);
    for (size_t i = 0; i < ck->weights.n; i++)
        name_stored(&ck->weights.items[i], ck->names);
    return tries < ways;
}

/* The file of a weight by the index of shards, which tells its name too; NULL: the index does not have it. */
static const char *find_shard(const json_t *map, struct npugraph__weight *w, const struct npugraph__checkpoint *ck)
{
    const int ways = ways_of_naming(ck);
    const char *file = NULL;

    for (int i = 0; file == NULL && i < ways; i++) {
        name_stored(w, (enum npugraph__names)((ck->names + i) % ways));
        file = json_string_value(json_object_get(map, w->stored));
    }
    return file;
}

/* The header of a safetensors file; NULL: it cannot be read. */
static json_t *read_safetensors_header(const char *path)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    uint8_t size[8];
    json_t *header = NULL;
    struct stat sb;
    uint64_t n;
    char *text;

    if (fd < 0)
        return NULL;
    if (fstat(fd, &sb) == 0 && S_ISREG(sb.st_mode) && pread(fd, size, sizeof(size), 0) == sizeof(size) &&
        (n = ngd_le_get(size, 8)) <= HEADER_MAX && n <= (uint64_t)sb.st_size && (text = malloc(n + 1)) != NULL) {
        if (pread(fd, text, n, sizeof(size)) == (ssize_t)n)
            header = json_loadb(text, n, 0, NULL);
        free(text);
    }
    close(fd);
    return header;
}

void npugraph__find_head(struct npugraph__checkpoint *ck, const char *dir)
{
    struct npugraph__weight head = {.name = "lm_head.weight"};
    char path[PATH_MAX];
    json_t *index, *header = NULL;

    if (dir == NULL || ck->has_head)
        return;
    index = read_json(dir, "model.safetensors.index.json", false, NULL);
    if (index == NULL) {
        snprintf(path, sizeof(path), "%s/model.safetensors", dir);
        header = read_safetensors_header(path);
    }
    for (int i = 0; i < ways_of_naming(ck) && !ck->has_head; i++) {
        name_stored(&head, (enum npugraph__names)i);
        ck->has_head =
            json_object_get(index != NULL ? json_object_get(index, "weight_map") : header, head.stored) != NULL;
    }
    json_decref(index);
    json_decref(header);
}

static int find_shards(const char *dir, struct npugraph__checkpoint *ck, struct npugraph_error *err)
{
    struct npugraph__weights *const w = &ck->weights;
    struct npugraph_error e = {0};
    json_t *index = read_json(dir, "model.safetensors.index.json", false, &e), *map;
    int rc = 0;

    w->files = calloc(w->n, sizeof(*w->files));
    if (w->files == NULL) {
        json_decref(index);
        return npugraph__error(err, 8, "NO_MEMORY", "out of memory");
    }
    if (index == NULL && e.code != 0)
        return npugraph__error(err, e.code, e.reason, "%s", e.message);
    map = json_object_get(index, "weight_map");
    for (size_t i = 0; rc == 0 && i < w->n; i++) {
        const char *file = index == NULL ? "model.safetensors" : find_shard(map, &w->items[i], ck);

        if (file == NULL)
            rc = npugraph__error(err, 5, "TENSOR_MISSING", "model.safetensors.index.json lacks %s", w->items[i].name);
        else if (strchr(file, '/') != NULL)
            rc = npugraph__error(err, 3, "FILE_CORRUPT", "model.safetensors.index.json: %s lies in another directory",
                                 file);
        else if ((w->items[i].file = intern_file(w, file)) == NULL)
            rc = npugraph__error(err, 8, "NO_MEMORY", "out of memory");
        else if (index == NULL)
            name_stored(&w->items[i], ck->names);
    }
    json_decref(index);
    return rc;
}

struct npugraph__weight *npugraph__weights_find(const struct npugraph__weights *w, const char *name)
{
    const json_t *i = json_object_get(w->by_name, name);

    return i != NULL ? &w->items[json_integer_value(i)] : NULL;
}

struct npugraph__weight *npugraph__weights_stored(const struct npugraph__weights *w, const char *name)
{
    struct npugraph__weight *same = npugraph__weights_find(w, name);

    if (same != NULL && strcmp(same->stored, name) == 0)
        return same;
    for (size_t i = 0; i < w->n; i++)
        if (strcmp(w->items[i].stored, name) == 0)
            return &w->items[i];
    return NULL;
}

/* ---- a GGUF file ------------------------------------------------------------------------------------------ */

/* A tensor that no weight names would change what the model computes, but for its head. */
static int check_all_used(const struct npugraph__gguf *g, bool headless, const bool *used)
{
    for (size_t i = 0; i < g->header.n_tensors; i++)
        if (!used[i] && !(headless && strncmp(g->header.tensors[i].name, "output.", 7) == 0) &&
            strcmp(g->header.tensors[i].name, "rope_freqs.weight") != 0)
            return npugraph__unsupported(&g->from, "tensor %s: is not a part of this architecture",
                                         g->header.tensors[i].name);
    return 0;
}

static int find_gguf_tensors(const struct npugraph__gguf *g, struct npugraph__weights *w, bool headless, bool *used)
{
    const char *file = strrchr(g->path, '/');
    int rc = 0;

    w->files = calloc(w->n, sizeof(*w->files));
    if (w->files == NULL)
        return npugraph__error(g->from.err, 8, "NO_MEMORY", "out of memory");
    for (size_t i = 0; rc == 0 && i < w->n; i++) {
        struct npugraph__weight *x = &w->items[i];
        const struct ngd_gguf_tensor *t = NULL;

        if (npugraph__gguf_name(g, x->name, x->stored, sizeof(x->stored)))
            t = npugraph__gguf_find(g, x->stored);
        if (t == NULL)
            rc = npugraph__error(g->from.err, 5, "TENSOR_MISSING", "%.500s has no tensor %s", g->path,
                                 x->stored[0] != '\0' ? x->stored : x->name);
        else if ((x->file = intern_file(w, file != NULL ? file + 1 : g->path)) == NULL)
            rc = npugraph__error(g->from.err, 8, "NO_MEMORY", "out of memory");
        else
            used[t - g->header.tensors] = true;
    }
    return rc == 0 ? check_all_used(g, headless, used) : rc;
}

/* ---- public ---------------------------------------------------------------------------------------------- */

static struct npugraph__checkpoint *checkpoint_new(json_t *config, const struct npugraph__purpose *purpose,
                                                   struct npugraph_error *err)
{
    struct npugraph__checkpoint *ck = calloc(1, sizeof(*ck));

    if (ck == NULL) {
        npugraph__error(err, 8, "NO_MEMORY", "out of memory");
        json_decref(config);
        return NULL;
    }
    ck->config = config;
    ck->fields = config;
    ck->ranks = purpose->ranks;
    ck->headless = purpose->embedding;
    snprintf(ck->backend, sizeof(ck->backend), "%s", purpose->backend != NULL ? purpose->backend : "");
    ck->pooling = NPUGRAPH_POOLING_LAST;
    return ck;
}

const char *npugraph__config_name(const struct npugraph__checkpoint *ck)
{
    return ck->gguf != NULL           ? "the GGUF metadata, with names of config.json"
           : ck->fields != ck->config ? "config.json, text_config"
                                      : "config.json";
}

/* What the metadata say of embeddings. */
static void take_gguf_embedding(struct npugraph__checkpoint *ck)
{
    const char *pooling = json_string_value(json_object_get(json_object_get(ck->config, "gguf"), "pooling"));

    if (pooling == NULL)
        return;
    ck->headless = true;
    if (strcmp(pooling, "mean") == 0)
        ck->pooling = NPUGRAPH_POOLING_MEAN;
}

/* The same as npugraph__checkpoint_read, of a GGUF file. The checkpoint owns g. */
static int read_gguf_checkpoint(struct npugraph__gguf *g, const struct npugraph__purpose *purpose,
                                struct npugraph__checkpoint **ck_p, struct npugraph_error *err)
{
    struct npugraph__checkpoint *ck = NULL;
    json_t *config = NULL;
    bool *used = calloc(g->header.n_tensors + 1, sizeof(*used));
    int rc = used != NULL ? npugraph__gguf_config(g, &config) : npugraph__error(err, 8, "NO_MEMORY", "out of memory");

    if (rc == 0 && (ck = checkpoint_new(config, purpose, err)) == NULL)
        rc = 8;
    if (ck == NULL) {
        npugraph__gguf_close(g);
    } else {
        ck->gguf = g;
        take_gguf_embedding(ck);
        rc = describe_checkpoint(ck, NULL, err);
    }
    if (rc == 0)
        rc = find_gguf_tensors(g, &ck->weights, ck->headless, used);
    free(used);
    if (rc != 0) {
        npugraph__checkpoint_free(ck);
        return rc;
    }
    read_stop(ck->config, ck);
    *ck_p = ck;
    return 0;
}

static int read_directory(const char *dir, const struct npugraph__purpose *purpose, struct npugraph__checkpoint **ck_p,
                          struct npugraph_error *err)
{
    json_t *config = read_json(dir, "config.json", true, err);
    struct npugraph__checkpoint *ck;
    int rc;

    if (config == NULL)
        return 3;
    ck = checkpoint_new(config, purpose, err);
    if (ck == NULL)
        return 8;
    rc = npugraph__embedding_read(dir, ck, err);
    if (rc == 0)
        rc = describe_checkpoint(ck, dir, err);
    if (rc == 0)
        rc = find_shards(dir, ck, err);
    if (rc != 0) {
        npugraph__checkpoint_free(ck);
        return rc;
    }
    read_stops(dir, ck);
    *ck_p = ck;
    return 0;
}

int npugraph__checkpoint_read(const char *path, const struct npugraph__purpose *purpose,
                              struct npugraph__checkpoint **ck_p, struct npugraph_error *err)
{
    struct npugraph__gguf *g = NULL;
    int rc;

    if (!npugraph__gguf_is(path))
        return read_directory(path, purpose, ck_p, err);
    rc = npugraph__gguf_open(path, &g, err);
    return rc == 0 ? read_gguf_checkpoint(g, purpose, ck_p, err) : rc;
}

int npugraph__checkpoint_parse(const char *config, size_t len, uint32_t ranks, struct npugraph__checkpoint **ck_p,
                               struct npugraph_error *err)
{
    json_error_t e;
    json_t *root = json_loadb(config, len, 0, &e);
    const struct npugraph__purpose purpose = {.ranks = ranks};
    struct npugraph__checkpoint *ck;
    int rc;

    if (!json_is_object(root)) {
        json_decref(root);
        return npugraph__error(err, 3, "FILE_CORRUPT", "config.json: %s",
                               root == NULL ? e.text : "is not a JSON object");
    }
    ck = checkpoint_new(root, &purpose, err);
    if (ck == NULL)
        return 8;
    rc = describe_checkpoint(ck, NULL, err);
    if (rc != 0) {
        npugraph__checkpoint_free(ck);
        return rc;
    }
    read_stop(root, ck);
    *ck_p = ck;
    return 0;
}

void npugraph__checkpoint_free(struct npugraph__checkpoint *ck)
{
    if (ck == NULL)
        return;
    for (size_t i = 0; i < ck->weights.n_files; i++)
        free(ck->weights.files[i]);
    for (size_t i = 0; i < ck->n_ropes; i++)
        free(ck->ropes[i].factors);
    free(ck->weights.files);
    json_decref(ck->weights.by_name);
    for (size_t i = 0; i < ck->weights.n; i++)
        free(ck->weights.items[i].order);
    free(ck->weights.items);
    free(ck->made);
    free(ck->own_source);
    free(ck->caches);
    free(ck->ropes);
    json_decref(ck->config);
    npugraph__gguf_close(ck->gguf);
    free(ck);
}
