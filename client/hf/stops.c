/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stop strings. `text` has the text that was not shown yet. After each piece it is searched for the stop string that
 * begins first. Everything is shown except the longest suffix that a stop string could begin with. While that suffix
 * begins before the stop string that was found, the text goes on: the longer one would cut earlier. The suffix is
 * shorter than the longest stop string, so the cost of a piece is at most its length times that of the strings.
 */
#include "client/hf/npugraph_hf.h"
#include "client/lib/error.h"

#include <stdlib.h>
#include <string.h>

struct npugraph_stops {
    size_t n;
    char *strings[NPUGRAPH_STOPS_MAX];
    size_t lengths[NPUGRAPH_STOPS_MAX];
    char *text; /* [0, shown) was shown and is dropped by the next call; [shown, size) is held back */
    size_t shown, size, room;
    bool met;
};

static int check_stops(const char *const *strings, size_t n, struct npugraph_error *err)
{
    if (n > NPUGRAPH_STOPS_MAX)
        return npugraph__error(err, 3, "INVALID_ARGUMENT", "%zu stop strings; at most %d can be looked for", n,
                               NPUGRAPH_STOPS_MAX);
    for (size_t i = 0; i < n; i++) {
        if (strings[i][0] == '\0')
            return npugraph__error(err, 3, "INVALID_ARGUMENT", "stop string %zu is empty", i + 1);
        if (strnlen(strings[i], NPUGRAPH_STOP_LENGTH_MAX + 1) > NPUGRAPH_STOP_LENGTH_MAX)
            return npugraph__error(err, 3, "INVALID_ARGUMENT", "stop string %zu is longer than %d bytes", i + 1,
                                   NPUGRAPH_STOP_LENGTH_MAX);
    }
    return 0;
}

int npugraph_stops_create(const char *const *strings, size_t n, struct npugraph_stops **stops_p,
                          struct npugraph_error *err)
{
    struct npugraph_stops *s;
    int rc = check_stops(strings, n, err);

    if (rc != 0)
        return rc;
    s = calloc(1, sizeof(*s));
    for (; s != NULL && s->n < n; s->n++) {
        s->strings[s->n] = strdup(strings[s->n]);
        if (s->strings[s->n] == NULL)
            break;
        s->lengths[s->n] = strlen(strings[s->n]);
    }
    if (s == NULL || s->n < n) {
        npugraph_stops_destroy(s);
        return npugraph__error(err, 8, "NO_MEMORY", "out of memory");
    }
    *stops_p = s;
    return 0;
}

void npugraph_stops_destroy(struct npugraph_stops *s)
{
    if (s == NULL)
        return;
    for (size_t i = 0; i < s->n; i++)
        free(s->strings[i]);
    free(s->text);
    free(s);
}

/* Returns where the first stop string begins, `size` if there is none. */
static size_t find_stop(const struct npugraph_stops *s)
{
    for (size_t at = 0; at < s->size; at++)
        for (size_t i = 0; i < s->n; i++)
            if (s->lengths[i] <= s->size - at && memcmp(s->text + at, s->strings[i], s->lengths[i]) == 0)
                return at;
    return s->size;
}

/* Returns where the longest suffix begins that is the beginning of a stop string. */
static size_t find_beginning(const struct npugraph_stops *s)
{
    for (size_t at = 0; at < s->size; at++)
        for (size_t i = 0; i < s->n; i++)
            if (s->size - at < s->lengths[i] && memcmp(s->text + at, s->strings[i], s->size - at) == 0)
                return at;
    return s->size;
}

static bool append_held(struct npugraph_stops *s, const char *piece, size_t n)
{
    memmove(s->text, s->text + s->shown, s->size - s->shown);
    s->size -= s->shown;
    s->shown = 0;
    if (s->room - s->size < n) {
        char *more = realloc(s->text, s->size + n);

        if (more == NULL)
            return false;
        s->text = more;
        s->room = s->size + n;
    }
    memcpy(s->text + s->size, piece, n);
    s->size += n;
    return true;
}

bool npugraph_stops_add(struct npugraph_stops *s, const char *piece, size_t n, const char **text_p, size_t *n_p)
{
    size_t end, beginning;

    *text_p = "";
    *n_p = 0;
    if (s->met || n == 0)
        return s->met;
    if (s->text == NULL && (s->text = malloc(1)) != NULL)
        s->room = 1;
    if (s->text == NULL || !append_held(s, piece, n))
        return s->met = true; /* without memory the search cannot continue, so the text ends here */
    end = find_stop(s);
    beginning = find_beginning(s);
    s->met = end < s->size && end <= beginning;
    if (!s->met)
        end = beginning;
    *text_p = s->text;
    *n_p = s->shown = end;
    return s->met;
}

bool npugraph_stops_end(struct npugraph_stops *s, const char **text_p, size_t *n_p)
{
    size_t end;

    *text_p = "";
    *n_p = 0;
    if (s->met || s->text == NULL)
        return s->met;
    append_held(s, "", 0); /* drops what was shown; needs no memory */
    end = find_stop(s);
    *text_p = s->text;
    *n_p = end;
    s->met = true;
    return end < s->size;
}
