/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Contexts: how to reach a daemon, under a name. Context NAME is the file NAME.conf of the user's directory of
 * contexts, with lines "option = value" as in the daemon's configuration.
 */
#include "client/ctl/ctl_context.h"
#include "base/config.h"
#include <ctype.h>
#include <dirent.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NAME_MAX_BYTES 64
#define SUFFIX         ".conf"

static const struct ngd_config_option table[] = {
#define FILE_OPTION(name, field, help)                                                            \
    {                                                                                             \
        name, NGD_CONFIG_STRING, offsetof(struct ctl_context, field), "", 0, 0, NULL, help, false \
    }
    FILE_OPTION("address", address, "unix:PATH or HOST:PORT"),
    FILE_OPTION("tls-ca", tls_ca, "certificates of authorities"),
    FILE_OPTION("tls-cert", tls_cert, "the client's certificate"),
    FILE_OPTION("tls-key", tls_key, "its key"),
    FILE_OPTION("tls-server-name", tls_server_name, "the name in the daemon's certificate"),
    FILE_OPTION("token-file", token_file, "a bearer token"),
    NGD_CONFIG_END(0),
#undef FILE_OPTION
};

/* Puts the directory of contexts into `path`; empty if the user has no home. */
static void put_directory(struct ngd_strbuf *path)
{
    const char *config = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");

    if (config != NULL && config[0] == '/')
        ngd_strbuf_printf(path, "%s/npugraph/contexts", config);
    else if (home != NULL && home[0] == '/')
        ngd_strbuf_printf(path, "%s/.config/npugraph/contexts", home);
}

static bool is_context_name(const char *name, size_t n)
{
    if (n == 0 || n > NAME_MAX_BYTES || name[0] == '.')
        return false;
    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)name[i]) && strchr("._-", name[i]) == NULL)
            return false;
    return true;
}

/* Reads a file of contexts. Paths are from the root, since a context is used in any directory. */
static ngd_status_t read_context(const char *path, struct ctl_context *context, struct ngd_diag *diag)
{
    static const char *const names[] = {"tls-ca", "tls-cert", "tls-key", "token-file"};
    ngd_status_t status = ngd_config_init(table, context, diag);

    if (status == NGD_OK)
        status = ngd_config_read_file(table, context, path, diag);
    if (status != NGD_OK)
        return status;
    for (size_t i = 0; i < 4; i++) {
        const char *const values[] = {context->tls_ca, context->tls_cert, context->tls_key, context->token_file};

        if (values[i][0] != '\0' && values[i][0] != '/')
            return ngd_diag_set(diag, NGD_ERR_CONFIG, "%s: %s is %s: it must be a path from the root", path, names[i],
                                values[i]);
    }
    if (context->address[0] == '\0')
        return ngd_diag_set(diag, NGD_ERR_CONFIG, "%s: it has no address", path);
    return NGD_OK;
}

/* Is used where none is named and no address is given. */
#define DEFAULT "default"

/* Returns the name of the context that is used; NULL: none. */
static const char *wanted_context(const struct ctl *ctl)
{
    const char *from_environment = getenv("NPUGRAPH_CONTEXT");

    if (ctl->context_name != NULL)
        return ctl->context_name;
    if (from_environment != NULL && from_environment[0] != '\0')
        return from_environment;
    return ctl->connect.address == NULL && getenv("NPUGRAPH_ADDRESS") == NULL ? DEFAULT : NULL;
}

static void take(const char **to, const char *value)
{
    if (*to == NULL && value[0] != '\0')
        *to = value;
}

/* Puts the path of a context's file into `path`. Returns whether there is such a file. */
static bool find_context(const char *name, struct ngd_strbuf *path)
{
    put_directory(path);
    ngd_strbuf_printf(path, "/%s" SUFFIX, name);
    return access(ngd_strbuf_str(path), F_OK) == 0;
}

/* The token is for the context's own daemon: another address does not get it. */
static void take_all(const struct ctl_context *context, struct npugraph_connect_params *p)
{
    if (p->address == NULL)
        take(&p->token_file, context->token_file);
    take(&p->address, context->address);
    take(&p->tls_ca, context->tls_ca);
    take(&p->tls_cert, context->tls_cert);
    take(&p->tls_key, context->tls_key);
    take(&p->tls_server_name, context->tls_server_name);
}

bool ctl_context_use(struct ctl *ctl)
{
    const char *wanted = wanted_context(ctl);
    struct ngd_diag diag = {0};
    struct ngd_strbuf path;
    int rc = 0;

    if (wanted == NULL)
        return true;
    if (!is_context_name(wanted, strlen(wanted))) {
        ctl_error("%s is no context's name: 1 to %d letters, digits, dots, dashes and underscores", wanted,
                  NAME_MAX_BYTES);
        return false;
    }
    ngd_strbuf_init(&path);
    if (find_context(wanted, &path)) {
        if (read_context(ngd_strbuf_str(&path), &ctl->context, &diag) == NGD_OK)
            take_all(&ctl->context, &ctl->connect);
        else
            rc = ctl_error("%s", diag.text);
    } else if (strcmp(wanted, DEFAULT) != 0) {
        rc = ctl_error("there is no context %s: no file %s", wanted, ngd_strbuf_str(&path));
    }
    ngd_strbuf_fini(&path);
    return rc == 0;
}

void ctl_context_fini(struct ctl_context *context)
{
    ngd_config_fini(table, context);
}

/* ---- the command ------------------------------------------------------------------------------------------- */

/* Adds a row. A file that cannot be read has its error in place of the address. */
static void list_context(struct ctl_table *t, const char *directory, const char *file, const char *used)
{
    const size_t n = strlen(file) - strlen(SUFFIX);
    struct ctl_context context = {0};
    struct ngd_diag diag = {0};
    struct ngd_strbuf path, name;
    bool good;

    ngd_strbuf_init(&path);
    ngd_strbuf_init(&name);
    ngd_strbuf_printf(&path, "%s/%s", directory, file);
    ngd_strbuf_append_n(&name, file, n);
    good = !path.failed && !name.failed && read_context(ngd_strbuf_str(&path), &context, &diag) == NGD_OK;
    ctl_row(t);
    ctl_str(t, ngd_strbuf_str(&name));
    ctl_str(t, good ? context.address : "");
    ctl_str(t, strcmp(ngd_strbuf_str(&name), used) == 0 ? "yes" : "");
    ctl_str(t, diag.text);
    ctl_context_fini(&context);
    ngd_strbuf_fini(&path);
    ngd_strbuf_fini(&name);
}

static int is_context_file(const struct dirent *entry)
{
    const size_t n = strlen(entry->d_name), suffix = strlen(SUFFIX);

    return n > suffix && strcmp(entry->d_name + n - suffix, SUFFIX) == 0 && is_context_name(entry->d_name, n - suffix);
}

int ctl_cmd_contexts(struct ctl *ctl, int argc, char **argv)
{
    static const struct ctl_column columns[] = {
        {"NAME", "name", false}, {"ADDRESS", "address", false}, {"USED", "used", false}, {"ERROR", "error", false}};
    const char *wanted = wanted_context(ctl);
    struct ngd_strbuf directory;
    struct dirent **entries = NULL;
    struct ctl_table *t;
    int n, rc = ctl_no_arguments(argc, argv);

    if (rc != 0)
        return rc;
    ngd_strbuf_init(&directory);
    put_directory(&directory);
    n = directory.len > 0 ? scandir(ngd_strbuf_str(&directory), &entries, is_context_file, alphasort) : 0;
    t = ctl_table_new(ctl, "contexts", columns, 4);
    for (int i = 0; i < n; i++) {
        list_context(t, ngd_strbuf_str(&directory), entries[i]->d_name, wanted != NULL ? wanted : "");
        free(entries[i]);
    }
    free(entries);
    ctl_table_end(t, "no contexts");
    ngd_strbuf_fini(&directory);
    return 0;
}
