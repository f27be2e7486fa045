/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_BASE_STRBUF_H
#define NGD_BASE_STRBUF_H

/* A growing string. After a failed allocation it stays valid, `failed` is set and appends are no-ops. */
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

struct ngd_strbuf {
    char *data; /* always terminated once something was appended; NULL before */
    size_t len;
    size_t cap;
    bool failed;
};

void ngd_strbuf_init(struct ngd_strbuf *sb);
void ngd_strbuf_fini(struct ngd_strbuf *sb);
void ngd_strbuf_clear(struct ngd_strbuf *sb);
void ngd_strbuf_append(struct ngd_strbuf *sb, const char *s);
void ngd_strbuf_append_n(struct ngd_strbuf *sb, const void *data, size_t n);
void ngd_strbuf_putc(struct ngd_strbuf *sb, char c);
void ngd_strbuf_printf(struct ngd_strbuf *sb, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void ngd_strbuf_vprintf(struct ngd_strbuf *sb, const char *fmt, va_list ap) __attribute__((format(printf, 2, 0)));
/* Appends s as a quoted JSON string; graph text quotes its strings the same way. */
void ngd_strbuf_json_string(struct ngd_strbuf *sb, const char *s);
const char *ngd_strbuf_str(const struct ngd_strbuf *sb); /* "" when empty */
char *ngd_strbuf_steal(struct ngd_strbuf *sb); /* hands the string to the caller (NULL if failed) and leaves sb empty */

#endif
