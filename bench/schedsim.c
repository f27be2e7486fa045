/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs the scheduler's policies on virtual time (bench/sim/sim.h), for numbers of devices and clients that cannot be
 * tested on a real machine. Without arguments it runs the cases that docs/benchmarks.md describes. With arguments it
 * runs one case; see schedsim --help.
 */
#include "bench/sim/sim.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void print_classes(const struct sim_result *r)
{
    printf("  %-8s %8s %12s %10s %22s %12s %12s\n", "weight", "clients", "device s", "share", "client / its part",
           "p50 ms", "p99 ms");
    for (uint32_t k = 0; k < r->n_classes; k++) {
        const struct sim_class *c = &r->classes[k];
        double all = 0;

        for (uint32_t i = 0; i < r->n_classes; i++)
            all += r->classes[i].used;
        printf("  %-8u %8u %12.3f %9.2f%% %13.3f..%-7.3f %12.3f %12.3f\n", c->weight, c->clients, c->used,
               100 * c->used / all, c->least, c->most, (double)c->p50 * 1e-6, (double)c->p99 * 1e-6);
    }
}

static void run_case(const char *title, const struct sim_params *p)
{
    static struct sim_result r;

    printf("%s: %u clients on %u devices of %u slots, policy %s, load %.0f %%, %.0f s\n", title, p->clients, p->devices,
           p->slots, p->policy, p->backlogged ? 100.0 : 100 * p->load, p->seconds);
    sim_run(p, &r);
    print_classes(&r);
    printf("  devices busy %.1f %%; %llu requests, %llu replays, %llu events in %.2f s\n", 100 * r.busy,
           (unsigned long long)r.requests, (unsigned long long)r.replays, (unsigned long long)r.events, r.wall);
    for (uint32_t k = 0; k < r.n_classes; k++)
        if (p->caps[k])
            printf("  of weight %u, capped at %u %%: at most %.2f %% of its device's time for one client\n",
                   r.classes[k].weight, p->caps[k], 100 * r.classes[k].most_share);
    if (r.with_deadline) {
        printf("  deadlines: %llu requests, refused %.1f %%; of those taken, %.2f %% missed",
               (unsigned long long)r.with_deadline, 100.0 * (double)r.refused / (double)r.with_deadline,
               100.0 * (double)r.missed / (double)(r.with_deadline - r.refused));
        if (r.refused)
            printf("; at most %.1f %% of those refused could have been done", 100 * r.wrongly_refused);
        printf("\n");
    }
    printf("\n");
}

static void run_cases(void)
{
    struct sim_params p;

    sim_params_init(&p);
    p.clients = 30;
    p.backlogged = true;
    p.seconds = 30;
    p.n_weights = 3;
    p.weights[0] = 100, p.weights[1] = 200, p.weights[2] = 400;
    run_case("weights 1:2:4, all backlogged", &p);
    sim_params_init(&p);
    p.clients = 40;
    p.load = 1.5;
    p.seconds = 20;
    p.deadline_share = 1;
    run_case("deadlines at 150 % load", &p);
    p.slots = 4;
    run_case("deadlines at 150 % load, four slots", &p);
    sim_params_together(&p);
    p.slots = 1;
    p.seconds = 2;
    p.deadline_max = 60;
    run_case("deadlines at 150 % load, run together in buckets of 1, 4 and 16", &p);
    p.slots = 2;
    run_case("deadlines at 150 % load, run together, two slots", &p);
    sim_params_init(&p);
    p.clients = 8;
    p.load = 3;
    p.seconds = 20;
    p.n_weights = 2;
    p.weights[0] = 100, p.weights[1] = 200;
    p.caps[1] = 5;
    run_case("four of eight clients capped at 5 % of a device, 300 % load", &p);
    sim_params_init(&p);
    p.clients = 10000;
    p.devices = 64;
    p.slots = 2;
    p.load = 0.9;
    p.deadline_share = 0.3;
    p.n_weights = 3;
    p.weights[0] = 100, p.weights[1] = 200, p.weights[2] = 400;
    run_case("10,000 clients on 64 devices", &p);
    p.load = 1.5;
    p.deadline_share = 0;
    run_case("10,000 clients on 64 devices, overloaded", &p);
}

/* ---- one case ----------------------------------------------------------------------------------------- */

static void usage(FILE *f)
{
    fputs("usage: schedsim [NAME=VALUE ...]\n"
          "  policy=fair|fifo  devices=N  slots=N  clients=N  seconds=S  load=X  mean_us=N  spread=X\n"
          "  deadlines=0..1  deadline_min=X  deadline_max=X (in lengths)  backlogged=0|1  weights=A,B,...  seed=N\n"
          "  caps=A,B,...   for each of the weights, the percent of a device's time that one client may have\n"
          "                 (max-device-share-per-identity); 0 is no cap\n"
          "  buckets=A,B,... graphs=N row_part=X\n"
          "                 clients' requests for one of N graphs on a device run together in these buckets of rows;\n"
          "                 each row above the first bucket adds X of the time of a replay alone;\n"
          "                 load is then relative to full replays\n"
          "  arrivals=FILE  replay what a daemon recorded (npugraphctl trace stop --form arrivals);\n"
          "                 clients, devices, weights and the time come from FILE, the rest may be chosen\n"
          "Without arguments, the cases of docs/benchmarks.md are run.\n",
          f);
}

/*
 * Reads up to eight whole numbers separated by commas. Returns how many there are, or 0 if the value is not such a
 * list.
 */
static uint32_t read_list(const char *value, long min, long max, long *list)
{
    uint32_t n = 0;

    while (n < 8) {
        char *end;

        list[n] = strtol(value, &end, 10);
        if (end == value || list[n] < min || list[n] > max)
            return 0;
        n++;
        if (*end != ',')
            return *end == '\0' ? n : 0;
        value = end + 1;
    }
    return 0;
}

static bool set_weights(struct sim_params *p, const char *value)
{
    long list[8];

    p->n_weights = read_list(value, 1, NGD_WEIGHT_MAX, list);
    for (uint32_t i = 0; i < p->n_weights; i++)
        p->weights[i] = (uint32_t)list[i];
    return p->n_weights > 0;
}

static bool set_caps(struct sim_params *p, const char *value)
{
    long list[8];
    const uint32_t n = read_list(value, 0, 100, list);

    for (uint32_t i = 0; i < n; i++)
        p->caps[i] = (uint32_t)list[i];
    return n > 0;
}

static bool set_bucket_list(struct sim_params *p, const char *value)
{
    long list[8];

    p->n_buckets = read_list(value, 1, 1000000, list);
    for (uint32_t i = 0; i < p->n_buckets; i++) {
        p->buckets[i] = list[i];
        if (i > 0 && list[i] <= list[i - 1])
            return false;
    }
    return p->n_buckets > 0;
}

static bool set_number_param(struct sim_params *p, const char *name, double v)
{
    struct {
        const char *name;
        uint32_t *u;
        double *d;
        double min, max;
    } const rows[] = {
        {"devices", &p->devices, NULL, 1, 4096},
        {"slots", &p->slots, NULL, 1, 64},
        {"clients", &p->clients, NULL, 1, 1e6},
        {"graphs", &p->graphs, NULL, 1, 1e4},
        {"row_part", NULL, &p->row_part, 0, 1},
        {"seconds", NULL, &p->seconds, 1e-3, 1e6},
        {"load", NULL, &p->load, 1e-3, 1e3},
        {"spread", NULL, &p->spread, 0, 3},
        {"deadlines", NULL, &p->deadline_share, 0, 1},
        {"deadline_min", NULL, &p->deadline_min, 0, 1e6},
        {"deadline_max", NULL, &p->deadline_max, 0, 1e6},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (strcmp(rows[i].name, name) != 0)
            continue;
        if (!(v >= rows[i].min && v <= rows[i].max))
            return false;
        if (rows[i].u)
            *rows[i].u = (uint32_t)v;
        else
            *rows[i].d = v;
        return true;
    }
    if (strcmp(name, "mean_us") == 0 && v >= 1 && v <= 1e9)
        return p->mean_length = (ngd_nsec_t)(v * 1e3), true;
    if (strcmp(name, "backlogged") == 0 && (v == 0 || v == 1))
        return p->backlogged = v == 1, true;
    if (strcmp(name, "seed") == 0 && v >= 0)
        return p->seed = (uint64_t)v, true;
    return false;
}

static struct sim_arrivals arrivals;

/*
 * Each weight is a class of clients. If a recording has more weights than there are classes, the rest goes to the last
 * class.
 */
static bool read_arrivals(struct sim_params *p, const char *path)
{
    char error[200] = "cannot be opened";
    FILE *f = fopen(path, "re");

    if (f == NULL || !sim_arrivals_read(f, &arrivals, error, sizeof(error))) {
        fprintf(stderr, "schedsim: %s: %s\n", path, error);
        exit(1);
    }
    fclose(f);
    p->arrivals = &arrivals;
    p->clients = arrivals.n_clients;
    p->devices = arrivals.n_devices;
    p->seconds = (double)(arrivals.items[arrivals.n - 1].at + NGD_SEC) * 1e-9;
    p->n_weights = 0;
    for (uint32_t i = 0; i < arrivals.n_clients && p->n_weights < 8; i++) {
        uint32_t k = 0;

        while (k < p->n_weights && p->weights[k] != arrivals.clients[i].weight)
            k++;
        if (k == p->n_weights)
            p->weights[p->n_weights++] = arrivals.clients[i].weight;
    }
    return true;
}

static bool set(struct sim_params *p, char *arg)
{
    char *value = strchr(arg, '='), *end;
    double v;

    if (!value)
        return false;
    *value++ = '\0';
    if (strcmp(arg, "policy") == 0)
        return p->policy = value, ngd_sched_policy_find(value) != NULL;
    if (strcmp(arg, "arrivals") == 0)
        return read_arrivals(p, value);
    if (strcmp(arg, "weights") == 0)
        return set_weights(p, value);
    if (strcmp(arg, "caps") == 0)
        return set_caps(p, value);
    if (strcmp(arg, "buckets") == 0)
        return set_bucket_list(p, value);
    v = strtod(value, &end);
    return end != value && *end == '\0' && set_number_param(p, arg, v);
}

int main(int argc, char **argv)
{
    struct sim_params p;

    if (argc < 2 || strcmp(argv[1], "--quick") == 0) {
        run_cases();
        return 0;
    }
    if (strcmp(argv[1], "--help") == 0) {
        usage(stdout);
        return 0;
    }
    sim_params_init(&p);
    for (int i = 1; i < argc; i++) {
        if (!set(&p, argv[i])) {
            fprintf(stderr, "schedsim: \"%s\" is not a known parameter with a valid value\n", argv[i]);
            usage(stderr);
            return 2;
        }
    }
    if (p.arrivals && p.n_buckets) {
        fprintf(stderr,
                "schedsim: arrivals cannot be combined with buckets, since a recording does not name the graphs\n");
        return 2;
    }
    run_case("one case", &p);
    sim_arrivals_free(&arrivals);
    return 0;
}
