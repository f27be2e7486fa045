# SPDX-License-Identifier: Apache-2.0
NGD_CLIENT_TESTS = tests/unit/test_chat_template tests/unit/test_checkpoint tests/unit/test_chunk tests/unit/test_client_links tests/unit/test_ctl_metrics tests/unit/test_ctl_screen tests/unit/test_kept tests/unit/test_kv_groups tests/unit/test_stops tests/unit/test_token tests/unit/test_tokenizer tests/unit/test_tokenizers
if NGD_UNIT_TESTS
check_PROGRAMS += $(NGD_CLIENT_TESTS)
TESTS += $(NGD_CLIENT_TESTS)
endif
EXTRA_DIST += tests/golden/chat.json
tests_unit_test_chat_template_LDADD = $(NGD_CLIENT_HF_LIBS) $(CHECK_LIBS)
tests_unit_test_checkpoint_LDADD = $(NGD_CLIENT_HF_LIBS) $(CHECK_LIBS)
tests_unit_test_chunk_LDADD = $(NGD_CLIENT_LIBS) $(CHECK_LIBS)
tests_unit_test_client_links_SOURCES = tests/unit/test_client_links.c client/lib/client.c
# Flags of its own make another object of client.c than libtool's.
tests_unit_test_client_links_CPPFLAGS = $(AM_CPPFLAGS)
tests_unit_test_client_links_LDADD = $(CHECK_LIBS)
tests_unit_test_kept_LDADD = $(NGD_CLIENT_LIBS) $(CHECK_LIBS)
tests_unit_test_kv_groups_LDADD = $(NGD_CLIENT_HF_LIBS) $(CHECK_LIBS)
tests_unit_test_ctl_metrics_SOURCES = tests/unit/test_ctl_metrics.c client/ctl/ctl_metrics.c
tests_unit_test_ctl_metrics_LDADD = $(NGD_CLIENT_LIBS) $(CHECK_LIBS) -lm
tests_unit_test_ctl_screen_SOURCES = tests/unit/test_ctl_screen.c client/ctl/ctl_screen.c
tests_unit_test_ctl_screen_LDADD = $(CHECK_LIBS)
tests_unit_test_stops_LDADD = $(NGD_CLIENT_HF_LIBS) $(CHECK_LIBS)
tests_unit_test_token_LDADD = $(NGD_CLIENT_LIBS) $(CHECK_LIBS)
tests_unit_test_tokenizer_LDADD = $(NGD_CLIENT_HF_LIBS) $(CHECK_LIBS)
tests_unit_test_tokenizers_LDADD = $(NGD_CLIENT_HF_LIBS) $(CHECK_LIBS)
