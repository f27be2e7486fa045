/* SPDX-License-Identifier: Apache-2.0 */
/* The rules of operator_rules.def: what a chip's first phases and tilings refuse. */
#include "devices/ascend/operator_rules.h"
#include "devices/ascend/sim/sim_op.h"

void ngd_aclsim_rules(struct sim_op *op)
{
    struct ngd_operator_case o = {.function = op->kernel.name + strlen("aclnn"), .n = op->n};
    struct ngd_operator_refusal refusal;

    for (uint32_t i = 0; i < op->n && i < NGD_OPERATOR_OPERANDS; i++) {
        const struct sim_view *v = &op->t[i];

        o.t[i] = (struct ngd_operator_tensor){.present = v->present,
                                              .dtype = v->dtype,
                                              .rank = v->rank,
                                              .dims = v->dims,
                                              .strides = v->strides,
                                              .length = v->length,
                                              .mixed = v->mixed};
    }
    memcpy(o.attribute, op->i, sizeof(o.attribute));
    if (!op->code && ngd_operator_refuses(&o, ngd_aclsim_chip(), ngd_aclsim_cann(), &refusal))
        op->code =
            ngd_aclsim_fail(refusal.code, "the same", "%s: %s (%s)", op->kernel.name, refusal.text, refusal.source);
}
