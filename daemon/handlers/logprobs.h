/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_HANDLERS_LOGPROBS_H
#define NGD_DAEMON_HANDLERS_LOGPROBS_H

/* Log-probabilities to messages, and from them. */
#include "proto/npugraph.pb-c.h"
#include "scheduler/model/model.h"

/* n messages, in one allocation. */
struct ngd_logprob_list {
    Npugraph__V1__Logprobs **items;
    size_t n;
};
ngd_status_t ngd_logprob_list_make(const struct ngd_logprobs *lp, size_t n, struct ngd_logprob_list *list_p);
void ngd_logprob_list_free(struct ngd_logprob_list *list);
/* Reads a message. Whose tokens they are is checked by who takes them. */
void ngd_logprobs_of_message(const Npugraph__V1__Logprobs *m, struct ngd_logprobs *lp);

#endif
