/* SPDX-License-Identifier: Apache-2.0 */
#include "client/lib/token.h"
#include "client/lib/error.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOKEN_MAX 512
#define BLANKS    " \t\r\n"
#define SCHEME    "Bearer "

/* Returns the length of the only word of text, after *at_p; 0: it is empty, has several words, or other characters than
 * printable ASCII. */
static size_t only_word(const char *text, size_t n, size_t *at_p)
{
    const size_t at = strspn(text, BLANKS), len = strcspn(text + at, BLANKS);

    if (at + len + strspn(text + at + len, BLANKS) != n)
        return 0;
    for (size_t i = at; i < at + len; i++)
        if (text[i] <= ' ' || text[i] > '~')
            return 0;
    *at_p = at;
    return len;
}

static int read_token(const char *path, char text[TOKEN_MAX + 16], size_t *n_p, struct npugraph_error *err)
{
    FILE *f = fopen(path, "re");

    if (f == NULL)
        return npugraph__error(err, 3, "FILE_NOT_FOUND", "the token file %.300s: %s", path, strerror(errno));
    *n_p = fread(text, 1, TOKEN_MAX + 15, f);
    text[*n_p] = '\0';
    fclose(f);
    return 0;
}

int npugraph__token_header(const char *path, char **header_p, struct npugraph_error *err)
{
    char text[TOKEN_MAX + 16];
    size_t n = 0, at = 0, len;
    int rc;

    *header_p = NULL;
    if (path == NULL)
        path = getenv("NPUGRAPH_TOKEN_FILE");
    if (path == NULL || path[0] == '\0')
        return 0;
    rc = read_token(path, text, &n, err);
    if (rc != 0)
        return rc;
    len = only_word(text, n, &at);
    if (len == 0 || len > TOKEN_MAX)
        rc = npugraph__error(err, 3, "INVALID_ARGUMENT",
                             "%.300s: a token file has one word of at most %d characters of printable ASCII", path,
                             TOKEN_MAX);
    else if ((*header_p = malloc(strlen(SCHEME) + len + 1)) == NULL)
        rc = npugraph__error(err, 8, "NO_MEMORY", "out of memory");
    else
        snprintf(*header_p, strlen(SCHEME) + len + 1, SCHEME "%.*s", (int)len, text + at);
    explicit_bzero(text, sizeof(text));
    return rc;
}
