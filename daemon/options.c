/* SPDX-License-Identifier: Apache-2.0 */
/* The option table, and the command line around it. --help, the sample file, the man pages and the refusal of unknown
 * names are all made from the table. */
#include "daemon/options.h"
#include "daemon/jwt.h"
#include "daemon/load_line.h"
#include "daemon/roles.h"
#include "daemon/trace/trace.h"
#include "base/log.h"
#include "scheduler/lineup/policy.h"
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AT(field) offsetof(struct ngd_options, field)

/*
 * What changes an option. SET is for options that give nobody files, sockets, commands, identities, rights or what
 * belongs to others: an administrator can come from another machine, and may not take over this one. Whoever may write
 * the daemon's files sets the others there (RELOAD, RESTART).
 */
#define SET     NGD_CONFIG_SET
#define RELOAD  NGD_CONFIG_RELOAD
#define RESTART NGD_CONFIG_RESTART
#define COUNT(name, field, def, min, max, help, change)                    \
    {                                                                      \
        name, NGD_CONFIG_INT, AT(field), def, min, max, NULL, help, change \
    }

const char *const ngd_isa_names[] = {"auto", "scalar", "avx2", "avx512", "avx512bf16", "amx", NULL};

const struct ngd_config_option ngd_options_table[] = {
    {"listen", NGD_CONFIG_LIST, AT(listen), "unix:/run/npugraphd/npugraphd.sock", 0, 0, NULL,
     "Address on which clients connect: unix:PATH, tcp:HOST:PORT or HOST:PORT. Write an IPv6 address in brackets; "
     "port 0 picks a free port. TCP uses TLS if tls-cert is set; without TLS it is refused unless allow-plaintext is "
     "set. Sockets that systemd passes are served in addition.",
     RELOAD},
    COUNT("socket-mode", socket_mode, "660", 0, 777,
          "Permissions of the Unix socket, in octal digits. They decide who may connect.", RELOAD),
    {"lock-file", NGD_CONFIG_STRING, AT(lock_file), "", 0, 0, NULL,
     "File that the daemon locks so that a second daemon cannot start. Empty: the path of each Unix socket with .lock "
     "appended.",
     RESTART},
    {"local-socket", NGD_CONFIG_STRING, AT(local_socket), "auto", 0, 0, NULL,
     "Path of the socket where clients of the same machine give shared buffers, with the permissions of socket-mode. "
     "auto: the path of the first Unix socket with .local appended; none if there is no Unix socket. off: none.",
     RELOAD},
    {"replace-socket", NGD_CONFIG_STRING, AT(replace_socket), "auto", 0, 0, NULL,
     "Path of the socket where npugraphd --replace takes over from this daemon; only processes of the daemon's user "
     "may. "
     "auto: the path of the first Unix socket of listen with .replace appended; none if there is no Unix socket. off: "
     "none; this daemon cannot be replaced.",
     RESTART},
    {"local-transport", NGD_CONFIG_ENUM, AT(local_transport), "auto", 0, 0, "auto off",
     "auto: replays and steps of clients on the same machine go through memory that they share with the daemon, if "
     "they "
     "reach local-socket. off: over gRPC. Clients that have such memory keep it.",
     SET},
    {"local-spin", NGD_CONFIG_TIME, AT(local_spin), "50us", 0, NGD_MSEC, NULL,
     "Longest time for which the daemon looks for another request in shared memory before it sleeps. It looks for a "
     "shorter time, or not at all, if that was in vain. 0: never.",
     SET},
    {"stats-listen", NGD_CONFIG_STRING, AT(stats_listen), "127.0.0.1:17947", 0, 0, NULL,
     "HOST:PORT of the HTTP statistics endpoint, or off. It serves /metrics, /healthz, /readyz, /stats.json, "
     "/history.json and a page for people at /. Port 0 picks a free port. The endpoint has no authentication: use an "
     "address that only "
     "permitted readers can reach.",
     RELOAD},
    {"stats-hosts", NGD_CONFIG_LIST, AT(stats_hosts), "", 0, 0, NULL,
     "Host name, without a port, that clients of the statistics endpoint may use. A request is refused unless its "
     "Host is one of these names, the host of stats-listen, localhost or an IP address.",
     RELOAD},
    {"stats-names", NGD_CONFIG_BOOL, AT(stats_names), "no", 0, 0, NULL,
     "yes: the statistics endpoint shows the names of identities, graphs and models to everybody who can reach it. "
     "no: it shows only their sums.",
     RELOAD},
    {"stats-graphs", NGD_CONFIG_BOOL, AT(stats_graphs), "no", 0, 0, NULL,
     "yes: with stats-names, the statistics endpoint also shows what graphs consist of (operators, shapes, labels of "
     "weights, keys, plans) and the events of the flight recorder. no: an identity's graphs stay its own.",
     RELOAD},
    {"models-dir", NGD_CONFIG_LIST, AT(models_dir), "", 0, 0, NULL,
     "Directory from which clients may load safetensors and GGUF files, subdirectories included. If none is given, no "
     "file can "
     "be loaded.",
     RELOAD},
    {"load", NGD_CONFIG_LIST, AT(load), "", 0, 0, NULL,
     "NAME PATH [OPTION...]: a model that the daemon loads when it starts, from an absolute path below a models-dir, "
     "with the options of npugraphctl load. A word with blanks is put in double quotes. The models belong to the "
     "daemon's user, and are public unless the options say otherwise. The daemon is not ready while one is missing; "
     "one that cannot be loaded is tried again. A reload loads those that are missing, and unloads nothing. Needs a "
     "Unix socket in listen.",
     RELOAD},
    {"dump-dir", NGD_CONFIG_LIST, AT(dump_dir), "", 0, 0, NULL,
     "Directory in which diagnostics may write, subdirectories included: data dumps of clients' graphs, and the "
     "records of replays with wrong results (in the first directory given). If none is given, nothing is written.",
     RELOAD},
    {"dump-limit", NGD_CONFIG_SIZE, AT(dump_limit), "1G", 0, INT64_C(1) << 50, NULL,
     "Largest number of bytes that diagnostics write while the daemon runs. A file counts as its size rounded up to 4 "
     "KiB, plus 1 KiB; a directory counts as 4 KiB. 0: no limit.",
     SET},
    {"device", NGD_CONFIG_LIST, AT(device), "host", 0, 0, NULL,
     "Device to serve: BACKEND or BACKEND:INDEX. The first one is the default device.", RESTART},
    {"device-memory", NGD_CONFIG_SIZE, AT(device_memory), "0", 0, INT64_C(1) << 50, NULL,
     "Memory budget of each device. 0: the backend decides (host: a share of the machine's memory).", RESTART},
    {"ascend-libs", NGD_CONFIG_STRING, AT(ascend_libs), "", 0, 0, NULL,
     "Directory of the CANN libraries (libascendcl.so and others) for ascend devices. Empty: the directories in which "
     "CANN is installed by default (ASCEND_HOME_PATH, /usr/local/Ascend).",
     RESTART},
    {"ascend-lib-names", NGD_CONFIG_STRING, AT(ascend_lib_names), "", 0, 0, NULL,
     "Replacement file names for CANN libraries: libopapi.so=FILE, ... If FILE contains a slash, it is used as a path "
     "and ascend-libs is not searched.",
     RESTART},
    {"nz-weights", NGD_CONFIG_ENUM, AT(nz_weights), "off", 0, 0, "off auto",
     "ascend: auto copies f16 and bf16 weights that matrix products read to FRACTAL_NZ, the layout of the device's "
     "matrix unit, as long as a quarter of the device's memory budget stays free. Such weights use twice the memory.",
     RESTART},
    {"device-facts", NGD_CONFIG_STRING, AT(device_facts), "", 0, 0, NULL,
     "ascend: file that npugraphd --probe has written about this chip and version of CANN. What it says about "
     "attention, operators and limits outranks the daemon's own tables. A file about another chip or version is not "
     "used, which the log says. A file with a mistake is refused with its line.",
     RESTART},
    COUNT("threads", threads, "0", 0, 1024, "CPUs that a host device uses for computation. 0: all.", RESTART),
    {"isa", NGD_CONFIG_ENUM, AT(isa), "auto", 0, 0, "auto scalar avx2 avx512 avx512bf16 amx",
     "Instruction set of the host device's kernels. Meant for comparisons.", RESTART},
    {"telemetry-interval", NGD_CONFIG_TIME, AT(telemetry_interval), "5s", 0, 3600 * NGD_SEC, NULL,
     "How often the hardware of each device is asked for its memory, temperature, power, errors and utilization. A "
     "separate thread asks; values that it has not renewed for three intervals are dropped. 0: never.",
     RESTART},
    COUNT("slots", slots, "1", 1, 64,
          "Stream slots per device: the number of replays that can run at the same time. Each slot has its own memory "
          "pool.",
          RESTART),
    COUNT("capture-threads", capture_threads, "1", 1, 16, "Threads that capture graphs.", RESTART),
    {"inline-limit", NGD_CONFIG_TIME, AT(inline_limit), "50us", 0, NGD_SEC, NULL,
     "If the device is idle and a replay is expected to take less time than this, it runs on the thread that received "
     "it. 0: never.",
     SET},
    {"max-replay-time", NGD_CONFIG_TIME, AT(max_replay_time), "60s", 0, 24 * 3600 * NGD_SEC, NULL,
     "A replay that runs longer is stopped between two kernels with REPLAY_STOPPED. Each slice of a prompt is timed "
     "separately. 0: no limit.",
     SET},
    {"max-capture-time", NGD_CONFIG_TIME, AT(max_capture_time), "120s", 0, 24 * 3600 * NGD_SEC, NULL,
     "A capture or dry run that takes longer is stopped with CAPTURE_STOPPED. 0: no limit.", SET},
    {"merge", NGD_CONFIG_BOOL, AT(merge), "yes", 0, 0, NULL,
     "yes: waiting replays of the same graph run as one if the graph has a batch symbol, even if different clients "
     "sent them. no: each replay runs alone.",
     SET},
    {"merge-wait", NGD_CONFIG_TIME, AT(merge_wait), "2ms", 0, NGD_SEC, NULL,
     "Longest time that a free device waits for more replays to merge. It waits only if several such replays were "
     "under way at once recently, and never longer than half the time of one replay. 0: no wait; replays that are "
     "already waiting still run together.",
     SET},
    COUNT("prompt-share", prompt_share, "40", 0, 1000,
          "Largest delay of a decode step by prompts that are processed at the same time, in percent of the step's "
          "time. 0: no bound; decode steps and chunks of prompts take turns.",
          SET),
    COUNT("queue-limit", queue_limit, "4096", 1, 1 << 20,
          "Replays that may wait for a device; further ones are refused.", SET),
    {"weight", NGD_CONFIG_LIST, AT(weight), "", 0, 0, NULL,
     "IDENTITY=N: sets the identity's weight, 1 to 1000. When a device is overloaded, identities get time in "
     "proportion to their weights. The default weight is 100.",
     SET},
    COUNT("capture-limit", capture_limit, "64", 1, 65536,
          "Captures that one graph may have, unless its own option capture_limit says otherwise.", SET),
    {"store-dir", NGD_CONFIG_STRING, AT(store_dir), "auto", 0, 0, NULL,
     "Directory that keeps compiled plans for the next start. Several daemons may share it. auto: the directory that "
     "systemd provides (CacheDirectory=), or none without systemd. off: none. If the directory cannot be used, the "
     "daemon reports it and runs without a store.",
     RESTART},
    {"store-budget", NGD_CONFIG_SIZE, AT(store_budget), "1G", 0, INT64_C(1) << 50, NULL,
     "Largest size of store-dir in bytes. Beyond it, the least recently used plans are removed. 0: no limit.", SET},
    {"static-compiler", NGD_CONFIG_STRING, AT(static_compiler), "auto", 0, 0, NULL,
     "Absolute path of the C compiler (gcc or clang) for graphs with static_kernel_compile. auto: the first of "
     "/usr/bin/cc, /usr/bin/gcc and /usr/bin/clang. off: none; such graphs use the generic kernels.",
     RESTART},
    {"static-dir", NGD_CONFIG_STRING, AT(static_dir), "", 0, 0, NULL,
     "Directory in which each compilation for static_kernel_compile creates a temporary directory and removes it "
     "afterwards. Empty: $TMPDIR, or /tmp.",
     RESTART},
    {"static-timeout", NGD_CONFIG_TIME, AT(static_timeout), "10m", NGD_SEC, 3600 * NGD_SEC, NULL,
     "Time limit of a compilation for static_kernel_compile. When it expires, the compiler is killed.", SET},
    COUNT("cqs", cqs, "1", 1, 16, "Threads that receive and answer calls. One is fastest up to four cores.", RESTART),
    {"max-message", NGD_CONFIG_SIZE, AT(max_message), "16M", 64 << 10, 1 << 30, NULL,
     "Largest message that is received or sent. It bounds the inputs and the outputs of a replay; larger tensors go "
     "through buffers.",
     RESTART},
    {"tcp-keepalive", NGD_CONFIG_TIME, AT(tcp_keepalive), "40s", 0, 3600 * NGD_SEC, NULL,
     "Time after which a TCP peer that vanished (power loss, broken cable) loses its connection, session and memory. "
     "The kernel probes the peer in the meantime. A peer that has stopped reading its data for this long also loses "
     "its connection. Whole seconds. 0: the system's limits, which are hours.",
     SET},
    {"guard-unix", NGD_CONFIG_ENUM, AT(guard_unix), "others", 0, 0, "others all none",
     "Connections on Unix sockets whose HTTP/2 frames are checked before gRPC sees them. others: those of users other "
     "than root and the daemon's own user; all; none. Connections over TCP are always checked.",
     RELOAD},
    {"guard-poll", NGD_CONFIG_TIME, AT(guard_poll), "0", 0, NGD_MSEC, NULL,
     "Time for which the guard's thread looks for more before it sleeps, after something has come. 50us saves up to "
     "two "
     "wake-ups of a replay over a guarded connection, where the thread has a CPU for itself; where it has not, "
     "everything is slower.",
     SET},
    COUNT("max-connections", max_connections, "1024", 1, 1 << 20,
          "Open connections; further ones are closed at once. A quarter of them, at most 16, is reserved for "
          "administrators on Unix sockets.",
          SET),
    COUNT("max-streams", max_streams, "1024", 1, 1 << 20,
          "Calls under way on one connection; the client queues further ones.", RESTART),
    COUNT("max-inflight", max_inflight, "8192", 1, 1 << 20,
          "Calls under way in total; further ones are refused, except status and health.", SET),
    COUNT("max-sessions", max_sessions, "1024", 1, 1 << 20, "Open sessions in total.", SET),
#define NGD_QUOTA(ID, name, option, type, def, min, max, total, noun, help) \
    {option, NGD_CONFIG_##type, AT(quotas[NGD_QUOTA_##ID]), def, min, max, NULL, help, SET},
#include "daemon/quotas.def"
#undef NGD_QUOTA
    COUNT("max-device-share-per-identity", max_device_share_per_identity, "0", 0, 100,
          "Largest share of the time of each device's stream slots that one identity gets, in percent. Work beyond it "
          "waits even if the device is idle. A request that cannot meet its deadline under the cap is refused. 0: no "
          "cap.",
          SET),
    {"tls-cert", NGD_CONFIG_STRING, AT(tls_cert), "", 0, 0, NULL,
     "PEM file with the server's certificate chain. This file and the other TLS files are read again by a "
     "reload and when they change. If one of the new files is not valid, all the old ones stay in use.",
     RELOAD},
    {"tls-key", NGD_CONFIG_STRING, AT(tls_key), "", 0, 0, NULL, "PEM file with the certificate's private key.", RELOAD},
    {"tls-client-ca", NGD_CONFIG_STRING, AT(tls_client_ca), "", 0, 0, NULL,
     "PEM file with the authorities whose client certificates are accepted. Empty: none are, and "
     "tls-client-certificate must be optional.",
     RELOAD},
    {"tls-client-certificate", NGD_CONFIG_ENUM, AT(tls_client_certificate), "required", 0, 0, "required optional",
     "optional: clients without a certificate may connect, and each of their calls needs a bearer token (token-file, "
     "jwt-issuer). "
     "required: they are refused.",
     RELOAD},
    {"tls-crl", NGD_CONFIG_STRING, AT(tls_crl), "", 0, 0, NULL,
     "PEM file with revocation lists, one for each authority above a client's certificate, including the root. A "
     "client is refused, and its connections are closed, if its certificate is revoked or if a list is missing or out "
     "of date. Empty: revocation is not checked.",
     RELOAD},
    {"tls-allow-cn", NGD_CONFIG_BOOL, AT(tls_allow_cn), "no", 0, 0, NULL,
     "yes: if a client certificate has neither a URI nor a DNS name, its common name is used, and the identity is "
     "tls-cn:NAME. no: such clients are refused.",
     RELOAD},
    {"max-connection-age", NGD_CONFIG_TIME, AT(max_connection_age), "0", 0, 365 * 24 * 3600 * NGD_SEC, NULL,
     "Age at which a TCP connection is closed, up to a tenth earlier. Its calls end with UNAVAILABLE, and clients "
     "connect again. 0: no limit.",
     SET},
    {"allow-plaintext", NGD_CONFIG_BOOL, AT(allow_plaintext), "no", 0, 0, NULL,
     "Allows plaintext TCP, which does not authenticate clients. Every user who can reach the port may use the "
     "devices, and all clients of one address, such as 127.0.0.1, are one identity. A session belongs to whoever has "
     "its token.",
     RELOAD},
    {"allow-plaintext-tokens", NGD_CONFIG_BOOL, AT(allow_plaintext_tokens), "no", 0, 0, NULL,
     "yes: bearer tokens are accepted over plaintext TCP from other machines too, where everybody on the path can read "
     "and use them. no: over plaintext TCP only from loopback addresses.",
     RELOAD},
    {"oip-shared-memory", NGD_CONFIG_BOOL, AT(oip_shared_memory), "no", 0, 0, NULL,
     "yes: clients of the Open Inference Protocol that connect over the Unix socket may name regions of POSIX shared "
     "memory for inputs and outputs. A region's object must belong to the client's user, or be open to everybody, and "
     "the daemon's user must be allowed to read and write it. no: tensors are in the messages only.",
     RELOAD},
    {"oip-sequence-timeout", NGD_CONFIG_TIME, AT(oip_sequence_timeout), "60s", NGD_MSEC, 24 * 3600 * NGD_SEC, NULL,
     "How long a sequence of requests of the Open Inference Protocol (sequence_id) is kept while no request of it is "
     "under way. Then its states, or its KV blocks, are freed.",
     RELOAD},
    {"token-file", NGD_CONFIG_STRING, AT(token_file), "", 0, 0, NULL,
     "File with the hashes of bearer tokens, a line each: NAME sha256:HASH EXPIRES [ROLE], as npugraphctl tokens "
     "writes "
     "them. A call with metadata \"authorization: Bearer TOKEN\" has the identity token:NAME. Only the file's owner "
     "may "
     "write it, and only its group may read it too. It is read at the start and by a reload.",
     RELOAD},
    {"jwt-issuer", NGD_CONFIG_LIST, AT(jwt_issuer), "", 0, 0, NULL,
     "NAME=URL: an issuer whose JSON Web Tokens are taken as bearer tokens, with a short name of your choice and the "
     "URL that its tokens have as iss. A token's claim of jwt-claim is the identity jwt:NAME:CLAIM.",
     RELOAD},
    {"jwt-keys", NGD_CONFIG_LIST, AT(jwt_keys), "", 0, 0, NULL,
     "NAME=FILE: a key set (JWKS, RFC 7517) with the public keys of that issuer. Only the file's owner, who is root or "
     "the daemon's user, may write it. It is read again by a reload and when it changes. If a new file is not valid, "
     "the old keys stay in use.",
     RELOAD},
    {"jwt-audience", NGD_CONFIG_LIST, AT(jwt_audience), "", 0, 0, NULL,
     "Audience of this daemon: JSON Web Tokens are taken if their aud has one of these. Required by jwt-issuer.",
     RELOAD},
    {"jwt-claim", NGD_CONFIG_STRING, AT(jwt_claim), "sub", 0, 0, NULL,
     "Claim of a JSON Web Token that names the identity. It must be one that the issuer never gives to somebody else.",
     RELOAD},
    {"jwt-groups-claim", NGD_CONFIG_STRING, AT(jwt_groups_claim), "", 0, 0, NULL,
     "Claim of a JSON Web Token with the identity's groups: a name, a URL such as https://example.org/groups, or a "
     "path "
     "into objects such as realm_access.roles, in which a dot that is part of a name has a backslash before it. A "
     "group "
     "GROUP of the issuer NAME is group:NAME:GROUP in role, may-publish and the audience of models. Empty: none.",
     RELOAD},
    {"admin-identities", NGD_CONFIG_LIST, AT(admin_identities), "", 0, 0, NULL,
     "Identity of an administrator: uid:N, tls-uri:NAME, tls-dns:NAME, tls-cn:NAME, token:NAME or "
     "jwt:ISSUER:CLAIM. It has the role admin. An administrator may see, unload and share what other identities own, "
     "and may drain the daemon. Root and the daemon's own user are always "
     "administrators on a Unix socket.",
     RELOAD},
    {"role", NGD_CONFIG_LIST, AT(role), "", 0, 0, NULL,
     "IDENTITY=ROLE or group:NAME=ROLE: the role none, viewer, user, operator or admin. An identity's own entry counts "
     "before the role of its line in token-file, and that before the greatest role of its groups. docs/roles.md lists "
     "what each role may call.",
     RELOAD},
    {"default-role", NGD_CONFIG_ENUM, AT(default_role), "user", 0, 0, "none viewer user",
     "Role of identities that nothing else gives one.", RELOAD},
    {"may-publish", NGD_CONFIG_LIST, AT(may_publish), "", 0, 0, NULL,
     "Identity, or group:NAME, that may make its models public. Operators and administrators always may.", RELOAD},
    {"group", NGD_CONFIG_LIST, AT(group), "", 0, 0, NULL,
     "NAME=IDENTITY: makes the identity a member of the group. Models can be shared with a group as group:NAME. Give "
     "one entry for each member.",
     RELOAD},
    {"share-prefixes", NGD_CONFIG_ENUM, AT(share_prefixes), "identity", 0, 0, "identity all",
     "Who shares the computed beginnings of prompts. identity: each identity reuses only its own. all: all users of a "
     "model reuse them, if the model's owner allows it too. Users who share can infer from response times which "
     "prompts others have sent.",
     RELOAD},
    {"drain-grace", NGD_CONFIG_TIME, AT(drain_grace), "30s", 0, 24 * 3600 * NGD_SEC, NULL,
     "Time that work under way has to finish after SIGTERM.", SET},
    {"stop-grace", NGD_CONFIG_TIME, AT(stop_grace), "10s", NGD_MSEC, 3600 * NGD_SEC, NULL,
     "Time that the process then has to stop. After it, the daemon logs what is stuck and exits with status 4.", SET},
    {"audit-log", NGD_CONFIG_STRING, AT(audit_log), "", 0, 0, NULL,
     "File that gets a line of JSON for each call that changes something, and for each that was refused for its token, "
     "role or owner. Its mode must be 0600. A reload opens it again. Empty: none.",
     RESTART},
    {"audit-log-max", NGD_CONFIG_SIZE, AT(audit_log_max), "64M", 0, INT64_C(1) << 50, NULL,
     "Size beyond which audit-log is renamed to FILE.1, which is replaced, and begun again. 0: no limit.", RESTART},
    {"trace-endpoint", NGD_CONFIG_STRING, AT(trace_endpoint), "", 0, 0, NULL,
     "Collector that gets traces by OTLP over HTTP, in JSON: http://HOST:PORT/v1/traces, or unix:PATH for a Unix "
     "socket. The spans name identities, graphs and models; nothing of prompts, tokens or tensors' contents is in "
     "them. "
     "Empty: nothing is traced.",
     RELOAD},
    {"trace-sample", NGD_CONFIG_STRING, AT(trace_sample), "0.01", 0, 0, NULL,
     "Part of the calls without a trace context that is traced, from 0 to 1. A call with a trace context is traced if "
     "its client sampled it.",
     SET},
    COUNT("trace-limit", trace_limit, "1000", 1, 1000000,
          "Spans a second that one identity may have recorded; more are dropped and counted.", SET),
    {"log-level", NGD_CONFIG_ENUM, AT(log_level), "info", 0, 0, "error warning notice info debug",
     "Lowest severity that is logged.", SET},
    {"log-format", NGD_CONFIG_ENUM, AT(log_format), "text", 0, 0, "text json",
     "json: a line of the log is an object with time, level, component and text, as npugraphctl --json logs prints it. "
     "text: TIME LEVEL COMPONENT: TEXT.",
     RELOAD},
    NGD_CONFIG_END(AT(sources)),
};
_Static_assert(sizeof(ngd_options_table) / sizeof(ngd_options_table[0]) <= NGD_OPTIONS_MAX,
               "there is room for the names of all options");

/* Checks that socket-mode consists of octal digits, which the table's integers need not. */
static ngd_status_t check_socket_mode(const struct ngd_options *options, struct ngd_diag *diag)
{
    for (int64_t rest = options->socket_mode; rest > 0; rest /= 10)
        if (rest % 10 > 7)
            return ngd_diag_set(diag, NGD_ERR_CONFIG, "socket-mode: %lld is not octal; allowed: 0 to 777",
                                (long long)options->socket_mode);
    return NGD_OK;
}

unsigned ngd_options_socket_mode(const struct ngd_options *options)
{
    unsigned mode = 0, shift = 0;

    for (int64_t rest = options->socket_mode; rest > 0; rest /= 10, shift += 3)
        mode |= (unsigned)(rest % 10) << shift;
    return mode;
}

static ngd_status_t check_stats_hosts(const struct ngd_config_list *list, struct ngd_diag *diag)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._";

    for (size_t i = 0; i < list->n; i++)
        if (list->items[i][0] == '\0' || list->items[i][strspn(list->items[i], letters)] != '\0')
            return ngd_diag_set(
                diag, NGD_ERR_CONFIG,
                "stats-hosts: \"%.160s\" is not a host name; give a name without a port, such as node7.example.org",
                list->items[i]);
    return NGD_OK;
}

/* Refuses the old form of an identity, without the kind of name: it would match nobody. */
static ngd_status_t check_old_form(const char *option, const struct ngd_config_list *list, struct ngd_diag *diag)
{
    for (size_t i = 0; i < list->n; i++)
        if (strncmp(list->items[i], "tls:", 4) == 0)
            return ngd_diag_set(diag, NGD_ERR_CONFIG,
                                "%s: \"%.160s\" does not say which name of the certificate is meant; write "
                                "tls-uri:NAME, tls-dns:NAME, or, with tls-allow-cn, tls-cn:NAME",
                                option, list->items[i]);
    return NGD_OK;
}

static ngd_status_t check_tls(const struct ngd_options *options, struct ngd_diag *diag)
{
    const bool optional = options->tls_client_certificate == NGD_TLS_CLIENT_OPTIONAL;
    const bool ca = *options->tls_client_ca != '\0';
    const int given = !!*options->tls_cert + !!*options->tls_key;

    if (given == 1 || (given == 0 && ca) || (given == 2 && !ca && !optional))
        return ngd_diag_set(
            diag, NGD_ERR_CONFIG,
            "%s: tls-cert, tls-key and tls-client-ca go together: give all three for TLS, or none for plaintext; "
            "tls-client-ca may be left out with tls-client-certificate = optional",
            *options->tls_cert  ? "tls-cert"
            : *options->tls_key ? "tls-key"
                                : "tls-client-ca");
    if (!ca && *options->tls_crl)
        return ngd_diag_set(diag, NGD_ERR_CONFIG, "tls-crl needs tls-cert, tls-key and tls-client-ca");
    if (optional && (given == 0 || (!*options->token_file && options->jwt_issuer.n == 0)))
        return ngd_diag_set(
            diag, NGD_ERR_CONFIG,
            "tls-client-certificate = optional needs tls-cert, tls-key, and token-file or jwt-issuer: a client without "
            "a certificate is known by its token");
    if (check_old_form("weight", &options->weight, diag) != NGD_OK)
        return NGD_ERR_CONFIG;
    if (check_old_form("role", &options->role, diag) != NGD_OK)
        return NGD_ERR_CONFIG;
    return check_old_form("admin-identities", &options->admin_identities, diag);
}

/* Returns the number after the last "=" of IDENTITY=N; 0: the entry has another form, or N is no weight. */
static uint32_t read_weight(const char *entry, size_t *name_len_p)
{
    const char *equals = strrchr(entry, '=');
    char *end;
    long n;

    if (!equals || equals == entry || equals[1] < '0' || equals[1] > '9')
        return 0;
    n = strtol(equals + 1, &end, 10);
    if (*end || n < 1 || n > NGD_WEIGHT_MAX)
        return 0;
    *name_len_p = (size_t)(equals - entry);
    return (uint32_t)n;
}

uint32_t ngd_options_weight(struct ngd_options *options, const char *identity)
{
    uint32_t found = NGD_WEIGHT_DEFAULT;

    ngd_mutex_lock(&options->live_lock);
    for (size_t i = options->weight.n; i-- > 0;) { /* of several entries, the first one counts */
        const char *entry = options->weight.items[i];
        size_t n = 0;
        uint32_t weight = read_weight(entry, &n);

        if (strlen(identity) == n && memcmp(entry, identity, n) == 0)
            found = weight;
    }
    ngd_mutex_unlock(&options->live_lock);
    return found;
}

ngd_status_t ngd_options_copy_list(struct ngd_options *options, const struct ngd_config_list *list,
                                   struct ngd_config_list *to)
{
    ngd_status_t status;

    ngd_mutex_lock(&options->live_lock);
    status = ngd_config_list_copy(list, to);
    ngd_mutex_unlock(&options->live_lock);
    return status;
}

static ngd_status_t check_groups(const struct ngd_options *options, struct ngd_diag *diag)
{
    for (size_t i = 0; i < options->group.n; i++) {
        const char *entry = options->group.items[i], *equals = strchr(entry, '=');

        if (!equals || equals == entry || !strchr(equals, ':'))
            return ngd_diag_set(diag, NGD_ERR_CONFIG, "group: \"%.160s\" is not NAME=IDENTITY, as in team=uid:1000",
                                entry);
    }
    return NGD_OK;
}

static ngd_status_t check_weights(const struct ngd_options *options, struct ngd_diag *diag)
{
    size_t n;

    for (size_t i = 0; i < options->weight.n; i++)
        if (!read_weight(options->weight.items[i], &n))
            return ngd_diag_set(diag, NGD_ERR_CONFIG,
                                "weight: \"%.160s\" is not IDENTITY=N with N from 1 to %d, as in uid:1000=200",
                                options->weight.items[i], NGD_WEIGHT_MAX);
    return NGD_OK;
}

/* Checks paths of static compilation. What runs as the daemon's user, and where, must not depend on the directory in
 * which the daemon was started. */
static ngd_status_t check_static(const struct ngd_options *options, struct ngd_diag *diag)
{
    const char *compiler = options->static_compiler, *dir = options->static_dir;

    if (*compiler && *compiler != '/' && strcmp(compiler, "auto") != 0 && strcmp(compiler, "off") != 0)
        return ngd_diag_set(diag, NGD_ERR_CONFIG, "static-compiler: \"%.160s\"; allowed: an absolute path, auto or off",
                            compiler);
    if (*dir && *dir != '/')
        return ngd_diag_set(diag, NGD_ERR_CONFIG, "static-dir: \"%.160s\"; allowed: an absolute path, or nothing", dir);
    return NGD_OK;
}

static ngd_status_t check_trace(const struct ngd_options *options, struct ngd_diag *diag)
{
    struct ngd_trace_endpoint endpoint;
    double sample;

    if (*options->trace_endpoint && !ngd_trace_endpoint_parse(options->trace_endpoint, &endpoint))
        return ngd_diag_set(diag, NGD_ERR_CONFIG,
                            "trace-endpoint: \"%.160s\"; allowed: http://HOST:PORT/PATH, unix:/PATH of a socket, or "
                            "nothing. For HTTPS, run a collector on this machine that sends on",
                            options->trace_endpoint);
    if (!ngd_trace_sample_parse(options->trace_sample, &sample))
        return ngd_diag_set(diag, NGD_ERR_CONFIG, "trace-sample: \"%.160s\" is not a number from 0 to 1, such as 0.01",
                            options->trace_sample);
    return NGD_OK;
}

void ngd_options_jwt(const struct ngd_options *options, struct ngd_jwt_params *params_p)
{
    *params_p = (struct ngd_jwt_params){.issuers = &options->jwt_issuer,
                                        .keys = &options->jwt_keys,
                                        .audiences = &options->jwt_audience,
                                        .claim = options->jwt_claim,
                                        .groups_claim = options->jwt_groups_claim};
}

static ngd_status_t check_jwt(const struct ngd_options *options, struct ngd_diag *diag)
{
    struct ngd_jwt_params params;

    ngd_options_jwt(options, &params);
    return ngd_jwt_params_check(&params, diag);
}

static ngd_status_t check_daemon_options(const struct ngd_options *options, struct ngd_diag *diag)
{
    ngd_status_t status = check_socket_mode(options, diag);

    if (status == NGD_OK)
        status = check_stats_hosts(&options->stats_hosts, diag);
    if (status == NGD_OK)
        status = check_weights(options, diag);
    if (status == NGD_OK)
        status = check_groups(options, diag);
    if (status == NGD_OK)
        status = check_static(options, diag);
    if (status == NGD_OK)
        status = ngd_load_lines_check(&options->load, diag);
    if (status == NGD_OK)
        status = check_trace(options, diag);
    if (status == NGD_OK)
        status = check_jwt(options, diag);
    if (status == NGD_OK)
        status = ngd_roles_check(&options->role, &options->admin_identities, diag);
    return status == NGD_OK ? check_tls(options, diag) : status;
}

void ngd_options_locate(const struct ngd_options *options, struct ngd_diag *diag)
{
    size_t n = diag ? strcspn(diag->text, ":, ") : 0;

    for (const struct ngd_config_option *opt = ngd_options_table; n > 0 && opt->name; opt++) {
        const char *source = ngd_config_source(ngd_options_table, opt, options);

        if (strlen(opt->name) != n || memcmp(opt->name, diag->text, n) != 0)
            continue;
        if (strchr(source, ':')) /* else it is the default, or was set by the command line alone */
            ngd_diag_prefix(diag, "%.250s: ", source);
        return;
    }
}

ngd_status_t ngd_options_check(const struct ngd_options *options, struct ngd_diag *diag)
{
    ngd_status_t status = check_daemon_options(options, diag);

    if (status != NGD_OK)
        ngd_options_locate(options, diag);
    return status;
}

ngd_status_t ngd_options_copy(const struct ngd_options *from, struct ngd_options *to)
{
    ngd_status_t status = ngd_config_copy(ngd_options_table, to, from);

    if (status == NGD_OK)
        ngd_mutex_init(&to->live_lock, NGD_RANK_OPTIONS);
    return status;
}

static bool is_action(const char *arg, ngd_options_action_t *action_p)
{
    static const struct {
        const char *name;
        ngd_options_action_t action;
    } actions[] = {
        {"--help", NGD_OPTIONS_HELP},
        {"-h", NGD_OPTIONS_HELP},
        {"--version", NGD_OPTIONS_VERSION},
        {"-V", NGD_OPTIONS_VERSION},
        {"--print-config", NGD_OPTIONS_PRINT_CONFIG},
        {"--print-man", NGD_OPTIONS_PRINT_MAN},
        {"--check-config", NGD_OPTIONS_CHECK_CONFIG},
    };

    for (size_t i = 0; i < sizeof(actions) / sizeof(actions[0]); i++) {
        if (strcmp(arg, actions[i].name) == 0) {
            *action_p = actions[i].action;
            return true;
        }
    }
    return false;
}

/* Splits "--name=value" or "--name value". *i is the index of the last argument used. */
static ngd_status_t split_argument(int argc, char **argv, int *i, char *name, size_t room, const char **value_p,
                                   struct ngd_diag *diag)
{
    const char *arg = argv[*i], *equals = strchr(arg, '=');
    size_t n;

    if (strncmp(arg, "--", 2) != 0 || arg[2] == '\0')
        return ngd_diag_set(diag, NGD_ERR_CONFIG, "unexpected argument \"%s\"; options are --NAME=VALUE, see --help",
                            arg);
    n = equals ? (size_t)(equals - arg) - 2 : strlen(arg) - 2;
    if (n >= room)
        return ngd_diag_set(diag, NGD_ERR_CONFIG, "unknown option \"%.64s...\"; see --help", arg);
    memcpy(name, arg + 2, n);
    name[n] = '\0';
    if (equals) {
        *value_p = equals + 1;
    } else if (*i + 1 < argc) {
        *value_p = argv[++*i];
    } else {
        return ngd_diag_set(diag, NGD_ERR_CONFIG, "--%s needs a value", name);
    }
    return NGD_OK;
}

/* Makes one pass over the command line. The first pass (options NULL) reads --config and actions, the second sets
 * options. */
static ngd_status_t read_arguments(struct ngd_options *options, int argc, char **argv, const char **config_path_p,
                                   ngd_options_action_t *action_p, struct ngd_diag *diag)
{
    for (int i = 1; i < argc; i++) {
        const char *value = NULL;
        ngd_status_t status;
        char name[64];

        if (is_action(argv[i], action_p))
            continue;
        if (strcmp(argv[i], "--replace") == 0) {
            if (options)
                options->replace = true;
            continue;
        }
        status = split_argument(argc, argv, &i, name, sizeof(name), &value, diag);
        if (status != NGD_OK)
            return status;
        if (strcmp(name, "config") == 0) {
            *config_path_p = value;
        } else if (strcmp(name, "probe") == 0) {
            *action_p = NGD_OPTIONS_PROBE;
            if (options)
                options->probe = value;
        } else if (options) {
            status = ngd_config_set(ngd_options_table, options, name, value, diag);
        }
        if (status != NGD_OK)
            return status;
    }
    return NGD_OK;
}

/* Reads the file, and the drop-ins in conf.d beside it. */
static ngd_status_t read_files(struct ngd_options *options, const char *path, struct ngd_diag *diag)
{
    const char *slash = strrchr(path, '/');
    ngd_status_t status = ngd_config_read_file(ngd_options_table, options, path, diag);
    struct ngd_strbuf dir;

    if (status != NGD_OK)
        return status;
    ngd_strbuf_init(&dir);
    ngd_strbuf_printf(&dir, "%.*sconf.d", slash ? (int)(slash - path) + 1 : 0, path);
    status = ngd_config_read_dir(ngd_options_table, options, ngd_strbuf_str(&dir), diag);
    ngd_strbuf_fini(&dir);
    return status;
}

ngd_status_t ngd_options_parse(struct ngd_options *options, int argc, char **argv, const char **config_path_p,
                               ngd_options_action_t *action_p, struct ngd_diag *diag)
{
    ngd_status_t status = ngd_config_init(ngd_options_table, options, diag);

    *config_path_p = NULL;
    *action_p = NGD_OPTIONS_RUN;
    if (status != NGD_OK)
        return status;
    ngd_mutex_init(&options->live_lock, NGD_RANK_OPTIONS);
    status = read_arguments(NULL, argc, argv, config_path_p, action_p, diag);
    if (status == NGD_OK && *config_path_p)
        status = read_files(options, *config_path_p, diag);
    if (status == NGD_OK)
        status = read_arguments(options, argc, argv, config_path_p, action_p, diag);
    if (status == NGD_OK)
        status = ngd_options_check(options, diag);
    if (status != NGD_OK)
        ngd_options_fini(options);
    return status;
}

void ngd_options_fini(struct ngd_options *options)
{
    ngd_config_fini(ngd_options_table, options);
    ngd_mutex_fini(&options->live_lock);
}

static void print_daemon_help(struct ngd_strbuf *sb)
{
    ngd_strbuf_append(
        sb,
        "Usage: npugraphd [--config=FILE] [--NAME=VALUE ...]\n\n"
        "Serves captured graphs on NPU devices to many client processes.\n\n"
        "  --config=FILE\n      Read options from FILE first: lines \"name = value\". Then read the\n"
        "      files conf.d/*.conf beside it, in the order of their names.\n"
        "  --check-config\n      Check options and file, then exit.\n"
        "  --print-config\n      Print a commented sample file, then exit.\n"
        "  --replace\n      Take over the sockets, models and new clients of the daemon that runs, if there is one.\n"
        "  --probe=FILE\n      Ask the first device what its documents leave open, write the answers "
        "to FILE, then exit.\n"
        "  --help, --version\n\nOptions:\n");
    ngd_config_describe(ngd_options_table, NGD_CONFIG_HELP, sb);
}

void ngd_options_print(ngd_options_action_t action)
{
    struct ngd_strbuf sb;

    ngd_strbuf_init(&sb);
    switch (action) {
    case NGD_OPTIONS_HELP:
        print_daemon_help(&sb);
        break;
    case NGD_OPTIONS_VERSION:
        ngd_strbuf_append(&sb, "npugraphd " PACKAGE_VERSION "\n");
        break;
    case NGD_OPTIONS_PRINT_CONFIG:
        ngd_strbuf_append(&sb, "# SPDX-License-Identifier: Apache-2.0\n# Options of npugraphd, with their defaults. "
                               "See npugraphd.conf(5). Files\n"
                               "# conf.d/*.conf beside this one are read after it.\n\n");
        ngd_config_describe(ngd_options_table, NGD_CONFIG_SAMPLE, &sb);
        break;
    case NGD_OPTIONS_PRINT_MAN:
        ngd_config_describe(ngd_options_table, NGD_CONFIG_ROFF, &sb);
        break;
    case NGD_OPTIONS_CHECK_CONFIG:
        ngd_strbuf_append(&sb, "the configuration is valid\n");
        break;
    case NGD_OPTIONS_RUN:
    case NGD_OPTIONS_PROBE:
        break;
    }
    fputs(ngd_strbuf_str(&sb), stdout);
    fflush(stdout);
    ngd_strbuf_fini(&sb);
}
