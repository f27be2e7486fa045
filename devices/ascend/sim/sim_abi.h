/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DEVICES_ASCEND_SIM_SIM_ABI_H
#define NGD_DEVICES_ASCEND_SIM_SIM_ABI_H

/* Prototypes of the interface, from the same table as the backend's function pointers, and from the simulator's own. */
#include "devices/ascend/sim/sim.h"

#define NGD_ACL(name, result, args, library, since, instead) SIM_EXPORT result name args;
#include "devices/ascend/acl_symbols.def"
#include "devices/ascend/sim/sim_symbols.def"
#undef NGD_ACL

#define NGD_ACLNN(name, args, since, instead)                      \
    SIM_EXPORT ngd_acl_error_t aclnn##name##GetWorkspaceSize args; \
    SIM_EXPORT ngd_acl_error_t aclnn##name(void *, uint64_t, struct aclOpExecutor *, void *);
#include "devices/ascend/aclnn_symbols.def"
#include "devices/ascend/sim/sim_aclnn_symbols.def"
#undef NGD_ACLNN

/* A function that a setting hides: dlsym finds NULL, because that is what its resolver gives. */
#define SIM_OPTIONAL_IF(name, there)                                    \
    static __typeof__(name) name##_impl;                                \
    __attribute__((used)) static __typeof__(name) *name##_resolve(void) \
    {                                                                   \
        return there ? name##_impl : NULL;                              \
    }                                                                   \
    __typeof__(name) name __attribute__((ifunc(#name "_resolve")))
/* One that came after 8.1.RC1, with api=8.1. */
#define SIM_OPTIONAL(name) SIM_OPTIONAL_IF(name, !ngd_aclsim_old_api())

#endif
