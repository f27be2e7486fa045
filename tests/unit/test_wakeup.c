/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels grant different things. The test checks that what is reported is what was granted. */
#include "base/wakeup.h"
#include "base/log.h"
#include "tests/unit/unit.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SLICE_NS 100000
#define NOBODY   65534

struct seen {
    ngd_wakeup_t most;
    bool unprivileged;
    ngd_wakeup_t got;
    int policy, nice_before, nice_after, child_policy;
    uint64_t runtime;
    long slack;
};

/* struct sched_attr, in its first version */
static uint64_t runtime_of_self(void)
{
    struct {
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t runtime, deadline, period;
    } attr = {0};

    return syscall(SYS_sched_getattr, 0, &attr, sizeof(attr), 0) == 0 ? attr.runtime : 0;
}

static void *look_at_child(void *arg)
{
    *(int *)arg = sched_getscheduler(0) & ~SCHED_RESET_ON_FORK;
    return NULL;
}

static void *ask(void *arg)
{
    struct seen *seen = arg;
    const id_t self = (id_t)syscall(SYS_gettid);
    pthread_t child;

    /* A system call, because the C library's function would change all threads. */
    if (seen->unprivileged && geteuid() == 0)
        ck_assert_int_eq((int)syscall(SYS_setresuid, NOBODY, NOBODY, NOBODY), 0);
    seen->nice_before = getpriority(PRIO_PROCESS, self);
    seen->got = ngd_wakeup_ask(seen->most);
    seen->nice_after = getpriority(PRIO_PROCESS, self);
    seen->policy = sched_getscheduler(0) & ~SCHED_RESET_ON_FORK;
    seen->runtime = runtime_of_self();
    seen->slack = prctl(PR_GET_TIMERSLACK);
    ck_assert_int_eq(pthread_create(&child, NULL, look_at_child, &seen->child_policy), 0);
    pthread_join(child, NULL);
    return NULL;
}

static struct seen ask_in_a_thread(ngd_wakeup_t most, bool unprivileged)
{
    struct seen seen = {.most = most, .unprivileged = unprivileged};
    pthread_t thread;

    ck_assert_int_eq(pthread_create(&thread, NULL, ask, &seen), 0);
    pthread_join(thread, NULL);
    return seen;
}

static void check_is_what_was_said(const struct seen *seen)
{
    ck_assert_int_le((int)seen->got, (int)seen->most);
    ck_assert_int_eq(seen->policy, seen->got == NGD_WAKEUP_REALTIME ? SCHED_RR : SCHED_OTHER);
    ck_assert_int_eq(seen->child_policy, SCHED_OTHER);
    if (seen->got == NGD_WAKEUP_NICE)
        ck_assert_int_lt(seen->nice_after, seen->nice_before);
    else
        ck_assert_int_eq(seen->nice_after, seen->nice_before);
    if (seen->got == NGD_WAKEUP_SLICE)
        ck_assert_uint_eq(seen->runtime, SLICE_NS);
}

START_TEST(thread_has_what_it_is_told_that_it_has)
{
    for (int most = NGD_WAKEUP_ORDINARY; most < NGD_WAKEUP_N; most++) {
        struct seen seen = ask_in_a_thread((ngd_wakeup_t)most, false);

        check_is_what_was_said(&seen);
    }
}
END_TEST

START_TEST(nice_is_not_taken_for_a_slice)
{
    struct seen seen = ask_in_a_thread(NGD_WAKEUP_SLICE, false);

    ck_assert(seen.got == NGD_WAKEUP_SLICE || seen.got == NGD_WAKEUP_ORDINARY);
}
END_TEST

START_TEST(thread_without_rights_gets_what_needs_none_and_the_refusal_is_logged)
{
    struct rlimit none = {0, 0};
    struct seen seen;
    char text[512];
    int fds[2];
    ssize_t n;

    if (setrlimit(RLIMIT_RTPRIO, &none) != 0)
        ck_abort_msg("a limit cannot be lowered: %s", strerror(errno));
    ck_assert_int_eq(pipe2(fds, O_CLOEXEC), 0);
    ngd_log_set_fd(fds[1]);
    ngd_log_set_level(NGD_LOG_DEBUG);
    seen = ask_in_a_thread(NGD_WAKEUP_REALTIME, true);
    ngd_log_set_level(NGD_LOG_NOTICE);
    ngd_log_set_fd(2);
    n = read(fds[0], text, sizeof(text) - 1);
    ck_assert_int_gt((int)n, 0);
    text[n] = '\0';
    check_is_what_was_said(&seen);
    ck_assert_int_ne((int)seen.got, (int)NGD_WAKEUP_REALTIME);
    ck_assert_ptr_nonnull(strstr(text, "realtime="));
    ck_assert_ptr_nonnull(strstr(text, ngd_wakeup_name(seen.got)));
    close(fds[0]);
    close(fds[1]);
}
END_TEST

START_TEST(every_kind_has_a_name)
{
    for (int i = 0; i < NGD_WAKEUP_N; i++)
        for (int j = 0; j < i; j++)
            ck_assert_str_ne(ngd_wakeup_name((ngd_wakeup_t)i), ngd_wakeup_name((ngd_wakeup_t)j));
    ck_assert_str_eq(ngd_wakeup_name(NGD_WAKEUP_N), "?");
}
END_TEST

UNIT_MAIN("wakeup", thread_has_what_it_is_told_that_it_has, nice_is_not_taken_for_a_slice,
          thread_without_rights_gets_what_needs_none_and_the_refusal_is_logged, every_kind_has_a_name)
