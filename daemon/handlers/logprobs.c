/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/handlers/logprobs.h"

#include "base/mem.h"

/* One entry, with room for the most tokens that it can name. */
struct entry {
    Npugraph__V1__Logprobs message;
    Npugraph__V1__TokenLogprob top[NGD_LOGPROBS_MAX];
    Npugraph__V1__TokenLogprob *top_list[NGD_LOGPROBS_MAX];
};

static void fill_logprob_entry(struct entry *e, const struct ngd_logprobs *lp)
{
    npugraph__v1__logprobs__init(&e->message);
    e->message.token = lp->token;
    e->message.logprob = lp->logprob;
    e->message.top = e->top_list;
    e->message.n_top = lp->n_top;
    for (uint32_t i = 0; i < lp->n_top; i++) {
        npugraph__v1__token_logprob__init(&e->top[i]);
        e->top[i].token = lp->top[i].token;
        e->top[i].logprob = lp->top[i].logprob;
        e->top_list[i] = &e->top[i];
    }
}

ngd_status_t ngd_logprob_list_make(const struct ngd_logprobs *lp, size_t n, struct ngd_logprob_list *list_p)
{
    struct entry *entries;

    *list_p = (struct ngd_logprob_list){0};
    if (!lp || !n)
        return NGD_OK;
    entries = ngd_calloc(n, sizeof(*entries) + sizeof(*list_p->items));
    if (!entries)
        return NGD_ERR_NO_MEMORY;
    list_p->items = (Npugraph__V1__Logprobs **)(void *)(entries + n);
    list_p->n = n;
    for (size_t i = 0; i < n; i++) {
        fill_logprob_entry(&entries[i], &lp[i]);
        list_p->items[i] = &entries[i].message;
    }
    return NGD_OK;
}

void ngd_logprob_list_free(struct ngd_logprob_list *list)
{
    if (list->n)
        ngd_free(list->items[0]); /* the first entry's message is the beginning of the allocation */
    *list = (struct ngd_logprob_list){0};
}

void ngd_logprobs_of_message(const Npugraph__V1__Logprobs *m, struct ngd_logprobs *lp)
{
    *lp = (struct ngd_logprobs){.token = m->token, .logprob = m->logprob};
    for (; lp->n_top < m->n_top && lp->n_top < NGD_LOGPROBS_MAX; lp->n_top++) {
        lp->top[lp->n_top].token = m->top[lp->n_top]->token;
        lp->top[lp->n_top].logprob = m->top[lp->n_top]->logprob;
    }
}
