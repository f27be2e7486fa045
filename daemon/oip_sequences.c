/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/oip_sequences.h"

#include "base/lock.h"
#include "base/mem.h"
#include "daemon/identity.h"
#include "daemon/sequence_object.h"
#include "daemon/session.h"
#include "graphs/graph.h"
#include "scheduler/program/program.h"
#include "scheduler/run/sched.h"
#include <string.h>

#define CHAINS       256 /* a power of two */
#define SESSION_NAME "open inference protocol"
#define STATE_LABEL  "state of a sequence"

struct ngd_oip_sequences {
    struct ngd_graph_names *names;
    struct ngd_mutex lock;
    struct ngd_list chains[CHAINS] NGD_GUARDED_BY(lock);
    uint32_t n NGD_GUARDED_BY(lock);
};

/* ---- life -------------------------------------------------------------------------------------------------------- */

/* The session's end would close the sequence too, but the session may be the client's. */
static void leave_sequence_session(struct ngd_oip_sequence *s)
{
    if (s->object)
        ngd_session_remove(s->session, s->object_id, NGD_OBJECT_SEQUENCE, NULL);
    ngd_object_unref(s->object);
    if (s->own_session)
        ngd_session_left(s->session, NULL, false);
    ngd_session_unref(s->session);
    ngd_model_unref(s->language_model);
}

static void free_oip_sequence(struct ngd_oip_sequence *s)
{
    struct ngd_charge one = ngd_charge_move(&s->one), host = ngd_charge_move(&s->host);

    ngd_binding_unref(s->binding);
    ngd_order_destroy(s->order);
    if (s->session)
        leave_sequence_session(s);
    ngd_free(s);
    ngd_charge_end(&one);
    ngd_charge_end(&host);
}

void ngd_oip_sequence_unref(struct ngd_oip_sequence *s)
{
    if (s && atomic_fetch_sub_explicit(&s->refs, 1, memory_order_acq_rel) == 1)
        free_oip_sequence(s);
}

/* Makes a sequence with the reference of its first request. */
static ngd_status_t make_oip_sequence(struct ngd_oip_sequences *table, const struct ngd_oip_sequence_name *name,
                                      struct ngd_oip_sequence **s_p, struct ngd_diag *diag)
{
    const size_t n = strlen(name->model) + 1, n_id = strlen(name->id) + 1, bytes = sizeof(**s_p) + n + n_id;
    struct ngd_charge host;
    ngd_status_t status =
        ngd_charge_begin(&host, ngd_identity_payer(name->identity, NGD_QUOTA_HOST_BYTES), bytes, diag);
    struct ngd_oip_sequence *s = status == NGD_OK ? ngd_calloc(1, bytes) : NULL;

    if (status != NGD_OK)
        return status;
    if (!s) {
        ngd_charge_end(&host);
        return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "out of host memory for a sequence");
    }
    s->table = table;
    s->refs = 1;
    s->users = 1;
    s->last = -1;
    s->owner = name->identity->key;
    s->scope = name->session ? ngd_session_id(name->session) : 0;
    s->model = (char *)(s + 1);
    s->id = s->model + n;
    memcpy(s->model, name->model, n);
    memcpy(s->id, name->id, n_id);
    s->host = ngd_charge_move(&host);
    ngd_list_init(&s->link);
    *s_p = s;
    return NGD_OK;
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

/* FNV-1a, from the owner's key, which nobody can guess. */
static struct ngd_list *chain_of_id(struct ngd_oip_sequences *table, uint64_t owner, const char *id)
    NGD_REQUIRES(table->lock)
{
    uint64_t h = owner;

    for (; *id; id++)
        h = (h ^ (uint8_t)*id) * UINT64_C(0x100000001b3);
    return &table->chains[(h ^ h >> 32) & (CHAINS - 1)];
}

static struct ngd_oip_sequence *find_id_locked(struct ngd_oip_sequences *table, uint64_t owner, uint64_t scope,
                                               const char *model, const char *id) NGD_REQUIRES(table->lock)
{
    ngd_list_for_each (pos, chain_of_id(table, owner, id)) {
        struct ngd_oip_sequence *s = ngd_container_of(pos, struct ngd_oip_sequence, link);

        if (s->owner == owner && s->scope == scope && strcmp(s->id, id) == 0 && strcmp(s->model, model) == 0)
            return s;
    }
    return NULL;
}

/* Takes the sequence out, if it is in. True: the caller drops the table's reference, without the lock. */
static bool take_out_locked(struct ngd_oip_sequences *table, struct ngd_oip_sequence *s) NGD_REQUIRES(table->lock)
{
    if (!s->kept)
        return false;
    ngd_list_remove(&s->link);
    s->kept = false;
    table->n--;
    return true;
}

void ngd_oip_sequence_keep(struct ngd_oip_sequence *s)
{
    struct ngd_oip_sequences *table = s->table;
    struct ngd_oip_sequence *old;

    atomic_fetch_add_explicit(&s->refs, 1, memory_order_relaxed);
    ngd_mutex_lock(&table->lock);
    old = find_id_locked(table, s->owner, s->scope, s->model, s->id);
    if (old)
        (void)take_out_locked(table, old);
    s->kept = true;
    table->n++;
    ngd_list_push_front(chain_of_id(table, s->owner, s->id), &s->link);
    ngd_mutex_unlock(&table->lock);
    ngd_oip_sequence_unref(old);
    if (s->graph && !ngd_graph_is_named(s->graph)) /* it may have gone before the sequence was in the table */
        ngd_oip_sequence_end(s);
}

ngd_status_t ngd_oip_sequence_find(struct ngd_oip_sequences *table, const struct ngd_oip_sequence_name *name,
                                   struct ngd_oip_sequence **s_p, struct ngd_diag *diag)
{
    const uint64_t scope = name->session ? ngd_session_id(name->session) : 0;
    struct ngd_oip_sequence *s;
    bool busy = false;

    ngd_mutex_lock(&table->lock);
    s = find_id_locked(table, name->identity->key, scope, name->model, name->id);
    if (s)
        busy = s->language_model && s->users > 0;
    if (s && !busy) {
        s->users++;
        atomic_fetch_add_explicit(&s->refs, 1, memory_order_relaxed);
    }
    ngd_mutex_unlock(&table->lock);
    if (!s)
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT,
                            "model \"%.100s\" has no sequence of that sequence_id: it has ended, was idle for longer "
                            "than oip-sequence-timeout, or was never begun; begin one with sequence_start",
                            name->model);
    if (busy)
        return ngd_diag_set(diag, NGD_ERR_SEQUENCE_BUSY, "the sequence has a request under way; wait for its answer");
    *s_p = s;
    return NGD_OK;
}

void ngd_oip_sequence_end(struct ngd_oip_sequence *s)
{
    struct ngd_oip_sequences *table = s->table;
    bool kept;

    ngd_mutex_lock(&table->lock);
    kept = take_out_locked(table, s);
    ngd_mutex_unlock(&table->lock);
    if (kept)
        ngd_oip_sequence_unref(s);
}

void ngd_oip_sequence_rest(struct ngd_oip_sequence *s)
{
    ngd_mutex_lock(&s->table->lock);
    s->users--;
    s->idle_since = ngd_now();
    ngd_mutex_unlock(&s->table->lock);
}

/* ---- the end of several ------------------------------------------------------------------------------------------ */

/* Which sequences end: those of a graph, or those that are idle since `before` or longer, or were closed. */
struct doomed {
    const struct ngd_graph_object *graph;
    ngd_nsec_t before;
};

/* Whether a language model's sequence was closed: with its session, by the client, or because the model was unloaded.
 * It would keep the model's memory. */
static bool was_closed(const struct ngd_oip_sequence *s)
{
    return s->object && ngd_seq_is_closed(ngd_container_of(s->object, struct ngd_sequence_object, base)->seq);
}

static bool is_doomed(const struct ngd_oip_sequence *s, const struct doomed *d)
{
    return d->graph ? s->graph == d->graph : s->users == 0 && (s->idle_since <= d->before || was_closed(s));
}

/* Moves them to a list, so that they are released without the lock. Their table references go with them. */
static void take_doomed(struct ngd_oip_sequences *table, const struct doomed *d, struct ngd_list *taken)
{
    ngd_mutex_lock(&table->lock);
    for (size_t i = 0; i < CHAINS && table->n > 0; i++)
        ngd_list_for_each_safe (pos, next, &table->chains[i]) {
            struct ngd_oip_sequence *s = ngd_container_of(pos, struct ngd_oip_sequence, link);

            if (is_doomed(s, d) && take_out_locked(table, s))
                ngd_list_push_back(taken, &s->link);
        }
    ngd_mutex_unlock(&table->lock);
}

static void end_doomed(struct ngd_oip_sequences *table, const struct doomed *d)
{
    struct ngd_list taken, *first;

    ngd_list_init(&taken);
    take_doomed(table, d, &taken);
    while ((first = ngd_list_pop_front(&taken)))
        ngd_oip_sequence_unref(ngd_container_of(first, struct ngd_oip_sequence, link));
}

void ngd_oip_sequences_expire(struct ngd_oip_sequences *table, ngd_nsec_t idle)
{
    end_doomed(table, &(struct doomed){.before = ngd_now() - idle});
}

void ngd_oip_sequences_clear(struct ngd_oip_sequences *table)
{
    if (table)
        end_doomed(table, &(struct doomed){.before = NGD_NSEC_NEVER});
}

static void graph_is_gone(void *ctx, const struct ngd_graph_object *graph)
{
    end_doomed(ctx, &(struct doomed){.graph = graph});
}

ngd_status_t ngd_oip_sequences_create(struct ngd_graph_names *names, struct ngd_oip_sequences **table_p)
{
    struct ngd_oip_sequences *table = NGD_NEW(struct ngd_oip_sequences);

    if (!table)
        return NGD_ERR_NO_MEMORY;
    table->names = names;
    ngd_mutex_init(&table->lock, NGD_RANK_OIP_SEQUENCES);
    ngd_mutex_lock(&table->lock);
    for (size_t i = 0; i < CHAINS; i++)
        ngd_list_init(&table->chains[i]);
    ngd_mutex_unlock(&table->lock);
    ngd_graph_names_watch(names, graph_is_gone, table);
    *table_p = table;
    return NGD_OK;
}

void ngd_oip_sequences_destroy(struct ngd_oip_sequences *table)
{
    if (!table)
        return;
    ngd_graph_names_watch(table->names, NULL, NULL);
    ngd_mutex_fini(&table->lock);
    ngd_free(table);
}

/* ---- of a graph -------------------------------------------------------------------------------------------------- */

/* The dimensions of a state are constants. */
static ngd_status_t state_bytes(const struct ngd_type *type, uint64_t *bytes_p)
{
    uint64_t bytes = ngd_dtype_bytes(type->dtype);

    for (uint32_t d = 0; d < type->rank; d++)
        if (!ngd_dim_is_const(type->dims[d]) || __builtin_mul_overflow(bytes, (uint64_t)type->dims[d], &bytes))
            return NGD_ERR_OVERFLOW;
    *bytes_p = bytes ? bytes : 1;
    return NGD_OK;
}

static ngd_status_t make_sequence_state(struct ngd_identity *identity, struct ngd_device *dev,
                                        const struct ngd_type *type, struct ngd_buffer **buffer_p,
                                        struct ngd_diag *diag)
{
    struct ngd_charge charge = {0};
    uint64_t bytes = 0;
    ngd_status_t status = state_bytes(type, &bytes);

    if (status == NGD_OK)
        status = ngd_charge_begin(&charge, ngd_identity_payer(identity, NGD_QUOTA_BYTES), bytes, diag);
    if (status != NGD_OK)
        return status;
    status = ngd_buffer_create(dev, bytes, NGD_BUFFER_GENERAL, STATE_LABEL, buffer_p, diag);
    if (status == NGD_OK)
        ngd_buffer_set_charge(*buffer_p, &charge);
    else
        ngd_charge_end(&charge);
    return status;
}

/* Binds the graph to states of the sequence's own, and to the params that it has. */
static ngd_status_t bind_states(struct ngd_oip_sequence *s, struct ngd_identity *identity, struct ngd_binding *from,
                                struct ngd_diag *diag)
{
    struct ngd_program *prog = ngd_binding_program(from);
    const struct ngd_graph *g = ngd_program_graph(prog);
    const uint32_t n = g->n_params + g->n_states;
    struct ngd_buffer **buffers = ngd_calloc(n + 1u, sizeof(struct ngd_buffer *));
    ngd_status_t status = buffers ? NGD_OK : NGD_ERR_NO_MEMORY;

    for (uint32_t i = g->n_params; i < n && status == NGD_OK; i++)
        status = make_sequence_state(identity, ngd_program_device(prog), &g->values[g->states[i - g->n_params]].type,
                                     &buffers[i], diag);
    if (status == NGD_OK)
        status = ngd_binding_change(from, buffers, &s->binding, diag);
    for (uint32_t i = g->n_params; i < n && buffers; i++)
        ngd_buffer_unref(buffers[i]);
    ngd_free(buffers);
    return status;
}

ngd_status_t ngd_oip_sequence_of_graph(struct ngd_oip_sequences *table, const struct ngd_oip_sequence_name *name,
                                       const struct ngd_graph_found *graph, struct ngd_oip_sequence **s_p,
                                       struct ngd_diag *diag)
{
    struct ngd_oip_sequence *s;
    ngd_status_t status;

    if (ngd_program_graph(ngd_binding_program(graph->binding))->n_states == 0)
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT,
                            "graph \"%.100s\" has no states, so that a sequence of requests has nothing to keep; leave "
                            "sequence_id out",
                            name->model);
    status = make_oip_sequence(table, name, &s, diag);
    if (status != NGD_OK)
        return status;
    s->graph = graph->object;
    s->generation = ngd_binding_generation(graph->binding);
    status = ngd_charge_begin(&s->one, ngd_identity_payer(name->identity, NGD_QUOTA_SEQUENCES), 1, diag);
    if (status == NGD_OK)
        status = ngd_order_create(&s->order);
    if (status == NGD_OK)
        status = bind_states(s, name->identity, graph->binding, diag);
    if (status == NGD_OK)
        *s_p = s;
    else
        ngd_oip_sequence_unref(s);
    return status;
}

/* ---- of a language model ----------------------------------------------------------------------------------------- */

ngd_status_t ngd_oip_sequence_of_model(struct ngd_oip_sequences *table, const struct ngd_oip_sequence_name *name,
                                       struct ngd_model *model, struct ngd_sessions *sessions, struct ngd_token *bearer,
                                       const char *peer, struct ngd_oip_sequence **s_p, struct ngd_diag *diag)
{
    const struct ngd_session_client client = {.identity = name->identity, .bearer = bearer, .peer = peer};
    const struct ngd_session_wish wish = {.client_name = SESSION_NAME};
    struct ngd_oip_sequence *s;
    ngd_status_t status = make_oip_sequence(table, name, &s, diag);

    if (status != NGD_OK)
        return status;
    if (name->session)
        s->session = ngd_session_ref(name->session);
    else
        status = ngd_session_open(sessions, &client, &wish, &s->session, diag);
    s->own_session = status == NGD_OK && !name->session;
    s->language_model = ngd_model_ref(model);
    if (status == NGD_OK) {
        *s_p = s;
    } else {
        s->language_model = ngd_model_unref(s->language_model);
        ngd_oip_sequence_unref(s);
    }
    return status;
}
