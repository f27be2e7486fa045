/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/jobs.h"
#include "tests/unit/unit.h"
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>

static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
static char order[64];
static unsigned n_done;
static sem_t ran;

struct named {
    struct ngd_job job;
    char name;
};

static void wait_for_gate(struct ngd_job *job)
{
    (void)job;
    pthread_mutex_lock(&gate);
    pthread_mutex_unlock(&gate);
}

static void note(struct ngd_job *job)
{
    order[n_done++] = ngd_container_of(job, struct named, job)->name;
}

/* Queues a job for each letter of `names`, which is its owner; '-': no owner. */
static void queue_all(struct ngd_jobs *jobs, struct named *all, const char *names)
{
    for (unsigned i = 0; names[i]; i++) {
        all[i] = (struct named){.job.fn = note, .name = names[i]};
        if (names[i] == '-')
            ngd_jobs_add(jobs, &all[i].job);
        else
            ngd_jobs_add_for(jobs, &all[i].job, (uint64_t)names[i]);
    }
}

static const char *order_of(const char *names)
{
    struct ngd_job first = {.fn = wait_for_gate};
    struct named all[32];
    struct ngd_jobs *jobs;

    n_done = 0;
    pthread_mutex_lock(&gate);
    ck_assert_int_eq(ngd_jobs_create("jobs", 1, &jobs), NGD_OK);
    ngd_jobs_add(jobs, &first);
    queue_all(jobs, all, names);
    pthread_mutex_unlock(&gate);
    ngd_jobs_destroy(jobs); /* runs them */
    order[n_done] = '\0';
    return order;
}

START_TEST(owners_take_turns)
{
    ck_assert_str_eq(order_of("AAAAB"), "ABAAA");
    ck_assert_str_eq(order_of("AAABBC"), "ABCABA");
    ck_assert_str_eq(order_of("ABCABC"), "ABCABC");
}
END_TEST

START_TEST(jobs_without_an_owner_come_in_order)
{
    ck_assert_str_eq(order_of("A-A-B"), "A-BA-");
    ck_assert_str_eq(order_of("---"), "---");
}
END_TEST

static void post(struct ngd_job *job)
{
    (void)job;
    sem_post(&ran);
}

/* Slow jobs leave one of two threads free, however many there are, and all run in the end. */
START_TEST(slow_jobs_leave_a_thread)
{
    struct ngd_job slow[3], quick = {.fn = post};
    struct ngd_jobs *jobs;

    sem_init(&ran, 0, 0);
    pthread_mutex_lock(&gate);
    ck_assert_int_eq(ngd_jobs_create("jobs", 2, &jobs), NGD_OK);
    for (uint64_t i = 0; i < 3; i++) {
        slow[i] = (struct ngd_job){.fn = wait_for_gate, .slow = true};
        ngd_jobs_add_for(jobs, &slow[i], i + 1);
    }
    ngd_jobs_add_for(jobs, &quick, 9);
    sem_wait(&ran); /* for ever, if the slow ones hold both */
    pthread_mutex_unlock(&gate);
    ngd_jobs_destroy(jobs);
    sem_destroy(&ran);
}
END_TEST

START_TEST(slow_jobs_run_on_a_single_thread)
{
    struct ngd_job slow[2] = {{.fn = post, .slow = true}, {.fn = post, .slow = true}};
    struct ngd_jobs *jobs;

    sem_init(&ran, 0, 0);
    ck_assert_int_eq(ngd_jobs_create("jobs", 1, &jobs), NGD_OK);
    for (int i = 0; i < 2; i++) {
        ngd_jobs_add(jobs, &slow[i]);
        sem_wait(&ran);
    }
    ngd_jobs_destroy(jobs);
    sem_destroy(&ran);
}
END_TEST

START_TEST(offered_jobs_do_not_queue)
{
    struct ngd_job busy[2] = {{.fn = wait_for_gate}, {.fn = wait_for_gate}}, offered = {.fn = post};
    struct ngd_jobs *jobs;

    sem_init(&ran, 0, 0);
    pthread_mutex_lock(&gate);
    ck_assert_int_eq(ngd_jobs_create("jobs", 2, &jobs), NGD_OK);
    ngd_jobs_add(jobs, &busy[0]);
    ck_assert(ngd_jobs_offer(jobs, &busy[1], 1));
    ck_assert(!ngd_jobs_offer(jobs, &offered, 2));
    ck_assert_uint_eq(ngd_jobs_pending(jobs), 2);
    pthread_mutex_unlock(&gate);
    while (ngd_jobs_pending(jobs) > 0)
        sched_yield();
    ck_assert(ngd_jobs_offer(jobs, &offered, 2));
    sem_wait(&ran);
    ngd_jobs_destroy(jobs);
    sem_destroy(&ran);
}
END_TEST

UNIT_MAIN("daemon/jobs", owners_take_turns, jobs_without_an_owner_come_in_order, slow_jobs_leave_a_thread,
          slow_jobs_run_on_a_single_thread, offered_jobs_do_not_queue)
