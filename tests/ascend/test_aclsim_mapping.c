/* SPDX-License-Identifier: Apache-2.0 */
/* The simulator's virtual memory: what the runtime's documents say of ranges, physical memory and mapping, as strictly.
 */
#include "devices/ascend/acl.h"
#include "tests/backend/simulator.h"
#include "tests/unit/unit.h"
#include <string.h>

#define PAGE ((size_t)2 << 20)

static const struct ngd_acl *acl;
static void *context, *stream;
static const struct ngd_acl_physical hbm = {.attribute = NGD_ACL_MEM_HBM_HUGE,
                                            .location_type = NGD_ACL_LOCATION_DEVICE};

static void open_simulator(void)
{
    struct ngd_diag diag = {0};

    ck_assert_msg(ngd_acl_load(simulator_dir(), NULL, &acl, &diag) == NGD_OK, "%s", diag.text);
    ck_assert_int_eq(acl->aclrtCreateContext(&context, 0), 0);
    ck_assert_int_eq(acl->aclrtCreateStream(&stream), 0);
}

/* Nothing may be left behind. */
static void close_simulator(void)
{
    static const char *const kinds[] = {"streams", "bytes", "ranges", "pinned", "contexts", "models"};

    ck_assert_int_eq(acl->aclrtDestroyContext(context), 0);
    ngd_acl_unload(acl);
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        ck_assert_msg(simulator_count(kinds[i]) == 0, "%lld %s are left", (long long)simulator_count(kinds[i]),
                      kinds[i]);
}

static char *range_of(size_t bytes)
{
    void *range = NULL;

    ck_assert_int_eq(acl->aclrtReserveMemAddress(&range, bytes, 0, NULL, 0), 0);
    return range;
}

static void *physical_of(size_t bytes)
{
    void *handle = NULL;

    ck_assert_int_eq(acl->aclrtMallocPhysical(&handle, bytes, &hbm, 0), 0);
    return handle;
}

static void *mapped_at(char *at, size_t bytes)
{
    void *handle = physical_of(bytes);

    ck_assert_int_eq(acl->aclrtMapMem(at, bytes, 0, handle, 0), 0);
    return handle;
}

static void give_back(char *at, void *handle)
{
    ck_assert_int_eq(acl->aclrtUnmapMem(at), 0);
    ck_assert_int_eq(acl->aclrtFreePhysical(handle), 0);
}

/* The last failure's text has the words, and what a real device does. */
static void text_has(const char *words)
{
    const char *text = acl->aclGetRecentErrMsg();

    ck_assert_ptr_nonnull(text);
    ck_assert_msg(strstr(text, words) && strstr(text, "a real device"), "\"%s\" is not in \"%s\"", words, text);
}

static void refused(ngd_acl_error_t code, ngd_acl_error_t want, const char *words)
{
    ck_assert_int_eq(code, want);
    text_has(words);
}

START_TEST(granularity_is_what_ranges_and_pieces_are_multiples_of)
{
    struct ngd_acl_physical wrong = hbm;
    size_t page = 0;
    void *p = NULL;

    open_simulator();
    ck_assert_int_eq(acl->aclrtMemGetAllocationGranularity((struct ngd_acl_physical *)(uintptr_t)&hbm,
                                                           NGD_ACL_GRANULARITY_LEAST, &page),
                     0);
    ck_assert_uint_eq(page, PAGE);
    refused(acl->aclrtReserveMemAddress(&p, 0, 0, NULL, 0), NGD_ACL_INVALID_PARAM, "0 bytes");
    refused(acl->aclrtReserveMemAddress(&p, PAGE + 64, 0, NULL, 0), NGD_ACL_RT_PARAM_INVALID, "multiples of");
    refused(acl->aclrtMallocPhysical(&p, PAGE / 2, &hbm, 0), NGD_ACL_RT_PARAM_INVALID, "no multiple of");
    refused(acl->aclrtMallocPhysical(&p, PAGE, &hbm, 1), NGD_ACL_INVALID_PARAM, "flags 1");
    refused(acl->aclrtMallocPhysical(&p, PAGE, NULL, 0), NGD_ACL_INVALID_PARAM, "HBM");
    wrong.location = 7;
    refused(acl->aclrtMallocPhysical(&p, PAGE, &wrong, 0), NGD_ACL_RT_INVALID_DEVICEID, "device 7");
    wrong = hbm;
    wrong.attribute = 2; /* memory of the host */
    refused(acl->aclrtMemGetAllocationGranularity(&wrong, NGD_ACL_GRANULARITY_LEAST, &page), NGD_ACL_INVALID_PARAM,
            "HBM");
    close_simulator();
}
END_TEST

START_TEST(pieces_behind_one_another_are_one_memory_and_others_are_not)
{
    static unsigned char in[2 * PAGE], out[2 * PAGE];
    void *a, *b;
    char *range;

    open_simulator();
    range = range_of(4 * PAGE);
    a = mapped_at(range, PAGE);
    for (size_t i = 0; i < sizeof(in); i++)
        in[i] = (unsigned char)(i * 7 + i / PAGE);
    ck_assert_int_ne(acl->aclrtMemcpy(range, 2 * PAGE, in, 2 * PAGE, NGD_ACL_COPY_H2D), 0); /* half of it is there */
    b = mapped_at(range + PAGE, PAGE);
    ck_assert_int_eq(acl->aclrtMemcpy(out, 64, range, 64, NGD_ACL_COPY_D2H), 0);
    ck_assert_int_ne(out[0], 0); /* as fresh memory of a device */
    ck_assert_int_eq(acl->aclrtMemcpy(range, 2 * PAGE, in, 2 * PAGE, NGD_ACL_COPY_H2D), 0);
    ck_assert_int_eq(acl->aclrtMemcpy(out, 2 * PAGE, range, 2 * PAGE, NGD_ACL_COPY_D2H), 0);
    ck_assert_mem_eq(in, out, sizeof(in));
    ck_assert_int_ne(acl->aclrtMemcpy(out, 2 * PAGE, range + 64, 2 * PAGE, NGD_ACL_COPY_D2H), 0);
    /* Contents are the physical memory's, and not the addresses'. */
    ck_assert_int_eq(acl->aclrtUnmapMem(range + PAGE), 0);
    ck_assert_int_eq(acl->aclrtMapMem(range + 3 * PAGE, PAGE, 0, b, 0), 0);
    ck_assert_int_eq(acl->aclrtMemcpy(out, PAGE, range + 3 * PAGE, PAGE, NGD_ACL_COPY_D2H), 0);
    ck_assert_mem_eq(in + PAGE, out, PAGE);
    ck_assert_int_ne(acl->aclrtMemcpy(out, 64, range + PAGE, 64, NGD_ACL_COPY_D2H), 0);
    give_back(range + 3 * PAGE, b);
    give_back(range, a);
    ck_assert_int_eq(acl->aclrtReleaseMemAddress(range), 0);
    close_simulator();
}
END_TEST

START_TEST(mapping_that_the_documents_forbid_is_refused_and_changes_nothing)
{
    struct ngd_acl_physical other = {
        .attribute = NGD_ACL_MEM_HBM_HUGE, .location = 1, .location_type = NGD_ACL_LOCATION_DEVICE};
    void *a, *b, *elsewhere = NULL, *mem;
    char *range;

    simulator_set("devices", "2");
    open_simulator();
    range = range_of(4 * PAGE);
    a = mapped_at(range, PAGE);
    b = physical_of(2 * PAGE);
    ck_assert_int_eq(acl->aclrtMallocPhysical(&elsewhere, PAGE, &other, 0), 0);
    refused(acl->aclrtMapMem(range, 2 * PAGE, 0, b, 0), NGD_ACL_RT_PARAM_INVALID, "mapped there already");
    refused(acl->aclrtMapMem(range + PAGE, PAGE, 0, b, 0), NGD_ACL_RT_PARAM_INVALID, "all of a physical memory");
    refused(acl->aclrtMapMem(range + PAGE, 2 * PAGE, PAGE, b, 0), NGD_ACL_RT_PARAM_INVALID, "from its begin");
    refused(acl->aclrtMapMem(range + PAGE + 4096, 2 * PAGE, 0, b, 0), NGD_ACL_RT_PARAM_INVALID, "not aligned");
    refused(acl->aclrtMapMem(range + 3 * PAGE, 2 * PAGE, 0, b, 0), NGD_ACL_RT_PARAM_INVALID, "not reserved");
    refused(acl->aclrtMapMem(range + PAGE, PAGE, 0, elsewhere, 0), NGD_ACL_RT_PARAM_INVALID, "another device");
    refused(acl->aclrtMapMem(range + PAGE, PAGE, 0, range, 0), NGD_ACL_RT_PARAM_INVALID, "not physical memory");
    refused(acl->aclrtMapMem(range + PAGE, 2 * PAGE, 0, b, 1), NGD_ACL_INVALID_PARAM, "flags 1");
    refused(acl->aclrtUnmapMem(range + PAGE), NGD_ACL_RT_PARAM_INVALID, "not where something was mapped");
    refused(acl->aclrtReleaseMemAddress(range), NGD_ACL_RT_PARAM_INVALID, "memory is mapped");
    refused(acl->aclrtReleaseMemAddress(range + PAGE), NGD_ACL_RT_PARAM_INVALID, "not the begin of a range");
    refused(acl->aclrtFree(range), NGD_ACL_RT_PARAM_INVALID, "not the begin of a block");
    ck_assert_int_eq(acl->aclrtMalloc(&mem, PAGE, NGD_ACL_MALLOC_HUGE_FIRST), 0);
    refused(acl->aclrtUnmapMem(mem), NGD_ACL_RT_PARAM_INVALID, "not where something was mapped");
    ck_assert_int_eq(acl->aclrtFree(mem), 0);
    ck_assert_int_eq(acl->aclrtFreePhysical(elsewhere), 0);
    ck_assert_int_eq(acl->aclrtFreePhysical(b), 0);
    refused(acl->aclrtFreePhysical(b), NGD_ACL_RT_PARAM_INVALID, "was given back");
    give_back(range, a);
    ck_assert_int_eq(acl->aclrtReleaseMemAddress(range), 0);
    close_simulator();
}
END_TEST

START_TEST(physical_memory_is_counted_until_it_is_given_back_and_unmapped)
{
    void *a, *b = NULL;
    char *range;

    simulator_set("hbm", "8M");
    open_simulator();
    range = range_of(16 * PAGE); /* addresses cost no memory */
    ck_assert_int_eq(simulator_count("bytes"), 0);
    a = mapped_at(range, 3 * PAGE);
    ck_assert_int_eq(simulator_count("bytes"), (int64_t)(3 * PAGE));
    refused(acl->aclrtMallocPhysical(&b, 2 * PAGE, &hbm, 0), NGD_ACL_RT_MEMORY_ALLOCATION, "do not fit");
    ck_assert_int_eq(acl->aclrtFreePhysical(a), 0);
    refused(acl->aclrtMallocPhysical(&b, 2 * PAGE, &hbm, 0), NGD_ACL_RT_MEMORY_ALLOCATION, "do not fit");
    ck_assert_int_eq(acl->aclrtMemset(range, 3 * PAGE, 1, 3 * PAGE), 0); /* it is still there */
    ck_assert_int_eq(acl->aclrtUnmapMem(range), 0);
    ck_assert_int_eq(simulator_count("bytes"), 0);
    b = physical_of(2 * PAGE);
    ck_assert_int_eq(acl->aclrtFreePhysical(b), 0);
    ck_assert_int_eq(acl->aclrtReleaseMemAddress(range), 0);
    close_simulator();
}
END_TEST

/* y = 2x of 8 floats. */
static ngd_acl_error_t twice(void *x, void *y)
{
    const int64_t n = 8, step = 1;
    float two = 2;
    struct aclTensor *a = acl->aclCreateTensor(&n, 1, NGD_ACL_FLOAT, &step, 0, NGD_ACL_FORMAT_ND, &n, 1, x);
    struct aclTensor *b = acl->aclCreateTensor(&n, 1, NGD_ACL_FLOAT, &step, 0, NGD_ACL_FORMAT_ND, &n, 1, y);
    struct aclScalar *s = acl->aclCreateScalar(&two, NGD_ACL_FLOAT);
    struct aclOpExecutor *executor = NULL;
    uint64_t workspace = 1;
    ngd_acl_error_t code = acl->aclnnMulsGetWorkspaceSize(a, s, b, &workspace, &executor);

    if (!code)
        code = acl->aclnnMuls(NULL, workspace, executor, stream);
    acl->aclDestroyTensor(a);
    acl->aclDestroyTensor(b);
    acl->aclDestroyScalar(s);
    return code;
}

START_TEST(graph_keeps_its_addresses_while_more_is_mapped_and_faults_when_they_are_unmapped)
{
    float v[8] = {1, 2, 3, 4, 5, 6, 7, 8}, w[8];
    void *a, *b, *model;
    char *range;

    open_simulator();
    range = range_of(4 * PAGE);
    a = mapped_at(range, PAGE);
    ck_assert_int_eq(acl->aclrtMemcpy(range, sizeof(v), v, sizeof(v), NGD_ACL_COPY_H2D), 0);
    ck_assert_int_eq(acl->aclmdlRICaptureBegin(stream, NGD_ACL_CAPTURE_THREAD_LOCAL), 0);
    ck_assert_int_eq(twice(range, range + 512), 0);
    ck_assert_int_eq(acl->aclmdlRICaptureEnd(stream, &model), 0);
    b = mapped_at(range + PAGE, 2 * PAGE);
    ck_assert_int_eq(acl->aclmdlRIExecuteAsync(model, stream), 0);
    ck_assert_int_eq(acl->aclrtSynchronizeStream(stream), 0);
    ck_assert_int_eq(acl->aclrtMemcpy(w, sizeof(w), range + 512, sizeof(w), NGD_ACL_COPY_D2H), 0);
    for (int i = 0; i < 8; i++)
        ck_assert_float_eq(w[i], 2 * v[i]);
    ck_assert_int_eq(acl->aclrtUnmapMem(range), 0); /* CANN does not know that a graph uses it */
    ck_assert_int_eq(acl->aclmdlRIExecuteAsync(model, stream), 0);
    ck_assert_int_eq(acl->aclrtSynchronizeStream(stream), NGD_ACL_RT_MODEL_EXECUTE);
    text_has("is not device memory");
    ck_assert_int_eq(acl->aclmdlRIDestroy(model), 0);
    ck_assert_int_eq(acl->aclrtFreePhysical(a), 0);
    give_back(range + PAGE, b);
    ck_assert_int_eq(acl->aclrtReleaseMemAddress(range), 0);
    close_simulator();
}
END_TEST

START_TEST(memory_that_a_kernel_uses_is_not_unmapped)
{
    char *range;
    void *a;

    open_simulator();
    range = range_of(PAGE);
    a = mapped_at(range, PAGE);
    SIMULATOR(ngd_aclsim_break)(0, "hang");
    ck_assert_int_eq(twice(range, range + 512), 0);
    ck_assert_int_eq(acl->aclrtSynchronizeStreamWithTimeout(stream, 20), NGD_ACL_RT_STREAM_SYNC_TIMEOUT);
    refused(acl->aclrtUnmapMem(range), NGD_ACL_RT_PARAM_INVALID, "uses what is mapped");
    SIMULATOR(ngd_aclsim_break)(0, "ok");
    ck_assert_int_eq(acl->aclrtDestroyStreamForce(stream), 0);
    give_back(range, a);
    ck_assert_int_eq(acl->aclrtReleaseMemAddress(range), 0);
    close_simulator();
}
END_TEST

START_TEST(functions_can_be_hidden)
{
    simulator_set("no_mapping", "1");
    open_simulator();
    ck_assert_ptr_null((void *)acl->aclrtReserveMemAddress);
    ck_assert_ptr_null((void *)acl->aclrtMemGetAllocationGranularity);
    ck_assert_ptr_null((void *)acl->aclrtMapMem);
    ck_assert_ptr_nonnull((void *)acl->aclrtMalloc);
    close_simulator();
}
END_TEST

UNIT_MAIN("ascend/simulator mapping", granularity_is_what_ranges_and_pieces_are_multiples_of,
          pieces_behind_one_another_are_one_memory_and_others_are_not,
          mapping_that_the_documents_forbid_is_refused_and_changes_nothing,
          physical_memory_is_counted_until_it_is_given_back_and_unmapped,
          graph_keeps_its_addresses_while_more_is_mapped_and_faults_when_they_are_unmapped,
          memory_that_a_kernel_uses_is_not_unmapped, functions_can_be_hidden)
