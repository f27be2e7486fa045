/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/access.h"

#include "base/mem.h"
#include <stdio.h>
#include <string.h>

#define GROUP_PREFIX "group:"

/* ---- groups ---------------------------------------------------------------------------------------------- */

/* An identity, and the groups that its token gave it (a reference). */
struct member {
    const char *identity;
    struct ngd_groups *groups;
};

/* The lock of the identities comes before that of the options. */
static struct member member_who(const struct ngd_identity *who)
{
    return (struct member){who->name, ngd_identity_groups(who)};
}

/* True if the option `group` has the entry NAME=IDENTITY, or the token names the group. */
static bool in_group(struct ngd_options *options, const char *group, const struct member *who)
{
    const size_t n = strlen(group);

    if (ngd_groups_have(who->groups, group, n))
        return true;
    for (size_t i = 0; i < options->group.n; i++) {
        const char *entry = options->group.items[i];

        if (strncmp(entry, group, n) == 0 && entry[n] == '=' && strcmp(entry + n + 1, who->identity) == 0)
            return true;
    }
    return false;
}

static bool names_it(struct ngd_options *options, const char *name, const struct member *who)
{
    if (strncmp(name, GROUP_PREFIX, strlen(GROUP_PREFIX)) == 0)
        return in_group(options, name + strlen(GROUP_PREFIX), who);
    return strcmp(name, who->identity) == 0;
}

bool ngd_audience_has(struct ngd_options *options, const struct ngd_audience *a, const struct ngd_identity *who)
{
    bool has = a->kind == NGD_AUDIENCE_PUBLIC;
    struct member member;

    if (has || a->n == 0)
        return has;
    member = member_who(who);
    ngd_mutex_lock(&options->live_lock);
    for (size_t i = 0; i < a->n && !has; i++)
        has = names_it(options, a->names[i], &member);
    ngd_mutex_unlock(&options->live_lock);
    ngd_groups_unref(member.groups);
    return has;
}

/* ---- audiences ------------------------------------------------------------------------------------------- */

static bool may_publish(struct ngd_options *options, const struct ngd_identity *who)
{
    struct member member = member_who(who);
    bool may = who->role >= NGD_ROLE_OPERATOR;

    ngd_mutex_lock(&options->live_lock);
    for (size_t i = 0; i < options->may_publish.n && !may; i++)
        may = names_it(options, options->may_publish.items[i], &member);
    ngd_mutex_unlock(&options->live_lock);
    ngd_groups_unref(member.groups);
    return may;
}

static ngd_status_t check_audience_name(const char *name, struct ngd_diag *diag)
{
    const char *colon = strchr(name, ':');

    if (colon && colon != name && colon[1] && strlen(name) < NGD_IDENTITY_MAX)
        return NGD_OK;
    return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT,
                        "cannot share with \"%.100s\": give an identity such as uid:N or tls-uri:NAME, or group:NAME "
                        "of the option `group`",
                        name);
}

static ngd_status_t check_audience(struct ngd_options *options, const struct ngd_identity *who, char *const *names,
                                   size_t n, bool everybody, struct ngd_diag *diag)
{
    ngd_status_t status = NGD_OK;

    if (everybody && n)
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT,
                            "a public object cannot also be shared with identities: ask for one of the two");
    if (n > NGD_AUDIENCE_MAX)
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT,
                            "an object can be shared with at most %d identities and groups, not %zu", NGD_AUDIENCE_MAX,
                            n);
    if (everybody && !may_publish(options, who))
        return ngd_diag_set(diag, NGD_ERR_PERMISSION_DENIED,
                            "%s may not make objects public; only operators, administrators and the identities of the "
                            "option may-publish may. Share it with identities instead",
                            who->name);
    for (size_t i = 0; i < n && status == NGD_OK; i++)
        status = check_audience_name(names[i], diag);
    return status;
}

ngd_status_t ngd_audience_make(struct ngd_options *options, const struct ngd_identity *who, char *const *names,
                               size_t n, bool everybody, struct ngd_audience *a, struct ngd_diag *diag)
{
    ngd_status_t status = check_audience(options, who, names, n, everybody, diag);

    if (status != NGD_OK)
        return status;
    a->kind = everybody ? NGD_AUDIENCE_PUBLIC : n ? NGD_AUDIENCE_NAMED : NGD_AUDIENCE_PRIVATE;
    a->names = n ? NGD_NEW_N(char *, n) : NULL;
    for (; a->names && a->n < n; a->n++)
        if (!(a->names[a->n] = ngd_strdup(names[a->n])))
            break;
    if (a->n == n)
        return NGD_OK;
    ngd_audience_fini(a);
    return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory for a list of identities");
}

ngd_status_t ngd_audience_copy(const struct ngd_audience *audience, struct ngd_audience *to)
{
    to->kind = audience->kind;
    to->names = audience->n ? NGD_NEW_N(char *, audience->n) : NULL;
    for (size_t i = 0; to->names && i < audience->n; i++)
        if ((to->names[to->n] = ngd_strdup(audience->names[i])))
            to->n++;
    if (to->n == audience->n)
        return NGD_OK;
    ngd_audience_fini(to);
    return NGD_ERR_NO_MEMORY;
}

void ngd_audience_fini(struct ngd_audience *a)
{
    for (size_t i = 0; i < a->n; i++)
        ngd_free(a->names[i]);
    ngd_free(a->names);
    *a = (struct ngd_audience){0};
}

void ngd_audience_print(const struct ngd_audience *a, bool names, char *to, size_t room)
{
    size_t at = 0;

    if (a->kind != NGD_AUDIENCE_NAMED || !names) {
        static const char *const kinds[] = {"private", "shared", "public"};

        snprintf(to, room, "%s", kinds[a->kind]);
        return;
    }
    for (size_t i = 0; i < a->n && at < room; i++)
        at += (size_t)snprintf(to + at, room - at, "%s%s", i ? ", " : "", a->names[i]);
}
