/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_ACCESS_H
#define NGD_DAEMON_ACCESS_H

/*
 * Who owns a thing, and who else may see, use and change it.
 *
 * Each thing that has a name (a model, a graph, a pattern, an event of a graph, a session) belongs to the identity that
 * made it. Its owner and administrators see and manage it. Others see and use it only when its audience names them;
 * only models have one, so everything else is private. docs/security.md, "What belongs to whom".
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
 * Fills a zeroed audience: the names (copied), or everybody. PERMISSION_DENIED: who may not publish (option
 * may-publish); INVALID_ARGUMENT: names and `everybody` together, too many names, or one that is none.
 */
ngd_status_t ngd_audience_make(const struct ngd_options *options, const struct ngd_identity *who, char *const *names,
                               size_t n, bool everybody, struct ngd_audience *audience, struct ngd_diag *diag);
void ngd_audience_fini(struct ngd_audience *audience);
/* "private", "public" or "uid:1000, group:team"; to those who may not manage the thing "shared" instead of names. */
void ngd_audience_print(const struct ngd_audience *audience, bool names, char *to, size_t room);

/* The audience names this identity, or a group that it is in. */
bool ngd_audience_has(const struct ngd_options *options, const struct ngd_audience *audience,
                      const struct ngd_identity *who);

/* The thing is its own, or it administers the daemon. */
static inline bool ngd_may_manage(const struct ngd_identity *who, const struct ngd_identity *owner)
{
    return who->admin || who == owner;
}
/* The same by the owner's key, for what the scheduler holds. */
static inline bool ngd_may_see_key(const struct ngd_identity *who, uint64_t owner)
{
    return who->admin || who->key == owner;
}

#endif
