# SPDX-License-Identifier: Apache-2.0
# libnpugraph-hf: checkpoints and tokenizers, on the calls that npugraph.h declares.
include_HEADERS += client/hf/npugraph_hf.h
pkgconfig_DATA += client/hf/npugraph-hf.pc

noinst_LTLIBRARIES += libngdclient_hf.la
libngdclient_hf_la_SOURCES = \
	client/hf/checkpoint.h \
	client/hf/checkpoint_config.c \
	client/hf/checkpoint_graph.c \
	client/hf/model_load.c \
	client/hf/npugraph_hf.h \
	client/hf/stops.c \
	client/hf/tokenizer.c \
	client/hf/tokenizer_int.h \
	client/hf/tokenizer_load.c
NGD_HF_DEPENDENCIES = $(JANSSON_LIBS) $(PCRE2_LIBS) $(UTF8PROC_LIBS) -lm
NGD_CLIENT_HF_LIBS = libngdclient_hf.la $(NGD_CLIENT_LIBS) $(NGD_HF_DEPENDENCIES)

# libnpugraph.so does not export npugraph__error, so this library has a copy.
lib_LTLIBRARIES += libnpugraph-hf.la
libnpugraph_hf_la_SOURCES = client/lib/error.c
libnpugraph_hf_la_LIBADD = libngdclient_hf.la libnpugraph.la $(NGD_BASE_LIBS) $(NGD_HF_DEPENDENCIES)
libnpugraph_hf_la_LDFLAGS = $(NGD_EXPORT_LDFLAGS)
