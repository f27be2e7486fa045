/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_HANDOVER_PAUSE_H
#define NGD_DAEMON_HANDOVER_PAUSE_H

/*
 * How long sessions that move wait, and for what: from when the old daemon freezes them until the new one serves their
 * clients. The new daemon keeps the times, also those that the old one tells it: both have the machine's monotonic
 * clock. They are metrics, and a line of the log when the last client has come.
 *
 * Threads: the caller synchronises.
 */
#include "base/clock.h"
#include "daemon/handover/packet.h"
#include <stdbool.h>
#include <stddef.h>

typedef enum ngd_pause_part {
#define NGD_PAUSE(id, name, text) NGD_PAUSE_##id,
#include "daemon/handover/pauses.def"
#undef NGD_PAUSE
    NGD_PAUSE_PARTS
} ngd_pause_part_t;

struct ngd_pause {
    ngd_nsec_t began, mark; /* the freeze; the end of the last part */
    ngd_nsec_t part[NGD_PAUSE_PARTS];
    size_t sessions, came, waiting; /* all; whose clients have come; whose clients have not yet */
};

/* Puts the old daemon's times into a Go. part: of this pause, up to NGD_PAUSE_DESCRIBE. */
void ngd_pause_put(const struct ngd_pause *pause, Npugraph__Handover__V1__Go *go);
/* Begins with the times of a Go that has come just now. Times that cannot be are not believed. */
void ngd_pause_begin(struct ngd_pause *pause, const Npugraph__Handover__V1__Go *go);
/* Ends a part now. */
void ngd_pause_mark(struct ngd_pause *pause, ngd_pause_part_t part);
/* n sessions wait for their clients from now on. */
void ngd_pause_open(struct ngd_pause *pause, size_t n);
/* The client of a session has come. True: it was the last one, and the pause is over. */
bool ngd_pause_came(struct ngd_pause *pause);
/* Ends it without those that have not come. True: there are some. */
bool ngd_pause_end(struct ngd_pause *pause);
/* Writes the parts of a pause that is over into the metrics and the log. */
void ngd_pause_tell(const struct ngd_pause *pause);

#endif
