# SPDX-License-Identifier: Apache-2.0
# Fuzz targets, one file per parser: run here with mutations from a fixed seed, and by scripts/campaign fuzz with libFuzzer.
NGD_FUZZ_TARGETS = \
	tests/fuzz/fuzz_graph_text \
	tests/fuzz/fuzz_pattern_text \
	tests/fuzz/fuzz_plan_pack \
	tests/fuzz/fuzz_store_entry \
	tests/fuzz/fuzz_graph_options \
	tests/fuzz/fuzz_daemon_options \
	tests/fuzz/fuzz_device_facts \
	tests/fuzz/fuzz_address \
	tests/fuzz/fuzz_family \
	tests/fuzz/fuzz_gguf \
	tests/fuzz/fuzz_h2_guard \
	tests/fuzz/fuzz_hot_note \
	tests/fuzz/fuzz_http \
	tests/fuzz/fuzz_jwt \
	tests/fuzz/fuzz_load_change \
	tests/fuzz/fuzz_oip_request \
	tests/fuzz/fuzz_safetensors \
	tests/fuzz/fuzz_request \
	tests/fuzz/fuzz_replay \
	tests/fuzz/fuzz_checkpoint \
	tests/fuzz/fuzz_tls_name \
	tests/fuzz/fuzz_tokenizer
# Of libcheck these programs need nothing.
check_PROGRAMS += $(NGD_FUZZ_TARGETS)
TESTS += $(NGD_FUZZ_TARGETS)
check_LTLIBRARIES += libngdfuzz.la
libngdfuzz_la_SOURCES = tests/fuzz/fuzz_main.c tests/fuzz/fuzz.h tests/fuzz/checkpoint_graphs.h
EXTRA_DIST += tests/fuzz/corpus tests/fuzz/dict tests/fuzz/parsers

NGD_FUZZ_LIBS = libngdfuzz.la $(NGD_FUZZER_LIBS)
tests_fuzz_fuzz_graph_text_LDADD = $(NGD_FUZZ_LIBS) $(NGD_GRAPHS_LIBS)
tests_fuzz_fuzz_pattern_text_LDADD = $(NGD_FUZZ_LIBS) $(NGD_GRAPHS_LIBS)
tests_fuzz_fuzz_plan_pack_LDADD = $(NGD_FUZZ_LIBS) $(NGD_GRAPHS_LIBS)
tests_fuzz_fuzz_store_entry_LDADD = $(NGD_FUZZ_LIBS) $(NGD_GRAPHS_LIBS)
tests_fuzz_fuzz_graph_options_LDADD = $(NGD_FUZZ_LIBS) $(NGD_GRAPHS_LIBS)
tests_fuzz_fuzz_daemon_options_LDADD = $(NGD_FUZZ_LIBS) $(NGD_DAEMON_LIBS)
tests_fuzz_fuzz_device_facts_LDADD = $(NGD_FUZZ_LIBS) $(NGD_DEVICES_LIBS)
tests_fuzz_fuzz_h2_guard_LDADD = $(NGD_FUZZ_LIBS) $(NGD_DAEMON_LIBS)
tests_fuzz_fuzz_hot_note_LDADD = $(NGD_FUZZ_LIBS) $(NGD_SCHEDULER_LIBS)
tests_fuzz_fuzz_http_LDADD = $(NGD_FUZZ_LIBS) $(NGD_DAEMON_LIBS)
tests_fuzz_fuzz_address_LDADD = $(NGD_FUZZ_LIBS) $(NGD_DAEMON_LIBS)
tests_fuzz_fuzz_jwt_LDADD = $(NGD_FUZZ_LIBS) $(NGD_DAEMON_LIBS)
tests_fuzz_fuzz_load_change_LDADD = $(NGD_FUZZ_LIBS) $(NGD_DAEMON_LIBS)
tests_fuzz_fuzz_oip_request_LDADD = $(NGD_FUZZ_LIBS) $(NGD_DAEMON_LIBS)
tests_fuzz_fuzz_safetensors_LDADD = $(NGD_FUZZ_LIBS) $(NGD_DAEMON_LIBS)
tests_fuzz_fuzz_replay_LDADD = $(NGD_FUZZ_LIBS) $(NGD_DAEMON_LIBS)
tests_fuzz_fuzz_request_LDADD = $(NGD_FUZZ_LIBS) $(NGD_DAEMON_LIBS)
# The graphs of a checkpoint are text for the daemon's parser, so this target alone sees both sides.
tests_fuzz_fuzz_checkpoint_LDADD = $(NGD_FUZZ_LIBS) $(NGD_CLIENT_HF_LIBS) $(NGD_GRAPHS_LIBS)
tests_fuzz_fuzz_family_LDADD = $(NGD_FUZZ_LIBS) $(NGD_CLIENT_HF_LIBS) $(NGD_GRAPHS_LIBS)
tests_fuzz_fuzz_gguf_LDADD = $(NGD_FUZZ_LIBS) $(NGD_CLIENT_HF_LIBS)
tests_fuzz_fuzz_tls_name_LDADD = $(NGD_FUZZ_LIBS) $(NGD_DAEMON_LIBS)
tests_fuzz_fuzz_tokenizer_LDADD = $(NGD_FUZZ_LIBS) $(NGD_CLIENT_HF_LIBS)
