# SPDX-License-Identifier: Apache-2.0
#
# All but main is a library, for the unit tests of what needs no gRPC server.
noinst_LTLIBRARIES += libngddaemon.la
libngddaemon_la_SOURCES = \
	daemon/access.c \
	daemon/access.h \
	daemon/answers.c \
	daemon/answers.h \
	daemon/call_job.c \
	daemon/call_job.h \
	daemon/daemon.h \
	daemon/device_list.c \
	daemon/device_list.h \
	daemon/drain.c \
	daemon/drain.h \
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
	daemon/front/tls_context.c \
	daemon/front/tls_context.h \
	daemon/front/tls_io.c \
	daemon/front/tls_names.c \
	daemon/front/tls_names.h \
	daemon/front/wire_io.h \
	daemon/front/wire_plain.c \
	daemon/graph_info.c \
	daemon/graph_info.h \
	daemon/health.h \
	daemon/http.c \
	daemon/http.h \
	daemon/http_request.c \
	daemon/http_request.h \
	daemon/identity.c \
	daemon/identity.h \
	daemon/jobs.c \
	daemon/jobs.h \
	daemon/listener.c \
	daemon/listener.h \
	daemon/loader.c \
	daemon/loader.h \
	daemon/lockfile.c \
	daemon/lockfile.h \
	daemon/logprobs.c \
	daemon/logprobs.h \
	daemon/models.c \
	daemon/models.h \
	daemon/object.c \
	daemon/object.h \
	daemon/options.c \
	daemon/options.h \
	daemon/patterns.c daemon/patterns.h \
	daemon/quotas.h \
	daemon/peers.c \
	daemon/peers.h \
	daemon/reactor.c \
	daemon/reactor.h \
	daemon/reflection.c \
	daemon/reflection.h \
	daemon/rpc_admin.c \
	daemon/rpc_call.c \
	daemon/rpc_call.h \
	daemon/rpc_checkup.c \
	daemon/rpc_recv.c \
	daemon/rpc_send.c \
	daemon/rpc_generate.c \
	daemon/rpc_beat.c \
	daemon/rpc_beat.h \
	daemon/rpc_bind.c \
	daemon/rpc_buckets.c \
	daemon/rpc_examine.c \
	daemon/rpc_explain.c \
	daemon/rpc_graphs.c \
	daemon/rpc_groups.c \
	daemon/rpc_graphs.h \
	daemon/rpc_health.c \
	daemon/rpc_int.h \
	daemon/rpc_load.c \
	daemon/rpc_log.c \
	daemon/rpc_log.h \
	daemon/rpc_memory.c \
	daemon/rpc_methods.c \
	daemon/rpc_methods.h \
	daemon/rpc_models.c \
	daemon/rpc_options.c \
	daemon/rpc_patterns.c \
	daemon/rpc_reflection.c \
	daemon/rpc_replay.c \
	daemon/rpc_replay_read.c daemon/rpc_replay_read.h \
	daemon/rpc_replay_types.c daemon/rpc_replay_types.h \
	daemon/rpc_sequences.c \
	daemon/rpc_sequences.h \
	daemon/rpc_server.c \
	daemon/rpc_server.h \
	daemon/rpc_sessions.c \
	daemon/rpc_store.c \
	daemon/rpc_timeline.c \
	daemon/safetensors.c \
	daemon/safetensors.h \
	daemon/sdnotify.c \
	daemon/sdnotify.h \
	daemon/session.c \
	daemon/session.h \
	daemon/sockets.c \
	daemon/sockets.h \
	daemon/startup.c \
	daemon/startup.h \
	daemon/stats.c \
	daemon/stats.h \
	daemon/stats_http.c \
	daemon/stats_http.h \
	daemon/stop_guard.c \
	daemon/stop_guard.h \
	daemon/timing.h \
	daemon/turn.c \
	daemon/turn.h \
	daemon/watchdog.c \
	daemon/watchdog.h \
	daemon/wire.c \
	daemon/wire_bounds.def \
	daemon/wire.h \
	daemon/wire_check.c \
	daemon/wire_check.h
NGD_DAEMON_LIBS = libngddaemon.la $(NGD_SCHEDULER_LIBS) $(NGD_PROTO_LIBS) $(GRPC_LIBS) $(LIBEVENT_LIBS) \
	$(SSL_LIBS) $(JANSSON_LIBS) $(SYSTEMD_LIBS)

sbin_PROGRAMS += npugraphd
npugraphd_SOURCES = daemon/main.c
npugraphd_LDADD = $(NGD_DAEMON_LIBS) $(JEMALLOC_LIBS)

EXTRA_DIST += daemon/quotas.def daemon/rpc_methods.def daemon/front/h2_reasons.def
