/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_REFLECTION_H
#define NGD_DAEMON_REFLECTION_H

/*
 * Which file declares which symbol, from the descriptor set that the build embeds: what grpc.reflection answers from.
 * Immutable after create: any thread.
 */
#include "base/status.h"
#include <stdint.h>

struct ngd_reflection;

struct ngd_descriptor_file {
    const char *name;    /* "proto/npugraph.proto" */
    const uint8_t *data; /* a serialised FileDescriptorProto */
    size_t n;
};

/* set: a serialised FileDescriptorSet, borrowed for ever. */
ngd_status_t ngd_reflection_create(const uint8_t *set, size_t n, struct ngd_reflection **reflection_p);
void ngd_reflection_destroy(struct ngd_reflection *reflection); /* NULL is fine */
/* By file name, or by symbol: package.Service, package.Service.Method, package.Message(.Nested), enums. NULL = none. */
const struct ngd_descriptor_file *ngd_reflection_file(const struct ngd_reflection *reflection, const char *name);
const struct ngd_descriptor_file *ngd_reflection_symbol(const struct ngd_reflection *reflection, const char *symbol);
size_t ngd_reflection_n_services(const struct ngd_reflection *reflection);
const char *ngd_reflection_service(const struct ngd_reflection *reflection, size_t i);

#endif
