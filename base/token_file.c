/* SPDX-License-Identifier: Apache-2.0 */
#include "base/token_file.h"
#include "base/stamp.h"
#include "base/trusted_file.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define HASH_PREFIX "sha256:"
#define TIME_LEN    20 /* of 2027-01-31T12:00:00Z */

bool ngd_token_name_ok(const char *name, size_t n)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";

    if (n == 0 || n > NGD_TOKEN_NAME_MAX)
        return false;
    for (size_t i = 0; i < n; i++)
        if (name[i] == '\0' || !strchr(letters, name[i]))
            return false;
    return true;
}

ngd_status_t ngd_token_hash(const char *token, size_t n, struct ngd_digest *hash_p, struct ngd_diag *diag)
{
    if (n < NGD_TOKEN_MIN || n > NGD_TOKEN_MAX)
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT, "the token has %zu characters; a token has %d to %d", n,
                            NGD_TOKEN_MIN, NGD_TOKEN_MAX);
    for (size_t i = 0; i < n; i++)
        if (token[i] <= ' ' || token[i] > '~')
            return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT,
                                "character %zu of the token is not printable ASCII, or a space", i + 1);
    ngd_digest_of(token, n, hash_p);
    return NGD_OK;
}

/* ---- times ----------------------------------------------------------------------------------------------- */

bool ngd_token_parse_time(const char *text, size_t n, int64_t *time_p)
{
    int64_t ms;

    if (n == 5 && memcmp(text, "never", 5) == 0) {
        *time_p = NGD_TOKEN_NEVER;
        return true;
    }
    if (n != TIME_LEN || text[10] != 'T' || text[n - 1] != 'Z' || !ngd_stamp_parse(text, n, &ms))
        return false;
    *time_p = ms / 1000;
    return true;
}

void ngd_token_print_time(int64_t time, struct ngd_strbuf *sb)
{
    const time_t t = (time_t)time;
    struct tm tm;

    if (time == NGD_TOKEN_NEVER || !gmtime_r(&t, &tm))
        ngd_strbuf_append(sb, "never");
    else
        ngd_strbuf_printf(sb, "%04d-%02d-%02dT%02d:%02d:%02dZ", tm.tm_year + 1900, tm.tm_mon + 1, tm.tm_mday,
                          tm.tm_hour, tm.tm_min, tm.tm_sec);
}

/* ---- lines ----------------------------------------------------------------------------------------------- */

void ngd_token_print_row(const struct ngd_token_row *row, struct ngd_strbuf *sb)
{
    char hex[NGD_DIGEST_HEX];

    ngd_digest_hex(&row->hash, hex);
    ngd_strbuf_printf(sb, "%s  " HASH_PREFIX "%s  ", row->name, hex);
    ngd_token_print_time(row->expires, sb);
    ngd_strbuf_printf(sb, "%s%s\n", row->role == NGD_ROLE_UNSET ? "" : "  ", ngd_role_name(row->role));
}

static int hash_digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

static bool parse_hash(const char *text, size_t n, struct ngd_digest *hash)
{
    const size_t skip = strlen(HASH_PREFIX);

    if (n != skip + 2 * NGD_DIGEST_BYTES || memcmp(text, HASH_PREFIX, skip) != 0)
        return false;
    for (size_t i = 0; i < NGD_DIGEST_BYTES; i++) {
        const int high = hash_digit(text[skip + 2 * i]), low = hash_digit(text[skip + 2 * i + 1]);

        if (high < 0 || low < 0)
            return false;
        hash->b[i] = (uint8_t)(high << 4 | low);
    }
    return true;
}

struct word {
    const char *at;
    size_t n;
};

/* Splits a line at blanks. Returns the number of words, at most max + 1. */
static size_t split_words(const char *line, size_t n, struct word *words, size_t max)
{
    size_t count = 0;

    for (size_t i = 0; i < n;) {
        size_t end = i;

        while (end < n && line[end] != ' ' && line[end] != '\t' && line[end] != '\r')
            end++;
        if (end > i && count++ < max)
            words[count - 1] = (struct word){line + i, end - i};
        i = end > i ? end : i + 1;
    }
    return count > max ? max + 1 : count;
}

static ngd_status_t read_row(const struct word *words, size_t n, struct ngd_token_row *row, struct ngd_diag *diag)
{
    *row = (struct ngd_token_row){.role = NGD_ROLE_UNSET};
    if (n != 3 && n != 4)
        return ngd_diag_set(diag, NGD_ERR_CONFIG,
                            "a line has a name, sha256:HASH, a time or never, and perhaps a role");
    if (!ngd_token_name_ok(words[0].at, words[0].n))
        return ngd_diag_set(diag, NGD_ERR_CONFIG, "a name has 1 to %d letters, digits, dots, dashes and underscores",
                            NGD_TOKEN_NAME_MAX);
    if (!parse_hash(words[1].at, words[1].n, &row->hash))
        return ngd_diag_set(diag, NGD_ERR_CONFIG, "the hash is not sha256: and 64 hexadecimal digits");
    if (!ngd_token_parse_time(words[2].at, words[2].n, &row->expires))
        return ngd_diag_set(diag, NGD_ERR_CONFIG,
                            "the expiry is no time in UTC such as 2027-01-31T12:00:00Z, and not never");
    if (n == 4 && !ngd_role_parse(words[3].at, words[3].n, &row->role))
        return ngd_diag_set(diag, NGD_ERR_CONFIG, "the role is not none, viewer, user, operator or admin");
    memcpy(row->name, words[0].at, words[0].n);
    return NGD_OK;
}

ngd_status_t ngd_token_file_each(const char *path, const char *text, size_t n, ngd_token_fn *fn, void *ctx,
                                 struct ngd_diag *diag)
{
    size_t number = 0;

    for (size_t at = 0; at < n;) {
        const char *line = text + at, *end = memchr(line, '\n', n - at);
        const size_t len = end ? (size_t)(end - line) : n - at;
        struct ngd_token_row row;
        struct word words[4];
        const size_t count = split_words(line, len, words, 4);
        ngd_status_t status = NGD_OK;

        at += len + 1;
        number++;
        if (count == 0 || words[0].at[0] == '#')
            continue;
        status = read_row(words, count, &row, diag);
        if (status == NGD_OK)
            status = fn(ctx, &row, line, len, diag);
        if (status != NGD_OK) {
            ngd_diag_prefix(diag, "%.300s:%zu: ", path, number);
            return status;
        }
    }
    return NGD_OK;
}

/* ---- the file -------------------------------------------------------------------------------------------- */

ngd_status_t ngd_token_file_read(const char *path, char **text_p, size_t *n_p, struct ngd_diag *diag)
{
    return ngd_trusted_file_read(path, NGD_TRUSTED_SECRET, NGD_TOKEN_FILE_BYTES, text_p, n_p, diag);
}
