/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_BASE_HEAP_H
#define NGD_BASE_HEAP_H

/*
 * Intrusive pairing heap: returns the first element by the owner's order. Insertion takes constant time, removal of any
 * element logarithmic time on average; nothing is allocated. To change an element's key, remove it and push it again.
 * Equal elements come in no particular order; make the order part of the key if you need one. The caller synchronises.
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
/* Returns NULL if the heap is empty. */
static inline struct ngd_heap_node *ngd_heap_first(const struct ngd_heap *heap)
{
    return heap->root;
}
void ngd_heap_push(struct ngd_heap *heap, struct ngd_heap_node *node);
void ngd_heap_remove(struct ngd_heap *heap, struct ngd_heap_node *node); /* node is in the heap */

#endif
