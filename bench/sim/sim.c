/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/sim/sim.h"
#include "base/mem.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LATENCIES_MAX  (1u << 20) /* kept of each class; beyond that, one in every so many */
#define MEAN_DEVIATION 0.8        /* mean absolute deviation of a normal distribution, in standard deviations */

/* ---- chance ------------------------------------------------------------------------------------------- */

static uint64_t draw(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u; /* splitmix64 */

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static double uniform(uint64_t *state) /* in (0, 1] */
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
    ngd_nsec_t length, started; /* length: of the request's replay if it runs alone */
};

/*
 * A refused request that might have been met in time after all: it could have used a row of a replay that stayed empty.
 */
struct missed_chance {
    ngd_nsec_t deadline;
    double work;
};

/* State that is shared by the clients of a device whose replays run together. */
struct graph {
    struct ngd_merge merge;
    struct world *world;
    double mean; /* nanoseconds of a replay that runs alone */
    struct missed_chance *chances;
    uint32_t n_chances, room;
};

struct client {
    struct ngd_heap_node node; /* in the heap of arrivals, by the time of its next request */
    ngd_nsec_t next;
    struct ngd_account account;
    struct device *device;
    struct graph *graph; /* NULL: its replays run alone */
    uint32_t class;
    double mean; /* nanoseconds */
    double gap;  /* between requests, on average */
    ngd_nsec_t used;
    uint64_t chance;
};

struct slot {
    struct ngd_heap_node node; /* in the heap of busy slots, by the time when it ends */
    struct device *device;
    struct request *running; /* with its mates; NULL: the slot is free */
    int64_t rows;
    ngd_nsec_t end, expected;
};

struct device {
    struct ngd_lineup lineup;
    struct ngd_heap_node node; /* in the heap of wakes, by wakes_at */
    ngd_nsec_t wakes_at;       /* when it looks at its waiting requests again; NGD_NSEC_NEVER: it is in no heap */
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
    struct graph *graphs; /* the graphs of the first device, then those of the next one, ... */
    struct slot *slots;
    struct ngd_heap arrivals, ends, wakes;
    struct latencies latencies[8];
    struct request *spare; /* requests for reuse, a list through item.link.next */
    ngd_nsec_t now, until, busy;
    /*
     * Device time of the requests that missed their deadline, of those that were refused, and of those refused that
     * would have fitted in empty rows.
     */
    double late_time, refused_time, free_time;
};

static bool earlier_arrival(const struct ngd_heap_node *a, const struct ngd_heap_node *b)
{
    return ngd_container_of(a, struct client, node)->next < ngd_container_of(b, struct client, node)->next;
}

static bool earlier_end(const struct ngd_heap_node *a, const struct ngd_heap_node *b)
{
    return ngd_container_of(a, struct slot, node)->end < ngd_container_of(b, struct slot, node)->end;
}

static bool earlier_wake(const struct ngd_heap_node *a, const struct ngd_heap_node *b)
{
    return ngd_container_of(a, struct device, node)->wakes_at < ngd_container_of(b, struct device, node)->wakes_at;
}

static void *need(void *p)
{
    if (!p) {
        fputs("there is not enough memory for the simulation\n", stderr);
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
        w->devices[d].wakes_at = NGD_NSEC_NEVER;
        if (ngd_lineup_init(&w->devices[d].lineup, w->policy))
            need(NULL);
        for (uint32_t s = 0; s < p->slots; s++)
            w->devices[d].slots[s].device = &w->devices[d];
    }
}

/* ---- replays that run together ------------------------------------------------------------------------ */

static bool merges(const struct sim_params *p)
{
    return p->n_buckets > 0;
}

static int64_t largest_bucket(const struct sim_params *p)
{
    return p->buckets[p->n_buckets - 1];
}

/* Returns the smallest bucket that holds that many rows. */
static int64_t bucket_of(const struct sim_params *p, int64_t rows)
{
    uint32_t i = 0;

    while (i + 1 < p->n_buckets && p->buckets[i] < rows)
        i++;
    return p->buckets[i];
}

/*
 * Returns the time of a replay in the bucket, relative to that of a replay alone, which is one row in the smallest
 * bucket.
 */
static double time_of_bucket(const struct sim_params *p, int64_t planned)
{
    return 1 + p->row_part * (double)(planned - p->buckets[0]);
}

static struct graph *graph_of(struct ngd_merge *m)
{
    return ngd_container_of(m, struct graph, merge);
}

static bool graph_joins(const struct ngd_sched_item *lead, const struct ngd_sched_item *mate, int64_t planned)
{
    (void)lead, (void)mate, (void)planned;
    return true;
}

static void graph_predict(struct ngd_merge *m, const struct ngd_sched_item *lead, int64_t rows,
                          struct ngd_joint *joint_p)
{
    const struct graph *g = graph_of(m);
    const struct sim_params *p = g->world->p;
    const int64_t planned = bucket_of(p, rows);
    const double time = g->mean * time_of_bucket(p, planned);

    (void)lead;
    *joint_p = (struct ngd_joint){
        .planned = planned, .cost = (ngd_nsec_t)time, .doubt = (ngd_nsec_t)(time * p->spread * MEAN_DEVIATION)};
}

static void graph_choose(struct ngd_merge *m, struct ngd_sched_item *lead, int64_t rows, ngd_nsec_t now,
                         struct ngd_joint *joint_p)
{
    (void)now;
    graph_predict(m, lead, rows, joint_p);
}

static int64_t graph_below(struct ngd_merge *m, int64_t planned)
{
    const struct sim_params *p = graph_of(m)->world->p;
    int64_t below = 0;

    for (uint32_t i = 0; i < p->n_buckets && p->buckets[i] < planned; i++)
        below = p->buckets[i];
    return below;
}

static const struct ngd_merge_ops graph_ops = {
    .joins = graph_joins, .predict = graph_predict, .choose = graph_choose, .below = graph_below};

static void make_graphs(struct world *w)
{
    const struct sim_params *p = w->p;
    uint64_t chance = ~p->seed;

    w->graphs = need(NGD_NEW_N(struct graph, (size_t)p->devices * p->graphs));
    for (uint32_t i = 0; i < p->devices * p->graphs; i++) {
        struct graph *g = &w->graphs[i];

        g->world = w;
        g->mean = (double)p->mean_length * exp2(2 * uniform(&chance) - 1);
        ngd_merge_init(&g->merge, &graph_ops, largest_bucket(p), NGD_LINGER_LIMIT_DEFAULT);
    }
}

/*
 * Returns the device time of a request: its part of a full replay in the largest bucket, or all of a replay that runs
 * alone.
 */
static double work_of(const struct world *w, const struct request *r)
{
    const struct graph *g = r->client->graph;

    return g ? g->mean * time_of_bucket(w->p, largest_bucket(w->p)) / (double)largest_bucket(w->p) : (double)r->length;
}

static void add_chance(struct graph *g, const struct request *r, double work)
{
    if (g->n_chances == g->room) {
        g->room = g->room ? 2 * g->room : 64;
        g->chances = need(ngd_realloc(g->chances, g->room * sizeof(g->chances[0])));
    }
    g->chances[g->n_chances++] = (struct missed_chance){.deadline = r->item.deadline, .work = work};
}

/*
 * A replay that ends at `end` begins with so many empty rows. Counts the refused requests that could have used these
 * rows.
 */
static void fill_rows(struct world *w, struct graph *g, int64_t empty, ngd_nsec_t end)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < g->n_chances; i++) {
        if (g->chances[i].deadline < w->now)
            continue;
        if (empty > 0 && g->chances[i].deadline >= end) {
            empty--;
            w->free_time += g->chances[i].work;
            continue;
        }
        g->chances[n++] = g->chances[i];
    }
    g->n_chances = n;
}

/* ---- clients ------------------------------------------------------------------------------------------ */

static void account_init(struct world *w, struct client *c)
{
    const struct sim_params *p = w->p;

    ngd_account_init(&c->account, p->weights[c->class]);
    ngd_caps_set(&c->device->lineup.caps, &c->account, p->caps[c->class] * p->slots, 0);
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
        account_init(w, &w->clients[i]);
        w->clients[i].account.weight = a->clients[i].weight;
    }
    w->next_recorded = a->items;
    w->end_recorded = a->items + a->n;
}

/* Gives client i one of the graphs of its device. */
static void join_graph(struct world *w, struct client *c, uint32_t i)
{
    const struct sim_params *p = w->p;

    if (!merges(p))
        return;
    c->graph = &w->graphs[(size_t)(c->device - w->devices) * p->graphs + i / p->n_weights / p->devices % p->graphs];
    c->mean = c->graph->mean;
}

static void make_clients(struct world *w)
{
    const struct sim_params *p = w->p;
    const double capacity = (double)p->devices * p->slots * p->load; /* device seconds asked for per second */
    uint64_t chance = p->seed;

    w->clients = need(NGD_NEW_N(struct client, p->clients));
    for (uint32_t i = 0; i < p->clients; i++) {
        struct client *c = &w->clients[i];

        c->class = i % p->n_weights;
        c->device = &w->devices[i / p->n_weights % p->devices];
        c->mean = (double)p->mean_length * exp2(2 * uniform(&chance) - 1);
        c->chance = draw(&chance);
        join_graph(w, c, i);
        c->gap = c->mean * p->clients / capacity;
        if (c->graph)
            c->gap *= time_of_bucket(p, largest_bucket(p)) / (double)largest_bucket(p);
        account_init(w, c);
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
    r->item.merge = c->graph ? &c->graph->merge : NULL;
    r->item.rows = 1;
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
    r->item.doubt = (ngd_nsec_t)(c->mean * p->spread * MEAN_DEVIATION);
    if (uniform(&c->chance) <= p->deadline_share)
        r->item.deadline =
            w->now +
            (ngd_nsec_t)(c->mean * (p->deadline_min + (p->deadline_max - p->deadline_min) * uniform(&c->chance)));
    return r;
}

static void recycle_request(struct world *w, struct request *r)
{
    r->item.link.next = (struct ngd_list *)(void *)w->spare;
    w->spare = r;
}

static bool in_time(struct world *w, struct request *r)
{
    struct device *d = r->client->device;
    ngd_nsec_t left[NGD_SLOTS_MAX];

    for (uint32_t s = 0; s < d->n_slots; s++)
        left[s] = d->slots[s].running && d->slots[s].expected > w->now ? d->slots[s].expected - w->now : 0;
    return ngd_lineup_late(&d->lineup, &r->item, w->now, left, d->n_slots) <= 0;
}

static void refuse_request(struct world *w, struct request *r)
{
    const double work = work_of(w, r);

    w->result->refused++;
    w->refused_time += work;
    if (r->client->graph)
        add_chance(r->client->graph, r, work);
    recycle_request(w, r);
}

/* ---- slots -------------------------------------------------------------------------------------------- */

static struct request *request_of(struct ngd_sched_item *item)
{
    return ngd_container_of(item, struct request, item);
}

static struct request *mate_of(struct ngd_list *l)
{
    return ngd_container_of(l, struct request, item.merge_link);
}

static void miss(struct world *w, struct request *r)
{
    w->result->missed++;
    ngd_caps_charge(&r->client->device->lineup.caps, &r->client->account, -r->item.cost, w->now);
    if (r->item.merge)
        ngd_merge_ended(&r->item);
    recycle_request(w, r);
}

/*
 * Drops the requests whose deadline has passed. Returns the first of the others, with the rest as its mates, or NULL if
 * there are none.
 */
static struct request *drop_expired(struct world *w, struct request *taken)
{
    struct request *lead = NULL;
    struct ngd_list members, *l;

    ngd_list_init(&members);
    ngd_list_push_back(&members, &taken->item.merge_link);
    while ((l = ngd_list_pop_front(&taken->item.mates)))
        ngd_list_push_back(&members, l);
    while ((l = ngd_list_pop_front(&members))) {
        struct request *r = mate_of(l);

        if (r->item.deadline <= w->now)
            miss(w, r);
        else if (!lead)
            lead = r;
        else
            ngd_list_push_back(&lead->item.mates, l);
    }
    return lead;
}

/*
 * The requests run together, and take longer or shorter than expected by the same factor as the lead request would have
 * alone.
 */
static void occupy(struct world *w, struct slot *slot, struct request *lead, ngd_nsec_t expected)
{
    struct graph *g = lead->client->graph;
    int64_t rows = lead->item.rows;
    double time = (double)lead->length;

    lead->started = w->now;
    ngd_list_for_each (l, &lead->item.mates) {
        mate_of(l)->started = w->now;
        rows += mate_of(l)->item.rows;
    }
    if (g)
        time *= time_of_bucket(w->p, bucket_of(w->p, rows));
    slot->running = lead;
    slot->rows = rows;
    slot->end = w->now + (ngd_nsec_t)time;
    slot->expected = expected;
    ngd_heap_push(&w->ends, &slot->node);
    w->result->replays++;
    if (g)
        fill_rows(w, g, bucket_of(w->p, rows) - rows, slot->end);
}

/* Returns true if the slot has taken something to run. If not, the slot looks again at *until_p. */
static bool take_lead(struct world *w, struct slot *slot, ngd_nsec_t *until_p)
{
    struct ngd_sched_item *item;

    while ((item = ngd_lineup_take(&slot->device->lineup, w->now, until_p))) {
        struct request *lead = drop_expired(w, request_of(item));

        if (!lead)
            continue;
        occupy(w, slot, lead, *until_p);
        return true;
    }
    return false;
}

static void wake_at(struct world *w, struct device *d, ngd_nsec_t at)
{
    if (d->wakes_at != NGD_NSEC_NEVER)
        ngd_heap_remove(&w->wakes, &d->node);
    d->wakes_at = at;
    if (at != NGD_NSEC_NEVER)
        ngd_heap_push(&w->wakes, &d->node);
}

static void start_slots(struct world *w, struct device *d)
{
    d->lineup.lingers_until = 0;
    for (uint32_t s = 0; s < d->n_slots; s++) {
        ngd_nsec_t until;

        if (!d->slots[s].running && !take_lead(w, &d->slots[s], &until)) {
            wake_at(w, d, until);
            return;
        }
    }
}

static void submit_request(struct world *w, struct request *r)
{
    struct device *d = r->client->device;
    const bool bound = r->item.deadline != NGD_NSEC_NEVER;

    w->result->requests++;
    w->result->with_deadline += bound;
    if (bound && r->item.cost && !in_time(w, r)) {
        refuse_request(w, r);
        return;
    }
    w->result->taken++;
    ngd_lineup_push(&d->lineup, &r->item, w->now);
    if (!ngd_lineup_goes_on_lingering(&d->lineup, w->now))
        start_slots(w, d);
}

static void submit_new_request(struct world *w, struct client *c)
{
    submit_request(w, new_request(w, c));
}

static void note_latency(struct latencies *l, ngd_nsec_t t)
{
    if (l->seen++ % l->step)
        return;
    if (l->n == LATENCIES_MAX) { /* drop every second one */
        for (uint32_t i = 0; i < LATENCIES_MAX / 2; i++)
            l->values[i] = l->values[2 * i];
        l->n /= 2;
        l->step *= 2;
    }
    l->values[l->n++] = t;
}

/* Accounts for one of the requests that ran in the slot. Its part of the time is its part of the rows. */
static void conclude_request(struct world *w, const struct slot *slot, struct request *r)
{
    const ngd_nsec_t cut = slot->end < w->until ? slot->end : w->until;
    const double part = (double)r->item.rows / (double)slot->rows, used = (double)(cut - r->started) * part;
    struct client *c = r->client;

    c->used += (ngd_nsec_t)used;
    ngd_caps_charge(&slot->device->lineup.caps, &c->account,
                    (ngd_nsec_t)((double)(slot->end - r->started) * part) - r->item.cost, w->now);
    if (slot->end > r->item.deadline) {
        w->result->missed++;
        w->late_time += used;
    }
    note_latency(&w->latencies[c->class], slot->end - r->item.arrival);
    if (r->item.merge)
        ngd_merge_ended(&r->item);
    recycle_request(w, r);
    if (w->p->backlogged)
        submit_new_request(w, c);
}

static void finish_slot(struct world *w, struct slot *slot)
{
    const struct slot ran = *slot; /* a copy, since the next request of a served client may take the slot */
    struct request *lead = slot->running;
    struct ngd_list mates, *l;

    slot->running = NULL;
    w->busy += (slot->end < w->until ? slot->end : w->until) - lead->started;
    ngd_list_init(&mates);
    while ((l = ngd_list_pop_front(&lead->item.mates)))
        ngd_list_push_back(&mates, l);
    conclude_request(w, &ran, lead);
    while ((l = ngd_list_pop_front(&mates)))
        conclude_request(w, &ran, mate_of(l));
    start_slots(w, slot->device);
}

/* ---- a run -------------------------------------------------------------------------------------------- */

static void arrive(struct world *w, struct client *c)
{
    ngd_heap_remove(&w->arrivals, &c->node);
    submit_new_request(w, c);
    if (w->p->backlogged) {
        submit_new_request(w, c);
        return;
    }
    c->next += (ngd_nsec_t)(-log(uniform(&c->chance)) * c->gap) + 1;
    ngd_heap_push(&w->arrivals, &c->node);
}

/* Handles the next event. Of events at the same time, requests come first, then ends. */
static bool step_world(struct world *w)
{
    struct ngd_heap_node *a = ngd_heap_first(&w->arrivals), *e = ngd_heap_first(&w->ends),
                         *k = ngd_heap_first(&w->wakes);
    struct client *c = a ? ngd_container_of(a, struct client, node) : NULL;
    struct slot *slot = e ? ngd_container_of(e, struct slot, node) : NULL;
    struct device *woken = k ? ngd_container_of(k, struct device, node) : NULL;
    const ngd_nsec_t recorded = w->next_recorded < w->end_recorded ? w->next_recorded->at : NGD_NSEC_NEVER,
                     asked = c ? c->next : NGD_NSEC_NEVER, ended = slot ? slot->end : NGD_NSEC_NEVER,
                     wakes = woken ? woken->wakes_at : NGD_NSEC_NEVER;
    ngd_nsec_t now = recorded < asked ? recorded : asked;

    now = ended < now ? ended : now;
    now = wakes < now ? wakes : now;
    if (now >= w->until)
        return false;
    w->result->events++;
    w->now = now;
    if (recorded == now) {
        submit_request(w, recorded_request(w, w->next_recorded++));
    } else if (asked == now) {
        arrive(w, c);
    } else if (ended == now) {
        ngd_heap_remove(&w->ends, &slot->node);
        finish_slot(w, slot);
    } else {
        wake_at(w, woken, NGD_NSEC_NEVER);
        start_slots(w, woken);
    }
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
        cls->most_share = fmax(cls->most_share, used / ((double)w->until * w->p->slots));
    }
    qsort(l->values, l->n, sizeof(l->values[0]), compare);
    if (l->n) {
        cls->p50 = l->values[l->n / 2];
        cls->p99 = l->values[(uint64_t)l->n * 99 / 100];
    }
}

static void free_running(struct slot *slot)
{
    struct ngd_list *l;

    while (slot->running && (l = ngd_list_pop_front(&slot->running->item.mates)))
        ngd_free(mate_of(l));
    ngd_free(slot->running);
}

static void clean_up(struct world *w)
{
    struct request *next;

    for (uint32_t d = 0; d < w->p->devices; d++) {
        struct ngd_lineup *lineup = &w->devices[d].lineup;
        struct ngd_sched_item *item;
        ngd_nsec_t until;

        lineup->caps.stopping = true;
        while ((item = ngd_lineup_take(lineup, w->now, &until)))
            ngd_free(request_of(item));
        for (uint32_t s = 0; s < w->devices[d].n_slots; s++)
            free_running(&w->devices[d].slots[s]);
        ngd_lineup_fini(lineup);
    }
    for (struct request *r = w->spare; r; r = next) {
        next = (struct request *)(void *)r->item.link.next;
        ngd_free(r);
    }
    for (uint32_t k = 0; k < w->p->n_weights; k++)
        ngd_free(w->latencies[k].values);
    for (uint32_t g = 0; w->graphs && g < w->p->devices * w->p->graphs; g++)
        ngd_free(w->graphs[g].chances);
    ngd_free(w->graphs);
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
        .graphs = 1,
        .row_part = 0.05,
        .n_weights = 1,
        .weights = {NGD_WEIGHT_DEFAULT},
        .seed = 1,
    };
}

void sim_params_together(struct sim_params *params)
{
    params->n_buckets = 3;
    params->buckets[0] = 1, params->buckets[1] = 4, params->buckets[2] = 16;
    params->graphs = 2;
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
    ngd_heap_init(&w.wakes, earlier_wake);
    for (uint32_t k = 0; k < params->n_weights; k++)
        w.latencies[k] = (struct latencies){.step = 1, .values = need(NGD_NEW_N(ngd_nsec_t, LATENCIES_MAX))};
    make_devices(&w);
    if (merges(params))
        make_graphs(&w);
    if (params->arrivals)
        make_recorded_clients(&w);
    else
        make_clients(&w);
    while (step_world(&w))
        ;
    result_p->busy = (double)w.busy / ((double)w.until * params->devices * params->slots);
    /*
     * The refused requests could at most have used the time that was idle or spent on requests that ended late, and the
     * rows that stayed empty.
     */
    if (w.refused_time > 0)
        result_p->wrongly_refused =
            ((double)w.until * params->devices * params->slots - (double)w.busy + w.late_time + w.free_time) /
            w.refused_time;
    result_p->n_classes = params->n_weights;
    for (uint32_t k = 0; k < params->n_weights; k++)
        sum_class(&w, k, &result_p->classes[k]);
    clean_up(&w);
    result_p->wall = (double)(ngd_now() - began) * 1e-9;
}
