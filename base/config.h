/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_BASE_CONFIG_H
#define NGD_BASE_CONFIG_H

/*
 * Table-driven options, for the daemon's file and command line.
 *
 * One row per option: name, type, default, bounds, help. The file has lines "name = value", '#'
 * comments, and nothing else. A repeated name adds to a LIST and is an error for other types. Unknown
 * names and bad values are refused with file, line and what is allowed. Sizes take K, M, G, T (binary);
 * times take us, ms, s, m, h. ngd_config_describe prints the man page's text from the table.
 * Threads: one owner; see ngd_config_reload for others. Memory: strings are owned by the config object.
 */
#include "base/clock.h"
#include "base/status.h"
#include "base/strbuf.h"
#include <stdint.h>

typedef enum ngd_config_type {
    NGD_CONFIG_BOOL,
    NGD_CONFIG_INT,    /* int64_t, min..max */
    NGD_CONFIG_SIZE,   /* uint64_t bytes, min..max */
    NGD_CONFIG_TIME,   /* ngd_nsec_t, min..max */
    NGD_CONFIG_STRING, /* char *, may be "" */
    NGD_CONFIG_ENUM,   /* int index into `choices`, space separated */
    NGD_CONFIG_LIST,   /* struct ngd_config_list of strings */
} ngd_config_type_t;

struct ngd_config_list {
    char **items;
    size_t n;
    bool is_default; /* items are the default; the first value that is set replaces them, later ones add */
};

/* What changes an option while the daemon runs. Each also has what the ones before it have. */
typedef enum ngd_config_change {
    NGD_CONFIG_RESTART, /* nothing */
    NGD_CONFIG_RELOAD,  /* the files, at a reload */
    NGD_CONFIG_SET,     /* an administrator, over the protocol */
} ngd_config_change_t;

struct ngd_config_option {
    const char *name; /* "stats-listen": the same in the file and, with "--", on the command line */
    ngd_config_type_t type;
    size_t offset;       /* of the field in the owner's options struct */
    const char *def;     /* default, in the file's syntax; LIST: one item per line, "" for none */
    int64_t min, max;    /* INT, SIZE, TIME; both 0: any value of the type (not below 0 for SIZE, TIME) */
    const char *choices; /* ENUM */
    const char *help;    /* one sentence or more */
    ngd_config_change_t change;
};
/* The end of a table whose options remember where they were set: `offset` is that of a char ** in the owner's options
 * struct. With offset 0, nothing is remembered. */
#define NGD_CONFIG_END(offset)                                                    \
    {                                                                             \
        NULL, NGD_CONFIG_BOOL, offset, NULL, 0, 0, NULL, NULL, NGD_CONFIG_RESTART \
    }
#define NGD_CONFIG_COMMAND_LINE "command line"

/* Sets the defaults in opts. The table ends with NGD_CONFIG_END. */
ngd_status_t ngd_config_init(const struct ngd_config_option *table, void *opts, struct ngd_diag *diag);
void ngd_config_fini(const struct ngd_config_option *table, void *opts);
/* Returns the option of that name, or NULL with CONFIG and a diagnosis that suggests one. diag may be NULL. */
const struct ngd_config_option *ngd_config_find(const struct ngd_config_option *table, const char *name,
                                                struct ngd_diag *diag);
/* Sets an option from the command line. */
ngd_status_t ngd_config_set(const struct ngd_config_option *table, void *opts, const char *name, const char *value,
                            struct ngd_diag *diag);
ngd_status_t ngd_config_read_file(const struct ngd_config_option *table, void *opts, const char *path,
                                  struct ngd_diag *diag);
ngd_status_t ngd_config_read_text(const struct ngd_config_option *table, void *opts, const char *text, size_t n,
                                  const char *origin, struct ngd_diag *diag);
/* Reads the files of a directory whose names end in .conf, in the order of their names, after the main file. A file may
 * set again what another one set, and adds to its lists. A directory that does not exist is empty. */
ngd_status_t ngd_config_read_dir(const struct ngd_config_option *table, void *opts, const char *dir,
                                 struct ngd_diag *diag);
/* Gives the option these values, instead of those that it has; only a list may have none or several of them. */
ngd_status_t ngd_config_replace(const struct ngd_config_option *table, void *opts, const struct ngd_config_option *opt,
                                char *const *values, size_t n, const char *source, struct ngd_diag *diag);
/* Copies an option, and where it was set. NO_MEMORY: `to` is still valid, with the old or the new value. */
ngd_status_t ngd_config_copy_option(const struct ngd_config_option *table, const struct ngd_config_option *opt,
                                    void *to, const void *from);
/* Initialises `to` as a copy of `from`. After an error, it needs no fini. */
ngd_status_t ngd_config_copy(const struct ngd_config_option *table, void *to, const void *from);
/*
 * Takes over the options of `from` that differ and that a reload changes: their memory is exchanged, so that `from`
 * then owns the old values, and the caller frees it once nobody reads them. Calls changed(ctx, option, taken) for each
 * option that differs. Other threads read numbers with ngd_config_get meanwhile; strings and lists need the caller's
 * lock.
 */
void ngd_config_reload(const struct ngd_config_option *table, void *opts, void *from,
                       void (*changed)(void *ctx, const struct ngd_config_option *opt, bool taken), void *ctx);
/* Returns whether the option has the same value in both. */
bool ngd_config_same(const struct ngd_config_option *opt, const void *a, const void *b);
/* Returns where the option was set: "FILE:LINE", NGD_CONFIG_COMMAND_LINE, for a list several of them, or "default". */
const char *ngd_config_source(const struct ngd_config_option *table, const struct ngd_config_option *opt,
                              const void *opts);
/* Appends the value in the file's syntax; a list has an item per line. */
void ngd_config_print(const struct ngd_config_option *opt, const void *opts, struct ngd_strbuf *sb);
/* Copies a list. The copy is freed with ngd_config_list_fini. */
ngd_status_t ngd_config_list_copy(const struct ngd_config_list *from, struct ngd_config_list *to);
void ngd_config_list_fini(struct ngd_config_list *list);
/* Reads an option that a reload may change, on any thread. */
#define ngd_config_get(field) __atomic_load_n(&(field), __ATOMIC_RELAXED)
/* Prints the table: as --help text, as roff for the man page, or as a commented sample file. */
typedef enum ngd_config_style { NGD_CONFIG_HELP, NGD_CONFIG_ROFF, NGD_CONFIG_SAMPLE } ngd_config_style_t;
void ngd_config_describe(const struct ngd_config_option *table, ngd_config_style_t style, struct ngd_strbuf *sb);
/* Parse the file's syntax of values, for other users of it (npugraphctl --kv-bytes 64M). */
ngd_status_t ngd_parse_size(const char *text, uint64_t *bytes_p);
ngd_status_t ngd_parse_time(const char *text, ngd_nsec_t *t_p);

#endif
