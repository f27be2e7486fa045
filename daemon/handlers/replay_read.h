/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_HANDLERS_REPLAY_READ_H
#define NGD_DAEMON_HANDLERS_REPLAY_READ_H

/*
 * Reads a ReplayRequest from its bytes, without copying its inputs. Pure: knows neither calls nor graphs.
 * Memory: arrays are in the arena, inputs and names point into the bytes. Bounds: daemon/rpc/wire_bounds.def.
 */
#include "base/mem.h"
#include "scheduler/run/sched.h"

/* An input or a result that is in a shared buffer. */
struct ngd_shared_range {
    uint32_t index;
    uint64_t buffer, offset, bytes;
};

struct ngd_replay_message {
    uint64_t graph, tag, generation, priority, stream;
    bool eager, timing;
    struct ngd_session_event_name wait_event, record_event;
    struct ngd_span trace_parent; /* bytes is 0: not given */
    uint32_t n_symbols, n_inputs, n_hosts, n_outputs, n_types;
    int64_t *symbols;
    struct ngd_span *inputs;
    struct ngd_host_value *hosts;
    uint32_t *outputs;
    struct ngd_input_type *types; /* NULL: not given */
    struct ngd_shared_range *shared_inputs, *shared_outputs;
    uint32_t n_shared_inputs, n_shared_outputs;
};

/* Fails with MALFORMED_MESSAGE, INVALID_ARGUMENT (more elements than any graph takes) or NO_MEMORY. */
ngd_status_t ngd_replay_read(struct ngd_arena *arena, const uint8_t *data, size_t n, struct ngd_replay_message *m,
                             struct ngd_diag *diag);

#endif
