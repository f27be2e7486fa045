/* SPDX-License-Identifier: Apache-2.0 */
#include "base/heap.h"

/* Makes the later of two roots the first child of the other. */
static struct ngd_heap_node *meld(const struct ngd_heap *heap, struct ngd_heap_node *a, struct ngd_heap_node *b)
{
    if (!a)
        return b;
    if (!b)
        return a;
    if (heap->before(b, a)) {
        struct ngd_heap_node *t = a;

        a = b;
        b = t;
    }
    b->next = a->child;
    if (b->next)
        b->next->prev = b;
    b->prev = a;
    a->child = b;
    return a;
}

/* Melds a list of siblings into one heap: in pairs from left to right, then the pairs from right to left. */
static struct ngd_heap_node *meld_siblings(const struct ngd_heap *heap, struct ngd_heap_node *node)
{
    struct ngd_heap_node *pairs = NULL, *root = NULL;

    while (node) {
        struct ngd_heap_node *a = node, *b = a->next;

        node = b ? b->next : NULL;
        a->prev = a->next = NULL;
        if (b)
            b->prev = b->next = NULL;
        a = meld(heap, a, b);
        a->next = pairs;
        pairs = a;
    }
    while (pairs) {
        struct ngd_heap_node *next = pairs->next;

        pairs->next = NULL;
        root = meld(heap, root, pairs);
        pairs = next;
    }
    return root;
}

void ngd_heap_push(struct ngd_heap *heap, struct ngd_heap_node *node)
{
    *node = (struct ngd_heap_node){0};
    heap->root = meld(heap, heap->root, node);
}

void ngd_heap_remove(struct ngd_heap *heap, struct ngd_heap_node *node)
{
    struct ngd_heap_node *rest = meld_siblings(heap, node->child);

    if (node == heap->root) {
        heap->root = rest;
    } else {
        if (node->prev->child == node)
            node->prev->child = node->next;
        else
            node->prev->next = node->next;
        if (node->next)
            node->next->prev = node->prev;
        heap->root = meld(heap, heap->root, rest);
    }
    *node = (struct ngd_heap_node){0};
}
