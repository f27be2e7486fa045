/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NPUGRAPH_CTL_TOP_H
#define NPUGRAPH_CTL_TOP_H

/* npugraphctl top: a look at the daemon (ctl_top.c), and what is printed from two of them (ctl_top_view.c). */
#include "client/ctl/ctl.h"
#include "proto/npugraph.pb-c.h"

struct top_look {
    uint64_t at; /* CLOCK_MONOTONIC, ns */
    Npugraph__V1__StatusResponse *status;
    Npugraph__V1__StatsResponse *stats; /* Prometheus text */
    Npugraph__V1__DevicesResponse *devices;
    Npugraph__V1__ListModelsResponse *models;
    Npugraph__V1__ListSharesResponse *shares;
    Npugraph__V1__ListSessionsResponse *sessions;
};

/* Prints to ctl->out, or sets ctl->root. */
void ctl_top_print(struct ctl *ctl, const struct top_look *before, const struct top_look *now);

#endif
