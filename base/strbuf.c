/* SPDX-License-Identifier: Apache-2.0 */
#include "base/strbuf.h"
#include "base/mem.h"
#include "base/utf8.h"
#include <stdio.h>
#include <string.h>

#define FIRST_CAP 64

void ngd_strbuf_init(struct ngd_strbuf *sb)
{
    *sb = (struct ngd_strbuf){0};
}

void ngd_strbuf_fini(struct ngd_strbuf *sb)
{
    ngd_free(sb->data);
    ngd_strbuf_init(sb);
}

void ngd_strbuf_clear(struct ngd_strbuf *sb)
{
    sb->len = 0;
    sb->failed = false;
    if (sb->data)
        sb->data[0] = '\0';
}

/* Makes room for `extra` bytes and the terminator. */
static bool reserve_bytes(struct ngd_strbuf *sb, size_t extra)
{
    size_t need, cap = sb->cap ? sb->cap : FIRST_CAP;
    char *data;

    if (sb->failed)
        return false;
    if (__builtin_add_overflow(sb->len, extra, &need) || __builtin_add_overflow(need, 1, &need)) {
        sb->failed = true;
        return false;
    }
    if (need <= sb->cap)
        return true;
    while (cap < need)
        if (__builtin_mul_overflow(cap, 2, &cap))
            cap = need;
    data = ngd_realloc(sb->data, cap);
    if (!data) {
        sb->failed = true;
        return false;
    }
    sb->data = data;
    sb->cap = cap;
    return true;
}

void ngd_strbuf_append_n(struct ngd_strbuf *sb, const void *data, size_t n)
{
    if (!reserve_bytes(sb, n))
        return;
    if (n)
        memcpy(sb->data + sb->len, data, n);
    sb->len += n;
    sb->data[sb->len] = '\0';
}

void ngd_strbuf_append(struct ngd_strbuf *sb, const char *s)
{
    ngd_strbuf_append_n(sb, s, strlen(s));
}

void ngd_strbuf_putc(struct ngd_strbuf *sb, char c)
{
    ngd_strbuf_append_n(sb, &c, 1);
}

void ngd_strbuf_vprintf(struct ngd_strbuf *sb, const char *fmt, va_list ap)
{
    va_list again;
    size_t room;
    int n;

    if (!reserve_bytes(sb, FIRST_CAP))
        return;
    room = sb->cap - sb->len;
    va_copy(again, ap);
    n = vsnprintf(sb->data + sb->len, room, fmt, ap);
    if (n >= 0 && (size_t)n >= room) {
        sb->data[sb->len] = '\0'; /* reserving failed: the text stays as it was before */
        if (reserve_bytes(sb, (size_t)n))
            vsnprintf(sb->data + sb->len, (size_t)n + 1, fmt, again);
    }
    va_end(again);
    if (n < 0) {
        sb->data[sb->len] = '\0';
        sb->failed = true;
    }
    if (!sb->failed)
        sb->len += (size_t)n;
}

void ngd_strbuf_printf(struct ngd_strbuf *sb, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    ngd_strbuf_vprintf(sb, fmt, ap);
    va_end(ap);
}

/* Replaces each byte that is not valid UTF-8 by U+FFFD, because JSON cannot carry it otherwise. */
void ngd_strbuf_json_string(struct ngd_strbuf *sb, const char *s)
{
    size_t n = strlen(s);

    ngd_strbuf_putc(sb, '"');
    while (n > 0) {
        size_t step = ngd_utf8_step(s, n);
        unsigned char c = (unsigned char)*s;

        if (step == 0) {
            ngd_strbuf_append(sb, "\xef\xbf\xbd");
            step = 1;
        } else if (c == '"' || c == '\\') {
            ngd_strbuf_putc(sb, '\\');
            ngd_strbuf_putc(sb, (char)c);
        } else if (c == '\n') {
            ngd_strbuf_append(sb, "\\n");
        } else if (c == '\t') {
            ngd_strbuf_append(sb, "\\t");
        } else if (c == '\r') {
            ngd_strbuf_append(sb, "\\r");
        } else if (c < 0x20) {
            ngd_strbuf_printf(sb, "\\u%04x", c);
        } else {
            ngd_strbuf_append_n(sb, s, step);
        }
        s += step;
        n -= step;
    }
    ngd_strbuf_putc(sb, '"');
}

const char *ngd_strbuf_str(const struct ngd_strbuf *sb)
{
    return sb->data ? sb->data : "";
}

char *ngd_strbuf_steal(struct ngd_strbuf *sb)
{
    char *data = NULL;

    ngd_strbuf_append_n(sb, "", 0); /* an empty string becomes "", so that NULL means failure */
    if (!sb->failed) {
        data = sb->data;
        sb->data = NULL;
    }
    ngd_strbuf_fini(sb);
    return data;
}
