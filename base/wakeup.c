/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Current C libraries have no wrapper for sched_setattr(2), hence the struct and the calls. A kernel before 6.12
 * accepts a slice for an ordinary thread and ignores it, so the slice is read back.
 */
#include "base/wakeup.h"
#include "base/log.h"
#include "base/strbuf.h"
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SLICE_NS      100000 /* the shortest slice that the kernel accepts */
#define RESET_ON_FORK 1      /* SCHED_FLAG_RESET_ON_FORK */
#define SLACK_NS      1      /* slack of timers; the default would make every deadline 50 us late */
#define NICE_BY       10

struct attributes { /* struct sched_attr, in its first version */
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime, deadline, period;
};

static bool get_attributes(struct attributes *attr)
{
    memset(attr, 0, sizeof(*attr));
    return syscall(SYS_sched_getattr, 0, attr, sizeof(*attr), 0) == 0;
}

static bool set_attributes(struct attributes *attr)
{
    attr->size = sizeof(*attr);
    return syscall(SYS_sched_setattr, 0, attr, 0) == 0;
}

static int ask_realtime(void)
{
    struct attributes attr = {
        .policy = SCHED_RR, .flags = RESET_ON_FORK, .priority = (uint32_t)sched_get_priority_min(SCHED_RR)};

    return set_attributes(&attr) ? 0 : errno;
}

/* Asks for a short slice; policy and nice value stay as they are. */
static int ask_slice(void)
{
    struct attributes attr;

    if (!get_attributes(&attr))
        return errno;
    attr.flags |= RESET_ON_FORK;
    attr.runtime = SLICE_NS;
    if (!set_attributes(&attr) || !get_attributes(&attr))
        return errno;
    return attr.runtime == SLICE_NS ? 0 : EOPNOTSUPP;
}

/* Lowers the nice value. Threads that this thread starts would inherit it, but the threads that ask start none. */
static int ask_nice(void)
{
    const id_t self = (id_t)syscall(SYS_gettid);
    int now;

    errno = 0;
    now = getpriority(PRIO_PROCESS, self);
    if (now == -1 && errno)
        return errno;
    return setpriority(PRIO_PROCESS, self, now - NICE_BY) == 0 ? 0 : errno;
}

static const struct {
    const char *name;
    int (*ask)(void); /* 0, or the errno of the refusal */
} kinds[NGD_WAKEUP_N] = {
    [NGD_WAKEUP_ORDINARY] = {"ordinary", NULL},
    [NGD_WAKEUP_NICE] = {"nice", ask_nice},
    [NGD_WAKEUP_SLICE] = {"slice", ask_slice},
    [NGD_WAKEUP_REALTIME] = {"realtime", ask_realtime},
};

ngd_wakeup_t ngd_wakeup_ask(ngd_wakeup_t most)
{
    ngd_wakeup_t got;
    struct ngd_strbuf refused;
    char name[16] = "?";

    ngd_strbuf_init(&refused);
    (void)prctl(PR_SET_TIMERSLACK, SLACK_NS, 0, 0, 0);
    for (got = most; got > NGD_WAKEUP_ORDINARY; got--) {
        int err = got == NGD_WAKEUP_NICE && most != NGD_WAKEUP_REALTIME ? EOPNOTSUPP : kinds[got].ask();

        if (err == 0)
            break;
        ngd_strbuf_printf(&refused, " %s=\"%s\"", kinds[got].name, strerror(err));
    }
    (void)pthread_getname_np(pthread_self(), name, sizeof(name));
    ngd_debug("base", "thread is woken as %s thread=%s%s%s", kinds[got].name, name, refused.len ? " refused:" : "",
              ngd_strbuf_str(&refused));
    ngd_strbuf_fini(&refused);
    return got;
}

const char *ngd_wakeup_name(ngd_wakeup_t wakeup)
{
    return (unsigned)wakeup < NGD_WAKEUP_N ? kinds[wakeup].name : "?";
}
