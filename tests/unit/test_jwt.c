/* SPDX-License-Identifier: Apache-2.0 */
/* Tokens of another implementation, with its keys. tests/rpc/test_jwt.py has what is refused, and why. */
#include "daemon/jwt.h"

#include "base/base64url.h"
#include "base/clock.h"
#include "base/mem.h"
#include "daemon/audit.h"
#include "daemon/tokens.h"
#include "tests/unit/jwt_golden.h"
#include "tests/unit/unit.h"
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define NOW INT64_C(1800000000)

static char *const tokens[] = {(char *)GOLDEN_RS256, (char *)GOLDEN_PS256, (char *)GOLDEN_PS512,
                               (char *)GOLDEN_ES256, (char *)GOLDEN_ES512, (char *)GOLDEN_EDDSA};
#define N_TOKENS (sizeof(tokens) / sizeof(tokens[0]))

/* One issuer, whose keys are in a file. */
struct issuer_file {
    char path[64], entry[80];
    char *items[3];
    struct ngd_config_list issuers, keys, audiences;
    struct ngd_jwt_params params;
};

static void write_keys(const struct issuer_file *f, const char *text)
{
    FILE *file = fopen(f->path, "w");

    ck_assert_ptr_nonnull(file);
    ck_assert_int_ge(fputs(text, file), 0);
    ck_assert_int_eq(fclose(file), 0);
    ck_assert_int_eq(chmod(f->path, 0644), 0);
}

static void setup_issuer(struct issuer_file *f, const char *audience)
{
    *f = (struct issuer_file){.path = "/tmp/npugraphd-test-jwt-XXXXXX"};
    int fd = mkstemp(f->path);

    ck_assert_int_ge(fd, 0);
    close(fd);
    snprintf(f->entry, sizeof(f->entry), "kc=%s", f->path);
    f->items[0] = (char *)"kc=https://issuer.example.org";
    f->items[1] = f->entry;
    f->items[2] = (char *)audience;
    f->issuers = (struct ngd_config_list){.items = &f->items[0], .n = 1};
    f->keys = (struct ngd_config_list){.items = &f->items[1], .n = 1};
    f->audiences = (struct ngd_config_list){.items = &f->items[2], .n = 1};
    f->params = (struct ngd_jwt_params){&f->issuers, &f->keys, &f->audiences, "sub", "groups"};
    write_keys(f, GOLDEN_KEYS);
}

static struct ngd_jwt_issuers *read_file(const struct issuer_file *f)
{
    struct ngd_jwt_issuers *issuers;
    struct ngd_diag diag = {0};

    ck_assert_msg(ngd_jwt_issuers_read(&f->params, NULL, &issuers, &diag) == NGD_OK, "%s", diag.text);
    return issuers;
}

START_TEST(tokens_of_pyjwt_are_believed_until_they_expire)
{
    struct issuer_file f;
    struct ngd_jwt_issuers *issuers;
    struct ngd_jwt_belief belief;
    struct ngd_diag diag = {0};

    setup_issuer(&f, "npugraphd");
    issuers = read_file(&f);
    for (size_t i = 0; i < N_TOKENS; i++) {
        const size_t n = strlen(tokens[i]);

        ck_assert_msg(ngd_jwt_check(issuers, tokens[i], n, NOW, &belief, &diag) == NGD_OK, "%zu: %s", i, diag.text);
        ck_assert_str_eq(belief.identity, "jwt:kc:trainer");
        ck_assert_int_eq(belief.expires, 4102444799 + NGD_JWT_LEEWAY);
        ck_assert(ngd_groups_have(belief.groups, "kc:ops", 6) && ngd_groups_have(belief.groups, "kc:dev", 6));
        ck_assert(!ngd_groups_have(belief.groups, "ops", 3) && !ngd_groups_have(belief.groups, "kc:op", 5));
        ck_assert(!ngd_groups_have(belief.groups, "kc:", 3) && !ngd_groups_have(belief.groups, "kc:ops\0dev", 10));
        ck_assert(!ngd_groups_have(belief.groups, "ku:ops", 6) && !ngd_groups_have(belief.groups, "kc:opsd", 7));
        ck_assert_uint_eq(belief.groups->room, strlen("kc:") + sizeof("ops") + sizeof("dev"));
        ngd_jwt_belief_fini(&belief);
        ck_assert_int_eq(ngd_jwt_check(issuers, tokens[i], n, 4102444799 + NGD_JWT_LEEWAY, &belief, &diag),
                         NGD_ERR_TOKEN_EXPIRED);
        ck_assert_int_ne(ngd_jwt_check(issuers, tokens[i], n - 4, NOW, &belief, &diag), NGD_OK);
    }
    ngd_jwt_issuers_unref(issuers);
    unlink(f.path);
}
END_TEST

START_TEST(a_flipped_bit_anywhere_makes_a_token_wrong)
{
    struct issuer_file f;
    struct ngd_jwt_issuers *issuers;
    struct ngd_jwt_belief belief;
    char text[2048];
    const size_t n = strlen(GOLDEN_EDDSA);

    setup_issuer(&f, "npugraphd");
    issuers = read_file(&f);
    for (size_t i = 0; i < n; i++) {
        struct ngd_diag diag = {0};

        memcpy(text, GOLDEN_EDDSA, n);
        text[i] = (char)(text[i] ^ (i % 2 ? 1 : 4));
        ck_assert_msg(ngd_jwt_check(issuers, text, n, NOW, &belief, &diag) != NGD_OK, "character %zu", i);
        ck_assert_str_ne(diag.text, "");
    }
    ngd_jwt_issuers_unref(issuers);
    unlink(f.path);
}
END_TEST

START_TEST(keys_that_stay_keep_their_tokens_and_others_are_withdrawn)
{
    struct issuer_file f, g;
    struct ngd_jwt_issuers *old, *fresh;
    struct ngd_jwt_belief belief;

    setup_issuer(&f, "npugraphd");
    setup_issuer(&g, "other");
    old = read_file(&f);
    ck_assert_int_eq(ngd_jwt_check(old, GOLDEN_ES256, strlen(GOLDEN_ES256), NOW, &belief, NULL), NGD_OK);
    fresh = read_file(&f);
    ngd_jwt_issuers_carry_over(old, fresh);
    ngd_jwt_issuers_unref(old);
    ck_assert(!ngd_jwk_is_withdrawn(belief.key));
    old = fresh;
    fresh = read_file(&g); /* the same keys, for another audience */
    ngd_jwt_issuers_carry_over(old, fresh);
    ck_assert(ngd_jwk_is_withdrawn(belief.key));
    ngd_jwt_belief_fini(&belief);
    ngd_jwt_issuers_unref(old);
    ngd_jwt_issuers_unref(fresh);
    unlink(f.path);
    unlink(g.path);
}
END_TEST

/* Adds a second issuer, which is asked first: it has the keys of the first one. */
static void add_issuer(struct issuer_file *f, char *issuers[2], char *keys[2], const char *url_entry, char *key_entry)
{
    issuers[0] = (char *)url_entry;
    issuers[1] = f->items[0];
    keys[0] = key_entry;
    keys[1] = f->items[1];
    f->issuers = (struct ngd_config_list){.items = issuers, .n = 2};
    f->keys = (struct ngd_config_list){.items = keys, .n = 2};
}

START_TEST(issuers_with_the_same_keys_are_told_apart_by_the_url)
{
    struct issuer_file f;
    struct ngd_jwt_issuers *issuers;
    struct ngd_jwt_belief belief;
    struct ngd_diag diag = {0};
    char *urls[2], *files[2], entry[80];

    setup_issuer(&f, "npugraphd");
    snprintf(entry, sizeof(entry), "tenant=%s", f.path);
    add_issuer(&f, urls, files, "tenant=https://issuer.example.org/tenant", entry);
    issuers = read_file(&f);
    for (size_t i = 0; i < N_TOKENS; i++) {
        ck_assert_msg(ngd_jwt_check(issuers, tokens[i], strlen(tokens[i]), NOW, &belief, &diag) == NGD_OK, "%s",
                      diag.text);
        ck_assert_str_eq(belief.identity, "jwt:kc:trainer");
        ngd_jwt_belief_fini(&belief);
    }
    ngd_jwt_issuers_unref(issuers);
    urls[1] = (char *)"kc=https://issuer.example.org/third"; /* now neither is the token's */
    issuers = read_file(&f);
    ck_assert_int_eq(ngd_jwt_check(issuers, GOLDEN_ES256, strlen(GOLDEN_ES256), NOW, &belief, &diag),
                     NGD_ERR_TOKEN_UNKNOWN);
    ck_assert_ptr_nonnull(strstr(diag.text, "issuer (iss)"));
    ngd_jwt_issuers_unref(issuers);
    unlink(f.path);
}
END_TEST

START_TEST(a_key_file_that_is_not_valid_holds_up_no_other_issuer)
{
    static const char other[] = "{\"keys\":[{\"kty\":\"OKP\",\"crv\":\"Ed25519\",\"kid\":\"d2\","
                                "\"x\":\"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo\"}]}";
    struct issuer_file f, g;
    struct ngd_jwt_issuers *old, *fresh;
    struct ngd_jwt_belief first, second;
    struct ngd_diag diag = {0};
    char *urls[2], *files[2], entry[80];

    setup_issuer(&f, "npugraphd");
    setup_issuer(&g, "npugraphd");
    snprintf(entry, sizeof(entry), "first=%s", g.path);
    add_issuer(&f, urls, files, "first=https://issuer.example.org", entry);
    old = read_file(&f);
    ck_assert_int_eq(ngd_jwt_check(old, GOLDEN_ES256, strlen(GOLDEN_ES256), NOW, &first, NULL), NGD_OK);
    ck_assert_str_eq(first.identity, "jwt:first:trainer");
    write_keys(&g, other); /* the first issuer's keys are gone */
    write_keys(&f, "{}");  /* the second one's file is broken */
    ck_assert_int_eq(ngd_jwt_issuers_read(&f.params, NULL, &fresh, &diag), NGD_ERR_CONFIG);
    ck_assert_int_eq(ngd_jwt_issuers_read(&f.params, old, &fresh, &diag), NGD_OK);
    ngd_jwt_issuers_carry_over(old, fresh);
    ngd_jwt_issuers_unref(old);
    ck_assert(ngd_jwk_is_withdrawn(first.key));
    ck_assert_int_eq(ngd_jwt_check(fresh, GOLDEN_ES256, strlen(GOLDEN_ES256), NOW, &second, NULL), NGD_OK);
    ck_assert_str_eq(second.identity, "jwt:kc:trainer");
    ck_assert(!ngd_jwk_is_withdrawn(second.key));
    ngd_jwt_belief_fini(&first);
    ngd_jwt_belief_fini(&second);
    ngd_jwt_issuers_unref(fresh);
    unlink(f.path);
    unlink(g.path);
}
END_TEST

START_TEST(groups_of_a_withdrawn_key_count_no_longer)
{
    struct issuer_file f;
    struct ngd_jwt_issuers *issuers;
    struct ngd_jwt_belief late, early;

    setup_issuer(&f, "npugraphd");
    issuers = read_file(&f);
    ck_assert_int_eq(ngd_jwt_check(issuers, GOLDEN_ES256, strlen(GOLDEN_ES256), NOW, &late, NULL), NGD_OK);
    ck_assert_int_eq(ngd_jwt_check(issuers, GOLDEN_EDDSA, strlen(GOLDEN_EDDSA), NOW, &early, NULL), NGD_OK);
    early.groups->issued = late.groups->issued - 1;
    ck_assert(ngd_groups_replace(late.groups, early.groups) && !ngd_groups_replace(early.groups, late.groups));
    ngd_jwk_withdraw(late.key);
    ck_assert(!ngd_groups_have(late.groups, "kc:ops", 6) && ngd_groups_have(early.groups, "kc:ops", 6));
    ck_assert(ngd_groups_replace(early.groups, late.groups));
    ngd_jwt_belief_fini(&late);
    ngd_jwt_belief_fini(&early);
    ngd_jwt_issuers_unref(issuers);
    unlink(f.path);
}
END_TEST

/* Writes a key set of RSA keys with 8192 bits, whose factors nobody knows. */
static size_t write_large_keys(char *to, size_t room)
{
    size_t n = (size_t)snprintf(to, room, "{\"keys\":[");

    for (int i = 0; i < NGD_JWK_MAX; i++) {
        n += (size_t)snprintf(to + n, room - n, "%s{\"kty\":\"RSA\",\"e\":\"AQAB\",\"kid\":\"%d\",\"n\":\"",
                              i ? "," : "", i);
        memset(to + n, 'x', 1364);
        n += 1364;
        n += (size_t)snprintf(to + n, room - n, "Zw\"}");
    }
    return n + (size_t)snprintf(to + n, room - n, "]}");
}

/* A reload and the timer read key sets on the loop, and an issuer chooses its keys. */
START_TEST(a_set_of_the_largest_keys_is_read_at_once)
{
    static char text[NGD_JWK_FILE_BYTES];
    struct ngd_jwk_set set;
    struct ngd_diag diag = {0};
    struct timespec began, ended;
    const size_t n = write_large_keys(text, sizeof(text));

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &began);
    ck_assert_msg(ngd_jwk_set_parse(text, n, &set, &diag) == NGD_OK, "%s", diag.text);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ended);
    ck_assert_uint_eq(set.n, NGD_JWK_MAX);
    ngd_jwk_set_fini(&set);
    ck_assert_int_le(ended.tv_sec - began.tv_sec,
                     3); /* it takes milliseconds; a test of each n for primes takes 10 s */
}
END_TEST

START_TEST(without_memory_nothing_is_believed_and_nothing_is_lost)
{
    struct issuer_file f;
    struct ngd_jwt_issuers *issuers;
    struct ngd_jwt_belief belief;
    struct ngd_diag diag = {0};
    ngd_status_t status = NGD_ERR_NO_MEMORY;
    int64_t n = 0;

    setup_issuer(&f, "npugraphd");
    for (; status != NGD_OK; n++) {
        ngd_mem_fail_after(n);
        status = ngd_jwt_issuers_read(&f.params, NULL, &issuers, &diag);
        ngd_mem_fail_after(-1);
        ck_assert_msg(status == NGD_OK || status == NGD_ERR_NO_MEMORY, "allocation %d: %s", (int)n, diag.text);
    }
    ck_assert_int_gt(n, 20);
    status = NGD_ERR_NO_MEMORY;
    for (n = 0; status != NGD_OK; n++) {
        ngd_mem_fail_after(n);
        status = ngd_jwt_check(issuers, GOLDEN_ES256, strlen(GOLDEN_ES256), NOW, &belief, &diag);
        ngd_mem_fail_after(-1);
        ck_assert_msg(status == NGD_OK || status == NGD_ERR_NO_MEMORY, "allocation %d: %s", (int)n, diag.text);
    }
    ck_assert_int_gt(n, 5);
    ngd_jwt_belief_fini(&belief);
    ngd_jwt_issuers_unref(issuers);
    unlink(f.path);
}
END_TEST

static ngd_status_t find_bearer(struct ngd_tokens *all, uint64_t sender, const char *text)
{
    struct ngd_token *token = NULL;
    char header[NGD_JWT_MAX];
    const int n = snprintf(header, sizeof(header), "Bearer %s", text);
    const ngd_status_t status = ngd_tokens_find(all, sender, header, (size_t)n, &token, NULL);

    ngd_token_unref(token);
    return status;
}

START_TEST(a_sender_of_wrong_tokens_is_bounded_and_others_are_not)
{
    struct issuer_file f;
    struct ngd_token_set *set;
    struct ngd_tokens *all;
    struct ngd_diag diag = {0};
    char wrong[NGD_JWT_MAX];
    size_t i;

    setup_issuer(&f, "npugraphd");
    snprintf(wrong, sizeof(wrong), "%s", GOLDEN_ES256);
    wrong[strlen(wrong) - 10] ^= 1;
    const struct ngd_tokens_params params = {.path = "", .jwt = f.params};
    ck_assert_msg(ngd_token_set_read(&params, &set, &diag) == NGD_OK, "%s", diag.text);
    ck_assert_int_eq(ngd_tokens_create(set, &all), NGD_OK);
    ngd_clock_set_fake(1000 * NGD_SEC);
    ck_assert_int_eq(find_bearer(all, 7, GOLDEN_EDDSA), NGD_OK);
    for (i = 0; i < 2 * NGD_TOKENS_WRONG_BURST; i++) /* no signature is checked: others behind the address go on */
        ck_assert_int_eq(find_bearer(all, 7, "e30.e30.eA"), NGD_ERR_TOKEN_MALFORMED);
    for (i = 0; i < NGD_TOKENS_WRONG_BURST; i++)
        ck_assert_int_eq(find_bearer(all, 7, wrong), NGD_ERR_TOKEN_UNKNOWN);
    ck_assert_int_eq(find_bearer(all, 7, wrong), NGD_ERR_TOKEN_RATE);
    ck_assert_int_eq(find_bearer(all, 7, GOLDEN_ES512), NGD_ERR_TOKEN_RATE); /* it might be right: not looked at */
    ck_assert_int_eq(find_bearer(all, 7, GOLDEN_EDDSA), NGD_OK);             /* it is known to be right */
    ck_assert_int_eq(find_bearer(all, 8, wrong), NGD_ERR_TOKEN_UNKNOWN);
    ck_assert_int_eq(find_bearer(all, 8, GOLDEN_ES512), NGD_OK);
    ngd_clock_set_fake(1000 * NGD_SEC + 2 * NGD_SEC / NGD_TOKENS_WRONG_RATE);
    ck_assert_int_eq(find_bearer(all, 7, GOLDEN_RS256), NGD_OK); /* what is right does not count */
    for (i = 0; i < 2; i++)
        ck_assert_int_eq(find_bearer(all, 7, wrong), NGD_ERR_TOKEN_UNKNOWN);
    ck_assert_int_eq(find_bearer(all, 7, wrong), NGD_ERR_TOKEN_RATE);
    ngd_clock_set_fake(-1);
    ngd_tokens_destroy(all);
    unlink(f.path);
}
END_TEST

START_TEST(the_audit_log_bounds_all_refusals_of_tokens)
{
    static const ngd_status_t all[] = {
#define NGD_STATUS(ID, ...) NGD_##ID,
#include "base/status.def"
#undef NGD_STATUS
    };
    size_t n = 0;

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        if (strncmp(ngd_status_name(all[i]), "TOKEN_", 6) == 0 &&
            all[i] != NGD_ERR_TOKEN_RANGE) { /* that is a word's */
            ck_assert_msg(ngd_audit_is_refusal(all[i]), "%s", ngd_status_name(all[i]));
            n++;
        }
    ck_assert_uint_ge(n, 6);
    ck_assert(!ngd_audit_is_refusal(NGD_OK) && !ngd_audit_is_refusal(NGD_ERR_BUSY));
}
END_TEST

START_TEST(paths_of_claims_are_names_with_dots_between)
{
    static const char *const right[] = {"a",
                                        "a.b",
                                        "realm_access.roles",
                                        "https://x\\.org/groups",
                                        "a\\\\.b",
                                        "1.2.3.4.5.6.7.8",
                                        "https://a.b.c.d.e.f.g.h.i.j/groups",
                                        "https://auth/groups.a"};
    static const char *const not_right[] = {
        "", ".", "a.", ".a", "a..b", "a\\", "a.b\\", "1.2.3.4.5.6.7.8.9", "https://a\\.b.c.d.e.f.g.h.i.j/groups"};
    char name[NGD_JWT_NAME_MAX + 2];

    for (size_t i = 0; i < sizeof(right) / sizeof(right[0]); i++)
        ck_assert_msg(ngd_jwt_path_ok(right[i]), "%s", right[i]);
    for (size_t i = 0; i < sizeof(not_right) / sizeof(not_right[0]); i++)
        ck_assert_msg(!ngd_jwt_path_ok(not_right[i]), "%s", not_right[i]);
    memset(name, 'x', sizeof(name));
    name[NGD_JWT_NAME_MAX + 1] = '\0';
    ck_assert(!ngd_jwt_path_ok(name));
    name[NGD_JWT_NAME_MAX] = '\0';
    ck_assert(ngd_jwt_path_ok(name));
}
END_TEST

START_TEST(a_url_is_one_name_where_its_host_has_a_dot)
{
    json_t *claims = json_pack("{s:i, s:{s:i}, s:{s:i}}", "https://x.org/a.b", 1, "https://auth/a", "b", 2,
                               "https://y.org/a", "b", 3);
    static const struct {
        const char *path;
        json_int_t value;
    } cases[] = {{"https://x.org/a.b", 1}, {"https://auth/a.b", 2}, {"https://y\\.org/a.b", 3}};

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        ck_assert_int_eq(json_integer_value(ngd_jwt_find_claim(claims, cases[i].path)), cases[i].value);
    ck_assert_ptr_null(ngd_jwt_find_claim(claims, "https://y.org/a.b"));
    json_decref(claims);
}
END_TEST

START_TEST(base64url_has_one_text_for_each_bytes)
{
    static const struct {
        const char *text, *bytes;
        int n; /* -1: refused */
    } cases[] = {{"", "", 0},           {"Zg", "f", 1},         {"Zm8", "fo", 2},     {"Zm9v", "foo", 3},
                 {"Zm9vYg", "foob", 4}, {"-_8", "\xfb\xff", 2}, {"Z", NULL, -1},      {"Zh", NULL, -1},
                 {"Zm9", NULL, -1},     {"Zg==", NULL, -1},     {"Zm9v\n", NULL, -1}, {"+/8", NULL, -1},
                 {"Zm 8", NULL, -1},    {"AAAAA", NULL, -1}};
    uint8_t to[16];

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        size_t n = 0;
        const bool right = ngd_base64url_decode(cases[i].text, strlen(cases[i].text), to, &n);

        ck_assert_msg(right == (cases[i].n >= 0), "%s", cases[i].text);
        ck_assert_msg(!right || ((int)n == cases[i].n && memcmp(to, cases[i].bytes, n) == 0), "%s", cases[i].text);
    }
}
END_TEST

UNIT_MAIN("daemon/jwt", tokens_of_pyjwt_are_believed_until_they_expire, a_flipped_bit_anywhere_makes_a_token_wrong,
          keys_that_stay_keep_their_tokens_and_others_are_withdrawn,
          issuers_with_the_same_keys_are_told_apart_by_the_url, a_key_file_that_is_not_valid_holds_up_no_other_issuer,
          groups_of_a_withdrawn_key_count_no_longer, a_set_of_the_largest_keys_is_read_at_once,
          without_memory_nothing_is_believed_and_nothing_is_lost,
          a_sender_of_wrong_tokens_is_bounded_and_others_are_not, the_audit_log_bounds_all_refusals_of_tokens,
          paths_of_claims_are_names_with_dots_between, a_url_is_one_name_where_its_host_has_a_dot,
          base64url_has_one_text_for_each_bytes)
