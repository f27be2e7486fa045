# SPDX-License-Identifier: Apache-2.0
#
# NPUs through CANN, which is loaded at run time; and a simulator of CANN: shared objects with CANN's names, installed where
# no linker looks, for tests and for trying the daemon without an NPU (npugraphd --device ascend --ascend-libs DIR).
libngddevices_la_SOURCES += \
	devices/ascend/acl.h \
	devices/ascend/acl_abi.h \
	devices/ascend/acl_environment.c \
	devices/ascend/acl_environment.def \
	devices/ascend/acl_environment.h \
	devices/ascend/acl_error.c \
	devices/ascend/acl_errors.def \
	devices/ascend/acl_libraries.def \
	devices/ascend/acl_load.c \
	devices/ascend/acl_symbols.def \
	devices/ascend/aclnn_symbols.def \
	devices/ascend/ascend.c \
	devices/ascend/ascend.h \
	devices/ascend/ascend_ops.def \
	devices/ascend/ascend_weights.def \
	devices/ascend/attention.c \
	devices/ascend/attention.h \
	devices/ascend/attention_rows.h \
	devices/ascend/attention_rules.def \
	devices/ascend/budget.c \
	devices/ascend/check.c \
	devices/ascend/chips.def \
	devices/ascend/chips.h \
	devices/ascend/dcmi.c \
	devices/ascend/dcmi.h \
	devices/ascend/dcmi_symbols.def \
	devices/ascend/device.c \
	devices/ascend/exec.c \
	devices/ascend/facts.c \
	devices/ascend/facts.h \
	devices/ascend/facts_use.c \
	devices/ascend/group.c \
	devices/ascend/group_span.c \
	devices/ascend/group.h \
	devices/ascend/group_span.h \
	devices/ascend/issue.c \
	devices/ascend/issue.h \
	devices/ascend/memory.c \
	devices/ascend/nodes.c \
	devices/ascend/nz.c \
	devices/ascend/nz.h \
	devices/ascend/op_attention.c \
	devices/ascend/op_basic.c \
	devices/ascend/op_collective.c \
	devices/ascend/op_decoder.c \
	devices/ascend/op_experts.c \
	devices/ascend/op_index.c \
	devices/ascend/op_matrix.c \
	devices/ascend/op_quant.c \
	devices/ascend/op_reduce.c \
	devices/ascend/op_sdpa.c \
	devices/ascend/operator_rules.def \
	devices/ascend/operator_rules.h \
	devices/ascend/probe.c \
	devices/ascend/probe.h \
	devices/ascend/probe_answers.def \
	devices/ascend/probe_ask.c \
	devices/ascend/probe_count.c \
	devices/ascend/probe_operators.def \
	devices/ascend/probe_questions.c \
	devices/ascend/probe_topics.def \
	devices/ascend/probe_words.c \
	devices/ascend/range.c \
	devices/ascend/replay.c \
	devices/ascend/routing.c \
	devices/ascend/rules.c \
	devices/ascend/stream.c \
	devices/ascend/tail.c \
	devices/ascend/telemetry.c \
	devices/ascend/visible.c \
	devices/ascend/visible.h

aclsimdir = $(libexecdir)/npugraphd/acl-simulator
aclsim_LTLIBRARIES = \
	devices/ascend/sim/libascendcl.la \
	devices/ascend/sim/libnnopbase.la \
	devices/ascend/sim/libopapi.la \
	devices/ascend/sim/libhccl.la \
	devices/ascend/sim/libdcmi.la
NGD_ACLSIM_LDFLAGS = $(AM_LDFLAGS) -avoid-version -no-undefined

devices_ascend_sim_libascendcl_la_LDFLAGS = $(NGD_ACLSIM_LDFLAGS)
devices_ascend_sim_libascendcl_la_SOURCES = \
	devices/ascend/sim/sim.h \
	devices/ascend/sim/sim_abi.h \
	devices/ascend/sim/sim_aclnn_symbols.def \
	devices/ascend/sim/sim_callback.c \
	devices/ascend/sim/sim_capture.c \
	devices/ascend/sim/sim_control.c \
	devices/ascend/sim/sim_device.c \
	devices/ascend/sim/sim_event.c \
	devices/ascend/sim/sim_handle.c \
	devices/ascend/sim/sim_mapping.c \
	devices/ascend/sim/sim_memory.c \
	devices/ascend/sim/sim_notify.c \
	devices/ascend/sim/sim_numbers.c \
	devices/ascend/sim/sim_op.h \
	devices/ascend/sim/sim_query.c \
	devices/ascend/sim/sim_reduce.c \
	devices/ascend/sim/sim_stream.c \
	devices/ascend/sim/sim_stream_acl.c \
	devices/ascend/sim/sim_symbols.def

devices_ascend_sim_libnnopbase_la_LDFLAGS = $(NGD_ACLSIM_LDFLAGS)
devices_ascend_sim_libnnopbase_la_LIBADD = devices/ascend/sim/libascendcl.la
devices_ascend_sim_libnnopbase_la_SOURCES = \
	devices/ascend/sim/sim_op.h \
	devices/ascend/sim/sim_operand.c \
	devices/ascend/sim/sim_rules.c

devices_ascend_sim_libopapi_la_LDFLAGS = $(NGD_ACLSIM_LDFLAGS)
devices_ascend_sim_libopapi_la_LIBADD = devices/ascend/sim/libnnopbase.la devices/ascend/sim/libascendcl.la -lm
devices_ascend_sim_libopapi_la_SOURCES = \
	devices/ascend/sim/sim_op_activation.c \
	devices/ascend/sim/sim_op_attention.c \
	devices/ascend/sim/sim_op_decoder.c \
	devices/ascend/sim/sim_op_dense.c \
	devices/ascend/sim/sim_op_elementwise.c \
	devices/ascend/sim/sim_op_experts.c \
	devices/ascend/sim/sim_op_index.c \
	devices/ascend/sim/sim_op_matrix.c \
	devices/ascend/sim/sim_op_norm.c \
	devices/ascend/sim/sim_op_product.c \
	devices/ascend/sim/sim_op_quant.c \
	devices/ascend/sim/sim_op_reduce.c \
	devices/ascend/sim/sim_op_scan.c \
	devices/ascend/sim/sim_op_views.c \
	devices/ascend/sim/sim_op_weight.c

devices_ascend_sim_libhccl_la_LDFLAGS = $(NGD_ACLSIM_LDFLAGS)
devices_ascend_sim_libhccl_la_LIBADD = devices/ascend/sim/libascendcl.la $(JANSSON_LIBS) -lm
devices_ascend_sim_libhccl_la_SOURCES = \
	devices/ascend/sim/sim_hccl.c \
	devices/ascend/sim/sim_hccl.h \
	devices/ascend/sim/sim_hccl_net.c \
	devices/ascend/sim/sim_hccl_run.c

devices_ascend_sim_libdcmi_la_LDFLAGS = $(NGD_ACLSIM_LDFLAGS)
devices_ascend_sim_libdcmi_la_SOURCES = devices/ascend/sim/sim_dcmi.c
