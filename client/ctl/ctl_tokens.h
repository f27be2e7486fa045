/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NPUGRAPH_CTL_TOKENS_H
#define NPUGRAPH_CTL_TOKENS_H

/* What the commands share that turn text into tokens and sample: tokenize, generate, chat. One thread. */
#include "client/ctl/ctl.h"
#include "client/hf/npugraph_hf.h"

/* Opens a tokenizer.json, or that of a directory. If it fails, prints the error and returns NULL. */
struct npugraph_tokenizer *ctl_open_tokenizer(const char *path);
/* Opens the tokenizer of a loaded model, from the files that the daemon sees. *copy_p: those files, which the caller
 * closes; NULL: only the tokenizer is wanted. If it fails, prints the error and returns NULL. */
struct npugraph_tokenizer *ctl_open_model_tokenizer(struct ctl *ctl, const char *model,
                                                    struct npugraph_checkpoint_copy **copy_p);
/* Parses "1,2,3" to ids. The caller frees *ids_p with free(). */
bool ctl_parse_ids(const char *text, int32_t **ids_p, size_t *n_p);

/* ---- options of sequences: sampling, and what happens if the daemon is lost ---- */

#define CTL_SAMPLING_OPTIONS                                                                                         \
    "temperature top-k top-p seed min-p typical-p repetition-penalty presence-penalty frequency-penalty min-tokens " \
    "logit-bias bad-word restore-timeout"
#define CTL_BAD_WORDS_MAX 256
struct ctl_sampling {
    struct npugraph_sampling how; /* complete after ctl_sampling_words */
    struct npugraph_logit_bias *bias;
    const char *texts[CTL_BAD_WORDS_MAX];
    struct npugraph_token_word *words;
    uint32_t restore_ms; /* of npugraph_open_params */
};
/* Takes the value of one of CTL_SAMPLING_OPTIONS. False: it cannot be, or the option is none of them. */
bool ctl_sampling_option(struct ctl_sampling *s, const char *name, const char *value);
/* Encodes the bad words. Without a tokenizer they are ids, "5,6". Prints errors; false then. */
bool ctl_sampling_words(struct ctl_sampling *s, const struct npugraph_tokenizer *tok);
void ctl_sampling_free(struct ctl_sampling *s);

#endif
