/* SPDX-License-Identifier: Apache-2.0 */
#include "client/lib/daemon_link.h"
#include "client/lib/error.h"
#include "proto/npugraph.pb-c.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TRIES    10
#define PAUSE_NS 20000000L

static bool wants_ring(const struct npugraph_connect_params *params)
{
    const char *env = getenv("NPUGRAPH_LOCAL_TRANSPORT");

    return !params->no_local_transport && (env == NULL || strcmp(env, "off") != 0);
}

/* from: the link whose session is resumed; NULL: a new one is opened. */
static int try_link(const struct npugraph_connect_params *params, const struct npugraph__link *from,
                    struct npugraph__link **link_p, struct npugraph_error *err)
{
    struct npugraph__link *link = calloc(1, sizeof(*link));
    int rc;

    if (link == NULL)
        return npugraph__error(err, 8, "NO_MEMORY", "out of memory");
    npugraph__shared_init(&link->shared);
    npugraph__ring_init(&link->ring, wants_ring(params));
    rc = npugraph__channel_open(params, &link->channel, err);
    if (rc == 0 && from != NULL)
        rc = npugraph__session_resume(&link->session, link->channel, &from->session, err);
    else if (rc == 0 && !params->no_session)
        rc = npugraph__session_open(&link->session, link->channel, params->client_name, params->grace_ms, err);
    if (rc != 0)
        npugraph__link_close(link);
    else
        *link_p = link;
    return rc;
}

int npugraph__link_open(const struct npugraph_connect_params *params, struct npugraph__link **link_p,
                        struct npugraph_error *err)
{
    struct npugraph_error why = {0};
    int rc = try_link(params, NULL, link_p, &why);

    for (int i = 1; i < TRIES && rc != 0 && strcmp(why.reason, "DRAINING") == 0; i++) {
        nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
        rc = try_link(params, NULL, link_p, &why);
    }
    if (rc != 0 && err != NULL)
        *err = why;
    return rc;
}

int npugraph__link_follow(const struct npugraph_connect_params *params, const struct npugraph__link *from,
                          struct npugraph__link **link_p, struct npugraph_error *err)
{
    return try_link(params, from, link_p, err);
}

void npugraph__link_shut(struct npugraph__link *link)
{
    npugraph__session_close(&link->session);
    npugraph__channel_close(link->channel);
    link->channel = NULL;
    npugraph__ring_close(&link->ring);
}

void npugraph__link_close(struct npugraph__link *link)
{
    if (link == NULL)
        return;
    if (!link->closed)
        npugraph__link_shut(link);
    npugraph__shared_fini(&link->shared);
    free(link);
}

void npugraph__link_listen(struct npugraph__link *link)
{
    ProtobufCMessage *message = NULL;

    while (link->session.stream != NULL && !link->ended) {
        const Npugraph__V1__SessionEvent *event;

        if (!npugraph__stream_try_recv(link->session.stream, &npugraph__v1__session_event__descriptor, &message,
                                       &link->ended) ||
            message == NULL)
            return;
        event = (const Npugraph__V1__SessionEvent *)message;
        if (event->kind_case == NPUGRAPH__V1__SESSION_EVENT__KIND_DRAINING) {
            link->replaced = link->replaced || event->draining->replaced;
            link->leaves = link->leaves || event->draining->moved;
        }
        npugraph__free_message(message);
        message = NULL;
    }
}
