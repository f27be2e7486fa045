/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_TESTS_UNIT_PURSE_H
#define NGD_TESTS_UNIT_PURSE_H

/* A payer with a limit, which counts its references. Threads: one. */
#include "base/charge.h"
#include "base/list.h"

struct purse {
    struct ngd_payer base;
    uint64_t used, limit;
    int refs;
};

static inline ngd_status_t purse_take(struct ngd_payer *payer, uint64_t n, struct ngd_diag *diag)
{
    struct purse *p = ngd_container_of(payer, struct purse, base);

    if (p->used + n > p->limit)
        return ngd_diag_set(diag, NGD_ERR_QUOTA, "no more");
    p->used += n;
    return NGD_OK;
}
static inline void purse_give(struct ngd_payer *payer, uint64_t n)
{
    ngd_container_of(payer, struct purse, base)->used -= n;
}
static inline void purse_ref(struct ngd_payer *payer)
{
    ngd_container_of(payer, struct purse, base)->refs++;
}
static inline void purse_unref(struct ngd_payer *payer)
{
    ngd_container_of(payer, struct purse, base)->refs--;
}
static const struct ngd_payer_ops purse_ops = {purse_take, purse_give, purse_ref, purse_unref};

#endif
