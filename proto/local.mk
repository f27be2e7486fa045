# SPDX-License-Identifier: Apache-2.0
#
# Messages are compiled in the build tree, never committed. A new .proto is one line in NGD_PROTOS.
NGD_PROTOS = \
	proto/google_rpc.proto \
	proto/handover.proto \
	proto/health.proto \
	proto/inference.proto \
	proto/npugraph.proto \
	proto/reflection.proto \
	proto/reflection_v1alpha.proto
NGD_PROTO_GEN_C = $(NGD_PROTOS:.proto=.pb-c.c)
NGD_PROTO_GEN_H = $(NGD_PROTOS:.proto=.pb-c.h)

# Warnings are off for generated code. Its names are spelled out, because automake must see them.
noinst_LTLIBRARIES += libngdproto-gen.la libngdproto.la
nodist_libngdproto_gen_la_SOURCES = \
	proto/descriptors.c \
	proto/google_rpc.pb-c.c \
	proto/handover.pb-c.c \
	proto/health.pb-c.c \
	proto/inference.pb-c.c \
	proto/npugraph.pb-c.c \
	proto/reflection.pb-c.c \
	proto/reflection_v1alpha.pb-c.c
libngdproto_gen_la_CFLAGS = $(AM_CFLAGS) -w
libngdproto_la_SOURCES = proto/descriptors.h proto/word.c proto/word.h
libngdproto_la_LIBADD = libngdproto-gen.la

# Removes services first: protoc-c makes struct members of their methods' names, and `register` is a keyword.
$(NGD_PROTO_GEN_C): proto/%.pb-c.c: $(top_srcdir)/proto/%.proto
	$(AM_V_GEN)$(MKDIR_P) proto proto/messages/proto && \
		$(SED) '/^service /,/^}/d' $< > proto/messages/proto/$(<F) && \
		$(PROTOC_C) -Iproto/messages --c_out=. proto/messages/proto/$(<F)

# protoc-c writes both files at once.
$(NGD_PROTO_GEN_H): proto/%.pb-c.h: proto/%.pb-c.c
	@test -f $@ || { rm -f $<; $(MAKE) $(AM_MAKEFLAGS) $<; }

# The descriptors that the reflection services answer from: each file with its imports.
proto/descriptors.bin: $(NGD_PROTOS:%=$(top_srcdir)/%)
	$(AM_V_GEN)$(MKDIR_P) proto && $(PROTOC) -I$(top_srcdir) --include_imports --descriptor_set_out=$@.tmp \
		$(NGD_PROTOS:%=$(top_srcdir)/%) && mv $@.tmp $@

proto/descriptors.c: proto/descriptors.bin
	$(AM_V_GEN){ \
		echo '#include "proto/descriptors.h"'; \
		echo 'const unsigned char ngd_proto_descriptors[] = {'; \
		od -An -v -tx1 proto/descriptors.bin | $(SED) 's/ \([0-9a-f][0-9a-f]\)/0x\1,/g'; \
		echo '};'; \
		echo 'const size_t ngd_proto_descriptors_len = sizeof(ngd_proto_descriptors);'; \
	} > $@.tmp && mv $@.tmp $@

BUILT_SOURCES += $(NGD_PROTO_GEN_C) $(NGD_PROTO_GEN_H) proto/descriptors.c
CLEANFILES += $(NGD_PROTO_GEN_C) $(NGD_PROTO_GEN_H) proto/descriptors.c proto/descriptors.bin \
	$(NGD_PROTOS:%=proto/messages/%)
EXTRA_DIST += $(NGD_PROTOS)
