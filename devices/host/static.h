/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DEVICES_HOST_STATIC_H
#define NGD_DEVICES_HOST_STATIC_H

/*
 * Static kernels: the kernels of one plan, compiled with its shapes, strides and offsets as constants.
 *
 * The code that runs is that of the kernel files themselves. A generated file defines NGD_STATIC, includes a family's
 * sources, which leave out then what chooses, and has one function for each different call of the plan: its parameters
 * are a constant and everything is inlined. So there is one source of every kernel, and the results are the same bits:
 * nothing reorders floating point, here as there (-ffp-contract=off, no -ffast-math).
 *
 * static_emit.c makes the sources of an executable, compiler.c runs the compiler, static_load.c takes an object in.
 * What is compiled is generated from a validated plan: numbers, and names of dtypes out of our tables. No text of a
 * client is in it.
 */
#include "devices/host/kernels/kernel.h"
#include <stddef.h>

#define NGD_STATIC_ABI       1
#define NGD_STATIC_FUNCTIONS 64 /* of one object; calls beyond stay generic */
#define NGD_STATIC_DIGEST    65

/* What an object has under the name ngd_static_object. */
struct ngd_static_object {
    uint32_t abi, n;
    const ngd_host_fn *fn;
    char source[NGD_STATIC_DIGEST]; /* hex digest of the generated files, set by the compiler's command line */
    /* In: what kernels call of the daemon. Set before the first function runs. */
    void (**fail)(const struct ngd_host_call *call, struct ngd_host_run *run, ngd_status_t status, int64_t value);
};

typedef enum ngd_static_family {
    NGD_STATIC_NONE,
    NGD_STATIC_ATTENTION,
    NGD_STATIC_LINEAR,
    NGD_STATIC_QK_SCATTER,
    NGD_STATIC_FAMILIES
} ngd_static_family_t;

/* An object that is loaded; static_load.c. */
struct ngd_static_loaded;
void ngd_static_unload(struct ngd_static_loaded *loaded); /* NULL is fine; nothing runs its functions any more */

/* Sources of the kernels, as they were when the daemon was built. */
struct ngd_static_file {
    const char *path, *text;
};
extern const struct ngd_static_file ngd_static_files[]; /* ends with a path of NULL */

/* False, with errno: not all could be written. */
bool ngd_static_write(int fd, const char *data, size_t n);

/* The numbers of the functions that an executable's calls get in its object; UINT32_MAX: none. map may be NULL. */
struct host_exec;
ngd_status_t ngd_static_emit(const struct host_exec *exec, struct ngd_strbuf *source, uint32_t *map, uint32_t *n_p);
/* Names a file of generated text: the line before it. */
#define NGD_STATIC_FILE_MARK "//// "

#ifdef NGD_STATIC
/* Generated code runs on the leader of a team, and all of a call at once. */
extern void (*ngd_static_fail)(const struct ngd_host_call *call, struct ngd_host_run *run, ngd_status_t status,
                               int64_t value);
#define ngd_host_fail                  ngd_static_fail
#define ngd_host_thread                0
#define ngd_host_first_part(call, run) ((void)(call), (void)(run), true)
#else
/* A field of a kernel's parameters that generated code has as a constant: a float, integers of 64 bits, or a smaller
 * one that is not negative. Pointers are written by the kernel: they have names instead of values. */
struct ngd_static_field {
    const char *name;
    uint32_t offset, bytes;
    uint8_t each; /* bytes of an element; arrays are of int64_t */
    bool real;
};
#define NGD_STATIC_EACH(x) _Generic((x), int64_t * : sizeof(int64_t), default : sizeof(x))
#define NGD_STATIC_REAL(x) _Generic((x), float : true, default : false)
#define NGD_STATIC_FIELD(type, field)                                                            \
    {                                                                                            \
        .name = #field, .offset = offsetof(type, field), .bytes = sizeof(((type *)0)->field),    \
        .each = NGD_STATIC_EACH(((type *)0)->field), .real = NGD_STATIC_REAL(((type *)0)->field) \
    }
/* ".field = value, ..." for an initialiser. */
void ngd_static_emit_fields(struct ngd_strbuf *sb, const void *params, const struct ngd_static_field *fields, size_t n);
/* The number of rows of dimension 0 times mult; a constant when the plan fixes it. */
void ngd_static_emit_rows(const struct ngd_host_call *call, int64_t mult, struct ngd_strbuf *sb);
#endif

#endif
