/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/trace/export.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/metrics.h"
#include "daemon/trace/otlp.h"
#include "daemon/trace/trace.h"
#include <inttypes.h>
#include <stddef.h>
#include <string.h>
#include <time.h>

#define COLLECT_TIME NGD_SEC        /* that the first record of a batch waits for others */
#define POST_TIME    (10 * NGD_SEC) /* of one attempt */
#define ATTEMPTS     4
#define CLOCK_JUMP   (10 * NGD_MSEC) /* the offset is kept unless it is wrong by more: spans of a trace fit together */

/* A batch on its way. */
struct batch {
    struct ngd_trace_record records[NGD_TRACE_BATCH];
    uint32_t n, spans;
    ngd_nsec_t offset;
    struct ngd_strbuf body;
};

/* ---- taking records -------------------------------------------------------------------------------------- */

/* Waits for a full batch, for COLLECT_TIME since there is a record, or for the stop. False: all was sent, and the
 * tracer stops. */
static bool take_batch(struct ngd_tracer *tracer, struct batch *batch)
{
    bool go_on;

    ngd_mutex_lock(&tracer->lock);
    while (tracer->n == 0 && !tracer->stop)
        ngd_cond_wait(&tracer->wake, &tracer->lock);
    if (tracer->n > 0) {
        const ngd_nsec_t until = ngd_clock_real() + COLLECT_TIME;

        while (tracer->n < NGD_TRACE_BATCH && !tracer->stop && ngd_cond_wait_until(&tracer->wake, &tracer->lock, until))
            continue;
    }
    go_on = tracer->n > 0;
    for (batch->n = 0; tracer->n > 0 && batch->n < NGD_TRACE_BATCH; tracer->n--) {
        batch->records[batch->n++] = tracer->ring[tracer->first];
        tracer->first = (tracer->first + 1) % NGD_TRACE_RING;
    }
    ngd_mutex_unlock(&tracer->lock);
    return go_on;
}

static ngd_nsec_t unix_offset(ngd_nsec_t had)
{
    struct timespec now;
    ngd_nsec_t offset;

    clock_gettime(CLOCK_REALTIME, &now);
    offset = (ngd_nsec_t)now.tv_sec * NGD_SEC + now.tv_nsec - ngd_now();
    return had - offset > CLOCK_JUMP || offset - had > CLOCK_JUMP ? offset : had;
}

/* ---- sending --------------------------------------------------------------------------------------------- */

static void drop_spans(uint64_t n, const char *why)
{
    if (n)
        ngd_metric_row_add(ngd_metric_row(NGD_M_TRACE_SPANS_DROPPED, why), n);
}

/* Waits before the next attempt. False: the tracer stops. */
static bool pause_before_retry(struct ngd_tracer *tracer, ngd_nsec_t time)
{
    const ngd_nsec_t until = ngd_clock_real() + time;
    bool stop;

    ngd_mutex_lock(&tracer->lock);
    while (!tracer->stop && ngd_cond_wait_until(&tracer->wake, &tracer->lock, until))
        continue;
    stop = tracer->stop;
    ngd_mutex_unlock(&tracer->lock);
    return !stop;
}

/* Sets the time limit of an attempt; a stop that came before has set a nearer one. Returns where to send. */
static struct ngd_trace_endpoint begin_attempt(struct ngd_tracer *tracer)
{
    struct ngd_trace_endpoint endpoint;

    ngd_mutex_lock(&tracer->lock);
    if (!tracer->stop)
        atomic_store(&tracer->until, ngd_clock_real() + POST_TIME);
    endpoint = tracer->endpoint;
    ngd_mutex_unlock(&tracer->lock);
    return endpoint;
}

static bool may_retry(int code)
{
    return code == 0 || code == 429 || code == 502 || code == 503 || code == 504;
}

static void log_refusal(const struct ngd_trace_answer *answer, uint32_t spans)
{
    static struct ngd_log_limit limit = {.most = 1};

    if (answer->code)
        ngd_log_limited(&limit, NGD_LOG_WARNING, "trace", "%" PRIu32 " spans are lost: the collector answers %d", spans,
                        answer->code);
    else
        ngd_log_limited(&limit, NGD_LOG_WARNING, "trace", "%" PRIu32 " spans are lost: %s", spans, answer->why);
}

static void send_batch(struct ngd_tracer *tracer, const struct batch *batch)
{
    struct ngd_trace_answer answer;
    ngd_nsec_t pause = NGD_SEC;

    for (int attempt = 1;; attempt++, pause *= 2) {
        const struct ngd_trace_endpoint endpoint = begin_attempt(tracer);

        ngd_trace_post(&endpoint, ngd_strbuf_str(&batch->body), batch->body.len, &tracer->until, &answer);
        if (answer.code >= 200 && answer.code < 300) {
            const uint64_t rejected = answer.rejected < batch->spans ? answer.rejected : batch->spans;

            ngd_metric_add(NGD_M_TRACE_SPANS_SENT, batch->spans - rejected);
            drop_spans(rejected, "collector");
            return;
        }
        if (!may_retry(answer.code) || attempt == ATTEMPTS ||
            !pause_before_retry(tracer, answer.retry_after ? answer.retry_after * NGD_SEC : pause))
            break;
    }
    drop_spans(batch->spans, "collector");
    log_refusal(&answer, batch->spans);
}

static void export_batch(struct ngd_tracer *tracer, struct batch *batch)
{
    batch->offset = unix_offset(batch->offset);
    ngd_strbuf_clear(&batch->body);
    batch->spans = ngd_otlp_print(batch->records, batch->n, tracer->instance, batch->offset, &batch->body);
    if (batch->body.failed)
        drop_spans(batch->spans, "memory");
    else
        send_batch(tracer, batch);
    if (batch->body.failed) {
        ngd_strbuf_fini(&batch->body);
        ngd_strbuf_init(&batch->body);
    }
}

/* ---- the thread ------------------------------------------------------------------------------------------ */

void *ngd_trace_export(void *arg)
{
    struct ngd_tracer *tracer = arg;
    struct batch *batch;
    bool free_it;

    while (!(batch = NGD_NEW(struct batch)))
        if (!pause_before_retry(tracer, NGD_SEC))
            break;
    while (batch && take_batch(tracer, batch))
        export_batch(tracer, batch);
    if (batch)
        ngd_strbuf_fini(&batch->body);
    ngd_free(batch);
    ngd_mutex_lock(&tracer->lock);
    tracer->gone = true;
    free_it = tracer->left_behind;
    ngd_cond_signal(&tracer->left);
    ngd_mutex_unlock(&tracer->lock);
    if (free_it)
        ngd_tracer_free(tracer);
    return NULL;
}

bool ngd_trace_export_stop(struct ngd_tracer *tracer)
{
    const ngd_nsec_t until = ngd_clock_real() + NGD_TRACE_FLUSH;
    bool gone;

    ngd_mutex_lock(&tracer->lock);
    tracer->stop = true;
    atomic_store(&tracer->until, until - NGD_TRACE_FLUSH / 4); /* what is under way ends before the wait for it */
    ngd_cond_broadcast(&tracer->wake);
    while (!tracer->gone && ngd_cond_wait_until(&tracer->left, &tracer->lock, until))
        continue;
    gone = tracer->gone;
    tracer->left_behind = !gone;
    if (!gone)
        pthread_detach(tracer->thread);
    ngd_mutex_unlock(&tracer->lock); /* without gone, the tracer may be free from here on */
    if (gone)
        pthread_join(tracer->thread, NULL);
    else
        ngd_warning("trace", "the thread that sends traces does not return; it is left behind");
    return gone;
}
