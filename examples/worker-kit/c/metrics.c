/* SPDX-License-Identifier: Apache-2.0 */
/* What the worker counts, and the page of it for Prometheus. */
#include "metrics.h"

#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#define N_BOUNDS (sizeof(bounds) / sizeof(bounds[0]))

static const double bounds[] = {0.005, 0.02, 0.1, 0.5, 2, 10}; /* seconds */

struct counts counts;
static atomic_ulong first[N_BOUNDS + 1];
static atomic_ullong first_us;

void metrics_count_first(double seconds)
{
    size_t i = 0;

    while (i < N_BOUNDS && seconds > bounds[i])
        i++;
    atomic_fetch_add(&first[i], 1);
    atomic_fetch_add(&first_us, (unsigned long long)(seconds * 1e6));
}
static void print_metrics(FILE *to)
{
    unsigned long sum = 0;

    fprintf(to, "# TYPE worker_prompts_total counter\nworker_prompts_total{result=\"done\"} %lu\n", counts.done);
    fprintf(to, "worker_prompts_total{result=\"refused\"} %lu\n", counts.refused);
    fprintf(to, "# TYPE worker_retries_total counter\nworker_retries_total %lu\n", counts.retries);
    fprintf(to, "# TYPE worker_connects_total counter\nworker_connects_total %lu\n", counts.connects);
    fprintf(to, "# TYPE worker_tokens_total counter\nworker_tokens_total %lu\n", counts.tokens);
    fprintf(to, "# TYPE worker_in_flight gauge\nworker_in_flight %lu\n", counts.in_flight);
    fprintf(to, "# TYPE worker_first_token_seconds histogram\n");
    for (size_t i = 0; i <= N_BOUNDS; i++) {
        sum += first[i];
        if (i < N_BOUNDS)
            fprintf(to, "worker_first_token_seconds_bucket{le=\"%g\"} %lu\n", bounds[i], sum);
        else
            fprintf(to, "worker_first_token_seconds_bucket{le=\"+Inf\"} %lu\n", sum);
    }
    fprintf(to, "worker_first_token_seconds_sum %g\nworker_first_token_seconds_count %lu\n", (double)first_us / 1e6,
            sum);
}

/* Answers a connection with the metrics, whatever it asks for. */
static void answer_scrape(int fd)
{
    const struct timeval limit = {.tv_sec = 2};
    char request[4096], *body = NULL;
    size_t n;
    FILE *to;

    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
    if (recv(fd, request, sizeof(request), 0) > 0 && (to = open_memstream(&body, &n)) != NULL) {
        print_metrics(to);
        fclose(to);
        dprintf(fd,
                "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: %zu\r\n"
                "Connection: close\r\n\r\n%s",
                n, body);
        free(body);
    }
    close(fd);
}

static void *serve_metrics(void *listener)
{
    int fd;

    while ((fd = accept(*(int *)listener, NULL, NULL)) >= 0 || errno == ECONNABORTED || errno == EINTR)
        if (fd >= 0)
            answer_scrape(fd);
    perror("worker: no more metrics");
    return NULL;
}

bool metrics_serve(const char *address)
{
    static int listener;
    pthread_t thread;
    struct sockaddr_in at = {.sin_family = AF_INET};
    socklen_t n = sizeof(at);
    char host[16] = "", *colon = strchr(address, ':');

    if (colon == NULL || (size_t)(colon - address) >= sizeof(host))
        return false;
    memcpy(host, address, (size_t)(colon - address));
    at.sin_port = htons((uint16_t)strtoul(colon + 1, NULL, 10));
    listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (inet_pton(AF_INET, host, &at.sin_addr) != 1 || bind(listener, (struct sockaddr *)&at, n) != 0 ||
        listen(listener, 16) != 0 || getsockname(listener, (struct sockaddr *)&at, &n) != 0)
        return false;
    fprintf(stderr, "worker: metrics on http://%s:%d/metrics\n", host, ntohs(at.sin_port));
    return pthread_create(&thread, NULL, serve_metrics, &listener) == 0;
}
