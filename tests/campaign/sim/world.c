/* SPDX-License-Identifier: Apache-2.0 */
/* A world from its beginning to its end, and what must be left of it: nothing. */
#include "tests/campaign/sim/world.h"
#include "base/log.h"
#include "scheduler/program/poolset.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define REQUESTS 20000 /* of a world, about: its time is drawn so */

struct sim_world world;

/* ---- graphs ------------------------------------------------------------------------------------------- */

static const char *const texts[SIM_KINDS] = {
    [SIM_DOUBLE] = "sym N 1..32\n input %x : f32[N]\n %y = aten.add.Tensor(%x, %x)\n return \"y\" = %y\n",
    [SIM_ROWS_2] = "sym B 1..32 batch buckets 1, 4, 8, 32\n input %x : f32[B]\n %y = aten.add.Tensor(%x, %x)\n"
                   " return \"y\" = %y\n",
    [SIM_PICK] = "sym B 1..32 batch buckets 2, 8, 32\n param %w : f32[4,2]\n input %i : i32[B]\n"
                 " %y = aten.embedding(%w, %i)\n return \"y\" = %y\n",
    [SIM_SUM] = "state %s : f32[4]\n input %x : f32[4]\n %y = aten.add.Tensor(%s, %x)\n aten.copy_(%s, %y)\n"
                " return \"y\" = %y\n",
};

static void draw_options(struct ngd_graph_options *options, enum sim_graph_kind kind)
{
    static const char *const policies[] = {"evict", "eager", "reject"};
    char limit[24];

    ngd_graph_options_init(options);
    if (sim_chance(1, 2)) {
        snprintf(limit, sizeof(limit), "%" PRId64, sim_between(1, 16));
        (void)ngd_graph_options_set(options, "capture_limit", limit, NULL);
        (void)ngd_graph_options_set(options, "capture_limit_policy", policies[sim_below(3)], NULL);
    }
    if (sim_chance(1, 20))
        (void)ngd_graph_options_set(options, "force_eager", "true", NULL);
    else if (sim_chance(1, 20) && kind == SIM_SUM)
        (void)ngd_graph_options_set(options, "force_recapture", "true", NULL);
}

static void graph_open(struct sim_graph *graph, uint32_t number)
{
    static const float table[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    struct ngd_device *dev = world.devices[sim_below(world.params.n_devices)];
    struct ngd_graph_options options;
    struct ngd_diag diag = {0};
    struct ngd_graph *g = NULL;
    char text[600];

    graph->kind = (enum sim_graph_kind)sim_below(SIM_KINDS);
    snprintf(text, sizeof(text), "npugraph 1\ngraph \"g%u\" {\n %s}\n", number, texts[graph->kind]);
    draw_options(&options, graph->kind);
    sim_check(!ngd_graph_parse(text, strlen(text), &g, &diag), "%s", diag.text);
    sim_check(!ngd_program_open(world.sched, dev, g, &options, NULL, &graph->program, NULL, &diag), "%s", diag.text);
    ngd_graph_unref(g);
    if (graph->kind != SIM_PICK)
        return;
    sim_check(!ngd_buffer_create(dev, sizeof(table), NGD_BUFFER_WEIGHTS, "w", &graph->table, &diag) &&
                  !ngd_buffer_write(graph->table, 0, table, sizeof(table), &diag),
              "%s", diag.text);
}

static void graph_close(struct sim_graph *graph)
{
    ngd_program_unref(graph->program);
    if (graph->table)
        ngd_buffer_unref(graph->table);
}

/* ---- drawing ------------------------------------------------------------------------------------------ */

static void draw_device(void)
{
    const bool faults = sim_chance(1, 3);

    sim_device = (struct sim_device_params){
        .service = sim_between(200 * NGD_USEC, 400 * NGD_MSEC),
        .spread = 1 + (uint32_t)sim_below(8),
        .fault = faults ? (uint32_t)sim_between(10, 20000) : 0,
        .lost = faults && sim_chance(1, 3) ? (uint32_t)sim_between(10, 2000) : 0,
        .lost_for = sim_between(NGD_MSEC, 120 * NGD_SEC),
    };
}

static void draw_params(struct ngd_sched_params *p)
{
    static const ngd_nsec_t inline_limits[] = {0, 50 * NGD_USEC, 10 * NGD_SEC};

    ngd_sched_params_init(p);
    p->devices = world.devices;
    p->n_devices = 1 + (uint32_t)sim_below(3);
    p->slots = 1 + (uint32_t)sim_below(4);
    p->capture_threads = 1 + (uint32_t)sim_below(2);
    p->queue_limit = (uint32_t)sim_between(4, 4096);
    p->inline_limit = inline_limits[sim_below(3)];
    p->max_replay_time = sim_chance(1, 4) ? sim_between(NGD_MSEC, 4 * NGD_SEC) : sim_chance(1, 4) ? 0 : 60 * NGD_SEC;
    p->merge = !sim_chance(1, 4);
    p->merge_wait = sim_chance(1, 2) ? p->merge_wait : sim_between(1, 2 * NGD_SEC);
    p->policy = sim_chance(1, 5) ? "fifo" : "fair";
}

static void open_identities(void)
{
    struct ngd_diag diag = {0};

    world.n_identities = 1 + (uint32_t)sim_below(SIM_IDENTITIES);
    for (uint32_t i = 0; i < world.n_identities; i++) {
        struct sim_identity *id = &world.identities[i];
        char name[16];

        ngd_share_params_init(&id->params);
        id->params.weight = (uint32_t)sim_between(1, NGD_WEIGHT_MAX);
        if (sim_chance(1, 4))
            id->params.queue_limit = (uint32_t)sim_between(1, 64);
        if (sim_chance(1, 4))
            id->params.device_percent = (uint32_t)sim_between(2, 100);
        world.weights += id->params.weight;
        snprintf(name, sizeof(name), "id%u", i);
        sim_check(!ngd_share_open(world.sched, name, &id->params, &id->share, &diag), "%s", diag.text);
    }
}

static void open_devices(void)
{
    for (uint32_t i = 0; i < world.params.n_devices; i++) {
        struct ngd_device_params dp;
        struct ngd_diag diag = {0};

        ngd_device_params_init(&dp);
        dp.backend = "host";
        dp.index = i;
        dp.threads = 1;
        dp.memory_bytes = 256u << 20;
        sim_check(!ngd_device_open(&dp, &world.devices[i], &diag), "%s", diag.text);
        world.used_before[i] = ngd_device_used_bytes(world.devices[i]);
    }
}

static void world_open(void)
{
    struct ngd_diag diag = {0};

    ngd_log_set_level(NGD_LOG_ERROR);
    draw_device();
    draw_params(&world.params);
    open_devices();
    sim_check(!ngd_sched_create(&world.params, &world.sched, &diag), "%s", diag.text);
    sim_check(!ngd_sched_start(world.sched), "the scheduler does not start");
    open_identities();
    world.n_graphs = 1 + (uint32_t)sim_below(SIM_GRAPHS);
    for (uint32_t i = 0; i < world.n_graphs; i++)
        graph_open(&world.graphs[i], i);
    world.n_clients = (uint32_t)sim_between(1, SIM_CLIENTS);
}

/* ---- what is left ------------------------------------------------------------------------------------- */

static void check_account(struct ngd_account *account, const char *name)
{
    sim_check(account->cap.queued == 0 && account->cap.n_held == 0 && !account->cap.released,
              "%s has %" PRId64 " ns queued, or something held", name, account->cap.queued);
    for (int p = 0; p < NGD_PRIORITIES; p++)
        sim_check(account->classes[p].cost == 0, "%s has %" PRId64 " ns in class %d", name, account->classes[p].cost,
                  p);
    sim_check(atomic_load(&account->used) >= 0, "%s has used less than nothing", name);
}

static void check_share(struct ngd_share *share)
{
    sim_check(atomic_load(&share->waiting) == 0, "%u requests of %s wait", atomic_load(&share->waiting), share->name);
    sim_check(atomic_load(&share->kv_blocks) == 0, "%s has KV blocks", share->name);
    for (uint32_t q = 0; q < world.sched->n_queues; q++)
        check_account(&share->accounts[q], share->name);
}

static void check_queue(struct ngd_queue *queue) NGD_NO_THREAD_SAFETY
{
    sim_check(atomic_load(&queue->waiting) == 0, "%u requests wait for %s", atomic_load(&queue->waiting),
              queue->dev_name);
    sim_check(queue->lineup.depth == 0 && queue->lineup.caps.n_held == 0, "%u items are queued", queue->lineup.depth);
    sim_check(queue->n_busy == 0 && queue->n_takers == 0, "%u slots are busy, %u wait for one", queue->n_busy,
              queue->n_takers);
    for (uint32_t i = 0; i < queue->n_slots; i++)
        sim_check(!queue->slots[i].busy && !queue->slots[i].running, "slot %u is busy", i);
}

/* What a device did has been charged, to the last ns. A member of a group pays for as long as the slowest one ran. */
static void check_charges(uint32_t q)
{
    const struct ngd_queue *queue = &world.sched->queues[q];
    int64_t used = atomic_load(&world.sched->own_share->accounts[q].used);
    const int64_t busy = atomic_load(&queue->busy);

    for (uint32_t i = 0; i < world.n_identities; i++)
        used += atomic_load(&world.identities[i].share->accounts[q].used);
    sim_check(used >= busy, "shares were charged %" PRId64 " ns of %" PRId64 " ns of %s", used, busy, queue->dev_name);
}

/* A worker gives its slot back a moment after the answer. */
static void check_nothing_waits(void) NGD_NO_THREAD_SAFETY
{
    sim_sleep_until(sim_time() + 600 * NGD_SEC);
    sim_check(ngd_sched_idle(world.sched), "%" PRId64 " calls are under way", atomic_load(&world.sched->in_flight));
    for (uint32_t q = 0; q < world.sched->n_queues; q++)
        check_queue(&world.sched->queues[q]);
    for (uint32_t q = 0; q < world.sched->n_queues; q++)
        check_charges(q);
    for (uint32_t i = 0; i < world.n_identities; i++)
        check_share(world.identities[i].share);
    check_share(world.sched->own_share);
    sim_check(ngd_heap_empty(&world.sched->expiry.requests) && !world.sched->expiry.expiring,
              "a request is looked at for its deadline");
    sim_check(ngd_list_empty(&world.sched->captures.parked), "a request waits for a capture");
    sim_check(world.n_calls == 0 && ngd_list_empty(&world.calls), "%u requests are not answered", world.n_calls);
}

static void count_share(void *ctx, const struct ngd_share_stats *stats)
{
    (void)stats;
    ++*(uint32_t *)ctx;
}

static void count_program(void *ctx, struct ngd_program *prog)
{
    (void)prog;
    ++*(uint32_t *)ctx;
}

static void world_close(void)
{
    uint32_t shares = 0, programs = 0;

    for (uint32_t i = 0; i < world.n_graphs; i++)
        graph_close(&world.graphs[i]);
    for (uint32_t i = 0; i < world.n_identities; i++)
        ngd_share_unref(world.identities[i].share);
    if (!world.stopping)
        ngd_sched_stop(world.sched);
    ngd_share_for_each(world.sched, count_share, &shares);
    sim_check(shares == 1, "%u shares are left", shares - 1);
    ngd_program_for_each(world.sched, count_program, &programs);
    sim_check(programs == 0, "%u programs are left", programs);
    ngd_sched_destroy(world.sched);
    for (uint32_t i = 0; i < world.params.n_devices; i++) {
        const uint64_t used = ngd_device_used_bytes(world.devices[i]);

        sim_check(used == world.used_before[i], "%" PRIu64 " bytes of a device are left", used - world.used_before[i]);
        ngd_device_close(world.devices[i]);
    }
}

/* ---- its time ----------------------------------------------------------------------------------------- */

/* While clients come and go: nobody waits for ever. */
static void live(void)
{
    const ngd_nsec_t begin = sim_time(), most = sim_between(600 * NGD_SEC, 48 * 3600 * NGD_SEC);

    while (sim_time() < begin + most && world.counts.requests + world.counts.steps < REQUESTS) {
        sim_sleep_until(sim_time() + 60 * NGD_SEC);
        sim_check_patience();
    }
    world.ends = sim_time() - begin;
}

enum how { FINISH, DRAIN, STOP, N_HOWS };

static void end(enum how how)
{
    if (how == DRAIN) {
        world.draining = true;
        ngd_sched_drain(world.sched);
        sim_sleep_until(sim_time() + sim_between(1, 60 * NGD_SEC));
    } else if (how == STOP) {
        world.draining = world.stopping = true;
        ngd_sched_stop(world.sched);
    }
    world.ending = true;
    sim_clients_await();
}

void sim_world_run(void *arg)
{
    (void)arg;
    world_open();
    sim_clients_open();
    sim_talks_open();
    live();
    end((enum how)sim_below(N_HOWS));
    check_nothing_waits();
    sim_clients_close();
    sim_talks_close();
    world_close();
}
