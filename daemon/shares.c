/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/shares.h"
#include "daemon/daemon.h"
#include "daemon/identity.h"
#include "scheduler/run/share.h"

static void fill_share_params(struct ngd_daemon *d, const struct ngd_identity *identity,
                              struct ngd_share_params *params)
{
    *params = (struct ngd_share_params){
        .weight = ngd_options_weight(&d->options, identity->name),
        .queue_limit = (uint32_t)ngd_identity_limit(identity, NGD_QUOTA_QUEUED),
        .device_percent = (uint32_t)ngd_config_get(d->options.max_device_share_per_identity),
        .capture_limit = ngd_identity_limit(identity, NGD_QUOTA_CAPTURES),
        .key = identity->key,
        .store_limit = ngd_identity_limit(identity, NGD_QUOTA_STORE_BYTES),
        .kv_limit = ngd_identity_limit(identity, NGD_QUOTA_KV_BLOCKS),
    };
}

ngd_status_t ngd_shares_open(struct ngd_daemon *d, const struct ngd_identity *identity, struct ngd_share **share_p)
{
    struct ngd_share_params params;

    fill_share_params(d, identity, &params);
    return ngd_share_open(d->sched, identity->name, &params, share_p, NULL);
}

static bool renew_share(void *ctx, const char *name, struct ngd_share_params *params)
{
    struct ngd_daemon *d = ctx;
    struct ngd_identity *identity = ngd_identity_get(d->identities, name);

    if (!identity)
        return false;
    fill_share_params(d, identity, params);
    ngd_identity_unref(identity);
    return true;
}

void ngd_shares_renew(struct ngd_daemon *d)
{
    ngd_share_set_all(d->sched, renew_share, d);
}
