/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NPUGRAPH_TOKENIZER_INT_H
#define NPUGRAPH_TOKENIZER_INT_H

/*
 * Byte-level BPE. Tokens are kept as raw bytes: loading undoes the printable alphabet of tokenizer.json. Merges are a
 * table from a pair of ids to (rank, id of the merged token). A tokenizer is immutable after open: any thread may
 * encode.
 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "client/hf/npugraph_hf.h"
#include <pcre2.h>

#define NPUGRAPH__MAX_VOCAB (1 << 22)

struct npugraph__token {
    char *bytes; /* NULL: no such id */
    uint32_t n;
    bool special;
    bool added;
};

struct npugraph__merge {
    uint64_t pair; /* left << 32 | right; UINT64_MAX = empty slot */
    int32_t rank, id;
};

struct npugraph_tokenizer {
    struct npugraph__token *tokens; /* by id */
    size_t n_tokens;
    int32_t *index; /* hash table: bytes -> id, -1 = empty; its size is a power of two */
    size_t index_size;
    struct npugraph__merge *merges; /* hash table; its size is a power of two */
    size_t merges_size;
    int32_t byte_id[256]; /* token of a single byte, -1 = none */
    int32_t *added;       /* ids of added tokens, longest first */
    size_t n_added;
    pcre2_code *split; /* NULL: the whole text is one piece */
    bool nfc;
    bool ignore_merges; /* a piece that is a token becomes that token, without merges */
};

int32_t npugraph__token_find(const struct npugraph_tokenizer *tok, const char *bytes, size_t n); /* -1 = none */
const struct npugraph__merge *npugraph__merge_find(const struct npugraph_tokenizer *tok, int32_t left, int32_t right);
uint64_t npugraph__mix(uint64_t x);

#endif
