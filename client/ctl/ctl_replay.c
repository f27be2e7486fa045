/* SPDX-License-Identifier: Apache-2.0 */
/*
 * capture and replay of a graph file. The graph is registered once to learn what it needs. Its params and states are
 * created and filled, and it is registered again with these bound.
 */
#include "base/dtype.h"
#include "base/nearest.h"
#include "base/strbuf.h"
#include "client/ctl/ctl.h"
#include "proto/npugraph.pb-c.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MAX_PAIRS      64
#define SHOWN_VALUES   8
#define GRAPH_FILE_MAX (1 << 30)

struct pair {
    const char *name, *value;
};
struct run {
    struct ctl *ctl;
    const struct ctl_command *command;
    const char *file;
    char *text;
    struct pair symbol[MAX_PAIRS], input[MAX_PAIRS], host[MAX_PAIRS];
    struct npugraph_option option[MAX_PAIRS];
    size_t n_symbol, n_input, n_host, n_option;
    uint64_t repeat;
    bool dry_run, eager, timing;
    /* from the daemon */
    uint64_t graph;
    Npugraph__V1__DescribeResponse *described;
    Npugraph__V1__CaptureResponse *need;
    int64_t symbols[16];
    size_t n_symbols;
};

/* ---- arguments ------------------------------------------------------------------------------------------- */

static const char *find_pair(const struct pair *list, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(list[i].name, name) == 0)
            return list[i].value;
    return NULL;
}

/* Adds NAME=VALUE to a list. Returns false if the name is there already. */
static bool add_pair(struct pair *list, size_t *n, char *text)
{
    char *eq = strchr(text, '=');

    if (eq == NULL || eq == text || *n == MAX_PAIRS)
        return false;
    *eq = '\0';
    if (find_pair(list, *n, text) != NULL) {
        *eq = '='; /* for the message */
        return false;
    }
    list[(*n)++] = (struct pair){text, eq + 1};
    return true;
}

static bool add_option(struct run *r, char *text)
{
    struct pair pair;
    size_t n = 0;

    if (r->n_option == MAX_PAIRS || !add_pair(&pair, &n, text)) /* the daemon refuses an option that is given twice */
        return false;
    r->option[r->n_option++] = (struct npugraph_option){pair.name, pair.value};
    return true;
}

static bool take_replay_option(struct run *r, const char *name, const char *value)
{
    if (strcmp(name, "symbol") == 0)
        return add_pair(r->symbol, &r->n_symbol, (char *)value);
    if (strcmp(name, "input") == 0)
        return add_pair(r->input, &r->n_input, (char *)value);
    if (strcmp(name, "host") == 0)
        return add_pair(r->host, &r->n_host, (char *)value);
    if (strcmp(name, "option") == 0)
        return add_option(r, (char *)value);
    if (strcmp(name, "repeat") == 0)
        return ctl_parse_uint(value, 10000000, &r->repeat) && r->repeat > 0;
    if (strcmp(name, "dry-run") == 0)
        return (r->dry_run = true);
    if (strcmp(name, "timing") == 0)
        return (r->timing = true);
    return (r->eager = true);
}

static int parse_arguments(struct run *r, int argc, char **argv, const char *flags, const char *valued)
{
    struct ctl_options o = {r->command, argc, 1, argv};
    const char *name, *value;

    while ((name = ctl_next_beside(&o, flags, valued, &value, &r->file, "one graph file, please")) != NULL) {
        if (strcmp(name, "?") == 0)
            return 2;
        if (!take_replay_option(r, name, value))
            return ctl_usage(o.command,
                             strcmp(name, "repeat") == 0 ? "--%s cannot be %s"
                                                         : "--%s cannot be %s: it is NAME=VALUE, each name once",
                             name, value);
    }
    return r->file != NULL ? 0 : ctl_usage(o.command, "%s needs a graph file", argv[0]);
}

static int unknown_pair(const struct run *r, const char *option, const struct ngd_nearest *nearest)
{
    char what[96];

    snprintf(what, sizeof(what), "--%s: the graph has no %s ", option, option);
    return ctl_unknown(r->command, nearest, "", what);
}

/* Checks that each pair names one of the values. A misspelt name must not leave its value to chance. */
static int check_pairs(const struct run *r, const char *option, const struct pair *list, size_t n,
                       Npugraph__V1__ValueInfo *const *const values[], const size_t counts[], size_t n_kinds)
{
    for (size_t i = 0; i < n; i++) {
        struct ngd_nearest nearest;
        bool known = false;

        ngd_nearest_init(&nearest, list[i].name, strlen(list[i].name));
        for (size_t kind = 0; kind < n_kinds; kind++)
            for (size_t k = 0; k < counts[kind]; k++) {
                known = known || strcmp(values[kind][k]->label, list[i].name) == 0;
                ngd_nearest_add(&nearest, values[kind][k]->label);
            }
        if (!known)
            return unknown_pair(r, option, &nearest);
    }
    return 0;
}

static int check_names(const struct run *r)
{
    const Npugraph__V1__GraphInfo *g = r->described->info;
    Npugraph__V1__ValueInfo *const *const filled[] = {g->inputs, g->params, g->states}, *const *const hosts[] = {
                                                                                            g->hosts};
    const size_t n_filled[] = {g->n_inputs, g->n_params, g->n_states}, n_hosts[] = {g->n_hosts};
    int rc = check_pairs(r, "input", r->input, r->n_input, filled, n_filled, 3);

    return rc != 0 ? rc : check_pairs(r, "host", r->host, r->n_host, hosts, n_hosts, 1);
}

/* ---- what the graph needs ---------------------------------------------------------------------------------- */

static int choose_replay_symbols(struct run *r)
{
    const Npugraph__V1__GraphInfo *g = r->described->info;

    for (size_t i = 0; i < r->n_symbol; i++) {
        struct ngd_nearest nearest;
        bool known = false;

        ngd_nearest_init(&nearest, r->symbol[i].name, strlen(r->symbol[i].name));
        for (size_t k = 0; k < g->n_symbols; k++) {
            known = known || strcmp(g->symbols[k]->name, r->symbol[i].name) == 0;
            ngd_nearest_add(&nearest, g->symbols[k]->name);
        }
        if (!known)
            return unknown_pair(r, "symbol", &nearest);
    }
    for (size_t k = 0; k < g->n_symbols && k < 16; k++) {
        const char *text = find_pair(r->symbol, r->n_symbol, g->symbols[k]->name);
        uint64_t v;

        if (text != NULL && !ctl_parse_uint(text, INT64_MAX, &v))
            return ctl_usage(r->command, "--symbol %s needs a number", g->symbols[k]->name);
        r->symbols[r->n_symbols++] = text != NULL ? (int64_t)v : -1; /* the daemon chooses */
    }
    return 0;
}

static int learn_graph(struct run *r)
{
    Npugraph__V1__DescribeRequest describe = NPUGRAPH__V1__DESCRIBE_REQUEST__INIT;
    Npugraph__V1__CaptureRequest capture = NPUGRAPH__V1__CAPTURE_REQUEST__INIT;
    struct npugraph_error err = {0};
    size_t n;

    r->text = ctl_read_file(r->file, GRAPH_FILE_MAX, &n);
    if (r->text == NULL || !ctl_connect(r->ctl))
        return 1;
    if (npugraph_graph_register(r->ctl->client, NULL, r->text, NULL, 0, r->option, r->n_option, &r->graph, &err) != 0)
        return ctl_fail(&err);
    describe.graph = r->graph;
    r->described = (void *)ctl_call(r->ctl, "/npugraph.v1.Graphs/Describe", &describe.base,
                                    &npugraph__v1__describe_response__descriptor);
    if (r->described == NULL)
        return 1;
    if (choose_replay_symbols(r) != 0 || check_names(r) != 0)
        return 2;
    capture.graph = r->graph;
    capture.n_symbols = r->n_symbols;
    capture.symbols = r->symbols;
    capture.dry_run = r->dry_run || r->command->run == ctl_cmd_replay;
    r->need = (void *)ctl_call(r->ctl, "/npugraph.v1.Graphs/Capture", &capture.base,
                               &npugraph__v1__capture_response__descriptor);
    if (r->need == NULL)
        return 1;
    if (r->need->n_symbols == r->n_symbols && r->n_symbols > 0)
        memcpy(r->symbols, r->need->symbols, r->n_symbols * sizeof(r->symbols[0]));
    return 0;
}

static void run_fini(struct run *r)
{
    npugraph__free_message(r->described);
    npugraph__free_message(r->need);
    free(r->text);
}

static void show_sizes(struct ctl_fields *f, const struct run *r)
{
    struct ngd_strbuf sb;

    if (r->n_symbols == 0)
        return;
    ngd_strbuf_init(&sb);
    ctl_print_sizes(r->described->info, r->symbols, r->n_symbols, &sb);
    ctl_field_str(f, "At", "sizes", ngd_strbuf_str(&sb));
    ngd_strbuf_fini(&sb);
}

/* Prints the guards: "mod(T, 8) == 0, T != 1". */
static void show_guards(struct ctl_fields *f, const Npugraph__V1__GraphInfo *info)
{
    struct ngd_strbuf sb;

    if (info->n_guards == 0)
        return;
    ngd_strbuf_init(&sb);
    for (size_t i = 0; i < info->n_guards; i++)
        ngd_strbuf_printf(&sb, "%s%s", i > 0 ? ", " : "", info->guards[i]);
    ctl_field_str(f, "Each replay needs", "guards", ngd_strbuf_str(&sb));
    ngd_strbuf_fini(&sb);
}

static const char *was_captured(const struct run *r)
{
    if (r->dry_run)
        return "no (dry run)";
    for (size_t i = 0; i < r->n_option; i++)
        if (strcmp(r->option[i].name, "force_eager") == 0 && strcmp(r->option[i].value, "true") == 0)
            return "no (force_eager)";
    return r->need->captured ? "now" : "before";
}

int ctl_cmd_capture(struct ctl *ctl, int argc, char **argv)
{
    struct run r = {.ctl = ctl, .command = ctl_find_command(argv[0])};
    struct ctl_fields *f;
    int rc = parse_arguments(&r, argc, argv, "dry-run", "symbol option");

    if (rc == 0)
        rc = learn_graph(&r);
    if (rc == 0) {
        f = ctl_fields_new(ctl, NULL);
        ctl_field_str(f, "Graph", "graph", r.described->info->name);
        ctl_field_str(f, "Digest", "digest", r.described->info->digest);
        show_sizes(f, &r);
        ctl_field_str(f, "Guards", "key", r.need->key);
        show_guards(f, r.described->info);
        ctl_field_int(f, "Kernels", "kernels", r.need->kernels);
        ctl_field_int(f, "Streams", "streams", r.need->streams);
        ctl_field_bytes(f, "Pool", "pool_bytes", r.need->pool_bytes);
        ctl_field_bytes(f, "Live at once", "live_bytes", r.need->live_bytes);
        ctl_field_str(f, "Pool is", "pool",
                      strcmp(r.need->pool, "slots") == 0 ? "shared by the device's graphs" : r.need->pool);
        ctl_field_int(f, "Pools", "pools", r.need->pools);
        ctl_field_bytes(f, "They hold", "pool_held_bytes", r.need->pool_held_bytes);
        ctl_field_bytes(f, "They would grow by", "pool_more_bytes", r.need->pool_more_bytes);
        ctl_field_int(f, "Executables", "executables", r.need->executables);
        ctl_field_int(f, "Shared by", "holders", r.need->holders);
        ctl_field_str(f, "Captured", "captured", was_captured(&r));
        ctl_field_us(f, "Took", "capture_us", (double)r.need->nanoseconds / 1000);
        ctl_fields_end(f);
    }
    run_fini(&r);
    return rc;
}

/* ---- filling tensors ---------------------------------------------------------------------------------------- */

static void store_int(ngd_dtype_t type, char *at, int64_t i)
{
    memcpy(at, &i, ngd_dtype_bytes(type)); /* little endian: the low bytes are the value */
}

/* Stores v as an element. For an integer type, v must be an integer that fits. */
static void store_element(ngd_dtype_t type, char *at, double v)
{
    float f = (float)v;
    uint16_t h = type == NGD_BF16 ? ngd_f32_to_bf16(f) : ngd_f32_to_f16(f);

    switch (type) {
    case NGD_F32:
        memcpy(at, &f, 4);
        break;
    case NGD_F16:
    case NGD_BF16:
        memcpy(at, &h, 2);
        break;
    default:
        store_int(type, at, (int64_t)v);
        break;
    }
}

static double load_float(ngd_dtype_t type, const char *at)
{
    uint16_t h;
    float f;

    if (type == NGD_F32) {
        memcpy(&f, at, 4);
        return (double)f;
    }
    memcpy(&h, at, 2);
    return (double)(type == NGD_F16 ? ngd_f16_to_f32(h) : ngd_bf16_to_f32(h));
}

static int64_t load_element(ngd_dtype_t type, const char *at)
{
    int64_t i = 0;

    memcpy(&i, at, ngd_dtype_bytes(type));
    if (type == NGD_I32)
        return (int32_t)i;
    return type == NGD_I8 ? (int8_t)i : i;
}

static uint64_t next_random(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* Returns a random value. Integers are 0 or 1, so that random indices are valid in everything with two rows. */
static double random_value(ngd_dtype_t type, uint64_t *state)
{
    uint64_t r = next_random(state);

    return ngd_dtype_is_float(type) ? (double)(r >> 11) * 0x1p-52 - 1.0 : (double)(r >> 63);
}

static bool fits_type(ngd_dtype_t type, int64_t v)
{
    switch (type) {
    case NGD_I8:
        return v >= INT8_MIN && v <= INT8_MAX;
    case NGD_U8:
        return v >= 0 && v <= UINT8_MAX;
    case NGD_I32:
        return v >= INT32_MIN && v <= INT32_MAX;
    case NGD_BOOL:
        return v == 0 || v == 1;
    default:
        return true;
    }
}

/* Stores the number at the beginning of text. Integers are not read as doubles, which have only 53 bits for them. */
static bool fill_number(const char *text, ngd_dtype_t type, char *at, char **end_p)
{
    int64_t v;

    if (ngd_dtype_is_float(type)) {
        store_element(type, at, strtod(text, end_p));
        return *end_p != text;
    }
    errno = 0;
    v = strtoll(text, end_p, 10);
    store_int(type, at, v);
    return *end_p != text && errno == 0 && fits_type(type, v);
}

static bool fill_numbers(const char *spec, ngd_dtype_t type, char *data, size_t n)
{
    size_t size = ngd_dtype_bytes(type), i = 0;
    const char *p = spec;
    char *end;

    for (; i < n && *p != '\0'; i++) {
        if (!fill_number(p, type, data + i * size, &end) || (*end != ',' && *end != '\0'))
            return false;
        p = *end == ',' ? end + 1 : end;
    }
    return i == n && *p == '\0';
}

/* Returns 0, 1, 2, ... Narrow integers take the low bits. */
static double arange(ngd_dtype_t type, size_t i)
{
    return (double)(type == NGD_BOOL ? i % 2 : i);
}

static bool fill_tensor(const char *spec, ngd_dtype_t type, char *data, size_t bytes, uint64_t seed)
{
    size_t size = ngd_dtype_bytes(type), n = bytes / size, file_bytes = 0;
    char *file;

    if (spec == NULL)
        spec = "random";
    if (spec[0] == '@') {
        file = ctl_read_file(spec + 1, bytes, &file_bytes);
        if (file != NULL && file_bytes == bytes)
            memcpy(data, file, bytes);
        free(file);
        return file != NULL && file_bytes == bytes;
    }
    if (strncmp(spec, "random", 6) == 0 &&
        (spec[6] == '\0' || (spec[6] == ':' && ctl_parse_uint(spec + 7, UINT64_MAX, &seed)))) {
        for (size_t i = 0; i < n; i++)
            store_element(type, data + i * size, random_value(type, &seed));
        return true;
    }
    if (strcmp(spec, "zeros") != 0 && strcmp(spec, "ones") != 0 && strcmp(spec, "arange") != 0)
        return fill_numbers(spec, type, data, n);
    for (size_t i = 0; i < n; i++)
        store_element(type, data + i * size, spec[0] == 'z' ? 0 : spec[0] == 'o' ? 1 : arange(type, i));
    return true;
}

static char *make_tensor(struct run *r, const Npugraph__V1__ValueInfo *v, uint64_t bytes, uint64_t seed)
{
    const char *spec = find_pair(r->input, r->n_input, v->label);
    char *data = calloc(1, bytes + 8);
    ngd_dtype_t type;

    if (data != NULL && ngd_dtype_parse(v->dtype, strlen(v->dtype), &type) &&
        fill_tensor(spec, type, data, bytes, seed))
        return data;
    fprintf(stderr, "npugraphctl: --input %s=%s does not fill %" PRIu64 " bytes of %s\n", v->label,
            spec != NULL ? spec : "", bytes, v->dtype);
    free(data);
    return NULL;
}

/* ---- replay -------------------------------------------------------------------------------------------------- */

static int bind_one(struct run *r, const Npugraph__V1__ValueInfo *v, uint64_t bytes, uint64_t seed,
                    struct npugraph_binding *binding)
{
    struct npugraph_error err = {0};
    char *data = make_tensor(r, v, bytes, seed);
    int rc;

    if (data == NULL)
        return 1;
    binding->name = v->label;
    rc = npugraph_buffer_alloc(r->ctl->client, NULL, bytes != 0 ? bytes : 1, v->label, &binding->buffer, &err);
    if (rc == 0)
        rc = npugraph_buffer_write(r->ctl->client, binding->buffer, 0, data, bytes, &err);
    free(data);
    return rc != 0 ? ctl_fail(&err) : 0;
}

static int bind_all(struct run *r)
{
    const Npugraph__V1__GraphInfo *g = r->described->info;
    size_t n = g->n_params + g->n_states;
    struct npugraph_binding *bindings = calloc(n + 1, sizeof(*bindings));
    struct npugraph_error err = {0};
    int rc = bindings != NULL && r->need->n_bound_bytes == n ? 0 : 1;

    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = bind_one(r, i < g->n_params ? g->params[i] : g->states[i - g->n_params], r->need->bound_bytes[i], i + 1,
                      &bindings[i]);
    if (rc == 0 && npugraph_graph_register(r->ctl->client, NULL, r->text, bindings, n, r->option, r->n_option,
                                           &r->graph, &err) != 0)
        rc = ctl_fail(&err);
    free(bindings);
    return rc;
}

static int parse_host(struct run *r, const Npugraph__V1__ValueInfo *v, struct npugraph_host_value *out)
{
    const char *text = find_pair(r->host, r->n_host, v->label), *p = text;
    int64_t *values = calloc(text != NULL ? strlen(text) + 1 : 1, sizeof(*values));
    char *end;

    out->values = values;
    out->n = 0;
    if (text == NULL || values == NULL)
        return ctl_usage(r->command, "host parameter %s needs --host %s=N,N,...", v->label, v->label);
    for (; *p != '\0'; p = *end == ',' ? end + 1 : end) {
        errno = 0;
        values[out->n++] = strtoll(p, &end, 10);
        if (end == p || errno != 0 || (*end != ',' && *end != '\0'))
            return ctl_usage(r->command, "--host %s takes integers", v->label);
    }
    return 0;
}

static void print_values(char *to, size_t room, const Npugraph__V1__ValueInfo *v, const struct npugraph_output *out)
{
    ngd_dtype_t type = NGD_F32;
    size_t n, at = 0;

    ngd_dtype_parse(v->dtype, strlen(v->dtype), &type);
    n = out->bytes / ngd_dtype_bytes(type);
    to[0] = '\0';
    for (size_t i = 0; i < n && i < SHOWN_VALUES; i++) {
        const char *value = (const char *)out->data + i * ngd_dtype_bytes(type), *blank = i != 0 ? " " : "";

        if (ngd_dtype_is_float(type))
            at += (size_t)snprintf(to + at, room - at, "%s%.6g", blank, load_float(type, value));
        else
            at += (size_t)snprintf(to + at, room - at, "%s%" PRId64, blank, load_element(type, value));
    }
    if (n > SHOWN_VALUES)
        snprintf(to + at, room - at, " ... (%zu in all)", n);
}

/* Prints the timing of the last replay. */
static void print_replay_timing(struct ctl_fields *f, const struct npugraph_timing *t)
{
    ctl_field_us(f, "waited", "queue_us", (double)t->queue_ns / 1000);
    ctl_field_us(f, "copy in", "copy_in_us", (double)t->copy_in_ns / 1000);
    ctl_field_us(f, "replay", "replay_us", (double)t->replay_ns / 1000);
    ctl_field_us(f, "copy out", "copy_out_us", (double)t->copy_out_ns / 1000);
    ctl_field_us(f, "of it padding", "padding_us", (double)t->padding_ns / 1000);
    if (t->requests > 1) {
        ctl_field_int(f, "for requests", "requests", t->requests);
        ctl_field_us(f, "this one's part", "charged_us", (double)t->charged_ns / 1000);
    }
}

static void print_result(struct run *r, const struct npugraph_result *result, const uint64_t *times)
{
    static const struct ctl_column columns[] = {
        {"RESULT", "name", false}, {"DTYPE", "dtype", false}, {"BYTES", "bytes", true}, {"VALUES", "values", false}};
    const Npugraph__V1__GraphInfo *g = r->described->info;
    struct ctl_table *t = ctl_table_new(r->ctl, "outputs", columns, 4);
    struct ctl_fields *f;
    char text[512];

    for (size_t i = 0; i < result->n && i < g->n_outputs; i++) {
        ctl_row(t);
        ctl_str(t, g->outputs[i]->label);
        ctl_str(t, g->outputs[i]->dtype);
        ctl_int(t, result->outputs[i].bytes);
        print_values(text, sizeof(text), g->outputs[i], &result->outputs[i]);
        ctl_str(t, text);
    }
    ctl_table_end(t, "The graph has no results.");
    f = ctl_fields_new(r->ctl, NULL);
    show_sizes(f, r);
    ctl_field_us(f, r->eager ? "Eager run" : "Replay", "median_us", (double)times[r->repeat / 2] / 1000);
    ctl_field_us(f, "on the device", "device_us", (double)result->device_ns / 1000);
    if (r->timing)
        print_replay_timing(f, &result->timing);
    ctl_fields_end(f);
}

static int compare_times(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

static int replay_many(struct run *r, const struct npugraph_replay *replay)
{
    struct npugraph_replay_stream *stream = NULL;
    struct npugraph_result *result = NULL;
    struct npugraph_error err = {0};
    struct timespec a, b;
    uint64_t *times = calloc(r->repeat, sizeof(*times));
    int rc = times != NULL ? npugraph_replay_stream_open(r->ctl->client, &stream, &err) : 8;

    for (uint64_t i = 0; rc == 0 && i < r->repeat; i++) {
        clock_gettime(CLOCK_MONOTONIC, &a);
        rc = npugraph_replay_stream_run(stream, replay, &result, &err);
        clock_gettime(CLOCK_MONOTONIC, &b);
        times[i] = (uint64_t)(b.tv_sec - a.tv_sec) * 1000000000u + (uint64_t)(b.tv_nsec - a.tv_nsec);
    }
    if (rc == 0) {
        qsort(times, r->repeat, sizeof(*times), compare_times);
        print_result(r, result, times);
    }
    npugraph_result_free(result);
    npugraph_replay_stream_close(stream);
    free(times);
    return rc != 0 ? ctl_fail(&err) : 0;
}

static int replay_filled(struct run *r)
{
    const Npugraph__V1__GraphInfo *g = r->described->info;
    struct npugraph_input *inputs = calloc(g->n_inputs + 1, sizeof(*inputs));
    struct npugraph_host_value *hosts = calloc(g->n_hosts + 1, sizeof(*hosts));
    struct npugraph_replay replay = {
        .graph = r->graph, .symbols = r->symbols, .n_symbols = r->n_symbols, .eager = r->eager, .timing = r->timing};
    int rc = inputs != NULL && hosts != NULL && r->need->n_input_bytes == g->n_inputs ? 0 : 1;

    for (size_t i = 0; rc == 0 && i < g->n_inputs; i++) {
        inputs[i].bytes = r->need->input_bytes[i];
        inputs[i].data = make_tensor(r, g->inputs[i], inputs[i].bytes, 1000 + i);
        rc = inputs[i].data != NULL ? 0 : 1;
    }
    for (size_t i = 0; rc == 0 && i < g->n_hosts; i++)
        rc = parse_host(r, g->hosts[i], &hosts[i]);
    replay.inputs = inputs;
    replay.n_inputs = g->n_inputs;
    replay.hosts = hosts;
    replay.n_hosts = g->n_hosts;
    if (rc == 0)
        rc = replay_many(r, &replay);
    for (size_t i = 0; inputs != NULL && i < g->n_inputs; i++)
        free((void *)inputs[i].data);
    for (size_t i = 0; hosts != NULL && i < g->n_hosts; i++)
        free((void *)hosts[i].values);
    free(inputs);
    free(hosts);
    return rc;
}

int ctl_cmd_replay(struct ctl *ctl, int argc, char **argv)
{
    struct run r = {.ctl = ctl, .command = ctl_find_command(argv[0]), .repeat = 1};
    int rc = parse_arguments(&r, argc, argv, "eager timing", "symbol input host option repeat");

    if (rc == 0)
        rc = learn_graph(&r);
    if (rc == 0)
        rc = bind_all(&r);
    if (rc == 0)
        rc = replay_filled(&r);
    run_fini(&r);
    return rc;
}
