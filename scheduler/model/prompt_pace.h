/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_SCHEDULER_MODEL_PROMPT_PACE_H
#define NGD_SCHEDULER_MODEL_PROMPT_PACE_H

/*
 * How a model's prompts are processed beside its decode steps: in slices, so that a step waits for no more than a share
 * (`percent`) of its own time.
 *
 * Each step earns the prompts that share of its measured time, and a slice spends what it takes. Nothing is saved up
 * beyond one step's share; what a slice overran, because its device could not stop earlier, is owed, and the next steps
 * go without. Steps that nobody asks for at the moment, but did lately, are reckoned with: whoever asks next waits for
 * one slice at most. The number of rows of a chunk goes down when a device's places to stop lie too far apart for the
 * share, and up again when they do not.
 *
 * Threads: the worker that has the model. Time is given to it, so tests need not wait.
 */
#include "base/clock.h"
#include <stdbool.h>
#include <stdint.h>

#define NGD_PACE_PERCENT_DEFAULT 40
#define NGD_PACE_PERCENT_MAX     1000

struct ngd_pace {
    uint32_t percent; /* 0: no bound; prompts' chunks and steps take turns */
    uint32_t max_rows;
    uint32_t rows;         /* of a chunk at present */
    uint32_t rows_before;  /* what it was before it was made less */
    ngd_nsec_t far_before; /* and how far apart the places to stop were then */
    ngd_nsec_t far_anyway; /* fewer rows do not help against places so far apart; 0: not known */
    uint32_t probed;       /* more rows are being tried than these, which fit */
    uint32_t fit, misfit;  /* chunks in a row that fitted, or did not */
    uint32_t patience;     /* chunks that must fit before more rows are tried */
    bool loose;            /* no steps to reckon with: chunks are whole */
    ngd_nsec_t step;       /* moving average of a decode step's device time; 0: none has been made */
    ngd_nsec_t last;       /* when the last one ended */
    ngd_nsec_t allowance;  /* what slices may spend while steps wait; negative: owed */
    ngd_nsec_t unpaid;     /* the last slice's time: paid if a step has waited for it */
};

void ngd_pace_init(struct ngd_pace *pace, uint32_t percent, uint32_t max_rows);
/* A decode step has ended. */
void ngd_pace_stepped(struct ngd_pace *pace, ngd_nsec_t now, ngd_nsec_t time);
/* May a slice run next, though steps wait? Asked once for each turn, also when none waits. */
bool ngd_pace_may_run(struct ngd_pace *pace, bool steps_wait);
/* How long the slice that is about to run may take; NGD_NSEC_NEVER: as long as it likes. */
ngd_nsec_t ngd_pace_slice(const struct ngd_pace *pace, ngd_nsec_t now, bool steps_wait);
void ngd_pace_sliced(struct ngd_pace *pace, ngd_nsec_t time);
/* A chunk of so many rows is over; longest: the longest stretch of it without a place to stop. */
void ngd_pace_chunk(struct ngd_pace *pace, ngd_nsec_t now, uint32_t rows, ngd_nsec_t longest);

#endif
