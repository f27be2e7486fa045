# SPDX-License-Identifier: Apache-2.0
"""The C interface of libnpugraph for ctypes. Printed by scripts/python-abi.py from npugraph.h and npugraph_hf.h."""
from ctypes import CFUNCTYPE, POINTER, Structure, c_bool, c_char, c_char_p, c_float, c_int, c_int32, c_int64
from ctypes import c_size_t, c_uint, c_uint32, c_uint64, c_uint8, c_void_p
from typing import Any

npugraph_progress_fn = CFUNCTYPE(None, c_void_p, c_uint64, c_uint64)
npugraph_sent_fn = CFUNCTYPE(None, c_void_p)
npugraph_token_fn = CFUNCTYPE(c_bool, c_void_p, c_int32, c_void_p)


class npugraph_error(Structure):
    _fields_ = [
        ("code", c_int),
        ("reason", c_char * 64),
        ("message", c_char * 1024),
    ]


class npugraph_connect_params(Structure):
    _fields_ = [
        ("address", c_char_p),
        ("client_name", c_char_p),
        ("timeout_ms", c_uint32),
        ("grace_ms", c_uint32),
        ("tls_ca", c_char_p),
        ("tls_cert", c_char_p),
        ("tls_key", c_char_p),
        ("tls_server_name", c_char_p),
        ("no_session", c_bool),
        ("token_file", c_char_p),
        ("no_local_transport", c_bool),
    ]


class npugraph_device(Structure):
    _fields_ = [
        ("name", c_char * 64),
        ("backend", c_char * 32),
        ("memory_bytes", c_uint64),
        ("used_bytes", c_uint64),
        ("kv_block", c_uint32),
        ("padding_block", c_bool),
        ("no_decoder", c_char * 256),
    ]


class npugraph_shared(Structure):
    _fields_ = [
        ("buffer", c_uint64),
        ("data", c_void_p),
        ("bytes", c_uint64),
    ]


class npugraph_file_piece(Structure):
    _fields_ = [
        ("n", c_size_t),
        ("bytes", c_uint64),
        ("version", c_uint64),
        ("path", c_char * 4096),
    ]


class npugraph_tensor(Structure):
    _fields_ = [
        ("name", c_char_p),
        ("buffer", c_uint64),
        ("dtype", c_char_p),
        ("shape", POINTER(c_int64)),
        ("rank", c_uint32),
        ("bytes", c_uint64),
    ]


class npugraph_tensors(Structure):
    _fields_ = [
        ("items", POINTER(npugraph_tensor)),
        ("n", c_size_t),
        ("shared", c_bool),
    ]


class npugraph_slice(Structure):
    _fields_ = [
        ("name", c_char_p),
        ("dim", c_uint32),
        ("begin", c_int64),
        ("end", c_int64),
        ("shape", POINTER(c_int64)),
        ("rank", c_uint32),
        ("change", c_char_p),
        ("order", POINTER(c_int32)),
        ("n_order", c_size_t),
    ]


class npugraph_load(Structure):
    _fields_ = [
        ("path", c_char_p),
        ("device", c_char_p),
        ("names", POINTER(c_char_p)),
        ("n_names", c_size_t),
        ("slices", POINTER(npugraph_slice)),
        ("n_slices", c_size_t),
    ]


class npugraph_binding(Structure):
    _fields_ = [
        ("name", c_char_p),
        ("buffer", c_uint64),
    ]


class npugraph_option(Structure):
    _fields_ = [
        ("name", c_char_p),
        ("value", c_char_p),
    ]


class npugraph_place(Structure):
    _fields_ = [
        ("device", c_char_p),
        ("group", c_uint64),
    ]


class npugraph_span(Structure):
    _fields_ = [
        ("ranks", c_uint32),
        ("first_rank", c_uint32),
        ("root", c_void_p),
        ("root_bytes", c_size_t),
        ("time_limit_ms", c_uint32),
    ]


class npugraph_capture_result(Structure):
    _fields_ = [
        ("key", c_char * 512),
        ("captured", c_bool),
        ("pool_bytes", c_uint64),
        ("kernels", c_uint32),
        ("nanoseconds", c_uint64),
    ]


class npugraph_input(Structure):
    _fields_ = [
        ("data", c_void_p),
        ("bytes", c_size_t),
    ]


class npugraph_host_value(Structure):
    _fields_ = [
        ("values", POINTER(c_int64)),
        ("n", c_size_t),
    ]


class npugraph_target(Structure):
    _fields_ = [
        ("data", c_void_p),
        ("bytes", c_size_t),
    ]


class npugraph_replay(Structure):
    _fields_ = [
        ("graph", c_uint64),
        ("symbols", POINTER(c_int64)),
        ("n_symbols", c_size_t),
        ("inputs", POINTER(npugraph_input)),
        ("n_inputs", c_size_t),
        ("hosts", POINTER(npugraph_host_value)),
        ("n_hosts", c_size_t),
        ("outputs", POINTER(c_uint32)),
        ("n_outputs", c_size_t),
        ("targets", POINTER(npugraph_target)),
        ("n_targets", c_size_t),
        ("eager", c_bool),
        ("timing", c_bool),
        ("stream", c_uint32),
        ("wait_event", c_char_p),
        ("record_event", c_char_p),
        ("tag", c_uint64),
        ("sent", npugraph_sent_fn),
        ("sent_user", c_void_p),
    ]


class npugraph_output(Structure):
    _fields_ = [
        ("data", c_void_p),
        ("bytes", c_size_t),
    ]


class npugraph_timing(Structure):
    _fields_ = [
        ("queue_ns", c_uint64),
        ("copy_in_ns", c_uint64),
        ("replay_ns", c_uint64),
        ("copy_out_ns", c_uint64),
        ("padding_ns", c_uint64),
        ("requests", c_uint32),
        ("charged_ns", c_uint64),
    ]


class npugraph_result(Structure):
    _fields_ = [
        ("outputs", POINTER(npugraph_output)),
        ("n", c_size_t),
        ("queue_ns", c_uint64),
        ("device_ns", c_uint64),
        ("priv", c_void_p),
        ("timing", npugraph_timing),
    ]


class npugraph_model_spec(Structure):
    _fields_ = [
        ("name", c_char_p),
        ("prefill_graph", c_uint64),
        ("decode_graph", c_uint64),
        ("kv_states", POINTER(c_char_p)),
        ("n_kv_states", c_size_t),
        ("block_size", c_uint32),
        ("num_blocks", c_uint32),
        ("max_context", c_uint32),
        ("vocab", c_uint32),
        ("stop_tokens", POINTER(c_int32)),
        ("n_stop_tokens", c_size_t),
        ("keep", c_bool),
        ("kv_policy", c_int),
        ("no_prefix_sharing", c_bool),
        ("share_with", POINTER(c_char_p)),
        ("n_share_with", c_size_t),
        ("make_public", c_bool),
        ("make_private", c_bool),
        ("share_prefixes", c_bool),
        ("description", c_char_p),
        ("source", c_char_p),
        ("parameters", c_uint64),
        ("n_kv_groups", c_uint32),
        ("pooling", c_int),
        ("unit_embeddings", c_bool),
    ]


class npugraph_model(Structure):
    _fields_ = [
        ("name", c_char_p),
        ("description", c_char_p),
        ("source", c_char_p),
        ("owner", c_char_p),
        ("parameters", c_uint64),
        ("max_context", c_uint32),
        ("vocab", c_uint32),
        ("sequences", c_uint32),
        ("stop_tokens", POINTER(c_int32)),
        ("n_stop_tokens", c_size_t),
        ("embedding_size", c_uint32),
        ("pooling", c_int),
        ("unit_embeddings", c_bool),
        ("no_generation", c_bool),
    ]


class npugraph_models(Structure):
    _fields_ = [
        ("items", POINTER(npugraph_model)),
        ("n", c_size_t),
    ]


class npugraph_logit_bias(Structure):
    _fields_ = [
        ("token", c_int32),
        ("bias", c_float),
    ]


class npugraph_token_word(Structure):
    _fields_ = [
        ("tokens", POINTER(c_int32)),
        ("n", c_size_t),
    ]


class npugraph_sampling(Structure):
    _fields_ = [
        ("temperature", c_float),
        ("top_k", c_int32),
        ("top_p", c_float),
        ("seed", c_uint64),
        ("min_p", c_float),
        ("typical_p", c_float),
        ("repetition_penalty", c_float),
        ("presence_penalty", c_float),
        ("frequency_penalty", c_float),
        ("min_tokens", c_uint32),
        ("logit_bias", POINTER(npugraph_logit_bias)),
        ("n_logit_bias", c_size_t),
        ("bad_words", POINTER(npugraph_token_word)),
        ("n_bad_words", c_size_t),
    ]


class npugraph_token_logprob(Structure):
    _fields_ = [
        ("token", c_int32),
        ("logprob", c_float),
    ]


class npugraph_logprobs(Structure):
    _fields_ = [
        ("token", c_int32),
        ("logprob", c_float),
        ("top", POINTER(npugraph_token_logprob)),
        ("n_top", c_size_t),
    ]


class npugraph_step(Structure):
    _fields_ = [
        ("token", c_int32),
        ("position", c_uint32),
        ("stop", c_bool),
        ("batch", c_uint32),
        ("accepted", c_uint32),
        ("logprobs", POINTER(npugraph_logprobs)),
        ("n_logprobs", c_size_t),
        ("logits", POINTER(c_float)),
        ("vocab", c_size_t),
        ("queue_ns", c_uint64),
        ("device_ns", c_uint64),
        ("timing", npugraph_timing),
    ]


class npugraph_open_params(Structure):
    _fields_ = [
        ("sampling", POINTER(npugraph_sampling)),
        ("want_logits", c_bool),
        ("want_logprobs", c_bool),
        ("top", c_uint32),
        ("priority", c_int),
        ("timing", c_bool),
        ("allowed", POINTER(c_uint8)),
        ("allowed_bytes", c_size_t),
        ("restore_ms", c_uint32),
    ]


class npugraph_prompt(Structure):
    _fields_ = [
        ("tokens", POINTER(c_int32)),
        ("n", c_size_t),
    ]


class npugraph_embed_params(Structure):
    _fields_ = [
        ("dimensions", c_uint32),
        ("unit", c_bool),
        ("priority", c_int),
    ]


class npugraph_embeddings(Structure):
    _fields_ = [
        ("values", POINTER(c_float)),
        ("n", c_size_t),
        ("size", c_size_t),
        ("shared_tokens", c_uint64),
        ("batch", c_uint32),
    ]


class npugraph_fork_params(Structure):
    _fields_ = [
        ("sampling", POINTER(npugraph_sampling)),
        ("want_logits", c_bool),
        ("want_logprobs", c_bool),
        ("top", c_uint32),
    ]


class npugraph_step_params(Structure):
    _fields_ = [
        ("forced", c_int32),
        ("draft", POINTER(c_int32)),
        ("n_draft", c_size_t),
        ("append", POINTER(c_int32)),
        ("n_append", c_size_t),
        ("want_logits", c_bool),
        ("want_logprobs", c_bool),
        ("top", c_uint32),
        ("priority", c_int),
        ("timing", c_bool),
        ("allowed", POINTER(c_uint8)),
        ("allowed_bytes", c_size_t),
    ]


class npugraph_generate_params(Structure):
    _fields_ = [
        ("max_tokens", c_uint32),
        ("ignore_stop", c_bool),
        ("stop_tokens", POINTER(c_int32)),
        ("n_stop_tokens", c_size_t),
        ("want_logprobs", c_bool),
        ("top", c_uint32),
        ("priority", c_int),
        ("timing", POINTER(npugraph_timing)),
    ]


class npugraph_generation_event(Structure):
    _fields_ = [
        ("tag", c_uint64),
        ("end", c_bool),
        ("token", c_int32),
        ("logprobs", POINTER(npugraph_logprobs)),
        ("finish", c_int),
        ("error", POINTER(npugraph_error)),
    ]


class npugraph_generation_step(Structure):
    _fields_ = [
        ("tag", c_uint64),
        ("allowed", POINTER(c_uint8)),
        ("allowed_bytes", c_size_t),
        ("want_logprobs", c_bool),
        ("top", c_uint32),
    ]


class npugraph_model_params(Structure):
    _fields_ = [
        ("name", c_char_p),
        ("max_context", c_uint32),
        ("max_batch", c_uint32),
        ("prefill_chunk", c_uint32),
        ("block_size", c_uint32),
        ("kv_bytes", c_uint64),
        ("kv_dtype", c_char_p),
        ("matmul_precision", c_char_p),
        ("keep", c_bool),
        ("kv_policy", c_int),
        ("no_prefix_sharing", c_bool),
        ("share_with", POINTER(c_char_p)),
        ("n_share_with", c_size_t),
        ("make_public", c_bool),
        ("make_private", c_bool),
        ("share_prefixes", c_bool),
        ("devices", POINTER(c_char_p)),
        ("n_devices", c_size_t),
        ("embedding", c_bool),
    ]


class npugraph_quantize(Structure):
    _fields_ = [
        ("bits", c_int),
        ("group", c_int64),
        ("rows", c_bool),
        ("floats", c_bool),
        ("bytes_before", c_uint64),
        ("bytes_after", c_uint64),
        ("n_tensors", c_size_t),
    ]


# enum npugraph_kv_policy
KV_POLICY_DEFAULT = 0
KV_POLICY_REFUSE = 1
KV_POLICY_PREEMPT = 2


# enum npugraph_pooling
POOLING_NONE = 0
POOLING_LAST = 1
POOLING_MEAN = 2


# enum npugraph_priority
PRIORITY_DEFAULT = 0
PRIORITY_HIGH = 1
PRIORITY_LOW = 2
PRIORITY_NORMAL = 3


# enum npugraph_finish
FINISH_CANCELLED = 0
FINISH_LENGTH = 1
FINISH_STOP = 2
FINISH_CONTEXT = 3


FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "npugraph_connect_params_init": (None, [c_void_p]),
    "npugraph_connect": (c_int, [c_void_p, c_void_p, c_void_p]),
    "npugraph_disconnect": (None, [c_void_p]),
    "npugraph_session_id": (c_uint64, [c_void_p]),
    "npugraph_has_ring": (c_bool, [c_void_p]),
    "npugraph_server_version": (c_char_p, [c_void_p]),
    "npugraph_version": (c_char_p, []),
    "npugraph_trace_context": (c_int, [c_char_p, c_char_p, c_void_p]),
    "npugraph_device_find": (c_int, [c_void_p, c_char_p, c_void_p, c_void_p]),
    "npugraph_buffer_alloc": (c_int, [c_void_p, c_char_p, c_uint64, c_char_p, c_void_p, c_void_p]),
    "npugraph_buffer_write": (c_int, [c_void_p, c_uint64, c_uint64, c_void_p, c_uint64, c_void_p]),
    "npugraph_buffer_read": (c_int, [c_void_p, c_uint64, c_uint64, c_void_p, c_uint64, c_void_p]),
    "npugraph_buffer_free": (c_int, [c_void_p, c_void_p, c_size_t, c_void_p]),
    "npugraph_shared_alloc": (c_int, [c_void_p, c_uint64, c_void_p, c_void_p]),
    "npugraph_shared_free": (c_int, [c_void_p, c_void_p, c_void_p]),
    "npugraph_file_read": (c_int, [c_void_p, c_char_p, c_uint64, c_void_p, c_size_t, c_void_p, c_void_p]),
    "npugraph_load_safetensors": (c_int, [c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p]),
    "npugraph_tensors_free": (None, [c_void_p]),
    "npugraph_graph_register": (c_int, [c_void_p, c_void_p, c_char_p, c_void_p, c_size_t, c_void_p, c_size_t, c_void_p, c_void_p]),
    "npugraph_group_create": (c_int, [c_void_p, c_char_p, c_void_p, c_size_t, c_void_p, c_void_p]),
    "npugraph_group_root": (c_int, [c_void_p, c_char_p, c_void_p, c_size_t, c_void_p, c_void_p]),
    "npugraph_group_join": (c_int, [c_void_p, c_char_p, c_void_p, c_size_t, c_void_p, c_void_p, c_void_p]),
    "npugraph_ranks_join": (c_int, [c_void_p, c_void_p, c_size_t, c_bool, c_void_p, c_void_p]),
    "npugraph_graph_release": (c_int, [c_void_p, c_uint64, c_void_p]),
    "npugraph_graph_capture": (c_int, [c_void_p, c_uint64, c_void_p, c_size_t, c_bool, c_void_p, c_void_p]),
    "npugraph_replay": (c_int, [c_void_p, c_void_p, c_void_p, c_void_p]),
    "npugraph_result_free": (None, [c_void_p]),
    "npugraph_replay_stream_open": (c_int, [c_void_p, c_void_p, c_void_p]),
    "npugraph_replay_stream_run": (c_int, [c_void_p, c_void_p, c_void_p, c_void_p]),
    "npugraph_replay_stream_close": (None, [c_void_p]),
    "npugraph_copy_pieces": (None, [c_size_t, c_void_p, c_void_p, c_void_p]),
    "npugraph_model_register": (c_int, [c_void_p, c_void_p, c_void_p]),
    "npugraph_model_share": (c_int, [c_void_p, c_char_p, c_void_p, c_size_t, c_bool, c_void_p]),
    "npugraph_model_unload": (c_int, [c_void_p, c_char_p, c_bool, c_void_p]),
    "npugraph_models_list": (c_int, [c_void_p, c_void_p, c_void_p]),
    "npugraph_models_find": (c_int, [c_void_p, c_char_p, c_void_p, c_void_p]),
    "npugraph_models_free": (None, [c_void_p]),
    "npugraph_open_params_init": (None, [c_void_p]),
    "npugraph_sequence_open": (c_int, [c_void_p, c_char_p, c_void_p, c_size_t, c_void_p, c_void_p, c_void_p, c_void_p]),
    "npugraph_embed": (c_int, [c_void_p, c_char_p, c_void_p, c_size_t, c_void_p, c_void_p, c_void_p]),
    "npugraph_embeddings_free": (None, [c_void_p]),
    "npugraph_sequence_fork": (c_int, [c_void_p, c_void_p, c_void_p, c_void_p, c_void_p]),
    "npugraph_step_params_init": (None, [c_void_p]),
    "npugraph_sequence_step": (c_int, [c_void_p, c_void_p, c_void_p, c_void_p]),
    "npugraph_generate_params_init": (None, [c_void_p]),
    "npugraph_sequence_generate": (c_int, [c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p]),
    "npugraph_sequence_close": (None, [c_void_p]),
    "npugraph_generations_create": (c_int, [c_void_p, c_void_p, c_void_p, c_void_p]),
    "npugraph_generations_start": (c_int, [c_void_p, c_uint64, c_void_p, c_void_p, c_void_p]),
    "npugraph_generations_start_steps": (c_int, [c_void_p, c_uint64, c_void_p, c_void_p]),
    "npugraph_generations_step": (None, [c_void_p, c_void_p, c_size_t]),
    "npugraph_generations_cancel": (None, [c_void_p, c_uint64]),
    "npugraph_generations_take": (c_size_t, [c_void_p, c_void_p, c_size_t]),
    "npugraph_generations_destroy": (None, [c_void_p]),
    "npugraph_model_params_init": (None, [c_void_p]),
    "npugraph_model_load": (c_int, [c_void_p, c_char_p, c_void_p, c_void_p, c_void_p, c_void_p]),
    "npugraph_checkpoint_copy_open": (c_int, [c_void_p, c_char_p, c_void_p, c_void_p]),
    "npugraph_model_copy_open": (c_int, [c_void_p, c_char_p, c_void_p, c_void_p]),
    "npugraph_checkpoint_copy_check": (c_int, [c_void_p, c_void_p, c_void_p]),
    "npugraph_checkpoint_copy_path": (c_char_p, [c_void_p]),
    "npugraph_checkpoint_copy_source": (c_char_p, [c_void_p]),
    "npugraph_checkpoint_copy_remove": (None, [c_void_p]),
    "npugraph_checkpoint_copy_close": (None, [c_void_p]),
    "npugraph_tokenizer_open": (c_int, [c_char_p, c_void_p, c_void_p]),
    "npugraph_tokenizer_close": (None, [c_void_p]),
    "npugraph_tokenizer_encode": (c_int, [c_void_p, c_char_p, c_size_t, c_uint, c_void_p, c_void_p, c_void_p]),
    "npugraph_tokenizer_bytes": (c_char_p, [c_void_p, c_int32, c_void_p, c_void_p]),
    "npugraph_tokenizer_is_added": (c_bool, [c_void_p, c_int32]),
    "npugraph_tokenizer_size": (c_size_t, [c_void_p]),
    "npugraph_detokenizer_create": (c_int, [c_void_p, c_void_p, c_size_t, c_bool, c_void_p, c_void_p]),
    "npugraph_detokenizer_add": (c_int, [c_void_p, c_int32, c_void_p, c_void_p, c_void_p]),
    "npugraph_detokenizer_end": (c_int, [c_void_p, c_void_p, c_void_p, c_void_p]),
    "npugraph_detokenizer_destroy": (None, [c_void_p]),
    "npugraph_chat_template_open": (c_int, [c_char_p, c_char_p, c_void_p, c_void_p]),
    "npugraph_chat_template_render": (c_int, [c_void_p, c_char_p, c_char_p, c_bool, c_void_p, c_void_p, c_void_p]),
    "npugraph_chat_template_close": (None, [c_void_p]),
    "npugraph_stops_create": (c_int, [c_void_p, c_size_t, c_void_p, c_void_p]),
    "npugraph_stops_add": (c_bool, [c_void_p, c_char_p, c_size_t, c_void_p, c_void_p]),
    "npugraph_stops_end": (c_bool, [c_void_p, c_void_p, c_void_p]),
    "npugraph_stops_destroy": (None, [c_void_p]),
    "npugraph_checkpoint_quantize": (c_int, [c_char_p, c_char_p, c_void_p, c_void_p, c_void_p, c_void_p]),
}
