# SPDX-License-Identifier: Apache-2.0
noinst_LTLIBRARIES += libngdscheduler.la
libngdscheduler_la_SOURCES = \
	scheduler/ahead.c \
	scheduler/batch.c \
	scheduler/binding.c \
	scheduler/capture.c \
	scheduler/compile.c \
	scheduler/compile.h \
	scheduler/context.c \
	scheduler/contract.c scheduler/contract.h \
	scheduler/debug.c scheduler/debug.h \
	scheduler/decode.c \
	scheduler/doctor.c \
	scheduler/dump.c \
	scheduler/eager_plans.c scheduler/eager_plans.h \
	scheduler/event.c scheduler/event.h \
	scheduler/exam.c scheduler/exam.h scheduler/exam_int.h \
	scheduler/expiry.c \
	scheduler/gang.c \
	scheduler/gang_check.c \
	scheduler/group.c scheduler/group.h scheduler/group_int.h \
	scheduler/hot.c scheduler/hot.h \
	scheduler/hot_note.c scheduler/hot_note.h \
	scheduler/kv.c scheduler/kv.h \
	scheduler/linger.c scheduler/linger.h \
	scheduler/logprobs.c \
	scheduler/lineup.c scheduler/lineup.h \
	scheduler/merge.c scheduler/merge.h \
	scheduler/merge_prog.c scheduler/merge_prog.h \
	scheduler/merge_run.c \
	scheduler/model.c scheduler/model.h scheduler/model_int.h \
	scheduler/move.c \
	scheduler/order.c \
	scheduler/pace.c scheduler/pace.h \
	scheduler/policy.c scheduler/policy.h \
	scheduler/cap.c \
	scheduler/cap.h \
	scheduler/policy_fair.c \
	scheduler/policy_fifo.c \
	scheduler/poolset.c scheduler/poolset.h \
	scheduler/preempt.c \
	scheduler/program.c scheduler/program.h scheduler/program_int.h \
	scheduler/program_buckets.c \
	scheduler/program_events.c \
	scheduler/prompt.c \
	scheduler/queue.c \
	scheduler/ready.c scheduler/ready.h \
	scheduler/recorder.c scheduler/recorder.h \
	scheduler/replay.c \
	scheduler/request.c \
	scheduler/request_park.c \
	scheduler/rows.c \
	scheduler/sched.c scheduler/sched.h scheduler/sched_int.h \
	scheduler/seq.c \
	scheduler/share.c scheduler/share.h \
	scheduler/timeline.c scheduler/timeline.h \
	scheduler/trace.c \
	scheduler/trial.c scheduler/trial.h \
	scheduler/verify.c \
	scheduler/stored.c scheduler/stored.h \
	scheduler/stored_show.c \
	scheduler/estimate.h scheduler/usage.h \
	scheduler/worker.c

EXTRA_DIST += scheduler/events.def scheduler/policies.def scheduler/splits.def
