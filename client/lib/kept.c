/* SPDX-License-Identifier: Apache-2.0 */
#include "client/lib/kept.h"

#include <stdlib.h>
#include <string.h>

struct npugraph__kept {
    uint32_t wait_ms;
    uint8_t *open; /* packed: the OpenRequest without prompt, mask and wishes for the answer */
    size_t n_open;
    uint8_t model_id[32];
    int32_t *tokens; /* [0, fill] are known: the context, and the token chosen behind it */
    uint32_t fill, room;
    uint32_t n_prompt, n_given;
    uint32_t *appended; /* RestoredSequence.appended */
    size_t n_appended;
    uint64_t draws;
    bool delivered; /* a generation has delivered the token behind the context */
    bool broken;    /* something is not known */
    uint8_t *mask;  /* under which that token was chosen; NULL: all tokens were allowed */
    size_t mask_bytes;
};

/* ---- tokens -------------------------------------------------------------------------------------------------- */

/* Makes room for the context of so many tokens and the one behind it. */
static bool reserve_kept(struct npugraph__kept *k, uint64_t fill)
{
    uint64_t room = k->room != 0 ? k->room : 64;
    int32_t *tokens;

    if (fill < k->room)
        return true;
    while (room <= fill)
        room *= 2;
    tokens = room <= UINT32_MAX ? realloc(k->tokens, room * sizeof(*tokens)) : NULL;
    if (tokens == NULL)
        return false;
    k->tokens = tokens;
    k->room = (uint32_t)room;
    return true;
}

/* Appends n tokens in place of the chosen one, then sets the token that was chosen behind them. tokens: NULL if n is 1,
 * for the chosen one itself. Nothing is kept any more if the answer has another position. */
static void extend_kept(struct npugraph__kept *k, const int32_t *tokens, size_t n, int32_t chosen, uint32_t position)
{
    if (k->broken || position != k->fill + n || !reserve_kept(k, position)) {
        k->broken = true;
        return;
    }
    if (tokens != NULL)
        memcpy(k->tokens + k->fill, tokens, n * sizeof(*tokens));
    k->fill = position;
    k->tokens[position] = chosen;
}

/* Notes that tokens [begin, end) were computed as a prompt is. */
static void add_appended(struct npugraph__kept *k, uint32_t begin, uint32_t end)
{
    uint32_t *more = begin < end ? realloc(k->appended, (k->n_appended + 2) * sizeof(*more)) : k->appended;

    if (begin >= end)
        return;
    if (more == NULL) {
        k->broken = true;
        return;
    }
    k->appended = more;
    k->appended[k->n_appended++] = begin;
    k->appended[k->n_appended++] = end;
}

static void set_mask(struct npugraph__kept *k, const ProtobufCBinaryData *mask)
{
    free(k->mask);
    k->mask = NULL;
    k->mask_bytes = mask != NULL ? mask->len : 0;
    if (k->mask_bytes == 0)
        return;
    k->mask = malloc(k->mask_bytes);
    if (k->mask != NULL)
        memcpy(k->mask, mask->data, k->mask_bytes);
    k->broken = k->broken || k->mask == NULL;
}

/* ---- the sequence's operations ------------------------------------------------------------------------------- */

static struct npugraph__kept *begin_kept(const Npugraph__V1__OpenRequest *open, uint32_t wait_ms,
                                         const ProtobufCBinaryData *model_id)
{
    Npugraph__V1__OpenRequest bare = NPUGRAPH__V1__OPEN_REQUEST__INIT;
    struct npugraph__kept *k = calloc(1, sizeof(*k));

    if (k == NULL)
        return NULL;
    bare.model = open->model;
    bare.sampling = open->sampling;
    bare.priority = open->priority;
    k->wait_ms = wait_ms;
    k->n_open = npugraph__v1__open_request__get_packed_size(&bare);
    k->open = malloc(k->n_open + 1);
    if (k->open == NULL || model_id->len != sizeof(k->model_id)) {
        npugraph__kept_free(k);
        return NULL;
    }
    npugraph__v1__open_request__pack(&bare, k->open);
    memcpy(k->model_id, model_id->data, sizeof(k->model_id));
    return k;
}

struct npugraph__kept *npugraph__kept_open(const Npugraph__V1__OpenRequest *req, uint32_t wait_ms,
                                           const Npugraph__V1__OpenResponse *answer)
{
    struct npugraph__kept *k = begin_kept(req, wait_ms, &answer->model_id);

    if (k == NULL)
        return NULL;
    k->n_prompt = k->n_given = (uint32_t)req->n_prompt;
    k->draws = 1;
    extend_kept(k, req->prompt, req->n_prompt, answer->token, answer->position);
    set_mask(k, &req->allowed);
    return k;
}

struct npugraph__kept *npugraph__kept_fork(const struct npugraph__kept *from, const Npugraph__V1__ForkRequest *req,
                                           const Npugraph__V1__OpenResponse *answer)
{
    struct npugraph__kept *k = NULL;
    struct npugraph__kept_request r;
    Npugraph__V1__Sampling *sampling;

    if (from == NULL || from->broken || !npugraph__kept_request_init(&r, from, NULL))
        return NULL;
    sampling = r.open->sampling;
    r.open->sampling = req->sampling;
    k = begin_kept(r.open, from->wait_ms, &r.restore.model_id);
    r.open->sampling = sampling;
    npugraph__kept_request_fini(&r);
    if (k == NULL)
        return NULL;
    k->n_prompt = from->n_prompt;
    k->n_given = from->n_given;
    k->draws = from->draws;
    extend_kept(k, from->tokens, from->fill, answer->token, answer->position);
    for (size_t i = 0; i < from->n_appended; i += 2)
        add_appended(k, from->appended[i], from->appended[i + 1]);
    set_mask(k, &(ProtobufCBinaryData){.data = from->mask, .len = from->mask_bytes});
    return k;
}

void npugraph__kept_free(struct npugraph__kept *k)
{
    if (k == NULL)
        return;
    free(k->open);
    free(k->tokens);
    free(k->appended);
    free(k->mask);
    free(k);
}

/* Takes a step that appended the chosen token, or a forced one, and then some of a draft. */
static void extend_by_draft(struct npugraph__kept *k, const Npugraph__V1__StepRequest *req,
                            const Npugraph__V1__StepResponse *answer)
{
    const uint32_t accepted = answer->accepted;

    if (accepted > req->n_draft || !reserve_kept(k, (uint64_t)k->fill + 1 + accepted)) {
        k->broken = true;
        return;
    }
    if (req->forced != NULL)
        k->tokens[k->fill] = req->forced->token;
    if (accepted != 0)
        memcpy(k->tokens + k->fill + 1, req->draft, accepted * sizeof(*req->draft));
    k->fill += accepted;
    extend_kept(k, NULL, 1, answer->token, answer->position);
    k->draws += (uint64_t)accepted + 1;
}

void npugraph__kept_step(struct npugraph__kept *k, const Npugraph__V1__StepRequest *req,
                         const Npugraph__V1__StepResponse *answer)
{
    if (k == NULL || k->broken)
        return;
    if (answer->error != NULL) { /* of what was to be appended, some tokens may be in the context */
        k->broken = req->n_append != 0;
        return;
    }
    if (req->n_append != 0) {
        add_appended(k, k->fill, k->fill + (uint32_t)req->n_append - 1);
        extend_kept(k, req->append, req->n_append, answer->token, answer->position);
        k->n_given = k->fill;
        k->draws++;
    } else {
        extend_by_draft(k, req, answer);
    }
    k->delivered = false;
    set_mask(k, &req->allowed);
}

void npugraph__kept_tokens(struct npugraph__kept *k, const Npugraph__V1__GenerateResponse *message)
{
    for (size_t i = 0; k != NULL && !k->broken && i < message->n_tokens; i++) {
        const uint32_t position = message->position - (uint32_t)(message->n_tokens - 1 - i);

        if (position == k->fill && k->tokens[position] == message->tokens[i]) {
            k->delivered = true; /* the one that was chosen before */
            continue;
        }
        extend_kept(k, NULL, 1, message->tokens[i], position);
        k->draws++;
        k->delivered = true;
        set_mask(k, NULL);
    }
}

/* ---- restoring ----------------------------------------------------------------------------------------------- */

bool npugraph__kept_is_whole(const struct npugraph__kept *k)
{
    return k != NULL && !k->broken;
}

uint32_t npugraph__kept_wait_ms(const struct npugraph__kept *k)
{
    return k != NULL ? k->wait_ms : 0;
}

uint32_t npugraph__kept_position(const struct npugraph__kept *k)
{
    return k->fill;
}

bool npugraph__kept_request_init(struct npugraph__kept_request *r, const struct npugraph__kept *k,
                                 Npugraph__V1__Logprobs *logprobs)
{
    r->open = npugraph__v1__open_request__unpack(NULL, k->n_open, k->open);
    if (r->open == NULL)
        return false;
    npugraph__v1__restored_sequence__init(&r->restore);
    r->restore.model_id = (ProtobufCBinaryData){.data = (uint8_t *)(uintptr_t)k->model_id, .len = sizeof(k->model_id)};
    r->restore.prompt_tokens = k->n_prompt;
    r->restore.given_tokens = k->n_given;
    r->restore.draws = k->draws;
    r->restore.chosen = k->tokens[k->fill];
    r->restore.delivered = k->delivered;
    r->restore.appended = k->appended;
    r->restore.n_appended = k->n_appended;
    if (logprobs != NULL && logprobs->token == r->restore.chosen && !k->delivered)
        r->restore.logprobs = logprobs;
    r->open->prompt = k->tokens;
    r->open->n_prompt = k->fill;
    r->open->allowed = (ProtobufCBinaryData){.data = k->mask, .len = k->mask_bytes};
    r->open->restore = &r->restore;
    return true;
}

void npugraph__kept_request_fini(struct npugraph__kept_request *r)
{
    /* What is borrowed is not the message's to free. */
    r->open->prompt = NULL;
    r->open->n_prompt = 0;
    r->open->allowed = (ProtobufCBinaryData){0};
    r->open->restore = NULL;
    npugraph__v1__open_request__free_unpacked(r->open, NULL);
}

bool npugraph__kept_is_restored(const struct npugraph__kept *k, const Npugraph__V1__OpenResponse *answer)
{
    return answer->model_id.len == sizeof(k->model_id) &&
           memcmp(answer->model_id.data, k->model_id, sizeof(k->model_id)) == 0 && answer->position == k->fill &&
           answer->token == k->tokens[k->fill];
}
