# SPDX-License-Identifier: Apache-2.0
include_HEADERS += client/npugraph.h
pkgconfig_DATA += client/npugraph.pc

# One set of objects: the shared library, npugraphctl and the tests are made of it. npugraphctl uses internals and
# therefore links it statically.
noinst_LTLIBRARIES += libngdclient.la
libngdclient_la_SOURCES = \
	client/buffer.c \
	client/channel.c \
	client/checkpoint.h \
	client/checkpoint_config.c \
	client/checkpoint_graph.c \
	client/client_int.h client/timing.h \
	client/graph.c \
	client/model.c \
	client/npugraph.h \
	client/sequence.c \
	client/stops.c \
	client/session.c \
	client/tokenizer.c \
	client/tokenizer_int.h \
	client/tokenizer_load.c \
	client/version.c
NGD_CLIENT_LIBS = libngdclient.la $(NGD_PROTO_LIBS) $(GRPC_LIBS) $(JANSSON_LIBS) $(PCRE2_LIBS) $(UTF8PROC_LIBS) -lm

lib_LTLIBRARIES += libnpugraph.la
libnpugraph_la_SOURCES =
libnpugraph_la_LIBADD = $(NGD_CLIENT_LIBS)
libnpugraph_la_LDFLAGS = $(AM_LDFLAGS) -version-info 0:0:0 -export-symbols-regex '^npugraph_[a-z]'

bin_PROGRAMS += npugraphctl
npugraphctl_SOURCES = \
	client/ctl.h \
	client/ctl_doctor.c \
	client/ctl_doctor_device.c \
	client/ctl_explain.c \
	client/ctl_cache.c \
	client/ctl_graphs.c \
	client/ctl_info.c \
	client/ctl_metrics.c client/ctl_metrics.h \
	client/ctl_models.c \
	client/ctl_output.c \
	client/ctl_patterns.c \
	client/ctl_replay.c \
	client/ctl_timeline.c \
	client/ctl_screen.c client/ctl_screen.h \
	client/ctl_top.c client/ctl_top.h \
	client/ctl_top_view.c \
	client/npugraphctl.c
npugraphctl_LDADD = $(NGD_CLIENT_LIBS) $(SMARTCOLS_LIBS)

dist_bashcompletion_DATA += client/completion/npugraphctl
