/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a checkpoint of sentence-transformers says of its embeddings: modules.json lists a transformer, how its hidden
 * states are pooled (1_Pooling/config.json), and perhaps that embeddings have the length 1. Other modules, and other
 * ways of pooling, would give other numbers; they are refused.
 */
#include "client/hf/checkpoint.h"
#include "client/lib/error.h"

#include <stdio.h>
#include <string.h>

#define POOLING_FILE "1_Pooling/config.json"

/* The ways of pooling, by their fields. The ones that are not supported have NONE. */
static const struct pooling_mode {
    const char *field;
    enum npugraph_pooling pooling;
} pooling_modes[] = {
    {"pooling_mode_lasttoken", NPUGRAPH_POOLING_LAST},
    {"pooling_mode_mean_tokens", NPUGRAPH_POOLING_MEAN},
    {"pooling_mode_cls_token", NPUGRAPH_POOLING_NONE},
    {"pooling_mode_max_tokens", NPUGRAPH_POOLING_NONE},
    {"pooling_mode_mean_sqrt_len_tokens", NPUGRAPH_POOLING_NONE},
    {"pooling_mode_weightedmean_tokens", NPUGRAPH_POOLING_NONE},
};

static int take_pooling(const json_t *config, struct npugraph__checkpoint *ck, struct npugraph_error *err)
{
    enum npugraph_pooling found = NPUGRAPH_POOLING_NONE;

    for (size_t i = 0; i < sizeof(pooling_modes) / sizeof(pooling_modes[0]); i++) {
        const struct pooling_mode *m = &pooling_modes[i];

        if (!json_is_true(json_object_get(config, m->field)))
            continue;
        if (m->pooling == NPUGRAPH_POOLING_NONE || found != NPUGRAPH_POOLING_NONE)
            return npugraph__error(err, 3, "FILE_UNSUPPORTED",
                                   POOLING_FILE ": %s is not supported%s; one of pooling_mode_lasttoken and "
                                                "pooling_mode_mean_tokens is",
                                   m->field, found != NPUGRAPH_POOLING_NONE ? " beside another one" : "");
        found = m->pooling;
    }
    if (found == NPUGRAPH_POOLING_NONE)
        return npugraph__error(err, 3, "FILE_UNSUPPORTED",
                               POOLING_FILE ": sets neither pooling_mode_lasttoken nor pooling_mode_mean_tokens");
    if (json_is_false(json_object_get(config, "include_prompt")) && found == NPUGRAPH_POOLING_MEAN)
        return npugraph__error(err, 3, "FILE_UNSUPPORTED",
                               POOLING_FILE ": include_prompt false is not supported with a mean of all tokens");
    ck->pooling = found;
    return 0;
}

static int read_pooling(const char *dir, struct npugraph__checkpoint *ck, struct npugraph_error *err)
{
    struct npugraph_error local = {0};
    json_t *config = npugraph__read_json(dir, POOLING_FILE, &local);
    int rc;

    if (!json_is_object(config)) {
        json_decref(config);
        return npugraph__error(err, 3, local.code != 0 ? local.reason : "FILE_CORRUPT", "%s",
                               local.code != 0 ? local.message
                                               : "modules.json names " POOLING_FILE ", which is missing or no object");
    }
    rc = take_pooling(config, ck, err);
    json_decref(config);
    return rc;
}

/* The last part of a module's type: "Pooling" of sentence_transformers.models.Pooling. */
static const char *module_kind(const json_t *module)
{
    const char *type = json_string_value(json_object_get(module, "type")),
               *dot = type != NULL ? strrchr(type, '.') : NULL;

    return dot != NULL ? dot + 1 : type != NULL ? type : "";
}

static int take_module(const char *dir, const json_t *module, struct npugraph__checkpoint *ck,
                       struct npugraph_error *err)
{
    const char *kind = module_kind(module), *path = json_string_value(json_object_get(module, "path"));

    if (strcmp(kind, "Transformer") == 0 && path != NULL && path[0] == '\0')
        return 0;
    if (strcmp(kind, "Pooling") == 0 && path != NULL && strcmp(path, "1_Pooling") == 0)
        return read_pooling(dir, ck, err);
    if (strcmp(kind, "Normalize") == 0) {
        ck->unit = true;
        return 0;
    }
    return npugraph__error(err, 3, "FILE_UNSUPPORTED",
                           "modules.json: the module %.64s at \"%.64s\" is not supported; supported are Transformer at "
                           "\"\", Pooling at \"1_Pooling\" and Normalize",
                           kind, path != NULL ? path : "");
}

int npugraph__embedding_read(const char *dir, struct npugraph__checkpoint *ck, struct npugraph_error *err)
{
    struct npugraph_error local = {0};
    json_t *modules = npugraph__read_json(dir, "modules.json", &local), *module;
    size_t i;
    int rc = 0;

    if (modules == NULL)
        return local.code != 0 ? npugraph__error(err, local.code, local.reason, "%s", local.message) : 0;
    if (!json_is_array(modules))
        rc = npugraph__error(err, 3, "FILE_CORRUPT", "modules.json: is not a JSON array");
    ck->headless = true;
    json_array_foreach(modules, i, module) rc = rc == 0 ? take_module(dir, module, ck, err) : rc;
    json_decref(modules);
    return rc;
}
