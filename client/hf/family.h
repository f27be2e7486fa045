/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NPUGRAPH_FAMILY_H
#define NPUGRAPH_FAMILY_H

/*
 * Families of models: one Lua file for each architecture, run in an interpreter that has nothing but the functions of
 * family_calls.c, with bounds for time and memory. docs/families.md is the reference for authors.
 */
#include "client/hf/checkpoint.h"
#include <lua.h>

/* One run of a family. Without `shape` it describes the checkpoint: declarations are added to it. With a shape it
 * writes a graph: what it declares must be what it declared before. */
struct npugraph__family_run {
    struct npugraph__checkpoint *ck;
    const char *dir; /* of the checkpoint, where its own family may lie; NULL: that is read already, or there is none */
    const struct npugraph__shape *shape;
    bool prefill;
    struct ngd_strbuf params, states, nodes;                /* parts of the graph's text */
    struct ngd_strbuf made_params, made_states, made_nodes; /* of the graph that makes weights */
    bool making;                                            /* made() runs */
    char logits[64], hidden[64];                            /* names of the values that build() returned; "": none */
    struct npugraph_error *err;
    bool refused;                                /* *err says why; otherwise Lua's message does */
    size_t n_weights, n_caches, n_ropes, n_made; /* declared so far */
    size_t n_states;                             /* pairs of states that are written */
    size_t bytes;                                /* that the interpreter holds */
    int steps_left, includes;
    int64_t until; /* on the thread's CPU clock, in ns */
};

/* Runs the checkpoint's own family, or that of ck->architecture. */
int npugraph__family_run(struct npugraph__family_run *run);
/* Makes the functions that families call. */
void npugraph__family_calls(lua_State *lua);
/* Returns the run that a state belongs to. */
struct npugraph__family_run *npugraph__family_of(lua_State *lua);

/* The source of a family that is built in, by the name of its file without ".lua"; NULL: there is none. */
const char *npugraph__family_builtin(const char *name);
/* Appends the names of all architectures that are built in, with commas. */
void npugraph__family_names(struct ngd_strbuf *sb);

#endif
