/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_HANDLERS_MODELS_H
#define NGD_DAEMON_HANDLERS_MODELS_H

/* Shared by models.c and the handover to another daemon. */
#include "proto/npugraph.pb-c.h"
#include "scheduler/model/model.h"

struct ngd_daemon;
struct ngd_identity;

struct ngd_model_graphs {
    struct ngd_binding *prefill, *decode; /* borrowed; decode NULL: embeddings alone */
};
/* Makes the model that a request describes, and captures its graphs. Blocks. The request's ids of graphs are not
 * read. */
ngd_status_t ngd_model_build(struct ngd_daemon *d, struct ngd_identity *owner,
                             const Npugraph__V1__RegisterModelRequest *q, const struct ngd_model_graphs *graphs,
                             struct ngd_model **model_p, struct ngd_diag *diag);

#endif
