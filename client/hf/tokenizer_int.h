/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NPUGRAPH_TOKENIZER_INT_H
#define NPUGRAPH_TOKENIZER_INT_H

/*
 * A tokenizer in the parts that tokenizer.json has, one file each:
 *
 *   tokenizer_added.c     cuts added tokens out of the text, before and after it is normalised
 *   tokenizer_normal.c    normalizer: rewrites the text between them
 *   tokenizer_split.c     pre_tokenizer: splits that into pieces, and may rewrite them
 *   tokenizer_bpe.c, tokenizer_unigram.c   model: turns a piece into ids
 *   tokenizer_template.c  post_processor: ids before and behind the text
 *   tokenizer_decode.c    decoder: turns ids into text as they come
 *
 * Reading takes what it knows to be right and refuses everything else with the name of the field.
 * Threads: a tokenizer is immutable after open, so any thread may encode.
 */
#include "client/hf/npugraph_hf.h"
#include "client/hf/source.h"
#include "client/hf/tokenizer_text.h"

#include <jansson.h>

#define NPUGRAPH__MAX_VOCAB  (1 << 22)
#define NPUGRAPH__MAX_STAGES 32        /* normalizers, pre-tokenizers or decoders of one file */
#define NPUGRAPH__MAX_ADDED  1024      /* bytes of an added token, an affix, a replacement */
#define NPUGRAPH__MAX_TOKEN  65536     /* bytes of a token, and of what it stands for before the last decoder */
#define NPUGRAPH__MAX_GROWTH 64        /* bytes that each byte of a text may become, beside NPUGRAPH__MIN_GROWN */
#define NPUGRAPH__MIN_GROWN  (1 << 20) /* bytes that any text may become */

/* ---- reading ------------------------------------------------------------------------------------------------- */

/* A field of an object in tokenizer.json; `where` names the object in errors. If the field is absent or null, the
 * value stays as it is. A field of another type is refused. */
int npugraph__take_bool(const struct npugraph__source *from, const json_t *object, const char *where, const char *name,
                        bool *value_p);
int npugraph__take_size(const struct npugraph__source *from, const json_t *object, const char *where, const char *name,
                        size_t *value_p);
int npugraph__take_string(const struct npugraph__source *from, const json_t *object, const char *where,
                          const char *name, const char **value_p);
int npugraph__take_pattern(const struct npugraph__source *from, const json_t *object, const char *where,
                           struct npugraph__pattern *pattern_p);

/* Reads one object of a list of stages. */
typedef int npugraph__stage_fn(const struct npugraph__source *from, const json_t *object, const char *where,
                               struct npugraph_tokenizer *tok);
/* Calls fn for `object`, or for each object in its list `list` if its type is Sequence. NULL and null are nothing. */
int npugraph__read_stages(const struct npugraph__source *from, const json_t *object, const char *where,
                          const char *list, npugraph__stage_fn *fn, struct npugraph_tokenizer *tok);
const char *npugraph__type_of(const json_t *object); /* "" if there is none */

/* ---- vocabulary ---------------------------------------------------------------------------------------------- */

struct npugraph__token {
    char *text; /* as tokenizer.json writes it; NULL = no such id */
    uint32_t n;
    char *bytes; /* what it stands for, alone and not at the beginning; may be the same memory as text */
    uint32_t n_bytes;
    bool special, added;
};

struct npugraph__vocab { /* the model's own tokens; added tokens are not looked for here */
    int32_t *index;      /* hash table: text -> id, -1 = empty; its size is a power of two */
    size_t index_size;
    size_t count;
};

int32_t npugraph__token_find(const struct npugraph_tokenizer *tok, const char *text, size_t n); /* -1 = none */
/* Adds a token of the model. Refuses an id that is out of range or taken. */
int npugraph__token_add(const struct npugraph__source *from, struct npugraph_tokenizer *tok, const char *text, size_t n,
                        int64_t id);

/* ---- models -------------------------------------------------------------------------------------------------- */

struct npugraph__merge {
    uint64_t pair; /* left << 32 | right; UINT64_MAX = empty slot */
    int32_t rank, id;
};

struct npugraph__bpe {
    struct npugraph__merge *merges; /* hash table; its size is a power of two */
    size_t merges_size;
    int32_t unk; /* -1 = none */
    int32_t byte_id[256];
    char *prefix, *suffix; /* continuing_subword_prefix, end_of_word_suffix; NULL = none */
    bool fuse_unk, byte_fallback;
    bool ignore_merges; /* a piece that is a token becomes that token, without merges */
};

struct npugraph__unigram {
    double *scores; /* by id */
    struct npugraph__word *words;
    size_t n;
    double unk_score;
    int32_t unk; /* -1 = none */
    int32_t byte_id[256];
    bool byte_fallback;
};

struct npugraph__encoding;
int npugraph__bpe_read(const struct npugraph__source *from, const json_t *model, struct npugraph_tokenizer *tok);
int npugraph__bpe_encode(struct npugraph__encoding *e, const char *s, size_t n);
/* Refuses a vocabulary with tokens that a text may have as a piece, but that merges do not make. */
int npugraph__bpe_check_merges(const struct npugraph__source *from, const struct npugraph_tokenizer *tok);
void npugraph__bpe_fini(struct npugraph__bpe *bpe);
int npugraph__unigram_read(const struct npugraph__source *from, const json_t *model, struct npugraph_tokenizer *tok);
int npugraph__unigram_encode(struct npugraph__encoding *e, const char *s, size_t n);
/* Finds the tokens <0x00> to <0xFF>; -1 where there is none. */
void npugraph__byte_tokens(const struct npugraph_tokenizer *tok, int32_t ids[256]);

/* ---- stages --------------------------------------------------------------------------------------------------- */

struct npugraph__normal {
    enum { NPUGRAPH__NORMAL_FORM, NPUGRAPH__NORMAL_PREPEND, NPUGRAPH__NORMAL_REPLACE, NPUGRAPH__NORMAL_STRIP } kind;
    int form; /* options of utf8proc */
    struct npugraph__pattern pattern;
    char *content;
    bool left, right;
};

enum npugraph__behavior {
    NPUGRAPH__ISOLATED,
    NPUGRAPH__REMOVED,
    NPUGRAPH__CONTIGUOUS,
    NPUGRAPH__MERGED_WITH_PREVIOUS,
    NPUGRAPH__MERGED_WITH_NEXT
};

struct npugraph__split {
    enum {
        NPUGRAPH__SPLIT_PATTERN,    /* by a pattern */
        NPUGRAPH__SPLIT_CLASS,      /* by a class of characters */
        NPUGRAPH__SPLIT_BYTE_LEVEL, /* by GPT-2's expression if `regex`; then a character for each byte */
        NPUGRAPH__SPLIT_METASPACE
    } kind;
    struct npugraph__pattern pattern;
    bool (*is_in)(int32_t character);
    enum npugraph__behavior behavior;
    bool invert;
    bool add_prefix_space, regex, split;
    enum { NPUGRAPH__PREPEND_ALWAYS, NPUGRAPH__PREPEND_FIRST, NPUGRAPH__PREPEND_NEVER } prepend;
};

struct npugraph__added {
    int32_t id;
    char *pattern; /* its text, normalised if it is looked for in normalised text */
    size_t n;
    bool special, normalized, single_word, lstrip, rstrip;
};
struct npugraph__added_set {
    struct npugraph__added *items;
    struct npugraph__word *words; /* their patterns; the value is the item */
    size_t n;
};

struct npugraph__decode {
    enum {
        NPUGRAPH__DECODE_BYTE_LEVEL,
        NPUGRAPH__DECODE_METASPACE,
        NPUGRAPH__DECODE_REPLACE,
        NPUGRAPH__DECODE_BYTE_FALLBACK,
        NPUGRAPH__DECODE_FUSE,
        NPUGRAPH__DECODE_STRIP,
        NPUGRAPH__DECODE_SUFFIX, /* BPEDecoder */
        NPUGRAPH__DECODE_SPACES  /* no decoder: a space between tokens */
    } kind;
    char *pattern, *content; /* what is replaced or stripped, and by what */
    size_t start, stop;      /* most characters to strip */
    bool prepended;          /* Metaspace: the first token begins with a space that was prepended */
};

int npugraph__normal_read(const struct npugraph__source *from, const json_t *root, struct npugraph_tokenizer *tok);
/* Normalises text. *out is cleared first. */
int npugraph__normalize(const struct npugraph_tokenizer *tok, const char *s, size_t n, struct npugraph__text *out,
                        struct npugraph__deadline *deadline, struct npugraph_error *err);
int npugraph__split_read(const struct npugraph__source *from, const json_t *root, struct npugraph_tokenizer *tok);
/* Splits a piece by stage `stage` and those behind it, and encodes the parts. first: the piece begins the text. */
int npugraph__split_encode(struct npugraph__encoding *e, size_t stage, const char *s, size_t n, bool first);
int npugraph__added_read(const struct npugraph__source *from, const json_t *root, struct npugraph_tokenizer *tok);
/* Cuts added tokens out of text and passes on what is between. normalized: the text is normalised already. */
int npugraph__added_encode(struct npugraph__encoding *e, const char *s, size_t n, bool normalized, bool first);
int npugraph__template_read(const struct npugraph__source *from, const json_t *root, struct npugraph_tokenizer *tok);
int npugraph__decode_read(const struct npugraph__source *from, const json_t *root, struct npugraph_tokenizer *tok);

/* ---- the whole ------------------------------------------------------------------------------------------------- */

struct npugraph__id_list {
    int32_t *ids;
    size_t n, room;
};

struct npugraph_tokenizer {
    struct npugraph__token *tokens; /* by id */
    size_t n_tokens;
    struct npugraph__vocab vocab;
    int (*encode_piece)(struct npugraph__encoding *e, const char *s, size_t n);
    struct npugraph__bpe bpe;
    struct npugraph__unigram unigram;
    struct npugraph__normal normals[NPUGRAPH__MAX_STAGES];
    size_t n_normals;
    struct npugraph__split splits[NPUGRAPH__MAX_STAGES];
    size_t n_splits;
    struct npugraph__added_set added[2];     /* looked for in the text as it is, and in normalised text */
    struct npugraph__id_list before, behind; /* of the post-processor */
    struct npugraph__decode decodes[NPUGRAPH__MAX_STAGES];
    size_t n_decodes;
};

struct npugraph__scratch { /* of one stage */
    struct npugraph__spans spans;
    struct npugraph__text text, bytes;
};

struct npugraph__encoding {
    const struct npugraph_tokenizer *tok;
    struct npugraph_error *err;
    bool special;
    struct npugraph__id_list out;
    struct npugraph__text normal;
    struct npugraph__scratch scratch[NPUGRAPH__MAX_STAGES];
    size_t left; /* bytes that pieces may still have, in all stages together */
    struct npugraph__deadline deadline;
};

/* Bytes that stages may make of a text of n bytes. Stages can multiply, so without this a file decides about memory. */
size_t npugraph__most_grown(size_t n);
int npugraph__overgrown(struct npugraph_error *err); /* returns a status code, never 0 */

int npugraph__emit(struct npugraph__encoding *e, int32_t id);
bool npugraph__id_add(struct npugraph__id_list *list, int32_t id);

#endif
