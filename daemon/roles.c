/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/roles.h"
#include <string.h>

#define GROUP "group:"

/* Splits NAME=ROLE at the last "=", since names may have some. */
static bool split_role(const char *entry, size_t *n_p, ngd_role_t *role_p)
{
    const char *equals = strrchr(entry, '=');

    if (!equals || equals == entry || !ngd_role_parse(equals + 1, strlen(equals + 1), role_p))
        return false;
    *n_p = (size_t)(equals - entry);
    return true;
}

static bool is_role_name(const char *text, size_t n, const char *name)
{
    return strlen(name) == n && memcmp(text, name, n) == 0;
}

static bool lists_name(const struct ngd_config_list *list, const char *name, size_t n)
{
    for (size_t i = 0; i < list->n; i++)
        if (is_role_name(name, n, list->items[i]))
            return true;
    return false;
}

/* Returns the role that the option gives to a name; UNSET: none. */
static ngd_role_t listed_role(const struct ngd_config_list *roles, const char *name)
{
    for (size_t i = 0; i < roles->n; i++) {
        ngd_role_t role;
        size_t n;

        if (split_role(roles->items[i], &n, &role) && is_role_name(roles->items[i], n, name))
            return role;
    }
    return NGD_ROLE_UNSET;
}

/* groups has NAME=IDENTITY. */
static bool is_member(const struct ngd_config_list *groups, const char *group, size_t n, const char *identity)
{
    for (size_t i = 0; i < groups->n; i++) {
        const char *entry = groups->items[i];

        if (strncmp(entry, group, n) == 0 && entry[n] == '=' && strcmp(entry + n + 1, identity) == 0)
            return true;
    }
    return false;
}

static ngd_role_t role_by_groups(const struct ngd_role_rules *rules, const char *identity,
                                 const struct ngd_groups *groups)
{
    const size_t skip = strlen(GROUP);
    ngd_role_t greatest = NGD_ROLE_UNSET;

    for (size_t i = 0; i < rules->roles.n; i++) {
        const char *entry = rules->roles.items[i];
        ngd_role_t role;
        size_t n;

        if (strncmp(entry, GROUP, skip) == 0 && split_role(entry, &n, &role) && role > greatest &&
            (is_member(&rules->groups, entry + skip, n - skip, identity) ||
             ngd_groups_have(groups, entry + skip, n - skip)))
            greatest = role;
    }
    return greatest;
}

ngd_role_t ngd_role_of(const struct ngd_role_rules *rules, const char *own, const char *identity,
                       const struct ngd_groups *groups)
{
    ngd_role_t role;

    if (strcmp(identity, "uid:0") == 0 || strcmp(identity, own) == 0 ||
        lists_name(&rules->admins, identity, strlen(identity)))
        return NGD_ROLE_ADMIN;
    role = listed_role(&rules->roles, identity);
    if (role == NGD_ROLE_UNSET && rules->of_token)
        role = rules->of_token(rules->ctx, identity);
    if (role == NGD_ROLE_UNSET)
        role = role_by_groups(rules, identity, groups);
    return role == NGD_ROLE_UNSET ? rules->unnamed : role;
}

static ngd_status_t check_role_entry(const struct ngd_config_list *roles, size_t at,
                                     const struct ngd_config_list *admins, struct ngd_diag *diag)
{
    const char *entry = roles->items[at];
    const size_t colon = strcspn(entry, ":");
    ngd_role_t role, other;
    size_t n, m;

    if (!split_role(entry, &n, &role) || colon == 0 || colon + 1 >= n)
        return ngd_diag_set(
            diag, NGD_ERR_CONFIG,
            "role: \"%.160s\" is not IDENTITY=ROLE or group:NAME=ROLE, with the role none, viewer, user, "
            "operator or admin, as in uid:1000=operator",
            entry);
    if (role != NGD_ROLE_ADMIN && (is_role_name(entry, n, "uid:0") || lists_name(admins, entry, n)))
        return ngd_diag_set(
            diag, NGD_ERR_CONFIG,
            "role: \"%.160s\": %.*s is an administrator; root always is, and others of admin-identities", entry, (int)n,
            entry);
    for (size_t i = 0; i < at; i++)
        if (split_role(roles->items[i], &m, &other) && m == n && memcmp(roles->items[i], entry, n) == 0 &&
            other != role)
            return ngd_diag_set(diag, NGD_ERR_CONFIG, "role: %.*s has two roles, %s and %s", (int)n, entry,
                                ngd_role_name(other), ngd_role_name(role));
    return NGD_OK;
}

ngd_status_t ngd_roles_check(const struct ngd_config_list *roles, const struct ngd_config_list *admins,
                             struct ngd_diag *diag)
{
    ngd_status_t status = NGD_OK;

    for (size_t i = 0; i < roles->n && status == NGD_OK; i++)
        status = check_role_entry(roles, i, admins, diag);
    return status;
}
