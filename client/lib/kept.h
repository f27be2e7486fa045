/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NPUGRAPH_CLIENT_KEPT_H
#define NPUGRAPH_CLIENT_KEPT_H

/*
 * What the library keeps of a sequence so that another daemon, or session, can go on with it: how it was opened, and
 * all of its tokens. It follows the answers of the sequence's operations; if one does not continue what is kept (a
 * cancelled generation went further than was told), or there is no memory for it, the sequence is not restored.
 *
 * Memory: 4 bytes a token of the context, 8 for each part that was appended, the request, and the last mask. Threads:
 * those of the sequence.
 */
#include "client/lib/npugraph.h"
#include "proto/npugraph.pb-c.h"

struct npugraph__kept;

/* Keeps a sequence from its opening on. NULL: the daemon does not restore sequences, or there is no memory. */
struct npugraph__kept *npugraph__kept_open(const Npugraph__V1__OpenRequest *req, uint32_t wait_ms,
                                           const Npugraph__V1__OpenResponse *answer);
/* Keeps a copy. NULL is fine, and gives NULL. */
struct npugraph__kept *npugraph__kept_fork(const struct npugraph__kept *from, const Npugraph__V1__ForkRequest *req,
                                           const Npugraph__V1__OpenResponse *answer);
void npugraph__kept_free(struct npugraph__kept *k); /* NULL is fine, as for the next four */
/* Takes a step and its answer. */
void npugraph__kept_step(struct npugraph__kept *k, const Npugraph__V1__StepRequest *req,
                         const Npugraph__V1__StepResponse *answer);
/* Takes the tokens of a generation's message. */
void npugraph__kept_tokens(struct npugraph__kept *k, const Npugraph__V1__GenerateResponse *message);
bool npugraph__kept_is_whole(const struct npugraph__kept *k); /* the sequence can be restored */
uint32_t npugraph__kept_wait_ms(const struct npugraph__kept *k);
uint32_t npugraph__kept_position(const struct npugraph__kept *k); /* tokens in the context */

/* The request that restores it. It borrows from what is kept. */
struct npugraph__kept_request {
    Npugraph__V1__OpenRequest *open;
    Npugraph__V1__RestoredSequence restore;
};
/* logprobs: the last that came, maybe of the token behind the context; NULL: none. False: no memory. */
bool npugraph__kept_request_init(struct npugraph__kept_request *r, const struct npugraph__kept *k,
                                 Npugraph__V1__Logprobs *logprobs);
void npugraph__kept_request_fini(struct npugraph__kept_request *r);
/* True if the answer says that the sequence was restored. */
bool npugraph__kept_is_restored(const struct npugraph__kept *k, const Npugraph__V1__OpenResponse *answer);

#endif
