/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The alternate screen of the terminal, without echo and line editing. Signal handlers restore the terminal before the
 * signal takes effect. They only call write() and tcsetattr(), which are safe there, so the state is static. A frame is
 * drawn over the last one: each line, and the rest of the screen, is erased as it is drawn. Clearing the screen first
 * would flicker.
 */
#include "client/ctl/ctl_screen.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>
#include <wchar.h>

#define ENTER        "\033[?1049h\033[?25l" /* alternate screen, no cursor */
#define LEAVE        "\033[?25h\033[?1049l"
#define HOME         "\033[H"
#define ERASE_LINE   "\033[K"
#define ERASE_BEHIND "\033[J"
#define PLAIN        "\033[0m"

#define DEFAULT_ROWS 24 /* for a terminal that does not tell its size */
#define DEFAULT_COLS 80

static struct termios before;
static volatile sig_atomic_t on, keys, resized;

static void write_terminal(const char *text, size_t n)
{
    while (n > 0) {
        ssize_t done = write(STDOUT_FILENO, text, n);

        if (done < 0 && errno != EINTR)
            return;
        if (done > 0) {
            text += done;
            n -= (size_t)done;
        }
    }
}

static void take_terminal(void)
{
    struct termios raw = before;

    raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
    raw.c_cc[VMIN] = 1;
    raw.c_cc[VTIME] = 0;
    if (keys)
        tcsetattr(STDIN_FILENO, TCSANOW, &raw);
    write_terminal(ENTER, sizeof(ENTER) - 1);
}

static void give_terminal(void)
{
    write_terminal(LEAVE, sizeof(LEAVE) - 1);
    if (keys)
        tcsetattr(STDIN_FILENO, TCSANOW, &before);
}

/* ---- signals --------------------------------------------------------------------------------------------- */

static void on_end(int number)
{
    if (on)
        give_terminal();
    on = 0;
    signal(number, SIG_DFL);
    raise(number);
}

static void on_stop(int number)
{
    int saved = errno;

    (void)number;
    give_terminal();
    raise(SIGSTOP);
    /* The process continues (SIGCONT). */
    take_terminal();
    resized = 1;
    errno = saved;
}

static void on_resize(int number)
{
    (void)number;
    resized = 1;
}

static const struct {
    int number;
    void (*handler)(int);
} handlers[] = {
    {SIGINT, on_end}, {SIGTERM, on_end}, {SIGHUP, on_end}, {SIGQUIT, on_end}, {SIGTSTP, on_stop}, {SIGWINCH, on_resize},
};
#define N_HANDLERS (sizeof(handlers) / sizeof(handlers[0]))
static struct sigaction old_handlers[N_HANDLERS];

static void set_handlers(void)
{
    for (size_t i = 0; i < N_HANDLERS; i++) {
        /* With SA_NODEFER, the signal that on_end raises ends the process at once. Without SA_RESTART, poll returns. */
        struct sigaction sa = {.sa_handler = handlers[i].handler, .sa_flags = SA_NODEFER};

        sigemptyset(&sa.sa_mask);
        sigaction(handlers[i].number, &sa, &old_handlers[i]);
    }
}

static void reset_handlers(void)
{
    for (size_t i = 0; i < N_HANDLERS; i++)
        sigaction(handlers[i].number, &old_handlers[i], NULL);
}

/* ---- entering, leaving ----------------------------------------------------------------------------------- */

bool ctl_screen_enter(const struct ctl *ctl)
{
    const char *term = getenv("TERM");

    if (ctl->json || isatty(STDOUT_FILENO) == 0 || term == NULL || strcmp(term, "dumb") == 0)
        return false;
    fflush(stdout);
    keys = isatty(STDIN_FILENO) != 0 && tcgetattr(STDIN_FILENO, &before) == 0;
    on = 1;
    set_handlers();
    take_terminal();
    return true;
}

void ctl_screen_leave(void)
{
    if (!on)
        return;
    give_terminal();
    on = 0;
    reset_handlers();
}

bool ctl_screen_on(void)
{
    return on != 0;
}

/* ---- drawing --------------------------------------------------------------------------------------------- */

/* Copies a line's characters up to `cols` columns, and its escape sequences, which take no column. */
static const char *put_screen_line(FILE *to, const char *p, int cols)
{
    mbstate_t state = {0};
    int at = 0;

    while (*p != '\0' && *p != '\n') {
        wchar_t wc;
        size_t n = *p == '\033' ? strcspn(p, "mK\n") + 1 : mbrtowc(&wc, p, MB_CUR_MAX, &state);
        int width = 0;

        if (n == (size_t)-1 || n == (size_t)-2) { /* bytes that are invalid in this locale are copied as one column */
            memset(&state, 0, sizeof(state));
            n = width = 1;
        } else if (*p != '\033') {
            width = wcwidth(wc) > 0 ? wcwidth(wc) : 0;
        } else if (n > strlen(p)) {
            return p + strlen(p);
        }
        at += width;
        if (at <= cols)
            fwrite(p, 1, n, to);
        p += n;
    }
    return p;
}

void ctl_screen_show(const char *frame)
{
    struct winsize size = {0};
    char *text = NULL;
    size_t n = 0;
    FILE *to = open_memstream(&text, &n);
    int rows, cols, row;

    if (to == NULL)
        return;
    (void)ioctl(STDOUT_FILENO, TIOCGWINSZ, &size);
    rows = size.ws_row != 0 ? size.ws_row : DEFAULT_ROWS;
    cols = size.ws_col != 0 ? size.ws_col : DEFAULT_COLS;
    fputs(HOME, to);
    for (row = 0; row < rows && *frame != '\0'; row++) {
        /* Erase before the line is drawn: after a line as wide as the terminal, the cursor is still on the last column.
         */
        fputs(row != 0 ? "\r\n" ERASE_LINE : ERASE_LINE, to);
        frame = put_screen_line(to, frame, cols);
        frame += *frame == '\n';
        fputs(PLAIN, to);
    }
    if (row < rows)
        fputs("\r\n" ERASE_BEHIND, to);
    if (fclose(to) == 0)
        write_terminal(text, n);
    free(text);
}

/* ---- waiting --------------------------------------------------------------------------------------------- */

uint64_t ctl_screen_now(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static bool quit_pressed(void)
{
    char key;
    ssize_t n = read(STDIN_FILENO, &key, 1);

    if (n == 0 || (n < 0 && errno != EINTR && errno != EAGAIN))
        return true; /* the terminal is gone */
    return n == 1 && (key == 'q' || key == 'Q');
}

/* Checks for keys at least once, even if there is no time left to wait because asking the daemon took longer than the
 * interval. */
ctl_screen_event_t ctl_screen_wait(uint64_t until)
{
    uint64_t left;

    do {
        struct pollfd fd = {.fd = on && keys ? STDIN_FILENO : -1, .events = POLLIN};
        uint64_t now = ctl_screen_now();

        left = now < until ? until - now : 0;
        if (resized) {
            resized = 0;
            return CTL_SCREEN_REDRAW;
        }
        if (ppoll(&fd, 1, &(struct timespec){(time_t)(left / 1000000000u), (long)(left % 1000000000u)}, NULL) > 0 &&
            quit_pressed())
            return CTL_SCREEN_QUIT;
    } while (left > 0);
    return CTL_SCREEN_TIME;
}
