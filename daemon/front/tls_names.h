/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_FRONT_TLS_NAMES_H
#define NGD_DAEMON_FRONT_TLS_NAMES_H

/*
 * The identity that a client certificate proves: `tls-uri:` and its first URI, else `tls-dns:` and its first DNS name,
 * else, if that is allowed, `tls-cn:` and its common name. The kind is part of the identity, so a URI and a DNS name of
 * the same text are two identities. DNS names are taken in lower case.
 * Threads: any. Memory: nothing is kept.
 */
#include "base/status.h"
#include "daemon/front/wire_io.h"
#include <stddef.h>
#include <stdint.h>

struct x509_st;

/*
 * UNAUTHENTICATED with a sentence when the certificate has no such name, or when the first one has a character other
 * than printable ASCII, or does not fit. No name is ever cut, and no other name is taken in place of a bad one.
 */
ngd_status_t ngd_tls_name(const struct x509_st *cert, bool allow_cn, char name[NGD_WIRE_IDENTITY_MAX],
                          struct ngd_diag *diag);
/* The same of a certificate in DER, for tests. */
ngd_status_t ngd_tls_name_of_der(const uint8_t *der, size_t n, bool allow_cn, char name[NGD_WIRE_IDENTITY_MAX],
                                 struct ngd_diag *diag);

#endif
