/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Weighted fair sharing of a device's time between accounts (identities), with priority classes and deadlines.
 *
 *   class     the most urgent one that has items, with age (ngd_class_next). So a less urgent class gets at least one
 *             turn in each NGD_PRIORITY_AGE_STEP or two, however busy the others are, and not more than that.
 *   deadline  an item that has one and was found to fit (`late`) is taken by it: the earliest first, whoever's it is.
 *             Since only what fits is taken in, what was taken in ends in time. An account that is LEAD ahead of its
 *             share is refused deadlines, so that they cannot be used to take others' time.
 *   account   else of the class's accounts the one with the least device time per weight (start-time fair queueing).
 *             Time is charged as expected when an item is taken and put right when it has run, so slots that run side
 *             by side do not all choose the same account. One account has one virtual time for all classes: urgency
 *             decides when time is spent, not how much there is.
 *   item      of the account's items the oldest.
 *
 * An account that was idle comes back with the time that the others have reached, less CREDIT: it is served at once,
 * but cannot save up idle time and then hold the device.
 */
#include "base/mem.h"
#include "scheduler/lineup/estimate.h"
#include "scheduler/lineup/merge.h"
#include <math.h>

#define VTIME_SCALE 64 /* virtual nanoseconds per nanosecond at weight 1 */
#define CREDIT      (5 * NGD_MSEC)
#define LEAD        (50 * NGD_MSEC)

struct fair_class {
    struct ngd_heap accounts; /* that have items of this class; the first by virtual time, and all */
    struct ngd_list all;
    struct ngd_list deadlines; /* items that have one, the earliest first */
    ngd_nsec_t cost;           /* expected device time of its items */
};

struct fair {
    struct fair_class classes[NGD_PRIORITIES];
    ngd_nsec_t served[NGD_PRIORITIES]; /* when the class was last served, or got its first item */
    int64_t vtime;                     /* least virtual time at which an account that was behind has been served */
    uint64_t serial;
    uint64_t looks; /* at what would be */
};

static int64_t scaled(const struct ngd_account *account, ngd_nsec_t t)
{
    return t * VTIME_SCALE / (int64_t)account->weight;
}

/* A heap node is a member of an array: the account is found by the class's number. */
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

/* Of a node or link of class c; offset: that of class 0. */
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

/* The account's time changes its place in the heaps of the classes where it has items. */
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

/* From the end: most arrive with a later deadline than those that wait. */
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

/* What the account has queued in this class and above is taken before, each item at the virtual time of that one. */
static int64_t fair_turn(const void *state, const struct ngd_account *account, ngd_priority_t priority)
{
    return vtime_at_push(state, account) +
           scaled(account, cost_above(account, (int)priority) + account->classes[priority].cost);
}

static void fair_push(void *state, struct ngd_sched_item *item, ngd_nsec_t now)
{
    struct fair *f = state;
    struct ngd_account *account = item->account;
    struct fair_class *cls = &f->classes[item->priority];

    item->serial = f->serial++;
    item->laid = 0;
    item->turn = fair_turn(f, account, item->priority);
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

/* -1: nothing is queued. */
static int choose_class(const struct fair *f, ngd_nsec_t now)
{
    unsigned waiting = 0;

    for (int c = 0; c < NGD_PRIORITIES; c++)
        waiting |= ngd_heap_empty(&f->classes[c].accounts) ? 0 : 1u << c;
    return ngd_class_next(f->served, waiting, NGD_PRIORITY_AGE_STEP, now);
}

/* The least virtual time of those that wait, which only grows. */
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

static bool is_idle(const struct fair *f)
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
    /* While nobody waits, time moves with who is served: who comes later is not owed what nobody else wanted. */
    if (is_idle(f) && account->vtime > f->vtime)
        f->vtime = account->vtime;
}

/*
 * All of the more urgent classes; in its own class what the account has queued there (later deadlines too: that errs on
 * the side of caution), and of each other account what it gets until its virtual time passes that of this item.
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

/* Slots that take items one after another, and how sure that is: the items are independent, so variances add up. */
struct outlook {
    ngd_nsec_t free_at[NGD_SLOTS_MAX];
    uint32_t n;
    double variance;
    uint64_t look; /* its number */
};

/* The next item goes to the slot that is free first, with those that run with it. When they end. */
static ngd_nsec_t outlook_add(struct outlook *o, struct ngd_sched_item *item)
{
    struct ngd_joint joint = {.cost = item->cost, .doubt = item->doubt};
    ngd_nsec_t start, end;
    uint32_t first = 0;

    for (uint32_t i = 1; i < o->n; i++)
        first = o->free_at[i] < o->free_at[first] ? i : first;
    start = o->free_at[first];
    item->laid = o->look;
    if (item->merge)
        ngd_merge_foresee(item, start, o->look, &joint);
    o->free_at[first] += joint.cost;
    o->variance += (double)joint.doubt * (double)joint.doubt;
    end = o->free_at[first] + (ngd_nsec_t)(NGD_ESTIMATE_SURE * sqrt(o->variance) / o->n);
    if (item->merge)
        ngd_merge_lay_out(item, start, &joint, o->look, end);
    return end;
}

/* Each item is told when it would end. Those that run with another one are laid out when it is. */
static void lay_out(struct fair_class *cls, struct outlook *o)
{
    ngd_list_for_each (l, &cls->deadlines) {
        struct ngd_sched_item *item = ngd_container_of(l, struct ngd_sched_item, link);

        if (item->laid != o->look)
            item->foretold = outlook_add(o, item);
    }
}

/*
 * The same with the new item among them: by how much it would be late, or what ends later because of it. That is all
 * that comes after it; or, when it may run with others, what `lay_out` has told an earlier end, since a replay that it
 * joins may take longer for it.
 */
static ngd_nsec_t worst_lateness(struct fair_class *cls, struct ngd_sched_item *item, struct outlook *o)
{
    ngd_nsec_t worst = INT64_MIN;
    bool in = false;

    ngd_list_for_each (l, &cls->deadlines) {
        struct ngd_sched_item *other = ngd_container_of(l, struct ngd_sched_item, link);
        ngd_nsec_t end;

        in = in || other == item;
        if (other->laid == o->look)
            continue;
        end = outlook_add(o, other);
        if (other == item)
            item->foretold = end;
        else if ((item->merge ? end > other->foretold : in) && end - other->deadline > worst)
            worst = end - other->deadline;
    }
    return item->foretold - item->deadline > worst ? item->foretold - item->deadline : worst;
}

/* All that waits with a deadline, the new item among it, as it will be taken. */
static ngd_nsec_t lateness(struct fair *f, struct ngd_sched_item *item, const struct outlook *now)
{
    struct fair_class *cls = &f->classes[item->priority];
    struct outlook before = *now, o = *now;
    ngd_nsec_t late;

    if (item->merge) {
        before.look = ++f->looks;
        lay_out(cls, &before);
        ngd_merge_suppose(item);
    }
    o.look = ++f->looks;
    insert_by_deadline(cls, item);
    late = worst_lateness(cls, item, &o);
    ngd_list_remove(&item->link);
    if (item->merge)
        ngd_merge_unsuppose(item);
    return late;
}

/* How far the account is ahead of who is furthest behind of those that wait; 0: nobody else waits. */
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
    struct outlook o = {.n = n};
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
    .ahead = fair_ahead,
    .late = fair_late,
};
