/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Notifies, and words of memory, that streams wait for. A notify is up from a record until the wait that takes it down:
 * two records count as one. A wait for one that is never recorded, or for a value that nobody writes, hangs as on a
 * device.
 */
#include "devices/ascend/sim/sim_op.h"
#include <errno.h>
#include <stdlib.h>
#include <time.h>

static uint32_t next_notify;

/* ---- notifies ------------------------------------------------------------------------------------ */

static int notify_of(void *handle, struct sim_notify **notify_p)
{
    if (!sim_handle_is(handle, SIM_NOTIFY))
        return ngd_aclsim_fail(handle ? NGD_ACL_RT_INVALID_HANDLE : NGD_ACL_INVALID_PARAM, "crashes or the same",
                               "%p is no living notify", handle);
    *notify_p = handle;
    return 0;
}

void sim_notify_put(struct sim_notify *n)
{
    if (--n->refs == 0)
        free(n);
}

SIM_OPTIONAL(aclrtCreateNotify);
static ngd_acl_error_t aclrtCreateNotify_impl(void **notify_p, uint64_t flags)
{
    struct sim_context *ctx;
    int code;

    SIM_CALL("aclrtCreateNotify");
    if (!notify_p || flags > 1)
        return ngd_aclsim_fail(NGD_ACL_RT_PARAM_INVALID, "the same", "flags 0x%llx of a notify",
                               (unsigned long long)flags);
    ctx = sim_lock_context(&code);
    if (ctx) {
        struct sim_notify *n = calloc(1, sizeof(*n));

        if (!n)
            abort();
        n->device = ctx->device;
        n->id = next_notify++;
        n->refs = 1;
        sim_handle_add(n, SIM_NOTIFY);
        *notify_p = n;
    }
    return sim_unlock(code);
}

SIM_OPTIONAL(aclrtDestroyNotify);
static ngd_acl_error_t aclrtDestroyNotify_impl(void *notify)
{
    struct sim_notify *n = NULL;
    int code;

    SIM_RELEASE("aclrtDestroyNotify");
    pthread_mutex_lock(&sim.lock);
    code = notify_of(notify, &n);
    if (code == 0) {
        sim_handle_remove(n);
        sim_notify_put(n);
    }
    pthread_mutex_unlock(&sim.lock);
    return code ? code : SIM_RELEASED;
}

SIM_OPTIONAL(aclrtGetNotifyId);
static ngd_acl_error_t aclrtGetNotifyId_impl(void *notify, uint32_t *id_p)
{
    struct sim_notify *n = NULL;
    int code;

    SIM_CALL("aclrtGetNotifyId");
    pthread_mutex_lock(&sim.lock);
    code = notify_of(notify, &n);
    if (code == 0)
        *id_p = n->id;
    return sim_unlock(code);
}

static int submit_notify(void *notify, void *stream, sim_task_kind_t kind, uint32_t seconds)
{
    struct sim_notify *n = NULL;
    struct sim_stream *s = NULL;
    int code;

    pthread_mutex_lock(&sim.lock);
    code = notify_of(notify, &n);
    if (code == 0)
        code = sim_stream_of(stream, &s);
    if (code == 0) {
        struct sim_task *t = sim_task_new(kind);

        t->notify = n;
        t->seconds = seconds;
        n->refs++;
        code = sim_submit(s, t);
    }
    return sim_unlock(code);
}

SIM_OPTIONAL(aclrtRecordNotify);
static ngd_acl_error_t aclrtRecordNotify_impl(void *notify, void *stream)
{
    SIM_CALL("aclrtRecordNotify");
    return submit_notify(notify, stream, SIM_TASK_NOTIFY, 0);
}

SIM_OPTIONAL(aclrtWaitAndResetNotify);
static ngd_acl_error_t aclrtWaitAndResetNotify_impl(void *notify, void *stream, uint32_t seconds)
{
    SIM_CALL("aclrtWaitAndResetNotify");
    return submit_notify(notify, stream, SIM_TASK_NOTIFY_WAIT, seconds);
}

/* ---- waiting on a stream's thread ---------------------------------------------------------------- */

bool sim_await(const struct sim_stream *s, uint32_t seconds, bool (*ready)(const struct sim_task *),
               const struct sim_task *task)
{
    struct timespec until;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += seconds;
    while (!s->stop && !s->aborted && !ready(task)) {
        if (seconds == 0)
            pthread_cond_wait(&sim.changed, &sim.lock);
        else if (pthread_cond_timedwait(&sim.changed, &sim.lock, &until) == ETIMEDOUT)
            return ready(task);
    }
    return true;
}

static bool is_up(const struct sim_task *task)
{
    return task->notify->up;
}

void sim_notify_wait(struct sim_stream *s, struct sim_task *task)
{
    if (!sim_await(s, task->seconds, is_up, task))
        sim_set_error(s, NGD_ACL_RT_TASK_TIMEOUT, "a notify was not recorded in time");
    task->notify->up = false;
}

/* ---- words of memory ----------------------------------------------------------------------------- */

static int submit_value(void *address, uint64_t value, uint32_t flag, void *stream, sim_task_kind_t kind)
{
    struct sim_stream *s = NULL;
    struct sim_task *t;
    int code;

    if (!address || (uintptr_t)address % sizeof(uint64_t) || ngd_aclsim_space(address, 8) != SIM_SPACE_DEVICE)
        return ngd_aclsim_fail(NGD_ACL_RT_PARAM_INVALID, "the same, or faults later",
                               "%p is not an aligned word of device memory", address);
    code = sim_lock_stream(stream, &s);
    if (code == 0) {
        t = sim_task_new(kind);
        t->dst = address;
        t->word = value;
        t->compare = flag;
        code = sim_submit(s, t);
    }
    return sim_unlock(code);
}

SIM_OPTIONAL(aclrtValueWrite);
static ngd_acl_error_t aclrtValueWrite_impl(void *address, uint64_t value, uint32_t flag, void *stream)
{
    SIM_CALL("aclrtValueWrite");
    if (flag)
        return ngd_aclsim_fail(NGD_ACL_RT_PARAM_INVALID, "the same", "flag %u of a write", flag);
    return submit_value(address, value, flag, stream, SIM_TASK_VALUE_WRITE);
}

SIM_OPTIONAL(aclrtValueWait);
static ngd_acl_error_t aclrtValueWait_impl(void *address, uint64_t value, uint32_t flag, void *stream)
{
    SIM_CALL("aclrtValueWait");
    if (flag > 3)
        return ngd_aclsim_fail(NGD_ACL_RT_PARAM_INVALID, "the same", "flag %u of a wait", flag);
    return submit_value(address, value, flag, stream, SIM_TASK_VALUE_WAIT);
}

static uint64_t *word_of(const struct sim_task *task)
{
    return ngd_aclsim_space(task->dst, sizeof(uint64_t)) == SIM_SPACE_DEVICE ? ngd_aclsim_host(task->dst) : NULL;
}

void sim_value_write(struct sim_stream *s, const struct sim_task *task)
{
    uint64_t *word = word_of(task);

    if (word)
        __atomic_store_n(word, task->word, __ATOMIC_SEQ_CST);
    else
        sim_set_error(s, NGD_ACL_RT_AICORE_EXCEPTION, "a word that is written is not device memory (any more)");
}

/* Memory that is gone ends the wait too: the caller looks for it. */
static bool value_holds(const struct sim_task *task)
{
    const uint64_t *word = word_of(task);
    uint64_t v = word ? __atomic_load_n(word, __ATOMIC_SEQ_CST) : 0;

    if (!word)
        return true;
    switch (task->compare) {
    case 0:
        return (int64_t)(v - task->word) >= 0;
    case 1:
        return v == task->word;
    case 2:
        return (v & task->word) != 0;
    default:
        return ~(v | task->word) != 0;
    }
}

void sim_value_wait(struct sim_stream *s, const struct sim_task *task)
{
    sim_await(s, 0, value_holds, task);
    if (!word_of(task))
        sim_set_error(s, NGD_ACL_RT_AICORE_EXCEPTION, "a word that is waited for is not device memory (any more)");
}
