/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/front/tls_names.h"
#include <ctype.h>
#include <limits.h>
#include <openssl/err.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <string.h>

static ngd_status_t put_name(const char *kind, const ASN1_STRING *text, char name[NGD_WIRE_IDENTITY_MAX],
                             struct ngd_diag *diag)
{
    const unsigned char *bytes = ASN1_STRING_get0_data(text);
    int n = ASN1_STRING_length(text);
    size_t at = strlen(kind);

    if (n <= 0)
        return ngd_diag_set(diag, NGD_ERR_UNAUTHENTICATED, "the name (%.7s) in the client's certificate is empty",
                            kind);
    if (at + (size_t)n >= NGD_WIRE_IDENTITY_MAX)
        return ngd_diag_set(diag, NGD_ERR_UNAUTHENTICATED,
                            "the name (%.7s) in the client's certificate has %d bytes; at most %zu are taken", kind, n,
                            NGD_WIRE_IDENTITY_MAX - 1 - at);
    for (int i = 0; i < n; i++)
        if (bytes[i] <= 0x20 || bytes[i] >= 0x7f)
            return ngd_diag_set(diag, NGD_ERR_UNAUTHENTICATED,
                                "byte %d of the name (%.7s) in the client's certificate is 0x%02x; names are printable "
                                "ASCII without spaces",
                                i, kind, bytes[i]);
    memcpy(name, kind, at);
    for (int i = 0; i < n; i++)
        name[at++] = (char)(kind[4] == 'd' ? tolower(bytes[i]) : bytes[i]);
    name[at] = '\0';
    return NGD_OK;
}

static const ASN1_STRING *first_name(const GENERAL_NAMES *names, int type)
{
    for (int i = 0; i < sk_GENERAL_NAME_num(names); i++) {
        const GENERAL_NAME *one = sk_GENERAL_NAME_value(names, i);

        if (one->type == type)
            return one->d.ia5; /* the field of both URI and DNS */
    }
    return NULL;
}

static ngd_status_t common_name(const X509 *cert, bool allow_cn, char name[NGD_WIRE_IDENTITY_MAX],
                                struct ngd_diag *diag)
{
    const X509_NAME *subject = X509_get_subject_name(cert);
    int at = X509_NAME_get_index_by_NID(subject, NID_commonName, -1);

    if (!allow_cn || at < 0)
        return ngd_diag_set(diag, NGD_ERR_UNAUTHENTICATED, "the client's certificate has no URI and no DNS name%s",
                            allow_cn ? ", and no common name" : "; a common name counts with tls-allow-cn only");
    if (X509_NAME_get_index_by_NID(subject, NID_commonName, at) >= 0)
        return ngd_diag_set(diag, NGD_ERR_UNAUTHENTICATED, "the client's certificate has several common names");
    return put_name("tls-cn:", X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, at)), name, diag);
}

ngd_status_t ngd_tls_name(const X509 *cert, bool allow_cn, char name[NGD_WIRE_IDENTITY_MAX], struct ngd_diag *diag)
{
    int why = 0;
    GENERAL_NAMES *names = X509_get_ext_d2i(cert, NID_subject_alt_name, &why, NULL);
    const ASN1_STRING *uri = names ? first_name(names, GEN_URI) : NULL,
                      *dns = names ? first_name(names, GEN_DNS) : NULL;
    ngd_status_t status;

    if (!names && why != -1) /* the extension cannot be read, or there are two */
        status = ngd_diag_set(diag, NGD_ERR_UNAUTHENTICATED,
                              "the alternative names in the client's certificate cannot be read");
    else if (uri)
        status = put_name("tls-uri:", uri, name, diag);
    else if (dns)
        status = put_name("tls-dns:", dns, name, diag);
    else
        status = common_name(cert, allow_cn, name, diag);
    GENERAL_NAMES_free(names);
    ERR_clear_error();
    return status;
}

ngd_status_t ngd_tls_name_of_der(const uint8_t *der, size_t n, bool allow_cn, char name[NGD_WIRE_IDENTITY_MAX],
                                 struct ngd_diag *diag)
{
    const unsigned char *at = der;
    X509 *cert = n <= LONG_MAX ? d2i_X509(NULL, &at, (long)n) : NULL;
    ngd_status_t status;

    if (!cert) {
        ERR_clear_error();
        return ngd_diag_set(diag, NGD_ERR_UNAUTHENTICATED, "the certificate cannot be read");
    }
    status = ngd_tls_name(cert, allow_cn, name, diag);
    X509_free(cert);
    return status;
}
