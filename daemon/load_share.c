/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/load_share.h"

#include "base/digest.h"
#include "base/file_id.h"
#include "base/lock.h"
#include "base/mem.h"

#define TABLE_SIZE 1024

/* A part of a tensor; zeros: all of it. */
struct part {
    uint32_t dim;
    int64_t begin, end;
    const struct ngd_change *change;
    struct ngd_digest order; /* of columns */
};

/* One loaded tensor. */
struct shared {
    struct shared *next;
    struct ngd_buffer *buffer; /* a reference */
    struct ngd_file_id file;
    uint64_t offset;
    const struct ngd_gguf_plane *plane; /* the planes of a tensor have one offset */
    struct part part;
};

struct ngd_load_share {
    struct ngd_mutex lock;
    struct shared *table[TABLE_SIZE] NGD_GUARDED_BY(lock);
};

static struct shared **bucket(struct ngd_load_share *share, const struct ngd_file_id *file, uint64_t offset)
    NGD_REQUIRES(share->lock)
{
    return &share->table[ngd_hash64(file, sizeof(*file), offset) % TABLE_SIZE];
}

struct ngd_buffer_object *ngd_load_object(struct ngd_loaded *t, struct ngd_buffer *buffer)
{
    struct ngd_buffer_object *o;

    ngd_buffer_set_charge(buffer, &t->charge);
    o = ngd_buffer_object_create(buffer);
    if (o)
        o->read_only = true;
    return o;
}

/* Makes an object with a view of the buffer: others have the buffer too, and each pays for itself. Takes the caller's
 * reference. */
static struct ngd_buffer_object *make_shared_object(struct ngd_loaded *t, struct ngd_buffer *buffer)
{
    struct ngd_buffer *view = NULL;

    ngd_buffer_view(buffer, &view, NULL);
    ngd_buffer_unref(buffer);
    return view ? ngd_load_object(t, view) : NULL;
}

static struct part part_of_tensor(const struct ngd_loaded *t)
{
    const struct ngd_load_slice *s = t->slice;
    struct part part = {0};

    if (s)
        part = (struct part){.dim = s->dim, .begin = s->begin, .end = s->end, .change = s->change};
    if (s && s->order)
        ngd_digest_of(s->order, s->n_order * sizeof(*s->order), &part.order);
    return part;
}

struct ngd_buffer_object *ngd_load_share_find(struct ngd_load_share *share, struct ngd_device *dev,
                                              const struct ngd_file_id *file, struct ngd_loaded *t, bool *found_p)
{
    const uint64_t offset = t->tensor->offset;
    const struct part part = part_of_tensor(t);
    struct ngd_buffer *buffer = NULL;

    ngd_mutex_lock(&share->lock);
    for (const struct shared *s = *bucket(share, file, offset); s && !buffer; s = s->next)
        if (ngd_file_id_equal(&s->file, file) && s->offset == offset && s->plane == t->tensor->plane &&
            s->part.dim == part.dim && s->part.begin == part.begin && s->part.end == part.end &&
            s->part.change == part.change && ngd_digest_equal(&s->part.order, &part.order) &&
            ngd_buffer_device(s->buffer) == dev && ngd_buffer_bytes(s->buffer) == (t->bytes ? t->bytes : 1))
            buffer = ngd_buffer_ref(s->buffer);
    ngd_mutex_unlock(&share->lock);
    *found_p = buffer != NULL;
    return buffer ? make_shared_object(t, buffer) : NULL;
}

struct ngd_buffer_object *ngd_load_share_add(struct ngd_load_share *share, const struct ngd_file_id *file,
                                             struct ngd_loaded *t, struct ngd_buffer *buffer)
{
    const uint64_t offset = t->tensor->offset;
    struct shared *s = NGD_NEW(struct shared);

    if (!s) {
        ngd_buffer_unref(buffer);
        return NULL;
    }
    *s = (struct shared){.buffer = ngd_buffer_ref(buffer),
                         .file = *file,
                         .offset = offset,
                         .plane = t->tensor->plane,
                         .part = part_of_tensor(t)};
    ngd_mutex_lock(&share->lock);
    s->next = *bucket(share, file, offset);
    *bucket(share, file, offset) = s;
    ngd_mutex_unlock(&share->lock);
    return make_shared_object(t, buffer);
}

/* Moves entries to a list: those whose buffers only the table holds, or all. */
static struct shared *take_unused(struct ngd_load_share *share, bool all)
{
    struct shared *unused = NULL;

    ngd_mutex_lock(&share->lock);
    for (size_t i = 0; i < TABLE_SIZE; i++) {
        for (struct shared **at = &share->table[i]; *at;) {
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
    ngd_mutex_unlock(&share->lock);
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

void ngd_load_share_forget(struct ngd_load_share *share)
{
    drop_list(take_unused(share, false));
}

ngd_status_t ngd_load_share_create(struct ngd_load_share **share_p)
{
    struct ngd_load_share *share = NGD_NEW(struct ngd_load_share);

    if (!share)
        return NGD_ERR_NO_MEMORY;
    ngd_mutex_init(&share->lock, NGD_RANK_LOADER);
    *share_p = share;
    return NGD_OK;
}

void ngd_load_share_destroy(struct ngd_load_share *share)
{
    if (!share)
        return;
    drop_list(take_unused(share, true));
    ngd_mutex_fini(&share->lock);
    ngd_free(share);
}
