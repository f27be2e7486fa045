/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/graph_names.h"

#include "base/lock.h"
#include "base/mem.h"
#include "daemon/identity.h"
#include "daemon/object.h"
#include "daemon/session_move.h"
#include <string.h>

#define CHAINS 1024 /* a power of two */

struct ngd_graph_names {
    struct ngd_mutex lock;
    struct ngd_list chains[CHAINS] NGD_GUARDED_BY(lock);
    void (*removed)(void *ctx, const struct ngd_graph_object *object); /* NULL: nobody watches */
    void *ctx;
};

ngd_status_t ngd_graph_names_create(struct ngd_graph_names **names_p)
{
    struct ngd_graph_names *names = NGD_NEW(struct ngd_graph_names);

    if (!names)
        return NGD_ERR_NO_MEMORY;
    ngd_mutex_init(&names->lock, NGD_RANK_GRAPH_NAMES);
    ngd_mutex_lock(&names->lock);
    for (size_t i = 0; i < CHAINS; i++)
        ngd_list_init(&names->chains[i]);
    ngd_mutex_unlock(&names->lock);
    *names_p = names;
    return NGD_OK;
}

void ngd_graph_names_destroy(struct ngd_graph_names *names)
{
    if (!names)
        return;
    ngd_mutex_fini(&names->lock);
    ngd_free(names);
}

/* FNV-1a, from the owner's key, which nobody can guess. */
static size_t chain_of(uint64_t owner, const char *name)
{
    uint64_t h = owner;

    for (; *name; name++)
        h = (h ^ (uint8_t)*name) * UINT64_C(0x100000001b3);
    return (size_t)(h ^ h >> 32) & (CHAINS - 1);
}

/* The name of a graph never changes, whatever it is bound to. The object's binding must not be replaced meanwhile. */
static const char *graph_name_of(const struct ngd_binding *binding)
{
    return ngd_program_graph(ngd_binding_program(binding))->name;
}

void ngd_graph_names_add(struct ngd_graph_names *names, struct ngd_session *session, struct ngd_graph_object *object)
{
    struct ngd_graph_name *entry = &object->name;
    struct ngd_binding *binding = ngd_graph_object_binding(object);
    const char *name = graph_name_of(binding);

    if (name && *name) {
        entry->session = session;
        entry->owner = ngd_session_identity(session)->key;
        ngd_mutex_lock(&names->lock);
        entry->table = names;
        ngd_list_push_front(&names->chains[chain_of(entry->owner, name)], &entry->link);
        ngd_mutex_unlock(&names->lock);
    }
    ngd_binding_unref(binding);
}

void ngd_graph_names_remove(struct ngd_graph_object *object)
{
    struct ngd_graph_names *names = object->name.table;

    if (!names)
        return;
    ngd_mutex_lock(&names->lock);
    ngd_list_remove(&object->name.link);
    ngd_mutex_unlock(&names->lock);
    object->name.table = NULL;
    if (names->removed)
        names->removed(names->ctx, object);
}

bool ngd_graph_is_named(const struct ngd_graph_object *object)
{
    return object->name.table != NULL;
}

void ngd_graph_names_watch(struct ngd_graph_names *names, void (*fn)(void *ctx, const struct ngd_graph_object *object),
                           void *ctx)
{
    names->removed = fn;
    names->ctx = ctx;
}

struct ngd_graph_found ngd_graph_found_ref(const struct ngd_graph_found *found)
{
    ngd_object_ref(&found->object->base);
    ngd_binding_ref(found->binding);
    ngd_session_ref(found->session);
    return *found;
}

void ngd_graph_found_end(struct ngd_graph_found *found)
{
    ngd_binding_unref(found->binding);
    ngd_object_unref(found->object ? &found->object->base : NULL);
    ngd_session_unref(found->session);
    *found = (struct ngd_graph_found){0};
}

/* What is looked for in a chain. */
struct wanted {
    const struct ngd_graph_names_scope *scope;
    const char *name;
    void (*fn)(void *ctx, const struct ngd_graph_found *borrowed);
    void *ctx;
};

static bool is_in_scope(const struct ngd_graph_name *entry, const struct ngd_graph_names_scope *scope)
{
    /* A graph whose session moves is found in the next daemon: a replay here could change states that are gone. */
    return entry->owner == scope->who->key && (!scope->session || entry->session == scope->session) &&
           !ngd_session_is_frozen(entry->session);
}

static void search_chain(const struct ngd_list *chain, const struct wanted *w)
{
    ngd_list_for_each (pos, chain) {
        struct ngd_graph_name *entry = ngd_container_of(pos, struct ngd_graph_name, link);
        struct ngd_graph_object *object = ngd_container_of(entry, struct ngd_graph_object, name);
        struct ngd_graph_found found = {.object = object, .session = entry->session};

        if (!is_in_scope(entry, w->scope))
            continue;
        found.binding = ngd_graph_object_binding(object);
        if (!*w->name || strcmp(graph_name_of(found.binding), w->name) == 0)
            w->fn(w->ctx, &found);
        ngd_binding_unref(found.binding);
    }
}

void ngd_graph_names_for_each(struct ngd_graph_names *names, const struct ngd_graph_names_scope *scope,
                              const char *name, void (*fn)(void *ctx, const struct ngd_graph_found *borrowed),
                              void *ctx)
{
    const struct wanted w = {.scope = scope, .name = name, .fn = fn, .ctx = ctx};
    const size_t first = *name ? chain_of(scope->who->key, name) : 0, end = *name ? first + 1 : CHAINS;

    ngd_mutex_lock(&names->lock);
    for (size_t i = first; i < end; i++)
        search_chain(&names->chains[i], &w);
    ngd_mutex_unlock(&names->lock);
}

struct newest {
    uint64_t generation; /* the one that is wanted; 0: the newest */
    struct ngd_graph_found found;
};

static void keep_newest(void *ctx, const struct ngd_graph_found *borrowed)
{
    struct newest *n = ctx;
    const uint64_t generation = ngd_binding_generation(borrowed->binding);
    const bool fits = n->generation ? generation == n->generation
                                    : !n->found.binding || generation > ngd_binding_generation(n->found.binding);

    if (!fits)
        return;
    ngd_graph_found_end(&n->found);
    n->found = ngd_graph_found_ref(borrowed);
}

bool ngd_graph_names_find(struct ngd_graph_names *names, const struct ngd_graph_names_scope *scope, const char *name,
                          uint64_t generation, struct ngd_graph_found *found_p)
{
    struct newest n = {.generation = generation};

    if (!*name)
        return false;
    ngd_graph_names_for_each(names, scope, name, keep_newest, &n);
    *found_p = n.found;
    return n.found.object != NULL;
}
