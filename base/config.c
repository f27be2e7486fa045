/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Table-driven options.
 *
 * All values enter through set_field(), whether they come from a default, a file or a command line,
 * so they meet the same checks. A diagnosis says what was given and what is allowed; the reader of
 * files puts "file:line: " in front. After an error the options may be partly set: the owner drops
 * them, or (on a reload) reads into a second struct first.
 */
#include "base/config.h"
#include "base/fault.h"
#include "base/mem.h"
#include "base/nearest.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_MAX_BYTES (1024 * 1024)
#define DROP_INS_MAX   256
#define SOURCE_MAX     1024 /* bytes of a source; the places of a list that come after them are not remembered */

struct unit {
    const char *name;
    uint64_t factor;
};

static const struct unit size_units[] = {
    {"", 1},   {"K", UINT64_C(1) << 10}, {"M", UINT64_C(1) << 20}, {"G", UINT64_C(1) << 30}, {"T", UINT64_C(1) << 40},
    {NULL, 0},
};
static const struct unit time_units[] = {
    {"us", NGD_USEC}, {"ms", NGD_MSEC}, {"s", NGD_SEC}, {"m", 60 * (uint64_t)NGD_SEC}, {"h", 3600 * (uint64_t)NGD_SEC},
    {NULL, 0},
};

/* Parses digits and a unit, and nothing else. */
static ngd_status_t parse_with_unit(const char *text, const struct unit *units, uint64_t *v_p)
{
    uint64_t v = 0;
    const char *p = text;

    if (*p < '0' || *p > '9')
        return NGD_ERR_INVALID_ARGUMENT;
    for (; *p >= '0' && *p <= '9'; p++)
        if (__builtin_mul_overflow(v, 10, &v) || __builtin_add_overflow(v, (uint64_t)(*p - '0'), &v))
            return NGD_ERR_OUT_OF_RANGE;
    if (v == 0 && !*p) { /* 0 needs no unit */
        *v_p = 0;
        return NGD_OK;
    }
    for (; units->name; units++) {
        if (strcmp(units->name, p) == 0) {
            if (__builtin_mul_overflow(v, units->factor, &v))
                return NGD_ERR_OUT_OF_RANGE;
            *v_p = v;
            return NGD_OK;
        }
    }
    return NGD_ERR_INVALID_ARGUMENT;
}

ngd_status_t ngd_parse_size(const char *text, uint64_t *bytes_p)
{
    return parse_with_unit(text, size_units, bytes_p);
}

ngd_status_t ngd_parse_time(const char *text, ngd_nsec_t *t_p)
{
    uint64_t v;
    ngd_status_t status = parse_with_unit(text, time_units, &v);

    if (status == NGD_OK && v > INT64_MAX)
        status = NGD_ERR_OUT_OF_RANGE;
    if (status == NGD_OK)
        *t_p = (ngd_nsec_t)v;
    return status;
}

static bool bounded(const struct ngd_config_option *opt)
{
    return opt->min != 0 || opt->max != 0;
}

/* Writes v in the largest unit that divides it, so that it can be pasted back. */
static void put_number(struct ngd_strbuf *sb, ngd_config_type_t type, int64_t v)
{
    const struct unit *units = type == NGD_CONFIG_SIZE ? size_units : time_units;
    const struct unit *best = &units[0];

    if (type == NGD_CONFIG_INT || v == 0) {
        ngd_strbuf_printf(sb, "%lld", (long long)v);
        return;
    }
    for (const struct unit *u = units; u->name; u++)
        if ((uint64_t)v % u->factor == 0)
            best = u;
    ngd_strbuf_printf(sb, "%lld%s", (long long)v / (long long)best->factor, best->name);
}

/* Writes what is allowed, for errors and the help: "yes or no", "1 to 64", "one of: a, b". */
static void put_allowed(struct ngd_strbuf *sb, const struct ngd_config_option *opt)
{
    switch (opt->type) {
    case NGD_CONFIG_BOOL:
        ngd_strbuf_append(sb, "yes or no");
        break;
    case NGD_CONFIG_INT:
    case NGD_CONFIG_SIZE:
    case NGD_CONFIG_TIME:
        ngd_strbuf_append(sb, opt->type == NGD_CONFIG_INT    ? "an integer"
                              : opt->type == NGD_CONFIG_SIZE ? "bytes, or a number with K, M, G or T"
                                                             : "a number with us, ms, s, m or h");
        if (bounded(opt)) {
            ngd_strbuf_append(sb, ", ");
            put_number(sb, opt->type, opt->min);
            ngd_strbuf_append(sb, " to ");
            put_number(sb, opt->type, opt->max);
        }
        break;
    case NGD_CONFIG_ENUM:
        ngd_strbuf_append(sb, "one of: ");
        for (const char *p = opt->choices; *p; p++) {
            if (*p == ' ')
                ngd_strbuf_append(sb, ", ");
            else
                ngd_strbuf_putc(sb, *p);
        }
        break;
    case NGD_CONFIG_STRING:
    case NGD_CONFIG_LIST:
        ngd_strbuf_append(sb, "text");
        break;
    }
}

static ngd_status_t bad_value(const struct ngd_config_option *opt, const char *value, const char *problem,
                              struct ngd_diag *diag)
{
    struct ngd_strbuf allowed, quoted;

    ngd_strbuf_init(&allowed);
    ngd_strbuf_init(&quoted);
    put_allowed(&allowed, opt);
    ngd_strbuf_json_string(&quoted, value);
    ngd_diag_set(diag, NGD_ERR_CONFIG, "%s: %.200s %s; allowed: %s", opt->name, ngd_strbuf_str(&quoted), problem,
                 ngd_strbuf_str(&allowed));
    ngd_strbuf_fini(&allowed);
    ngd_strbuf_fini(&quoted);
    return NGD_ERR_CONFIG;
}

static bool parse_bool(const char *text, bool *v_p)
{
    static const struct {
        const char *text;
        bool v;
    } words[] = {{"yes", true}, {"true", true},   {"on", true},   {"1", true},
                 {"no", false}, {"false", false}, {"off", false}, {"0", false}};

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (strcmp(words[i].text, text) == 0) {
            *v_p = words[i].v;
            return true;
        }
    }
    return false;
}

static ngd_status_t parse_int(const char *text, int64_t *v_p)
{
    char *end;
    long long v;

    if (!(*text >= '0' && *text <= '9') && !(*text == '-' && text[1] >= '0' && text[1] <= '9'))
        return NGD_ERR_INVALID_ARGUMENT;
    errno = 0;
    v = strtoll(text, &end, 10);
    if (errno == ERANGE)
        return NGD_ERR_OUT_OF_RANGE;
    if (*end)
        return NGD_ERR_INVALID_ARGUMENT;
    *v_p = v;
    return NGD_OK;
}

static bool parse_choice(const char *choices, const char *text, int *index_p)
{
    size_t want = strlen(text);
    int index = 0;

    for (const char *p = choices; *p; index++) {
        size_t n = strcspn(p, " ");

        if (n == want && want > 0 && memcmp(p, text, n) == 0) {
            *index_p = index;
            return true;
        }
        p += n;
        p += strspn(p, " ");
    }
    return false;
}

void ngd_config_list_fini(struct ngd_config_list *list)
{
    for (size_t i = 0; i < list->n; i++)
        ngd_free(list->items[i]);
    ngd_free(list->items);
    *list = (struct ngd_config_list){0};
}

static ngd_status_t list_add(struct ngd_config_list *list, const char *value, size_t n)
{
    char **items = ngd_reallocarray(list->items, list->n + 1, sizeof(*items));

    if (!items)
        return NGD_ERR_NO_MEMORY;
    list->items = items;
    items[list->n] = ngd_strndup(value, n);
    if (!items[list->n])
        return NGD_ERR_NO_MEMORY;
    list->n++;
    return NGD_OK;
}

ngd_status_t ngd_config_list_copy(const struct ngd_config_list *from, struct ngd_config_list *to)
{
    ngd_status_t status = NGD_OK;

    *to = (struct ngd_config_list){.is_default = from->is_default};
    for (size_t i = 0; i < from->n && status == NGD_OK; i++)
        status = list_add(to, from->items[i], strlen(from->items[i]));
    if (status != NGD_OK)
        ngd_config_list_fini(to);
    return status;
}

static ngd_status_t set_number_option(const struct ngd_config_option *opt, void *field, const char *value,
                                      struct ngd_diag *diag)
{
    ngd_status_t status;
    uint64_t bytes = 0;
    int64_t v = 0;

    if (opt->type == NGD_CONFIG_INT) {
        status = parse_int(value, &v);
    } else if (opt->type == NGD_CONFIG_TIME) {
        status = ngd_parse_time(value, &v);
    } else {
        status = ngd_parse_size(value, &bytes);
        if (status == NGD_OK && bounded(opt) && bytes > INT64_MAX)
            status = NGD_ERR_OUT_OF_RANGE;
        v = (int64_t)bytes;
    }
    if (status == NGD_OK && bounded(opt) && (v < opt->min || v > opt->max))
        status = NGD_ERR_OUT_OF_RANGE;
    if (status == NGD_ERR_OUT_OF_RANGE)
        return bad_value(opt, value, "is out of range", diag);
    if (status != NGD_OK)
        return bad_value(opt, value,
                         opt->type == NGD_CONFIG_INT    ? "is not an integer"
                         : opt->type == NGD_CONFIG_SIZE ? "is not a size"
                                                        : "is not a time",
                         diag);
    if (opt->type == NGD_CONFIG_SIZE)
        *(uint64_t *)field = bytes;
    else
        *(int64_t *)field = v;
    return NGD_OK;
}

static ngd_status_t config_no_memory(struct ngd_diag *diag)
{
    return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "out of memory while reading the configuration");
}

/* Refuses control characters: values go to log lines, file names and prompts. */
static bool is_text_value(const char *value)
{
    for (const char *p = value; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f)
            return false;
    return true;
}

static ngd_status_t set_field(const struct ngd_config_option *opt, void *opts, const char *value, struct ngd_diag *diag)
{
    void *field = (char *)opts + opt->offset;
    char *copy;

    if (!is_text_value(value))
        return bad_value(opt, value, "has control characters", diag);
    switch (opt->type) {
    case NGD_CONFIG_BOOL:
        if (!parse_bool(value, field))
            return bad_value(opt, value, "is neither yes nor no", diag);
        return NGD_OK;
    case NGD_CONFIG_INT:
    case NGD_CONFIG_SIZE:
    case NGD_CONFIG_TIME:
        return set_number_option(opt, field, value, diag);
    case NGD_CONFIG_STRING:
        copy = ngd_strdup(value);
        if (!copy)
            return config_no_memory(diag);
        ngd_free(*(char **)field);
        *(char **)field = copy;
        return NGD_OK;
    case NGD_CONFIG_ENUM:
        if (!parse_choice(opt->choices, value, field))
            return bad_value(opt, value, "is not a choice", diag);
        return NGD_OK;
    case NGD_CONFIG_LIST: {
        struct ngd_config_list *list = field;

        if (list->is_default)
            ngd_config_list_fini(list);
        /* An empty value empties the list, so that a file can take a default away. */
        if (!*value) {
            ngd_config_list_fini(list);
            return NGD_OK;
        }
        return list_add(list, value, strlen(value)) == NGD_OK ? NGD_OK : config_no_memory(diag);
    }
    }
    return ngd_diag_set(diag, NGD_ERR_INTERNAL, "%s: the option table has an unknown type", opt->name);
}

/* ---- where options were set -------------------------------------------------------------------------------- */

/* Returns the sources of all options, in the order of the table; NULL: they are not remembered. */
static char ***sources_of(const struct ngd_config_option *table, void *opts)
{
    while (table->name)
        table++;
    return table->offset ? (char ***)((char *)opts + table->offset) : NULL;
}

static size_t count_options(const struct ngd_config_option *table)
{
    size_t n = 0;

    while (table[n].name)
        n++;
    return n;
}

/* Remembers where an option was set. A list was set in several places, of which the first few are remembered. */
static ngd_status_t note_source(const struct ngd_config_option *table, void *opts, const struct ngd_config_option *opt,
                                const char *where)
{
    char ***sources = sources_of(table, opts), **source, *before, *text;
    size_t had, n = strlen(where);

    if (!sources || !*sources)
        return NGD_OK;
    source = &(*sources)[opt - table];
    before = opt->type == NGD_CONFIG_LIST ? *source : NULL;
    had = before ? strlen(before) : 0;
    if (had > SOURCE_MAX)
        return NGD_OK;
    text = ngd_malloc(had + n + 3);
    if (!text)
        return NGD_ERR_NO_MEMORY;
    memcpy(text, before ? before : "", had);
    memcpy(text + had, ", ", 2);
    memcpy(text + had + (had ? 2 : 0), where, n + 1);
    ngd_free(*source);
    *source = text;
    return NGD_OK;
}

const char *ngd_config_source(const struct ngd_config_option *table, const struct ngd_config_option *opt,
                              const void *opts)
{
    char ***sources = sources_of(table, (void *)(uintptr_t)opts);

    return sources && *sources && (*sources)[opt - table] ? (*sources)[opt - table] : "default";
}

static void free_sources(const struct ngd_config_option *table, void *opts)
{
    char ***sources = sources_of(table, opts);

    if (!sources || !*sources)
        return;
    for (size_t i = 0; table[i].name; i++)
        ngd_free((*sources)[i]);
    ngd_free(*sources);
    *sources = NULL;
}

/* ---- defaults ---------------------------------------------------------------------------------------------- */

static ngd_status_t set_default_option(const struct ngd_config_option *opt, void *opts, struct ngd_diag *diag)
{
    struct ngd_config_list *list = (void *)((char *)opts + opt->offset);

    if (opt->type != NGD_CONFIG_LIST)
        return set_field(opt, opts, opt->def, diag);
    for (const char *p = opt->def; *p;) {
        size_t n = strcspn(p, "\n");

        if (n && list_add(list, p, n) != NGD_OK)
            return config_no_memory(diag);
        p += n;
        p += strspn(p, "\n");
    }
    list->is_default = true;
    return NGD_OK;
}

ngd_status_t ngd_config_init(const struct ngd_config_option *table, void *opts, struct ngd_diag *diag)
{
    char ***sources = sources_of(table, opts);

    /* Clears the owned pointers first, so that ngd_config_fini works after a failure half-way. */
    if (sources)
        *sources = ngd_calloc(count_options(table) + 1, sizeof(**sources));
    for (const struct ngd_config_option *opt = table; opt->name; opt++) {
        void *field = (char *)opts + opt->offset;

        if (opt->type == NGD_CONFIG_STRING)
            *(char **)field = NULL;
        else if (opt->type == NGD_CONFIG_LIST)
            *(struct ngd_config_list *)field = (struct ngd_config_list){0};
    }
    if (sources && !*sources)
        return config_no_memory(diag);
    for (const struct ngd_config_option *opt = table; opt->name; opt++) {
        ngd_status_t status = set_default_option(opt, opts, diag);

        if (status != NGD_OK) {
            ngd_diag_prefix(diag, "default of ");
            ngd_config_fini(table, opts);
            return status;
        }
    }
    return NGD_OK;
}

void ngd_config_fini(const struct ngd_config_option *table, void *opts)
{
    for (const struct ngd_config_option *opt = table; opt->name; opt++) {
        void *field = (char *)opts + opt->offset;

        if (opt->type == NGD_CONFIG_STRING) {
            ngd_free(*(char **)field);
            *(char **)field = NULL;
        } else if (opt->type == NGD_CONFIG_LIST) {
            ngd_config_list_fini(field);
        }
    }
    free_sources(table, opts);
}

static void unknown_option(const struct ngd_config_option *table, const char *name, struct ngd_diag *diag)
{
    struct ngd_strbuf sb, quoted;
    struct ngd_nearest nearest;
    char hint[96];

    ngd_nearest_init(&nearest, name, strlen(name));
    ngd_strbuf_init(&sb);
    ngd_strbuf_init(&quoted);
    ngd_strbuf_json_string(&quoted, name);
    for (const struct ngd_config_option *opt = table; opt->name; opt++)
        ngd_nearest_add(&nearest, opt->name);
    ngd_strbuf_append(&sb, ngd_nearest_hint(&nearest, "", hint, sizeof(hint)));
    ngd_strbuf_append(&sb, "; allowed: ");
    for (const struct ngd_config_option *opt = table; opt->name; opt++)
        ngd_strbuf_printf(&sb, opt == table ? "%s" : ", %s", opt->name);
    ngd_diag_set(diag, NGD_ERR_CONFIG, "unknown option %.100s%s", ngd_strbuf_str(&quoted), ngd_strbuf_str(&sb));
    ngd_strbuf_fini(&sb);
    ngd_strbuf_fini(&quoted);
}

const struct ngd_config_option *ngd_config_find(const struct ngd_config_option *table, const char *name,
                                                struct ngd_diag *diag)
{
    for (const struct ngd_config_option *opt = table; opt->name; opt++)
        if (strcmp(opt->name, name) == 0)
            return opt;
    unknown_option(table, name, diag);
    return NULL;
}

ngd_status_t ngd_config_set(const struct ngd_config_option *table, void *opts, const char *name, const char *value,
                            struct ngd_diag *diag)
{
    const struct ngd_config_option *opt = ngd_config_find(table, name, diag);
    ngd_status_t status = opt ? set_field(opt, opts, value, diag) : NGD_ERR_CONFIG;

    if (status == NGD_OK && note_source(table, opts, opt, NGD_CONFIG_COMMAND_LINE) != NGD_OK)
        return config_no_memory(diag);
    return status;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

/* Cuts blanks from both ends. */
static char *trim(char *s)
{
    size_t n;

    while (is_blank(*s))
        s++;
    n = strlen(s);
    while (n > 0 && is_blank(s[n - 1]))
        s[--n] = '\0';
    return s;
}

/* A file, of which one line after the other is read. */
struct config_reading {
    const struct ngd_config_option *table;
    void *opts;
    const char *origin;
    unsigned number;   /* of the line */
    unsigned *seen_at; /* of each option: the line that set it, or 0 */
};

static ngd_status_t set_by_line(struct config_reading *r, const struct ngd_config_option *opt, const char *value,
                                struct ngd_diag *diag)
{
    ngd_status_t status = set_field(opt, r->opts, value, diag);
    struct ngd_strbuf where;

    if (status != NGD_OK)
        return status;
    r->seen_at[opt - r->table] = r->number;
    ngd_strbuf_init(&where);
    ngd_strbuf_printf(&where, "%s:%u", r->origin, r->number);
    if (where.failed || note_source(r->table, r->opts, opt, ngd_strbuf_str(&where)) != NGD_OK)
        status = config_no_memory(diag);
    ngd_strbuf_fini(&where);
    return status;
}

/* Reads one line, and may write to it. */
static ngd_status_t read_config_line(struct config_reading *r, char *line, struct ngd_diag *diag)
{
    const struct ngd_config_option *opt;
    char *name = trim(line), *equals, *value;

    if (*name == '\0' || *name == '#')
        return NGD_OK;
    equals = strchr(name, '=');
    if (!equals)
        return ngd_diag_set(
            diag, NGD_ERR_CONFIG,
            "not of the form \"name = value\"; allowed: this form, empty lines, and lines that start with #");
    *equals = '\0';
    name = trim(name);
    value = trim(equals + 1);
    opt = ngd_config_find(r->table, name, diag);
    if (!opt)
        return NGD_ERR_CONFIG;
    if (r->seen_at[opt - r->table] && opt->type != NGD_CONFIG_LIST)
        return ngd_diag_set(diag, NGD_ERR_CONFIG, "%s was set in line %u already; allowed: once", name,
                            r->seen_at[opt - r->table]);
    return set_by_line(r, opt, value, diag);
}

ngd_status_t ngd_config_read_text(const struct ngd_config_option *table, void *opts, const char *text, size_t n,
                                  const char *origin, struct ngd_diag *diag)
{
    struct config_reading r = {.table = table, .opts = opts, .origin = origin};
    ngd_status_t status = NGD_OK;
    size_t start = 0;

    r.seen_at = ngd_calloc(count_options(table) + 1, sizeof(*r.seen_at));
    if (!r.seen_at)
        return config_no_memory(diag);
    while (start < n && status == NGD_OK) {
        const char *newline = memchr(text + start, '\n', n - start);
        size_t len = newline ? (size_t)(newline - text) - start : n - start;
        char *line = NULL;

        r.number++;
        if (memchr(text + start, '\0', len)) {
            status = ngd_diag_set(diag, NGD_ERR_CONFIG, "has a zero byte; allowed: text");
        } else {
            line = ngd_strndup(text + start, len);
            status = line ? read_config_line(&r, line, diag) : config_no_memory(diag);
        }
        if (status != NGD_OK)
            ngd_diag_prefix(diag, "%s:%u: ", origin, r.number);
        ngd_free(line);
        start += len + 1;
    }
    ngd_free(r.seen_at);
    return status;
}

/* Reads a whole regular file into *text_p, which the caller frees. */
static int read_config_file(const char *path, char **text_p, size_t *n_p)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY), err = 0;
    size_t n = 0;
    struct stat st;
    char *text = NULL;

    if (fd < 0)
        return errno;
    if (fstat(fd, &st) < 0)
        err = errno;
    else if (S_ISDIR(st.st_mode))
        err = EISDIR;
    else if (!S_ISREG(st.st_mode))
        err = EINVAL; /* a pipe or device could block the start for ever */
    else if (st.st_size > FILE_MAX_BYTES)
        err = EFBIG;
    else if (NGD_FAULT(CONFIG_READ))
        err = EIO;
    else if (!(text = ngd_malloc((size_t)st.st_size + 1)))
        err = ENOMEM;
    while (!err && n < (size_t)st.st_size) {
        ssize_t got = read(fd, text + n, (size_t)st.st_size - n);

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            err = errno;
        if (got <= 0)
            break;
        n += (size_t)got;
    }
    close(fd);
    if (err) {
        ngd_free(text);
        return err;
    }
    *text_p = text;
    *n_p = n;
    return 0;
}

ngd_status_t ngd_config_read_file(const struct ngd_config_option *table, void *opts, const char *path,
                                  struct ngd_diag *diag)
{
    char *text = NULL;
    size_t n = 0;
    int err = read_config_file(path, &text, &n);
    ngd_status_t status;

    if (err)
        return ngd_diag_set(diag, err == ENOENT ? NGD_ERR_FILE_NOT_FOUND : NGD_ERR_CONFIG, "%s: cannot be read: %s",
                            path, strerror(err));
    status = ngd_config_read_text(table, opts, text, n, path, diag);
    ngd_free(text);
    return status;
}

/* ---- drop-in directory ------------------------------------------------------------------------------------- */

static int compare_drop_ins(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static bool is_drop_in(const char *name)
{
    size_t n = strlen(name);

    return name[0] != '.' && n > 5 && strcmp(name + n - 5, ".conf") == 0;
}

ngd_status_t ngd_config_read_dir(const struct ngd_config_option *table, void *opts, const char *dir,
                                 struct ngd_diag *diag)
{
    struct ngd_config_list names = {0};
    ngd_status_t status = NGD_OK;
    const struct dirent *entry;
    DIR *d = opendir(dir);

    if (!d && errno == ENOENT)
        return NGD_OK;
    if (!d)
        return ngd_diag_set(diag, NGD_ERR_CONFIG, "%s: cannot be read: %s", dir, strerror(errno));
    while (!status && (entry = readdir(d)) != NULL) {
        if (!is_drop_in(entry->d_name))
            continue;
        if (names.n == DROP_INS_MAX)
            status = ngd_diag_set(diag, NGD_ERR_CONFIG, "%s: has more than %d files", dir, DROP_INS_MAX);
        else if (list_add(&names, entry->d_name, strlen(entry->d_name)) != NGD_OK)
            status = config_no_memory(diag);
    }
    closedir(d);
    if (names.n > 0)
        qsort(names.items, names.n, sizeof(*names.items), compare_drop_ins);
    for (size_t i = 0; !status && i < names.n; i++) {
        struct ngd_strbuf path;

        ngd_strbuf_init(&path);
        ngd_strbuf_printf(&path, "%s/%s", dir, names.items[i]);
        status = ngd_config_read_file(table, opts, ngd_strbuf_str(&path), diag);
        ngd_strbuf_fini(&path);
    }
    ngd_config_list_fini(&names);
    return status;
}

/* ---- values ------------------------------------------------------------------------------------------------ */

static void print_choice(const char *choices, int index, struct ngd_strbuf *sb)
{
    for (; index > 0 && *choices; index--) {
        choices += strcspn(choices, " ");
        choices += strspn(choices, " ");
    }
    ngd_strbuf_append_n(sb, choices, strcspn(choices, " "));
}

void ngd_config_print(const struct ngd_config_option *opt, const void *opts, struct ngd_strbuf *sb)
{
    const void *field = (const char *)opts + opt->offset;
    const struct ngd_config_list *list = field;

    switch (opt->type) {
    case NGD_CONFIG_BOOL:
        ngd_strbuf_append(sb, *(const bool *)field ? "yes" : "no");
        break;
    case NGD_CONFIG_INT:
    case NGD_CONFIG_SIZE:
    case NGD_CONFIG_TIME:
        put_number(sb, opt->type, *(const int64_t *)field);
        break;
    case NGD_CONFIG_ENUM:
        print_choice(opt->choices, *(const int *)field, sb);
        break;
    case NGD_CONFIG_STRING:
        ngd_strbuf_append(sb, *(char *const *)field);
        break;
    case NGD_CONFIG_LIST:
        for (size_t i = 0; i < list->n; i++)
            ngd_strbuf_printf(sb, "%s%s", i ? "\n" : "", list->items[i]);
        break;
    }
}

/* ---- help ---------------------------------------------------------------------------------------------------- */

static const char *type_word(ngd_config_type_t type)
{
    switch (type) {
    case NGD_CONFIG_BOOL:
        return "yes|no";
    case NGD_CONFIG_INT:
        return "N";
    case NGD_CONFIG_SIZE:
        return "SIZE";
    case NGD_CONFIG_TIME:
        return "TIME";
    case NGD_CONFIG_ENUM:
        return "WORD";
    case NGD_CONFIG_STRING:
    case NGD_CONFIG_LIST:
        return "TEXT";
    }
    return "?";
}

/* Writes an option's help, then its default, bounds and other properties. */
static void put_help(struct ngd_strbuf *sb, const struct ngd_config_option *opt)
{
    ngd_strbuf_append(sb, opt->help);
    if (opt->type != NGD_CONFIG_STRING && opt->type != NGD_CONFIG_LIST) {
        ngd_strbuf_append(sb, " Allowed: ");
        put_allowed(sb, opt);
        ngd_strbuf_putc(sb, '.');
    }
    if (opt->type == NGD_CONFIG_LIST)
        ngd_strbuf_append(sb, " May be given more than once.");
    ngd_strbuf_append(sb, " Default: ");
    for (const char *p = opt->def; *p; p++) {
        if (*p == '\n')
            ngd_strbuf_append(sb, ", ");
        else
            ngd_strbuf_putc(sb, *p);
    }
    ngd_strbuf_append(sb, *opt->def ? "." : "none.");
    ngd_strbuf_append(sb, opt->change == NGD_CONFIG_RESTART  ? " A change needs a restart."
                          : opt->change == NGD_CONFIG_RELOAD ? " A reload changes it."
                                                             : " A reload changes it. So does npugraphctl config set.");
}

/* Fills lines up to column 79, each starting with prefix. */
static void put_wrapped(struct ngd_strbuf *sb, const char *prefix, const char *text)
{
    size_t column = 0;

    while (*text) {
        size_t n = strcspn(text, " \n");

        if (column && column + 1 + n > 79) {
            ngd_strbuf_putc(sb, '\n');
            column = 0;
        }
        if (column == 0) {
            ngd_strbuf_append(sb, prefix);
            column = strlen(prefix);
        } else {
            ngd_strbuf_putc(sb, ' ');
            column++;
        }
        ngd_strbuf_append_n(sb, text, n);
        column += n;
        text += n;
        text += strspn(text, " \n");
    }
    ngd_strbuf_putc(sb, '\n');
}

/* Escapes text for roff(7): a backslash, and a dot or quote at the start of a line, are commands; "-" is a hyphen. */
static void put_roff(struct ngd_strbuf *sb, const char *text)
{
    bool line_start = true;

    for (; *text; text++) {
        if (line_start && (*text == '.' || *text == '\''))
            ngd_strbuf_append(sb, "\\&");
        if (*text == '\\')
            ngd_strbuf_append(sb, "\\e");
        else if (*text == '-')
            ngd_strbuf_append(sb, "\\-");
        else
            ngd_strbuf_putc(sb, *text);
        line_start = *text == '\n';
    }
}

static void put_sample_values(struct ngd_strbuf *sb, const struct ngd_config_option *opt)
{
    const char *p = opt->def;

    do {
        size_t n = strcspn(p, "\n");

        ngd_strbuf_printf(sb, "#%s =%s%.*s\n", opt->name, n ? " " : "", (int)n, p);
        p += n;
        p += strspn(p, "\n");
    } while (*p);
}

void ngd_config_describe(const struct ngd_config_option *table, ngd_config_style_t style, struct ngd_strbuf *sb)
{
    for (const struct ngd_config_option *opt = table; opt->name; opt++) {
        struct ngd_strbuf help;

        ngd_strbuf_init(&help);
        put_help(&help, opt);
        switch (style) {
        case NGD_CONFIG_HELP:
            ngd_strbuf_printf(sb, "  --%s=%s\n", opt->name, type_word(opt->type));
            put_wrapped(sb, "      ", ngd_strbuf_str(&help));
            break;
        case NGD_CONFIG_ROFF:
            ngd_strbuf_append(sb, ".TP\n\\fB\\-\\-");
            put_roff(sb, opt->name);
            ngd_strbuf_printf(sb, "\\fR=\\fI%s\\fR\n", type_word(opt->type));
            put_roff(sb, ngd_strbuf_str(&help));
            ngd_strbuf_putc(sb, '\n');
            break;
        case NGD_CONFIG_SAMPLE:
            put_wrapped(sb, "# ", ngd_strbuf_str(&help));
            put_sample_values(sb, opt);
            ngd_strbuf_putc(sb, '\n');
            break;
        }
        sb->failed |= help.failed;
        ngd_strbuf_fini(&help);
    }
}
