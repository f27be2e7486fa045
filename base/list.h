/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_BASE_LIST_H
#define NGD_BASE_LIST_H

/* Intrusive circular doubly linked list. The caller synchronises. */
#include <stdbool.h>
#include <stddef.h>

struct ngd_list {
    struct ngd_list *prev, *next;
};

#define ngd_container_of(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))

static inline void ngd_list_init(struct ngd_list *l)
{
    l->prev = l->next = l;
}
static inline bool ngd_list_empty(const struct ngd_list *l)
{
    return l->next == l;
}
static inline void ngd_list_insert_before(struct ngd_list *at, struct ngd_list *e)
{
    e->prev = at->prev;
    e->next = at;
    at->prev->next = e;
    at->prev = e;
}
static inline void ngd_list_push_back(struct ngd_list *l, struct ngd_list *e)
{
    ngd_list_insert_before(l, e);
}
static inline void ngd_list_push_front(struct ngd_list *l, struct ngd_list *e)
{
    ngd_list_insert_before(l->next, e);
}
/* Safe on an element that is in no list but was initialised. */
static inline void ngd_list_remove(struct ngd_list *e)
{
    e->prev->next = e->next;
    e->next->prev = e->prev;
    e->prev = e->next = e;
}
static inline struct ngd_list *ngd_list_pop_front(struct ngd_list *l)
{
    struct ngd_list *e = l->next;

    if (e == l)
        return NULL;
    ngd_list_remove(e);
    return e;
}
#define ngd_list_for_each(pos, head) for (struct ngd_list *pos = (head)->next; pos != (head); pos = pos->next)
#define ngd_list_for_each_safe(pos, tmp, head) \
    for (struct ngd_list *pos = (head)->next, *tmp = pos->next; pos != (head); pos = tmp, tmp = pos->next)

#endif
