/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Weighted fair sharing of a device's time between accounts (identities), with priority classes and deadlines.
 *
 *   class     The most urgent class with items goes first, with ageing (ngd_class_next). So a less urgent class gets at
 *             least one turn in each NGD_PRIORITY_AGE_STEP or two, however busy the others are, and no more than that.
 *   deadline  Within a class, items with deadlines go first, earliest deadline first, regardless of account. An item is
 *             accepted only if `late` finds that it fits, so what was accepted ends in time. An account that is LEAD
 *             ahead of its share is refused deadlines, so it cannot use them to take others' time.
 *   account   Then the account with the least virtual time (device time over weight) goes first: start-time fair
 *             queueing. The expected cost is charged when an item is taken and corrected when it has run, so slots that
 *             run side by side do not all choose the same account. An account has one virtual time for all classes:
 *             urgency decides when an account spends its time, not how much it has.
 *   item      Within an account, the oldest item goes first.
 *
 * An account that was idle comes back with the virtual time that the others have reached, less CREDIT. So it is served
 * at once, but cannot save up idle time and then hold the device.
 */
#include "base/mem.h"
#include "scheduler/lineup/estimate.h"
#include "scheduler/lineup/merge.h"
#include <math.h>

#define VTIME_SCALE 64 /* virtual nanoseconds per nanosecond at weight 1 */
#define CREDIT      (5 * NGD_MSEC)
#define LEAD        (50 * NGD_MSEC)

struct fair_class {
    struct ngd_heap accounts;  /* accounts with items of this class, by virtual time */
    struct ngd_list all;       /* the same accounts, in any order */
    struct ngd_list deadlines; /* items with a deadline, the earliest first */
    ngd_nsec_t cost;           /* expected device time of its items */
};

struct fair {
    struct fair_class classes[NGD_PRIORITIES];
    ngd_nsec_t served[NGD_PRIORITIES]; /* when the class was last served, or got its first item */
    int64_t vtime; /* common virtual time: the least one of the waiting accounts, never going back */
    uint64_t serial;
    uint64_t passes; /* number of the last what-if pass */
};

static int64_t scaled(const struct ngd_account *account, ngd_nsec_t t)
{
    return t * VTIME_SCALE / (int64_t)account->weight;
}

/* The heap nodes of an account are an array, so each class needs an order of its own. */
#define CLASS_BEFORE(c)                                                                  \
    static bool before_##c(const struct ngd_heap_node *a, const struct ngd_heap_node *b) \
    {                                                                                    \
        return ngd_container_of(a, struct ngd_account, classes[c].node)->vtime <         \
               ngd_container_of(b, struct ngd_account, classes[c].node)->vtime;          \
    }
CLASS_BEFORE(0)
CLASS_BEFORE(1)
CLASS_BEFORE(2)
_Static_assert(NGD_PRIORITIES == 3, "an order of accounts for each class");

/* Returns the account of a node or link of class c; offset: of that member in class 0. */
static struct ngd_account *account_of_class(const void *member, size_t offset, int c)
{
    const size_t size = sizeof(((struct ngd_account *)0)->classes[0]);

    return (struct ngd_account *)(void *)((char *)(uintptr_t)member - offset - (size_t)c * size);
}

static struct ngd_account *first_account(const struct fair *f, int c)
{
    return account_of_class(ngd_heap_first(&f->classes[c].accounts), offsetof(struct ngd_account, classes[0].node), c);
}

static ngd_status_t fair_create(void **state_p)
{
    struct fair *f = NGD_NEW(struct fair);

    if (!f)
        return NGD_ERR_NO_MEMORY;
    ngd_heap_init(&f->classes[0].accounts, before_0);
    ngd_heap_init(&f->classes[1].accounts, before_1);
    ngd_heap_init(&f->classes[2].accounts, before_2);
    for (int c = 0; c < NGD_PRIORITIES; c++) {
        ngd_list_init(&f->classes[c].all);
        ngd_list_init(&f->classes[c].deadlines);
    }
    *state_p = f;
    return NGD_OK;
}

static void fair_destroy(void *state)
{
    ngd_free(state);
}

static bool is_queued(const struct ngd_account *account)
{
    for (int c = 0; c < NGD_PRIORITIES; c++)
        if (!ngd_heap_empty(&account->classes[c].items))
            return true;
    return false;
}

/* Sets the virtual time, and moves the account to its new place in the heaps of the classes where it has items. */
static void set_vtime(struct fair *f, struct ngd_account *account, int64_t vtime)
{
    for (int c = 0; c < NGD_PRIORITIES; c++)
        if (!ngd_heap_empty(&account->classes[c].items))
            ngd_heap_remove(&f->classes[c].accounts, &account->classes[c].node);
    account->vtime = vtime;
    for (int c = 0; c < NGD_PRIORITIES; c++)
        if (!ngd_heap_empty(&account->classes[c].items))
            ngd_heap_push(&f->classes[c].accounts, &account->classes[c].node);
}

/* Inserts by deadline. Searches from the end, since most items arrive with a later deadline than those that wait. */
static void insert_by_deadline(struct fair_class *cls, struct ngd_sched_item *item)
{
    struct ngd_list *at = &cls->deadlines;

    while (at->prev != &cls->deadlines &&
           ngd_container_of(at->prev, struct ngd_sched_item, link)->deadline > item->deadline)
        at = at->prev;
    ngd_list_insert_before(at, &item->link);
}

static int64_t vtime_at_push(const struct fair *f, const struct ngd_account *account)
{
    const int64_t floor = f->vtime - scaled(account, CREDIT);

    return !is_queued(account) && account->vtime < floor ? floor : account->vtime;
}

/* Expected device time of an account's items in more urgent classes. */
static ngd_nsec_t cost_above(const struct ngd_account *account, int priority)
{
    ngd_nsec_t cost = 0;

    for (int c = 0; c < priority; c++)
        cost += account->classes[c].cost;
    return cost;
}

/* The account's items in this class and in more urgent ones go first, and each adds its cost to the virtual time. */
static int64_t fair_turn(const void *state, const struct ngd_account *account, ngd_priority_t priority)
{
    return vtime_at_push(state, account) +
           scaled(account, cost_above(account, (int)priority) + account->classes[priority].cost);
}

static bool fair_overtakes(const void *state, const struct ngd_account *account, const struct ngd_sched_item *item)
{
    return fair_turn(state, account, item->priority) < item->turn + item->account->corrected;
}

static void fair_push(void *state, struct ngd_sched_item *item, ngd_nsec_t now)
{
    struct fair *f = state;
    struct ngd_account *account = item->account;
    struct fair_class *cls = &f->classes[item->priority];

    item->serial = f->serial++;
    item->pass = 0;
    item->turn = fair_turn(f, account, item->priority) - account->corrected;
    if (ngd_heap_empty(&cls->accounts))
        f->served[item->priority] = now;
    account->vtime = vtime_at_push(f, account);
    if (ngd_heap_empty(&account->classes[item->priority].items)) {
        ngd_heap_push(&cls->accounts, &account->classes[item->priority].node);
        ngd_list_push_back(&cls->all, &account->classes[item->priority].link);
    }
    ngd_heap_push(&account->classes[item->priority].items, &item->node);
    if (item->deadline != NGD_NSEC_NEVER)
        insert_by_deadline(cls, item);
    account->classes[item->priority].cost += item->cost;
    cls->cost += item->cost;
}

static void fair_remove(void *state, struct ngd_sched_item *item)
{
    struct fair *f = state;
    struct ngd_account *account = item->account;
    struct fair_class *cls = &f->classes[item->priority];

    ngd_heap_remove(&account->classes[item->priority].items, &item->node);
    ngd_list_remove(&item->link);
    account->classes[item->priority].cost -= item->cost;
    cls->cost -= item->cost;
    if (ngd_heap_empty(&account->classes[item->priority].items)) {
        ngd_heap_remove(&cls->accounts, &account->classes[item->priority].node);
        ngd_list_remove(&account->classes[item->priority].link);
    }
}

/* Returns -1 if nothing is queued. */
static int choose_class(const struct fair *f, ngd_nsec_t now)
{
    unsigned waiting = 0;

    for (int c = 0; c < NGD_PRIORITIES; c++)
        waiting |= ngd_heap_empty(&f->classes[c].accounts) ? 0 : 1u << c;
    return ngd_class_next(f->served, waiting, NGD_PRIORITY_AGE_STEP, now);
}

/* Advances the common virtual time to the least one of the waiting accounts. It never goes back. */
static void advance_vtime(struct fair *f)
{
    int64_t least = INT64_MAX;

    for (int c = 0; c < NGD_PRIORITIES; c++)
        if (!ngd_heap_empty(&f->classes[c].accounts) && first_account(f, c)->vtime < least)
            least = first_account(f, c)->vtime;
    if (least != INT64_MAX && least > f->vtime)
        f->vtime = least;
}

static struct ngd_sched_item *fair_pop(void *state, ngd_nsec_t now)
{
    struct fair *f = state;
    int c = choose_class(f, now);
    struct ngd_account *account;
    struct ngd_sched_item *item;

    if (c < 0)
        return NULL;
    f->served[c] = now;
    advance_vtime(f);
    if (!ngd_list_empty(&f->classes[c].deadlines)) {
        item = ngd_container_of(f->classes[c].deadlines.next, struct ngd_sched_item, link);
    } else {
        account = first_account(f, c);
        item = ngd_container_of(ngd_heap_first(&account->classes[c].items), struct ngd_sched_item, node);
    }
    account = item->account;
    fair_remove(f, item);
    set_vtime(f, account, account->vtime + scaled(account, item->cost));
    return item;
}

static bool fair_is_idle(const struct fair *f)
{
    for (int c = 0; c < NGD_PRIORITIES; c++)
        if (!ngd_heap_empty(&f->classes[c].accounts))
            return false;
    return true;
}

static void fair_charge(void *state, struct ngd_account *account, ngd_nsec_t more)
{
    struct fair *f = state;

    set_vtime(f, account, account->vtime + scaled(account, more));
    account->corrected += scaled(account, more);
    /* While nothing waits, the common time follows the account that is served: a later one is not owed idle time. */
    if (fair_is_idle(f) && account->vtime > f->vtime)
        f->vtime = account->vtime;
}

/*
 * Counts all items of more urgent classes, the account's own items of the class (those with later deadlines too, which
 * errs on the side of caution), and of each other account the time that it gets until its virtual time passes this
 * item's.
 */
static ngd_nsec_t fair_ahead(void *state, const struct ngd_sched_item *item)
{
    const struct fair *f = state;
    const struct ngd_account *own = item->account;
    const int p = item->priority;
    const ngd_nsec_t mine = own->classes[p].cost;
    const int64_t turn = fair_turn(f, own, item->priority);
    ngd_nsec_t ahead = mine;

    for (int c = 0; c < p; c++)
        ahead += f->classes[c].cost;
    ngd_list_for_each (l, &f->classes[p].all) {
        const struct ngd_account *other = account_of_class(l, offsetof(struct ngd_account, classes[0].link), p);
        int64_t behind = turn - other->vtime - scaled(other, cost_above(other, p));
        ngd_nsec_t t = other == own || behind <= 0 ? 0 : behind / VTIME_SCALE * (int64_t)other->weight;

        ahead += t < other->classes[p].cost ? t : other->classes[p].cost;
    }
    return ahead;
}

/*
 * A what-if schedule: when each slot would be free, and the variance of that. Items are independent, so their variances
 * add up.
 */
struct forecast {
    ngd_nsec_t free_at[NGD_SLOTS_MAX];
    uint32_t n;
    double variance;
    uint64_t pass; /* number of this what-if pass */
};

/* Places an item, and the mates that would run with it, on the slot that is free first. Returns when they end. */
static ngd_nsec_t forecast_add(struct forecast *o, struct ngd_sched_item *item)
{
    struct ngd_joint joint = {.cost = item->cost, .doubt = item->doubt};
    ngd_nsec_t start, end;
    uint32_t first = 0;

    for (uint32_t i = 1; i < o->n; i++)
        first = o->free_at[i] < o->free_at[first] ? i : first;
    start = o->free_at[first];
    item->pass = o->pass;
    if (item->merge)
        ngd_merge_predict(item, start, o->pass, &joint);
    o->free_at[first] += joint.cost;
    o->variance += (double)joint.doubt * (double)joint.doubt;
    end = o->free_at[first] + (ngd_nsec_t)(NGD_ESTIMATE_SURE * sqrt(o->variance) / o->n);
    if (item->merge)
        ngd_merge_place(item, start, &joint, o->pass, end);
    return end;
}

/* Places all items of a class that have deadlines. Mates are placed with their lead. */
static void place_deadlines(struct fair_class *cls, struct forecast *o)
{
    ngd_list_for_each (l, &cls->deadlines) {
        struct ngd_sched_item *item = ngd_container_of(l, struct ngd_sched_item, link);

        if (item->pass != o->pass)
            item->predicted_end = forecast_add(o, item);
    }
}

/*
 * Places all items of the class with the new one among them. Returns the worst lateness that the new item causes: its
 * own, or that of an item that ends later because of it. Those are the items behind it. If it may run with others, they
 * are all items that end later than place_deadlines() predicted without it, since a replay that it joins may take
 * longer.
 */
static ngd_nsec_t worst_lateness(struct fair_class *cls, struct ngd_sched_item *item, struct forecast *o)
{
    ngd_nsec_t worst = INT64_MIN;
    bool in = false;

    ngd_list_for_each (l, &cls->deadlines) {
        struct ngd_sched_item *other = ngd_container_of(l, struct ngd_sched_item, link);
        ngd_nsec_t end;

        in = in || other == item;
        if (other->pass == o->pass)
            continue;
        end = forecast_add(o, other);
        if (other == item)
            item->predicted_end = end;
        else if ((item->merge ? end > other->predicted_end : in) && end - other->deadline > worst)
            worst = end - other->deadline;
    }
    return item->predicted_end - item->deadline > worst ? item->predicted_end - item->deadline : worst;
}

/* Returns the lateness that the new item would cause: see worst_lateness. */
static ngd_nsec_t lateness(struct fair *f, struct ngd_sched_item *item, const struct forecast *now)
{
    struct fair_class *cls = &f->classes[item->priority];
    struct forecast before = *now, o = *now;
    ngd_nsec_t late;

    if (item->merge) {
        before.pass = ++f->passes;
        place_deadlines(cls, &before);
        ngd_merge_insert_tentative(item);
    }
    o.pass = ++f->passes;
    insert_by_deadline(cls, item);
    late = worst_lateness(cls, item, &o);
    ngd_list_remove(&item->link);
    if (item->merge)
        ngd_merge_remove_tentative(item);
    return late;
}

/* Returns how far the account is ahead of the waiting account with the least virtual time; 0: no other one waits. */
static int64_t lead_of(const struct fair *f, const struct ngd_account *account)
{
    const int64_t own = vtime_at_push(f, account);
    int64_t lead = 0;

    for (int c = 0; c < NGD_PRIORITIES; c++) {
        const struct ngd_account *first = ngd_heap_empty(&f->classes[c].accounts) ? account : first_account(f, c);

        if (first != account && own - first->vtime > lead)
            lead = own - first->vtime;
    }
    return lead;
}

static ngd_nsec_t fair_late(void *state, struct ngd_sched_item *item, ngd_nsec_t now, const ngd_nsec_t *left,
                            uint32_t n)
{
    struct fair *f = state;
    const struct ngd_account *account = item->account;
    const int64_t lead = lead_of(f, account);
    struct forecast o = {.n = n};
    ngd_nsec_t urgent = 0, late;

    for (int c = 0; c < (int)item->priority; c++)
        urgent += f->classes[c].cost;
    for (uint32_t i = 0; i < n; i++)
        o.free_at[i] = now + left[i] + urgent / n;
    late = lateness(f, item, &o);
    return late <= 0 && lead > scaled(account, LEAD) ? lead / VTIME_SCALE * (int64_t)account->weight : late;
}

extern const struct ngd_sched_policy ngd_sched_policy_fair;
const struct ngd_sched_policy ngd_sched_policy_fair = {
    .name = "fair",
    .create = fair_create,
    .destroy = fair_destroy,
    .push = fair_push,
    .pop = fair_pop,
    .remove = fair_remove,
    .charge = fair_charge,
    .turn = fair_turn,
    .overtakes = fair_overtakes,
    .ahead = fair_ahead,
    .late = fair_late,
};
