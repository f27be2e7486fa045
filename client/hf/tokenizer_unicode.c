/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Classes of characters as Hugging Face tokenizers knows them. Its parts were built with Unicode tables of several
 * versions; Debian's libraries have other ones. tokenizer_unicode.def has the differences.
 */
#include "client/hf/tokenizer_text.h"

#include <utf8proc.h>

/* Each table takes its rows of the file. */
#define NGD_TOKENIZER_NEW(first, last, stand_in)
#define NGD_TOKENIZER_PUNCTUATION(first, last, has)
#define NGD_TOKENIZER_NUMBER(first, last)
#define NGD_TOKENIZER_UNFORMED(first, last)

struct newer {
    int32_t first, last, stand_in;
};
static const struct newer newer[] = {
#undef NGD_TOKENIZER_NEW
#define NGD_TOKENIZER_NEW(first, last, stand_in) {first, last, stand_in},
#include "client/hf/tokenizer_unicode.def"
#undef NGD_TOKENIZER_NEW
#define NGD_TOKENIZER_NEW(first, last, stand_in)
};

struct exception {
    int32_t first, last;
    bool has;
};
static const struct exception punctuation[] = {
#undef NGD_TOKENIZER_PUNCTUATION
#define NGD_TOKENIZER_PUNCTUATION(first, last, has) {first, last, has},
#include "client/hf/tokenizer_unicode.def"
#undef NGD_TOKENIZER_PUNCTUATION
#define NGD_TOKENIZER_PUNCTUATION(first, last, has)
};
static const struct exception numbers[] = {
#undef NGD_TOKENIZER_NUMBER
#define NGD_TOKENIZER_NUMBER(first, last) {first, last, true},
#include "client/hf/tokenizer_unicode.def"
#undef NGD_TOKENIZER_NUMBER
#define NGD_TOKENIZER_NUMBER(first, last)
};
static const struct exception unformed[] = {
#undef NGD_TOKENIZER_UNFORMED
#define NGD_TOKENIZER_UNFORMED(first, last) {first, last, true},
#include "client/hf/tokenizer_unicode.def"
#undef NGD_TOKENIZER_UNFORMED
#define NGD_TOKENIZER_UNFORMED(first, last)
};

int32_t npugraph__stand_in(int32_t character)
{
    size_t low = 0, high = sizeof(newer) / sizeof(newer[0]);

    if (character < newer[0].first)
        return character;
    while (low < high) {
        size_t middle = (low + high) / 2;

        if (character > newer[middle].last)
            low = middle + 1;
        else if (character < newer[middle].first)
            high = middle;
        else
            return newer[middle].stand_in;
    }
    return character;
}

static const struct exception *find_exception(const struct exception *list, size_t n, int32_t character)
{
    for (size_t i = 0; i < n; i++)
        if (character >= list[i].first && character <= list[i].last)
            return &list[i];
    return NULL;
}

static unsigned category_bit(int32_t character)
{
    return 1u << utf8proc_category(npugraph__stand_in(character));
}

#define BIT(name)   (1u << UTF8PROC_CATEGORY_##name)
#define NUMBERS     (BIT(ND) | BIT(NL) | BIT(NO))
#define PUNCTUATION (BIT(PC) | BIT(PD) | BIT(PS) | BIT(PE) | BIT(PI) | BIT(PF) | BIT(PO))
#define WORDS \
    (BIT(LU) | BIT(LL) | BIT(LT) | BIT(LM) | BIT(LO) | BIT(MN) | BIT(MC) | BIT(ME) | BIT(ND) | BIT(NL) | BIT(PC))

bool npugraph__is_space(int32_t c)
{
    return (c >= 0x09 && c <= 0x0d) || c == 0x20 || c == 0x85 || c == 0xa0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

bool npugraph__is_numeric(int32_t c)
{
    if (c < 0x80)
        return c >= '0' && c <= '9';
    return (category_bit(c) & NUMBERS) != 0 || find_exception(numbers, sizeof(numbers) / sizeof(numbers[0]), c) != NULL;
}

bool npugraph__is_punctuation(int32_t c)
{
    const struct exception *e;

    if (c < 0x80)
        return (c >= 0x21 && c <= 0x2f) || (c >= 0x3a && c <= 0x40) || (c >= 0x5b && c <= 0x60) ||
               (c >= 0x7b && c <= 0x7e);
    e = find_exception(punctuation, sizeof(punctuation) / sizeof(punctuation[0]), c);
    return e != NULL ? e->has : (category_bit(c) & PUNCTUATION) != 0;
}

bool npugraph__is_word(int32_t c)
{
    /* Besides the categories: joiners, and letters in circles and squares, which are alphabetic symbols. */
    return (category_bit(c) & WORDS) != 0 || c == 0x200c || c == 0x200d || (c >= 0x24b6 && c <= 0x24e9) ||
           (c >= 0x1f130 && c <= 0x1f149) || (c >= 0x1f150 && c <= 0x1f169) || (c >= 0x1f170 && c <= 0x1f189);
}

bool npugraph__is_unformed(int32_t c)
{
    return c >= unformed[0].first &&
           (find_exception(unformed, sizeof(unformed) / sizeof(unformed[0]), c) != NULL || npugraph__stand_in(c) != c);
}
