/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_GRAPHS_OPTIONS_H
#define NGD_GRAPHS_OPTIONS_H

/*
 * The options of a graph, with npugraph_ex's names. The table options.def has each option's name, type, values,
 * default and effect, and whether plans depend on it. Values are set from text, one at a time, then checked together.
 *
 * Unknown names, bad values, and options that contradict each other are refused; the diagnosis says what is allowed.
 * An option that is not supported yet accepts only its default.
 * Plain data, copied by assignment. Pure functions.
 */
#include "base/digest.h"
#include "base/status.h"
#include "base/strbuf.h"
#include <stdint.h>

#define NGD_OPTION_TEXT_MAX 256 /* with the terminator */

typedef enum ngd_option_id {
#define NGD_OPTION(ID, name, type, lo, hi, words, def, key, when, state, effect) NGD_OPTION_##ID,
#include "graphs/options.def"
#undef NGD_OPTION
    NGD_OPTION_MAX
} ngd_option_id_t;

struct ngd_graph_options {
#define NGD_OPTION_FIELD_BOOL(name)                                              bool name;
#define NGD_OPTION_FIELD_INT(name)                                               int64_t name;
#define NGD_OPTION_FIELD_ENUM(name)                                              int name;
#define NGD_OPTION_FIELD_TEXT(name)                                              char name[NGD_OPTION_TEXT_MAX];
#define NGD_OPTION(ID, name, type, lo, hi, words, def, key, when, state, effect) NGD_OPTION_FIELD_##type(name)
#include "graphs/options.def"
#undef NGD_OPTION
    uint64_t given; /* bit per option that was set, even to its default */
};
_Static_assert(NGD_OPTION_MAX <= 64, "struct ngd_graph_options has a bit for each option");

enum { NGD_CAPTURE_ERROR_GLOBAL, NGD_CAPTURE_ERROR_THREAD_LOCAL, NGD_CAPTURE_ERROR_RELAXED };
enum { NGD_BUCKETS_DECLARED, NGD_BUCKETS_LEARN };
enum { NGD_PRECISION_HIGHEST, NGD_PRECISION_HIGH, NGD_PRECISION_MEDIUM };
enum { NGD_DUMP_ORIGINAL, NGD_DUMP_OPTIMIZED };

typedef enum ngd_option_type { NGD_OPTION_BOOL, NGD_OPTION_INT, NGD_OPTION_ENUM, NGD_OPTION_TEXT } ngd_option_type_t;

/* A row of the table, for code that lists or explains options. */
struct ngd_option_info {
    const char *name, *effect, *def;
    ngd_option_type_t type;
    bool in_key;      /* plans depend on it */
    bool per_capture; /* may be given with one capture */
    bool supported;   /* values other than the default are accepted */
};
const struct ngd_option_info *ngd_option_info(ngd_option_id_t id);
const char *ngd_option_type_name(ngd_option_type_t type);                 /* "bool" */
void ngd_option_print_allowed(ngd_option_id_t id, struct ngd_strbuf *sb); /* "true, false", "1..9223372036854775807" */
int ngd_option_find(const char *name);                                    /* -1 = none */

void ngd_graph_options_init(struct ngd_graph_options *options); /* defaults */
ngd_status_t ngd_graph_options_set(struct ngd_graph_options *options, const char *name, const char *value,
                                   struct ngd_diag *diag);
/* Sets an option for one capture of a graph; refuses options that are not per_capture. */
ngd_status_t ngd_graph_options_set_for_capture(struct ngd_graph_options *options, const char *name, const char *value,
                                               struct ngd_diag *diag);
/* Refuses options that contradict each other. Call it after the last option was set. */
ngd_status_t ngd_graph_options_check(const struct ngd_graph_options *options, struct ngd_diag *diag);

/* Prints the options that differ from the table's defaults, as "name=value name=value". */
void ngd_graph_options_print_changed(const struct ngd_graph_options *options, struct ngd_strbuf *sb);
bool ngd_graph_options_are_default(const struct ngd_graph_options *options);
/* Prints "name=value\n" for every option, or only for those that plans depend on, in the order of the table. */
void ngd_graph_options_print(const struct ngd_graph_options *options, bool key_only, struct ngd_strbuf *sb);
void ngd_option_print_value(const struct ngd_graph_options *options, ngd_option_id_t id, struct ngd_strbuf *sb);
/* Computes a digest, which is equal for two sets of options if ngd_graph_options_print prints the same for both. */
void ngd_graph_options_digest(const struct ngd_graph_options *options, bool key_only, struct ngd_digest *digest_p);
/* Switches all passes off, so that plans are made from the graph as it is. */
void ngd_graph_options_no_passes(struct ngd_graph_options *options);

#endif
