/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NPUGRAPH_CTL_SCREEN_H
#define NPUGRAPH_CTL_SCREEN_H

/*
 * The terminal as a screen that is drawn anew in place, for commands that go on. The screen that was there before comes
 * back at the end, also when a signal ends the process, and while it is stopped (Ctrl-Z). One screen per process.
 */
#include "client/ctl/ctl.h"

/* False: standard output is no terminal that can do it, or JSON was asked for; frames go one below the other then. */
bool ctl_screen_enter(const struct ctl *ctl);
void ctl_screen_leave(void); /* without one: nothing */
bool ctl_screen_on(void);

/* As much of the text as there is room for; its lines are cut at the terminal's width. */
void ctl_screen_show(const char *frame);

typedef enum ctl_screen_event { CTL_SCREEN_TIME, CTL_SCREEN_REDRAW, CTL_SCREEN_QUIT } ctl_screen_event_t;
/* Waits until the time (CLOCK_MONOTONIC, ns), the key q, or a new size of the terminal. Without a screen: the time. */
ctl_screen_event_t ctl_screen_wait(uint64_t until);
uint64_t ctl_screen_now(void);

#endif
