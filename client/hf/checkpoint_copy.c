/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies of a checkpoint's small files, which the daemon reads for us: what is needed to load a model or to use its
 * tokenizer where its files are not.
 */
#include "base/gguf.h"
#include "client/hf/npugraph_hf.h"
#include "client/hf/source.h"
#include "client/lib/error.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PIECE     ((size_t)256 << 10)
#define MOST_JSON ((uint64_t)64 << 20)

/* The files of a directory. The first must be there. */
static const char *const small_files[] = {
    "config.json",    "generation_config.json", "model.safetensors.index.json",
    "tokenizer.json", "tokenizer_config.json",  "chat_template.jinja",
    "modules.json",   "1_Pooling/config.json",  "npugraph.lua",
};
#define N_SMALL (sizeof(small_files) / sizeof(small_files[0]))
static const char small_directory[] = "1_Pooling"; /* the only one in which one of them lies */

struct npugraph_checkpoint_copy {
    char dir[64];             /* a new directory of ours */
    char path[PATH_MAX + 64]; /* the directory, or the GGUF file in it */
    char source[PATH_MAX];    /* the directory or the GGUF file as the daemon sees it, absolute */
    bool gguf;
    uint64_t version[N_SMALL]; /* of each file, or of the GGUF file; 0: it is not there */
};

/* A file as far as it was read. */
struct remote_file {
    struct npugraph_client *client;
    const char *path;
    char *data;
    size_t n, room;
    struct npugraph_file_piece piece; /* the last one */
};

static int read_next(struct remote_file *f, struct npugraph_error *err)
{
    const uint64_t bytes = f->piece.bytes, version = f->piece.version;
    int rc;

    if (f->room - f->n < PIECE) {
        const size_t room = f->room + (f->room < PIECE ? PIECE : f->room);
        char *more = realloc(f->data, room);

        if (more == NULL)
            return npugraph__no_memory(err);
        f->data = more;
        f->room = room;
    }
    rc = npugraph_file_read(f->client, f->path, f->n, f->data + f->n, f->room - f->n, &f->piece, err);
    if (rc != 0)
        return rc;
    if (f->n != 0 && (version != f->piece.version || bytes != f->piece.bytes))
        return npugraph__error(err, 3, "FILE_CORRUPT", "%.500s: was changed while it was read; try again", f->path);
    if (f->piece.n == 0 && f->n < f->piece.bytes)
        return npugraph__error(err, 3, "FILE_TRUNCATED", "%.500s: the daemon sent no byte at %zu", f->path, f->n);
    f->n += f->piece.n;
    return 0;
}

/* A file that is as long as the whole one, and has its first n bytes; then `more` bytes at `offset`. */
static int write_copy(const struct remote_file *f, const char *path, const void *more, size_t n_more, uint64_t offset,
                      struct npugraph_error *err)
{
    FILE *out = fopen(path, "wbxe");
    bool good = out != NULL && fwrite(f->data, 1, f->n, out) == f->n && fflush(out) == 0 &&
                ftruncate(fileno(out), (off_t)f->piece.bytes) == 0 &&
                (n_more == 0 || pwrite(fileno(out), more, n_more, (off_t)offset) == (ssize_t)n_more);

    if (out != NULL)
        good = fclose(out) == 0 && good;
    return good ? 0 : npugraph__error(err, 13, "IO", "%s: cannot be written", path);
}

static int copy_small_file(struct remote_file *f, const char *to, struct npugraph_error *err)
{
    int rc;

    do {
        rc = read_next(f, err);
        if (rc == 0 && f->piece.bytes > MOST_JSON)
            rc = npugraph__error(err, 3, "FILE_UNSUPPORTED", "%.500s: has more than %" PRIu64 " bytes", f->path,
                                 MOST_JSON);
    } while (rc == 0 && f->n < f->piece.bytes);
    return rc == 0 ? write_copy(f, to, NULL, 0, 0, err) : rc;
}

/* The directory of the first file is that of the others: a relative path may lead to several. */
static void settle_directory(struct npugraph_checkpoint_copy *copy, const char *first)
{
    const char *slash = strrchr(first, '/');

    if (slash != NULL)
        snprintf(copy->source, sizeof(copy->source), "%.*s", (int)(slash - first), first);
}

static int copy_directory(struct npugraph_client *client, struct npugraph_checkpoint_copy *copy,
                          struct npugraph_error *err)
{
    char path[PATH_MAX + 64], to[128];

    snprintf(to, sizeof(to), "%s/%s", copy->dir, small_directory);
    if (mkdir(to, 0700) != 0)
        return npugraph__error(err, 13, "IO", "%s: cannot be made", to);
    for (size_t i = 0; i < N_SMALL; i++) {
        struct npugraph_error local = {0};
        struct remote_file f = {.client = client, .path = path};
        int rc;

        snprintf(path, sizeof(path), "%s/%s", copy->source, small_files[i]);
        snprintf(to, sizeof(to), "%s/%s", copy->dir, small_files[i]);
        rc = copy_small_file(&f, to, &local);
        free(f.data);
        if (rc != 0 && (i == 0 || strcmp(local.reason, "FILE_NOT_FOUND") != 0))
            return npugraph__error(err, rc, local.reason, "%s", local.message);
        copy->version[i] = rc == 0 ? f.piece.version : 0;
        if (i == 0)
            settle_directory(copy, f.piece.path);
    }
    return 0;
}

/* Reads until the header is whole, or wrong: what is wrong with it is told by who opens the copy. Finds the factors of
 * rotary frequencies, the only tensor that a client reads. */
static int read_gguf_header(struct remote_file *f, uint64_t *offset_p, size_t *n_p, struct npugraph_error *err)
{
    size_t enough = PIECE;
    bool more = true;
    int rc = 0;

    while (rc == 0 && more) {
        struct ngd_gguf header = {0};
        const struct ngd_gguf_tensor *t;

        do
            rc = read_next(f, err);
        while (rc == 0 && f->n < enough && f->n < f->piece.bytes);
        more = false;
        if (rc == 0 && ngd_gguf_parse((const uint8_t *)f->data, f->n, f->piece.bytes, &header, &more, NULL) == NGD_OK) {
            t = ngd_gguf_tensor(&header, "rope_freqs.weight");
            if (t != NULL && t->bytes <= PIECE) {
                *offset_p = t->offset;
                *n_p = (size_t)t->bytes;
            }
            ngd_gguf_fini(&header);
        }
        more = more && f->n < f->piece.bytes && f->n < NGD_GGUF_MAX_HEADER;
        enough = f->n * 2;
    }
    return rc;
}

static int copy_gguf(struct npugraph_client *client, struct npugraph_checkpoint_copy *copy, struct npugraph_error *err)
{
    struct remote_file f = {.client = client, .path = copy->source};
    struct npugraph_file_piece piece;
    uint64_t offset = 0;
    size_t n = 0;
    char *factors = malloc(PIECE);
    int rc = factors != NULL ? read_gguf_header(&f, &offset, &n, err) : npugraph__no_memory(err);

    if (rc == 0 && n != 0)
        rc = npugraph_file_read(client, copy->source, offset, factors, n, &piece, err);
    if (rc == 0 && n != 0 && (piece.n != n || piece.version != f.piece.version))
        rc = npugraph__error(err, 3, "FILE_CORRUPT", "%.500s: was changed while it was read; try again", copy->source);
    if (rc == 0)
        rc = write_copy(&f, copy->path, factors, n, offset, err);
    if (rc == 0)
        snprintf(copy->source, sizeof(copy->source), "%s", f.piece.path);
    copy->version[0] = f.piece.version;
    free(factors);
    free(f.data);
    return rc;
}

static bool ends_in_gguf(const char *path)
{
    const size_t n = strlen(path);

    return n > 5 && strcmp(path + n - 5, ".gguf") == 0;
}

static int make_copy_directory(struct npugraph_checkpoint_copy *copy, struct npugraph_error *err)
{
    const char *tmp = getenv("TMPDIR");
    const int n = snprintf(copy->dir, sizeof(copy->dir), "%s/npugraph-XXXXXX", tmp != NULL ? tmp : "/tmp");

    if (n >= (int)sizeof(copy->dir))
        snprintf(copy->dir, sizeof(copy->dir), "/tmp/npugraph-XXXXXX");
    return mkdtemp(copy->dir) != NULL ? 0 : npugraph__error(err, 13, "IO", "%s: cannot be made", copy->dir);
}

int npugraph_checkpoint_copy_open(struct npugraph_client *client, const char *source,
                                  struct npugraph_checkpoint_copy **copy_p, struct npugraph_error *err)
{
    const char *base = strrchr(source, '/');
    struct npugraph_checkpoint_copy *copy;
    int rc;

    if (strlen(source) >= sizeof(copy->source))
        return npugraph__error(err, 3, "INVALID_ARGUMENT", "the path has more than %d bytes", PATH_MAX - 1);
    copy = calloc(1, sizeof(*copy));
    if (copy == NULL)
        return npugraph__no_memory(err);
    rc = make_copy_directory(copy, err);
    if (rc != 0) {
        free(copy);
        return rc;
    }
    snprintf(copy->source, sizeof(copy->source), "%s", source);
    copy->gguf = ends_in_gguf(source);
    if (copy->gguf)
        snprintf(copy->path, sizeof(copy->path), "%s/%s", copy->dir, base != NULL ? base + 1 : source);
    else
        snprintf(copy->path, sizeof(copy->path), "%s", copy->dir);
    rc = copy->gguf ? copy_gguf(client, copy, err) : copy_directory(client, copy, err);
    if (rc != 0)
        npugraph_checkpoint_copy_close(copy);
    else
        *copy_p = copy;
    return rc;
}

int npugraph_model_copy_open(struct npugraph_client *client, const char *model,
                             struct npugraph_checkpoint_copy **copy_p, struct npugraph_error *err)
{
    struct npugraph_models *models = NULL;
    int rc = npugraph_models_find(client, model, &models, err);

    if (rc != 0)
        return rc;
    if (models->n == 0)
        rc = npugraph__error(err, 5, "MODEL_NOT_FOUND", "there is no model \"%s\"", model);
    else if (models->items[0].source[0] == '\0')
        rc = npugraph__error(err, 5, "FILE_NOT_FOUND",
                             "the model \"%s\" was registered without the place of its files: name a tokenizer", model);
    else
        rc = npugraph_checkpoint_copy_open(client, models->items[0].source, copy_p, err);
    npugraph_models_free(models);
    return rc;
}

int npugraph_checkpoint_copy_check(const struct npugraph_checkpoint_copy *copy, struct npugraph_client *client,
                                   struct npugraph_error *err)
{
    struct npugraph_file_piece piece;
    char path[PATH_MAX + 64];

    for (size_t i = 0; i < (copy->gguf ? 1 : N_SMALL); i++) {
        int rc;

        if (copy->version[i] == 0)
            continue;
        snprintf(path, sizeof(path), "%s%s%s", copy->source, copy->gguf ? "" : "/", copy->gguf ? "" : small_files[i]);
        rc = npugraph_file_read(client, path, INT64_MAX, NULL, 0, &piece, err); /* behind its end */
        if (rc != 0)
            return rc;
        if (piece.version != copy->version[i])
            return npugraph__error(err, 3, "FILE_CORRUPT", "%.500s: was changed while it was loaded; load it again",
                                   path);
    }
    return 0;
}

const char *npugraph_checkpoint_copy_path(const struct npugraph_checkpoint_copy *copy)
{
    return copy->path;
}

const char *npugraph_checkpoint_copy_source(const struct npugraph_checkpoint_copy *copy)
{
    return copy->source;
}

void npugraph_checkpoint_copy_remove(struct npugraph_checkpoint_copy *copy)
{
    char path[128];

    if (copy->gguf)
        unlink(copy->path);
    for (size_t i = 0; i < N_SMALL && !copy->gguf; i++) {
        snprintf(path, sizeof(path), "%s/%s", copy->dir, small_files[i]);
        unlink(path);
    }
    snprintf(path, sizeof(path), "%s/%s", copy->dir, small_directory);
    rmdir(path);
    rmdir(copy->dir);
}

void npugraph_checkpoint_copy_close(struct npugraph_checkpoint_copy *copy)
{
    if (copy == NULL)
        return;
    npugraph_checkpoint_copy_remove(copy);
    free(copy);
}
