/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_REFLECTION_H
#define NGD_DAEMON_REFLECTION_H

/*
 * Index of which file declares which symbol, made from the descriptor set that the build embeds. grpc.reflection
 * answers from it. Threads: any; immutable after create.
 */
#include "base/status.h"
#include <stdint.h>

struct ngd_reflection;

struct ngd_descriptor_file {
    const char *name;    /* "proto/npugraph.proto" */
    const uint8_t *data; /* a serialised FileDescriptorProto */
    size_t n;
};

/* set: a serialised FileDescriptorSet, which must outlive the index. */
ngd_status_t ngd_reflection_create(const uint8_t *set, size_t n, struct ngd_reflection **reflection_p);
void ngd_reflection_destroy(struct ngd_reflection *reflection); /* NULL is fine */
/* Find a file by its name or by a symbol: package.Service, package.Service.Method, package.Message(.Nested), enums.
 * NULL: none. */
const struct ngd_descriptor_file *ngd_reflection_file(const struct ngd_reflection *reflection, const char *name);
const struct ngd_descriptor_file *ngd_reflection_symbol(const struct ngd_reflection *reflection, const char *symbol);
size_t ngd_reflection_n_services(const struct ngd_reflection *reflection);
const char *ngd_reflection_service(const struct ngd_reflection *reflection, size_t i);

#endif
