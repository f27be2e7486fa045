/* SPDX-License-Identifier: Apache-2.0 */
/* Bearer tokens: tokens new, list, revoke and hash. They need no daemon, but the file that it reads (token-file). */
#include "base/config.h"
#include "base/token_file.h"
#include "client/ctl/ctl.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define SECRET_BYTES 33          /* 44 characters, without padding */
#define PREFIX       "npugraph_" /* lets people and scanners of secrets recognise a token */
#define DAY          INT64_C(86400)
#define DEFAULT_DAYS 90

struct bearer_options {
    const struct ctl_command *command;
    const char *name, *file, *expires, *role;
    bool keep_newest;
};

/* ---- the file ---------------------------------------------------------------------------------------------- */

struct bearer_file {
    char path[PATH_MAX]; /* without links, since a rename would replace one */
    int fd;              /* locked */
    struct stat st;
    char *text;
    size_t n;
};

static int file_error(const char *path)
{
    return ctl_error("%s: %s", path, strerror(errno));
}

/* Locks the file, so that no change of another process is lost. Waits, and begins again if the file was replaced. */
static int lock_bearers(struct bearer_file *f, bool create)
{
    struct stat now;

    for (;;) {
        f->fd = open(f->path, O_RDWR | O_CLOEXEC | (create ? O_CREAT : 0), 0600);
        if (f->fd < 0 || flock(f->fd, LOCK_EX) < 0 || fstat(f->fd, &f->st) < 0)
            return file_error(f->path);
        if (stat(f->path, &now) == 0 && now.st_ino == f->st.st_ino && now.st_dev == f->st.st_dev)
            return 0;
        close(f->fd);
        f->fd = -1;
    }
}

static int open_bearers(struct bearer_file *f, const char *path, bool create)
{
    *f = (struct bearer_file){.fd = -1};
    if (realpath(path, f->path) == NULL) {
        if (errno != ENOENT || !create || strlen(path) >= sizeof(f->path))
            return file_error(path);
        snprintf(f->path, sizeof(f->path), "%s", path);
    }
    if (lock_bearers(f, create) != 0)
        return 1;
    f->text = ctl_read_file(f->path, NGD_TOKEN_FILE_BYTES, &f->n);
    return f->text != NULL ? 0 : 1;
}

static void close_bearers(struct bearer_file *f)
{
    if (f->fd >= 0)
        close(f->fd);
    free(f->text);
}

static bool write_whole(int fd, const char *text, size_t n)
{
    while (n > 0) {
        ssize_t done = write(fd, text, n);

        if (done < 0)
            return false;
        text += done;
        n -= (size_t)done;
    }
    return fsync(fd) == 0;
}

/* Replaces the file by a rename, with the same owner and mode: a daemon that reads it meanwhile gets the old or the new
 * one. */
static int replace_bearers(const struct bearer_file *f, const char *text, size_t n)
{
    char path[PATH_MAX + 8];
    int fd, rc = 0;

    snprintf(path, sizeof(path), "%s.XXXXXX", f->path);
    fd = mkostemp(path, O_CLOEXEC);
    if (fd < 0)
        return file_error(path);
    if (((f->st.st_uid != geteuid() || f->st.st_gid != getegid()) && fchown(fd, f->st.st_uid, f->st.st_gid) < 0) ||
        fchmod(fd, f->st.st_mode & 0777) < 0 || !write_whole(fd, text, n) || rename(path, f->path) < 0)
        rc = file_error(f->path);
    if (rc != 0)
        unlink(path);
    close(fd);
    return rc;
}

/* ---- new --------------------------------------------------------------------------------------------------- */

static bool parse_expiry(const char *text, int64_t *expires_p)
{
    const size_t n = strlen(text);
    uint64_t days;
    char number[16];
    ngd_nsec_t t;

    if (ngd_token_parse_time(text, n, expires_p))
        return true;
    if (n > 1 && n < sizeof(number) && text[n - 1] == 'd') {
        snprintf(number, sizeof(number), "%.*s", (int)n - 1, text);
        if (!ctl_parse_uint(number, 36500, &days))
            return false;
        *expires_p = (int64_t)time(NULL) + DAY * (int64_t)days;
        return true;
    }
    if (ngd_parse_time(text, &t) != NGD_OK || t < NGD_SEC)
        return false;
    *expires_p = (int64_t)time(NULL) + t / NGD_SEC;
    return true;
}

/* Makes a token of SECRET_BYTES random bytes, 6 bits a character. */
static bool make_token(char token[NGD_TOKEN_MAX + 1])
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    uint8_t secret[SECRET_BYTES];
    size_t at = strlen(PREFIX);

    if (getrandom(secret, sizeof(secret), 0) != sizeof(secret))
        return false;
    memcpy(token, PREFIX, at);
    for (size_t i = 0; i < sizeof(secret); i += 3) {
        const uint32_t bits = (uint32_t)secret[i] << 16 | (uint32_t)secret[i + 1] << 8 | secret[i + 2];

        for (int shift = 18; shift >= 0; shift -= 6)
            token[at++] = letters[bits >> shift & 63];
    }
    token[at] = '\0';
    explicit_bzero(secret, sizeof(secret));
    return true;
}

static ngd_status_t accept_row(void *ctx, const struct ngd_token_row *row, const char *line, size_t n,
                               struct ngd_diag *diag)
{
    (void)ctx;
    (void)row;
    (void)line;
    (void)n;
    (void)diag;
    return NGD_OK;
}

/* Refuses a text that the daemon's next reload would refuse. */
static int check_bearers(const char *path, const struct ngd_strbuf *text)
{
    struct ngd_diag diag = {0};

    if (text->failed)
        return ctl_error("out of memory");
    if (text->len > NGD_TOKEN_FILE_BYTES)
        return ctl_error("%s would have more than %d MiB", path, (int)(NGD_TOKEN_FILE_BYTES >> 20));
    if (ngd_token_file_each(path, text->data, text->len, accept_row, NULL, &diag) != NGD_OK)
        return ctl_error("%s", diag.text);
    return 0;
}

static int add_bearer(const struct bearer_options *o, const struct ngd_token_row *row)
{
    struct bearer_file f;
    struct ngd_strbuf sb;
    int rc = open_bearers(&f, o->file, true);

    ngd_strbuf_init(&sb);
    if (rc == 0) {
        ngd_strbuf_append_n(&sb, f.text, f.n);
        if (f.n > 0 && f.text[f.n - 1] != '\n')
            ngd_strbuf_putc(&sb, '\n');
        ngd_token_print_row(row, &sb);
        rc = check_bearers(o->file, &sb);
        if (rc == 0)
            rc = replace_bearers(&f, sb.data, sb.len);
    }
    ngd_strbuf_fini(&sb);
    close_bearers(&f);
    return rc;
}

/* The token alone goes to standard output, so that a shell can redirect it to a file. */
static void show_bearer(struct ctl *ctl, const struct bearer_options *o, const struct ngd_token_row *row,
                        const char *token)
{
    struct ngd_strbuf line, expires;

    ngd_strbuf_init(&line);
    ngd_strbuf_init(&expires);
    ngd_token_print_row(row, &line);
    ngd_token_print_time(row->expires, &expires);
    if (ctl->json) {
        struct ctl_fields *fields = ctl_fields_new(ctl, NULL);

        ctl_field_str(fields, "Name", "name", row->name);
        ctl_field_str(fields, "Token", "token", token);
        ctl_field_str(fields, "Expires", "expires", ngd_strbuf_str(&expires));
        if (o->file == NULL)
            ctl_field_str(fields, "Line", "line", ngd_strbuf_str(&line));
        ctl_fields_end(fields);
    } else {
        printf("%s\n", token);
        if (o->file == NULL)
            fprintf(stderr, "The line for the daemon's token-file:\n%s", ngd_strbuf_str(&line));
        else
            fprintf(stderr, "%s has it, until %s; npugraphctl reload makes the daemon read it\n", o->file,
                    ngd_strbuf_str(&expires));
    }
    ngd_strbuf_fini(&line);
    ngd_strbuf_fini(&expires);
}

static int new_bearer(struct ctl *ctl, const struct bearer_options *o)
{
    struct ngd_token_row row = {.expires = (int64_t)time(NULL) + DEFAULT_DAYS * DAY, .role = NGD_ROLE_UNSET};
    char token[NGD_TOKEN_MAX + 1];
    int rc = 0;

    if (o->name == NULL)
        return ctl_usage(o->command, "new takes the token's name");
    if (!ngd_token_name_ok(o->name, strlen(o->name)))
        return ctl_usage(o->command, "a name has 1 to %d letters, digits, dots, dashes and underscores",
                         NGD_TOKEN_NAME_MAX);
    if (o->expires != NULL && !parse_expiry(o->expires, &row.expires))
        return ctl_usage(o->command, "--expires takes a time such as 12h, 30d or 2027-01-31T12:00:00Z, or never");
    if (o->role != NULL && !ngd_role_parse(o->role, strlen(o->role), &row.role))
        return ctl_usage(o->command, "--role takes none, viewer, user, operator or admin");
    snprintf(row.name, sizeof(row.name), "%s", o->name);
    if (!make_token(token) || ngd_token_hash(token, strlen(token), &row.hash, NULL) != NGD_OK)
        return ctl_error("no random numbers for a token");
    if (o->file != NULL)
        rc = add_bearer(o, &row);
    if (rc == 0)
        show_bearer(ctl, o, &row, token);
    explicit_bzero(token, sizeof(token));
    return rc;
}

/* ---- list, revoke, hash ------------------------------------------------------------------------------------ */

static int bad_bearers(const struct ngd_diag *diag)
{
    return ctl_error("%s", diag->text);
}

static ngd_status_t list_row(void *ctx, const struct ngd_token_row *row, const char *line, size_t n,
                             struct ngd_diag *diag)
{
    struct ctl_table *t = ctx;
    char hex[NGD_DIGEST_HEX];
    struct ngd_strbuf sb;

    (void)line;
    (void)n;
    (void)diag;
    ngd_strbuf_init(&sb);
    ngd_token_print_time(row->expires, &sb);
    ngd_digest_hex(&row->hash, hex);
    ctl_row(t);
    ctl_str(t, row->name);
    ctl_str(t, ngd_strbuf_str(&sb));
    ctl_state(t, row->expires > (int64_t)time(NULL) ? "valid" : "expired", row->expires > (int64_t)time(NULL));
    hex[12] = '\0';
    ctl_str(t, hex);
    ctl_str(t, row->role == NGD_ROLE_UNSET ? "-" : ngd_role_name(row->role));
    ngd_strbuf_fini(&sb);
    return NGD_OK;
}

static int list_bearers(struct ctl *ctl, const struct bearer_options *o)
{
    static const struct ctl_column columns[] = {{"NAME", "name", false},
                                                {"EXPIRES", "expires", false},
                                                {"STATE", "state", false},
                                                {"HASH", "hash", false},
                                                {"ROLE", "role", false}};
    struct ngd_diag diag = {0};
    struct ctl_table *t;
    size_t n;
    char *text = ctl_read_file(o->file, NGD_TOKEN_FILE_BYTES, &n);
    int rc = 0;

    if (text == NULL)
        return 1;
    t = ctl_table_new(ctl, "tokens", columns, 5);
    if (ngd_token_file_each(o->file, text, n, list_row, t, &diag) != NGD_OK)
        rc = bad_bearers(&diag);
    ctl_table_end(t, "no tokens");
    free(text);
    return rc;
}

/* The lines of one name, and the text without those that go. */
struct revocation {
    const char *name, *newest, *at;
    size_t found, removed;
    struct ngd_strbuf rest;
};

static ngd_status_t find_newest(void *ctx, const struct ngd_token_row *row, const char *line, size_t n,
                                struct ngd_diag *diag)
{
    struct revocation *r = ctx;

    (void)n;
    (void)diag;
    if (strcmp(row->name, r->name) == 0) {
        r->newest = line;
        r->found++;
    }
    return NGD_OK;
}

static ngd_status_t drop_row(void *ctx, const struct ngd_token_row *row, const char *line, size_t n,
                             struct ngd_diag *diag)
{
    struct revocation *r = ctx;

    (void)diag;
    if (strcmp(row->name, r->name) != 0 || line == r->newest)
        return NGD_OK;
    ngd_strbuf_append_n(&r->rest, r->at, (size_t)(line - r->at));
    r->at = line + n + (line[n] == '\n');
    r->removed++;
    return NGD_OK;
}

static int revoke_in(const struct bearer_file *f, const struct bearer_options *o, struct revocation *r)
{
    struct ngd_diag diag = {0};

    if (ngd_token_file_each(o->file, f->text, f->n, find_newest, r, &diag) != NGD_OK)
        return bad_bearers(&diag);
    if (r->found == 0)
        return ctl_error("%s has no token %s", o->file, o->name);
    if (!o->keep_newest)
        r->newest = NULL;
    r->at = f->text;
    (void)ngd_token_file_each(o->file, f->text, f->n, drop_row, r, NULL);
    ngd_strbuf_append_n(&r->rest, r->at, (size_t)(f->text + f->n - r->at));
    return r->rest.failed ? ctl_error("out of memory") : replace_bearers(f, ngd_strbuf_str(&r->rest), r->rest.len);
}

static int revoke_bearer(struct ctl *ctl, const struct bearer_options *o)
{
    struct revocation r = {.name = o->name};
    struct ctl_fields *fields;
    struct bearer_file f;
    int rc;

    if (o->name == NULL)
        return ctl_usage(o->command, "revoke takes the token's name");
    ngd_strbuf_init(&r.rest);
    rc = open_bearers(&f, o->file, false);
    if (rc == 0)
        rc = revoke_in(&f, o, &r);
    close_bearers(&f);
    ngd_strbuf_fini(&r.rest);
    if (rc != 0)
        return rc;
    fields = ctl_fields_new(ctl, NULL);
    ctl_field_int(fields, "Removed", "removed", r.removed);
    ctl_fields_end(fields);
    return 0;
}

/* Hashes a token that another program made, from standard input: an argument would be in the list of processes. */
static int hash_bearer(struct ctl *ctl)
{
    struct ngd_diag diag = {0};
    struct ngd_digest hash;
    char hex[NGD_DIGEST_HEX], text[sizeof("sha256:") + NGD_DIGEST_HEX];
    struct ctl_fields *fields;
    ngd_status_t status;
    size_t n;
    char *token = ctl_read_file("-", 2 * NGD_TOKEN_MAX, &n);

    if (token == NULL)
        return 1;
    while (n > 0 && (token[n - 1] == '\n' || token[n - 1] == '\r'))
        n--;
    status = ngd_token_hash(token, n, &hash, &diag);
    explicit_bzero(token, n);
    free(token);
    if (status != NGD_OK)
        return bad_bearers(&diag);
    ngd_digest_hex(&hash, hex);
    snprintf(text, sizeof(text), "sha256:%s", hex);
    if (!ctl->json) {
        printf("%s\n", text);
        return 0;
    }
    fields = ctl_fields_new(ctl, NULL);
    ctl_field_str(fields, "Hash", "hash", text);
    ctl_fields_end(fields);
    return 0;
}

/* ---- the command ------------------------------------------------------------------------------------------- */

static int read_bearer_options(struct bearer_options *b, struct ctl_options *o, const char **verb_p)
{
    const char *name, *value, *word, *words[2] = {NULL, NULL};
    size_t n = 0;

    for (;;) {
        name = ctl_next_option(o, "keep-newest", "file expires role", &value);
        if (name == NULL) {
            word = ctl_next_argument(o);
            if (word == NULL)
                break;
            if (n == 2)
                return ctl_usage(o->command, "tokens takes no argument %s", word);
            words[n++] = word;
            continue;
        }
        if (strcmp(name, "?") == 0)
            return 2;
        if (strcmp(name, "keep-newest") == 0)
            b->keep_newest = true;
        else if (strcmp(name, "file") == 0)
            b->file = value;
        else if (strcmp(name, "role") == 0)
            b->role = value;
        else
            b->expires = value;
    }
    *verb_p = words[0];
    b->name = words[1];
    return 0;
}

int ctl_cmd_tokens(struct ctl *ctl, int argc, char **argv)
{
    struct ctl_options o = {ctl_find_command(argv[0]), argc, 1, argv};
    struct bearer_options b = {.command = o.command};
    const char *verb = NULL;
    int rc = read_bearer_options(&b, &o, &verb);

    if (rc != 0)
        return rc;
    if (verb == NULL)
        return ctl_usage(o.command, "tokens takes new, list, revoke or hash");
    if (strcmp(verb, "new") == 0)
        return new_bearer(ctl, &b);
    if (strcmp(verb, "hash") == 0)
        return hash_bearer(ctl);
    if (strcmp(verb, "list") != 0 && strcmp(verb, "revoke") != 0)
        return ctl_usage(o.command, "tokens has no %s; there are new, list, revoke and hash", verb);
    if (b.file == NULL)
        return ctl_usage(o.command, "%s needs --file, the daemon's token-file", verb);
    return strcmp(verb, "list") == 0 ? list_bearers(ctl, &b) : revoke_bearer(ctl, &b);
}
