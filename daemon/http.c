/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A connection reads until its request's head is whole, answers, and lingers: it closes its sending side and throws
 * away what the peer still sends, because closing with unread bytes would make the kernel discard the answer.
 *
 *   READING --head, or a mistake--> ANSWERING --all is out--> LINGERING --end of file--> closed
 *      any of them --error, NGD_HTTP_TIME, or no room--> closed
 */
#include "daemon/http.h"

#include "base/list.h"
#include "base/log.h"
#include "base/mem.h"
#include "daemon/reactor.h"
#include <ctype.h>
#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#define ACCEPT_PAUSE (100 * NGD_MSEC)
#define TYPE_TEXT    "text/plain; charset=utf-8"

enum state { READING, ANSWERING, LINGERING };

struct connection {
    struct ngd_list link; /* http->open, oldest first */
    struct ngd_http *http;
    struct bufferevent *bev;
    struct event *timer;
    enum state state;
};

struct ngd_http {
    struct ngd_reactor *reactor;
    struct ngd_reactor_watch *watch;
    int fd;
    ngd_http_page_fn page;
    void *ctx;
    struct ngd_list open;
    unsigned n_open;
};

static void close_connection(struct connection *c)
{
    ngd_list_remove(&c->link);
    c->http->n_open--;
    if (c->timer)
        event_free(c->timer);
    if (c->bev)
        bufferevent_free(c->bev); /* and the descriptor */
    ngd_free(c);
}

static const char *phrase(int code)
{
    static const struct {
        int code;
        const char *text;
    } phrases[] = {{200, "OK"},
                   {400, "Bad Request"},
                   {404, "Not Found"},
                   {405, "Method Not Allowed"},
                   {413, "Content Too Large"},
                   {431, "Request Header Fields Too Large"},
                   {500, "Internal Server Error"},
                   {503, "Service Unavailable"},
                   {505, "HTTP Version Not Supported"}};

    for (size_t i = 0; i < sizeof(phrases) / sizeof(phrases[0]); i++)
        if (phrases[i].code == code)
            return phrases[i].text;
    return "Unknown";
}

/* Takes the body. */
static void answer(struct connection *c, int code, const char *type, struct ngd_strbuf *body, bool head)
{
    struct evbuffer *out = bufferevent_get_output(c->bev);
    const char *text = ngd_strbuf_str(body);
    bool failed = body->failed;

    if (failed) {
        code = 500;
        type = TYPE_TEXT;
        text = "out of memory\n";
    }
    c->state = ANSWERING;
    evbuffer_add_printf(out,
                        "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\nCache-Control: no-store\r\n"
                        "X-Content-Type-Options: nosniff\r\n%sConnection: close\r\n\r\n",
                        code, phrase(code), type, strlen(text), code == 405 ? "Allow: GET, HEAD\r\n" : "");
    if (!head)
        evbuffer_add(out, text, strlen(text));
    ngd_strbuf_fini(body);
}

static void refuse(struct connection *c, int code, const char *text)
{
    struct ngd_strbuf body;

    ngd_strbuf_init(&body);
    ngd_strbuf_printf(&body, "%s\n", text);
    answer(c, code, TYPE_TEXT, &body, false);
}

/* Does a line of the head announce a body? The answer to nonsense is yes. */
static bool has_body(const char *headers)
{
    static const char length[] = "content-length:", coding[] = "transfer-encoding:";

    for (const char *line = headers; line && *line; line = strchr(line, '\n'), line += line != NULL) {
        if (strncasecmp(line, coding, sizeof(coding) - 1) == 0)
            return true;
        if (strncasecmp(line, length, sizeof(length) - 1) == 0) {
            const char *value = line + sizeof(length) - 1;

            value += strspn(value, " \t");
            if (value[0] != '0' || isalnum((unsigned char)value[1]))
                return true;
        }
    }
    return false;
}

/* The path of a request target, without scheme, host and query. In place. */
static const char *path_of(char *target)
{
    target[strcspn(target, "?#")] = '\0';
    if (strncasecmp(target, "http://", 7) == 0) {
        target = strchr(target + 7, '/');
        return target ? target : "/";
    }
    return target;
}

/* head: the whole request up to the empty line, NUL at its end. */
static void serve(struct connection *c, char *head)
{
    char *headers = strchr(head, '\n'), *target = strchr(head, ' '), *version = target ? strchr(target + 1, ' ') : NULL;
    const char *type = TYPE_TEXT;
    struct ngd_strbuf body;
    int code;

    if (!headers || !version || version > headers) {
        refuse(c, 400, "not an HTTP request");
        return;
    }
    *target++ = *version++ = '\0';
    if (strncmp(version, "HTTP/1.", 7) != 0) {
        refuse(c, 505, "HTTP/1.1 is spoken here");
    } else if (strcmp(head, "GET") != 0 && strcmp(head, "HEAD") != 0) {
        refuse(c, 405, "GET and HEAD are taken");
    } else if (has_body(headers + 1)) {
        refuse(c, 413, "a request has no body here");
    } else {
        ngd_strbuf_init(&body);
        code = c->http->page(c->http->ctx, path_of(target), &body, &type);
        answer(c, code, type, &body, strcmp(head, "HEAD") == 0);
    }
}

static void on_read(struct bufferevent *bev, void *arg)
{
    struct connection *c = arg;
    struct evbuffer *in = bufferevent_get_input(bev);
    struct evbuffer_ptr end;
    char *head = NULL;

    if (c->state != READING) {
        evbuffer_drain(in, evbuffer_get_length(in));
        return;
    }
    end = evbuffer_search(in, "\r\n\r\n", 4, NULL);
    if (end.pos < 0 && evbuffer_get_length(in) < NGD_HTTP_REQUEST)
        return;
    if (end.pos >= 0)
        head = (char *)evbuffer_pullup(in, end.pos + 4);
    if (head)
        head[end.pos + 2] = '\0';
    if (end.pos < 0)
        refuse(c, 431, "the request is longer than 8192 bytes");
    else if (head && strlen(head) == (size_t)end.pos + 2)
        serve(c, head);
    else
        refuse(c, 400, "not an HTTP request");
    evbuffer_drain(in, evbuffer_get_length(in));
}

static void on_written(struct bufferevent *bev, void *arg)
{
    struct connection *c = arg;

    if (c->state != ANSWERING)
        return;
    c->state = LINGERING;
    shutdown(bufferevent_getfd(bev), SHUT_WR);
}

static void on_event(struct bufferevent *bev, short what, void *arg)
{
    struct connection *c = arg;

    (void)bev;
    /* Who half-closes behind the request still gets the answer. */
    if ((what & BEV_EVENT_EOF) && c->state == ANSWERING)
        return;
    close_connection(c);
}

static void on_late(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    close_connection(arg);
}

/* Takes fd. */
static void add_connection(struct ngd_http *http, int fd)
{
    struct event_base *base = ngd_reactor_base(http->reactor);
    struct timeval limit = {NGD_HTTP_TIME / NGD_SEC, 0};
    struct connection *c;

    if (http->n_open == NGD_HTTP_CONNECTIONS)
        close_connection(ngd_container_of(http->open.next, struct connection, link));
    c = NGD_NEW(struct connection);
    if (!c) {
        close(fd);
        return;
    }
    c->http = http;
    ngd_list_push_back(&http->open, &c->link);
    http->n_open++;
    c->timer = evtimer_new(base, on_late, c);
    c->bev = c->timer ? bufferevent_socket_new(base, fd, BEV_OPT_CLOSE_ON_FREE) : NULL;
    if (!c->bev)
        close(fd);
    if (!c->bev || evtimer_add(c->timer, &limit) != 0) {
        close_connection(c);
        return;
    }
    bufferevent_setcb(c->bev, on_read, on_written, on_event, c);
    bufferevent_setwatermark(c->bev, EV_READ, 0, NGD_HTTP_REQUEST); /* more stays in the socket */
    bufferevent_enable(c->bev, EV_READ | EV_WRITE);
}

static void on_accept(void *arg)
{
    struct ngd_http *http = arg;
    int fd;

    while ((fd = accept4(http->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0)
        add_connection(http, fd);
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        ngd_warning("http", "the statistics endpoint cannot accept: %s; trying again in 100 ms", strerror(errno));
        ngd_reactor_pause(http->watch, ACCEPT_PAUSE);
    }
}

ngd_status_t ngd_http_start(struct ngd_reactor *reactor, int fd, ngd_http_page_fn page, void *ctx,
                            struct ngd_http **http_p)
{
    struct ngd_http *http = NGD_NEW(struct ngd_http);
    ngd_status_t status;

    if (!http) {
        close(fd);
        return NGD_ERR_NO_MEMORY;
    }
    http->reactor = reactor;
    http->fd = fd;
    http->page = page;
    http->ctx = ctx;
    ngd_list_init(&http->open);
    status = ngd_reactor_watch_fd(reactor, fd, on_accept, http, &http->watch);
    if (status != NGD_OK) {
        ngd_http_stop(http);
        return status;
    }
    *http_p = http;
    return NGD_OK;
}

void ngd_http_stop(struct ngd_http *http)
{
    if (!http)
        return;
    ngd_reactor_remove(http->watch);
    while (!ngd_list_empty(&http->open))
        close_connection(ngd_container_of(http->open.next, struct connection, link));
    close(http->fd);
    ngd_free(http);
}
