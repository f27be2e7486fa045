/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NPUGRAPH_CTL_H
#define NPUGRAPH_CTL_H

/*
 * Inside npugraphctl: commands, options, and output that is a table for people or JSON for scripts from the same calls.
 * One thread. A command returns the program's exit code: 0, 1 = the daemon said no, 2 = used wrongly.
 */
#include "base/strbuf.h"
#include "client/lib/client_int.h"
#include "proto/npugraph.pb-c.h"
#include "proto/word.h"
#include <jansson.h>
#include <stdio.h>

struct ctl {
    struct npugraph_connect_params connect;
    struct npugraph_client *client; /* ctl_connect */
    bool json;
    bool colour;
    bool quiet;
    json_t *root; /* --json: what will be printed */
    FILE *out;    /* where tables go: standard output, or a frame of a screen */
};

struct ctl_command {
    const char *name;
    const char *args;                                   /* usage behind the name */
    const char *help;                                   /* one line */
    const char *details;                                /* more lines of `npugraphctl help NAME`; NULL = none */
    bool session;                                       /* needs one */
    int (*run)(struct ctl *ctl, int argc, char **argv); /* argv[0] is the command's name */
};
extern const struct ctl_command ctl_commands[]; /* ends with a NULL name */

/* The connection, made when it is first needed, so that mistakes on the command line are found without a daemon. False:
 * there is none, and that was printed. */
bool ctl_connect(struct ctl *ctl);
int ctl_usage(const struct ctl_command *command, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int ctl_fail(const struct npugraph_error *err); /* prints it; returns 1 */
const struct ctl_command *ctl_find_command(const char *name);

/* A unary call; prints the error and returns NULL when it fails. */
ProtobufCMessage *ctl_call(struct ctl *ctl, const char *method, const ProtobufCMessage *request,
                           const ProtobufCMessageDescriptor *response_type);

/* "B = 64, T = 8": of the graph's symbols. */
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
/* The columns from this one on, which are the last, are sentences: where the terminal is too narrow they stand below
 * their row, not cut off. */
void ctl_table_prose(struct ctl_table *t, size_t column);
/* So many of the columns before them, from the right, as a narrow terminal has no room for stand there too, each behind
 * its title. */
void ctl_table_details(struct ctl_table *t);
void ctl_row(struct ctl_table *t);
void ctl_str(struct ctl_table *t, const char *value);
void ctl_word(struct ctl_table *t, const ProtobufCEnumDescriptor *desc, int value); /* of an enum: healthy */
void ctl_bool(struct ctl_table *t, bool value);                                     /* yes, no */
void ctl_int(struct ctl_table *t, uint64_t value);
void ctl_bytes(struct ctl_table *t, uint64_t value);               /* 5.3 MiB */
void ctl_ms(struct ctl_table *t, uint64_t ms);                     /* 3m 12s */
void ctl_ratio(struct ctl_table *t, double value);                 /* 93 % */
void ctl_rate(struct ctl_table *t, double value);                  /* 12.5 */
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
void ctl_field_rate(struct ctl_fields *f, const char *title, const char *key, double value, const char *unit);
void ctl_fields_end(struct ctl_fields *f);
void ctl_flush(struct ctl *ctl);      /* prints the JSON, if any */
void ctl_flush_line(struct ctl *ctl); /* the same on one line, for commands that print it again and again */

/* Writes a file that was asked for and says its name; prints what went wrong and returns 1. */
int ctl_write_file(struct ctl *ctl, const char *path, const char *text);

void ctl_format_ms(uint64_t ms, char *to, size_t room); /* 3m 12s */
void ctl_format_bytes(uint64_t value, char *to, size_t room);

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
 * "--name VALUE" or "--name=VALUE" or a flag; returns the next option's name (without dashes) with *value_p, or NULL at
 * the first argument that is no option. Errors are printed and give "?".
 */
struct ctl_options {
    const struct ctl_command *command;
    int argc, at;
    char **argv;
};
const char *ctl_next_option(struct ctl_options *o, const char *flags, const char *valued, const char **value_p);
const char *ctl_next_argument(struct ctl_options *o); /* NULL = none left */
/* ctl_next_option for commands that take one argument: it may stand before, between and after the options, and goes to
 * *arg_p. Of a second one, `one` is said. */
const char *ctl_next_beside(struct ctl_options *o, const char *flags, const char *valued, const char **value_p,
                            const char **arg_p, const char *one);
/* The value of an enum that a word names; 0: none, and that was printed as what --option takes. */
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
int ctl_cmd_buckets(struct ctl *ctl, int argc, char **argv);
int ctl_cmd_options(struct ctl *ctl, int argc, char **argv);
int ctl_cmd_patterns(struct ctl *ctl, int argc, char **argv);
int ctl_cmd_capture(struct ctl *ctl, int argc, char **argv);
int ctl_cmd_replay(struct ctl *ctl, int argc, char **argv);
int ctl_cmd_models(struct ctl *ctl, int argc, char **argv);
int ctl_cmd_load(struct ctl *ctl, int argc, char **argv);
int ctl_cmd_share(struct ctl *ctl, int argc, char **argv);
int ctl_cmd_unload(struct ctl *ctl, int argc, char **argv);
int ctl_cmd_sequences(struct ctl *ctl, int argc, char **argv);
int ctl_cmd_generate(struct ctl *ctl, int argc, char **argv);
int ctl_cmd_tokenize(struct ctl *ctl, int argc, char **argv);
int ctl_cmd_cache(struct ctl *ctl, int argc, char **argv);
int ctl_cmd_completion(struct ctl *ctl, int argc, char **argv);

#endif
