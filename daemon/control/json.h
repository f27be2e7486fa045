/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_CONTROL_JSON_H
#define NGD_DAEMON_CONTROL_JSON_H

/* Prints JSON, entry by entry, with a comma where an entry precedes. name: NULL for an entry of a list. Threads: any.
 */
#include "base/strbuf.h"
#include <stdint.h>

/* Prints `"name": `, for a value that the caller prints. */
void ngd_json_key(struct ngd_strbuf *sb, const char *name);
void ngd_json_u64(struct ngd_strbuf *sb, const char *name, uint64_t v);
void ngd_json_double(struct ngd_strbuf *sb, const char *name, double v);
void ngd_json_bool(struct ngd_strbuf *sb, const char *name, bool v);
void ngd_json_text(struct ngd_strbuf *sb, const char *name, const char *v);
void ngd_json_open_object(struct ngd_strbuf *sb, const char *name);
void ngd_json_close_object(struct ngd_strbuf *sb);
void ngd_json_open_list(struct ngd_strbuf *sb, const char *name);
void ngd_json_close_list(struct ngd_strbuf *sb);

#endif
