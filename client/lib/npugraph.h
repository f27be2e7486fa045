/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NPUGRAPH_H
#define NPUGRAPH_H

/*
 * libnpugraph: a client of npugraphd. Checkpoints and tokenizers are in libnpugraph-hf (npugraph_hf.h).
 *
 * All calls are synchronous. Each returns 0, or a gRPC status code (1..16) with the details in *err (may be NULL):
 * a stable reason ("GRAPH_UNKNOWN_OP") and a sentence for people.
 *
 * Threads: several threads may use a client object at once. A replay stream or a sequence is used by one thread at a
 * time. Do not fork with an open client.
 * Memory: the caller owns *_p results and frees them with the function that is named. Strings inside a result live as
 * long as the result.
 * Time: `timeout_ms` of a client bounds each call, and each message of a stream. 0 = no bound.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define NPUGRAPH_API __attribute__((visibility("default")))
#else
#define NPUGRAPH_API
#endif

struct npugraph_error {
    int code;           /* gRPC status code */
    char reason[64];    /* stable, machine-readable; "" when the daemon was not reached */
    char message[1024]; /* for people */
};

/* ---- connection and session ----------------------------------------------------------------------------------------
 */

struct npugraph_client;

struct npugraph_connect_params {
    const char *address;     /* "unix:/run/npugraphd/npugraphd.sock" or "host:port"; NULL = $NPUGRAPH_ADDRESS, else the
                                default socket */
    const char *client_name; /* shown by `npugraphctl sessions` */
    uint32_t timeout_ms;     /* for each call; default 60000 */
    uint32_t grace_ms;       /* how long the daemon keeps our objects after the connection broke; default 0 */
    /* TLS for TCP addresses: PEM files. tls_ca alone authenticates the server; tls_cert and tls_key authenticate us. */
    const char *tls_ca, *tls_cert, *tls_key;
    const char *tls_server_name; /* the name to check instead of the address's */
    bool no_session;             /* open no session stream; only calls that read are possible then */
    /* File with a bearer token, which names the identity that our calls have. NULL = $NPUGRAPH_TOKEN_FILE; "" = none.
     * A call reads it again if it has changed, and takes the session over to the new token, so that a file whose token
     * is replaced before it expires serves for any time. A client that makes no call until its token expires loses its
     * session. The token is not sent over plaintext TCP to other machines: connecting fails with TOKEN_PLAINTEXT,
     * unless $NPUGRAPH_PLAINTEXT_TOKENS is yes. */
    const char *token_file;
    /* Send replays of streams and steps over gRPC even if the daemon is on this machine and offers shared memory for
     * them. $NPUGRAPH_LOCAL_TRANSPORT=off does the same. */
    bool no_local_transport;
};

/*
 * If another daemon takes over the address (npugraphd --replace), the session moves to it, with its sequences, buffers
 * and graphs, whose ids stay valid. Calls wait meanwhile, and go on there. A generation or a step that was interrupted
 * is not done twice.
 *
 * If the daemon is killed while it is replaced, calls whose answers are lost are made again in the new one, where the
 * session is: what makes or frees an object by a request id, so that it is done once; replays of graphs without states.
 * ANSWER_UNKNOWN: a replay of a graph with states was done, or was not. ANSWER_LOST: a step was done, and its logits
 * are lost. If the session is lost too, sequences that are opened, embeddings and lists of models get another session;
 * so do open sequences with npugraph_open_params.restore_ms, with or without an upgrade.
 *
 * A session with a shared buffer, a group, or a model that goes with it does not move; nor does one that is too large
 * or has long calls under way. Then sequences, embeddings and lists of models go to the new daemon by themselves, over
 * a connection and a session of their own. Sequences that are open stay where they are. So do calls with ids of buffers
 * and graphs, and a client with a model that goes with its session: the daemon that was replaced serves them until its
 * drain-grace is over.
 */
NPUGRAPH_API void npugraph_connect_params_init(struct npugraph_connect_params *params);
NPUGRAPH_API int npugraph_connect(const struct npugraph_connect_params *params, struct npugraph_client **client_p,
                                  struct npugraph_error *err);
/* Ends the session: the daemon frees what it owns. NULL is fine. */
NPUGRAPH_API void npugraph_disconnect(struct npugraph_client *client);
NPUGRAPH_API uint64_t npugraph_session_id(const struct npugraph_client *client);
/* True if replays of streams and steps go through shared memory. It is opened by the first of them. */
NPUGRAPH_API bool npugraph_has_ring(struct npugraph_client *client);
NPUGRAPH_API const char *npugraph_server_version(const struct npugraph_client *client);
NPUGRAPH_API const char *npugraph_version(void);

/*
 * Sets the W3C trace context of the calls that this thread begins from now on, until it is set again; NULL: none, as at
 * first. The daemon's spans of these calls, and of each message of a stream that the thread sends, are children of that
 * span, if it is sampled and the daemon traces (trace-endpoint). traceparent: version 00. tracestate: may be NULL; at
 * most 512 characters. INVALID_ARGUMENT: it is not well formed, and the thread has none.
 */
NPUGRAPH_API int npugraph_trace_context(const char *traceparent, const char *tracestate, struct npugraph_error *err);

/* ---- devices ---------------------------------------------------------------------------------------------------- */

struct npugraph_device {
    char name[64], backend[32]; /* "ascend:0", "ascend" */
    uint64_t memory_bytes, used_bytes;
    uint32_t kv_block;    /* rows of a KV block that suit its attention best; 0: it has no preference */
    bool padding_block;   /* models give block 0 of their KV states to no sequence */
    char no_decoder[256]; /* why it serves no paged decoder; empty: it does */
};
/* device: a name ("host:1") or number in `npugraphctl devices`; NULL = the default one, the
 * first that is healthy. */
NPUGRAPH_API int npugraph_device_find(struct npugraph_client *client, const char *device,
                                      struct npugraph_device *device_p, struct npugraph_error *err);

/* ---- device memory --------------------------------------------------------------------------------------------------
 */

/* device: a name ("host:1") or number in `npugraphctl devices`; NULL = the default one. */
NPUGRAPH_API int npugraph_buffer_alloc(struct npugraph_client *client, const char *device, uint64_t bytes,
                                       const char *label, uint64_t *buffer_p, struct npugraph_error *err);
NPUGRAPH_API int npugraph_buffer_write(struct npugraph_client *client, uint64_t buffer, uint64_t offset,
                                       const void *data, uint64_t bytes, struct npugraph_error *err);
/* Until it returns, a thread of the library copies what the caller's receives, if that is 8 MiB or more. */
NPUGRAPH_API int npugraph_buffer_read(struct npugraph_client *client, uint64_t buffer, uint64_t offset, void *data,
                                      uint64_t bytes, struct npugraph_error *err);
NPUGRAPH_API int npugraph_buffer_free(struct npugraph_client *client, const uint64_t *buffers, size_t n,
                                      struct npugraph_error *err);

/*
 * Memory that this process shares with a daemon on the same machine, as a memfd. What lies in it is not sent: the
 * daemon reads inputs of replays and the data of npugraph_buffer_write there, and writes results (npugraph_target) and
 * the data of npugraph_buffer_read there. It does so during the call: do not change the memory meanwhile.
 */
struct npugraph_shared {
    uint64_t buffer; /* its id, for npugraph_buffer_free */
    void *data;      /* zeroed */
    uint64_t bytes;
};
/* Fails with UNAVAILABLE if the daemon is not reached by a Unix socket or does not offer it (local-socket). */
NPUGRAPH_API int npugraph_shared_alloc(struct npugraph_client *client, uint64_t bytes, struct npugraph_shared *shared_p,
                                       struct npugraph_error *err);
/* Frees the buffer and unmaps its memory. client: NULL if it is disconnected, which has freed the buffer. */
NPUGRAPH_API int npugraph_shared_free(struct npugraph_client *client, const struct npugraph_shared *shared,
                                      struct npugraph_error *err);

struct npugraph_file_piece {
    size_t n;                /* bytes that `data` got; 0 at the end of the file */
    uint64_t bytes, version; /* of the whole file; another version once it was written or replaced */
    char path[4096];         /* absolute */
};
/*
 * Reads a piece of a file beside weights that the daemon sees: config.json, tokenizer.json, a chat template, a GGUF
 * file's header. path: absolute, or relative to one of the daemon's models-dir; its name ends in .json, .jinja, .gguf
 * or .safetensors, or is npugraph.lua. Fills the first piece->n bytes of data, which has room for `room` bytes (it may
 * be 0): as many as the daemon sends at once, 256 KiB at most. Threads: any.
 */
NPUGRAPH_API int npugraph_file_read(struct npugraph_client *client, const char *path, uint64_t offset, void *data,
                                    size_t room, struct npugraph_file_piece *piece, struct npugraph_error *err);

struct npugraph_tensor {
    const char *name;
    uint64_t buffer;
    const char *dtype; /* "bf16" */
    const int64_t *shape;
    uint32_t rank;
    uint64_t bytes;
};
struct npugraph_tensors {
    struct npugraph_tensor *items;
    size_t n;
    bool shared; /* the daemon had them already */
};
typedef void (*npugraph_progress_fn)(void *user, uint64_t done, uint64_t total);
/* A part of a tensor: begin <= index < end in dimension dim, everything in the other dimensions. */
struct npugraph_slice {
    const char *name;
    uint32_t dim;
    int64_t begin, end;
    const int64_t *shape; /* what the shape of the whole tensor must be, once it is changed; rank 0: any */
    uint32_t rank;
    const char *change; /* NULL: none; else a word of the protocol's TensorChange ("gptq_int4"), and the slice is one of
                           what the tensor becomes */
    /* Column i of the numbers of a weight of i8 or int4 becomes the file's column order[i]; NULL: columns stay. */
    const int32_t *order;
    size_t n_order;
};
struct npugraph_load {
    const char *path;
    const char *device;       /* NULL = the default one */
    const char *const *names; /* tensors to load; n_names = 0 for all */
    size_t n_names;
    const struct npugraph_slice *slices; /* tensors to load in part; the others are loaded whole */
    size_t n_slices;
};
/* Loads tensors of a safetensors file, or of a GGUF file (docs/gguf.md). progress may be NULL. Free with
 * npugraph_tensors_free. */
NPUGRAPH_API int npugraph_load_safetensors(struct npugraph_client *client, const struct npugraph_load *load,
                                           npugraph_progress_fn progress, void *user,
                                           struct npugraph_tensors **tensors_p, struct npugraph_error *err);
NPUGRAPH_API void npugraph_tensors_free(struct npugraph_tensors *tensors);

/* ---- graphs ---------------------------------------------------------------------------------------------------------
 */

struct npugraph_binding {
    const char *name; /* label of a param or state */
    uint64_t buffer;
};
struct npugraph_option {
    const char *name, *value;
};
struct npugraph_place {
    const char *device; /* NULL = the default one */
    uint64_t group;     /* of npugraph_group_create; 0 = none */
};
/* Registers a graph. text: see docs/graph-text.md. place: NULL = the default device. */
NPUGRAPH_API int npugraph_graph_register(struct npugraph_client *client, const struct npugraph_place *place,
                                         const char *text, const struct npugraph_binding *bindings, size_t n_bindings,
                                         const struct npugraph_option *options, size_t n_options, uint64_t *graph_p,
                                         struct npugraph_error *err);

/*
 * For several devices: npugraph_group_create makes a group (docs/collectives.md), and npugraph_ranks_join makes one
 * graph of the graphs that were registered for each rank. `devices` and `graphs` are in the order of ranks.
 * npugraph_graph_release releases a group too. If `replicated`, all ranks take the same inputs, which are given once,
 * and the results are those of rank 0. Otherwise inputs, host values and results are those of rank 0, then of rank 1,
 * ...
 */
NPUGRAPH_API int npugraph_group_create(struct npugraph_client *client, const char *name, const char *const *devices,
                                       size_t n_devices, uint64_t *group_p, struct npugraph_error *err);

/*
 * A group that has ranks in several daemons (docs/collectives.md, "Several daemons"). npugraph_group_root makes its
 * root in the daemon of rank 0: a secret, for one group and two minutes. npugraph_group_join makes the group in one
 * daemon, and returns when all daemons have come: call it for all of them at the same time, each with a client and a
 * thread of its own. Both need the admin right. `devices` are those of this daemon, from rank first_rank on.
 */
#define NPUGRAPH_ROOT_MAX 8192
struct npugraph_span {
    uint32_t ranks;      /* of all daemons */
    uint32_t first_rank; /* of this daemon's */
    const void *root;
    size_t root_bytes;
    uint32_t time_limit_ms; /* how long a rank waits for the others to begin a replay; 0 = 30000 */
};
NPUGRAPH_API int npugraph_group_root(struct npugraph_client *client, const char *device, void *root, size_t room,
                                     size_t *n_p, struct npugraph_error *err);
NPUGRAPH_API int npugraph_group_join(struct npugraph_client *client, const char *name, const char *const *devices,
                                     size_t n_devices, const struct npugraph_span *span, uint64_t *group_p,
                                     struct npugraph_error *err);
NPUGRAPH_API int npugraph_ranks_join(struct npugraph_client *client, const uint64_t *graphs, size_t n, bool replicated,
                                     uint64_t *graph_p, struct npugraph_error *err);
NPUGRAPH_API int npugraph_graph_release(struct npugraph_client *client, uint64_t graph, struct npugraph_error *err);

struct npugraph_capture_result {
    char key[512];
    bool captured;
    uint64_t pool_bytes;
    uint32_t kernels;
    uint64_t nanoseconds;
};
NPUGRAPH_API int npugraph_graph_capture(struct npugraph_client *client, uint64_t graph, const int64_t *symbols,
                                        size_t n_symbols, bool dry_run, struct npugraph_capture_result *result_p,
                                        struct npugraph_error *err);

struct npugraph_input {
    const void *data; /* raw, little endian, row-major */
    size_t bytes;
};
struct npugraph_host_value {
    const int64_t *values;
    size_t n;
};
/* Where a result goes. If the memory is of npugraph_shared_alloc, the daemon writes it there, and refuses the replay if
 * the room is too small. Else the library copies it, or leaves it where it is if the room is too small. */
struct npugraph_target {
    void *data;   /* NULL: the result is in npugraph_result.outputs */
    size_t bytes; /* room */
};
/* Called by the thread that replays when its request is sent, before it waits for the answer. */
typedef void (*npugraph_sent_fn)(void *user);
struct npugraph_replay {
    uint64_t graph;
    const int64_t *symbols;
    size_t n_symbols;
    const struct npugraph_input *inputs; /* in the order of declaration */
    size_t n_inputs;
    const struct npugraph_host_value *hosts;
    size_t n_hosts;
    const uint32_t *outputs; /* indices; n_outputs = 0 for all */
    size_t n_outputs;
    const struct npugraph_target *targets; /* of the first n_targets results that are wanted */
    size_t n_targets;
    bool eager;
    bool timing; /* fills npugraph_result.timing */
    /* For npugraph_replay: the session's logical stream, 0 to 15. The replays of one stream run in order. */
    uint32_t stream;
    /* Events between logical streams of the session, by name; NULL: none. The replay begins after the replay that
     * records wait_event, and that the daemon received before, has ended. It records record_event when it ends. */
    const char *wait_event, *record_event;
    uint64_t tag; /* finds its events in Explain; the daemons of a group that spans several compare it */
    /* For npugraph_replay_stream_run: work of the caller while the daemon computes, at least once before an answer;
     * NULL: none. It makes no call of the stream. Without shared memory it runs before the request is sent. */
    npugraph_sent_fn sent;
    void *sent_user;
};
struct npugraph_output {
    const void *data; /* the target's, if there is one */
    size_t bytes;
};
/*
 * Where the daemon's time for a replay went, in nanoseconds. The phases follow one another; padding_ns is a part of
 * replay_ns. For an operation on a sequence, these are sums over the replays that it had a part in, and over its waits.
 */
struct npugraph_timing {
    uint64_t queue_ns;    /* waiting for its turn and for a stream slot */
    uint64_t copy_in_ns;  /* copying inputs to where the device reads them */
    uint64_t replay_ns;   /* running on the device */
    uint64_t copy_out_ns; /* copying results into the answer */
    uint64_t padding_ns;  /* running rows by which the bucket exceeds the requested rows */
    /* A replay of a graph with a batch symbol may serve several requests. The times are those of the whole replay. */
    uint32_t requests;   /* that the replay served */
    uint64_t charged_ns; /* this request's part of device_ns, by rows */
};
/* The result of a replay. Valid until the next replay into the same object, or npugraph_result_free. */
struct npugraph_result {
    struct npugraph_output *outputs;
    size_t n;
    uint64_t queue_ns, device_ns;
    void *priv;
    struct npugraph_timing timing; /* zeros unless the replay's `timing` is set */
};
/* Replays a graph. *result_p may be NULL or a result to reuse. */
NPUGRAPH_API int npugraph_replay(struct npugraph_client *client, const struct npugraph_replay *replay,
                                 struct npugraph_result **result_p, struct npugraph_error *err);
NPUGRAPH_API void npugraph_result_free(struct npugraph_result *result);

/* Replays over a stream have about half the latency of single calls. A failed replay leaves the stream usable. */
struct npugraph_replay_stream;
NPUGRAPH_API int npugraph_replay_stream_open(struct npugraph_client *client, struct npugraph_replay_stream **stream_p,
                                             struct npugraph_error *err);
NPUGRAPH_API int npugraph_replay_stream_run(struct npugraph_replay_stream *stream, const struct npugraph_replay *replay,
                                            struct npugraph_result **result_p, struct npugraph_error *err);
NPUGRAPH_API void npugraph_replay_stream_close(struct npugraph_replay_stream *stream);
/* Copies n pieces of memory, such as rows of results into tensors: bytes[i] bytes from `from[i]` to `to[i]`, which do
 * not overlap. For languages in which a call takes longer than the copy. */
NPUGRAPH_API void npugraph_copy_pieces(size_t n, void *const *to, const void *const *from, const size_t *bytes);

/* ---- models and sequences ------------------------------------------------------------------------ */

/*
 * A model: a graph for a chunk of a prompt, a graph for a decode step, and what the daemon needs to run sequences on
 * them. npugraph_hf.h creates all of it from a checkpoint. Inputs and outputs of both graphs have the names that
 * docs/protocol.md uses: tokens, positions, slots, block_table, query_lens, context_lens, logits_rows (prefill only),
 * temperature, top_k, top_p, seed, offset; token, logits; hidden (prefill only). Further groups of layers have slots.1
 * and block_table.1, slots.2 and block_table.2, and so on.
 */
/* What happens when KV blocks run out. */
enum npugraph_kv_policy {
    NPUGRAPH_KV_POLICY_DEFAULT, /* refuse */
    NPUGRAPH_KV_POLICY_REFUSE,  /* the call fails with KV_EXHAUSTED */
    NPUGRAPH_KV_POLICY_PREEMPT  /* another sequence gives up its blocks, and computes them again later */
};

/* Which of a prompt's hidden states is its embedding. */
enum npugraph_pooling {
    NPUGRAPH_POOLING_NONE, /* the model returns none */
    NPUGRAPH_POOLING_LAST, /* that of the last token */
    NPUGRAPH_POOLING_MEAN  /* the mean of all */
};

struct npugraph_model_spec {
    const char *name;
    uint64_t prefill_graph;
    uint64_t decode_graph;        /* 0: the model returns embeddings alone */
    const char *const *kv_states; /* labels of the KV states, in both graphs */
    size_t n_kv_states;
    uint32_t block_size, num_blocks; /* of the KV states: rows per block, blocks */
    uint32_t max_context;            /* tokens per sequence */
    uint32_t vocab;
    const int32_t *stop_tokens;
    size_t n_stop_tokens;
    bool keep; /* the model outlives this client */
    enum npugraph_kv_policy kv_policy;
    bool no_prefix_sharing; /* compute every prompt from its beginning */
    /* Who may use the model besides its owner and administrators: these identities ("uid:1000", "group:team"),
     * everybody, or nobody. If none is set: everybody if an administrator registers the model, otherwise nobody. */
    const char *const *share_with;
    size_t n_share_with;
    bool make_public, make_private;
    bool share_prefixes;     /* prompts of all users may share their beginnings, if the daemon's option allows it too */
    const char *description; /* for people; NULL = "" */
    const char *source;      /* the directory or GGUF file of its checkpoint, as the daemon sees it; NULL = "" */
    uint64_t parameters;     /* for people: number of elements of the weights */
    uint32_t n_kv_groups;    /* groups of layers with block tables of their own, 1 to 8; 0: 1 */
    enum npugraph_pooling pooling; /* of the output "hidden" of the prefill graph: [S,H], or with a mean [T,H] */
    bool unit_embeddings;          /* embeddings are divided by their lengths */
};
/* Registers a model. It holds its graphs and their buffers, so the caller may release its own holds. */
NPUGRAPH_API int npugraph_model_register(struct npugraph_client *client, const struct npugraph_model_spec *spec,
                                         struct npugraph_error *err);
/* Sets who may use a loaded model from now on: these identities, everybody, or only its owner. */
NPUGRAPH_API int npugraph_model_share(struct npugraph_client *client, const char *name, const char *const *with,
                                      size_t n_with, bool make_public, struct npugraph_error *err);
NPUGRAPH_API int npugraph_model_unload(struct npugraph_client *client, const char *name, bool force,
                                       struct npugraph_error *err);
struct npugraph_model {
    const char *name, *description;
    const char *source;   /* where its files are, for npugraph_file_read; "" = not known */
    const char *owner;    /* the identity that registered it */
    uint64_t parameters;  /* of its weights; 0 = not known */
    uint32_t max_context; /* tokens per sequence */
    uint32_t vocab;
    uint32_t sequences; /* that are open */
    const int32_t *stop_tokens;
    size_t n_stop_tokens;
    uint32_t embedding_size; /* elements of an embedding; 0: it returns none */
    enum npugraph_pooling pooling;
    bool unit_embeddings; /* embeddings have the length 1 */
    bool no_generation;   /* it returns embeddings alone */
};
struct npugraph_models {
    struct npugraph_model *items;
    size_t n;
};
/* Lists the loaded models that this client may use. Free with npugraph_models_free. */
NPUGRAPH_API int npugraph_models_list(struct npugraph_client *client, struct npugraph_models **models_p,
                                      struct npugraph_error *err);
/* The model that a name, NAME or OWNER/NAME, means to this client, as a list of one. */
NPUGRAPH_API int npugraph_models_find(struct npugraph_client *client, const char *name,
                                      struct npugraph_models **models_p, struct npugraph_error *err);
NPUGRAPH_API void npugraph_models_free(struct npugraph_models *models); /* NULL is fine */

struct npugraph_logit_bias {
    int32_t token;
    float bias; /* is added to the token's logit */
};
struct npugraph_token_word {
    const int32_t *tokens;
    size_t n; /* 1 to 32 */
};
/* How tokens are chosen; zeros = greedy. docs/protocol.md, "Sampling", has the meaning and the order. */
struct npugraph_sampling {
    float temperature; /* 0 = greedy */
    int32_t top_k;     /* 0 = off */
    float top_p;       /* 0 or 1 = off */
    uint64_t seed;
    float min_p;                                  /* 0 = off */
    float typical_p;                              /* 0 or 1 = off */
    float repetition_penalty;                     /* of all tokens of the context; 0 or 1 = off */
    float presence_penalty, frequency_penalty;    /* of generated tokens; 0 = off */
    uint32_t min_tokens;                          /* generated tokens before a stop token may be chosen */
    const struct npugraph_logit_bias *logit_bias; /* at most 1024 */
    size_t n_logit_bias;
    const struct npugraph_token_word *bad_words; /* never completed; at most 256 */
    size_t n_bad_words;
};
/* Log-probabilities of tokens by the logits alone, before temperature, top_k and top_p. */
struct npugraph_token_logprob {
    int32_t token;
    float logprob;
};
struct npugraph_logprobs {
    int32_t token; /* the chosen token */
    float logprob;
    const struct npugraph_token_logprob *top; /* the most probable tokens, most probable first */
    size_t n_top;
};
#define NPUGRAPH_LOGPROBS_MAX 20 /* the largest `top` */

/* Decides who goes first if the device is busy, and who keeps KV blocks if they run out. */
enum npugraph_priority {
    NPUGRAPH_PRIORITY_DEFAULT, /* normal; for a step or a generation the priority of its sequence */
    NPUGRAPH_PRIORITY_HIGH,
    NPUGRAPH_PRIORITY_LOW,
    NPUGRAPH_PRIORITY_NORMAL
};

struct npugraph_step {
    int32_t token;     /* the chosen token, not yet part of the context */
    uint32_t position; /* tokens in the context */
    bool stop;         /* `token` is a stop token */
    uint32_t batch;    /* sequences that shared the replay */
    uint32_t accepted; /* tokens of the draft that are in the context now */
    /* With want_logprobs: for the accepted tokens, then for `token`; valid as long as logits are. */
    const struct npugraph_logprobs *logprobs;
    size_t n_logprobs;
    const float *logits; /* with want_logits: vocab values, valid until the next call on this sequence; else NULL */
    size_t vocab;
    uint64_t queue_ns, device_ns;
    struct npugraph_timing timing; /* zeros unless `timing` is set in the parameters */
};

struct npugraph_sequence;
struct npugraph_open_params {
    const struct npugraph_sampling *sampling; /* NULL = greedy */
    bool want_logits, want_logprobs;          /* for the first token */
    uint32_t top;                             /* how many of the most probable tokens get logprobs too */
    enum npugraph_priority priority;
    bool timing;            /* fills npugraph_step.timing */
    const uint8_t *allowed; /* tokens that the first one may be, as in npugraph_step_params; NULL = all */
    size_t allowed_bytes;
    /*
     * If not 0, the library keeps the sequence's tokens, 4 bytes each. If the daemon is killed or restarted, or the
     * session is lost, the call under way (a step, a generation, a fork, or this one) waits at most so many ms for a
     * daemon that has the same model by the same name, restores the sequence there in another session, and goes on. The
     * daemon computes the context again: the tokens are those that would have come anyway, as after a preemption.
     * MODEL_CHANGED, MODEL_NOT_FOUND: the model is another one, or did not come in time; this call waits only for a
     * model that the client has opened a sequence of. Otherwise, and if a call meets its third loss in a row without a
     * token in between, it fails as without this option.
     */
    uint32_t restore_ms;
};
NPUGRAPH_API void npugraph_open_params_init(struct npugraph_open_params *params);
/* Opens a sequence: prefills the prompt and chooses a first token. params may be NULL (defaults), first_p too. */
NPUGRAPH_API int npugraph_sequence_open(struct npugraph_client *client, const char *model, const int32_t *prompt,
                                        size_t n, const struct npugraph_open_params *params,
                                        struct npugraph_sequence **seq_p, struct npugraph_step *first_p,
                                        struct npugraph_error *err);
/* A text as tokens. */
struct npugraph_prompt {
    const int32_t *tokens;
    size_t n;
};
struct npugraph_embed_params {
    uint32_t dimensions; /* the first so many elements of each embedding; 0 = all */
    bool unit;           /* divide each by its length, also if the model does not */
    enum npugraph_priority priority;
};
struct npugraph_embeddings {
    const float *values; /* `size` numbers of the first prompt, then those of the second, ... */
    size_t n, size;
    uint64_t shared_tokens; /* of the prompts, found in KV blocks that were computed before */
    uint32_t batch;         /* the most prompts that shared a replay */
};
/*
 * Computes the embeddings of prompts, 1 to 2048: the hidden states that the model has of them, pooled as its checkpoint
 * says. Prompts of all callers share replays. params may be NULL (defaults). Free with npugraph_embeddings_free.
 */
NPUGRAPH_API int npugraph_embed(struct npugraph_client *client, const char *model,
                                const struct npugraph_prompt *prompts, size_t n,
                                const struct npugraph_embed_params *params, struct npugraph_embeddings **embeddings_p,
                                struct npugraph_error *err);
NPUGRAPH_API void npugraph_embeddings_free(struct npugraph_embeddings *embeddings); /* NULL is fine */

struct npugraph_fork_params {
    const struct npugraph_sampling *sampling; /* the copy's; NULL = greedy */
    bool want_logits, want_logprobs;          /* for the token that is drawn again */
    uint32_t top;
};
/* Copies an idle sequence. The copy continues independently; the token after its context is drawn again, with
 * `sampling` and the mask of the last step. params may be NULL (defaults), first_p too. */
NPUGRAPH_API int npugraph_sequence_fork(struct npugraph_sequence *seq, const struct npugraph_fork_params *params,
                                        struct npugraph_sequence **copy_p, struct npugraph_step *first_p,
                                        struct npugraph_error *err);
/* Call npugraph_step_params_init first, or set `forced`: zeros would force token 0. */
struct npugraph_step_params {
    int32_t forced; /* a token to append instead of the one that was chosen last, or -1 (default) */
    /*
     * The tokens that the caller expects next (speculation). The longest prefix of them that plain steps would have
     * chosen is appended too, in the same step. The tokens of the sequence do not depend on the draft.
     */
    const int32_t *draft;
    size_t n_draft;
    /*
     * Tokens to append instead of the one that was chosen last, processed as a prompt: what a user says behind an
     * answer. They count as given, not as generated. Not with `forced` or a draft. If the step fails after it began,
     * some of them may be in the context: close the sequence then.
     */
    const int32_t *append;
    size_t n_append;
    bool want_logits, want_logprobs;
    uint32_t top;
    enum npugraph_priority priority; /* of this step */
    bool timing;                     /* fills npugraph_step.timing */
    /*
     * Tokens that the chosen one may be, such as those that a grammar allows: a bit for each token of the vocabulary,
     * the first in the lowest bit of the first byte. NULL = all. Not with a draft.
     */
    const uint8_t *allowed;
    size_t allowed_bytes; /* (vocab + 7) / 8 */
};
NPUGRAPH_API void npugraph_step_params_init(struct npugraph_step_params *params);
/* Does one decode step, over the sequence's own stream. params may be NULL (defaults). */
NPUGRAPH_API int npugraph_sequence_step(struct npugraph_sequence *seq, const struct npugraph_step_params *params,
                                        struct npugraph_step *step_p, struct npugraph_error *err);
struct npugraph_generate_params {
    uint32_t max_tokens;        /* including the token that was chosen last; default: until a stop or a full context */
    bool ignore_stop;           /* continue past the model's stop tokens */
    const int32_t *stop_tokens; /* end at these tokens too; at most 16 */
    size_t n_stop_tokens;
    bool want_logprobs;
    uint32_t top;
    enum npugraph_priority priority; /* of this generation */
    /* May be NULL. Gets where the generation's time went so far, before each callback. */
    struct npugraph_timing *timing;
};
NPUGRAPH_API void npugraph_generate_params_init(struct npugraph_generate_params *params);
/*
 * Called for each token; return false to stop (the sequence stays usable). logprobs is NULL unless want_logprobs is
 * set, and for a first token that was chosen before without logprobs.
 */
typedef bool (*npugraph_token_fn)(void *user, int32_t token, const struct npugraph_logprobs *logprobs);
/* Why a generation ended. */
enum npugraph_finish {
    NPUGRAPH_FINISH_CANCELLED, /* the callback returned false */
    NPUGRAPH_FINISH_LENGTH,    /* max_tokens were generated */
    NPUGRAPH_FINISH_STOP,      /* a stop token was chosen */
    NPUGRAPH_FINISH_CONTEXT    /* the context is full */
};
/* Generates tokens and calls fn for each. params may be NULL (defaults), finish_p too. */
NPUGRAPH_API int npugraph_sequence_generate(struct npugraph_sequence *seq,
                                            const struct npugraph_generate_params *params, npugraph_token_fn fn,
                                            void *user, enum npugraph_finish *finish_p, struct npugraph_error *err);
NPUGRAPH_API void npugraph_sequence_close(struct npugraph_sequence *seq); /* frees its KV blocks; NULL is fine */

/*
 * Generations of many sequences for a program with an event loop. A thread of the library follows them all and queues
 * their events; the loop waits until the descriptor is readable, and takes what there is. No thread waits for a token,
 * and a wake-up brings the tokens of all sequences that shared a step.
 *
 * Threads: one thread at a time may take; the other calls may come from any thread.
 */
struct npugraph_generations;
struct npugraph_generation_event {
    uint64_t tag; /* of the generation */
    bool end;     /* its last event, which has no token. The sequence may be used again; behind a
                   * cancellation it is SEQUENCE_BUSY until the daemon has noticed */
    int32_t token;
    const struct npugraph_logprobs *logprobs; /* of the token, as for npugraph_token_fn */
    enum npugraph_finish finish;              /* of the end, unless `error` is set. Beside the token of a step:
                                               * NPUGRAPH_FINISH_STOP if it is a stop token of the model */
    const struct npugraph_error *error;       /* why the generation failed; NULL: it did not */
};
/* *fd_p is readable while there are events. It belongs to the object: do not read or close it. */
NPUGRAPH_API int npugraph_generations_create(struct npugraph_client *client, struct npugraph_generations **all_p,
                                             int *fd_p, struct npugraph_error *err);
/* Starts a generation; tag: any number that no other one has that runs. params->timing must be NULL. Until its end the
 * sequence must not be used or closed. If the call fails, there is no event. */
NPUGRAPH_API int npugraph_generations_start(struct npugraph_generations *all, uint64_t tag,
                                            const struct npugraph_sequence *seq,
                                            const struct npugraph_generate_params *params, struct npugraph_error *err);
/*
 * The same for a generation whose steps the caller begins, because each needs something of it: the tokens that may
 * follow. It begins with npugraph_generations_step. A token is an event, and the next step may be begun then. The
 * generation ends when it is cancelled, or with the error of a step.
 */
NPUGRAPH_API int npugraph_generations_start_steps(struct npugraph_generations *all, uint64_t tag,
                                                  const struct npugraph_sequence *seq, struct npugraph_error *err);
struct npugraph_generation_step {
    uint64_t tag;           /* of a generation without a step under way. One that has ended is passed over */
    const uint8_t *allowed; /* as in npugraph_step_params; it is copied */
    size_t allowed_bytes;
    bool want_logprobs;
    uint32_t top;
};
/* Begins steps of n generations. Each has an event: its token, or the end of its generation. */
NPUGRAPH_API void npugraph_generations_step(struct npugraph_generations *all,
                                            const struct npugraph_generation_step *steps, size_t n);
/* Ends a generation that was started. Its end follows: NPUGRAPH_FINISH_CANCELLED, unless it was on its way. */
NPUGRAPH_API void npugraph_generations_cancel(struct npugraph_generations *all, uint64_t tag);
/* Takes at most n events, in order. What they point to lives until the next call. */
NPUGRAPH_API size_t npugraph_generations_take(struct npugraph_generations *all,
                                              struct npugraph_generation_event *events, size_t n);
/* Cancels all generations and waits for their ends. Before the client's disconnection; NULL is fine. */
NPUGRAPH_API void npugraph_generations_destroy(struct npugraph_generations *all);

#ifdef __cplusplus
}
#endif
#endif
