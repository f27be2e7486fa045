/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "daemon/front/splice.h"
#include "tests/unit/unit.h"
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define MOST (64 << 10)

/* Two pairs: what is written to from[1] is moved from from[0] to to[0], and read from to[1]. */
struct way {
    struct front_splice splice;
    int from[2], to[2];
    uint8_t rest[MOST];
};

static struct way *make_way(void)
{
    struct way *w = ngd_malloc(sizeof(*w));

    ck_assert_ptr_nonnull(w);
    signal(SIGPIPE, SIG_IGN); /* as in the daemon */
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, w->from), 0);
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, w->to), 0);
    front_splice_init(&w->splice);
    ck_assert(front_splice_usable(&w->splice));
    return w;
}

static void free_way(struct way *w)
{
    front_splice_fini(&w->splice);
    ck_assert(!front_splice_usable(&w->splice));
    close(w->from[0]);
    close(w->from[1]);
    close(w->to[0]);
    close(w->to[1]);
    ngd_free(w);
}

static struct front_moved move_once(struct way *w, size_t n)
{
    const struct front_moved moved = front_splice_move(&w->splice, w->from[0], w->to[0], n, w->rest);

    ck_assert_uint_le(moved.taken, n);
    ck_assert_uint_le(moved.sent, moved.taken);
    return moved;
}

#define TOTAL (1 << 20)

/* The destination's reader takes nothing until it is full, so that moves end in the middle. */
START_TEST(all_bytes_arrive_in_order_whatever_the_destination_takes)
{
    struct way *w = make_way();
    uint8_t *in = ngd_malloc(TOTAL), *out = ngd_malloc(TOTAL);
    size_t written = 0, got = 0, partial = 0;

    ck_assert(in && out);
    for (size_t i = 0; i < TOTAL; i++)
        in[i] = (uint8_t)(i * 31 + (i >> 8) * 7);
    while (got < TOTAL) {
        ssize_t n = send(w->from[1], in + written, TOTAL - written, 0);
        struct front_moved m;

        written += n > 0 ? (size_t)n : 0;
        m = move_once(w, MOST);
        ck_assert(!m.failed);
        if (m.taken > 0 && m.sent == m.taken)
            continue;
        while ((n = recv(w->to[1], out + got, TOTAL - got, 0)) > 0)
            got += (size_t)n;
        partial += m.sent < m.taken;
        memcpy(out + got, w->rest, m.taken - m.sent); /* the caller sends these itself */
        got += m.taken - m.sent;
    }
    ck_assert_uint_gt(partial, 0);
    ck_assert(memcmp(in, out, TOTAL) == 0);
    free_way(w);
    ngd_free(in);
    ngd_free(out);
}
END_TEST

START_TEST(nothing_is_taken_from_an_empty_source_or_one_that_has_ended)
{
    struct way *w = make_way();

    ck_assert_uint_eq(move_once(w, MOST).taken, 0);
    ck_assert(front_splice_usable(&w->splice));
    ck_assert_int_eq(send(w->from[1], "abc", 3, 0), 3);
    ck_assert_uint_eq(move_once(w, 2).taken, 2);
    close(w->from[1]);
    ck_assert_uint_eq(move_once(w, MOST).sent, 1);
    ck_assert_uint_eq(move_once(w, MOST).taken, 0);
    ck_assert(front_splice_usable(&w->splice));
    ck_assert_int_eq(recv(w->to[1], w->rest, 4, 0), 3);
    w->from[1] = dup(w->from[0]);
    free_way(w);
}
END_TEST

START_TEST(bytes_for_a_destination_that_is_gone_do_not_stay_in_the_pipe)
{
    struct way *w = make_way(), *other = make_way();
    struct front_moved m;

    close(w->to[1]);
    ck_assert_int_eq(send(w->from[1], "abc", 3, 0), 3);
    m = move_once(w, MOST);
    ck_assert(m.failed && m.taken == 3 && m.sent == 0);
    ck_assert_int_eq(send(other->from[1], "xy", 2, 0), 2);
    m = front_splice_move(&w->splice, other->from[0], other->to[0], MOST, other->rest);
    ck_assert(!m.failed && m.sent == 2);
    ck_assert_int_eq(recv(other->to[1], other->rest, 8, 0), 2);
    ck_assert_mem_eq(other->rest, "xy", 2);
    w->to[1] = dup(w->to[0]);
    free_way(w);
    free_way(other);
}
END_TEST

/* As if the kernel counted wrongly: the pipe's end is that of an empty one. */
START_TEST(a_pipe_that_loses_bytes_is_not_used_again)
{
    struct way *w = make_way();
    const int kept = dup(w->splice.out); /* a pipe without a reader takes nothing */
    struct front_moved m;
    int empty[2];

    ck_assert_int_eq(pipe2(empty, O_NONBLOCK), 0);
    ck_assert_int_eq(dup2(empty[0], w->splice.out), w->splice.out);
    ck_assert_int_eq(send(w->from[1], "abc", 3, 0), 3);
    m = move_once(w, MOST);
    ck_assert(m.failed && m.taken == 3 && m.sent == 0);
    ck_assert(!front_splice_usable(&w->splice));
    close(empty[0]);
    close(empty[1]);
    close(kept);
    free_way(w);
}
END_TEST

START_TEST(where_moves_are_not_possible_the_caller_copies)
{
    struct way *w = make_way();

    ck_assert_uint_eq(front_splice_move(&w->splice, w->splice.out, w->to[0], MOST, w->rest).taken, 0); /* EINVAL */
    ck_assert(!front_splice_usable(&w->splice));
    free_way(w);
}
END_TEST

UNIT_MAIN("daemon/front/splice", all_bytes_arrive_in_order_whatever_the_destination_takes,
          nothing_is_taken_from_an_empty_source_or_one_that_has_ended,
          bytes_for_a_destination_that_is_gone_do_not_stay_in_the_pipe, a_pipe_that_loses_bytes_is_not_used_again,
          where_moves_are_not_possible_the_caller_copies)
