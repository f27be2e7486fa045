# SPDX-License-Identifier: Apache-2.0
#
# The scheduler's floors, from the ground up. A floor uses those below it.
noinst_LTLIBRARIES += libngdscheduler_record.la
libngdscheduler_record_la_SOURCES = \
	scheduler/record/recorder.c \
	scheduler/record/recorder.h \
	scheduler/record/timeline.c \
	scheduler/record/timeline.h

noinst_LTLIBRARIES += libngdscheduler_lineup.la
libngdscheduler_lineup_la_SOURCES = \
	scheduler/lineup/cap.c \
	scheduler/lineup/cap.h \
	scheduler/lineup/estimate.h \
	scheduler/lineup/lineup.c \
	scheduler/lineup/lineup.h \
	scheduler/lineup/linger.c \
	scheduler/lineup/linger.h \
	scheduler/lineup/merge.c \
	scheduler/lineup/merge.h \
	scheduler/lineup/policy.c \
	scheduler/lineup/policy.h \
	scheduler/lineup/policy_fair.c \
	scheduler/lineup/policy_fifo.c

noinst_LTLIBRARIES += libngdscheduler_run.la
libngdscheduler_run_la_SOURCES = \
	scheduler/run/capture.c \
	scheduler/run/expiry.c \
	scheduler/run/order.c \
	scheduler/run/queue.c \
	scheduler/run/sched.c \
	scheduler/run/sched.h \
	scheduler/run/sched_int.h \
	scheduler/run/session_events.c \
	scheduler/run/session_events.h \
	scheduler/run/share.c \
	scheduler/run/share.h \
	scheduler/run/usage.h \
	scheduler/run/worker.c

noinst_LTLIBRARIES += libngdscheduler_program.la
libngdscheduler_program_la_SOURCES = \
	scheduler/program/ahead.c \
	scheduler/program/binding.c \
	scheduler/program/binding_move.c \
	scheduler/program/capture_dump.c \
	scheduler/program/capture_dump.h \
	scheduler/program/compile.c \
	scheduler/program/compile.h \
	scheduler/program/eager_plans.c \
	scheduler/program/eager_plans.h \
	scheduler/program/executable.c \
	scheduler/program/gang.c \
	scheduler/program/gang_check.c \
	scheduler/program/group.c \
	scheduler/program/group.h \
	scheduler/program/group_int.h \
	scheduler/program/hot.c \
	scheduler/program/hot.h \
	scheduler/program/hot_note.c \
	scheduler/program/hot_note.h \
	scheduler/program/merge_prog.c \
	scheduler/program/merge_prog.h \
	scheduler/program/poolset.c \
	scheduler/program/poolset.h \
	scheduler/program/program.c \
	scheduler/program/program.h \
	scheduler/program/program_buckets.c \
	scheduler/program/program_events.c \
	scheduler/program/program_int.h \
	scheduler/program/program_show.c \
	scheduler/program/quarantine.c \
	scheduler/program/ready.c \
	scheduler/program/ready.h \
	scheduler/program/stored.c \
	scheduler/program/stored.h

noinst_LTLIBRARIES += libngdscheduler_replay.la
libngdscheduler_replay_la_SOURCES = \
	scheduler/replay/gang_run.c \
	scheduler/replay/merge_run.c \
	scheduler/replay/merge_run.h \
	scheduler/replay/replay.c \
	scheduler/replay/replay.h \
	scheduler/replay/request.c \
	scheduler/replay/request_park.c

noinst_LTLIBRARIES += libngdscheduler_model.la
libngdscheduler_model_la_SOURCES = \
	scheduler/model/batch.c \
	scheduler/model/batch_rows.c \
	scheduler/model/context.c \
	scheduler/model/contract.c \
	scheduler/model/contract.h \
	scheduler/model/decode.c \
	scheduler/model/kv.c \
	scheduler/model/kv.h \
	scheduler/model/logprobs.c \
	scheduler/model/model.c \
	scheduler/model/model.h \
	scheduler/model/model_int.h \
	scheduler/model/preempt.c \
	scheduler/model/prompt.c \
	scheduler/model/prompt_pace.c \
	scheduler/model/prompt_pack.c \
	scheduler/model/go_on.c \
	scheduler/model/again.c \
	scheduler/model/prompt_pace.h \
	scheduler/model/hidden.c \
	scheduler/model/sample.c \
	scheduler/model/sampling.c \
	scheduler/model/sampling.h \
	scheduler/model/seq.c \
	scheduler/model/seq_blocks.c \
	scheduler/model/seq_move.c \
	scheduler/model/seq_move.h \
	scheduler/model/seq_check.c

noinst_LTLIBRARIES += libngdscheduler_diag.la
libngdscheduler_diag_la_SOURCES = \
	scheduler/diag/doctor.c \
	scheduler/diag/doctor.h \
	scheduler/diag/doctor_int.h \
	scheduler/diag/doctor_subject.c \
	scheduler/diag/dump.c \
	scheduler/diag/run_chain.c \
	scheduler/diag/run_chain.h \
	scheduler/diag/stored_show.c \
	scheduler/diag/trace.c \
	scheduler/diag/verify.c \
	scheduler/diag/verify_form.c \
	scheduler/diag/verify_form.h

# All of it, put together by sched.c.
noinst_LTLIBRARIES += libngdscheduler.la
libngdscheduler_la_SOURCES = scheduler/sched.c
libngdscheduler_la_LIBADD = \
	libngdscheduler_diag.la \
	libngdscheduler_model.la \
	libngdscheduler_replay.la \
	libngdscheduler_program.la \
	libngdscheduler_run.la \
	libngdscheduler_lineup.la \
	libngdscheduler_record.la

EXTRA_DIST += scheduler/lineup/policies.def scheduler/record/events.def scheduler/record/splits.def
