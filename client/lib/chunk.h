/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NPUGRAPH_CLIENT_CHUNK_H
#define NPUGRAPH_CLIENT_CHUNK_H

/* One message of a download. Its data is copied once, out of the pieces in which it came; unpacking takes two copies
 * more. */
#include "client/lib/copier.h"
#include "client/lib/npugraph.h"
#include <stdbool.h>

struct npugraph__stream;

struct npugraph__download {
    uint64_t offset, bytes, got; /* where it begins in the buffer, how much was asked for, how much has come */
    char *to;                    /* room for `bytes` */
    struct npugraph__copier *copier;
};

/* Takes a ReadResponse, and gives its data to the copier. INTERNAL: it is none, or it is not the next part of what was
 * asked for. */
int npugraph__chunk_take(struct grpc_byte_buffer *raw, struct npugraph__download *d, struct npugraph_error *err);
/* Receives one and takes it. *more_p: false at the end of the call. */
int npugraph__chunk_receive(struct npugraph__stream *stream, struct npugraph__download *d, bool *more_p,
                            struct npugraph_error *err);

#endif
