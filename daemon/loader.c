/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading: files are read and never mapped, so that one that shrinks is an error and no signal. Before the first byte
 * is read, the loader waits until the file's time of change has settled (base/file_id.h). After the last one it looks
 * whether the id is still the same. So what is in the table under an id are the contents that the id stands for. A file
 * that does not settle is loaded, but not shared.
 *
 * Sharing: the table holds a reference on every loaded buffer. When it is the only one, nobody but a lookup could get
 * another, and lookups take theirs under the table's lock; so under that lock the buffer may go.
 */
#include "daemon/loader.h"

#include "base/digest.h"
#include "base/file_id.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/metrics.h"
#include "base/path.h"
#include "daemon/daemon.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define CHUNK_BYTES    ((uint64_t)8 << 20)
#define PROGRESS_EVERY (100 * NGD_MSEC)
#define TABLE_SIZE     1024

/* Which part of a tensor; zeros: all of it. */
struct part {
    uint32_t dim;
    int64_t begin, end;
};

/* A loaded tensor. */
struct shared {
    struct shared *next;
    struct ngd_buffer *buffer; /* a reference */
    struct ngd_file_id file;
    uint64_t offset;
    struct part part;
};

struct ngd_loader {
    struct ngd_daemon *daemon;
    struct ngd_mutex lock;
    struct ngd_cond over; /* a load is */
    struct shared *table[TABLE_SIZE] NGD_GUARDED_BY(lock);
    struct ngd_list loading NGD_GUARDED_BY(lock); /* struct ngd_load, of different files */
};

/* ---- sharing ------------------------------------------------------------------------------------- */

static struct shared **bucket(struct ngd_loader *l, const struct ngd_file_id *file, uint64_t offset)
    NGD_REQUIRES(l->lock)
{
    return &l->table[ngd_hash64(file, sizeof(*file), offset) % TABLE_SIZE];
}

/* Takes the caller's reference on buffer, also when it fails; the buffer takes the charge. */
static struct ngd_buffer_object *make_object(struct ngd_loaded *t, struct ngd_buffer *buffer)
{
    struct ngd_buffer_object *o;

    ngd_buffer_set_charge(buffer, &t->charge);
    o = ngd_buffer_object_create(buffer);
    if (o)
        o->read_only = true;
    return o;
}

/* The same, with a view: others have the buffer too, and each pays for itself. */
static struct ngd_buffer_object *make_shared_object(struct ngd_loaded *t, struct ngd_buffer *buffer)
{
    struct ngd_buffer *view = NULL;

    ngd_buffer_view(buffer, &view, NULL);
    ngd_buffer_unref(buffer);
    return view ? make_object(t, view) : NULL;
}

static struct part part_of(const struct ngd_loaded *t)
{
    return t->slice ? (struct part){t->slice->dim, t->slice->begin, t->slice->end} : (struct part){0, 0, 0};
}

/* *found_p: it is there, though no host memory may be for an object. */
static struct ngd_buffer_object *find_shared(struct ngd_loader *l, struct ngd_device *dev,
                                             const struct ngd_file_id *file, struct ngd_loaded *t, bool *found_p)
{
    const uint64_t offset = t->tensor->offset;
    const struct part part = part_of(t);
    struct ngd_buffer *buffer = NULL;

    ngd_mutex_lock(&l->lock);
    for (const struct shared *s = *bucket(l, file, offset); s && !buffer; s = s->next)
        if (ngd_file_id_equal(&s->file, file) && s->offset == offset && s->part.dim == part.dim &&
            s->part.begin == part.begin && s->part.end == part.end && ngd_buffer_device(s->buffer) == dev &&
            ngd_buffer_bytes(s->buffer) == (t->bytes ? t->bytes : 1))
            buffer = ngd_buffer_ref(s->buffer);
    ngd_mutex_unlock(&l->lock);
    *found_p = buffer != NULL;
    return buffer ? make_shared_object(t, buffer) : NULL;
}

/* Takes the caller's reference on buffer, also when it fails. */
static struct ngd_buffer_object *add_shared(struct ngd_loader *l, const struct ngd_file_id *file, struct ngd_loaded *t,
                                            struct ngd_buffer *buffer)
{
    const uint64_t offset = t->tensor->offset;
    struct shared *s = NGD_NEW(struct shared);

    if (!s) {
        ngd_buffer_unref(buffer);
        return NULL;
    }
    *s = (struct shared){.buffer = ngd_buffer_ref(buffer), .file = *file, .offset = offset, .part = part_of(t)};
    ngd_mutex_lock(&l->lock);
    s->next = *bucket(l, file, offset);
    *bucket(l, file, offset) = s;
    ngd_mutex_unlock(&l->lock);
    return make_shared_object(t, buffer);
}

/* Unlinks entries into a list: those that only the table holds, or all. */
static struct shared *take_unused(struct ngd_loader *l, bool all)
{
    struct shared *unused = NULL;

    ngd_mutex_lock(&l->lock);
    for (size_t i = 0; i < TABLE_SIZE; i++) {
        for (struct shared **at = &l->table[i]; *at;) {
            struct shared *s = *at;

            if (!all && !ngd_buffer_is_last(s->buffer)) {
                at = &s->next;
                continue;
            }
            *at = s->next;
            s->next = unused;
            unused = s;
        }
    }
    ngd_mutex_unlock(&l->lock);
    return unused;
}

static void drop_list(struct shared *s)
{
    while (s) {
        struct shared *next = s->next;

        ngd_buffer_unref(s->buffer);
        ngd_free(s);
        s = next;
    }
}

void ngd_loader_forget(struct ngd_loader *l)
{
    drop_list(take_unused(l, false));
}

/* Is another load of the file under way? */
static bool is_loading(struct ngd_loader *l, const struct ngd_file_id *file) NGD_REQUIRES(l->lock)
{
    ngd_list_for_each (pos, &l->loading) {
        const struct ngd_load *other = ngd_container_of(pos, struct ngd_load, link);

        if (ngd_file_id_equal(other->file, file))
            return true;
    }
    return false;
}

/* Waits for loads of the same file, so that each tensor is read once however many ask at the same time. */
static ngd_status_t begin_load(struct ngd_loader *l, struct ngd_load *load, const struct ngd_file_id *file,
                               struct ngd_diag *diag)
{
    bool go_on = true;

    ngd_mutex_lock(&l->lock);
    while (go_on && is_loading(l, file)) {
        ngd_cond_wait_until(&l->over, &l->lock, ngd_now() + PROGRESS_EVERY);
        ngd_mutex_unlock(&l->lock);
        go_on = load->progress(load->ctx, 0, file->size);
        ngd_mutex_lock(&l->lock);
    }
    if (go_on) {
        load->file = file;
        ngd_list_push_back(&l->loading, &load->link);
    }
    ngd_mutex_unlock(&l->lock);
    return go_on ? NGD_OK : ngd_diag_set(diag, NGD_ERR_CANCELLED, "the load was cancelled");
}

static void end_load(struct ngd_loader *l, struct ngd_load *load)
{
    ngd_mutex_lock(&l->lock);
    ngd_list_remove(&load->link);
    ngd_cond_broadcast(&l->over);
    ngd_mutex_unlock(&l->lock);
}

/* ---- opening ------------------------------------------------------------------------------------- */

/* Why something was not opened: the machine's trouble, which says nothing of the path, or `otherwise`. */
static ngd_status_t not_opened(int e, ngd_status_t otherwise)
{
    bool trouble = e == EMFILE || e == ENFILE || e == ENOMEM || e == EINTR || e == EIO;

    return trouble ? ngd_status_from_errno(e) : otherwise;
}

static ngd_status_t open_in(const char *dir, const char *path, int *fd_p)
{
    char real[PATH_MAX];
    const char *below;
    int d, e;

    if (!realpath(dir, real))
        return not_opened(errno, NGD_ERR_PATH_NOT_ALLOWED);
    below = ngd_path_below(dir, path);
    if (!below)
        below = ngd_path_below(real, path);
    if (!below || below[0] == '\0')
        return NGD_ERR_PATH_NOT_ALLOWED;
    d = open(real, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (d < 0)
        return not_opened(errno, NGD_ERR_PATH_NOT_ALLOWED);
    *fd_p = ngd_open_below(d, below);
    e = errno;
    close(d);
    if (*fd_p >= 0)
        return NGD_OK;
    return not_opened(e, e == ENOENT || e == ENOTDIR ? NGD_ERR_FILE_NOT_FOUND : NGD_ERR_PATH_NOT_ALLOWED);
}

static ngd_status_t open_file(const struct ngd_loader *l, const char *path, int *fd_p, struct ngd_diag *diag)
{
    const struct ngd_config_list *dirs = &l->daemon->options.models_dir;
    ngd_status_t status = NGD_ERR_PATH_NOT_ALLOWED;
    struct stat sb;

    for (size_t i = 0; i < dirs->n && status != NGD_OK; i++) {
        ngd_status_t s = open_in(dirs->items[i], path, fd_p);

        if (s != NGD_OK && s != NGD_ERR_FILE_NOT_FOUND && s != NGD_ERR_PATH_NOT_ALLOWED)
            return ngd_diag_set(diag, s, "%.400s cannot be opened now: %s", path, ngd_status_text(s));
        if (s == NGD_OK || status != NGD_ERR_FILE_NOT_FOUND)
            status = s;
    }
    if (status == NGD_ERR_FILE_NOT_FOUND)
        return ngd_diag_set(diag, status, "%.400s: no such file", path);
    if (status != NGD_OK)
        return ngd_diag_set(diag, status,
                            "%.400s: not in one of the directories that the option models-dir allows (a link out of "
                            "them counts as outside)",
                            path);
    status = NGD_OK;
    if (fstat(*fd_p, &sb) != 0)
        status = ngd_diag_set(diag, NGD_ERR_IO, "%.400s cannot be looked at: %s", path, strerror(errno));
    else if (!S_ISREG(sb.st_mode))
        status = ngd_diag_set(diag, NGD_ERR_FILE_UNSUPPORTED, "%.400s: is not a regular file", path);
    if (status != NGD_OK)
        close(*fd_p);
    return status;
}

/* ---- reading ------------------------------------------------------------------------------------- */

static ngd_status_t read_fully(int fd, void *to, uint64_t n, uint64_t offset, struct ngd_diag *diag)
{
    for (uint64_t done = 0; done < n;) {
        ssize_t k = pread(fd, (char *)to + done, n - done, (off_t)(offset + done));

        if (k == 0)
            return ngd_diag_set(diag, NGD_ERR_FILE_TRUNCATED, "the file became shorter while it was read");
        if (k < 0 && errno != EINTR)
            return ngd_diag_set(diag, ngd_status_from_errno(errno), "reading failed: %s", strerror(errno));
        done += k > 0 ? (uint64_t)k : 0;
    }
    return NGD_OK;
}

static ngd_status_t read_index(int fd, uint64_t size, struct ngd_load *load, struct ngd_diag *diag)
{
    uint8_t first[8] = {0};
    uint64_t n;
    char *json;
    ngd_status_t status = read_fully(fd, first, size < 8 ? size : 8, 0, diag);

    if (status == NGD_OK)
        status = ngd_safetensors_header_bytes(first, size, &n, diag);
    if (status != NGD_OK)
        return status;
    json = ngd_malloc(n);
    if (!json)
        return NGD_ERR_NO_MEMORY;
    status = read_fully(fd, json, n, 8, diag);
    if (status == NGD_OK)
        status = ngd_safetensors_parse(json, n, size, &load->index, diag);
    ngd_free(json);
    return status;
}

static ngd_status_t check_slice(const struct ngd_load *load, const struct ngd_safetensor *t,
                                const struct ngd_load_slice *s, struct ngd_diag *diag)
{
    if (s->dim < t->rank && s->begin >= 0 && s->begin < s->end && s->end <= t->shape[s->dim])
        return NGD_OK;
    return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT,
                        "%.300s: tensor %.200s has no slice %" PRId64 " to %" PRId64 " of dimension %" PRIu32
                        ": it has %" PRIu32 " dimensions, and %" PRId64 " there",
                        load->path, t->name, s->begin, s->end, s->dim, t->rank,
                        s->dim < t->rank ? t->shape[s->dim] : 0);
}

/* Its shape and bytes, of all of it or of slice s. */
static ngd_status_t choose_part(const struct ngd_load *load, struct ngd_loaded *t, const struct ngd_load_slice *s,
                                struct ngd_diag *diag)
{
    ngd_status_t status = s ? check_slice(load, t->tensor, s, diag) : NGD_OK;

    if (status != NGD_OK)
        return status;
    memcpy(t->shape, t->tensor->shape, sizeof(t->shape));
    t->bytes = t->tensor->bytes;
    if (!s || s->end - s->begin == t->shape[s->dim])
        return NGD_OK;
    t->slice = s;
    t->bytes = t->bytes / (uint64_t)t->shape[s->dim] * (uint64_t)(s->end - s->begin);
    t->shape[s->dim] = s->end - s->begin;
    return NGD_OK;
}

/* The tensors that are wanted, in the order of their names, or of the file. */
static ngd_status_t choose_names(struct ngd_load *load, struct ngd_diag *diag)
{
    const size_t n = load->n_names ? load->n_names : load->index.n;

    if (n > load->index.n || load->n_slices > load->index.n)
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT,
                            "%.300s has %zu tensors, so %zu names and %zu slices are more than one of each", load->path,
                            load->index.n, load->n_names, load->n_slices);
    load->tensors = NGD_NEW_N(struct ngd_loaded, n + 1);
    if (!load->tensors)
        return NGD_ERR_NO_MEMORY;
    for (; load->n_tensors < n; load->n_tensors++) {
        const size_t i = load->n_tensors;
        const struct ngd_safetensor *t =
            load->n_names ? ngd_safetensors_find(&load->index, load->names[i]) : &load->index.items[i];

        if (!t)
            return ngd_diag_set(diag, NGD_ERR_TENSOR_MISSING, "%.300s has no tensor %.200s", load->path,
                                load->names[i]);
        load->tensors[i].tensor = t;
    }
    return NGD_OK;
}

/* What a load wants of one tensor of the file. */
struct want {
    const struct ngd_load_slice *slice;
    bool wanted;
};

/* Gives each tensor its slice. Each slice is of a tensor that is wanted, which has no other. */
static ngd_status_t choose_slices(const struct ngd_load *load, struct want *wants, struct ngd_diag *diag)
{
    for (size_t i = 0; i < load->n_tensors; i++)
        wants[load->tensors[i].tensor - load->index.items].wanted = true;
    for (size_t i = 0; i < load->n_slices; i++) {
        const char *name = load->slices[i].name;
        const struct ngd_safetensor *t = ngd_safetensors_find(&load->index, name);
        struct want *w = t ? &wants[t - load->index.items] : NULL;

        if (!w || !w->wanted)
            return ngd_diag_set(
                diag, NGD_ERR_TENSOR_MISSING,
                "%.300s: a slice of tensor %.200s is asked for, which is not among those that are loaded", load->path,
                name);
        if (w->slice)
            return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT, "%.300s: two slices of tensor %.200s are asked for",
                                load->path, name);
        w->slice = &load->slices[i];
    }
    return NGD_OK;
}

static ngd_status_t choose_tensors(struct ngd_load *load, struct ngd_diag *diag)
{
    ngd_status_t status = choose_names(load, diag);
    struct want *wants = status == NGD_OK ? NGD_NEW_N(struct want, load->index.n + 1) : NULL;

    if (status == NGD_OK)
        status = wants ? choose_slices(load, wants, diag) : NGD_ERR_NO_MEMORY;
    for (size_t i = 0; status == NGD_OK && i < load->n_tensors; i++) {
        struct ngd_loaded *t = &load->tensors[i];

        status = choose_part(load, t, wants[t->tensor - load->index.items].slice, diag);
    }
    ngd_free(wants);
    return status;
}

/* Straight into device memory where the CPU can address it. */
static ngd_status_t read_chunk(int fd, struct ngd_buffer *buffer, uint64_t at, uint64_t n, uint64_t offset,
                               void **bounce, struct ngd_diag *diag)
{
    char *direct = ngd_buffer_host_ptr(buffer);
    ngd_status_t status;

    if (direct)
        return read_fully(fd, direct + at, n, offset, diag);
    if (!*bounce && !(*bounce = ngd_malloc(CHUNK_BYTES)))
        return NGD_ERR_NO_MEMORY;
    status = read_fully(fd, *bounce, n, offset, diag);
    return status == NGD_OK ? ngd_buffer_write(buffer, at, *bounce, n, diag) : status;
}

struct meter {
    uint64_t done, total;
    ngd_nsec_t last;
    void *bounce;
};

/* So many more bytes are in device memory. */
static ngd_status_t count(struct ngd_load *load, struct meter *m, uint64_t n, struct ngd_diag *diag)
{
    m->done += n;
    ngd_metric_add(NGD_M_LOADED_BYTES, n);
    if (ngd_now() - m->last < PROGRESS_EVERY)
        return NGD_OK;
    m->last = ngd_now();
    return load->progress(load->ctx, m->done, m->total)
               ? NGD_OK
               : ngd_diag_set(diag, NGD_ERR_CANCELLED, "the load was cancelled");
}

/* Bytes that lie together in the file, to `to` of the buffer. */
static ngd_status_t read_range(struct ngd_load *load, int fd, uint64_t offset, uint64_t bytes,
                               struct ngd_buffer *buffer, uint64_t to, struct meter *m, struct ngd_diag *diag)
{
    ngd_status_t status = NGD_OK;

    for (uint64_t at = 0; at < bytes && status == NGD_OK;) {
        uint64_t n = bytes - at < CHUNK_BYTES ? bytes - at : CHUNK_BYTES;

        status = read_chunk(fd, buffer, to + at, n, offset + at, &m->bounce, diag);
        if (status == NGD_OK)
            status = count(load, m, n, diag);
        at += n;
    }
    return status;
}

/* A slice in the file: so many runs of `bytes` each, one every `stride`, the first at `offset`. */
struct runs {
    uint64_t n, offset, bytes, stride;
};

static struct runs runs_of(const struct ngd_loaded *t)
{
    const struct ngd_safetensor *x = t->tensor;
    struct runs r = {.n = 1, .offset = x->offset, .bytes = x->bytes, .stride = x->bytes};

    if (!t->slice || x->bytes == 0)
        return r;
    for (uint32_t i = 0; i < t->slice->dim; i++)
        r.n *= (uint64_t)x->shape[i];
    r.stride = x->bytes / r.n;
    r.bytes = t->bytes / r.n;
    r.offset += r.stride / (uint64_t)x->shape[t->slice->dim] * (uint64_t)t->slice->begin;
    return r;
}

/* Short runs: read with what lies between them, moved together, and written at once. */
static ngd_status_t read_rows(struct ngd_load *load, int fd, const struct runs *r, struct ngd_buffer *buffer,
                              struct meter *m, struct ngd_diag *diag)
{
    const uint64_t most = CHUNK_BYTES / r->stride;
    ngd_status_t status = NGD_OK;

    if (!m->bounce && !(m->bounce = ngd_malloc(CHUNK_BYTES)))
        return NGD_ERR_NO_MEMORY;
    for (uint64_t at = 0; at < r->n && status == NGD_OK;) {
        const uint64_t n = r->n - at < most ? r->n - at : most;
        char *rows = m->bounce;

        status = read_fully(fd, rows, (n - 1) * r->stride + r->bytes, r->offset + at * r->stride, diag);
        for (uint64_t i = 1; i < n && status == NGD_OK; i++)
            memmove(rows + i * r->bytes, rows + i * r->stride, r->bytes);
        if (status == NGD_OK)
            status = ngd_buffer_write(buffer, at * r->bytes, rows, n * r->bytes, diag);
        if (status == NGD_OK)
            status = count(load, m, n * r->bytes, diag);
        at += n;
    }
    return status;
}

static ngd_status_t read_tensor(struct ngd_load *load, int fd, const struct ngd_loaded *t, struct ngd_buffer *buffer,
                                struct meter *m, struct ngd_diag *diag)
{
    const struct runs r = runs_of(t);
    ngd_status_t status = NGD_OK;

    if (r.n > 1 && r.stride <= CHUNK_BYTES)
        return read_rows(load, fd, &r, buffer, m, diag);
    for (uint64_t i = 0; i < r.n && status == NGD_OK; i++)
        status = read_range(load, fd, r.offset + i * r.stride, r.bytes, buffer, i * r.bytes, m, diag);
    return status;
}

static ngd_status_t load_tensor(struct ngd_loader *l, struct ngd_load *load, int fd, const struct ngd_file_id *file,
                                struct ngd_loaded *t, struct meter *m, struct ngd_diag *diag)
{
    struct ngd_buffer *buffer;
    ngd_status_t status;

    status = ngd_buffer_create(load->dev, t->bytes ? t->bytes : 1, NGD_BUFFER_WEIGHTS, t->tensor->name, &buffer, diag);
    if (status != NGD_OK)
        return status;
    status = read_tensor(load, fd, t, buffer, m, diag);
    if (status != NGD_OK) {
        ngd_buffer_unref(buffer);
        return status;
    }
    t->object = load->settled ? add_shared(l, file, t, buffer) : make_object(t, buffer);
    return t->object ? NGD_OK : NGD_ERR_NO_MEMORY;
}

/* What is loaded already, and the room for the rest and the quota for all before any of it is allocated. */
static ngd_status_t plan_load(struct ngd_loader *l, struct ngd_load *load, const struct ngd_file_id *file,
                              struct meter *m, struct ngd_diag *diag)
{
    load->all_shared = true;
    ngd_device_settle(load->dev); /* what is being freed still counts */
    for (size_t i = 0; i < load->n_tensors; i++) {
        struct ngd_loaded *t = &load->tensors[i];
        ngd_status_t status = ngd_charge_begin(&t->charge, load->payer, t->bytes ? t->bytes : 1, diag);

        if (status != NGD_OK)
            return status;
        t->object = load->settled ? find_shared(l, load->dev, file, t, &t->shared) : NULL;
        if (t->shared && !t->object)
            return NGD_ERR_NO_MEMORY;
        load->all_shared = load->all_shared && t->shared;
        m->total += t->shared ? 0 : t->bytes;
    }
    return m->total ? ngd_device_check_room(load->dev, m->total, load->path, diag) : NGD_OK;
}

static ngd_status_t load_tensors(struct ngd_loader *l, struct ngd_load *load, int fd, const struct ngd_file_id *file,
                                 struct ngd_diag *diag)
{
    struct meter m = {0};
    ngd_status_t status = plan_load(l, load, file, &m, diag);

    posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    for (size_t i = 0; status == NGD_OK && i < load->n_tensors; i++)
        if (!load->tensors[i].object)
            status = load_tensor(l, load, fd, file, &load->tensors[i], &m, diag);
    ngd_free(m.bounce);
    if (status == NGD_OK)
        load->progress(load->ctx, m.done, m.total);
    return status;
}

/* A file that was written meanwhile may be half old, half new; under its new time of change it will be loaded anew. */
static ngd_status_t check_unchanged(int fd, const struct ngd_file_id *file, struct ngd_diag *diag)
{
    struct ngd_file_id now;
    ngd_status_t status = ngd_file_identify(fd, &now, diag);

    if (status == NGD_OK && !ngd_file_id_equal(&now, file))
        status = ngd_diag_set(diag, NGD_ERR_FILE_CORRUPT,
                              "the file was changed while it was read; try again when it is complete");
    return status;
}

/*
 * Identifies the file, once its time of change has settled. Waits for two seconds at most, and only for files that were
 * changed just now. load->settled stays false when the clock of the file system is ahead, or writing goes on.
 */
static ngd_status_t settle(struct ngd_load *load, int fd, struct ngd_file_id *file, struct ngd_diag *diag)
{
    static struct ngd_log_limit limit;
    const ngd_nsec_t end = ngd_clock_real() + NGD_FILE_SETTLE_MAX;
    ngd_status_t status;

    while ((status = ngd_file_identify(fd, file, diag)) == NGD_OK) {
        const ngd_nsec_t wait = ngd_file_settles_in(file, ngd_file_clock());
        const struct timespec ts = {.tv_nsec = wait < PROGRESS_EVERY ? wait : PROGRESS_EVERY};

        load->settled = wait == 0;
        if (load->settled)
            break;
        if (ngd_clock_real() + wait > end + PROGRESS_EVERY) {
            ngd_log_limited(&limit, NGD_LOG_WARNING, "loader",
                            "%s: its time of change does not come to rest; what is loaded of it is not shared",
                            load->path);
            break;
        }
        nanosleep(&ts, NULL);
        if (!load->progress(load->ctx, 0, file->size))
            return ngd_diag_set(diag, NGD_ERR_CANCELLED, "the load was cancelled");
    }
    return status;
}

static ngd_status_t load_open_file(struct ngd_loader *l, struct ngd_load *load, int fd, struct ngd_diag *diag)
{
    struct ngd_file_id file;
    ngd_status_t status = settle(load, fd, &file, diag);

    if (status == NGD_OK && ngd_file_is_written(fd)) /* once settled: a write that begins later changes the id */
        status = ngd_diag_set(diag, NGD_ERR_FILE_CORRUPT,
                              "a process has the file open for writing; try again when it is complete and closed");
    if (status == NGD_OK)
        status = read_index(fd, file.size, load, diag);
    if (status == NGD_OK)
        status = choose_tensors(load, diag);
    if (status == NGD_OK)
        status = begin_load(l, load, &file, diag);
    if (status != NGD_OK)
        return status;
    status = load_tensors(l, load, fd, &file, diag);
    if (status == NGD_OK)
        status = check_unchanged(fd, &file, diag);
    end_load(l, load);
    return status;
}

ngd_status_t ngd_load_run(struct ngd_loader *l, struct ngd_load *load, struct ngd_diag *diag)
{
    static struct ngd_log_limit limit = {.most = NGD_LOG_LIMIT_CALL};
    int fd;
    ngd_status_t status = open_file(l, load->path, &fd, diag);

    if (status != NGD_OK)
        return status;
    status = load_open_file(l, load, fd, diag);
    close(fd);
    if (status != NGD_OK)
        ngd_load_fini(load);
    else
        ngd_log_limited(&limit, NGD_LOG_INFO, "loader", "%s: %zu tensors%s", load->path, load->n_tensors,
                        load->all_shared ? " were loaded before" : "");
    return status;
}

void ngd_load_fini(struct ngd_load *load)
{
    for (size_t i = 0; i < load->n_tensors; i++) {
        ngd_object_unref(load->tensors[i].object ? &load->tensors[i].object->base : NULL);
        ngd_charge_end(&load->tensors[i].charge);
    }
    ngd_free(load->tensors);
    ngd_safetensors_fini(&load->index);
    load->tensors = NULL;
    load->n_tensors = 0;
}

ngd_status_t ngd_loader_create(struct ngd_daemon *d, struct ngd_loader **loader_p)
{
    struct ngd_loader *l = NGD_NEW(struct ngd_loader);

    if (!l)
        return NGD_ERR_NO_MEMORY;
    l->daemon = d;
    ngd_mutex_init(&l->lock, NGD_RANK_LOADER);
    ngd_cond_init(&l->over);
    ngd_list_init(&l->loading);
    *loader_p = l;
    return NGD_OK;
}

void ngd_loader_destroy(struct ngd_loader *l)
{
    if (!l)
        return;
    drop_list(take_unused(l, true));
    ngd_cond_fini(&l->over);
    ngd_mutex_fini(&l->lock);
    ngd_free(l);
}
