/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_BASE_NEAREST_H
#define NGD_BASE_NEAREST_H

/*
 * Finds the name that a misspelt word most likely means, for errors that say "did you mean listen?".
 *
 * Usage: ngd_nearest_init, ngd_nearest_add for each name that is allowed, then ngd_nearest_hint.
 * Threads: none. Memory: borrows the word and the names.
 * Bounds: words and names of more than 64 bytes are not compared.
 */
#include <stddef.h>

struct ngd_nearest {
    const char *word, *name; /* name: the nearest one so far; NULL: none is near */
    size_t word_len, name_len;
    unsigned best; /* a nearer name has fewer wrong letters than this */
};

void ngd_nearest_init(struct ngd_nearest *n, const char *word, size_t len);
void ngd_nearest_add(struct ngd_nearest *n, const char *name);
/* Adds each word of a list that is separated by spaces. */
void ngd_nearest_add_words(struct ngd_nearest *n, const char *list);
/* Writes " (did you mean listen?)", or "" if no name is near. `before` stands before the name, as in "--". Returns to.
 */
const char *ngd_nearest_hint(const struct ngd_nearest *n, const char *before, char *to, size_t room);

#endif
