/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NPUGRAPH_CLIENT_TOKEN_H
#define NPUGRAPH_CLIENT_TOKEN_H

#include "client/lib/npugraph.h"
#include <sys/stat.h>

/*
 * A bearer token in a file: one word, with or without a newline. The file is read again when it has changed, since
 * tokens that live for a short time are replaced in place.
 * Threads: the caller's lock. A struct of zeros has no token.
 */
struct npugraph__token {
    char *path;       /* NULL: no file */
    char *header;     /* secret: the value of metadata authorization; NULL: no token */
    uint64_t number;  /* of the token: 1, and 1 more for each other one */
    struct stat seen; /* the file when it was read */
};

/* path: NULL = $NPUGRAPH_TOKEN_FILE; if neither names a file, there is no token. Errors name the file and never its
 * contents. */
int npugraph__token_open(struct npugraph__token *token, const char *path, struct npugraph_error *err);
void npugraph__token_close(struct npugraph__token *token);
/* Reads the file if it has changed since it was read, or in any case (always). A file that cannot be read, or has no
 * token, leaves the token as it was. */
void npugraph__token_refresh(struct npugraph__token *token, bool always);
/* Refuses to send a header, if there is one, to an address of another machine without TLS, where it would be seen. */
int npugraph__token_check(const char *header, const char *address, bool tls, struct npugraph_error *err);

#endif
