/* SPDX-License-Identifier: Apache-2.0 */
/* --watch TIME: runs a command again and again, on a screen of a terminal, or one output below the other. --follow. */
#include "client/ctl/ctl_watch.h"
#include "base/config.h"
#include "client/ctl/ctl_screen.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define INTERVAL_MIN (100 * NGD_MSEC)
#define INTERVAL_MAX (3600 * NGD_SEC)
#define FOLLOW       (500 * NGD_MSEC) /* between two looks for new lines */

int ctl_watch_parse(struct ctl *ctl, const char *value)
{
    ngd_nsec_t t;

    if (ngd_parse_time(value, &t) != NGD_OK || t < INTERVAL_MIN || t > INTERVAL_MAX)
        return ctl_usage(NULL, "--watch takes a time from 100ms to 1h, such as 2s");
    ctl->watch = (uint64_t)t;
    return 0;
}

/* Runs the command with arguments of its own: parsing changes them. */
static int run_once(struct ctl *ctl, const struct ctl_command *c, int argc, char **argv)
{
    char **copies = calloc((size_t)argc + 1, sizeof(*copies));
    int rc = copies != NULL ? 0 : ctl_error("out of memory");

    for (int i = 0; rc == 0 && i < argc; i++) {
        copies[i] = strdup(argv[i]);
        if (copies[i] == NULL)
            rc = ctl_error("out of memory");
    }
    if (rc == 0)
        rc = c->run(ctl, argc, copies);
    for (int i = 0; copies != NULL && i < argc; i++)
        free(copies[i]);
    free(copies);
    return rc;
}

/* Runs the command into a string; the caller frees it. */
static int run_into(struct ctl *ctl, const struct ctl_command *c, int argc, char **argv, char **text_p)
{
    size_t n = 0;
    int rc;

    *text_p = NULL;
    ctl->out = open_memstream(text_p, &n);
    if (ctl->out == NULL) {
        ctl->out = stdout;
        return ctl_error("out of memory");
    }
    rc = run_once(ctl, c, argc, argv);
    fclose(ctl->out);
    ctl->out = stdout;
    return rc;
}

/* Redraws until the time of the next output. Returns false if the user quits. */
static bool show_until(const char *text, uint64_t until)
{
    ctl_screen_event_t event;

    do {
        ctl_screen_show(text);
        event = ctl_screen_wait(until);
    } while (event == CTL_SCREEN_REDRAW);
    return event == CTL_SCREEN_TIME;
}

/* The first run tells mistakes before the screen is taken. An error of a later one leaves the screen. */
static int watch_screen(struct ctl *ctl, const struct ctl_command *c, int argc, char **argv)
{
    char *text = NULL;
    bool goes_on = true;
    int rc = run_into(ctl, c, argc, argv, &text);

    if (rc != 0 || !ctl_screen_enter(ctl)) {
        fputs(text != NULL ? text : "", stdout);
        free(text);
        return rc;
    }
    while (rc == 0 && goes_on) {
        goes_on = show_until(text, ctl_screen_now() + ctl->watch);
        if (goes_on) {
            free(text);
            rc = run_into(ctl, c, argc, argv, &text);
        }
    }
    free(text);
    ctl_screen_leave();
    return rc;
}

static int watch_lines(struct ctl *ctl, const struct ctl_command *c, int argc, char **argv)
{
    for (;;) {
        uint64_t until = ctl_screen_now() + ctl->watch;
        int rc = run_once(ctl, c, argc, argv);

        if (rc != 0)
            return rc;
        ctl_flush_line(ctl);
        if (!ctl->json)
            putchar('\n');
        if (fflush(stdout) != 0 || ferror(stdout))
            return 1;
        ctl_screen_wait(until);
    }
}

int ctl_watch(struct ctl *ctl, const struct ctl_command *c, int argc, char **argv)
{
    static const char *const those[] = {"status", "devices", "graphs",    "models", "sessions", "groups",
                                        "shares", "quota",   "sequences", "memory", "explain",  NULL};

    for (size_t i = 0; those[i] != NULL; i++)
        if (strcmp(those[i], c->name) == 0)
            return isatty(STDOUT_FILENO) != 0 && !ctl->json ? watch_screen(ctl, c, argc, argv)
                                                            : watch_lines(ctl, c, argc, argv);
    return ctl_usage(NULL,
                     "--watch is for commands that list: status, devices, graphs, models, sessions, groups, shares, "
                     "quota, sequences, memory, explain");
}

int ctl_follow(struct ctl *ctl, bool follow, int (*print)(struct ctl *ctl, void *arg), void *arg)
{
    for (;;) {
        const int rc = print(ctl, arg);

        if (rc != 0)
            return rc;
        if (fflush(stdout) != 0 || ferror(stdout))
            return 1;
        if (!follow)
            return 0;
        ctl_screen_wait(ctl_screen_now() + FOLLOW);
    }
}
