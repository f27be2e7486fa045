# SPDX-License-Identifier: Apache-2.0
# libnpugraph-hf: checkpoints and tokenizers, on the calls that npugraph.h declares.
include_HEADERS += client/hf/npugraph_hf.h
pkgconfig_DATA += client/hf/npugraph-hf.pc

noinst_LTLIBRARIES += libngdclient_hf.la
libngdclient_hf_la_SOURCES = \
	client/hf/chat_template.c \
	client/hf/checkpoint.h \
	client/hf/checkpoint_config.c \
	client/hf/checkpoint_copy.c \
	client/hf/checkpoint_graph.c \
	client/hf/column_order.c \
	client/hf/column_order.h \
	client/hf/embedding.c \
	client/hf/family.c \
	client/hf/family.h \
	client/hf/family_builtin.c \
	client/hf/family_calls.c \
	client/hf/gguf.h \
	client/hf/gguf_config.c \
	client/hf/gguf_latent.c \
	client/hf/gguf_file.c \
	client/hf/gguf_tokenizer.c \
	client/hf/kv_groups.c \
	client/hf/kv_groups.h \
	client/hf/model_load.c \
	client/hf/model_shape.c \
	client/hf/model_shape.h \
	client/hf/npugraph_hf.h \
	client/hf/quantize.c \
	client/hf/quantize_file.c \
	client/hf/quantize_file.h \
	client/hf/rope.c \
	client/hf/source.c \
	client/hf/source.h \
	client/hf/stops.c \
	client/hf/tokenizer.c \
	client/hf/tokenizer_added.c \
	client/hf/tokenizer_bpe.c \
	client/hf/tokenizer_decode.c \
	client/hf/tokenizer_int.h \
	client/hf/tokenizer_normal.c \
	client/hf/tokenizer_read.c \
	client/hf/tokenizer_split.c \
	client/hf/tokenizer_template.c \
	client/hf/tokenizer_text.c \
	client/hf/tokenizer_text.h \
	client/hf/tokenizer_unicode.c \
	client/hf/tokenizer_unicode.def \
	client/hf/tokenizer_unigram.c
NGD_HF_DEPENDENCIES = $(JANSSON_LIBS) $(LUA_LIBS) $(ONIGURUMA_LIBS) $(UTF8PROC_LIBS) -lm
NGD_CLIENT_HF_LIBS = libngdclient_hf.la $(NGD_CLIENT_LIBS) $(NGD_HF_DEPENDENCIES)

# libnpugraph.so does not export npugraph__error, so this library has a copy.
lib_LTLIBRARIES += libnpugraph-hf.la
libnpugraph_hf_la_SOURCES = client/lib/error.c
libnpugraph_hf_la_LIBADD = libngdclient_hf.la libnpugraph.la $(NGD_BASE_LIBS) $(NGD_HF_DEPENDENCIES)
libnpugraph_hf_la_LDFLAGS = $(NGD_EXPORT_LDFLAGS)

# Families of models: built in, and installed for whoever writes one of his own.
familiesdir = $(pkgdatadir)/families
dist_families_DATA = \
	client/hf/families/ArceeForCausalLM.lua \
	client/hf/families/Cohere2ForCausalLM.lua \
	client/hf/families/CohereForCausalLM.lua \
	client/hf/families/DeepseekV2ForCausalLM.lua \
	client/hf/families/DeepseekV3ForCausalLM.lua \
	client/hf/families/Dots1ForCausalLM.lua \
	client/hf/families/Ernie4_5ForCausalLM.lua \
	client/hf/families/Ernie4_5_MoeForCausalLM.lua \
	client/hf/families/Exaone4ForCausalLM.lua \
	client/hf/families/Gemma2ForCausalLM.lua \
	client/hf/families/Gemma3ForCausalLM.lua \
	client/hf/families/Gemma3ForConditionalGeneration.lua \
	client/hf/families/GemmaForCausalLM.lua \
	client/hf/families/Glm4ForCausalLM.lua \
	client/hf/families/Glm4MoeForCausalLM.lua \
	client/hf/families/Glm4MoeLiteForCausalLM.lua \
	client/hf/families/GlmForCausalLM.lua \
	client/hf/families/GptOssForCausalLM.lua \
	client/hf/families/GraniteForCausalLM.lua \
	client/hf/families/GraniteMoeForCausalLM.lua \
	client/hf/families/HunYuanDenseV1ForCausalLM.lua \
	client/hf/families/LlamaForCausalLM.lua \
	client/hf/families/MiniMaxM2ForCausalLM.lua \
	client/hf/families/Ministral3ForCausalLM.lua \
	client/hf/families/MinistralForCausalLM.lua \
	client/hf/families/Mistral3ForConditionalGeneration.lua \
	client/hf/families/MistralForCausalLM.lua \
	client/hf/families/MixtralForCausalLM.lua \
	client/hf/families/Olmo2ForCausalLM.lua \
	client/hf/families/Olmo3ForCausalLM.lua \
	client/hf/families/OlmoeForCausalLM.lua \
	client/hf/families/Phi3ForCausalLM.lua \
	client/hf/families/Qwen2ForCausalLM.lua \
	client/hf/families/Qwen2MoeForCausalLM.lua \
	client/hf/families/Qwen2VLForConditionalGeneration.lua \
	client/hf/families/Qwen2_5_VLForConditionalGeneration.lua \
	client/hf/families/Qwen3ForCausalLM.lua \
	client/hf/families/Qwen3MoeForCausalLM.lua \
	client/hf/families/Qwen3VLForConditionalGeneration.lua \
	client/hf/families/Qwen3VLMoeForConditionalGeneration.lua \
	client/hf/families/SeedOssForCausalLM.lua \
	client/hf/families/SmolLM3ForCausalLM.lua \
	client/hf/families/Starcoder2ForCausalLM.lua \
	client/hf/families/decoder.lua \
	client/hf/families/deepseek.lua \
	client/hf/families/fp8.lua \
	client/hf/families/gguf.lua \
	client/hf/families/gptq.lua \
	client/hf/families/patterns.lua \
	client/hf/families/quantised.lua \
	client/hf/families/qwen_vl.lua \
	client/hf/families/routed.lua \
	client/hf/families/traced.lua
CLEANFILES += client/hf/families_text.inc
client/hf/families_text.inc: $(dist_families_DATA)
	$(AM_V_GEN)$(MKDIR_P) client/hf && for file in $(dist_families_DATA); do \
		echo "{\"$$(basename $$file .lua)\","; \
		$(SED) -e 's/[\\"]/\\&/g' -e 's/^/"/' -e 's/$$/\\n"/' $(top_srcdir)/$$file || exit 1; echo '},'; done > $@.tmp && mv $@.tmp $@
client/hf/family_builtin.lo: client/hf/families_text.inc

# The renderer of chat templates, a program in Python that the library carries.
EXTRA_DIST += client/hf/render_chat.py
CLEANFILES += client/hf/render_chat_text.inc
client/hf/render_chat_text.inc: client/hf/render_chat.py
	$(AM_V_GEN)$(MKDIR_P) client/hf && $(SED) -e 's/[\\"]/\\&/g' -e 's/^/"/' -e 's/$$/\\n"/' $(top_srcdir)/client/hf/render_chat.py > $@.tmp && \
		mv $@.tmp $@
client/hf/chat_template.lo: client/hf/render_chat_text.inc
