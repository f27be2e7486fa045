/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_FRONT_SPLICE_H
#define NGD_DAEMON_FRONT_SPLICE_H

/*
 * Moves bytes between two sockets inside the kernel, by a pipe that one thread uses for all of its connections.
 *
 * Why: the front reads only the heads of gRPC's large frames. Their payloads, the data of downloads, need not be copied
 * into the process and out of it again.
 *
 * Threads: one. Memory: a pipe, which is empty between calls.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct front_splice {
    int in, out; /* ends of the pipe; -1: bytes cannot be moved here */
};

struct front_moved {
    size_t taken; /* bytes, from the source */
    size_t sent;  /* to the destination; the others are in the caller's `rest` */
    bool failed;  /* the destination accepts no more, or bytes are lost */
};

/* Without a pipe, front_splice_usable returns false and the caller copies. */
void front_splice_init(struct front_splice *s);
void front_splice_fini(struct front_splice *s);
static inline bool front_splice_usable(const struct front_splice *s)
{
    return s->in >= 0;
}
/*
 * Moves at most n bytes from one nonblocking socket to another. What the destination does not take is put into `rest`,
 * which has room for n. Nothing is taken if nothing is there, if the source has ended, or if the kernel or a filter of
 * system calls does not allow it; a recv by the caller tells which. After the last of these the object is not usable.
 */
struct front_moved front_splice_move(struct front_splice *s, int from, int to, size_t n, uint8_t *rest);

#endif
