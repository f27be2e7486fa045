# SPDX-License-Identifier: Apache-2.0
# npugraphctl uses internals of both libraries and therefore links them statically.
bin_PROGRAMS += npugraphctl
npugraphctl_SOURCES = \
	client/ctl/ctl.h \
	client/ctl/ctl_bearer.c \
	client/ctl/ctl_context.c \
	client/ctl/ctl_context.h \
	client/ctl/ctl_doctor.c \
	client/ctl/ctl_doctor_device.c \
	client/ctl/ctl_embed.c \
	client/ctl/ctl_events.c client/ctl/ctl_explain.c \
	client/ctl/ctl_cache.c \
	client/ctl/ctl_generate.c \
	client/ctl/ctl_chat.c \
	client/ctl/ctl_completion.c \
	client/ctl/ctl_config.c \
	client/ctl/ctl_graphs.c \
	client/ctl/ctl_info.c \
	client/ctl/ctl_logs.c \
	client/ctl/ctl_metrics.c client/ctl/ctl_metrics.h \
	client/ctl/ctl_models.c \
	client/ctl/ctl_file.c \
	client/ctl/ctl_output.c \
	client/ctl/ctl_patterns.c \
	client/ctl/ctl_perplexity.c \
	client/ctl/ctl_quantize.c \
	client/ctl/ctl_readings.c client/ctl/ctl_readings.h \
	client/ctl/ctl_replay.c \
	client/ctl/ctl_sampling.c \
	client/ctl/ctl_timeline.c \
	client/ctl/ctl_tokenize.c \
	client/ctl/ctl_tokens.h \
	client/ctl/ctl_screen.c client/ctl/ctl_screen.h \
	client/ctl/ctl_top.c client/ctl/ctl_top.h client/ctl/ctl_watch.c client/ctl/ctl_watch.h \
	client/ctl/ctl_top_view.c \
	client/ctl/npugraphctl.c
npugraphctl_LDADD = $(NGD_CLIENT_HF_LIBS) $(SMARTCOLS_LIBS)

dist_bashcompletion_DATA += client/ctl/completion/npugraphctl
dist_zshcompletion_DATA = client/ctl/completion/_npugraphctl
dist_fishcompletion_DATA = client/ctl/completion/npugraphctl.fish
