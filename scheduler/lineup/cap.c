/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An account's allowance is a line through (at, allowance) with the slope of its rate, so the time at which it opens is
 * known in advance. spend() moves the line down. accrue() moves its point along it, up to what can be saved up.
 */
#include "scheduler/lineup/cap.h"

static struct ngd_account *account_of_node(const struct ngd_heap_node *node)
{
    return ngd_container_of(node, struct ngd_account, cap.node);
}

static struct ngd_sched_item *item_of_node(const struct ngd_heap_node *node)
{
    return ngd_container_of(node, struct ngd_sched_item, node);
}

static bool opens_before(const struct ngd_heap_node *a, const struct ngd_heap_node *b)
{
    return ngd_cap_open_at(account_of_node(a)) < ngd_cap_open_at(account_of_node(b));
}

static ngd_nsec_t due(const struct ngd_sched_item *item)
{
    const ngd_nsec_t latest = item->arrival + NGD_CAP_PATIENCE;

    return item->deadline < latest ? item->deadline : latest;
}

static bool goes_before(const struct ngd_heap_node *a, const struct ngd_heap_node *b)
{
    const struct ngd_sched_item *x = item_of_node(a), *y = item_of_node(b);
    const ngd_nsec_t x_due = due(x), y_due = due(y);

    return x_due != y_due ? x_due < y_due : x->serial < y->serial;
}

void ngd_caps_init(struct ngd_caps *caps, const struct ngd_sched_policy *policy, void *state)
{
    *caps = (struct ngd_caps){.policy = policy, .state = state};
    ngd_heap_init(&caps->closed, opens_before);
}

/* ---- allowances --------------------------------------------------------------------------------------- */

static ngd_nsec_t burst_of(const struct ngd_account *account)
{
    return NGD_CAP_BURST / 100 * account->cap.rate;
}

static ngd_nsec_t time_to_earn(const struct ngd_account *account, ngd_nsec_t t)
{
    return t * 100 / account->cap.rate + 1;
}

static void accrue(struct ngd_account *account, ngd_nsec_t now)
{
    const ngd_nsec_t most = burst_of(account), lacks = most - account->cap.allowance, t = now - account->cap.at;

    if (t <= 0)
        return;
    account->cap.allowance =
        t >= time_to_earn(account, lacks) ? most : account->cap.allowance + t * account->cap.rate / 100;
    account->cap.at = now;
}

static bool waits_to_open(const struct ngd_account *account)
{
    return account->cap.n_held && !account->cap.released;
}

static void spend(struct ngd_caps *caps, struct ngd_account *account, ngd_nsec_t time)
{
    const bool waits = waits_to_open(account);
    ngd_nsec_t at = 0;

    account->cap.allowance -= time;
    if (account->cap.allowance <= 0)
        at = account->cap.at + time_to_earn(account, 1 - account->cap.allowance); /* an allowance of 1 ns opens it */
    if (waits)
        ngd_heap_remove(&caps->closed, &account->cap.node);
    atomic_store_explicit(&account->cap.open_at, at, memory_order_relaxed);
    if (waits)
        ngd_heap_push(&caps->closed, &account->cap.node);
}

static bool is_closed(const struct ngd_caps *caps, const struct ngd_account *account, ngd_nsec_t now)
{
    return account->cap.rate && ngd_cap_open_at(account) > now && !caps->stopping;
}

void ngd_caps_set(struct ngd_caps *caps, struct ngd_account *account, uint32_t rate, ngd_nsec_t now)
{
    if (account->cap.rate == rate)
        return;
    account->cap.rate = rate ? rate : 1;
    account->cap.allowance = burst_of(account);
    account->cap.at = now;
    spend(caps, account, 0); /* opens it, so held items can run */
    account->cap.rate = rate;
}

/* ---- held items --------------------------------------------------------------------------------------- */

/* Reports the time since the last call in which the account had held items. */
static void note_held(const struct ngd_caps *caps, struct ngd_account *account, ngd_nsec_t now)
{
    if (account->cap.since && caps->note_held)
        caps->note_held(account, now - account->cap.since);
    account->cap.since = account->cap.n_held ? now : 0;
}

static void hold_item(struct ngd_caps *caps, struct ngd_sched_item *item, ngd_nsec_t now)
{
    struct ngd_account *account = item->account;
    struct ngd_heap *held = &account->cap.held[item->priority];
    const bool first = account->cap.n_held == 0;

    if (ngd_heap_empty(held)) {
        ngd_heap_init(held, goes_before);
        account->cap.served[item->priority] = now;
    }
    item->serial = caps->serial++;
    item->held = true;
    ngd_heap_push(held, &item->node);
    account->cap.n_held++;
    caps->n_held++;
    if (first && !account->cap.released)
        ngd_heap_push(&caps->closed, &account->cap.node);
    if (first)
        note_held(caps, account, now);
}

static void unhold_item(struct ngd_caps *caps, struct ngd_sched_item *item, ngd_nsec_t now)
{
    struct ngd_account *account = item->account;
    const bool waited = waits_to_open(account);

    ngd_heap_remove(&account->cap.held[item->priority], &item->node);
    item->held = false;
    account->cap.n_held--;
    caps->n_held--;
    if (waited && !waits_to_open(account))
        ngd_heap_remove(&caps->closed, &account->cap.node);
    note_held(caps, account, now);
}

/* The policy has given the item back: the account may release its next one. */
static void forget_released(struct ngd_caps *caps, const struct ngd_sched_item *item)
{
    struct ngd_account *account = item->account;

    if (account->cap.released != item)
        return;
    account->cap.released = NULL;
    if (waits_to_open(account))
        ngd_heap_push(&caps->closed, &account->cap.node);
}

static struct ngd_sched_item *next_held(struct ngd_account *account, ngd_nsec_t now)
{
    const uint32_t rate = account->cap.rate ? account->cap.rate : 100;
    unsigned waiting = 0;
    int c;

    for (c = 0; c < NGD_PRIORITIES; c++)
        waiting |= ngd_heap_empty(&account->cap.held[c]) ? 0 : 1u << c;
    c = ngd_class_next(account->cap.served, waiting, NGD_PRIORITY_AGE_STEP * 100 / rate, now);
    account->cap.served[c] = now;
    return item_of_node(ngd_heap_first(&account->cap.held[c]));
}

static void release_held_items(struct ngd_caps *caps, ngd_nsec_t now)
{
    while (!ngd_heap_empty(&caps->closed) && (caps->stopping || ngd_caps_next(caps) <= now)) {
        struct ngd_account *account = account_of_node(ngd_heap_first(&caps->closed));
        struct ngd_sched_item *item = next_held(account, now);

        unhold_item(caps, item, now);
        if (waits_to_open(account))
            ngd_heap_remove(&caps->closed, &account->cap.node);
        account->cap.released = item;
        caps->policy->push(caps->state, item, now);
    }
}

ngd_nsec_t ngd_caps_next(const struct ngd_caps *caps)
{
    const struct ngd_heap_node *first = ngd_heap_first(&caps->closed);

    return first ? ngd_cap_open_at(account_of_node(first)) : NGD_NSEC_NEVER;
}

/* ---- items -------------------------------------------------------------------------------------------- */

bool ngd_caps_hold(const struct ngd_caps *caps, const struct ngd_sched_item *item, ngd_nsec_t now)
{
    return !item->uncapped && is_closed(caps, item->account, now);
}

void ngd_caps_push(struct ngd_caps *caps, struct ngd_sched_item *item, ngd_nsec_t now)
{
    struct ngd_account *account = item->account;

    account->cap.queued += item->cost;
    if (!item->uncapped && (account->cap.n_held || is_closed(caps, account, now)))
        hold_item(caps, item, now);
    else
        caps->policy->push(caps->state, item, now);
}

struct ngd_sched_item *ngd_caps_pop(struct ngd_caps *caps, ngd_nsec_t now)
{
    struct ngd_sched_item *item;
    struct ngd_account *account;

    for (;;) {
        release_held_items(caps, now);
        item = caps->policy->pop(caps->state, now);
        if (!item)
            return NULL;
        account = item->account;
        forget_released(caps, item);
        if (item->uncapped || !is_closed(caps, account, now))
            break;
        if (caps->policy->charge)
            caps->policy->charge(caps->state, account, -item->cost); /* takes back what pop charged */
        hold_item(caps, item, now);
    }
    account->cap.queued -= item->cost;
    if (account->cap.rate) {
        accrue(account, now);
        spend(caps, account, item->cost);
    }
    return item;
}

void ngd_caps_remove(struct ngd_caps *caps, struct ngd_sched_item *item, ngd_nsec_t now)
{
    item->account->cap.queued -= item->cost;
    if (item->held) {
        unhold_item(caps, item, now);
        return;
    }
    caps->policy->remove(caps->state, item);
    forget_released(caps, item);
}

void ngd_caps_spend(struct ngd_caps *caps, struct ngd_account *account, ngd_nsec_t more, ngd_nsec_t now)
{
    if (account->cap.rate) {
        accrue(account, now);
        spend(caps, account, more);
    }
}

void ngd_caps_charge(struct ngd_caps *caps, struct ngd_account *account, ngd_nsec_t more, ngd_nsec_t now)
{
    ngd_caps_spend(caps, account, more, now);
    if (caps->policy->charge)
        caps->policy->charge(caps->state, account, more);
}

/* Assumes that everything that the account has queued runs first. */
static ngd_nsec_t late_by_cap(struct ngd_account *account, const struct ngd_sched_item *item, ngd_nsec_t now)
{
    ngd_nsec_t wait = 0;

    if (!account->cap.rate || item->uncapped)
        return INT64_MIN;
    accrue(account, now);
    if (account->cap.queued >= account->cap.allowance)
        wait = time_to_earn(account, account->cap.queued - account->cap.allowance);
    return now + wait + item->cost - item->deadline;
}

ngd_nsec_t ngd_caps_late(struct ngd_caps *caps, struct ngd_sched_item *item, ngd_nsec_t now, const ngd_nsec_t *left,
                         uint32_t n)
{
    const ngd_nsec_t by_policy = ngd_sched_late(caps->policy, caps->state, item, now, left, n),
                     by_cap = late_by_cap(item->account, item, now);

    return by_cap > by_policy ? by_cap : by_policy;
}
