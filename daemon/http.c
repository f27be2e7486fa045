/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A connection reads until its request's head is complete, answers, and lingers. To linger, it closes its sending side
 * and discards what the peer still sends: if unread bytes were left at the close, the kernel would discard the answer.
 *
 *   READING --head, or a mistake--> ANSWERING --all is out--> LINGERING --end of file--> closed
 *      any of them --error, NGD_HTTP_TIME, or no room--> closed
 */
#include "daemon/http.h"

#include "base/list.h"
#include "base/log.h"
#include "base/mem.h"
#include "daemon/http_request.h"
#include "daemon/reactor.h"
#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define ACCEPT_PAUSE (100 * NGD_MSEC)
#define TYPE_TEXT    "text/plain; charset=utf-8"
#define NO_MEMORY    "out of memory\n"

enum state { READING, ANSWERING, LINGERING, BROKEN };

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
    const struct ngd_http_hosts *hosts;
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
        bufferevent_free(c->bev); /* closes the descriptor too */
    ngd_free(c);
}

static const char *phrase(int code)
{
    static const struct {
        int code;
        const char *text;
    } phrases[] = {{200, "OK"},
                   {400, "Bad Request"},
                   {403, "Forbidden"},
                   {404, "Not Found"},
                   {405, "Method Not Allowed"},
                   {413, "Content Too Large"},
                   {421, "Misdirected Request"},
                   {431, "Request Header Fields Too Large"},
                   {500, "Internal Server Error"},
                   {503, "Service Unavailable"},
                   {505, "HTTP Version Not Supported"}};

    for (size_t i = 0; i < sizeof(phrases) / sizeof(phrases[0]); i++)
        if (phrases[i].code == code)
            return phrases[i].text;
    return "Unknown";
}

/* Appends what is sent after the head. Bytes that outlive the server are not copied. */
static bool put_http_body(struct evbuffer *out, const struct ngd_http_answer *answer)
{
    if (answer->fixed)
        return evbuffer_add_reference(out, answer->fixed, answer->n_fixed, NULL, NULL) == 0;
    return evbuffer_add(out, ngd_strbuf_str(&answer->body), answer->body.len) == 0;
}

/* Sends the answer, whose body it takes. */
static void answer_http(struct connection *c, int code, struct ngd_http_answer *answer, bool head)
{
    struct evbuffer *out = bufferevent_get_output(c->bev);

    if (answer->body.failed) {
        ngd_strbuf_fini(&answer->body);
        *answer = (struct ngd_http_answer){
            .type = TYPE_TEXT, .headers = "", .fixed = NO_MEMORY, .n_fixed = sizeof(NO_MEMORY) - 1};
        code = 500;
    }
    const int added =
        evbuffer_add_printf(out,
                            "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\nCache-Control: no-store\r\n"
                            "X-Content-Type-Options: nosniff\r\nCross-Origin-Resource-Policy: same-origin\r\n"
                            "%s%sConnection: close\r\n\r\n",
                            code, phrase(code), answer->type, answer->fixed ? answer->n_fixed : answer->body.len,
                            answer->headers, code == 405 ? "Allow: GET, HEAD\r\n" : "");

    /* If the answer is not complete in the buffer, none is sent. */
    c->state = added >= 0 && (head || put_http_body(out, answer)) ? ANSWERING : BROKEN;
    ngd_strbuf_fini(&answer->body);
}

static void refuse_http(struct connection *c, int code, const char *text)
{
    struct ngd_http_answer answer = {.type = TYPE_TEXT, .headers = ""};

    ngd_strbuf_init(&answer.body);
    ngd_strbuf_printf(&answer.body, "%s\n", text);
    answer_http(c, code, &answer, false);
}

/* Serves a request. head: n bytes up to the empty line, and room for one more byte. */
static void serve_http(struct connection *c, char *head, size_t n)
{
    struct ngd_http_answer answer = {.type = TYPE_TEXT, .headers = ""};
    struct ngd_http_request request;
    const char *why = "";
    int code = ngd_http_request_read(head, n, c->http->hosts, &request, &why);

    if (code != 200) {
        refuse_http(c, code, why);
        return;
    }
    ngd_strbuf_init(&answer.body);
    code = c->http->page(c->http->ctx, &request, &answer);
    answer_http(c, code, &answer, request.head);
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
    if (end.pos < 0)
        refuse_http(c, 431, "the request is longer than 8192 bytes");
    else if (head)
        serve_http(c, head, (size_t)end.pos + 2);
    else
        refuse_http(c, 503, "out of memory");
    evbuffer_drain(in, evbuffer_get_length(in));
    if (c->state == BROKEN)
        close_connection(c);
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
    /* A client that half-closes after its request still gets the answer. */
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

/* Opens a connection on fd, which it takes. */
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
    /* Bounds the reads without a watermark: libevent 2.1 crashes if it has no memory to set one. */
    if (bufferevent_set_max_single_read(c->bev, NGD_HTTP_REQUEST) != 0 ||
        bufferevent_enable(c->bev, EV_READ | EV_WRITE) != 0)
        close_connection(c);
}

static void on_accept(void *arg)
{
    static struct ngd_log_limit limit;
    struct ngd_http *http = arg;
    int fd;

    while ((fd = accept4(http->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0)
        add_connection(http, fd);
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        ngd_log_limited(&limit, NGD_LOG_WARNING, "http",
                        "the statistics endpoint cannot accept: %s; trying again in 100 ms", strerror(errno));
        ngd_reactor_pause(http->watch, ACCEPT_PAUSE);
    }
}

ngd_status_t ngd_http_start(struct ngd_reactor *reactor, int fd, ngd_http_page_fn page, void *ctx,
                            const struct ngd_http_hosts *hosts, struct ngd_http **http_p)
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
    http->hosts = hosts;
    ngd_list_init(&http->open);
    status = ngd_reactor_watch_fd(reactor, fd, on_accept, http, &http->watch);
    if (status != NGD_OK) {
        ngd_http_stop(http);
        return status;
    }
    *http_p = http;
    return NGD_OK;
}

int ngd_http_fd(const struct ngd_http *http)
{
    return http->fd;
}

ngd_status_t ngd_http_pause(struct ngd_http *http, bool pause)
{
    if (!pause)
        return ngd_reactor_watch_fd(http->reactor, http->fd, on_accept, http, &http->watch);
    ngd_reactor_remove(http->watch);
    http->watch = NULL;
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
