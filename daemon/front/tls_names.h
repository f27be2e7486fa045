/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_FRONT_TLS_NAMES_H
#define NGD_DAEMON_FRONT_TLS_NAMES_H

/*
 * Finds the identity that a client certificate proves: `tls-uri:` and its first URI; else `tls-dns:` and its first DNS
 * name; else, if allowed, `tls-cn:` and its common name. The kind is part of the identity, so a URI and a DNS name with
 * the same text are two identities. DNS names are converted to lower case.
 * Threads: any. Memory: nothing is kept.
 */
#include "base/status.h"
#include "daemon/front/wire_io.h"
#include <stddef.h>
#include <stdint.h>

struct x509_st;

/*
 * Writes the identity's name. UNAUTHENTICATED with a sentence: the certificate has no such name, or the first one has a
 * character other than printable ASCII, or is too long. A name is never truncated, and no other name replaces a bad
 * one.
 */
ngd_status_t ngd_tls_name(const struct x509_st *cert, bool allow_cn, char name[NGD_WIRE_IDENTITY_MAX],
                          struct ngd_diag *diag);
/* Like ngd_tls_name, for a certificate in DER, for tests. */
ngd_status_t ngd_tls_name_of_der(const uint8_t *der, size_t n, bool allow_cn, char name[NGD_WIRE_IDENTITY_MAX],
                                 struct ngd_diag *diag);

#endif
