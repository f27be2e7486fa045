/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_HTTP_REQUEST_H
#define NGD_DAEMON_HTTP_REQUEST_H

/*
 * Reads the head of an HTTP/1 request for a page: GET or HEAD, without a body, from a host that is known.
 *
 * Why hosts are checked: a web page can give its own name the address of this machine (DNS rebinding), and its scripts
 * then read what is served here as if it were theirs. The browser still sends the page's name as Host.
 * Pure: no socket, no allocation. Threads: any. Cost: one pass over the head.
 */
#include <stdbool.h>
#include <stddef.h>

/* Names by which this server may be called, besides IP addresses and localhost; upper and lower case are the same. */
struct ngd_http_hosts {
    const char *own; /* the name that it listens on; NULL or "": none */
    char *const *names;
    size_t n_names;
};

struct ngd_http_request {
    const char *path; /* in the head; without scheme, host and query; begins with "/" */
    bool head;        /* HEAD: the answer goes without its body */
};

/*
 * head: n bytes up to and with the CRLF of the last line, and room for one more; it is changed. Returns 200, or the
 * status of the refusal and in *why_p a sentence: 400, 403 (a page of another origin asks), 405, 413 (a body), 421 (an
 * unknown host), 505.
 */
int ngd_http_request_read(char *head, size_t n, const struct ngd_http_hosts *hosts, struct ngd_http_request *request_p,
                          const char **why_p);

#endif
