/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_HANDLERS_LOGPROBS_H
#define NGD_DAEMON_HANDLERS_LOGPROBS_H

/* What sequence requests have in common: log-probabilities for a message, and priorities. */
#include "proto/npugraph.pb-c.h"
#include "scheduler/model/model.h"

/* Messages made of n entries, in one piece of memory. */
struct ngd_logprob_list {
    Npugraph__V1__Logprobs **items;
    size_t n;
};
ngd_status_t ngd_logprob_list_make(const struct ngd_logprobs *lp, size_t n, struct ngd_logprob_list *list_p);
void ngd_logprob_list_free(struct ngd_logprob_list *list);

/* own: 0 is the sequence's own class and 3 the normal one; else 0 is normal. */
ngd_status_t ngd_sequence_priority(uint32_t value, bool own, ngd_priority_t *priority_p, struct ngd_diag *diag);

#endif
