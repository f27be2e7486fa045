/* SPDX-License-Identifier: Apache-2.0 */
#include "base/token_file.h"
#include "base/mem.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

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

static int digits_of(const char *text, size_t n)
{
    int value = 0;

    for (size_t i = 0; i < n; i++) {
        if (text[i] < '0' || text[i] > '9')
            return -1;
        value = 10 * value + (text[i] - '0');
    }
    return value;
}

bool ngd_token_parse_time(const char *text, size_t n, int64_t *time_p)
{
    struct tm tm = {0}, again;
    time_t t;

    if (n == 5 && memcmp(text, "never", 5) == 0) {
        *time_p = NGD_TOKEN_NEVER;
        return true;
    }
    if (n != TIME_LEN || text[4] != '-' || text[7] != '-' || text[10] != 'T' || text[13] != ':' || text[16] != ':' ||
        text[19] != 'Z')
        return false;
    tm.tm_year = digits_of(text, 4) - 1900;
    tm.tm_mon = digits_of(text + 5, 2) - 1;
    tm.tm_mday = digits_of(text + 8, 2);
    tm.tm_hour = digits_of(text + 11, 2);
    tm.tm_min = digits_of(text + 14, 2);
    tm.tm_sec = digits_of(text + 17, 2);
    again = tm;
    t = timegm(&again); /* 31 February becomes a day of March */
    if (tm.tm_year < 70 || again.tm_year != tm.tm_year || again.tm_mon != tm.tm_mon || again.tm_mday != tm.tm_mday ||
        again.tm_hour != tm.tm_hour || again.tm_min != tm.tm_min || again.tm_sec != tm.tm_sec)
        return false;
    *time_p = (int64_t)t;
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

static ngd_status_t check_token_file(const char *path, const struct stat *st, struct ngd_diag *diag)
{
    if (!S_ISREG(st->st_mode))
        return ngd_diag_set(diag, NGD_ERR_CONFIG, "%.300s: not a regular file", path);
    if (st->st_uid != 0 && st->st_uid != geteuid())
        return ngd_diag_set(diag, NGD_ERR_CONFIG, "%.300s: belongs to user %lu; it must belong to root or to user %lu",
                            path, (unsigned long)st->st_uid, (unsigned long)geteuid());
    if (st->st_mode & (S_IWGRP | S_IRWXO))
        return ngd_diag_set(diag, NGD_ERR_CONFIG,
                            "%.300s: has mode %04o, so that others may read or write it; chmod 0640 or 0600", path,
                            (unsigned)(st->st_mode & 07777));
    if (st->st_size > (off_t)NGD_TOKEN_FILE_BYTES)
        return ngd_diag_set(diag, NGD_ERR_CONFIG, "%.300s: has %lld bytes; at most %u are read", path,
                            (long long)st->st_size, NGD_TOKEN_FILE_BYTES);
    return NGD_OK;
}

static ngd_status_t cannot_read(const char *path, struct ngd_diag *diag)
{
    return ngd_diag_set(diag, NGD_ERR_CONFIG, "%.300s: %s", path, strerror(errno));
}

static bool is_same(const struct stat *a, const struct stat *b)
{
    return a->st_size == b->st_size && a->st_mtim.tv_sec == b->st_mtim.tv_sec &&
           a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

static ngd_status_t read_whole(int fd, const char *path, size_t n, char **text_p, struct ngd_diag *diag)
{
    char *text = ngd_malloc(n + 1);
    size_t have = 0;

    if (!text)
        return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory for %.300s", path);
    while (have < n) {
        ssize_t got = read(fd, text + have, n - have);

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0) {
            ngd_free(text);
            return cannot_read(path, diag);
        }
        if (got == 0)
            break;
        have += (size_t)got;
    }
    text[have] = '\0';
    *text_p = text;
    return have == n ? NGD_OK : NGD_ERR_FILE_TRUNCATED;
}

ngd_status_t ngd_token_file_read(const char *path, char **text_p, size_t *n_p, struct ngd_diag *diag)
{
    struct stat before, after;
    ngd_status_t status;
    /* Not blocked by a FIFO: a reload reads the file on the loop. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);

    *text_p = NULL;
    if (fd < 0)
        return cannot_read(path, diag);
    status = fstat(fd, &before) < 0 ? cannot_read(path, diag) : check_token_file(path, &before, diag);
    if (status == NGD_OK)
        status = read_whole(fd, path, (size_t)before.st_size, text_p, diag);
    if (*text_p && (status != NGD_OK || fstat(fd, &after) < 0 || !is_same(&before, &after))) {
        ngd_free(*text_p);
        *text_p = NULL;
        status = ngd_diag_set(diag, NGD_ERR_CONFIG,
                              "%.300s: was written while it was read; replace it by a rename, and try again", path);
    }
    if (status == NGD_OK)
        *n_p = (size_t)before.st_size;
    close(fd);
    return status;
}
