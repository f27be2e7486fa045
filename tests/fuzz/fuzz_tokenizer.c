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

static void encode(const struct npugraph_tokenizer *tok, const char *text)
{
    struct npugraph_error err = {0};
    int32_t *ids = NULL;
    size_t n_ids = 0, n;

    if (npugraph_tokenizer_encode(tok, text, strlen(text), 3, &ids, &n_ids, &err) != 0) {
        fuzz_demand(err.message[0] != '\0', "a text is refused without a sentence");
        return;
    }
    for (size_t i = 0; i < n_ids; i++)
        fuzz_demand(npugraph_tokenizer_bytes(tok, ids[i], &n, NULL) != NULL, "a token does not exist");
    free(ids); /* the library gives memory for the caller's own heap */
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
        npugraph_tokenizer_close(tok);
    }
    close(fd);
    return 0;
}
