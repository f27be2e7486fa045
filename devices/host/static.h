/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DEVICES_HOST_STATIC_H
#define NGD_DEVICES_HOST_STATIC_H

/*
 * Static kernels: the kernels of one plan, compiled with its shapes, strides and offsets as constants.
 *
 * They are compiled from the kernel files themselves. A generated file defines NGD_STATIC and includes the sources of a
 * family, which then leave out the code that chooses a function. It has one function for each different call of the
 * plan, whose parameters are a constant, and into which everything is inlined. So every kernel has one source, and the
 * results have the same bits: neither build reorders floating point (-ffp-contract=off, no -ffast-math).
 *
 * static_emit.c generates the sources of an executable, compiler.c runs the compiler, static_load.c loads the object.
 * The sources are generated from a validated plan: numbers, and names of dtypes from our tables. They contain no text
 * of a client.
 */
#include "devices/host/kernels/kernel.h"
#include <stddef.h>

#define NGD_STATIC_ABI       1
#define NGD_STATIC_FUNCTIONS 64 /* most functions of one object; further calls keep the generic kernels */
#define NGD_STATIC_DIGEST    65

/* The table that an object exports under the name ngd_static_object. */
struct ngd_static_object {
    uint32_t abi, n;
    const ngd_host_fn *fn;
    char source[NGD_STATIC_DIGEST]; /* hex digest of the generated files, set by the compiler's command line */
    /* The daemon's function that kernels call on bad data. The daemon sets it before the first function runs. */
    void (**fail)(const struct ngd_host_call *call, struct ngd_host_run *run, ngd_status_t status, int64_t value);
};

typedef enum ngd_static_family {
    NGD_STATIC_NONE,
    NGD_STATIC_ATTENTION,
    NGD_STATIC_LINEAR,
    NGD_STATIC_QK_SCATTER,
    NGD_STATIC_FAMILIES
} ngd_static_family_t;

/* A loaded object; static_load.c. */
struct ngd_static_loaded;
void ngd_static_unload(struct ngd_static_loaded *loaded); /* nothing runs its functions any more; NULL is fine */

/* Sources of the kernels, from the time when the daemon was built. */
struct ngd_static_file {
    const char *path, *text;
};
extern const struct ngd_static_file ngd_static_files[]; /* ends with a path of NULL */

/* Writes all bytes. Returns false and sets errno if that fails. */
bool ngd_static_write(int fd, const char *data, size_t n);

/* Appends the sources of an executable. map (may be NULL) gets for each call the number of its function in the object,
 * UINT32_MAX if it has none; *n_p gets the number of functions. */
struct host_exec;
ngd_status_t ngd_static_emit(const struct host_exec *exec, struct ngd_strbuf *source, uint32_t *map, uint32_t *n_p);
/* Begins the line in front of each generated file, which names the file. */
#define NGD_STATIC_FILE_MARK "//// "

#ifdef NGD_STATIC
/* Generated code runs on the leader of a team, and runs each call in one part. */
extern void (*ngd_static_fail)(const struct ngd_host_call *call, struct ngd_host_run *run, ngd_status_t status,
                               int64_t value);
#define ngd_host_fail                  ngd_static_fail
#define ngd_host_thread                0
#define ngd_host_first_part(call, run) ((void)(call), (void)(run), true)
#else
/* A field of a kernel's parameters that is a constant in generated code: a float, an int64_t, an array of int64_t, or a
 * smaller integer that is not negative. Pointers are written by the kernel itself, by name. */
struct ngd_static_field {
    const char *name;
    uint32_t offset, bytes;
    uint8_t each; /* bytes of an element; only int64_t has arrays */
    bool real;
};
#define NGD_STATIC_EACH(x) _Generic((x), int64_t * : sizeof(int64_t), default : sizeof(x))
#define NGD_STATIC_REAL(x) _Generic((x), float : true, default : false)
#define NGD_STATIC_FIELD(type, field)                                                            \
    {                                                                                            \
        .name = #field, .offset = offsetof(type, field), .bytes = sizeof(((type *)0)->field),    \
        .each = NGD_STATIC_EACH(((type *)0)->field), .real = NGD_STATIC_REAL(((type *)0)->field) \
    }
/* Appends ".field = value, ..." for an initialiser. */
void ngd_static_emit_fields(struct ngd_strbuf *sb, const void *params, const struct ngd_static_field *fields, size_t n);
/* Appends an expression for the rows of dimension 0, times mult. It is a constant if the plan fixes the rows. */
void ngd_static_emit_rows(const struct ngd_host_call *call, int64_t mult, struct ngd_strbuf *sb);
#endif

#endif
