/* SPDX-License-Identifier: Apache-2.0 */
/* Answers of the probe that come from running one graph beside the host. See probe.h. */
#include "devices/ascend/issue.h"
#include "devices/ascend/probe.h"
#include "graphs/compare.h"
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define BODY_ROOM 1024

/* ---- replies --------------------------------------------------------------------------------------- */

void ngd_ascend_reply(struct ascend_reply *reply, ascend_answer_t answer, const char *fmt, ...)
{
    va_list ap;

    reply->answer = answer;
    va_start(ap, fmt);
    vsnprintf(reply->text, sizeof(reply->text), fmt, ap);
    va_end(ap);
}

static bool is_time_limit(int32_t code)
{
    return code == NGD_ACL_RT_WAIT_TIMEOUT || code == NGD_ACL_RT_TASK_TIMEOUT || code == NGD_ACL_RT_AICORE_TIMEOUT ||
           code == NGD_ACL_RT_STREAM_SYNC_TIMEOUT || code == NGD_ACL_RT_EVENT_SYNC_TIMEOUT ||
           code == NGD_ACL_RT_FFTS_PLUS_TIMEOUT;
}

/* That says nothing about the question, and the next probe may find enough. */
static bool is_short_of_memory(ngd_status_t status)
{
    return status == NGD_ERR_NO_MEMORY || status == NGD_ERR_NO_DEVICE_MEMORY;
}

void ngd_ascend_reply_error(struct ascend_reply *reply, ngd_status_t status, const struct ngd_diag *diag, bool ran)
{
    const char *words = ngd_acl_words_of(diag);

    words = words ? words : diag->text;
    reply->code = ngd_acl_code_of(diag);
    if (is_time_limit(reply->code))
        ngd_ascend_reply(reply, ASCEND_ANSWER_HANG, "%s", words);
    else if (!ran && status == NGD_ERR_OP_UNSUPPORTED)
        ngd_ascend_reply(reply, reply->code ? ASCEND_ANSWER_REFUSED : ASCEND_ANSWER_MISSING, "%s", words);
    else
        ngd_ascend_reply(reply, is_short_of_memory(status) ? ASCEND_ANSWER_SKIPPED : ASCEND_ANSWER_FAILED, "%s: %s",
                         ngd_status_name(status), words);
}

/* ---- one graph ------------------------------------------------------------------------------------- */

static ngd_status_t run_on_reference(struct ascend_asker *a, struct ngd_doctor_run *r, const char *body,
                                     const struct ngd_host_value *hosts, struct ascend_reply *reply)
{
    struct ngd_diag diag = {0};
    ngd_nsec_t took;
    ngd_status_t status = ngd_doctor_run_open(r, &a->reference, body, hosts, &diag);

    if (status == NGD_OK) {
        status = ngd_doctor_run_replay(r, &a->reference, false, &took);
        diag = r->launch.diag;
    }
    if (status)
        ngd_ascend_reply(reply, ASCEND_ANSWER_SKIPPED, "the host cannot run it: %.140s", diag.text);
    return status;
}

/* Sets the reply if the device's results are not the reference's, or, if `again`, not the same bits again. */
static void judge_results(struct ascend_asker *a, struct ngd_doctor_run *got, struct ngd_doctor_run *want, bool again,
                          struct ascend_reply *reply)
{
    struct ngd_strbuf text;
    const char *other = NULL;
    ngd_status_t status;
    bool same;

    ngd_strbuf_init(&text);
    same = ngd_doctor_run_same(got, want, &text, &status);
    if (same && again)
        other = ngd_doctor_run_repeat(got, &a->device, &status);
    if (status)
        ngd_ascend_reply_error(reply, status, &got->launch.diag, true);
    else if (!same)
        ngd_ascend_reply(reply, ASCEND_ANSWER_WRONG, "%s", ngd_strbuf_str(&text));
    else if (other)
        ngd_ascend_reply(reply, ASCEND_ANSWER_WRONG, "%s gives other bits than the first", other);
    ngd_strbuf_fini(&text);
}

static void run_on_device(struct ascend_asker *a, struct ngd_doctor_run runs[2], const char *body,
                          const struct ngd_host_value *hosts, const struct ngd_host_value *later,
                          struct ascend_reply *reply)
{
    struct ngd_diag diag = {0};
    ngd_nsec_t took;
    ngd_status_t status = ngd_doctor_run_open(&runs[0], &a->device, body, hosts, &diag);

    if (status) {
        ngd_ascend_reply_error(reply, status, &diag, false);
        return;
    }
    status = ngd_doctor_run_replay(&runs[0], &a->device, false, &took);
    if (status == NGD_OK && later) {
        runs[0].launch.hosts = later;
        status = ngd_doctor_run_replay(&runs[0], &a->device, false, &took);
    }
    if (status)
        ngd_ascend_reply_error(reply, status, &runs[0].launch.diag, true);
    else
        judge_results(a, &runs[0], &runs[1], !later, reply);
}

void ngd_ascend_ask_graph(struct ascend_asker *a, const char *body, const struct ngd_host_value *hosts,
                          const struct ngd_host_value *later, struct ascend_reply *reply)
{
    struct ngd_doctor_run *runs = ngd_calloc(2, sizeof(*runs));

    reply->answer = ASCEND_ANSWER_OK;
    if (!runs) {
        ngd_ascend_reply(reply, ASCEND_ANSWER_SKIPPED, "no host memory");
        return;
    }
    if (run_on_reference(a, &runs[1], body, later ? later : hosts, reply) == NGD_OK)
        run_on_device(a, runs, body, hosts, later, reply);
    ngd_doctor_run_close(&runs[0]);
    ngd_doctor_run_close(&runs[1]);
    ngd_free(runs);
}

/* Writes a question's body with its dtype, its operator's name and its number. */
static void print_question_body(const struct ascend_question *q, int64_t number, char body[BODY_ROOM])
{
    struct ngd_strbuf sb;

    ngd_strbuf_init(&sb);
    for (const char *p = q->body; *p; p++) {
        if (*p == '@')
            ngd_strbuf_append(&sb, ngd_dtype_name(q->dtype));
        else if (*p == '$')
            ngd_strbuf_append(&sb, ngd_op_by_id(q->op)->name);
        else if (*p == '#')
            ngd_strbuf_printf(&sb, "%" PRId64, number);
        else
            ngd_strbuf_putc(&sb, *p);
    }
    snprintf(body, BODY_ROOM, "%s", ngd_strbuf_str(&sb));
    ngd_strbuf_fini(&sb);
}

/* ---- topics of one graph --------------------------------------------------------------------------- */

void ngd_ascend_ask_open(struct ascend_asker *a, const struct ascend_question *q, struct ascend_reply *reply)
{
    (void)q;
    ngd_ascend_ask_graph(a, " input %x : f32[4,32]\n %y = aten.add.Tensor(%x, %x)\n return \"y\" = %y\n", NULL, NULL,
                         reply);
}

void ngd_ascend_ask_operator(struct ascend_asker *a, const struct ascend_question *q, struct ascend_reply *reply)
{
    char body[BODY_ROOM];

    print_question_body(q, 0, body);
    ngd_ascend_ask_graph(a, body, NULL, NULL, reply);
}

void ngd_ascend_ask_experts(struct ascend_asker *a, const struct ascend_question *q, struct ascend_reply *reply)
{
    ngd_ascend_ask_operator(a, q, reply);
}

void ngd_ascend_ask_slot(struct ascend_asker *a, const struct ascend_question *q, struct ascend_reply *reply)
{
    const char *name = ngd_dtype_name(q->dtype);
    char body[BODY_ROOM];

    if (!a->hold.dev->acl->aclnnScatterPaKvCache) {
        ngd_ascend_reply(reply, ASCEND_ANSWER_MISSING, "this version of CANN has no aclnnScatterPaKvCache");
        return;
    }
    snprintf(
        body, sizeof(body),
        " state %%k : %s[4,16,1,16]\n state %%v : %s[4,16,1,16]\n input %%pos : %s[4,1,16]\n input %%minus : i32[4]\n"
        " npu.scatter_pa_kv_cache(%%pos, %%pos, %%minus, %%k, %%v)\n %%y = aten.clone(%%pos)\n return \"y\" = %%y\n",
        name, name, name);
    ngd_ascend_ask_graph(a, body, NULL, NULL, reply);
}

void ngd_ascend_ask_nz(struct ascend_asker *a, const struct ascend_question *q, struct ascend_reply *reply)
{
    struct ascend_nz_state *nz = &a->hold.dev->nz;
    uint64_t before, after;
    char body[BODY_ROOM];

    if (!nz->on) {
        ngd_ascend_reply(reply, ASCEND_ANSWER_MISSING, "this version of CANN lacks a function for weights in NZ");
        return;
    }
    ngd_mutex_lock(&nz->lock);
    before = nz->made;
    ngd_mutex_unlock(&nz->lock);
    print_question_body(q, q->columns, body);
    ngd_ascend_ask_graph(a, body, NULL, NULL, reply);
    ngd_mutex_lock(&nz->lock);
    after = nz->made;
    ngd_mutex_unlock(&nz->lock);
    if (reply->answer == ASCEND_ANSWER_OK && after == before)
        ngd_ascend_reply(reply, ASCEND_ANSWER_REFUSED, "the weight stayed in ND; the product is right");
}

/* The pool has a piece of two pages before the graph makes it grow by another one; an operand lies in both. */
void ngd_ascend_ask_pieces(struct ascend_asker *a, const struct ascend_question *q, struct ascend_reply *reply)
{
    const int64_t row = 128 * (int64_t)ngd_dtype_bytes(q->dtype), page = (int64_t)a->hold.dev->page;
    struct ngd_pool *usual = a->device.pool;
    char body[BODY_ROOM];
    uint64_t first;

    if (page < row) {
        ngd_ascend_reply(reply, ASCEND_ANSWER_MISSING, "CANN or the driver maps no memory");
        return;
    }
    if (ngd_pool_create(a->device.dev, "probe", &a->device.pool)) {
        a->device.pool = usual;
        ngd_ascend_reply(reply, ASCEND_ANSWER_SKIPPED, "no host memory");
        return;
    }
    print_question_body(q, page / row, body);
    ngd_ascend_ask_graph(a, body, NULL, NULL, reply);
    first = ngd_pool_bytes(a->device.pool);
    if (reply->answer == ASCEND_ANSWER_OK) {
        print_question_body(q, page * 5 / 2 / row, body);
        ngd_ascend_ask_graph(a, body, NULL, NULL, reply);
    }
    if (reply->answer == ASCEND_ANSWER_OK && (first < (uint64_t)page || ngd_pool_bytes(a->device.pool) <= first))
        ngd_ascend_reply(reply, ASCEND_ANSWER_SKIPPED, "the pool did not grow in place");
    ngd_pool_destroy(a->device.pool);
    a->device.pool = usual;
}

/* ---- attention ------------------------------------------------------------------------------------- */

#define SEQUENCES 3
#define WIDTH     2 /* blocks of a sequence */
#define KV_HEADS  2

struct lengths {
    int64_t n; /* sequences */
    int64_t ends[SEQUENCES], few[SEQUENCES], full[SEQUENCES];
};

static struct lengths lengths_of(const struct ascend_question *q)
{
    const int64_t b = q->block;

    switch (q->way) {
    case ASCEND_WAY_PREFILL:
        return (struct lengths){1, {5}, {5}, {WIDTH * b}};
    case ASCEND_WAY_RAGGED:
        return (struct lengths){3, {4, 5, 8}, {4, 1, 5}, {WIDTH * b, b + 1, WIDTH * b}};
    default:
        return (struct lengths){3, {1, 2, 3}, {1, 2, 3}, {WIDTH * b, b + 1, b}};
    }
}

static void print_attention(const struct ascend_question *q, const struct lengths *l, char body[BODY_ROOM])
{
    const char *name = ngd_dtype_name(q->dtype);
    const long long n = l->n, blocks = n * WIDTH, rows = l->ends[n - 1], heads = KV_HEADS * q->queries;

    snprintf(body, BODY_ROOM,
             " state %%k : %s[%lld,%lld,%d,%lld]\n state %%v : %s[%lld,%lld,%d,%lld]\n input %%q : %s[%lld,%lld,%lld]\n"
             " input %%last : i32[%lld,%d]\n host %%ql : i64[%lld]\n host %%kl : i64[%lld]\n"
             " %%y = npu.fused_infer_attention_score(%%q, %%k, %%v, %%last, %%ql, %%kl) {num_heads=%lld, "
             "num_key_value_heads=%d, scale=%.9g, block_size=%lld}\n return \"y\" = %%y\n",
             name, blocks, (long long)q->block, KV_HEADS, (long long)q->d, name, blocks, (long long)q->block, KV_HEADS,
             (long long)q->d, name, rows, heads, (long long)q->d, n, WIDTH, n, n, heads, KV_HEADS,
             4 / sqrt((double)q->d), (long long)q->block);
}

/* The latents are keys and values at once, of one head, with second parts in a cache of their own. */
static void print_latent(const struct ascend_question *q, const struct lengths *l, char body[BODY_ROOM])
{
    const char *name = ngd_dtype_name(q->dtype);
    const long long n = l->n, blocks = n * WIDTH, heads = q->queries, block = q->block, d = q->d;

    snprintf(body, BODY_ROOM,
             " state %%k : %s[%lld,%lld,1,%lld]\n state %%r : %s[%lld,%lld,1,64]\n input %%q : %s[%lld,%lld,%lld]\n"
             " input %%p : %s[%lld,%lld,64]\n input %%last : i32[%lld,%d]\n host %%ql : i64[%lld]\n"
             " host %%kl : i64[%lld]\n"
             " %%y = npu.fused_infer_attention_score(%%q, %%k, %%k, %%last, %%ql, %%kl, %%p, %%r) {num_heads=%lld, "
             "num_key_value_heads=1, scale=%.9g, block_size=%lld}\n return \"y\" = %%y\n",
             name, blocks, block, d, name, blocks, block, name, n, heads, d, name, n, heads, n, WIDTH, n, n, heads,
             4 / sqrt((double)(d + 64)), block);
}

/* Asks about the way with few keys, and about full blocks after an update. */
static void ask_way(struct ascend_asker *a, const struct ascend_question *q, const struct lengths *l, const char *body,
                    struct ascend_reply *reply)
{
    const struct ngd_host_value few[] = {{l->ends, (uint32_t)l->n}, {l->few, (uint32_t)l->n}};
    const struct ngd_host_value full[] = {{l->ends, (uint32_t)l->n}, {l->full, (uint32_t)l->n}};

    a->hold.only_way = q->way;
    ngd_ascend_ask_graph(a, body, few, q->full ? full : NULL, reply);
    a->hold.only_way = ASCEND_WAY_MAX;
}

void ngd_ascend_ask_latent(struct ascend_asker *a, const struct ascend_question *q, struct ascend_reply *reply)
{
    const struct lengths l = lengths_of(q);
    char body[BODY_ROOM];

    print_latent(q, &l, body);
    ask_way(a, q, &l, body, reply);
}

void ngd_ascend_ask_attention(struct ascend_asker *a, const struct ascend_question *q, struct ascend_reply *reply)
{
    const struct lengths l = lengths_of(q);
    char body[BODY_ROOM];

    print_attention(q, &l, body);
    ask_way(a, q, &l, body, reply);
}

/* ---- any question ---------------------------------------------------------------------------------- */

void ngd_ascend_ask(struct ascend_asker *a, const struct ascend_question *q, struct ascend_reply *reply)
{
    static void (*const ask[])(struct ascend_asker *, const struct ascend_question *, struct ascend_reply *) = {
#define NGD_PROBE_TOPIC(ID, name, function, text) ngd_ascend_ask_##function,
#include "devices/ascend/probe_topics.def"
#undef NGD_PROBE_TOPIC
    };

    *reply = (struct ascend_reply){.answer = ASCEND_ANSWER_OK, .value = -1};
    ask[q->topic](a, q, reply);
}
