/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A group that spans daemons, with a rank that the backend does not drive: what that one sends in place of a word, and
 * what the backend's rank then answers. The stranger calls HCCL itself, on the second device.
 */
#include "devices/ascend/acl.h"
#include "devices/comm.h"
#include "tests/ascend/step.h"
#include <pthread.h>

#define SUM_GRAPH                                                                             \
    "npugraph 1\ngraph \"sum\" {\n input %x : f32[4]\n %y = _c10d_functional.all_reduce(%x) " \
    "{reduce_op=\"sum\", group_name=\"tp\"}\n return \"y\" = %y\n}\n"
#define ROOT_HEAD 16 /* bytes before HCCL's own information */

/* As devices/ascend/group_span.c sends it. */
struct word {
    uint64_t magic, digest, tag;
    uint32_t n_says, failed;
    uint64_t sends[NGD_GROUP_MAX_RANKS], receives[NGD_GROUP_MAX_RANKS];
    char text[224];
};

struct stranger {
    const struct ngd_acl *acl;
    void *context, *stream, *comm;
    char *memory; /* a word, two words, and four floats */
    pthread_t thread;
    const char *root;
};

struct meeting {
    struct bench b;
    struct ready r;
    struct ngd_comm *comm;
    struct stranger other;
    struct word words[2]; /* of the last launch: rank 0's, the stranger's */
    float x[4], y[4];
    struct ngd_span in;
    struct ngd_out out;
    struct ngd_launch launch;
};

#define ACL(call) ck_assert_int_eq(call, 0)

/* ---- the stranger -------------------------------------------------------------------------------- */

static void enter_stranger(const struct stranger *s)
{
    ACL(s->acl->aclrtSetCurrentContext(s->context));
}

static void sync_stranger(const struct stranger *s)
{
    ACL(s->acl->aclrtSynchronizeStreamWithTimeout(s->stream, 10000));
}

static void *join_as_stranger(void *arg)
{
    struct stranger *s = arg;

    ACL(s->acl->aclrtCreateContext(&s->context, 1));
    ACL(s->acl->aclrtCreateStream(&s->stream));
    ACL(s->acl->aclrtMalloc((void **)&s->memory, 4096, NGD_ACL_MALLOC_HUGE_FIRST));
    ACL(s->acl->HcclCommInitRootInfo(2, s->root + ROOT_HEAD, 1, &s->comm));
    ACL(s->acl->HcclAllReduce(s->memory, s->memory, 1, NGD_HCCL_FP32, NGD_HCCL_SUM, s->comm, s->stream));
    sync_stranger(s);
    return NULL;
}

/* Sends the bytes as this launch's word, and gets those of both ranks. */
static void send_word(struct meeting *m, const struct word *word)
{
    const struct stranger *s = &m->other;

    enter_stranger(s);
    ACL(s->acl->aclrtMemcpy(s->memory, sizeof(*word), word, sizeof(*word), NGD_ACL_COPY_H2D));
    ACL(s->acl->HcclAllGather(s->memory, s->memory + sizeof(*word), sizeof(*word), NGD_HCCL_UINT8, s->comm, s->stream));
    sync_stranger(s);
    ACL(s->acl->aclrtMemcpy(m->words, sizeof(m->words), s->memory + sizeof(*word), sizeof(m->words), NGD_ACL_COPY_D2H));
}

static void reduce_as_stranger(const struct stranger *s)
{
    enter_stranger(s);
    ACL(s->acl->HcclAllReduce(s->memory, s->memory, 4, NGD_HCCL_FP32, NGD_HCCL_SUM, s->comm, s->stream));
}

/* ---- the backend's rank -------------------------------------------------------------------------- */

static void open_meeting_for(struct meeting *m, ngd_nsec_t limit)
{
    char root[NGD_COMM_ROOT_MAX];
    struct ngd_comm_span span = {.size = 2, .root = root};
    struct ngd_comm_params params;
    struct ngd_diag diag = {0};

    memset(m, 0, sizeof(*m));
    simulator_set("devices", "2");
    must(open_device(&m->b, 0, &diag), &diag);
    must(ngd_acl_load(simulator_dir(), NULL, &m->other.acl, &diag), &diag);
    must(ngd_comm_root(m->b.dev, root, &span.root_bytes, &diag), &diag);
    m->other.root = root;
    ck_assert_int_eq(pthread_create(&m->other.thread, NULL, join_as_stranger, &m->other), 0);
    ngd_comm_params_init(&params);
    params.name = "tp";
    params.devices = &m->b.dev;
    params.n = 1;
    params.span = &span;
    params.time_limit = limit;
    must(ngd_comm_create(&params, &m->comm, &diag), &diag);
    pthread_join(m->other.thread, NULL);
    ck_assert_uint_eq(ngd_comm_size(m->comm), 2);
    must(ready_open_in(&m->r, &m->b, &m->comm, 1, SUM_GRAPH, NULL, &diag), &diag);
}

static void open_meeting(struct meeting *m)
{
    open_meeting_for(m, 500 * NGD_MSEC);
}

static void close_meeting(struct meeting *m)
{
    const struct stranger *s = &m->other;

    ready_close(&m->r);
    ngd_comm_destroy(m->comm);
    enter_stranger(s);
    ACL(s->acl->HcclCommDestroy(s->comm));
    ACL(s->acl->aclrtFree(s->memory));
    ACL(s->acl->aclrtDestroyStreamForce(s->stream));
    ACL(s->acl->aclrtDestroyContext(s->context));
    close_device(&m->b);
    ngd_acl_unload(s->acl);
    nothing_is_left("after a group with a stranger");
    simulator_set("devices", "1");
}

static void begin_launch(struct meeting *m)
{
    for (int i = 0; i < 4; i++)
        m->x[i] = (float)i;
    m->in = (struct ngd_span){m->x, sizeof(m->x)};
    m->out = (struct ngd_out){m->y, sizeof(m->y)};
    m->launch = (struct ngd_launch){.inputs = &m->in, .outputs = &m->out, .tag = 7, .status = NGD_ERR_INTERNAL};
    ck_assert_int_eq(ngd_stream_launch(m->b.stream, m->r.inst, &m->launch), NGD_OK);
}

static void ends_as(struct meeting *m, ngd_status_t status, const char *words)
{
    ngd_stream_sync(m->b.stream);
    ck_assert_msg(m->launch.status == status && strstr(m->launch.diag.text, words), "%s: %s",
                  ngd_status_name(m->launch.status), m->launch.diag.text);
}

/* The launch answers that, and the group is whole again after a reset that makes nothing anew. */
static void answers(struct meeting *m, const struct word *word, ngd_status_t status, const char *words)
{
    struct ngd_diag diag = {0};

    begin_launch(m);
    send_word(m, word);
    ends_as(m, status, words);
    ck_assert_int_eq(ngd_comm_status(m->comm, &diag), status);
    must(ngd_comm_reset(m->comm, &diag), &diag);
}

START_TEST(words_that_are_none_or_differ_end_the_launch_and_the_group_works_on)
{
    struct meeting m;
    struct word word = {0};

    open_meeting(&m);
    answers(&m, &word, NGD_ERR_GROUP_BROKEN, "another version");
    memset(&word, 0xff, sizeof(word));
    answers(&m, &word, NGD_ERR_GROUP_BROKEN, "another version");
    word = m.words[0];
    word.failed = 1;
    memset(word.text, 'A', sizeof(word.text)); /* without an end */
    memcpy(word.text, "\x1b[31m\n\xff", 7);
    answers(&m, &word, NGD_ERR_GROUP_BROKEN, "rank 1 failed: ?[31m??AAA");
    ck_assert_uint_lt(strlen(m.launch.diag.text), 400);
    word = m.words[0];
    word.digest++;
    answers(&m, &word, NGD_ERR_COLLECTIVE_MISMATCH, "rank 0 does 1 collectives");
    word = m.words[0];
    word.n_says = UINT32_MAX;
    answers(&m, &word, NGD_ERR_COLLECTIVE_MISMATCH, "rank 1 does");
    word = m.words[0];
    ck_assert_uint_eq(word.tag, 7);
    word.tag = 8;
    answers(&m, &word, NGD_ERR_COLLECTIVE_MISMATCH, "tag 7, rank 1 that with tag 8");
    word = m.words[0];
    word.sends[0] = 1;
    answers(&m, &word, NGD_ERR_COLLECTIVE_MISMATCH, "other parts");
    for (int i = 0; i < 3; i++) {
        begin_launch(&m);
        word = m.words[0];
        send_word(&m, &word);
        reduce_as_stranger(&m.other);
        ends_as(&m, NGD_OK, "");
        sync_stranger(&m.other);
    }
    close_meeting(&m);
}
END_TEST

/* What hangs in HCCL is stopped; nobody can tell what the other daemon's rank has of it. */
static void times_out(void (*other)(const struct stranger *s))
{
    struct ngd_diag diag = {0};
    struct meeting m;

    open_meeting(&m);
    begin_launch(&m);
    if (other)
        other(&m.other);
    ends_as(&m, NGD_ERR_COLLECTIVE_TIMEOUT, "within 0.5 s");
    ck_assert_int_eq(ngd_comm_reset(m.comm, &diag), NGD_ERR_GROUP_BROKEN);
    ck_assert_ptr_nonnull(strstr(diag.text, "make a new one"));
    begin_launch(&m);
    ends_as(&m, NGD_ERR_COLLECTIVE_TIMEOUT, "within 0.5 s");
    enter_stranger(&m.other);
    ACL(m.other.acl->aclrtStreamAbort(m.other.stream));
    close_meeting(&m);
}

START_TEST(rank_that_sends_no_word_is_waited_for_until_the_limit)
{
    times_out(NULL);
}
END_TEST

START_TEST(rank_that_calls_another_collective_in_place_of_its_word_is_waited_for_until_the_limit)
{
    times_out(reduce_as_stranger);
}
END_TEST

START_TEST(rank_that_waits_for_words_ends_when_its_group_is_given_up)
{
    struct meeting m;

    open_meeting_for(&m, 60 * NGD_SEC);
    begin_launch(&m);
    ngd_comm_abort(m.comm, NGD_ERR_CANCELLED, "its client left");
    ends_as(&m, NGD_ERR_CANCELLED, "its client left");
    enter_stranger(&m.other);
    ACL(m.other.acl->aclrtStreamAbort(m.other.stream));
    close_meeting(&m);
}
END_TEST

UNIT_MAIN("ascend/span", words_that_are_none_or_differ_end_the_launch_and_the_group_works_on,
          rank_that_sends_no_word_is_waited_for_until_the_limit,
          rank_that_calls_another_collective_in_place_of_its_word_is_waited_for_until_the_limit,
          rank_that_waits_for_words_ends_when_its_group_is_given_up)
