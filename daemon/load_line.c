/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/load_line.h"

#include "base/mem.h"
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define LINE_MAX_BYTES  8192
#define NAME_MAX_BYTES  64        /* of a model */
#define NUMBER_MOST     (1 << 24) /* as npugraphctl's */
#define ENTRY_SHOWN     160       /* bytes of an entry in a diagnosis */
#define NAME_CHARACTERS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-"

typedef enum load_value { LOAD_FLAG, LOAD_NUMBER, LOAD_SIZE, LOAD_LIST, LOAD_WORD } load_value_t;

/* The options of `npugraphctl load`; tests/rpc/test_preload.py compares them with its help. */
static const struct load_option_row {
    const char *name;
    load_value_t value;
    const char *words; /* LOAD_WORD: those that are allowed */
} load_options[] = {
    {"--max-context", LOAD_NUMBER, NULL},
    {"--max-batch", LOAD_NUMBER, NULL},
    {"--chunk", LOAD_NUMBER, NULL},
    {"--block-size", LOAD_NUMBER, NULL},
    {"--kv-bytes", LOAD_SIZE, NULL},
    {"--kv-dtype", LOAD_WORD, "auto int8 fp8 f32 f16 bf16"},
    {"--kv-policy", LOAD_WORD, "refuse preempt"},
    {"--matmul-precision", LOAD_WORD, "highest high medium"},
    {"--no-prefix-sharing", LOAD_FLAG, NULL},
    {"--devices", LOAD_LIST, NULL},
    {"--share-with", LOAD_LIST, NULL},
    {"--public", LOAD_FLAG, NULL},
    {"--private", LOAD_FLAG, NULL},
    {"--share-prefixes", LOAD_FLAG, NULL},
    {"--embedding", LOAD_FLAG, NULL},
};
#define N_LOAD_OPTIONS (sizeof(load_options) / sizeof(load_options[0]))

/* Cuts the text into words, in place. Returns false if a quote is not closed or if there are too many words. */
static bool split_load_words(struct ngd_load_line *line)
{
    char *from = line->text, *to = line->text;

    for (;;) {
        bool quoted = false;

        while (*from == ' ' || *from == '\t')
            from++;
        if (*from == '\0')
            return true;
        if (line->n == NGD_LOAD_WORDS_MAX)
            return false;
        line->words[line->n++] = to;
        for (; *from && (quoted || (*from != ' ' && *from != '\t')); from++) {
            if (*from == '"')
                quoted = !quoted;
            else
                *to++ = *from;
        }
        if (quoted)
            return false;
        from += *from != '\0'; /* before `to` takes its place */
        *to++ = '\0';
    }
}

static bool is_one_word_of(const char *words, const char *word)
{
    const size_t n = strlen(word);

    for (const char *at = words; *at; at += strcspn(at, " "), at += *at == ' ')
        if (n > 0 && strcspn(at, " ") == n && memcmp(at, word, n) == 0)
            return true;
    return false;
}

/* npugraphctl takes such a word for one of its options, wherever it stands. */
static bool is_like_option(const char *word)
{
    return word[0] == '-';
}

static bool is_list(const char *value)
{
    size_t part = 0;

    if (is_like_option(value))
        return false;
    for (; *value; value++) {
        if (*value == ',' && part == 0)
            return false;
        part = *value == ',' ? 0 : part + 1;
    }
    return part > 0;
}

static bool is_number(const char *value)
{
    const size_t n = strspn(value, "0123456789");

    return n > 0 && n < 10 && value[n] == '\0' && strtol(value, NULL, 10) >= 1 &&
           strtol(value, NULL, 10) <= NUMBER_MOST;
}

static ngd_status_t check_load_value(const struct load_option_row *row, const char *value, struct ngd_diag *diag)
{
    uint64_t bytes;

    switch (row->value) {
    case LOAD_NUMBER:
        return is_number(value) ? NGD_OK
                                : ngd_diag_set(diag, NGD_ERR_CONFIG, "load: %s is \"%.80s\"; allowed: 1 to %d",
                                               row->name, value, NUMBER_MOST);
    case LOAD_SIZE:
        return ngd_parse_size(value, &bytes) == NGD_OK
                   ? NGD_OK
                   : ngd_diag_set(diag, NGD_ERR_CONFIG, "load: %s is \"%.80s\"; allowed: a size such as 64M", row->name,
                                  value);
    case LOAD_LIST:
        return is_list(value) ? NGD_OK
                              : ngd_diag_set(diag, NGD_ERR_CONFIG,
                                             "load: %s is \"%.80s\"; allowed: a list with commas between its parts",
                                             row->name, value);
    case LOAD_WORD:
        return is_one_word_of(row->words, value)
                   ? NGD_OK
                   : ngd_diag_set(diag, NGD_ERR_CONFIG, "load: %s is \"%.80s\"; allowed: one of: %s", row->name, value,
                                  row->words);
    case LOAD_FLAG:
        break;
    }
    return NGD_OK;
}

static const struct load_option_row *find_load_option(const char *name)
{
    for (size_t i = 0; i < N_LOAD_OPTIONS; i++)
        if (strcmp(load_options[i].name, name) == 0)
            return &load_options[i];
    return NULL;
}

static ngd_status_t check_line_options(const struct ngd_load_line *line, struct ngd_diag *diag)
{
    int audiences = 0;

    for (size_t i = 2; i < line->n; i++) {
        const struct load_option_row *row = find_load_option(line->words[i]);
        ngd_status_t status;

        if (!row)
            return ngd_diag_set(diag, NGD_ERR_CONFIG,
                                "load: \"%.80s\" is none of the options of npugraphctl load (--name is the first word)",
                                line->words[i]);
        audiences += is_one_word_of("--share-with --public --private", row->name);
        if (row->value == LOAD_FLAG)
            continue;
        if (++i == line->n)
            return ngd_diag_set(diag, NGD_ERR_CONFIG, "load: %s needs a value", row->name);
        status = check_load_value(row, line->words[i], diag);
        if (status != NGD_OK)
            return status;
    }
    return audiences <= 1
               ? NGD_OK
               : ngd_diag_set(diag, NGD_ERR_CONFIG, "load: a model has one of --share-with, --public and --private");
}

static ngd_status_t check_line(const struct ngd_load_line *line, const char *entry, struct ngd_diag *diag)
{
    const char *name = line->n > 0 ? line->words[0] : "";
    const size_t n = strlen(name);

    if (line->n < 2)
        return ngd_diag_set(
            diag, NGD_ERR_CONFIG,
            "load: \"%.*s\" is not NAME PATH [OPTION...], as in: qwen3 /srv/models/qwen3 --max-batch 32", ENTRY_SHOWN,
            entry);
    if (n == 0 || n > NAME_MAX_BYTES || strspn(name, NAME_CHARACTERS) != n || is_like_option(name))
        return ngd_diag_set(
            diag, NGD_ERR_CONFIG,
            "load: \"%.80s\" is no name of a model, which has 1 to %d of A-Z a-z 0-9 . _ - and here no - in front",
            name, NAME_MAX_BYTES);
    if (line->words[1][0] != '/')
        return ngd_diag_set(diag, NGD_ERR_CONFIG,
                            "load: \"%.*s\" is not an absolute path of a directory or a GGUF file", ENTRY_SHOWN,
                            line->words[1]);
    return check_line_options(line, diag);
}

ngd_status_t ngd_load_line_parse(const char *entry, struct ngd_load_line *line_p, struct ngd_diag *diag)
{
    struct ngd_load_line line = {0};
    ngd_status_t status;

    if (strlen(entry) > LINE_MAX_BYTES)
        return ngd_diag_set(diag, NGD_ERR_CONFIG, "load: \"%.*s...\" is longer than %d bytes", ENTRY_SHOWN, entry,
                            LINE_MAX_BYTES);
    line.text = ngd_strdup(entry);
    if (!line.text)
        return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "load: out of memory");
    if (split_load_words(&line))
        status = check_line(&line, entry, diag);
    else
        status = ngd_diag_set(diag, NGD_ERR_CONFIG, "load: \"%.*s\" has an open quote, or more than %d words",
                              ENTRY_SHOWN, entry, NGD_LOAD_WORDS_MAX);
    if (status == NGD_OK)
        *line_p = line;
    else
        ngd_load_line_fini(&line);
    return status;
}

void ngd_load_line_fini(struct ngd_load_line *line)
{
    ngd_free(line->text);
    *line = (struct ngd_load_line){0};
}

/* Compares the first words of two entries that were parsed. */
static bool same_model_name(const char *a, const struct ngd_load_line *line)
{
    struct ngd_load_line other = {0};
    const bool same = ngd_load_line_parse(a, &other, NULL) == NGD_OK && strcmp(other.words[0], line->words[0]) == 0;

    ngd_load_line_fini(&other);
    return same;
}

ngd_status_t ngd_load_lines_check(const struct ngd_config_list *entries, struct ngd_diag *diag)
{
    if (entries->n > NGD_LOAD_LINES_MAX)
        return ngd_diag_set(diag, NGD_ERR_CONFIG, "load: %zu models; allowed: %d", entries->n, NGD_LOAD_LINES_MAX);
    for (size_t i = 0; i < entries->n; i++) {
        struct ngd_load_line line = {0};
        ngd_status_t status = ngd_load_line_parse(entries->items[i], &line, diag);

        for (size_t j = 0; j < i && status == NGD_OK; j++)
            if (same_model_name(entries->items[j], &line))
                status = ngd_diag_set(diag, NGD_ERR_CONFIG, "load: two entries have the name %s", line.words[0]);
        ngd_load_line_fini(&line);
        if (status != NGD_OK)
            return status;
    }
    return NGD_OK;
}
