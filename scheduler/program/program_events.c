/* SPDX-License-Identifier: Apache-2.0 */
/* Events that programs note in the flight recorder. */
#include "scheduler/program/program_int.h"
#include <stdarg.h>
#include <stdio.h>

const ngd_event_reason_t ngd_miss_events[NGD_MISS_MAX] = {
    [NGD_MISS_FIRST] = NGD_EVENT_MISS_FIRST,       [NGD_MISS_EVICTED] = NGD_EVENT_MISS_EVICTED,
    [NGD_MISS_POISONED] = NGD_EVENT_MISS_POISONED, [NGD_MISS_FAILED] = NGD_EVENT_MISS_FAILED,
    [NGD_MISS_FORCED] = NGD_EVENT_MISS_FORCED,
};

void ngd_program_note(struct ngd_program *prog, ngd_event_reason_t reason, const struct ngd_key *key, uint64_t tag,
                      const char *fmt, ...)
{
    struct ngd_event_about about = {
        .program = prog->number, .owner = prog->owner, .graph = prog->graph, .key = key ? key->hash : 0, .tag = tag};
    char text[NGD_RECORDER_TEXT];
    struct ngd_strbuf sb;
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    ngd_strbuf_init(&sb);
    if (key) {
        ngd_key_print_symbols(prog->graph, key, &sb);
        ngd_strbuf_append(&sb, ": ");
    }
    ngd_recorder_note(&prog->sched->recorder, reason, &about, "%s%s", ngd_strbuf_str(&sb), text);
    ngd_strbuf_fini(&sb);
}

static ngd_event_reason_t refusal(ngd_status_t status)
{
    switch (status) {
    case NGD_ERR_GUARD_FAILED:
        return NGD_EVENT_REFUSED_GUARD;
    case NGD_ERR_BINDING_MISSING:
    case NGD_ERR_BINDING_MISMATCH:
        return NGD_EVENT_REFUSED_BINDING;
    case NGD_ERR_INPUT_COUNT:
    case NGD_ERR_INPUT_SIZE:
    case NGD_ERR_HOST_PARAM:
    case NGD_ERR_OUTPUT_UNKNOWN:
    case NGD_ERR_INVALID_ARGUMENT:
        return NGD_EVENT_REFUSED_REQUEST;
    case NGD_ERR_RESOURCE_EXHAUSTED:
    case NGD_ERR_CAPTURE_LIMIT:
    case NGD_ERR_NO_DEVICE_MEMORY:
        return NGD_EVENT_REFUSED_LIMIT;
    case NGD_ERR_DEADLINE_EXCEEDED:
        return NGD_EVENT_REFUSED_DEADLINE;
    default:
        return NGD_EVENT_REFUSED_OTHER;
    }
}

void ngd_program_refused(struct ngd_program *prog, ngd_status_t status, const struct ngd_diag *diag, uint64_t tag)
{
    ngd_program_note(prog, refusal(status), NULL, tag, "%s: %s", ngd_status_name(status),
                     diag && diag->text[0] ? diag->text : ngd_status_text(status));
}

void ngd_program_capture_refused(struct ngd_program *prog, ngd_status_t status, const struct ngd_diag *diag)
{
    ngd_program_note(prog, refusal(status), NULL, 0, "%s: capture: %s", ngd_status_name(status),
                     diag && diag->text[0] ? diag->text : ngd_status_text(status));
}

uint64_t ngd_program_owner(const struct ngd_program *prog)
{
    return prog->owner;
}

uint64_t ngd_program_number(const struct ngd_program *prog)
{
    return prog->number;
}
