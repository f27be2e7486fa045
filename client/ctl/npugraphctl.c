/* SPDX-License-Identifier: Apache-2.0 */
/* npugraphctl: the operator's command line. Global options, the command table, help and completion. */
#include "base/config.h"
#include "base/nearest.h"
#include "client/ctl/ctl.h"
#include "client/ctl/ctl_context.h"
#include "client/ctl/ctl_screen.h"
#include "client/ctl/ctl_watch.h"

#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GLOBAL_FLAGS  "json quiet"
#define GLOBAL_VALUED "address context timeout tls-ca tls-cert tls-key tls-server-name token-file color watch"

/* --json was given: errors are JSON too. Not in struct ctl, which mistakes in options have no part in. */
static bool errors_in_json;

const struct ctl_command ctl_commands[] = {
    {"status", "[--wait [--models]]", "What the daemon is doing",
     "--wait returns when the daemon serves, with --models when it also has the models of its option load, for "
     "scripts\n"
     "that start one. It waits as long as --timeout says.",
     false, ctl_cmd_status},
    {"devices", "[--capabilities]", "Devices, their memory and queues",
     "--capabilities prints what the backend of each device found: libraries, functions, operators.", false,
     ctl_cmd_devices},
    {"graphs", "[list | show ID | dot ID | plan ID | map ID] [--key KEY] [--svg FILE]",
     "Registered graphs; one as text, Graphviz, plan or map",
     "ID is a graph's digest or the first 6 or more digits of it; DIGEST/NUMBER, as listed, if a graph is "
     "registered\n"
     "with several options. map draws the pool of its executables over the steps;\n"
     "--key chooses one by the first digits of its hash (see explain), --svg writes its map as a picture. `graph` is "
     "the\n"
     "same command.",
     false, ctl_cmd_graphs},
    {"patterns", "[list | show NAME | add FILE | remove NAME] [--for-all]",
     "Fusion patterns: built-in ones and those that were registered",
     "add registers the patterns of a text file, for the graphs that this identity registers from then on; --for-all, "
     "with\n"
     "the admin right, for everybody's.",
     false, ctl_cmd_patterns},
    {"options", "", "Options that graphs are registered and captured with",
     "KEY: plans depend on the option. PER CAPTURE: a single Graphs.Capture may set it too. An option that is not\n"
     "supported yet takes its default only.",
     false, ctl_cmd_options},
    {"models", "", "Loaded models", NULL, false, ctl_cmd_models},
    {"sessions", "", "Connected clients and what they own", NULL, false, ctl_cmd_sessions},
    {"groups", "", "Devices whose graphs run collectives together", NULL, false, ctl_cmd_groups},
    {"shares", "", "Identities: weight, what waits, device time used", NULL, false, ctl_cmd_shares},
    {"quota", "[IDENTITY]", "What identities hold, may hold, and were refused", NULL, false, ctl_cmd_quota},
    {"sequences", "", "Open sequences", NULL, false, ctl_cmd_sequences},
    {"memory", "[--totals]", "Device memory by holder", "--totals sums it by device and kind.", false, ctl_cmd_memory},
    {"top", "[--interval TIME] [--count N]", "Live: devices, clients by device time, tokens/s, latencies",
     "--interval: time between updates, 100ms to 1h (default 1s). --count: how many updates, then it ends. q leaves.\n"
     "Rates and quantiles are those of the last interval. If the output is no terminal, updates follow one another;\n"
     "with --json each is one line.",
     false, ctl_cmd_top},
    {"stats", "[--prometheus]", "All statistics, as JSON or Prometheus text", NULL, false, ctl_cmd_stats},
    {"quantize", "DIR --to int8|int4|w8a8|fp8 [--group N] OUT", "Write a checkpoint with quantised weights",
     "Rounds the weights of the linears of DIR's layers to the nearest of 256 or 16 numbers, and writes a checkpoint "
     "in\n"
     "the form of compressed-tensors to OUT, which must not exist. N columns share a scale, 0 for whole rows: 128 if "
     "not\n"
     "given with int4, 0 with int8. w8a8 is int8, and the model rounds the inputs of these linears too, row by row.\n"
     "fp8 has floats of 8 bits (e4m3) and a scale for each row.\n"
     "Embeddings, lm_head and all other files are copied.",
     false, ctl_cmd_quantize},
    {"load",
     "DIR|FILE [--name NAME] [--max-context N] [--max-batch N] [--chunk N] [--block-size N] [--kv-bytes SIZE] "
     "[--kv-dtype "
     "auto|int8|fp8|f32|f16|bf16] [--kv-policy refuse|preempt] [--matmul-precision highest|high|medium] "
     "[--no-prefix-sharing] [--devices LIST] [--share-with LIST | --public "
     "| "
     "--private] "
     "[--share-prefixes] [--embedding]",
     "Load a Hugging Face checkpoint or a GGUF file as a model",
     "DIR holds config.json and model.safetensors (or shards with their index) and lies below one of the\n"
     "daemon's models-dir. FILE is a GGUF file there (docs/gguf.md). A path that does not exist here is one of the\n"
     "daemon's machine, absolute or below a models-dir. Decoders of the families in docs/families.md.\n"
     "The KV cache has --kv-bytes; by default room for --max-batch contexts, or what the device has left. A context "
     "is\n"
     "--max-context tokens; by default what config.json says, at most 4096 and what the cache holds. When KV blocks "
     "run\n"
     "out, --kv-policy preempt takes those of another sequence, which computes them again later. Layers with a "
     "sliding\n"
     "window hold no more of a context than the window and --chunk rows. --kv-dtype int8 or fp8 halves the bytes of\n"
     "keys and values in bf16, and rounds them with a scale for each token and head; auto is the weights' dtype.\n"
     "--matmul-precision is what matrix products may lose for speed: nothing, half or most of the digits of f32\n"
     "(docs/options.md).\n"
     "--devices host:0,host:1 divides the model's heads and MLP among devices, which compute each step together.\n"
     "Who may use it: --share-with uid:1000,group:team, --public or --private. Without one of these, everybody if an\n"
     "administrator loads it, otherwise only its owner. --share-prefixes lets its users' prompts share beginnings.\n"
     "--embedding loads it for `embed` alone, without its head; so are checkpoints loaded that have none, or that "
     "have\n"
     "a modules.json.",
     true, ctl_cmd_load},
    {"share", "MODEL --with LIST | --public | --private", "Say who may use a model",
     "LIST has identities and groups, as in uid:1000,group:team, and replaces the earlier list.\n"
     "The sequences of users who may no longer use the model are closed.",
     false, ctl_cmd_share},
    {"unload", "MODEL [--force]", "Unload a model", "--force closes its open sequences.", false, ctl_cmd_unload},
    {"generate",
     "MODEL [--tokenizer FILE] [--prompt TEXT | --ids N,N,...] [--tokens N] [--temperature F] [--top-k N] [--top-p F] "
     "[--min-p F] [--typical-p F] [--repetition-penalty F] [--presence-penalty F] [--frequency-penalty F] "
     "[--min-tokens N] [--logit-bias TOKEN=F]... [--bad-word TEXT]... [--seed N] [--n N] [--best-of N] "
     "[--stop TEXT]... [--logprobs N] [--priority high|normal|low] [--restore-timeout TIME] [--timing]",
     "Generate text, streamed as it is made",
     "--prompt uses the tokenizer of the model's own files, or --tokenizer: a tokenizer.json (or its directory), or a\n"
     "GGUF file. With --ids and without --tokenizer ids are printed.\n"
     "--n gives several answers, which begin at one prompt and have the seeds from --seed on; --best-of makes more "
     "and\n"
     "shows those whose tokens are most probable. Without --tokenizer --bad-word takes ids.\n"
     "The text ends before the first --stop. --logprobs gives each token's log-probability, and with --json\n"
     "those of the N most probable ones, 0 to 20. --timing tells where the daemon's time for the prompt and for\n"
     "the tokens went. If the daemon is killed or restarted, the text goes on in the next one that has the model\n"
     "within --restore-timeout (60s, 5m, ...); without it, it ends with an error.",
     true, ctl_cmd_generate},
    {"chat",
     "MODEL [--tokenizer DIR] [--system TEXT] [--template FILE | --plain] [--tokens N] [--stop TEXT]... [--temperature "
     "F] "
     "[--top-k N] [--top-p F] [--min-p F] [--typical-p F] [--repetition-penalty F] [--presence-penalty F] "
     "[--frequency-penalty F] [--min-tokens N] [--logit-bias TOKEN=F]... [--bad-word TEXT]... [--seed N] "
     "[--restore-timeout TIME]",
     "Converse with a model, by its checkpoint's chat template",
     "The chat template of the model's own files is used (chat_template.jinja, or chat_template in\n"
     "tokenizer_config.json; it needs python3 with jinja2), or that of DIR, a directory or a GGUF file, or "
     "--template.\n"
     "With --plain what you type goes on where the text ended. ^C ends an answer, ^D the chat, /reset forgets the "
     "conversation. An answer ends after --tokens (512). --restore-timeout is as for generate.\n"
     "With --json each answer is an object on a line.",
     true, ctl_cmd_chat},
    {"perplexity", "MODEL --text FILE | --ids N,N,... [--tokenizer FILE] [--tokens N] [--window N]",
     "How well a model foresees a text",
     "Prints exp of the mean negative log-probability of the first --tokens (512) of a text, which compares two\n"
     "checkpoints of one model, such as before and after `quantize`. FILE - is standard input. A context has at most\n"
     "--window (512) tokens; the next one begins with the last token of the one before.",
     true, ctl_cmd_perplexity},
    {"embed", "MODEL --text TEXT... | --file FILE [--json-lines] [--tokenizer FILE] [--dimensions N] [--unit]",
     "Embeddings of texts: hidden states of a model, for search and comparison",
     "Prints the numbers of each text on a line. FILE (- is standard input) has a text on each line; with "
     "--json-lines\n"
     "each line is JSON, a string or an object with a text. --dimensions keeps the first N numbers. --unit divides an\n"
     "embedding by its length, also if the model's modules.json does not say so.",
     true, ctl_cmd_embed},
    {"capture", "FILE [--symbol NAME=N]... [--option NAME=VALUE]... [--dry-run]",
     "Capture a graph file and show its cost",
     "FILE is graph text. --option sets one of `npugraphctl options`. --dry-run only plans: bytes, kernels and guards, "
     "nothing is kept.",
     true, ctl_cmd_capture},
    {"explain", "[ID | KEY | tag:N] [--limit N]",
     "Why replays missed, were padded, evicted, ran eagerly or were refused",
     "ID is a graph's digest or the first 6 or more digits of it, KEY the 16 digits of a key's hash (or key: and the\n"
     "first 6), tag:N a request by the tag that its client gave it. Without one: everything, and counts by reason.",
     false, ctl_cmd_explain},
    {"events", "[ID | KEY | tag:N] [--follow] [--limit N]", "What the daemon noted about captures and replays",
     "A line for each event, the oldest first; --follow goes on with what happens next, until it is ended. The last "
     "--limit (100)\n"
     "events are printed first. `explain` has the same as a table, with counts.",
     false, ctl_cmd_events},
    {"logs", "[--follow] [--level error|warning|notice|info|debug] [--since TIME]", "The daemon's log",
     "Prints the newest lines of the log, which the daemon keeps in memory (256 KiB); the journal has all. --level "
     "leaves\n"
     "out less severe lines, --since those before TIME: so long ago (10m, 2h, ...), or a time with its zone\n"
     "(2026-11-28T10:28:00Z). --follow goes on with what comes next, and says if the daemon has started again.\n"
     "With --json each line is an object, as with log-format = json. For administrators.",
     false, ctl_cmd_logs},
    {"doctor",
     "ID [--symbol NAME=N]... [--input NAME=@FILE]... [--seed N] | device [NAME] [--report FILE] | "
     "device [NAME] --probe FILE [--config FILE] [--ascend-libs DIR] [--ascend-lib-names LIST]",
     "Find the step at which a graph's results go wrong; or check a device",
     "Runs the graph without passes, after each pass, eagerly and as a replay, on random inputs (from --seed) or on "
     "those of\n"
     "files (raw bytes, all of them), and names the first step and node that differ. Exit status 1 when there is one.\n"
     "device checks memory, a decoder's operators against the host's, replays, mistakes and times of a device (the\n"
     "first, or NAME). --report writes all that to a file that can be sent, with the libraries and functions found.\n"
     "--probe asks an NPU of this machine what its documents leave open, without a daemon, for minutes, and writes a\n"
     "file that can be sent, and that npugraphd reads (device-facts). The other options are those of npugraphd.",
     false, ctl_cmd_doctor},
    {"trace",
     "ID [--symbol NAME=N]... [--input NAME=@FILE]... [--seed N] [--output FILE] | start [--events N] | "
     "stop [--form chrome|arrivals] [--output FILE]",
     "One replay of a graph, or all that the devices do, as a Chrome trace",
     "With ID: a span for each kernel. start and stop record what each stream slot ran, and how long that waited, in\n"
     "a ring of --events; --form arrivals gives what bench/schedsim replays. Open traces in Perfetto or\n"
     "chrome://tracing.",
     false, ctl_cmd_trace},
    {"buckets", "ID [--symbol NAME] [--captures N] [--set N,N,...] [--apply]",
     "Sizes seen of a symbol, and the buckets that would pad them least",
     "--captures: how many captures the proposed set may take (default: as many as there are buckets now). --set "
     "gives\n"
     "one instead. --apply makes it the graph's; executables that no request can reach any more are dropped.",
     false, ctl_cmd_buckets},
    {"replay",
     "FILE [--symbol NAME=N]... [--input NAME=SPEC]... [--host NAME=N,N]... [--option NAME=VALUE]... [--repeat N] "
     "[--eager] [--timing]",
     "Register, capture and replay a graph file",
     "SPEC: zeros, ones, random[:SEED] (default), arange, @FILE (raw bytes), or numbers N,N,... . Params and states "
     "are\n"
     "made and filled the same way. Prints results and the time of a replay.",
     true, ctl_cmd_replay},
    {"tokenize", "FILE TEXT | FILE --decode N,N,...", "Text to token ids, or back; needs no daemon",
     "FILE is a tokenizer.json or a directory that has one.", false, ctl_cmd_tokenize},
    {"cache", "[list | show ENTRY | verify | export FILE [ENTRY]... | import FILE | clear [ENTRY]]",
     "Compiled plans that are kept on disk",
     "ENTRY is an entry's name or the first 6 or more digits of it. show prints what a plan depends on, its graph,\n"
     "its kernels and its memory. verify reads everything and sets bad entries aside. export writes entries to a\n"
     "file here, for import into another daemon.",
     false, ctl_cmd_cache},
    {"drain", "[--grace TIME] [--stay]", "Finish what runs and stop the daemon",
     "--grace bounds the wait (500ms, 10s, ...). --stay only stops taking work in.", false, ctl_cmd_drain},
    {"reload", "", "Read the daemon's configuration again",
     "As SIGHUP and `systemctl reload npugraphd`: takes every option that changed and that a reload can change, and\n"
     "names those that need a restart. If a file has a mistake, nothing changes. For operators and\n"
     "administrators.",
     false, ctl_cmd_reload},
    {"config", "[show [OPTION] | diff | set OPTION VALUE... | set OPTION=VALUE... | unset OPTION...]",
     "Options of the daemon: values, where they were set, what changes them",
     "show tells for each option its value, the file and line that set it, and what changes it: set (or a reload), a\n"
     "reload, or only a restart. diff compares what runs with what the files and the command line say now. Both are\n"
     "for operators and administrators.\n"
     "set changes an option of the running daemon, unset gives it back to the files. The value stays until the daemon\n"
     "ends, also when the files are reloaded, and is not written to them. A list takes several values, or none.\n"
     "OPTION=VALUE... and unset OPTION... change several options: all of them, or none if one is refused. For\n"
     "administrators; options about files, addresses and rights are left to the files.",
     false, ctl_cmd_config},
    {"tokens",
     "[new NAME [--expires TIME] [--role none|viewer|user|operator|admin] [--file FILE] | list --file FILE | revoke "
     "NAME [--keep-newest] --file FILE | hash]",
     "Make and revoke bearer tokens; needs no daemon",
     "FILE is the daemon's token-file, which has hashes of tokens; a reload makes the daemon read it. new prints a "
     "new\n"
     "token, once, and adds its line to FILE, or prints that too. TIME is 12h, 30d, 2027-01-31T12:00:00Z or never\n"
     "(default 90d). Several tokens may have one name, and then have one role. revoke removes them all, or with "
     "--keep-newest all but the "
     "last.\n"
     "hash prints what FILE has of a token that it reads from standard input.",
     false, ctl_cmd_tokens},
    {"contexts", "", "Daemons that --context names",
     "Context NAME is the file ~/.config/npugraph/contexts/NAME.conf, with lines such as address = HOST:PORT, and\n"
     "tls-ca, tls-cert, tls-key, tls-server-name and token-file as the options are called. --context NAME, or\n"
     "NPUGRAPH_CONTEXT, chooses one; options of the command line come before its own. Without either, and without\n"
     "an address, the context default is used, if there is one.",
     false, ctl_cmd_contexts},
    {"completion", "bash|zsh|fish", "Print a shell's completion",
     "Packages install it. To try it: source <(npugraphctl completion bash).", false, ctl_cmd_completion},
    {NULL, NULL, NULL, NULL, false, NULL},
};

const struct ctl_command *ctl_find_command(const char *name)
{
    if (strcmp(name, "graph") == 0)
        name = "graphs";
    for (const struct ctl_command *c = ctl_commands; c->name != NULL; c++)
        if (strcmp(c->name, name) == 0)
            return c;
    return NULL;
}

static void print_overview(FILE *to)
{
    fprintf(to, "Usage: npugraphctl [OPTION]... COMMAND [ARGUMENT]...\n\nOperates npugraphd.\n\nCommands:\n");
    for (const struct ctl_command *c = ctl_commands; c->name != NULL; c++)
        fprintf(to, "  %-11s %s\n", c->name, c->help);
    fprintf(to, "\nOptions:\n"
                "  --address ADDR     unix:PATH or HOST:PORT (default $NPUGRAPH_ADDRESS, then\n"
                "                     unix:/run/npugraphd/npugraphd.sock)\n"
                "  --context NAME     a daemon that a file of yours describes: help contexts\n"
                "  --json             print JSON instead of tables\n"
                "  --timeout TIME     bound of each call (default 60s)\n"
                "  --tls-ca FILE, --tls-cert FILE, --tls-key FILE, --tls-server-name NAME\n"
                "                     TLS with a client certificate (PEM), for HOST:PORT\n"
                "  --token-file FILE  bearer token (default $NPUGRAPH_TOKEN_FILE)\n"
                "  --color WHEN       auto, always, never\n"
                "  --quiet            no progress bars\n"
                "  --watch TIME       run a command that lists again and again; q leaves\n"
                "  --help, --version\n"
                "\n`npugraphctl help COMMAND` tells more of one.\n");
}

static void print_command_help(const struct ctl_command *c)
{
    printf("Usage: npugraphctl %s%s%s\n\n%s.\n", c->name, c->args[0] != '\0' ? " " : "", c->args, c->help);
    if (c->details != NULL)
        printf("%s\n", c->details);
}

/* Prints an error: for people, or with --json as an object on one line, so that scripts need not read sentences. A
 * screen is left first, since what is printed on it is gone with it. */
static void print_error(const char *reason, const char *message)
{
    json_t *error;
    char *text;

    ctl_screen_leave();
    if (!errors_in_json) {
        fprintf(stderr, "npugraphctl: %s%s%s%s\n", message, reason[0] != '\0' ? " [" : "", reason,
                reason[0] != '\0' ? "]" : "");
        return;
    }
    error = json_pack("{s:{s:s, s:s}}", "error", "reason", reason, "message", message);
    text = json_dumps(error, JSON_COMPACT | JSON_ENSURE_ASCII);
    fprintf(stderr, "%s\n", text != NULL ? text : "{\"error\":{\"reason\":\"\",\"message\":\"not UTF-8\"}}");
    json_decref(error);
    free(text);
}

static void format_error(const char *reason, const char *fmt, va_list args)
{
    char *message = NULL;

    if (vasprintf(&message, fmt, args) < 0)
        message = NULL;
    print_error(reason, message != NULL ? message : fmt);
    free(message);
}

int ctl_error(const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    format_error("", fmt, ap);
    va_end(ap);
    return 1;
}

int ctl_usage(const struct ctl_command *command, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    format_error(errors_in_json ? "USAGE" : "", fmt, ap);
    va_end(ap);
    if (errors_in_json)
        return 2;
    if (command != NULL)
        fprintf(stderr, "Usage: npugraphctl %s%s%s\n", command->name, command->args[0] != '\0' ? " " : "",
                command->args);
    else
        fputs("Try: npugraphctl --help\n", stderr);
    return 2;
}

int ctl_unknown(const struct ctl_command *command, const struct ngd_nearest *nearest, const char *before,
                const char *what)
{
    char hint[96];

    return ctl_usage(command, "%s%s%s", what, nearest->word, ngd_nearest_hint(nearest, before, hint, sizeof(hint)));
}

/* Prints a command that does not exist; returns 2. */
static int unknown_command(const char *name)
{
    struct ngd_nearest nearest;

    ngd_nearest_init(&nearest, name, strlen(name));
    for (const struct ctl_command *c = ctl_commands; c->name != NULL; c++)
        ngd_nearest_add(&nearest, c->name);
    return ctl_unknown(NULL, &nearest, "", "there is no command ");
}

int ctl_fail(const struct npugraph_error *err)
{
    print_error(err->reason, err->message);
    return 1;
}

bool ctl_connect(struct ctl *ctl)
{
    struct npugraph_error err = {0};

    if (ctl->client != NULL)
        return true;
    if (!ctl_context_use(ctl))
        return false;
    if (npugraph_connect(&ctl->connect, &ctl->client, &err) == 0)
        return true;
    ctl_fail(&err);
    return false;
}

ProtobufCMessage *ctl_call(struct ctl *ctl, const char *method, const ProtobufCMessage *request,
                           const ProtobufCMessageDescriptor *response_type)
{
    struct npugraph_error err = {0};
    ProtobufCMessage *reply = NULL;

    if (!ctl_connect(ctl))
        return NULL;
    if (npugraph__unary(ctl->client, method, request, response_type, &reply, &err) != 0) {
        ctl_fail(&err);
        return NULL;
    }
    return reply;
}

/* ---- options ---------------------------------------------------------------------------------------------- */

static bool in_list(const char *list, const char *name, size_t n)
{
    for (const char *p = list; *p != '\0'; p += strcspn(p, " "), p += strspn(p, " "))
        if (strncmp(p, name, n) == 0 && (p[n] == ' ' || p[n] == '\0'))
            return true;
    return false;
}

static void unknown_ctl_option(const struct ctl_command *command, const char *arg, const char *flags,
                               const char *valued)
{
    struct ngd_nearest nearest;

    ngd_nearest_init(&nearest, arg + 2, strlen(arg + 2));
    nearest.word_len = strcspn(arg + 2, "=");
    ngd_nearest_add_words(&nearest, flags);
    ngd_nearest_add_words(&nearest, valued);
    ngd_nearest_add_words(&nearest, GLOBAL_FLAGS " help " GLOBAL_VALUED);
    ctl_unknown(command, &nearest, "--", "unknown option --");
}

const char *ctl_next_option(struct ctl_options *o, const char *flags, const char *valued, const char **value_p)
{
    const char *arg = o->at < o->argc ? o->argv[o->at] : NULL, *name, *eq;
    size_t n;

    *value_p = NULL;
    if (arg == NULL || strncmp(arg, "--", 2) != 0)
        return NULL;
    o->at++;
    if (arg[2] == '\0')
        return NULL;
    name = arg + 2;
    eq = strchr(name, '=');
    n = eq != NULL ? (size_t)(eq - name) : strlen(name);
    if (in_list(flags, name, n) && eq == NULL)
        return name;
    if (!in_list(valued, name, n)) {
        unknown_ctl_option(o->command, arg, flags, valued);
        return "?";
    }
    if (eq == NULL && o->at == o->argc) {
        ctl_usage(o->command, "%s needs a value", arg);
        return "?";
    }
    *value_p = eq != NULL ? eq + 1 : o->argv[o->at++];
    if (eq != NULL)
        o->argv[o->at - 1][2 + n] = '\0'; /* our own argv: the name ends here now */
    return name;
}

const char *ctl_next_argument(struct ctl_options *o)
{
    return o->at < o->argc ? o->argv[o->at++] : NULL;
}

int ctl_no_arguments(int argc, char **argv)
{
    struct ctl_options o = {ctl_find_command(argv[0]), argc, 1, argv};
    const char *value;

    if (argc == 1)
        return 0;
    if (ctl_next_option(&o, "", "", &value) != NULL)
        return 2;
    return ctl_usage(o.command, "%s takes no arguments", argv[0]);
}

const char *ctl_next_beside(struct ctl_options *o, const char *flags, const char *valued, const char **value_p,
                            const char **arg_p, const char *one)
{
    for (;;) {
        const char *name = ctl_next_option(o, flags, valued, value_p), *arg;

        if (name != NULL)
            return name;
        arg = ctl_next_argument(o);
        if (arg == NULL)
            return NULL;
        if (*arg_p != NULL) {
            ctl_usage(o->command, "%s", one);
            return "?";
        }
        *arg_p = arg;
    }
}

int ctl_parse_word(const struct ctl_command *command, const char *option, const ProtobufCEnumDescriptor *desc,
                   const char *word)
{
    int value = ngd_word_value(desc, word);
    struct ngd_strbuf words;

    if (value != 0)
        return value;
    ngd_strbuf_init(&words);
    ngd_word_list(desc, &words);
    ctl_usage(command, "--%s cannot be %s; it is one of: %s", option, word, ngd_strbuf_str(&words));
    ngd_strbuf_fini(&words);
    return 0;
}

bool ctl_parse_uint(const char *text, uint64_t max, uint64_t *value_p)
{
    char *end;
    unsigned long long v;

    if (text[0] < '0' || text[0] > '9')
        return false;
    errno = 0;
    v = strtoull(text, &end, 10);
    if (errno != 0 || *end != '\0' || v > max)
        return false;
    *value_p = v;
    return true;
}

bool ctl_parse_float(const char *text, double *value_p)
{
    char *end;
    double v = strtod(text, &end);

    if (end == text || *end != '\0' || !isfinite(v))
        return false;
    *value_p = v;
    return true;
}

bool ctl_parse_bytes(const char *text, uint64_t *value_p)
{
    return ngd_parse_size(text, value_p) == NGD_OK;
}

/* ---- main -------------------------------------------------------------------------------------------------- */

static int set_colour(struct ctl *ctl, const char *when)
{
    if (strcmp(when, "always") == 0)
        ctl->colour = true;
    else if (strcmp(when, "never") == 0)
        ctl->colour = false;
    else if (strcmp(when, "auto") != 0)
        return ctl_usage(NULL, "--color takes auto, always or never");
    return 0;
}

static int global_option(struct ctl *ctl, const char *name, const char *value)
{
    ngd_nsec_t t;

    if (strcmp(name, "address") == 0)
        ctl->connect.address = value;
    else if (strcmp(name, "context") == 0)
        ctl->context_name = value;
    else if (strcmp(name, "tls-ca") == 0)
        ctl->connect.tls_ca = value;
    else if (strcmp(name, "tls-cert") == 0)
        ctl->connect.tls_cert = value;
    else if (strcmp(name, "tls-key") == 0)
        ctl->connect.tls_key = value;
    else if (strcmp(name, "tls-server-name") == 0)
        ctl->connect.tls_server_name = value;
    else if (strcmp(name, "token-file") == 0)
        ctl->connect.token_file = value;
    else if (strcmp(name, "json") == 0)
        ctl->json = errors_in_json = true;
    else if (strcmp(name, "quiet") == 0)
        ctl->quiet = true;
    else if (strcmp(name, "color") == 0)
        return set_colour(ctl, value);
    else if (strcmp(name, "watch") == 0)
        return ctl_watch_parse(ctl, value);
    else if (strcmp(name, "timeout") == 0) {
        if (ngd_parse_time(value, &t) != NGD_OK || t < NGD_MSEC || t > 86400 * NGD_SEC)
            return ctl_usage(NULL, "--timeout takes a time from 1ms to 24h, such as 500ms or 30s");
        ctl->connect.timeout_ms = (uint32_t)(t / NGD_MSEC);
    }
    return 0;
}

/* Takes global options out of the command's arguments, since people write them there too. Arguments after "--" are left
 * alone, and so are values of options: the word after --prompt is never an option. */
static int hoist_options(struct ctl *ctl, int *argc_p, char **argv)
{
    int n = 1, rc = 0;

    for (int i = 1; i < *argc_p; i++) {
        const char *name = strncmp(argv[i], "--", 2) == 0 ? argv[i] + 2 : "", *value = strchr(name, '=');
        size_t len = value != NULL ? (size_t)(value - name) : strlen(name);
        bool text = strcmp(argv[i - 1], "--prompt") == 0;

        if (strcmp(argv[i], "--") == 0) {
            while (i < *argc_p)
                argv[n++] = argv[i++];
        } else if (rc == 0 && !text && len > 0 && value == NULL && in_list(GLOBAL_FLAGS, name, len)) {
            rc = global_option(ctl, name, NULL);
        } else if (rc == 0 && !text && len > 0 && in_list(GLOBAL_VALUED, name, len)) {
            if (value == NULL && i + 1 == *argc_p)
                return ctl_usage(NULL, "%s needs a value", argv[i]);
            if (value != NULL)
                argv[i][2 + len] = '\0';
            rc = global_option(ctl, name, value != NULL ? value + 1 : argv[++i]);
        } else {
            argv[n++] = argv[i];
        }
    }
    *argc_p = n;
    return rc;
}

static int help(int argc, char **argv)
{
    const struct ctl_command *c = argc > 1 ? ctl_find_command(argv[1]) : NULL;

    if (argc > 1 && c == NULL)
        return unknown_command(argv[1]);
    if (c != NULL)
        print_command_help(c);
    else
        print_overview(stdout);
    return 0;
}

static int run_command(struct ctl *ctl, const struct ctl_command *c, int argc, char **argv)
{
    int rc;

    if (argc > 1 && strcmp(argv[1], "--help") == 0) {
        print_command_help(c);
        return 0;
    }
    ctl->connect.no_session = !c->session;
    ctl->connect.client_name = "npugraphctl";
    rc = ctl->watch != 0 ? ctl_watch(ctl, c, argc, argv) : c->run(ctl, argc, argv);
    ctl_flush(ctl);
    npugraph_disconnect(ctl->client);
    ctl_context_fini(&ctl->context);
    return rc;
}

static int run_ctl(int argc, char **argv)
{
    struct ctl_options o = {NULL, argc, 1, argv};
    struct ctl ctl = {0};
    const struct ctl_command *c;
    const char *name, *value;
    int rc;

    setlocale(LC_ALL, "");
    npugraph_connect_params_init(&ctl.connect);
    ctl.colour = isatty(STDOUT_FILENO) != 0 && getenv("NO_COLOR") == NULL;
    while ((name = ctl_next_option(&o, GLOBAL_FLAGS " help version", GLOBAL_VALUED, &value)) != NULL) {
        if (strcmp(name, "?") == 0)
            return 2;
        if (strcmp(name, "help") == 0)
            return help(0, NULL);
        if (strcmp(name, "version") == 0) {
            printf("npugraphctl %s\n", npugraph_version());
            return 0;
        }
        rc = global_option(&ctl, name, value);
        if (rc != 0)
            return rc;
    }
    if (o.at == argc) {
        print_overview(stderr);
        return 2;
    }
    if (strcmp(argv[o.at], "help") == 0)
        return help(argc - o.at, argv + o.at);
    c = ctl_find_command(argv[o.at]);
    if (c == NULL)
        return unknown_command(argv[o.at]);
    argc -= o.at;
    rc = hoist_options(&ctl, &argc, argv + o.at);
    if (rc != 0)
        return rc;
    ctl.root = json_object();
    ctl.out = stdout;
    rc = run_command(&ctl, c, argc, argv + o.at);
    json_decref(ctl.root);
    return rc;
}

/* Why stdout failed. The errno of an earlier write is gone by now, so one more is tried. */
static const char *why_not_written(void)
{
    clearerr(stdout);
    return fputc('\n', stdout) == EOF || fflush(stdout) != 0 ? strerror(errno) : "an earlier write failed";
}

/* Checks that all output was written. On a full disk, a script would take half an answer for a whole one. */
int main(int argc, char **argv)
{
    int rc = run_ctl(argc, argv);

    if (fflush(stdout) == 0 && !ferror(stdout))
        return rc;
    ctl_error("the output could not be written: %s", why_not_written());
    return rc != 0 ? rc : 1;
}
