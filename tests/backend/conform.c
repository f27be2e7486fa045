/* SPDX-License-Identifier: Apache-2.0 */
/* Helpers of the conformance tests: devices, launches, gates. */
#include "tests/backend/conform.h"

void conform_skip(const struct conform_backend *backend, const char *what, const char *why)
{
    printf("skip - backend %s: %s: %s\n", backend->name, what, why);
    fflush(stdout);
}

void conform_params(int i, struct ngd_device_params *params)
{
    const struct conform_backend *backend = conform_backend(i);

    ngd_device_params_init(params);
    params->backend = backend->name;
    params->memory_bytes = (uint64_t)1 << 30;
    backend->params(params);
}

void conform_open_budget(struct conform *c, int i, uint64_t memory_bytes)
{
    struct ngd_device_params params;
    struct ngd_diag diag = {0};

    memset(c, 0, sizeof(*c));
    c->backend = conform_backend(i);
    conform_params(i, &params);
    params.memory_bytes = memory_bytes;
    run_check(ngd_device_open(&params, &c->b.dev, &diag), &diag, c->backend->name);
    run_check(ngd_stream_create(c->b.dev, "test", &c->b.stream, &diag), &diag, "stream");
    run_check(ngd_pool_create(c->b.dev, "test pool", &c->b.pool), &diag, "pool");
    snprintf(c->b.name, sizeof(c->b.name), "%s", c->backend->name);
}

void conform_open(struct conform *c, int i)
{
    conform_open_budget(c, i, (uint64_t)1 << 30);
}

void conform_close(struct conform *c)
{
    ngd_stream_destroy(c->b.stream);
    ngd_pool_destroy(c->b.pool);
    ck_assert_uint_eq(ngd_device_used_bytes(c->b.dev), 0);
    ngd_device_close(c->b.dev);
}

void conform_io_init(struct conform_io *io, const int64_t *symbols)
{
    memset(io, 0, sizeof(*io));
    io->launch.symbols = symbols;
    io->launch.inputs = io->in;
    io->launch.hosts = io->hosts;
    io->launch.outputs = io->out;
}

void conform_ready(struct ready *r, struct conform *c, const char *text, const int64_t *symbols)
{
    struct ngd_diag diag = {0};

    if (ready_open(r, &c->b, text, symbols, &diag))
        ck_abort_msg("%s\n%.2000s", diag.text, text);
}

struct ngd_buffer *conform_buffer(struct conform *c, const void *data, uint64_t bytes, const char *label)
{
    struct ngd_buffer *buf = NULL;

    CONFORM_OK(ngd_buffer_create(c->b.dev, bytes, NGD_BUFFER_GENERAL, label, &buf, &diag_));
    if (data)
        CONFORM_OK(ngd_buffer_write(buf, 0, data, bytes, &diag_));
    return buf;
}

void conform_double_open(struct conform_double *d, struct conform *c, float first)
{
    memset(d, 0, sizeof(*d));
    conform_ready(&d->r, c, CONFORM_DOUBLE, NULL);
    conform_io_init(&d->io, NULL);
    for (int i = 0; i < 4; i++)
        d->x[i] = first + (float)i;
    d->io.in[0] = (struct ngd_span){d->x, sizeof(d->x)};
    d->io.out[0] = (struct ngd_out){d->y, sizeof(d->y)};
    d->io.launch.status = NGD_ERR_INTERNAL; /* overwritten when it has run */
}

void conform_double_check(const struct conform_double *d)
{
    if (d->io.launch.status)
        ck_abort_msg("%s: %s", ngd_status_name(d->io.launch.status), d->io.launch.diag.text);
    for (int i = 0; i < 4; i++)
        ck_assert_float_eq(d->y[i], 2 * d->x[i]);
}

void conform_double_close(struct conform_double *d)
{
    ready_close(&d->r);
}

/* ---- gates ---- */

static void pass(void *arg)
{
    struct conform_gate *g = arg;

    ngd_mutex_lock(&g->lock);
    g->arrived = true;
    ngd_cond_broadcast(&g->cond);
    while (!g->open)
        ngd_cond_wait(&g->cond, &g->lock);
    ngd_mutex_unlock(&g->lock);
}

void conform_gate_queue(struct conform_gate *g, struct ngd_stream *stream)
{
    memset(g, 0, sizeof(*g));
    ngd_mutex_init(&g->lock, NGD_RANK_NONE);
    ngd_cond_init(&g->cond);
    CONFORM_OK(ngd_stream_callback(stream, pass, g));
}

void conform_gate_await(struct conform_gate *g)
{
    ngd_mutex_lock(&g->lock);
    while (!g->arrived)
        ngd_cond_wait(&g->cond, &g->lock);
    ngd_mutex_unlock(&g->lock);
}

void conform_gate_close_on(struct conform_gate *g, struct ngd_stream *stream)
{
    conform_gate_queue(g, stream);
    conform_gate_await(g);
}

void conform_gate_open(struct conform_gate *g)
{
    ngd_mutex_lock(&g->lock);
    g->open = true;
    ngd_cond_broadcast(&g->cond);
    ngd_mutex_unlock(&g->lock);
}

void conform_says(const char *text, const char *words)
{
    char word[128];

    while (*words) {
        size_t n = strcspn(words, "|");

        ck_assert(n < sizeof(word));
        memcpy(word, words, n);
        word[n] = '\0';
        ck_assert_msg(strstr(text, word) != NULL, "no \"%s\" in \"%s\"", word, text);
        words += n + (words[n] == '|');
    }
}
