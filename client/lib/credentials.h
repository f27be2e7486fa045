/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NPUGRAPH_CLIENT_CREDENTIALS_H
#define NPUGRAPH_CLIENT_CREDENTIALS_H

#include "client/lib/npugraph.h"

struct grpc_channel_credentials;
/* Reads the TLS files that the parameters name; without any, the channel is plaintext. The caller releases *creds_p. */
int npugraph__credentials_make(const struct npugraph_connect_params *params, struct grpc_channel_credentials **creds_p,
                               struct npugraph_error *err);

#endif
