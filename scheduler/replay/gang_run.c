/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A gang's replay: one launch on each device of the group.
 *
 * The worker with a slot of the first device waits until the group is free, and takes a slot of each other device in
 * order. It binds all ranks, queues the other ranks' launches on their streams, runs the leader's launch itself, and
 * waits for the others. No thread that holds a slot of a device waits for an earlier device, or for a group of one.
 */
#include "scheduler/program/group_int.h"
#include "scheduler/replay/replay.h"

static void take_slots(struct ngd_group *group, struct ngd_slot *first, ngd_nsec_t expected)
{
    for (uint32_t i = 0; i < group->n; i++) {
        const uint32_t r = group->order[i];
        struct ngd_rank_run *run = &group->runs[r];

        run->slot = i == 0 ? first : ngd_queue_take_slot(group->queues[r], expected);
        run->slot->asker = first->asker;
    }
}

static void give_slots(struct ngd_group *group)
{
    for (uint32_t i = group->n; i-- > 0;) {
        struct ngd_rank_run *run = &group->runs[group->order[i]];

        if (i > 0) {
            run->slot->asker = NULL;
            ngd_queue_release(run->slot->queue, run->slot);
        }
        run->slot = NULL;
    }
}

static ngd_status_t prepare_ranks(struct ngd_group *group, struct ngd_binding *binding, struct ngd_executable *x,
                                  const struct ngd_launch *launch, struct ngd_diag *diag)
{
    const struct ngd_gang *gang = x->prog->gang;
    ngd_status_t status = NGD_OK;

    for (uint32_t r = 0; r < gang->n && !status; r++) {
        struct ngd_rank_run *run = &group->runs[r];
        struct ngd_binding *own = r == gang->leader ? binding : binding->ranks[r];

        run->launch = (struct ngd_launch){.status = NGD_ERR_GROUP_BROKEN}; /* stays if the rank does not run */
        ngd_gang_cut(gang, r, launch, &run->launch);
        if (r == gang->leader)
            run->launch.times = launch->times;
        status = ngd_binding_instance(own, run->slot, ngd_gang_executable(x, r), &run->inst, diag);
        if (status)
            ngd_diag_prefix(diag, "rank %u, device %s: ", ngd_group_first(group) + r, group->queues[r]->dev_name);
    }
    return status;
}

/* Launches all ranks and waits for them. The leader's is last, since it may run on this thread. */
static void launch_all(struct ngd_group *group, const struct ngd_executable *x, uint32_t leader)
{
    struct ngd_rank_run *own = &group->runs[leader];

    for (uint32_t i = 1; i < group->n; i++) {
        struct ngd_rank_run *run = &group->runs[group->order[i]];

        ngd_slot_say_running(run->slot, x);
        run->launched = ngd_stream_launch(run->slot->stream, run->inst, &run->launch) == NGD_OK;
        if (!run->launched) /* the backend has aborted, unless it had no memory to queue the launch */
            ngd_comm_abort(group->comm, NGD_ERR_GROUP_BROKEN, "a rank's launch could not be queued");
    }
    ngd_slot_say_running(own->slot, x);
    (void)ngd_stream_run(own->slot->stream, own->inst, &own->launch);
    for (uint32_t i = 1; i < group->n; i++) {
        struct ngd_rank_run *run = &group->runs[group->order[i]];

        if (run->launched)
            (void)ngd_stream_sync(run->slot->stream);
        run->launched = false;
    }
    for (uint32_t r = 0; r < group->n; r++)
        ngd_slot_say_idle(group->runs[r].slot);
}

/* Returns the rank that failed first-hand; group->n: none failed. GROUP_BROKEN is only the failure of another rank. */
static uint32_t find_cause(const struct ngd_group *group)
{
    uint32_t cause = group->n;

    for (uint32_t r = 0; r < group->n; r++) {
        ngd_status_t status = group->runs[r].launch.status;

        if (status && status != NGD_ERR_GROUP_BROKEN)
            return r;
        if (status && cause == group->n)
            cause = r;
    }
    return cause;
}

static void add_times(struct ngd_group *group, const struct ngd_executable *x, bool ok, struct ngd_launch *launch)
{
    for (uint32_t r = 0; r < group->n; r++) {
        const struct ngd_rank_run *run = &group->runs[r];

        if (run->launch.device_time > launch->device_time) {
            launch->device_time = run->launch.device_time;
            launch->copy_in_time = run->launch.copy_in_time;
            launch->copy_out_time = run->launch.copy_out_time;
        }
        if (ok && r != x->prog->gang->leader)
            ngd_slot_account(run->slot, x, &run->launch);
    }
}

/* Resets streams with an error before their slots are released. */
static void recover_streams(struct ngd_group *group, struct ngd_executable *x)
{
    for (uint32_t r = 0; r < group->n; r++)
        if (ngd_stream_status(group->runs[r].slot->stream) != NGD_OK)
            ngd_slot_recover(group->runs[r].slot, x, group->runs[r].launch.status);
}

static ngd_status_t gang_conclude(struct ngd_group *group, struct ngd_executable *x, struct ngd_launch *launch)
{
    const uint32_t cause = find_cause(group);
    const struct ngd_launch *failed = cause < group->n ? &group->runs[cause].launch : NULL;

    add_times(group, x, !failed, launch);
    recover_streams(group, x);
    if (!failed)
        return NGD_OK;
    return ngd_diag_set(&launch->diag, failed->status, "rank %u, device %s: %.800s", ngd_group_first(group) + cause,
                        group->queues[cause]->dev_name,
                        failed->diag.text[0] ? failed->diag.text : ngd_status_text(failed->status));
}

/* Drops the instances, and destroys those of an executable outside the cache, which are for this run only. */
static void drop_instances(struct ngd_group *group, const struct ngd_executable *x)
{
    for (uint32_t r = 0; r < group->n; r++) {
        if (!x->cached)
            ngd_instance_destroy(group->runs[r].inst);
        group->runs[r].inst = NULL;
    }
}

ngd_status_t ngd_gang_run(struct ngd_slot *slot, struct ngd_binding *binding, struct ngd_executable *x,
                          struct ngd_launch *launch, bool *quarantined_p)
{
    struct ngd_group *group = x->prog->group;
    ngd_nsec_t expected = ngd_executable_expected(x);
    ngd_status_t status = ngd_group_enter(group, &launch->diag);

    (void)quarantined_p; /* a gang's replays are not verified */
    if (status)
        return launch->status = status;
    take_slots(group, slot, expected == NGD_NSEC_NEVER ? 0 : expected);
    status = prepare_ranks(group, binding, x, launch, &launch->diag);
    if (status == NGD_OK) {
        launch_all(group, x, x->prog->gang->leader);
        status = gang_conclude(group, x, launch);
        atomic_fetch_add_explicit(&group->replays, 1, memory_order_relaxed);
    }
    drop_instances(group, x);
    give_slots(group);
    ngd_group_leave(group);
    return launch->status = status;
}

/* ---- who pays ----------------------------------------------------------------------------------------- */

void ngd_program_charge_ranks(const struct ngd_program *prog, struct ngd_share *share, ngd_nsec_t time)
{
    const struct ngd_gang *gang = prog->gang;

    for (uint32_t r = 0; gang && r < gang->n; r++)
        if (r != gang->leader)
            ngd_share_charge(gang->programs[r]->queue, &share->accounts[gang->programs[r]->queue->index], time, 0);
}
