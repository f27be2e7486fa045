# SPDX-License-Identifier: Apache-2.0
# Checkpoints through a live daemon, against an independent reference.
NGD_MODEL_TESTS = tests/models/test_batching tests/models/test_embeddings tests/models/test_kv_dtypes tests/models/test_memplan_models \
	tests/models/test_models
if NGD_UNIT_TESTS
check_PROGRAMS += $(NGD_MODEL_TESTS)
TESTS += $(NGD_MODEL_TESTS)
endif
NGD_LIVE_SOURCES = tests/models/live.c tests/models/live.h
NGD_LOGITS_SOURCES = tests/models/logits.c tests/models/logits.h
tests_models_test_batching_SOURCES = tests/models/test_batching.c $(NGD_LIVE_SOURCES)
tests_models_test_batching_LDADD = $(NGD_CLIENT_HF_LIBS) $(CHECK_LIBS)
tests_models_test_embeddings_SOURCES = tests/models/test_embeddings.c $(NGD_LIVE_SOURCES)
tests_models_test_embeddings_LDADD = $(NGD_CLIENT_HF_LIBS) $(CHECK_LIBS)
tests_models_test_kv_dtypes_SOURCES = tests/models/test_kv_dtypes.c $(NGD_LIVE_SOURCES) $(NGD_LOGITS_SOURCES)
tests_models_test_kv_dtypes_LDADD = $(NGD_CLIENT_HF_LIBS) $(CHECK_LIBS)
NGD_MEMPLAN_CASES = tests/models/memplan_cases.c tests/models/memplan_cases.h
tests_models_test_memplan_models_SOURCES = tests/models/test_memplan_models.c $(NGD_MEMPLAN_CASES)
tests_models_test_memplan_models_LDADD = $(NGD_DEVICES_LIBS) $(NGD_CLIENT_HF_LIBS) $(CHECK_LIBS)
tests_models_test_models_SOURCES = tests/models/test_models.c $(NGD_LIVE_SOURCES) $(NGD_LOGITS_SOURCES)
tests_models_test_models_LDADD = $(NGD_CLIENT_HF_LIBS) $(CHECK_LIBS)
EXTRA_DIST += tests/golden
