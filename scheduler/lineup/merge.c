/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/lineup/merge.h"
#include "base/metrics.h"

#define LOOK_MAX    256 /* of those that wait are looked at for mates */
#define SURE        2   /* deviations, as in the policies' foretelling */
/* What a replay may end later than foretold without being split for it: who then ran alone would make all late that
 * were foretold to run with it, and their replays smaller in turn. */
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

static struct ngd_sched_item *item_of(const struct ngd_list *l)
{
    return ngd_container_of(l, struct ngd_sched_item, merge_link);
}

static bool is_timed(const struct ngd_sched_item *item)
{
    return item->deadline != NGD_NSEC_NEVER;
}

/* ---- who waits ---------------------------------------------------------------------------------------- */

/* From the end: most arrive with a later deadline than those that wait. */
static void insert(struct ngd_merge *m, struct ngd_sched_item *item)
{
    struct ngd_list *list = is_timed(item) ? &m->timed[item->priority] : &m->untimed[item->priority], *at = list;

    while (at->prev != list && item_of(at->prev)->deadline > item->deadline)
        at = at->prev;
    ngd_list_insert_before(at, &item->merge_link);
}

void ngd_merge_enter(struct ngd_sched_item *item, ngd_nsec_t now)
{
    struct ngd_merge *m = item->merge;

    insert(m, item);
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

void ngd_merge_suppose(struct ngd_sched_item *item)
{
    insert(item->merge, item);
}

void ngd_merge_unsuppose(struct ngd_sched_item *item)
{
    ngd_list_remove(&item->merge_link);
}

/* The first to be taken, nearly. */
static const struct ngd_sched_item *first_of(const struct ngd_merge *m)
{
    for (int i = 0; i < NGD_PRIORITIES; i++) {
        if (!ngd_list_empty(&m->timed[i]))
            return item_of(m->timed[i].next);
        if (!ngd_list_empty(&m->untimed[i]))
            return item_of(m->untimed[i].next);
    }
    return NULL;
}

/* The rows that there may be in all. */
static int64_t clip(const struct ngd_merge *m, int64_t rows)
{
    return rows < m->max_rows ? rows : m->max_rows;
}

/* By when they must begin: a replay for several takes longer than one alone, by as much as is known, or else not twice
 * as long. */
static ngd_nsec_t latest_of(struct ngd_merge *m, const struct ngd_sched_item *first)
{
    ngd_nsec_t latest = NGD_NSEC_NEVER, together;
    struct ngd_joint joint;

    m->ops->foresee(m, first, clip(m, m->rows), &joint);
    together = joint.cost == NGD_NSEC_NEVER ? 0 : joint.cost + SURE * joint.doubt;
    for (int i = 0; i < NGD_PRIORITIES; i++) {
        ngd_list_for_each (l, &m->timed[i]) {
            const struct ngd_sched_item *item = item_of(l);
            const ngd_nsec_t twice = 2 * (item->cost + item->doubt), need = twice > together ? twice : together;

            if (item->deadline - need < latest)
                latest = item->deadline - need;
        }
    }
    return latest;
}

/* Others do not wait for this: only when nothing else is queued. Nor does what fills the largest bucket there is. */
bool ngd_merge_waits(struct ngd_lineup *lineup, ngd_nsec_t now, ngd_nsec_t *until_p)
{
    struct ngd_merge *m = lineup->merging;
    const struct ngd_sched_item *first = m ? first_of(m) : NULL;

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

/* ---- who runs ----------------------------------------------------------------------------------------- */

/* A look at those that wait, for one that is to run; with or without taking them. */
struct look {
    struct ngd_lineup *lineup; /* NULL: it is only supposed */
    struct ngd_sched_item *lead;
    ngd_nsec_t now, end;
    int64_t planned, room; /* rows; room is what is left for mates */
    uint64_t number;       /* of the supposition */
    ngd_nsec_t foretold;   /* when it and its mates end */
    bool take;
    uint32_t looked, mates;
};

/* A mate leaves the lineup. It was not chosen by the policy, so it is charged for all of its part afterwards. */
static void take_mate(struct look *look, struct ngd_sched_item *mate)
{
    ngd_caps_remove(&look->lineup->caps, mate, look->now);
    mate->queued = false;
    look->lineup->depth--;
    ngd_merge_leave(mate);
    mate->cost = 0;
    mate->merge_running = true;
    ngd_list_push_back(&look->lead->mates, &mate->merge_link);
}

static bool is_there(const struct look *look, const struct ngd_sched_item *mate)
{
    if (look->lineup)
        return !ngd_caps_hold(&look->lineup->caps, mate, look->now) && mate->deadline > look->now;
    return !mate->held && mate->laid != look->number;
}

/* Behind `after`. */
static void look_at(struct look *look, const struct ngd_list *list, struct ngd_list *after)
{
    struct ngd_list *l = after->next, *next;

    for (; l != list && look->room > 0 && look->looked < LOOK_MAX; l = next, look->looked++) {
        struct ngd_sched_item *mate = item_of(l);

        next = l->next;
        if (mate->rows > look->room || !is_there(look, mate) ||
            !look->lead->merge->ops->joins(look->lead, mate, look->planned))
            continue;
        look->room -= mate->rows;
        look->mates++;
        if (look->take && look->lineup) {
            take_mate(look, mate);
        } else if (look->take) {
            mate->laid = look->number;
            mate->foretold = look->foretold;
        }
    }
}

/* A policy that foretells has laid out what is more urgent, or due before. */
static void look_around(struct look *look)
{
    struct ngd_merge *m = look->lead->merge;

    if (!look->lineup) {
        look_at(look, &m->timed[look->lead->priority], &look->lead->merge_link);
        return;
    }
    for (int c = 0; c <= (int)look->lead->priority; c++) {
        look_at(look, &m->timed[c], &m->timed[c]);
        if (!is_timed(look->lead))
            look_at(look, &m->untimed[c], &m->untimed[c]);
    }
}

/* The rows that could run together, were the largest bucket there; the lead's own if nobody could join it. */
static int64_t rows_together(const struct look *at)
{
    struct look look = *at;
    const int64_t own = look.lead->rows, room = clip(look.lead->merge, INT64_MAX) - own;

    look.room = room;
    look.planned = 0;
    look.end = look.now;
    look.take = false;
    look_around(&look);
    return own + room - look.room;
}

/* As many of the rows as end in time for the lead, but for what it may drift; all, if it would be late alone too. */
static int64_t rows_in_time(const struct ngd_sched_item *lead, int64_t rows, ngd_nsec_t start)
{
    struct ngd_merge *m = lead->merge;
    struct ngd_joint joint;

    if (!is_timed(lead) || start + lead->cost > lead->deadline)
        return rows;
    while (rows > lead->rows) {
        m->ops->foresee(m, lead, rows, &joint);
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
    struct look look = {.lineup = lineup, .lead = item, .now = now, .take = true};
    const ngd_nsec_t waited = ngd_linger_began(&m->linger, now);
    struct ngd_joint joint = {.cost = NGD_NSEC_NEVER};
    int64_t rows = item->rows;

    if (waited > 0)
        ngd_metric_observe(NGD_M_MERGE_WAIT_SECONDS, waited);
    if (m->n_waiting)
        rows = rows_in_time(item, rows_together(&look), now);
    if (rows > item->rows) {
        m->ops->choose(m, item, rows, now, &joint);
        look.planned = joint.planned;
        look.room = clip(m, joint.planned) - item->rows;
        look.end = joint.cost == NGD_NSEC_NEVER ? now : now + joint.cost;
        look_around(&look);
    }
    item->merge_running = true;
    atomic_fetch_add_explicit(&m->running, 1 + look.mates, memory_order_relaxed);
    return look.mates && joint.cost != NGD_NSEC_NEVER ? joint.cost : item->cost;
}

void ngd_merge_take_inline(struct ngd_sched_item *item)
{
    struct ngd_merge *m = item->merge;
    uint32_t running = atomic_fetch_add_explicit(&m->running, 1, memory_order_relaxed);

    item->merge_running = true;
    ngd_linger_arrived(&m->linger, item->arrival, running + 1);
    (void)ngd_linger_began(&m->linger, item->arrival);
}

/* ---- foretelling -------------------------------------------------------------------------------------- */

void ngd_merge_foresee(struct ngd_sched_item *lead, ngd_nsec_t start, uint64_t look, struct ngd_joint *joint_p)
{
    const struct look at = {.lead = lead, .now = start, .number = look};
    const int64_t rows = rows_in_time(lead, rows_together(&at), start);
    struct ngd_joint joint = {.planned = 0};

    if (rows > lead->rows)
        lead->merge->ops->foresee(lead->merge, lead, rows, &joint);
    if (joint.planned <= lead->rows || joint.cost == NGD_NSEC_NEVER)
        joint = (struct ngd_joint){.planned = lead->rows, .cost = lead->cost, .doubt = lead->doubt};
    *joint_p = joint;
}

void ngd_merge_lay_out(struct ngd_sched_item *lead, ngd_nsec_t start, const struct ngd_joint *joint, uint64_t look,
                       ngd_nsec_t foretold)
{
    struct look at = {.lead = lead,
                      .now = start,
                      .end = start + joint->cost,
                      .planned = joint->planned,
                      .room = clip(lead->merge, joint->planned) - lead->rows,
                      .number = look,
                      .foretold = foretold,
                      .take = true};

    look_around(&at);
}
