/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/trace/record.h"

#include "base/utf8.h"
#include <string.h>

const char *ngd_trace_part_name(ngd_trace_part_t what)
{
    static const char *const names[NGD_TRACE_PARTS] = {
#define NGD_TRACE_PART(ID, name, help) [NGD_TRACE_##ID] = name,
#include "daemon/trace/parts.def"
#undef NGD_TRACE_PART
    };

    return names[what];
}

int ngd_trace_record_part(struct ngd_trace_record *record, ngd_trace_part_t what, int in, ngd_nsec_t begin,
                          ngd_nsec_t end)
{
    const ngd_nsec_t from = in >= 0 ? record->parts[in].begin : record->begin;

    if (in >= 0 && end > record->parts[in].end)
        end = record->parts[in].end;
    if (begin < from)
        begin = from;
    if (end <= begin || record->n_parts == NGD_TRACE_RECORD_PARTS)
        return -1;
    record->parts[record->n_parts].what = (int16_t)what;
    record->parts[record->n_parts].in = (int16_t)in;
    record->parts[record->n_parts].begin = begin;
    record->parts[record->n_parts].end = end;
    return (int)record->n_parts++;
}

void ngd_trace_record_number(struct ngd_trace_record *record, const char *key, int64_t value)
{
    if (record->n_numbers == NGD_TRACE_RECORD_NUMBERS)
        return;
    record->numbers[record->n_numbers].key = key;
    record->numbers[record->n_numbers++].value = value;
}

void ngd_trace_copy_text(char *to, size_t room, const char *text)
{
    size_t n = 0, left = strlen(text), step;

    while ((step = ngd_utf8_step(text + n, left)) > 0 && n + step < room) {
        n += step;
        left -= step;
    }
    memcpy(to, text, n);
    to[n] = '\0';
}

void ngd_trace_record_name(struct ngd_trace_record *record, const char *key, const char *name)
{
    record->name_key = key;
    ngd_trace_copy_text(record->name, sizeof(record->name), name);
}
