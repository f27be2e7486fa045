/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/http_request.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* The contents of a head. Each text is in the head and ends with NUL; NULL: not given. */
struct fields {
    const char *method, *target, *host, *origin, *accept;
    bool host_optional; /* HTTP/1.0 */
    bool body, twice;   /* body: the request has one; twice: Host or Origin was given twice */
};

static int refuse_request(int status, const char *why, const char **why_p)
{
    *why_p = why;
    return status;
}

/* ---- hosts ------------------------------------------------------------------------------------------------ */

static bool is_address(const char *text, size_t n, int family)
{
    unsigned char address[sizeof(struct in6_addr)];
    char copy[INET6_ADDRSTRLEN];

    if (n >= sizeof(copy))
        return false;
    memcpy(copy, text, n);
    copy[n] = '\0';
    return inet_pton(family, copy, address) == 1;
}

static bool same_name(const char *text, size_t n, const char *name)
{
    return name && strlen(name) == n && strncasecmp(text, name, n) == 0;
}

/* True for "" and for ":" with digits. */
static bool is_port(const char *text, size_t n)
{
    if (n == 0)
        return true;
    return text[0] == ':' && strspn(text + 1, "0123456789") >= n - 1;
}

/* True if HOST, HOST:PORT or [IPV6]:PORT names a known host. */
static bool is_known_host(const char *text, size_t n, const struct ngd_http_hosts *hosts)
{
    const char *end = memchr(text, *text == '[' ? ']' : ':', n);
    size_t host = end ? (size_t)(end - text) : n;
    bool known;

    if (n > 0 && *text == '[')
        return end && is_address(text + 1, host - 1, AF_INET6) && is_port(end + 1, n - host - 1);
    known = host > 0 && (is_address(text, host, AF_INET) || same_name(text, host, "localhost") ||
                         same_name(text, host, hosts->own));
    for (size_t i = 0; host > 0 && i < hosts->n_names && !known; i++)
        known = same_name(text, host, hosts->names[i]);
    return known && is_port(text + host, n - host);
}

/* True if the origin is a page of this server: http:// or https:// with the request's host. */
static bool is_own_origin(const char *origin, const char *host)
{
    if (!host)
        return false;
    if (strncasecmp(origin, "http://", 7) == 0)
        return strcasecmp(origin + 7, host) == 0;
    return strncasecmp(origin, "https://", 8) == 0 && strcasecmp(origin + 8, host) == 0;
}

/* ---- lines ------------------------------------------------------------------------------------------------ */

/* Returns the next line, ended with NUL, and moves *at behind it. NULL: there is none, or it has a control
 * character. */
static char *take_line(char **at, const char *end)
{
    char *line = *at, *p = line;

    while (p < end && ((unsigned char)*p >= ' ' || *p == '\t') && *p != '\x7f')
        p++;
    if (end - p < 2 || p[0] != '\r' || p[1] != '\n')
        return NULL;
    *p = '\0';
    *at = p + 2;
    return line;
}

/* Reads METHOD SP TARGET SP VERSION. */
static int read_first(char *line, struct fields *f, const char **why_p)
{
    char *target = strchr(line, ' '), *version = target ? strchr(target + 1, ' ') : NULL;

    if (!version || target == line || version == target + 1 || strncmp(version + 1, "HTTP/", 5) != 0)
        return refuse_request(400, "not an HTTP request", why_p);
    *target++ = *version++ = '\0';
    f->method = line;
    f->target = target;
    if (strlen(version) != 8 || strncmp(version, "HTTP/1.", 7) != 0 || version[7] < '0' || version[7] > '9')
        return refuse_request(505, "only HTTP/1.0 and HTTP/1.1 are supported", why_p);
    f->host_optional = version[7] == '0';
    return 200;
}

static void take_header_once(const char **field_p, const char *value, bool *twice)
{
    *twice |= *field_p != NULL;
    *field_p = value;
}

/* Reads NAME: VALUE. False: the line has another form. */
static bool read_field(char *line, struct fields *f)
{
    static const char token[] = "!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    char *value = line + strspn(line, token);
    size_t n;

    if (value == line || *value != ':')
        return false;
    *value++ = '\0';
    value += strspn(value, " \t");
    for (n = strlen(value); n > 0 && (value[n - 1] == ' ' || value[n - 1] == '\t'); n--)
        value[n - 1] = '\0';
    if (strcasecmp(line, "Host") == 0)
        take_header_once(&f->host, value, &f->twice);
    else if (strcasecmp(line, "Origin") == 0)
        take_header_once(&f->origin, value, &f->twice);
    else if (strcasecmp(line, "Accept") == 0)
        f->accept = f->accept ? "" : value;
    else if (strcasecmp(line, "Transfer-Encoding") == 0)
        f->body = true;
    else if (strcasecmp(line, "Content-Length") == 0)
        f->body |= strcmp(value, "0") != 0;
    return true;
}

static int read_lines(char *head, size_t n, struct fields *f, const char **why_p)
{
    const char *end = head + n;
    char *line = take_line(&head, end);
    int status = line ? read_first(line, f, why_p) : refuse_request(400, "not an HTTP request", why_p);

    while (status == 200 && head < end) {
        line = take_line(&head, end);
        if (!line || !read_field(line, f))
            status = refuse_request(400, "a header line is not NAME: VALUE", why_p);
    }
    return status;
}

/* ---- the request ------------------------------------------------------------------------------------------ */

/* Checks the host. The target is a path, or a whole http:// address, whose host is checked too. */
static int check_host(const struct fields *f, const struct ngd_http_hosts *hosts, const char **path_p,
                      const char **why_p)
{
    static const char unknown[] = "this server is not known by that host's name: use an IP address, localhost, or a "
                                  "name that the daemon's option stats-hosts has";
    const char *host = f->target + 7;

    *path_p = f->target;
    if (strncasecmp(f->target, "http://", 7) == 0) {
        *path_p = strchr(host, '/') ? strchr(host, '/') : "/";
        if (!is_known_host(host, strcspn(host, "/"), hosts))
            return refuse_request(421, unknown, why_p);
    } else if (*f->target != '/') {
        return refuse_request(400, "the target of the request must be a path", why_p);
    }
    if (!f->host && !f->host_optional)
        return refuse_request(400, "an HTTP/1.1 request must have a Host header", why_p);
    if (f->host && !is_known_host(f->host, strlen(f->host), hosts))
        return refuse_request(421, unknown, why_p);
    if (f->origin && !is_own_origin(f->origin, f->host))
        return refuse_request(403, "requests from pages of other origins are refused", why_p);
    return 200;
}

/* Ends the target behind its path. Returns the query. */
static const char *cut_target(char *head, const struct fields *f)
{
    char *path = head + (f->target - head), *query;

    path[strcspn(path, "#")] = '\0';
    query = path + strcspn(path, "?");
    if (*query == '?')
        *query++ = '\0';
    return query;
}

int ngd_http_request_read(char *head, size_t n, const struct ngd_http_hosts *hosts, struct ngd_http_request *request_p,
                          const char **why_p)
{
    struct fields f = {0};
    const char *path, *query;
    int status = read_lines(head, n, &f, why_p);

    if (status != 200)
        return status;
    if (f.twice)
        return refuse_request(400, "Host and Origin must be given at most once", why_p);
    if (strcmp(f.method, "GET") != 0 && strcmp(f.method, "HEAD") != 0)
        return refuse_request(405, "only GET and HEAD are allowed", why_p);
    if (f.body)
        return refuse_request(413, "a request must not have a body", why_p);
    query = cut_target(head, &f);
    status = check_host(&f, hosts, &path, why_p);
    if (status == 200)
        *request_p = (struct ngd_http_request){
            .path = path, .query = query, .accept = f.accept ? f.accept : "", .head = strcmp(f.method, "HEAD") == 0};
    return status;
}

/* ---- queries ---------------------------------------------------------------------------------------------- */

/* Moves *at_p behind the next parameter. Returns the parameter, and its length in *n_p; NULL: there is none. */
static const char *take_parameter(const char **at_p, size_t *n_p)
{
    const char *at = *at_p + strspn(*at_p, "&");

    *n_p = strcspn(at, "&");
    *at_p = at + *n_p;
    return *n_p ? at : NULL;
}

static bool is_parameter(const char *text, size_t n, const char *name)
{
    const size_t length = strlen(name);

    return n >= length && strncmp(text, name, length) == 0 && (n == length || text[length] == '=');
}

/* Finds the value of a parameter. False: it is given twice, or without "=". NULL: it is absent. */
static bool find_value(const char *query, const char *name, const char **value_p, size_t *n_p)
{
    const size_t skip = strlen(name) + 1;
    const char *text;
    size_t n;

    *value_p = NULL;
    while ((text = take_parameter(&query, &n))) {
        if (!is_parameter(text, n, name))
            continue;
        if (*value_p || n < skip)
            return false;
        *value_p = text + skip;
        *n_p = n - skip;
    }
    return true;
}

bool ngd_http_query_number(const char *query, const char *name, uint64_t most, uint64_t *value_p)
{
    const char *text;
    uint64_t value = 0;
    size_t n;

    if (!find_value(query, name, &text, &n))
        return false;
    if (!text)
        return true;
    if (n == 0 || n > 19 || strspn(text, "0123456789") < n) /* any 19 digits fit */
        return false;
    for (size_t i = 0; i < n; i++)
        value = value * 10 + (uint64_t)(text[i] - '0');
    if (value > most)
        return false;
    *value_p = value;
    return true;
}

bool ngd_http_query_hash(const char *query, const char *name, uint64_t *value_p)
{
    const char *text;
    size_t n;

    if (!find_value(query, name, &text, &n))
        return false;
    if (!text)
        return true;
    if (n != 16 || strspn(text, "0123456789abcdef") < n)
        return false;
    *value_p = strtoull(text, NULL, 16); /* ends at "&" or at the query's end */
    return true;
}

const char *ngd_http_query_unknown(const char *query, const char *const *names)
{
    const char *text;
    size_t n;

    while ((text = take_parameter(&query, &n))) {
        size_t i = 0;

        while (names[i] && !is_parameter(text, n, names[i]))
            i++;
        if (!names[i])
            return text;
    }
    return NULL;
}
