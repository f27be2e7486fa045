/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/control/settings.h"
#include "base/log.h"
#include "daemon/daemon.h"
#include <sys/resource.h>

/* Descriptors reserved for other uses than connections: gRPC's own, files being loaded, listeners, the log. */
#define RESERVED_FDS   128
#define CONNECTION_FDS 3 /* a guarded connection's socket, and a pair */

void ngd_settings_fit_connections(struct ngd_options *o)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 ||
        limit.rlim_cur >= (rlim_t)o->max_connections * CONNECTION_FDS + RESERVED_FDS)
        return;
    o->max_connections = limit.rlim_cur > 2 * RESERVED_FDS ? ((int64_t)limit.rlim_cur - RESERVED_FDS) / CONNECTION_FDS
                                                           : RESERVED_FDS / CONNECTION_FDS;
    ngd_warning("daemon", "max-connections is lowered to %lld: the process may have %llu open files",
                (long long)o->max_connections, (unsigned long long)limit.rlim_cur);
}

void ngd_settings_log(const struct ngd_options *o)
{
    ngd_log_set_level((ngd_log_level_t)o->log_level);
    ngd_log_set_format((ngd_log_format_t)o->log_format);
}

static ngd_role_t role_of_token(void *ctx, const char *identity)
{
    return ngd_tokens_role(ctx, identity);
}

/* A limit that is not set leaves a quarter of the total to other identities; administrators may take all of it. */
void ngd_settings_identities(const struct ngd_daemon *d, struct ngd_identities_params *params)
{
    const struct ngd_options *o = &d->options;
    const uint64_t totals[] = {
#define NGD_QUOTA(ID, name, option, type, def, min, max, total, noun, help) (uint64_t)(total),
#include "daemon/quotas.def"
#undef NGD_QUOTA
    };

    params->roles.admins = o->admin_identities;
    params->roles.roles = o->role;
    params->roles.groups = o->group;
    params->roles.of_token = role_of_token;
    params->roles.ctx = d->tokens;
    params->roles.unnamed = (ngd_role_t)o->default_role;
    for (int i = 0; i < NGD_QUOTA_KINDS; i++) {
        uint64_t rest = totals[i] - totals[i] / 4;

        params->limits[i] = o->quotas[i] ? o->quotas[i] : rest;
        params->admin_limits[i] = o->quotas[i];
    }
}

void ngd_settings_sched(const struct ngd_options *o, struct ngd_sched_params *params)
{
    params->slots = (uint32_t)o->slots;
    params->capture_threads = (uint32_t)o->capture_threads;
    params->queue_limit = (uint32_t)o->queue_limit;
    params->inline_limit = o->inline_limit;
    params->max_replay_time = o->max_replay_time;
    params->max_capture_time = o->max_capture_time;
    params->merge = o->merge;
    params->merge_wait = o->merge_wait;
    params->prompt_share = (uint32_t)o->prompt_share;
    params->static_timeout = o->static_timeout;
}

void ngd_settings_front(const struct ngd_options *o, struct ngd_front_params *params)
{
    params->guard_unix = (ngd_guard_unix_t)o->guard_unix;
    params->max_connections = (uint32_t)o->max_connections;
    params->max_streams = (uint32_t)o->max_streams;
    params->max_message = o->max_message;
    params->max_age = o->max_connection_age;
    params->poll = o->guard_poll;
}

void ngd_settings_trace(const struct ngd_options *o, struct ngd_trace_params *params)
{
    *params = (struct ngd_trace_params){.endpoint = o->trace_endpoint, .limit = o->trace_limit};
    (void)ngd_trace_sample_parse(o->trace_sample, &params->sample); /* checked with the options */
}

void ngd_settings_tls(const struct ngd_options *o, struct ngd_tls_params *params)
{
    *params = (struct ngd_tls_params){.cert = o->tls_cert,
                                      .key = o->tls_key,
                                      .client_ca = o->tls_client_ca,
                                      .crl = o->tls_crl,
                                      .allow_cn = o->tls_allow_cn,
                                      .client_optional = o->tls_client_certificate == NGD_TLS_CLIENT_OPTIONAL};
}

void ngd_settings_tokens(const struct ngd_options *o, struct ngd_tokens_params *params)
{
    *params = (struct ngd_tokens_params){.path = o->token_file};
    ngd_options_jwt(o, &params->jwt);
}
