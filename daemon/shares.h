/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_SHARES_H
#define NGD_DAEMON_SHARES_H

/* Shares of device time (scheduler/run/share.h) by the options and quotas of identities. Threads: any. */
#include "base/status.h"

struct ngd_daemon;
struct ngd_identity;
struct ngd_share;

/* Opens the share of an identity, which all of its sessions and models have; *share_p is a reference. */
ngd_status_t ngd_shares_open(struct ngd_daemon *d, const struct ngd_identity *identity, struct ngd_share **share_p);
/* Sets weights and limits of all shares to what the options and quotas say now. */
void ngd_shares_renew(struct ngd_daemon *d);

#endif
