/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_SCHEDULER_MODEL_PROMPT_PACE_H
#define NGD_SCHEDULER_MODEL_PROMPT_PACE_H

/*
 * Pacing of prompts beside decode steps. Prompts run in slices, so that a step waits no longer than `percent` of its
 * own time.
 *
 * Each step earns the prompts that share of its measured time; a slice spends the time it takes. At most one step's
 * share is saved up. A slice that overruns, because its device could not stop earlier, leaves a debt, and the next
 * steps run without a slice between them. If there were steps lately, slices stay short even while no step waits, so
 * the next step waits for one slice at most. If a device's stopping points are too far apart for the share, chunks get
 * fewer rows; when they fit again, more.
 *
 * Threads: the worker that runs the model. The caller passes the time.
 */
#include "base/clock.h"
#include <stdbool.h>
#include <stdint.h>

#define NGD_PACE_PERCENT_DEFAULT 40
#define NGD_PACE_PERCENT_MAX     1000

struct ngd_pace {
    uint32_t percent; /* 0: no bound; chunks and steps alternate */
    uint32_t max_rows;
    uint32_t rows;         /* of a chunk at present */
    uint32_t rows_before;  /* of a chunk before the last reduction */
    ngd_nsec_t far_before; /* longest distance between stopping points at that time */
    ngd_nsec_t far_anyway; /* a distance that fewer rows do not reduce; 0: unknown */
    uint32_t probed;       /* while more rows are tried: the rows that fit before */
    uint32_t fit, misfit;  /* chunks in a row that fitted, or did not */
    uint32_t patience;     /* chunks that must fit before more rows are tried */
    bool loose;            /* no steps lately: chunks run whole */
    ngd_nsec_t step;       /* moving average of a decode step's device time; 0: none has been made */
    ngd_nsec_t last;       /* when the last one ended */
    ngd_nsec_t allowance;  /* ns that slices may use while steps wait; negative: debt */
    ngd_nsec_t unpaid;     /* the last slice's time; charged if a step waited for it */
};

void ngd_pace_init(struct ngd_pace *pace, uint32_t percent, uint32_t max_rows);
/* Notes that a decode step has ended. */
void ngd_pace_stepped(struct ngd_pace *pace, ngd_nsec_t now, ngd_nsec_t time);
/* Returns true if a slice may run next. Call once for each turn, even if no step waits. */
bool ngd_pace_may_run(struct ngd_pace *pace, bool steps_wait);
/* Returns how long the next slice may take, ns; NGD_NSEC_NEVER: no bound. */
ngd_nsec_t ngd_pace_slice(const struct ngd_pace *pace, ngd_nsec_t now, bool steps_wait);
void ngd_pace_sliced(struct ngd_pace *pace, ngd_nsec_t time);
/* Notes that a chunk has ended; longest: its longest time between two stopping points, ns. */
void ngd_pace_chunk(struct ngd_pace *pace, ngd_nsec_t now, uint32_t rows, ngd_nsec_t longest);

#endif
