/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_BENCH_RPC_BARE_H
#define NGD_BENCH_RPC_BARE_H

/*
 * A C-core server that does nothing with its messages, in a process of its own, and a client with one stream to it:
 * what gRPC costs without a daemon. A program that uses it calls bare_serve where it is started with "--serve TEXT".
 */
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum bare_kind {
    BARE_ECHO,   /* sends back each message */
    BARE_SINK,   /* drops all messages, and answers the end of the stream with one */
    BARE_SOURCE, /* sends as many messages as the first one says (a struct bare_order) */
};

struct bare_order {
    uint64_t messages, bytes;
};

struct bare_server {
    pid_t pid;
    char address[128]; /* as a channel takes it */
    char path[108];    /* of the socket, or "" */
};

/* Starts a server on a Unix socket at `path`, or with NULL on a port of 127.0.0.1. Each serves one client. */
void bare_start(struct bare_server *server, enum bare_kind kind, const char *path);
void bare_stop(struct bare_server *server);
/* What the started process does. Does not return. */
void bare_serve(const char *text) __attribute__((noreturn));

struct bare_client;
struct bare_client *bare_open(const char *address);
void bare_close(struct bare_client *c);
/* Sends a message and receives one, of n bytes each. */
void bare_exchange(struct bare_client *c, const void *data, size_t n);
/* Sends a message without copying it, which is done when this returns. */
void bare_send(struct bare_client *c, const void *data, size_t n);
/* Says that no more is sent. */
void bare_end(struct bare_client *c);
/* Receives a message and drops it. Returns its bytes. */
size_t bare_receive(struct bare_client *c);

#endif
