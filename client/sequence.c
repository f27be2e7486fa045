/* SPDX-License-Identifier: Apache-2.0 */
/* Sequences: prompt, steps on one stream, generation. */
#include "client/client_int.h"
#include "proto/npugraph.pb-c.h"

#include <stdlib.h>
#include <string.h>

struct npugraph_sequence {
    struct npugraph_client *client;
    uint64_t id;
    struct npugraph__stream *steps; /* opened by the first step */
    ProtobufCMessage *last;         /* holds the logits of the last step */
};

static void take_logits(struct npugraph_step *step, const ProtobufCBinaryData *logits)
{
    step->logits = logits->len != 0 ? (const float *)(const void *)logits->data : NULL;
    step->vocab = logits->len / sizeof(float);
}

static void keep_last(struct npugraph_sequence *seq, ProtobufCMessage *message)
{
    npugraph__free_message(seq->last);
    seq->last = message;
}

/* NULL: greedy, which is what an absent message means. */
static Npugraph__V1__Sampling *put_sampling(Npugraph__V1__Sampling *how, const struct npugraph_sampling *sampling)
{
    npugraph__v1__sampling__init(how);
    if (sampling == NULL)
        return NULL;
    how->temperature = sampling->temperature;
    how->top_k = sampling->top_k;
    how->top_p = sampling->top_p;
    how->seed = sampling->seed;
    return how;
}

/* Open and Fork, whose answers are the same. */
static int begin(struct npugraph_client *client, const char *method, const ProtobufCMessage *req,
                 struct npugraph_sequence **seq_p, struct npugraph_step *first_p, struct npugraph_error *err)
{
    struct npugraph_sequence *seq = calloc(1, sizeof(*seq));
    const Npugraph__V1__OpenResponse *r;
    int rc;

    if (seq == NULL)
        return npugraph__error(err, 8, "NO_MEMORY", "out of memory");
    rc = npugraph__unary(client, method, req, &npugraph__v1__open_response__descriptor, &seq->last, err);
    if (rc != 0) {
        free(seq);
        return rc;
    }
    r = (const Npugraph__V1__OpenResponse *)seq->last;
    seq->client = client;
    seq->id = r->sequence;
    if (first_p != NULL) {
        memset(first_p, 0, sizeof(*first_p));
        first_p->token = r->token;
        first_p->position = r->position;
        first_p->device_ns = r->prefill_ns;
        first_p->batch = 1;
        take_logits(first_p, &r->logits);
    }
    *seq_p = seq;
    return 0;
}

int npugraph_sequence_open(struct npugraph_client *client, const char *model, const int32_t *prompt, size_t n,
                           const struct npugraph_sampling *sampling, bool want_logits, struct npugraph_sequence **seq_p,
                           struct npugraph_step *first_p, struct npugraph_error *err)
{
    Npugraph__V1__OpenRequest req = NPUGRAPH__V1__OPEN_REQUEST__INIT;
    Npugraph__V1__Sampling how;

    req.model = (char *)model;
    req.prompt = (int32_t *)prompt;
    req.n_prompt = n;
    req.want_logits = want_logits;
    req.sampling = put_sampling(&how, sampling);
    return begin(client, "/npugraph.v1.Sequences/Open", &req.base, seq_p, first_p, err);
}

int npugraph_sequence_fork(struct npugraph_sequence *seq, const struct npugraph_sampling *sampling, bool want_logits,
                           struct npugraph_sequence **copy_p, struct npugraph_step *first_p, struct npugraph_error *err)
{
    Npugraph__V1__ForkRequest req = NPUGRAPH__V1__FORK_REQUEST__INIT;
    Npugraph__V1__Sampling how;

    req.sequence = seq->id;
    req.want_logits = want_logits;
    req.sampling = put_sampling(&how, sampling);
    return begin(seq->client, "/npugraph.v1.Sequences/Fork", &req.base, copy_p, first_p, err);
}

int npugraph_sequence_step(struct npugraph_sequence *seq, int32_t forced, bool want_logits,
                           struct npugraph_step *step_p, struct npugraph_error *err)
{
    Npugraph__V1__StepRequest req = NPUGRAPH__V1__STEP_REQUEST__INIT;
    Npugraph__V1__TokenChoice choice = NPUGRAPH__V1__TOKEN_CHOICE__INIT;
    ProtobufCMessage *reply = NULL;
    const Npugraph__V1__StepResponse *r;
    int rc = 0;

    if (seq->steps == NULL)
        rc = npugraph__stream_open(seq->client, "/npugraph.v1.Sequences/StepStream", &seq->steps, err);
    if (rc != 0)
        return rc;
    req.sequence = seq->id;
    req.want_logits = want_logits;
    choice.token = forced;
    req.forced = forced >= 0 ? &choice : NULL;
    rc = npugraph__stream_exchange(seq->steps, &req.base, &npugraph__v1__step_response__descriptor, &reply, err);
    if (rc != 0) {
        npugraph__stream_close(seq->steps); /* the call is over: the next step begins another */
        seq->steps = NULL;
        return rc;
    }
    keep_last(seq, reply);
    r = (const Npugraph__V1__StepResponse *)reply;
    if (r->error != NULL)
        return npugraph__error(err, r->error->code, r->error->reason, "%s", r->error->message);
    *step_p = (struct npugraph_step){.token = r->token,
                                     .position = r->position,
                                     .stop = r->stop,
                                     .batch = r->batch,
                                     .queue_ns = r->queue_ns,
                                     .device_ns = r->device_ns};
    take_logits(step_p, &r->logits);
    return 0;
}

static const char *finish_name(const char *name)
{
    static const char *const known[] = {"length", "stop", "context"};

    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (strcmp(known[i], name) == 0)
            return known[i];
    return "";
}

/* Reads the stream to its end or until fn has enough. */
static int follow_generation(struct npugraph__stream *st, npugraph_token_fn fn, void *user, const char **finish_p,
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
        for (size_t i = 0; more && i < r->n_tokens; i++)
            more = fn(user, r->tokens[i]);
        if (r->finish[0] != '\0')
            *finish_p = finish_name(r->finish);
        npugraph__free_message(m);
        if (!more) {
            *finish_p = "cancelled";
            return 0;
        }
    }
}

int npugraph_sequence_generate(struct npugraph_sequence *seq, uint32_t max_tokens, bool ignore_stop,
                               npugraph_token_fn fn, void *user, const char **finish_p, struct npugraph_error *err)
{
    Npugraph__V1__GenerateRequest req = NPUGRAPH__V1__GENERATE_REQUEST__INIT;
    struct npugraph__stream *st;
    const char *finish = "";
    int rc = npugraph__stream_open(seq->client, "/npugraph.v1.Sequences/Generate", &st, err);

    if (rc != 0)
        return rc;
    req.sequence = seq->id;
    req.max_tokens = max_tokens;
    req.ignore_stop = ignore_stop;
    rc = npugraph__stream_send(st, &req.base, err);
    if (rc == 0)
        rc = npugraph__stream_half_close(st, err);
    if (rc == 0)
        rc = follow_generation(st, fn, user, &finish, err);
    npugraph__stream_close(st);
    if (rc == 0 && finish_p != NULL)
        *finish_p = finish;
    return rc;
}

void npugraph_sequence_close(struct npugraph_sequence *seq)
{
    Npugraph__V1__CloseRequest req = NPUGRAPH__V1__CLOSE_REQUEST__INIT;
    ProtobufCMessage *reply = NULL;

    if (seq == NULL)
        return;
    if (seq->steps != NULL) {
        npugraph__stream_half_close(seq->steps, NULL);
        npugraph__stream_close(seq->steps);
    }
    req.sequence = seq->id;
    npugraph__unary(seq->client, "/npugraph.v1.Sequences/Close", &req.base, &npugraph__v1__close_response__descriptor,
                    &reply, NULL);
    npugraph__free_message(reply);
    npugraph__free_message(seq->last);
    free(seq);
}
