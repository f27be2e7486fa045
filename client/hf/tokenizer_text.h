/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NPUGRAPH_TOKENIZER_TEXT_H
#define NPUGRAPH_TOKENIZER_TEXT_H

/*
 * Text for the tokenizer: growing buffers, characters and their classes, and patterns. Patterns are Oniguruma's, since
 * that is what Hugging Face tokenizers runs; the classes are those of the Unicode version that it has.
 * Threads: functions keep no state. Bounds: a search stops at a number of steps and at the deadline, and so does all
 * other work whose cost depends on the file.
 */
#include "client/hf/npugraph_hf.h"

#include <oniguruma.h>

struct npugraph__text {
    char *s;
    size_t n, room;
};
bool npugraph__text_add(struct npugraph__text *text, const char *s, size_t n); /* false: out of memory */
void npugraph__text_fini(struct npugraph__text *text);

/* ---- characters ------------------------------------------------------------------------------------------------ */

bool npugraph__is_utf8(const char *s, size_t n);
/* Reads the character at s, which is valid UTF-8 of n > 0 bytes. Returns its length in bytes. */
size_t npugraph__character(const char *s, size_t n, int32_t *character_p);
size_t npugraph__put_character(char out[4], int32_t character);
enum npugraph__character_state {
    NPUGRAPH__CHARACTER_WHOLE,
    NPUGRAPH__CHARACTER_CUT,  /* more bytes may complete it */
    NPUGRAPH__CHARACTER_WRONG /* nothing can */
};
/* Says what n > 0 bytes, which may be anything, begin with. *len_p is its length: of what is no character, that of the
 * longest part that could begin one, at least 1. */
enum npugraph__character_state npugraph__character_state(const char *s, size_t n, size_t *len_p);
/* Byte-level BPE writes each byte as a printable character. */
int32_t npugraph__byte_character(unsigned char byte);
bool npugraph__character_byte(int32_t character, char *byte_p); /* false: it stands for no byte */
/* Returns a character of the same general category that every supported Unicode table has. */
int32_t npugraph__stand_in(int32_t character);
bool npugraph__is_space(int32_t character);   /* White_Space */
bool npugraph__is_numeric(int32_t character); /* N* */
bool npugraph__is_punctuation(int32_t character);
bool npugraph__is_word(int32_t character);     /* \w of the crate `regex` */
bool npugraph__is_unformed(int32_t character); /* normal forms leave it alone */

/* ---- words ------------------------------------------------------------------------------------------------------- */

/* Words in the order of their bytes. A search narrows a range of them byte by byte. */
struct npugraph__word {
    const char *text;
    size_t n, value;
};
struct npugraph__words {
    const struct npugraph__word *begin, *end;
    size_t at; /* bytes that all in the range have in common */
};
void npugraph__words_sort(struct npugraph__word *words, size_t n);
/* Leaves the words that go on with the byte. Returns false if there are none. */
bool npugraph__words_narrow(struct npugraph__words *range, unsigned char byte);
/* Returns the word that ends here, NULL if there is none. */
const struct npugraph__word *npugraph__words_whole(const struct npugraph__words *range);

/* ---- patterns -------------------------------------------------------------------------------------------------- */

#define NPUGRAPH__MAX_PATTERN 4096 /* bytes */

struct npugraph__pattern {
    char *literal; /* NULL: regex */
    size_t n;
    regex_t *regex;
};

struct npugraph__span {
    size_t begin, end;
    bool match;
};
struct npugraph__spans {
    struct npugraph__span *items;
    size_t n, room;
};

struct npugraph__deadline {
    uint64_t end_ns; /* of CLOCK_MONOTONIC; 0 = not started */
    size_t steps;    /* since the clock was read */
};

/* Counts steps, and reads the clock after many of them. Returns 0, or a status code when the time is over. */
int npugraph__deadline_count(struct npugraph__deadline *deadline, size_t steps, struct npugraph_error *err);

/* Compiles an expression. Returns false and writes why to `why`. */
bool npugraph__regex_compile(struct npugraph__pattern *pattern, const char *expression, char *why, size_t room);
bool npugraph__literal_set(struct npugraph__pattern *pattern, const char *literal); /* false: out of memory */
void npugraph__pattern_fini(struct npugraph__pattern *pattern);
/* Divides text into matches of the pattern and what is between them. *spans is cleared first. */
int npugraph__pattern_find(const struct npugraph__pattern *pattern, const char *s, size_t n,
                           struct npugraph__spans *spans, struct npugraph__deadline *deadline,
                           struct npugraph_error *err);
bool npugraph__span_add(struct npugraph__spans *spans, size_t begin, size_t end, bool match);

#endif
