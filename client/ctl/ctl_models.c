/* SPDX-License-Identifier: Apache-2.0 */
/* Models and sequences: models, load, unload, sequences, generate, tokenize. */
#include "client/ctl/ctl.h"
#include "client/hf/npugraph_hf.h"
#include "proto/npugraph.pb-c.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

static uint64_t now_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* ---- lists ----------------------------------------------------------------------------------------------- */

static void put_model_row(struct ctl_table *t, const Npugraph__V1__ModelInfo *m)
{
    ctl_row(t);
    ctl_str(t, m->name);
    ctl_int(t, m->sequences);
    ctl_bytes(t, m->weight_bytes);
    ctl_bytes(t, m->kv_bytes);
    ctl_ratio(t, m->num_blocks != 0 ? (double)m->blocks_used / m->num_blocks : 0);
    ctl_int(t, m->max_context);
    ctl_int(t, m->tokens_prefill);
    ctl_int(t, m->tokens_shared);
    ctl_int(t, m->tokens_decode);
    ctl_int(t, (m->prefill != NULL ? m->prefill->captures : 0) + (m->decode != NULL ? m->decode->captures : 0));
    ctl_int(t, (m->prefill != NULL ? m->prefill->replays : 0) + (m->decode != NULL ? m->decode->replays : 0));
    ctl_str(t, m->owner);
    ctl_str(t, m->audience);
    ctl_str(t, m->description);
}

int ctl_cmd_models(struct ctl *ctl, int argc, char **argv)
{
    static const struct ctl_column columns[] = {
        {"MODEL", "name", false},           {"SEQUENCES", "sequences", true},      {"WEIGHTS", "weight_bytes", true},
        {"KV", "kv_bytes", true},           {"KV USED", "kv_used", true},          {"CONTEXT", "max_context", true},
        {"PROMPT", "tokens_prefill", true}, {"SHARED", "tokens_shared", true},     {"TOKENS", "tokens_decode", true},
        {"CAPTURES", "captures", true},     {"REPLAYS", "replays", true},          {"OWNER", "owner", false},
        {"FOR", "audience", false},         {"DESCRIPTION", "description", false},
    };
    Npugraph__V1__ListModelsRequest req = NPUGRAPH__V1__LIST_MODELS_REQUEST__INIT;
    Npugraph__V1__ListModelsResponse *r;
    struct ctl_table *t;

    if (ctl_no_arguments(argc, argv) != 0)
        return 2;
    r = (void *)ctl_call(ctl, "/npugraph.v1.Sequences/ListModels", &req.base,
                         &npugraph__v1__list_models_response__descriptor);
    if (r == NULL)
        return 1;
    t = ctl_table_new(ctl, "models", columns, sizeof(columns) / sizeof(columns[0]));
    for (size_t i = 0; i < r->n_models; i++)
        put_model_row(t, r->models[i]);
    ctl_table_end(t, "No models. Load one: npugraphctl load DIR");
    npugraph__free_message(r);
    return 0;
}

int ctl_cmd_sequences(struct ctl *ctl, int argc, char **argv)
{
    static const struct ctl_column columns[] = {
        {"SESSION", "session", true},   {"MODEL", "model", false},  {"STATE", "state", false},
        {"POSITION", "position", true}, {"BLOCKS", "blocks", true}, {"TOKENS", "tokens", true},
    };
    Npugraph__V1__ListSequencesRequest req = NPUGRAPH__V1__LIST_SEQUENCES_REQUEST__INIT;
    Npugraph__V1__ListSequencesResponse *r;
    struct ctl_table *t;

    if (ctl_no_arguments(argc, argv) != 0)
        return 2;
    r = (void *)ctl_call(ctl, "/npugraph.v1.Sequences/List", &req.base,
                         &npugraph__v1__list_sequences_response__descriptor);
    if (r == NULL)
        return 1;
    t = ctl_table_new(ctl, "sequences", columns, sizeof(columns) / sizeof(columns[0]));
    for (size_t i = 0; i < r->n_sequences; i++) {
        ctl_row(t);
        ctl_int(t, r->sequences[i]->session);
        ctl_str(t, r->sequences[i]->model);
        ctl_word(t, &npugraph__v1__sequence_state__descriptor, r->sequences[i]->state);
        ctl_int(t, r->sequences[i]->position);
        ctl_int(t, r->sequences[i]->blocks);
        ctl_int(t, r->sequences[i]->tokens);
    }
    ctl_table_end(t, "No sequences.");
    npugraph__free_message(r);
    return 0;
}

/* ---- load, unload ------------------------------------------------------------------------------------------ */

#define LOAD_NUMBER_MAX (1 << 24)
#define DEVICES_MAX     16 /* most devices of a group */
#define SHARES_MAX      64 /* identities that a model is shared with */

struct list {
    const char *items[SHARES_MAX];
    size_t n;
    char text[4096];
};

/* Splits "a,b" into its parts. Returns false if a part is empty or if there are more than `most`. The list lives as
 * long as the program. */
static bool split_list(struct list *list, const char *value, size_t most)
{
    char *at = list->text, *item;

    list->n = 0;
    if (strlen(value) >= sizeof(list->text))
        return false;
    snprintf(list->text, sizeof(list->text), "%s", value);
    while ((item = strsep(&at, ",")) != NULL) {
        if (*item == '\0' || list->n == most)
            return false;
        list->items[list->n++] = item;
    }
    return true;
}

static int load_devices(const struct ctl_command *command, struct npugraph_model_params *p, const char *value)
{
    static struct list list;

    if (!split_list(&list, value, DEVICES_MAX))
        return ctl_usage(command, "--devices takes a list of 1 to %d devices, as in: host:0,host:1", DEVICES_MAX);
    p->devices = list.items;
    p->n_devices = list.n;
    return 0;
}

static int share_list(const struct ctl_command *command, const char *name, struct list *list, const char *value)
{
    return split_list(list, value, SHARES_MAX)
               ? 0
               : ctl_usage(command, "--%s takes a list of 1 to %d identities, as in: uid:1000,group:team", name,
                           SHARES_MAX);
}

static int load_share(const struct ctl_command *command, struct npugraph_model_params *p, const char *value)
{
    static struct list list;
    int rc = share_list(command, "share-with", &list, value);

    p->share_with = list.items;
    p->n_share_with = list.n;
    return rc;
}

static int load_option(const struct ctl_command *command, struct npugraph_model_params *p, const char *name,
                       const char *value)
{
    uint64_t v = 0;

    if (strcmp(name, "devices") == 0) {
        return load_devices(command, p, value);
    } else if (strcmp(name, "share-with") == 0) {
        return load_share(command, p, value);
    } else if (strcmp(name, "public") == 0) {
        p->make_public = true;
    } else if (strcmp(name, "private") == 0) {
        p->make_private = true;
    } else if (strcmp(name, "share-prefixes") == 0) {
        p->share_prefixes = true;
    } else if (strcmp(name, "name") == 0) {
        p->name = value;
    } else if (strcmp(name, "kv-dtype") == 0) {
        p->kv_dtype = value;
    } else if (strcmp(name, "kv-policy") == 0) {
        p->kv_policy = ctl_parse_word(command, name, &npugraph__v1__kv_policy__descriptor, value);
        return p->kv_policy != NPUGRAPH_KV_POLICY_DEFAULT ? 0 : 2;
    } else if (strcmp(name, "no-prefix-sharing") == 0) {
        p->no_prefix_sharing = true;
    } else if (strcmp(name, "kv-bytes") == 0) {
        if (!ctl_parse_bytes(value, &p->kv_bytes))
            return ctl_usage(command, "--kv-bytes takes a size such as 64M");
    } else {
        if (!ctl_parse_uint(value, LOAD_NUMBER_MAX, &v) || v == 0)
            return ctl_usage(command, "--%s is %s; it takes a number from 1 to %d", name, value, LOAD_NUMBER_MAX);
        if (strcmp(name, "max-context") == 0)
            p->max_context = (uint32_t)v;
        else if (strcmp(name, "max-batch") == 0)
            p->max_batch = (uint32_t)v;
        else if (strcmp(name, "chunk") == 0)
            p->prefill_chunk = (uint32_t)v;
        else
            p->block_size = (uint32_t)v;
    }
    return 0;
}

int ctl_cmd_load(struct ctl *ctl, int argc, char **argv)
{
    struct ctl_options o = {ctl_find_command(argv[0]), argc, 1, argv};
    struct npugraph_model_params params;
    struct npugraph_error err = {0};
    struct ctl_progress bar;
    struct ctl_fields *f;
    const char *name, *value, *dir = NULL;
    uint64_t begin = now_ns();
    int rc;

    npugraph_model_params_init(&params);
    while ((name = ctl_next_beside(&o, "no-prefix-sharing share-prefixes public private",
                                   "name max-context max-batch chunk block-size kv-bytes kv-dtype kv-policy devices "
                                   "share-with",
                                   &value, &dir, "one directory, please")) != NULL)
        if (strcmp(name, "?") == 0 || load_option(o.command, &params, name, value) != 0)
            return 2;
    if (dir == NULL)
        return ctl_usage(o.command, "load needs a checkpoint directory");
    if (!ctl_connect(ctl))
        return 1;
    ctl_progress_start(&bar, ctl, "loading");
    rc = npugraph_model_load(ctl->client, dir, &params, ctl_progress_update, &bar, &err);
    ctl_progress_end(&bar);
    if (rc != 0)
        return ctl_fail(&err);
    if (ctl->json) {
        f = ctl_fields_new(ctl, NULL);
        ctl_field_ms(f, "Took", "load_ms", (now_ns() - begin) / 1000000);
        ctl_fields_end(f);
    }
    return ctl_cmd_models(ctl, 1, argv);
}

int ctl_cmd_share(struct ctl *ctl, int argc, char **argv)
{
    struct ctl_options o = {ctl_find_command(argv[0]), argc, 1, argv};
    struct npugraph_error err = {0};
    const char *name, *value, *model = NULL;
    bool everybody = false, nobody = false;
    struct list with = {.n = 0};

    while ((name = ctl_next_beside(&o, "public private", "with", &value, &model, "one model, please")) != NULL) {
        if (strcmp(name, "?") == 0 || (strcmp(name, "with") == 0 && share_list(o.command, name, &with, value) != 0))
            return 2;
        everybody |= strcmp(name, "public") == 0;
        nobody |= strcmp(name, "private") == 0;
    }
    if (model == NULL || everybody + nobody + (with.n != 0) != 1)
        return ctl_usage(o.command, "share needs a model's name and one of --with, --public and --private");
    if (!ctl_connect(ctl))
        return 1;
    if (npugraph_model_share(ctl->client, model, with.items, with.n, everybody, &err) != 0)
        return ctl_fail(&err);
    return ctl_cmd_models(ctl, 1, argv);
}

int ctl_cmd_unload(struct ctl *ctl, int argc, char **argv)
{
    struct ctl_options o = {ctl_find_command(argv[0]), argc, 1, argv};
    struct npugraph_error err = {0};
    const char *name, *value, *model = NULL;
    bool force = false;

    while ((name = ctl_next_beside(&o, "force", "", &value, &model, "one model, please")) != NULL) {
        if (strcmp(name, "?") == 0)
            return 2;
        force = true;
    }
    if (model == NULL)
        return ctl_usage(o.command, "unload needs a model's name");
    if (!ctl_connect(ctl))
        return 1;
    if (npugraph_model_unload(ctl->client, model, force, &err) != 0)
        return ctl_fail(&err);
    if (!ctl->json)
        printf("Unloaded %s.\n", model);
    return 0;
}

/* ---- tokens -------------------------------------------------------------------------------------------------- */

static struct npugraph_tokenizer *open_tokenizer(const char *path)
{
    struct npugraph_tokenizer *tok = NULL;
    struct npugraph_error err = {0};
    struct stat sb;
    char full[4096];

    snprintf(full, sizeof(full), "%s%s", path, stat(path, &sb) == 0 && S_ISDIR(sb.st_mode) ? "/tokenizer.json" : "");
    if (npugraph_tokenizer_open(full, &tok, &err) != 0) {
        ctl_fail(&err);
        return NULL;
    }
    return tok;
}

/* Parses "1,2,3" to ids. The caller frees *ids_p with free(). */
static bool parse_ids(const char *text, int32_t **ids_p, size_t *n_p)
{
    int32_t *ids = calloc(strlen(text) + 1, sizeof(*ids));
    size_t n = 0;
    char *end;

    while (ids != NULL && *text != '\0') {
        long v;

        errno = 0;
        v = strtol(text, &end, 10);
        if (end == text || errno != 0 || v < 0 || v > INT32_MAX || (*end != ',' && *end != '\0')) {
            free(ids);
            return false;
        }
        ids[n++] = (int32_t)v;
        text = *end == ',' ? end + 1 : end;
    }
    *ids_p = ids;
    *n_p = n;
    return ids != NULL;
}

static int decode_ids(const struct npugraph_tokenizer *tok, const char *list)
{
    struct npugraph_detokenizer *text = NULL;
    struct npugraph_error err = {0};
    const char *part;
    int32_t *ids = NULL;
    size_t n = 0, len;
    int rc;

    if (!parse_ids(list, &ids, &n))
        return ctl_usage(ctl_find_command("tokenize"), "--decode takes token ids, N,N,...");
    rc = npugraph_detokenizer_create(tok, NULL, 0, true, &text, &err);
    for (size_t i = 0; rc == 0 && i <= n; i++) {
        rc = i < n ? npugraph_detokenizer_add(text, ids[i], &part, &len, &err)
                   : npugraph_detokenizer_end(text, &part, &len, &err);
        if (rc == 0)
            fwrite(part, 1, len, stdout);
    }
    npugraph_detokenizer_destroy(text);
    free(ids);
    if (rc != 0)
        return ctl_fail(&err);
    putchar('\n');
    return 0;
}

static int print_ids(struct ctl *ctl, const struct npugraph_tokenizer *tok, const char *text)
{
    struct npugraph_error err = {0};
    json_t *array = json_array();
    int32_t *ids = NULL;
    size_t n = 0;

    if (npugraph_tokenizer_encode(tok, text, strlen(text), NPUGRAPH_ENCODE_SPECIAL | NPUGRAPH_ENCODE_TEMPLATE, &ids, &n,
                                  &err) != 0) {
        json_decref(array);
        return ctl_fail(&err);
    }
    for (size_t i = 0; i < n; i++) {
        if (!ctl->json)
            printf("%s%d", i != 0 ? "," : "", ids[i]);
        json_array_append_new(array, json_integer(ids[i]));
    }
    if (!ctl->json)
        putchar('\n');
    json_object_set_new(ctl->root, "ids", array);
    free(ids);
    return 0;
}

int ctl_cmd_tokenize(struct ctl *ctl, int argc, char **argv)
{
    struct ctl_options o = {ctl_find_command(argv[0]), argc, 1, argv};
    const char *file = ctl_next_argument(&o), *name, *value, *ids = NULL, *text;
    struct npugraph_tokenizer *tok;
    int rc;

    if (file == NULL)
        return ctl_usage(o.command, "tokenize needs a tokenizer.json");
    while ((name = ctl_next_option(&o, "", "decode", &value)) != NULL) {
        if (strcmp(name, "?") == 0)
            return 2;
        ids = value;
    }
    text = ctl_next_argument(&o);
    if ((text == NULL) == (ids == NULL) || ctl_next_argument(&o) != NULL)
        return ctl_usage(o.command, "tokenize takes one text or --decode");
    tok = open_tokenizer(file);
    if (tok == NULL)
        return 1;
    rc = ids != NULL ? decode_ids(tok, ids) : print_ids(ctl, tok, text);
    npugraph_tokenizer_close(tok);
    return rc;
}

/* ---- generate ------------------------------------------------------------------------------------------------ */

struct generation {
    struct ctl *ctl;
    const char *model, *prompt, *ids_text, *tokenizer;
    struct npugraph_tokenizer *tok;
    struct npugraph_detokenizer *detokenizer; /* NULL: there is no tokenizer */
    struct npugraph_sampling sampling;
    const char *stop[NPUGRAPH_STOPS_MAX];
    size_t n_stop;
    struct npugraph_stops *stops; /* NULL: there are no stop strings */
    bool stopped;
    bool logprobs, timing;
    struct npugraph_timing prompt_time, tokens_time;
    uint64_t top;
    enum npugraph_priority priority;
    uint64_t tokens, got;
    uint64_t begin, first, last;
    int32_t *ids;
    size_t n_ids;
    json_t *out, *out_logprobs;
    char *text; /* the text so far, for --json with a tokenizer */
    size_t n_text;
};

static bool take_priority(struct generation *g, const char *value)
{
    g->priority = ngd_word_value(&npugraph__v1__priority__descriptor, value);
    return g->priority != NPUGRAPH_PRIORITY_DEFAULT;
}

static bool generate_option(struct generation *g, const char *name, const char *value)
{
    uint64_t v = 0;
    double d = 0;

    if (strcmp(name, "prompt") == 0)
        return (g->prompt = value) != NULL;
    if (strcmp(name, "ids") == 0)
        return (g->ids_text = value) != NULL;
    if (strcmp(name, "tokenizer") == 0)
        return (g->tokenizer = value) != NULL;
    if (strcmp(name, "timing") == 0)
        return (g->timing = true);
    if (strcmp(name, "priority") == 0)
        return take_priority(g, value);
    if (strcmp(name, "stop") == 0 && g->n_stop < NPUGRAPH_STOPS_MAX)
        return (g->stop[g->n_stop++] = value) != NULL;
    if (strcmp(name, "logprobs") == 0)
        return g->logprobs = ctl_parse_uint(value, NPUGRAPH_LOGPROBS_MAX, &g->top);
    if (strcmp(name, "temperature") == 0 || strcmp(name, "top-p") == 0) {
        if (!ctl_parse_float(value, &d) || d < 0)
            return false;
        *(name[1] == 'e' ? &g->sampling.temperature : &g->sampling.top_p) = (float)d;
        return true;
    }
    if (!ctl_parse_uint(value, strcmp(name, "seed") == 0 ? UINT64_MAX : INT32_MAX, &v))
        return false;
    if (strcmp(name, "tokens") == 0)
        return (g->tokens = v) > 0;
    if (strcmp(name, "top-k") == 0)
        g->sampling.top_k = (int32_t)v;
    else
        g->sampling.seed = v;
    return true;
}

static int generate_arguments(struct generation *g, int argc, char **argv)
{
    struct ctl_options o = {ctl_find_command(argv[0]), argc, 1, argv};
    const char *name, *value;

    while ((name = ctl_next_beside(&o, "timing",
                                   "tokenizer prompt ids tokens temperature top-k top-p seed stop logprobs priority",
                                   &value, &g->model, "one model, please")) != NULL) {
        if (strcmp(name, "?") == 0)
            return 2;
        if (!generate_option(g, name, value))
            return ctl_usage(o.command, "--%s cannot be %s", name, value);
    }
    if (g->model == NULL || (g->prompt == NULL) == (g->ids_text == NULL))
        return ctl_usage(o.command, "generate needs a model and either --prompt or --ids");
    if (g->prompt != NULL && g->tokenizer == NULL)
        return ctl_usage(o.command, "--prompt needs --tokenizer");
    if (g->n_stop != 0 && g->tokenizer == NULL)
        return ctl_usage(o.command, "--stop needs --tokenizer");
    return 0;
}

static int make_prompt(struct generation *g)
{
    struct npugraph_error err = {0};

    if (g->tokenizer != NULL && (g->tok = open_tokenizer(g->tokenizer)) == NULL)
        return 1;
    if (g->ids_text != NULL) {
        if (!parse_ids(g->ids_text, &g->ids, &g->n_ids))
            return ctl_usage(ctl_find_command("generate"), "--ids takes token ids, N,N,...");
    } else if (npugraph_tokenizer_encode(g->tok, g->prompt, strlen(g->prompt),
                                         NPUGRAPH_ENCODE_SPECIAL | NPUGRAPH_ENCODE_TEMPLATE, &g->ids, &g->n_ids,
                                         &err) != 0) {
        return ctl_fail(&err);
    }
    if (g->tok != NULL && npugraph_detokenizer_create(g->tok, g->ids, g->n_ids, false, &g->detokenizer, &err) != 0)
        return ctl_fail(&err);
    return 0;
}

static void show_text(struct generation *g, const char *text, size_t n)
{
    char *more;

    if (!g->ctl->json) {
        fwrite(text, 1, n, stdout);
        return;
    }
    more = realloc(g->text, g->n_text + n + 1);
    if (more == NULL)
        return;
    memcpy(more + g->n_text, text, n);
    g->text = more;
    g->n_text += n;
    g->text[g->n_text] = '\0';
}

/* Shows text as far as it is no stop string. Returns true if one ends the text. */
static bool show_until_stop(struct generation *g, const char *text, size_t n)
{
    bool over = false;

    if (g->stops != NULL)
        over = npugraph_stops_add(g->stops, text, n, &text, &n);
    show_text(g, text, n);
    return over;
}

static void note_logprobs(struct generation *g, const struct npugraph_logprobs *lp)
{
    json_t *one = json_object(), *top = json_array();

    for (size_t i = 0; i < lp->n_top; i++)
        json_array_append_new(
            top, json_pack("{s:i, s:f}", "token", (int)lp->top[i].token, "logprob", (double)lp->top[i].logprob));
    json_object_set_new(one, "token", json_integer(lp->token));
    json_object_set_new(one, "logprob", json_real((double)lp->logprob));
    json_object_set_new(one, "top", top);
    json_array_append_new(g->out_logprobs, one);
}

static bool show_token(void *user, int32_t token, const struct npugraph_logprobs *logprobs)
{
    struct generation *g = user;
    const char *text;
    size_t n;

    g->last = now_ns();
    g->got++;
    json_array_append_new(g->out, json_integer(token));
    if (logprobs != NULL)
        note_logprobs(g, logprobs);
    if (g->tok == NULL && !g->ctl->json)
        printf("%s%d", g->got > 1 ? "," : "", token);
    if (g->tok == NULL && !g->ctl->json && logprobs != NULL)
        printf(" (%.4f)", (double)logprobs->logprob);
    if (g->detokenizer != NULL && npugraph_detokenizer_add(g->detokenizer, token, &text, &n, NULL) == 0)
        g->stopped = show_until_stop(g, text, n);
    fflush(stdout);
    return !g->stopped;
}

/* Prints the timing to standard error, or adds it as a JSON object, since standard output is for the text. */
static void print_generation_timing(struct generation *g, const char *what, const struct npugraph_timing *t)
{
    const struct {
        const char *name, *key;
        uint64_t ns;
    } parts[] = {{"waited", "queue_us", t->queue_ns},
                 {"copy in", "copy_in_us", t->copy_in_ns},
                 {"replay", "replay_us", t->replay_ns},
                 {"copy out", "copy_out_us", t->copy_out_ns},
                 {"of it padding", "padding_us", t->padding_ns}};
    json_t *object = json_object();
    char key[32];

    if (!g->ctl->json)
        fprintf(stderr, "[%s:", what);
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        json_object_set_new(object, parts[i].key, json_real((double)parts[i].ns / 1e3));
        if (!g->ctl->json)
            fprintf(stderr, "%s %s %.3f ms", i != 0 ? "," : "", parts[i].name, (double)parts[i].ns / 1e6);
    }
    if (!g->ctl->json)
        fprintf(stderr, "]\n");
    snprintf(key, sizeof(key), "%s_timing", what);
    if (g->ctl->json)
        json_object_set(g->ctl->root, key, object);
    json_decref(object);
}

static void print_timings(struct generation *g)
{
    if (!g->timing)
        return;
    print_generation_timing(g, "prompt", &g->prompt_time);
    print_generation_timing(g, "tokens", &g->tokens_time);
}

static void print_summary(struct generation *g, const char *finish)
{
    double decode_s = (double)(g->last - g->first) / 1e9;
    struct ctl_fields *f;

    if (!g->ctl->json) {
        printf("\n");
        if (!g->ctl->quiet)
            fprintf(stderr, "[%llu tokens, %s; first after %.1f ms, then %.1f tokens/s]\n", (unsigned long long)g->got,
                    finish, (double)(g->first - g->begin) / 1e6, decode_s > 0 ? (double)(g->got - 1) / decode_s : 0);
        print_timings(g);
        return;
    }
    f = ctl_fields_new(g->ctl, NULL);
    json_object_set(g->ctl->root, "tokens", g->out);
    if (g->tok != NULL)
        json_object_set_new(g->ctl->root, "text", json_stringn(g->text != NULL ? g->text : "", g->n_text));
    if (g->logprobs)
        json_object_set(g->ctl->root, "logprobs", g->out_logprobs);
    print_timings(g);
    ctl_field_str(f, "Finish", "finish", finish);
    ctl_field_us(f, "First token", "first_token_us", (double)(g->first - g->begin) / 1e3);
    ctl_field_rate(f, "Speed", "tokens_per_second", decode_s > 0 ? (double)(g->got - 1) / decode_s : 0, "tokens/s");
    ctl_fields_end(f);
}

/* Shows the text that was held back: by the detokenizer, and since it could have begun a stop string. */
static void show_rest(struct generation *g)
{
    const char *text;
    size_t n;

    if (g->detokenizer != NULL && npugraph_detokenizer_end(g->detokenizer, &text, &n, NULL) == 0)
        g->stopped |= show_until_stop(g, text, n);
    if (g->stops == NULL)
        return;
    g->stopped = npugraph_stops_end(g->stops, &text, &n);
    show_text(g, text, n);
}

static int run_generation(struct generation *g, enum npugraph_finish *finish_p, struct npugraph_error *err)
{
    struct npugraph_sequence *seq = NULL;
    struct npugraph_open_params open;
    struct npugraph_generate_params say;
    struct npugraph_step first = {0};
    int rc;

    npugraph_open_params_init(&open);
    open.sampling = &g->sampling;
    open.priority = g->priority;
    npugraph_generate_params_init(&say);
    say.max_tokens = (uint32_t)g->tokens;
    open.want_logprobs = say.want_logprobs = g->logprobs;
    open.top = say.top = (uint32_t)g->top;
    open.timing = g->timing;
    say.timing = g->timing ? &g->tokens_time : NULL;
    g->begin = now_ns();
    rc = npugraph_sequence_open(g->ctl->client, g->model, g->ids, g->n_ids, &open, &seq, &first, err);
    g->first = g->last = now_ns();
    g->prompt_time = first.timing;
    if (rc == 0)
        rc = npugraph_sequence_generate(seq, &say, show_token, g, finish_p, err);
    npugraph_sequence_close(seq);
    show_rest(g);
    return rc;
}

static int generate_text(struct generation *g)
{
    struct npugraph_error err = {0};
    enum npugraph_finish finish = NPUGRAPH_FINISH_CANCELLED;

    if (g->n_stop != 0 && npugraph_stops_create(g->stop, g->n_stop, &g->stops, &err) != 0)
        return ctl_fail(&err);
    if (!ctl_connect(g->ctl))
        return 1;
    if (g->prompt != NULL && !g->ctl->json) {
        fputs(g->prompt, stdout);
        fflush(stdout);
    }
    if (run_generation(g, &finish, &err) != 0)
        return ctl_fail(&err);
    if (g->stopped)
        finish = NPUGRAPH_FINISH_STOP; /* at a stop string */
    print_summary(g, finish == NPUGRAPH_FINISH_CANCELLED
                         ? "cancelled"
                         : ngd_word_of(&npugraph__v1__finish_reason__descriptor, (int)finish).text);
    return 0;
}

int ctl_cmd_generate(struct ctl *ctl, int argc, char **argv)
{
    struct generation g = {.ctl = ctl, .tokens = 64, .out = json_array(), .out_logprobs = json_array()};
    int rc = generate_arguments(&g, argc, argv);

    if (rc == 0)
        rc = make_prompt(&g);
    if (rc == 0)
        rc = generate_text(&g);
    free(g.ids);
    npugraph_detokenizer_destroy(g.detokenizer);
    npugraph_tokenizer_close(g.tok);
    npugraph_stops_destroy(g.stops);
    free(g.text);
    json_decref(g.out);
    json_decref(g.out_logprobs);
    return rc;
}
