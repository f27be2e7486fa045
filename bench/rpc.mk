# SPDX-License-Identifier: Apache-2.0
#
# Benches that measure through a daemon. They start the npugraphd of the build tree.
NGD_RPC_BENCHES = bench/rpc/bench_decode bench/rpc/bench_tokens bench/rpc/bench_echo bench/rpc/bench_front bench/rpc/bench_eager \
	bench/rpc/bench_prompt bench/rpc/bench_prompts bench/rpc/bench_capture bench/rpc/bench_ring bench/rpc/bench_shared \
	bench/rpc/bench_upload $(NGD_CROWD_BENCHES)
NGD_CROWD_BENCHES = bench/rpc/bench_scale bench/rpc/bench_fair bench/rpc/bench_expiry bench/rpc/bench_killed \
	bench/rpc/bench_soak bench/rpc/bench_isolation bench/rpc/bench_merge
NGD_BENCHES += $(NGD_RPC_BENCHES)
EXTRA_PROGRAMS += $(NGD_RPC_BENCHES) bench/rpc/make_checkpoint
NGD_RPC_BENCH_SOURCES = \
	bench/rpc/bench_rpc.c \
	bench/rpc/bench_rpc.h \
	bench/rpc/checkpoint.c \
	$(NGD_LIVE_SOURCES)
bench_rpc_bench_decode_SOURCES = \
	bench/rpc/bench_decode.c \
	bench/rpc/read_memory.c \
	bench/rpc/read_memory.h \
	$(NGD_RPC_BENCH_SOURCES)
bench_rpc_bench_decode_LDADD = $(NGD_CLIENT_HF_LIBS)
bench_rpc_bench_tokens_SOURCES = \
	bench/rpc/bench_tokens.c \
	bench/rpc/local_model.c \
	bench/rpc/local_model.h \
	$(NGD_RPC_BENCH_SOURCES)
bench_rpc_bench_tokens_LDADD = $(NGD_SCHEDULER_LIBS) $(NGD_CLIENT_HF_LIBS)
NGD_BARE_SOURCES = bench/rpc/bare.c bench/rpc/bare.h $(NGD_RPC_BENCH_SOURCES)
bench_rpc_bench_echo_SOURCES = bench/rpc/bench_echo.c $(NGD_BARE_SOURCES)
bench_rpc_bench_echo_LDADD = $(NGD_CLIENT_HF_LIBS)
bench_rpc_bench_upload_SOURCES = bench/rpc/bench_upload.c $(NGD_BARE_SOURCES)
bench_rpc_bench_upload_LDADD = $(NGD_CLIENT_HF_LIBS)
bench_rpc_bench_front_SOURCES = bench/rpc/bench_front.c $(NGD_RPC_BENCH_SOURCES)
bench_rpc_bench_front_LDADD = $(NGD_CLIENT_HF_LIBS)
bench_rpc_bench_eager_SOURCES = bench/rpc/bench_eager.c $(NGD_RPC_BENCH_SOURCES)
bench_rpc_bench_eager_LDADD = $(NGD_CLIENT_HF_LIBS)
bench_rpc_bench_ring_SOURCES = bench/rpc/bench_ring.c $(NGD_RPC_BENCH_SOURCES)
bench_rpc_bench_ring_LDADD = $(NGD_CLIENT_HF_LIBS)
bench_rpc_bench_shared_SOURCES = bench/rpc/bench_shared.c $(NGD_RPC_BENCH_SOURCES)
bench_rpc_bench_shared_LDADD = $(NGD_CLIENT_HF_LIBS)
bench_rpc_bench_prompts_SOURCES = bench/rpc/bench_prompts.c $(NGD_RPC_BENCH_SOURCES)
bench_rpc_bench_prompts_LDADD = $(NGD_CLIENT_HF_LIBS)
bench_rpc_bench_prompt_SOURCES = bench/rpc/bench_prompt.c $(NGD_RPC_BENCH_SOURCES)
bench_rpc_bench_prompt_LDADD = $(NGD_CLIENT_HF_LIBS)
bench_rpc_bench_capture_SOURCES = \
	bench/rpc/bench_capture.c \
	bench/rpc/bench_rpc.c \
	bench/rpc/bench_rpc.h \
	bench/rpc/checkpoint.c \
	bench/step_graph.c \
	bench/step_graph.h
# It links the daemon's heap, since allocations are a part of what it measures.
bench_rpc_bench_capture_LDADD = $(NGD_SCHEDULER_LIBS) $(NGD_CLIENT_HF_LIBS) $(JEMALLOC_LIBS)
# Benches with client processes of their own.
NGD_CROWD_SOURCES = bench/rpc/crowd.c bench/rpc/crowd.h $(NGD_RPC_BENCH_SOURCES)
bench_rpc_bench_scale_SOURCES = bench/rpc/bench_scale.c $(NGD_CROWD_SOURCES)
bench_rpc_bench_scale_LDADD = $(NGD_CLIENT_HF_LIBS)
bench_rpc_bench_fair_SOURCES = bench/rpc/bench_fair.c $(NGD_CROWD_SOURCES)
bench_rpc_bench_fair_LDADD = $(NGD_CLIENT_HF_LIBS)
bench_rpc_bench_expiry_SOURCES = bench/rpc/bench_expiry.c $(NGD_CROWD_SOURCES)
bench_rpc_bench_expiry_LDADD = $(NGD_CLIENT_HF_LIBS)
bench_rpc_bench_killed_SOURCES = bench/rpc/bench_killed.c $(NGD_CROWD_SOURCES)
bench_rpc_bench_killed_LDADD = $(NGD_CLIENT_HF_LIBS)
bench_rpc_bench_soak_SOURCES = bench/rpc/bench_soak.c $(NGD_CROWD_SOURCES)
bench_rpc_bench_soak_LDADD = $(NGD_CLIENT_HF_LIBS)
bench_rpc_bench_isolation_SOURCES = bench/rpc/bench_isolation.c $(NGD_CROWD_SOURCES)
bench_rpc_bench_isolation_LDADD = $(NGD_CLIENT_HF_LIBS)
bench_rpc_bench_merge_SOURCES = bench/rpc/bench_merge.c $(NGD_CROWD_SOURCES)
bench_rpc_bench_merge_LDADD = $(NGD_CLIENT_HF_LIBS)
bench_rpc_make_checkpoint_SOURCES = \
	bench/rpc/bench_rpc.c \
	bench/rpc/bench_rpc.h \
	bench/rpc/checkpoint.c \
	bench/rpc/make_checkpoint.c
bench_rpc_make_checkpoint_LDADD = $(NGD_CLIENT_HF_LIBS)
