/* SPDX-License-Identifier: Apache-2.0 */
#include "client/lib/copier.h"

#include <grpc/byte_buffer.h>
#include <grpc/byte_buffer_reader.h>
#include <grpc/slice.h>
#include <signal.h>
#include <string.h>

/* Copies the message without its first `skip` bytes, and frees it. */
static void copy_and_free(struct npugraph__copier *c, const struct npugraph__copy *copy)
{
    grpc_byte_buffer_reader reader;
    size_t skip = copy->skip;
    char *to = copy->to;
    grpc_slice *piece;

    if (!grpc_byte_buffer_reader_init(&reader, copy->message)) {
        c->failed = true;
        grpc_byte_buffer_destroy(copy->message);
        return;
    }
    while (grpc_byte_buffer_reader_peek(&reader, &piece) != 0) {
        const size_t n = GRPC_SLICE_LENGTH(*piece), skipped = n < skip ? n : skip;

        memcpy(to, GRPC_SLICE_START_PTR(*piece) + skipped, n - skipped);
        to += n - skipped;
        skip -= skipped;
    }
    grpc_byte_buffer_reader_destroy(&reader);
    grpc_byte_buffer_destroy(copy->message);
}

static void *copy_messages(void *user)
{
    struct npugraph__copier *c = user;

    pthread_mutex_lock(&c->lock);
    for (;;) {
        struct npugraph__copy copy;

        while (c->n == 0 && !c->stopping)
            pthread_cond_wait(&c->changed, &c->lock);
        if (c->n == 0)
            break;
        copy = c->queue[c->first];
        pthread_mutex_unlock(&c->lock);
        copy_and_free(c, &copy);
        pthread_mutex_lock(&c->lock);
        c->first = (c->first + 1) % NPUGRAPH__COPIER_ROOM; /* its place is free only now: so much is held at most */
        c->n--;
        pthread_cond_signal(&c->changed);
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

void npugraph__copier_start(struct npugraph__copier *c)
{
    sigset_t all, old;

    *c = (struct npugraph__copier){0};
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->changed, NULL);
    sigfillset(&all); /* signals are for the program's threads */
    pthread_sigmask(SIG_SETMASK, &all, &old);
    c->runs = pthread_create(&c->thread, NULL, copy_messages, c) == 0;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
}

void npugraph__copier_put(struct npugraph__copier *c, const struct npugraph__copy *copy)
{
    if (!c->runs) {
        copy_and_free(c, copy);
        return;
    }
    pthread_mutex_lock(&c->lock);
    while (c->n == NPUGRAPH__COPIER_ROOM)
        pthread_cond_wait(&c->changed, &c->lock);
    c->queue[(c->first + c->n++) % NPUGRAPH__COPIER_ROOM] = *copy;
    pthread_cond_signal(&c->changed); /* one side waits at most: the queue is not empty and full at once */
    pthread_mutex_unlock(&c->lock);
}

bool npugraph__copier_stop(struct npugraph__copier *c)
{
    if (!c->runs)
        return !c->failed;
    pthread_mutex_lock(&c->lock);
    c->stopping = true;
    pthread_cond_signal(&c->changed);
    pthread_mutex_unlock(&c->lock);
    pthread_join(c->thread, NULL);
    c->runs = false;
    pthread_cond_destroy(&c->changed);
    pthread_mutex_destroy(&c->lock);
    return !c->failed;
}
