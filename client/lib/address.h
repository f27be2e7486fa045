/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NPUGRAPH_CLIENT_ADDRESS_H
#define NPUGRAPH_CLIENT_ADDRESS_H

/* Addresses of daemons: which one counts, and what is wrong with it. */
#include "client/lib/npugraph.h"

/* Returns the given address; NULL: $NPUGRAPH_ADDRESS, or the socket of the system's daemon. */
const char *npugraph__address_choose(const char *given);
/* Refuses an address without a port. gRPC would look it up as a host, and report that there is none. */
int npugraph__address_check(const char *address, struct npugraph_error *err);
/* Replaces gRPC's text, in err->message, of why the daemon cannot be reached by a sentence that says what to do. */
void npugraph__address_explain(const char *address, bool tls, struct npugraph_error *err);

#endif
