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
};
#define N_SMALL (sizeof(small_files) / sizeof(small_files[0]))

struct npugraph_checkpoint_copy {
    char dir[64];              /* a new directory of ours */
    char path[PATH_MAX + 64];  /* the directory, or the GGUF file in it */
    char first[PATH_MAX + 64]; /* the first file, as the daemon sees it */
    uint64_t version;          /* of that */
};

/* A file as far as it was read. */
struct remote_file {
    struct npugraph_client *client;
    const char *path;
    char *data;
    size_t n, room;
    uint64_t bytes, version; /* of the whole file */
};

static int read_next(struct remote_file *f, struct npugraph_error *err)
{
    uint64_t bytes, version;
    size_t got;
    int rc;

    if (f->room - f->n < PIECE) {
        const size_t room = f->room + (f->room < PIECE ? PIECE : f->room);
        char *more = realloc(f->data, room);

        if (more == NULL)
            return npugraph__no_memory(err);
        f->data = more;
        f->room = room;
    }
    rc = npugraph_file_read(f->client, f->path, f->n, f->data + f->n, f->room - f->n, &got, &bytes, &version, err);
    if (rc != 0)
        return rc;
    if (f->n != 0 && (version != f->version || bytes != f->bytes))
        return npugraph__error(err, 3, "FILE_CORRUPT", "%.500s: was changed while it was read; try again", f->path);
    if (got == 0 && f->n < bytes)
        return npugraph__error(err, 3, "FILE_TRUNCATED", "%.500s: the daemon sent no byte at %zu", f->path, f->n);
    f->bytes = bytes;
    f->version = version;
    f->n += got;
    return 0;
}

/* The first n bytes, in a file that is as long as the whole one. */
static int write_copy(const struct remote_file *f, const char *path, struct npugraph_error *err)
{
    FILE *out = fopen(path, "wbxe");
    bool good = out != NULL && fwrite(f->data, 1, f->n, out) == f->n && fflush(out) == 0 &&
                ftruncate(fileno(out), (off_t)f->bytes) == 0;

    if (out != NULL)
        good = fclose(out) == 0 && good;
    return good ? 0 : npugraph__error(err, 13, "IO", "%s: cannot be written", path);
}

static int copy_small_file(struct npugraph_client *client, const char *from, const char *to, uint64_t *version_p,
                           struct npugraph_error *err)
{
    struct remote_file f = {.client = client, .path = from};
    int rc;

    do {
        rc = read_next(&f, err);
        if (rc == 0 && f.bytes > MOST_JSON)
            rc =
                npugraph__error(err, 3, "FILE_UNSUPPORTED", "%.500s: has more than %" PRIu64 " bytes", from, MOST_JSON);
    } while (rc == 0 && f.n < f.bytes);
    if (rc == 0)
        rc = write_copy(&f, to, err);
    free(f.data);
    *version_p = f.version;
    return rc;
}

static int copy_directory(struct npugraph_client *client, const char *source, struct npugraph_checkpoint_copy *copy,
                          struct npugraph_error *err)
{
    char path[PATH_MAX + 64], to[PATH_MAX + 128];

    for (size_t i = 0; i < N_SMALL; i++) {
        struct npugraph_error local = {0};
        uint64_t version;
        int rc;

        snprintf(path, sizeof(path), "%s/%s", source, small_files[i]);
        snprintf(to, sizeof(to), "%s/%s", copy->dir, small_files[i]);
        rc = copy_small_file(client, path, to, &version, &local);
        if (rc != 0 && (i == 0 || strcmp(local.reason, "FILE_NOT_FOUND") != 0))
            return npugraph__error(err, rc, local.reason, "%s", local.message);
        if (i == 0) {
            memcpy(copy->first, path, sizeof(path));
            copy->version = version;
        }
    }
    return 0;
}

/* Copies the header. What is wrong with it is told by who opens the copy. */
static int copy_gguf(struct npugraph_client *client, const char *source, struct npugraph_checkpoint_copy *copy,
                     struct npugraph_error *err)
{
    struct remote_file f = {.client = client, .path = source};
    size_t enough = PIECE;
    bool more = true;
    int rc = 0;

    while (rc == 0 && more) {
        while (rc == 0 && (f.n == 0 || (f.n < enough && f.n < f.bytes)))
            rc = read_next(&f, err);
        if (rc == 0) {
            struct ngd_gguf header = {0};

            more = false;
            if (ngd_gguf_parse((const uint8_t *)f.data, f.n, f.bytes, &header, &more, NULL) == NGD_OK)
                ngd_gguf_fini(&header);
            more = more && f.n < f.bytes && f.n < NGD_GGUF_MAX_HEADER;
            enough *= 2;
        }
    }
    if (rc == 0)
        rc = write_copy(&f, copy->path, err);
    free(f.data);
    snprintf(copy->first, sizeof(copy->first), "%s", source);
    copy->version = f.version;
    return rc;
}

static bool ends_in_gguf(const char *path)
{
    const size_t n = strlen(path);

    return n > 5 && strcmp(path + n - 5, ".gguf") == 0;
}

int npugraph_checkpoint_copy_open(struct npugraph_client *client, const char *source,
                                  struct npugraph_checkpoint_copy **copy_p, struct npugraph_error *err)
{
    const char *tmp = getenv("TMPDIR"), *base = strrchr(source, '/');
    struct npugraph_checkpoint_copy *copy;
    int rc;

    if (strlen(source) >= PATH_MAX)
        return npugraph__error(err, 3, "INVALID_ARGUMENT", "the path has more than %d bytes", PATH_MAX - 1);
    copy = calloc(1, sizeof(*copy));
    if (copy == NULL)
        return npugraph__no_memory(err);
    if (snprintf(copy->dir, sizeof(copy->dir), "%s/npugraph-XXXXXX", tmp != NULL ? tmp : "/tmp") >=
        (int)sizeof(copy->dir))
        snprintf(copy->dir, sizeof(copy->dir), "/tmp/npugraph-XXXXXX");
    if (mkdtemp(copy->dir) == NULL) {
        rc = npugraph__error(err, 13, "IO", "%s: no directory can be made there", copy->dir);
        free(copy);
        return rc;
    }
    if (ends_in_gguf(source)) {
        snprintf(copy->path, sizeof(copy->path), "%s/%s", copy->dir, base != NULL ? base + 1 : source);
        rc = copy_gguf(client, source, copy, err);
    } else {
        snprintf(copy->path, sizeof(copy->path), "%s", copy->dir);
        rc = copy_directory(client, source, copy, err);
    }
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
    const char *source = NULL;
    int rc = npugraph_models_list(client, &models, err);

    if (rc != 0)
        return rc;
    for (size_t i = 0; i < models->n && source == NULL; i++) /* one's own is listed before a public one */
        if (strcmp(models->items[i].name, model) == 0)
            source = models->items[i].source;
    if (source == NULL)
        rc = npugraph__error(err, 5, "MODEL_NOT_FOUND", "there is no model \"%s\"", model);
    else if (source[0] == '\0')
        rc = npugraph__error(err, 5, "FILE_NOT_FOUND",
                             "the model \"%s\" was registered without the place of its files: name a tokenizer", model);
    else
        rc = npugraph_checkpoint_copy_open(client, source, copy_p, err);
    npugraph_models_free(models);
    return rc;
}

int npugraph_checkpoint_copy_check(const struct npugraph_checkpoint_copy *copy, struct npugraph_client *client,
                                   struct npugraph_error *err)
{
    uint64_t bytes, version;
    size_t none;
    int rc = npugraph_file_read(client, copy->first, 0, NULL, 0, &none, &bytes, &version, err);

    if (rc != 0 || version == copy->version)
        return rc;
    return npugraph__error(err, 3, "FILE_CORRUPT", "%.500s: was changed while it was loaded; load it again",
                           copy->first);
}

const char *npugraph_checkpoint_copy_path(const struct npugraph_checkpoint_copy *copy)
{
    return copy->path;
}

void npugraph_checkpoint_copy_close(struct npugraph_checkpoint_copy *copy)
{
    char path[PATH_MAX + 128];

    if (copy == NULL)
        return;
    if (strcmp(copy->path, copy->dir) != 0)
        unlink(copy->path);
    for (size_t i = 0; i < N_SMALL; i++) {
        snprintf(path, sizeof(path), "%s/%s", copy->dir, small_files[i]);
        unlink(path);
    }
    rmdir(copy->dir);
    free(copy);
}
