/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/audit.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/metrics.h"
#include "base/strbuf.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define AUDIT_QUEUE 1024
#define REFUSALS_WAITING \
    256 /* waiting lines from which on refusals are dropped: the rest is for what changes something */
#define REFUSALS_A_SECOND 10
#define ROTATE_AGAIN      (60 * NGD_SEC) /* after a rename that failed */

struct ngd_audit {
    char path[PATH_MAX];
    uint64_t max_bytes;
    pthread_t thread;
    int fd;               /* the thread's; -1: it could not be opened */
    uint64_t bytes;       /* of the file */
    ngd_nsec_t rotate_at; /* the thread's: not before that */
    struct ngd_mutex lock;
    struct ngd_cond wake;
    char *lines[AUDIT_QUEUE] NGD_GUARDED_BY(lock);
    size_t first NGD_GUARDED_BY(lock), n NGD_GUARDED_BY(lock);
    uint64_t dropped NGD_GUARDED_BY(lock);  /* since the log last said so */
    ngd_nsec_t second NGD_GUARDED_BY(lock); /* began then, and has so many refusals */
    uint32_t refusals NGD_GUARDED_BY(lock);
    bool stop NGD_GUARDED_BY(lock), reopen NGD_GUARDED_BY(lock);
};

/* ---- lines -------------------------------------------------------------------------------------------------- */

static void put_audit_time(struct ngd_strbuf *sb)
{
    struct timespec now;
    struct tm tm;

    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &tm);
    ngd_strbuf_printf(sb, "{\"time\":\"%04d-%02d-%02dT%02d:%02d:%02d.%06ldZ\"", tm.tm_year + 1900, tm.tm_mon + 1,
                      tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec, now.tv_nsec / 1000);
}

static void put_member(struct ngd_strbuf *sb, const char *name, const char *value)
{
    if (!value || !*value)
        return;
    ngd_strbuf_printf(sb, ",\"%s\":", name);
    ngd_strbuf_json_string(sb, value);
}

/* NULL: out of memory. */
static char *make_line(const struct ngd_audit_event *e)
{
    struct ngd_strbuf sb;

    ngd_strbuf_init(&sb);
    put_audit_time(&sb);
    put_member(&sb, "identity", e->identity);
    put_member(&sb, "peer", e->peer);
    if (e->session)
        ngd_strbuf_printf(&sb, ",\"session\":%" PRIu64, e->session);
    put_member(&sb, "method", e->method);
    put_member(&sb, "object", e->object);
    put_member(&sb, "answer", ngd_status_name(e->status));
    put_member(&sb, "text", e->status == NGD_OK ? NULL : e->text);
    ngd_strbuf_append(&sb, "}\n");
    return ngd_strbuf_steal(&sb);
}

bool ngd_audit_is_refusal(ngd_status_t status)
{
    switch (status) {
    case NGD_ERR_TOKEN_MALFORMED:
    case NGD_ERR_TOKEN_UNKNOWN:
    case NGD_ERR_TOKEN_EXPIRED:
    case NGD_ERR_TOKEN_PLAINTEXT:
    case NGD_ERR_TOKEN_REQUIRED:
    case NGD_ERR_TOKEN_RATE:
    case NGD_ERR_ROLE:
    case NGD_ERR_PERMISSION_DENIED:
    case NGD_ERR_SESSION_TOKEN:
        return true;
    default:
        return false;
    }
}

/* Who is refused again and again may not push out what others have changed, from the queue or from the file. */
static bool takes_refusal(struct ngd_audit *a) NGD_REQUIRES(a->lock)
{
    const ngd_nsec_t now = ngd_now();

    if (now - a->second >= NGD_SEC) {
        a->second = now;
        a->refusals = 0;
    }
    return a->n < REFUSALS_WAITING && a->refusals++ < REFUSALS_A_SECOND;
}

void ngd_audit_write(struct ngd_audit *a, const struct ngd_audit_event *event)
{
    char *line = a ? make_line(event) : NULL;
    bool full;

    if (!a)
        return;
    ngd_mutex_lock(&a->lock);
    full = !line || a->n == AUDIT_QUEUE || (ngd_audit_is_refusal(event->status) && !takes_refusal(a));
    if (full)
        a->dropped++;
    else
        a->lines[(a->first + a->n++) % AUDIT_QUEUE] = line;
    if (!full)
        ngd_cond_signal(&a->wake);
    ngd_mutex_unlock(&a->lock);
    if (!full)
        return;
    ngd_free(line);
    ngd_metric_add(NGD_M_AUDIT_DROPPED, 1);
}

/* ---- the file ----------------------------------------------------------------------------------------------- */

static ngd_status_t open_file(struct ngd_audit *a, struct ngd_diag *diag)
{
    struct stat st;
    /* Not blocked by a FIFO. */
    int fd = open(a->path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0600);

    if (fd < 0 || fstat(fd, &st) < 0) {
        ngd_diag_set(diag, NGD_ERR_CONFIG, "audit-log: %.300s: %s", a->path, strerror(errno));
    } else if (!S_ISREG(st.st_mode) || (st.st_mode & 077)) {
        ngd_diag_set(diag, NGD_ERR_CONFIG, "audit-log: %.300s: not a regular file with mode 0600", a->path);
    } else {
        a->fd = fd;
        a->bytes = (uint64_t)st.st_size;
        return NGD_OK;
    }
    if (fd >= 0)
        close(fd);
    a->fd = -1;
    a->bytes = 0;
    return NGD_ERR_CONFIG;
}

static void close_file(struct ngd_audit *a)
{
    if (a->fd >= 0)
        close(a->fd);
    a->fd = -1;
}

static void open_again(struct ngd_audit *a)
{
    static struct ngd_log_limit limit;
    struct ngd_diag diag = {0};

    close_file(a);
    if (open_file(a, &diag) != NGD_OK)
        ngd_log_limited(&limit, NGD_LOG_ERROR, "audit", "lines are lost: %s", diag.text);
}

static void rotate_audit(struct ngd_audit *a)
{
    static struct ngd_log_limit limit;
    char old[PATH_MAX + 4];

    snprintf(old, sizeof(old), "%s.1", a->path);
    if (rename(a->path, old) < 0) {
        ngd_log_limited(&limit, NGD_LOG_ERROR, "audit", "%s cannot become %s: %s; it grows meanwhile", a->path, old,
                        strerror(errno));
        a->rotate_at = ngd_now() + ROTATE_AGAIN;
        return;
    }
    open_again(a);
}

/* Appends a line. False: it is lost. A part of a line is taken back, so that each line is whole. */
static bool append_line(struct ngd_audit *a, const char *line)
{
    const size_t n = strlen(line);
    struct stat st;
    ssize_t done;

    if (a->max_bytes && a->bytes && a->bytes + n > a->max_bytes && ngd_now() >= a->rotate_at)
        rotate_audit(a);
    if (a->fd < 0)
        open_again(a);
    if (a->fd < 0)
        return false;
    do
        done = write(a->fd, line, n);
    while (done < 0 && errno == EINTR);
    if (done == (ssize_t)n) {
        a->bytes += n;
        return true;
    }
    /* By its size, not by ours: others may have cut it. */
    if (done > 0 && (fstat(a->fd, &st) < 0 || st.st_size < done || ftruncate(a->fd, st.st_size - done) < 0))
        a->bytes += (uint64_t)done;
    return false;
}

/* Says in the log how many lines it lacks. */
static bool append_dropped(struct ngd_audit *a, uint64_t dropped)
{
    struct ngd_strbuf sb;
    bool ok;

    ngd_strbuf_init(&sb);
    put_audit_time(&sb);
    ngd_strbuf_printf(&sb, ",\"dropped\":%" PRIu64 "}\n", dropped);
    ok = !sb.failed && append_line(a, ngd_strbuf_str(&sb));
    ngd_strbuf_fini(&sb);
    return ok;
}

static void lose_lines(struct ngd_audit *a, uint64_t n, bool again)
{
    ngd_mutex_lock(&a->lock);
    a->dropped += n;
    ngd_mutex_unlock(&a->lock);
    if (!again)
        ngd_metric_add(NGD_M_AUDIT_DROPPED, n);
}

/* Takes the next line, or what else is to do. False: the thread ends. */
static bool next_audit_line(struct ngd_audit *a, char **line_p, uint64_t *dropped_p, bool *reopen_p)
{
    bool go_on;

    *line_p = NULL;
    ngd_mutex_lock(&a->lock);
    while (a->n == 0 && !a->stop && !a->reopen)
        ngd_cond_wait(&a->wake, &a->lock);
    *reopen_p = a->reopen;
    *dropped_p = a->n > 0 || a->stop ? a->dropped : 0; /* with the next line: drops alone write nothing */
    a->dropped -= *dropped_p;
    a->reopen = false;
    go_on = a->n > 0 || !a->stop || *dropped_p;
    if (a->n > 0) {
        *line_p = a->lines[a->first];
        a->first = (a->first + 1) % AUDIT_QUEUE;
        a->n--;
    }
    ngd_mutex_unlock(&a->lock);
    return go_on;
}

static bool is_stopping(struct ngd_audit *a)
{
    bool stop;

    ngd_mutex_lock(&a->lock);
    stop = a->stop;
    ngd_mutex_unlock(&a->lock);
    return stop;
}

static void *write_lines(void *arg)
{
    struct ngd_audit *a = arg;
    uint64_t dropped;
    bool reopen;
    char *line;

    while (next_audit_line(a, &line, &dropped, &reopen)) {
        if (reopen)
            open_again(a);
        if (dropped && !append_dropped(a, dropped)) {
            lose_lines(a, dropped, true);
            if (!line && is_stopping(a)) /* nothing is left to write, and the file takes nothing */
                return NULL;
        }
        if (line && !append_line(a, line))
            lose_lines(a, 1, false);
        ngd_free(line);
    }
    return NULL;
}

/* ---- life --------------------------------------------------------------------------------------------------- */

ngd_status_t ngd_audit_create(const char *path, uint64_t max_bytes, struct ngd_audit **audit_p, struct ngd_diag *diag)
{
    struct ngd_audit *a;
    ngd_status_t status;

    *audit_p = NULL;
    if (!*path)
        return NGD_OK;
    a = NGD_NEW(struct ngd_audit);
    if (!a)
        return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory for the audit log");
    snprintf(a->path, sizeof(a->path), "%s", path);
    a->max_bytes = max_bytes;
    ngd_mutex_init(&a->lock, NGD_RANK_AUDIT);
    ngd_cond_init(&a->wake);
    status = open_file(a, diag);
    if (status == NGD_OK && ngd_thread_start(&a->thread, "audit", write_lines, a) != 0)
        status = ngd_diag_set(diag, NGD_ERR_RESOURCE_EXHAUSTED, "the thread of the audit log cannot be started");
    if (status == NGD_OK) {
        *audit_p = a;
        return NGD_OK;
    }
    close_file(a);
    ngd_cond_fini(&a->wake);
    ngd_mutex_fini(&a->lock);
    ngd_free(a);
    return status;
}

void ngd_audit_destroy(struct ngd_audit *a)
{
    if (!a)
        return;
    ngd_mutex_lock(&a->lock);
    a->stop = true;
    ngd_cond_signal(&a->wake);
    ngd_mutex_unlock(&a->lock);
    pthread_join(a->thread, NULL);
    close_file(a);
    ngd_cond_fini(&a->wake);
    ngd_mutex_fini(&a->lock);
    ngd_free(a);
}

void ngd_audit_reopen(struct ngd_audit *a)
{
    if (!a)
        return;
    ngd_mutex_lock(&a->lock);
    a->reopen = true;
    ngd_cond_signal(&a->wake);
    ngd_mutex_unlock(&a->lock);
}
