/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_PROTO_DESCRIPTORS_H
#define NGD_PROTO_DESCRIPTORS_H

/*
 * A serialised google.protobuf.FileDescriptorSet of all .proto files of this folder, with their imports.
 * grpc.reflection answers from it. The build generates the array (proto/local.mk); file names in it are relative to the
 * top folder ("proto/npugraph.proto").
 */
#include <stddef.h>

extern const unsigned char ngd_proto_descriptors[];
extern const size_t ngd_proto_descriptors_len;

#endif
