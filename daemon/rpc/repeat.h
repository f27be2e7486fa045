/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_RPC_REPEAT_H
#define NGD_DAEMON_RPC_REPEAT_H

/*
 * Repetitions of calls with one request id (answers.h has the table, and the reason).
 *
 * A call is wrapped if its method says `once` and it names a session and a request id. The handler serves only the
 * first call of an id; its repetitions get the same end. If the client cancels a waiting repetition, that ends at once.
 *
 * The thread that ends a leader may be in the middle of other work, such as a device's. So job threads serve a promoted
 * repetition and answer those that wait, one at a time and in the turn of their identity. The answer is not copied for
 * them. It is charged once, to their identity, until the last of them has been sent.
 *
 * Threads: begin on the call's receiving thread. Memory: the call's `life`; a leader that has ended lasts until the
 * calls that waited for it are answered.
 */
#include <stdbool.h>

struct ngd_call;
struct ngd_raw_message;

/*
 * Takes a request before its handler. True: the handler gets it. False: it was, or will be, answered here; the caller
 * must not touch it any more. msg: what the handler would get.
 */
bool ngd_repeat_begin(struct ngd_call *call, const struct ngd_raw_message *raw, const void *msg);

#endif
