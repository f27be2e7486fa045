/* SPDX-License-Identifier: Apache-2.0 */
#include "client/lib/token.h"
#include "client/lib/error.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOKEN_MAX  8192 /* characters of a JSON Web Token; others have at most 512 */
#define TOKEN_ROOM (TOKEN_MAX + 16)
#define BLANKS     " \t\r\n"
#define SCHEME     "Bearer "

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

static int read_token(const char *path, char text[TOKEN_ROOM], size_t *n_p, struct npugraph_error *err)
{
    FILE *f = fopen(path, "re");

    if (f == NULL)
        return npugraph__error(err, 3, "FILE_NOT_FOUND", "the token file %.300s: %s", path, strerror(errno));
    *n_p = fread(text, 1, TOKEN_ROOM - 1, f);
    text[*n_p] = '\0';
    fclose(f);
    return 0;
}

/* Reads the file. *header_p: the value of metadata authorization, which the caller frees. */
static int read_token_header(const char *path, char **header_p, struct npugraph_error *err)
{
    char *text = malloc(TOKEN_ROOM);
    size_t n = 0, at = 0, len;
    int rc;

    if (text == NULL)
        return npugraph__error(err, 8, "NO_MEMORY", "out of memory");
    rc = read_token(path, text, &n, err);
    if (rc != 0) {
        free(text);
        return rc;
    }
    len = only_word(text, n, &at);
    if (len == 0 || len > TOKEN_MAX)
        rc = npugraph__error(err, 3, "INVALID_ARGUMENT",
                             "%.300s: a token file has one word of at most %d characters of printable ASCII", path,
                             TOKEN_MAX);
    else if ((*header_p = malloc(strlen(SCHEME) + len + 1)) == NULL)
        rc = npugraph__error(err, 8, "NO_MEMORY", "out of memory");
    else
        snprintf(*header_p, strlen(SCHEME) + len + 1, SCHEME "%.*s", (int)len, text + at);
    explicit_bzero(text, TOKEN_ROOM);
    free(text);
    return rc;
}

static void forget_header(char *header)
{
    if (header != NULL)
        explicit_bzero(header, strlen(header));
    free(header);
}

int npugraph__token_open(struct npugraph__token *token, const char *path, struct npugraph_error *err)
{
    int rc;

    if (path == NULL)
        path = getenv("NPUGRAPH_TOKEN_FILE");
    if (path == NULL || path[0] == '\0')
        return 0;
    token->path = strdup(path);
    if (token->path == NULL)
        return npugraph__error(err, 8, "NO_MEMORY", "out of memory");
    if (stat(path, &token->seen) != 0) /* reading it says why */
        memset(&token->seen, 0, sizeof(token->seen));
    rc = read_token_header(path, &token->header, err);
    token->number = rc == 0;
    return rc;
}

void npugraph__token_close(struct npugraph__token *token)
{
    forget_header(token->header);
    free(token->path);
    memset(token, 0, sizeof(*token));
}

static bool is_same_file(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
           a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

/* The file is looked at before it is read, so that a change meanwhile is seen the next time. */
void npugraph__token_refresh(struct npugraph__token *token, bool always)
{
    struct stat now;
    char *header = NULL;

    if (token->path == NULL || stat(token->path, &now) != 0 || (!always && is_same_file(&now, &token->seen)))
        return;
    if (read_token_header(token->path, &header, NULL) != 0)
        return;
    token->seen = now;
    if (strcmp(header, token->header) == 0) {
        forget_header(header);
        return;
    }
    forget_header(token->header);
    token->header = header;
    token->number++;
}

/* Whether a checked address is of this machine: a socket, localhost, or a loopback address. Other names may lead
 * anywhere. */
static bool is_near(const char *address)
{
    const char *colon = strrchr(address, ':');
    struct in6_addr six;
    struct in_addr four;
    char host[64];

    if (strncmp(address, "unix", 4) == 0 && (address[4] == ':' || strncmp(address + 4, "-abstract:", 10) == 0))
        return true;
    if (colon == NULL || (size_t)(colon - address) >= sizeof(host))
        return false;
    snprintf(host, sizeof(host), "%.*s", (int)(colon - address), address);
    if (strcmp(host, "localhost") == 0 || strcmp(host, "[::1]") == 0)
        return true;
    if (inet_pton(AF_INET, host, &four) == 1)
        return ntohl(four.s_addr) >> 24 == 127;
    return inet_pton(AF_INET6, host, &six) == 1 && IN6_IS_ADDR_LOOPBACK(&six);
}

int npugraph__token_check(const char *header, const char *address, bool tls, struct npugraph_error *err)
{
    const char *allowed = getenv("NPUGRAPH_PLAINTEXT_TOKENS");

    if (header == NULL || tls || is_near(address) || (allowed != NULL && strcmp(allowed, "yes") == 0))
        return 0;
    return npugraph__error(err, 3, "TOKEN_PLAINTEXT",
                           "a token would go to %.200s without TLS; give certificates, or set "
                           "NPUGRAPH_PLAINTEXT_TOKENS=yes where nobody can read the network",
                           address);
}
