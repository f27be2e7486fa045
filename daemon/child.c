/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/child.h"

#include "base/utf8.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Starts the program with `out` as its standard error. Returns 0 or errno. */
static int spawn_child(pid_t *pid_p, int out, char *const *argv, char *const *env)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none, all;
    int err;

    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
    sigemptyset(&none);
    sigfillset(&all);
    err = posix_spawn_file_actions_adddup2(&actions, out, STDERR_FILENO);
    if (!err)
        err = posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    if (!err)
        err = posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 34)
    if (!err) /* our descriptors are close-on-exec; a library's may not be */
        err = posix_spawn_file_actions_addclosefrom_np(&actions, STDERR_FILENO + 1);
#endif
    if (!err)
        err = posix_spawnattr_setflags(&attributes,
                                       POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    if (!err)
        err = posix_spawnattr_setsigmask(&attributes, &none);
    if (!err)
        err = posix_spawnattr_setsigdefault(&attributes, &all);
    if (!err)
        err = posix_spawn(pid_p, argv[0], &actions, &attributes, argv, env);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    return err;
}

ngd_status_t ngd_child_start(struct ngd_child *child, char *const *argv, char *const *env, struct ngd_diag *diag)
{
    int ends[2], err;

    *child = (struct ngd_child){.fd = -1};
    if (pipe2(ends, O_CLOEXEC) != 0)
        return ngd_diag_set(diag, ngd_status_from_errno(errno), "%s cannot be started: %s", argv[0], strerror(errno));
    /* Our end alone does not wait. */
    err = fcntl(ends[0], F_SETFL, O_NONBLOCK) != 0 ? errno : spawn_child(&child->pid, ends[1], argv, env);
    close(ends[1]);
    if (err) {
        close(ends[0]);
        child->pid = 0;
        return ngd_diag_set(diag, ngd_status_from_errno(err), "%s cannot be started: %s", argv[0], strerror(err));
    }
    child->fd = ends[0];
    return NGD_OK;
}

/* Keeps the end of what comes. A program that writes without end is read a little each time. */
static void read_child_words(struct ngd_child *child)
{
    char buf[NGD_CHILD_TAIL / 2];
    ssize_t n;

    for (int i = 0; i < 64 && (n = read(child->fd, buf, sizeof(buf))) > 0; i++) {
        const size_t over = child->n + (size_t)n > sizeof(child->tail) ? child->n + (size_t)n - sizeof(child->tail) : 0;

        memmove(child->tail, child->tail + over, child->n - over);
        child->n -= over;
        memcpy(child->tail + child->n, buf, (size_t)n);
        child->n += (size_t)n;
    }
}

static void reap_program(struct ngd_child *child, int *status_p)
{
    (void)kill(-child->pid, SIGKILL); /* what it has started; until it is reaped, no other group has its number */
    *status_p = 127 << 8;             /* in case somebody else has reaped it */
    while (waitpid(child->pid, status_p, 0) < 0 && errno == EINTR)
        ;
    read_child_words(child);
    close(child->fd);
    child->fd = -1;
    child->pid = 0;
}

bool ngd_child_ended(struct ngd_child *child, int *status_p)
{
    siginfo_t info = {.si_pid = 0};

    read_child_words(child);
    if (waitid(P_PID, (id_t)child->pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid != child->pid)
        return false;
    reap_program(child, status_p);
    return true;
}

void ngd_child_kill(struct ngd_child *child)
{
    if (child->pid != 0)
        (void)kill(-child->pid, SIGKILL);
}

void ngd_child_fini(struct ngd_child *child)
{
    int status;

    ngd_child_kill(child);
    if (child->pid == 0 || ngd_child_ended(child, &status))
        return;
    close(child->fd);
    child->pid = 0;
}

/* Copies what fits of a text. Bytes that are not UTF-8 become '?', since gRPC refuses answers that have them, and so do
 * control characters. */
static void copy_shown(const char *text, size_t n, char *to, size_t room)
{
    size_t len = 0;

    for (size_t at = 0, step; at < n; at += step) {
        const char *from = text + at;

        step = ngd_utf8_step(from, n - at);
        if (step == 0 || (unsigned char)*from < 0x20 || *from == 0x7f) {
            from = "?";
            step = 1;
        }
        if (len + step >= room)
            break;
        memcpy(to + len, from, step);
        len += step;
    }
    to[len] = '\0';
}

void ngd_child_last_line(const struct ngd_child *child, char *line, size_t room)
{
    size_t end = child->n, begin;

    while (end > 0 && (child->tail[end - 1] == '\n' || child->tail[end - 1] == ' '))
        end--;
    for (begin = end; begin > 0 && child->tail[begin - 1] != '\n' && child->tail[begin - 1] != '\r';)
        begin--;
    copy_shown(child->tail + begin, end - begin, line, room);
}
