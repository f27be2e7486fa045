/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_BASE_TOKEN_FILE_H
#define NGD_BASE_TOKEN_FILE_H

/*
 * The file of bearer tokens (option token-file), which npugraphd reads and `npugraphctl tokens` writes. It has SHA-256
 * hashes, never a token. A line is a token:
 *
 *   NAME  sha256:HASH  EXPIRES  [ROLE]
 *
 * HASH has 64 hexadecimal digits. EXPIRES is a time in UTC, such as 2027-01-31T12:00:00Z, or never. ROLE is a
 * name of base/role.def. Empty lines, and lines that begin with #, are comments. Lines of one name are tokens of one
 * identity, so that a new token can be used before the old one is removed. Threads: any.
 */
#include "base/digest.h"
#include "base/role.h"
#include "base/status.h"
#include "base/strbuf.h"
#include <stdint.h>

#define NGD_TOKEN_NAME_MAX   64
#define NGD_TOKEN_MIN        24 /* characters of a token; shorter ones can be guessed from their hash */
#define NGD_TOKEN_MAX        512
#define NGD_TOKEN_FILE_BYTES (32u << 20)
#define NGD_TOKEN_NEVER      INT64_MAX

struct ngd_token_row {
    char name[NGD_TOKEN_NAME_MAX + 1];
    struct ngd_digest hash;
    int64_t expires; /* seconds since 1970; NGD_TOKEN_NEVER */
    ngd_role_t role; /* NGD_ROLE_UNSET: that of its name */
};

/* Checks that a name has 1 to NGD_TOKEN_NAME_MAX letters, digits, dots, dashes and underscores. */
bool ngd_token_name_ok(const char *name, size_t n);
/* Hashes a token. INVALID_ARGUMENT: its length is not NGD_TOKEN_MIN to NGD_TOKEN_MAX, or it has other characters than
 * printable ASCII, or spaces. The diagnosis does not repeat it. */
ngd_status_t ngd_token_hash(const char *token, size_t n, struct ngd_digest *hash_p, struct ngd_diag *diag);

/* Times as the file has them. parse: false for another form, or a date that does not exist. */
bool ngd_token_parse_time(const char *text, size_t n, int64_t *time_p);
void ngd_token_print_time(int64_t time, struct ngd_strbuf *sb);
/* Appends a line of the file. */
void ngd_token_print_row(const struct ngd_token_row *row, struct ngd_strbuf *sb);

/* Reads the file as a secret one of at most NGD_TOKEN_FILE_BYTES (base/trusted_file.h). */
ngd_status_t ngd_token_file_read(const char *path, char **text_p, size_t *n_p, struct ngd_diag *diag);
/* Calls fn for each token of the file, with its line in text; what fn returns other than NGD_OK ends it. A line that is
 * not valid gives CONFIG. The diagnosis names path and line. */
typedef ngd_status_t ngd_token_fn(void *ctx, const struct ngd_token_row *row, const char *line, size_t n,
                                  struct ngd_diag *diag);
ngd_status_t ngd_token_file_each(const char *path, const char *text, size_t n, ngd_token_fn *fn, void *ctx,
                                 struct ngd_diag *diag);

#endif
