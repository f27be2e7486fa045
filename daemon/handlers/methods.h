/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_HANDLERS_METHODS_H
#define NGD_DAEMON_HANDLERS_METHODS_H

/* The method table, made from methods.def, with each handler's ops. Constant. */
#include "daemon/rpc/rpc_call.h"
#include "daemon/rpc/rpc_method.h"

#define NGD_RPC(service, method, kind, ops, request, session, states, limit, class, audit, role) \
    extern const struct ngd_rpc_ops ngd_rpc_##ops;
#include "daemon/handlers/methods.def"
#undef NGD_RPC

extern const struct ngd_method ngd_methods[];
extern const size_t ngd_n_methods;

#endif
