/* SPDX-License-Identifier: Apache-2.0 */
#include "base/role.h"

#include <string.h>

static const char *const roles[] = {
#define NGD_ROLE(ID, name, text) name,
#include "base/role.def"
#undef NGD_ROLE
};

const char *ngd_role_name(ngd_role_t role)
{
    return role == NGD_ROLE_UNSET ? "" : roles[role];
}

bool ngd_role_parse(const char *text, size_t n, ngd_role_t *role_p)
{
    for (size_t i = 0; i < sizeof(roles) / sizeof(roles[0]); i++) {
        if (strlen(roles[i]) != n || memcmp(roles[i], text, n) != 0)
            continue;
        *role_p = (ngd_role_t)i;
        return true;
    }
    return false;
}
