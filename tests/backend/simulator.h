/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_TESTS_BACKEND_SIMULATOR_H
#define NGD_TESTS_BACKEND_SIMULATOR_H

/*
 * The simulator of CANN in the build tree: its path and its controls, which are looked up as the backend looks up
 * symbols.
 */
#include "devices/ascend/sim/sim.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

static inline const char *simulator_dir(void)
{
    static _Thread_local char dir[1024];
    const char *top = getenv("top_builddir");

    snprintf(dir, sizeof(dir), "%s/devices/ascend/sim/.libs", top && *top ? top : ".");
    return dir;
}

/* Ends the program if the simulator lacks the symbol, since a test without its control shows nothing. */
static inline void *simulator_symbol_in(const char *library, const char *name)
{
    char path[1100];
    void *handle, *symbol;

    snprintf(path, sizeof(path), "%s/%s", simulator_dir(), library);
    handle = dlopen(path, RTLD_LAZY);
    symbol = handle ? dlsym(handle, name) : NULL;
    if (!symbol) {
        fprintf(stderr, "%s is not in %s: %s\n", name, path, dlerror());
        exit(EXIT_FAILURE);
    }
    return symbol;
}

static inline void *simulator_symbol(const char *name)
{
    return simulator_symbol_in("libascendcl.so", name);
}

#define SIMULATOR(function) ((__typeof__(&function))simulator_symbol(#function))

static inline void simulator_set(const char *key, const char *value)
{
    if (!SIMULATOR(ngd_aclsim_set)(key, value)) {
        fprintf(stderr, "the simulator does not take %s=%s\n", key, value);
        exit(EXIT_FAILURE);
    }
}

static inline int64_t simulator_count(const char *what)
{
    return SIMULATOR(ngd_aclsim_count)(what);
}

#endif
