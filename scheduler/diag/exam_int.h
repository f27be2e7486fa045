/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_SCHEDULER_DIAG_EXAM_INT_H
#define NGD_SCHEDULER_DIAG_EXAM_INT_H

/* What exam.c, doctor.c and trace.c share: the subject of an examination, and errands to a slot. */
#include "base/mem.h"
#include "scheduler/diag/exam.h"
#include "scheduler/program/program_int.h"
#include "scheduler/diag/trial.h"

struct ngd_exam {
    struct ngd_program *prog;
    struct ngd_key key;
    int64_t symbols[NGD_GRAPH_MAX_SYMBOLS];
    uint32_t n_bound;
    struct ngd_buffer **buffers; /* as bound, or drawn */
    struct ngd_launch launch;
    struct ngd_arena arena; /* inputs and host parameters */
};
/* Of zeroed memory; fini also after a failure. */
ngd_status_t ngd_exam_init(struct ngd_exam *exam, const struct ngd_exam_params *params, struct ngd_diag *diag);
void ngd_exam_fini(struct ngd_exam *exam);

/* Runs fn on a slot of the program's device and waits. CANCELLED: the scheduler stops. */
ngd_status_t ngd_exam_on_slot(struct ngd_exam *exam, void (*fn)(void *arg, struct ngd_slot *slot), void *arg,
                              struct ngd_diag *diag);

#endif
