/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/json_text.h"
#include "base/mem.h"
#include <jansson.h>
#include <pthread.h>

void ngd_json_measure(const char *text, size_t n, size_t *values_p, size_t *depth_p)
{
    size_t values = 0, depth = 0, deepest = 0;
    bool quoted = false;

    for (size_t i = 0; i < n; i++) {
        const char c = text[i];

        if (quoted && c == '\\')
            i++;
        else if (c == '"')
            quoted = !quoted;
        else if (!quoted) {
            values += c == ',' || c == ':' || c == '[' || c == '{';
            depth += c == '[' || c == '{';
            depth -= depth > 0 && (c == ']' || c == '}');
            deepest = depth > deepest ? depth : deepest;
        }
    }
    *values_p = values;
    *depth_p = deepest;
}

/* Set by a failed allocation. jansson tells it from a mistake in the text at some places only, so each failure is
 * noted, by thread. */
static _Thread_local bool no_memory;

static void *json_malloc(size_t n)
{
    void *p = ngd_malloc(n);

    no_memory |= !p;
    return p;
}

static void set_allocator(void)
{
    json_set_alloc_funcs(json_malloc, ngd_free);
}

ngd_status_t ngd_json_object(const char *text, size_t n, json_t **root_p, struct ngd_diag *diag)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    json_error_t e;
    json_t *root;

    pthread_once(&once, set_allocator);
    no_memory = false;
    root = json_loadb(text, n, JSON_REJECT_DUPLICATES, &e);
    if (json_is_object(root) && !no_memory) {
        *root_p = root;
        return NGD_OK;
    }
    json_decref(root);
    if (no_memory)
        return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory for JSON of %zu bytes", n);
    return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT, "not a JSON object: %s", root ? "another type" : e.text);
}
