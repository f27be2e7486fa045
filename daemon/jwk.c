/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A key is read in three steps: read_type() says from its names whether it is one for signatures that are known here,
 * make_key() gives its numbers to libcrypto, and add_key() compares it with those before it. A signature is checked by
 * ngd_jwk_verify(), by the row of `algs`.
 */
#include "daemon/jwk.h"
#include "base/base64url.h"
#include "base/mem.h"
#include "base/strbuf.h"
#include "daemon/json_text.h"
#include <jansson.h>
#include <openssl/core_names.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/param_build.h>
#include <openssl/rsa.h>
#include <stdatomic.h>
#include <string.h>

#define JWK_DEPTH     8
#define JWK_VALUES    8192
#define RSA_MIN_BITS  2048
#define RSA_MAX_BITS  8192
#define NUMBER_BYTES  (RSA_MAX_BITS / 8)
#define EXPONENT_MAX  8  /* bytes of an RSA key's exponent: a longer one makes checks slow */
#define EC_MAX_NUMBER 66 /* bytes of a coordinate of P-521 */

enum key_kind { KEY_RSA, KEY_P256, KEY_P384, KEY_P521, KEY_ED25519, KEY_KINDS };

static const struct key_type {
    const char *kty, *crv; /* crv NULL: the type has none */
    const char *group;     /* of libcrypto */
    size_t number;         /* bytes of a coordinate, of half a signature */
} key_types[KEY_KINDS] = {
    [KEY_RSA] = {.kty = "RSA"},
    [KEY_P256] = {"EC", "P-256", "P-256", 32},
    [KEY_P384] = {"EC", "P-384", "P-384", 48},
    [KEY_P521] = {"EC", "P-521", "P-521", EC_MAX_NUMBER},
    [KEY_ED25519] = {"OKP", "Ed25519", NULL, 32},
};

struct ngd_jws_alg {
    const char *name;
    enum key_kind kind;
    const char *hash; /* NULL: the algorithm has its own */
    bool pss;
};

/* NGD_JWK_ALGORITHMS, and the newer name of EdDSA with Ed25519 (RFC 9864). */
static const struct ngd_jws_alg algs[] = {
    {"RS256", KEY_RSA, "SHA256", false},  {"RS384", KEY_RSA, "SHA384", false},   {"RS512", KEY_RSA, "SHA512", false},
    {"PS256", KEY_RSA, "SHA256", true},   {"PS384", KEY_RSA, "SHA384", true},    {"PS512", KEY_RSA, "SHA512", true},
    {"ES256", KEY_P256, "SHA256", false}, {"ES384", KEY_P384, "SHA384", false},  {"ES512", KEY_P521, "SHA512", false},
    {"EdDSA", KEY_ED25519, NULL, false},  {"Ed25519", KEY_ED25519, NULL, false},
};

struct ngd_jwk {
    _Atomic uint32_t refs;
    _Atomic bool withdrawn;
    enum key_kind kind;
    const struct ngd_jws_alg *only; /* the key's alg; NULL: all of its kind */
    EVP_PKEY *pkey;
    struct ngd_digest print; /* of type, algorithm and numbers */
    char kid[NGD_JWK_KID_MAX + 1];
    bool has_kid;
};

const struct ngd_jws_alg *ngd_jws_alg_find(const char *name)
{
    for (size_t i = 0; i < sizeof(algs) / sizeof(algs[0]); i++)
        if (strcmp(algs[i].name, name) == 0)
            return &algs[i];
    return NULL;
}

/* ---- a key -------------------------------------------------------------------------------------------------- */

struct ngd_jwk *ngd_jwk_ref(struct ngd_jwk *key)
{
    atomic_fetch_add_explicit(&key->refs, 1, memory_order_relaxed);
    return key;
}

struct ngd_jwk *ngd_jwk_unref(struct ngd_jwk *key)
{
    if (key && atomic_fetch_sub_explicit(&key->refs, 1, memory_order_acq_rel) == 1) {
        EVP_PKEY_free(key->pkey);
        ngd_free(key);
    }
    return NULL;
}

void ngd_jwk_withdraw(struct ngd_jwk *key)
{
    atomic_store_explicit(&key->withdrawn, true, memory_order_relaxed);
}

bool ngd_jwk_is_withdrawn(const struct ngd_jwk *key)
{
    return atomic_load_explicit(&key->withdrawn, memory_order_relaxed);
}

static bool same_kid(const struct ngd_jwk *a, const struct ngd_jwk *b)
{
    return a->has_kid == b->has_kid && strcmp(a->kid, b->kid) == 0;
}

bool ngd_jwk_same(const struct ngd_jwk *a, const struct ngd_jwk *b)
{
    return same_kid(a, b) && ngd_digest_equal(&a->print, &b->print);
}

bool ngd_jwk_fits(const struct ngd_jwk *key, const struct ngd_jws_alg *alg, const char *kid)
{
    return key->kind == alg->kind && (!key->only || key->only == alg) &&
           (!kid || (key->has_kid && strcmp(key->kid, kid) == 0));
}

/* ---- numbers ------------------------------------------------------------------------------------------------ */

/* Decodes a member of at most `max` bytes. */
static bool read_jwk_number(const json_t *jwk, const char *name, uint8_t *to, size_t max, size_t *n_p)
{
    const json_t *member = json_object_get(jwk, name);
    const char *text = json_string_value(member);
    const size_t n = text ? json_string_length(member) : 0;
    uint8_t room[NGD_BASE64URL_ROOM(NUMBER_BYTES * 2)];

    if (n == 0 || n > sizeof(room) || !ngd_base64url_decode(text, n, room, n_p) || *n_p > max)
        return false;
    memcpy(to, room, *n_p);
    return true;
}

static EVP_PKEY *make_pkey(const char *type, OSSL_PARAM_BLD *build)
{
    OSSL_PARAM *params = OSSL_PARAM_BLD_to_param(build);
    EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new_from_name(NULL, type, NULL);
    EVP_PKEY *pkey = NULL;

    if (params && ctx && EVP_PKEY_fromdata_init(ctx) == 1)
        (void)EVP_PKEY_fromdata(ctx, &pkey, EVP_PKEY_PUBLIC_KEY, params);
    EVP_PKEY_CTX_free(ctx);
    OSSL_PARAM_free(params);
    return pkey;
}

/* Whether a point is on its curve, and not the one at infinity. */
static bool is_point(EVP_PKEY *pkey)
{
    EVP_PKEY_CTX *check = EVP_PKEY_CTX_new_from_pkey(NULL, pkey, NULL);
    const bool right = check && EVP_PKEY_public_check_quick(check) == 1;

    EVP_PKEY_CTX_free(check);
    return right;
}

/*
 * That n has two large factors cannot be seen. libcrypto's check looks for small ones and for primes, which takes 0.2 s
 * for 8192 bits: on the loop, and for as many keys as an issuer likes to have.
 */
static ngd_status_t make_rsa(struct ngd_jwk *key, const json_t *jwk, struct ngd_strbuf *print, struct ngd_diag *diag)
{
    uint8_t n[NUMBER_BYTES], e[EXPONENT_MAX];
    size_t len_n, len_e;
    OSSL_PARAM_BLD *build = NULL;
    BIGNUM *bn = NULL, *be = NULL;

    if (!read_jwk_number(jwk, "n", n, sizeof(n), &len_n) || !read_jwk_number(jwk, "e", e, sizeof(e), &len_e))
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT,
                            "n and e are not base64url numbers of at most %d and %d bytes", NUMBER_BYTES, EXPONENT_MAX);
    bn = BN_bin2bn(n, (int)len_n, NULL);
    be = BN_bin2bn(e, (int)len_e, NULL);
    build = OSSL_PARAM_BLD_new();
    if (bn && be && build && BN_is_odd(bn) && BN_is_odd(be) && !BN_is_one(be) &&
        OSSL_PARAM_BLD_push_BN(build, OSSL_PKEY_PARAM_RSA_N, bn) == 1 &&
        OSSL_PARAM_BLD_push_BN(build, OSSL_PKEY_PARAM_RSA_E, be) == 1)
        key->pkey = make_pkey("RSA", build);
    OSSL_PARAM_BLD_free(build);
    BN_free(bn);
    BN_free(be);
    if (key->pkey && EVP_PKEY_get_bits(key->pkey) < RSA_MIN_BITS)
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT, "an RSA key has %d bits; it needs at least %d",
                            EVP_PKEY_get_bits(key->pkey), RSA_MIN_BITS);
    ngd_strbuf_append_n(print, e, len_e);
    ngd_strbuf_append_n(print, n, len_n);
    return NGD_OK;
}

static ngd_status_t make_ec(struct ngd_jwk *key, const json_t *jwk, struct ngd_strbuf *print, struct ngd_diag *diag)
{
    const struct key_type *type = &key_types[key->kind];
    uint8_t point[1 + 2 * EC_MAX_NUMBER] = {POINT_CONVERSION_UNCOMPRESSED};
    OSSL_PARAM_BLD *build;
    size_t x = 0, y = 0;

    if (!read_jwk_number(jwk, "x", point + 1, type->number, &x) || x != type->number ||
        !read_jwk_number(jwk, "y", point + 1 + x, type->number, &y) || y != type->number)
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT, "x and y are not base64url numbers of %zu bytes",
                            type->number);
    build = OSSL_PARAM_BLD_new();
    if (build && OSSL_PARAM_BLD_push_utf8_string(build, OSSL_PKEY_PARAM_GROUP_NAME, type->group, 0) == 1 &&
        OSSL_PARAM_BLD_push_octet_string(build, OSSL_PKEY_PARAM_PUB_KEY, point, 1 + x + y) == 1)
        key->pkey = make_pkey("EC", build);
    OSSL_PARAM_BLD_free(build);
    if (key->pkey && !is_point(key->pkey)) {
        EVP_PKEY_free(key->pkey);
        key->pkey = NULL;
    }
    ngd_strbuf_append_n(print, point, 1 + x + y);
    return NGD_OK;
}

/*
 * Whether a point's multiples are few: then equations of signatures hold for texts that nobody has signed. libcrypto
 * does not look. The y of all such points, in their canonical form and in the others; the highest bit is the sign of x.
 */
static bool is_of_small_order(const uint8_t x[32])
{
    static const char few[][32] = {
        "",
        "\1",
        "\x26\xe8\x95\x8f\xc2\xb2\x27\xb0\x45\xc3\xf4\x89\xf2\xef\x98\xf0"
        "\xd5\xdf\xac\x05\xd3\xc6\x33\x39\xb1\x38\x02\x88\x6d\x53\xfc\x05",
        "\xc7\x17\x6a\x70\x3d\x4d\xd8\x4f\xba\x3c\x0b\x76\x0d\x10\x67\x0f"
        "\x2a\x20\x53\xfa\x2c\x39\xcc\xc6\x4e\xc7\xfd\x77\x92\xac\x03\x7a",
        "\xec\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"
        "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
        "\xed\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"
        "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
        "\xee\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"
        "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
    };

    for (size_t i = 0; i < sizeof(few) / sizeof(few[0]); i++)
        if (memcmp(x, few[i], 31) == 0 && (x[31] & 0x7f) == (uint8_t)few[i][31])
            return true;
    return false;
}

static ngd_status_t make_ed25519(struct ngd_jwk *key, const json_t *jwk, struct ngd_strbuf *print,
                                 struct ngd_diag *diag)
{
    uint8_t x[32];
    size_t n = 0;

    if (!read_jwk_number(jwk, "x", x, sizeof(x), &n) || n != sizeof(x))
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT, "x is not a base64url number of %zu bytes", sizeof(x));
    if (is_of_small_order(x))
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT,
                            "x is a point of small order, for which anybody can make signatures: replace the key");
    key->pkey = EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, NULL, x, n);
    ngd_strbuf_append_n(print, x, n);
    return NGD_OK;
}

static ngd_status_t make_numbers(struct ngd_jwk *key, const json_t *jwk, struct ngd_diag *diag)
{
    struct ngd_strbuf print;
    ngd_status_t status;

    ngd_strbuf_init(&print);
    ngd_strbuf_printf(&print, "%d %s ", key->kind, key->only ? key->only->name : "");
    status = key->kind == KEY_RSA       ? make_rsa(key, jwk, &print, diag)
             : key->kind == KEY_ED25519 ? make_ed25519(key, jwk, &print, diag)
                                        : make_ec(key, jwk, &print, diag);
    if (status == NGD_OK && print.failed)
        status = ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory for a key");
    else if (status == NGD_OK && !key->pkey)
        status = ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT, "its numbers are no %s key", key_types[key->kind].kty);
    if (status == NGD_OK)
        ngd_digest_of(print.data, print.len, &key->print);
    ngd_strbuf_fini(&print);
    ERR_clear_error();
    return status;
}

/* ---- a key's names ------------------------------------------------------------------------------------------ */

static bool member_is(const json_t *jwk, const char *name, const char *value)
{
    const char *text = json_string_value(json_object_get(jwk, name));

    return text && strcmp(text, value) == 0;
}

/* Returns the key's kind; KEY_KINDS: none that is known here. */
static enum key_kind kind_of_key(const json_t *jwk)
{
    enum key_kind kind = 0;

    while (kind < KEY_KINDS && (!member_is(jwk, "kty", key_types[kind].kty) ||
                                (key_types[kind].crv && !member_is(jwk, "crv", key_types[kind].crv))))
        kind++;
    return kind;
}

/* Whether the members use and key_ops, if the key has them, allow checking signatures. */
static bool is_for_signatures(const json_t *jwk)
{
    const json_t *ops = json_object_get(jwk, "key_ops"), *op;
    size_t i;

    if (json_object_get(jwk, "use") && !member_is(jwk, "use", "sig"))
        return false;
    json_array_foreach(ops, i, op)
    {
        if (json_is_string(op) && strcmp(json_string_value(op), "verify") == 0)
            return true;
    }
    return ops == NULL;
}

static ngd_status_t check_public(const json_t *jwk, struct ngd_diag *diag)
{
    if (member_is(jwk, "kty", "oct") || json_object_get(jwk, "k"))
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT,
                            "it is a secret shared with the issuer (kty oct); only public keys are taken");
    if (json_object_get(jwk, "d") || json_object_get(jwk, "p") || json_object_get(jwk, "q"))
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT,
                            "it has private numbers (d, p or q); give the daemon the public key only, and replace this "
                            "one if others could read the file");
    return NGD_OK;
}

static ngd_status_t read_kid(struct ngd_jwk *key, const json_t *jwk, struct ngd_diag *diag)
{
    const json_t *kid = json_object_get(jwk, "kid");

    if (!kid)
        return NGD_OK;
    if (!json_is_string(kid) || json_string_length(kid) > NGD_JWK_KID_MAX)
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT, "kid is not a text of at most %d bytes", NGD_JWK_KID_MAX);
    memcpy(key->kid, json_string_value(kid), json_string_length(kid) + 1);
    key->has_kid = true;
    return NGD_OK;
}

/* *key_p is NULL for a key that is left out. */
static ngd_status_t read_key(const json_t *jwk, struct ngd_jwk **key_p, struct ngd_diag *diag)
{
    const json_t *alg = json_object_get(jwk, "alg");
    const struct ngd_jws_alg *only = json_is_string(alg) ? ngd_jws_alg_find(json_string_value(alg)) : NULL;
    const enum key_kind kind = kind_of_key(jwk);
    ngd_status_t status = check_public(jwk, diag);
    struct ngd_jwk *key;

    *key_p = NULL;
    if (status != NGD_OK || kind == KEY_KINDS || !is_for_signatures(jwk) || (alg && !only))
        return status;
    if (only && only->kind != kind)
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT, "its alg %s does not go with its type %s%s%s", only->name,
                            key_types[kind].kty, key_types[kind].crv ? " " : "",
                            key_types[kind].crv ? key_types[kind].crv : "");
    key = NGD_NEW(struct ngd_jwk);
    if (!key)
        return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory for a key");
    atomic_init(&key->refs, 1);
    key->kind = kind;
    key->only = only;
    status = read_kid(key, jwk, diag);
    if (status == NGD_OK)
        status = make_numbers(key, jwk, diag);
    *key_p = status == NGD_OK ? key : ngd_jwk_unref(key);
    return status;
}

/* ---- a set -------------------------------------------------------------------------------------------------- */

static ngd_status_t add_key(struct ngd_jwk_set *set, const json_t *jwk, struct ngd_diag *diag)
{
    struct ngd_jwk *key = NULL;
    ngd_status_t status;

    if (!json_is_object(jwk))
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT, "it is not an object");
    status = read_key(jwk, &key, diag);
    if (!key)
        return status;
    for (size_t i = 0; i < set->n; i++)
        if (key->has_kid && same_kid(set->keys[i], key)) {
            ngd_jwk_unref(key);
            return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT, "an earlier key has the same kid");
        }
    if (set->n == NGD_JWK_MAX) {
        ngd_jwk_unref(key);
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT, "there are more than %d keys", NGD_JWK_MAX);
    }
    set->keys[set->n++] = key;
    return NGD_OK;
}

static ngd_status_t add_jwks(struct ngd_jwk_set *set, const json_t *root, struct ngd_diag *diag)
{
    const json_t *keys = json_object_get(root, "keys"), *jwk;
    ngd_status_t status = NGD_OK;
    size_t i;

    if (!json_is_array(keys))
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT, "it has no array \"keys\" (RFC 7517)");
    json_array_foreach(keys, i, jwk)
    {
        status = add_key(set, jwk, diag);
        if (status != NGD_OK) {
            ngd_diag_prefix(diag, "key %zu: ", i + 1);
            return status;
        }
    }
    return set->n
               ? NGD_OK
               : ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT,
                              "none of its %zu keys checks signatures of " NGD_JWK_ALGORITHMS, json_array_size(keys));
}

ngd_status_t ngd_jwk_set_parse(const char *text, size_t n, struct ngd_jwk_set *set_p, struct ngd_diag *diag)
{
    struct ngd_jwk_set set = {.n = 0};
    size_t values, depth;
    ngd_status_t status;
    json_t *root;

    ngd_json_measure(text, n, &values, &depth);
    if (n > NGD_JWK_FILE_BYTES || values > JWK_VALUES || depth > JWK_DEPTH)
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT,
                            "it has %zu bytes, about %zu values and depth %zu; at most %u, %d and %d are read", n,
                            values, depth, NGD_JWK_FILE_BYTES, JWK_VALUES, JWK_DEPTH);
    status = ngd_json_object(text, n, &root, diag);
    if (status != NGD_OK)
        return status;
    status = add_jwks(&set, root, diag);
    json_decref(root);
    if (status != NGD_OK)
        ngd_jwk_set_fini(&set);
    else
        *set_p = set;
    return status;
}

void ngd_jwk_set_fini(struct ngd_jwk_set *set)
{
    for (size_t i = 0; i < set->n; i++)
        ngd_jwk_unref(set->keys[i]);
    set->n = 0;
}

/* ---- signatures --------------------------------------------------------------------------------------------- */

static bool digest_verify(const struct ngd_jwk *key, const struct ngd_jws_alg *alg, const void *text, size_t n,
                          const uint8_t *signature, size_t n_signature)
{
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    EVP_PKEY_CTX *pkey = NULL; /* the context's */
    bool right = false;

    if (ctx && EVP_DigestVerifyInit_ex(ctx, &pkey, alg->hash, NULL, NULL, key->pkey, NULL) == 1 &&
        (!alg->pss || (EVP_PKEY_CTX_set_rsa_padding(pkey, RSA_PKCS1_PSS_PADDING) == 1 &&
                       EVP_PKEY_CTX_set_rsa_pss_saltlen(pkey, RSA_PSS_SALTLEN_DIGEST) == 1)))
        right = EVP_DigestVerify(ctx, signature, n_signature, text, n) == 1;
    EVP_MD_CTX_free(ctx);
    return right;
}

/* A signature of a token is two numbers of fixed size; libcrypto takes them in DER. */
static bool ecdsa_verify(const struct ngd_jwk *key, const struct ngd_jws_alg *alg, const void *text, size_t n,
                         const uint8_t *signature, size_t n_signature)
{
    const size_t half = key_types[key->kind].number;
    ECDSA_SIG *numbers = n_signature == 2 * half ? ECDSA_SIG_new() : NULL;
    BIGNUM *r = numbers ? BN_bin2bn(signature, (int)half, NULL) : NULL;
    BIGNUM *s = r ? BN_bin2bn(signature + half, (int)half, NULL) : NULL;
    unsigned char *der = NULL;
    bool right = false;
    int len;

    if (s && ECDSA_SIG_set0(numbers, r, s) == 1) {
        r = s = NULL; /* taken */
        len = i2d_ECDSA_SIG(numbers, &der);
        right = len > 0 && digest_verify(key, alg, text, n, der, (size_t)len);
    }
    BN_free(r);
    BN_free(s);
    OPENSSL_free(der);
    ECDSA_SIG_free(numbers);
    return right;
}

bool ngd_jwk_verify(const struct ngd_jwk *key, const struct ngd_jws_alg *alg, const void *text, size_t n,
                    const uint8_t *signature, size_t n_signature)
{
    const bool is_ec = key->kind >= KEY_P256 && key->kind <= KEY_P521;
    const bool right = is_ec ? ecdsa_verify(key, alg, text, n, signature, n_signature)
                             : digest_verify(key, alg, text, n, signature, n_signature);

    ERR_clear_error();
    return right;
}
