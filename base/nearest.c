/* SPDX-License-Identifier: Apache-2.0 */
#include "base/nearest.h"
#include <stdio.h>
#include <string.h>

enum { NAME_MAX_BYTES = 64 };

void ngd_nearest_init(struct ngd_nearest *n, const char *word, size_t len)
{
    /* A typing error is one or two letters, or a quarter of a long word. In a short word, two would make any other word
     * of it. */
    const size_t wrong = len < 4 ? 1 : len < 8 ? 2 : len / 4;

    *n = (struct ngd_nearest){.word = word, .word_len = len, .best = (unsigned)wrong + 1};
}

/* Returns the edit distance of two names of at most NAME_MAX_BYTES. */
static unsigned typing_distance(const char *a, size_t na, const char *b, size_t nb)
{
    unsigned row[NAME_MAX_BYTES + 1];

    for (size_t j = 0; j <= nb; j++)
        row[j] = (unsigned)j;
    for (size_t i = 1; i <= na; i++) {
        unsigned diagonal = row[0];

        row[0] = (unsigned)i;
        for (size_t j = 1; j <= nb; j++) {
            unsigned best = diagonal + (a[i - 1] != b[j - 1]);

            diagonal = row[j];
            if (row[j] + 1 < best)
                best = row[j] + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            row[j] = best;
        }
    }
    return row[nb];
}

static void add_name(struct ngd_nearest *n, const char *name, size_t len)
{
    unsigned d;

    if (n->word_len > NAME_MAX_BYTES || len > NAME_MAX_BYTES)
        return;
    d = typing_distance(n->word, n->word_len, name, len);
    if (d >= n->best)
        return;
    n->best = d;
    n->name = name;
    n->name_len = len;
}

void ngd_nearest_add(struct ngd_nearest *n, const char *name)
{
    add_name(n, name, strlen(name));
}

void ngd_nearest_add_words(struct ngd_nearest *n, const char *list)
{
    for (const char *p = list + strspn(list, " "); *p != '\0';) {
        size_t len = strcspn(p, " ");

        add_name(n, p, len);
        p += len;
        p += strspn(p, " ");
    }
}

const char *ngd_nearest_hint(const struct ngd_nearest *n, const char *before, char *to, size_t room)
{
    if (n->name != NULL)
        snprintf(to, room, " (did you mean %s%.*s?)", before, (int)n->name_len, n->name);
    else
        to[0] = '\0';
    return to;
}
