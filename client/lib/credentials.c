/* SPDX-License-Identifier: Apache-2.0 */
#include "client/lib/credentials.h"
#include "client/lib/error.h"

#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <stdio.h>
#include <stdlib.h>

#define MAX_PEM (1 << 20)

static char *read_pem(const char *path, struct npugraph_error *err)
{
    FILE *f = fopen(path, "re");
    char *text = f != NULL ? calloc(1, MAX_PEM + 1) : NULL;
    size_t n = text != NULL ? fread(text, 1, MAX_PEM, f) : 0;

    if (f != NULL)
        fclose(f);
    if (n == 0) {
        free(text);
        npugraph__error(err, GRPC_STATUS_INVALID_ARGUMENT, "FILE_NOT_FOUND", "%s: cannot read a PEM file there", path);
        return NULL;
    }
    return text;
}

int npugraph__credentials_make(const struct npugraph_connect_params *p, struct grpc_channel_credentials **creds_p,
                               struct npugraph_error *err)
{
    grpc_ssl_pem_key_cert_pair pair = {NULL, NULL};
    char *ca = NULL, *cert = NULL, *key = NULL;
    int rc = GRPC_STATUS_INVALID_ARGUMENT;

    if ((p->tls_cert == NULL) != (p->tls_key == NULL))
        return npugraph__error(err, rc, "INVALID_ARGUMENT",
                               "a client certificate needs both its certificate and its key file");
    if (p->tls_ca == NULL && p->tls_cert == NULL) {
        *creds_p = grpc_insecure_credentials_create();
        return 0;
    }
    if (p->tls_ca != NULL && (ca = read_pem(p->tls_ca, err)) == NULL)
        return rc;
    if (p->tls_cert != NULL &&
        ((cert = read_pem(p->tls_cert, err)) == NULL || (key = read_pem(p->tls_key, err)) == NULL))
        goto out;
    pair.cert_chain = cert;
    pair.private_key = key;
    *creds_p = grpc_ssl_credentials_create_ex(ca, cert != NULL ? &pair : NULL, NULL, NULL);
    rc = *creds_p != NULL ? 0
                          : npugraph__error(err, rc, "INVALID_ARGUMENT", "the TLS files do not make valid credentials");
out:
    free(ca);
    free(cert);
    free(key);
    return rc;
}
