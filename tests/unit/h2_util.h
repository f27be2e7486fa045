/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_TESTS_H2_UTIL_H
#define NGD_TESTS_H2_UTIL_H

/* Helpers for tests of the frame checker in front of gRPC: frames, and a client's connection without a socket. */
#include "base/mem.h"
#include "daemon/front/h2_guard.h"
#include "tests/unit/unit.h"
#include <stdio.h>
#include <string.h>

#define ROOM (1 << 20)

enum { DATA, HEADERS, PRIORITY, RST, SETTINGS, PUSH, PING, GOAWAY, WINDOW, CONTINUATION };
enum { ACK = 1, END_STREAM = 1, END_HEADERS = 4, PADDED = 8 };

/* ---- bytes ------------------------------------------------------------------------------------------------- */

struct bytes {
    uint8_t *at;
    size_t n;
};

static inline void put(struct bytes *b, const void *from, size_t n)
{
    ck_assert_uint_le(b->n + n, ROOM);
    memcpy(b->at + b->n, from, n);
    b->n += n;
}

static inline void put_frame(struct bytes *b, unsigned type, unsigned flags, uint32_t id, const void *payload, size_t n)
{
    uint8_t head[9] = {(uint8_t)(n >> 16),  (uint8_t)(n >> 8),   (uint8_t)n,         (uint8_t)type, (uint8_t)flags,
                       (uint8_t)(id >> 24), (uint8_t)(id >> 16), (uint8_t)(id >> 8), (uint8_t)id};

    put(b, head, sizeof(head));
    if (n > 0)
        put(b, payload, n);
}

static const uint8_t zeros[70000];

static inline void put_begin(struct bytes *b)
{
    put(b, NGD_H2_PREFACE, NGD_H2_PREFACE_LEN);
    put_frame(b, SETTINGS, 0, 0, "\0\4\0\1\0\0", 6);
}

/* Writes a call's headers, and a message of n bytes whose length field says `said`. */
static inline void put_call(struct bytes *b, uint32_t id, uint32_t said, uint32_t n, unsigned flags)
{
    uint8_t message[66000] = {0, (uint8_t)(said >> 24), (uint8_t)(said >> 16), (uint8_t)(said >> 8), (uint8_t)said};

    put_frame(b, HEADERS, END_HEADERS, id, "\x83\x86", 2);
    put_frame(b, DATA, flags, id, message, 5 + n);
}

/* Writes each frame that a client may send, once. */
static inline void put_honest(struct bytes *b)
{
    put_begin(b);
    put_frame(b, SETTINGS, ACK, 0, NULL, 0);
    put_frame(b, WINDOW, 0, 0, "\0\0\1\0", 4);
    put_frame(b, HEADERS, 0, 1, "\x83\x86\x44", 3); /* in three frames */
    put_frame(b, CONTINUATION, 0, 1, "abc", 3);
    put_frame(b, CONTINUATION, END_HEADERS, 1, "de", 2);
    put_frame(b, DATA, 0, 1, "\0\0\0\0\3ab", 7); /* a message in two frames, the second one padded */
    put_frame(b, DATA, PADDED, 1, "\2c\0\0", 4);
    put_frame(b, DATA, 0, 1, "\0\0\0\0\1x\0\0\0\0\0", 11); /* two messages in one */
    put_frame(b, PING, 0, 0, zeros, 8);
    put_frame(b, HEADERS, END_HEADERS | END_STREAM, 3, "\x83", 1);
    put_frame(b, WINDOW, 0, 1, "\0\0\1\0", 4);
    put_frame(b, PRIORITY, 0, 5, zeros, 5);
    put_frame(b, 0x21, 0, 7, "unknown", 7);
    put_frame(b, RST, 0, 3, "\0\0\0\10", 4);
    put_frame(b, RST, 0, 5, "\0\0\0\10", 4); /* cancelled before its headers were sent, as gRPC's clients do */
    put_frame(b, HEADERS, END_HEADERS | END_STREAM, 7, "\x83", 1);
    put_frame(b, DATA, END_STREAM, 1, NULL, 0);
    put_frame(b, GOAWAY, 0, 0, zeros, 8);
}

/* ---- a connection ------------------------------------------------------------------------------------------- */

struct peer {
    struct ngd_h2_guard *guard;
    struct bytes server, client;
    int64_t streams, held, max_streams, max_held;
    uint32_t refusals;
    ngd_nsec_t now;
    ngd_nsec_t buckets[NGD_H2_BUCKETS]; /* of an identity with only this connection */
    ngd_nsec_t *shared;                 /* of an identity with several connections; NULL: buckets is used */
};

static inline void to_server(void *ctx, const uint8_t *bytes, size_t n)
{
    put(&((struct peer *)ctx)->server, bytes, n);
}
static inline void to_client(void *ctx, const uint8_t *bytes, size_t n)
{
    put(&((struct peer *)ctx)->client, bytes, n);
}
static inline bool take_stream(void *ctx)
{
    struct peer *p = ctx;

    return p->streams < p->max_streams && ++p->streams;
}
static inline bool take_bytes(void *ctx, uint64_t n)
{
    struct peer *p = ctx;

    if (p->held + (int64_t)n > p->max_held)
        return false;
    p->held += (int64_t)n;
    return true;
}
static inline void give_stream(void *ctx)
{
    ((struct peer *)ctx)->streams--;
}
static inline void give_bytes(void *ctx, uint64_t n)
{
    ((struct peer *)ctx)->held -= (int64_t)n;
}
static inline ngd_nsec_t *shared_buckets(void *ctx)
{
    struct peer *p = ctx;

    return p->shared ? p->shared : p->buckets;
}
static inline void refused(void *ctx, const char *sentence)
{
    ck_assert_uint_gt(strlen(sentence), 20);
    ((struct peer *)ctx)->refusals++;
}

static const struct ngd_h2_ops ops = {.to_server = to_server,
                                      .to_client = to_client,
                                      .take_stream = take_stream,
                                      .take_bytes = take_bytes,
                                      .give_stream = give_stream,
                                      .give_bytes = give_bytes,
                                      .shared_buckets = shared_buckets,
                                      .refused = refused};

static inline void begin_with(struct peer *p, uint32_t max_streams)
{
    struct ngd_h2_params params = {.ops = &ops, .ctx = p, .max_streams = max_streams, .max_message = 40000};
    uint8_t *server = p->server.at, *client = p->client.at;

    *p = (struct peer){.server.at = server, .client.at = client, .max_streams = 100, .max_held = 100000};
    p->now = 1000 * NGD_SEC;
    p->guard = ngd_h2_guard_create(&params);
    ck_assert_ptr_nonnull(p->guard);
}

static inline void begin(struct peer *p)
{
    begin_with(p, 100);
}

static inline void init(struct peer *p)
{
    *p = (struct peer){0};
    p->server.at = ngd_malloc(ROOM);
    p->client.at = ngd_malloc(ROOM);
    begin(p);
}

/* Ends the connection, and checks that all charges are given back. */
static inline void end(struct peer *p)
{
    ngd_h2_guard_destroy(p->guard);
    ck_assert_int_eq(p->streams, 0);
    ck_assert_int_eq(p->held, 0);
}

static inline void fini(struct peer *p)
{
    end(p);
    ngd_free(p->server.at);
    ngd_free(p->client.at);
}

static inline struct ngd_h2_result say(struct peer *p, const uint8_t *bytes, size_t n)
{
    struct ngd_h2_result r = ngd_h2_guard_input(p->guard, bytes, n, p->now);

    ck_assert_uint_le(r.used, n);
    if (r.verdict == NGD_H2_GO_ON)
        ck_assert_uint_eq(r.used, n);
    return r;
}

static inline struct ngd_h2_result say_all(struct peer *p, const struct bytes *b)
{
    return say(p, b->at, b->n);
}

static inline struct bytes make(void (*fill)(struct bytes *b))
{
    struct bytes b = {.at = ngd_malloc(ROOM)};

    if (fill)
        fill(&b);
    return b;
}

/* The server answers a call, and so ends it. */
static inline void answer(struct peer *p, uint32_t id)
{
    struct bytes b = {.at = (uint8_t[64]){0}};

    put_frame(&b, HEADERS, END_HEADERS | END_STREAM, id, "\x88", 1);
    ngd_h2_guard_output(p->guard, b.at, b.n, p->now);
    p->client.n = 0;
}

#endif
