/* SPDX-License-Identifier: Apache-2.0 */
/* Reads recorded arrivals: a text file with one arrival a line, in the format that docs/operations.md describes. */
#include "base/mem.h"
#include "bench/sim/sim.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define LINE_MAX_BYTES 512

struct reader {
    struct sim_arrivals *a;
    size_t room;
    char **names; /* of the clients, as "device identity" */
    char **devices;
    uint32_t names_room;
    char *error;
    size_t error_room;
    uint64_t line;
};

static bool wrong(struct reader *r, const char *what)
{
    snprintf(r->error, r->error_room, "line %" PRIu64 ": %s", r->line, what);
    return false;
}

static bool find_device(struct reader *r, const char *name, uint32_t *device_p)
{
    for (*device_p = 0; *device_p < r->a->n_devices; ++*device_p)
        if (strcmp(r->devices[*device_p], name) == 0)
            return true;
    r->devices[r->a->n_devices] = ngd_strdup(name);
    return r->devices[r->a->n_devices++] != NULL;
}

static bool grow_clients(struct reader *r)
{
    const uint32_t room = r->names_room ? 2 * r->names_room : 64;
    void *names = ngd_realloc(r->names, room * sizeof(*r->names)), *devices, *clients;

    if (names)
        r->names = names;
    devices = names ? ngd_realloc(r->devices, room * sizeof(*r->devices)) : NULL;
    if (devices)
        r->devices = devices;
    clients = devices ? ngd_realloc(r->a->clients, room * sizeof(*r->a->clients)) : NULL;
    if (!clients)
        return false;
    r->a->clients = clients;
    r->names_room = room;
    return true;
}

static bool find_client(struct reader *r, const char *device, const char *who, uint32_t weight, uint32_t *client_p)
{
    char name[LINE_MAX_BYTES + 80];

    snprintf(name, sizeof(name), "%s %s", device, who);
    for (*client_p = 0; *client_p < r->a->n_clients; ++*client_p)
        if (strcmp(r->names[*client_p], name) == 0)
            return true;
    if (r->a->n_clients == r->names_room && !grow_clients(r))
        return wrong(r, "no memory");
    r->names[r->a->n_clients] = ngd_strdup(name);
    r->a->clients[r->a->n_clients].weight = weight;
    if (!r->names[r->a->n_clients] || !find_device(r, device, &r->a->clients[r->a->n_clients].device))
        return wrong(r, "no memory");
    r->a->n_clients++;
    return true;
}

static bool read_arrival_line(struct reader *r, const char *text)
{
    double at, length, expected, deadline = -1;
    char by[40], device[64], who[LINE_MAX_BYTES], *end;
    unsigned priority, weight;
    struct sim_arrival *item;

    if (sscanf(text, "%lf %lf %lf %39s %u %u %63s %511[^\n]", &at, &length, &expected, by, &priority, &weight, device,
               who) != 8)
        return wrong(r,
                     "it must have eight fields: at, length, expected, deadline, priority, weight, device, identity");
    if (strcmp(by, "-") != 0)
        deadline = strtod(by, &end);
    if (!(at >= 0 && at < 1e15 && length >= 0 && length < 1e15 && expected >= 0 && expected < 1e15) ||
        (strcmp(by, "-") != 0 && (end == by || *end != '\0' || !(deadline > -1e15 && deadline < 1e15))))
        return wrong(r, "a time is out of range");
    if (priority >= NGD_PRIORITIES || weight < 1 || weight > NGD_WEIGHT_MAX)
        return wrong(r, "the priority must be 0 to 2, and the weight 1 to 1000");
    if (r->a->n == r->room) {
        void *items = ngd_realloc(r->a->items, (r->room ? 2 * r->room : 1024) * sizeof(*r->a->items));

        if (!items)
            return wrong(r, "no memory");
        r->a->items = items;
        r->room = r->room ? 2 * r->room : 1024;
    }
    item = &r->a->items[r->a->n];
    *item = (struct sim_arrival){.at = (ngd_nsec_t)(at * 1e3),
                                 .length = (ngd_nsec_t)(length * 1e3) + 1,
                                 .cost = (ngd_nsec_t)(expected * 1e3),
                                 .deadline = strcmp(by, "-") == 0 ? NGD_NSEC_NEVER : (ngd_nsec_t)(deadline * 1e3),
                                 .priority = (ngd_priority_t)priority};
    if (!find_client(r, device, who, weight, &item->client))
        return false;
    r->a->n++;
    return true;
}

/* The file has the arrivals in the order in which their replays ended. */
static int compare_arrivals(const void *a, const void *b)
{
    const ngd_nsec_t x = ((const struct sim_arrival *)a)->at, y = ((const struct sim_arrival *)b)->at;

    return (x > y) - (x < y);
}

static bool read_all_arrivals(struct reader *r, FILE *f)
{
    char line[LINE_MAX_BYTES];

    r->line = 1;
    if (!fgets(line, sizeof(line), f) || strcmp(line, "npugraph-arrivals 1\n") != 0)
        return wrong(r, "it is not \"npugraph-arrivals 1\"");
    while (fgets(line, sizeof(line), f)) {
        r->line++;
        if (!strchr(line, '\n'))
            return wrong(r, "it is too long or incomplete");
        if (line[0] != '#' && !read_arrival_line(r, line))
            return false;
    }
    if (ferror(f) || r->a->n == 0)
        return wrong(r, "there are no arrivals");
    qsort(r->a->items, r->a->n, sizeof(*r->a->items), compare_arrivals);
    return true;
}

bool sim_arrivals_read(FILE *f, struct sim_arrivals *arrivals_p, char *error, size_t room)
{
    struct reader r = {.a = arrivals_p, .error = error, .error_room = room};
    bool ok;

    memset(arrivals_p, 0, sizeof(*arrivals_p));
    ok = read_all_arrivals(&r, f);
    for (uint32_t i = 0; i < arrivals_p->n_clients; i++)
        ngd_free(r.names[i]);
    for (uint32_t i = 0; i < arrivals_p->n_devices; i++)
        ngd_free(r.devices[i]);
    ngd_free(r.names);
    ngd_free(r.devices);
    if (!ok)
        sim_arrivals_free(arrivals_p);
    return ok;
}

void sim_arrivals_free(struct sim_arrivals *arrivals)
{
    ngd_free(arrivals->items);
    ngd_free(arrivals->clients);
    memset(arrivals, 0, sizeof(*arrivals));
}
