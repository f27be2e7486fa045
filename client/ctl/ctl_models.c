/* SPDX-License-Identifier: Apache-2.0 */
/* Models and sequences: models, load, share, unload, sequences. */
#include "client/ctl/ctl.h"
#include "client/hf/npugraph_hf.h"
#include "proto/npugraph.pb-c.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

/* ---- lists ----------------------------------------------------------------------------------------------- */

/* Bytes of KV cache that a token takes in all layers. Each group of layers has a block of its own. */
static uint64_t token_bytes(const Npugraph__V1__ModelInfo *m)
{
    const uint64_t rows = (uint64_t)m->num_blocks * m->block_size;

    return rows != 0 ? m->kv_bytes / rows * (m->n_windows != 0 ? m->n_windows : 1) : 0;
}

static void put_model_row(struct ctl_table *t, const Npugraph__V1__ModelInfo *m)
{
    ctl_row(t);
    ctl_str(t, m->name);
    ctl_int(t, m->sequences);
    ctl_bytes(t, m->weight_bytes);
    ctl_bytes(t, m->kv_bytes);
    ctl_ratio(t, m->num_blocks != 0 ? (double)m->blocks_used / m->num_blocks : 0);
    ctl_bytes(t, m->num_blocks != 0 ? m->kv_bytes / m->num_blocks * m->blocks_per_sequence : 0);
    ctl_bytes(t, token_bytes(m));
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
        {"MODEL", "name", false},           {"SEQUENCES", "sequences", true},
        {"WEIGHTS", "weight_bytes", true},  {"KV", "kv_bytes", true},
        {"KV USED", "kv_used", true},       {"KV EACH", "kv_per_sequence", true},
        {"KV TOKEN", "kv_per_token", true}, {"CONTEXT", "max_context", true},
        {"PROMPT", "tokens_prefill", true}, {"SHARED", "tokens_shared", true},
        {"TOKENS", "tokens_decode", true},  {"CAPTURES", "captures", true},
        {"REPLAYS", "replays", true},       {"OWNER", "owner", false},
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
    } else if (strcmp(name, "embedding") == 0) {
        p->embedding = true;
    } else if (strcmp(name, "name") == 0) {
        p->name = value;
    } else if (strcmp(name, "kv-dtype") == 0) {
        p->kv_dtype = value;
    } else if (strcmp(name, "matmul-precision") == 0) {
        p->matmul_precision = value; /* the daemon checks it */
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
    uint64_t begin = ctl_now_ns();
    int rc;

    npugraph_model_params_init(&params);
    while ((name = ctl_next_beside(&o, "no-prefix-sharing share-prefixes public private embedding",
                                   "name max-context max-batch chunk block-size kv-bytes kv-dtype kv-policy "
                                   "matmul-precision devices share-with",
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
        ctl_field_ms(f, "Took", "load_ms", (ctl_now_ns() - begin) / 1000000);
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
