/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_TESTS_OPS_EACH_ISA_H
#define NGD_TESTS_OPS_EACH_ISA_H

/* EACH_ISA(isa) ...: for each instruction set that this machine and this build have. */
#include "devices/host/cpu.h"
#include "tests/unit/effort.h"

/* Returns the first instruction set to test. With less effort only the last one is tested, which has the widest loads
 * and the longest remainders. */
static inline int effort_first_isa(void)
{
    static int said;

    if (effort_percent() == 100)
        return NGD_ISA_SCALAR;
    if (!said++)
        printf("reduced - instruction sets: %s only\n", ngd_isa_name(ngd_cpu_isa()));
    return (int)ngd_cpu_isa();
}

#define EACH_ISA(isa) for (int isa = effort_first_isa(); isa <= (int)ngd_cpu_isa(); isa++)

#endif
