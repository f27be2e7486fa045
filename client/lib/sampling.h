/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NPUGRAPH_SAMPLING_H
#define NPUGRAPH_SAMPLING_H

/* Sampling parameters as a message of the protocol. */
#include "client/lib/npugraph.h"
#include "proto/npugraph.pb-c.h"

struct npugraph__sampling {
    Npugraph__V1__Sampling message;
    Npugraph__V1__Sampling *message_or_null; /* for the request's field */
    void *lists;
};
/* Makes the message; it borrows the tokens. NULL means greedy, and leaves the message absent. */
int npugraph__sampling_init(struct npugraph__sampling *how, const struct npugraph_sampling *sampling,
                            struct npugraph_error *err);
void npugraph__sampling_fini(struct npugraph__sampling *how);

#endif
