/* SPDX-License-Identifier: Apache-2.0 */
/* Embeddings of prompts. */
#include "client/lib/client_int.h"
#include "proto/npugraph.pb-c.h"

#include <stdlib.h>

/* Embeddings with the message that they are in. */
struct embeddings {
    struct npugraph_embeddings public; /* the first member: what the caller has */
    ProtobufCMessage *reply;
};

static int take_embeddings(ProtobufCMessage *reply, size_t n, struct npugraph_embeddings **embeddings_p,
                           struct npugraph_error *err)
{
    const Npugraph__V1__EmbedResponse *r = (const Npugraph__V1__EmbedResponse *)reply;
    struct embeddings *e;

    if (r->size == 0 || r->embeddings.len / sizeof(float) / r->size != n)
        return npugraph__error(err, 13, "INTERNAL", "the daemon sent %zu bytes for %zu embeddings of %u elements",
                               r->embeddings.len, n, (unsigned)r->size);
    e = calloc(1, sizeof(*e));
    if (e == NULL)
        return npugraph__error(err, 8, "NO_MEMORY", "out of memory");
    e->reply = reply;
    e->public = (struct npugraph_embeddings){.values = (const float *)(const void *)r->embeddings.data,
                                             .n = n,
                                             .size = r->size,
                                             .shared_tokens = r->shared_tokens,
                                             .batch = r->batch};
    *embeddings_p = &e->public;
    return 0;
}

static int ask_embeddings(struct npugraph_client *client, const Npugraph__V1__EmbedRequest *req,
                          ProtobufCMessage **reply_p, struct npugraph_error *err)
{
    struct npugraph__link *link = npugraph__client_enter(client);
    int rc = npugraph__entered_unary(client, &link, true, "/npugraph.v1.Sequences/Embed", &req->base,
                                     &npugraph__v1__embed_response__descriptor, reply_p, err);

    npugraph__client_leave(client, link);
    return rc;
}

static int request_embeddings(struct npugraph_client *client, Npugraph__V1__EmbedRequest *req,
                              const struct npugraph_prompt *prompts, struct npugraph_embeddings **embeddings_p,
                              struct npugraph_error *err)
{
    const size_t n = req->n_prompts;
    Npugraph__V1__EmbedPrompt *messages = calloc(n + 1, sizeof(*messages));
    ProtobufCMessage *reply = NULL;
    int rc = 0;

    req->prompts = calloc(n + 1, sizeof(*req->prompts));
    if (messages == NULL || req->prompts == NULL)
        rc = npugraph__error(err, 8, "NO_MEMORY", "out of memory");
    for (size_t i = 0; rc == 0 && i < n; i++) {
        npugraph__v1__embed_prompt__init(&messages[i]);
        messages[i].tokens = (int32_t *)(uintptr_t)prompts[i].tokens;
        messages[i].n_tokens = prompts[i].n;
        req->prompts[i] = &messages[i];
    }
    if (rc == 0)
        rc = ask_embeddings(client, req, &reply, err);
    free(req->prompts);
    free(messages);
    if (rc == 0)
        rc = take_embeddings(reply, n, embeddings_p, err);
    if (rc != 0)
        npugraph__free_message(reply);
    return rc;
}

int npugraph_embed(struct npugraph_client *client, const char *model, const struct npugraph_prompt *prompts, size_t n,
                   const struct npugraph_embed_params *params, struct npugraph_embeddings **embeddings_p,
                   struct npugraph_error *err)
{
    Npugraph__V1__EmbedRequest req = NPUGRAPH__V1__EMBED_REQUEST__INIT;

    req.model = (char *)(uintptr_t)model;
    req.n_prompts = n;
    if (params != NULL) {
        req.dimensions = params->dimensions;
        req.unit = params->unit;
        req.priority = (Npugraph__V1__Priority)params->priority;
    }
    return request_embeddings(client, &req, prompts, embeddings_p, err);
}

void npugraph_embeddings_free(struct npugraph_embeddings *embeddings)
{
    struct embeddings *e = (struct embeddings *)embeddings;

    if (e == NULL)
        return;
    npugraph__free_message(e->reply);
    free(e);
}
