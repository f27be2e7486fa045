/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loads a checkpoint: reads the config, lists the weights, lets the daemon read the files, creates KV buffers and
 * rotary tables, and registers two graphs and the model. After that the model holds everything, and we drop our own
 * holds.
 */
#include "base/strbuf.h"
#include "client/hf/checkpoint.h"
#include "client/hf/column_order.h"
#include "client/hf/gguf.h"
#include "client/hf/kv_groups.h"
#include "client/hf/model_shape.h"
#include "client/hf/npugraph_hf.h"
#include "client/lib/error.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define DEFAULT_BLOCK_SIZE 16

struct load {
    struct npugraph_client *client;
    const struct npugraph_model_params *params;
    char dir[PATH_MAX];    /* where we read its small files */
    char source[PATH_MAX]; /* the checkpoint as the daemon sees it */
    char place[PATH_MAX];  /* the directory of its weights */
    struct npugraph_checkpoint_copy *copy;
    char path[PATH_MAX + 256]; /* of the current file */
    char name[65];
    struct npugraph__checkpoint *ck;
    uint32_t ranks;
    uint32_t padding_blocks; /* that the device keeps from sequences */
    const char *device;      /* of the current rank; NULL: the default device */
    uint64_t group;          /* 0: the model is on one device */
    struct npugraph__shape shape;
    struct npugraph_binding *bindings; /* weights, tables, KV states */
    size_t n_bindings;
    uint64_t *buffers; /* all buffers that we hold */
    size_t n_buffers;
    uint64_t graphs[2];
    uint64_t (*rank_graphs)[2]; /* by rank; only with a group */
    npugraph_progress_fn progress;
    void *user;
    uint64_t bytes_before, bytes_total;
    struct npugraph_error *err;
};

void npugraph_model_params_init(struct npugraph_model_params *params)
{
    memset(params, 0, sizeof(*params));
    params->max_batch = 16;
    params->prefill_chunk = 256;
    params->keep = true;
}

static const char *device_of_rank(const struct load *l, uint32_t rank)
{
    return l->params->n_devices != 0 ? l->params->devices[rank] : NULL;
}

/* ---- sizes ----------------------------------------------------------------------------------------------- */

/* Finds the checkpoint here, or through the daemon. */
static int find_checkpoint(struct load *l, const char *dir)
{
    const size_t n = strlen(dir);
    int rc;

    if (realpath(dir, l->dir) != NULL) {
        memcpy(l->place, l->dir, sizeof(l->place));
        return 0;
    }
    if (n == 0 || n >= sizeof(l->place))
        return npugraph__error(l->err, 3, "INVALID_ARGUMENT", "a path has 1 to %zu bytes", sizeof(l->place) - 1);
    memcpy(l->place, dir, n + 1);
    for (char *end = l->place + n - 1; end > l->place && *end == '/'; end--)
        *end = '\0';
    rc = npugraph_checkpoint_copy_open(l->client, l->place, &l->copy, l->err);
    if (rc != 0)
        return rc;
    snprintf(l->dir, sizeof(l->dir), "%s", npugraph_checkpoint_copy_path(l->copy));
    snprintf(l->place, sizeof(l->place), "%s", npugraph_checkpoint_copy_source(l->copy));
    return 0;
}

/* Errors about a copy name what it is a copy of. */
static void name_copied_source(struct load *l)
{
    char *at = strstr(l->err->message, l->dir), text[sizeof(l->err->message)];

    if (at == NULL)
        return;
    snprintf(text, sizeof(text), "%.*s%.500s%s", (int)(at - l->err->message), l->err->message, l->place,
             at + strlen(l->dir));
    memcpy(l->err->message, text, sizeof(text));
}

static int read_checkpoint(struct load *l)
{
    struct npugraph_device device;
    int rc = npugraph_device_find(l->client, device_of_rank(l, 0), &device, l->err);
    const struct npugraph__purpose purpose = {l->ranks, l->params->embedding, rc == 0 ? device.backend : NULL};

    if (rc == 0)
        rc = npugraph__checkpoint_read(l->dir, &purpose, &l->ck, l->err);
    if (rc != 0 && l->copy != NULL)
        name_copied_source(l);
    if (l->copy != NULL)
        npugraph_checkpoint_copy_remove(l->copy);
    return rc;
}

static void choose_name(struct load *l)
{
    const char *base = strrchr(l->place, '/');
    char *end;

    snprintf(l->name, sizeof(l->name), "%.64s",
             l->params->name != NULL ? l->params->name
             : base != NULL          ? base + 1
                                     : l->place);
    end = strrchr(l->name, '.');
    if (l->params->name == NULL && end != NULL && end != l->name && strcmp(end, ".gguf") == 0)
        *end = '\0';
}

/* The dtype of the first weight, the embeddings. A quantised table of a GGUF file has none: f16, as llama.cpp's. */
static const char *float_dtype(const struct load *l)
{
    const struct npugraph__weight *w = &l->ck->weights.items[0];

    return w->kind->dtype == NULL ? w->dtype : "f16";
}

/* Memory of the device that has the least left for its KV cache. The weights of rank 0 are there, those of the other
 * ranks, of about as many bytes, not yet. */
static int measure_room(struct load *l, struct npugraph__room *room)
{
    const uint64_t weights = l->bytes_total / l->ranks;
    struct npugraph_device device;

    for (uint32_t rank = 0; rank < l->ranks; rank++) {
        struct npugraph__room here = {0};
        int rc = npugraph_device_find(l->client, device_of_rank(l, rank), &device, l->err);

        if (rc != 0)
            return rc;
        snprintf(here.device, sizeof(here.device), "%s", device.name);
        here.memory = device.memory_bytes;
        here.used = device.used_bytes + (rank > 0 ? weights : 0);
        if (rank == 0 || npugraph__room_left(&here) < npugraph__room_left(room))
            *room = here;
    }
    return 0;
}

static int choose_sizes(struct load *l)
{
    struct npugraph__room room;
    int rc = measure_room(l, &room);

    if (rc == 0) /* now that the dtype of the weights is known */
        rc = npugraph__choose_kv_dtype(l->params, l->ck, float_dtype(l), &l->shape, l->err);
    return rc == 0 ? npugraph__choose_shape(l->params, l->ck, &room, l->padding_blocks, &l->shape, l->err) : rc;
}

/* ---- weights --------------------------------------------------------------------------------------------- */

static void total_progress(void *user, uint64_t done, uint64_t total)
{
    struct load *l = user;

    if (l->progress != NULL)
        l->progress(l->user, l->bytes_before + done,
                    l->bytes_total > l->bytes_before + total ? l->bytes_total : l->bytes_before + total);
}

/* Makes a buffer on the device of the rank. what: the part of its label behind the model's name. */
static int hold_buffer(struct load *l, const char *what, uint64_t bytes, uint64_t *buffer_p)
{
    char label[128];
    int rc;

    snprintf(label, sizeof(label), "%s %s", l->name, what);
    rc = npugraph_buffer_alloc(l->client, l->device, bytes, label, buffer_p, l->err);
    if (rc == 0)
        l->buffers[l->n_buffers++] = *buffer_p;
    return rc;
}

/* Frees a buffer that we hold. */
static void free_held(struct load *l, uint64_t buffer)
{
    size_t at = 0;

    while (at < l->n_buffers && l->buffers[at] != buffer)
        at++;
    if (at == l->n_buffers)
        return;
    npugraph_buffer_free(l->client, &buffer, 1, NULL);
    l->buffers[at] = l->buffers[--l->n_buffers];
}

/* Replaces the buffer of a group index, which other loads of the file share, by one with the order of columns. */
static int put_order(struct load *l, struct npugraph__weight *w, const int32_t *order, uint64_t bytes)
{
    int rc;

    free_held(l, w->buffer);
    rc = hold_buffer(l, w->name, bytes, &w->buffer);
    return rc == 0 ? npugraph_buffer_write(l->client, w->buffer, 0, order, bytes, l->err) : rc;
}

static int refuse_order(const struct load *l, const struct npugraph__weight *w)
{
    char why[96] = "is not supported for experts";

    if (l->ranks > 1)
        snprintf(why, sizeof(why), "%u devices cannot divide among them; load the model on one", l->ranks);
    return npugraph__error(l->err, 3, "FILE_UNSUPPORTED",
                           "%s: %s has groups in another order than that of columns (act-order, desc_act), which %s",
                           w->file, w->stored, why);
}

/* Reads the group of each column of a weight. After act-order, groups do not lie side by side. Then the weight is
 * loaded with its columns in the order of groups, and the order replaces the group index: steps gather x by it. */
static int read_group_index(struct load *l, struct npugraph__weight *w)
{
    const size_t n = (size_t)w->shape[0], groups = n / w->group;
    const uint64_t bytes = n * sizeof(int32_t);
    int32_t *index = calloc(n, sizeof(*index)), *order = calloc(n + groups, sizeof(*order));
    enum npugraph__order is = NPUGRAPH__ORDER_SAME;
    size_t at = 0;
    int rc = index != NULL && order != NULL ? npugraph_buffer_read(l->client, w->buffer, 0, index, bytes, l->err)
                                            : npugraph__error(l->err, 8, "NO_MEMORY", "out of memory");

    free(w->order);
    w->order = NULL;
    if (rc == 0)
        is = npugraph__column_order(index, n, w->group, order, &at);
    if (is == NPUGRAPH__ORDER_WRONG)
        rc = npugraph__error(l->err, 3, "FILE_CORRUPT",
                             "%s: %s has column %zu in group %d; there are %zu groups of %zu columns each", w->file,
                             w->stored, at, index[at], groups, w->group);
    else if (is == NPUGRAPH__ORDER_OTHER && w->fixed)
        rc = refuse_order(l, w);
    else if (is == NPUGRAPH__ORDER_OTHER)
        rc = put_order(l, w, order, bytes);
    if (rc == 0 && is == NPUGRAPH__ORDER_OTHER) {
        w->order = order;
        order = NULL;
    }
    free(order);
    free(index);
    return rc;
}

static int check_tensor(struct load *l, const struct npugraph_tensor *t)
{
    struct npugraph__weight *w = npugraph__weights_stored(&l->ck->weights, t->name);

    if (w == NULL)
        return 0;
    if (w->kind->dtype != NULL && strcmp(t->dtype, w->dtype) != 0)
        return npugraph__error(l->err, 3, "FILE_CORRUPT",
                               "%s: %s is %s, but config.json's quantization_config means %s", w->file, w->name,
                               t->dtype, w->dtype);
    if (w->kind->dtype == NULL && strcmp(t->dtype, "f32") != 0 && strcmp(t->dtype, "f16") != 0 &&
        strcmp(t->dtype, "bf16") != 0)
        return npugraph__error(l->err, 3, "FILE_UNSUPPORTED", "%s: %s is %s; weights must be f32, f16 or bf16", w->file,
                               w->name, t->dtype);
    snprintf(w->dtype, sizeof(w->dtype), "%s", t->dtype);
    w->buffer = t->buffer;
    w->bytes = t->bytes;
    return w->kind->group_index ? read_group_index(l, w) : 0;
}

/* Most tensors of a request, and bytes of their columns' orders: it stays far below what a message may have. */
#define LOAD_TENSORS 4096
#define LOAD_ORDERS  ((size_t)4 << 20)

struct chosen {
    const char *names[LOAD_TENSORS];
    struct npugraph_slice slices[LOAD_TENSORS];
};

/* Chooses the next of the rank's weights in a file, or of its group indices, from number *next_p on. Each is a slice,
 * also if that is all of the tensor, so that the daemon checks the shapes of all before it allocates memory for one. */
static void choose_tensors(const struct load *l, const char *file, bool indices, size_t *next_p, struct chosen *c,
                           struct npugraph_load *q)
{
    const struct npugraph__weight *const items = l->ck->weights.items;
    size_t ordered = 0;

    q->names = c->names;
    q->slices = c->slices;
    q->n_names = q->n_slices = 0;
    for (; *next_p < l->ck->weights.n && q->n_names < LOAD_TENSORS && ordered < LOAD_ORDERS; ++*next_p) {
        const struct npugraph__weight *w = &items[*next_p], *by = w->ordered_by ? &items[w->ordered_by - 1] : NULL;
        const uint32_t dim = w->split == NPUGRAPH__COLUMNS;
        struct npugraph_slice *s = &c->slices[q->n_slices];

        if (w->absent || w->kind->group_index != indices || strcmp(w->file, file) != 0)
            continue;
        c->names[q->n_names++] = w->stored;
        *s = (struct npugraph_slice){.name = w->stored,
                                     .dim = dim,
                                     .begin = w->begin,
                                     .end = w->begin + w->shape[dim],
                                     .shape = w->full,
                                     .rank = w->rank,
                                     .change = w->kind->change};
        if (by != NULL && by->order != NULL) {
            s->order = by->order;
            s->n_order = (size_t)by->shape[0];
            ordered += s->n_order * sizeof(*s->order);
        }
        q->n_slices++;
    }
}

static int load_chosen(struct load *l, const struct npugraph_load *q)
{
    struct npugraph_tensors *got = NULL;
    int rc = npugraph_load_safetensors(l->client, q, total_progress, l, &got, l->err);

    for (size_t i = 0; got != NULL && i < got->n && i < q->n_names; i++)
        l->buffers[l->n_buffers++] = got->items[i].buffer;
    for (size_t i = 0; rc == 0 && got != NULL && i < got->n && i < q->n_names; i++) {
        rc = check_tensor(l, &got->items[i]);
        l->bytes_before += got->items[i].bytes;
    }
    npugraph_tensors_free(got);
    return rc;
}

static int load_file(struct load *l, const char *file, bool indices)
{
    struct chosen *c = malloc(sizeof(*c));
    struct npugraph_load q = {.path = l->path, .device = l->device};
    size_t next = 0;
    int rc = 0;

    if (c == NULL)
        return npugraph__error(l->err, 8, "NO_MEMORY", "out of memory");
    snprintf(l->path, sizeof(l->path), "%s/%s", l->place, file);
    while (rc == 0 && next < l->ck->weights.n) {
        choose_tensors(l, file, indices, &next, c, &q);
        if (q.n_names != 0)
            rc = load_chosen(l, &q);
    }
    free(c);
    return rc;
}

/* Counts the bytes to load: whole files, or for several ranks the share of elements that the ranks have together. */
static uint64_t count_bytes(struct load *l)
{
    double files = 0, full = 0, parts = 0;
    struct stat sb;

    for (size_t i = 0; i < l->ck->weights.n_files; i++) {
        struct npugraph_file_piece piece = {0};

        snprintf(l->path, sizeof(l->path), "%s/%s", l->place, l->ck->weights.files[i]);
        if (l->copy == NULL)
            piece.bytes = stat(l->path, &sb) == 0 ? (uint64_t)sb.st_size : 0;
        else /* a failure is told when the weights are loaded */
            npugraph_file_read(l->client, l->path, INT64_MAX, NULL, 0, &piece, NULL);
        files += (double)piece.bytes;
    }
    for (size_t i = 0; i < l->ck->weights.n; i++) {
        const struct npugraph__weight *w = &l->ck->weights.items[i];
        const double n = npugraph__weight_elements(w);

        full += n;
        parts += w->split == NPUGRAPH__WHOLE ? n * l->ranks : n;
    }
    return (uint64_t)(files * parts / full);
}

/* Finds orders that are equal, as those of linears of one input are: x is gathered once for them. */
static void find_same_orders(struct npugraph__weights *all)
{
    for (size_t i = 0; i < all->n; i++) {
        struct npugraph__weight *w = &all->items[i];

        w->same_order = 0;
        for (size_t k = 0; w->order != NULL && w->same_order == 0 && k < i; k++) {
            const struct npugraph__weight *x = &all->items[k];

            if (x->order != NULL && x->same_order == 0 && x->apart == w->apart && x->shape[0] == w->shape[0] &&
                memcmp(x->order, w->order, (size_t)w->shape[0] * sizeof(*w->order)) == 0)
                w->same_order = k + 1;
        }
    }
}

/* Loads group indices first, wherever they are: they say in which order columns are loaded. */
static int load_files(struct load *l)
{
    const size_t files = l->ck->weights.n_files;
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < files; i++)
        rc = load_file(l, l->ck->weights.files[i], true);
    find_same_orders(&l->ck->weights);
    for (size_t i = 0; rc == 0 && i < files; i++)
        rc = load_file(l, l->ck->weights.files[i], false);
    return rc;
}

/* Loads the files. Without an index of shards only the daemon, which reads the file, knows how it names tensors
 * (enum npugraph__names). If the first request lacks one, other names are tried. Of the refusals, one that does not
 * lack the first weight is of the file's own names. */
static int load_files_by_name(struct load *l)
{
    const bool first = l->n_buffers == 0;
    int rc = load_files(l);
    struct npugraph_error refusal = *l->err;

    for (int tries = 1; rc != 0 && strcmp(l->err->reason, "TENSOR_MISSING") == 0; tries++) {
        if (!first || l->n_buffers != 0 || l->ck->gguf != NULL)
            return rc;
        if (strstr(l->err->message, l->ck->weights.items[0].stored) == NULL)
            refusal = *l->err;
        if (!npugraph__weights_rename(l->ck, tries)) {
            *l->err = refusal;
            return rc;
        }
        rc = load_files(l);
    }
    return rc;
}

static int load_weights(struct load *l)
{
    int rc = load_files_by_name(l);

    for (size_t i = 0; rc == 0 && i < l->ck->weights.n; i++) {
        const struct npugraph__weight *w = &l->ck->weights.items[i];

        if (w->absent)
            continue;
        if (w->buffer == 0)
            rc = npugraph__error(l->err, 5, "TENSOR_MISSING", "%s: %s was not loaded", w->file, w->name);
        if (npugraph__weight_is_param(w) && !w->apart)
            l->bindings[l->n_bindings++] = (struct npugraph_binding){w->name, w->buffer};
    }
    l->bytes_total = l->bytes_before; /* it was an estimate, and what the daemon had already was not counted */
    if (rc == 0)
        total_progress(l, 0, 0);
    return rc;
}

/*
 * Puts whose graph it is in front of a refusal that speaks of its text: its lines mean nothing to a reader who did not
 * write them.
 */
static void own_refusal(const struct load *l, const char *which)
{
    struct npugraph_error *err = l->err;
    char text[sizeof(err->message)];

    if (strncmp(err->message, "line ", 5) != 0)
        return;
    snprintf(text, sizeof(text), "%s", err->message);
    snprintf(
        err->message, sizeof(err->message),
        "the daemon refuses the %s graph that was made for the model %.64s, which is a defect of this library or of "
        "its family's file; its author needs this: %.700s",
        which, l->name, text);
}

/* Makes a buffer and binds it to the parameter or the state of this label. */
static int make_buffer(struct load *l, const char *label, uint64_t bytes, uint64_t *buffer_p)
{
    int rc = hold_buffer(l, label, bytes, buffer_p);

    if (rc == 0)
        l->bindings[l->n_bindings++] = (struct npugraph_binding){label, *buffer_p};
    return rc;
}

/* ---- weights that are made of others ---------------------------------------------------------------------- */

/* Gives back the buffers of weights of which others are made by now. */
static void drop_apart(struct load *l)
{
    for (size_t i = 0; i < l->ck->weights.n; i++)
        if (l->ck->weights.items[i].apart)
            free_held(l, l->ck->weights.items[i].buffer);
}

/* Makes buffers for the weights that are made. Gives the bindings of the graph that makes them: these buffers, and the
 * weights that it reads. */
static int bind_made(struct load *l, struct npugraph_binding *bindings, size_t *n_p)
{
    uint64_t id = 0;
    int rc = 0;

    *n_p = 0;
    for (size_t i = 0; i < l->ck->weights.n; i++) {
        const struct npugraph__weight *w = &l->ck->weights.items[i];

        if (w->apart && npugraph__weight_is_param(w))
            bindings[(*n_p)++] = (struct npugraph_binding){w->name, w->buffer};
    }
    for (size_t i = 0; rc == 0 && i < l->ck->n_made; i++) {
        const struct npugraph__made *m = &l->ck->made[i];
        const uint64_t size = strcmp(m->dtype, "f32") == 0 ? 4 : 2;

        rc = make_buffer(l, m->label, (uint64_t)m->rows * (uint64_t)m->columns * size, &id);
        bindings[(*n_p)++] = (struct npugraph_binding){m->label, id};
    }
    return rc;
}

/* Replays once the graph that makes weights of others. */
static int replay_made(struct load *l, const struct ngd_strbuf *text, struct npugraph_binding *bindings)
{
    const struct npugraph_place place = {l->device, 0};
    struct npugraph_replay replay = {0};
    struct npugraph_result *result = NULL;
    size_t n;
    int rc = bind_made(l, bindings, &n);

    if (rc == 0)
        rc = npugraph_graph_register(l->client, &place, ngd_strbuf_str(text), bindings, n, NULL, 0, &replay.graph,
                                     l->err);
    if (rc != 0) {
        own_refusal(l, "weights");
        return rc;
    }
    rc = npugraph_replay(l->client, &replay, &result, l->err);
    npugraph_result_free(result);
    npugraph_graph_release(l->client, replay.graph, NULL);
    return rc;
}

static int make_weights(struct load *l)
{
    struct npugraph_binding *bindings = calloc(l->ck->weights.n + l->ck->n_made, sizeof(*bindings));
    struct ngd_strbuf text;
    char name[96];
    int rc;

    if (bindings == NULL)
        return npugraph__error(l->err, 8, "NO_MEMORY", "out of memory");
    ngd_strbuf_init(&text);
    snprintf(name, sizeof(name), "%s.made", l->name);
    rc = npugraph__checkpoint_made_graph(l->ck, name, &text, l->err);
    if (rc == 0)
        rc = replay_made(l, &text, bindings);
    drop_apart(l);
    ngd_strbuf_fini(&text);
    free(bindings);
    return rc;
}

/* ---- KV states and tables -------------------------------------------------------------------------------- */

static int make_rotary_table(struct load *l, const struct npugraph__rope *rope)
{
    size_t n = (size_t)l->shape.max_context * (size_t)rope->dim;
    float *tables = calloc(2 * n, sizeof(float));
    uint64_t id;
    int rc = 0;

    if (tables == NULL)
        return npugraph__error(l->err, 8, "NO_MEMORY", "out of memory");
    npugraph__rope_table(rope, l->shape.max_context, tables, tables + n);
    for (size_t i = 0; rc == 0 && i < 2; i++) {
        rc = make_buffer(l, rope->label[i], n * sizeof(float), &id);
        if (rc == 0)
            rc = npugraph_buffer_write(l->client, id, 0, tables + i * n, n * sizeof(float), l->err);
    }
    free(tables);
    return rc;
}

static int make_rotary_tables(struct load *l)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < l->ck->n_ropes; i++)
        rc = make_rotary_table(l, &l->ck->ropes[i]);
    return rc;
}

static int make_kv(struct load *l)
{
    const size_t each = npugraph__cache_states(&l->shape);
    uint64_t id;
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < each * npugraph__kv_states(l->ck, &l->shape.groups); i++) {
        const struct npugraph__cache *c = &l->ck->caches[i / each];
        const char *label = c->label[i % each];

        rc = make_buffer(l, label, npugraph__state_bytes(c, &l->shape, i % each), &id);
    }
    return rc;
}

/* ---- graphs and model ------------------------------------------------------------------------------------ */

static int register_model_graph(struct load *l, bool prefill, uint64_t *graph_p)
{
    const struct npugraph_place place = {l->device, l->group};
    const struct npugraph_option precision = {"matmul_precision", l->params->matmul_precision};
    struct ngd_strbuf sb;
    char name[96];
    int rc;

    ngd_strbuf_init(&sb);
    snprintf(name, sizeof(name), "%s.%s", l->name, prefill ? "prefill" : "decode");
    rc = npugraph__checkpoint_graph(l->ck, &l->shape, name, prefill, &sb, l->err);
    if (rc == 0)
        rc = npugraph_graph_register(l->client, &place, ngd_strbuf_str(&sb), l->bindings, l->n_bindings, &precision,
                                     precision.value != NULL, graph_p, l->err);
    if (rc != 0)
        own_refusal(l, prefill ? "prefill" : "decode");
    ngd_strbuf_fini(&sb);
    return rc;
}

static uint64_t count_parameters(const struct load *l)
{
    double n = 0;

    for (size_t i = 0; i < l->ck->weights.n; i++)
        n += npugraph__weight_elements(&l->ck->weights.items[i]) * l->ck->weights.items[i].kind->numbers;
    return (uint64_t)n;
}

/* What most weights are, for people. */
static const char *weights_type(const struct load *l)
{
    const struct ngd_gguf_tensor *t =
        l->ck->gguf != NULL ? ngd_gguf_tensor(&l->ck->gguf->header, "blk.0.attn_q.weight") : NULL;

    return t != NULL ? t->type->name : l->ck->weights.items[0].dtype;
}

static int register_loaded(struct load *l)
{
    const struct npugraph_model_params *p = l->params;
    const size_t each = npugraph__cache_states(&l->shape);
    struct npugraph_model_spec spec = {
        .name = l->name,
        .prefill_graph = l->graphs[1],
        .decode_graph = l->graphs[0],
        .n_kv_states = npugraph__kv_states(l->ck, &l->shape.groups) * each,
        .n_kv_groups = l->shape.groups.n,
        .block_size = l->shape.block_size,
        .num_blocks = l->shape.num_blocks,
        .max_context = l->shape.max_context,
        .vocab = (uint32_t)l->ck->vocab,
        .pooling = l->ck->pooling,
        .unit_embeddings = l->ck->unit,
        .stop_tokens = l->ck->stop,
        .n_stop_tokens = l->ck->n_stop,
        .keep = p->keep,
        .kv_policy = p->kv_policy,
        .no_prefix_sharing = p->no_prefix_sharing,
        .share_with = p->share_with,
        .n_share_with = p->n_share_with,
        .make_public = p->make_public,
        .make_private = p->make_private,
        .share_prefixes = p->share_prefixes,
        .source = l->source,
        .parameters = count_parameters(l),
    };
    char description[160], parallel[40] = "";
    const char **states = calloc(spec.n_kv_states, sizeof(*states));
    int rc;

    if (states == NULL)
        return npugraph__error(l->err, 8, "NO_MEMORY", "out of memory");
    for (size_t i = 0; i < spec.n_kv_states; i++)
        states[i] = l->ck->caches[i / each].label[i % each];
    if (l->ranks > 1)
        snprintf(parallel, sizeof(parallel), ", on %u devices", l->ranks);
    snprintf(description, sizeof(description), "%s, %" PRId64 " layers, hidden %" PRId64 ", %s%s%s%s%s",
             l->ck->architecture, l->ck->layers, l->ck->hidden, weights_type(l), each > 2 ? ", KV " : "",
             each > 2 ? p->kv_dtype : "", parallel, l->ck->headless ? ", for embeddings" : "");
    spec.kv_states = states;
    spec.description = description;
    rc = npugraph_model_register(l->client, &spec, l->err);
    free(states);
    return rc;
}

/* Asks all devices before anything is allocated on one of them. The first one chooses the rows of a KV block. */
static int ask_devices(struct load *l)
{
    struct npugraph_device device;

    for (uint32_t rank = l->ranks; rank-- > 0;) {
        int rc = npugraph_device_find(l->client, device_of_rank(l, rank), &device, l->err);

        if (rc != 0)
            return rc;
        if (device.no_decoder[0] != '\0')
            return npugraph__error(l->err, 12, "OP_UNSUPPORTED", "%s serves no paged decoder: %s", device.name,
                                   device.no_decoder);
    }
    l->shape.block_size = l->params->block_size != 0 ? l->params->block_size
                          : device.kv_block != 0     ? device.kv_block
                                                     : DEFAULT_BLOCK_SIZE;
    l->padding_blocks = device.padding_block;
    return 0;
}

/* Loads one device's part of the model, and registers its two graphs. */
static int load_rank(struct load *l, uint32_t rank, uint64_t graphs[2])
{
    int rc;

    npugraph__weights_divide(&l->ck->weights, rank, l->ranks);
    l->device = device_of_rank(l, rank);
    l->n_bindings = 0;
    rc = load_weights(l);
    if (rc == 0 && l->ck->n_made != 0)
        rc = make_weights(l);
    if (rc == 0 && rank == 0)
        rc = choose_sizes(l);
    if (rc == 0)
        rc = make_rotary_tables(l);
    if (rc == 0)
        rc = make_kv(l);
    if (rc == 0)
        rc = register_model_graph(l, true, &graphs[1]);
    return rc == 0 && !l->ck->headless ? register_model_graph(l, false, &graphs[0]) : rc;
}

/* Joins the graphs of all ranks (prefill or decode) into one. */
static int join_rank(struct load *l, int which)
{
    uint64_t *graphs = calloc(l->ranks, sizeof(*graphs));
    int rc;

    if (graphs == NULL)
        return npugraph__error(l->err, 8, "NO_MEMORY", "out of memory");
    for (uint32_t r = 0; r < l->ranks; r++)
        graphs[r] = l->rank_graphs[r][which];
    rc = npugraph_ranks_join(l->client, graphs, l->ranks, true, &l->graphs[which], l->err);
    free(graphs);
    return rc;
}

static int load_ranks(struct load *l)
{
    int rc = npugraph__check_sizes(l->params, l->ck, l->err);

    if (rc == 0)
        rc = ask_devices(l);
    if (rc != 0)
        return rc;
    if (l->ranks == 1)
        return load_rank(l, 0, l->graphs);
    rc = npugraph_group_create(l->client, NPUGRAPH__GROUP, l->params->devices, l->ranks, &l->group, l->err);
    for (uint32_t r = 0; rc == 0 && r < l->ranks; r++)
        rc = load_rank(l, r, l->rank_graphs[r]);
    for (int i = l->ck->headless; rc == 0 && i < 2; i++)
        rc = join_rank(l, i);
    return rc;
}

/* A GGUF file is the only file below the directory that it lies in. */
static void leave_gguf(struct load *l)
{
    char *slash = strrchr(l->place, '/');

    memcpy(l->source, l->place, sizeof(l->source));
    if (l->ck->gguf == NULL)
        return;
    if (slash != NULL)
        *slash = '\0';
    else
        snprintf(l->place, sizeof(l->place), ".");
}

static int load_all(struct load *l, const char *dir)
{
    size_t all;
    int rc = find_checkpoint(l, dir);

    l->ranks = l->params->n_devices > 1 ? (uint32_t)l->params->n_devices : 1;
    if (rc == 0)
        rc = read_checkpoint(l);
    if (rc != 0)
        return rc;
    choose_name(l);
    leave_gguf(l);
    all = l->ck->weights.n + l->ck->n_made + NPUGRAPH__CACHE_STATES * l->ck->n_caches + 2 * l->ck->n_ropes;
    l->bindings = calloc(all, sizeof(*l->bindings));
    l->buffers = calloc(all * l->ranks, sizeof(*l->buffers));
    l->rank_graphs = calloc(l->ranks, sizeof(*l->rank_graphs));
    if (l->bindings == NULL || l->buffers == NULL || l->rank_graphs == NULL)
        return npugraph__error(l->err, 8, "NO_MEMORY", "out of memory");
    l->bytes_total = count_bytes(l);
    rc = load_ranks(l);
    if (rc == 0 && l->copy != NULL)
        rc = npugraph_checkpoint_copy_check(l->copy, l->client, l->err);
    else if (rc == 0 && l->ck->gguf != NULL) {
        l->ck->gguf->from.err = l->err;
        rc = npugraph__gguf_check_unchanged(l->ck->gguf);
    }
    return rc == 0 ? register_loaded(l) : rc;
}

/* Drops our holds. After a success the model holds what it needs; after a failure this cleans up. */
static void load_fini(struct load *l)
{
    for (int i = 0; i < 2; i++)
        if (l->graphs[i] != 0)
            npugraph_graph_release(l->client, l->graphs[i], NULL);
    for (uint32_t r = 0; l->rank_graphs != NULL && r < l->ranks; r++)
        for (int i = 0; i < 2; i++)
            if (l->rank_graphs[r][i] != 0)
                npugraph_graph_release(l->client, l->rank_graphs[r][i], NULL);
    if (l->group != 0)
        npugraph_graph_release(l->client, l->group, NULL);
    npugraph_checkpoint_copy_close(l->copy);
    if (l->n_buffers != 0)
        npugraph_buffer_free(l->client, l->buffers, l->n_buffers, NULL);
}

int npugraph_model_load(struct npugraph_client *client, const char *dir, const struct npugraph_model_params *params,
                        npugraph_progress_fn progress, void *user, struct npugraph_error *err)
{
    struct npugraph_error local = {0};
    struct load *l = calloc(1, sizeof(*l));
    int rc;

    if (l == NULL)
        return npugraph__error(err, 8, "NO_MEMORY", "out of memory");
    l->client = client;
    l->params = params;
    l->progress = progress;
    l->user = user;
    l->err = &local;
    rc = load_all(l, dir);
    load_fini(l);
    npugraph__checkpoint_free(l->ck);
    free(l->bindings);
    free(l->buffers);
    free(l->rank_graphs);
    free(l);
    if (rc != 0 && err != NULL)
        *err = local;
    return rc;
}
