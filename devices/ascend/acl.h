/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DEVICES_ASCEND_ACL_H
#define NGD_DEVICES_ASCEND_ACL_H

/*
 * CANN, loaded at run time: its functions as pointers, what was found and where, and what its codes mean.
 *
 * Libraries are opened one by one and symbols looked for one by one: a version that lacks some is usable as long as
 * none is lacking that everything needs. One set of libraries serves the process; they are never unloaded, because
 * vendor libraries leave threads and handlers behind.
 * Threads: load and unload from any thread; the pointers are constant between them.
 */
#include "base/status.h"
#include "base/strbuf.h"
#include "devices/ascend/acl_abi.h"

struct ngd_acl {
#define NGD_ACL(name, result, args, library, since, instead) result(*name) args;
#include "devices/ascend/acl_symbols.def"
#undef NGD_ACL
#define NGD_ACLNN(name, args, since, instead)             \
    ngd_acl_error_t(*aclnn##name##GetWorkspaceSize) args; \
    ngd_aclnn_run_t aclnn##name;
#include "devices/ascend/aclnn_symbols.def"
#undef NGD_ACLNN
    int32_t version[3]; /* of the runtime */
    int cann;           /* of CANN: 81 is 8.1; by its functions where it does not say it */
};

/*
 * Loads CANN and initialises it, or takes one more reference. dir: the folder of the libraries; NULL or "" looks where
 * CANN installs itself (ASCEND_HOME_PATH, ASCEND_TOOLKIT_HOME, /usr/local/Ascend), then where the linker does. names:
 * files that have other names than acl_libraries.def knows, as "libopapi.so=FILE, ..."; NULL or "": none; a FILE with a
 * slash is not looked for in the folder. CONFIG: names are not of that form. UNAVAILABLE names the library or symbol
 * that is missing, and what to do. INVALID_ARGUMENT: loaded already, from elsewhere or with other names.
 */
ngd_status_t ngd_acl_load(const char *dir, const char *names, const struct ngd_acl **acl_p, struct ngd_diag *diag);
void ngd_acl_ref(const struct ngd_acl *acl); /* takes one more reference to what is loaded */
void ngd_acl_unload(const struct ngd_acl *acl);
/* The table of libraries and symbols, for people: found or not, and what takes its place. */
void ngd_acl_describe(const struct ngd_acl *acl, struct ngd_strbuf *sb);
/* Calls fn for each function that the libraries lack, after an ngd_acl_load that found the libraries. */
void ngd_acl_for_each_missing(void (*fn)(void *ctx, const char *name), void *ctx);

/* What a code means for us. */
struct ngd_acl_error {
    ngd_acl_error_t code;
    const char *name;
    ngd_status_t status;
    const char *advice;
};
const struct ngd_acl_error *ngd_acl_error_find(ngd_acl_error_t code); /* never NULL: unknown codes have a row */
/* Takes CANN's own text of this thread's last failure at once, and gives status and diagnosis. `what` was being done.
 */
ngd_status_t ngd_acl_fail(const struct ngd_acl *acl, ngd_acl_error_t code, const char *what, struct ngd_diag *diag);
/* The part of such a diagnosis that is CANN's, and its code; NULL and 0: it is none. */
const char *ngd_acl_words_of(const struct ngd_diag *diag);
ngd_acl_error_t ngd_acl_code_of(const struct ngd_diag *diag);

#endif
