/* SPDX-License-Identifier: Apache-2.0 */
/* Sequences: prompt, steps on one stream, generation. */
#include "base/ring.h"
#include "client/lib/client_int.h"
#include "client/lib/kept.h"
#include "client/lib/ring.h"
#include "client/lib/sampling.h"
#include "client/lib/sequence.h"
#include "client/lib/timing.h"
#include "client/lib/trace.h"
#include "proto/npugraph.pb-c.h"
#include "proto/word.h"

#include <stdlib.h>
#include <string.h>

struct npugraph_sequence {
    struct npugraph_client *client;
    struct npugraph__link *link; /* entered */
    uint64_t id;
    uint32_t position;                  /* tokens that it has, as the last answer said; 0: not known */
    bool told;                          /* a generation has delivered the token that was chosen behind them */
    struct npugraph__lane *lane;        /* taken by the first step; NULL: none */
    struct npugraph__stream *steps;     /* opened by the first step */
    ProtobufCMessage *last;             /* holds the logits of the last step */
    struct npugraph_logprobs *logprobs; /* of the last step */
    size_t n_logprobs;
    struct npugraph__kept *kept; /* what it is restored from; NULL: it is not */
};

#define RESTORES 8 /* of one call, that makes progress in between */

/* ---- log-probabilities ---- */

static void fill_logprobs(struct npugraph_logprobs *to, const Npugraph__V1__Logprobs *from,
                          struct npugraph_token_logprob *top)
{
    *to = (struct npugraph_logprobs){.token = from->token, .logprob = from->logprob, .top = top, .n_top = from->n_top};
    for (size_t i = 0; i < from->n_top; i++)
        top[i] = (struct npugraph_token_logprob){from->top[i]->token, from->top[i]->logprob};
}

struct npugraph_logprobs *npugraph__take_logprobs(Npugraph__V1__Logprobs *const *from, size_t n)
{
    struct npugraph_token_logprob *top;
    struct npugraph_logprobs *list;
    size_t all = 0;

    for (size_t i = 0; i < n; i++)
        all += from[i]->n_top;
    list = calloc(1, n * sizeof(*list) + all * sizeof(*top));
    if (list == NULL)
        return NULL;
    top = (struct npugraph_token_logprob *)(void *)(list + n);
    for (size_t i = 0; i < n; top += from[i++]->n_top)
        fill_logprobs(&list[i], from[i], top);
    return list;
}

/* Takes the log-probabilities from the answer to a step. They live as long as its logits. */
static int keep_logprobs(struct npugraph_sequence *seq, struct npugraph_step *step, Npugraph__V1__Logprobs *const *from,
                         size_t n, struct npugraph_error *err)
{
    free(seq->logprobs);
    seq->logprobs = NULL;
    seq->n_logprobs = 0;
    if (n == 0)
        return 0;
    seq->logprobs = npugraph__take_logprobs(from, n);
    if (seq->logprobs == NULL)
        return npugraph__error(err, 8, "NO_MEMORY", "out of memory");
    seq->n_logprobs = n;
    step->logprobs = seq->logprobs;
    step->n_logprobs = n;
    return 0;
}

static Npugraph__V1__LogprobsRequest *put_logprobs(Npugraph__V1__LogprobsRequest *q, bool want, uint32_t top)
{
    npugraph__v1__logprobs_request__init(q);
    q->top = top;
    return want ? q : NULL;
}

/* ---- open, fork ---- */

static void take_logits(struct npugraph_step *step, const ProtobufCBinaryData *logits)
{
    step->logits = logits->len != 0 ? (const float *)(const void *)logits->data : NULL;
    step->vocab = logits->len / sizeof(float);
}

static ProtobufCBinaryData put_mask(const uint8_t *allowed, size_t bytes)
{
    return (ProtobufCBinaryData){.data = (uint8_t *)(uintptr_t)allowed, .len = allowed != NULL ? bytes : 0};
}

static void keep_last(struct npugraph_sequence *seq, ProtobufCMessage *message)
{
    npugraph__free_message(seq->last);
    seq->last = message;
}

static void take_first_answer(struct npugraph_step *first, const Npugraph__V1__OpenResponse *r)
{
    memset(first, 0, sizeof(*first));
    first->token = r->token;
    first->position = r->position;
    first->stop = r->stop;
    first->device_ns = r->prefill_ns;
    first->batch = 1;
    first->timing = npugraph__timing(r->timing);
    take_logits(first, &r->logits);
}

/* Calls Open (anew) or Fork, whose answers have the same form. Takes the entered link, and leaves it if this fails. */
static int begin_sequence(struct npugraph_client *client, struct npugraph__link *link, bool anew, const char *method,
                          const ProtobufCMessage *req, struct npugraph__follow *f, struct npugraph_sequence **seq_p,
                          struct npugraph_step *first_p)
{
    struct npugraph_sequence *seq = calloc(1, sizeof(*seq));
    const Npugraph__V1__OpenResponse *r;
    int rc;

    rc = seq == NULL ? npugraph__error(&f->why, 8, "NO_MEMORY", "out of memory")
                     : npugraph__entered_call(client, &link, anew, f, method, req,
                                              &npugraph__v1__open_response__descriptor, &seq->last);
    if (rc != 0) {
        npugraph__client_leave(client, link);
        free(seq);
        return rc;
    }
    seq->link = link;
    r = (const Npugraph__V1__OpenResponse *)seq->last;
    seq->client = client;
    seq->id = r->sequence;
    seq->position = r->position;
    *seq_p = seq;
    if (first_p != NULL) {
        take_first_answer(first_p, r);
        rc = keep_logprobs(seq, first_p, &r->logprobs, r->logprobs != NULL, &f->why);
    }
    if (rc != 0)
        npugraph_sequence_close(seq);
    return rc;
}

void npugraph_open_params_init(struct npugraph_open_params *params)
{
    memset(params, 0, sizeof(*params));
}

/* Waits a while if a model that was there is not, and may come: daemons serve while their models are loaded. False: it
 * has waited long enough since the client lost a session, or something else has failed. */
static bool may_come(struct npugraph_client *client, struct npugraph__follow *f, uint32_t *pause_ms)
{
    return strcmp(f->why.reason, "MODEL_NOT_FOUND") == 0 && npugraph__client_pause(client, f, pause_ms);
}

int npugraph_sequence_open(struct npugraph_client *client, const char *model, const int32_t *prompt, size_t n,
                           const struct npugraph_open_params *params, struct npugraph_sequence **seq_p,
                           struct npugraph_step *first_p, struct npugraph_error *err)
{
    Npugraph__V1__OpenRequest req = NPUGRAPH__V1__OPEN_REQUEST__INIT;
    Npugraph__V1__LogprobsRequest logprobs;
    struct npugraph__sampling how;
    struct npugraph_open_params defaults;
    struct npugraph__follow f = {0};
    uint32_t pause_ms = 0;
    int rc;

    if (params == NULL) {
        npugraph_open_params_init(&defaults);
        params = &defaults;
    }
    req.model = (char *)model;
    req.prompt = (int32_t *)prompt;
    req.n_prompt = n;
    req.want_logits = params->want_logits;
    req.logprobs = put_logprobs(&logprobs, params->want_logprobs, params->top);
    req.priority = (Npugraph__V1__Priority)params->priority;
    req.timing = params->timing;
    req.allowed = put_mask(params->allowed, params->allowed_bytes);
    rc = npugraph__sampling_init(&how, params->sampling, err);
    if (rc != 0)
        return rc;
    req.sampling = how.message_or_null;
    f.wait_ms = params->restore_ms;
    do {
        rc = begin_sequence(client, npugraph__client_enter(client), true, "/npugraph.v1.Sequences/Open", &req.base, &f,
                            seq_p, first_p);
    } while (rc != 0 && npugraph__client_knows_model(client, model) && may_come(client, &f, &pause_ms));
    if (rc == 0)
        npugraph__client_note_model(client, model);
    if (rc == 0 && params->restore_ms != 0)
        (*seq_p)->kept = npugraph__kept_open(&req, params->restore_ms, (Npugraph__V1__OpenResponse *)(*seq_p)->last);
    npugraph__sampling_fini(&how);
    if (rc != 0 && err != NULL)
        *err = f.why;
    return rc;
}

/* ---- restoring ---- */

struct npugraph__kept *npugraph__sequence_kept(const struct npugraph_sequence *seq)
{
    return seq->kept;
}

/* A message of one token's log-probabilities. */
struct known_logprobs {
    Npugraph__V1__Logprobs message;
    Npugraph__V1__TokenLogprob top[NPUGRAPH_LOGPROBS_MAX];
    Npugraph__V1__TokenLogprob *top_list[NPUGRAPH_LOGPROBS_MAX];
};

/* Makes the message of the token that was chosen last. NULL: they are not known. */
static Npugraph__V1__Logprobs *put_known_logprobs(struct known_logprobs *to, const struct npugraph_sequence *seq)
{
    const struct npugraph_logprobs *from = seq->n_logprobs != 0 ? &seq->logprobs[seq->n_logprobs - 1] : NULL;

    if (from == NULL || from->n_top > NPUGRAPH_LOGPROBS_MAX)
        return NULL;
    npugraph__v1__logprobs__init(&to->message);
    to->message.token = from->token;
    to->message.logprob = from->logprob;
    to->message.top = to->top_list;
    to->message.n_top = from->n_top;
    for (size_t i = 0; i < from->n_top; i++) {
        npugraph__v1__token_logprob__init(&to->top[i]);
        to->top[i].token = from->top[i].token;
        to->top[i].logprob = from->top[i].logprob;
        to->top_list[i] = &to->top[i];
    }
    return &to->message;
}

/* Opens the kept sequence in the session of *link_p. */
static int reopen(struct npugraph_sequence *seq, struct npugraph__link **link_p, struct npugraph__follow *f,
                  ProtobufCMessage **answer_p)
{
    struct npugraph__kept_request request;
    struct known_logprobs known;
    uint32_t pause_ms = 0;
    int rc;

    if (!npugraph__kept_request_init(&request, seq->kept, put_known_logprobs(&known, seq)))
        return npugraph__error(&f->why, 8, "NO_MEMORY", "out of memory");
    do {
        rc = npugraph__entered_call(seq->client, link_p, true, f, "/npugraph.v1.Sequences/Open", &request.open->base,
                                    &npugraph__v1__open_response__descriptor, answer_p);
    } while (rc != 0 && may_come(seq->client, f, &pause_ms));
    npugraph__kept_request_fini(&request);
    return rc;
}

static void move_sequence(struct npugraph_sequence *seq, struct npugraph__link *to);

/* Takes the place of the lost sequence, on the entered link. False: the daemon is too old, and has opened another one.
 */
static bool take_reopened(struct npugraph_sequence *seq, struct npugraph__link *link,
                          const Npugraph__V1__OpenResponse *answer, struct npugraph__follow *f)
{
    Npugraph__V1__CloseRequest req = NPUGRAPH__V1__CLOSE_REQUEST__INIT;
    ProtobufCMessage *reply = NULL;

    if (npugraph__kept_is_restored(seq->kept, answer)) {
        move_sequence(seq, link);
        seq->id = answer->sequence;
        seq->position = npugraph__kept_position(seq->kept);
        return true;
    }
    req.sequence = answer->sequence;
    npugraph__channel_unary(link->channel, "/npugraph.v1.Sequences/Close", NULL, &req.base,
                            &npugraph__v1__close_response__descriptor, &reply, NULL);
    npugraph__free_message(reply);
    npugraph__error(&f->why, 12, "UNIMPLEMENTED", "the daemon that serves now cannot restore sequences");
    return false;
}

bool npugraph__sequence_restore(struct npugraph_sequence *seq, struct npugraph__follow *f)
{
    struct npugraph__link *link;
    ProtobufCMessage *answer = NULL;
    bool ok;

    if (!npugraph__kept_is_whole(seq->kept) || f->restores >= RESTORES)
        return false;
    f->wait_ms = npugraph__kept_wait_ms(seq->kept);
    link = npugraph__client_leave_lost(seq->client, seq->link, f);
    if (link == NULL)
        return false;
    f->restores++;
    ok = reopen(seq, &link, f, &answer) == 0 && take_reopened(seq, link, (const Npugraph__V1__OpenResponse *)answer, f);
    if (!ok)
        npugraph__client_leave(seq->client, link);
    npugraph__free_message(answer);
    return ok;
}

int npugraph_sequence_fork(struct npugraph_sequence *seq, const struct npugraph_fork_params *params,
                           struct npugraph_sequence **copy_p, struct npugraph_step *first_p, struct npugraph_error *err)
{
    Npugraph__V1__ForkRequest req = NPUGRAPH__V1__FORK_REQUEST__INIT;
    Npugraph__V1__LogprobsRequest logprobs;
    const struct npugraph_fork_params defaults = {0};
    struct npugraph__follow f = {0};
    struct npugraph__sampling how;
    int rc;

    if (params == NULL)
        params = &defaults;
    req.want_logits = params->want_logits;
    req.logprobs = put_logprobs(&logprobs, params->want_logprobs, params->top);
    rc = npugraph__sampling_init(&how, params->sampling, err);
    if (rc != 0)
        return rc;
    req.sampling = how.message_or_null;
    do {
        req.sequence = seq->id;
        npugraph__client_keep(seq->client, seq->link);
        rc = begin_sequence(seq->client, seq->link, false, "/npugraph.v1.Sequences/Fork", &req.base, &f, copy_p,
                            first_p);
    } while (rc != 0 && npugraph__sequence_restore(seq, &f));
    if (rc == 0)
        (*copy_p)->kept = npugraph__kept_fork(seq->kept, &req, (Npugraph__V1__OpenResponse *)(*copy_p)->last);
    npugraph__sampling_fini(&how);
    if (rc != 0 && err != NULL)
        *err = f.why;
    return rc;
}

/* ---- steps ---- */

void npugraph_step_params_init(struct npugraph_step_params *params)
{
    memset(params, 0, sizeof(*params));
    params->forced = -1;
}

/* A generation that was cancelled over gRPC may not be over for the daemon yet. A step over gRPC comes behind the
 * cancellation; one by the ring may overtake it. */
static bool has_overtaken(ProtobufCMessage *reply)
{
    const Npugraph__V1__ReplayError *e = ((const Npugraph__V1__StepResponse *)reply)->error;

    if (e == NULL || strcmp(e->reason, "SEQUENCE_BUSY") != 0)
        return false;
    npugraph__free_message(reply);
    return true;
}

/* Sends by the ring what has small answers. A lane is taken for the first step, and kept as a stream is. */
static int exchange_by_ring(struct npugraph_sequence *seq, const Npugraph__V1__StepRequest *req,
                            ProtobufCMessage **reply_p, struct npugraph_error *err)
{
    int rc;

    if (req->want_logits || req->logprobs != NULL || req->n_append != 0 || seq->steps != NULL)
        return NPUGRAPH__ELSEWHERE;
    if (seq->lane == NULL)
        seq->lane = npugraph__link_lane(seq->link);
    if (seq->lane == NULL)
        return NPUGRAPH__ELSEWHERE;
    rc = npugraph__lane_exchange(seq->lane, NGD_RING_STEP, &req->base, &npugraph__v1__step_response__descriptor,
                                 reply_p, err);
    if (rc == 0 && has_overtaken(*reply_p))
        return NPUGRAPH__ELSEWHERE;
    if (rc != 0) {
        npugraph__lane_give(seq->lane);
        seq->lane = NULL;
    }
    return rc;
}

static int exchange(struct npugraph_sequence *seq, const Npugraph__V1__StepRequest *req, struct npugraph_error *err)
{
    ProtobufCMessage *reply = NULL;
    int rc = exchange_by_ring(seq, req, &reply, err);

    if (rc != NPUGRAPH__ELSEWHERE) {
        if (rc == 0)
            keep_last(seq, reply);
        return rc;
    }
    rc = 0;
    if (seq->steps == NULL)
        rc = npugraph__channel_call(seq->link->channel, "/npugraph.v1.Sequences/StepStream", &seq->steps, err);
    if (rc != 0)
        return rc;
    rc = npugraph__stream_exchange(seq->steps, &req->base, &npugraph__v1__step_response__descriptor, &reply, err);
    if (rc != 0) {
        npugraph__stream_close(seq->steps); /* the call is over; the next step begins a new one */
        seq->steps = NULL;
        return rc;
    }
    keep_last(seq, reply);
    return 0;
}

/* Goes on with the sequence on an entered link, which may be the one that it has. */
static void move_sequence(struct npugraph_sequence *seq, struct npugraph__link *to)
{
    if (to != seq->link) {
        npugraph__lane_give(seq->lane);
        npugraph__stream_close(seq->steps);
        seq->lane = NULL;
        seq->steps = NULL;
    }
    npugraph__client_change(seq->client, &seq->link, to);
}

bool npugraph__sequence_follow(struct npugraph_sequence *seq, struct npugraph__follow *f, bool again)
{
    struct npugraph__link *link = npugraph__client_follow(seq->client, seq->link, f, again);

    if (link == NULL)
        return npugraph__sequence_restore(seq, f);
    move_sequence(seq, link);
    return true;
}

/* Sends a step; and again on another link, if the session moves. The position keeps it from being done twice. */
static int exchange_and_move(struct npugraph_sequence *seq, Npugraph__V1__StepRequest *req, struct npugraph_error *err)
{
    struct npugraph__follow f = {.link = seq->link};
    int rc;

    do {
        req->sequence = seq->id;
        if (seq->position != 0)
            req->position = seq->position;
        seq->position = 0; /* until its end is known */
        rc = exchange(seq, req, &f.why);
    } while (rc != 0 && npugraph__sequence_follow(seq, &f, req->position != 0));
    if (rc != 0 && err != NULL)
        *err = f.why;
    return rc;
}

int npugraph_sequence_step(struct npugraph_sequence *seq, const struct npugraph_step_params *params,
                           struct npugraph_step *step_p, struct npugraph_error *err)
{
    Npugraph__V1__StepRequest req = NPUGRAPH__V1__STEP_REQUEST__INIT;
    Npugraph__V1__TokenChoice choice = NPUGRAPH__V1__TOKEN_CHOICE__INIT;
    Npugraph__V1__LogprobsRequest logprobs;
    const Npugraph__V1__StepResponse *r;
    struct npugraph_step_params defaults;
    int rc;

    if (params == NULL) {
        npugraph_step_params_init(&defaults);
        params = &defaults;
    }
    req.want_logits = params->want_logits;
    choice.token = params->forced;
    req.forced = params->forced >= 0 ? &choice : NULL;
    req.draft = (int32_t *)params->draft;
    req.n_draft = params->n_draft;
    req.append = (int32_t *)params->append;
    req.n_append = params->n_append;
    req.logprobs = put_logprobs(&logprobs, params->want_logprobs, params->top);
    req.priority = (Npugraph__V1__Priority)params->priority;
    req.timing = params->timing;
    req.allowed = put_mask(params->allowed, params->allowed_bytes);
    req.trace_parent = npugraph__trace_field();
    rc = exchange_and_move(seq, &req, err);
    if (rc != 0)
        return rc;
    r = (const Npugraph__V1__StepResponse *)seq->last;
    npugraph__kept_step(seq->kept, &req, r);
    if (r->error != NULL)
        return npugraph__error(err, r->error->code, r->error->reason, "%s", r->error->message);
    seq->position = r->position;
    seq->told = false;
    *step_p = (struct npugraph_step){.token = r->token,
                                     .position = r->position,
                                     .stop = r->stop,
                                     .batch = r->batch,
                                     .accepted = r->accepted,
                                     .queue_ns = r->queue_ns,
                                     .device_ns = r->device_ns,
                                     .timing = npugraph__timing(r->timing)};
    take_logits(step_p, &r->logits);
    return keep_logprobs(seq, step_p, r->logprobs, r->n_logprobs, err);
}

/* ---- steps of many sequences, made in generations.c ---- */

void npugraph__put_step(Npugraph__V1__StepRequest *req, Npugraph__V1__LogprobsRequest *logprobs,
                        const struct npugraph_sequence *seq, const struct npugraph_generation_step *step)
{
    npugraph__v1__step_request__init(req);
    req->sequence = seq->id;
    req->logprobs = put_logprobs(logprobs, step->want_logprobs, step->top);
    req->allowed = put_mask(step->allowed, step->allowed_bytes);
}

uint32_t npugraph__sequence_begin_step(struct npugraph_sequence *seq)
{
    const uint32_t position = seq->position;

    seq->position = 0;
    return position;
}

void npugraph__sequence_end_step(struct npugraph_sequence *seq, const Npugraph__V1__StepRequest *req,
                                 const Npugraph__V1__StepResponse *answer)
{
    npugraph__kept_step(seq->kept, req, answer);
    seq->position = answer->position;
    seq->told = false;
}

/* ---- generations ---- */

_Static_assert((int)NPUGRAPH_PRIORITY_HIGH == (int)NGD_PB(PRIORITY, HIGH) &&
                   (int)NPUGRAPH_PRIORITY_LOW == (int)NGD_PB(PRIORITY, LOW) &&
                   (int)NPUGRAPH_PRIORITY_NORMAL == (int)NGD_PB(PRIORITY, NORMAL),
               "values of the protocol");
_Static_assert((int)NPUGRAPH_FINISH_LENGTH == (int)NGD_PB(FINISH_REASON, LENGTH) &&
                   (int)NPUGRAPH_FINISH_STOP == (int)NGD_PB(FINISH_REASON, STOP) &&
                   (int)NPUGRAPH_FINISH_CONTEXT == (int)NGD_PB(FINISH_REASON, CONTEXT),
               "values of the protocol, whose unspecified one stands for no last message");

/* The caller's callback for tokens. */
struct listener {
    npugraph_token_fn fn;
    void *user;
    struct npugraph_timing *timing; /* may be NULL */
    uint32_t told, from;            /* tokens so far; position of the next one, 0: not known */
    struct npugraph__kept *kept;
};

/* Calls the listener for each token of an answer. *more_p becomes false if the listener wants no more. */
static int tell_all(struct listener *l, const Npugraph__V1__GenerateResponse *r, bool *more_p,
                    struct npugraph_error *err)
{
    const size_t without = r->n_tokens > r->n_logprobs ? r->n_tokens - r->n_logprobs : 0;
    struct npugraph_logprobs *list = r->n_logprobs != 0 ? npugraph__take_logprobs(r->logprobs, r->n_logprobs) : NULL;

    if (r->n_logprobs != 0 && list == NULL)
        return npugraph__error(err, 8, "NO_MEMORY", "out of memory");
    npugraph__kept_tokens(l->kept, r);
    *more_p = true;
    if (l->timing != NULL)
        *l->timing = npugraph__timing(r->timing);
    for (size_t i = 0; *more_p && i < r->n_tokens; i++)
        *more_p = l->fn(l->user, r->tokens[i], i < without || list == NULL ? NULL : &list[i - without]);
    l->told += (uint32_t)r->n_tokens;
    if (r->n_tokens != 0)
        l->from = r->position + 1;
    free(list);
    return 0;
}

/* Reads the stream to its end, or until the listener wants no more. */
static int follow_generation(struct npugraph__stream *st, struct listener *l, enum npugraph_finish *finish_p,
                             struct npugraph_error *err)
{
    for (;;) {
        ProtobufCMessage *m = NULL;
        const Npugraph__V1__GenerateResponse *r;
        bool more = true;
        int rc = npugraph__stream_recv(st, &npugraph__v1__generate_response__descriptor, &m, err);

        if (rc != 0 || m == NULL)
            return rc;
        r = (const Npugraph__V1__GenerateResponse *)m;
        rc = tell_all(l, r, &more, err);
        *finish_p = (enum npugraph_finish)r->finish;
        npugraph__free_message(m);
        if (rc != 0)
            return rc;
        if (!more) {
            *finish_p = NPUGRAPH_FINISH_CANCELLED;
            return 0;
        }
    }
}

void npugraph_generate_params_init(struct npugraph_generate_params *params)
{
    memset(params, 0, sizeof(*params));
    params->max_tokens = UINT32_MAX;
}

uint32_t npugraph__sequence_next(const struct npugraph_sequence *seq)
{
    return seq->position != 0 ? seq->position + seq->told : 0;
}

struct npugraph__link *npugraph__sequence_link(const struct npugraph_sequence *seq)
{
    return seq->link;
}

void npugraph__put_generation(Npugraph__V1__GenerateRequest *req, Npugraph__V1__LogprobsRequest *logprobs,
                              const struct npugraph_sequence *seq, const struct npugraph_generate_params *params)
{
    npugraph__v1__generate_request__init(req);
    ((struct npugraph_sequence *)(uintptr_t)seq)->position = 0; /* until its end is known */
    req->sequence = seq->id;
    req->max_tokens = params->max_tokens;
    req->ignore_stop = params->ignore_stop;
    req->stop_tokens = (int32_t *)(uintptr_t)params->stop_tokens;
    req->n_stop_tokens = params->n_stop_tokens;
    req->logprobs = put_logprobs(logprobs, params->want_logprobs, params->top);
    req->priority = (Npugraph__V1__Priority)params->priority;
    req->timing = params->timing != NULL;
}

static int generate_stream(struct npugraph_sequence *seq, const Npugraph__V1__GenerateRequest *req, struct listener *l,
                           enum npugraph_finish *finish_p, struct npugraph_error *err)
{
    struct npugraph__stream *st;
    int rc = npugraph__channel_ask(seq->link->channel, "/npugraph.v1.Sequences/Generate", &req->base, &st, err);

    if (rc != 0)
        return rc;
    rc = follow_generation(st, l, finish_p, err);
    npugraph__stream_close(st);
    return rc;
}

/* Follows the session of a generation that broke off. Losses in a row count as long as no token comes between. */
static bool follow_generation_on(struct npugraph_sequence *seq, struct npugraph__follow *f, const struct listener *l,
                                 uint32_t *told_p)
{
    bool ok;

    if (l->told != *told_p)
        f->renewals = 0;
    *told_p = l->told;
    ok = npugraph__sequence_follow(seq, f, l->from != 0);
    seq->position = 0; /* until the generation's end is known */
    return ok;
}

/* Generates; and goes on, on another link, if the session moves or the sequence is restored. */
static int generate_tokens(struct npugraph_sequence *seq, const struct npugraph_generate_params *params,
                           struct listener *l, enum npugraph_finish *finish_p, struct npugraph_error *err)
{
    Npugraph__V1__GenerateRequest req;
    Npugraph__V1__LogprobsRequest logprobs;
    struct npugraph__follow f = {.link = seq->link};
    enum npugraph_finish finish = NPUGRAPH_FINISH_CANCELLED;
    uint32_t told = 0; /* before the last loss */
    int rc;

    l->from = npugraph__sequence_next(seq);
    l->kept = seq->kept;
    npugraph__put_generation(&req, &logprobs, seq, params);
    if (params->timing != NULL)
        memset(params->timing, 0, sizeof(*params->timing));
    while ((rc = generate_stream(seq, &req, l, &finish, &f.why)) != 0) {
        if (l->told != 0 && l->told == params->max_tokens) { /* only the end is missing */
            finish = NPUGRAPH_FINISH_LENGTH;
            rc = 0;
            break;
        }
        if (!follow_generation_on(seq, &f, l, &told))
            break;
        req.sequence = seq->id;
        req.from = l->from;
        req.max_tokens = params->max_tokens - l->told;
    }
    if (rc == 0 && finish != NPUGRAPH_FINISH_CANCELLED && l->told != 0) {
        seq->position = l->from - 1;
        seq->told = true;
    }
    if (rc == 0 && finish_p != NULL)
        *finish_p = finish;
    if (rc != 0 && err != NULL)
        *err = f.why;
    return rc;
}

int npugraph_sequence_generate(struct npugraph_sequence *seq, const struct npugraph_generate_params *params,
                               npugraph_token_fn fn, void *user, enum npugraph_finish *finish_p,
                               struct npugraph_error *err)
{
    struct npugraph_generate_params defaults;

    if (params == NULL) {
        npugraph_generate_params_init(&defaults);
        params = &defaults;
    }
    return generate_tokens(seq, params, &(struct listener){.fn = fn, .user = user, .timing = params->timing}, finish_p,
                           err);
}

void npugraph_sequence_close(struct npugraph_sequence *seq)
{
    Npugraph__V1__CloseRequest req = NPUGRAPH__V1__CLOSE_REQUEST__INIT;
    ProtobufCMessage *reply = NULL;

    if (seq == NULL)
        return;
    npugraph__lane_give(seq->lane);
    if (seq->steps != NULL) {
        npugraph__stream_half_close(seq->steps, NULL);
        npugraph__stream_close(seq->steps);
    }
    req.sequence = seq->id;
    npugraph__entered_unary(seq->client, &seq->link, false, "/npugraph.v1.Sequences/Close", &req.base,
                            &npugraph__v1__close_response__descriptor, &reply, NULL);
    npugraph__client_leave(seq->client, seq->link);
    npugraph__free_message(reply);
    npugraph__free_message(seq->last);
    npugraph__kept_free(seq->kept);
    free(seq->logprobs);
    free(seq);
}
