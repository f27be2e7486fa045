# SPDX-License-Identifier: Apache-2.0
noinst_LTLIBRARIES += libngdbase.la
libngdbase_la_SOURCES = \
	base/annotations.h \
	base/base64url.c base/base64url.h \
	base/beat.h \
	base/charge.c base/charge.h \
	base/clock.c base/clock.h \
	base/config.c base/config.h \
	base/config_reload.c \
	base/digest.c base/digest.h \
	base/dtype.c base/dtype.h \
	base/dumpdir.c base/dumpdir.h \
	base/fault.c base/fault.h \
	base/file_id.c base/file_id.h \
	base/gguf.c base/gguf.h \
	base/handle.c base/handle.h \
	base/heap.c base/heap.h \
	base/le.h \
	base/list.h \
	base/lock.c base/lock.h base/lock_rank.h \
	base/log.c base/log.h \
	base/log_ring.c base/log_ring.h \
	base/mem.c base/mem.h \
	base/memfd.c base/memfd.h \
	base/mem_stats.c base/mem_stats.h \
	base/pages.c base/pages.h \
	base/passed_fds.h \
	base/path.c base/path.h \
	base/exemplar.h base/metrics.c base/metrics.h \
	base/nearest.c base/nearest.h \
	base/npy.c base/npy.h \
	base/read_at.c base/read_at.h \
	base/relax.h \
	base/ring.h \
	base/role.c base/role.h \
	base/stamp.c base/stamp.h \
	base/status.c base/status.h \
	base/stop.c base/stop.h \
	base/strbuf.c base/strbuf.h \
	base/token_file.c base/token_file.h \
	base/trusted_file.c base/trusted_file.h \
	base/tsan.h \
	base/utf8.h \
	base/wakeup.c base/wakeup.h

EXTRA_DIST += base/dtype.def base/fault.def base/metrics.def base/role.def base/status.def
