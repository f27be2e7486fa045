/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses how a program's executables run by its options: once, so that a plain replay tests no option. */
#include "scheduler/diag/run_chain.h"

/* Returns how the options make executables run, quarantine left aside. */
static ngd_run_fn *by_options(const struct ngd_program *prog)
{
    if (prog->gang)
        return ngd_gang_run;
    if (prog->options.dump_tensor_data)
        return ngd_dump_run;
    return prog->options.verify_every_n ? ngd_verify_run : ngd_executable_run;
}

/* Runs the quarantined key's substitute eagerly, with an instance that only this run uses. */
static ngd_status_t run_in_quarantine(struct ngd_slot *slot, struct ngd_binding *binding, struct ngd_exec *exec,
                                      struct ngd_launch *launch)
{
    struct ngd_instance *inst = NULL;
    bool eager = launch->eager;
    ngd_status_t status = ngd_instance_create(exec, binding->buffers, binding->n, slot->pool, &inst, &launch->diag);

    if (status == NGD_OK) {
        launch->eager = true;
        status = ngd_stream_run(slot->stream, inst, launch);
        launch->eager = eager;
    }
    ngd_instance_destroy(inst);
    return status;
}

/* Runs an executable of a program that has keys in quarantine; its own key may be one of them. */
static ngd_status_t run_unless_quarantined(struct ngd_slot *slot, struct ngd_binding *binding, struct ngd_executable *x,
                                           struct ngd_launch *launch, bool *quarantined_p)
{
    struct ngd_exec *exec = ngd_program_quarantined(x->prog, &ngd_exec_plan(x->exec)->key);
    ngd_status_t status;

    *quarantined_p = exec != NULL;
    if (!exec)
        return by_options(x->prog)(slot, binding, x, launch, quarantined_p);
    status = run_in_quarantine(slot, binding, exec, launch);
    ngd_exec_unref(exec);
    return status;
}

ngd_run_fn *ngd_run_chain_choose(const struct ngd_program *prog)
{
    return atomic_load(&prog->n_quarantined) ? run_unless_quarantined : by_options(prog);
}
