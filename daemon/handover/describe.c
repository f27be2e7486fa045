/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/handover/describe.h"
#include "base/file_id.h"
#include "base/mem.h"
#include "base/memfd.h"
#include "base/strbuf.h"
#include "daemon/daemon.h"
#include "daemon/handover/depart.h"
#include "daemon/handover/describe_int.h"
#include "daemon/load_origin.h"
#include "daemon/models.h"
#include "daemon/patterns.h"
#include "daemon/rpc/wire_check.h"
#include "graphs/graph.h"
#include "scheduler/program/group.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef Npugraph__Handover__V1__Model handed_model;

#define COPY_BYTES ((uint64_t)4 << 20) /* of one piece of an upload */

/* ---- buffers ------------------------------------------------------------------------------------------------ */

/* True if the file at the origin's path still is the one that was loaded. */
static bool is_unchanged(const Npugraph__Handover__V1__Origin *o)
{
    const int fd = open(o->path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    struct ngd_file_id now;
    bool same;

    if (fd < 0)
        return false;
    same = o->file.len == sizeof(now) && ngd_file_identify(fd, &now, NULL) == NGD_OK &&
           memcmp(&now, o->file.data, sizeof(now)) == 0;
    close(fd);
    return same;
}

static const Npugraph__Handover__V1__Origin *origin_of(struct describing *w, const struct ngd_buffer *buffer)
{
    const struct ngd_load_origin *origin = ngd_buffer_origin(buffer);
    const void *o;

    if (!origin || ngd_wire_unpack(&npugraph__handover__v1__origin__descriptor, origin->packed, origin->n, &w->arena,
                                   &o, NULL) != NGD_OK)
        return NULL;
    return is_unchanged(o) ? o : NULL;
}

static ngd_status_t check_upload_room(const struct describing *w, uint64_t n)
{
    if (!w->is_once || n <= NGD_DEPART_BYTES - w->upload_bytes)
        return NGD_OK;
    return ngd_diag_set(w->diag, NGD_ERR_RESOURCE_EXHAUSTED,
                        "what moves at a time may have %" PRIu64 " bytes, and this would be more", NGD_DEPART_BYTES);
}

ngd_status_t ngd_describe_upload(struct describing *w, const void *data, uint64_t n)
{
    ngd_status_t status = check_upload_room(w, n);

    if (status != NGD_OK)
        return status;
    if (w->uploads < 0)
        w->uploads = memfd_create("npugraphd-uploads", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    for (uint64_t done = 0; done < n;) {
        const ssize_t put = pwrite(w->uploads, (const uint8_t *)data + done, n - done, (off_t)(w->upload_bytes + done));

        if (put < 0 && errno != EINTR)
            return ngd_diag_set(w->diag, NGD_ERR_NO_MEMORY, "no host memory for what clients wrote: %s",
                                strerror(errno));
        done += put > 0 ? (uint64_t)put : 0;
    }
    w->upload_bytes += n;
    return NGD_OK;
}

/* Copies the contents of a buffer to the uploads. The digest, by which two descriptions are compared, is one of the
 * digests of its pieces. */
static ngd_status_t upload_buffer(struct describing *w, struct ngd_buffer *buffer, handed_buffer *b)
{
    Npugraph__Handover__V1__Upload *u = ngd_arena_calloc(&w->arena, 1, sizeof(*u));
    struct {
        struct ngd_digest so_far, piece;
    } sum = {0};
    struct ngd_digest *digest = ngd_arena_calloc(&w->arena, 1, sizeof(*digest));
    void *piece = u && digest ? ngd_malloc(COPY_BYTES) : NULL;
    ngd_status_t status = piece ? check_upload_room(w, b->bytes) : NGD_ERR_NO_MEMORY;

    if (status == NGD_OK) {
        npugraph__handover__v1__upload__init(u);
        u->offset = w->upload_bytes;
    }
    for (uint64_t at = 0; status == NGD_OK && at < b->bytes; at += COPY_BYTES) {
        const uint64_t n = b->bytes - at < COPY_BYTES ? b->bytes - at : COPY_BYTES;

        status = ngd_buffer_read(buffer, at, piece, n, w->diag);
        if (status == NGD_OK)
            status = ngd_describe_upload(w, piece, n);
        if (w->is_once)
            continue;
        ngd_digest_of(piece, n, &sum.piece);
        ngd_digest_of(&sum, sizeof(sum), digest);
        sum.so_far = *digest;
    }
    ngd_free(piece);
    if (status != NGD_OK)
        return status;
    u->digest = (ProtobufCBinaryData){.data = (uint8_t *)digest, .len = sizeof(*digest)};
    b->upload = u;
    b->contents_case = NPUGRAPH__HANDOVER__V1__BUFFER__CONTENTS_UPLOAD;
    return NGD_OK;
}

static ngd_status_t fill_in_buffer(struct describing *w, struct ngd_buffer *buffer, bool empty, handed_buffer **b_p)
{
    handed_buffer *b = ngd_arena_calloc(&w->arena, 1, sizeof(*b));
    const Npugraph__Handover__V1__Origin *origin;

    if (!b)
        return NGD_ERR_NO_MEMORY;
    npugraph__handover__v1__buffer__init(b);
    b->device = (char *)(uintptr_t)ngd_device_info(ngd_buffer_device(buffer))->name;
    b->label = (char *)(uintptr_t)ngd_buffer_label(buffer);
    b->kind = (uint32_t)ngd_buffer_kind(buffer);
    b->bytes = ngd_buffer_bytes(buffer);
    *b_p = b;
    if (empty)
        return NGD_OK;
    origin = origin_of(w, buffer);
    if (!origin)
        return upload_buffer(w, buffer, b);
    b->origin = (Npugraph__Handover__V1__Origin *)(uintptr_t)origin;
    b->contents_case = NPUGRAPH__HANDOVER__V1__BUFFER__CONTENTS_ORIGIN;
    return NGD_OK;
}

bool ngd_described_init(struct describing *w, struct described *all, uint32_t n)
{
    *all = (struct described){.room = 16};
    while (all->room < 2 * n)
        all->room *= 2;
    all->list = ngd_arena_calloc(&w->arena, n + 1u, sizeof(*all->list));
    all->buffers = ngd_arena_calloc(&w->arena, n + 1u, sizeof(*all->buffers));
    all->table = ngd_arena_calloc(&w->arena, all->room, sizeof(*all->table));
    return all->list && all->buffers && all->table;
}

ngd_status_t ngd_describe_buffer(struct describing *w, struct described *all, struct ngd_buffer *buffer, bool empty,
                                 uint32_t *number_p)
{
    const uint64_t generation = ngd_buffer_generation(buffer);
    uint32_t at = (uint32_t)ngd_hash64(&generation, sizeof(generation), 0) & (all->room - 1);
    ngd_status_t status;

    for (; all->table[at]; at = (at + 1) & (all->room - 1))
        if (ngd_buffer_same(all->buffers[all->table[at] - 1], buffer)) {
            *number_p = all->table[at];
            return NGD_OK;
        }
    status = fill_in_buffer(w, buffer, empty, &all->list[all->n]);
    if (status != NGD_OK)
        return status;
    all->buffers[all->n++] = buffer;
    *number_p = all->table[at] = (uint32_t)all->n;
    return NGD_OK;
}

/* ---- graphs ------------------------------------------------------------------------------------------------- */

static ngd_status_t describe_options(struct describing *w, const struct ngd_graph_options *options, handed_graph *g)
{
    struct ngd_strbuf sb;

    g->options = ngd_arena_calloc(&w->arena, NGD_OPTION_MAX, sizeof(*g->options));
    for (int id = 0; g->options && id < NGD_OPTION_MAX; id++) {
        Npugraph__Handover__V1__GivenOption *o;

        if (!(options->given >> id & 1))
            continue;
        o = ngd_arena_calloc(&w->arena, 1, sizeof(*o));
        ngd_strbuf_init(&sb);
        ngd_option_print_value(options, (ngd_option_id_t)id, &sb);
        if (o) {
            npugraph__handover__v1__given_option__init(o);
            o->name = (char *)(uintptr_t)ngd_option_info((ngd_option_id_t)id)->name;
            o->value = sb.failed ? NULL : ngd_arena_strdup(&w->arena, ngd_strbuf_str(&sb));
        }
        ngd_strbuf_fini(&sb);
        if (!o || !o->value)
            return NGD_ERR_NO_MEMORY;
        g->options[g->n_options++] = o;
    }
    return g->options ? NGD_OK : NGD_ERR_NO_MEMORY;
}

static ngd_status_t describe_bound(struct describing *w, struct described *all, const struct ngd_binding *binding,
                                   bool kv, handed_graph *g)
{
    const struct ngd_graph *graph = ngd_program_graph(ngd_binding_program(binding));
    const uint32_t n = graph->n_params + graph->n_states;
    ngd_status_t status = NGD_OK;

    g->bound = ngd_arena_calloc(&w->arena, n + 1u, sizeof(*g->bound));
    if (!g->bound)
        return NGD_ERR_NO_MEMORY;
    for (uint32_t i = 0; i < n && status == NGD_OK; i++) {
        struct ngd_buffer *buffer = ngd_binding_buffer(binding, i);

        if (buffer)
            status = ngd_describe_buffer(w, all, buffer, kv && i >= graph->n_params, &g->bound[i]);
    }
    g->n_bound = n;
    return status;
}

ngd_status_t ngd_describe_graph(struct describing *w, struct described *all, const struct ngd_binding *binding, bool kv,
                                handed_graph **g_p)
{
    handed_graph *g = ngd_arena_calloc(&w->arena, 1, sizeof(*g));
    struct ngd_program *prog = ngd_binding_program(binding);
    struct ngd_strbuf sb;
    ngd_status_t status;

    if (!g)
        return NGD_ERR_NO_MEMORY;
    npugraph__handover__v1__graph__init(g);
    ngd_strbuf_init(&sb);
    ngd_graph_print(ngd_program_graph(prog), &sb);
    g->text = sb.failed ? NULL : ngd_arena_strdup(&w->arena, ngd_strbuf_str(&sb));
    ngd_strbuf_fini(&sb);
    if (!g->text)
        return NGD_ERR_NO_MEMORY;
    g->device = (char *)(uintptr_t)ngd_device_info(ngd_program_device(prog))->name;
    status = describe_options(w, ngd_program_options(prog), g);
    if (status == NGD_OK)
        status = describe_bound(w, all, binding, kv, g);
    *g_p = g;
    return status;
}

/* ---- models ------------------------------------------------------------------------------------------------- */

uint32_t ngd_count_bound(const struct ngd_binding *binding)
{
    const struct ngd_graph *graph = binding ? ngd_program_graph(ngd_binding_program(binding)) : NULL;

    return graph ? graph->n_params + graph->n_states : 0;
}

static ngd_status_t describe_kept(struct describing *w, const struct ngd_model_kept *kept, handed_model **m_p)
{
    handed_model *m = ngd_arena_calloc(&w->arena, 1, sizeof(*m));
    struct described all;
    struct ngd_binding *prefill, *decode;
    struct ngd_model_stats stats;
    ngd_status_t status;

    ngd_model_bindings(kept->model, &prefill, &decode);
    ngd_model_stats(kept->model, &stats);
    if (ngd_binding_group(prefill))
        return ngd_diag_set(w->diag, NGD_ERR_UNIMPLEMENTED,
                            "model \"%s\" runs on a group of devices, which cannot be handed over: unload it first, or "
                            "restart the daemon",
                            stats.name);
    if (!m)
        return NGD_ERR_NO_MEMORY;
    npugraph__handover__v1__model__init(m);
    if (!ngd_described_init(w, &all, ngd_count_bound(prefill) + ngd_count_bound(decode)))
        return NGD_ERR_NO_MEMORY;
    m->request = (ProtobufCBinaryData){.data = kept->request, .len = kept->n_request};
    m->owner = (char *)(uintptr_t)kept->owner;
    m->audience = (uint32_t)kept->audience.kind;
    m->names = kept->audience.names;
    m->n_names = kept->audience.n;
    status = ngd_describe_graph(w, &all, prefill, true, &m->prefill);
    if (status == NGD_OK && decode)
        status = ngd_describe_graph(w, &all, decode, true, &m->decode);
    if (status != NGD_OK)
        ngd_diag_prefix(w->diag, "model \"%s\": ", stats.name);
    m->buffers = all.list;
    m->n_buffers = all.n;
    *m_p = m;
    return status;
}

struct pattern_list {
    struct describing *w;
    Npugraph__Handover__V1__Description *all;
    bool failed;
};

static void describe_pattern(void *ctx, const char *owner, const char *text)
{
    struct pattern_list *list = ctx;
    Npugraph__Handover__V1__Pattern *p = ngd_arena_calloc(&list->w->arena, 1, sizeof(*p));

    if (p) {
        npugraph__handover__v1__pattern__init(p);
        p->owner = ngd_arena_strdup(&list->w->arena, owner);
        p->text = ngd_arena_strdup(&list->w->arena, text);
    }
    if (!p || !p->owner || !p->text || list->all->n_patterns == NGD_PATTERNS_IN_ALL)
        list->failed = true;
    else
        list->all->patterns[list->all->n_patterns++] = p;
}

static ngd_status_t describe_all(struct describing *w, const struct ngd_model_kept *kept, size_t n,
                                 Npugraph__Handover__V1__Description *all)
{
    struct pattern_list list = {.w = w, .all = all};
    ngd_status_t status = NGD_OK;

    all->models = ngd_arena_calloc(&w->arena, n + 1, sizeof(*all->models));
    all->patterns = ngd_arena_calloc(&w->arena, NGD_PATTERNS_IN_ALL, sizeof(*all->patterns));
    if (!all->models || !all->patterns)
        return NGD_ERR_NO_MEMORY;
    ngd_patterns_for_each(w->daemon->patterns, describe_pattern, &list);
    if (list.failed)
        return NGD_ERR_NO_MEMORY;
    for (; all->n_models < n && status == NGD_OK; all->n_models++)
        status = describe_kept(w, &kept[all->n_models], &all->models[all->n_models]);
    return status;
}

/* ---- the whole ---------------------------------------------------------------------------------------------- */

static ngd_status_t pack_message(struct describing *w, const ProtobufCMessage *message, struct ngd_description *out)
{
    const size_t n = protobuf_c_message_get_packed_size(message);
    uint8_t *data = ngd_malloc(n + 1);
    ngd_status_t status = data ? NGD_OK : NGD_ERR_NO_MEMORY;

    if (status != NGD_OK)
        return status;
    protobuf_c_message_pack(message, data);
    data[n] = 0; /* so that it is never empty */
    ngd_digest_of(data, n + 1, &out->digest);
    out->bytes = n + 1;
    status = ngd_wire_check(message->descriptor, data, n, NGD_WIRE_MAX_FIELDS, w->diag);
    if (status == NGD_OK)
        status = ngd_packet_memfd("npugraphd-handover", data, n + 1, &out->fd, w->diag);
    ngd_free(data);
    return status;
}

static ngd_status_t seal_uploads(struct describing *w, struct ngd_description *out)
{
    if (w->uploads < 0 || w->upload_bytes == 0)
        return NGD_OK;
    if (ftruncate(w->uploads, (off_t)w->upload_bytes) < 0 || fcntl(w->uploads, F_ADD_SEALS, NGD_MEMFD_WRITTEN) < 0)
        return ngd_diag_set(w->diag, NGD_ERR_IO, "what is handed over cannot be sealed: %s", strerror(errno));
    out->uploads_fd = w->uploads;
    out->upload_bytes = w->upload_bytes;
    w->uploads = -1;
    return NGD_OK;
}

ngd_status_t ngd_describe_pack(struct describing *w, const ProtobufCMessage *message, struct ngd_description *out)
{
    ngd_status_t status = pack_message(w, message, out);

    return status == NGD_OK ? seal_uploads(w, out) : status;
}

ngd_status_t ngd_describe(struct ngd_daemon *d, struct ngd_description *out, struct ngd_diag *diag)
{
    Npugraph__Handover__V1__Description all = NPUGRAPH__HANDOVER__V1__DESCRIPTION__INIT;
    struct describing w = {.daemon = d, .uploads = -1, .diag = diag};
    struct ngd_model_kept *kept;
    size_t n;
    ngd_status_t status = ngd_models_list_kept(d->models, &kept, &n);

    *out = (struct ngd_description){.fd = -1, .uploads_fd = -1};
    if (status != NGD_OK)
        return status;
    ngd_arena_init(&w.arena, 64 << 10);
    status = describe_all(&w, kept, n, &all);
    if (status == NGD_OK)
        status = ngd_describe_pack(&w, &all.base, out);
    if (w.uploads >= 0)
        close(w.uploads);
    if (status != NGD_OK)
        ngd_description_close(out);
    ngd_arena_fini(&w.arena);
    ngd_models_free_kept(kept, n);
    return status;
}

void ngd_description_close(struct ngd_description *description)
{
    if (description->fd >= 0)
        close(description->fd);
    if (description->uploads_fd >= 0)
        close(description->uploads_fd);
    description->fd = description->uploads_fd = -1;
}
