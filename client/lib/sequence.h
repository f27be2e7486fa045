/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NPUGRAPH_CLIENT_SEQUENCE_H
#define NPUGRAPH_CLIENT_SEQUENCE_H

/* What the two ways to generate have in common: a thread in each call (sequence.c), one for many (generations.c). */
#include "client/lib/npugraph.h"
#include "proto/npugraph.pb-c.h"

/* Fills a request. It points into *logprobs and the parameters. */
void npugraph__put_generation(Npugraph__V1__GenerateRequest *req, Npugraph__V1__LogprobsRequest *logprobs,
                              const struct npugraph_sequence *seq, const struct npugraph_generate_params *params);
/* Position of the next token of a generation, to repeat it from there; 0: not known. Before put_generation. */
uint32_t npugraph__sequence_next(const struct npugraph_sequence *seq);
/* Fills the request of a step that is one of many. It points into *logprobs and *step. */
void npugraph__put_step(Npugraph__V1__StepRequest *req, Npugraph__V1__LogprobsRequest *logprobs,
                        const struct npugraph_sequence *seq, const struct npugraph_generation_step *step);
/* Takes the position that a step begins at, and leaves it unknown; 0: it was not known. */
uint32_t npugraph__sequence_begin_step(struct npugraph_sequence *seq);
/* Notes that a step was answered, not with an error. */
void npugraph__sequence_end_step(struct npugraph_sequence *seq, const Npugraph__V1__StepRequest *req,
                                 const Npugraph__V1__StepResponse *answer);
struct npugraph__link;
struct npugraph__link *npugraph__sequence_link(const struct npugraph_sequence *seq);
struct npugraph__follow;
/*
 * Follows the session after a failed call (npugraph__client_follow), or restores the sequence in another one, with
 * another id, if its session is lost and it is kept. False: the failure is another one.
 */
bool npugraph__sequence_follow(struct npugraph_sequence *seq, struct npugraph__follow *f, bool again);
/* The second part alone, when the first has been tried. */
bool npugraph__sequence_restore(struct npugraph_sequence *seq, struct npugraph__follow *f);
struct npugraph__kept *npugraph__sequence_kept(const struct npugraph_sequence *seq); /* NULL: it is not restored */
/* Copies log-probabilities into one allocation, which the caller frees. NULL: out of memory. */
struct npugraph_logprobs *npugraph__take_logprobs(Npugraph__V1__Logprobs *const *from, size_t n);

#endif
