/* SPDX-License-Identifier: Apache-2.0 */
#include "scheduler/model/prompt_pace.h"

#define LATELY        NGD_SEC         /* steps are expected for this long after the last one */
#define SLICE_MAX     (20 * NGD_MSEC) /* longest slice while no step waits: other work uses the device too */
#define OWED_MAX      (4 * SLICE_MAX) /* one slice of a second must not stop all prompts for a minute */
#define ROWS_MIN      4
#define FIRST_PART    4               /* chunks get 1/FIRST_PART of the rows after the first step */
#define PATIENCE_MIN  2               /* chunks that must fit before more rows are tried */
#define PATIENCE_MAX  64              /* likewise, where more rows did not fit before */
#define HELPED(x)     ((x) - (x) / 4) /* fewer rows have helped if the distance is now below this */
#define FARTHER(x)    ((x) + (x) / 2) /* beyond this distance fewer rows are tried again */
/* Contexts grow, and chunks take longer with them, so rows are reduced before the share is reached. */
#define NEAR(share)   ((share)*4 / 5)
#define WANTED(share) ((share)*3 / 5)
#define AVERAGE_OF    8

static void be_loose(struct ngd_pace *pace)
{
    pace->loose = true;
    pace->rows = pace->max_rows;
    pace->rows_before = pace->probed = pace->fit = pace->misfit = 0;
    pace->far_anyway = 0;
    pace->patience = PATIENCE_MIN;
}

void ngd_pace_init(struct ngd_pace *pace, uint32_t percent, uint32_t max_rows)
{
    *pace = (struct ngd_pace){.percent = percent, .max_rows = max_rows};
    be_loose(pace);
}

static ngd_nsec_t share_of(const struct ngd_pace *pace, ngd_nsec_t time)
{
    return time / 100 * pace->percent + 1;
}

static bool steps_lately(const struct ngd_pace *pace, ngd_nsec_t now)
{
    return pace->step > 0 && now - pace->last < LATELY;
}

void ngd_pace_stepped(struct ngd_pace *pace, ngd_nsec_t now, ngd_nsec_t time)
{
    const ngd_nsec_t earned = share_of(pace, time);

    pace->step = pace->step ? pace->step + (time - pace->step) / AVERAGE_OF : time + 1;
    pace->last = now;
    if (pace->loose && pace->percent) {
        pace->loose = false;
        pace->rows = pace->max_rows > ROWS_MIN * FIRST_PART ? pace->max_rows / FIRST_PART : pace->max_rows;
    }
    pace->allowance = pace->allowance + earned > earned ? earned : pace->allowance + earned;
}

bool ngd_pace_may_run(struct ngd_pace *pace, bool steps_wait)
{
    if (steps_wait)
        pace->allowance -= pace->unpaid;
    if (pace->allowance < -OWED_MAX)
        pace->allowance = -OWED_MAX;
    pace->unpaid = 0;
    return pace->percent == 0 || !steps_wait || pace->allowance > 0;
}

ngd_nsec_t ngd_pace_slice(const struct ngd_pace *pace, ngd_nsec_t now, bool steps_wait)
{
    const ngd_nsec_t share = share_of(pace, pace->step);

    if (pace->percent == 0)
        return NGD_NSEC_NEVER;
    if (steps_wait)
        return pace->allowance;
    return steps_lately(pace, now) && share < SLICE_MAX ? share : SLICE_MAX;
}

void ngd_pace_sliced(struct ngd_pace *pace, ngd_nsec_t time)
{
    pace->unpaid += time;
}

/* ---- rows --------------------------------------------------------------------------------------------- */

static uint32_t fewer(uint32_t rows, ngd_nsec_t longest, ngd_nsec_t share)
{
    const ngd_nsec_t fit = (ngd_nsec_t)rows * WANTED(share) / longest;

    return fit < ROWS_MIN ? ROWS_MIN : (uint32_t)fit;
}

/*
 * Reduces the rows after chunks whose stopping points were too far apart. If the distance does not depend on the rows,
 * goes back to the rows before.
 */
static void too_far(struct ngd_pace *pace, ngd_nsec_t longest, ngd_nsec_t share)
{
    const uint32_t rows = pace->rows;

    pace->fit = 0;
    if (pace->probed) {
        pace->rows = pace->probed;
        pace->patience = pace->patience < PATIENCE_MAX / 2 ? pace->patience * 2 : PATIENCE_MAX;
    } else if (pace->rows_before && longest > HELPED(pace->far_before)) {
        pace->rows = pace->rows_before;
        pace->rows_before = 0;
        pace->far_anyway = longest;
    } else if (rows > ROWS_MIN && longest > FARTHER(pace->far_anyway)) {
        pace->rows_before = rows;
        pace->far_before = longest;
        pace->far_anyway = 0;
        pace->rows = fewer(rows, longest, share);
        pace->patience = PATIENCE_MIN;
    }
    pace->probed = 0;
}

static void near_enough(struct ngd_pace *pace)
{
    pace->misfit = 0;
    pace->rows_before = 0;
    if (pace->probed)
        pace->patience = PATIENCE_MIN;
    pace->probed = 0;
    if (++pace->fit < pace->patience || pace->rows == pace->max_rows)
        return;
    pace->fit = 0;
    pace->probed = pace->rows;
    pace->rows += pace->rows / 4; /* by a quarter, so that a distance that was near enough stays within the share */
    if (pace->rows > pace->max_rows)
        pace->rows = pace->max_rows;
}

void ngd_pace_chunk(struct ngd_pace *pace, ngd_nsec_t now, uint32_t rows, ngd_nsec_t longest)
{
    const ngd_nsec_t share = share_of(pace, pace->step);

    if (pace->percent == 0 || !steps_lately(pace, now)) {
        be_loose(pace);
    } else if (rows >= pace->rows) { /* the last, shorter chunk of a prompt tells nothing */
        if (longest <= NEAR(share))
            near_enough(pace);
        else if (++pace->misfit > 1 || pace->probed || longest > 2 * share) /* a single one may be chance */
            too_far(pace, longest, share);
    }
}
