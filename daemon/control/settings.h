/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_CONTROL_SETTINGS_H
#define NGD_DAEMON_CONTROL_SETTINGS_H

/* What the options mean for the daemon's parts, both when they start and after a reload. Threads: the loop's. */
#include "daemon/front/front.h"
#include "daemon/front/tls_context.h"
#include "daemon/identity.h"
#include "daemon/options.h"
#include "daemon/tokens.h"
#include "daemon/trace/trace.h"
#include "scheduler/run/sched.h"

struct ngd_daemon;

/* Lowers max-connections to what leaves descriptors for files and for gRPC. */
void ngd_settings_fit_connections(struct ngd_options *o);
/* Sets the log's level and format. */
void ngd_settings_log(const struct ngd_options *o);
/* Fill the parts of the parameters that come from options; strings and lists are borrowed. */
void ngd_settings_identities(const struct ngd_daemon *d, struct ngd_identities_params *params);
void ngd_settings_sched(const struct ngd_options *o, struct ngd_sched_params *params);
void ngd_settings_front(const struct ngd_options *o, struct ngd_front_params *params);
void ngd_settings_trace(const struct ngd_options *o, struct ngd_trace_params *params);
void ngd_settings_tls(const struct ngd_options *o, struct ngd_tls_params *params);
void ngd_settings_tokens(const struct ngd_options *o, struct ngd_tokens_params *params);

#endif
