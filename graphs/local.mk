# SPDX-License-Identifier: Apache-2.0
noinst_LTLIBRARIES += libngdgraphs.la
libngdgraphs_la_SOURCES = \
	graphs/buckets.c graphs/buckets.h \
	graphs/compare.c graphs/compare.h \
	graphs/antiquant.h graphs/expr.c graphs/experts.h graphs/expr.h \
	graphs/expr_ask.c \
	graphs/expr_int.h \
	graphs/expr_make.c \
	graphs/expr_poly.c \
	graphs/expr_print.c \
	graphs/expr_range.c \
	graphs/expr_translate.c \
	graphs/gcache.c graphs/gcache.h \
	graphs/graph.c graphs/graph.h \
	graphs/graph_batch.c \
	graphs/graph_int.h \
	graphs/graph_lex.c \
	graphs/graph_lex.h \
	graphs/graph_parse.c \
	graphs/graph_parse_expr.c \
	graphs/graph_parse_int.h \
	graphs/graph_parse_node.c \
	graphs/graph_pack.c graphs/graph_pack.h \
	graphs/graph_print.c \
	graphs/graph_relations.c \
	graphs/graph_streams.c \
	graphs/graph_validate.c \
	graphs/guard.c graphs/guard.h \
	graphs/guard_sizes.c \
	graphs/key.c graphs/key.h \
	graphs/memplan.c graphs/memplan.h \
	graphs/memplan_check.c \
	graphs/op.c graphs/op.h \
	graphs/op_attention.c \
	graphs/op_collective.c \
	graphs/op_decoder.c \
	graphs/op_elementwise.c \
	graphs/op_experts.c \
	graphs/op_index.c \
	graphs/op_int.h \
	graphs/op_maker.c \
	graphs/op_matrix.c \
	graphs/op_norm.c \
	graphs/op_quant.c \
	graphs/op_reduce.c \
	graphs/op_scatter.c \
	graphs/op_shape.c \
	graphs/op_traits.c graphs/op_traits.h \
	graphs/op_view.c \
	graphs/options.c graphs/options.h \
	graphs/pass.h \
	graphs/pass_assign_streams.c \
	graphs/pass_fold_constants.c \
	graphs/pass_fuse.c \
	graphs/pass_hoist_views.c \
	graphs/pass_merge_equals.c \
	graphs/pass_merge_linears.c \
	graphs/pass_remove_dead.c \
	graphs/pass_remove_noops.c \
	graphs/pass_run.c \
	graphs/pass_simplify_views.c \
	graphs/pass_layout.c \
	graphs/pass_support.c \
	graphs/pattern.h \
	graphs/pattern_check.c \
	graphs/pattern_declare.c \
	graphs/pattern_expr.c \
	graphs/pattern_int.h \
	graphs/pattern_lex.c \
	graphs/pattern_lex.h \
	graphs/pattern_match.c graphs/pattern_match.h \
	graphs/pattern_parse.c \
	graphs/pattern_set.c \
	graphs/pattern_side.c \
	graphs/plan.c graphs/plan.h \
	graphs/plan_build.c \
	graphs/plan_cost.c \
	graphs/plan_deadlock.c graphs/plan_deadlock.h \
	graphs/plan_int.h \
	graphs/plan_map.c graphs/plan_map.h \
	graphs/plan_memory.c \
	graphs/plan_order.c graphs/plan_order.h \
	graphs/plan_pack.c graphs/plan_pack.h \
	graphs/plan_place.c \
	graphs/plan_print.c \
	graphs/plan_trace.c graphs/plan_trace.h \
	graphs/plan_streams.c graphs/plan_streams.h \
	graphs/plan_views.c \
	graphs/relation.c graphs/relation.h \
	graphs/rewrite.c graphs/rewrite.h \
	graphs/sizes.c graphs/sizes.h \
	graphs/store.c graphs/store.h \
	graphs/store_dir.c \
	graphs/store_entry.c graphs/store_entry.h \
	graphs/store_int.h \
	graphs/store_note.c \
	graphs/store_owners.c graphs/store_owners.h \
	graphs/store_room.c \
	graphs/uniform.c graphs/uniform.h
libngdgraphs_la_LIBADD = -lm

EXTRA_DIST += graphs/ops.def graphs/store_reasons.def
EXTRA_DIST += graphs/options.def graphs/passes.def graphs/relations.def

# The built-in patterns, as a C string.
EXTRA_DIST += graphs/patterns.txt
CLEANFILES += graphs/patterns_text.inc
graphs/patterns_text.inc: $(top_srcdir)/graphs/patterns.txt
	$(AM_V_GEN)$(MKDIR_P) graphs && $(SED) -e 's/[\\"]/\\&/g' -e 's/^/"/' -e 's/$$/\\n"/' $(top_srcdir)/graphs/patterns.txt > $@.tmp && \
		mv $@.tmp $@
graphs/pattern_set.lo: graphs/patterns_text.inc
