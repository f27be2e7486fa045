/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/front/splice.h"

#include "base/log.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

/* Sockets give partly filled pages, each of which takes a slot of the pipe. */
#define PIPE_BYTES (1 << 18)

void front_splice_init(struct front_splice *s)
{
    int fds[2];

    *s = (struct front_splice){.in = -1, .out = -1};
    if (pipe2(fds, O_CLOEXEC | O_NONBLOCK) < 0)
        return;
    s->out = fds[0];
    s->in = fds[1];
    if (fcntl(s->in, F_SETPIPE_SZ, PIPE_BYTES) < 0) /* the user may have too many pipes; then a move takes less */
        ngd_debug("front", "the pipe for downloads keeps its size: %s", strerror(errno));
}

void front_splice_fini(struct front_splice *s)
{
    if (s->in >= 0)
        close(s->in);
    if (s->out >= 0)
        close(s->out);
    s->in = s->out = -1;
}

static ssize_t splice_once(int from, int to, size_t n)
{
    ssize_t done;

    do
        done = splice(from, NULL, to, NULL, n, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
    while (done < 0 && errno == EINTR);
    return done;
}

/* Reads what is left in the pipe. False: the bytes are not there, which no kernel should do. */
static bool empty_pipe(const struct front_splice *s, uint8_t *rest, size_t n)
{
    while (n > 0) {
        const ssize_t done = read(s->out, rest, n);

        if (done == 0 || (done < 0 && errno != EINTR))
            return false;
        if (done > 0) {
            rest += done;
            n -= (size_t)done;
        }
    }
    return true;
}

static bool is_forbidden(int error)
{
    return error == EINVAL || error == EPERM || error == EACCES || error == ENOSYS || error == EOPNOTSUPP;
}

struct front_moved front_splice_move(struct front_splice *s, int from, int to, size_t n, uint8_t *rest)
{
    const ssize_t taken = splice_once(from, s->in, n);
    struct front_moved moved = {0};

    if (taken < 0 && is_forbidden(errno)) {
        ngd_info("front", "downloads over TCP are copied, because splice fails: %s", strerror(errno));
        front_splice_fini(s);
    }
    if (taken <= 0)
        return moved;
    moved.taken = (size_t)taken;
    while (moved.sent < moved.taken) {
        const ssize_t sent = splice_once(s->out, to, moved.taken - moved.sent);

        if (sent <= 0) {
            moved.failed = sent < 0 && errno != EAGAIN;
            break;
        }
        moved.sent += (size_t)sent;
    }
    if (!empty_pipe(s, rest, moved.taken - moved.sent)) { /* neither pipe nor rest may give bytes of others */
        moved.failed = true;
        front_splice_fini(s);
    }
    return moved;
}
