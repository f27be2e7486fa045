/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The client object: its link to the daemon, or several while daemons replace one another.
 *
 * If the session moves to the daemon that takes over, a link to that one resumes it, and all calls go there: objects
 * have the same ids. A call that was refused because the session moves is repeated there (npugraph__client_follow).
 * One whose connection broke is repeated there if doing it twice is as doing it once, or if a request id keeps it from
 * being done twice: answers that are kept for request ids move too. Otherwise:
 *
 * What needs nothing but the daemon's models goes over the newest link: a sequence that is opened keeps that link until
 * it is closed. Objects of the session (buffers, graphs) stay where they are, so that calls with their ids go over the
 * link that was the newest when the first of them was made.
 */
#include "client/lib/client_int.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* A daemon that takes over may need some seconds until it serves, or gives up. Behind them no other try begins: one
 * that does not answer at all takes as long as a connection may. */
#define FOLLOW_PAUSE_NS 10000000L
#define FOLLOW_SECONDS  10
#define FOLLOW_MOVES    64 /* of one call: a daemon, or what is before it, may break each connection that carries it */

/* Between two tries to reach another daemon than a lost one, and how many of them one call is sent to. */
#define PAUSE_LEAST_MS 20
#define PAUSE_MOST_MS  500
#define RENEWALS       2

#define MODELS_KNOWN 64

#define REQUEST_ID 17

#define DEADLINE_EXCEEDED 4
#define UNAVAILABLE       14

struct npugraph_client {
    struct npugraph_connect_params params; /* copies */
    pthread_mutex_t lock;
    struct npugraph__link *newest; /* by `lock`, as are its fields that say so */
    struct npugraph__link *home;   /* of the session's objects; NULL: there are none */
    bool stays;                    /* a model of the session's own is where sequences are opened */
    bool changing;                 /* by `lock`; a thread connects or renews, and it alone changes newest and home */
    unsigned unresumed, unopened;  /* by `lock`; changes that reached no daemon */
    pthread_cond_t changed;        /* it has ended that */
    int64_t lost_ms;  /* by `lock`, as the next; when the last session was found lost, by the monotonic clock */
    int64_t tried_ms; /* when it was last tried to open another one */
    uint64_t models[MODELS_KNOWN]; /* by `lock`; digests of names */
    size_t n_models;               /* that it has known, also if there are more */
    _Atomic uint64_t requests;     /* for request ids */
};

/* ---- parameters --------------------------------------------------------------------------------------------- */

void npugraph_connect_params_init(struct npugraph_connect_params *params)
{
    memset(params, 0, sizeof(*params));
    params->timeout_ms = 60000;
}

/* Replaces the string by a copy. */
static bool keep_text(const char **text)
{
    if (*text != NULL)
        *text = strdup(*text);
    return *text != NULL;
}

static bool keep_params(struct npugraph_connect_params *to, const struct npugraph_connect_params *from)
{
    const char **texts[] = {&to->address, &to->client_name,     &to->tls_ca,    &to->tls_cert,
                            &to->tls_key, &to->tls_server_name, &to->token_file};
    bool ok = true;

    *to = *from;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        const bool given = *texts[i] != NULL;

        ok = (keep_text(texts[i]) || !given) && ok;
    }
    return ok;
}

static void free_params(struct npugraph_connect_params *p)
{
    const char *texts[] = {p->address, p->client_name,     p->tls_ca,    p->tls_cert,
                           p->tls_key, p->tls_server_name, p->token_file};

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        free((char *)(uintptr_t)texts[i]);
}

/* ---- connecting --------------------------------------------------------------------------------------------- */

int npugraph_connect(const struct npugraph_connect_params *params, struct npugraph_client **client_p,
                     struct npugraph_error *err)
{
    struct npugraph_client *c = calloc(1, sizeof(*c));
    int rc;

    if (c == NULL)
        return npugraph__error(err, 8, "NO_MEMORY", "out of memory");
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->changed, NULL);
    rc = keep_params(&c->params, params) ? npugraph__link_open(&c->params, &c->newest, err)
                                         : npugraph__error(err, 8, "NO_MEMORY", "out of memory");
    if (rc != 0) {
        npugraph_disconnect(c);
        return rc;
    }
    *client_p = c;
    return 0;
}

void npugraph_disconnect(struct npugraph_client *client)
{
    struct npugraph__link *link, *older;

    if (client == NULL)
        return;
    for (link = client->newest; link != NULL; link = older) {
        older = link->older;
        npugraph__link_close(link);
    }
    free_params(&client->params);
    pthread_cond_destroy(&client->changed);
    pthread_mutex_destroy(&client->lock);
    free(client);
}

/* ---- links -------------------------------------------------------------------------------------------------- */

static int64_t monotonic_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* True if nothing needs the link any more; its caller shuts it then. */
static bool is_done(const struct npugraph_client *client, struct npugraph__link *link)
{
    if (link == client->newest || link->home || link->users > 0 || link->closed)
        return false;
    link->closed = true;
    return true;
}

static void shut_link(struct npugraph_client *client, struct npugraph__link *link)
{
    npugraph__link_shut(link);
    if (link->moved != NULL)
        npugraph__client_leave(client, link->moved);
}

/* The objects of the session are of the newest link, if there are none yet. */
static void make_home(struct npugraph_client *client)
{
    if (client->home == NULL)
        client->home = client->newest;
    client->home->home = true;
}

/*
 * A change: one thread connects, or asks a daemon, without the lock, because that takes as long as a connection may.
 * Others use the links that there are; only a call that cannot go on without the change waits for it.
 */
static void begin_change(struct npugraph_client *client)
{
    client->changing = true;
    pthread_mutex_unlock(&client->lock);
}

static void end_change(struct npugraph_client *client)
{
    pthread_mutex_lock(&client->lock);
    client->changing = false;
    pthread_cond_broadcast(&client->changed);
}

static void await_change(struct npugraph_client *client)
{
    while (client->changing)
        pthread_cond_wait(&client->changed, &client->lock);
}

/* Ends a change that has connected. A daemon that is not reached takes as long as a connection may: who has waited for
 * that does not try again (npugraph__client_follow). */
static void end_connecting(struct npugraph_client *client, int rc, unsigned *unreached)
{
    end_change(client);
    *unreached += rc == UNAVAILABLE || rc == DEADLINE_EXCEEDED;
}

/* Resumes the session of a link at the daemon that has it now: nothing needs the link any more. A change. */
static int resume_link(struct npugraph_client *client, struct npugraph__link *from, struct npugraph_error *err)
{
    struct npugraph__link *next = NULL;
    int rc;

    begin_change(client);
    rc = npugraph__link_follow(&client->params, from, &next, err);
    end_connecting(client, rc, &client->unresumed);
    if (rc != 0)
        return rc;
    next->older = client->newest;
    client->newest = next;
    if (client->home == from)
        client->home = next;
    next->home = from->home;
    from->moved = next;
    next->users++;
    from->ended = true;
    npugraph__session_abandon(&from->session);
    return 0;
}

/* Opens another session, which is the newest link's from then on. If no daemon can be reached, nothing changes. A
 * change. */
static void open_newest(struct npugraph_client *client)
{
    struct npugraph__link *next = NULL;
    int rc;

    begin_change(client);
    rc = npugraph__link_open(&client->params, &next, NULL);
    end_connecting(client, rc, &client->unopened);
    client->tried_ms = monotonic_ms();
    if (rc != 0)
        return;
    next->older = client->newest;
    client->newest = next;
}

/* Renews the link's session if its token is old. A change, so that the link stays what it is. */
static void renew_link(struct npugraph_client *client, struct npugraph__link *link)
{
    const uint64_t bearer = link->ended ? 0 : npugraph__session_is_old(&link->session, link->channel);
    struct npugraph__stream *fresh;

    if (bearer == 0)
        return;
    begin_change(client);
    fresh = npugraph__session_ask(&link->session, link->channel);
    end_change(client);
    npugraph__session_renewed(&link->session, fresh, bearer);
}

/* Makes a link to the daemon that has replaced the newest link's one. If it cannot be reached, or another thread tries
 * to, the old one still serves. Changes. */
static void follow_daemon(struct npugraph_client *client)
{
    if (client->changing)
        return;
    npugraph__link_listen(client->newest);
    if (client->newest->leaves) {
        resume_link(client, client->newest, NULL);
        return;
    }
    renew_link(client, client->newest);
    if (!client->changing && client->newest->replaced && !client->stays)
        open_newest(client);
}

/* What a link is chosen for, which decides how long its session stays open: until the user leaves, or, at home, until
 * the client disconnects. */
typedef enum link_use { NEWEST_USER, HOME_USER, HOME } link_use_t;

static struct npugraph__link *choose_link(struct npugraph_client *client, link_use_t use)
{
    struct npugraph__link *link, *before;
    bool done;

    pthread_mutex_lock(&client->lock);
    before = client->newest;
    if (use == NEWEST_USER || client->home == NULL)
        follow_daemon(client);
    else if (!client->changing)
        renew_link(client, client->home);
    if (use == HOME)
        make_home(client);
    link = use == NEWEST_USER || client->home == NULL ? client->newest : client->home;
    link->users += use != HOME;
    done = is_done(client, before);
    pthread_mutex_unlock(&client->lock);
    if (done)
        shut_link(client, before);
    return link;
}

struct npugraph__link *npugraph__client_enter(struct npugraph_client *client)
{
    return choose_link(client, NEWEST_USER);
}

void npugraph__client_keep(struct npugraph_client *client, struct npugraph__link *link)
{
    pthread_mutex_lock(&client->lock);
    link->users++;
    pthread_mutex_unlock(&client->lock);
}

void npugraph__client_leave(struct npugraph_client *client, struct npugraph__link *link)
{
    bool done;

    pthread_mutex_lock(&client->lock);
    link->users--;
    done = is_done(client, link);
    pthread_mutex_unlock(&client->lock);
    if (done)
        shut_link(client, link);
}

void npugraph__client_change(struct npugraph_client *client, struct npugraph__link **link_p, struct npugraph__link *to)
{
    struct npugraph__link *from = *link_p;

    *link_p = to;
    npugraph__client_leave(client, from);
}

void npugraph__client_hold(struct npugraph_client *client, bool models)
{
    pthread_mutex_lock(&client->lock);
    if (models)
        await_change(client); /* it would open another session for sequences */
    make_home(client);
    client->stays = client->stays || models;
    pthread_mutex_unlock(&client->lock);
}

/* What needs the link open enters it. */
static struct npugraph__link *newest_link_of(const struct npugraph_client *client)
{
    struct npugraph_client *c = (struct npugraph_client *)(uintptr_t)client;
    struct npugraph__link *link;

    pthread_mutex_lock(&c->lock);
    link = c->newest;
    pthread_mutex_unlock(&c->lock);
    return link;
}

/* ---- calls -------------------------------------------------------------------------------------------------- */

static bool is_reason(const struct npugraph_error *why, const char *reason)
{
    return strcmp(why->reason, reason) == 0;
}

/* Resumes the session of a link elsewhere, if it is there. True: nothing is known yet, or it has stayed. */
static bool resume_elsewhere(struct npugraph_client *client, struct npugraph__link *from, bool refused)
{
    struct npugraph_error why = {0};

    return resume_link(client, from, &why) != 0 && refused &&
           (why.code == UNAVAILABLE || is_reason(&why, "SESSION_GONE"));
}

/* False: the call has waited long enough. */
static bool may_follow_longer(struct npugraph__follow *f)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    if (f->until == 0)
        f->until = now.tv_sec + FOLLOW_SECONDS;
    return now.tv_sec < f->until;
}

/* Decides whether the call is repeated on the link `to`, where the session of its last try is now. wait: the daemon
 * that will have the session does not answer yet. */
static bool repeats_on(struct npugraph__link *to, struct npugraph__follow *f, bool wait, bool may_move)
{
    if (to != f->link) {
        f->link = to;
        return may_move && f->moves++ < FOLLOW_MOVES;
    }
    return wait && may_follow_longer(f);
}

struct npugraph__link *npugraph__client_follow(struct npugraph_client *client, struct npugraph__link *link,
                                               struct npugraph__follow *f, bool again)
{
    const bool refused = is_reason(&f->why, "SESSION_MOVED"), lost = is_reason(&f->why, "UNREACHABLE");
    const struct npugraph__link *before = f->link;
    bool wait = false, repeats;
    unsigned unresumed;

    if (client->params.no_session || (!refused && !lost && !is_reason(&f->why, "SESSION_GONE")))
        return NULL;
    pthread_mutex_lock(&client->lock);
    f->unopened = client->unopened;
    unresumed = client->unresumed;
    if (link->moved == NULL)
        await_change(client);
    if (link->moved == NULL && (refused || lost))
        wait = client->unresumed == unresumed ? resume_elsewhere(client, link, refused) : refused;
    wait = wait && link->moved == NULL;
    while (link->moved != NULL)
        link = link->moved;
    repeats = repeats_on(link, f, wait, refused || again || !lost);
    link->users += repeats;
    pthread_mutex_unlock(&client->lock);
    if (repeats && link == before)
        nanosleep(&(struct timespec){.tv_nsec = FOLLOW_PAUSE_NS}, NULL);
    return repeats ? link : NULL;
}

struct npugraph__link *npugraph__client_follow_home(struct npugraph_client *client, struct npugraph__link *link,
                                                    struct npugraph__follow *f, bool again)
{
    struct npugraph__link *next = npugraph__client_follow(client, link, f, again);

    if (next != NULL)
        npugraph__client_leave(client, next); /* it is home now, and stays open without users */
    return next;
}

/* Notes when a session was found lost. */
static void note_loss_locked(struct npugraph_client *client, struct npugraph__link *link)
{
    if (!link->lost)
        client->lost_ms = monotonic_ms();
    link->lost = true;
}

bool npugraph__client_pause(struct npugraph_client *client, struct npugraph__follow *f, uint32_t *pause_ms)
{
    int64_t left;

    *pause_ms = *pause_ms == 0 ? PAUSE_LEAST_MS : *pause_ms < PAUSE_MOST_MS / 2 ? 2 * *pause_ms : PAUSE_MOST_MS;
    pthread_mutex_lock(&client->lock);
    left = client->lost_ms != 0 ? client->lost_ms + f->wait_ms - monotonic_ms() : 0;
    pthread_mutex_unlock(&client->lock);
    f->not_yet = f->later && left > 0;
    if (left <= 0 || f->later)
        return false;
    if (left > *pause_ms)
        left = *pause_ms;
    nanosleep(&(struct timespec){.tv_sec = left / 1000, .tv_nsec = left % 1000 * 1000000}, NULL);
    return true;
}

static bool is_lost(const struct npugraph_client *client, const struct npugraph__follow *f)
{
    if (client->params.no_session)
        return false;
    return is_reason(&f->why, "UNREACHABLE") || is_reason(&f->why, "SESSION_GONE") ||
           (f->wait_ms != 0 && is_reason(&f->why, "DRAINING")); /* it stops, and another one may come */
}

/* False: another call has just tried to open a session. unopened: tries before. */
static bool may_try(const struct npugraph_client *client, const struct npugraph__follow *f, unsigned unopened)
{
    return f->later ? monotonic_ms() - client->tried_ms >= PAUSE_LEAST_MS : client->unopened == unopened;
}

struct npugraph__link *npugraph__client_leave_lost(struct npugraph_client *client, struct npugraph__link *link,
                                                   struct npugraph__follow *f)
{
    struct npugraph__link *next, *before;
    unsigned unopened = f->unopened;
    uint32_t pause_ms = 0;
    bool stays, done;

    if (!is_lost(client, f) || f->renewals >= (f->wait_ms != 0 ? RENEWALS : 1))
        return NULL;
    do {
        pthread_mutex_lock(&client->lock);
        note_loss_locked(client, link);
        await_change(client);
        before = client->newest;
        stays = client->stays;
        if (client->newest->lost && !stays && may_try(client, f, unopened))
            open_newest(client);
        unopened = client->unopened;
        next = !client->newest->lost ? client->newest : NULL; /* of this call, or another one has opened it */
        if (next != NULL)
            next->users++;
        done = is_done(client, before);
        pthread_mutex_unlock(&client->lock);
        if (done)
            shut_link(client, before);
    } while (next == NULL && !stays && npugraph__client_pause(client, f, &pause_ms));
    if (next != NULL) {
        f->link = next;
        f->renewals++;
    }
    return next;
}

bool npugraph__client_may_go_on(const struct npugraph_client *client, const struct npugraph_error *why)
{
    static const char *const reasons[] = {"SESSION_MOVED", "UNREACHABLE", "SESSION_GONE", "DRAINING"};

    for (size_t i = 0; i < sizeof(reasons) / sizeof(reasons[0]); i++)
        if (is_reason(why, reasons[i]))
            return !client->params.no_session;
    return false;
}

/* Looks for a model by a digest (FNV-1a) of its name. The lock is held. */
static bool find_known_model(const struct npugraph_client *client, const char *name, uint64_t *digest_p)
{
    const size_t n = client->n_models < MODELS_KNOWN ? client->n_models : MODELS_KNOWN;
    uint64_t digest = 14695981039346656037u;

    while (*name != '\0')
        digest = (digest ^ (uint8_t)*name++) * 1099511628211u;
    *digest_p = digest;
    for (size_t i = 0; i < n; i++)
        if (client->models[i] == digest)
            return true;
    return false;
}

void npugraph__client_note_model(struct npugraph_client *client, const char *name)
{
    uint64_t digest;

    pthread_mutex_lock(&client->lock);
    if (!find_known_model(client, name, &digest))
        client->models[client->n_models++ % MODELS_KNOWN] = digest;
    pthread_mutex_unlock(&client->lock);
}

bool npugraph__client_knows_model(struct npugraph_client *client, const char *name)
{
    uint64_t digest;
    bool known;

    pthread_mutex_lock(&client->lock);
    known = find_known_model(client, name, &digest);
    pthread_mutex_unlock(&client->lock);
    return known;
}

/* Makes an id that no other call of the session has: links of one client may have one session. */
static void make_request_id(struct npugraph_client *client, char id[REQUEST_ID])
{
    snprintf(id, REQUEST_ID, "%016llx", (unsigned long long)atomic_fetch_add(&client->requests, 1));
}

uint64_t npugraph_session_id(const struct npugraph_client *client)
{
    return newest_link_of(client)->session.id;
}

const char *npugraph_server_version(const struct npugraph_client *client)
{
    return newest_link_of(client)->session.version;
}

/* A call on a link with this as a user, which may become another one. again: as for npugraph__client_follow. */
static int call_on(struct npugraph_client *client, struct npugraph__link **link_p, bool again, bool anew,
                   struct npugraph__follow *f, const char *method, const ProtobufCMessage *request,
                   const ProtobufCMessageDescriptor *type, ProtobufCMessage **response_p)
{
    struct npugraph__link *link;
    char id[REQUEST_ID];
    int rc;

    make_request_id(client, id);
    f->link = *link_p;
    while ((rc = npugraph__channel_unary((*link_p)->channel, method, again ? id : NULL, request, type, response_p,
                                         &f->why)) != 0) {
        link = npugraph__client_follow(client, *link_p, f, again);
        if (link == NULL && anew)
            link = npugraph__client_leave_lost(client, *link_p, f);
        if (link == NULL)
            break;
        npugraph__client_change(client, link_p, link);
    }
    return rc;
}

static int unary_home(struct npugraph_client *client, bool again, const char *method, const ProtobufCMessage *request,
                      const ProtobufCMessageDescriptor *type, ProtobufCMessage **response_p, struct npugraph_error *err)
{
    struct npugraph__link *link = choose_link(client, HOME_USER);
    struct npugraph__follow f = {0};
    const int rc = call_on(client, &link, again, false, &f, method, request, type, response_p);

    npugraph__client_leave(client, link);
    if (rc != 0 && err != NULL)
        *err = f.why;
    return rc;
}

int npugraph__unary(struct npugraph_client *client, const char *method, const ProtobufCMessage *request,
                    const ProtobufCMessageDescriptor *type, ProtobufCMessage **response_p, struct npugraph_error *err)
{
    return unary_home(client, false, method, request, type, response_p, err);
}

int npugraph__unary_again(struct npugraph_client *client, const char *method, const ProtobufCMessage *request,
                          const ProtobufCMessageDescriptor *type, ProtobufCMessage **response_p,
                          struct npugraph_error *err)
{
    return unary_home(client, true, method, request, type, response_p, err);
}

int npugraph__entered_call(struct npugraph_client *client, struct npugraph__link **link_p, bool anew,
                           struct npugraph__follow *f, const char *method, const ProtobufCMessage *request,
                           const ProtobufCMessageDescriptor *type, ProtobufCMessage **response_p)
{
    return call_on(client, link_p, true, anew, f, method, request, type, response_p);
}

int npugraph__entered_unary(struct npugraph_client *client, struct npugraph__link **link_p, bool anew,
                            const char *method, const ProtobufCMessage *request, const ProtobufCMessageDescriptor *type,
                            ProtobufCMessage **response_p, struct npugraph_error *err)
{
    struct npugraph__follow f = {0};
    const int rc = call_on(client, link_p, true, anew, &f, method, request, type, response_p);

    if (rc != 0 && err != NULL)
        *err = f.why;
    return rc;
}

int npugraph__stream_open(struct npugraph_client *client, const char *method, struct npugraph__stream **stream_p,
                          struct npugraph_error *err)
{
    struct npugraph__link *link = choose_link(client, HOME_USER);
    const int rc = npugraph__channel_call(link->channel, method, stream_p, err);

    npugraph__client_leave(client, link);
    return rc;
}

uint32_t npugraph__client_timeout(const struct npugraph_client *client)
{
    return client->params.timeout_ms;
}

bool npugraph_has_ring(struct npugraph_client *client)
{
    struct npugraph__link *link;
    bool open;

    pthread_mutex_lock(&client->lock);
    link = client->newest;
    link->users++;
    pthread_mutex_unlock(&client->lock);
    open = npugraph__ring_is_open(&link->ring);
    npugraph__client_leave(client, link);
    return open;
}

struct npugraph__link *npugraph__client_home(struct npugraph_client *client)
{
    return choose_link(client, HOME);
}

struct npugraph__lane *npugraph__link_lane(struct npugraph__link *link)
{
    return npugraph__lane_take(&link->ring, &link->session, npugraph__channel_timeout(link->channel));
}

struct npugraph__shared *npugraph__client_shared(struct npugraph_client *client)
{
    return &choose_link(client, HOME)->shared;
}

const struct npugraph__session *npugraph__client_session(struct npugraph_client *client)
{
    return &choose_link(client, HOME)->session;
}
