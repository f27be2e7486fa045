/* SPDX-License-Identifier: Apache-2.0 */
/* Normalizers: what happens to the text between added tokens before it is split. */
#include "client/hf/tokenizer_int.h"
#include "client/lib/error.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

/* ---- reading ------------------------------------------------------------------------------------------------- */

static const struct {
    const char *type;
    int options;
} forms[] = {
    {"NFC", UTF8PROC_STABLE | UTF8PROC_COMPOSE},
    {"NFD", UTF8PROC_STABLE | UTF8PROC_DECOMPOSE},
    {"NFKC", UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT},
    {"NFKD", UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT},
};

static int read_content(const struct npugraph__source *from, const json_t *object, const char *where, const char *name,
                        char **content_p)
{
    const char *content = NULL;
    int rc = npugraph__take_string(from, object, where, name, &content);

    if (rc == 0 && content == NULL)
        rc = npugraph__corrupt(from, "%s.%s is missing", where, name);
    if (rc == 0 && strlen(content) > NPUGRAPH__MAX_ADDED)
        rc = npugraph__unsupported(from, "%s.%s is longer than %d bytes", where, name, NPUGRAPH__MAX_ADDED);
    if (rc == 0 && (*content_p = strdup(content)) == NULL)
        rc = npugraph__no_memory(from->err);
    return rc;
}

static int read_normal(const struct npugraph__source *from, const json_t *object, const char *where,
                       struct npugraph_tokenizer *tok)
{
    struct npugraph__normal *n = &tok->normals[tok->n_normals];
    const char *type = npugraph__type_of(object);
    int rc;

    if (tok->n_normals == NPUGRAPH__MAX_STAGES)
        return npugraph__unsupported(from, "%s: more than %d normalizers", where, NPUGRAPH__MAX_STAGES);
    tok->n_normals++;
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++)
        if (strcmp(type, forms[i].type) == 0) {
            n->kind = NPUGRAPH__NORMAL_FORM;
            n->form = forms[i].options;
            return 0;
        }
    if (strcmp(type, "Prepend") == 0) {
        n->kind = NPUGRAPH__NORMAL_PREPEND;
        return read_content(from, object, where, "prepend", &n->content);
    }
    if (strcmp(type, "Replace") == 0) {
        n->kind = NPUGRAPH__NORMAL_REPLACE;
        rc = npugraph__take_pattern(from, object, where, &n->pattern);
        return rc == 0 ? read_content(from, object, where, "content", &n->content) : rc;
    }
    if (strcmp(type, "Strip") == 0) {
        n->kind = NPUGRAPH__NORMAL_STRIP;
        rc = npugraph__take_bool(from, object, where, "strip_left", &n->left);
        return rc == 0 ? npugraph__take_bool(from, object, where, "strip_right", &n->right) : rc;
    }
    return npugraph__unsupported(from,
                                 "%s.type is \"%.40s\"; NFC, NFD, NFKC, NFKD, Prepend, Replace, Strip and Sequence are "
                                 "supported",
                                 where, type);
}

int npugraph__normal_read(const struct npugraph__source *from, const json_t *root, struct npugraph_tokenizer *tok)
{
    return npugraph__read_stages(from, json_object_get(root, "normalizer"), "normalizer", "normalizers", read_normal,
                                 tok);
}

/* ---- normalising --------------------------------------------------------------------------------------------- */

static int put_formed(int options, const char *s, size_t n, struct npugraph__text *out, struct npugraph_error *err)
{
    utf8proc_uint8_t *formed = NULL;
    utf8proc_ssize_t len = utf8proc_map((const utf8proc_uint8_t *)s, (utf8proc_ssize_t)n, &formed, options);
    bool ok;

    if (len < 0)
        return npugraph__error(err, 3, "INVALID_ARGUMENT", "the text cannot be normalised: %s", utf8proc_errmsg(len));
    ok = npugraph__text_add(out, (const char *)formed, (size_t)len);
    free(formed);
    return ok ? 0 : npugraph__no_memory(err);
}

/* Characters that the tables of the tokenizers library lack end a run of characters that move and compose. */
static int put_form(int options, const char *s, size_t n, struct npugraph__text *out, struct npugraph_error *err)
{
    size_t from = 0, len;
    int rc = 0;
    int32_t c;

    for (size_t i = 0; rc == 0 && i < n; i += len) {
        len = npugraph__character(s + i, n - i, &c);
        if (!npugraph__is_unformed(c))
            continue;
        if (i > from)
            rc = put_formed(options, s + from, i - from, out, err);
        if (rc == 0 && !npugraph__text_add(out, s + i, len))
            rc = npugraph__no_memory(err);
        from = i + len;
    }
    return rc == 0 && from < n ? put_formed(options, s + from, n - from, out, err) : rc;
}

static int put_replaced(const struct npugraph__normal *rule, const char *s, size_t n, size_t most,
                        struct npugraph__text *out, struct npugraph__deadline *deadline, struct npugraph_error *err)
{
    struct npugraph__spans spans = {0};
    int rc = npugraph__pattern_find(&rule->pattern, s, n, &spans, deadline, err);

    for (size_t i = 0; rc == 0 && i < spans.n; i++) {
        const struct npugraph__span *span = &spans.items[i];

        if (span->match && span->begin == span->end)
            rc = npugraph__error(err, 3, "FILE_UNSUPPORTED",
                                 "a pattern of the tokenizer's normalizer matches nothing, which is not supported");
        else if (out->n > most)
            rc = npugraph__overgrown(err);
        else if (!(span->match ? npugraph__text_add(out, rule->content, strlen(rule->content))
                               : npugraph__text_add(out, s + span->begin, span->end - span->begin)))
            rc = npugraph__no_memory(err);
    }
    free(spans.items);
    return rc;
}

static int put_stripped(const struct npugraph__normal *rule, const char *s, size_t n, struct npugraph__text *out,
                        struct npugraph_error *err)
{
    size_t begin = 0, end = n, len;
    int32_t c;

    for (; rule->left && begin < end; begin += len) {
        len = npugraph__character(s + begin, end - begin, &c);
        if (!npugraph__is_space(c))
            break;
    }
    for (size_t i = begin, last = begin; rule->right && i < n; i += len) {
        len = npugraph__character(s + i, n - i, &c);
        last = npugraph__is_space(c) ? last : i + len;
        end = last;
    }
    return npugraph__text_add(out, s + begin, end - begin) ? 0 : npugraph__no_memory(err);
}

/* most: bytes that the text may become. */
static int put_normal(const struct npugraph__normal *rule, const char *s, size_t n, size_t most,
                      struct npugraph__text *out, struct npugraph__deadline *deadline, struct npugraph_error *err)
{
    switch (rule->kind) {
    case NPUGRAPH__NORMAL_FORM:
        return put_form(rule->form, s, n, out, err);
    case NPUGRAPH__NORMAL_REPLACE:
        return put_replaced(rule, s, n, most, out, deadline, err);
    case NPUGRAPH__NORMAL_STRIP:
        return put_stripped(rule, s, n, out, err);
    case NPUGRAPH__NORMAL_PREPEND:
        break;
    }
    return (n == 0 || npugraph__text_add(out, rule->content, strlen(rule->content))) && npugraph__text_add(out, s, n)
               ? 0
               : npugraph__no_memory(err);
}

int npugraph__normalize(const struct npugraph_tokenizer *tok, const char *s, size_t n, struct npugraph__text *out,
                        struct npugraph__deadline *deadline, struct npugraph_error *err)
{
    const size_t most = npugraph__most_grown(n);
    struct npugraph__text next = {0};
    int rc = 0;

    out->n = 0;
    if (!npugraph__text_add(out, s, n))
        return npugraph__no_memory(err);
    for (size_t i = 0; rc == 0 && i < tok->n_normals; i++) {
        struct npugraph__text was = *out;

        next.n = 0;
        rc = put_normal(&tok->normals[i], was.s, was.n, most, &next, deadline, err);
        if (rc == 0 && next.n > most)
            rc = npugraph__overgrown(err);
        if (rc == 0)
            rc = npugraph__deadline_count(deadline, was.n + next.n, err);
        *out = next;
        next = was;
    }
    npugraph__text_fini(&next);
    return rc;
}
