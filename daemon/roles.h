/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_ROLES_H
#define NGD_DAEMON_ROLES_H

/*
 * Which role an identity has. The first of these that names one:
 *
 *   1. Root and the daemon's own user are administrators, and so are admin-identities.
 *   2. The option role, with IDENTITY=ROLE.
 *   3. The line of token-file, for identities of tokens.
 *   4. The greatest role of the identity's groups, by the options role (group:NAME=ROLE) and group, and by what its
 *      token says (group:ISSUER:NAME=ROLE).
 *   5. default-role.
 *
 * Threads: any; the lists are borrowed.
 */
#include "base/config.h"
#include "base/role.h"
#include "daemon/groups.h"

struct ngd_role_rules {
    struct ngd_config_list admins, roles, groups; /* of the options admin-identities, role and group */
    ngd_role_t unnamed;                           /* default-role */
    ngd_role_t (*of_token)(void *ctx, const char *identity);
    void *ctx;
};

/* own: the identity of the daemon's own user. groups: those of its token; or NULL. */
ngd_role_t ngd_role_of(const struct ngd_role_rules *rules, const char *own, const char *identity,
                       const struct ngd_groups *groups);
/* CONFIG: an entry is not IDENTITY=ROLE, or contradicts another one. */
ngd_status_t ngd_roles_check(const struct ngd_config_list *roles, const struct ngd_config_list *admins,
                             struct ngd_diag *diag);

#endif
