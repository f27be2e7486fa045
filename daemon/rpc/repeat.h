/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_RPC_REPEAT_H
#define NGD_DAEMON_RPC_REPEAT_H

/*
 * Repetitions of calls under one request id (answers.h has the table, and why).
 *
 * It wraps a call whose method says `once` and that names a session and a request id: the handler serves the first
 * only, and the end that this one gets is also that of those which repeat it. One that its client gives up while it
 * waits is over at once.
 * Whoever ends a leader may be in the middle of other work, such as a device's: a promoted repetition is served, and
 * those that wait are answered, on the job threads, one at a time and in the turn of their identity. An answer is not
 * copied for them; it is charged once, to their identity, until the last of them has been sent.
 *
 * Threads: begin on the call's receiving thread. Memory: the call's `life`; a leader that has ended lasts until those
 * that waited for it are answered.
 */
#include <stdbool.h>

struct ngd_call;
struct ngd_raw_message;

/*
 * A request arrived and its handler has not seen it. True: it goes to the handler. False: it was, or will be, answered
 * here, and must not be touched any more. msg: what the handler gets.
 */
bool ngd_repeat_begin(struct ngd_call *call, const struct ngd_raw_message *raw, const void *msg);

#endif
