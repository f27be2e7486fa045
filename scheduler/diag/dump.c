/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Data dumps (dump_tensor_data): every replay of the graph writes the results of every node as .npy files.
 *
 * A replay runs a tapped copy of the graph, whose nodes' results are outputs too: of the graph as it was registered,
 * run eagerly (stage original), or as the passes left it (stage optimized). There is no other run, so states change
 * once.
 *
 * Files are named <number of the run>.<number of the output>.<value>.npy and lie below DIR/<graph>-<digest>-<stage>/.
 * Other registrations, earlier processes, and other clients may have written to the same directory. A run has its
 * number once it has created its first file, so no number is used twice. If a file cannot be written, the flight
 * recorder notes it and the replay is answered all the same.
 */
#include "base/dumpdir.h"
#include "base/mem.h"
#include "base/npy.h"
#include "scheduler/diag/run_chain.h"
#include "scheduler/program/capture_dump.h"
#include "scheduler/diag/verify_form.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static bool original(const struct ngd_program *prog)
{
    return prog->options.data_dump_stage == NGD_DUMP_ORIGINAL;
}

static ngd_status_t open_dump_dir(struct ngd_program *prog, int *fd_p, struct ngd_diag *diag)
{
    char hex[NGD_DIGEST_HEX], name[80], path[NGD_OPTION_TEXT_MAX + 128];

    ngd_digest_hex(&prog->graph->digest, hex);
    ngd_dump_clean(prog->graph->name, name, sizeof(name));
    snprintf(path, sizeof(path), "%s/%s-%.12s-%s", prog->options.data_dump_dir, name, hex,
             original(prog) ? "original" : "optimized");
    return ngd_dumps_open(prog->sched->params.dumps, ngd_program_owner_of(prog).payers.dumps, path, fd_p, diag);
}

static ngd_status_t write_result(struct ngd_program *prog, const struct ngd_verify_results *results, uint32_t i,
                                 int dir, uint64_t *run_p, struct ngd_diag *diag)
{
    const struct ngd_verify_result *r = &results->list[i];
    const char *name = i < prog->graph->n_outputs ? r->name : ngd_tap_value(r->name);
    char file[200];
    void *npy;
    size_t n;
    ngd_status_t status = ngd_npy_make(r->dtype, r->dims, r->rank, r->data, &npy, &n);

    if (status)
        return ngd_diag_set(diag, status, "output \"%.100s\" cannot be written as npy", name);
    do {
        if (i == 0)
            *run_p = atomic_fetch_add(&prog->dumps, 1);
        snprintf(file, sizeof(file), "%06" PRIu64 ".%05u.%s%.150s.npy", *run_p, (unsigned)i,
                 i < prog->graph->n_outputs ? "output." : "", name);
        status = ngd_dumps_write(prog->sched->params.dumps, ngd_program_owner_of(prog).payers.dumps, dir, file, npy, n,
                                 diag);
    } while (i == 0 && status == NGD_ERR_ALREADY_EXISTS);
    ngd_free(npy);
    return status;
}

static void write_results(struct ngd_program *prog, const struct ngd_key *key, const struct ngd_launch *launch,
                          const struct ngd_verify_results *results)
{
    struct ngd_diag diag = {0};
    uint64_t run = 0;
    int dir;
    ngd_status_t status = open_dump_dir(prog, &dir, &diag);

    if (status == NGD_OK) {
        for (uint32_t i = 0; i < results->n && status == NGD_OK; i++)
            status = write_result(prog, results, i, dir, &run, &diag);
        close(dir);
    }
    if (status)
        ngd_program_note(prog, NGD_EVENT_DUMP_FAILED, key, launch->tag, "%s", diag.text);
}

static void answer_with_results(const struct ngd_program *prog, const struct ngd_launch *launch,
                                const struct ngd_verify_results *results)
{
    for (uint32_t i = 0; i < prog->graph->n_outputs; i++)
        if (launch->outputs[i].data)
            memcpy(launch->outputs[i].data, results->list[i].data, results->list[i].bytes);
}

ngd_status_t ngd_dump_run(struct ngd_slot *slot, struct ngd_binding *binding, struct ngd_executable *x,
                          struct ngd_launch *launch, bool *quarantined_p)
{
    struct ngd_program *prog = binding->prog;
    const struct ngd_plan *plan = ngd_exec_plan(x->exec);
    struct ngd_verify_results results = {0};
    struct ngd_graph *tapped = NULL;
    ngd_status_t status = ngd_graph_tap(original(prog) ? prog->graph : plan->graph, &tapped, &launch->diag);

    (void)quarantined_p;
    if (status == NGD_OK) {
        struct ngd_verify_form form = {.slot = slot,
                                       .graph = tapped,
                                       .key = &plan->key,
                                       .options = &prog->options,
                                       .eager = original(prog) || launch->eager,
                                       .buffers = binding->buffers,
                                       .launch = launch};

        status = ngd_verify_form_run(&form, &results, &launch->device_time, &launch->diag);
    }
    if (status == NGD_OK) {
        answer_with_results(prog, launch, &results);
        write_results(prog, &plan->key, launch, &results);
    }
    ngd_verify_results_fini(&results);
    ngd_graph_unref(tapped);
    return status;
}
