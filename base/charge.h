/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_BASE_CHARGE_H
#define NGD_BASE_CHARGE_H

/*
 * Charges: what an object takes counts for whoever made it, until the object is freed.
 *
 * Why: the reference that a client gives back is seldom the last one. A charge that ended with the client's handle
 * would leave memory that nobody pays for.
 * A payer is a counter of an owner; the owner decides what its limit is. An object keeps the charge that it was given,
 * adds to it when it grows, and ends it after its memory is free. It knows neither the owner nor the limit.
 *
 * Threads: any; a charge has one user at a time. Memory: a charge keeps a reference on its payer. No lock may be held
 * of a rank above NGD_RANK_IDENTITIES.
 */
#include "base/status.h"
#include <stdint.h>

struct ngd_payer;

struct ngd_payer_ops {
    /* QUOTA: so much more is not allowed, and nothing is taken. */
    ngd_status_t (*take)(struct ngd_payer *payer, uint64_t n, struct ngd_diag *diag);
    void (*give)(struct ngd_payer *payer, uint64_t n);
    void (*ref)(struct ngd_payer *payer);
    void (*unref)(struct ngd_payer *payer);
};

struct ngd_payer {
    const struct ngd_payer_ops *ops;
};

/* Those of one owner. References are counted by whoever keeps them. */
struct ngd_payers {
    /* Bytes of host memory, in buffers and pools, and in files of diagnostics; NULL: nobody pays. */
    struct ngd_payer *host, *device, *dumps;
};
void ngd_payers_ref(const struct ngd_payers *payers);
void ngd_payers_unref(const struct ngd_payers *payers);

struct ngd_charge {
    struct ngd_payer *payer; /* a reference; NULL: nobody pays */
    uint64_t n;
};

/* Takes n of payer; with payer NULL nothing is counted. On failure *charge is empty. */
ngd_status_t ngd_charge_begin(struct ngd_charge *charge, struct ngd_payer *payer, uint64_t n, struct ngd_diag *diag);
/* Takes n more; on failure the charge is what it was. */
ngd_status_t ngd_charge_grow(struct ngd_charge *charge, uint64_t n, struct ngd_diag *diag);
/* Gives n of it back. */
void ngd_charge_shrink(struct ngd_charge *charge, uint64_t n);
/* Gives everything back. An empty charge is fine. */
void ngd_charge_end(struct ngd_charge *charge);
/* Hands a charge on: *from is empty then. */
struct ngd_charge ngd_charge_move(struct ngd_charge *from);

#endif
