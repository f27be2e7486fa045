/* SPDX-License-Identifier: Apache-2.0 */
/* The client object: a channel and the session on it, which know nothing of the client. */
#include "client/lib/client_int.h"
#include "client/lib/ring.h"
#include "client/lib/session.h"
#include "client/lib/shared.h"

#include <stdlib.h>
#include <string.h>

struct npugraph_client {
    struct npugraph__channel *channel;
    struct npugraph__session session;
    struct npugraph__shared shared;
    struct npugraph__ring ring;
};

void npugraph_connect_params_init(struct npugraph_connect_params *params)
{
    memset(params, 0, sizeof(*params));
    params->timeout_ms = 60000;
}

static bool wants_ring(const struct npugraph_connect_params *params)
{
    const char *env = getenv("NPUGRAPH_LOCAL_TRANSPORT");

    return !params->no_local_transport && (env == NULL || strcmp(env, "off") != 0);
}

int npugraph_connect(const struct npugraph_connect_params *params, struct npugraph_client **client_p,
                     struct npugraph_error *err)
{
    struct npugraph_client *c = calloc(1, sizeof(*c));
    int rc;

    if (c == NULL)
        return npugraph__error(err, 8, "NO_MEMORY", "out of memory");
    npugraph__shared_init(&c->shared);
    npugraph__ring_init(&c->ring, wants_ring(params));
    rc = npugraph__channel_open(params, &c->channel, err);
    if (rc == 0 && !params->no_session)
        rc = npugraph__session_open(&c->session, c->channel, params->client_name, params->grace_ms, err);
    if (rc != 0) {
        npugraph_disconnect(c);
        return rc;
    }
    *client_p = c;
    return 0;
}

void npugraph_disconnect(struct npugraph_client *client)
{
    if (client == NULL)
        return;
    npugraph__session_close(&client->session);
    npugraph__channel_close(client->channel);
    npugraph__ring_close(&client->ring);
    npugraph__shared_fini(&client->shared);
    free(client);
}

uint64_t npugraph_session_id(const struct npugraph_client *client)
{
    return client->session.id;
}

const char *npugraph_server_version(const struct npugraph_client *client)
{
    return client->session.version;
}

int npugraph__unary(struct npugraph_client *client, const char *method, const ProtobufCMessage *request,
                    const ProtobufCMessageDescriptor *type, ProtobufCMessage **response_p, struct npugraph_error *err)
{
    return npugraph__channel_unary(client->channel, method, request, type, response_p, err);
}

int npugraph__stream_open(struct npugraph_client *client, const char *method, struct npugraph__stream **stream_p,
                          struct npugraph_error *err)
{
    return npugraph__channel_call(client->channel, method, stream_p, err);
}

int npugraph__client_follow(struct npugraph_client *client, struct npugraph__follower **follower_p,
                            struct npugraph_error *err)
{
    return npugraph__follower_start(client->channel, follower_p, err);
}

uint32_t npugraph__client_timeout(const struct npugraph_client *client)
{
    return npugraph__channel_timeout(client->channel);
}

bool npugraph_has_ring(struct npugraph_client *client)
{
    return npugraph__ring_is_open(&client->ring);
}

struct npugraph__lane *npugraph__client_lane(struct npugraph_client *client)
{
    return npugraph__lane_take(&client->ring, &client->session, npugraph__channel_timeout(client->channel));
}

struct npugraph__shared *npugraph__client_shared(struct npugraph_client *client)
{
    return &client->shared;
}

const struct npugraph__session *npugraph__client_session(const struct npugraph_client *client)
{
    return &client->session;
}
