/* SPDX-License-Identifier: Apache-2.0 */
/* Memory.ReadFile: a piece of a small file beside weights. A read may wait for the disk, so it runs as a job, but
 * not behind loads of weights, which take minutes. */
#include "base/digest.h"
#include "base/file_id.h"
#include "base/read_at.h"
#include "daemon/daemon.h"
#include "daemon/handlers/methods.h"
#include "daemon/rpc/call_job.h"
#include "daemon/sandbox.h"
#include "proto/npugraph.pb-c.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PIECE ((uint64_t)256 << 10)

static ngd_status_t check_file_request(const Npugraph__V1__ReadFileRequest *q, struct ngd_diag *diag)
{
    static const char *const ends[] = {".json", ".jinja", ".gguf", ".safetensors"};
    const char *slash = strrchr(q->path, '/'), *base = slash ? slash + 1 : q->path;
    const size_t n = strlen(q->path);

    if (strcmp(base, "npugraph.lua") == 0) /* a family of the checkpoint's own */
        return NGD_OK;
    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
        const size_t k = strlen(ends[i]);

        if (n > k && strcmp(q->path + n - k, ends[i]) == 0)
            return NGD_OK;
    }
    return ngd_diag_set(
        diag, NGD_ERR_PATH_NOT_ALLOWED,
        "%.400s: only npugraph.lua and files whose names end in .json, .jinja, .gguf or .safetensors are read",
        q->path);
}

/* *where_p: the file's absolute path. Relative ones are looked for in each directory. */
static ngd_status_t open_model_file(struct ngd_call *call, const char *path, int *fd_p, char **where_p,
                                    struct ngd_diag *diag)
{
    struct ngd_options *options = &call->daemon->options;
    struct ngd_config_list dirs;
    const char *dir;
    ngd_status_t status = ngd_options_copy_list(options, &options->models_dir, &dirs);
    size_t room;

    if (status != NGD_OK)
        return ngd_diag_set(diag, status, "no host memory for the list of models-dir");
    status = ngd_sandbox_find(&dirs, path, fd_p, &dir, diag);
    if (status == NGD_OK) {
        room = strlen(dir) + strlen(path) + 2;
        *where_p = ngd_arena_alloc(&call->arena, room);
        if (*where_p)
            snprintf(*where_p, room, "%s%s%s", path[0] == '/' ? "" : dir, path[0] == '/' ? "" : "/", path);
        else
            close(*fd_p);
        status = *where_p ? NGD_OK : NGD_ERR_NO_MEMORY;
    }
    ngd_config_list_fini(&dirs);
    return status;
}

static ngd_status_t read_piece(struct ngd_call *call, int fd, uint64_t offset, Npugraph__V1__ReadFileResponse *r,
                               struct ngd_diag *diag)
{
    struct ngd_file_id id, now;
    ngd_status_t status = ngd_file_identify(fd, &id, diag);
    uint64_t left;

    if (status != NGD_OK)
        return status;
    left = offset < id.size ? id.size - offset : 0;
    r->bytes = id.size;
    r->version = ngd_hash64(&id, sizeof(id), 0);
    r->data.len = left < PIECE ? left : PIECE;
    r->data.data = ngd_arena_alloc(&call->arena, r->data.len + 1);
    if (!r->data.data)
        return NGD_ERR_NO_MEMORY;
    if (r->data.len)
        status = ngd_read_at(fd, r->data.data, r->data.len, offset, diag);
    if (status == NGD_OK)
        status = ngd_file_identify(fd, &now, diag);
    if (status == NGD_OK && !ngd_file_id_equal(&id, &now))
        status = ngd_diag_set(diag, NGD_ERR_FILE_CORRUPT,
                              "the file was changed while it was read; try again when it is complete");
    return status;
}

static ngd_status_t run_read_file(struct ngd_call *call, const void *msg, struct ngd_diag *diag)
{
    const Npugraph__V1__ReadFileRequest *q = msg;
    Npugraph__V1__ReadFileResponse r = NPUGRAPH__V1__READ_FILE_RESPONSE__INIT;
    int fd;
    ngd_status_t status = open_model_file(call, q->path, &fd, &r.path, diag);

    if (status != NGD_OK)
        return status;
    status = read_piece(call, fd, q->offset, &r, diag);
    close(fd);
    if (status == NGD_OK)
        ngd_call_reply(call, &r.base);
    return status;
}

static void read_file(struct ngd_call *call, const void *msg)
{
    struct ngd_diag diag = {0};
    const ngd_status_t status = check_file_request(msg, &diag);

    if (status != NGD_OK)
        ngd_call_fail(call, status, &diag);
    else
        ngd_call_job_add(call->daemon->jobs, call, msg, run_read_file, NGD_CALL_JOB_SLOW);
}

const struct ngd_rpc_ops ngd_rpc_memory_read_file = {.request = read_file};
