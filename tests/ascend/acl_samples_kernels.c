/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels for acl_samples.py: what the vendor's examples launch, as kernels of the simulator. Theirs are written for
 * the device's compiler, which is not needed here; only the names and the arguments are the same.
 */
#include "tests/ascend/acl_samples_kernels.h"
#include "devices/ascend/sim/sim.h"
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* Longer than the second for which an example waits for it in vain. */
#define LONG_MS 1500

struct sample {
    struct sim_kernel kernel;
    enum sample_kind kind;
    uint32_t n;
    float alpha;
    int value;
};

static void *at(const struct sim_kernel *k, uint32_t span)
{
    return ngd_aclsim_host(k->spans[span].addr);
}

static void add_vectors(const struct sample *s)
{
    const float *a = at(&s->kernel, 0), *b = at(&s->kernel, 1);
    float *out = at(&s->kernel, 2);

    for (uint32_t i = 0; i < s->n; i++)
        out[i] = a[i] + s->alpha * b[i];
}

static void change_counters(const struct sample *s)
{
    struct timespec t = {LONG_MS / 1000, LONG_MS % 1000 * 1000000};
    uint32_t *x = at(&s->kernel, 0);

    if (s->kind == SAMPLE_LONG)
        nanosleep(&t, NULL);
    for (uint32_t i = 0; i < s->n; i++)
        x[i] = s->kind == SAMPLE_DOUBLE ? x[i] * 2 : x[i] + 1;
}

static void use_words(const struct sample *s)
{
    int *x = at(&s->kernel, 0);

    for (uint32_t i = 0; i < s->n; i++) {
        if (s->kind == SAMPLE_WRITE)
            x[i] = s->value;
        printf("%s data: %d\n", s->kind == SAMPLE_WRITE ? "Source" : "Destination", x[i]);
    }
    fflush(stdout);
}

static void run(struct sim_kernel *kernel)
{
    const struct sample *s = (const struct sample *)kernel;

    switch (s->kind) {
    case SAMPLE_FAIL:
        ngd_aclsim_raise();
        break;
    case SAMPLE_ADD:
        add_vectors(s);
        break;
    case SAMPLE_WRITE:
    case SAMPLE_READ:
        use_words(s);
        break;
    default:
        change_counters(s);
    }
}

static void release(struct sim_kernel *kernel)
{
    free(kernel);
}

int sample_launch(enum sample_kind kind, void *stream, const struct sample_args *args)
{
    struct sample *s = calloc(1, sizeof(*s));

    if (!s)
        abort();
    s->kernel = (struct sim_kernel){.name = "sample", .run = run, .release = release, .refs = 1};
    s->kind = kind;
    s->n = args->n;
    s->alpha = args->alpha;
    s->value = args->value;
    for (; s->kernel.n_spans < 3 && args->addr[s->kernel.n_spans]; s->kernel.n_spans++) {
        s->kernel.spans[s->kernel.n_spans].addr = args->addr[s->kernel.n_spans];
        s->kernel.spans[s->kernel.n_spans].bytes = args->n * sizeof(uint32_t);
    }
    return ngd_aclsim_launch(&s->kernel, stream);
}
