/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loads an object of static kernels.
 *
 * It is loaded from a sealed file in memory. So nobody can change it between the check and its use, no directory has to
 * allow execution, and MemoryDenyWriteExecute= may be set. The loader identifies objects by name, and the name here is
 * that of the descriptor. So the descriptor stays open as long as the object is loaded.
 */
#include "base/mem.h"
#include "base/memfd.h"
#include "devices/host/host.h"
#include "devices/host/static.h"
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct ngd_static_loaded {
    void *handle;
    int fd;
    ngd_host_fn fn[]; /* one for each call */
};

void ngd_static_unload(struct ngd_static_loaded *loaded)
{
    if (!loaded)
        return;
    if (loaded->handle)
        dlclose(loaded->handle);
    if (loaded->fd >= 0)
        close(loaded->fd);
    ngd_free(loaded);
}

static ngd_status_t load_object(struct ngd_static_loaded *l, const void *object, size_t n, struct ngd_diag *diag)
{
    char name[64];

    l->fd = memfd_create("npugraph-static", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (l->fd < 0 || !ngd_static_write(l->fd, object, n) || fcntl(l->fd, F_ADD_SEALS, NGD_MEMFD_WRITTEN) != 0)
        return ngd_diag_set(diag, ngd_status_from_errno(errno), "cannot create a file in memory for static kernels: %s",
                            strerror(errno));
    snprintf(name, sizeof(name), "/proc/self/fd/%d", l->fd);
    l->handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!l->handle)
        return ngd_diag_set(diag, NGD_ERR_INTERNAL, "the object of static kernels does not load: %.200s", dlerror());
    return NGD_OK;
}

static ngd_status_t check_object(const struct ngd_static_object *o, uint32_t n, const char *digest,
                                 struct ngd_diag *diag)
{
    if (!o || o->abi != NGD_STATIC_ABI || o->n != n || memcmp(o->source, digest, NGD_STATIC_DIGEST) != 0)
        return ngd_diag_set(diag, NGD_ERR_INTERNAL,
                            "the object of static kernels was not compiled from this executable's source");
    return NGD_OK;
}

static ngd_status_t take_object(struct host_exec *exec, struct ngd_static_loaded *l, uint32_t *map, const void *object,
                                size_t n, struct ngd_diag *diag)
{
    const struct ngd_plan *plan;
    const struct host_device *dev;
    const struct ngd_host_call *calls = ngd_host_calls(exec, &plan, &dev);
    const struct ngd_static_object *o;
    struct ngd_digest digest;
    struct ngd_strbuf source;
    char hex[NGD_DIGEST_HEX];
    uint32_t functions;
    ngd_status_t status;

    ngd_strbuf_init(&source);
    status = ngd_static_emit(exec, &source, map, &functions);
    ngd_digest_of(ngd_strbuf_str(&source), source.len, &digest);
    ngd_strbuf_fini(&source);
    if (status)
        return ngd_diag_set(diag, status, "no host memory for static kernels");
    ngd_digest_hex(&digest, hex);
    status = load_object(l, object, n, diag);
    if (status)
        return status;
    o = dlsym(l->handle, "ngd_static_object");
    status = check_object(o, functions, hex, diag);
    if (status)
        return status;
    *o->fail = ngd_host_fail;
    for (uint32_t i = 0; i < plan->n_calls; i++)
        l->fn[i] = map[i] == UINT32_MAX ? calls[i].fn : o->fn[map[i]];
    return NGD_OK;
}

ngd_status_t ngd_host_static_adopt(void *dev_v, void *exec, const void *object, size_t n, struct ngd_diag *diag)
{
    const struct ngd_plan *plan;
    const struct host_device *dev;
    struct ngd_static_loaded *l;
    uint32_t *map;
    ngd_status_t status;

    (void)dev_v;
    (void)ngd_host_calls(exec, &plan, &dev);
    l = ngd_calloc(1, sizeof(*l) + plan->n_calls * sizeof(l->fn[0]));
    map = NGD_NEW_N(uint32_t, plan->n_calls);
    if (!l || !map) {
        ngd_free(l);
        ngd_free(map);
        return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory for static kernels");
    }
    l->fd = -1;
    status = take_object(exec, l, map, object, n, diag);
    ngd_free(map);
    if (status || !ngd_host_swap(exec, l, l->fn))
        ngd_static_unload(l);
    return status;
}
