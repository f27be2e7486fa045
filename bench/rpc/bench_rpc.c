/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/rpc/bench_rpc.h"

#include <dirent.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

void bench_fail(const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fputc('\n', stderr);
    exit(2);
}

/* ---- samples ---- */

void samples_add(struct samples *s, double v)
{
    if (s->n == s->room) {
        s->room = s->room ? 2 * s->room : 256;
        s->v = realloc(s->v, s->room * sizeof(*s->v));
        if (s->v == NULL)
            bench_fail("no memory for samples");
    }
    s->v[s->n++] = v;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

double samples_quantile(struct samples *s, double q)
{
    double at = q * (double)(s->n - 1);
    size_t i = (size_t)at;

    if (s->n == 0)
        bench_fail("nothing was measured");
    qsort(s->v, s->n, sizeof(*s->v), compare);
    return i + 1 < s->n ? s->v[i] + (at - (double)i) * (s->v[i + 1] - s->v[i]) : s->v[i];
}

void samples_print(struct samples *s, const char *what, const char *unit, double scale)
{
    double median = samples_quantile(s, 0.5) * scale;

    printf("%-44s median %10.2f %-5s  p10..p90 %.2f..%.2f  n %zu\n", what, median, unit,
           samples_quantile(s, 0.1) * scale, samples_quantile(s, 0.9) * scale, s->n);
    fflush(stdout);
}

void samples_free(struct samples *s)
{
    free(s->v);
    *s = (struct samples){0};
}

/* ---- options ---- */

static void usage(const char *program, const struct bench_option *options, size_t n)
{
    fprintf(stderr, "usage: %s", program);
    for (size_t i = 0; i < n; i++)
        fprintf(stderr, " [--%s%s]", options[i].name, options[i].flag ? "" : options[i].text ? " TEXT" : " N");
    fputc('\n', stderr);
    exit(2);
}

void bench_options(int argc, char **argv, const struct bench_option *options, size_t n)
{
    for (int at = 1; at < argc; at++) {
        const struct bench_option *o = NULL;
        char *end;

        for (size_t i = 0; i < n; i++)
            if (strncmp(argv[at], "--", 2) == 0 && strcmp(argv[at] + 2, options[i].name) == 0)
                o = &options[i];
        if (o == NULL || (o->flag == NULL && at + 1 == argc))
            usage(argv[0], options, n);
        if (o->flag) {
            *o->flag = true;
        } else if (o->text) {
            *o->text = argv[++at];
        } else {
            *o->number = strtoll(argv[++at], &end, 10);
            if (*end != '\0' || *o->number < 1)
                bench_fail("--%s takes a number of 1 or more", o->name);
        }
    }
}

/* ---- directories ---- */

char *bench_dir_make(void)
{
    const char *base = getenv("TMPDIR") != NULL ? getenv("TMPDIR") : "/tmp";
    char *dir = malloc(strlen(base) + 32);

    if (dir == NULL)
        bench_fail("no memory");
    sprintf(dir, "%s/npugraph-bench-XXXXXX", base);
    if (mkdtemp(dir) == NULL)
        bench_fail("%s: cannot create a directory there", base);
    return dir;
}

void bench_dir_remove(char *dir)
{
    static const char *const files[] = {"config.json", "model.safetensors", "sock"};
    char path[4096];

    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        snprintf(path, sizeof(path), "%s/%s", dir, files[i]);
        unlink(path);
    }
    if (rmdir(dir) != 0)
        fprintf(stderr, "%s stays\n", dir);
    free(dir);
}

int bench_free_port(void)
{
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    socklen_t n = sizeof(addr);

    if (fd < 0 || bind(fd, (struct sockaddr *)&addr, n) != 0 || getsockname(fd, (struct sockaddr *)&addr, &n) != 0)
        bench_fail("no port of 127.0.0.1 can be had");
    close(fd);
    return ntohs(addr.sin_port);
}
