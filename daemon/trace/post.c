/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/trace/post.h"

#include "base/strbuf.h"
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define LOOK_AGAIN      100 /* ms after which the time limit is read again */
#define RETRY_AFTER_MAX 60  /* seconds */

/* ---- the endpoint ---------------------------------------------------------------------------------------- */

/* Copies n characters; false: they do not fit, or are none. */
static bool copy_part(char *to, size_t room, const char *from, size_t n)
{
    if (n == 0 || n >= room)
        return false;
    memcpy(to, from, n);
    to[n] = '\0';
    return true;
}

static bool is_port_number(const char *text)
{
    const size_t n = strlen(text);

    return n >= 1 && n <= 5 && strspn(text, "0123456789") == n && strtol(text, NULL, 10) >= 1 &&
           strtol(text, NULL, 10) <= 65535;
}

/* Reads HOST[:PORT] or [IPV6][:PORT]. */
static bool read_authority(const char *text, size_t n, struct ngd_trace_endpoint *e)
{
    const bool brackets = n > 0 && *text == '[';
    const char *end = memchr(text, brackets ? ']' : ':', n);
    const char *host = text + brackets, *rest = end ? end + brackets : text + n;

    if ((brackets && !end) || !copy_part(e->host, sizeof(e->host), host, (size_t)((end ? end : rest) - host)) ||
        !copy_part(e->authority, sizeof(e->authority), text, n))
        return false;
    if (rest == text + n) {
        snprintf(e->port, sizeof(e->port), "4318");
        return true;
    }
    return *rest == ':' && copy_part(e->port, sizeof(e->port), rest + 1, (size_t)(text + n - rest - 1)) &&
           is_port_number(e->port);
}

bool ngd_trace_endpoint_parse(const char *text, struct ngd_trace_endpoint *e)
{
    const char *slash;

    *e = (struct ngd_trace_endpoint){.path = "/v1/traces"};
    for (const char *p = text; *p; p++)
        if (*p <= ' ' || *p > '~' || *p == '@' || *p == '#')
            return false; /* a line of the request could not have it, or it is a part that is not supported */
    if (strncmp(text, "unix:/", 6) == 0) {
        e->local = true;
        snprintf(e->authority, sizeof(e->authority), "localhost");
        return strlen(text + 5) < sizeof(((struct sockaddr_un *)0)->sun_path) &&
               copy_part(e->host, sizeof(e->host), text + 5, strlen(text + 5));
    }
    if (strncmp(text, "http://", 7) != 0)
        return false;
    text += 7;
    slash = strchr(text, '/');
    if (slash && slash[1] && !copy_part(e->path, sizeof(e->path), slash, strlen(slash)))
        return false;
    return read_authority(text, slash ? (size_t)(slash - text) : strlen(text), e);
}

/* ---- the connection -------------------------------------------------------------------------------------- */

/* Waits until the descriptor is ready. False: the time is over. */
static bool await_ready(int fd, short events, const _Atomic int64_t *until)
{
    struct pollfd p = {.fd = fd, .events = events};

    for (;;) {
        const ngd_nsec_t left = atomic_load(until) - ngd_clock_real();
        const int ms = left > LOOK_AGAIN * NGD_MSEC ? LOOK_AGAIN : (int)((left + NGD_MSEC - 1) / NGD_MSEC);

        if (left <= 0)
            return false;
        if (poll(&p, 1, ms) > 0)
            return true;
    }
}

static bool connect_to(int fd, const struct sockaddr *address, socklen_t n, const _Atomic int64_t *until)
{
    int error = 0;
    socklen_t room = sizeof(error);

    if (connect(fd, address, n) == 0)
        return true;
    if (errno != EINPROGRESS || !await_ready(fd, POLLOUT, until))
        return false;
    return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &room) == 0 && error == 0;
}

/* Returns a connected descriptor; -1: there is none. */
static int open_to(int family, const struct sockaddr *address, socklen_t n, const _Atomic int64_t *until)
{
    const int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    if (fd >= 0 && !connect_to(fd, address, n, until)) {
        close(fd);
        return -1;
    }
    return fd;
}

static int open_local(const struct ngd_trace_endpoint *e, const _Atomic int64_t *until)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    memcpy(address.sun_path, e->host, strlen(e->host) + 1);
    return open_to(AF_UNIX, (const struct sockaddr *)&address, sizeof(address), until);
}

static int open_connection(const struct ngd_trace_endpoint *e, const _Atomic int64_t *until, const char **why_p)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    struct addrinfo *found, *at;
    int fd = -1;

    *why_p = "the collector cannot be reached";
    if (e->local)
        return open_local(e, until);
    if (getaddrinfo(e->host, e->port, &hints, &found) != 0) {
        *why_p = "the collector's name is not known";
        return -1;
    }
    for (at = found; at && fd < 0; at = at->ai_next)
        fd = open_to(at->ai_family, at->ai_addr, at->ai_addrlen, until);
    freeaddrinfo(found);
    return fd;
}

static bool send_all(int fd, const char *data, size_t n, const _Atomic int64_t *until)
{
    while (n > 0) {
        const ssize_t done = send(fd, data, n, MSG_NOSIGNAL);

        if (done > 0) {
            data += done;
            n -= (size_t)done;
        } else if (done < 0 && errno != EAGAIN && errno != EINTR) {
            return false;
        } else if (!await_ready(fd, POLLOUT, until)) {
            return false;
        }
    }
    return true;
}

/* ---- the answer ------------------------------------------------------------------------------------------ */

/* Returns the value of a line of the head; NULL: there is none. */
static const char *header_value(const char *head, const char *name)
{
    const size_t n = strlen(name);

    for (const char *line = strstr(head, "\r\n"); line; line = strstr(line, "\r\n")) {
        line += 2;
        if (strncasecmp(line, name, n) == 0 && line[n] == ':')
            return line + n + 1 + strspn(line + n + 1, " \t");
    }
    return NULL;
}

/* Reads the number behind a name of the body: {"partialSuccess": {"rejectedSpans": "3"}}. */
static uint64_t read_rejected(const char *body)
{
    const char *at = strstr(body, "\"rejectedSpans\"");

    if (!at)
        return 0;
    at += strlen("\"rejectedSpans\"");
    at += strspn(at, " \t\r\n:\"");
    return *at >= '0' && *at <= '9' ? strtoull(at, NULL, 10) : 0;
}

/* Returns the final answer: interim ones (1xx) may come before it. */
static char *skip_interim(char *text)
{
    char *end;

    while (strncmp(text, "HTTP/1.", 7) == 0 && text[7] && strncmp(text + 8, " 1", 2) == 0 &&
           (end = strstr(text, "\r\n\r\n")))
        text = end + 4;
    return text;
}

/* Returns whether the text, which ends with NUL, is all that the answer will have. */
static bool is_complete(char *text, size_t n)
{
    const char *last = skip_interim(text), *end = strstr(last, "\r\n\r\n");
    const char *length = end ? header_value(last, "Content-Length") : NULL;

    return length && length < end && n - (size_t)(end + 4 - text) >= strtoull(length, NULL, 10);
}

/* Reads up to the end of the answer, or as much as there is room for. Returns the number of bytes. */
static size_t read_answer(int fd, char text[NGD_TRACE_ANSWER], const _Atomic int64_t *until)
{
    size_t n = 0;

    text[0] = '\0';
    while (n < NGD_TRACE_ANSWER - 1 && !is_complete(text, n)) {
        const ssize_t got = recv(fd, text + n, NGD_TRACE_ANSWER - 1 - n, 0);

        if (got > 0) {
            for (ssize_t i = 0; i < got; i++)
                if (text[n + (size_t)i] == '\0')
                    text[n + (size_t)i] = ' ';
            n += (size_t)got;
            text[n] = '\0';
        } else if (got == 0 || (errno != EAGAIN && errno != EINTR) || !await_ready(fd, POLLIN, until)) {
            break;
        }
    }
    return n;
}

static void read_answer_head(char *text, struct ngd_trace_answer *answer)
{
    char *end = strstr(text, "\r\n\r\n");
    const char *after;

    answer->why = "the collector's answer is not HTTP";
    if (!end || end - text < 12 || strncmp(text, "HTTP/1.", 7) != 0 || text[8] != ' ' ||
        strspn(text + 9, "0123456789") != 3)
        return;
    *end = '\0';
    answer->code = (int)strtol(text + 9, NULL, 10);
    after = header_value(text, "Retry-After");
    if (after && strspn(after, "0123456789") > 0) {
        const unsigned long seconds = strtoul(after, NULL, 10);

        answer->retry_after = seconds < RETRY_AFTER_MAX ? (uint32_t)seconds : RETRY_AFTER_MAX;
    }
    answer->rejected = read_rejected(end + 4);
}

/* ---- the request ----------------------------------------------------------------------------------------- */

void ngd_trace_post(const struct ngd_trace_endpoint *e, const char *body, size_t n, const _Atomic int64_t *until,
                    struct ngd_trace_answer *answer)
{
    char head[768], text[NGD_TRACE_ANSWER];
    const int n_head =
        snprintf(head, sizeof(head),
                 "POST %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: npugraphd/" PACKAGE_VERSION
                 "\r\nContent-Type: application/json\r\nContent-Length: %zu\r\nConnection: close\r\n\r\n",
                 e->path, e->authority, n);
    int fd;

    *answer = (struct ngd_trace_answer){0};
    fd = open_connection(e, until, &answer->why);
    if (fd < 0)
        return;
    /* A collector may answer before it has read all, such as 413: what it says is read then too. */
    if (!send_all(fd, head, (size_t)n_head, until) || !send_all(fd, body, n, until))
        answer->why = "the collector does not take the request";
    if (read_answer(fd, text, until) > 0)
        read_answer_head(skip_interim(text), answer);
    else
        answer->why = "the collector does not answer";
    close(fd);
}
