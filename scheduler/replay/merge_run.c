/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Joint replays: the rows of several requests are concatenated in the slot's area, replayed by one launch, and copied
 * apart into each request's answer.
 *
 * If a joint replay fails because of one member's data (an index out of range), the others must not fail: each member
 * then runs again by itself. A failure of the device fails all members.
 */
#include "base/mem.h"
#include "scheduler/replay/merge_run.h"
#include "scheduler/run/usage.h"
#include <string.h>

#define ALIGN(bytes) (((bytes) + 63) & ~(uint64_t)63)

/* A slot's memory for concatenated rows. Made for its first joint replay, and grown when an executable needs more. */
struct merge_area {
    struct ngd_slot_area slot_area;
    uint8_t *data;
    uint64_t bytes;
    uint32_t n_inputs, n_outputs; /* sizes of the arrays */
    struct ngd_span *inputs;
    struct ngd_out *outputs;
    int64_t symbols[NGD_GRAPH_MAX_SYMBOLS];
    struct ngd_launch launch;
};

/* A joint replay. */
struct joint {
    struct ngd_slot *slot;
    struct ngd_list members; /* by item.merge_link; the first is the lead, chosen by the policy */
    struct ngd_executable *x;
    const struct ngd_plan *plan;
    uint32_t symbol, n;
    ngd_nsec_t latest; /* latest deadline of a member */
    int64_t rows;
    struct merge_area *area;
    ngd_nsec_t gather_time, scatter_time;
};

static struct ngd_request *member_of(struct ngd_list *l)
{
    return ngd_container_of(l, struct ngd_request, item.merge_link);
}

static struct ngd_request *joint_first(const struct joint *j)
{
    return member_of(j->members.next);
}

static int64_t member_rows(const struct joint *j, const struct ngd_request *req)
{
    return req->launch.symbols[j->symbol];
}

/* ---- the area ----------------------------------------------------------------------------------------- */

static void area_destroy(struct ngd_slot_area *slot_area)
{
    struct merge_area *area = ngd_container_of(slot_area, struct merge_area, slot_area);

    ngd_free(area->data);
    ngd_free(area->inputs);
    ngd_free(area->outputs);
    ngd_free(area);
}

/* Makes an array hold n elements. Old contents are not kept. False: there is no memory. */
static bool area_grow(void **array, uint32_t *room, uint32_t n, size_t size)
{
    void *more;

    if (n <= *room)
        return true;
    more = ngd_calloc(n, size);
    if (!more)
        return false;
    ngd_free(*array);
    *array = more;
    *room = n;
    return true;
}

static bool area_fit(struct merge_area *area, const struct ngd_plan *plan)
{
    uint64_t bytes = 0;
    uint8_t *data;

    for (uint32_t i = 0; i < plan->graph->n_inputs; i++)
        bytes += ALIGN(plan->inputs[i].bytes);
    for (uint32_t i = 0; i < plan->graph->n_outputs; i++)
        bytes += ALIGN(plan->outputs[i].bytes);
    if (!area_grow((void **)&area->inputs, &area->n_inputs, plan->graph->n_inputs, sizeof(*area->inputs)) ||
        !area_grow((void **)&area->outputs, &area->n_outputs, plan->graph->n_outputs, sizeof(*area->outputs)))
        return false;
    if (bytes <= area->bytes)
        return true;
    data = ngd_aligned_alloc(64, bytes);
    if (!data)
        return false;
    ngd_free(area->data);
    area->data = data;
    area->bytes = bytes;
    return true;
}

/* Returns the slot's area, large enough for the plan; NULL: there is no memory. */
static struct merge_area *area_of(struct ngd_slot *slot, const struct ngd_plan *plan)
{
    struct merge_area *area = slot->area ? ngd_container_of(slot->area, struct merge_area, slot_area) : NULL;

    if (!area && (area = NGD_NEW(struct merge_area)) != NULL) {
        area->slot_area.destroy = area_destroy;
        slot->area = &area->slot_area;
    }
    return area && area_fit(area, plan) ? area : NULL;
}

/* ---- together and apart ------------------------------------------------------------------------------- */

/* Concatenates the members' inputs, which were checked against their own plans, and makes room for outputs. */
static void joint_gather(struct joint *j)
{
    const struct ngd_request *first = joint_first(j);
    struct merge_area *area = j->area;
    uint8_t *at = area->data;

    for (uint32_t i = 0; i < first->n_inputs; i++) {
        uint64_t bytes = 0;

        ngd_list_for_each (l, &j->members) {
            const struct ngd_span *in = &member_of(l)->launch.inputs[i];

            if (in->bytes)
                memcpy(at + bytes, in->data, in->bytes);
            bytes += in->bytes;
        }
        area->inputs[i] = (struct ngd_span){at, bytes};
        at += ALIGN(bytes);
    }
    for (uint32_t i = 0; i < first->n_outputs; i++) {
        const uint64_t bytes = ngd_plan_output_bytes(j->plan, i, area->symbols);
        bool wanted = false;

        ngd_list_for_each (l, &j->members)
            wanted = wanted || member_of(l)->launch.outputs[i].data;
        area->outputs[i] = (struct ngd_out){wanted ? at : NULL, wanted ? bytes : 0};
        at += wanted ? ALIGN(bytes) : 0;
    }
}

static void joint_scatter(const struct joint *j)
{
    for (uint32_t i = 0; i < joint_first(j)->n_outputs; i++) {
        const uint8_t *at = j->area->outputs[i].data;

        if (!at)
            continue;
        ngd_list_for_each (l, &j->members) {
            const struct ngd_request *req = member_of(l);
            const uint64_t bytes = ngd_plan_output_bytes(j->plan, i, req->launch.symbols);

            if (req->launch.outputs[i].data && bytes)
                memcpy(req->launch.outputs[i].data, at, bytes);
            at += bytes;
        }
    }
}

static void set_launch(struct joint *j)
{
    const struct ngd_request *first = joint_first(j);
    struct merge_area *area = j->area;

    memcpy(area->symbols, first->launch.symbols, first->n_symbols * sizeof(area->symbols[0]));
    area->symbols[j->symbol] = j->rows;
    area->launch = (struct ngd_launch){
        .symbols = area->symbols, .inputs = area->inputs, .outputs = area->outputs, .tag = first->launch.tag};
}

/* ---- accounts ----------------------------------------------------------------------------------------- */

/* How much of the replay is the member's: its rows. Without any rows at all, the members share it equally. */
static int64_t member_weight(const struct joint *j, const struct ngd_request *req)
{
    return j->rows ? member_rows(j, req) : 1;
}

static ngd_nsec_t joint_part(const struct joint *j, ngd_nsec_t time, int64_t from, int64_t n)
{
    return ngd_usage_part(time, from, n, j->rows ? j->rows : j->n);
}

/* Sets a member's split to the times that it saw, and adds its part by rows to its identity's sums. */
static void joint_split(const struct joint *j, struct ngd_request *req, int64_t from)
{
    const struct ngd_launch *launch = &j->area->launch;
    const int64_t planned = j->plan->symbols[j->symbol], n = member_weight(j, req);
    ngd_nsec_t *part = req->split.part;
    struct ngd_split own;

    part[NGD_SPLIT_QUEUE] = req->started > req->submitted ? req->started - req->submitted : 0;
    part[NGD_SPLIT_COPY_IN] = launch->copy_in_time;
    part[NGD_SPLIT_COPY_OUT] = launch->copy_out_time;
    part[NGD_SPLIT_REPLAY] = launch->device_time - launch->copy_in_time - launch->copy_out_time;
    part[NGD_SPLIT_PADDING] =
        (ngd_nsec_t)((double)part[NGD_SPLIT_REPLAY] * (double)(planned - j->rows) / (double)planned);
    for (int i = 0; i < NGD_SPLIT_PARTS; i++)
        own.part[i] = i == NGD_SPLIT_QUEUE ? part[i] : joint_part(j, part[i], from, n);
    ngd_share_note_split(req->item.account->share, &own);
}

/* Charges each member for its rows. Call before any member is answered: the first one keeps the executable alive. */
static void share_out(const struct joint *j)
{
    struct ngd_launch *launch = &j->area->launch;
    int64_t from = 0;

    launch->copy_in_time += j->gather_time;
    launch->copy_out_time += j->scatter_time;
    launch->device_time += j->gather_time + j->scatter_time;
    ngd_slot_note_busy(j->slot, j->gather_time + j->scatter_time);
    ngd_list_for_each (l, &j->members) {
        struct ngd_request *req = member_of(l);

        req->launch.device_time = launch->device_time;
        req->charged = joint_part(j, launch->device_time, from, member_weight(j, req));
        req->together = j->n;
        joint_split(j, req, from);
        ngd_share_charge(j->slot->queue, req->item.account, req->charged, req->item.cost);
        ngd_request_note_end(req, j->slot, j->x);
        ngd_replay_note_joint(j->slot, j->x, launch, req, l == j->members.next ? j->n : 0);
        from += member_weight(j, req);
    }
    ngd_metric_inc(NGD_M_MERGED_REPLAYS);
    ngd_metric_add(NGD_M_MERGED_REQUESTS, j->n);
    ngd_metric_add(NGD_M_MERGED_ROWS, (uint64_t)j->rows);
    atomic_fetch_add_explicit(&j->x->prog->merged_replays, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&j->x->prog->merged_requests, j->n, memory_order_relaxed);
}

/* ---- running ------------------------------------------------------------------------------------------ */

/* Begins the members; those whose deadline has passed go to `late` and do not count. */
static void joint_begin(struct joint *j, struct ngd_list *late)
{
    const ngd_nsec_t now = ngd_now();
    struct ngd_list *l, *next;

    for (l = j->members.next; l != &j->members; l = next) {
        struct ngd_request *req = member_of(l);

        next = l->next;
        if (now >= req->deadline) {
            ngd_list_remove(l);
            ngd_list_push_back(late, l);
            continue;
        }
        (void)ngd_request_begin(req, j->slot, now);
        j->rows += member_rows(j, req);
        j->n++;
        j->latest = req->deadline > j->latest ? req->deadline : j->latest;
    }
}

static ngd_status_t run_together(struct joint *j)
{
    struct ngd_request *first = joint_first(j);
    ngd_nsec_t begun = ngd_now(), ended;
    ngd_status_t status;

    set_launch(j);
    joint_gather(j);
    j->gather_time = ngd_now() - begun;
    j->slot->asker = first;
    ngd_launch_bound(j->slot, &j->area->launch, begun, j->latest);
    status = ngd_replay_run_joint(j->slot, first->binding, j->x, &j->area->launch);
    j->slot->asker = NULL;
    if (status)
        return status;
    ended = ngd_now();
    joint_scatter(j);
    j->scatter_time = ngd_now() - ended;
    ngd_merge_prog_learn(first->binding->merge, first, j->x);
    share_out(j);
    return NGD_OK;
}

static void answer_late(struct joint *j, struct ngd_list *late)
{
    struct ngd_list *l;

    while ((l = ngd_list_pop_front(late)))
        (void)ngd_request_begin(member_of(l), j->slot, ngd_now());
}

static void joint_answer(struct joint *j, ngd_status_t status)
{
    struct ngd_list *l;

    while ((l = ngd_list_pop_front(&j->members))) {
        struct ngd_request *req = member_of(l);

        if (status) {
            req->launch.diag = j->area->launch.diag;
            ngd_share_charge(j->slot->queue, req->item.account, 0, req->item.cost);
        }
        ngd_request_finish(req, status, &req->launch.diag);
    }
}

static void run_apart(struct joint *j)
{
    struct ngd_list *l;

    while ((l = ngd_list_pop_front(&j->members)))
        ngd_request_run_begun(member_of(l), j->slot, ngd_now());
}

/* The program may go with the last answer, so before that this gives up all that it holds of it. */
void ngd_merge_run(struct ngd_request *lead, struct ngd_slot *slot)
{
    struct joint j = {.slot = slot, .symbol = lead->binding->merge->symbol};
    struct ngd_gcache_entry *entry = lead->joint ? lead->joint : ngd_gcache_pin(lead->entry);
    ngd_status_t status = NGD_OK;
    struct ngd_list late, *l;

    lead->joint = NULL;
    j.x = ngd_entry_executable(entry);
    j.plan = ngd_exec_plan(j.x->exec);
    ngd_list_init(&late);
    ngd_list_init(&j.members);
    ngd_list_push_back(&j.members, &lead->item.merge_link);
    while ((l = ngd_list_pop_front(&lead->item.mates)))
        ngd_list_push_back(&j.members, l);
    joint_begin(&j, &late);
    if (j.n > 1)
        j.area = area_of(slot, j.plan);
    if (j.area)
        status = run_together(&j);
    ngd_gcache_put(entry);
    answer_late(&j, &late);
    if (j.area && (status == NGD_OK || ngd_status_scope(status) == NGD_SCOPE_DEVICE)) {
        joint_answer(&j, status);
        return;
    }
    if (j.area)
        ngd_metric_inc(NGD_M_MERGES_UNDONE);
    run_apart(&j);
}
