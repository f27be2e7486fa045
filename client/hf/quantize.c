/* SPDX-License-Identifier: Apache-2.0 */
/* The directory of a checkpoint that is quantised: which files it has, the index of shards, and config.json. */
#include "client/hf/quantize_file.h"
#include "client/hf/source.h"
#include "client/lib/error.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define INDEX "model.safetensors.index.json"

struct quantising {
    struct npugraph__quantize_run run;
    const char *dir, *out;
    json_t *config, *index; /* index: NULL without shards */
    char from[PATH_MAX], to[PATH_MAX];
};

static void set_paths(struct quantising *z, const char *file)
{
    snprintf(z->from, sizeof(z->from), "%s/%s", z->dir, file);
    snprintf(z->to, sizeof(z->to), "%s/%s", z->out, file);
}

static int read_configs(struct quantising *z)
{
    struct stat sb;
    json_error_t e;

    set_paths(z, "config.json");
    z->config = npugraph__load_json(z->from, 0, &e);
    if (!json_is_object(z->config))
        return npugraph__error(z->run.err, 3, "FILE_CORRUPT", "%s: %s", z->from,
                               z->config != NULL ? "is not a JSON object" : e.text);
    if (json_object_get(z->config, "quantization_config") != NULL)
        return npugraph__error(z->run.err, 3, "FILE_UNSUPPORTED",
                               "%s: quantization_config is set: the checkpoint is quantised already", z->from);
    set_paths(z, INDEX);
    if (stat(z->from, &sb) != 0)
        return 0;
    z->index = npugraph__load_json(z->from, 0, &e);
    if (!json_is_object(json_object_get(z->index, "weight_map")))
        return npugraph__error(z->run.err, 3, "FILE_CORRUPT", "%s: %s", z->from,
                               z->index != NULL ? "has no weight_map" : e.text);
    return 0;
}

/* Whether the file has weights: all shards of the index, or the one file without an index. */
static bool has_weights(const struct quantising *z, const char *file)
{
    const char *key;
    json_t *shard;

    if (z->index == NULL)
        return strcmp(file, "model.safetensors") == 0;
    json_object_foreach(json_object_get(z->index, "weight_map"), key, shard)
    {
        (void)key;
        if (json_is_string(shard) && strcmp(json_string_value(shard), file) == 0)
            return true;
    }
    return false;
}

static int copy_file(struct quantising *z)
{
    char bytes[65536];
    FILE *from = fopen(z->from, "rb"), *to = from != NULL ? fopen(z->to, "wbx") : NULL;
    bool ok = to != NULL;
    size_t n;

    while (ok && (n = fread(bytes, 1, sizeof(bytes), from)) > 0)
        ok = fwrite(bytes, 1, n, to) == n;
    ok = ok && !ferror(from);
    if (to != NULL && fclose(to) != 0)
        ok = false;
    if (from != NULL)
        fclose(from);
    return ok ? 0 : npugraph__error(z->run.err, 13, "INTERNAL", "copying %s to %s failed", z->from, z->to);
}

static int write_json(struct quantising *z, const char *file, const json_t *value)
{
    set_paths(z, file);
    return json_dump_file(value, z->to, JSON_INDENT(2)) == 0
               ? 0
               : npugraph__error(z->run.err, 13, "INTERNAL", "writing %s failed", z->to);
}

/* Calls fn for each regular file of the directory, but config.json and the index. Links to files count as files. */
static int each_file(struct quantising *z, int (*fn)(struct quantising *z, const char *file, uint64_t bytes))
{
    DIR *d = opendir(z->dir);
    struct dirent *entry;
    struct stat sb;
    int rc = 0;

    if (d == NULL)
        return npugraph__error(z->run.err, 5, "FILE_NOT_FOUND", "%s: %s", z->dir, strerror(errno));
    while (rc == 0 && (entry = readdir(d)) != NULL) {
        set_paths(z, entry->d_name);
        if (strcmp(entry->d_name, "config.json") == 0 || strcmp(entry->d_name, INDEX) == 0 || stat(z->from, &sb) != 0 ||
            !S_ISREG(sb.st_mode))
            continue;
        rc = fn(z, entry->d_name, (uint64_t)sb.st_size);
    }
    closedir(d);
    return rc;
}

static int count_file(struct quantising *z, const char *file, uint64_t bytes)
{
    if (has_weights(z, file))
        z->run.total += bytes;
    return 0;
}

static int take_file(struct quantising *z, const char *file, uint64_t bytes)
{
    (void)bytes;
    return has_weights(z, file) ? npugraph__quantize_file(&z->run, z->from, z->to, file) : copy_file(z);
}

static int check_file(struct quantising *z, const char *file, uint64_t bytes)
{
    (void)bytes;
    return has_weights(z, file) ? npugraph__quantize_file(&z->run, z->from, NULL, file) : 0;
}

/* Checks all files before anything is written. */
static int check_files(struct quantising *z)
{
    const struct npugraph_quantize asked = *z->run.q;
    int rc = each_file(z, check_file);

    *z->run.q = asked;
    json_array_clear(z->run.ignored);
    json_array_append_new(z->run.ignored, json_string("lm_head"));
    return rc;
}

static int write_index(struct quantising *z)
{
    json_t *index;
    int rc;

    if (z->index == NULL)
        return 0;
    index = json_pack("{s:{s:I}, s:O}", "metadata", "total_size", (json_int_t)z->run.q->bytes_after, "weight_map",
                      z->run.map);
    rc = write_json(z, INDEX, index);
    json_decref(index);
    return rc;
}

/* What compressed-tensors writes for rows that are quantised while the model runs; null: they are not. */
static json_t *rows_settings(const struct npugraph_quantize *q)
{
    return q->rows ? json_pack("{s:i, s:s, s:b, s:b, s:s, s:n, s:n, s:n}", "num_bits", 8, "type", "int", "symmetric", 1,
                               "dynamic", 1, "strategy", "token", "actorder", "group_size", "observer")
                   : json_null();
}

static const char *quantised_format(const struct npugraph_quantize *q)
{
    if (q->floats)
        return "float-quantized";
    return q->bits == 8 ? "int-quantized" : "pack-quantized";
}

/* Adds the section of config.json that compressed-tensors reads. */
static int write_config(struct quantising *z)
{
    const struct npugraph_quantize *q = z->run.q;
    json_t *weights = json_pack("{s:i, s:s, s:b, s:b, s:s, s:n, s:s}", "num_bits", q->bits, "type",
                                q->floats ? "float" : "int", "symmetric", 1, "dynamic", 0, "strategy",
                                q->group != 0 ? "group" : "channel", "actorder", "observer", "minmax");
    json_t *section;

    json_object_set_new(weights, "group_size", q->group != 0 ? json_integer(q->group) : json_null());
    section = json_pack("{s:s, s:s, s:s, s:O, s:n, s:{s:{s:[s], s:o, s:n, s:o}}}", "quant_method", "compressed-tensors",
                        "quantization_status", "compressed", "format", quantised_format(q), "ignore", z->run.ignored,
                        "kv_cache_scheme", "config_groups", "group_0", "targets", "Linear", "input_activations",
                        rows_settings(q), "output_activations", "weights", weights);
    json_object_set_new(z->config, "quantization_config", section);
    return write_json(z, "config.json", z->config);
}

static int quantise_directory(struct quantising *z)
{
    int rc = read_configs(z);

    if (rc == 0)
        rc = each_file(z, count_file);
    if (rc == 0 && z->run.total == 0)
        rc = npugraph__error(z->run.err, 5, "FILE_NOT_FOUND", "%s: has no model.safetensors, nor shards", z->dir);
    if (rc == 0)
        rc = check_files(z);
    if (rc == 0 && mkdir(z->out, 0755) != 0)
        rc = npugraph__error(z->run.err, 13, "INTERNAL", "%s: %s; name a directory that does not exist yet", z->out,
                             strerror(errno));
    if (rc == 0)
        rc = each_file(z, take_file);
    if (rc == 0)
        rc = write_index(z);
    return rc == 0 ? write_config(z) : rc;
}

int npugraph_checkpoint_quantize(const char *dir, const char *out, struct npugraph_quantize *q,
                                 npugraph_progress_fn progress, void *user, struct npugraph_error *err)
{
    struct quantising *z;
    int rc;

    if (q->rows && (q->bits != 8 || q->group != 0))
        return npugraph__error(err, 3, "INVALID_ARGUMENT",
                               "rows are quantised beside i8 weights with a scale for each row");
    if (q->floats && (q->bits != 8 || q->group != 0 || q->rows))
        return npugraph__error(err, 3, "INVALID_ARGUMENT",
                               "weights of f8 have a scale for each row, and rows stay floats");
    z = calloc(1, sizeof(*z));
    if (z == NULL)
        return npugraph__error(err, 8, "NO_MEMORY", "out of memory");
    z->run = (struct npugraph__quantize_run){.q = q, .progress = progress, .user = user, .err = err};
    z->dir = dir;
    z->out = out;
    z->run.map = json_object();
    z->run.ignored = json_array();
    rc = quantise_directory(z);
    json_decref(z->run.map);
    json_decref(z->run.ignored);
    json_decref(z->config);
    json_decref(z->index);
    free(z);
    return rc;
}
