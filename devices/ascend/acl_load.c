/* SPDX-License-Identifier: Apache-2.0 */
/* Finding CANN: folders, libraries, symbols. */
#include "base/lock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/strbuf.h"
#include "devices/ascend/acl.h"
#include "devices/ascend/acl_environment.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum library {
#define NGD_ACL_LIBRARY(id, file, group, required) LIB_##id,
#include "devices/ascend/acl_libraries.def"
#undef NGD_ACL_LIBRARY
    LIB_MAX
};

enum group { GROUP_ASCENDCL, GROUP_NNOPBASE, GROUP_OPAPI, GROUP_HCCL };

#define LIBRARY_NAME 1024

static const struct {
    const char *file;
    enum group group;
    bool required;
} libraries[] = {
#define NGD_ACL_LIBRARY(id, file, group, required) {file, GROUP_##group, required},
#include "devices/ascend/acl_libraries.def"
#undef NGD_ACL_LIBRARY
};

static const struct symbol {
    const char *name;
    size_t at; /* of its pointer in struct ngd_acl */
    enum group group;
    const char *since, *instead;
    bool op; /* optional for the loader: graphs that need it are refused */
} symbols[] = {
#define NGD_ACL(name, result, args, library, since, instead) \
    {#name, offsetof(struct ngd_acl, name), GROUP_##library, since, instead, false},
#include "devices/ascend/acl_symbols.def"
#undef NGD_ACL
#define NGD_ACLNN(name, args, since, instead)                 \
    {"aclnn" #name "GetWorkspaceSize",                        \
     offsetof(struct ngd_acl, aclnn##name##GetWorkspaceSize), \
     GROUP_OPAPI,                                             \
     since,                                                   \
     instead,                                                 \
     true},                                                   \
        {"aclnn" #name, offsetof(struct ngd_acl, aclnn##name), GROUP_OPAPI, since, instead, true},
#include "devices/ascend/aclnn_symbols.def"
#undef NGD_ACLNN
};
#define N_SYMBOLS (sizeof(symbols) / sizeof(symbols[0]))

struct loaded {
    struct ngd_acl acl;
    char dir[512], names[2048];
    char files[LIB_MAX][LIBRARY_NAME];
    void *handles[LIB_MAX];
    unsigned char from[N_SYMBOLS]; /* library; LIB_MAX = not found */
    int refs;
};

static struct loaded loaded;
static struct ngd_mutex load_lock = NGD_MUTEX_INITIALIZER(NGD_RANK_DEVICE);

/* ---- libraries ----------------------------------------------------------------------------------- */

static ngd_status_t bad_name(const char *at, size_t n, struct ngd_diag *diag)
{
    struct ngd_strbuf known;

    ngd_strbuf_init(&known);
    for (size_t i = 0; i < LIB_MAX; i++)
        ngd_strbuf_printf(&known, "%s%s", i ? ", " : "", libraries[i].file);
    ngd_diag_set(diag, NGD_ERR_CONFIG, "ascend-lib-names: \"%.*s\" is not NAME=FILE with a NAME of %s",
                 n < 80 ? (int)n : 80, at, ngd_strbuf_str(&known));
    ngd_strbuf_fini(&known);
    return NGD_ERR_CONFIG;
}

/* One "libopapi.so=libopapi.so.1" of n characters. */
static bool rename_library(struct loaded *l, const char *at, size_t n)
{
    const char *equals = memchr(at, '=', n);
    const size_t name = equals ? (size_t)(equals - at) : 0, file = equals ? n - name - 1 : 0;

    for (size_t i = 0; i < LIB_MAX && file > 0 && file < LIBRARY_NAME; i++) {
        if (strlen(libraries[i].file) != name || memcmp(libraries[i].file, at, name) != 0)
            continue;
        snprintf(l->files[i], LIBRARY_NAME, "%.*s", (int)file, equals + 1);
        return true;
    }
    return false;
}

static ngd_status_t name_libraries(struct loaded *l, const char *names, struct ngd_diag *diag)
{
    if (strlen(names) >= sizeof(l->names))
        return ngd_diag_set(diag, NGD_ERR_CONFIG, "ascend-lib-names is longer than %zu characters",
                            sizeof(l->names) - 1);
    snprintf(l->names, sizeof(l->names), "%s", names);
    for (size_t i = 0; i < LIB_MAX; i++)
        snprintf(l->files[i], LIBRARY_NAME, "%s", libraries[i].file);
    for (const char *at = names + strspn(names, ", "); *at;) {
        const size_t n = strcspn(at, ", ");

        if (!rename_library(l, at, n))
            return bad_name(at, n, diag);
        at += n;
        at += strspn(at, ", ");
    }
    return NGD_OK;
}

/* A file with a slash is where it says. */
static void *open_library_in(const char *dir, const char *file)
{
    char path[1024];

    if (!dir || !*dir || strchr(file, '/'))
        return dlopen(file, RTLD_LAZY);
    snprintf(path, sizeof(path), "%s/%s", dir, file);
    return dlopen(path, RTLD_LAZY);
}

/*
 * Opens the first library, and finds the folder of the others: the one that was named, one where CANN installs itself,
 * or, if a path was given for the first library, that one's. dir_p is "" when the linker finds them by itself.
 */
static void *open_first(const char *dir, const char *first, char *dir_p, size_t room)
{
    static const char *const homes[] = {"ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME"};
    static const char *const fixed[] = {"/usr/local/Ascend/ascend-toolkit/latest/lib64", "/usr/local/Ascend/cann/lib64",
                                        "/usr/local/Ascend/latest/lib64"};
    char folder[PATH_MAX];
    void *library = NULL;

    snprintf(dir_p, room, "%s", dir ? dir : "");
    if (*dir_p)
        return open_library_in(dir_p, first);
    if (strchr(first, '/')) {
        library = open_library_in(dir_p, first);
        if (library && ngd_acl_find_folder(library, folder))
            snprintf(dir_p, room, "%.*s", (int)room - 1, folder);
        return library;
    }
    for (size_t i = 0; i < sizeof(homes) / sizeof(homes[0]) && !library; i++) {
        const char *home = getenv(homes[i]);

        snprintf(dir_p, room, "%s/lib64", home ? home : "");
        library = home && *home ? open_library_in(dir_p, first) : NULL;
    }
    for (size_t i = 0; i < sizeof(fixed) / sizeof(fixed[0]) && !library; i++) {
        snprintf(dir_p, room, "%s", fixed[i]);
        library = open_library_in(dir_p, first);
    }
    if (library)
        return library;
    dir_p[0] = '\0';
    return open_library_in(NULL, first);
}

static ngd_status_t open_libraries(struct loaded *l, const char *dir, struct ngd_diag *diag)
{
    const bool alone = ngd_acl_is_alone();

    l->handles[0] = open_first(dir, l->files[0], l->dir, sizeof(l->dir));
    if (!l->handles[0]) {
        const char *why = dlerror();

        return ngd_diag_set(
            diag, NGD_ERR_UNAVAILABLE,
            "CANN is not found: %.300s. Install it, or name the folder of libascendcl.so in ascend-libs",
            why ? why : l->files[0]);
    }
    /* The others may read it when they are loaded. */
    ngd_acl_derive_environment(l->dir, l->handles[0], alone);
    for (size_t i = 1; i < LIB_MAX; i++) {
        l->handles[i] = open_library_in(l->dir, l->files[i]);
        if (!l->handles[i] && libraries[i].required) {
            const char *why = dlerror();

            return ngd_diag_set(diag, NGD_ERR_UNAVAILABLE, "CANN in \"%.200s\" is not complete: %.300s", l->dir,
                                why ? why : l->files[i]);
        }
    }
    return NGD_OK;
}

/* ---- symbols ------------------------------------------------------------------------------------- */

static void resolve_symbol(struct loaded *l, size_t i)
{
    void *at = (char *)&l->acl + symbols[i].at, *found;

    l->from[i] = LIB_MAX;
    memset(at, 0, sizeof(void *));
    for (size_t lib = 0; lib < LIB_MAX; lib++) {
        if (!l->handles[lib] || libraries[lib].group != symbols[i].group)
            continue;
        found = dlsym(l->handles[lib], symbols[i].name);
        if (found) {
            memcpy(at, &found, sizeof(found));
            l->from[i] = (unsigned char)lib;
            return;
        }
    }
}

static bool is_phase1(const struct symbol *s)
{
    static const char suffix[] = "GetWorkspaceSize";
    size_t n = strlen(s->name), m = sizeof(suffix) - 1;

    return s->op && n > m && strcmp(s->name + n - m, suffix) == 0;
}

static bool required(const struct symbol *s)
{
    return !s->op && !s->instead[0];
}

/* Collectives without one of their functions are of no use: a rank would wait for others who cannot come. */
static void resolve_collectives(struct loaded *l)
{
    bool all = true;

    for (size_t i = 0; i < N_SYMBOLS; i++)
        all &= symbols[i].group != GROUP_HCCL || l->from[i] != LIB_MAX;
    for (size_t i = 0; i < N_SYMBOLS && !all; i++) {
        if (symbols[i].group == GROUP_HCCL) {
            memset((char *)&l->acl + symbols[i].at, 0, sizeof(void *));
            l->from[i] = LIB_MAX;
        }
    }
}

static ngd_status_t refuse_missing(const struct loaded *l, struct ngd_diag *diag)
{
    char names[600] = "";
    size_t n = 0;

    for (size_t i = 0; i < N_SYMBOLS && n < sizeof(names); i++)
        if (l->from[i] == LIB_MAX && required(&symbols[i]))
            n += (size_t)snprintf(names + n, sizeof(names) - n, "%s%s", n ? ", " : "", symbols[i].name);
    return ngd_diag_set(diag, NGD_ERR_UNAVAILABLE,
                        "CANN in \"%.200s\" has no %s, which its version 8.1.RC1 has: a newer one is needed", l->dir,
                        names);
}

static ngd_status_t resolve_all(struct loaded *l, struct ngd_diag *diag)
{
    bool all = true;

    for (size_t i = 0; i < N_SYMBOLS; i++) {
        resolve_symbol(l, i);
        all &= l->from[i] != LIB_MAX || !required(&symbols[i]);
    }
    if (!all)
        return refuse_missing(l, diag);
    resolve_collectives(l);
    /* One phase of an operator without the other is of no use. */
    for (size_t i = 0; i + 1 < N_SYMBOLS; i++) {
        if (is_phase1(&symbols[i]) && (l->from[i] == LIB_MAX) != (l->from[i + 1] == LIB_MAX)) {
            memset((char *)&l->acl + symbols[i].at, 0, 2 * sizeof(void *));
            l->from[i] = l->from[i + 1] = LIB_MAX;
        }
    }
    return NGD_OK;
}

/* ---- load, unload -------------------------------------------------------------------------------- */

/* The version as two digits: 83 is 8.3. */
static int find_cann(const struct ngd_acl *acl)
{
    struct ngd_acl_version v = {0};
    int major = 0, minor = 0;

    if (acl->aclsysGetCANNVersion && acl->aclsysGetCANNVersion(NGD_ACL_PACKAGE_CANN, &v) == 0) {
        v.version[sizeof(v.version) - 1] = '\0';
        if (sscanf(v.version, "%d.%d", &major, &minor) == 2 && major > 0 && major < 1000 && minor >= 0 && minor < 10)
            return major * 10 + minor;
    }
    return acl->aclrtGetStreamAvailableNum ? 82 : 81;
}

static ngd_status_t start_cann(struct loaded *l, struct ngd_diag *diag)
{
    ngd_acl_error_t code = l->acl.aclInit(NULL);

    /* Another part of the process may have done it already. */
    if (code && code != NGD_ACL_REPEAT_INITIALIZE)
        return ngd_acl_fail(&l->acl, code, "CANN cannot be initialised", diag);
    if (l->acl.aclrtGetVersion(&l->acl.version[0], &l->acl.version[1], &l->acl.version[2]))
        memset(l->acl.version, 0, sizeof(l->acl.version));
    l->acl.cann = find_cann(&l->acl);
    return NGD_OK;
}

ngd_status_t ngd_acl_load(const char *dir, const char *names, const struct ngd_acl **acl_p, struct ngd_diag *diag)
{
    ngd_status_t status = NGD_OK;

    names = names ? names : "";
    ngd_mutex_lock(&load_lock);
    if (loaded.refs && dir && *dir && strcmp(dir, loaded.dir) != 0) {
        status = ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT,
                              "CANN is loaded from \"%.200s\" already; not from \"%.200s\"", loaded.dir, dir);
    } else if (loaded.refs && strcmp(names, loaded.names) != 0) {
        status = ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT,
                              "CANN is loaded already with ascend-lib-names \"%.200s\"; not with \"%.200s\"",
                              loaded.names, names);
    } else if (!loaded.refs) {
        status = name_libraries(&loaded, names, diag);
        if (status == NGD_OK)
            status = open_libraries(&loaded, dir, diag);
        if (status == NGD_OK)
            status = resolve_all(&loaded, diag);
        if (status == NGD_OK)
            status = start_cann(&loaded, diag);
    }
    if (status == NGD_OK) {
        loaded.refs++;
        *acl_p = &loaded.acl;
    }
    ngd_mutex_unlock(&load_lock);
    return status;
}

void ngd_acl_ref(const struct ngd_acl *acl)
{
    (void)acl;
    ngd_mutex_lock(&load_lock);
    loaded.refs++;
    ngd_mutex_unlock(&load_lock);
}

void ngd_acl_unload(const struct ngd_acl *acl)
{
    (void)acl;
    ngd_mutex_lock(&load_lock);
    if (--loaded.refs == 0)
        loaded.acl.aclFinalize();
    ngd_mutex_unlock(&load_lock);
}

void ngd_acl_for_each_missing(void (*fn)(void *ctx, const char *name), void *ctx)
{
    for (size_t i = 0; i < N_SYMBOLS; i++)
        if (loaded.from[i] == LIB_MAX && !is_phase1(&symbols[i]))
            fn(ctx, symbols[i].name);
}

/* ---- for people ---------------------------------------------------------------------------------- */

void ngd_acl_describe(const struct ngd_acl *acl, struct ngd_strbuf *sb)
{
    const struct loaded *l = &loaded;

    ngd_strbuf_printf(sb, "CANN runtime %d.%d.%d from %s\n", (int)acl->version[0], (int)acl->version[1],
                      (int)acl->version[2], l->dir[0] ? l->dir : "the linker's folders");
    for (size_t i = 0; i < LIB_MAX; i++)
        ngd_strbuf_printf(sb, "  %-26s %s%s%s\n", libraries[i].file,
                          l->handles[i]           ? "loaded"
                          : libraries[i].required ? "missing"
                                                  : "not there",
                          strcmp(l->files[i], libraries[i].file) ? ", named " : "",
                          strcmp(l->files[i], libraries[i].file) ? l->files[i] : "");
    for (size_t i = 0; i < N_SYMBOLS; i++) {
        const struct symbol *s = &symbols[i];

        if (is_phase1(s))
            continue; /* the second phase stands for both */
        ngd_strbuf_printf(sb, "  %-40s %-4s %s%s%s\n", s->name, s->since,
                          l->from[i] < LIB_MAX ? libraries[l->from[i]].file : "missing",
                          l->from[i] < LIB_MAX || !s->instead[0] ? "" : ": ", l->from[i] < LIB_MAX ? "" : s->instead);
    }
}
