/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_HTTP_REQUEST_H
#define NGD_DAEMON_HTTP_REQUEST_H

/*
 * Reads the head of an HTTP/1 request for a page: GET or HEAD, without a body, from a known host.
 *
 * Why hosts are checked: a web page can point its own name at this machine's address (DNS rebinding). Its scripts can
 * then read what this server sends as if it were the page's own. The browser still sends the page's name as Host.
 *
 * Pure: no socket, no allocation. Threads: any. Cost: one pass over the head.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Host names that requests may use, besides IP addresses and localhost. Case does not matter. */
struct ngd_http_hosts {
    const char *own; /* the name that the server listens on; NULL or "": none */
    char *const *names;
    size_t n_names;
};

struct ngd_http_request {
    const char *path;   /* points into the head; without scheme, host and query; begins with "/" */
    const char *query;  /* points into the head; what is between "?" and "#"; "" if there is none */
    const char *accept; /* points into the head; "" if it is not given, or more than once */
    bool head;          /* HEAD: the answer has no body */
};

/*
 * head: n bytes that end with the CRLF of the last line, and room for one more byte; it is changed. Returns 200, or the
 * status of a refusal and a sentence in *why_p: 400, 403 (the request comes from a page of another origin), 405, 413 (a
 * body), 421 (an unknown host), 505.
 */
int ngd_http_request_read(char *head, size_t n, const struct ngd_http_hosts *hosts, struct ngd_http_request *request_p,
                          const char **why_p);

/*
 * Reads the number of a query's parameter: "since=7&step=60". Absent: *value_p stays as it is. False: the parameter is
 * given twice, or is not a decimal number of at most `most`.
 */
bool ngd_http_query_number(const char *query, const char *name, uint64_t most, uint64_t *value_p);
/* Likewise for a number of 16 hexadecimal digits. */
bool ngd_http_query_hash(const char *query, const char *name, uint64_t *value_p);
/* Returns a parameter of the query that is not among `names`, which NULL ends; NULL: there is none. */
const char *ngd_http_query_unknown(const char *query, const char *const *names);

#endif
