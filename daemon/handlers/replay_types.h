/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_HANDLERS_REPLAY_TYPES_H
#define NGD_DAEMON_HANDLERS_REPLAY_TYPES_H

/* Reads ReplayRequest.input_types from the message's bytes. Pure functions. */
#include "graphs/guard.h"
#include <stddef.h>

/* Reads one InputType. A dtype that does not exist, or a rank that is too high, becomes one that no guard accepts.
 * False: the bytes are not a message. */
bool ngd_replay_read_type(const uint8_t *data, size_t n, struct ngd_input_type *type_p);

#endif
