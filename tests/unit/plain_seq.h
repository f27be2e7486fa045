/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_TESTS_PLAIN_SEQ_H
#define NGD_TESTS_PLAIN_SEQ_H

/* Operations on sequences with the parameters that most tests need. */
#include "scheduler/model/model.h"

static inline ngd_status_t plain_step(struct ngd_seq *seq, int32_t forced, bool want_logits, ngd_step_fn done,
                                      void *user, struct ngd_diag *diag)
{
    const struct ngd_step_params params = {.forced = forced, .want_logits = want_logits, .priority = NGD_PRIORITY_OWN};

    return ngd_seq_step(seq, &params, done, user, diag);
}

static inline ngd_status_t plain_generate(struct ngd_seq *seq, uint32_t max_tokens, bool ignore_stop,
                                          ngd_token_fn on_token, ngd_generate_done_fn done, void *user,
                                          struct ngd_diag *diag)
{
    const struct ngd_generate_params params = {
        .max_tokens = max_tokens, .ignore_stop = ignore_stop, .priority = NGD_PRIORITY_OWN};

    return ngd_seq_generate(seq, &params, on_token, done, user, diag);
}

static inline ngd_status_t plain_fork(struct ngd_seq *seq, const struct ngd_sampling *sampling, bool want_logits,
                                      ngd_step_fn done, void *user, struct ngd_seq **seq_p, struct ngd_diag *diag)
{
    const struct ngd_fork_params params = {.sampling = *sampling, .want_logits = want_logits};

    return ngd_seq_fork(seq, &params, done, user, seq_p, diag);
}

#endif
