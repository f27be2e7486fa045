/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decoders, as tokens come. Each stage takes whole tokens and passes on what later tokens cannot change; it holds the
 * rest. Behind Fuse and ByteLevel all tokens are one, and stages take it in parts. What has been given out is always a
 * beginning of what decoding all tokens at once gives.
 */
#include "client/hf/tokenizer_int.h"
#include "client/lib/error.h"

#include <stdlib.h>
#include <string.h>

#define REPLACEMENT "\xef\xbf\xbd" /* U+FFFD */

/* ---- reading ------------------------------------------------------------------------------------------------- */

static int take_decode_text(const struct npugraph__source *from, const json_t *object, const char *where,
                            const char *name, char **text_p)
{
    const char *text = NULL;
    int rc = npugraph__take_string(from, object, where, name, &text);

    if (rc == 0 && (text == NULL || strlen(text) > NPUGRAPH__MAX_ADDED))
        rc = npugraph__corrupt(from, "%s.%s is missing or longer than %d bytes", where, name, NPUGRAPH__MAX_ADDED);
    if (rc == 0 && (*text_p = strdup(text)) == NULL)
        rc = npugraph__no_memory(from->err);
    return rc;
}

static int take_character(const struct npugraph__source *from, const json_t *object, const char *where,
                          const char *name, char **text_p)
{
    int rc = take_decode_text(from, object, where, name, text_p);
    int32_t c;

    if (rc == 0 && ((*text_p)[0] == '\0' || npugraph__character(*text_p, strlen(*text_p), &c) != strlen(*text_p)))
        rc = npugraph__corrupt(from, "%s.%s is not one character", where, name);
    return rc;
}

static int read_metaspace_decode(const struct npugraph__source *from, const json_t *object, const char *where,
                                 struct npugraph__decode *d)
{
    const char *scheme = "always";
    bool add = true;
    int rc;

    d->kind = NPUGRAPH__DECODE_METASPACE;
    if ((rc = take_character(from, object, where, "replacement", &d->pattern)) != 0 ||
        (rc = npugraph__take_string(from, object, where, "prepend_scheme", &scheme)) != 0 ||
        (rc = npugraph__take_bool(from, object, where, "add_prefix_space", &add)) != 0)
        return rc;
    d->prepended = strcmp(scheme, "never") != 0;
    return add || !d->prepended ? 0 : npugraph__corrupt(from, "%s.add_prefix_space contradicts prepend_scheme", where);
}

static int read_replace_decode(const struct npugraph__source *from, const json_t *object, const char *where,
                               struct npugraph__decode *d)
{
    const json_t *pattern = json_object_get(object, "pattern");
    int rc;

    d->kind = NPUGRAPH__DECODE_REPLACE;
    if (!json_is_string(json_object_get(pattern, "String")))
        return npugraph__unsupported(from, "%s.pattern is not a String", where);
    rc = take_decode_text(from, pattern, where, "String", &d->pattern);
    if (rc == 0 && d->pattern[0] == '\0')
        rc = npugraph__unsupported(from, "%s.pattern.String is empty", where);
    return rc == 0 ? take_decode_text(from, object, where, "content", &d->content) : rc;
}

static int read_strip_decode(const struct npugraph__source *from, const json_t *object, const char *where,
                             struct npugraph__decode *d)
{
    int rc = take_character(from, object, where, "content", &d->pattern);

    d->kind = NPUGRAPH__DECODE_STRIP;
    if (rc == 0)
        rc = npugraph__take_size(from, object, where, "start", &d->start);
    if (rc == 0)
        rc = npugraph__take_size(from, object, where, "stop", &d->stop);
    if (rc == 0 && d->stop > NPUGRAPH__MAX_ADDED)
        rc = npugraph__unsupported(from, "%s.stop is larger than %d", where, NPUGRAPH__MAX_ADDED);
    return rc;
}

static bool is_fused(const struct npugraph_tokenizer *tok, size_t stage)
{
    for (size_t i = 0; i < stage; i++)
        if (tok->decodes[i].kind == NPUGRAPH__DECODE_FUSE || tok->decodes[i].kind == NPUGRAPH__DECODE_BYTE_LEVEL)
            return true;
    return false;
}

static int read_decode(const struct npugraph__source *from, const json_t *object, const char *where,
                       struct npugraph_tokenizer *tok)
{
    struct npugraph__decode *d = &tok->decodes[tok->n_decodes];
    const char *type = npugraph__type_of(object);
    int rc = 0;

    if (tok->n_decodes == NPUGRAPH__MAX_STAGES)
        return npugraph__unsupported(from, "%s: more than %d decoders", where, NPUGRAPH__MAX_STAGES);
    tok->n_decodes++;
    if (strcmp(type, "ByteLevel") == 0) {
        d->kind = NPUGRAPH__DECODE_BYTE_LEVEL;
    } else if (strcmp(type, "ByteFallback") == 0) {
        d->kind = NPUGRAPH__DECODE_BYTE_FALLBACK;
    } else if (strcmp(type, "Fuse") == 0) {
        d->kind = NPUGRAPH__DECODE_FUSE;
    } else if (strcmp(type, "Metaspace") == 0) {
        rc = read_metaspace_decode(from, object, where, d);
    } else if (strcmp(type, "Replace") == 0) {
        rc = read_replace_decode(from, object, where, d);
    } else if (strcmp(type, "Strip") == 0) {
        rc = read_strip_decode(from, object, where, d);
    } else if (strcmp(type, "BPEDecoder") == 0) {
        d->kind = NPUGRAPH__DECODE_SUFFIX;
        rc = take_decode_text(from, object, where, "suffix", &d->pattern);
        if (rc == 0 && d->pattern[0] == '\0')
            rc = npugraph__unsupported(from, "%s.suffix is empty", where);
    } else {
        return npugraph__unsupported(from,
                                     "%s.type is \"%.40s\"; ByteLevel, ByteFallback, Fuse, Metaspace, Replace, Strip, "
                                     "BPEDecoder and Sequence are supported",
                                     where, type);
    }
    if (rc == 0 && is_fused(tok, tok->n_decodes - 1) && d->kind != NPUGRAPH__DECODE_STRIP &&
        d->kind != NPUGRAPH__DECODE_FUSE)
        rc = npugraph__unsupported(from, "%s is a %s behind Fuse or ByteLevel", where, type);
    return rc;
}

/* ---- one token ------------------------------------------------------------------------------------------------ */

static bool put_replacing(struct npugraph__text *out, const char *s, size_t n, const char *pattern, const char *content)
{
    size_t len = strlen(pattern);
    const char *found;

    for (; (found = memmem(s, n, pattern, len)) != NULL; s = found + len) {
        if (!npugraph__text_add(out, s, (size_t)(found - s)) || !npugraph__text_add(out, content, strlen(content)))
            return false;
        n -= (size_t)(found - s) + len;
    }
    return npugraph__text_add(out, s, n);
}

/* Adds the bytes that the characters of a token stand for; its own bytes, if one stands for none. */
static bool put_raw_bytes(struct npugraph__text *out, const char *s, size_t n)
{
    size_t was = out->n, len;
    int32_t c;

    for (size_t i = 0; i < n; i += len) {
        char byte;

        len = npugraph__character(s + i, n - i, &c);
        if (!npugraph__character_byte(c, &byte)) {
            out->n = was;
            return npugraph__text_add(out, s, n);
        }
        if (!npugraph__text_add(out, &byte, 1))
            return false;
    }
    return npugraph__text_add(out, "", 0);
}

/* <0x00> to <0xFF> */
static bool is_byte_token(const char *s, size_t n, char *byte_p)
{
    int value = 0;

    if (n != 6 || memcmp(s, "<0x", 3) != 0 || s[5] != '>')
        return false;
    for (size_t i = 3; i < 5; i++) {
        int c = s[i], digit = c >= '0' && c <= '9'   ? c - '0'
                              : c >= 'A' && c <= 'F' ? c - 'A' + 10
                              : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                                     : -1;

        if (digit < 0)
            return false;
        value = 16 * value + digit;
    }
    *byte_p = (char)value;
    return true;
}

static bool put_stripped_token(struct npugraph__text *out, const struct npugraph__decode *d, const char *s, size_t n)
{
    size_t len = strlen(d->pattern), i;

    for (i = 0; i < d->start && n >= len && memcmp(s, d->pattern, len) == 0; i++, s += len)
        n -= len;
    for (i = 0; i < d->stop && n >= len && memcmp(s + n - len, d->pattern, len) == 0; i++)
        n -= len;
    return npugraph__text_add(out, s, n);
}

/* Adds what a whole token becomes in a stage. position: of the token in the text. */
static bool put_token(struct npugraph__text *out, const struct npugraph__decode *d, const char *s, size_t n,
                      size_t position)
{
    switch (d->kind) {
    case NPUGRAPH__DECODE_REPLACE:
        return put_replacing(out, s, n, d->pattern, d->content);
    case NPUGRAPH__DECODE_METASPACE:
        return put_replacing(out, s, n, d->pattern, position == 0 && d->prepended ? "" : " ");
    case NPUGRAPH__DECODE_STRIP:
        return put_stripped_token(out, d, s, n);
    case NPUGRAPH__DECODE_SUFFIX:
        return put_replacing(out, s, n, d->pattern, " ");
    case NPUGRAPH__DECODE_BYTE_LEVEL:
        return put_raw_bytes(out, s, n);
    case NPUGRAPH__DECODE_SPACES:
        return (position == 0 || npugraph__text_add(out, " ", 1)) && npugraph__text_add(out, s, n);
    case NPUGRAPH__DECODE_BYTE_FALLBACK:
    case NPUGRAPH__DECODE_FUSE:
        break;
    }
    return npugraph__text_add(out, s, n);
}

#define MAX_VOCAB_BYTES (256 << 20) /* that all tokens stand for */

/* Refuses Replace decoders that multiply a text. Each may do so by the length of its replacement. */
static int check_replaces(const struct npugraph__source *from, const struct npugraph_tokenizer *tok)
{
    size_t growth = 1;

    for (size_t i = 0; i < tok->n_decodes; i++) {
        const struct npugraph__decode *d = &tok->decodes[i];

        if (d->kind == NPUGRAPH__DECODE_REPLACE && strlen(d->content) > strlen(d->pattern))
            growth *= (strlen(d->content) + strlen(d->pattern) - 1) / strlen(d->pattern);
        if (growth > NPUGRAPH__MAX_ADDED)
            return npugraph__unsupported(from, "the Replace decoders make more than %d bytes of a byte",
                                         NPUGRAPH__MAX_ADDED);
    }
    return 0;
}

/* Gives the bytes that a token stands for behind others. *left_p: bytes that this and all later tokens may have. */
static int set_token_bytes(const struct npugraph__source *from, const struct npugraph_tokenizer *tok,
                           struct npugraph__token *t, struct npugraph__text text[2], size_t *left_p)
{
    const char *s = t->text;
    size_t n = t->n;
    char byte;

    for (size_t i = 0; i < tok->n_decodes && tok->decodes[i].kind != NPUGRAPH__DECODE_SPACES; i++) {
        text[i % 2].n = 0;
        if (tok->decodes[i].kind == NPUGRAPH__DECODE_BYTE_FALLBACK && is_byte_token(s, n, &byte)) {
            s = &byte;
            n = 1;
            break;
        }
        if (tok->decodes[i].kind == NPUGRAPH__DECODE_FUSE)
            break;
        if (n > NPUGRAPH__MAX_TOKEN)
            return npugraph__unsupported(from, "the decoders make more than %d bytes of token %zu", NPUGRAPH__MAX_TOKEN,
                                         (size_t)(t - tok->tokens));
        if (!put_token(&text[i % 2], &tok->decodes[i], s, n, 1))
            return npugraph__no_memory(from->err);
        s = text[i % 2].s;
        n = text[i % 2].n;
        if (tok->decodes[i].kind == NPUGRAPH__DECODE_BYTE_LEVEL)
            break;
    }
    if (n > *left_p)
        return npugraph__unsupported(from, "the decoders make more than %d bytes of the vocabulary", MAX_VOCAB_BYTES);
    *left_p -= n;
    t->bytes = t->text;
    if (n != t->n || memcmp(s, t->text, n) != 0) {
        t->bytes = malloc(n + 1);
        if (t->bytes == NULL)
            return npugraph__no_memory(from->err);
        memcpy(t->bytes, s, n);
    }
    t->n_bytes = (uint32_t)n;
    return 0;
}

int npugraph__decode_read(const struct npugraph__source *from, const json_t *root, struct npugraph_tokenizer *tok)
{
    struct npugraph__text text[2] = {{0}};
    size_t left = MAX_VOCAB_BYTES;
    int rc = npugraph__read_stages(from, json_object_get(root, "decoder"), "decoder", "decoders", read_decode, tok);

    if (rc == 0 && tok->n_decodes == 0)
        tok->decodes[tok->n_decodes++].kind = NPUGRAPH__DECODE_SPACES;
    if (rc == 0)
        rc = check_replaces(from, tok);
    for (size_t i = 0; rc == 0 && i < tok->n_tokens; i++)
        if (tok->tokens[i].text != NULL)
            rc = set_token_bytes(from, tok, &tok->tokens[i], text, &left);
    npugraph__text_fini(&text[0]);
    npugraph__text_fini(&text[1]);
    return rc;
}

/* ---- tokens as they come --------------------------------------------------------------------------------------- */

struct detoken_stage {
    size_t count;               /* tokens so far; of a Strip behind Fuse: characters stripped so far */
    bool begun;                 /* of such a Strip: something else than what it strips has come */
    struct npugraph__text held; /* what later tokens may change */
    struct npugraph__text text; /* scratch */
};

struct npugraph_detokenizer {
    const struct npugraph_tokenizer *tok;
    bool special;
    struct npugraph__text out;
    struct detoken_stage stages[NPUGRAPH__MAX_STAGES];
};

static bool push_token(struct npugraph_detokenizer *d, size_t k, const char *s, size_t n);

/* A run of byte tokens is the text that the bytes are, or as many U+FFFD as it has bytes. Until the run ends, nobody
 * knows which. */
static bool push_run(struct npugraph_detokenizer *d, size_t k)
{
    struct npugraph__text *run = &d->stages[k].held;
    bool ok = true;

    if (run->n == 0)
        return true;
    if (npugraph__is_utf8(run->s, run->n))
        ok = push_token(d, k + 1, run->s, run->n);
    else
        for (size_t i = 0; ok && i < run->n; i++)
            ok = push_token(d, k + 1, REPLACEMENT, 3);
    run->n = 0;
    return ok;
}

/* Passes on complete characters of the bytes held. Each longest part of a character that is not completed becomes
 * U+FFFD; at the end of the text this holds for what is left, too. */
static bool push_bytes(struct npugraph_detokenizer *d, size_t k, bool last)
{
    struct npugraph__text *held = &d->stages[k].held, *text = &d->stages[k].text;
    size_t i = 0, len;
    bool ok = true;

    text->n = 0;
    while (ok && i < held->n) {
        enum npugraph__character_state state = npugraph__character_state(held->s + i, held->n - i, &len);

        if (state == NPUGRAPH__CHARACTER_CUT && !last)
            break;
        ok = state == NPUGRAPH__CHARACTER_WHOLE ? npugraph__text_add(text, held->s + i, len)
                                                : npugraph__text_add(text, REPLACEMENT, 3);
        i += len;
    }
    if (i > 0)
        memmove(held->s, held->s + i, held->n - i);
    held->n -= i;
    return ok && (text->n == 0 || push_token(d, k + 1, text->s, text->n));
}

/* Strips the beginning and the end of a text that comes in parts. At most `stop` characters are held back. */
static bool push_strip(struct npugraph_detokenizer *d, size_t k, const char *s, size_t n)
{
    const struct npugraph__decode *rule = &d->tok->decodes[k];
    struct detoken_stage *stage = &d->stages[k];
    size_t width = strlen(rule->pattern), len;
    int32_t c;

    stage->text.n = 0;
    for (size_t i = 0; i < n; i += len) {
        bool content = n - i >= width && memcmp(s + i, rule->pattern, width) == 0;

        len = npugraph__character(s + i, n - i, &c);
        if (content && !stage->begun && stage->count < rule->start) {
            stage->count++;
            continue;
        }
        stage->begun = true;
        if (content && stage->held.n == rule->stop * width) { /* the first one held cannot be stripped any more */
            if (!npugraph__text_add(&stage->text, rule->pattern, width))
                return false;
            continue;
        }
        if (content) {
            if (!npugraph__text_add(&stage->held, rule->pattern, width))
                return false;
            continue;
        }
        if (!npugraph__text_add(&stage->text, stage->held.s, stage->held.n) ||
            !npugraph__text_add(&stage->text, s + i, len))
            return false;
        stage->held.n = 0;
    }
    return stage->text.n == 0 || push_token(d, k + 1, stage->text.s, stage->text.n);
}

/* Passes on the token held, which is not the last one. */
static bool push_suffixed(struct npugraph_detokenizer *d, size_t k, const char *s, size_t n)
{
    struct detoken_stage *stage = &d->stages[k];
    bool ok = true;

    stage->text.n = 0;
    if (stage->count++ > 0)
        ok = put_token(&stage->text, &d->tok->decodes[k], stage->held.s, stage->held.n, 1) &&
             push_token(d, k + 1, stage->text.s, stage->text.n);
    stage->held.n = 0;
    return ok && npugraph__text_add(&stage->held, s, n);
}

static bool push_token(struct npugraph_detokenizer *d, size_t k, const char *s, size_t n)
{
    const struct npugraph__decode *rule = &d->tok->decodes[k];
    struct detoken_stage *stage = &d->stages[k];
    char byte;

    if (k == d->tok->n_decodes)
        return npugraph__text_add(&d->out, s, n);
    switch (rule->kind) {
    case NPUGRAPH__DECODE_FUSE:
        return push_token(d, k + 1, s, n);
    case NPUGRAPH__DECODE_BYTE_FALLBACK:
        if (is_byte_token(s, n, &byte))
            return npugraph__text_add(&stage->held, &byte, 1);
        return push_run(d, k) && push_token(d, k + 1, s, n);
    case NPUGRAPH__DECODE_BYTE_LEVEL:
        return put_raw_bytes(&stage->held, s, n) && push_bytes(d, k, false);
    case NPUGRAPH__DECODE_SUFFIX:
        return push_suffixed(d, k, s, n);
    case NPUGRAPH__DECODE_STRIP:
        if (is_fused(d->tok, k))
            return push_strip(d, k, s, n);
        break;
    case NPUGRAPH__DECODE_METASPACE:
    case NPUGRAPH__DECODE_REPLACE:
    case NPUGRAPH__DECODE_SPACES:
        break;
    }
    stage->text.n = 0;
    return put_token(&stage->text, rule, s, n, stage->count++) && push_token(d, k + 1, stage->text.s, stage->text.n);
}

/* Passes on what a stage holds at the end of the text. */
static bool push_rest(struct npugraph_detokenizer *d, size_t k)
{
    const struct npugraph__decode *rule = &d->tok->decodes[k];
    struct detoken_stage *stage = &d->stages[k];

    switch (rule->kind) {
    case NPUGRAPH__DECODE_BYTE_FALLBACK:
        return push_run(d, k);
    case NPUGRAPH__DECODE_BYTE_LEVEL:
        return push_bytes(d, k, true);
    case NPUGRAPH__DECODE_SUFFIX:
        stage->text.n = 0;
        return stage->count == 0 || (put_replacing(&stage->text, stage->held.s, stage->held.n, rule->pattern, "") &&
                                     push_token(d, k + 1, stage->text.s, stage->text.n));
    default:
        return true; /* what a Strip holds back is stripped */
    }
}

void npugraph_detokenizer_destroy(struct npugraph_detokenizer *d)
{
    if (d == NULL)
        return;
    for (size_t i = 0; i < NPUGRAPH__MAX_STAGES; i++) {
        npugraph__text_fini(&d->stages[i].held);
        npugraph__text_fini(&d->stages[i].text);
    }
    npugraph__text_fini(&d->out);
    free(d);
}

static int give_out(struct npugraph_detokenizer *d, bool ok, const char **text_p, size_t *n_p,
                    struct npugraph_error *err)
{
    *text_p = ok && d->out.n != 0 ? d->out.s : "";
    *n_p = ok ? d->out.n : 0;
    return ok ? 0 : npugraph__no_memory(err);
}

int npugraph_detokenizer_add(struct npugraph_detokenizer *d, int32_t id, const char **text_p, size_t *n_p,
                             struct npugraph_error *err)
{
    const struct npugraph__token *t = id >= 0 && (size_t)id < d->tok->n_tokens ? &d->tok->tokens[id] : NULL;
    bool ok = true;

    d->out.n = 0;
    if (t != NULL && t->text != NULL && (d->special || !t->special))
        ok = push_token(d, 0, t->text, t->n);
    return give_out(d, ok, text_p, n_p, err);
}

int npugraph_detokenizer_create(const struct npugraph_tokenizer *tok, const int32_t *prompt, size_t n_prompt,
                                bool special, struct npugraph_detokenizer **detokenizer_p, struct npugraph_error *err)
{
    struct npugraph_detokenizer *d = calloc(1, sizeof(*d));
    const char *text;
    size_t n;
    int rc = 0;

    if (d == NULL)
        return npugraph__no_memory(err);
    d->tok = tok;
    d->special = special;
    for (size_t i = 0; rc == 0 && i < n_prompt; i++)
        rc = npugraph_detokenizer_add(d, prompt[i], &text, &n, err);
    if (rc != 0)
        npugraph_detokenizer_destroy(d);
    else
        *detokenizer_p = d;
    return rc;
}

int npugraph_detokenizer_end(struct npugraph_detokenizer *d, const char **text_p, size_t *n_p,
                             struct npugraph_error *err)
{
    bool ok = true;

    d->out.n = 0;
    for (size_t k = 0; ok && k < d->tok->n_decodes; k++)
        ok = push_rest(d, k);
    return give_out(d, ok, text_p, n_p, err);
}
