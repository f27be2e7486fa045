/* SPDX-License-Identifier: Apache-2.0 */
/* The client's links (client/lib/client.c), with daemons and connections that are made up here. */
#include "client/lib/client_int.h"
#include "tests/unit/unit.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define THREADS     4
#define CLOSE_NS    50000000L
#define DEAD_NS     300000000L /* what it takes to find that no daemon answers */
#define UNAVAILABLE 14

struct fake_stream {
    _Atomic bool open;
};

static struct {
    _Atomic bool dead;                    /* no daemon answers */
    _Atomic bool gone;                    /* no daemon has the session of another one */
    _Atomic uint64_t n_links, n_replaced; /* the daemons of the first n_replaced links say that another one serves */
    _Atomic int opens, follows, closing, closed, shut, calls;
    int (*call)(struct npugraph__link *link, struct npugraph_error *err); /* what a call does */
} fake;

static void pass_time(long ns)
{
    nanosleep(&(struct timespec){.tv_nsec = ns}, NULL);
}

/* ---- what client.c calls ----------------------------------------------------------------------------------------- */

int npugraph__error(struct npugraph_error *err, int code, const char *reason, const char *fmt, ...)
{
    if (err != NULL) {
        err->code = code;
        snprintf(err->reason, sizeof(err->reason), "%s", reason);
        snprintf(err->message, sizeof(err->message), "%s", fmt);
    }
    return code;
}

static int fake_link(struct npugraph__link **link_p, struct npugraph_error *err)
{
    struct fake_stream *stream;
    struct npugraph__link *link;

    if (fake.dead) {
        pass_time(DEAD_NS);
        return npugraph__error(err, UNAVAILABLE, "UNREACHABLE", "nobody is there");
    }
    link = calloc(1, sizeof(*link));
    stream = malloc(sizeof(*stream));
    ck_assert(link && stream);
    atomic_init(&stream->open, true);
    link->session.stream = (struct npugraph__stream *)stream;
    link->session.id = ++fake.n_links;
    link->channel = (struct npugraph__channel *)link;
    *link_p = link;
    return 0;
}

int npugraph__link_open(const struct npugraph_connect_params *params, struct npugraph__link **link_p,
                        struct npugraph_error *err)
{
    (void)params;
    fake.opens++;
    return fake_link(link_p, err);
}

int npugraph__link_follow(const struct npugraph_connect_params *params, const struct npugraph__link *from,
                          struct npugraph__link **link_p, struct npugraph_error *err)
{
    (void)params;
    (void)from;
    fake.follows++;
    return fake.gone ? npugraph__error(err, 5, "SESSION_GONE", "it is nowhere") : fake_link(link_p, err);
}

void npugraph__link_listen(struct npugraph__link *link)
{
    link->replaced = link->session.id <= fake.n_replaced;
}

void npugraph__session_abandon(struct npugraph__session *session)
{
    struct fake_stream *stream = (struct fake_stream *)session->stream;

    ck_assert_msg(stream && atomic_exchange(&stream->open, false), "a stream is closed twice");
    free(stream);
    session->stream = NULL;
}

void npugraph__link_shut(struct npugraph__link *link)
{
    ck_assert_msg(link->channel != NULL, "a link is shut twice");
    link->channel = NULL;
    fake.shut++;
    if (link->session.stream == NULL)
        return;
    fake.closing++;
    pass_time(CLOSE_NS);
    npugraph__session_abandon(&link->session);
    fake.closed++;
}

void npugraph__link_close(struct npugraph__link *link)
{
    if (!link->closed)
        npugraph__link_shut(link);
    free(link);
}

uint64_t npugraph__session_is_old(const struct npugraph__session *session, struct npugraph__channel *channel)
{
    (void)session;
    (void)channel;
    return 0;
}

struct npugraph__stream *npugraph__session_ask(const struct npugraph__session *session,
                                               struct npugraph__channel *channel)
{
    (void)session;
    (void)channel;
    return NULL;
}

void npugraph__session_renewed(struct npugraph__session *session, struct npugraph__stream *fresh, uint64_t bearer)
{
    (void)session;
    (void)fresh;
    (void)bearer;
}

int npugraph__channel_unary(struct npugraph__channel *channel, const char *method, const char *request_id,
                            const ProtobufCMessage *request, const ProtobufCMessageDescriptor *type,
                            ProtobufCMessage **response_p, struct npugraph_error *err)
{
    (void)method;
    (void)request_id;
    (void)request;
    (void)type;
    (void)response_p;
    return fake.call((struct npugraph__link *)channel, err);
}

int npugraph__channel_call(struct npugraph__channel *channel, const char *method, struct npugraph__stream **stream_p,
                           struct npugraph_error *err)
{
    (void)channel;
    (void)method;
    (void)stream_p;
    return npugraph__error(err, UNAVAILABLE, "UNREACHABLE", "there are no streams");
}

uint32_t npugraph__channel_timeout(const struct npugraph__channel *channel)
{
    (void)channel;
    return 0;
}

bool npugraph__ring_is_open(struct npugraph__ring *ring)
{
    (void)ring;
    return false;
}

struct npugraph__lane *npugraph__lane_take(struct npugraph__ring *ring, const struct npugraph__session *session,
                                           uint32_t timeout_ms)
{
    (void)ring;
    (void)session;
    (void)timeout_ms;
    return NULL;
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

static struct npugraph_client *connected(int (*call)(struct npugraph__link *link, struct npugraph_error *err))
{
    struct npugraph_connect_params params;
    struct npugraph_client *client = NULL;

    memset(&fake, 0, sizeof(fake));
    fake.call = call;
    npugraph_connect_params_init(&params);
    ck_assert_int_eq(npugraph_connect(&params, &client, NULL), 0);
    return client;
}

static struct npugraph_client *the_client;

/* Goes over to a daemon that has replaced the first one, as the opening of a sequence does. */
static void *go_over(void *arg)
{
    struct npugraph__link *link;

    fake.n_replaced = 1;
    link = npugraph__client_enter(the_client);
    ck_assert_uint_eq(link->session.id, 2);
    npugraph__client_leave(the_client, link);
    return arg;
}

static int call_while_another_goes_over(struct npugraph__link *link, struct npugraph_error *err)
{
    (void)err;
    ck_assert_uint_eq(link->session.id, 1);
    go_over(NULL);
    ck_assert_int_eq(fake.closing, 0);
    return 0;
}

START_TEST(session_of_a_call_that_is_under_way_stays_open_until_the_call_ends)
{
    the_client = connected(call_while_another_goes_over);
    ck_assert_int_eq(npugraph__unary(the_client, "Devices", NULL, NULL, NULL, NULL), 0);
    ck_assert_int_eq(fake.closed, 1);
    npugraph_disconnect(the_client);
    ck_assert_int_eq(fake.closed, 2);
}
END_TEST

static pthread_t other;

static int call_that_is_refused_once(struct npugraph__link *link, struct npugraph_error *err)
{
    (void)link;
    if (fake.calls++ > 0)
        return 0;
    ck_assert_int_eq(pthread_create(&other, NULL, go_over, NULL), 0);
    while (fake.n_links < 2)
        pass_time(CLOSE_NS / 10);
    pass_time(CLOSE_NS / 5);
    return npugraph__error(err, UNAVAILABLE, "SESSION_MOVED", "it is elsewhere");
}

START_TEST(session_is_not_resumed_elsewhere_while_another_thread_closes_it)
{
    the_client = connected(call_that_is_refused_once);
    ck_assert_int_eq(npugraph__unary(the_client, "Devices", NULL, NULL, NULL, NULL), 0);
    ck_assert_int_eq(pthread_join(other, NULL), 0);
    ck_assert_int_eq(fake.calls, 2);
    ck_assert_int_eq(fake.follows, 1);
    npugraph_disconnect(the_client);
}
END_TEST

static int call_that_the_first_daemon_loses(struct npugraph__link *link, struct npugraph_error *err)
{
    return link->session.id > 1 ? 0 : npugraph__error(err, UNAVAILABLE, "UNREACHABLE", "the connection broke");
}

START_TEST(link_of_a_lost_daemon_is_shut_when_its_last_user_leaves)
{
    struct npugraph__link *calls, *waits;

    the_client = connected(call_that_the_first_daemon_loses);
    fake.gone = true;
    waits = npugraph__client_enter(the_client);
    calls = npugraph__client_enter(the_client);
    ck_assert_int_eq(npugraph__entered_unary(the_client, &calls, true, "Open", NULL, NULL, NULL, NULL), 0);
    ck_assert_uint_eq(calls->session.id, 2);
    ck_assert_int_eq(fake.shut, 0);
    npugraph__client_leave(the_client, waits);
    ck_assert_int_eq(fake.shut, 1);
    npugraph__client_leave(the_client, calls);
    ck_assert_int_eq(fake.shut, 1);
    npugraph_disconnect(the_client);
    ck_assert_int_eq(fake.shut, 2);
}
END_TEST

static int call_that_is_refused_by_the_first_daemon(struct npugraph__link *link, struct npugraph_error *err)
{
    return link->session.id > 1 ? 0 : npugraph__error(err, UNAVAILABLE, "SESSION_MOVED", "it is elsewhere");
}

/* The session has moved to the second daemon, which a third one replaces. What has not noticed needs the second. */
START_TEST(link_that_a_session_has_moved_to_stays_for_those_that_have_not_noticed)
{
    struct npugraph__link *calls, *waits;

    the_client = connected(call_that_is_refused_by_the_first_daemon);
    waits = npugraph__client_enter(the_client);
    calls = npugraph__client_enter(the_client);
    ck_assert_int_eq(npugraph__entered_unary(the_client, &calls, false, "Step", NULL, NULL, NULL, NULL), 0);
    npugraph__client_leave(the_client, calls);
    fake.n_replaced = 2;
    npugraph__client_leave(the_client, npugraph__client_enter(the_client));
    ck_assert_uint_eq(fake.n_links, 3);
    ck_assert_int_eq(fake.shut, 0);
    ck_assert_int_eq(npugraph__entered_unary(the_client, &waits, false, "Step", NULL, NULL, NULL, NULL), 0);
    ck_assert_uint_eq(waits->session.id, 2);
    ck_assert_int_eq(fake.shut, 1); /* the first one */
    npugraph__client_leave(the_client, waits);
    ck_assert_int_eq(fake.shut, 2);
    npugraph_disconnect(the_client);
    ck_assert_int_eq(fake.shut, 3);
}
END_TEST

static int call_that_is_lost(struct npugraph__link *link, struct npugraph_error *err)
{
    (void)link;
    fake.calls++;
    while (fake.calls < THREADS)
        pass_time(CLOSE_NS / 10);
    return npugraph__error(err, UNAVAILABLE, "UNREACHABLE", "the connection broke");
}

static void *lose_call(void *arg)
{
    struct npugraph__link *link = npugraph__client_enter(the_client);

    ck_assert_int_eq(npugraph__entered_unary(the_client, &link, true, "Open", NULL, NULL, NULL, NULL), UNAVAILABLE);
    npugraph__client_leave(the_client, link);
    return arg;
}

/* One looks where the session is, and one for a new session, while the others wait. */
START_TEST(calls_that_are_lost_together_do_not_try_to_connect_one_behind_the_other)
{
    pthread_t threads[THREADS];

    the_client = connected(call_that_is_lost);
    fake.opens = 0;
    fake.dead = true;
    for (size_t i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, lose_call, NULL), 0);
    for (size_t i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
    ck_assert_int_le(fake.follows + fake.opens, 2);
    npugraph_disconnect(the_client);
}
END_TEST

UNIT_MAIN("client/lib/client", session_of_a_call_that_is_under_way_stays_open_until_the_call_ends,
          session_is_not_resumed_elsewhere_while_another_thread_closes_it,
          link_of_a_lost_daemon_is_shut_when_its_last_user_leaves,
          link_that_a_session_has_moved_to_stays_for_those_that_have_not_noticed,
          calls_that_are_lost_together_do_not_try_to_connect_one_behind_the_other)
