/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NPUGRAPH_CLIENT_TOKEN_H
#define NPUGRAPH_CLIENT_TOKEN_H

#include "client/lib/npugraph.h"

/*
 * Reads a bearer token from a file: one word, with or without a newline. path: NULL = $NPUGRAPH_TOKEN_FILE; if neither
 * names a file, *header_p is NULL. Otherwise it is the value of metadata authorization, which the caller frees. Errors
 * name the file and never its contents.
 */
int npugraph__token_header(const char *path, char **header_p, struct npugraph_error *err);
/* Refuses to send a header, if there is one, to an address of another machine without TLS, where it would be seen. */
int npugraph__token_check(const char *header, const char *address, bool tls, struct npugraph_error *err);

#endif
