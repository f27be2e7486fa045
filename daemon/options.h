/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_OPTIONS_H
#define NGD_DAEMON_OPTIONS_H

/*
 * The daemon's options. Each is one row of the table in options.c, with the same name in the file and on the command
 * line; the row also says what changes it while the daemon runs. Threads: the loop's thread changes them
 * (daemon/control/reload.h). Other threads read numbers of reloadable options with ngd_config_get, and their strings
 * and lists under live_lock.
 */
#include "base/config.h"
#include "base/lock.h"
#include "daemon/quotas.h"

struct ngd_jwt_params;

/* Values of local-transport, in its order. */
typedef enum ngd_local_transport { NGD_LOCAL_TRANSPORT_AUTO, NGD_LOCAL_TRANSPORT_OFF } ngd_local_transport_t;
/* Those of tls-client-certificate. */
typedef enum ngd_tls_client { NGD_TLS_CLIENT_REQUIRED, NGD_TLS_CLIENT_OPTIONAL } ngd_tls_client_t;

struct ngd_options {
    struct ngd_config_list listen;
    int64_t socket_mode; /* octal digits as a decimal number; see ngd_options_socket_mode */
    char *lock_file, *local_socket, *replace_socket;
    int local_transport; /* ngd_local_transport_t */
    ngd_nsec_t local_spin;
    char *stats_listen;
    struct ngd_config_list stats_hosts;
    bool stats_names;
    bool stats_graphs;
    struct ngd_config_list models_dir, load;
    struct ngd_config_list dump_dir;
    uint64_t dump_limit;
    struct ngd_config_list device;
    uint64_t device_memory;
    char *ascend_libs, *ascend_lib_names, *device_facts;
    int64_t threads;
    int nz_weights; /* 0: off */
    int isa;        /* index into ngd_isa_names */
    ngd_nsec_t telemetry_interval;
    int64_t slots;
    int64_t capture_threads;
    ngd_nsec_t inline_limit;
    ngd_nsec_t max_replay_time;
    ngd_nsec_t max_capture_time;
    bool merge;
    ngd_nsec_t merge_wait;
    int64_t prompt_share;
    int64_t queue_limit;
    struct ngd_config_list weight;
    int64_t capture_limit;
    char *store_dir;
    uint64_t store_budget;
    char *static_compiler;
    char *static_dir;
    ngd_nsec_t static_timeout;
    int64_t cqs;
    uint64_t max_message;
    ngd_nsec_t tcp_keepalive;
    int guard_unix; /* ngd_guard_unix_t */
    ngd_nsec_t guard_poll;
    int64_t max_connections;
    int64_t max_streams;
    int64_t max_inflight;
    int64_t max_sessions;
    uint64_t quotas[NGD_QUOTA_KINDS]; /* limits of one identity; see daemon/quotas.def */
    int64_t max_device_share_per_identity;
    int tls_client_certificate; /* ngd_tls_client_t */
    char *tls_cert, *tls_key, *tls_client_ca, *tls_crl;
    bool tls_allow_cn;
    ngd_nsec_t max_connection_age;
    bool allow_plaintext, allow_plaintext_tokens;
    bool oip_shared_memory;
    ngd_nsec_t oip_sequence_timeout;
    char *token_file, *audit_log;
    struct ngd_config_list jwt_issuer, jwt_keys, jwt_audience; /* daemon/jwt.h */
    char *jwt_claim, *jwt_groups_claim;
    uint64_t audit_log_max;
    char *trace_endpoint, *trace_sample;
    int64_t trace_limit;
    struct ngd_config_list admin_identities;
    struct ngd_config_list may_publish, role;
    int default_role;             /* index into none, viewer, user: an ngd_role_t */
    struct ngd_config_list group; /* NAME=IDENTITY */
    int share_prefixes;           /* 0: within an identity, 1: all */
    ngd_nsec_t drain_grace;
    ngd_nsec_t stop_grace;
    int log_level;     /* ngd_log_level_t */
    int log_format;    /* ngd_log_format_t */
    char **sources;    /* where each option was set; NULL: nowhere */
    bool replace;      /* --replace; no option of the file */
    const char *probe; /* file of --probe, or NULL; no option of the file */
    struct ngd_mutex live_lock;
};

#define NGD_OPTIONS_MAX 128 /* rows of the table */
extern const struct ngd_config_option ngd_options_table[];
extern const char *const ngd_isa_names[];

/* What the command line asks for besides options. */
typedef enum ngd_options_action {
    NGD_OPTIONS_RUN,
    NGD_OPTIONS_HELP,
    NGD_OPTIONS_VERSION,
    NGD_OPTIONS_PRINT_CONFIG,
    NGD_OPTIONS_PRINT_MAN,
    NGD_OPTIONS_CHECK_CONFIG,
    NGD_OPTIONS_PROBE,
} ngd_options_action_t;

/*
 * Applies the defaults, then the file of --config and its conf.d, then the command line. *config_path_p points into
 * argv (NULL: no file). After an error the options need no fini.
 */
ngd_status_t ngd_options_parse(struct ngd_options *options, int argc, char **argv, const char **config_path_p,
                               ngd_options_action_t *action_p, struct ngd_diag *diag);
/* Checks what the table cannot say, as parsing does. CONFIG: the diagnosis begins with the option or its place. */
ngd_status_t ngd_options_check(const struct ngd_options *options, struct ngd_diag *diag);
/* Initialises `to` as a copy, without what no option says. After NO_MEMORY, it needs no fini. */
ngd_status_t ngd_options_copy(const struct ngd_options *from, struct ngd_options *to);
void ngd_options_fini(struct ngd_options *options);
/* Prints the output of an action to stdout. */
void ngd_options_print(ngd_options_action_t action);
/* Puts the file and line of an option in front of a diagnosis that begins with its name. */
void ngd_options_locate(const struct ngd_options *options, struct ngd_diag *diag);
/* Returns the identity's weight, from the option `weight`. Any thread. */
uint32_t ngd_options_weight(struct ngd_options *options, const char *identity);
/* Returns socket-mode as a mode. */
unsigned ngd_options_socket_mode(const struct ngd_options *options);
/* Returns what the options of issuers say, borrowed. */
void ngd_options_jwt(const struct ngd_options *options, struct ngd_jwt_params *params_p);
/* Copies a list that a reload may change. Any thread. */
ngd_status_t ngd_options_copy_list(struct ngd_options *options, const struct ngd_config_list *list,
                                   struct ngd_config_list *to);

#endif
