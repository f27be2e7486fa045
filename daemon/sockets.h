/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_SOCKETS_H
#define NGD_DAEMON_SOCKETS_H

/*
 * Addresses and listening sockets. All sockets are nonblocking and close-on-exec.
 * Threads: any.
 */
#include "base/clock.h"
#include "base/status.h"
#include <netdb.h>
#include <stdbool.h>
#include <sys/types.h>

#define NGD_ADDRESS_MAX 256

typedef enum ngd_address_kind { NGD_ADDRESS_UNIX, NGD_ADDRESS_TCP } ngd_address_kind_t;

struct ngd_address {
    ngd_address_kind_t kind;
    char path[NGD_ADDRESS_MAX];          /* unix */
    char host[NGD_ADDRESS_MAX], port[8]; /* tcp */
};

/* Parses "unix:PATH", "unix:///PATH", "tcp:HOST:PORT", "HOST:PORT" or "[V6]:PORT". */
ngd_status_t ngd_address_parse(const char *text, struct ngd_address *address_p, struct ngd_diag *diag);
/* Listens at a path whose lock the caller holds. A socket at the path is stale and is replaced; any other file is
 * refused. type: SOCK_STREAM, which takes no descriptors, or SOCK_SEQPACKET. */
ngd_status_t ngd_socket_unix(const char *path, int type, mode_t mode, int *fd_p, struct ngd_diag *diag);
/*
 * Makes the kernel refuse descriptors that are sent to this Unix socket, or to those that are accepted from it: the
 * sender gets EPERM. To drop one can take as long as its sender wants (a TCP socket with SO_LINGER), and it is dropped
 * by the thread that reads. Does nothing before Linux 6.16.
 */
void ngd_socket_refuse_descriptors(int fd);
/* Resolves the address. The caller frees the list with freeaddrinfo. */
ngd_status_t ngd_address_resolve(const struct ngd_address *address, struct addrinfo **list_p, struct ngd_diag *diag);
/* Listens without SO_REUSEPORT, so that a second daemon on the port is refused. */
ngd_status_t ngd_socket_tcp(const struct addrinfo *ai, int *fd_p, struct ngd_diag *diag);
/* Makes the kernel find out within `limit` that a TCP peer is gone, whether or not data is under way to it. */
void ngd_socket_keep_alive(int fd, ngd_nsec_t limit);
/* Prints "127.0.0.1:80", "[::1]:80" or "unix:/path". */
void ngd_sockaddr_print(const struct sockaddr *sa, socklen_t len, char text[NGD_ADDRESS_MAX]);
/*
 * Prints what a TCP peer counts as: "192.0.2.1", or the prefix "2001:db8:1:2::/64", because whoever has one IPv6
 * address mostly has all of its /64. The loopback address counts alone, and an IPv4 address within IPv6 as the IPv4
 * one.
 */
void ngd_sockaddr_print_sender(const struct sockaddr *sa, socklen_t len, char text[NGD_ADDRESS_MAX]);

#endif
