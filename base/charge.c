/* SPDX-License-Identifier: Apache-2.0 */
#include "base/charge.h"
#include <assert.h>

void ngd_payers_ref(const struct ngd_payers *payers)
{
    struct ngd_payer *const all[] = {payers->host, payers->device, payers->dumps};

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        if (all[i])
            all[i]->ops->ref(all[i]);
}

void ngd_payers_unref(const struct ngd_payers *payers)
{
    struct ngd_payer *const all[] = {payers->host, payers->device, payers->dumps};

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        if (all[i])
            all[i]->ops->unref(all[i]);
}

ngd_status_t ngd_charge_begin(struct ngd_charge *charge, struct ngd_payer *payer, uint64_t n, struct ngd_diag *diag)
{
    ngd_status_t status = payer ? payer->ops->take(payer, n, diag) : NGD_OK;

    *charge = (struct ngd_charge){0};
    if (status || !payer)
        return status;
    payer->ops->ref(payer);
    *charge = (struct ngd_charge){payer, n};
    return NGD_OK;
}

ngd_status_t ngd_charge_grow(struct ngd_charge *charge, uint64_t n, struct ngd_diag *diag)
{
    ngd_status_t status = charge->payer ? charge->payer->ops->take(charge->payer, n, diag) : NGD_OK;

    if (status == NGD_OK && charge->payer)
        charge->n += n;
    return status;
}

void ngd_charge_shrink(struct ngd_charge *charge, uint64_t n)
{
    if (!charge->payer)
        return;
    assert(n <= charge->n);
    charge->n -= n;
    charge->payer->ops->give(charge->payer, n);
}

void ngd_charge_end(struct ngd_charge *charge)
{
    struct ngd_charge c = ngd_charge_move(charge);

    if (!c.payer)
        return;
    c.payer->ops->give(c.payer, c.n);
    c.payer->ops->unref(c.payer);
}

struct ngd_charge ngd_charge_move(struct ngd_charge *from)
{
    struct ngd_charge c = *from;

    *from = (struct ngd_charge){0};
    return c;
}
