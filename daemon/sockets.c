/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/sockets.h"
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

/*
 * Connections that wait for accept(). The kernel limits it to net.core.somaxconn, commonly the same number. If the
 * queue is full, gRPC's clients on a Unix socket do not wait but fail, with "recvmsg: Invalid argument".
 */
#define BACKLOG 4096

static ngd_status_t bad_address(const char *text, const char *why, struct ngd_diag *diag)
{
    return ngd_diag_set(diag, NGD_ERR_CONFIG,
                        "address \"%.200s\": %s; allowed: unix:PATH, tcp:HOST:PORT, HOST:PORT, [IPV6]:PORT", text, why);
}

static ngd_status_t parse_unix(const char *text, const char *path, struct ngd_address *address, struct ngd_diag *diag)
{
    if (strncmp(path, "//", 2) == 0)
        path += 2;
    if (*path == '\0' || strlen(path) >= sizeof(((struct sockaddr_un *)0)->sun_path))
        return bad_address(text, "the path must have 1 to 107 characters", diag);
    address->kind = NGD_ADDRESS_UNIX;
    snprintf(address->path, sizeof(address->path), "%s", path);
    return NGD_OK;
}

static bool port_is_valid(const char *port)
{
    unsigned n = 0;

    if (*port == '\0' || strlen(port) > 5)
        return false;
    for (; *port; port++) {
        if (*port < '0' || *port > '9')
            return false;
        n = n * 10 + (unsigned)(*port - '0');
    }
    return n <= 65535;
}

ngd_status_t ngd_address_parse(const char *text, struct ngd_address *address_p, struct ngd_diag *diag)
{
    const char *host = text, *colon;
    size_t n;

    memset(address_p, 0, sizeof(*address_p));
    if (strncmp(text, "unix:", 5) == 0)
        return parse_unix(text, text + 5, address_p, diag);
    if (strncmp(text, "tcp:", 4) == 0)
        host += 4;
    colon = strrchr(host, ':');
    if (!colon || !port_is_valid(colon + 1))
        return bad_address(text, "the port is missing or not a number up to 65535", diag);
    n = (size_t)(colon - host);
    if (n >= 2 && host[0] == '[' && host[n - 1] == ']') {
        host++;
        n -= 2;
    } else if (memchr(host, ':', n)) {
        return bad_address(text, "an IPv6 address needs brackets", diag);
    }
    if (n == 0 || n >= sizeof(address_p->host))
        return bad_address(text, "the host is missing", diag);
    address_p->kind = NGD_ADDRESS_TCP;
    memcpy(address_p->host, host, n);
    snprintf(address_p->port, sizeof(address_p->port), "%s", colon + 1);
    return NGD_OK;
}

static ngd_status_t remove_stale(const char *path, struct ngd_diag *diag)
{
    struct stat st;

    if (lstat(path, &st) < 0)
        return NGD_OK;
    if (!S_ISSOCK(st.st_mode))
        return ngd_diag_set(diag, NGD_ERR_ALREADY_EXISTS,
                            "%s exists and is not a socket; remove it or listen elsewhere", path);
    if (unlink(path) < 0)
        return ngd_diag_set(diag, ngd_status_from_errno(errno), "stale socket %s cannot be removed: %s", path,
                            strerror(errno));
    return NGD_OK;
}

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83 /* Linux 6.16, later than the system's headers */
#endif

void ngd_socket_refuse_descriptors(int fd)
{
    const int off = 0;

    (void)setsockopt(fd, SOL_SOCKET, SO_PASSRIGHTS, &off, sizeof(off));
}

ngd_status_t ngd_socket_unix(const char *path, int type, mode_t mode, int *fd_p, struct ngd_diag *diag)
{
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    ngd_status_t status = remove_stale(path, diag);
    int fd, rc;

    if (status != NGD_OK)
        return status;
    fd = socket(AF_UNIX, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return ngd_diag_set(diag, ngd_status_from_errno(errno), "a Unix socket cannot be created: %s", strerror(errno));
    if (type == SOCK_STREAM)
        ngd_socket_refuse_descriptors(fd);
    memcpy(sa.sun_path, path, strlen(path) + 1);
    /* The file gets the descriptor's mode less the umask: never more than `mode`, not even for a moment. Changing the
     * umask instead would change it for files that other threads make. */
    rc = fchmod(fd, mode);
    if (rc == 0)
        rc = bind(fd, (struct sockaddr *)&sa, sizeof(sa));
    if (rc == 0)
        rc = chmod(path, mode);
    if (rc == 0)
        rc = listen(fd, BACKLOG);
    if (rc < 0) {
        status =
            ngd_diag_set(diag, ngd_status_from_errno(errno), "cannot listen on unix:%s: %s", path, strerror(errno));
        close(fd);
        return status;
    }
    *fd_p = fd;
    return NGD_OK;
}

ngd_status_t ngd_address_resolve(const struct ngd_address *address, struct addrinfo **list_p, struct ngd_diag *diag)
{
    struct addrinfo hints = {
        .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    int err = getaddrinfo(address->host, address->port, &hints, list_p);

    if (err)
        return ngd_diag_set(diag, NGD_ERR_CONFIG, "address %s: %s", address->host, gai_strerror(err));
    return NGD_OK;
}

ngd_status_t ngd_socket_tcp(const struct addrinfo *ai, int *fd_p, struct ngd_diag *diag)
{
    int fd = socket(ai->ai_family, ai->ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, ai->ai_protocol), one = 1;
    char text[NGD_ADDRESS_MAX];
    ngd_status_t status;

    ngd_sockaddr_print(ai->ai_addr, ai->ai_addrlen, text);
    if (fd < 0)
        return ngd_diag_set(diag, ngd_status_from_errno(errno), "a socket for %s cannot be created: %s", text,
                            strerror(errno));
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (ai->ai_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof(one)); /* IPv4 addresses have their own listeners */
    if (bind(fd, ai->ai_addr, ai->ai_addrlen) == 0 && listen(fd, BACKLOG) == 0) {
        *fd_p = fd;
        return NGD_OK;
    }
    status = ngd_diag_set(diag, ngd_status_from_errno(errno), "cannot listen on %s: %s", text, strerror(errno));
    close(fd);
    return status;
}

void ngd_sockaddr_print(const struct sockaddr *sa, socklen_t len, char text[NGD_ADDRESS_MAX])
{
    char host[NGD_ADDRESS_MAX / 2], port[16];

    if (sa->sa_family == AF_UNIX) {
        const struct sockaddr_un *un = (const void *)sa;

        snprintf(text, NGD_ADDRESS_MAX, "unix:%s", len > offsetof(struct sockaddr_un, sun_path) ? un->sun_path : "");
        return;
    }
    if (getnameinfo(sa, len, host, sizeof(host), port, sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV) != 0)
        snprintf(text, NGD_ADDRESS_MAX, "unknown");
    else
        snprintf(text, NGD_ADDRESS_MAX, sa->sa_family == AF_INET6 ? "[%s]:%s" : "%s:%s", host, port);
}

void ngd_sockaddr_print_sender(const struct sockaddr *sa, socklen_t len, char text[NGD_ADDRESS_MAX])
{
    struct sockaddr_in v4 = {.sin_family = AF_INET};
    struct sockaddr_in6 v6;
    char host[NGD_ADDRESS_MAX / 2];
    bool prefix = false;

    if (sa->sa_family == AF_INET6) {
        memcpy(&v6, sa, sizeof(v6));
        sa = (struct sockaddr *)&v6;
        if (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)) {
            memcpy(&v4.sin_addr, v6.sin6_addr.s6_addr + 12, sizeof(v4.sin_addr));
            sa = (struct sockaddr *)&v4;
            len = sizeof(v4);
        } else if (!IN6_IS_ADDR_LOOPBACK(&v6.sin6_addr)) {
            memset(v6.sin6_addr.s6_addr + 8, 0, 8);
            prefix = true;
        }
    }
    if (getnameinfo(sa, len, host, sizeof(host), NULL, 0, NI_NUMERICHOST) != 0)
        snprintf(text, NGD_ADDRESS_MAX, "unknown");
    else
        snprintf(text, NGD_ADDRESS_MAX, "%s%s", host, prefix ? "/64" : "");
}

#define PROBES 4

/* Uses the kernel's probes: pings of HTTP/2 would wake both processes for each connection, and need the peer's process
 * to answer. */
void ngd_socket_keep_alive(int fd, ngd_nsec_t limit)
{
    int one = 1, probes = PROBES, seconds = (int)(limit / NGD_SEC), idle = seconds / 2 > 0 ? seconds / 2 : 1,
        every = (seconds - idle) / PROBES > 0 ? (seconds - idle) / PROBES : 1;
    unsigned msec = (unsigned)(limit / NGD_MSEC);

    if (limit == 0)
        return;
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &every, sizeof(every));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof(probes));
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &msec,
               sizeof(msec)); /* bounds data that was sent and is not acknowledged */
}
