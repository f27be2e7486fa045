/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/rpc/rpc_state.h"
#include "tests/unit/unit.h"

/* ---- messages that arrive ---- */

START_TEST(a_message_is_busy_until_its_answer)
{
    struct rpc_state s = {0};

    ck_assert(rpc_state_take(&s));
    ck_assert(rpc_state_is_busy(&s));
    rpc_state_owe(&s);
    ck_assert(rpc_state_is_busy(&s));
    ck_assert(rpc_state_answered(&s));
    ck_assert(!rpc_state_is_busy(&s));
    ck_assert_msg(!rpc_state_answered(&s), "one answer gives up one reference");
}
END_TEST

START_TEST(a_handler_without_a_reference_gives_up_none)
{
    struct rpc_state s = {0};

    rpc_state_take(&s);
    ck_assert(!rpc_state_answered(&s));
    ck_assert(rpc_state_is_busy(&s));
    ck_assert(rpc_state_read_on(&s));
    ck_assert(!rpc_state_is_busy(&s));
}
END_TEST

START_TEST(nothing_is_taken_or_read_after_the_end)
{
    struct rpc_state s = {0};

    rpc_state_claim(&s);
    ck_assert(!rpc_state_take(&s));
    ck_assert(!rpc_state_is_busy(&s));
    ck_assert(!rpc_state_read_on(&s));
}
END_TEST

START_TEST(reading_pauses_while_the_queue_is_long)
{
    struct rpc_state s = {0};

    s.queued = RPC_UNSENT_MAX;
    rpc_state_take(&s);
    ck_assert(!rpc_state_read_on(&s));
    s.queued = RPC_UNSENT_MAX / 2;
    ck_assert(!rpc_state_resume(&s));
    s.queued--;
    ck_assert(rpc_state_resume(&s));
    ck_assert_msg(!rpc_state_resume(&s), "one read at a time");
}
END_TEST

/* ---- messages that go out ---- */

START_TEST(initial_metadata_goes_once)
{
    struct rpc_state s = {0};

    ck_assert(rpc_state_begin(&s));
    rpc_state_send(&s);
    ck_assert(!rpc_state_begin(&s));
    ck_assert_uint_eq(rpc_state_unsent(&s), 1);
    rpc_state_sent(&s, true);
    ck_assert(!rpc_state_begin(&s));
    ck_assert_uint_eq(rpc_state_unsent(&s), 0);
    ck_assert(rpc_state_takes_messages(&s));
}
END_TEST

START_TEST(a_failure_does_not_overtake_an_end_behind_messages)
{
    struct rpc_state s = {0};

    rpc_state_begin(&s);
    rpc_state_send(&s);
    ck_assert(rpc_state_end_later(&s));
    ck_assert(!rpc_state_takes_messages(&s));
    ck_assert_msg(!rpc_state_claim_failure(&s), "the end says why nothing is taken");
    rpc_state_sent(&s, true);
    ck_assert(rpc_state_claim(&s));
    ck_assert(!rpc_state_claim_failure(&s));
    s = (struct rpc_state){0};
    ck_assert(rpc_state_claim_failure(&s));
    s = (struct rpc_state){0};
    ck_assert(rpc_state_end_later(&s));
    ck_assert_msg(rpc_state_claim_failure(&s), "behind an answer, a failure is the answer");
}
END_TEST

START_TEST(a_broken_stream_takes_no_messages)
{
    struct rpc_state a = {0}, b = {0};

    rpc_state_begin(&a);
    rpc_state_send(&a);
    rpc_state_sent(&a, false);
    ck_assert(!rpc_state_takes_messages(&a));
    rpc_state_begin(&b);
    rpc_state_send_failed(&b);
    ck_assert(!rpc_state_takes_messages(&b));
    ck_assert_uint_eq(rpc_state_unsent(&b), 0);
}
END_TEST

/* ---- the end ---- */

START_TEST(one_caller_gets_the_end)
{
    struct rpc_state s = {0};

    ck_assert(rpc_state_end_later(&s));
    ck_assert_msg(!rpc_state_end_later(&s), "the first end counts");
    ck_assert(!rpc_state_takes_messages(&s));
    ck_assert_msg(rpc_state_claim(&s), "a failure does not wait for the queue");
    ck_assert(!rpc_state_claim(&s));
    ck_assert(!rpc_state_end_later(&s));
}
END_TEST

START_TEST(who_still_owes_is_told_once)
{
    struct rpc_state s = {0};

    ck_assert(!rpc_state_tell(&s, NGD_RPC_UNARY));
    rpc_state_owe(&s);
    ck_assert(rpc_state_tell(&s, NGD_RPC_UNARY));
    ck_assert(!rpc_state_tell(&s, NGD_RPC_UNARY));
}
END_TEST

START_TEST(streams_of_the_client_hear_of_its_going)
{
    struct rpc_state upload = {0}, ended = {0}, duplex = {0};

    ck_assert(rpc_state_tell(&upload, NGD_RPC_CLIENT_STREAM));
    rpc_state_claim(&ended);
    ck_assert(!rpc_state_tell(&ended, NGD_RPC_CLIENT_STREAM));
    rpc_state_claim(&duplex);
    ck_assert(rpc_state_tell(&duplex, NGD_RPC_DUPLEX));
    ck_assert(!rpc_state_tell(&duplex, NGD_RPC_DUPLEX));
}
END_TEST

UNIT_MAIN("daemon/rpc_state", a_message_is_busy_until_its_answer, a_handler_without_a_reference_gives_up_none,
          nothing_is_taken_or_read_after_the_end, reading_pauses_while_the_queue_is_long, initial_metadata_goes_once,
          a_failure_does_not_overtake_an_end_behind_messages, a_broken_stream_takes_no_messages,
          one_caller_gets_the_end, who_still_owes_is_told_once, streams_of_the_client_hear_of_its_going)
