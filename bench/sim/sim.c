/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/sim/sim.h"
#include "base/mem.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LATENCIES_MAX (1u << 20) /* of each class; from then on one in so many is kept */

/* ---- chance ------------------------------------------------------------------------------------------- */

static uint64_t draw(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u; /* splitmix64 */

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static double uniform(uint64_t *state) /* above 0, at most 1 */
{
    return (double)((draw(state) >> 11) + 1) * 0x1p-53;
}

static double normal(uint64_t *state)
{
    double r = sqrt(-2 * log(uniform(state)));

    return r * cos(2 * M_PI * uniform(state));
}

/* ---- the world ---------------------------------------------------------------------------------------- */

struct request {
    struct ngd_sched_item item;
    struct client *client;
    ngd_nsec_t length, started;
};

struct client {
    struct ngd_heap_node node; /* by the time of its next request */
    ngd_nsec_t next;
    struct ngd_account account;
    struct device *device;
    uint32_t class;
    double mean; /* nanoseconds */
    double gap;  /* between requests, on average */
    ngd_nsec_t used;
    uint64_t chance;
};

struct slot {
    struct ngd_heap_node node; /* of busy slots, by the time of their end */
    struct device *device;
    struct request *running;
    ngd_nsec_t end, expected;
};

struct device {
    void *state; /* the policy's */
    uint32_t n_slots;
    struct slot *slots;
};

struct latencies {
    uint64_t seen;
    uint32_t n, step;
    ngd_nsec_t *values;
};

struct world {
    const struct sim_params *p;
    const struct sim_arrival *next_recorded, *end_recorded;
    const struct ngd_sched_policy *policy;
    struct sim_result *result;
    struct device *devices;
    struct client *clients;
    struct slot *slots;
    struct ngd_heap arrivals, ends;
    struct latencies latencies[8];
    struct request *spare; /* a list through item.link.next */
    ngd_nsec_t now, until, busy;
    ngd_nsec_t late_time, refused_time; /* device time of what missed its deadline, and of what was refused */
};

static bool earlier_arrival(const struct ngd_heap_node *a, const struct ngd_heap_node *b)
{
    return ngd_container_of(a, struct client, node)->next < ngd_container_of(b, struct client, node)->next;
}

static bool earlier_end(const struct ngd_heap_node *a, const struct ngd_heap_node *b)
{
    return ngd_container_of(a, struct slot, node)->end < ngd_container_of(b, struct slot, node)->end;
}

static void *need(void *p)
{
    if (!p) {
        fputs("the simulation needs more memory than there is\n", stderr);
        exit(1);
    }
    return p;
}

static void make_devices(struct world *w)
{
    const struct sim_params *p = w->p;

    w->devices = need(NGD_NEW_N(struct device, p->devices));
    w->slots = need(NGD_NEW_N(struct slot, (size_t)p->devices * p->slots));
    for (uint32_t d = 0; d < p->devices; d++) {
        w->devices[d].slots = &w->slots[(size_t)d * p->slots];
        w->devices[d].n_slots = p->slots;
        if (w->policy->create(&w->devices[d].state))
            need(NULL);
        for (uint32_t s = 0; s < p->slots; s++)
            w->devices[d].slots[s].device = &w->devices[d];
    }
}

static uint32_t class_of(const struct sim_params *p, uint32_t weight)
{
    uint32_t k = 0;

    while (k + 1 < p->n_weights && p->weights[k] != weight)
        k++;
    return k;
}

static void make_recorded_clients(struct world *w)
{
    const struct sim_arrivals *a = w->p->arrivals;

    w->clients = need(NGD_NEW_N(struct client, w->p->clients));
    for (uint32_t i = 0; i < w->p->clients; i++) {
        w->clients[i].class = class_of(w->p, a->clients[i].weight);
        w->clients[i].device = &w->devices[a->clients[i].device];
        ngd_account_init(&w->clients[i].account, a->clients[i].weight);
    }
    w->next_recorded = a->items;
    w->end_recorded = a->items + a->n;
}

static void make_clients(struct world *w)
{
    const struct sim_params *p = w->p;
    const double capacity = (double)p->devices * p->slots * p->load; /* device seconds asked for in a second */
    uint64_t chance = p->seed;

    w->clients = need(NGD_NEW_N(struct client, p->clients));
    for (uint32_t i = 0; i < p->clients; i++) {
        struct client *c = &w->clients[i];

        c->class = i % p->n_weights;
        c->device = &w->devices[i / p->n_weights % p->devices];
        c->mean = (double)p->mean_length * exp2(2 * uniform(&chance) - 1);
        c->gap = c->mean * p->clients / capacity;
        c->chance = draw(&chance);
        ngd_account_init(&c->account, p->weights[c->class]);
        c->next = p->backlogged ? 0 : (ngd_nsec_t)(-log(uniform(&c->chance)) * c->gap);
        ngd_heap_push(&w->arrivals, &c->node);
    }
}

/* ---- requests ----------------------------------------------------------------------------------------- */

static struct request *blank_request(struct world *w, struct client *c)
{
    struct request *r = w->spare;

    if (r)
        w->spare = (struct request *)(void *)r->item.link.next;
    else
        r = need(NGD_NEW(struct request));
    ngd_sched_item_init(&r->item, NULL);
    r->client = c;
    r->item.account = &c->account;
    r->item.arrival = w->now;
    return r;
}

static struct request *recorded_request(struct world *w, const struct sim_arrival *a)
{
    struct request *r = blank_request(w, &w->clients[a->client]);

    r->length = a->length;
    r->item.cost = a->cost;
    r->item.deadline = a->deadline;
    r->item.priority = a->priority;
    return r;
}

static struct request *new_request(struct world *w, struct client *c)
{
    const struct sim_params *p = w->p;
    struct request *r = blank_request(w, c);

    r->length = (ngd_nsec_t)(c->mean * exp(p->spread * normal(&c->chance) - p->spread * p->spread / 2)) + 1;
    r->item.cost = (ngd_nsec_t)c->mean;
    r->item.doubt = (ngd_nsec_t)(c->mean * p->spread * 0.8); /* the mean deviation of a normal distribution */
    if (uniform(&c->chance) <= p->deadline_share)
        r->item.deadline =
            w->now +
            (ngd_nsec_t)(c->mean * (p->deadline_min + (p->deadline_max - p->deadline_min) * uniform(&c->chance)));
    return r;
}

static void give_back(struct world *w, struct request *r)
{
    r->item.link.next = (struct ngd_list *)(void *)w->spare;
    w->spare = r;
}

static bool in_time(struct world *w, struct request *r)
{
    const struct device *d = r->client->device;
    ngd_nsec_t left[64];

    for (uint32_t s = 0; s < d->n_slots; s++)
        left[s] = d->slots[s].running && d->slots[s].expected > w->now ? d->slots[s].expected - w->now : 0;
    return ngd_sched_late(w->policy, d->state, &r->item, w->now, left, d->n_slots) <= 0;
}

static void refuse(struct world *w, struct request *r)
{
    struct sim_result *res = w->result;

    res->refused++;
    w->refused_time += r->length;
    give_back(w, r);
}

static void start(struct world *w, struct device *d)
{
    for (uint32_t s = 0; s < d->n_slots; s++) {
        struct slot *slot = &d->slots[s];
        struct ngd_sched_item *item;

        if (slot->running)
            continue;
        item = w->policy->pop(d->state, w->now);
        if (!item)
            return;
        slot->running = ngd_container_of(item, struct request, item);
        slot->running->started = w->now;
        slot->end = w->now + slot->running->length;
        slot->expected = w->now + item->cost;
        ngd_heap_push(&w->ends, &slot->node);
    }
}

static void submit_request(struct world *w, struct request *r)
{
    struct client *c = r->client;
    const bool bound = r->item.deadline != NGD_NSEC_NEVER;

    w->result->requests++;
    w->result->with_deadline += bound;
    if (bound && r->item.cost && !in_time(w, r)) {
        refuse(w, r);
        return;
    }
    w->result->taken++;
    w->policy->push(c->device->state, &r->item, w->now);
    start(w, c->device);
}

static void submit(struct world *w, struct client *c)
{
    submit_request(w, new_request(w, c));
}

static void note_latency(struct latencies *l, ngd_nsec_t t)
{
    if (l->seen++ % l->step)
        return;
    if (l->n == LATENCIES_MAX) { /* every second one goes */
        for (uint32_t i = 0; i < LATENCIES_MAX / 2; i++)
            l->values[i] = l->values[2 * i];
        l->n /= 2;
        l->step *= 2;
    }
    l->values[l->n++] = t;
}

static void finish(struct world *w, struct slot *slot)
{
    struct request *r = slot->running;
    struct client *c = r->client;
    const ngd_nsec_t from = r->started, cut = slot->end < w->until ? slot->end : w->until;

    slot->running = NULL;
    c->used += cut - from;
    w->busy += cut - from;
    if (w->policy->charge)
        w->policy->charge(c->device->state, &c->account, r->length - r->item.cost);
    if (slot->end > r->item.deadline) {
        w->result->missed++;
        w->late_time += cut - from;
    }
    note_latency(&w->latencies[c->class], slot->end - r->item.arrival);
    give_back(w, r);
    if (w->p->backlogged)
        submit(w, c);
    start(w, slot->device);
}

/* ---- a run -------------------------------------------------------------------------------------------- */

static bool step(struct world *w)
{
    struct ngd_heap_node *a = ngd_heap_first(&w->arrivals), *e = ngd_heap_first(&w->ends);
    struct client *c = a ? ngd_container_of(a, struct client, node) : NULL;
    struct slot *slot = e ? ngd_container_of(e, struct slot, node) : NULL;

    w->result->events++;
    if (w->next_recorded < w->end_recorded && (!slot || w->next_recorded->at <= slot->end) &&
        w->next_recorded->at < w->until) {
        w->now = w->next_recorded->at;
        submit_request(w, recorded_request(w, w->next_recorded++));
        return true;
    }
    if (c && (!slot || c->next <= slot->end) && c->next < w->until) {
        ngd_heap_remove(&w->arrivals, &c->node);
        w->now = c->next;
        submit(w, c);
        if (w->p->backlogged) {
            submit(w, c);
            return true;
        }
        c->next += (ngd_nsec_t)(-log(uniform(&c->chance)) * c->gap) + 1;
        ngd_heap_push(&w->arrivals, &c->node);
        return true;
    }
    if (!slot || slot->end >= w->until)
        return false;
    ngd_heap_remove(&w->ends, &slot->node);
    w->now = slot->end;
    finish(w, slot);
    return true;
}

static int compare(const void *a, const void *b)
{
    const ngd_nsec_t x = *(const ngd_nsec_t *)a, y = *(const ngd_nsec_t *)b;

    return (x > y) - (x < y);
}

static void sum_class(struct world *w, uint32_t k, struct sim_class *cls)
{
    struct latencies *l = &w->latencies[k];
    double weights = 0, part;

    *cls = (struct sim_class){.weight = w->p->weights[k], .least = INFINITY, .requests = l->seen};
    for (uint32_t i = 0; i < w->p->clients; i++)
        weights += w->clients[i].account.weight;
    part = (double)w->busy * cls->weight / weights;
    for (uint32_t i = 0; i < w->p->clients; i++) {
        const double used = (double)w->clients[i].used;

        if (w->clients[i].class != k)
            continue;
        cls->clients++;
        cls->used += used * 1e-9;
        cls->least = fmin(cls->least, used / part);
        cls->most = fmax(cls->most, used / part);
    }
    qsort(l->values, l->n, sizeof(l->values[0]), compare);
    if (l->n) {
        cls->p50 = l->values[l->n / 2];
        cls->p99 = l->values[(uint64_t)l->n * 99 / 100];
    }
}

static void clean_up(struct world *w)
{
    struct request *next;

    for (uint32_t d = 0; d < w->p->devices; d++) {
        struct ngd_sched_item *item;

        while ((item = w->policy->pop(w->devices[d].state, w->now)))
            ngd_free(ngd_container_of(item, struct request, item));
        for (uint32_t s = 0; s < w->devices[d].n_slots; s++)
            ngd_free(w->devices[d].slots[s].running);
        w->policy->destroy(w->devices[d].state);
    }
    for (struct request *r = w->spare; r; r = next) {
        next = (struct request *)(void *)r->item.link.next;
        ngd_free(r);
    }
    for (uint32_t k = 0; k < w->p->n_weights; k++)
        ngd_free(w->latencies[k].values);
    ngd_free(w->clients);
    ngd_free(w->slots);
    ngd_free(w->devices);
}

void sim_params_init(struct sim_params *params)
{
    *params = (struct sim_params){
        .policy = "fair",
        .devices = 1,
        .slots = 1,
        .clients = 100,
        .seconds = 10,
        .load = 1,
        .mean_length = NGD_MSEC,
        .spread = 0.1,
        .deadline_min = 5,
        .deadline_max = 100,
        .n_weights = 1,
        .weights = {NGD_WEIGHT_DEFAULT},
        .seed = 1,
    };
}

void sim_run(const struct sim_params *params, struct sim_result *result_p)
{
    struct world w = {.p = params, .result = result_p, .policy = ngd_sched_policy_find(params->policy)};
    ngd_nsec_t began = ngd_now();

    memset(result_p, 0, sizeof(*result_p));
    need((void *)(uintptr_t)w.policy);
    w.until = (ngd_nsec_t)(params->seconds * (double)NGD_SEC);
    ngd_heap_init(&w.arrivals, earlier_arrival);
    ngd_heap_init(&w.ends, earlier_end);
    for (uint32_t k = 0; k < params->n_weights; k++)
        w.latencies[k] = (struct latencies){.step = 1, .values = need(NGD_NEW_N(ngd_nsec_t, LATENCIES_MAX))};
    make_devices(&w);
    if (params->arrivals)
        make_recorded_clients(&w);
    else
        make_clients(&w);
    while (step(&w))
        ;
    result_p->busy = (double)w.busy / ((double)w.until * params->devices * params->slots);
    /* Time that was idle or spent on what came too late: no more of the refused ones could have been done in it. */
    if (w.refused_time > 0)
        result_p->wrongly_refused =
            ((double)w.until * params->devices * params->slots - (double)(w.busy - w.late_time)) /
            (double)w.refused_time;
    result_p->n_classes = params->n_weights;
    for (uint32_t k = 0; k < params->n_weights; k++)
        sum_class(&w, k, &result_p->classes[k]);
    clean_up(&w);
    result_p->wall = (double)(ngd_now() - began) * 1e-9;
}
