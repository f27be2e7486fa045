/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_SCHEDULER_DIAG_DOCTOR_INT_H
#define NGD_SCHEDULER_DIAG_DOCTOR_INT_H

/*
 * Shared by doctor.c and trace.c: the subject, which is a graph with all that a run of it needs, and errands to a slot.
 */
#include "base/mem.h"
#include "scheduler/diag/doctor.h"
#include "scheduler/program/program_int.h"
#include "scheduler/diag/verify_form.h"

struct ngd_doctor_subject {
    struct ngd_program *prog;
    struct ngd_key key;
    int64_t symbols[NGD_GRAPH_MAX_SYMBOLS];
    uint32_t n_bound;
    struct ngd_buffer **buffers; /* bound by the client, or random */
    struct ngd_launch launch;
    struct ngd_arena arena; /* memory of inputs and host parameters */
};
/* The subject must be zeroed. Call fini after a failure too. */
ngd_status_t ngd_doctor_subject_init(struct ngd_doctor_subject *subject, const struct ngd_doctor_params *params,
                                     struct ngd_diag *diag);
void ngd_doctor_subject_fini(struct ngd_doctor_subject *subject);

/* Runs fn on a slot of the program's device and waits for its end. CANCELLED: the scheduler stopped first. */
ngd_status_t ngd_doctor_subject_on_slot(struct ngd_doctor_subject *subject,
                                        void (*fn)(void *arg, struct ngd_slot *slot), void *arg, struct ngd_diag *diag);

#endif
