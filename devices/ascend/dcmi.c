/* SPDX-License-Identifier: Apache-2.0 */
#include "devices/ascend/dcmi.h"
#include "base/log.h"
#include <dlfcn.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    size_t at;
} dcmi_functions[] = {
#define NGD_DCMI(name, args) {#name, offsetof(struct ngd_dcmi, name)},
#include "devices/ascend/dcmi_symbols.def"
#undef NGD_DCMI
};
#define N_FUNCTIONS (sizeof(dcmi_functions) / sizeof(dcmi_functions[0]))

/* One thread loads; the others do not wait for it, since it may hang. */
enum { DCMI_UNLOADED, DCMI_LOADING, DCMI_LOADED };
static _Atomic int dcmi_state;
static struct ngd_dcmi dcmi;

static void *open_dcmi_in(const char *dir)
{
    char path[1024];

    snprintf(path, sizeof(path), "%.900s/libdcmi.so", dir);
    return dlopen(path, RTLD_LAZY);
}

/* The driver installs it in a folder of its own, and names that to the linker: the exporter's image has both in
 * LD_LIBRARY_PATH (Ascend/ascend-npu-exporter, build/Dockerfile). */
static void *open_dcmi(const char *dir)
{
    static const char *const folders[] = {"/usr/local/dcmi", "/usr/local/Ascend/driver/lib64/driver"};
    const char *named = getenv("NGD_ASCEND_DCMI");
    void *library = NULL;

    if (named && *named)
        return dlopen(named, RTLD_LAZY);
    if (dir && *dir)
        library = open_dcmi_in(dir);
    if (!library)
        library = dlopen("libdcmi.so", RTLD_LAZY);
    for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]) && !library; i++)
        library = open_dcmi_in(folders[i]);
    return library;
}

/* Says once what is wrong. */
static void report_dcmi(const char *what, int code)
{
    static _Atomic bool reported;

    if (!atomic_exchange(&reported, true))
        ngd_warning("devices", "%s (%d): NPUs have no temperature, power and errors in metrics", what, code);
}

/* By one thread at a time. A library that does not initialise stays open for the next attempt. */
static bool load_dcmi(const char *dir)
{
    static void *library;
    int code;

    if (!library)
        library = open_dcmi(dir);
    if (!library) {
        report_dcmi("there is no libdcmi.so", 0);
        return false;
    }
    for (size_t i = 0; i < N_FUNCTIONS; i++) {
        void *found = dlsym(library, dcmi_functions[i].name);

        memcpy((char *)&dcmi + dcmi_functions[i].at, &found, sizeof(found));
    }
    code = dcmi.dcmi_init ? dcmi.dcmi_init() : 0;
    if (code)
        report_dcmi("dcmi_init of libdcmi.so fails", code);
    return code == 0;
}

const struct ngd_dcmi *ngd_dcmi_load(const char *dir)
{
    int expected = DCMI_UNLOADED;

    if (atomic_load(&dcmi_state) != DCMI_LOADED) {
        if (!atomic_compare_exchange_strong(&dcmi_state, &expected, DCMI_LOADING))
            return expected == DCMI_LOADED ? &dcmi : NULL;
        atomic_store(&dcmi_state, load_dcmi(dir) ? DCMI_LOADED : DCMI_UNLOADED); /* it may be there later */
    }
    return atomic_load(&dcmi_state) == DCMI_LOADED ? &dcmi : NULL;
}
