/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NPUGRAPH_CTL_WATCH_H
#define NPUGRAPH_CTL_WATCH_H

/* --watch TIME, for commands that list; --follow, for commands that print lines as they come. */
#include "client/ctl/ctl.h"

/* Takes the option's value. Prints mistakes and returns 2 then. */
int ctl_watch_parse(struct ctl *ctl, const char *value);
/* Runs the command each ctl->watch: on a screen of the terminal until q is pressed; elsewhere the outputs follow one
 * another, with --json a line each, until nobody reads them. An error ends it with the command's exit code. */
int ctl_watch(struct ctl *ctl, const struct ctl_command *c, int argc, char **argv);
/* Calls print, and then again each half second, until it returns another exit code than 0 or nobody reads standard
 * output. follow false: calls it once. */
int ctl_follow(struct ctl *ctl, bool follow, int (*print)(struct ctl *ctl, void *arg), void *arg);

#endif
