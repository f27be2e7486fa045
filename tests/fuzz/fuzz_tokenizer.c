/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tokenizer.json. What is refused has a sentence; with what is accepted any text encodes to tokens that exist, or is
 * refused with a sentence.
 */
#include "client/hf/npugraph_hf.h"
#include "tests/fuzz/fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

const uint32_t fuzz_runs = 2000;

/* Returns how many bytes at the beginning of text are whole characters. */
static size_t whole_characters(const char *text, size_t n)
{
    size_t i = 0;

    while (i < n) {
        unsigned char c = (unsigned char)text[i];
        size_t len = c < 0x80                ? 1
                     : c >= 0xc2 && c < 0xe0 ? 2
                     : c >= 0xe0 && c < 0xf0 ? 3
                     : c >= 0xf0 && c < 0xf5 ? 4
                                             : 0;

        if (len == 0 || len > n - i)
            break;
        for (size_t k = 1; k < len; k++)
            if (((unsigned char)text[i + k] & 0xc0) != 0x80)
                return i;
        i += len;
    }
    return i;
}

static void decode(const struct npugraph_tokenizer *tok, const int32_t *ids, size_t n_ids)
{
    struct npugraph_detokenizer *text = NULL;
    const char *part;
    size_t n;

    if (npugraph_detokenizer_create(tok, NULL, 0, n_ids % 2 == 0, &text, NULL) != 0)
        return;
    for (size_t i = 0; i < n_ids; i++) {
        npugraph_detokenizer_add(text, ids[i], &part, &n, NULL);
        fuzz_demand(whole_characters(part, n) == n, "text ends within a character");
    }
    npugraph_detokenizer_end(text, &part, &n, NULL);
    fuzz_demand(whole_characters(part, n) == n, "the end of a text is not UTF-8");
    npugraph_detokenizer_destroy(text);
}

static void encode(const struct npugraph_tokenizer *tok, const char *text)
{
    struct npugraph_error err = {0};
    int32_t *ids = NULL;
    size_t n_ids = 0, n;

    if (npugraph_tokenizer_encode(tok, text, strlen(text), NPUGRAPH_ENCODE_SPECIAL | NPUGRAPH_ENCODE_TEMPLATE, &ids,
                                  &n_ids, &err) != 0) {
        fuzz_demand(err.message[0] != '\0', "a text is refused without a sentence");
        return;
    }
    for (size_t i = 0; i < n_ids; i++)
        fuzz_demand(npugraph_tokenizer_bytes(tok, ids[i], &n, NULL) != NULL, "a token does not exist");
    decode(tok, ids, n_ids);
    free(ids); /* the library gives memory for the caller's own heap */
}

/* Ids as a model may give them: all of the first ones, in an order that mixes them. */
static void decode_mixed(const struct npugraph_tokenizer *tok)
{
    int32_t ids[64];

    for (int32_t i = 0; i < 64; i++)
        ids[i] = i * 37 % 67 - 1;
    decode(tok, ids, 64);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct npugraph_tokenizer *tok = NULL;
    struct npugraph_error err = {0};
    char path[64];
    int fd = memfd_create("tokenizer.json", MFD_CLOEXEC);

    fuzz_demand(fd >= 0 && write(fd, data, n) == (ssize_t)n, "no file for tokenizer.json");
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    if (npugraph_tokenizer_open(path, &tok, &err) != 0) {
        fuzz_demand(err.message[0] != '\0', "a tokenizer is refused without a sentence");
    } else {
        encode(tok, "In the beginning");
        encode(tok, "\xc3\xa9t\xc3\xa9 <|end|>  12\n\t");
        encode(tok, "\xff\xfe");
        encode(tok, "");
        encode(tok, "the end \xe2\x96\x81<s> In\xef\xac\x81  a\xcc\x81\xcc\x96 \xf0\x9f\x98\x80\xe3\x80\x80");
        decode_mixed(tok);
        npugraph_tokenizer_close(tok);
    }
    close(fd);
    return 0;
}
