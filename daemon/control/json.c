/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/control/json.h"
#include <inttypes.h>

void ngd_json_key(struct ngd_strbuf *sb, const char *name)
{
    if (sb->len > 0 && sb->data[sb->len - 1] != '{' && sb->data[sb->len - 1] != '[')
        ngd_strbuf_append(sb, ", ");
    if (name) {
        ngd_strbuf_json_string(sb, name);
        ngd_strbuf_append(sb, ": ");
    }
}

void ngd_json_u64(struct ngd_strbuf *sb, const char *name, uint64_t v)
{
    ngd_json_key(sb, name);
    ngd_strbuf_printf(sb, "%" PRIu64, v);
}

void ngd_json_double(struct ngd_strbuf *sb, const char *name, double v)
{
    ngd_json_key(sb, name);
    ngd_strbuf_printf(sb, "%.9g", v);
}

void ngd_json_bool(struct ngd_strbuf *sb, const char *name, bool v)
{
    ngd_json_key(sb, name);
    ngd_strbuf_append(sb, v ? "true" : "false");
}

void ngd_json_text(struct ngd_strbuf *sb, const char *name, const char *v)
{
    ngd_json_key(sb, name);
    ngd_strbuf_json_string(sb, v);
}

void ngd_json_open_object(struct ngd_strbuf *sb, const char *name)
{
    ngd_json_key(sb, name);
    ngd_strbuf_putc(sb, '{');
}

void ngd_json_close_object(struct ngd_strbuf *sb)
{
    ngd_strbuf_putc(sb, '}');
}

void ngd_json_open_list(struct ngd_strbuf *sb, const char *name)
{
    ngd_json_key(sb, name);
    ngd_strbuf_putc(sb, '[');
}

void ngd_json_close_list(struct ngd_strbuf *sb)
{
    ngd_strbuf_putc(sb, ']');
}
