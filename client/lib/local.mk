# SPDX-License-Identifier: Apache-2.0
# libnpugraph: calls of the daemon. One set of objects: the shared library, npugraphctl and the tests are made of it.
include_HEADERS += client/lib/npugraph.h
pkgconfig_DATA += client/lib/npugraph.pc

noinst_LTLIBRARIES += libngdclient.la
libngdclient_la_SOURCES = \
	client/lib/buffer.c \
	client/lib/channel.c client/lib/channel.h client/lib/channel_int.h \
	client/lib/credentials.c client/lib/credentials.h \
	client/lib/chunk.c client/lib/chunk.h \
	client/lib/copier.c client/lib/copier.h \
	client/lib/client.c \
	client/lib/client_int.h client/lib/timing.h \
	client/lib/embed.c client/lib/error.c client/lib/error.h \
	client/lib/follower.c \
	client/lib/generations.c \
	client/lib/graph.c \
	client/lib/daemon_link.c client/lib/daemon_link.h \
	client/lib/kept.c client/lib/kept.h \
	client/lib/local.c client/lib/local.h \
	client/lib/message.c client/lib/message.h \
	client/lib/model.c \
	client/lib/npugraph.h \
	client/lib/ring.c client/lib/ring.h \
	client/lib/sampling.c client/lib/sampling.h \
	client/lib/sequence.c client/lib/sequence.h \
	client/lib/session.c client/lib/session.h \
	client/lib/shared.c client/lib/shared.h \
	client/lib/token.c client/lib/token.h \
	client/lib/address.c client/lib/address.h \
	client/lib/trace.c client/lib/trace.h \
	client/lib/version.c
NGD_CLIENT_LIBS = libngdclient.la $(NGD_PROTO_LIBS) $(GRPC_LIBS)

lib_LTLIBRARIES += libnpugraph.la
libnpugraph_la_SOURCES =
libnpugraph_la_LIBADD = $(NGD_CLIENT_LIBS)
libnpugraph_la_LDFLAGS = $(NGD_EXPORT_LDFLAGS)
