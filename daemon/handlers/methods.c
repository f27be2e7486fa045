/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/handlers/methods.h"
#include "proto/health.pb-c.h"
#include "proto/inference.pb-c.h"
#include "proto/npugraph.pb-c.h"
#include "proto/reflection.pb-c.h"

#define RAW                  ngd_rpc_raw
#define DESCRIPTOR_OF(name)  DESCRIPTOR_OF_(name)
#define DESCRIPTOR_OF_(name) &name##__descriptor

#define QUIET NULL

#define STATES_SERVING false
#define STATES_ALWAYS  true

const struct ngd_method ngd_methods[] = {
#define NGD_RPC(service_, method_, kind_, ops_, request_, session_, states_, limit_, class_, audit_, role_) \
    {                                                                                                       \
        .service = service_,                                                                                \
        .name = method_,                                                                                    \
        .path = "/" service_ "/" method_,                                                                   \
        .kind = NGD_RPC_##kind_,                                                                            \
        .ops = &ngd_rpc_##ops_,                                                                             \
        .request = DESCRIPTOR_OF(request_),                                                                 \
        .session = NGD_RPC_SESSION_##session_,                                                              \
        .while_draining = STATES_##states_,                                                                 \
        .limit = limit_,                                                                                    \
        .class = NGD_RPC_##class_,                                                                          \
        .audit = audit_,                                                                                    \
        .role = NGD_ROLE_##role_,                                                                           \
    },
#include "daemon/handlers/methods.def"
#undef NGD_RPC
};
const size_t ngd_n_methods = sizeof(ngd_methods) / sizeof(ngd_methods[0]);
