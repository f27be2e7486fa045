/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_QUOTAS_H
#define NGD_DAEMON_QUOTAS_H

/* The kinds of what an identity holds: daemon/quotas.def. */
typedef enum ngd_quota {
#define NGD_QUOTA(ID, name, option, type, def, min, max, total, noun, help) NGD_QUOTA_##ID,
#include "daemon/quotas.def"
#undef NGD_QUOTA
    NGD_QUOTA_KINDS
} ngd_quota_t;

#endif
