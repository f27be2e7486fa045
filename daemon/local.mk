# SPDX-License-Identifier: Apache-2.0
#
# One library for each folder, in the order of floors; each may use those before it (tests/meta/floors.py):
#
#   libngdtrace.la     which calls are traced, and the way of their spans to a collector
#   libngddaemon.la    the parts that the others share: sessions, identities, peers, models, jobs, ...
#   libngdfront.la     clients' connections, before gRPC
#   libngdrpc.la       the gRPC server and its calls
#   libngdcontrol.la   control of the process: listening, draining, statistics, the watchdog
#   libngdhandlers.la  handlers of the methods
#   libngdhandover.la  from one daemon to the next
#
# All but startup.c and main.c is in libraries, so that unit tests can link parts that need no gRPC server.
noinst_LTLIBRARIES += libngdtrace.la libngddaemon.la libngdfront.la libngdrpc.la libngdcontrol.la libngdhandlers.la libngdhandover.la
libngdtrace_la_SOURCES = \
	daemon/trace/context.c \
	daemon/trace/context.h \
	daemon/trace/export.c \
	daemon/trace/export.h \
	daemon/trace/otlp.c \
	daemon/trace/otlp.h \
	daemon/trace/parts.def \
	daemon/trace/post.c \
	daemon/trace/post.h \
	daemon/trace/record.c \
	daemon/trace/record.h \
	daemon/trace/trace.c \
	daemon/trace/trace.h
libngddaemon_la_SOURCES = \
	daemon/access.c \
	daemon/access.h \
	daemon/audit.c \
	daemon/audit.h \
	daemon/answer_pool.h \
	daemon/answers.c \
	daemon/answers.h \
	daemon/blocks.c \
	daemon/blocks.h \
	daemon/child.c \
	daemon/child.h \
	daemon/client_stream.h \
	daemon/daemon.h \
	daemon/device_list.c \
	daemon/device_list.h \
	daemon/gguf.c \
	daemon/gguf.h \
	daemon/graph_names.c \
	daemon/gift.c \
	daemon/gift.h \
	daemon/graph_names.h \
	daemon/groups.c \
	daemon/groups.h \
	daemon/health.c \
	daemon/health.h \
	daemon/history.c \
	daemon/history.h \
	daemon/http.c \
	daemon/http.h \
	daemon/http_request.c \
	daemon/http_request.h \
	daemon/identity.c \
	daemon/identity.h \
	daemon/jobs.c \
	daemon/jobs.h \
	daemon/json_text.c \
	daemon/json_text.h \
	daemon/jwk.c \
	daemon/jwk.h \
	daemon/jwt.c \
	daemon/jwt.h \
	daemon/jwt_text.c \
	daemon/jwt_text.h \
	daemon/load.h \
	daemon/load_change.c \
	daemon/load_change.h \
	daemon/load_line.c \
	daemon/load_line.h \
	daemon/load_order.c \
	daemon/load_order.h \
	daemon/load_origin.c \
	daemon/load_origin.h \
	daemon/load_share.c \
	daemon/load_share.h \
	daemon/load_slices.c \
	daemon/load_slices.h \
	daemon/loader.c \
	daemon/loader.h \
	daemon/lockfile.c \
	daemon/lockfile.h \
	daemon/model_id.c \
	daemon/model_id.h \
	daemon/models.c \
	daemon/models.h \
	daemon/object.c \
	daemon/object.h \
	daemon/sequence_object.h \
	daemon/options.c \
	daemon/options.h \
	daemon/patterns.c \
	daemon/patterns.h \
	daemon/peers.c \
	daemon/peers.h \
	daemon/quotas.h \
	daemon/promises.h \
	daemon/reactor.c \
	daemon/reactor.h \
	daemon/reflection.c \
	daemon/reflection.h \
	daemon/roles.c \
	daemon/roles.h \
	daemon/safetensors.c \
	daemon/safetensors.h \
	daemon/sandbox.c \
	daemon/sandbox.h \
	daemon/sdnotify.c \
	daemon/sdnotify.h \
	daemon/session.c \
	daemon/session_int.h \
	daemon/session_move.c \
	daemon/session_move.h \
	daemon/session.h \
	daemon/shares.c \
	daemon/shares.h \
	daemon/shared.c \
	daemon/client_pages.c \
	daemon/client_pages.h \
	daemon/oip_sequences.c \
	daemon/oip_sequences.h \
	daemon/shm_regions.c \
	daemon/shm_regions.h \
	daemon/shared.h \
	daemon/sockets.c \
	daemon/sockets.h \
	daemon/timeouts.c \
	daemon/timeouts.h \
	daemon/tokens.c \
	daemon/tokens.h \
	daemon/wire.c \
	daemon/wire.h
libngdfront_la_SOURCES = \
	daemon/front/bytes.c \
	daemon/front/bytes.h \
	daemon/front/conn.c \
	daemon/front/front.c \
	daemon/front/front.h \
	daemon/front/front_int.h \
	daemon/front/h2_guard.c \
	daemon/front/h2_guard.h \
	daemon/front/h2_guard_int.h \
	daemon/front/h2_output.c \
	daemon/front/h2_streams.c \
	daemon/front/h2_streams.h \
	daemon/front/splice.c \
	daemon/front/splice.h \
	daemon/front/tls_context.c \
	daemon/front/tls_context.h \
	daemon/front/tls_io.c \
	daemon/front/tls_names.c \
	daemon/front/tls_names.h \
	daemon/front/wire_io.h \
	daemon/front/wire_plain.c
libngdrpc_la_SOURCES = \
	daemon/rpc/call_job.c \
	daemon/rpc/call_job.h \
	daemon/rpc/call_trace.c \
	daemon/rpc/call_trace.h \
	daemon/rpc/repeat.c \
	daemon/rpc/ring.c \
	daemon/rpc/ring.h \
	daemon/rpc/ring_call.c \
	daemon/rpc/ring_int.h \
	daemon/rpc/repeat.h \
	daemon/rpc/rpc_beat.c \
	daemon/rpc/rpc_beat.h \
	daemon/rpc/rpc_call.c \
	daemon/rpc/rpc_call.h \
	daemon/rpc/rpc_calls.c \
	daemon/rpc/rpc_calls.h \
	daemon/rpc/rpc_int.h \
	daemon/rpc/rpc_log.c \
	daemon/rpc/rpc_log.h \
	daemon/rpc/rpc_method.h \
	daemon/rpc/rpc_recv.c \
	daemon/rpc/rpc_send.c \
	daemon/rpc/rpc_server.c \
	daemon/rpc/rpc_server.h \
	daemon/rpc/rpc_state.h \
	daemon/rpc/rpc_trace.c \
	daemon/rpc/rpc_trace.h \
	daemon/rpc/rpc_who.c \
	daemon/rpc/rpc_who.h \
	daemon/rpc/turn.c \
	daemon/rpc/turn.h \
	daemon/rpc/wire_bounds.def \
	daemon/rpc/wire_check.c \
	daemon/rpc/wire_check.h
libngdcontrol_la_SOURCES = \
	daemon/control/drain.c \
	daemon/control/drain.h \
	daemon/control/json.c \
	daemon/control/json.h \
	daemon/control/listener.c \
	daemon/control/listener.h \
	daemon/control/local.c \
	daemon/control/local.h \
	daemon/control/preload.c \
	daemon/control/preload.h \
	daemon/control/reload.c \
	daemon/control/reload.h \
	daemon/control/settings.c \
	daemon/control/settings.h \
	daemon/control/stats.c \
	daemon/control/stats.h \
	daemon/control/stats_graph.c \
	daemon/control/stats_graph.h \
	daemon/control/stats_history.c \
	daemon/control/stats_history.h \
	daemon/control/stats_http.c \
	daemon/control/stats_http.h \
	daemon/control/stats_pages.c \
	daemon/control/stats_pages.h \
	daemon/control/stats_telemetry.c \
	daemon/control/stats_telemetry.h \
	daemon/control/stop_guard.c \
	daemon/control/stop_guard.h \
	daemon/control/watchdog.c \
	daemon/control/watchdog.h
libngdhandlers_la_SOURCES = \
	daemon/handlers/admin.c \
	daemon/handlers/bind.c \
	daemon/handlers/borrow.h \
	daemon/handlers/buckets.c \
	daemon/handlers/config.c \
	daemon/handlers/doctor.c \
	daemon/handlers/doctor_device.c \
	daemon/handlers/explain.c \
	daemon/handlers/embed.c \
	daemon/handlers/generate.c \
	daemon/handlers/graph_info.c \
	daemon/handlers/graph_info.h \
	daemon/handlers/graphs.c \
	daemon/handlers/graphs.h \
	daemon/handlers/groups.c \
	daemon/handlers/health.c \
	daemon/handlers/files.c \
	daemon/handlers/load.c \
	daemon/handlers/logprobs.c \
	daemon/handlers/logprobs.h \
	daemon/handlers/logs.c \
	daemon/handlers/priority.h \
	daemon/handlers/memory.c \
	daemon/handlers/methods.c \
	daemon/handlers/methods.h \
	daemon/handlers/models.c \
	daemon/handlers/models.h \
	daemon/handlers/oip.h \
	daemon/handlers/oip_generate.c \
	daemon/handlers/oip_infer.c \
	daemon/handlers/oip_infer.h \
	daemon/handlers/oip_inputs.c \
	daemon/handlers/oip_model.c \
	daemon/handlers/oip_models.c \
	daemon/handlers/oip_outputs.c \
	daemon/handlers/oip_regions.c \
	daemon/handlers/oip_request.c \
	daemon/handlers/oip_request.h \
	daemon/handlers/oip_server.c \
	daemon/handlers/oip_stream.c \
	daemon/handlers/oip_stream.h \
	daemon/handlers/options.c \
	daemon/handlers/patterns.c \
	daemon/handlers/reflection.c \
	daemon/handlers/replay.c \
	daemon/handlers/copy.c \
	daemon/handlers/replay_read.c \
	daemon/handlers/replay_read.h \
	daemon/handlers/replay_shared.c \
	daemon/handlers/replay_shared.h \
	daemon/handlers/replay_trace.c \
	daemon/handlers/replay_trace.h \
	daemon/handlers/replay_types.c \
	daemon/handlers/replay_types.h \
	daemon/handlers/sampling.c \
	daemon/handlers/sampling.h \
	daemon/handlers/sequence_trace.c \
	daemon/handlers/sequence_trace.h \
	daemon/handlers/restore.c \
	daemon/handlers/sequences.c \
	daemon/handlers/sequences.h \
	daemon/handlers/sessions.c \
	daemon/handlers/store.c \
	daemon/handlers/timeline.c \
	daemon/handlers/timing.h
libngdhandover_la_SOURCES = \
	daemon/handover/arrive.c \
	daemon/handover/arrive.h \
	daemon/handover/depart.c \
	daemon/handover/depart.h \
	daemon/handover/describe.c \
	daemon/handover/describe.h \
	daemon/handover/describe_int.h \
	daemon/handover/give.c \
	daemon/handover/handover.h \
	daemon/handover/handover_int.h \
	daemon/handover/packet.c \
	daemon/handover/packet.h \
	daemon/handover/pause.c \
	daemon/handover/pause.h \
	daemon/handover/pauses.def \
	daemon/handover/restore.c \
	daemon/handover/restore.h \
	daemon/handover/restore_int.h \
	daemon/handover/take.c
NGD_DAEMON_LIBS = libngdhandover.la libngdhandlers.la libngdcontrol.la libngdrpc.la libngdfront.la libngddaemon.la \
	libngdtrace.la $(NGD_SCHEDULER_LIBS) $(NGD_PROTO_LIBS) $(GRPC_LIBS) $(LIBEVENT_LIBS) $(SSL_LIBS) $(JANSSON_LIBS) $(SYSTEMD_LIBS)

sbin_PROGRAMS += npugraphd
npugraphd_SOURCES = daemon/main.c daemon/startup.c daemon/startup.h
npugraphd_LDADD = $(NGD_DAEMON_LIBS) $(JEMALLOC_LIBS)

# The page for people, as a C string.
EXTRA_DIST += daemon/page/index.html
CLEANFILES += daemon/page/index_text.inc
daemon/page/index_text.inc: daemon/page/index.html
	$(AM_V_GEN)$(MKDIR_P) daemon/page && $(SED) -e 's/[\\"]/\\&/g' -e 's/^/"/' -e 's/$$/\\n"/' $(top_srcdir)/daemon/page/index.html > $@.tmp && \
		mv $@.tmp $@
daemon/control/stats_pages.lo: daemon/page/index_text.inc

EXTRA_DIST += daemon/history.def daemon/quotas.def daemon/handlers/methods.def daemon/front/h2_reasons.def
