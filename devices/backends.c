/* SPDX-License-Identifier: Apache-2.0 */
/* The table of device backends that are compiled in: backends.def, expanded. */
#include "devices/device_int.h"
#include <string.h>

#define NGD_BACKEND(name) extern const struct ngd_backend ngd_backend_##name;
#include "devices/backends.def"
#undef NGD_BACKEND

static const struct ngd_backend *const backends[] = {
#define NGD_BACKEND(name) &ngd_backend_##name,
#include "devices/backends.def"
#undef NGD_BACKEND
};

static const char *const names[] = {
#define NGD_BACKEND(name) #name,
#include "devices/backends.def"
#undef NGD_BACKEND
    NULL,
};

const struct ngd_backend *ngd_backend_find(const char *name)
{
    for (size_t i = 0; i < sizeof(backends) / sizeof(backends[0]); i++)
        if (strcmp(backends[i]->name, name) == 0 && backends[i]->api == NGD_BACKEND_API)
            return backends[i];
    return NULL;
}

const char *const *ngd_device_backends(void)
{
    return names;
}
