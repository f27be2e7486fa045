# SPDX-License-Identifier: Apache-2.0
# Black-box tests against a live daemon; each file starts its own.
NGD_RPC_TESTS = \
	tests/rpc/test_ascend.py \
	tests/rpc/test_audit.py \
	tests/rpc/test_connecting.py \
	tests/rpc/test_contexts.py \
	tests/rpc/test_diagnosis.py \
	tests/rpc/test_chat.py \
	tests/rpc/test_ctl.py \
	tests/rpc/test_doctor.py \
	tests/rpc/test_doctor_device.py \
	tests/rpc/test_probe.py \
	tests/rpc/test_quantize.py \
	tests/rpc/test_read_file.py \
	tests/rpc/test_drain.py \
	tests/rpc/test_replace.py \
	tests/rpc/test_move.py \
	tests/rpc/test_move_lost.py \
	tests/rpc/test_embed.py \
	tests/rpc/test_examples.py \
	tests/rpc/test_failing.py \
	tests/rpc/test_families.py \
	tests/rpc/test_false_daemon.py \
	tests/rpc/test_files.py \
	tests/rpc/test_full_disk.py \
	tests/rpc/test_gdb.py \
	tests/rpc/test_gguf.py \
	tests/rpc/test_gguf_experts.py \
	tests/rpc/test_gguf_latent.py \
	tests/rpc/test_gguf_tokenizers.py \
	tests/rpc/test_graphs.py \
	tests/rpc/test_jwt.py \
	tests/rpc/test_killed.py \
	tests/rpc/test_groups.py \
	tests/rpc/test_guards.py \
	tests/rpc/test_kv_dtype.py \
	tests/rpc/test_latent.py \
	tests/rpc/test_load.py \
	tests/rpc/test_load_room.py \
	tests/rpc/test_lost.py \
	tests/rpc/test_memory.py \
	tests/rpc/test_merge.py \
	tests/rpc/test_netns.py \
	tests/rpc/test_oip.py \
	tests/rpc/test_oip_sequences.py \
	tests/rpc/test_packed.py \
	tests/rpc/test_page.py \
	tests/rpc/test_patterns.py \
	tests/rpc/test_preload.py \
	tests/rpc/test_prefix.py \
	tests/rpc/test_readme.py \
	tests/rpc/test_reload.py \
	tests/rpc/test_repeats.py \
	tests/rpc/test_restored.py \
	tests/rpc/test_lost_blocks.py \
	tests/rpc/test_ring.py \
	tests/rpc/test_roles.py \
	tests/rpc/test_sequences.py \
	tests/rpc/test_services.py \
	tests/rpc/test_sessions.py \
	tests/rpc/test_shared.py \
	tests/rpc/test_sharing.py \
	tests/rpc/test_span.py \
	tests/rpc/test_startup.py \
	tests/rpc/test_static.py \
	tests/rpc/test_store.py \
	tests/rpc/test_telemetry.py \
	tests/rpc/test_tensor_parallel.py \
	tests/rpc/test_timeline.py \
	tests/rpc/test_trace.py \
	tests/rpc/test_timing.py \
	tests/rpc/test_tls.py \
	tests/rpc/test_tokens.py \
	tests/rpc/test_top.py \
	tests/rpc/test_vanish.py \
	tests/rpc/test_watchdog.py \
	tests/rpc/test_windows.py \
	tests/rpc/test_wire.py \
	tests/rpc/test_worker_kit.py
TESTS += $(NGD_RPC_TESTS)
EXTRA_DIST += tests/rpc/certs.py tests/rpc/gguf_files.py tests/rpc/harness.py tests/rpc/netns.py tests/rpc/oip_client.py tests/rpc/ring.py tests/rpc/replacing.py \
	tests/rpc/sequences.py \
	tests/rpc/shared.py $(NGD_RPC_TESTS)
$(NGD_RPC_TESTS:.py=.log): npugraphd npugraphctl bench/schedsim examples/worker examples/worker-kit/c/worker $(aclsim_LTLIBRARIES)
if NGD_UNIT_TESTS
tests/rpc/test_killed.log: tests/models/test_batching$(EXEEXT)
endif
