/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NPUGRAPH_CLIENT_COPIER_H
#define NPUGRAPH_CLIENT_COPIER_H

/*
 * A thread that copies received messages to their place while its owner receives the next ones.
 *
 * Why: the thread that polls gRPC's queue also reads the socket. While it copies, nothing is read, and copying takes
 * about as long as reading.
 *
 * Threads: one owner. The destination is complete when stop has returned. Memory: at most NPUGRAPH__COPIER_ROOM
 * messages wait.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

struct grpc_byte_buffer;

#define NPUGRAPH__COPIER_ROOM 4

struct npugraph__copy {
    struct grpc_byte_buffer *message;
    size_t skip; /* bytes at its beginning that are not copied */
    char *to;
};

struct npugraph__copier {
    bool runs, failed; /* failed: by the thread while it runs */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct npugraph__copy queue[NPUGRAPH__COPIER_ROOM]; /* by the lock, as are the next three */
    unsigned first, n;
    bool stopping;
};

/* Starts the thread. Zeroed, or if there can be no thread, a copier copies in put. */
void npugraph__copier_start(struct npugraph__copier *copier);
/* Takes the message. Waits while the queue is full. */
void npugraph__copier_put(struct npugraph__copier *copier, const struct npugraph__copy *copy);
/* Ends the thread, after what is in the queue. False: gRPC could not read a message. */
bool npugraph__copier_stop(struct npugraph__copier *copier);

#endif
