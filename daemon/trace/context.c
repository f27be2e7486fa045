/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/trace/context.h"

#include <string.h>

#define SAMPLED 0x01 /* of the flags */

/* Returns the value of a hexadecimal digit, which is in lower case; -1: it is none. */
static int context_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool read_hex(const char *text, uint8_t *to, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const int high = context_digit(text[2 * i]), low = context_digit(text[2 * i + 1]);

        if (high < 0 || low < 0)
            return false;
        to[i] = (uint8_t)(high << 4 | low);
    }
    return true;
}

static bool is_zero(const uint8_t *p, size_t n)
{
    uint8_t any = 0;

    for (size_t i = 0; i < n; i++)
        any |= p[i];
    return any == 0;
}

static bool has_ids(const struct ngd_trace_context *context)
{
    return !is_zero(context->trace, NGD_TRACE_ID) && !is_zero(context->span, NGD_SPAN_ID);
}

/* Later versions may have more behind the flags, after a dash. */
static bool has_form(const char *text, size_t n, uint8_t version)
{
    if (n < NGD_TRACE_PARENT_TEXT || text[2] != '-' || text[35] != '-' || text[52] != '-' || version == 0xff)
        return false;
    return n == NGD_TRACE_PARENT_TEXT || (version > 0 && text[NGD_TRACE_PARENT_TEXT] == '-');
}

bool ngd_trace_context_parse(const char *text, size_t n, struct ngd_trace_context *context_p)
{
    uint8_t version, flags;

    context_p->state[0] = '\0';
    if (n < NGD_TRACE_PARENT_TEXT || !read_hex(text, &version, 1) || !has_form(text, n, version) ||
        !read_hex(text + 3, context_p->trace, NGD_TRACE_ID) || !read_hex(text + 36, context_p->span, NGD_SPAN_ID) ||
        !read_hex(text + 53, &flags, 1))
        return false;
    context_p->sampled = flags & SAMPLED;
    return has_ids(context_p);
}

bool ngd_trace_context_unpack(const uint8_t *data, size_t n, struct ngd_trace_context *context_p)
{
    context_p->state[0] = '\0';
    if (n != NGD_TRACE_PARENT_BYTES)
        return false;
    memcpy(context_p->trace, data, NGD_TRACE_ID);
    memcpy(context_p->span, data + NGD_TRACE_ID, NGD_SPAN_ID);
    context_p->sampled = data[NGD_TRACE_ID + NGD_SPAN_ID] & SAMPLED;
    return has_ids(context_p);
}

bool ngd_trace_context_add_state(struct ngd_trace_context *context, const char *text, size_t n)
{
    const size_t had = strlen(context->state), comma = had > 0;
    bool ok = had + comma + n <= NGD_TRACE_STATE_MAX;

    for (size_t i = 0; ok && i < n; i++)
        ok = text[i] >= ' ' && text[i] <= '~';
    if (!ok) {
        context->state[0] = '\0';
        return false;
    }
    if (comma)
        context->state[had] = ',';
    memcpy(context->state + had + comma, text, n);
    context->state[had + comma + n] = '\0';
    return true;
}
