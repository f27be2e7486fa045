/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/lineup/merge.h"
#include "base/metrics.h"

#define SCAN_MAX    256 /* waiting items to try as mates */
#define SURE        2   /* deviations, as in the policies' predictions */
/*
 * A replay may end this much later than predicted without being split. If it were split, its lead would run alone, and
 * all items that were predicted to run with it would be late.
 */
#define DRIFT(cost) ((cost) / 2)

void ngd_merge_init(struct ngd_merge *m, const struct ngd_merge_ops *ops, int64_t max_rows, ngd_nsec_t longest_wait)
{
    m->ops = ops;
    m->max_rows = max_rows;
    m->reach = INT64_MAX;
    atomic_init(&m->running, 0);
    for (int i = 0; i < NGD_PRIORITIES; i++) {
        ngd_list_init(&m->timed[i]);
        ngd_list_init(&m->untimed[i]);
    }
    ngd_linger_init(&m->linger, longest_wait);
}

static struct ngd_sched_item *item_of_link(const struct ngd_list *l)
{
    return ngd_container_of(l, struct ngd_sched_item, merge_link);
}

static bool is_timed(const struct ngd_sched_item *item)
{
    return item->deadline != NGD_NSEC_NEVER;
}

/* ---- waiting items ------------------------------------------------------------------------------------ */

/* Inserts by deadline. Searches from the end, since most items arrive with a later deadline than those that wait. */
static void insert_waiting(struct ngd_merge *m, struct ngd_sched_item *item)
{
    struct ngd_list *list = is_timed(item) ? &m->timed[item->priority] : &m->untimed[item->priority], *at = list;

    while (at->prev != list && item_of_link(at->prev)->deadline > item->deadline)
        at = at->prev;
    ngd_list_insert_before(at, &item->merge_link);
}

void ngd_merge_enter(struct ngd_sched_item *item, ngd_nsec_t now)
{
    struct ngd_merge *m = item->merge;

    insert_waiting(m, item);
    m->n_waiting++;
    m->rows += item->rows;
    ngd_linger_arrived(&m->linger, now, m->n_waiting + atomic_load_explicit(&m->running, memory_order_relaxed));
}

void ngd_merge_leave(struct ngd_sched_item *item)
{
    struct ngd_merge *m = item->merge;

    ngd_list_remove(&item->merge_link);
    m->rows -= item->rows;
    if (--m->n_waiting == 0)
        ngd_linger_left(&m->linger);
}

void ngd_merge_insert_tentative(struct ngd_sched_item *item)
{
    insert_waiting(item->merge, item);
}

void ngd_merge_remove_tentative(struct ngd_sched_item *item)
{
    ngd_list_remove(&item->merge_link);
}

/* Returns the most urgent waiting item: nearly always the one that is taken first. */
static const struct ngd_sched_item *most_urgent_item(const struct ngd_merge *m)
{
    for (int i = 0; i < NGD_PRIORITIES; i++) {
        if (!ngd_list_empty(&m->timed[i]))
            return item_of_link(m->timed[i].next);
        if (!ngd_list_empty(&m->untimed[i]))
            return item_of_link(m->untimed[i].next);
    }
    return NULL;
}

/* Limits a number of rows to what one replay can take. */
static int64_t clip(const struct ngd_merge *m, int64_t rows)
{
    return rows < m->max_rows ? rows : m->max_rows;
}

/*
 * Returns the latest time at which the waiting items must begin to meet their deadlines. A joint replay takes longer
 * than a single one: by its known cost, else less than twice as long.
 */
static ngd_nsec_t latest_of(struct ngd_merge *m, const struct ngd_sched_item *first)
{
    ngd_nsec_t latest = NGD_NSEC_NEVER, together;
    struct ngd_joint joint;

    m->ops->predict(m, first, clip(m, m->rows), &joint);
    together = joint.cost == NGD_NSEC_NEVER ? 0 : joint.cost + SURE * joint.doubt;
    for (int i = 0; i < NGD_PRIORITIES; i++) {
        ngd_list_for_each (l, &m->timed[i]) {
            const struct ngd_sched_item *item = item_of_link(l);
            const ngd_nsec_t twice = 2 * (item->cost + item->doubt), need = twice > together ? twice : together;

            if (item->deadline - need < latest)
                latest = item->deadline - need;
        }
    }
    return latest;
}

/* A slot waits for mates only if nothing else is queued, and if the waiting rows do not fill the largest bucket yet. */
bool ngd_merge_waits(struct ngd_lineup *lineup, ngd_nsec_t now, ngd_nsec_t *until_p)
{
    struct ngd_merge *m = lineup->merging;
    const struct ngd_sched_item *first = m ? most_urgent_item(m) : NULL;

    if (!first || m->n_waiting != lineup->depth || m->rows >= clip(m, m->reach) ||
        !ngd_linger_wants(&m->linger, m->n_waiting, first->cost))
        return false;
    *until_p = ngd_linger_until(&m->linger, now, m->n_waiting, first->cost, latest_of(m, first));
    return *until_p > now;
}

bool ngd_merge_wants_company(const struct ngd_sched_item *item)
{
    return item->deadline - 2 * (item->cost + item->doubt) > item->arrival + NGD_LINGER_MIN &&
           ngd_linger_wants(&item->merge->linger, 1, item->cost);
}

/* ---- items that run ----------------------------------------------------------------------------------- */

/* One scan of the waiting items for mates of `lead`. */
struct scan {
    struct ngd_lineup *lineup; /* NULL: a what-if pass */
    struct ngd_sched_item *lead;
    ngd_nsec_t now, end;
    int64_t planned, room;    /* rows; room: left for mates */
    uint64_t pass;            /* number of the what-if pass */
    ngd_nsec_t predicted_end; /* when lead and mates end */
    bool take;
    uint32_t scanned, mates;
};

/*
 * Removes a mate from the lineup. The policy did not choose it, so its cost was not charged: it is charged for all of
 * its part afterwards.
 */
static void take_mate(struct scan *scan, struct ngd_sched_item *mate)
{
    ngd_caps_remove(&scan->lineup->caps, mate, scan->now);
    mate->queued = false;
    scan->lineup->depth--;
    ngd_merge_leave(mate);
    mate->cost = 0;
    mate->merge_running = true;
    ngd_list_push_back(&scan->lead->mates, &mate->merge_link);
}

static bool is_there(const struct scan *scan, const struct ngd_sched_item *mate)
{
    if (scan->lineup)
        return !ngd_caps_hold(&scan->lineup->caps, mate, scan->now) && mate->deadline > scan->now;
    return !mate->held && mate->pass != scan->pass;
}

/* Tries the items behind `after` as mates, until there is no room. */
static void scan_list(struct scan *scan, const struct ngd_list *list, struct ngd_list *after)
{
    struct ngd_list *l = after->next, *next;

    for (; l != list && scan->room > 0 && scan->scanned < SCAN_MAX; l = next, scan->scanned++) {
        struct ngd_sched_item *mate = item_of_link(l);

        next = l->next;
        if (mate->rows > scan->room || !is_there(scan, mate) ||
            !scan->lead->merge->ops->joins(scan->lead, mate, scan->planned))
            continue;
        scan->room -= mate->rows;
        scan->mates++;
        if (scan->take && scan->lineup) {
            take_mate(scan, mate);
        } else if (scan->take) {
            mate->pass = scan->pass;
            mate->predicted_end = scan->predicted_end;
        }
    }
}

/* In a what-if pass the policy has placed items that are more urgent, or due before, already. */
static void scan_mates(struct scan *scan)
{
    struct ngd_merge *m = scan->lead->merge;

    if (!scan->lineup) {
        scan_list(scan, &m->timed[scan->lead->priority], &scan->lead->merge_link);
        return;
    }
    for (int c = 0; c <= (int)scan->lead->priority; c++) {
        scan_list(scan, &m->timed[c], &m->timed[c]);
        if (!is_timed(scan->lead))
            scan_list(scan, &m->untimed[c], &m->untimed[c]);
    }
}

/* Returns the rows that could run together in the largest bucket; the lead's own rows if no item can join it. */
static int64_t rows_together(const struct scan *at)
{
    struct scan scan = *at;
    const int64_t own = scan.lead->rows, room = clip(scan.lead->merge, INT64_MAX) - own;

    scan.room = room;
    scan.planned = 0;
    scan.end = scan.now;
    scan.take = false;
    scan_mates(&scan);
    return own + room - scan.room;
}

/*
 * Returns how many of the rows can run and still end in time for the lead, give or take DRIFT; all of them if the lead
 * would be late alone too.
 */
static int64_t rows_in_time(const struct ngd_sched_item *lead, int64_t rows, ngd_nsec_t start)
{
    struct ngd_merge *m = lead->merge;
    struct ngd_joint joint;

    if (!is_timed(lead) || start + lead->cost > lead->deadline)
        return rows;
    while (rows > lead->rows) {
        m->ops->predict(m, lead, rows, &joint);
        if (joint.cost == NGD_NSEC_NEVER || joint.planned <= lead->rows ||
            start + joint.cost - DRIFT(joint.cost) <= lead->deadline)
            break;
        rows = m->ops->below(m, joint.planned);
    }
    return rows > lead->rows ? rows : lead->rows;
}

ngd_nsec_t ngd_merge_take(struct ngd_lineup *lineup, struct ngd_sched_item *item, ngd_nsec_t now)
{
    struct ngd_merge *m = item->merge;
    struct scan scan = {.lineup = lineup, .lead = item, .now = now, .take = true};
    const ngd_nsec_t waited = ngd_linger_began(&m->linger, now);
    struct ngd_joint joint = {.cost = NGD_NSEC_NEVER};
    int64_t rows = item->rows;

    if (waited > 0)
        ngd_metric_observe(NGD_M_MERGE_WAIT_SECONDS, waited);
    if (m->n_waiting)
        rows = rows_in_time(item, rows_together(&scan), now);
    if (rows > item->rows) {
        m->ops->choose(m, item, rows, now, &joint);
        scan.planned = joint.planned;
        scan.room = clip(m, joint.planned) - item->rows;
        scan.end = joint.cost == NGD_NSEC_NEVER ? now : now + joint.cost;
        scan_mates(&scan);
    }
    item->merge_running = true;
    atomic_fetch_add_explicit(&m->running, 1 + scan.mates, memory_order_relaxed);
    return scan.mates && joint.cost != NGD_NSEC_NEVER ? joint.cost : item->cost;
}

void ngd_merge_take_inline(struct ngd_sched_item *item)
{
    struct ngd_merge *m = item->merge;
    uint32_t running = atomic_fetch_add_explicit(&m->running, 1, memory_order_relaxed);

    item->merge_running = true;
    ngd_linger_arrived(&m->linger, item->arrival, running + 1);
    (void)ngd_linger_began(&m->linger, item->arrival);
}

/* ---- what-if passes ----------------------------------------------------------------------------------- */

void ngd_merge_predict(struct ngd_sched_item *lead, ngd_nsec_t start, uint64_t pass, struct ngd_joint *joint_p)
{
    const struct scan at = {.lead = lead, .now = start, .pass = pass};
    const int64_t rows = rows_in_time(lead, rows_together(&at), start);
    struct ngd_joint joint = {.planned = 0};

    if (rows > lead->rows)
        lead->merge->ops->predict(lead->merge, lead, rows, &joint);
    if (joint.planned <= lead->rows || joint.cost == NGD_NSEC_NEVER)
        joint = (struct ngd_joint){.planned = lead->rows, .cost = lead->cost, .doubt = lead->doubt};
    *joint_p = joint;
}

void ngd_merge_place(struct ngd_sched_item *lead, ngd_nsec_t start, const struct ngd_joint *joint, uint64_t pass,
                     ngd_nsec_t predicted_end)
{
    struct scan at = {.lead = lead,
                      .now = start,
                      .end = start + joint->cost,
                      .planned = joint->planned,
                      .room = clip(lead->merge, joint->planned) - lead->rows,
                      .pass = pass,
                      .predicted_end = predicted_end,
                      .take = true};

    scan_mates(&at);
}
