/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a capture costs, cold and after a restart with the store. The graph is a decode graph of 28 small layers, and
 * the time is from the first request to its finished replay. As a client would have done by then, the graph is
 * registered and its buffers are bound before the clock starts.
 *
 * The subject is a process that has just started, so each figure comes from a new process: this program starts itself,
 * and each start plays one part (see `parts`), measures once, and prints what it measured. A round is one start in each
 * part, over a store that the first one leaves behind. Between binding and the first replay nothing happens for 20 ms;
 * with --no-pause, caches and CPUs are as the steps before have left them. `--part NAME --dir DIR` plays one part over
 * DIR, whose `store` is what an earlier part left there; use it to run perf on a part.
 *
 * The graph is the one that the daemon makes from a checkpoint or, with `--graph written`, the one of
 * bench_host_decoder as PyTorch traces it, in which the passes fuse 47 operators a layer and not 19.
 */
#include "base/log.h"
#include "base/metrics.h"
#include "base/strbuf.h"
#include "bench/rpc/bench_rpc.h"
#include "bench/step_graph.h"
#include "client/hf/checkpoint.h"
#include "graphs/pass.h"
#include "graphs/store.h"
#include "scheduler/run/sched.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CONTEXT 64
#define BLOCK   16
#define LAYERS  28

static bool no_pause;

struct start {
    struct ngd_store *store;
    struct ngd_device *dev;
    struct ngd_sched *sched;
    struct ngd_binding *binding;
    pthread_mutex_t lock;
    pthread_cond_t cond;
    bool done;
    ngd_nsec_t ended; /* when the scheduler reported the end of the replay, with its results in place */
    ngd_nsec_t woken; /* when the thread that waited for it ran again */
    ngd_status_t status;
};

static void must(ngd_status_t status, const struct ngd_diag *diag)
{
    if (status)
        bench_fail("%s: %s", ngd_status_name(status), diag->text);
}

static char *checkpoint_text(const char *dir)
{
    struct npugraph__checkpoint *ck = NULL;
    struct npugraph_error err = {0};
    struct npugraph__shape shape = {.max_context = CONTEXT,
                                    .block_size = BLOCK,
                                    .num_blocks = CONTEXT / BLOCK,
                                    .table_blocks = CONTEXT / BLOCK,
                                    .max_batch = 1,
                                    .prefill_chunk = 1,
                                    .kv_dtype = "bf16"};
    struct ngd_strbuf sb;

    if (npugraph__checkpoint_read(dir, &(struct npugraph__purpose){.ranks = 1}, &ck, &err) != 0)
        bench_fail("%s", err.message);
    for (size_t i = 0; i < ck->weights.n; i++)
        snprintf(ck->weights.items[i].dtype, sizeof(ck->weights.items[i].dtype), "bf16");
    ngd_strbuf_init(&sb);
    if (npugraph__checkpoint_graph(ck, &shape, "bench.decode", false, &sb, &err) != 0)
        bench_fail("%s", err.message);
    npugraph__checkpoint_free(ck);
    return ngd_strbuf_steal(&sb);
}

static char *graph_text(const char *which, const char *dir)
{
    struct ngd_strbuf sb;

    if (strcmp(which, "checkpoint") == 0)
        return checkpoint_text(dir);
    if (strcmp(which, "written") != 0)
        bench_fail("--graph must be checkpoint or written");
    ngd_strbuf_init(&sb);
    bench_step_graph(&sb, LAYERS, BENCH_WRITTEN_OUT);
    return ngd_strbuf_steal(&sb);
}

static uint64_t bytes_of(const struct ngd_graph *g, uint32_t value)
{
    int64_t one[NGD_GRAPH_MAX_SYMBOLS] = {1}, n;
    uint64_t bytes = ngd_dtype_bytes(g->values[value].type.dtype);

    for (uint32_t i = 0; i < g->values[value].type.rank; i++) {
        if (ngd_expr_eval(g->exprs, g->values[value].type.dims[i], one, &n))
            bench_fail("a dimension of %s", g->values[value].name);
        bytes *= (uint64_t)n;
    }
    return bytes;
}

/*
 * Creates a buffer and writes zeros into it. A client would have loaded its weights by then, and untouched memory would
 * cost a page fault at its first use.
 */
static struct ngd_buffer *zeros(struct ngd_device *dev, uint64_t bytes)
{
    struct ngd_buffer *buffer = NULL;
    void *data = calloc(1, bytes);
    struct ngd_diag diag = {0};

    must(ngd_buffer_create(dev, bytes, NGD_BUFFER_WEIGHTS, "w", &buffer, &diag), &diag);
    must(ngd_buffer_write(buffer, 0, data, bytes, &diag), &diag);
    free(data);
    return buffer;
}

static void bind_zeros(struct start *s, struct ngd_program *prog)
{
    const struct ngd_graph *g = ngd_program_graph(prog);
    uint32_t n = g->n_params + g->n_states;
    struct ngd_buffer **buffers = calloc(n, sizeof(*buffers));
    struct ngd_diag diag = {0};

    for (uint32_t i = 0; i < n; i++)
        buffers[i] = zeros(s->dev, bytes_of(g, i < g->n_params ? g->params[i] : g->states[i - g->n_params]));
    must(ngd_binding_create(prog, buffers, &s->binding, &diag), &diag);
    for (uint32_t i = 0; i < n; i++)
        ngd_buffer_unref(buffers[i]);
    free(buffers);
}

static void start_open(struct start *s, const char *dir, uint32_t threads)
{
    struct ngd_store_params store = {.dir = dir};
    struct ngd_device_params device;
    struct ngd_sched_params sched;
    struct ngd_diag diag = {0};

    memset(s, 0, sizeof(*s));
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->cond, NULL);
    must(ngd_store_open(&store, &s->store, &diag), &diag);
    ngd_device_params_init(&device);
    device.backend = "host";
    device.threads = threads;
    device.memory_bytes = 1u << 30;
    must(ngd_device_open(&device, &s->dev, &diag), &diag);
    ngd_sched_params_init(&sched);
    sched.devices = &s->dev;
    sched.n_devices = 1;
    sched.store = s->store;
    must(ngd_sched_create(&sched, &s->sched, &diag), &diag);
    must(ngd_sched_start(s->sched), &diag);
}

/* Waits until new threads have done their startup work. */
static void wait_for_threads(void)
{
    static const struct timespec pause = {.tv_nsec = 20000000};

    if (!no_pause)
        nanosleep(&pause, NULL);
}

static void start_register(struct start *s, const char *text)
{
    struct ngd_graph_options options;
    struct ngd_program *prog = NULL;
    struct ngd_graph *graph = NULL;
    struct ngd_diag diag = {0};

    must(ngd_graph_parse(text, strlen(text), &graph, &diag), &diag);
    ngd_graph_options_init(&options);
    must(ngd_program_open(s->sched, s->dev, graph, &options, NULL, &prog, NULL, &diag), &diag);
    bind_zeros(s, prog);
    ngd_program_unref(prog);
    ngd_graph_unref(graph);
    wait_for_threads();
}

static void start_close(struct start *s)
{
    ngd_binding_unref(s->binding);
    ngd_sched_stop(s->sched);
    ngd_sched_destroy(s->sched);
    ngd_device_close(s->dev);
    ngd_store_close(s->store);
}

static void answered(struct ngd_request *req, ngd_status_t status, const struct ngd_diag *diag)
{
    struct start *s = req->user;

    s->ended = ngd_now();
    if (status)
        fprintf(stderr, "%s\n", diag->text);
    pthread_mutex_lock(&s->lock);
    s->done = true;
    s->status = status;
    pthread_cond_signal(&s->cond);
    pthread_mutex_unlock(&s->lock);
}

/* Returns the nanoseconds from a request to the end of its replay: one row with a context of one token. */
static double first_replay(struct start *s)
{
    static const int64_t one = 1;
    const struct ngd_graph *g = ngd_program_graph(ngd_binding_program(s->binding));
    struct ngd_span *inputs = calloc(g->n_inputs, sizeof(*inputs));
    struct ngd_host_value *hosts = calloc(g->n_hosts, sizeof(*hosts));
    struct ngd_out *outputs = calloc(g->n_outputs, sizeof(*outputs));
    struct ngd_request req;
    struct ngd_diag diag = {0};
    ngd_nsec_t begin;

    for (uint32_t i = 0; i < g->n_inputs; i++)
        inputs[i] = (struct ngd_span){calloc(1, bytes_of(g, g->inputs[i])), bytes_of(g, g->inputs[i])};
    for (uint32_t i = 0; i < g->n_hosts; i++)
        hosts[i] = (struct ngd_host_value){&one, 1};
    ngd_request_init(&req);
    req.binding = s->binding;
    req.launch.symbols = &one;
    req.launch.inputs = inputs;
    req.launch.hosts = hosts;
    req.launch.outputs = outputs;
    req.n_symbols = g->n_symbols;
    req.n_inputs = g->n_inputs;
    req.n_hosts = g->n_hosts;
    req.n_outputs = g->n_outputs;
    req.done = answered;
    req.user = s;
    s->done = false;
    begin = ngd_now();
    must(ngd_sched_submit(s->sched, &req, &diag), &diag);
    pthread_mutex_lock(&s->lock);
    while (!s->done)
        pthread_cond_wait(&s->cond, &s->lock);
    pthread_mutex_unlock(&s->lock);
    s->woken = ngd_now();
    if (s->status)
        bench_fail("the replay failed");
    begin = s->ended - begin;
    for (uint32_t i = 0; i < g->n_inputs; i++)
        free((void *)(uintptr_t)inputs[i].data);
    free(inputs);
    free(hosts);
    free(outputs);
    return (double)begin;
}

/* ---- parts ---- */

static void print_figure(const char *what, double ns)
{
    printf("%s %.0f\n", what, ns);
}

/* Measures the passes alone, and then the whole plan. */
static void play_passes(struct start *s, const char *text)
{
    static const int64_t one = 1;
    struct ngd_pass_report *report = calloc(1, sizeof(*report));
    struct ngd_graph_options options;
    struct ngd_graph *g, *made = NULL;
    struct ngd_digest none = {{0}};
    struct ngd_plan *plan = NULL;
    struct ngd_diag diag = {0};
    struct ngd_key key;
    ngd_nsec_t begin;

    start_register(s, text);
    g = ngd_program_graph(ngd_binding_program(s->binding));
    ngd_graph_options_init(&options);
    begin = ngd_now();
    must(ngd_passes_run(g, &one, &options, ngd_device_target(s->dev), NULL, report, &made, &diag), &diag);
    print_figure("passes", (double)(ngd_now() - begin));
    ngd_graph_unref(made);
    begin = ngd_now();
    must(ngd_passes_run(g, &one, &options, ngd_device_target(s->dev), NULL, report, &made, &diag), &diag);
    print_figure("passes_again", (double)(ngd_now() - begin));
    ngd_graph_unref(made);
    must(ngd_key_make(g, &none, &one, g->n_symbols, &key, &diag), &diag);
    begin = ngd_now();
    must(ngd_plan_create(g, &key, &options, ngd_device_target(s->dev), &plan, &diag), &diag);
    print_figure("plan_again", (double)(ngd_now() - begin));
    ngd_plan_unref(plan);
    free(report);
}

static void play_cold(struct start *s, const char *text)
{
    start_register(s, text);
    print_figure("cold", first_replay(s));
    if (ngd_metric_row_get(ngd_metric_row(NGD_M_PLANS, "passes")) != 1)
        bench_fail("the cold plan is not what passes made");
    print_figure("again", first_replay(s));
}

static void play_restart(struct start *s, const char *text)
{
    start_register(s, text);
    print_figure("restart", first_replay(s));
    if (ngd_metric_row_get(ngd_metric_row(NGD_M_PLANS, "store")) != 1)
        bench_fail("the plan is not the store's");
    print_figure("again", first_replay(s));
}

/* Measures a replay of a captured graph, after a pause as long as the one before the first replay. */
static void play_rested(struct start *s)
{
    for (int i = 0; i < 6; i++)
        (void)first_replay(s);
    wait_for_threads();
    print_figure("rested", first_replay(s));
}

/* What the previous process replayed is captured from the store before anyone asks for it. */
static void play_hot(struct start *s, const char *text)
{
    struct ngd_metric_row *captured = ngd_metric_row(NGD_M_WARM_CAPTURES, "captured");
    static const struct timespec pause = {.tv_nsec = 100000};
    ngd_nsec_t begin = ngd_now();

    ngd_sched_warm(s->sched);
    while (ngd_metric_row_get(captured) == 0 && ngd_now() - begin < 10 * NGD_SEC)
        nanosleep(&pause, NULL);
    print_figure("warmed", (double)(ngd_now() - begin));
    if (ngd_metric_row_get(captured) != 1 || ngd_metric_row_get(ngd_metric_row(NGD_M_PLANS, "store")) != 1)
        bench_fail("the hot key is not captured from the store");
    start_register(s, text);
    print_figure("hot", first_replay(s));
    print_figure("hot_woken", (double)(s->woken - s->ended));
    if (ngd_metric_get(NGD_M_PLANS) != 1)
        bench_fail("the first replay asked for another plan");
    print_figure("again", first_replay(s));
    play_rested(s);
}

static const struct part {
    const char *name;
    void (*play)(struct start *s, const char *text);
} parts[] = {{"passes", play_passes}, {"cold", play_cold}, {"restart", play_restart}, {"hot", play_hot}};

#define PARTS (sizeof(parts) / sizeof(parts[0]))

static void play(const char *name, const char *which, const char *dir, uint32_t threads)
{
    static struct start s;
    char *text = graph_text(which, dir), path[1024];

    for (size_t i = 0; i < PARTS; i++) {
        if (strcmp(parts[i].name, name) != 0)
            continue;
        snprintf(path, sizeof(path), "%s/store", dir);
        start_open(&s, path, threads);
        parts[i].play(&s, text);
        start_close(&s);
        free(text);
        return;
    }
    bench_fail("there is no part \"%s\"", name);
}

/* ---- rounds ---- */

struct figure {
    const char *what, *text;
    struct samples samples;
};

static struct figure figures[] = {
    {.what = "passes", .text = "passes, in a process that has just started"},
    {.what = "passes_again", .text = "passes, a second time"},
    {.what = "plan_again", .text = "passes and plan, after that"},
    {.what = "cold", .text = "cold, to the first finished replay"},
    {.what = "restart", .text = "restart from the store, to the first finished replay"},
    {.what = "warmed", .text = "restart: the hot key captured after (looked at every 0.15 ms)"},
    {.what = "hot", .text = "restart with the hot key captured, to the first finished replay"},
    {.what = "hot_woken", .text = "and until the thread that waited for it runs"},
    {.what = "again", .text = "a second replay"},
    {.what = "rested", .text = "a ninth replay, after a pause"},
};

#define FIGURES (sizeof(figures) / sizeof(figures[0]))

static struct samples *samples_of(const char *what)
{
    for (size_t i = 0; i < FIGURES; i++)
        if (strcmp(figures[i].what, what) == 0)
            return &figures[i].samples;
    bench_fail("\"%s\" is not a figure", what);
}

static FILE *start_part(const char *name, const char *which, const char *dir, int64_t threads, pid_t *pid_p)
{
    char number[24];
    int ends[2];

    snprintf(number, sizeof(number), "%lld", (long long)threads);
    if (pipe(ends) != 0 || (*pid_p = fork()) < 0)
        bench_fail("a process cannot be started");
    if (*pid_p == 0) {
        dup2(ends[1], STDOUT_FILENO);
        close(ends[0]);
        close(ends[1]);
        execl("/proc/self/exe", "bench_capture", "--part", name, "--graph", which, "--dir", dir, "--threads", number,
              no_pause ? "--no-pause" : (char *)NULL, (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    return fdopen(ends[0], "r");
}

static void measure_part(const char *name, const char *which, const char *dir, int64_t threads)
{
    pid_t pid;
    FILE *said = start_part(name, which, dir, threads, &pid);
    char what[32];
    double ns;
    int status;

    while (said && fscanf(said, "%31s %lf", what, &ns) == 2)
        samples_add(samples_of(what), ns);
    if (said)
        fclose(said);
    if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status) || WEXITSTATUS(status) != 0)
        bench_fail("part \"%s\" failed", name);
}

static void remove_store(const char *dir)
{
    static const char *const folders[] = {"entries", "notes", "aside", "tmp"};
    struct ngd_store_params params = {.dir = dir};
    struct ngd_store *store = NULL;
    char path[1100];
    uint32_t removed;

    if (ngd_store_open(&params, &store, NULL) == NGD_OK)
        (void)ngd_store_clear(store, &removed, NULL);
    ngd_store_close(store);
    for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++) {
        snprintf(path, sizeof(path), "%s/%s", dir, folders[i]);
        rmdir(path);
    }
    snprintf(path, sizeof(path), "%s/version", dir);
    unlink(path);
    snprintf(path, sizeof(path), "%s/lock", dir);
    unlink(path);
    rmdir(dir);
}

static void measure_round(const char *which, const char *dir, int64_t threads)
{
    char path[1024];

    for (size_t i = 0; i < PARTS; i++)
        measure_part(parts[i].name, which, dir, threads);
    snprintf(path, sizeof(path), "%s/store", dir);
    remove_store(path);
}

static double median(const char *what)
{
    return samples_quantile(samples_of(what), 0.5);
}

int main(int argc, char **argv)
{
    int64_t rounds = 12, threads = 2;
    const char *part = NULL, *part_dir = ".", *graph = "checkpoint";
    const struct bench_option options[] = {
        {.name = "rounds", .number = &rounds},   {.name = "threads", .number = &threads},
        {.name = "no-pause", .flag = &no_pause}, {.name = "graph", .text = &graph},
        {.name = "part", .text = &part},         {.name = "dir", .text = &part_dir}};
    char *dir;

    bench_options(argc, argv, options, sizeof(options) / sizeof(options[0]));
    ngd_log_set_level(NGD_LOG_ERROR);
    if (part) {
        play(part, graph, part_dir, (uint32_t)threads);
        return 0;
    }
    dir = bench_dir_make();
    bench_checkpoint_write(dir, &BENCH_SHAPE_TINY);
    for (int64_t i = 0; i < rounds; i++)
        measure_round(graph, dir, threads);
    for (size_t i = 0; i < FIGURES; i++)
        samples_print(&figures[i].samples, figures[i].text, "ms", 1e-6);
    printf("of the passes: restart %.3f, with the hot key captured %.3f; of those that ran before: %.3f, %.3f\n",
           median("restart") / median("passes"), median("hot") / median("passes"),
           median("restart") / median("passes_again"), median("hot") / median("passes_again"));
    for (size_t i = 0; i < FIGURES; i++)
        samples_free(&figures[i].samples);
    bench_dir_remove(dir);
    return 0;
}
