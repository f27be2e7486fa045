/* SPDX-License-Identifier: Apache-2.0 */
#include "client/lib/trace.h"

#include "client/lib/error.h"
#include <stdio.h>
#include <string.h>

#define INVALID_ARGUMENT 3 /* of gRPC */

static _Thread_local struct npugraph__trace context;
static _Thread_local bool has_context;

const struct npugraph__trace *npugraph__trace(void)
{
    return has_context ? &context : NULL;
}

static int digit_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Packs "00-<32 hex>-<16 hex>-<2 hex>". False: the text has another form. */
static bool pack_parent(const char *text, uint8_t *to)
{
    if (strnlen(text, NPUGRAPH__TRACE_PARENT + 1) != NPUGRAPH__TRACE_PARENT || memcmp(text, "00-", 3) != 0)
        return false;
    for (size_t i = 3, half = 0; i < NPUGRAPH__TRACE_PARENT; i++) {
        const int value = digit_value(text[i]);

        if (i == 35 || i == 52) {
            if (text[i] != '-')
                return false;
            continue;
        }
        if (value < 0)
            return false;
        to[half / 2] = (uint8_t)(half % 2 != 0 ? to[half / 2] | value : value << 4);
        half++;
    }
    return true;
}

static bool is_printable(const char *text)
{
    for (; *text != '\0'; text++)
        if (*text < ' ' || *text > '~')
            return false;
    return true;
}

int npugraph_trace_context(const char *traceparent, const char *tracestate, struct npugraph_error *err)
{
    uint8_t packed[NPUGRAPH__TRACE_PACKED];

    has_context = false;
    if (traceparent == NULL)
        return 0;
    if (tracestate == NULL)
        tracestate = "";
    if (!pack_parent(traceparent, packed))
        return npugraph__error(err, INVALID_ARGUMENT, "INVALID_ARGUMENT",
                               "\"%.80s\" is not a traceparent of version 00", traceparent);
    if (strnlen(tracestate, NPUGRAPH__TRACE_STATE + 1) > NPUGRAPH__TRACE_STATE || !is_printable(tracestate))
        return npugraph__error(err, INVALID_ARGUMENT, "INVALID_ARGUMENT",
                               "the tracestate is longer than %d characters, or has some that are not printable",
                               NPUGRAPH__TRACE_STATE);
    memcpy(context.packed, packed, sizeof(packed));
    snprintf(context.parent, sizeof(context.parent), "%s", traceparent);
    snprintf(context.state, sizeof(context.state), "%s", tracestate);
    has_context = true;
    return 0;
}
