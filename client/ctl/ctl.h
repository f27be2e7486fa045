/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NPUGRAPH_CTL_H
#define NPUGRAPH_CTL_H

/*
 * What the commands of npugraphctl share: options, and output. The same calls print tables for people or JSON for
 * scripts. One thread. A command returns the program's exit code: 0; 1 = the daemon refused or failed; 2 = wrong usage.
 */
#include "base/nearest.h"
#include "base/strbuf.h"
#include "client/lib/client_int.h"
#include "proto/npugraph.pb-c.h"
#include "proto/word.h"
#include <jansson.h>
#include <stdio.h>

/* How to reach a daemon, in a file of the user's. Owned strings; "" is not set. */
struct ctl_context {
    char *address, *tls_ca, *tls_cert, *tls_key, *tls_server_name, *token_file;
};

struct ctl {
    struct npugraph_connect_params connect;
    const char *context_name; /* --context */
    struct ctl_context context;
    struct npugraph_client *client; /* ctl_connect */
    bool json;
    bool colour;
    bool quiet;
    uint64_t watch; /* --watch, ns; 0 = once */
    json_t *root;   /* with --json: the object to print */
    FILE *out;      /* where tables go: standard output, or a frame of a screen */
};

struct ctl_command {
    const char *name;
    const char *args;                                   /* usage, after the name */
    const char *help;                                   /* one line */
    const char *details;                                /* more lines of `npugraphctl help NAME`; NULL = none */
    bool session;                                       /* the command needs a session */
    int (*run)(struct ctl *ctl, int argc, char **argv); /* argv[0] is the command's name */
};
extern const struct ctl_command ctl_commands[]; /* ends with a NULL name */

/* Connects when a connection is first needed, so that mistakes on the command line are found without a daemon. If it
 * fails, prints the error and returns false. */
bool ctl_connect(struct ctl *ctl);
/* Prints a mistake and the command's usage; returns 2. */
int ctl_usage(const struct ctl_command *command, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Prints a word that is not allowed, after `what`, and the nearest one that is; returns 2. */
int ctl_unknown(const struct ctl_command *command, const struct ngd_nearest *nearest, const char *before,
                const char *what);
int ctl_fail(const struct npugraph_error *err); /* prints the error; returns 1 */
/* Prints an error of this program's own, such as a file that cannot be read; returns 1. */
int ctl_error(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
const struct ctl_command *ctl_find_command(const char *name);

/* Makes a unary call. If it fails, prints the error and returns NULL. */
ProtobufCMessage *ctl_call(struct ctl *ctl, const char *method, const ProtobufCMessage *request,
                           const ProtobufCMessageDescriptor *response_type);

/* Appends the sizes of the graph's symbols: "B = 64, T = 8". */
void ctl_print_sizes(const Npugraph__V1__GraphInfo *info, const int64_t *symbols, size_t n, struct ngd_strbuf *sb);

/* ---- output --------------------------------------------------------------------------------------------- */

struct ctl_column {
    const char *title; /* "QUEUE" */
    const char *key;   /* "queue_depth" */
    bool right;
};
struct ctl_table;
/* key: name of the array in JSON. */
struct ctl_table *ctl_table_new(struct ctl *ctl, const char *key, const struct ctl_column *columns, size_t n);
/* Declares the columns from this one to the last as sentences. If the terminal is too narrow for them, they are printed
 * below their row instead of being cut off. */
void ctl_table_prose(struct ctl_table *t, size_t column);
/* Lets columns before the sentences move below the row too, each after its title, from the right, until a narrow
 * terminal has room for the rest. */
void ctl_table_details(struct ctl_table *t);
void ctl_row(struct ctl_table *t);
void ctl_str(struct ctl_table *t, const char *value);
void ctl_word(struct ctl_table *t, const ProtobufCEnumDescriptor *desc, int value); /* the word of an enum: healthy */
void ctl_bool(struct ctl_table *t, bool value);                                     /* yes, no */
void ctl_int(struct ctl_table *t, uint64_t value);
void ctl_bytes(struct ctl_table *t, uint64_t value);                              /* 5.3 MiB */
void ctl_ms(struct ctl_table *t, uint64_t ms);                                    /* 3m 12s */
void ctl_ratio(struct ctl_table *t, double value);                                /* 93 % */
void ctl_rate(struct ctl_table *t, double value);                                 /* 12.5 */
void ctl_amount(struct ctl_table *t, double value, int digits, const char *unit); /* 90.5 W */
void ctl_absent(struct ctl_table *t);                              /* "-"; in JSON the row lacks the key */
void ctl_us(struct ctl_table *t, double us);                       /* 850 µs, 12.5 ms */
void ctl_state(struct ctl_table *t, const char *value, bool good); /* coloured on a terminal */
void ctl_table_end(struct ctl_table *t, const char *when_empty);

/* Name and value, one per line; in JSON members of the root object. */
struct ctl_fields;
struct ctl_fields *ctl_fields_new(struct ctl *ctl, const char *key); /* key NULL = the root itself */
void ctl_field_str(struct ctl_fields *f, const char *title, const char *key, const char *value);
void ctl_field_int(struct ctl_fields *f, const char *title, const char *key, uint64_t value);
void ctl_field_bytes(struct ctl_fields *f, const char *title, const char *key, uint64_t value);
void ctl_field_ms(struct ctl_fields *f, const char *title, const char *key, uint64_t value);
void ctl_field_us(struct ctl_fields *f, const char *title, const char *key, double us);
void ctl_field_amount(struct ctl_fields *f, const char *title, const char *key, double value, int digits,
                      const char *unit);
void ctl_field_rate(struct ctl_fields *f, const char *title, const char *key, double value, const char *unit);
void ctl_fields_end(struct ctl_fields *f);
void ctl_flush(struct ctl *ctl);      /* prints the JSON, if any */
void ctl_flush_line(struct ctl *ctl); /* prints it on one line, for commands that print repeatedly */

/* Reads a file of at most max bytes, "-" for standard input, and puts a zero behind it. Prints errors; NULL then. The
 * caller frees it. */
char *ctl_read_file(const char *path, size_t max, size_t *n_p);
/* Writes a file and prints its name. If that fails, prints the error and returns 1. */
int ctl_write_file(struct ctl *ctl, const char *path, const char *text);

void ctl_format_ms(uint64_t ms, char *to, size_t room); /* 3m 12s */
void ctl_format_bytes(uint64_t value, char *to, size_t room);

uint64_t ctl_now_ns(void); /* monotonic */

/* A progress bar on stderr, only on a terminal; use as npugraph_progress_fn. */
struct ctl_progress {
    const char *what;
    bool on;
    int last_permille;
};
void ctl_progress_start(struct ctl_progress *p, const struct ctl *ctl, const char *what);
void ctl_progress_update(void *user, uint64_t done, uint64_t total);
void ctl_progress_end(struct ctl_progress *p);

/* ---- option parsing --------------------------------------------------------------------------------------- */

/*
 * Parses "--name VALUE", "--name=VALUE" or a flag. ctl_next_option returns the next option's name, without dashes, and
 * sets *value_p. It returns NULL at the first argument that is no option. It prints errors, and returns "?" then.
 */
struct ctl_options {
    const struct ctl_command *command;
    int argc, at;
    char **argv;
};
const char *ctl_next_option(struct ctl_options *o, const char *flags, const char *valued, const char **value_p);
const char *ctl_next_argument(struct ctl_options *o); /* NULL = none left */
/* For commands without options and arguments. Prints what is wrong and returns 2, or returns 0. */
int ctl_no_arguments(int argc, char **argv);
/* ctl_next_option for commands that take one argument, which may stand before, between and after the options. *arg_p
 * gets the argument. A second argument is an error with the text `one`. */
const char *ctl_next_beside(struct ctl_options *o, const char *flags, const char *valued, const char **value_p,
                            const char **arg_p, const char *one);
/* Returns the value of an enum that the word names. If there is none, prints the words that --option takes and returns
 * 0. */
int ctl_parse_word(const struct ctl_command *command, const char *option, const ProtobufCEnumDescriptor *desc,
                   const char *word);
bool ctl_parse_uint(const char *text, uint64_t max, uint64_t *value_p);
bool ctl_parse_bytes(const char *text, uint64_t *value_p);
bool ctl_parse_float(const char *text, double *value_p);

/* Commands, by file. */
int ctl_cmd_status(struct ctl *ctl, int argc, char **argv);
int ctl_cmd_devices(struct ctl *ctl, int argc, char **argv);
void ctl_device_state(struct ctl_table *t, Npugraph__V1__DeviceState state);
int ctl_cmd_sessions(struct ctl *ctl, int argc, char **argv);
int ctl_cmd_memory(struct ctl *ctl, int argc, char **argv);
int ctl_cmd_groups(struct ctl *ctl, int argc, char **argv);
int ctl_cmd_shares(struct ctl *ctl, int argc, char **argv);
int ctl_cmd_quota(struct ctl *ctl, int argc, char **argv);
int ctl_cmd_top(struct ctl *ctl, int argc, char **argv);
int ctl_cmd_stats(struct ctl *ctl, int argc, char **argv);
int ctl_cmd_drain(struct ctl *ctl, int argc, char **argv);
int ctl_cmd_graphs(struct ctl *ctl, int argc, char **argv);
int ctl_cmd_doctor(struct ctl *ctl, int argc, char **argv);
int ctl_doctor_device(struct ctl *ctl, int argc, char **argv); /* argv[1] is "device" */
void ctl_verdict(struct ctl_table *t, Npugraph__V1__DoctorVerdict verdict);
int ctl_cmd_trace(struct ctl *ctl, int argc, char **argv);
bool ctl_is_timeline(int argc, char **argv); /* of trace: start or stop */
int ctl_cmd_timeline(struct ctl *ctl, int argc, char **argv);
int ctl_cmd_explain(struct ctl *ctl, int argc, char **argv);
int ctl_cmd_logs(struct ctl *ctl, int argc, char **argv);
int ctl_cmd_events(struct ctl *ctl, int argc, char **argv);
#define CTL_ONE_SUBJECT "one graph, key or tag at a time"
/* Parses "tag:7", "key:<hex>", or hex digits: the digest of a graph, or, with 16 digits, the hash of a key. Returns 0,
 * or 2 after a mistake. */
int ctl_choose_subject(const struct ctl_command *command, char *text, Npugraph__V1__ExplainRequest *req);
int ctl_cmd_buckets(struct ctl *ctl, int argc, char **argv);
int ctl_cmd_options(struct ctl *ctl, int argc, char **argv);
int ctl_cmd_patterns(struct ctl *ctl, int argc, char **argv);
int ctl_cmd_capture(struct ctl *ctl, int argc, char **argv);
int ctl_cmd_replay(struct ctl *ctl, int argc, char **argv);
int ctl_cmd_models(struct ctl *ctl, int argc, char **argv);
int ctl_cmd_embed(struct ctl *ctl, int argc, char **argv);
int ctl_cmd_perplexity(struct ctl *ctl, int argc, char **argv);
int ctl_cmd_quantize(struct ctl *ctl, int argc, char **argv);
int ctl_cmd_load(struct ctl *ctl, int argc, char **argv);
int ctl_cmd_share(struct ctl *ctl, int argc, char **argv);
int ctl_cmd_unload(struct ctl *ctl, int argc, char **argv);
int ctl_cmd_sequences(struct ctl *ctl, int argc, char **argv);
int ctl_cmd_generate(struct ctl *ctl, int argc, char **argv);
int ctl_cmd_chat(struct ctl *ctl, int argc, char **argv);
int ctl_cmd_tokenize(struct ctl *ctl, int argc, char **argv);
int ctl_cmd_cache(struct ctl *ctl, int argc, char **argv);
int ctl_cmd_reload(struct ctl *ctl, int argc, char **argv);
int ctl_cmd_config(struct ctl *ctl, int argc, char **argv);
int ctl_cmd_contexts(struct ctl *ctl, int argc, char **argv);
int ctl_cmd_tokens(struct ctl *ctl, int argc, char **argv);
int ctl_cmd_completion(struct ctl *ctl, int argc, char **argv);

#endif
