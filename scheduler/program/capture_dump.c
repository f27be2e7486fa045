/* SPDX-License-Identifier: Apache-2.0 */
/* Each file is written as soon as its contents exist, so that a capture that takes the daemon down leaves a trail. */
#include "scheduler/program/capture_dump.h"
#include "graphs/plan_trace.h"
#include "base/dumpdir.h"
#include "base/log.h"
#include "base/mem.h"
#include "graphs/plan_map.h"
#include "scheduler/program/program_int.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* ---- failing ------------------------------------------------------------------------------------------- */

/* Reports a failure, once for a capture: what made the first file fail makes the others fail too. */
static void fail_dump(struct ngd_capture_dump *d, const struct ngd_diag *diag)
{
    static struct ngd_log_limit limit;
    char name[NGD_LOG_VALUE_MAX];

    if (d->failed)
        return;
    d->failed = true;
    ngd_log_limited(&limit, NGD_LOG_WARNING, "scheduler", "debug dump of a capture of graph %s is not complete: %s",
                    ngd_log_value(d->prog->graph->name, name), diag->text);
    ngd_program_note(d->prog, NGD_EVENT_DUMP_FAILED, d->key, 0, "debug_dump: %s", diag->text);
}

/* Writes sb to a file and empties sb. */
static void write_dump_text(struct ngd_capture_dump *d, const char *file, struct ngd_strbuf *sb)
{
    struct ngd_diag diag = {0};
    ngd_status_t status;

    if (sb->failed)
        status = ngd_diag_set(&diag, NGD_ERR_NO_MEMORY, "no host memory for %s", file);
    else
        status = d->dir < 0 ? NGD_OK
                            : ngd_dumps_write(d->prog->sched->params.dumps, ngd_program_owner_of(d->prog).payers.dumps,
                                              d->dir, file, ngd_strbuf_str(sb), sb->len, &diag);
    if (status)
        fail_dump(d, &diag);
    ngd_strbuf_clear(sb);
}

/* ---- graphs -------------------------------------------------------------------------------------------- */

static void dump_graph(void *ctx, const struct ngd_pass *pass, const struct ngd_graph *graph)
{
    struct ngd_capture_dump *d = ctx;
    struct ngd_strbuf sb;
    char file[80];

    snprintf(file, sizeof(file), "%03u.%s%.48s.txt", (unsigned)d->n_graphs++, pass ? "after_" : "registered",
             pass ? pass->name : "");
    ngd_strbuf_init(&sb);
    ngd_graph_print(graph, &sb);
    write_dump_text(d, file, &sb);
    ngd_strbuf_fini(&sb);
}

static void write_passes(struct ngd_capture_dump *d, struct ngd_strbuf *sb)
{
    ngd_strbuf_printf(sb, "%-24s %8s %8s %12s\n%-24s %8s %8" PRIu32 "\n", "pass", "changed", "nodes", "microseconds",
                      "-", "", d->report.nodes_before);
    for (int i = 0; i < NGD_PASS_MAX; i++) {
        const char *name = ngd_pass_info((ngd_pass_id_t)i)->name;

        if (d->report.of[i].ran)
            ngd_strbuf_printf(sb, "%-24s %8" PRIu32 " %8" PRIu32 " %12.1f\n", name, d->report.of[i].changed,
                              d->report.of[i].nodes, (double)d->report.of[i].nanoseconds / NGD_USEC);
        else
            ngd_strbuf_printf(sb, "%-24s %8s\n", name, "off");
    }
    write_dump_text(d, "passes.txt", sb);
}

void ngd_capture_dump_plan(struct ngd_capture_dump *d, const struct ngd_plan *plan)
{
    struct ngd_strbuf sb;

    ngd_strbuf_init(&sb);
    write_passes(d, &sb);
    ngd_plan_print(plan, &sb);
    write_dump_text(d, "plan.txt", &sb);
    if (ngd_plan_map_svg(plan, &sb) != NGD_OK)
        sb.failed = true;
    write_dump_text(d, "pool.svg", &sb);
    ngd_plan_print_trace(plan, d->prog->queue->dev_name, NULL, &sb);
    write_dump_text(d, "executable.json", &sb);
    ngd_strbuf_fini(&sb);
}

/* ---- begin and end ------------------------------------------------------------------------------------- */

void ngd_capture_dump_ask(struct ngd_program *prog, const struct ngd_key *key, const struct ngd_graph_options *options)
{
    ngd_mutex_lock(&prog->lock);
    prog->debug_asked = true;
    prog->debug_key = key->hash;
    memcpy(prog->debug_dir, options->debug_dump_dir, sizeof(prog->debug_dir));
    ngd_mutex_unlock(&prog->lock);
}

/*
 * Returns true if this capture is to be dumped. dir: the directory that was asked for, else that of the graph's
 * options.
 */
static bool dump_wanted(struct ngd_program *prog, const struct ngd_key *key, char dir[NGD_OPTION_TEXT_MAX])
{
    bool asked;

    ngd_mutex_lock(&prog->lock);
    asked = prog->debug_asked && prog->debug_key == key->hash;
    if (asked) {
        prog->debug_asked = false;
        memcpy(dir, prog->debug_dir, NGD_OPTION_TEXT_MAX);
    }
    ngd_mutex_unlock(&prog->lock);
    if (!asked)
        memcpy(dir, prog->options.debug_dump_dir, NGD_OPTION_TEXT_MAX);
    return asked || prog->options.debug_dump;
}

/* Makes the path <dir>/<graph>-<digest>-<key>-<time>. The time makes it unique. */
static void name_directory(const struct ngd_capture_dump *d, const char *dir, char *path, size_t room)
{
    char hex[NGD_DIGEST_HEX], name[80];

    ngd_digest_hex(&d->prog->graph->digest, hex);
    ngd_dump_clean(d->prog->graph->name, name, sizeof(name));
    snprintf(path, room, "%s/%s-%.12s-%016" PRIx64 "-%" PRId64, dir, name, hex, d->key->hash, ngd_now());
}

bool ngd_capture_dump_begin(struct ngd_capture_dump *d, struct ngd_program *prog, const struct ngd_key *key)
{
    char dir[NGD_OPTION_TEXT_MAX], path[NGD_OPTION_TEXT_MAX + 160];
    struct ngd_diag diag = {0};

    memset(d, 0, sizeof(*d));
    d->dir = -1;
    if (!dump_wanted(prog, key, dir))
        return false;
    d->prog = prog;
    d->key = key;
    d->begin = ngd_now();
    d->report.look = dump_graph;
    d->report.ctx = d;
    name_directory(d, dir, path, sizeof(path));
    if (ngd_dumps_open(prog->sched->params.dumps, ngd_program_owner_of(prog).payers.dumps, path, &d->dir, &diag)) {
        d->dir = -1;
        fail_dump(d, &diag);
    }
    return true;
}

static void print_ending(const struct ngd_capture_dump *d, ngd_status_t status, const struct ngd_diag *diag,
                         struct ngd_strbuf *sb)
{
    const struct ngd_graph *g = d->prog->graph;
    char hex[NGD_DIGEST_HEX];

    ngd_digest_hex(&g->digest, hex);
    ngd_strbuf_append(sb, "graph ");
    ngd_strbuf_json_string(sb, g->name);
    ngd_strbuf_printf(sb, "\ndigest %s\nkey %016" PRIx64 " ", hex, d->key->hash);
    ngd_key_print(g, d->key, sb);
    ngd_strbuf_printf(sb, "\ndevice %s\ntime %lld\nmilliseconds %.3f\nresult %s", d->prog->queue->dev_name,
                      (long long)time(NULL), (double)(ngd_now() - d->begin) / NGD_MSEC,
                      status ? ngd_status_name(status) : "captured");
    if (status && diag && diag->text[0])
        ngd_strbuf_printf(sb, ": %s", diag->text);
    ngd_strbuf_append(sb, "\n\n# options\n");
    ngd_graph_options_print(&d->prog->options, false, sb);
}

void ngd_capture_dump_end(struct ngd_capture_dump *d, ngd_status_t status, const struct ngd_diag *diag)
{
    struct ngd_strbuf sb;

    ngd_strbuf_init(&sb);
    print_ending(d, status, diag, &sb);
    write_dump_text(d, "capture.txt", &sb);
    ngd_strbuf_fini(&sb);
    if (d->dir >= 0)
        close(d->dir);
    d->dir = -1;
}

/* ---- directories ---- */

ngd_status_t ngd_dump_check(struct ngd_sched *sched, const struct ngd_graph_options *options, struct ngd_diag *diag)
{
    static struct ngd_dumps none = {.lock = NGD_MUTEX_INITIALIZER(NGD_RANK_DUMPS)};
    struct ngd_dumps *dumps = sched->params.dumps ? sched->params.dumps : &none;
    ngd_status_t status = NGD_OK;

    if (options->dump_tensor_data)
        status = ngd_dumps_check(dumps, options->data_dump_dir, diag);
    if (!status && options->debug_dump)
        status = ngd_dumps_check(dumps, options->debug_dump_dir, diag);
    return status;
}

void ngd_dump_clean(const char *name, char *to, size_t room)
{
    size_t n = 0;

    for (const char *p = name; *p && n + 1 < room; p++)
        to[n++] = (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') || (*p >= '0' && *p <= '9') ? *p : '_';
    to[n] = '\0';
}
