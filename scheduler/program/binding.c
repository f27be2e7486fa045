/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bindings: a program with a client's buffers, and the instances of its executables in the pools of the slots.
 *
 * A thread that has an executable pinned finds its instance without a lock. To fill a place of the table, under the
 * program's lock, the instance is written first and the executable, which is the search key, last (release). A reader
 * that sees the executable (acquire) sees its instance. A place is emptied when the cache releases the executable;
 * nobody has it pinned then, so nobody searches for it. Chunks of places are only added.
 */
#include "base/mem.h"
#include "scheduler/program/compile.h"
#include "scheduler/program/capture_dump.h"
#include "scheduler/program/group_int.h"
#include "scheduler/program/merge_prog.h"
#include "scheduler/program/ready.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- life --------------------------------------------------------------------------------------------- */

static const struct ngd_value *param_or_state(const struct ngd_graph *graph, uint32_t i)
{
    return &graph->values[i < graph->n_params ? graph->params[i] : graph->states[i - graph->n_params]];
}

/* Computes the largest size of a bound value. Its dimensions are constants today. */
static ngd_status_t value_bytes(const struct ngd_graph *graph, const struct ngd_type *type, uint64_t *bytes_p)
{
    uint64_t bytes = ngd_dtype_bytes(type->dtype);

    for (uint32_t i = 0; i < type->rank; i++) {
        int64_t min, max;

        if (ngd_expr_bounds(graph->exprs, type->dims[i], &min, &max) ||
            __builtin_mul_overflow(bytes, (uint64_t)(max > 0 ? max : 0), &bytes))
            return NGD_ERR_OVERFLOW;
    }
    *bytes_p = bytes;
    return NGD_OK;
}

static ngd_status_t check_buffer(const struct ngd_program *prog, uint32_t i, const struct ngd_buffer *buf,
                                 struct ngd_diag *diag)
{
    const struct ngd_value *v = param_or_state(prog->graph, i);
    uint64_t need;

    if (ngd_buffer_device(buf) != prog->queue->dev)
        return ngd_diag_set(diag, NGD_ERR_BINDING_MISMATCH,
                            "\"%.200s\" of graph \"%.100s\" is bound to a buffer that is not on device %s", v->label,
                            prog->graph->name, prog->queue->dev_name);
    if (value_bytes(prog->graph, &v->type, &need))
        return ngd_diag_set(diag, NGD_ERR_OVERFLOW, "the size of \"%.200s\" overflows", v->label);
    if (ngd_buffer_bytes(buf) < need)
        return ngd_diag_set(diag, NGD_ERR_BINDING_MISMATCH,
                            "\"%.200s\" of graph \"%.100s\" needs a buffer of %" PRIu64
                            " bytes, \"%.100s\" has %" PRIu64,
                            v->label, prog->graph->name, need, ngd_buffer_label(buf), ngd_buffer_bytes(buf));
    return NGD_OK;
}

struct bound {
    uint64_t generation; /* identifies the memory on the program's device */
    uint32_t i;
};

static int by_memory(const void *a, const void *b)
{
    const struct bound *x = a, *y = b;

    if (x->generation != y->generation)
        return x->generation < y->generation ? -1 : 1;
    return x->i < y->i ? -1 : x->i > y->i;
}

/*
 * Refuses a state whose memory is bound to anything else too. Plans and passes take values that are not states as
 * constant during a replay, and two states as two memories. Params may share memory, as tied weights do.
 */
static ngd_status_t check_aliases(const struct ngd_program *prog, struct ngd_buffer *const *buffers, uint32_t n,
                                  struct ngd_diag *diag)
{
    const struct ngd_graph *g = prog->graph;
    struct bound *list = g->n_states ? NGD_NEW_N(struct bound, n) : NULL;
    ngd_status_t status = NGD_OK;
    uint32_t n_list = 0;

    if (g->n_states == 0)
        return NGD_OK;
    if (!list)
        return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory for a binding of graph \"%.100s\"", g->name);
    for (uint32_t i = 0; i < n; i++) {
        uint64_t bytes;

        if (buffers[i] && value_bytes(g, &param_or_state(g, i)->type, &bytes) == NGD_OK && bytes > 0)
            list[n_list++] = (struct bound){ngd_buffer_generation(buffers[i]), i};
    }
    qsort(list, n_list, sizeof(*list), by_memory);
    for (uint32_t k = 1; k < n_list && !status; k++)
        if (list[k].generation == list[k - 1].generation && list[k].i >= g->n_params)
            status =
                ngd_diag_set(diag, NGD_ERR_BINDING_MISMATCH,
                             "state \"%.200s\" of graph \"%.100s\" is bound to the buffer of \"%.200s\", which it "
                             "would overwrite; bind a buffer of its own",
                             param_or_state(g, list[k].i)->label, g->name, param_or_state(g, list[k - 1].i)->label);
    ngd_free(list);
    return status;
}

static void binding_free(struct ngd_binding *binding)
{
    struct ngd_charge charge = ngd_charge_move(&binding->charge);

    for (uint32_t i = 0; i < binding->n && binding->buffers; i++)
        ngd_buffer_unref(binding->buffers[i]);
    for (uint32_t r = 0; binding->ranks && r < binding->prog->gang->n; r++)
        ngd_binding_unref(binding->ranks[r]);
    ngd_free(binding->ranks);
    ngd_free(binding->buffers);
    ngd_free(binding);
    ngd_charge_end(&charge);
}

static bool same_buffers(const struct ngd_binding *a, const struct ngd_binding *b)
{
    for (uint32_t i = 0; i < a->n; i++)
        if (!ngd_buffer_same(a->buffers[i], b->buffers[i]))
            return false;
    return true;
}

/* Finds the merge of a binding with the same buffers: replays of both compute the same, whoever owns them. */
static struct ngd_merge_prog *find_merge_locked(struct ngd_program *prog, const struct ngd_binding *binding)
    NGD_REQUIRES(prog->lock)
{
    ngd_list_for_each (l, &prog->bindings) {
        const struct ngd_binding *other = ngd_container_of(l, struct ngd_binding, link);

        if (other->merge && same_buffers(other, binding))
            return ngd_merge_prog_ref(other->merge);
    }
    return NULL;
}

ngd_status_t ngd_binding_create(struct ngd_program *prog, struct ngd_buffer *const *buffers,
                                struct ngd_binding **binding_p, struct ngd_diag *diag)
{
    uint32_t n = prog->graph->n_params + prog->graph->n_states;
    struct ngd_binding *binding;
    struct ngd_merge_prog *fresh;
    struct ngd_charge charge;
    ngd_status_t status = NGD_OK;

    for (uint32_t i = 0; i < n && !status; i++)
        status = buffers[i] ? check_buffer(prog, i, buffers[i], diag) : NGD_OK;
    if (!status)
        status = check_aliases(prog, buffers, n, diag);
    if (!status)
        status = ngd_charge_begin(&charge, ngd_program_owner_of(prog).payers.host,
                                  sizeof(*binding) + prog->queue->n_slots * sizeof(binding->instances[0]) +
                                      n * sizeof(binding->buffers[0]),
                                  diag);
    if (status)
        return status;
    binding = ngd_calloc(1, sizeof(*binding) + prog->queue->n_slots * sizeof(binding->instances[0]));
    if (binding) {
        binding->n = n;
        binding->buffers = NGD_NEW_N(struct ngd_buffer *, n ? n : 1);
    }
    if (!binding || !binding->buffers) {
        ngd_charge_end(&charge);
        ngd_free(binding);
        return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory for a binding of graph \"%.100s\"",
                            prog->graph->name);
    }
    binding->charge = ngd_charge_move(&charge);
    binding->missing = n;
    for (uint32_t i = n; i-- > 0;) {
        if (buffers[i])
            binding->buffers[i] = ngd_buffer_ref(buffers[i]);
        else
            binding->missing = i;
    }
    atomic_init(&binding->refs, 1);
    binding->generation = atomic_fetch_add(&prog->sched->next_binding, 1) + 1;
    binding->prog = ngd_program_ref(prog);
    fresh = ngd_merge_prog_create(prog);
    ngd_mutex_lock(&prog->lock);
    if (fresh)
        binding->merge = find_merge_locked(prog, binding);
    if (!binding->merge) {
        binding->merge = fresh;
        fresh = NULL;
    }
    ngd_list_push_back(&prog->bindings, &binding->link);
    ngd_mutex_unlock(&prog->lock);
    ngd_merge_prog_unref(fresh);
    ngd_ready_binding(binding);
    *binding_p = binding;
    return NGD_OK;
}

struct ngd_binding *ngd_binding_ref(struct ngd_binding *binding)
{
    atomic_fetch_add_explicit(&binding->refs, 1, memory_order_relaxed);
    return binding;
}

bool ngd_binding_try_ref(struct ngd_binding *binding)
{
    uint32_t refs = atomic_load_explicit(&binding->refs, memory_order_relaxed);

    while (refs > 0)
        if (atomic_compare_exchange_weak_explicit(&binding->refs, &refs, refs + 1, memory_order_relaxed,
                                                  memory_order_relaxed))
            return true;
    return false;
}

/* Takes no lock: the binding is in no list any more. */
static void destroy_instances(struct ngd_instance_chunk *first)
{
    struct ngd_instance_chunk *next;

    for (struct ngd_instance_chunk *c = first; c; c = next) {
        next = atomic_load_explicit(&c->next, memory_order_relaxed);
        for (uint32_t i = 0; i < NGD_INSTANCE_CHUNK; i++)
            if (atomic_load_explicit(&c->place[i].x, memory_order_relaxed))
                ngd_instance_destroy(c->place[i].inst);
        if (c != first)
            ngd_free(c);
    }
}

struct ngd_binding *ngd_binding_unref(struct ngd_binding *binding)
{
    struct ngd_program *prog;

    if (!binding || atomic_fetch_sub_explicit(&binding->refs, 1, memory_order_acq_rel) != 1)
        return NULL;
    prog = binding->prog;
    ngd_mutex_lock(&prog->lock);
    ngd_list_remove(&binding->link);
    ngd_mutex_unlock(&prog->lock);
    for (uint32_t i = 0; i < prog->queue->n_slots; i++)
        destroy_instances(&binding->instances[i]);
    ngd_merge_prog_unref(binding->merge);
    binding_free(binding);
    ngd_program_unref(prog);
    return NULL;
}

struct ngd_program *ngd_binding_program(const struct ngd_binding *binding)
{
    return binding->prog;
}

static ngd_status_t check_frozen(const struct ngd_binding *binding, uint32_t i, struct ngd_diag *diag)
{
    const struct ngd_program *prog = binding->prog;

    if (!prog->options.frozen_parameter || i >= prog->graph->n_params || !binding->buffers[i])
        return NGD_OK;
    return ngd_diag_set(diag, NGD_ERR_BINDING_MISMATCH,
                        "\"%.200s\" of graph \"%.100s\" cannot get another buffer: it was registered with "
                        "frozen_parameter; write into the buffer, or register the graph without the option",
                        param_or_state(prog->graph, i)->label, prog->graph->name);
}

/* Makes the list of the new binding's buffers. *changed_p: index of the first changed one; n = none. */
static ngd_status_t merge_buffers(const struct ngd_binding *binding, struct ngd_buffer *const *changes,
                                  struct ngd_buffer **buffers, uint32_t *changed_p, struct ngd_diag *diag)
{
    ngd_status_t status = NGD_OK;

    *changed_p = binding->n;
    for (uint32_t i = binding->n; i-- > 0 && status == NGD_OK;) {
        buffers[i] = changes[i] ? changes[i] : binding->buffers[i];
        if (buffers[i] == binding->buffers[i])
            continue;
        *changed_p = i;
        status = check_frozen(binding, i, diag);
    }
    return status;
}

static void note_rebound(struct ngd_program *prog, const struct ngd_binding *from, const struct ngd_binding *to,
                         uint32_t i)
{
    ngd_program_note(prog, NGD_EVENT_REBOUND, NULL, 0,
                     "\"%.60s\" and perhaps more: buffer of generation %" PRIu64 " instead of %" PRIu64
                     "; the binding's generation is %" PRIu64 ", it was %" PRIu64,
                     param_or_state(prog->graph, i)->label, ngd_buffer_generation(to->buffers[i]),
                     from->buffers[i] ? ngd_buffer_generation(from->buffers[i]) : 0, to->generation, from->generation);
}

ngd_status_t ngd_binding_change(struct ngd_binding *binding, struct ngd_buffer *const *changes,
                                struct ngd_binding **binding_p, struct ngd_diag *diag)
{
    struct ngd_buffer **buffers;
    uint32_t changed;
    ngd_status_t status;

    if (binding->ranks)
        return ngd_diag_set(
            diag, NGD_ERR_BINDING_MISMATCH,
            "graph \"%.100s\" joins all ranks of a group: bind the graphs of the ranks, then join them again",
            binding->prog->graph->name);
    buffers = NGD_NEW_N(struct ngd_buffer *, binding->n ? binding->n : 1);
    if (!buffers)
        return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory for a binding");
    status = merge_buffers(binding, changes, buffers, &changed, diag);
    if (status == NGD_OK && changed == binding->n)
        *binding_p = ngd_binding_ref(binding);
    else if (status == NGD_OK)
        status = ngd_binding_create(binding->prog, buffers, binding_p, diag);
    ngd_free(buffers);
    if (status == NGD_OK && changed < binding->n)
        note_rebound(binding->prog, binding, *binding_p, changed);
    return status;
}

uint64_t ngd_binding_generation(const struct ngd_binding *binding)
{
    return binding->generation;
}

struct ngd_buffer *ngd_binding_buffer(const struct ngd_binding *binding, uint32_t i)
{
    return binding->buffers[i];
}

ngd_status_t ngd_binding_check(const struct ngd_binding *binding, struct ngd_diag *diag)
{
    const struct ngd_graph *graph = binding->prog->graph;
    ngd_status_t status = NGD_OK;

    for (uint32_t r = 0; binding->ranks && r < binding->prog->gang->n && !status; r++)
        status = ngd_binding_check(binding->ranks[r], diag);
    if (status || binding->missing == binding->n)
        return status;
    return ngd_diag_set(diag, NGD_ERR_BINDING_MISSING,
                        "\"%.200s\" of graph \"%.100s\" has no buffer; bind one at registration",
                        param_or_state(graph, binding->missing)->label, graph->name);
}

/* ---- instances ---------------------------------------------------------------------------------------- */

static struct ngd_instance *find_instance(struct ngd_instance_chunk *c, const struct ngd_executable *x)
{
    for (; c; c = atomic_load_explicit(&c->next, memory_order_acquire))
        for (uint32_t i = 0; i < NGD_INSTANCE_CHUNK; i++)
            if (atomic_load_explicit(&c->place[i].x, memory_order_acquire) == x)
                return c->place[i].inst;
    return NULL;
}

uint64_t ngd_binding_slots(struct ngd_binding *binding, const struct ngd_executable *x)
{
    uint64_t slots = 0;

    for (uint32_t i = 0; i < binding->prog->queue->n_slots; i++)
        if (find_instance(&binding->instances[i], x))
            slots |= UINT64_C(1) << i;
    return slots;
}

bool ngd_binding_ready(struct ngd_binding *binding, const struct ngd_slot *slot, const struct ngd_executable *x)
{
    const struct ngd_instance *inst = find_instance(&binding->instances[slot->index], x);

    return inst && ngd_instance_ready(inst, slot->stream);
}

/*
 * Puts inst into a free place. If there is none, adds *spare_p to the table and uses that. False: there is none, and no
 * spare was given.
 */
static bool add_instance_locked(struct ngd_program *prog, struct ngd_instance_chunk *c, const struct ngd_executable *x,
                                struct ngd_instance *inst, struct ngd_instance_chunk **spare_p) NGD_REQUIRES(prog->lock)
{
    struct ngd_instance_chunk *last = c;

    (void)prog;
    for (; c; last = c, c = atomic_load_explicit(&c->next, memory_order_relaxed)) {
        for (uint32_t i = 0; i < NGD_INSTANCE_CHUNK; i++) {
            if (atomic_load_explicit(&c->place[i].x, memory_order_relaxed))
                continue;
            c->place[i].inst = inst;
            atomic_store_explicit(&c->place[i].x, x, memory_order_release);
            return true;
        }
    }
    if (!*spare_p)
        return false;
    (*spare_p)->place[0].inst = inst;
    atomic_store_explicit(&(*spare_p)->place[0].x, x, memory_order_relaxed);
    atomic_store_explicit(&last->next, *spare_p, memory_order_release);
    *spare_p = NULL;
    return true;
}

static ngd_status_t keep_instance(struct ngd_binding *binding, uint32_t slot, const struct ngd_executable *x,
                                  struct ngd_instance *inst, struct ngd_diag *diag)
{
    struct ngd_program *prog = binding->prog;
    struct ngd_instance_chunk *spare = NULL;
    bool kept;

    ngd_mutex_lock(&prog->lock);
    kept = add_instance_locked(prog, &binding->instances[slot], x, inst, &spare);
    ngd_mutex_unlock(&prog->lock);
    if (kept)
        return NGD_OK;
    spare = NGD_NEW(struct ngd_instance_chunk);
    if (!spare)
        return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory for an instance of graph \"%.100s\"",
                            prog->graph->name);
    ngd_mutex_lock(&prog->lock);
    (void)add_instance_locked(prog, &binding->instances[slot], x, inst, &spare);
    ngd_mutex_unlock(&prog->lock);
    ngd_free(spare); /* left over if a place became free meanwhile */
    return NGD_OK;
}

ngd_status_t ngd_binding_instance(struct ngd_binding *binding, struct ngd_slot *slot, struct ngd_executable *x,
                                  struct ngd_instance **inst_p, struct ngd_diag *diag)
{
    struct ngd_instance *inst = x->cached ? find_instance(&binding->instances[slot->index], x) : NULL;
    uint64_t need;
    ngd_status_t status;

    if (inst) {
        *inst_p = inst;
        return NGD_OK;
    }
    status = ngd_instance_create(x->exec, binding->buffers, binding->n, ngd_poolset_pool(x->pools, slot), &inst, diag);
    if (status)
        return status;
    need = ngd_exec_plan(x->exec)->pool_bytes;
    if (!x->pools && need > slot->need)
        slot->need = need;
    ngd_metric_row_set(slot->pool_need, (int64_t)slot->need);
    ngd_metric_row_set(slot->pool_reserved, (int64_t)ngd_pool_bytes(slot->pool));
    if (x->cached)
        status = ngd_instance_charge(inst, ngd_program_owner_of(binding->prog).payers.host, diag);
    if (x->cached && !status)
        status = keep_instance(binding, slot->index, x, inst, diag);
    if (status) {
        ngd_instance_destroy(inst);
        return status;
    }
    *inst_p = inst;
    return NGD_OK;
}

/* Removes one instance of x from the program's bindings and returns it; NULL: there is none. */
static struct ngd_instance *take_instance_locked(struct ngd_program *prog, const struct ngd_executable *x)
    NGD_REQUIRES(prog->lock)
{
    ngd_list_for_each (l, &prog->bindings) {
        struct ngd_binding *binding = ngd_container_of(l, struct ngd_binding, link);

        for (uint32_t slot = 0; slot < prog->queue->n_slots; slot++) {
            struct ngd_instance_chunk *c = &binding->instances[slot];

            for (; c; c = atomic_load_explicit(&c->next, memory_order_relaxed)) {
                for (uint32_t i = 0; i < NGD_INSTANCE_CHUNK; i++) {
                    if (atomic_load_explicit(&c->place[i].x, memory_order_relaxed) != x)
                        continue;
                    atomic_store_explicit(&c->place[i].x, NULL, memory_order_relaxed);
                    return c->place[i].inst;
                }
            }
        }
    }
    return NULL;
}

void ngd_program_drop_instances(struct ngd_program *prog, const struct ngd_executable *x)
{
    struct ngd_instance *inst;

    do {
        ngd_mutex_lock(&prog->lock);
        inst = take_instance_locked(prog, x);
        ngd_mutex_unlock(&prog->lock);
        ngd_instance_destroy(inst);
    } while (inst);
}

/* ---- captures ahead ----------------------------------------------------------------------------------- */

/* Fills in what the capture shares with others and what it adds. A private pool does not exist before the capture. */
static void describe_sharing(const struct ngd_program *prog, const struct ngd_plan *plan, struct ngd_capture_info *info)
{
    bool private = !prog->pools && ngd_program_has_own_pools(prog);
    struct ngd_gcache_stats cache;

    ngd_gcache_stats(prog->cache, &cache);
    info->executables = cache.entries;
    info->holders = atomic_load_explicit(&prog->refs, memory_order_relaxed);
    info->pools = prog->queue->n_slots;
    if (prog->pools)
        snprintf(info->pool, sizeof(info->pool), "named %.64s", prog->options.use_graph_pool);
    else
        snprintf(info->pool, sizeof(info->pool), "%s", private ? "private" : "slots");
    for (uint32_t i = 0; i < prog->queue->n_slots; i++) {
        uint64_t held = private ? 0 : ngd_pool_bytes(ngd_poolset_pool(prog->pools, &prog->queue->slots[i]));

        info->pool_held += held;
        info->pool_more += plan->pool_bytes > held ? plan->pool_bytes - held : 0;
    }
}

static void describe_plan(const struct ngd_program *prog, const struct ngd_plan *plan, struct ngd_capture_info *info)
{
    struct ngd_strbuf sb;

    info->pool_bytes = plan->pool_bytes;
    info->live_bytes = plan->live_peak_bytes;
    info->kernels = plan->n_calls;
    info->streams = plan->n_streams;
    describe_sharing(prog, plan, info);
    ngd_strbuf_init(&sb);
    ngd_key_print(prog->graph, &plan->key, &sb);
    strncpy(info->key, ngd_strbuf_str(&sb), sizeof(info->key) - 1);
    ngd_strbuf_fini(&sb);
}

static ngd_status_t plan_only(struct ngd_program *prog, const struct ngd_key *key,
                              const struct ngd_graph_options *options, struct ngd_capture_info *info,
                              struct ngd_diag *diag)
{
    struct ngd_plan *plan;
    ngd_nsec_t begin = ngd_now();
    ngd_status_t status = ngd_plan_create_reported(prog->graph, key, options, ngd_device_target(prog->queue->dev),
                                                   prog->patterns, NULL, &plan, diag);

    if (status)
        return ngd_program_say_stopped(prog, status, diag);
    describe_plan(prog, plan, info);
    info->duration = ngd_now() - begin;
    ngd_plan_unref(plan);
    return NGD_OK;
}

/* Plans as a registration with these options would: with its pools and its key, and its refusals. */
static ngd_status_t plan_with(struct ngd_program *prog, const int64_t *symbols, uint32_t n_symbols,
                              const struct ngd_graph_options *options, struct ngd_capture_info *info,
                              struct ngd_diag *diag)
{
    const struct ngd_owner owner = ngd_program_owner_of(prog);
    struct ngd_program *other;
    struct ngd_key key;
    ngd_status_t status = ngd_program_open_in(prog->sched, prog->queue->dev, prog->graph, options, prog->patterns,
                                              prog->group, &owner, &other, NULL, diag);

    if (status)
        return status;
    status = ngd_program_key(other, symbols, n_symbols, &key, diag);
    if (status == NGD_OK)
        status = plan_only(other, &key, options, info, diag);
    ngd_program_unref(other);
    return status;
}

static bool has_options(const struct ngd_program *prog, const struct ngd_graph_options *options)
{
    struct ngd_digest own, others;

    ngd_graph_options_digest(&prog->options, false, &own);
    ngd_graph_options_digest(options, false, &others);
    return ngd_digest_equal(&own, &others);
}

ngd_status_t ngd_binding_capture(struct ngd_binding *binding, const int64_t *symbols, uint32_t n_symbols,
                                 const struct ngd_graph_options *options, bool dry_run, struct ngd_capture_info *info_p,
                                 struct ngd_diag *diag)
{
    struct ngd_program *prog = binding->prog;
    struct ngd_capture_info info = {0};
    struct ngd_gcache_entry *entry;
    struct ngd_executable *x;
    int64_t sizes[NGD_GRAPH_MAX_SYMBOLS];
    struct ngd_key key;
    bool asked, unchecked;
    ngd_status_t status = ngd_program_choose_sizes(prog, symbols, n_symbols, sizes, diag);

    if (status == NGD_OK)
        status = ngd_program_key(prog, sizes, n_symbols, &key, diag);
    if (!options)
        options = &prog->options;
    dry_run = dry_run || prog->options.force_eager;           /* no replay would run a captured executable */
    asked = options->debug_dump && !prog->options.debug_dump; /* the dump is for this capture only */
    unchecked = options->deadlock_check && !prog->options.deadlock_check;
    if (status == NGD_OK && unchecked && !dry_run) /* refuse before anything is captured */
        status = plan_only(prog, &key, options, &info, diag);
    info = (struct ngd_capture_info){0};
    if (status == NGD_OK && asked && !dry_run)
        ngd_capture_dump_ask(prog, &key, options);
    if (status == NGD_OK && dry_run)
        status = prog->gang || has_options(prog, options) ? plan_only(prog, &key, options, &info, diag)
                                                          : plan_with(prog, sizes, n_symbols, options, &info, diag);
    else if (status == NGD_OK && (options->force_recapture || asked))
        status = ngd_program_recapture(prog, &key, &entry, &info.captured, diag);
    else if (status == NGD_OK)
        status = ngd_program_capture(prog, &key, &entry, &info.captured, diag);
    if (status)
        return status;
    if (!dry_run) {
        x = ngd_entry_executable(entry);
        describe_plan(prog, ngd_exec_plan(x->exec), &info);
        info.duration = info.captured ? x->capture_time : 0;
        info.passes_time = x->passes_time;
        info.plan_time = x->plan_time;
        ngd_compile_later(x, options);
        ngd_gcache_put(entry);
    }
    memcpy(info.symbols, sizes, n_symbols * sizeof(sizes[0]));
    if (info_p)
        *info_p = info;
    return NGD_OK;
}
