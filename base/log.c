/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The log. A line is built on the stack and written with one write(2). So lines of different threads do
 * not mix (pipes and files in append mode keep writes of this size whole), and no buffer is lost when the
 * process dies. If the pipe is full, the line is dropped; the daemon never waits for its log.
 */
#include "base/log.h"
#include "base/clock.h"
#include "base/log_ring.h"
#include "base/utf8.h"
#include <errno.h>
#include <stdbool.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define LINE_MAX_BYTES 4096 /* PIPE_BUF */
#define TEXT_MAX_BYTES 3072 /* of the text, with its escapes */

static _Atomic int log_level = NGD_LOG_INFO;
static _Atomic int log_format = NGD_LOG_TEXT;
static _Atomic int log_fd = 2;

/* Whether the log goes to the journal; determined once for each descriptor. */
enum { JOURNAL_UNKNOWN, JOURNAL_NO, JOURNAL_YES };
static _Atomic int journal = JOURNAL_UNKNOWN;

static const struct {
    const char *name;
    char priority; /* sd-daemon(3) */
} levels[] = {
    [NGD_LOG_ERROR] = {"error", '3'}, [NGD_LOG_WARNING] = {"warning", '4'}, [NGD_LOG_NOTICE] = {"notice", '5'},
    [NGD_LOG_INFO] = {"info", '6'},   [NGD_LOG_DEBUG] = {"debug", '7'},
};

void ngd_log_set_level(ngd_log_level_t level)
{
    atomic_store_explicit(&log_level, (int)level, memory_order_relaxed);
}

ngd_log_level_t ngd_log_get_level(void)
{
    return (ngd_log_level_t)atomic_load_explicit(&log_level, memory_order_relaxed);
}

void ngd_log_set_format(ngd_log_format_t format)
{
    atomic_store_explicit(&log_format, (int)format, memory_order_relaxed);
}

bool ngd_log_level_parse(const char *text, ngd_log_level_t *level_p)
{
    for (int i = NGD_LOG_ERROR; i <= NGD_LOG_DEBUG; i++) {
        if (strcmp(levels[i].name, text) == 0) {
            *level_p = (ngd_log_level_t)i;
            return true;
        }
    }
    return false;
}

const char *ngd_log_level_name(ngd_log_level_t level)
{
    return (unsigned)level <= NGD_LOG_DEBUG ? levels[level].name : "unknown";
}

void ngd_log_set_fd(int fd)
{
    atomic_store_explicit(&log_fd, fd, memory_order_relaxed);
    atomic_store_explicit(&journal, JOURNAL_UNKNOWN, memory_order_relaxed);
}

/*
 * Returns true if fd is connected to the journal. systemd.exec(5): JOURNAL_STREAM is "device:inode" of the
 * stream that systemd connected. The numbers must be compared, because a child of a service inherits the
 * variable even if its output goes elsewhere.
 */
static bool is_journal(int fd)
{
    int known = atomic_load_explicit(&journal, memory_order_relaxed);
    const char *stream;
    unsigned long long dev, ino;
    struct stat st;

    if (known != JOURNAL_UNKNOWN)
        return known == JOURNAL_YES;
    stream = getenv("JOURNAL_STREAM");
    known = JOURNAL_NO;
    if (stream && sscanf(stream, "%llu:%llu", &dev, &ino) == 2 && fstat(fd, &st) == 0 && st.st_dev == dev &&
        st.st_ino == ino)
        known = JOURNAL_YES;
    atomic_store_explicit(&journal, known, memory_order_relaxed);
    return known == JOURNAL_YES;
}

/* Appends one character of text to out, escaped if it is a control character or not UTF-8. Returns how
 * many bytes of text it used; *len grows by at most 4. */
static size_t escape_text(char *out, size_t *len, const char *text, size_t n, bool quoted)
{
    size_t step = ngd_utf8_step(text, n);
    unsigned char c = (unsigned char)text[0];

    if (step == 0 || c < 0x20 || c == 0x7f) {
        static const char hex[] = "0123456789abcdef";

        out[(*len)++] = '\\';
        if (c == '\n' || c == '\t' || c == '\r') {
            out[(*len)++] = c == '\n' ? 'n' : c == '\t' ? 't' : 'r';
        } else {
            out[(*len)++] = 'x';
            out[(*len)++] = hex[c >> 4];
            out[(*len)++] = hex[c & 15];
        }
        return 1;
    }
    if (quoted && (c == '"' || c == '\\'))
        out[(*len)++] = '\\';
    memcpy(out + *len, text, step);
    *len += step;
    return step;
}

static bool plain_word(const char *text)
{
    if (!*text)
        return false;
    for (const char *p = text; *p; p++)
        if ((unsigned char)*p <= 0x20 || (unsigned char)*p >= 0x7f || *p == '"' || *p == '=' || *p == '\\')
            return false;
    return true;
}

const char *ngd_log_value(const char *text, char buf[NGD_LOG_VALUE_MAX])
{
    size_t len = 0, n;

    if (!text)
        return "-";
    n = strnlen(text, NGD_LOG_VALUE_MAX);
    if (n < NGD_LOG_VALUE_MAX && plain_word(text))
        return text;
    buf[len++] = '"';
    for (size_t i = 0; i < n;) {
        if (len + 4 + sizeof("...\"") > NGD_LOG_VALUE_MAX) {
            memcpy(buf + len, "...", 3);
            len += 3;
            break;
        }
        i += escape_text(buf, &len, text + i, n - i, true);
    }
    buf[len++] = '"';
    buf[len] = '\0';
    return buf;
}

static uint64_t wall_time_ms(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_REALTIME, &ts);
    return (uint64_t)ts.tv_sec * 1000 + (uint64_t)(ts.tv_nsec / NGD_MSEC);
}

static size_t put_time(char *out, size_t cap, uint64_t ms)
{
    const time_t seconds = (time_t)(ms / 1000);
    struct tm tm;
    size_t n;

    gmtime_r(&seconds, &tm);
    n = strftime(out, cap, "%Y-%m-%dT%H:%M:%S", &tm);
    return n + (size_t)snprintf(out + n, cap - n, ".%03dZ", (int)(ms % 1000));
}

/* Number of lines that could not be written, for example because the disk is full. */
static _Atomic uint64_t lost;

static bool write_log_line(int fd, const char *line, size_t len)
{
    while (len > 0) {
        const ssize_t n = write(fd, line, len);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        line += n;
        len -= (size_t)n;
    }
    return true;
}

/* Writes the line, and first the number of lost lines if there are any. That message begins with a line break, because
 * the last line may have been cut. */
static void put_log_line(int fd, const char *line, size_t len)
{
    uint64_t n = atomic_load_explicit(&lost, memory_order_relaxed);
    char text[128];
    int want;

    if (n > 0 && atomic_compare_exchange_strong(&lost, &n, 0)) {
        want = snprintf(text, sizeof(text), "\nwarning log: %" PRIu64 " lines could not be written\n", n);
        if (!write_log_line(fd, text, (size_t)want))
            atomic_fetch_add(&lost, n);
    }
    if (!write_log_line(fd, line, len))
        atomic_fetch_add(&lost, 1);
}

struct log_line {
    ngd_log_level_t level;
    uint64_t time_ms;
    const char *component;
    char text[TEXT_MAX_BYTES]; /* escaped */
    size_t n;
};

/* Formats and escapes the text, and cuts it to fit. */
static void make_text(struct log_line *line, const char *fmt, va_list ap) __attribute__((format(printf, 2, 0)));

static void make_text(struct log_line *line, const char *fmt, va_list ap)
{
    char raw[TEXT_MAX_BYTES];
    const int want = vsnprintf(raw, sizeof(raw), fmt, ap);
    const size_t n = want < 0 ? 0 : (size_t)want < sizeof(raw) ? (size_t)want : sizeof(raw) - 1;

    line->n = 0;
    for (size_t i = 0; i < n;) {
        if (line->n + 4 + sizeof("...") > sizeof(line->text)) {
            memcpy(line->text + line->n, "...", 3);
            line->n += 3;
            break;
        }
        i += escape_text(line->text, &line->n, raw + i, n - i, false);
    }
}

/* Puts the text into JSON. It is valid UTF-8 without control characters already. */
static size_t put_json_text(const struct log_line *line, char *out, size_t room)
{
    size_t len = 0;

    for (size_t i = 0, step; i < line->n; i += step) {
        step = ngd_utf8_step(line->text + i, line->n - i);
        if (len + 1 + step > room)
            break;
        if (line->text[i] == '"' || line->text[i] == '\\')
            out[len++] = '\\';
        memcpy(out + len, line->text + i, step);
        len += step;
    }
    return len;
}

/* Writes the line as the log has it to out, which has LINE_MAX_BYTES. Returns its length. */
static size_t print_log_line(const struct log_line *line, bool to_journal, char *out)
{
    const bool json = atomic_load_explicit(&log_format, memory_order_relaxed) == NGD_LOG_JSON;
    const char *level = levels[line->level].name;
    char stamp[32];
    size_t len = 0;

    put_time(stamp, sizeof(stamp), line->time_ms);
    if (to_journal)
        len = (size_t)snprintf(out, LINE_MAX_BYTES, "<%c>", levels[line->level].priority);
    if (json) {
        len += (size_t)snprintf(out + len, LINE_MAX_BYTES - len,
                                "{\"time\":\"%s\",\"level\":\"%s\",\"component\":\"%.64s\",\"text\":\"", stamp, level,
                                line->component);
        len += put_json_text(line, out + len, LINE_MAX_BYTES - len - sizeof("\"}\n"));
        memcpy(out + len, "\"}\n", 3);
        return len + 3;
    }
    len += (size_t)snprintf(out + len, LINE_MAX_BYTES - len, "%s%s%s %.64s: ", to_journal ? "" : stamp,
                            to_journal ? "" : " ", level, line->component);
    memcpy(out + len, line->text, line->n);
    len += line->n;
    out[len] = '\n';
    return len + 1;
}

static void write_line(ngd_log_level_t level, const char *component, const char *fmt, va_list ap)
    __attribute__((format(printf, 3, 0)));

static void write_line(ngd_log_level_t level, const char *component, const char *fmt, va_list ap)
{
    int saved_errno = errno; /* callers log between a failed call and their use of errno */
    int fd = atomic_load_explicit(&log_fd, memory_order_relaxed);
    struct log_line line = {.level = level > NGD_LOG_DEBUG ? NGD_LOG_DEBUG : level, .component = component};
    char out[LINE_MAX_BYTES];

    line.time_ms = wall_time_ms();
    make_text(&line, fmt, ap);
    put_log_line(fd, out, print_log_line(&line, is_journal(fd), out));
    ngd_log_ring_add(line.level, line.time_ms, component, line.text, line.n);
    errno = saved_errno;
}

void ngd_log_write(ngd_log_level_t level, const char *component, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    write_line(level, component, fmt, ap);
    va_end(ap);
}

/* Two threads that find the ten seconds over at once may both start new ones, which allows a few lines more. */
void ngd_log_limited(struct ngd_log_limit *limit, ngd_log_level_t level, const char *component, const char *fmt, ...)
{
    ngd_nsec_t now = ngd_now();
    unsigned left_out = 0;
    va_list ap;

    if (level > ngd_log_get_level())
        return;
    if (now >= atomic_load(&limit->until)) {
        atomic_store(&limit->until, now + 10 * NGD_SEC);
        atomic_store(&limit->lines, 0);
        left_out = atomic_exchange(&limit->left_out, 0);
    }
    if (atomic_fetch_add(&limit->lines, 1) >= (limit->most ? limit->most : NGD_LOG_LIMIT)) {
        atomic_fetch_add(&limit->left_out, 1);
        return;
    }
    if (left_out > 0)
        ngd_log_write(level, component, "%u lines like the next one were left out", left_out);
    va_start(ap, fmt);
    write_line(level, component, fmt, ap);
    va_end(ap);
}
