/* SPDX-License-Identifier: Apache-2.0 */
/* Tests what a client keeps of a sequence (kept.h): all that happens to it, and what does not go together. */
#include "client/lib/kept.h"
#include "tests/unit/unit.h"

#include <string.h>

enum { PROMPT = 3 };

static const int32_t prompt[PROMPT] = {5, 6, 7};
static uint8_t model_id[32] = {1, 2, 3};

static Npugraph__V1__OpenResponse opened(int32_t token, uint32_t position)
{
    Npugraph__V1__OpenResponse answer = NPUGRAPH__V1__OPEN_RESPONSE__INIT;

    answer.token = token;
    answer.position = position;
    answer.model_id = (ProtobufCBinaryData){.data = model_id, .len = sizeof(model_id)};
    return answer;
}

/* A sequence of model "m" with seed 9, whose first token is 8 under a mask. */
static struct npugraph__kept *keep(void)
{
    static uint8_t mask[] = {0x0f, 0x01};
    Npugraph__V1__OpenRequest req = NPUGRAPH__V1__OPEN_REQUEST__INIT;
    Npugraph__V1__Sampling sampling = NPUGRAPH__V1__SAMPLING__INIT;
    const Npugraph__V1__OpenResponse answer = opened(8, PROMPT);
    struct npugraph__kept *k;

    sampling.seed = 9;
    req.model = (char *)(uintptr_t) "m";
    req.prompt = (int32_t *)(uintptr_t)prompt;
    req.n_prompt = PROMPT;
    req.sampling = &sampling;
    req.want_logits = true;
    req.allowed = (ProtobufCBinaryData){.data = mask, .len = sizeof(mask)};
    k = npugraph__kept_open(&req, 70, &answer);
    ck_assert_ptr_nonnull(k);
    ck_assert(npugraph__kept_is_whole(k));
    return k;
}

static void step(struct npugraph__kept *k, Npugraph__V1__StepRequest *req, int32_t token, uint32_t position,
                 uint32_t accepted)
{
    Npugraph__V1__StepResponse answer = NPUGRAPH__V1__STEP_RESPONSE__INIT;

    answer.token = token;
    answer.position = position;
    answer.accepted = accepted;
    npugraph__kept_step(k, req, &answer);
}

static void plain_step(struct npugraph__kept *k, int32_t token, uint32_t position)
{
    Npugraph__V1__StepRequest req = NPUGRAPH__V1__STEP_REQUEST__INIT;

    step(k, &req, token, position, 0);
}

static void generated(struct npugraph__kept *k, const int32_t *tokens, size_t n, uint32_t position)
{
    Npugraph__V1__GenerateResponse message = NPUGRAPH__V1__GENERATE_RESPONSE__INIT;

    message.tokens = (int32_t *)(uintptr_t)tokens;
    message.n_tokens = n;
    message.position = position;
    npugraph__kept_tokens(k, &message);
}

/* Checks what the daemon would be asked, in the form it has on the wire. */
static void check_kept(const struct npugraph__kept *k, const int32_t *context, uint32_t n, int32_t chosen,
                       const Npugraph__V1__RestoredSequence *want, size_t mask_bytes)
{
    struct npugraph__kept_request r;
    Npugraph__V1__OpenRequest *sent;
    uint8_t packed[8192];
    size_t size;

    ck_assert(npugraph__kept_is_whole(k));
    ck_assert_uint_eq(npugraph__kept_position(k), n);
    ck_assert(npugraph__kept_request_init(&r, k, NULL));
    size = npugraph__v1__open_request__get_packed_size(r.open);
    ck_assert_uint_le(size, sizeof(packed));
    npugraph__v1__open_request__pack(r.open, packed);
    npugraph__kept_request_fini(&r);
    sent = npugraph__v1__open_request__unpack(NULL, size, packed);
    ck_assert_str_eq(sent->model, "m");
    ck_assert(!sent->want_logits);
    ck_assert_uint_eq(sent->n_prompt, n);
    ck_assert_mem_eq(sent->prompt, context, n * sizeof(*context));
    ck_assert_int_eq(sent->restore->chosen, chosen);
    ck_assert_uint_eq(sent->restore->prompt_tokens, PROMPT);
    ck_assert_uint_eq(sent->restore->given_tokens, want->given_tokens);
    ck_assert_uint_eq(sent->restore->draws, want->draws);
    ck_assert_int_eq(sent->restore->delivered, want->delivered);
    ck_assert_mem_eq(sent->restore->model_id.data, model_id, sizeof(model_id));
    ck_assert_uint_eq(sent->allowed.len, mask_bytes);
    npugraph__v1__open_request__free_unpacked(sent, NULL);
}

#define CHECK(k, mask, given, draw, told, chosen, ...)                                                                \
    do {                                                                                                              \
        const int32_t context_[] = {__VA_ARGS__};                                                                     \
        const Npugraph__V1__RestoredSequence want_ = {.given_tokens = (given), .draws = (draw), .delivered = (told)}; \
        check_kept(k, context_, sizeof(context_) / sizeof(context_[0]), chosen, &want_, mask);                        \
    } while (0)

START_TEST(all_operations_leave_the_tokens_that_the_daemon_has)
{
    struct npugraph__kept *k = keep();
    Npugraph__V1__StepRequest req = NPUGRAPH__V1__STEP_REQUEST__INIT;
    Npugraph__V1__TokenChoice forced = NPUGRAPH__V1__TOKEN_CHOICE__INIT;
    int32_t draft[] = {20, 21, 22}, append[] = {30, 31, 32, 33};

    CHECK(k, 2, 3, 1, false, 8, 5, 6, 7);
    plain_step(k, 9, 4);
    CHECK(k, 0, 3, 2, false, 9, 5, 6, 7, 8);
    forced.token = 10;
    req.forced = &forced;
    req.draft = draft;
    req.n_draft = 3;
    step(k, &req, 11, 7, 2);
    CHECK(k, 0, 3, 5, false, 11, 5, 6, 7, 8, 10, 20, 21);
    npugraph__v1__step_request__init(&req);
    req.append = append;
    req.n_append = 4;
    step(k, &req, 12, 11, 0);
    CHECK(k, 0, 11, 6, false, 12, 5, 6, 7, 8, 10, 20, 21, 30, 31, 32, 33);
    generated(k, (const int32_t[]){12, 13}, 2, 12); /* the one that was chosen before, and another */
    CHECK(k, 0, 11, 7, true, 13, 5, 6, 7, 8, 10, 20, 21, 30, 31, 32, 33, 12);
    generated(k, (const int32_t[]){14}, 1, 13);
    plain_step(k, 15, 14);
    CHECK(k, 0, 11, 9, false, 15, 5, 6, 7, 8, 10, 20, 21, 30, 31, 32, 33, 12, 13, 14);
    npugraph__kept_free(k);
}
END_TEST

START_TEST(a_copy_has_the_context_and_its_own_sampling)
{
    struct npugraph__kept *k = keep(), *copy;
    Npugraph__V1__ForkRequest req = NPUGRAPH__V1__FORK_REQUEST__INIT;
    const Npugraph__V1__OpenResponse answer = opened(40, 4);
    struct npugraph__kept_request r;

    plain_step(k, 9, 4);
    copy = npugraph__kept_fork(k, &req, &answer);
    generated(k, (const int32_t[]){9, 10}, 2, 5);
    CHECK(copy, 0, 3, 2, false, 40, 5, 6, 7, 8);
    CHECK(k, 0, 3, 3, true, 10, 5, 6, 7, 8, 9);
    ck_assert(npugraph__kept_request_init(&r, copy, NULL));
    ck_assert_ptr_null(r.open->sampling);
    npugraph__kept_request_fini(&r);
    ck_assert(npugraph__kept_request_init(&r, k, NULL));
    ck_assert_uint_eq(r.open->sampling->seed, 9);
    npugraph__kept_request_fini(&r);
    ck_assert_uint_eq(npugraph__kept_wait_ms(copy), 70);
    ck_assert_ptr_null(npugraph__kept_fork(NULL, &req, &answer));
    npugraph__kept_free(k);
    npugraph__kept_free(copy);
    npugraph__kept_free(NULL);
}
END_TEST

static void check_appended(const struct npugraph__kept *k, const uint32_t *parts, size_t n)
{
    struct npugraph__kept_request r;

    ck_assert(npugraph__kept_request_init(&r, k, NULL));
    ck_assert_uint_eq(r.open->restore->n_appended, n);
    ck_assert_mem_eq(r.open->restore->appended, parts, n * sizeof(*parts));
    npugraph__kept_request_fini(&r);
}

START_TEST(parts_that_were_computed_as_prompts_are_told)
{
    struct npugraph__kept *k = keep(), *copy;
    Npugraph__V1__ForkRequest fork = NPUGRAPH__V1__FORK_REQUEST__INIT;
    Npugraph__V1__StepRequest req = NPUGRAPH__V1__STEP_REQUEST__INIT;
    int32_t append[] = {30, 31, 32, 33};
    const Npugraph__V1__OpenResponse answer = opened(40, PROMPT + 5);

    req.append = append;
    req.n_append = 4;
    step(k, &req, 12, PROMPT + 4, 0); /* the step itself computes the last one */
    req.n_append = 1;
    step(k, &req, 13, PROMPT + 5, 0);
    check_appended(k, (const uint32_t[]){PROMPT, PROMPT + 3}, 2);
    copy = npugraph__kept_fork(k, &fork, &answer);
    req.n_append = 2;
    step(k, &req, 14, PROMPT + 7, 0);
    check_appended(k, (const uint32_t[]){PROMPT, PROMPT + 3, PROMPT + 5, PROMPT + 6}, 4);
    check_appended(copy, (const uint32_t[]){PROMPT, PROMPT + 3}, 2);
    npugraph__kept_free(k);
    npugraph__kept_free(copy);
}
END_TEST

START_TEST(log_probabilities_are_those_of_the_token_behind_the_context)
{
    struct npugraph__kept *k = keep();
    Npugraph__V1__Logprobs of8 = NPUGRAPH__V1__LOGPROBS__INIT, of9 = NPUGRAPH__V1__LOGPROBS__INIT;
    struct npugraph__kept_request r;

    of8.token = 8;
    of9.token = 9;
    ck_assert(npugraph__kept_request_init(&r, k, &of8));
    ck_assert_ptr_eq(r.open->restore->logprobs, &of8);
    npugraph__kept_request_fini(&r);
    ck_assert(npugraph__kept_request_init(&r, k, &of9));
    ck_assert_ptr_null(r.open->restore->logprobs);
    npugraph__kept_request_fini(&r);
    generated(k, (const int32_t[]){8}, 1, PROMPT); /* it was delivered with them */
    ck_assert(npugraph__kept_request_init(&r, k, &of8));
    ck_assert_ptr_null(r.open->restore->logprobs);
    npugraph__kept_request_fini(&r);
    npugraph__kept_free(k);
}
END_TEST

START_TEST(long_sequences_are_kept)
{
    struct npugraph__kept *k = keep();
    int32_t context[500] = {5, 6, 7, 8};
    const Npugraph__V1__RestoredSequence want = {.given_tokens = 3, .draws = 498, .delivered = true};

    for (int32_t i = 4; i < 501; i++) {
        if (i < 500)
            context[i] = i;
        generated(k, &i, 1, (uint32_t)i);
    }
    check_kept(k, context, 500, 500, &want, 0);
    npugraph__kept_free(k);
}
END_TEST

START_TEST(what_does_not_continue_is_not_restored)
{
    Npugraph__V1__StepRequest req = NPUGRAPH__V1__STEP_REQUEST__INIT;
    Npugraph__V1__StepResponse failed = NPUGRAPH__V1__STEP_RESPONSE__INIT;
    Npugraph__V1__ReplayError error = NPUGRAPH__V1__REPLAY_ERROR__INIT;
    Npugraph__V1__OpenRequest open = NPUGRAPH__V1__OPEN_REQUEST__INIT;
    Npugraph__V1__OpenResponse answer = opened(8, 0);
    int32_t token = 1;

    for (int k = 0; k < 6; k++) {
        struct npugraph__kept *kept = keep();

        failed.error = &error;
        if (k == 0)
            plain_step(kept, 9, 5); /* a generation that was cancelled went further than it told */
        else if (k == 1)
            generated(kept, &token, 1, PROMPT); /* another token than the chosen one */
        else if (k == 2)
            generated(kept, &token, 1, PROMPT + 2);
        else if (k == 3)
            step(kept, &req, 9, 4, 1); /* more than the draft */
        else if (k == 4)
            step(kept, &req, 9, UINT32_MAX, UINT32_MAX);
        req.append = &token;
        req.n_append = 1;
        if (k == 5)
            npugraph__kept_step(kept, &req, &failed);
        npugraph__v1__step_request__init(&req);
        ck_assert_msg(!npugraph__kept_is_whole(kept), "%d", k);
        plain_step(kept, 9, 4);
        generated(kept, &token, 1, 5);
        ck_assert(!npugraph__kept_is_whole(kept));
        npugraph__kept_free(kept);
    }
    answer.model_id.len = 31;
    ck_assert_ptr_null(npugraph__kept_open(&open, 1, &answer));
    ck_assert(!npugraph__kept_is_whole(NULL));
}
END_TEST

START_TEST(a_failed_step_changes_nothing)
{
    struct npugraph__kept *k = keep();
    Npugraph__V1__StepRequest req = NPUGRAPH__V1__STEP_REQUEST__INIT;
    Npugraph__V1__StepResponse failed = NPUGRAPH__V1__STEP_RESPONSE__INIT;
    Npugraph__V1__ReplayError error = NPUGRAPH__V1__REPLAY_ERROR__INIT;
    Npugraph__V1__OpenResponse answer = opened(8, PROMPT);

    failed.error = &error;
    npugraph__kept_step(k, &req, &failed);
    CHECK(k, 2, 3, 1, false, 8, 5, 6, 7);
    ck_assert(npugraph__kept_is_restored(k, &answer));
    answer.token = 9; /* an older daemon opens another sequence */
    ck_assert(!npugraph__kept_is_restored(k, &answer));
    answer = opened(8, PROMPT);
    answer.model_id.len = 0;
    ck_assert(!npugraph__kept_is_restored(k, &answer));
    npugraph__kept_free(k);
}
END_TEST

UNIT_MAIN("client/kept", parts_that_were_computed_as_prompts_are_told,
          log_probabilities_are_those_of_the_token_behind_the_context,
          all_operations_leave_the_tokens_that_the_daemon_has, a_copy_has_the_context_and_its_own_sampling,
          long_sequences_are_kept, what_does_not_continue_is_not_restored, a_failed_step_changes_nothing)
