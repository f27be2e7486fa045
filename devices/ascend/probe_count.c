/* SPDX-License-Identifier: Apache-2.0 */
/* Answers of the probe that are numbers: streams, captures, times. See probe.h. */
#include "devices/ascend/probe.h"
#include <inttypes.h>

#define CAPTURES     64
#define STREAMS_MOST 4096 /* more than any chip has */
#define UPDATES      51

static const char small_graph[] = " input %x : f32[4,32]\n %y = aten.add.Tensor(%x, %x)\n return \"y\" = %y\n";

/* ---- streams --------------------------------------------------------------------------------------- */

/* Makes streams until the device refuses, and gives them back. -1: host memory is short. */
static int64_t count_by_making(const struct ascend_device *dev)
{
    void **made = ngd_calloc(STREAMS_MOST, sizeof(*made));
    int64_t n = 0;

    if (!made)
        return -1;
    if (ngd_ascend_enter(dev, dev->context, NULL) == NGD_OK)
        while (n < STREAMS_MOST && dev->acl->aclrtCreateStream(&made[n]) == 0)
            n++;
    for (int64_t i = 0; i < n; i++)
        dev->acl->aclrtDestroyStream(made[i]);
    ngd_free(made);
    return n;
}

void ngd_ascend_ask_streams(struct ascend_asker *a, const struct ascend_question *q, struct ascend_reply *reply)
{
    struct ascend_device *dev = a->hold.dev;
    uint32_t n = 0;

    (void)q;
    if (dev->acl->aclrtGetStreamAvailableNum && ngd_ascend_enter(dev, dev->context, NULL) == NGD_OK &&
        dev->acl->aclrtGetStreamAvailableNum(&n) == 0)
        reply->value = n;
    else
        reply->value = count_by_making(dev);
    if (reply->value < 0)
        ngd_ascend_reply(reply, ASCEND_ANSWER_SKIPPED, "no host memory");
    else if (reply->value == 0)
        ngd_ascend_reply(reply, ASCEND_ANSWER_FAILED, "the device has no stream left");
}

/* ---- captures -------------------------------------------------------------------------------------- */

static uint32_t free_streams(const struct ascend_asker *a)
{
    return ngd_ascend_enter(a->hold.dev, a->hold.dev->context, NULL) ? 0 : ngd_ascend_streams_free(a->hold.dev);
}

/* Captures as many graphs, and closes them. *taken_p: streams that they took; *left_p: those that stay away. */
static void capture_many(struct ascend_asker *a, int64_t *taken_p, int64_t *left_p, struct ascend_reply *reply)
{
    struct ngd_doctor_run *runs = ngd_calloc(CAPTURES, sizeof(*runs));
    const int64_t before = free_streams(a);
    struct ngd_diag diag = {0};
    ngd_status_t status = runs ? NGD_OK : NGD_ERR_NO_MEMORY;
    ngd_nsec_t took;
    uint32_t n = 0;

    for (; n < CAPTURES && status == NGD_OK; n++) {
        status = ngd_doctor_run_open(&runs[n], &a->device, small_graph, NULL, &diag);
        if (status == NGD_OK) {
            status = ngd_doctor_run_replay(&runs[n], &a->device, false, &took);
            diag = runs[n].launch.diag;
        }
    }
    *taken_p = before - free_streams(a);
    if (status)
        ngd_ascend_reply_error(reply, status, &diag, true);
    else if (atomic_load(&a->hold.dev->given_up) || atomic_load(&a->hold.dev->captures) < CAPTURES)
        ngd_ascend_reply(reply, ASCEND_ANSWER_FAILED, "not all of %d graphs stayed captured", CAPTURES);
    for (uint32_t i = 0; i < n; i++)
        ngd_doctor_run_close(&runs[i]);
    *left_p = before - free_streams(a);
    ngd_free(runs);
}

void ngd_ascend_ask_captures(struct ascend_asker *a, const struct ascend_question *q, struct ascend_reply *reply)
{
    int64_t left;

    (void)q;
    capture_many(a, &reply->value, &left, reply);
}

void ngd_ascend_ask_release(struct ascend_asker *a, const struct ascend_question *q, struct ascend_reply *reply)
{
    int64_t taken;

    (void)q;
    capture_many(a, &taken, &reply->value, reply);
    if (reply->answer == ASCEND_ANSWER_OK && reply->value > 0)
        ngd_ascend_reply(reply, ASCEND_ANSWER_WRONG, "%" PRId64 " streams are not free at once", reply->value);
}

/* ---- contexts and updates -------------------------------------------------------------------------- */

void ngd_ascend_ask_context(struct ascend_asker *a, const struct ascend_question *q, struct ascend_reply *reply)
{
    struct ngd_stream *first = a->device.stream, *second = NULL;
    struct ngd_diag diag = {0};
    ngd_status_t status;

    (void)q;
    ngd_ascend_ask_graph(a, small_graph, NULL, NULL, reply);
    if (reply->answer != ASCEND_ANSWER_OK)
        return;
    status = ngd_stream_create(a->device.dev, "second", &second, &diag);
    if (status) {
        ngd_ascend_reply_error(reply, status, &diag, true);
        return;
    }
    a->device.stream = second;
    ngd_ascend_ask_graph(a, small_graph, NULL, NULL, reply);
    a->device.stream = first;
    ngd_stream_destroy(second);
    if (reply->answer == ASCEND_ANSWER_OK) /* the first one still works */
        ngd_ascend_ask_graph(a, small_graph, NULL, NULL, reply);
}

void ngd_ascend_ask_update(struct ascend_asker *a, const struct ascend_question *q, struct ascend_reply *reply)
{
    static const char body[] =
        " state %k : f16[4,128,1,128]\n state %v : f16[4,128,1,128]\n input %q : f16[4,1,128]\n input %last : "
        "i32[4,1]\n"
        " host %ql : i64[4]\n host %kl : i64[4]\n"
        " %y = npu.fused_infer_attention_score(%q, %k, %v, %last, %ql, %kl) {num_heads=1, num_key_value_heads=1, "
        "scale=0.25, block_size=128}\n return \"y\" = %y\n";
    static const int64_t ends[] = {1, 2, 3, 4}, keys[] = {1, 60, 128, 7};
    static const struct ngd_host_value hosts[] = {{ends, 4}, {keys, 4}};
    struct ngd_doctor_run *r = ngd_calloc(1, sizeof(*r));
    struct ngd_diag diag = {0};
    ngd_nsec_t took[UPDATES];
    ngd_status_t status = NGD_ERR_NO_MEMORY;

    (void)q;
    a->hold.only_way = ASCEND_WAY_ROWS;
    if (r)
        status = ngd_doctor_run_open(r, &a->device, body, hosts, &diag);
    if (status) {
        ngd_ascend_reply_error(reply, status, &diag, false);
    } else {
        status = ngd_doctor_run_replay(r, &a->device, false, &took[0]);
        for (int i = 0; i < UPDATES && status == NGD_OK; i++)
            status = ngd_doctor_run_replay(r, &a->device, false, &took[i]);
        if (status)
            ngd_ascend_reply_error(reply, status, &r->launch.diag, true);
        else
            ngd_doctor_run_sort(took, UPDATES);
        reply->value = status ? -1 : took[UPDATES / 2];
        ngd_doctor_run_close(r);
    }
    a->hold.only_way = ASCEND_WAY_MAX;
    ngd_free(r);
}
