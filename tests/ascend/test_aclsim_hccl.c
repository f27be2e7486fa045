/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The simulator's libhccl: results, and that it is as strict as devices are. Ranks that do not fit together hang until
 * the time limit, communicators connect at their first collective, and a capture takes only those that have.
 */
#include "devices/ascend/acl.h"
#include "tests/backend/simulator.h"
#include "tests/unit/unit.h"
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#define RANKS 2
#define N     8

static const struct ngd_acl *acl;
static void *contexts[RANKS], *streams[RANKS], *comms[RANKS], *from[RANKS], *to[RANKS];

/* The backend does not call it. */
static void *symbol(const char *name)
{
    return simulator_symbol_in("libhccl.so", name);
}

static void enter(int rank)
{
    ck_assert_int_eq(acl->aclrtSetCurrentContext(contexts[rank]), 0);
}

static void put(int rank, float first)
{
    float values[N];

    for (int i = 0; i < N; i++)
        values[i] = first + (float)i;
    enter(rank);
    ck_assert_int_eq(acl->aclrtMemcpy(from[rank], sizeof(values), values, sizeof(values), NGD_ACL_COPY_H2D), 0);
    ck_assert_int_eq(acl->aclrtMemset(to[rank], sizeof(values) * RANKS, 0, sizeof(values) * RANKS), 0);
}

static float got(int rank, int i)
{
    float values[N * RANKS];

    enter(rank);
    ck_assert_int_eq(acl->aclrtMemcpy(values, sizeof(values), to[rank], sizeof(values), NGD_ACL_COPY_D2H), 0);
    return values[i];
}

static void open_ranks(void)
{
    struct ngd_diag diag = {0};

    simulator_set("devices", "2");
    ck_assert_msg(ngd_acl_load(simulator_dir(), NULL, &acl, &diag) == NGD_OK, "%s", diag.text);
    for (int r = 0; r < RANKS; r++) {
        ck_assert_int_eq(acl->aclrtCreateContext(&contexts[r], r), 0);
        ck_assert_int_eq(acl->aclrtCreateStream(&streams[r]), 0);
        ck_assert_int_eq(acl->aclrtMalloc(&from[r], N * 4 * RANKS, NGD_ACL_MALLOC_HUGE_FIRST), 0);
        ck_assert_int_eq(acl->aclrtMalloc(&to[r], N * 4 * RANKS, NGD_ACL_MALLOC_HUGE_FIRST), 0);
        put(r, (float)(10 * r));
    }
}

static void close_ranks(void)
{
    static const char *const kinds[] = {"streams", "bytes", "contexts", "models"};

    for (int r = 0; r < RANKS; r++) {
        enter(r);
        if (comms[r])
            ck_assert_int_eq(acl->HcclCommDestroy(comms[r]), 0);
        comms[r] = NULL;
        acl->aclrtFree(from[r]);
        acl->aclrtFree(to[r]);
        acl->aclrtDestroyStreamForce(streams[r]);
        ck_assert_int_eq(acl->aclrtDestroyContext(contexts[r]), 0);
    }
    ngd_acl_unload(acl);
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        ck_assert_msg(simulator_count(kinds[i]) == 0, "%lld %s are left", (long long)simulator_count(kinds[i]),
                      kinds[i]);
}

/* ---- ranks on threads of their own ---- */

struct call {
    int rank, code;
    int (*fn)(int rank);
};

static void *call_main(void *arg)
{
    struct call *c = arg;

    enter(c->rank);
    c->code = c->fn(c->rank);
    return NULL;
}

/* What rank 0 and rank 1 answer, called at the same time. */
static void both(int (*fn)(int rank), int zero, int one)
{
    struct call calls[RANKS] = {{.rank = 0, .fn = fn}, {.rank = 1, .fn = fn}};
    pthread_t threads[RANKS];

    for (int r = 0; r < RANKS; r++)
        ck_assert_int_eq(pthread_create(&threads[r], NULL, call_main, &calls[r]), 0);
    for (int r = 0; r < RANKS; r++)
        pthread_join(threads[r], NULL);
    ck_assert_int_eq(calls[0].code, zero);
    ck_assert_int_eq(calls[1].code, one);
}

static int sum(int rank)
{
    return acl->HcclAllReduce(from[rank], to[rank], N, NGD_HCCL_FP32, NGD_HCCL_SUM, comms[rank], streams[rank]);
}

static int wait_for(int rank)
{
    return acl->aclrtSynchronizeStreamWithTimeout(streams[rank], 20000);
}

typedef int (*init_all_t)(uint32_t n, int32_t *devices, void **comms);

static init_all_t init_all(void)
{
    return symbol("HcclCommInitAll");
}

static void all_communicators(void)
{
    int32_t devices[RANKS] = {0, 1};

    ck_assert_int_eq(init_all()(RANKS, devices, comms), 0);
}

/* ---- tests ---- */

START_TEST(collectives_give_what_their_ranks_have)
{
    open_ranks();
    all_communicators();
    both(sum, 0, 0);
    both(wait_for, 0, 0);
    for (int r = 0; r < RANKS; r++)
        for (int i = 0; i < N; i++)
            ck_assert_float_eq(got(r, i), (float)(10 + 2 * i));
    close_ranks();
}
END_TEST

static char root[4108], table[128];

static int join_root(int rank)
{
    int (*init)(uint32_t, const void *, uint32_t, void **) = symbol("HcclCommInitRootInfo");

    return init(RANKS, root, (uint32_t)rank, &comms[rank]);
}

static int join_table(int rank)
{
    int (*init)(const char *, uint32_t, void **) = symbol("HcclCommInitClusterInfo");

    return init(table, (uint32_t)rank, &comms[rank]);
}

static int join_alone(int rank)
{
    return rank == 0 ? join_root(0) : 0;
}

START_TEST(ranks_meet_by_root_information_and_by_a_table)
{
    int (*get_root)(void *) = symbol("HcclGetRootInfo");
    int (*name_of)(void *, char *) = symbol("HcclGetCommName");
    char names[RANKS][128];
    FILE *f;

    open_ranks();
    ck_assert_int_eq(get_root(root), 0);
    both(join_root, 0, 0);
    for (int r = 0; r < RANKS; r++)
        ck_assert_int_eq(name_of(comms[r], names[r]), 0);
    ck_assert_str_eq(names[0], names[1]);
    both(sum, 0, 0);
    both(wait_for, 0, 0);
    ck_assert_float_eq(got(1, 1), 12);
    for (int r = 0; r < RANKS; r++)
        ck_assert_int_eq(acl->HcclCommDestroy(comms[r]), 0);
    ck_assert_int_eq(acl->HcclCommDestroy(comms[0]), NGD_HCCL_E_PARA); /* a stale one */

    snprintf(table, sizeof(table), "/tmp/rank_table_%d.json", (int)getpid());
    f = fopen(table, "w");
    ck_assert_ptr_nonnull(f);
    fprintf(f, "{\"version\": \"1.0\", \"server_list\": [{\"device\": [{\"device_id\": \"0\", \"rank_id\": \"0\"}, "
               "{\"device_id\": \"1\", \"rank_id\": \"1\"}]}]}");
    fclose(f);
    both(join_table, 0, 0);
    unlink(table);
    close_ranks();
}
END_TEST

START_TEST(rank_that_nobody_joins_is_told_after_the_time_limit)
{
    int (*get_root)(void *) = symbol("HcclGetRootInfo");

    open_ranks();
    simulator_set("hccl_connect_ms", "50");
    ck_assert_int_eq(get_root(root), 0);
    both(join_alone, NGD_HCCL_E_TIMEOUT, 0);
    comms[0] = NULL;
    simulator_set("hccl_connect_ms", "120000");
    close_ranks();
}
END_TEST

static int different(int rank)
{
    return acl->HcclAllReduce(from[rank], to[rank], (uint64_t)(N - rank), NGD_HCCL_FP32, NGD_HCCL_SUM, comms[rank],
                              streams[rank]);
}

static int only_zero(int rank)
{
    return rank == 0 ? sum(0) : 0;
}

/* Both ways to be wrong look the same from outside: nothing, and then a code. */
static void check_hang(int (*fn)(int), int one)
{
    int error = 0;

    open_ranks();
    all_communicators();
    both(sum, 0, 0);
    both(wait_for, 0, 0);
    simulator_set("hccl_exec_ms", "50");
    both(fn, 0, 0);
    both(wait_for, NGD_ACL_RT_FFTS_PLUS_TIMEOUT, one);
    ck_assert_int_eq(acl->HcclGetCommAsyncError(comms[0], &error), 0);
    ck_assert_int_eq(error, NGD_HCCL_E_TIMEOUT);
    ck_assert_str_eq(acl->HcclGetErrorString(error), "timeout");
    both(sum, 0, 0); /* the order is lost for good */
    both(wait_for, NGD_ACL_RT_FFTS_PLUS_TIMEOUT, NGD_ACL_RT_FFTS_PLUS_TIMEOUT);
    simulator_set("hccl_exec_ms", "1836000");
    close_ranks();
}

START_TEST(ranks_that_do_different_things_hang_until_the_time_limit)
{
    check_hang(different, NGD_ACL_RT_FFTS_PLUS_TIMEOUT);
}
END_TEST

START_TEST(rank_that_does_not_come_hangs_the_others_until_the_time_limit)
{
    check_hang(only_zero, 0);
}
END_TEST

START_TEST(collectives_of_a_communicator_are_issued_in_one_context)
{
    void *other, *stream;

    open_ranks();
    all_communicators();
    both(sum, 0, 0);
    both(wait_for, 0, 0);
    ck_assert_int_eq(acl->aclrtCreateContext(&other, 0), 0);
    ck_assert_int_eq(acl->aclrtCreateStream(&stream), 0);
    ck_assert_int_eq(acl->HcclAllReduce(from[0], to[0], N, NGD_HCCL_FP32, NGD_HCCL_SUM, comms[0], stream),
                     NGD_HCCL_E_RUNTIME);
    ck_assert_ptr_nonnull(strstr(acl->aclGetRecentErrMsg(), "another context"));
    ck_assert_int_eq(acl->aclrtDestroyStreamForce(stream), 0);
    ck_assert_int_eq(acl->aclrtDestroyContext(other), 0);
    both(sum, 0, 0); /* the refused one did not count */
    both(wait_for, 0, 0);
    close_ranks();
}
END_TEST

START_TEST(hanging_collective_ends_with_its_stream)
{
    open_ranks();
    all_communicators();
    both(sum, 0, 0);
    both(wait_for, 0, 0);
    both(only_zero, 0, 0);
    enter(0);
    ck_assert_int_eq(acl->aclrtSynchronizeStreamWithTimeout(streams[0], 20), NGD_ACL_RT_STREAM_SYNC_TIMEOUT);
    ck_assert_int_eq(acl->aclrtStreamAbort(streams[0]), 0);
    close_ranks();
}
END_TEST

START_TEST(capture_takes_communicators_that_are_connected_and_costs_their_streams)
{
    void *models[RANKS];
    int64_t before;

    open_ranks();
    all_communicators();
    enter(0);
    ck_assert_int_eq(acl->aclmdlRICaptureBegin(streams[0], NGD_ACL_CAPTURE_THREAD_LOCAL), 0);
    ck_assert_int_eq(sum(0), NGD_HCCL_E_RUNTIME);
    ck_assert_int_eq(acl->aclmdlRICaptureEnd(streams[0], &models[0]), NGD_ACL_RT_CAPTURE_INVALIDATED);

    both(sum, 0, 0);
    both(wait_for, 0, 0);
    before = simulator_count("streams");
    for (int r = 0; r < RANKS; r++) {
        enter(r);
        ck_assert_int_eq(acl->aclmdlRICaptureBegin(streams[r], NGD_ACL_CAPTURE_THREAD_LOCAL), 0);
        ck_assert_int_eq(sum(r), 0);
        ck_assert_int_eq(sum(r), 0);
        ck_assert_int_eq(acl->aclmdlRICaptureEnd(streams[r], &models[r]), 0);
    }
    ck_assert_int_eq(simulator_count("streams") - before, RANKS * (1 + 2)); /* the capture's, the communicator's */
    for (int k = 0; k < 3; k++) {
        for (int r = 0; r < RANKS; r++) {
            put(r, (float)(100 * k * (r + 1)));
            ck_assert_int_eq(acl->aclmdlRIExecuteAsync(models[r], streams[r]), 0);
        }
        both(wait_for, 0, 0);
        ck_assert_float_eq(got(0, 1), (float)(300 * k + 2));
        ck_assert_float_eq(got(1, 1), (float)(300 * k + 2));
    }
    for (int r = 0; r < RANKS; r++) {
        enter(r);
        ck_assert_int_eq(acl->aclmdlRIDestroy(models[r]), 0);
    }
    close_ranks();
}
END_TEST

START_TEST(task_group_takes_no_collective)
{
    void *model = NULL, *group = NULL;

    open_ranks();
    all_communicators();
    both(sum, 0, 0);
    both(wait_for, 0, 0);
    enter(0);
    ck_assert_int_eq(acl->aclmdlRICaptureBegin(streams[0], NGD_ACL_CAPTURE_THREAD_LOCAL), 0);
    ck_assert_int_eq(acl->aclmdlRICaptureTaskGrpBegin(streams[0]), 0);
    ck_assert_int_eq(sum(0), NGD_HCCL_E_RUNTIME);
    ck_assert_int_eq(acl->aclmdlRICaptureTaskGrpEnd(streams[0], &group), NGD_ACL_RT_TASK_GROUP_INTR);
    acl->aclmdlRICaptureEnd(streams[0], &model);
    if (model)
        acl->aclmdlRIDestroy(model);
    close_ranks();
}
END_TEST

START_TEST(what_devices_do_not_reduce_is_refused)
{
    void *mem = from[0];

    open_ranks();
    all_communicators();
    mem = from[0];
    enter(0);
    ck_assert_int_eq(acl->HcclAllReduce(mem, mem, N, NGD_HCCL_BFP16, NGD_HCCL_PROD, comms[0], streams[0]),
                     NGD_HCCL_E_NOT_SUPPORT);
    ck_assert_int_eq(acl->HcclAllReduce(mem, mem, N, NGD_HCCL_UINT8, NGD_HCCL_SUM, comms[0], streams[0]),
                     NGD_HCCL_E_NOT_SUPPORT);
    ck_assert_int_eq(acl->HcclAllReduce(mem, mem, N, NGD_HCCL_FP32, 4, comms[0], streams[0]), NGD_HCCL_E_PARA);
    ck_assert_int_eq(acl->HcclAllReduce(NULL, mem, N, NGD_HCCL_FP32, NGD_HCCL_SUM, comms[0], streams[0]),
                     NGD_HCCL_E_PTR);
    ck_assert_int_eq(acl->HcclBroadcast(mem, N, NGD_HCCL_FP32, 2, comms[0], streams[0]), NGD_HCCL_E_PARA);
    ck_assert_int_eq(acl->HcclBroadcast(mem, N, NGD_HCCL_FP32, 0, comms[1], streams[0]), NGD_HCCL_E_PARA); /* device */
    ck_assert_int_eq(acl->HcclAllGather(mem, mem, N, NGD_HCCL_FP32, NULL, streams[0]), NGD_HCCL_E_PTR);
    ck_assert_int_eq(init_all()(2, (int32_t[]){0, 0}, comms), NGD_HCCL_E_PARA);
    ck_assert_int_eq(init_all()(1, (int32_t[]){9}, comms), NGD_HCCL_E_PARA);
    close_ranks();
}
END_TEST

UNIT_MAIN("aclsim_hccl", collectives_give_what_their_ranks_have, ranks_meet_by_root_information_and_by_a_table,
          rank_that_nobody_joins_is_told_after_the_time_limit, ranks_that_do_different_things_hang_until_the_time_limit,
          rank_that_does_not_come_hangs_the_others_until_the_time_limit, hanging_collective_ends_with_its_stream,
          collectives_of_a_communicator_are_issued_in_one_context,
          capture_takes_communicators_that_are_connected_and_costs_their_streams, task_group_takes_no_collective,
          what_devices_do_not_reduce_is_refused)
