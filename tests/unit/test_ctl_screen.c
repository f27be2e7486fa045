/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the screen of commands that run until they are interrupted, on a terminal that the test makes. */
#include "client/ctl/ctl_screen.h"
#include "tests/unit/unit.h"

#include <pty.h>
#include <stdio.h>
#include <unistd.h>

/* While it is open, standard input and output are a terminal. */
struct terminal {
    int keyboard, kept[2];
};

static void terminal_open(struct terminal *t)
{
    static const struct ctl ctl = {0};
    int slave;

    fflush(stdout);
    ck_assert_int_eq(openpty(&t->keyboard, &slave, NULL, NULL, NULL), 0);
    for (int i = 0; i < 2; i++) {
        t->kept[i] = dup(i);
        dup2(slave, i);
    }
    close(slave);
    ck_assert_int_eq(setenv("TERM", "xterm", 1), 0);
    ck_assert(ctl_screen_enter(&ctl));
}

static void terminal_close(struct terminal *t)
{
    ctl_screen_leave();
    for (int i = 0; i < 2; i++) {
        dup2(t->kept[i], i);
        close(t->kept[i]);
    }
    close(t->keyboard);
}

START_TEST(a_key_is_seen_though_the_time_is_over)
{
    struct terminal t;
    ctl_screen_event_t first, second;

    terminal_open(&t);
    ck_assert_int_eq(write(t.keyboard, "xq", 2), 2);
    first = ctl_screen_wait(1);
    second = ctl_screen_wait(1);
    terminal_close(&t);
    ck_assert_int_eq(first, CTL_SCREEN_TIME);
    ck_assert_int_eq(second, CTL_SCREEN_QUIT);
}
END_TEST

START_TEST(a_key_ends_the_wait_and_other_keys_do_not)
{
    struct terminal t;
    ctl_screen_event_t event;
    uint64_t began;

    terminal_open(&t);
    ck_assert_int_eq(write(t.keyboard, "x", 1), 1);
    began = ctl_screen_now();
    event = ctl_screen_wait(began + 20000000);
    ck_assert_uint_ge(ctl_screen_now(), began + 20000000);
    ck_assert_int_eq(write(t.keyboard, "q", 1), 1);
    if (event == CTL_SCREEN_TIME)
        event = ctl_screen_wait(UINT64_MAX);
    terminal_close(&t);
    ck_assert_int_eq(event, CTL_SCREEN_QUIT);
}
END_TEST

UNIT_MAIN("client/ctl_screen", a_key_is_seen_though_the_time_is_over, a_key_ends_the_wait_and_other_keys_do_not)
