/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_RPC_RPC_METHOD_H
#define NGD_DAEMON_RPC_RPC_METHOD_H

/* A method, as the server sees it: its name, its kind, its limits and its handler. Constant. */
#include "base/role.h"
#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ngd_rpc_ops;

typedef enum ngd_rpc_kind {
    NGD_RPC_UNARY,
    NGD_RPC_SERVER_STREAM,
    NGD_RPC_CLIENT_STREAM,
    NGD_RPC_LOCKSTEP,
    NGD_RPC_DUPLEX
} ngd_rpc_kind_t;
typedef enum ngd_rpc_session {
    NGD_RPC_SESSION_NONE,
    NGD_RPC_SESSION_OPTIONAL,
    NGD_RPC_SESSION_REQUIRED
} ngd_rpc_session_t;
typedef enum ngd_rpc_class { NGD_RPC_WORK, NGD_RPC_IDLE, NGD_RPC_CONTROL } ngd_rpc_class_t;

struct ngd_method {
    const char *service, *name;
    const char *path; /* "/service/name" */
    ngd_rpc_kind_t kind;
    const struct ngd_rpc_ops *ops;
    const ProtobufCMessageDescriptor *request; /* &ngd_rpc_raw__descriptor: the handler reads the bytes */
    ngd_rpc_session_t session;
    bool while_draining;
    uint32_t limit;
    ngd_rpc_class_t class;
    const char
        *audit;      /* NULL: the audit log has refusals only; else "", or the request's field that names the object */
    ngd_role_t role; /* the least that may call it */
};

/* The descriptor of methods whose handlers read the bytes themselves. */
extern const ProtobufCMessageDescriptor ngd_rpc_raw__descriptor;

static inline bool ngd_method_is_raw(const struct ngd_method *method)
{
    return method->request == &ngd_rpc_raw__descriptor;
}

#endif
