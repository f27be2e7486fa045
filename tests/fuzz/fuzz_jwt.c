/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON Web Tokens and key sets. A token is read as if its signature were right, since no mutation has a right one. The
 * first byte says what the rest is: a token, its claims, its header, or a key set.
 */
#include "daemon/jwt_text.h"
#include "tests/fuzz/fuzz.h"
#include <jansson.h>

const uint32_t fuzz_runs = 20000;

static void demand_malformed(ngd_status_t status, const struct ngd_diag *diag)
{
    fuzz_demand(status == NGD_ERR_TOKEN_MALFORMED, "a token is refused for another reason than its form");
    fuzz_demand(diag->text[0] != '\0', "a token is refused without a diagnosis");
}

static void try_header(const struct ngd_jwt_parts *parts)
{
    struct ngd_jwt_header header;
    struct ngd_diag diag = {0};
    ngd_status_t status = ngd_jwt_read_header(parts, &header, &diag);

    if (status != NGD_OK) {
        demand_malformed(status, &diag);
        return;
    }
    fuzz_demand(header.alg != NULL, "a header is taken without an algorithm");
    fuzz_demand(memchr(header.kid, '\0', sizeof(header.kid)) != NULL, "a key id does not end");
}

static void try_texts(const json_t *claim)
{
    struct ngd_diag diag = {0};
    ngd_status_t status = ngd_jwt_check_texts(claim, "aud", &diag);
    size_t n = 0;

    if (status != NGD_OK) {
        demand_malformed(status, &diag);
        return;
    }
    while (ngd_jwt_nth_text(claim, n))
        n++;
    fuzz_demand(n == (json_is_array(claim) ? json_array_size(claim) : claim ? 1 : 0), "a text of a claim is lost");
}

static void try_claims(const struct ngd_jwt_parts *parts)
{
    struct ngd_jwt_times times;
    struct ngd_diag diag = {0};
    json_t *claims;
    ngd_status_t status = ngd_jwt_read_claims(parts, &claims, &diag);

    if (status != NGD_OK) {
        demand_malformed(status, &diag);
        return;
    }
    status = ngd_jwt_read_times(claims, &times, &diag);
    if (status == NGD_OK)
        fuzz_demand(times.expires >= 0 && times.not_before >= 0 && times.issued >= 0 &&
                        times.expires <= INT64_C(253402300799) && times.not_before <= INT64_C(253402300799) &&
                        times.issued <= INT64_C(253402300799),
                    "a time is out of range");
    else
        demand_malformed(status, &diag);
    try_texts(json_object_get(claims, "aud"));
    json_decref(claims);
}

static void try_token(const char *text, size_t n)
{
    struct ngd_jwt_parts parts;
    struct ngd_diag diag = {0};
    ngd_status_t status = ngd_jwt_split(text, n, &parts, &diag);

    if (status != NGD_OK) {
        demand_malformed(status, &diag);
        return;
    }
    fuzz_demand(ngd_jwt_has_form(text, n) && text[parts.n_signed] == '.', "the signed text does not end at a dot");
    try_header(&parts);
    try_claims(&parts);
    ngd_jwt_parts_fini(&parts);
}

static void try_keys(const char *text, size_t n)
{
    const struct ngd_jws_alg *alg = ngd_jws_alg_find("ES256");
    struct ngd_jwk_set set;
    struct ngd_diag diag = {0};
    const uint8_t signature[64] = {1};

    if (ngd_jwk_set_parse(text, n, &set, &diag) != NGD_OK) {
        fuzz_demand(diag.text[0] != '\0', "a key set is refused without a diagnosis");
        return;
    }
    fuzz_demand(set.n > 0 && set.n <= NGD_JWK_MAX, "a key set has no keys, or too many");
    for (size_t i = 0; i < set.n; i++)
        fuzz_demand(!ngd_jwk_fits(set.keys[i], alg, NULL) ||
                        !ngd_jwk_verify(set.keys[i], alg, "x", 1, signature, sizeof(signature)),
                    "a signature that is none is right");
    ngd_jwk_set_fini(&set);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    const size_t len = n ? n - 1 : 0;
    char *text = fuzz_text(data + (n > 0), len);
    const struct ngd_jwt_parts parts = {.header = text, .n_header = len, .claims = text, .n_claims = len};

    switch (n ? data[0] : 't') {
    case 'c':
        try_claims(&parts);
        break;
    case 'h':
        try_header(&parts);
        break;
    case 'k':
        try_keys(text, len);
        break;
    default:
        try_token(text, len);
    }
    ngd_free(text);
    return 0;
}
