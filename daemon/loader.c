/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files are read and never mapped, so a file that shrinks causes an error instead of a signal. Before the first byte is
 * read, the loader waits until the file's time of change has settled (base/file_id.h). After the last one it checks
 * that the id is still the same. So the table has under an id exactly the contents that the id stands for. A file that
 * does not settle is loaded, but not shared.
 */
#include "daemon/loader.h"

#include "base/file_id.h"
#include "base/gguf.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/metrics.h"
#include "base/read_at.h"
#include "daemon/daemon.h"
#include "daemon/gguf.h"
#include "daemon/load_order.h"
#include "daemon/load_origin.h"
#include "daemon/load_share.h"
#include "daemon/load_slices.h"
#include "daemon/sandbox.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define CHUNK_BYTES    ((uint64_t)8 << 20)
#define PROGRESS_EVERY (100 * NGD_MSEC)

struct ngd_loader {
    struct ngd_daemon *daemon;
    struct ngd_load_share *share;
    struct ngd_mutex lock;
    struct ngd_cond over;                         /* signalled when a load ends */
    struct ngd_list loading NGD_GUARDED_BY(lock); /* struct ngd_load, of different files */
};

/* ---- one load of a file at a time --------------------------------------------------------------------- */

/* True if another load of the file is under way. */
static bool is_loading(struct ngd_loader *l, const struct ngd_file_id *file) NGD_REQUIRES(l->lock)
{
    ngd_list_for_each (pos, &l->loading) {
        const struct ngd_load *other = ngd_container_of(pos, struct ngd_load, link);

        if (ngd_file_id_equal(other->file, file))
            return true;
    }
    return false;
}

/* Waits for loads of the same file, so that concurrent loads read each tensor once. */
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

/* ---- reading ------------------------------------------------------------------------------------- */

static ngd_status_t read_index(int fd, uint64_t size, struct ngd_load *load, struct ngd_diag *diag)
{
    uint8_t first[8] = {0};
    uint64_t n;
    char *json;
    ngd_status_t status = ngd_read_at(fd, first, size < 8 ? size : 8, 0, diag);

    if (status == NGD_OK && ngd_gguf_is(first))
        return ngd_gguf_index(fd, size, &load->index, diag);
    if (status == NGD_OK)
        status = ngd_safetensors_header_bytes(first, size, &n, diag);
    if (status != NGD_OK)
        return status;
    json = ngd_malloc(n);
    if (!json)
        return NGD_ERR_NO_MEMORY;
    status = ngd_read_at(fd, json, n, 8, diag);
    if (status == NGD_OK)
        status = ngd_safetensors_parse(json, n, size, &load->index, diag);
    ngd_free(json);
    return status;
}

static void flip_bits(const struct ngd_loaded *t, void *bytes, uint64_t n)
{
    const uint8_t flip = t->slice && t->slice->change ? ngd_change_flip(t->slice->change) : 0;
    uint8_t *p = bytes;

    for (uint64_t i = 0; flip && i < n; i++)
        p[i] ^= flip;
}

/* Reads a chunk, directly into device memory if the CPU can address it. */
static ngd_status_t read_chunk(int fd, const struct ngd_loaded *t, struct ngd_buffer *buffer, uint64_t at, uint64_t n,
                               uint64_t offset, void **bounce, struct ngd_diag *diag)
{
    char *direct = ngd_buffer_host_ptr(buffer), *to;
    ngd_status_t status;

    if (!direct && !*bounce && !(*bounce = ngd_malloc(CHUNK_BYTES)))
        return NGD_ERR_NO_MEMORY;
    to = direct ? direct + at : *bounce;
    status = ngd_read_at(fd, to, n, offset, diag);
    if (status == NGD_OK)
        flip_bits(t, to, n);
    return status == NGD_OK && !direct ? ngd_buffer_write(buffer, at, to, n, diag) : status;
}

struct meter {
    uint64_t done, total;
    ngd_nsec_t last;
    void *bounce;
};

/* Counts n more bytes in device memory, and reports progress. */
static ngd_status_t count_loaded(struct ngd_load *load, struct meter *m, uint64_t n, struct ngd_diag *diag)
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

/* Reads bytes that are contiguous in the file, to offset `to` of the buffer. */
static ngd_status_t read_range(struct ngd_load *load, int fd, const struct ngd_loaded *t, uint64_t offset,
                               uint64_t bytes, struct ngd_buffer *buffer, uint64_t to, struct meter *m,
                               struct ngd_diag *diag)
{
    ngd_status_t status = NGD_OK;

    for (uint64_t at = 0; at < bytes && status == NGD_OK;) {
        uint64_t n = bytes - at < CHUNK_BYTES ? bytes - at : CHUNK_BYTES;

        status = read_chunk(fd, t, buffer, to + at, n, offset + at, &m->bounce, diag);
        if (status == NGD_OK)
            status = count_loaded(load, m, n, diag);
        at += n;
    }
    return status;
}

/* Reads short runs: reads them with the bytes between them, moves them together, and writes them at once. */
static ngd_status_t read_rows(struct ngd_load *load, int fd, const struct ngd_loaded *t, struct ngd_buffer *buffer,
                              struct meter *m, struct ngd_diag *diag)
{
    const struct ngd_load_runs runs = ngd_load_runs(t), *r = &runs;
    const uint64_t most = CHUNK_BYTES / r->stride;
    ngd_status_t status = NGD_OK;

    if (!m->bounce && !(m->bounce = ngd_malloc(CHUNK_BYTES)))
        return NGD_ERR_NO_MEMORY;
    for (uint64_t at = 0; at < r->n && status == NGD_OK;) {
        const uint64_t n = r->n - at < most ? r->n - at : most;
        char *rows = m->bounce;

        status = ngd_read_at(fd, rows, (n - 1) * r->stride + r->bytes, r->offset + at * r->stride, diag);
        for (uint64_t i = 1; i < n && status == NGD_OK; i++)
            memmove(rows + i * r->bytes, rows + i * r->stride, r->bytes);
        flip_bits(t, rows, n * r->bytes);
        if (status == NGD_OK)
            status = ngd_buffer_write(buffer, at * r->bytes, rows, n * r->bytes, diag);
        if (status == NGD_OK)
            status = count_loaded(load, m, n * r->bytes, diag);
        at += n;
    }
    return status;
}

/*
 * Reads n blocks of a GGUF file and takes a plane out of them, to offset `to` of the buffer. The bounce buffer has the
 * blocks in its first half. The other half has the plane, unless the CPU can address the device's memory.
 */
static ngd_status_t read_blocks(int fd, const struct ngd_loaded *t, struct ngd_buffer *buffer, uint64_t to, uint64_t n,
                                uint64_t offset, struct meter *m, struct ngd_diag *diag)
{
    const struct ngd_gguf_plane *plane = t->tensor->plane;
    char *direct = ngd_buffer_host_ptr(buffer), *blocks = m->bounce;
    char *out = direct ? direct + to : blocks + CHUNK_BYTES / 2;
    ngd_status_t status = ngd_read_at(fd, blocks, n * plane->block_bytes, offset, diag);

    if (status != NGD_OK)
        return status;
    ngd_gguf_unpack(plane, (const uint8_t *)blocks, n, (uint8_t *)out);
    flip_bits(t, out, n * plane->bytes);
    return direct ? NGD_OK : ngd_buffer_write(buffer, to, out, n * plane->bytes, diag);
}

static ngd_status_t read_plane(struct ngd_load *load, int fd, const struct ngd_loaded *t, struct ngd_buffer *buffer,
                               struct meter *m, struct ngd_diag *diag)
{
    const struct ngd_gguf_plane *plane = t->tensor->plane;
    const struct ngd_load_runs r = ngd_load_runs(t);
    const uint64_t most = CHUNK_BYTES / 2 / (plane->block_bytes > plane->bytes ? plane->block_bytes : plane->bytes);
    ngd_status_t status = NGD_OK;

    if (!m->bounce && !(m->bounce = ngd_malloc(CHUNK_BYTES)))
        return NGD_ERR_NO_MEMORY;
    for (uint64_t run = 0, to = 0; run < r.n; run++) {
        uint64_t block = (r.offset - t->tensor->offset + run * r.stride) / plane->bytes;

        for (uint64_t left = r.bytes / plane->bytes, n; left > 0 && status == NGD_OK; left -= n, block += n) {
            n = left < most ? left : most;
            status = read_blocks(fd, t, buffer, to, n, t->tensor->offset + block * plane->block_bytes, m, diag);
            if (status == NGD_OK)
                status = count_loaded(load, m, n * plane->bytes, diag);
            to += n * plane->bytes;
        }
        if (status != NGD_OK)
            return status;
    }
    return status;
}

/* ---- changed tensors ----------------------------------------------------------------------------- */

/*
 * Moves elements of the file to where a change puts them: panels of columns, a few rows at a time. The bounce buffer
 * has the elements in its first half. The other half has whole rows of the result, unless the CPU can address the
 * device's memory.
 */
struct mover {
    int fd;
    const struct ngd_loaded *t;
    const struct ngd_change *change;
    struct ngd_buffer *buffer;
    uint8_t *from, *room;
    struct ngd_change_part target; /* what becomes of the slice's elements: rows, and bytes of a row */
    uint64_t columns, rows;        /* of a panel, and that are moved at a time */
};

static ngd_status_t begin_move(struct mover *m, const struct ngd_change_part *whole, struct meter *meter)
{
    const uint64_t size = ngd_dtype_bytes(m->t->tensor->dtype), half = CHUNK_BYTES / 2;
    const struct ngd_change_part row = {.rows = 1, .columns = whole->columns},
                                 column = {.rows = whole->rows, .columns = 1};
    const struct ngd_change_part of_row = ngd_change_target(m->change, m->t->tensor, &row),
                                 of_column = ngd_change_target(m->change, m->t->tensor, &column);
    const uint64_t room =
        m->change->transposed ? half / (of_column.rows * of_column.columns) : half / (of_row.rows * of_row.columns);

    if (!meter->bounce && !(meter->bounce = ngd_malloc(CHUNK_BYTES)))
        return NGD_ERR_NO_MEMORY;
    m->from = meter->bounce;
    m->room = m->from + half;
    m->target = ngd_change_target(m->change, m->t->tensor, whole);
    m->columns = whole->columns;
    if (m->change->transposed && m->columns > half / (NGD_CHANGE_ROWS * size))
        m->columns = half / (NGD_CHANGE_ROWS * size);
    if (m->change->transposed && !ngd_buffer_host_ptr(m->buffer) && m->columns > room)
        m->columns = room;
    m->rows = half / (m->columns * size);
    if (m->rows >= NGD_CHANGE_ROWS)
        m->rows -= m->rows % NGD_CHANGE_ROWS;
    if (!m->change->transposed && m->rows > room)
        m->rows = room;
    return NGD_OK;
}

/* Reads the elements of a part, so that its rows lie side by side. */
static ngd_status_t read_part(const struct mover *m, const struct ngd_change_part *part, struct ngd_diag *diag)
{
    const struct ngd_safetensor *x = m->t->tensor;
    const uint64_t size = ngd_dtype_bytes(x->dtype), stride = (uint64_t)x->shape[1] * size, run = part->columns * size;
    const uint64_t at = x->offset + part->row * stride + part->column * size;
    ngd_status_t status = NGD_OK;

    if (run == stride)
        return ngd_read_at(m->fd, m->from, part->rows * run, at, diag);
    for (uint64_t r = 0; r < part->rows && status == NGD_OK; r++)
        status = ngd_read_at(m->fd, m->from + r * run, run, at + r * stride, diag);
    return status;
}

/* Reads and moves a part. Writes the room when it has whole rows of the result. */
static ngd_status_t move_part(const struct mover *m, const struct ngd_change_part *part, bool last,
                              struct ngd_diag *diag)
{
    const struct ngd_change_part at = ngd_change_target(m->change, m->t->tensor, part);
    const uint64_t stride = m->target.columns, row = (at.row - m->target.row) * stride;
    const uint64_t column = at.column - m->target.column;
    uint8_t *direct = ngd_buffer_host_ptr(m->buffer);
    ngd_status_t status = read_part(m, part, diag);

    if (status != NGD_OK)
        return status;
    ngd_change_move(m->change, m->t->tensor, part, m->from, (direct ? direct + row : m->room) + column, stride);
    if (direct || (m->change->transposed && !last))
        return NGD_OK;
    return ngd_buffer_write(m->buffer, row, m->room, at.rows * stride, diag);
}

static ngd_status_t read_changed(struct ngd_load *load, int fd, const struct ngd_loaded *t, struct ngd_buffer *buffer,
                                 struct meter *meter, struct ngd_diag *diag)
{
    const struct ngd_load_slice *s = t->slice;
    struct mover m = {.fd = fd, .t = t, .change = s->change, .buffer = buffer};
    struct ngd_change_part whole, part;
    ngd_status_t status;

    if (t->bytes == 0)
        return NGD_OK;
    ngd_change_source(s->change, t->tensor, s->dim, s->begin, s->end, &whole); /* choosing has checked that it fits */
    status = begin_move(&m, &whole, meter);
    for (uint64_t c = 0; c < whole.columns && status == NGD_OK; c += m.columns)
        for (uint64_t r = 0; r < whole.rows && status == NGD_OK; r += m.rows) {
            const uint64_t rows = whole.rows - r, columns = whole.columns - c;

            part = (struct ngd_change_part){whole.row + r, rows < m.rows ? rows : m.rows, whole.column + c,
                                            columns < m.columns ? columns : m.columns};
            status = move_part(&m, &part, rows <= m.rows, diag);
            part = ngd_change_target(m.change, t->tensor, &part);
            if (status == NGD_OK)
                status = count_loaded(load, meter, part.rows * part.columns, diag);
        }
    return status;
}

static ngd_status_t read_tensor(struct ngd_load *load, int fd, const struct ngd_loaded *t, struct ngd_buffer *buffer,
                                struct meter *m, struct ngd_diag *diag)
{
    const struct ngd_load_runs r = ngd_load_runs(t);
    ngd_status_t status = NGD_OK;

    if (t->slice && t->slice->change && !ngd_change_in_place(t->slice->change))
        return read_changed(load, fd, t, buffer, m, diag);
    if (t->tensor->plane)
        return read_plane(load, fd, t, buffer, m, diag);
    if (r.n > 1 && r.stride <= CHUNK_BYTES)
        return read_rows(load, fd, t, buffer, m, diag);
    for (uint64_t i = 0; i < r.n && status == NGD_OK; i++)
        status = read_range(load, fd, t, r.offset + i * r.stride, r.bytes, buffer, i * r.bytes, m, diag);
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
    if (status == NGD_OK && t->slice && t->slice->order)
        status = ngd_load_order_apply(t, buffer, diag);
    if (status == NGD_OK && load->settled)
        ngd_load_origin_note(load, file, t, buffer);
    if (status != NGD_OK) {
        ngd_buffer_unref(buffer);
        return status;
    }
    t->object = load->settled ? ngd_load_share_add(l->share, file, t, buffer) : ngd_load_object(t, buffer);
    return t->object ? NGD_OK : NGD_ERR_NO_MEMORY;
}

/* Finds what is loaded already. Then checks that there is room for the rest, and quota for all, before anything is
 * allocated. */
static ngd_status_t plan_load(struct ngd_loader *l, struct ngd_load *load, const struct ngd_file_id *file,
                              struct meter *m, struct ngd_diag *diag)
{
    load->all_shared = true;
    ngd_device_settle(load->dev); /* memory that is being freed still counts */
    for (size_t i = 0; i < load->n_tensors; i++) {
        struct ngd_loaded *t = &load->tensors[i];
        ngd_status_t status = ngd_charge_begin(&t->charge, load->payer, t->bytes ? t->bytes : 1, diag);

        if (status != NGD_OK)
            return status;
        t->object = load->settled ? ngd_load_share_find(l->share, load->dev, file, t, &t->shared) : NULL;
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

/* Checks that the file was not written meanwhile: it could be half old, half new. With its new time of change it will
 * be loaded again. */
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
 * Identifies the file after its time of change has settled. Waits two seconds at most, and only for files that were
 * changed just now. load->settled stays false if the clock of the file system is ahead, or writing goes on.
 */
static ngd_status_t settle_file(struct ngd_load *load, int fd, struct ngd_file_id *file, struct ngd_diag *diag)
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
                            "%s: its time of change does not settle; its tensors are loaded, but not shared",
                            load->path);
            break;
        }
        nanosleep(&ts, NULL);
        if (!load->progress(load->ctx, 0, file->size))
            return ngd_diag_set(diag, NGD_ERR_CANCELLED, "the load was cancelled");
    }
    return status;
}

/* Reads the header when the file is complete. */
static ngd_status_t open_index(struct ngd_load *load, int fd, struct ngd_file_id *file, struct ngd_diag *diag)
{
    struct ngd_diag why = {0};
    ngd_status_t status = settle_file(load, fd, file, &why);

    if (status == NGD_OK &&
        ngd_file_is_written(fd)) /* checked after it has settled: a write that begins later changes the id */
        status = ngd_diag_set(&why, NGD_ERR_FILE_CORRUPT,
                              "a process has the file open for writing; try again when it is complete and closed");
    if (status == NGD_OK)
        status = read_index(fd, file->size, load, &why);
    return status == NGD_OK || why.text[0] == '\0' ? status
                                                   : ngd_diag_set(diag, status, "%.300s: %.600s", load->path, why.text);
}

static ngd_status_t load_open_file(struct ngd_loader *l, struct ngd_load *load, int fd, struct ngd_diag *diag)
{
    struct ngd_file_id file;
    ngd_status_t status = open_index(load, fd, &file, diag);

    if (status == NGD_OK && load->expected && !ngd_file_id_equal(&file, load->expected))
        status = ngd_diag_set(diag, NGD_ERR_FILE_CORRUPT, "%.300s is another file than the one that was loaded before",
                              load->path);
    if (status == NGD_OK)
        status = ngd_load_choose(load, diag);
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
    struct ngd_options *options = &l->daemon->options;
    struct ngd_config_list dirs;
    ngd_status_t status = ngd_options_copy_list(options, &options->models_dir, &dirs);
    int fd;

    if (status != NGD_OK)
        return ngd_diag_set(diag, status, "no host memory for the list of models-dir");
    status = ngd_sandbox_open(&dirs, load->path, &fd, diag);
    ngd_config_list_fini(&dirs);
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

void ngd_loader_forget(struct ngd_loader *l)
{
    ngd_load_share_forget(l->share);
}

ngd_status_t ngd_loader_create(struct ngd_daemon *d, struct ngd_loader **loader_p)
{
    struct ngd_loader *l = NGD_NEW(struct ngd_loader);

    if (!l)
        return NGD_ERR_NO_MEMORY;
    if (ngd_load_share_create(&l->share) != NGD_OK) {
        ngd_free(l);
        return NGD_ERR_NO_MEMORY;
    }
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
    ngd_load_share_destroy(l->share);
    ngd_cond_fini(&l->over);
    ngd_mutex_fini(&l->lock);
    ngd_free(l);
}
