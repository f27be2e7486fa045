/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_HANDLERS_SAMPLING_H
#define NGD_DAEMON_HANDLERS_SAMPLING_H

/* Sampling parameters from and to messages. Memory: the arena's; lists may be borrowed from what is read. */
#include "base/mem.h"
#include "proto/npugraph.pb-c.h"
#include "scheduler/model/sampling.h"

/* Reads the parameters. NULL: greedy. The scheduler checks them. */
ngd_status_t ngd_sampling_of_message(struct ngd_arena *arena, const Npugraph__V1__Sampling *message,
                                     struct ngd_sampling *sampling_p);
/* False: no memory. */
bool ngd_sampling_to_message(struct ngd_arena *arena, const struct ngd_sampling *sampling,
                             Npugraph__V1__Sampling *message_p);

#endif
