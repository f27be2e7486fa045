/* SPDX-License-Identifier: Apache-2.0 */
#include "base/file_id.h"
#include "base/le.h"
#include "base/log.h"
#include "base/mem.h"
#include "daemon/daemon.h"
#include "daemon/handlers/models.h"
#include "daemon/handover/restore_int.h"
#include "daemon/identity.h"
#include "daemon/loader.h"
#include "daemon/models.h"
#include "daemon/patterns.h"
#include "daemon/reactor.h"
#include "daemon/rpc/wire_check.h"
#include "daemon/shares.h"
#include "scheduler/program/group.h"
#include "scheduler/run/sched.h"
#include "scheduler/run/share.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef Npugraph__Handover__V1__Model handed_model;
typedef Npugraph__Handover__V1__Origin handed_origin;

#define MAX_TEXT (12u << 20) /* of a graph, as in Graphs.Register */

/* A model on its way. */
struct restored_model {
    struct restored r;
    const handed_model *m;
    const Npugraph__V1__RegisterModelRequest *q;
    struct ngd_model_graphs graphs; /* references */
};

ngd_status_t ngd_restore_malformed(struct restoring *w, const char *what)
{
    return ngd_diag_set(w->diag, NGD_ERR_MALFORMED_MESSAGE, "the description of the other daemon has %s", what);
}

/* ---- weights of files --------------------------------------------------------------------------------------- */

/* A buffer that is read from a file. Sorted, those of one file lie together, and a tensor's parts follow each other. */
struct wanted {
    const handed_origin *o;
    uint32_t number; /* of the buffer */
    uint32_t pass;   /* a load takes one part of a tensor, so the second one is for the second pass */
};

static int compare_files(const handed_origin *a, const handed_origin *b)
{
    const int by_path = strcmp(a->path, b->path);

    return by_path ? by_path : memcmp(a->file.data, b->file.data, sizeof(struct ngd_file_id));
}

static int compare_tensors(const void *a, const void *b)
{
    const struct wanted *x = a, *y = b;
    const int by_file = compare_files(x->o, y->o), by_name = by_file ? by_file : strcmp(x->o->tensor, y->o->tensor);

    return by_name ? by_name : (x->number > y->number) - (x->number < y->number);
}

static int compare_passes(const void *a, const void *b)
{
    const struct wanted *x = a, *y = b;
    const int by_file = compare_files(x->o, y->o);

    if (by_file)
        return by_file;
    return x->pass != y->pass ? (x->pass > y->pass) - (x->pass < y->pass) : strcmp(x->o->tensor, y->o->tensor);
}

static bool read_order_of(struct restored *r, const handed_origin *o, struct ngd_load_slice *slice)
{
    const size_t n = o->order.len / 4;
    int32_t *order = ngd_arena_calloc(&r->arena, n + 1, sizeof(*order));

    for (size_t i = 0; order && i < n; i++)
        order[i] = (int32_t)(uint32_t)ngd_le_get(o->order.data + 4 * i, 4);
    slice->order = order;
    slice->n_order = n;
    return order != NULL;
}

static ngd_status_t read_slice_of(struct restored *r, const handed_origin *o, struct ngd_load *load,
                                  struct ngd_load_slice *slices)
{
    struct ngd_load_slice *s = &slices[load->n_slices];

    if (!o->sliced)
        return NGD_OK;
    load->n_slices++;
    *s = (struct ngd_load_slice){.name = o->tensor,
                                 .dim = o->dim,
                                 .begin = o->begin,
                                 .end = o->end,
                                 .change = ngd_change_find((int)o->change),
                                 .whole = o->shape,
                                 .rank = o->n_shape};
    return o->order.len == 0 || read_order_of(r, o, s) ? NGD_OK : NGD_ERR_NO_MEMORY;
}

static bool go_on_loading(void *ctx, uint64_t done, uint64_t total)
{
    (void)ctx;
    (void)done;
    (void)total;
    return !ngd_reactor_stop_asked();
}

/* Takes the loaded buffers, by name: names are unique in one pass. */
static ngd_status_t take_loaded(struct restoring *w, struct restored *r, const struct ngd_load *load,
                                const struct wanted *list, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const handed_buffer *b = r->list[list[i].number];
        struct ngd_buffer *found = NULL;

        for (size_t t = 0; t < load->n_tensors && !found; t++) {
            const size_t at = (i + t) % load->n_tensors; /* mostly in the same order */

            if (strcmp(load->tensors[at].tensor->name, list[i].o->tensor) == 0)
                found = load->tensors[at].object->buffer;
        }
        if (!found || ngd_buffer_bytes(found) != b->bytes)
            return ngd_diag_set(w->diag, NGD_ERR_FILE_CORRUPT, "%.300s: tensor %.200s is not what it was", load->path,
                                list[i].o->tensor);
        r->buffers[list[i].number] = ngd_buffer_ref(found);
    }
    return NGD_OK;
}

/* Loads the tensors of one pass of one file. */
static ngd_status_t load_pass(struct restoring *w, struct restored *r, const struct wanted *list, size_t n)
{
    const char **names = ngd_arena_calloc(&r->arena, n, sizeof(*names));
    struct ngd_load_slice *slices = ngd_arena_calloc(&r->arena, n, sizeof(*slices));
    struct ngd_file_id expected;
    struct ngd_load load = {.payer = ngd_identity_payer(r->owner, NGD_QUOTA_BYTES),
                            .path = list[0].o->path,
                            .names = names,
                            .n_names = n,
                            .slices = slices,
                            .expected = &expected,
                            .progress = go_on_loading};
    ngd_status_t status = names && slices ? NGD_OK : NGD_ERR_NO_MEMORY;

    if (status == NGD_OK)
        status = ngd_sched_find_device(w->daemon->sched, r->list[list[0].number]->device, &load.dev, w->diag);
    for (size_t i = 0; i < n && status == NGD_OK; i++) {
        names[i] = list[i].o->tensor;
        status = read_slice_of(r, list[i].o, &load, slices);
    }
    memcpy(&expected, list[0].o->file.data, sizeof(expected));
    if (status == NGD_OK)
        status = ngd_load_run(w->daemon->loader, &load, w->diag);
    if (status != NGD_OK)
        return status;
    status = take_loaded(w, r, &load, list, n);
    ngd_load_fini(&load);
    return status;
}

static ngd_status_t check_origin(struct restoring *w, const handed_origin *o)
{
    if (o->file.len != sizeof(struct ngd_file_id) || o->order.len % 4 != 0)
        return ngd_restore_malformed(w, "a tensor without a file");
    if (o->change > INT32_MAX || (o->change && !ngd_change_find((int)o->change)))
        return ngd_restore_malformed(w, "a tensor with a change that this version does not know");
    return NGD_OK;
}

/* Sorts the buffers of files into loads, and runs them. */
static ngd_status_t load_handed_weights(struct restoring *w, struct restored *r)
{
    struct wanted *list = ngd_arena_calloc(&r->arena, r->n + 1, sizeof(*list));
    ngd_status_t status = list ? NGD_OK : NGD_ERR_NO_MEMORY;
    size_t n = 0;

    for (uint32_t i = 0; i < r->n && status == NGD_OK; i++) {
        const handed_buffer *b = r->list[i];

        if (b->contents_case != NPUGRAPH__HANDOVER__V1__BUFFER__CONTENTS_ORIGIN)
            continue;
        status = check_origin(w, b->origin);
        list[n++] = (struct wanted){.o = b->origin, .number = i};
    }
    if (status != NGD_OK || n == 0)
        return status;
    qsort(list, n, sizeof(*list), compare_tensors);
    for (size_t i = 1; i < n; i++)
        if (compare_files(list[i].o, list[i - 1].o) == 0 && strcmp(list[i].o->tensor, list[i - 1].o->tensor) == 0)
            list[i].pass = list[i - 1].pass + 1;
    qsort(list, n, sizeof(*list), compare_passes);
    for (size_t i = 0, end; i < n && status == NGD_OK; i = end) {
        for (end = i + 1; end < n && list[end].pass == list[i].pass && compare_files(list[end].o, list[i].o) == 0;)
            end++;
        status = load_pass(w, r, &list[i], end - i);
    }
    return status;
}

/* ---- other buffers ------------------------------------------------------------------------------------------- */

static ngd_status_t make_handed_buffer(struct restoring *w, struct restored *r, const handed_buffer *b,
                                       struct ngd_buffer **buffer_p)
{
    struct ngd_charge charge = {0};
    struct ngd_device *dev;
    struct ngd_buffer *buffer;
    ngd_status_t status = ngd_sched_find_device(w->daemon->sched, b->device, &dev, w->diag);

    if (status == NGD_OK && b->kind > NGD_BUFFER_KV)
        status = ngd_restore_malformed(w, "a buffer of an unknown kind");
    if (status == NGD_OK)
        status =
            ngd_charge_begin(&charge, ngd_identity_payer(r->owner, NGD_QUOTA_BYTES), b->bytes ? b->bytes : 1, w->diag);
    if (status != NGD_OK)
        return status;
    status = ngd_buffer_create(dev, b->bytes, (ngd_buffer_kind_t)b->kind, b->label, &buffer, w->diag);
    if (status != NGD_OK) {
        ngd_charge_end(&charge);
        return status;
    }
    ngd_buffer_set_charge(buffer, &charge);
    *buffer_p = buffer;
    return NGD_OK;
}

const uint8_t *ngd_restore_upload(const struct restoring *w, const Npugraph__Handover__V1__Upload *u, uint64_t bytes)
{
    return u->offset > w->upload_bytes || bytes > w->upload_bytes - u->offset ? NULL : w->uploads + u->offset;
}

static ngd_status_t fill_buffer(struct restoring *w, const handed_buffer *b, struct ngd_buffer *buffer)
{
    const bool has = b->contents_case == NPUGRAPH__HANDOVER__V1__BUFFER__CONTENTS_UPLOAD && b->bytes;
    const uint8_t *data = has ? ngd_restore_upload(w, b->upload, b->bytes) : NULL;

    if (has && !data)
        return ngd_restore_malformed(w, "a buffer outside its uploads");
    return has ? ngd_buffer_write(buffer, 0, data, b->bytes, w->diag) : NGD_OK;
}

ngd_status_t ngd_restore_buffers(struct restoring *w, struct restored *r)
{
    ngd_status_t status = NGD_OK;

    r->buffers = ngd_arena_calloc(&r->arena, r->n + 1, sizeof(*r->buffers));
    if (!r->buffers)
        return NGD_ERR_NO_MEMORY;
    status = load_handed_weights(w, r);
    for (size_t i = 0; i < r->n && status == NGD_OK; i++) {
        if (r->buffers[i])
            continue;
        status = make_handed_buffer(w, r, r->list[i], &r->buffers[i]);
        if (status == NGD_OK)
            status = fill_buffer(w, r->list[i], r->buffers[i]);
    }
    return status;
}

/* ---- graphs -------------------------------------------------------------------------------------------------- */

static ngd_status_t read_given_options(struct restoring *w, const handed_graph *g, struct ngd_graph_options *options)
{
    ngd_status_t status = NGD_OK;

    ngd_graph_options_init(options);
    options->capture_limit = ngd_config_get(w->daemon->options.capture_limit);
    for (size_t i = 0; i < g->n_options && status == NGD_OK; i++)
        status = ngd_graph_options_set(options, g->options[i]->name, g->options[i]->value, w->diag);
    return status == NGD_OK ? ngd_graph_options_check(options, w->diag) : status;
}

static ngd_status_t open_graph(struct restoring *w, struct restored *r, const handed_graph *g,
                               struct ngd_program **prog_p)
{
    const struct ngd_owner owner = {r->share, ngd_identity_payers(r->owner)};
    struct ngd_pattern_set *patterns = NULL;
    struct ngd_graph_options options;
    struct ngd_graph *graph;
    struct ngd_device *dev;
    bool shared;
    ngd_status_t status = strlen(g->text) > MAX_TEXT ? ngd_restore_malformed(w, "a graph that is too long")
                                                     : ngd_graph_parse(g->text, strlen(g->text), &graph, w->diag);

    if (status != NGD_OK)
        return status;
    status = read_given_options(w, g, &options);
    if (status == NGD_OK)
        status = ngd_sched_find_device(w->daemon->sched, g->device, &dev, w->diag);
    if (status == NGD_OK)
        status = (patterns = ngd_patterns_set_for(w->daemon->patterns, r->owner)) ? NGD_OK : NGD_ERR_NO_MEMORY;
    if (status == NGD_OK)
        status = ngd_program_open_in(w->daemon->sched, dev, graph, &options, patterns, NULL, &owner, prog_p, &shared,
                                     w->diag);
    ngd_pattern_set_unref(patterns);
    ngd_graph_unref(graph);
    return status;
}

ngd_status_t ngd_restore_graph(struct restoring *w, struct restored *r, const handed_graph *g,
                               struct ngd_binding **binding_p)
{
    struct ngd_program *prog;
    struct ngd_buffer **bound = ngd_arena_calloc(&r->arena, g->n_bound + 1, sizeof(*bound));
    ngd_status_t status = bound ? open_graph(w, r, g, &prog) : NGD_ERR_NO_MEMORY;

    if (status != NGD_OK)
        return status;
    if (g->n_bound != (size_t)ngd_program_graph(prog)->n_params + ngd_program_graph(prog)->n_states)
        status = ngd_restore_malformed(w, "a graph with another number of buffers");
    for (size_t i = 0; i < g->n_bound && status == NGD_OK; i++) {
        if (g->bound[i] > r->n)
            status = ngd_restore_malformed(w, "a graph with a buffer that there is not");
        else
            bound[i] = g->bound[i] ? r->buffers[g->bound[i] - 1] : NULL;
    }
    if (status == NGD_OK)
        status = ngd_binding_create(prog, bound, binding_p, w->diag);
    ngd_program_unref(prog);
    return status;
}

/* ---- models -------------------------------------------------------------------------------------------------- */

static ngd_status_t add_restored(struct restoring *w, struct restored_model *r, struct ngd_model *model)
{
    const struct ngd_audience audience = {
        .kind = (ngd_audience_kind_t)r->m->audience, .names = r->m->names, .n = r->m->n_names};
    struct ngd_model_place place = {.name = r->q->name,
                                    .owner = r->r.owner,
                                    .share = r->r.share,
                                    .request = r->m->request.data,
                                    .n_request = r->m->request.len};
    ngd_status_t status = r->m->audience > NGD_AUDIENCE_PUBLIC
                              ? ngd_restore_malformed(w, "a model for an unknown audience")
                              : ngd_audience_copy(&audience, &place.audience);

    if (status == NGD_OK)
        status = ngd_charge_begin(&place.charge, ngd_identity_payer(r->r.owner, NGD_QUOTA_MODELS), 1, w->diag);
    if (status == NGD_OK)
        status = ngd_models_add(w->daemon->models, &place, model, w->diag);
    ngd_audience_fini(&place.audience); /* empty if it was moved away */
    ngd_charge_end(&place.charge);
    return status;
}

static ngd_status_t build_restored(struct restoring *w, struct restored_model *r)
{
    struct ngd_model *model = NULL;
    ngd_status_t status = ngd_restore_buffers(w, &r->r);

    if (status == NGD_OK)
        status = ngd_restore_graph(w, &r->r, r->m->prefill, &r->graphs.prefill);
    if (status == NGD_OK && r->m->decode)
        status = ngd_restore_graph(w, &r->r, r->m->decode, &r->graphs.decode);
    if (status == NGD_OK)
        status = ngd_model_build(w->daemon, r->r.owner, r->q, &r->graphs, &model, w->diag);
    if (status == NGD_OK && (status = add_restored(w, r, model)) != NGD_OK)
        ngd_model_unref(model);
    return status;
}

void ngd_restored_fini(struct restored *r)
{
    for (size_t i = 0; r->buffers && i < r->n; i++)
        ngd_buffer_unref(r->buffers[i]);
    ngd_share_unref(r->share);
    ngd_identity_unref(r->owner);
    ngd_arena_fini(&r->arena);
}

static ngd_status_t begin_restored(struct restoring *w, struct restored_model *r)
{
    const void *q;
    ngd_status_t status = ngd_wire_unpack(&npugraph__v1__register_model_request__descriptor, r->m->request.data,
                                          r->m->request.len, &r->r.arena, &q, w->diag);

    if (status != NGD_OK)
        return status;
    r->q = q;
    if (!r->m->prefill || !r->q->contract || !*r->m->owner || strlen(r->m->owner) >= NGD_IDENTITY_MAX)
        return ngd_restore_malformed(w, "a model without an owner, a graph or a contract");
    r->r.owner = ngd_identity_get(w->daemon->identities, r->m->owner);
    return r->r.owner ? ngd_shares_open(w->daemon, r->r.owner, &r->r.share) : NGD_ERR_NO_MEMORY;
}

static ngd_status_t restore_model(struct restoring *w, const handed_model *m)
{
    struct restored_model r = {.m = m, .r = {.list = m->buffers, .n = m->n_buffers}};
    ngd_status_t status;

    ngd_arena_init(&r.r.arena, 16 << 10);
    status = begin_restored(w, &r);
    if (status == NGD_OK) {
        status = build_restored(w, &r);
        if (status == NGD_OK)
            ngd_notice("handover", "model \"%s\" of %s is ready", r.q->name, r.m->owner);
        else
            ngd_diag_prefix(w->diag, "model \"%.64s\": ", r.q->name);
    }
    ngd_binding_unref(r.graphs.prefill);
    ngd_binding_unref(r.graphs.decode);
    ngd_restored_fini(&r.r);
    return status;
}

/* Registers a pattern under its owner; those for all by this daemon's user, who is an administrator. */
static ngd_status_t restore_pattern(struct restoring *w, const Npugraph__Handover__V1__Pattern *p)
{
    struct ngd_pattern *added[1];
    struct ngd_identity *who;
    char self[32];
    uint32_t n;
    ngd_status_t status;

    snprintf(self, sizeof(self), "uid:%lu", (unsigned long)geteuid());
    who = ngd_identity_get(w->daemon->identities, *p->owner ? p->owner : self);
    if (!who)
        return NGD_ERR_NO_MEMORY;
    status = ngd_patterns_register(w->daemon->patterns, who, p->text, !*p->owner, added, 1, &n, w->diag);
    for (uint32_t i = 0; i < n; i++)
        ngd_pattern_unref(added[i]);
    ngd_identity_unref(who);
    return status;
}

static ngd_status_t restore_all(struct restoring *w, const Npugraph__Handover__V1__Description *all)
{
    ngd_status_t status = NGD_OK;

    for (size_t i = 0; i < all->n_patterns && status == NGD_OK; i++)
        status = restore_pattern(w, all->patterns[i]);
    for (size_t i = 0; i < all->n_models && status == NGD_OK; i++)
        status = ngd_reactor_stop_asked() ? ngd_diag_set(w->diag, NGD_ERR_CANCELLED, "a signal has ended the handover")
                                          : restore_model(w, all->models[i]);
    if (status != NGD_OK && !w->diag->text[0])
        ngd_diag_set(w->diag, status, "%s", ngd_status_text(status));
    return status;
}

ngd_status_t ngd_restoring_init(struct restoring *w, struct ngd_daemon *d, const ProtobufCMessageDescriptor *type,
                                const struct ngd_handed *handed, const void **message_p, struct ngd_diag *diag)
{
    const void *uploads = NULL;
    ngd_status_t status = NGD_OK;

    *w = (struct restoring){.daemon = d, .diag = diag};
    ngd_arena_init(&w->arena, 64 << 10);
    if (handed->uploads_fd >= 0)
        status = ngd_packet_map(handed->uploads_fd, handed->upload_bytes, &uploads, diag);
    if (status != NGD_OK)
        return status;
    w->uploads = uploads;
    w->upload_bytes = uploads ? handed->upload_bytes : 0;
    return ngd_wire_unpack(type, handed->data, (size_t)handed->bytes - 1, &w->arena, message_p, diag);
}

void ngd_restoring_fini(struct restoring *w)
{
    ngd_arena_fini(&w->arena);
    if (w->uploads)
        munmap((void *)(uintptr_t)w->uploads, (size_t)w->upload_bytes);
}

ngd_status_t ngd_restore(struct ngd_daemon *d, const struct ngd_handed *handed, struct ngd_diag *diag)
{
    struct restoring w;
    const void *all;
    ngd_status_t status =
        ngd_restoring_init(&w, d, &npugraph__handover__v1__description__descriptor, handed, &all, diag);

    if (status == NGD_OK)
        status = restore_all(&w, all);
    ngd_restoring_fini(&w);
    return status;
}
