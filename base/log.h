/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_BASE_LOG_H
#define NGD_BASE_LOG_H

/*
 * The structured log: one line per event, "<time> <level> <component>: <text> key=value ...", or an object of JSON with
 * these four. Under systemd (JOURNAL_STREAM) the sd-daemon priority prefix is written, and text has no time.
 * base/ and graphs/ stay at debug; from devices/ up the function that first decides logs once.
 * Threads: any. A line is written with one write(2); nothing is buffered.
 * Control characters in a line are escaped, so that a client's text cannot forge a line; values that
 * come from outside go through ngd_log_value, which quotes them when they are not a plain word.
 */
#include <stdatomic.h>
#include <stdbool.h>

typedef enum ngd_log_level {
    NGD_LOG_ERROR,
    NGD_LOG_WARNING,
    NGD_LOG_NOTICE,
    NGD_LOG_INFO,
    NGD_LOG_DEBUG,
} ngd_log_level_t;

/* Values of the option log-format, in its order. */
typedef enum ngd_log_format { NGD_LOG_TEXT, NGD_LOG_JSON } ngd_log_format_t;

void ngd_log_set_level(ngd_log_level_t level);
ngd_log_level_t ngd_log_get_level(void);
bool ngd_log_level_parse(const char *text, ngd_log_level_t *level_p);
const char *ngd_log_level_name(ngd_log_level_t level);
void ngd_log_set_format(ngd_log_format_t format); /* default: text */
void ngd_log_set_fd(int fd);                      /* default 2 */

/* Returns a value for "key=value": text itself if it is a plain word, otherwise a quoted and escaped copy in buf,
 * cut to fit. NULL becomes "-". */
#define NGD_LOG_VALUE_MAX 256
const char *ngd_log_value(const char *text, char buf[NGD_LOG_VALUE_MAX]);

/* Writes a line; use the macros below instead. fmt is as for printf; control characters in the result are escaped. */
void ngd_log_write(ngd_log_level_t level, const char *component, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/*
 * Bounds the lines that others can cause as often as they like: each limit writes at most `most` of them in ten
 * seconds. The first line after these ten seconds says how many were left out. A limit starts zeroed; it is usually
 * static.
 */
#define NGD_LOG_LIMIT      10
#define NGD_LOG_LIMIT_CALL 1000 /* for lines that a client causes with each of its calls */
struct ngd_log_limit {
    unsigned most;           /* 0: NGD_LOG_LIMIT */
    _Atomic long long until; /* end of these ten seconds, in ngd_now() */
    _Atomic unsigned lines, left_out;
};
void ngd_log_limited(struct ngd_log_limit *limit, ngd_log_level_t level, const char *component, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

#define ngd_log(level, component, ...)                        \
    do {                                                      \
        if ((level) <= ngd_log_get_level())                   \
            ngd_log_write((level), (component), __VA_ARGS__); \
    } while (0)
#define ngd_error(component, ...)   ngd_log(NGD_LOG_ERROR, component, __VA_ARGS__)
#define ngd_warning(component, ...) ngd_log(NGD_LOG_WARNING, component, __VA_ARGS__)
#define ngd_notice(component, ...)  ngd_log(NGD_LOG_NOTICE, component, __VA_ARGS__)
#define ngd_info(component, ...)    ngd_log(NGD_LOG_INFO, component, __VA_ARGS__)
#define ngd_debug(component, ...)   ngd_log(NGD_LOG_DEBUG, component, __VA_ARGS__)

#endif
