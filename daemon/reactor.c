/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loop, on libevent.
 *
 * Signals stay blocked in every thread and are read from a signalfd: threads that gRPC starts later inherit the mask,
 * and no handler runs anywhere. Messages are in a list behind a lock. An eventfd, the bell, wakes the loop; it is
 * written only if the list was empty.
 */
#include "daemon/reactor.h"
#include "base/list.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/mem.h"
#include <errno.h>
#include <event2/event.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

struct message {
    struct ngd_list link;
    ngd_reactor_fn fn;
    void *arg;
};

struct ngd_reactor_watch {
    struct event *event;
    struct event *resume; /* timer that ends a pause */
    ngd_reactor_fn fn;
    void *arg;
};

struct ngd_reactor {
    struct event_base *base;
    struct ngd_mutex lock;
    struct ngd_list messages NGD_GUARDED_BY(lock);
    int bell;
    int signals;
    struct event *bell_event, *signal_event;
    void (*on_signal)(void *arg, int signo);
    void *on_signal_arg;
};

static void on_bell(evutil_socket_t fd, short what, void *arg)
{
    struct ngd_reactor *reactor = arg;
    struct ngd_list *link;
    uint64_t n;

    (void)what;
    if (read(fd, &n, sizeof(n)) < 0 && errno != EAGAIN)
        ngd_warning("daemon", "the loop's eventfd cannot be read: %s", strerror(errno));
    for (;;) {
        ngd_mutex_lock(&reactor->lock);
        link = ngd_list_pop_front(&reactor->messages);
        ngd_mutex_unlock(&reactor->lock);
        if (!link)
            return;
        struct message *message = ngd_container_of(link, struct message, link);

        message->fn(message->arg);
        ngd_free(message);
    }
}

static void take_signal(evutil_socket_t fd, short what, void *arg)
{
    struct ngd_reactor *reactor = arg;
    struct signalfd_siginfo info;

    (void)what;
    while (read(fd, &info, sizeof(info)) == (ssize_t)sizeof(info))
        if (reactor->on_signal)
            reactor->on_signal(reactor->on_signal_arg, (int)info.ssi_signo);
}

static int open_signals(void)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    if (pthread_sigmask(SIG_BLOCK, &set, NULL) != 0)
        return -1;
    signal(SIGXFSZ, SIG_IGN); /* a log that cannot grow is no reason to die */
    signal(SIGIO, SIG_IGN);   /* sent when a process opens a file while ngd_file_is_written checks it */
    signal(SIGPIPE, SIG_IGN); /* a vanished client is an error of its call only */
    signal(SIGCHLD, SIG_DFL); /* ignored, as some parents leave it, it would lose how our processes end */
    return signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
}

static struct event *add_reader(struct ngd_reactor *reactor, int fd, event_callback_fn fn)
{
    struct event *event = event_new(reactor->base, fd, EV_READ | EV_PERSIST, fn, reactor);

    if (event && event_add(event, NULL) == 0)
        return event;
    if (event)
        event_free(event);
    return NULL;
}

ngd_status_t ngd_reactor_create(bool with_signals, struct ngd_reactor **reactor_p)
{
    struct ngd_reactor *reactor = NGD_NEW(struct ngd_reactor);

    if (!reactor)
        return NGD_ERR_NO_MEMORY;
    ngd_mutex_init(&reactor->lock, NGD_RANK_REACTOR);
    ngd_list_init(&reactor->messages);
    reactor->bell = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    reactor->signals = with_signals ? open_signals() : -1;
    reactor->base = event_base_new();
    if (reactor->base && reactor->bell >= 0)
        reactor->bell_event = add_reader(reactor, reactor->bell, on_bell);
    if (reactor->base && reactor->signals >= 0)
        reactor->signal_event = add_reader(reactor, reactor->signals, take_signal);
    if (!reactor->bell_event || (with_signals && !reactor->signal_event)) {
        ngd_reactor_destroy(reactor);
        return NGD_ERR_IO;
    }
    *reactor_p = reactor;
    return NGD_OK;
}

void ngd_reactor_destroy(struct ngd_reactor *reactor)
{
    struct ngd_list *link;

    if (!reactor)
        return;
    while ((link = ngd_list_pop_front(&reactor->messages)))
        ngd_free(ngd_container_of(link, struct message, link));
    if (reactor->bell_event)
        event_free(reactor->bell_event);
    if (reactor->signal_event)
        event_free(reactor->signal_event);
    if (reactor->base)
        event_base_free(reactor->base);
    if (reactor->bell >= 0)
        close(reactor->bell);
    if (reactor->signals >= 0)
        close(reactor->signals);
    ngd_mutex_fini(&reactor->lock);
    ngd_free(reactor);
}

void ngd_reactor_run(struct ngd_reactor *reactor)
{
    event_base_loop(reactor->base, EVLOOP_NO_EXIT_ON_EMPTY);
}

static void stop_loop(void *arg)
{
    struct ngd_reactor *reactor = arg;

    event_base_loopbreak(reactor->base);
}

void ngd_reactor_stop(struct ngd_reactor *reactor)
{
    if (ngd_reactor_post(reactor, stop_loop, reactor) != NGD_OK)
        ngd_error("daemon", "out of memory; the loop cannot be told to stop");
}

ngd_status_t ngd_reactor_post(struct ngd_reactor *reactor, ngd_reactor_fn fn, void *arg)
{
    struct message *message = NGD_NEW(struct message);
    uint64_t one = 1;
    bool was_empty;

    if (!message)
        return NGD_ERR_NO_MEMORY;
    message->fn = fn;
    message->arg = arg;
    ngd_mutex_lock(&reactor->lock);
    was_empty = ngd_list_empty(&reactor->messages);
    ngd_list_push_back(&reactor->messages, &message->link);
    ngd_mutex_unlock(&reactor->lock);
    /* EAGAIN: the loop has yet to read the eventfd, so it wakes anyway. */
    if (was_empty && write(reactor->bell, &one, sizeof(one)) < 0 && errno != EAGAIN)
        ngd_warning("daemon", "the loop's eventfd cannot be written: %s", strerror(errno));
    return NGD_OK;
}

bool ngd_reactor_stop_asked(void)
{
    sigset_t set;

    return sigpending(&set) == 0 && (sigismember(&set, SIGTERM) == 1 || sigismember(&set, SIGINT) == 1);
}

void ngd_reactor_on_signal(struct ngd_reactor *reactor, void (*fn)(void *arg, int signo), void *arg)
{
    reactor->on_signal = fn;
    reactor->on_signal_arg = arg;
}

static struct timeval to_timeval(ngd_nsec_t t)
{
    return (struct timeval){.tv_sec = t / NGD_SEC, .tv_usec = t % NGD_SEC / NGD_USEC};
}

static void on_watch(evutil_socket_t fd, short what, void *arg)
{
    struct ngd_reactor_watch *watch = arg;

    (void)fd;
    (void)what;
    watch->fn(watch->arg);
}

static void on_resume(evutil_socket_t fd, short what, void *arg)
{
    struct ngd_reactor_watch *watch = arg;

    (void)fd;
    (void)what;
    event_add(watch->event, NULL);
}

static ngd_status_t add_watch(struct ngd_reactor *reactor, int fd, short events, const struct timeval *interval,
                              ngd_reactor_fn fn, void *arg, struct ngd_reactor_watch **watch_p)
{
    struct ngd_reactor_watch *watch = NGD_NEW(struct ngd_reactor_watch);

    if (!watch)
        return NGD_ERR_NO_MEMORY;
    watch->fn = fn;
    watch->arg = arg;
    watch->event = event_new(reactor->base, fd, events | EV_PERSIST, on_watch, watch);
    watch->resume = evtimer_new(reactor->base, on_resume, watch);
    if (!watch->event || !watch->resume || event_add(watch->event, interval) != 0) {
        ngd_reactor_remove(watch);
        return NGD_ERR_IO;
    }
    *watch_p = watch;
    return NGD_OK;
}

ngd_status_t ngd_reactor_watch_fd(struct ngd_reactor *reactor, int fd, ngd_reactor_fn fn, void *arg,
                                  struct ngd_reactor_watch **watch_p)
{
    return add_watch(reactor, fd, EV_READ, NULL, fn, arg, watch_p);
}

ngd_status_t ngd_reactor_every(struct ngd_reactor *reactor, ngd_nsec_t interval, ngd_reactor_fn fn, void *arg,
                               struct ngd_reactor_watch **watch_p)
{
    struct timeval tv = to_timeval(interval);

    return add_watch(reactor, -1, 0, &tv, fn, arg, watch_p);
}

void ngd_reactor_pause(struct ngd_reactor_watch *watch, ngd_nsec_t time)
{
    struct timeval tv = to_timeval(time);

    event_del(watch->event);
    event_add(watch->resume, &tv);
}

void ngd_reactor_remove(struct ngd_reactor_watch *watch)
{
    if (!watch)
        return;
    if (watch->event)
        event_free(watch->event);
    if (watch->resume)
        event_free(watch->resume);
    ngd_free(watch);
}

struct event_base *ngd_reactor_base(struct ngd_reactor *reactor)
{
    return reactor->base;
}
