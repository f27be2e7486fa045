/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_BASE_ROLE_H
#define NGD_BASE_ROLE_H

/* Roles of identities (base/role.def). Any thread. */
#include <stdbool.h>
#include <stddef.h>

typedef enum ngd_role {
    NGD_ROLE_UNSET = -1, /* nobody gave one */
#define NGD_ROLE(ID, name, text) NGD_ROLE_##ID,
#include "base/role.def"
#undef NGD_ROLE
} ngd_role_t;

const char *ngd_role_name(ngd_role_t role); /* "viewer" */
bool ngd_role_parse(const char *text, size_t n, ngd_role_t *role_p);

#endif
