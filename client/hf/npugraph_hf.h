/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NPUGRAPH_HF_H
#define NPUGRAPH_HF_H

/*
 * libnpugraph-hf: Hugging Face checkpoints and tokenizers for clients of npugraphd, on libnpugraph (npugraph.h).
 *
 * It is a separate library because it needs jansson, Oniguruma and utf8proc, which a program with its own graphs and
 * tokens does not need. Errors and memory: as npugraph.h says. Threads: a tokenizer may be used from several threads at
 * once; npugraph_stops by one thread at a time.
 */
#include <npugraph.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- checkpoints ------------------------------------------------------------------------------------------------- */

struct npugraph_model_params {
    const char *name;       /* NULL = the last part of the path, without .gguf */
    uint32_t max_context;   /* tokens per sequence; 0 = the value of config.json, at most 4096 and what kv_bytes hold */
    uint32_t max_batch;     /* sequences decoded together; default 16 */
    uint32_t prefill_chunk; /* default 256 */
    uint32_t block_size;    /* rows of a KV block; 0 (default) = what suits the device: 16, or 128 on NPUs */
    uint64_t
        kv_bytes; /* 0 = room for max_batch sequences of max_context, or what is left of nine tenths of the device */
    /* "f32", "f16", "bf16"; "int8", "fp8": with a scale for each token and head; NULL, "auto" = the dtype of the
     * weights */
    const char *kv_dtype;
    /* "highest", "high", "medium": what matrix products may lose (docs/options.md); NULL = "highest" */
    const char *matmul_precision;
    bool keep; /* the model outlives this client; default true */
    enum npugraph_kv_policy kv_policy;
    bool no_prefix_sharing; /* compute every prompt from its beginning */
    /* Who may use the model besides its owner and administrators: these identities ("uid:1000", "group:team"),
     * everybody, or nobody. If none is set: everybody if an administrator loads the model, otherwise nobody. */
    const char *const *share_with;
    size_t n_share_with;
    bool make_public, make_private;
    bool share_prefixes; /* prompts of all users may share their beginnings, if the daemon's option allows it too */
    /* Where to load the model. Several devices divide its heads and its MLP (tensor parallel) and compute each step
     * together. n_devices = 0: the default device. kv_bytes is the sum over all devices. */
    const char *const *devices;
    size_t n_devices;
    /* Loads for embeddings alone: without the head, and without a graph for decode steps. So are checkpoints loaded
     * that have no head, or a modules.json (docs/families.md, "Embeddings"). */
    bool embedding;
};
NPUGRAPH_API void npugraph_model_params_init(struct npugraph_model_params *params);
/*
 * Loads a Hugging Face checkpoint directory (config.json; model.safetensors, or shards with their index), or a GGUF
 * file (docs/gguf.md): the daemon reads the weights, this library builds the prefill and decode graphs
 * (docs/families.md lists the architectures) and registers the model. dir lies below one of the daemon's models-dir. If
 * it does not exist here, it is a path of the daemon's machine, absolute or relative to a models-dir.
 */
NPUGRAPH_API int npugraph_model_load(struct npugraph_client *client, const char *dir,
                                     const struct npugraph_model_params *params, npugraph_progress_fn progress,
                                     void *user, struct npugraph_error *err);

/*
 * Copies of the small files of a checkpoint (config.json, tokenizer.json, the chat template, or the header of a GGUF
 * file), which the daemon reads: for what below takes a path, where the files are not. source: as npugraph_file_read
 * takes it. model: a loaded one. The path is that of a new directory, or of a GGUF file in it, which
 * npugraph_checkpoint_copy_close removes; whoever opened the copy may go on.
 */
struct npugraph_checkpoint_copy;
NPUGRAPH_API int npugraph_checkpoint_copy_open(struct npugraph_client *client, const char *source,
                                               struct npugraph_checkpoint_copy **copy_p, struct npugraph_error *err);
NPUGRAPH_API int npugraph_model_copy_open(struct npugraph_client *client, const char *model,
                                          struct npugraph_checkpoint_copy **copy_p, struct npugraph_error *err);
/* Refuses a checkpoint of which a file was written, replaced or removed since it was copied. */
NPUGRAPH_API int npugraph_checkpoint_copy_check(const struct npugraph_checkpoint_copy *copy,
                                                struct npugraph_client *client, struct npugraph_error *err);
NPUGRAPH_API const char *npugraph_checkpoint_copy_path(const struct npugraph_checkpoint_copy *copy);
/* Where the checkpoint is for the daemon: an absolute path. */
NPUGRAPH_API const char *npugraph_checkpoint_copy_source(const struct npugraph_checkpoint_copy *copy);
/* Removes the files, once they were read; npugraph_checkpoint_copy_close does it too. */
NPUGRAPH_API void npugraph_checkpoint_copy_remove(struct npugraph_checkpoint_copy *copy);
NPUGRAPH_API void npugraph_checkpoint_copy_close(struct npugraph_checkpoint_copy *copy); /* NULL is fine */

/* ---- tokenizer (no daemon needed) ---------------------------------------------------------------- */

/*
 * Reads tokenizer.json of Hugging Face tokenizers: BPE and Unigram with the normalizers, pre-tokenizers,
 * post-processors and decoders that docs/tokenizers.md lists. Ids are those of that library; what would be different is
 * refused here, with the name of the field. path may be a GGUF file, whose metadata stand for a tokenizer.json.
 */
struct npugraph_tokenizer;
NPUGRAPH_API int npugraph_tokenizer_open(const char *path, struct npugraph_tokenizer **tok_p,
                                         struct npugraph_error *err);
NPUGRAPH_API void npugraph_tokenizer_close(struct npugraph_tokenizer *tok);
#define NPUGRAPH_ENCODE_SPECIAL  1u /* special tokens in the text are recognised; other added tokens always are */
#define NPUGRAPH_ENCODE_TEMPLATE 2u /* adds what the post-processor adds, such as the token that begins a text */
/* Encodes a UTF-8 text. The caller frees *ids_p with free(). */
NPUGRAPH_API int npugraph_tokenizer_encode(const struct npugraph_tokenizer *tok, const char *text, size_t n,
                                           unsigned flags, int32_t **ids_p, size_t *n_ids_p,
                                           struct npugraph_error *err);
/* Returns the bytes that a token stands for behind others (not terminated, may be part of a UTF-8 character); NULL =
 * unknown id. special_p may be NULL. Text for people needs a detokenizer. */
NPUGRAPH_API const char *npugraph_tokenizer_bytes(const struct npugraph_tokenizer *tok, int32_t id, size_t *n_p,
                                                  bool *special_p);
/* Whether a token is one of added_tokens, which is cut out of texts as a whole: often a mark, and no text. */
NPUGRAPH_API bool npugraph_tokenizer_is_added(const struct npugraph_tokenizer *tok, int32_t id);
NPUGRAPH_API size_t npugraph_tokenizer_size(const struct npugraph_tokenizer *tok);

/*
 * Turns ids into text as they come. The text is always valid UTF-8, and what was given never changes: characters that
 * are not complete are held back. The text of all calls together is what decoding all ids at once gives. To go on
 * behind a prompt, add its ids first and drop their text. special: special tokens are text, too. Unknown ids are none.
 * The tokenizer must outlive it; one thread at a time.
 */
struct npugraph_detokenizer;
NPUGRAPH_API int npugraph_detokenizer_create(const struct npugraph_tokenizer *tok, const int32_t *prompt,
                                             size_t n_prompt, bool special, struct npugraph_detokenizer **detokenizer_p,
                                             struct npugraph_error *err);
/* *text_p and *n_p get the text that the id completes, valid until the next call; "" and 0 if the call fails. */
NPUGRAPH_API int npugraph_detokenizer_add(struct npugraph_detokenizer *detokenizer, int32_t id, const char **text_p,
                                          size_t *n_p, struct npugraph_error *err);
/* Ends the text: gives what was held back. */
NPUGRAPH_API int npugraph_detokenizer_end(struct npugraph_detokenizer *detokenizer, const char **text_p, size_t *n_p,
                                          struct npugraph_error *err);
NPUGRAPH_API void npugraph_detokenizer_destroy(struct npugraph_detokenizer *detokenizer); /* NULL is fine */

/* ---- chat templates (no daemon needed) ----------------------------------------------------------- */

/*
 * The chat template of a checkpoint: the Jinja text that makes a prompt of a conversation. dir has
 * chat_template.jinja, or chat_template in tokenizer_config.json, and there the special tokens; or dir is a GGUF file.
 * A file of the directory stands for it. NOT_FOUND: it has no template. file: a template to use instead, or NULL. It is
 * rendered by python3 with jinja2, in a child process with limits on memory, time and size: a template that does not
 * end or asks for too much is refused. The child is kept for the next text; a fork of this process
 * starts one of its own. One thread at a time.
 */
struct npugraph_chat_template;
NPUGRAPH_API int npugraph_chat_template_open(const char *dir, const char *file,
                                             struct npugraph_chat_template **template_p, struct npugraph_error *err);
/* messages and tools (NULL: none): JSON arrays, as those of transformers' apply_chat_template. generation_prompt: the
 * text ends where the assistant's answer begins. The caller frees *text_p with free(). */
NPUGRAPH_API int npugraph_chat_template_render(struct npugraph_chat_template *chat_template, const char *messages,
                                               const char *tools, bool generation_prompt, char **text_p, size_t *n_p,
                                               struct npugraph_error *err);
NPUGRAPH_API void npugraph_chat_template_close(struct npugraph_chat_template *chat_template); /* NULL is fine */

/* ---- stop strings (no daemon needed) ------------------------------------------------------------- */

/*
 * Finds stop strings in a text that comes in pieces (tokens). Text that may be the beginning of a stop string is held
 * back until that is known. The daemon only knows tokens, so the client, which has the tokenizer, looks for strings.
 */
#define NPUGRAPH_STOPS_MAX       16   /* strings */
#define NPUGRAPH_STOP_LENGTH_MAX 1024 /* bytes of each */
struct npugraph_stops;
NPUGRAPH_API int npugraph_stops_create(const char *const *strings, size_t n, struct npugraph_stops **stops_p,
                                       struct npugraph_error *err);
/*
 * Adds the next piece. *text_p and *n_p get the text that can be shown now, valid until the next call. Returns true
 * once a stop string is found: *text_p is the text before it then, and later pieces give nothing. Of several, the one
 * that begins first counts, so one that is complete waits while a longer one that began before it may still come.
 */
NPUGRAPH_API bool npugraph_stops_add(struct npugraph_stops *stops, const char *piece, size_t n, const char **text_p,
                                     size_t *n_p);
/* Ends the text: gives the text that was held back. Returns true if a stop string ends it, now or before. */
NPUGRAPH_API bool npugraph_stops_end(struct npugraph_stops *stops, const char **text_p, size_t *n_p);
NPUGRAPH_API void npugraph_stops_destroy(struct npugraph_stops *stops); /* NULL is fine */

/* ---- quantised checkpoints ---- */

struct npugraph_quantize {
    int bits;                           /* 8 or 4 */
    int64_t group;                      /* columns that share a scale, a multiple of 32; 0: a scale for each row */
    bool rows;                          /* W8A8: rows are to be quantised too, while the model runs; needs 8 and 0 */
    bool floats;                        /* f8_e4m3fn instead of integers; needs 8 and 0, and no rows */
    uint64_t bytes_before, bytes_after; /* out: of all tensors */
    size_t n_tensors;                   /* out: that were quantised */
};
/*
 * Writes a checkpoint in the form of compressed-tensors: int-quantized (i8), pack-quantized (int4) or float-quantized
 * (f8), rounded to nearest, symmetric. Quantises linears of layers (..._proj.weight); copies other tensors and files.
 * Checks dir before it makes out, which must not exist yet. Writes config.json last, so that a directory that is not
 * complete is no checkpoint. Memory: some rows of a tensor, and the largest header. Needs no daemon.
 */
NPUGRAPH_API int npugraph_checkpoint_quantize(const char *dir, const char *out, struct npugraph_quantize *q,
                                              npugraph_progress_fn progress, void *user, struct npugraph_error *err);

#ifdef __cplusplus
}
#endif
#endif
