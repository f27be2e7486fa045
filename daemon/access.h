/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_ACCESS_H
#define NGD_DAEMON_ACCESS_H

/*
 * Says who owns a thing, and who else may see, use and change it.
 *
 * Each named thing (a model, a graph, a pattern, an event of a graph, a session) belongs to the identity that made it.
 * Its owner and administrators see and manage it. Others see and use it only if its audience names them. Only models
 * have an audience, so everything else is private. See docs/security.md, "What belongs to whom".
 *
 * Threads: any; an audience is guarded by the table that holds it.
 */
#include "daemon/identity.h"
#include "daemon/options.h"

#define NGD_AUDIENCE_MAX 64 /* identities and groups that one thing is shared with */

typedef enum ngd_audience_kind { NGD_AUDIENCE_PRIVATE, NGD_AUDIENCE_NAMED, NGD_AUDIENCE_PUBLIC } ngd_audience_kind_t;

/* Zeroed: private. */
struct ngd_audience {
    ngd_audience_kind_t kind;
    char **names; /* identities, and groups as "group:NAME" */
    size_t n;
};

/*
 * Fills a zeroed audience with the names (copied), or with everybody. PERMISSION_DENIED: the identity may not publish
 * (option may-publish). INVALID_ARGUMENT: names and `everybody` together, too many names, or a malformed name.
 */
ngd_status_t ngd_audience_make(struct ngd_options *options, const struct ngd_identity *who, char *const *names,
                               size_t n, bool everybody, struct ngd_audience *audience, struct ngd_diag *diag);
/* Copies an audience to a zeroed one. */
ngd_status_t ngd_audience_copy(const struct ngd_audience *audience, struct ngd_audience *to);
void ngd_audience_fini(struct ngd_audience *audience);
/* Prints "private", "public" or "uid:1000, group:team". names: false prints "shared" in the place of the names, for
 * identities that may not manage the thing. */
void ngd_audience_print(const struct ngd_audience *audience, bool names, char *to, size_t room);

/* True if the audience names this identity, or a group that it is in. */
bool ngd_audience_has(struct ngd_options *options, const struct ngd_audience *audience, const struct ngd_identity *who);

/* True if `who` owns the thing or administers the daemon. */
static inline bool ngd_may_manage(const struct ngd_identity *who, const struct ngd_identity *owner)
{
    return who->admin || who == owner;
}
/* Like ngd_may_manage, by the owner's key, for objects of the scheduler. */
static inline bool ngd_may_see_key(const struct ngd_identity *who, uint64_t owner)
{
    return who->admin || who->key == owner;
}

#endif
