/* SPDX-License-Identifier: Apache-2.0 */
/* The table of options: setting, checking and printing values by their rows. */
#include "graphs/options.h"
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct row {
    struct ngd_option_info info;
    size_t offset; /* of the option's field in struct ngd_graph_options */
    int64_t lo, hi;
    const char *words;
};

#define WHEN_GRAPH    false
#define WHEN_CAPTURE  true
#define KEY_FREE      false
#define KEY_PLAN      true
#define STATE_PLANNED false
#define STATE_BUILT   true

static const char *const pass_names[] = {
#define NGD_PASS(ID, name, version, option, doc) #name,
#include "graphs/passes.def"
#undef NGD_PASS
};
#define N_PASSES (sizeof(pass_names) / sizeof(pass_names[0]))

/* Returns true for the first row of a pass in passes.def. Some passes run more than once. */
static bool is_first_run(size_t pass)
{
    for (size_t i = 0; i < pass; i++)
        if (strcmp(pass_names[i], pass_names[pass]) == 0)
            return false;
    return true;
}

static const struct row rows[] = {
#define NGD_OPTION(ID, name, type, lo, hi, words, def, key, when, state, effect)                         \
    [NGD_OPTION_##ID] = {{#name, effect, def, NGD_OPTION_##type, KEY_##key, WHEN_##when, STATE_##state}, \
                         offsetof(struct ngd_graph_options, name),                                       \
                         lo,                                                                             \
                         hi,                                                                             \
                         words},
#include "graphs/options.def"
#undef NGD_OPTION
};

const struct ngd_option_info *ngd_option_info(ngd_option_id_t id)
{
    return &rows[id].info;
}

const char *ngd_option_type_name(ngd_option_type_t type)
{
    static const char *const names[] = {
        [NGD_OPTION_BOOL] = "bool", [NGD_OPTION_INT] = "int", [NGD_OPTION_ENUM] = "enum", [NGD_OPTION_TEXT] = "text"};

    return names[type];
}

int ngd_option_find(const char *name)
{
    for (int i = 0; i < NGD_OPTION_MAX; i++)
        if (strcmp(rows[i].info.name, name) == 0)
            return i;
    return -1;
}

/* Returns the next word of an ENUM; NULL after the last. */
static const char *next_word(const char **at, size_t *n_p)
{
    const char *word = *at + strspn(*at, " ");

    *n_p = strcspn(word, " ");
    *at = word + *n_p;
    return *n_p ? word : NULL;
}

void ngd_option_print_allowed(ngd_option_id_t id, struct ngd_strbuf *sb)
{
    const struct row *row = &rows[id];
    const char *at = row->words, *word;
    size_t n;

    switch (row->info.type) {
    case NGD_OPTION_BOOL:
        ngd_strbuf_append(sb, "true, false");
        return;
    case NGD_OPTION_INT:
        ngd_strbuf_printf(sb, "%" PRId64 "..%" PRId64, row->lo, row->hi);
        return;
    case NGD_OPTION_ENUM:
        for (int i = 0; (word = next_word(&at, &n)); i++)
            ngd_strbuf_printf(sb, "%s%.*s", i ? ", " : "", (int)n, word);
        return;
    case NGD_OPTION_TEXT:
        ngd_strbuf_append(sb, row->words);
        for (size_t i = 0; id == NGD_OPTION_DISABLE_PASSES && i < N_PASSES; i++)
            if (is_first_run(i))
                ngd_strbuf_printf(sb, "%s%s", i ? ", " : ": ", pass_names[i]);
        return;
    }
}

/* ---- values ---- */

static void *option_field(struct ngd_graph_options *options, const struct row *row)
{
    return (char *)options + row->offset;
}

static const void *const_field(const struct ngd_graph_options *options, const struct row *row)
{
    return (const char *)options + row->offset;
}

static bool set_bool(const char *value, bool *to)
{
    bool yes = strcmp(value, "true") == 0 || strcmp(value, "True") == 0;

    if (!yes && strcmp(value, "false") != 0 && strcmp(value, "False") != 0)
        return false;
    *to = yes;
    return true;
}

/* Parses digits only: no sign, no blanks, no words that Python accepts as numbers. */
static bool set_int(const struct row *row, const char *value, int64_t *to)
{
    int64_t v = 0;

    if (!*value)
        return false;
    for (const char *p = value; *p; p++)
        if (*p < '0' || *p > '9' || __builtin_mul_overflow(v, 10, &v) || __builtin_add_overflow(v, *p - '0', &v))
            return false;
    if (v < row->lo || v > row->hi)
        return false;
    *to = v;
    return true;
}

static bool set_enum(const struct row *row, const char *value, int *to)
{
    const char *at = row->words, *word;
    size_t n;

    for (int i = 0; (word = next_word(&at, &n)); i++) {
        if (strlen(value) == n && memcmp(value, word, n) == 0) {
            *to = i;
            return true;
        }
    }
    return false;
}

static bool name_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
           c == '.';
}

static bool is_option_name(const char *s, size_t n)
{
    if (n < 1 || n > 64)
        return false;
    for (size_t i = 0; i < n; i++)
        if (!name_char(s[i]))
            return false;
    return true;
}

/* Copies names separated by commas, and drops blanks around them. */
static bool set_names(const char *value, char *to)
{
    size_t len = 0;

    to[0] = '\0';
    for (const char *p = value; *value;) {
        size_t n;

        p += strspn(p, " ");
        n = strcspn(p, " ,");
        if (!is_option_name(p, n) || len + n + 2 > NGD_OPTION_TEXT_MAX)
            return false;
        if (len)
            to[len++] = ',';
        memcpy(to + len, p, n);
        len += n;
        to[len] = '\0';
        p += n;
        p += strspn(p, " ");
        if (*p == '\0')
            break;
        if (*p++ != ',')
            return false;
    }
    return true;
}

static bool is_pass(const char *name, size_t n)
{
    for (size_t i = 0; i < N_PASSES; i++)
        if (strlen(pass_names[i]) == n && memcmp(pass_names[i], name, n) == 0)
            return true;
    return false;
}

static bool are_passes(const char *list)
{
    if (strcmp(list, "all") == 0)
        return true;
    for (const char *p = list; *p; p += strcspn(p, ","), p += *p == ',')
        if (!is_pass(p, strcspn(p, ",")))
            return false;
    return true;
}

static const char *scan_digits(const char *p, uint64_t *v)
{
    const char *start = p + strspn(p, " ");

    *v = 0;
    for (p = start; *p >= '0' && *p <= '9'; p++)
        if (__builtin_mul_overflow(*v, 10, v) || __builtin_add_overflow(*v, (uint64_t)(*p - '0'), v))
            return NULL;
    return p == start ? NULL : p + strspn(p, " ");
}

/* Parses npugraph_ex's handle (a pair of integers, one of them 0) or a name. "" and None mean no pool. */
static bool set_pool(const char *value, char *to)
{
    uint64_t a, b;
    const char *p;

    if (!*value || strcmp(value, "None") == 0 || strcmp(value, "none") == 0) {
        to[0] = '\0';
        return true;
    }
    if (is_option_name(value, strlen(value))) {
        snprintf(to, NGD_OPTION_TEXT_MAX, "%s", value);
        return true;
    }
    p = *value == '(' ? scan_digits(value + 1, &a) : NULL;
    p = p && *p == ',' ? scan_digits(p + 1, &b) : NULL;
    if (!p || strcmp(p, ")") != 0 || (a != 0 && b != 0))
        return false;
    snprintf(to, NGD_OPTION_TEXT_MAX, "(%" PRIu64 ",%" PRIu64 ")", a, b);
    return true;
}

static bool set_line(const char *value, char *to)
{
    if (!*value || strlen(value) >= NGD_OPTION_TEXT_MAX)
        return false;
    for (const char *p = value; *p; p++)
        if ((unsigned char)*p < ' ' || *p == 0x7f)
            return false;
    snprintf(to, NGD_OPTION_TEXT_MAX, "%s", value);
    return true;
}

static bool set_text(ngd_option_id_t id, const char *value, char *to)
{
    char text[NGD_OPTION_TEXT_MAX] = "";
    bool ok;

    switch (id) {
    case NGD_OPTION_POST_GRAD_CUSTOM_PRE_PASS:
    case NGD_OPTION_POST_GRAD_CUSTOM_POST_PASS:
        ok = set_names(value, text);
        break;
    case NGD_OPTION_DISABLE_PASSES:
        ok = set_names(value, text) && are_passes(text);
        break;
    case NGD_OPTION_USE_GRAPH_POOL:
        ok = set_pool(value, text);
        break;
    default:
        ok = set_line(value, text);
    }
    if (ok)
        memcpy(to, text, sizeof(text));
    return ok;
}

static bool set_value(ngd_option_id_t id, struct ngd_graph_options *options, const char *value)
{
    const struct row *row = &rows[id];

    switch (row->info.type) {
    case NGD_OPTION_BOOL:
        return set_bool(value, option_field(options, row));
    case NGD_OPTION_INT:
        return set_int(row, value, option_field(options, row));
    case NGD_OPTION_ENUM:
        return set_enum(row, value, option_field(options, row));
    case NGD_OPTION_TEXT:
        return set_text(id, value, option_field(options, row));
    }
    return false;
}

static bool same_value(const struct row *row, const struct ngd_graph_options *a, const struct ngd_graph_options *b)
{
    const void *x = const_field(a, row), *y = const_field(b, row);

    switch (row->info.type) {
    case NGD_OPTION_BOOL:
        return *(const bool *)x == *(const bool *)y;
    case NGD_OPTION_INT:
        return *(const int64_t *)x == *(const int64_t *)y;
    case NGD_OPTION_ENUM:
        return *(const int *)x == *(const int *)y;
    case NGD_OPTION_TEXT:
        return strcmp(x, y) == 0;
    }
    return false;
}

void ngd_graph_options_init(struct ngd_graph_options *options)
{
    *options = (struct ngd_graph_options){0};
    for (int i = 0; i < NGD_OPTION_MAX; i++) /* cannot fail: a test shows that the table's defaults are valid */
        if (rows[i].info.def[0])
            (void)set_value((ngd_option_id_t)i, options, rows[i].info.def);
}

/* ---- refusals ---- */

static ngd_status_t refuse_name(const char *name, bool capture, struct ngd_diag *diag)
{
    struct ngd_strbuf names;
    uint32_t n = 0;

    ngd_strbuf_init(&names);
    for (int i = 0; i < NGD_OPTION_MAX; i++)
        if (!capture || rows[i].info.per_capture)
            ngd_strbuf_printf(&names, "%s%s", n++ ? ", " : "", rows[i].info.name);
    if (ngd_option_find(name) < 0)
        ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT, "there is no option \"%.64s\"; allowed: %s", name,
                     ngd_strbuf_str(&names));
    else
        ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT,
                     "option %s is given when a graph is registered, not with a capture; allowed here: %s", name,
                     ngd_strbuf_str(&names));
    ngd_strbuf_fini(&names);
    return NGD_ERR_INVALID_ARGUMENT;
}

static ngd_status_t refuse_value(ngd_option_id_t id, const char *value, struct ngd_diag *diag)
{
    struct ngd_strbuf allowed;

    ngd_strbuf_init(&allowed);
    ngd_option_print_allowed(id, &allowed);
    ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT, "option %s cannot be \"%.100s\"; allowed: %s", rows[id].info.name,
                 value, ngd_strbuf_str(&allowed));
    ngd_strbuf_fini(&allowed);
    return NGD_ERR_INVALID_ARGUMENT;
}

static ngd_status_t set_named(struct ngd_graph_options *options, const char *name, const char *value, bool capture,
                              struct ngd_diag *diag)
{
    struct ngd_graph_options wanted = *options, defaults;
    int id = ngd_option_find(name);

    if (id < 0 || (capture && !rows[id].info.per_capture))
        return refuse_name(name, capture, diag);
    if (!set_value((ngd_option_id_t)id, &wanted, value))
        return refuse_value((ngd_option_id_t)id, value, diag);
    ngd_graph_options_init(&defaults);
    if (!rows[id].info.supported && !same_value(&rows[id], &wanted, &defaults))
        return ngd_diag_set(diag, NGD_ERR_UNIMPLEMENTED, "option %s: \"%.100s\" is not supported yet, only %s", name,
                            value, rows[id].info.def[0] ? rows[id].info.def : "leaving it out");
    wanted.given |= UINT64_C(1) << id;
    *options = wanted;
    return NGD_OK;
}

ngd_status_t ngd_graph_options_set(struct ngd_graph_options *options, const char *name, const char *value,
                                   struct ngd_diag *diag)
{
    return set_named(options, name, value, false, diag);
}

ngd_status_t ngd_graph_options_set_for_capture(struct ngd_graph_options *options, const char *name, const char *value,
                                               struct ngd_diag *diag)
{
    return set_named(options, name, value, true, diag);
}

static bool given(const struct ngd_graph_options *o, ngd_option_id_t id)
{
    return o->given >> id & 1;
}

static ngd_status_t contradiction(struct ngd_diag *diag, const char *text)
{
    return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT, "%s", text);
}

ngd_status_t ngd_graph_options_check(const struct ngd_graph_options *o, struct ngd_diag *diag)
{
    if (o->force_eager && o->force_recapture)
        return contradiction(diag, "force_eager captures nothing, so force_recapture contradicts it; give one of them");
    if (o->force_eager && o->deadlock_check)
        return contradiction(diag, "deadlock_check checks a capture, but force_eager makes none; give one of them");
    if (o->force_eager && o->verify_every_n)
        return contradiction(diag, "verify_every_n compares replays with eager runs, but force_eager makes all runs "
                                   "eager, so there are no others; give one of them");
    if (o->dump_tensor_data && o->verify_every_n)
        return contradiction(diag, "dump_tensor_data runs a copy of the graph at every replay, so that verify_every_n "
                                   "would compare nothing; give one of them");
    if (o->use_graph_pool[0] && o->reuse_graph_pool_in_same_fx && given(o, NGD_OPTION_REUSE_GRAPH_POOL_IN_SAME_FX))
        return contradiction(diag, "use_graph_pool names the pool, so reuse_graph_pool_in_same_fx=true contradicts "
                                   "it; leave one of them out");
    if (o->disable_static_kernel_compile_cache && !o->static_kernel_compile)
        return contradiction(diag, "disable_static_kernel_compile_cache has no effect without static_kernel_compile");
    if (!o->dump_tensor_data && (given(o, NGD_OPTION_DATA_DUMP_STAGE) || given(o, NGD_OPTION_DATA_DUMP_DIR)))
        return contradiction(diag, "data_dump_stage and data_dump_dir have no effect without dump_tensor_data");
    if (!o->debug_dump && given(o, NGD_OPTION_DEBUG_DUMP_DIR))
        return contradiction(diag, "debug_dump_dir has no effect without debug_dump");
    if (o->force_eager && o->debug_dump)
        return contradiction(diag, "debug_dump saves files of captures, but force_eager makes none; give one of them");
    return NGD_OK;
}

/* ---- printing ---- */

static void value_text(const struct ngd_graph_options *options, const struct row *row, char text[NGD_OPTION_TEXT_MAX])
{
    const void *x = const_field(options, row);
    const char *at = row->words, *word = "";
    size_t n = 0;

    switch (row->info.type) {
    case NGD_OPTION_BOOL:
        snprintf(text, NGD_OPTION_TEXT_MAX, "%s", *(const bool *)x ? "true" : "false");
        return;
    case NGD_OPTION_INT:
        snprintf(text, NGD_OPTION_TEXT_MAX, "%" PRId64, *(const int64_t *)x);
        return;
    case NGD_OPTION_ENUM:
        for (int i = 0; i <= *(const int *)x; i++)
            word = next_word(&at, &n);
        snprintf(text, NGD_OPTION_TEXT_MAX, "%.*s", (int)n, word);
        return;
    case NGD_OPTION_TEXT:
        snprintf(text, NGD_OPTION_TEXT_MAX, "%s", (const char *)x);
        return;
    }
}

void ngd_option_print_value(const struct ngd_graph_options *options, ngd_option_id_t id, struct ngd_strbuf *sb)
{
    char text[NGD_OPTION_TEXT_MAX];

    value_text(options, &rows[id], text);
    ngd_strbuf_append(sb, text);
}

void ngd_graph_options_print(const struct ngd_graph_options *options, bool key_only, struct ngd_strbuf *sb)
{
    for (int i = 0; i < NGD_OPTION_MAX; i++) {
        if (key_only && !rows[i].info.in_key)
            continue;
        ngd_strbuf_printf(sb, "%s=", rows[i].info.name);
        ngd_option_print_value(options, (ngd_option_id_t)i, sb);
        ngd_strbuf_putc(sb, '\n');
    }
}

void ngd_graph_options_print_changed(const struct ngd_graph_options *options, struct ngd_strbuf *sb)
{
    struct ngd_graph_options defaults;
    const char *between = "";

    ngd_graph_options_init(&defaults);
    for (int i = 0; i < NGD_OPTION_MAX; i++) {
        if (same_value(&rows[i], options, &defaults))
            continue;
        ngd_strbuf_printf(sb, "%s%s=", between, rows[i].info.name);
        ngd_option_print_value(options, (ngd_option_id_t)i, sb);
        between = " ";
    }
}

bool ngd_graph_options_are_default(const struct ngd_graph_options *options)
{
    struct ngd_graph_options defaults;

    ngd_graph_options_init(&defaults);
    for (int i = 0; i < NGD_OPTION_MAX; i++)
        if (!same_value(&rows[i], options, &defaults))
            return false;
    return true;
}

/* Does not allocate, because a failed allocation could make two digests equal. */
void ngd_graph_options_digest(const struct ngd_graph_options *options, bool key_only, struct ngd_digest *digest_p)
{
    struct ngd_digest parts[NGD_OPTION_MAX] = {0};

    for (int i = 0; i < NGD_OPTION_MAX; i++) {
        char value[NGD_OPTION_TEXT_MAX], line[64 + NGD_OPTION_TEXT_MAX];
        int n;

        if (key_only && !rows[i].info.in_key)
            continue;
        value_text(options, &rows[i], value);
        n = snprintf(line, sizeof(line), "%s=%s", rows[i].info.name, value);
        ngd_digest_of(line, (size_t)n, &parts[i]);
    }
    ngd_digest_of(parts, sizeof(parts), digest_p);
}

void ngd_graph_options_no_passes(struct ngd_graph_options *options)
{
    snprintf(options->disable_passes, sizeof(options->disable_passes), "all");
    options->inplace_pass = false;
    options->input_inplace_pass = false;
    options->pattern_fusion_pass = false;
    options->remove_noop_ops = false;
    options->remove_cat_ops = false;
}
