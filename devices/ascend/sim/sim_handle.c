/* SPDX-License-Identifier: Apache-2.0 */
/* The set of handles that are alive: open addressing by address, under sim.lock. */
#include "devices/ascend/sim/sim.h"
#include <stdlib.h>

struct entry {
    void *handle; /* NULL: never used; GONE: was used */
    sim_kind_t kind;
};

static struct entry *table;
static size_t room, used;

#define GONE ((void *)-1)

static size_t handle_slot_of(const void *handle, size_t n)
{
    return ((uintptr_t)handle >> 4) * (uintptr_t)0x9E3779B97F4A7C15u % n;
}

static void put_handle(struct entry *into, size_t n, struct entry e)
{
    size_t i = handle_slot_of(e.handle, n);

    while (into[i].handle && into[i].handle != GONE)
        i = (i + 1) % n;
    into[i] = e;
}

static void grow_handles(void)
{
    size_t n = room ? room * 2 : 256;
    struct entry *bigger = calloc(n, sizeof(*bigger));

    if (!bigger)
        abort();
    used = 0;
    for (size_t i = 0; i < room; i++) {
        if (table[i].handle && table[i].handle != GONE) {
            put_handle(bigger, n, table[i]);
            used++;
        }
    }
    free(table);
    table = bigger;
    room = n;
}

void sim_handle_add(void *handle, sim_kind_t kind)
{
    if (used * 2 >= room)
        grow_handles();
    put_handle(table, room, (struct entry){handle, kind});
    used++;
}

static struct entry *find_handle(const void *handle)
{
    if (!room || !handle || handle == GONE)
        return NULL;
    for (size_t i = handle_slot_of(handle, room); table[i].handle; i = (i + 1) % room)
        if (table[i].handle == handle)
            return &table[i];
    return NULL;
}

void sim_handle_remove(void *handle)
{
    struct entry *e = find_handle(handle);

    if (e)
        e->handle = GONE;
}

bool sim_handle_is(const void *handle, sim_kind_t kind)
{
    const struct entry *e = find_handle(handle);

    return e && e->kind == kind;
}
