/* SPDX-License-Identifier: Apache-2.0 */
#include "base/lock.h"
#include "tests/unit/unit.h"
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* Returns true if run() aborts. It runs in another process, without its message or a core file. */
static bool aborts(void (*run)(void))
{
    pid_t pid = fork();
    int status;

    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        int fd = open("/dev/null", O_WRONLY);
        struct rlimit none = {0, 0};

        setrlimit(RLIMIT_CORE, &none);
        signal(SIGABRT, SIG_DFL);
        dup2(fd, 2);
        run();
        _exit(0);
    }
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    if (WIFEXITED(status)) {
        /* A sanitizer turns the abort into an exit of its own. */
        return WEXITSTATUS(status) != 0;
    }
    return WTERMSIG(status) == SIGABRT;
}

/* Clang's analysis would refuse the inversions below, so it is switched off. */
static void take_in_order(void)
{
    struct ngd_mutex low, high;

    ngd_mutex_init(&low, NGD_RANK_SESSION);
    ngd_mutex_init(&high, NGD_RANK_DEVICE);
    for (int i = 0; i < 3; i++) {
        ngd_mutex_lock(&low);
        ngd_mutex_lock(&high);
        ngd_mutex_unlock(&low); /* unlocking in any order is fine */
        ngd_mutex_unlock(&high);
    }
    ngd_mutex_fini(&low);
    ngd_mutex_fini(&high);
}

static void take_inverted(void)
{
    struct ngd_mutex low, high;

    ngd_mutex_init(&low, NGD_RANK_SESSION);
    ngd_mutex_init(&high, NGD_RANK_DEVICE);
    ngd_mutex_lock(&high);
    ngd_mutex_lock(&low);
    ngd_mutex_unlock(&low);
    ngd_mutex_unlock(&high);
}

static void take_two_of_a_rank(void)
{
    struct ngd_mutex a, b;

    ngd_mutex_init(&a, NGD_RANK_PROGRAM);
    ngd_mutex_init(&b, NGD_RANK_PROGRAM);
    ngd_mutex_lock(&a);
    ngd_mutex_lock(&b);
    ngd_mutex_unlock(&b);
    ngd_mutex_unlock(&a);
}

static void unlock_what_is_not_held(void) NGD_NO_THREAD_SAFETY
{
    struct ngd_mutex a;

    ngd_mutex_init(&a, NGD_RANK_PROGRAM);
    ngd_mutex_unlock(&a);
}

START_TEST(locks_taken_in_the_order_of_their_ranks_pass)
{
    ck_assert(!aborts(take_in_order));
}
END_TEST

START_TEST(rank_inversion_aborts_a_debug_build_at_once)
{
#ifndef NDEBUG
    ck_assert(aborts(take_inverted));
    ck_assert(aborts(take_two_of_a_rank));
    ck_assert(aborts(unlock_what_is_not_held));
#else
    ck_assert(!aborts(take_inverted));
    ck_assert(!aborts(take_two_of_a_rank));
    (void)unlock_what_is_not_held;
#endif
}
END_TEST

/* Tests a lock that the caller may hold itself, which the analysis would refuse. */
static bool is_free(struct ngd_mutex *mutex) NGD_NO_THREAD_SAFETY
{
    bool got = ngd_mutex_trylock(mutex);

    if (got)
        ngd_mutex_unlock(mutex);
    return got;
}

START_TEST(trylock_of_a_held_lock_fails_without_waiting)
{
    struct ngd_mutex a;

    ngd_mutex_init(&a, NGD_RANK_NONE);
    ck_assert(is_free(&a));
    ngd_mutex_lock(&a);
    ck_assert(!is_free(&a));
    ngd_mutex_unlock(&a);
    ck_assert(is_free(&a));
    ngd_mutex_fini(&a);
}
END_TEST

struct meeting {
    struct ngd_mutex lock;
    struct ngd_cond cond;
    int arrived;
    int go;
    sigset_t mask;
};

static void *attend(void *arg)
{
    struct meeting *m = arg;

    ngd_mutex_lock(&m->lock);
    pthread_sigmask(SIG_SETMASK, NULL, &m->mask);
    m->arrived++;
    ngd_cond_broadcast(&m->cond);
    while (!m->go)
        ngd_cond_wait(&m->cond, &m->lock);
    m->arrived--;
    ngd_mutex_unlock(&m->lock);
    return NULL;
}

START_TEST(condition_wakes_all_waiters)
{
    struct meeting m = {.arrived = 0};
    pthread_t threads[4];

    ngd_mutex_init(&m.lock, NGD_RANK_QUEUE);
    ngd_cond_init(&m.cond);
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(ngd_thread_start(&threads[i], "attendee", attend, &m), 0);
    ngd_mutex_lock(&m.lock);
    while (m.arrived < 4)
        ngd_cond_wait(&m.cond, &m.lock);
    m.go = 1;
    ngd_cond_broadcast(&m.cond);
    ngd_mutex_unlock(&m.lock);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    ck_assert_int_eq(m.arrived, 0);
    ngd_cond_fini(&m.cond);
    ngd_mutex_fini(&m.lock);
}
END_TEST

START_TEST(wait_until_a_passed_time_returns_false_with_the_lock_held)
{
    struct ngd_mutex lock;
    struct ngd_cond cond;

    ngd_mutex_init(&lock, NGD_RANK_NONE);
    ngd_cond_init(&cond);
    ngd_mutex_lock(&lock);
    ck_assert(!ngd_cond_wait_until(&cond, &lock, 0));
    ck_assert(!ngd_cond_wait_until(&cond, &lock, -5));
    ck_assert(!ngd_cond_wait_until(&cond, &lock, ngd_now() + NGD_MSEC));
    ck_assert(!is_free(&lock));
    ngd_mutex_unlock(&lock);
    ngd_cond_fini(&cond);
    ngd_mutex_fini(&lock);
}
END_TEST

START_TEST(started_thread_has_its_name_and_blocks_signals)
{
    struct meeting m = {.arrived = 0};
    char name[32];
    pthread_t thread;
    sigset_t mine;

    ngd_mutex_init(&m.lock, NGD_RANK_QUEUE);
    ngd_cond_init(&m.cond);
    ck_assert_int_eq(ngd_thread_start(&thread, "a-name-that-is-too-long", attend, &m), 0);
    ck_assert_int_eq(pthread_getname_np(thread, name, sizeof(name)), 0);
    ck_assert_str_eq(name, "a-name-that-is-");
    ngd_mutex_lock(&m.lock);
    m.go = 1;
    ngd_cond_broadcast(&m.cond);
    ngd_mutex_unlock(&m.lock);
    pthread_join(thread, NULL);
    ck_assert_int_eq(sigismember(&m.mask, SIGTERM), 1);
    ck_assert_int_eq(sigismember(&m.mask, SIGUSR1), 1);
    pthread_sigmask(SIG_SETMASK, NULL, &mine);
    ck_assert_int_eq(sigismember(&mine, SIGUSR1), 0); /* the caller's own mask is as before */
    ngd_cond_fini(&m.cond);
    ngd_mutex_fini(&m.lock);
}
END_TEST

UNIT_MAIN("base/lock", locks_taken_in_the_order_of_their_ranks_pass, rank_inversion_aborts_a_debug_build_at_once,
          trylock_of_a_held_lock_fails_without_waiting, condition_wakes_all_waiters,
          wait_until_a_passed_time_returns_false_with_the_lock_held, started_thread_has_its_name_and_blocks_signals)
