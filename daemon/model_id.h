/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_MODEL_ID_H
#define NGD_DAEMON_MODEL_ID_H

/*
 * Identifies what a model computes with, so that a client can tell whether another daemon has the same model: the
 * vocabulary, the stop tokens, each graph's operators and parameters, and where the parameters' contents were loaded
 * from. Sizes that a load chooses by the room on the device (KV blocks, buckets) are no part of it. Weights that a
 * client wrote count by their names and types alone: nobody has noted their contents.
 * Threads: any.
 */
#include "base/digest.h"
#include "base/status.h"
#include "proto/npugraph.pb-c.h"

struct ngd_binding;

/* Computes the id of a model. decode: may be the same as prefill. NO_MEMORY. */
ngd_status_t ngd_model_id(const Npugraph__V1__RegisterModelRequest *q, const struct ngd_binding *prefill,
                          const struct ngd_binding *decode, struct ngd_digest *id_p);

#endif
