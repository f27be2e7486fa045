/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NPUGRAPH_CTL_SCREEN_H
#define NPUGRAPH_CTL_SCREEN_H

/*
 * A screen on the terminal that is redrawn in place, for commands that update their output. The previous screen comes
 * back at the end, also if a signal ends the process, and while the process is stopped (Ctrl-Z). One screen per
 * process.
 */
#include "client/ctl/ctl.h"

/* Switches to the screen. Returns false if standard output is no terminal that supports it, or with --json; frames are
 * printed one below the other then. */
bool ctl_screen_enter(const struct ctl *ctl);
void ctl_screen_leave(void); /* does nothing without a screen */
bool ctl_screen_on(void);

/* Shows as much of the text as there is room for. Lines are cut at the terminal's width. */
void ctl_screen_show(const char *frame);

typedef enum ctl_screen_event { CTL_SCREEN_TIME, CTL_SCREEN_REDRAW, CTL_SCREEN_QUIT } ctl_screen_event_t;
/* Waits until the time (CLOCK_MONOTONIC, ns), the key q, or a new size of the terminal. Without a screen it waits only
 * for the time. */
ctl_screen_event_t ctl_screen_wait(uint64_t until);
uint64_t ctl_screen_now(void);

#endif
