/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/shared.h"
#include "base/mem.h"
#include "base/memfd.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#define MAX_CALL   ((uint64_t)1 << 30) /* bytes of one system call */
#define SPLIT_FROM ((uint64_t)2 << 20) /* bytes that are worth waking a second thread */
#define PIECE      ((uint64_t)512 << 10)

/* ---- the object -------------------------------------------------------------------------------------------------- */

static void close_shared(struct ngd_shared_object *o)
{
    struct ngd_charge charge = ngd_charge_move(&o->charge);

    ngd_client_pages_unmap(&o->pages);
    close(o->fd);
    ngd_free(o);
    ngd_charge_end(&charge);
}

static void run_close(struct ngd_job *job)
{
    close_shared(ngd_container_of(job, struct ngd_shared_object, job));
}

/* If the client has closed the memfd, this frees its memory, which takes longer than a serving thread may spend. */
static void release_shared(struct ngd_object *object)
{
    struct ngd_shared_object *o = ngd_container_of(object, struct ngd_shared_object, base);

    o->job.fn = run_close;
    if (o->bytes < NGD_FREE_LATER || ngd_jobs_has_thread())
        close_shared(o);
    else
        ngd_jobs_add_for(o->reaper, &o->job, o->owner);
}

ngd_status_t ngd_shared_adopt(int fd, uint64_t bytes, struct ngd_identity *identity, struct ngd_jobs *reaper,
                              struct ngd_shared_object **object_p, struct ngd_diag *diag)
{
    struct ngd_charge charge = {0};
    struct ngd_shared_object *o;
    ngd_status_t status = ngd_memfd_check(fd, bytes, NGD_MEMFD_SIZED, diag);

    if (status == NGD_OK)
        status = ngd_charge_begin(&charge, ngd_identity_payer(identity, NGD_QUOTA_SHARED_BYTES), bytes, diag);
    if (status != NGD_OK) {
        close(fd);
        return status;
    }
    o = NGD_NEW(struct ngd_shared_object);
    if (!o) {
        close(fd);
        ngd_charge_end(&charge);
        return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "out of host memory for a shared buffer");
    }
    o->base.kind = NGD_OBJECT_SHARED;
    o->base.refs = 1;
    o->base.release = release_shared;
    o->fd = fd;
    ngd_client_pages_map(&o->pages, fd, 0, bytes);
    o->bytes = bytes;
    o->charge = ngd_charge_move(&charge);
    o->reaper = reaper;
    o->owner = identity->key;
    *object_p = o;
    return NGD_OK;
}

/* ---- its bytes --------------------------------------------------------------------------------------------------- */

ngd_status_t ngd_shared_check_range(const struct ngd_shared_object *o, uint64_t offset, uint64_t n,
                                    struct ngd_diag *diag)
{
    if (offset <= o->bytes && n <= o->bytes - offset)
        return NGD_OK;
    return ngd_diag_set(diag, NGD_ERR_BUFFER_RANGE,
                        "%" PRIu64 " bytes at offset %" PRIu64 " are outside the shared buffer's %" PRIu64, n, offset,
                        o->bytes);
}

ngd_status_t ngd_shared_read(const struct ngd_shared_object *o, uint64_t offset, void *to, uint64_t n,
                             struct ngd_diag *diag)
{
    for (uint64_t done = 0; done < n;) {
        const ssize_t got =
            pread(o->fd, (uint8_t *)to + done, n - done < MAX_CALL ? n - done : MAX_CALL, (off_t)(offset + done));

        if (got <= 0 && !(got < 0 && errno == EINTR))
            return ngd_diag_set(diag, NGD_ERR_IO, "a shared buffer cannot be read: %s",
                                got < 0 ? strerror(errno) : "it has become shorter");
        done += got > 0 ? (uint64_t)got : 0;
    }
    return NGD_OK;
}

ngd_status_t ngd_shared_write(const struct ngd_shared_object *o, uint64_t offset, const void *from, uint64_t n,
                              struct ngd_diag *diag)
{
    const int error = ngd_client_pages_write(&o->pages, offset, from, n);

    return error ? ngd_diag_set(diag, NGD_ERR_IO, "a shared buffer cannot be written: %s", strerror(error)) : NGD_OK;
}

/* ---- large ones, by two threads ---------------------------------------------------------------------------------- */

/*
 * A range in pieces, which the caller and a job take one after the other, if a thread is free for it. The caller
 * returns when all are done. A job that starts later finds none left, and touches nothing but this struct.
 */
struct split {
    struct ngd_job job;
    const struct ngd_shared_object *o;
    uint64_t offset, n;
    uint8_t *data;
    bool write;
    _Atomic uint64_t next; /* first byte that nobody has taken */
    _Atomic uint64_t done; /* bytes of finished pieces */
    _Atomic uint32_t users;
    _Atomic bool wrong; /* diag says what; written by the thread that sets it */
    struct ngd_diag diag;
};

static void move_piece(struct split *s, uint64_t at, uint64_t n)
{
    struct ngd_diag diag = {0};
    const ngd_status_t status = s->write ? ngd_shared_write(s->o, s->offset + at, s->data + at, n, &diag)
                                         : ngd_shared_read(s->o, s->offset + at, s->data + at, n, &diag);

    if (status != NGD_OK && !atomic_exchange(&s->wrong, true))
        s->diag = diag;
}

static void move_pieces(struct split *s)
{
    uint64_t at, n;

    while ((at = atomic_fetch_add(&s->next, PIECE)) < s->n) {
        n = s->n - at < PIECE ? s->n - at : PIECE;
        if (!atomic_load(&s->wrong))
            move_piece(s, at, n);
        atomic_fetch_add(&s->done, n);
    }
}

static void leave_split(struct split *s)
{
    if (atomic_fetch_sub(&s->users, 1) == 1)
        ngd_free(s);
}

static void run_split(struct ngd_job *job)
{
    struct split *s = ngd_container_of(job, struct split, job);

    move_pieces(s);
    leave_split(s);
}

ngd_status_t ngd_shared_move(const struct ngd_shared_object *o, bool write, uint64_t offset, void *data, uint64_t n,
                             struct ngd_jobs *helper, struct ngd_diag *diag)
{
    struct split *s = n >= SPLIT_FROM ? NGD_NEW(struct split) : NULL;
    ngd_status_t status = NGD_OK;

    if (!s)
        return write ? ngd_shared_write(o, offset, data, n, diag) : ngd_shared_read(o, offset, data, n, diag);
    *s =
        (struct split){.job.fn = run_split, .o = o, .offset = offset, .n = n, .data = data, .write = write, .users = 2};
    if (!ngd_jobs_offer(helper, &s->job, o->owner))
        leave_split(s);
    move_pieces(s);
    while (atomic_load(&s->done) < n) /* the other's last piece */
        sched_yield();
    if (atomic_load(&s->wrong)) {
        *diag = s->diag;
        status = NGD_ERR_IO;
    }
    leave_split(s);
    return status;
}
