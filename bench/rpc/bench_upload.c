/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an upload and a download of a tensor cost over TCP, or with --unix over a Unix socket, beside a bare C-core
 * stream that carries the same messages and does nothing with them: nothing is copied on either side of it. Both take
 * turns, so that other load on the machine affects both.
 */
#include "bench/rpc/bare.h"
#include "bench/rpc/bench_rpc.h"
#include "tests/models/live.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MESSAGE ((uint64_t)1 << 20) /* as libnpugraph cuts a tensor */

struct transfer {
    struct npugraph_client *client;
    char *data;
    uint64_t buffer, bytes;
    char bare[100]; /* socket of the bare server; "": TCP */
};

static double time_daemon(struct transfer *t, bool up)
{
    const ngd_nsec_t begin = ngd_now();
    struct npugraph_error err = {0};

    if ((up ? npugraph_buffer_write(t->client, t->buffer, 0, t->data, t->bytes, &err)
            : npugraph_buffer_read(t->client, t->buffer, 0, t->data, t->bytes, &err)) != 0)
        bench_fail("%s", err.message);
    return (double)(ngd_now() - begin);
}

static double time_bare(const struct transfer *t, bool up)
{
    const struct bare_order order = {t->bytes / MESSAGE, MESSAGE};
    struct bare_server server;
    struct bare_client *c;
    ngd_nsec_t begin;
    double took;

    bare_start(&server, up ? BARE_SINK : BARE_SOURCE, t->bare[0] != '\0' ? t->bare : NULL);
    c = bare_open(server.address);
    begin = ngd_now();
    if (up) {
        for (uint64_t at = 0; at < t->bytes; at += MESSAGE)
            bare_send(c, t->data + at, MESSAGE);
        bare_end(c);
        (void)bare_receive(c);
    } else {
        bare_send(c, &order, sizeof(order));
        for (uint64_t got = 0; got < t->bytes;)
            got += bare_receive(c);
    }
    took = (double)(ngd_now() - begin);
    bare_close(c);
    bare_stop(&server);
    return took;
}

static void measure_way(struct transfer *t, bool up, int64_t rounds)
{
    struct samples bare = {0}, daemon = {0}, ratios = {0};
    const char *what = up ? "upload" : "download";
    char text[64];

    for (int64_t i = 0; i < rounds + 1; i++) {
        const double a = time_bare(t, up), b = time_daemon(t, up);

        if (i == 0)
            continue;
        samples_add(&bare, a);
        samples_add(&daemon, b);
        samples_add(&ratios, a / b);
    }
    snprintf(text, sizeof(text), "%s, bare C-core stream", what);
    samples_print(&bare, text, "ms", 1e-6);
    snprintf(text, sizeof(text), "%s, daemon", what);
    samples_print(&daemon, text, "ms", 1e-6);
    samples_print(&ratios, "rate of the daemon / bare; wanted >= 0.8", "", 1);
    samples_free(&bare);
    samples_free(&daemon);
    samples_free(&ratios);
}

int main(int argc, char **argv)
{
    int64_t rounds = 7, mib = 1024;
    const char *serves = NULL;
    bool down = false, local = false;
    const struct bench_option options[] = {{"serve", NULL, &serves, NULL},
                                           {"rounds", &rounds, NULL, NULL},
                                           {"mib", &mib, NULL, NULL},
                                           {"down", NULL, NULL, &down}, /* downloads alone */
                                           {"unix", NULL, NULL, &local}};
    char listen[64], *dir;
    const char *extra[] = {"--listen", listen, "--allow-plaintext=yes", NULL};
    struct npugraph_error err = {0};
    struct transfer t = {0};
    struct live live;

    setenv("NPUGRAPH_LOCAL_TRANSPORT", "off", 1);
    bench_options(argc, argv, options, sizeof(options) / sizeof(options[0]));
    if (serves != NULL)
        bare_serve(serves);
    dir = bench_dir_make();
    snprintf(listen, sizeof(listen), "tcp:127.0.0.1:%d", bench_free_port());
    live_start(&live, dir, extra);
    if (local)
        snprintf(t.bare, sizeof(t.bare), "%s/bare", dir);
    else
        snprintf(live.address, sizeof(live.address), "%s", listen + strlen("tcp:"));
    t.client = live_connect(&live, "bench_upload");
    t.bytes = (uint64_t)mib * MESSAGE;
    t.data = malloc(t.bytes);
    if (t.data == NULL)
        bench_fail("no memory");
    memset(t.data, 1, t.bytes);
    if (npugraph_buffer_alloc(t.client, NULL, t.bytes, "bench", &t.buffer, &err) != 0)
        bench_fail("%s", err.message);
    if (!down)
        measure_way(&t, true, rounds);
    measure_way(&t, false, rounds);
    npugraph_disconnect(t.client);
    free(t.data);
    if (live_stop(&live) != 0)
        bench_fail("the daemon did not stop cleanly");
    bench_dir_remove(dir);
    return 0;
}
