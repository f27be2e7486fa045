/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_BASE_HEAP_H
#define NGD_BASE_HEAP_H

/*
 * Intrusive pairing heap: the first element by an order that the owner gives. Insertion is constant, removal of any
 * element logarithmic on average; nothing is allocated. An element whose key changes is removed and pushed again.
 * Equal elements come in no particular order: who wants one makes it part of the key. The caller synchronises.
 */
#include "base/list.h"

struct ngd_heap_node {
    struct ngd_heap_node *child; /* first of the children */
    struct ngd_heap_node *next;  /* sibling to the right */
    struct ngd_heap_node *prev;  /* sibling to the left, or the parent of the first child */
};

struct ngd_heap {
    struct ngd_heap_node *root;
    bool (*before)(const struct ngd_heap_node *a, const struct ngd_heap_node *b);
};

static inline void ngd_heap_init(struct ngd_heap *heap,
                                 bool (*before)(const struct ngd_heap_node *a, const struct ngd_heap_node *b))
{
    heap->root = NULL;
    heap->before = before;
}
static inline bool ngd_heap_empty(const struct ngd_heap *heap)
{
    return !heap->root;
}
/* NULL: empty. */
static inline struct ngd_heap_node *ngd_heap_first(const struct ngd_heap *heap)
{
    return heap->root;
}
void ngd_heap_push(struct ngd_heap *heap, struct ngd_heap_node *node);
void ngd_heap_remove(struct ngd_heap *heap, struct ngd_heap_node *node); /* of an element that is in it */

#endif
