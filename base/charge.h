/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_BASE_CHARGE_H
#define NGD_BASE_CHARGE_H

/*
 * Charges: the bytes of an object count against its creator's limit until the object is freed.
 *
 * Why: the reference that a client releases is seldom the last one. If the charge ended with the client's handle, the
 * remaining memory would count against nobody.
 * A payer is a counter that belongs to an owner; the owner sets the limit. An object keeps its charge, adds to it when
 * it grows, and ends it after its memory is freed. The object knows neither the owner nor the limit.
 *
 * Threads: any; a charge has one user at a time. Memory: a charge keeps a reference on its payer. The caller may hold
 * no lock of a rank above NGD_RANK_IDENTITIES.
 */
#include "base/status.h"
#include <stdint.h>

struct ngd_payer;

struct ngd_payer_ops {
    /* Counts n bytes more. QUOTA: the limit does not allow them, and nothing was counted. */
    ngd_status_t (*take)(struct ngd_payer *payer, uint64_t n, struct ngd_diag *diag);
    void (*give)(struct ngd_payer *payer, uint64_t n);
    void (*ref)(struct ngd_payer *payer);
    void (*unref)(struct ngd_payer *payer);
};

struct ngd_payer {
    const struct ngd_payer_ops *ops;
};

/* The payers of one owner. A holder of this struct takes its references with ngd_payers_ref. */
struct ngd_payers {
    /* host: bytes of host memory; device: bytes in buffers and pools; dumps: bytes in files of diagnostics. NULL:
     * nobody pays. */
    struct ngd_payer *host, *device, *dumps;
};
void ngd_payers_ref(const struct ngd_payers *payers);
void ngd_payers_unref(const struct ngd_payers *payers);

struct ngd_charge {
    struct ngd_payer *payer; /* a reference; NULL: nobody pays */
    uint64_t n;
};

/* Begins a charge of n bytes on payer; a NULL payer counts nothing. On failure *charge is empty. */
ngd_status_t ngd_charge_begin(struct ngd_charge *charge, struct ngd_payer *payer, uint64_t n, struct ngd_diag *diag);
/* Charges n bytes more. On failure the charge is unchanged. */
ngd_status_t ngd_charge_grow(struct ngd_charge *charge, uint64_t n, struct ngd_diag *diag);
/* Gives n bytes back. */
void ngd_charge_shrink(struct ngd_charge *charge, uint64_t n);
/* Gives all bytes back. The charge may be empty. */
void ngd_charge_end(struct ngd_charge *charge);
/* Returns the charge and leaves *from empty. */
struct ngd_charge ngd_charge_move(struct ngd_charge *from);

#endif
