/* SPDX-License-Identifier: Apache-2.0 */
/* Walks the fields twice: once to count the elements of the arrays, once to fill them. */
#include "daemon/handlers/replay_read.h"
#include "daemon/handlers/replay_types.h"
#include "daemon/rpc/wire_check.h"
#include "daemon/wire.h"

#include <string.h>

enum {
    Q_GRAPH = 1,
    Q_SYMBOLS = 2,
    Q_INPUTS = 3,
    Q_HOSTS = 4,
    Q_OUTPUTS = 5,
    Q_EAGER = 6,
    Q_TAG = 7,
    Q_GENERATION = 8,
    Q_TYPES = 9,
    Q_PRIORITY = 10,
    Q_STREAM = 11,
    Q_WAIT_EVENT = 12,
    Q_RECORD_EVENT = 13,
    Q_TIMING = 15,
    Q_SHARED_INPUTS = 16,
    Q_SHARED_OUTPUTS = 17,
    Q_TRACE_PARENT = 18
};
/* Of SharedRange. */
enum { S_INDEX = 1, S_BUFFER = 2, S_OFFSET = 3, S_BYTES = 4 };

#define VALUES_BYTES (10u * NGD_WIRE_MOST_HOST_VALUE_VALUES) /* bytes of all host values of a request */
#define TYPE_BYTES   1024

struct counts {
    uint32_t symbols, inputs, hosts, outputs, values, types, shared_in, shared_out;
};

/* Returns the repeated field that has too many elements; NULL: none. */
static const char *crowded_field(const struct counts *c)
{
    if (c->shared_in > NGD_WIRE_MOST_REPLAY_SHARED_INPUTS)
        return "shared_inputs";
    if (c->shared_out > NGD_WIRE_MOST_REPLAY_SHARED_OUTPUTS)
        return "shared_outputs";
    return c->symbols > NGD_WIRE_MOST_REPLAY_SYMBOLS     ? "symbols"
           : c->inputs > NGD_WIRE_MOST_REPLAY_INPUTS     ? "inputs"
           : c->hosts > NGD_WIRE_MOST_REPLAY_HOSTS       ? "hosts"
           : c->values > VALUES_BYTES                    ? "hosts' values"
           : c->outputs > NGD_WIRE_MOST_REPLAY_OUTPUTS   ? "outputs"
           : c->types > NGD_WIRE_MOST_REPLAY_INPUT_TYPES ? "input_types"
                                                         : NULL;
}

/* Counts the elements of the arrays, and stops at the first field that has more than any graph takes. */
static bool count_fields(const uint8_t *data, size_t n, struct counts *c, const char **many_p)
{
    struct ngd_wire_reader r;
    struct ngd_wire_field f;
    uint32_t left = NGD_WIRE_MAX_FIELDS;

    ngd_wire_reader_init(&r, data, n);
    while (!*many_p && ngd_wire_next(&r, &f)) {
        bool packed = f.type == NGD_WIRE_VARINT || f.type == NGD_WIRE_BYTES;

        if (left-- == 0)
            *many_p = "fields";
        if ((f.number == Q_SYMBOLS || f.number == Q_OUTPUTS) && !packed)
            return false;
        if ((f.number == Q_INPUTS || f.number == Q_HOSTS || f.number == Q_TYPES || f.number == Q_SHARED_INPUTS ||
             f.number == Q_SHARED_OUTPUTS) &&
            f.type != NGD_WIRE_BYTES)
            return false;
        c->shared_in += f.number == Q_SHARED_INPUTS;
        c->shared_out += f.number == Q_SHARED_OUTPUTS;
        if (f.number == Q_INPUTS)
            c->inputs++;
        else if (f.number == Q_SYMBOLS)
            c->symbols += ngd_wire_count(&f, true, NGD_WIRE_MOST_REPLAY_SYMBOLS);
        else if (f.number == Q_OUTPUTS)
            c->outputs += ngd_wire_count(&f, true, NGD_WIRE_MOST_REPLAY_OUTPUTS);
        else if (f.number == Q_TYPES)
            c->types += f.n > TYPE_BYTES ? NGD_WIRE_MOST_REPLAY_INPUT_TYPES + 1 : 1;
        if (f.number == Q_HOSTS) {
            c->hosts++;
            c->values += f.n > VALUES_BYTES ? VALUES_BYTES + 1 : (uint32_t)f.n; /* a varint has at least one byte */
        }
        *many_p = *many_p ? *many_p : crowded_field(c);
    }
    return !r.bad;
}

/* Appends the varints of a field, packed or single, to `to`. */
static bool each_varint(const struct ngd_wire_field *f, int64_t *to, uint32_t *n)
{
    struct ngd_wire_reader r;
    uint64_t v;

    if (f->type == NGD_WIRE_VARINT) {
        to[(*n)++] = (int64_t)f->value;
        return true;
    }
    ngd_wire_reader_init(&r, f->data, f->n);
    while (ngd_wire_varint(&r, &v))
        to[(*n)++] = (int64_t)v;
    return !r.bad;
}

static bool read_host(const struct ngd_wire_field *f, int64_t **values, struct ngd_host_value *host)
{
    struct ngd_wire_reader r;
    struct ngd_wire_field v;

    host->values = *values;
    host->n = 0;
    ngd_wire_reader_init(&r, f->data, f->n);
    while (ngd_wire_next(&r, &v))
        if (v.number == 1 &&
            !((v.type == NGD_WIRE_VARINT || v.type == NGD_WIRE_BYTES) && each_varint(&v, *values, &host->n)))
            return false;
    *values += host->n;
    return !r.bad;
}

static bool read_shared(const struct ngd_wire_field *f, struct ngd_shared_range *range)
{
    struct ngd_wire_reader r;
    struct ngd_wire_field v;
    uint64_t index = 0;

    ngd_wire_reader_init(&r, f->data, f->n);
    while (ngd_wire_next(&r, &v)) {
        if (v.type != NGD_WIRE_VARINT)
            continue;
        if (v.number == S_INDEX)
            index = v.value;
        else if (v.number == S_BUFFER)
            range->buffer = v.value;
        else if (v.number == S_OFFSET)
            range->offset = v.value;
        else if (v.number == S_BYTES)
            range->bytes = v.value;
    }
    range->index = index < UINT32_MAX ? (uint32_t)index : UINT32_MAX;
    return !r.bad;
}

static bool read_fields(const uint8_t *data, size_t n, struct ngd_replay_message *m, int64_t *values, int64_t *outputs)
{
    struct ngd_wire_reader r;
    struct ngd_wire_field f;
    bool ok = true;

    ngd_wire_reader_init(&r, data, n);
    while (ok && ngd_wire_next(&r, &f)) {
        if (f.number == Q_SYMBOLS)
            ok = each_varint(&f, m->symbols, &m->n_symbols);
        else if (f.number == Q_OUTPUTS)
            ok = each_varint(&f, outputs, &m->n_outputs);
        else if (f.number == Q_INPUTS)
            m->inputs[m->n_inputs++] = (struct ngd_span){f.data, f.n};
        else if (f.number == Q_HOSTS)
            ok = read_host(&f, &values, &m->hosts[m->n_hosts++]);
        else if (f.type == NGD_WIRE_VARINT && f.number == Q_GRAPH)
            m->graph = f.value;
        else if (f.type == NGD_WIRE_VARINT && f.number == Q_EAGER)
            m->eager = f.value != 0;
        else if (f.type == NGD_WIRE_VARINT && f.number == Q_TAG)
            m->tag = f.value;
        else if (f.type == NGD_WIRE_VARINT && f.number == Q_GENERATION)
            m->generation = f.value;
        else if (f.number == Q_SHARED_INPUTS)
            ok = read_shared(&f, &m->shared_inputs[m->n_shared_inputs++]);
        else if (f.number == Q_SHARED_OUTPUTS)
            ok = read_shared(&f, &m->shared_outputs[m->n_shared_outputs++]);
        else if (f.number == Q_TYPES)
            ok = ngd_replay_read_type(f.data, f.n, &m->types[m->n_types++]);
        else if (f.type == NGD_WIRE_VARINT && f.number == Q_PRIORITY)
            m->priority = f.value;
        else if (f.type == NGD_WIRE_VARINT && f.number == Q_TIMING)
            m->timing = f.value != 0;
        else if (f.type == NGD_WIRE_VARINT && f.number == Q_STREAM)
            m->stream = f.value;
        else if (f.type == NGD_WIRE_BYTES && f.number == Q_WAIT_EVENT)
            m->wait_event = (struct ngd_session_event_name){(const char *)f.data, f.n};
        else if (f.type == NGD_WIRE_BYTES && f.number == Q_TRACE_PARENT)
            m->trace_parent = (struct ngd_span){f.data, f.n};
        else if (f.type == NGD_WIRE_BYTES && f.number == Q_RECORD_EVENT)
            m->record_event = (struct ngd_session_event_name){(const char *)f.data, f.n};
    }
    for (uint32_t i = 0; ok && i < m->n_outputs; i++)
        m->outputs[i] = outputs[i] < 0 || outputs[i] > UINT32_MAX ? UINT32_MAX : (uint32_t)outputs[i];
    return ok && !r.bad;
}

ngd_status_t ngd_replay_read(struct ngd_arena *arena, const uint8_t *data, size_t n, struct ngd_replay_message *m,
                             struct ngd_diag *diag)
{
    struct counts c = {0};
    int64_t *numbers;
    const char *many = NULL;

    memset(m, 0, sizeof(*m));
    if (!count_fields(data, n, &c, &many))
        return ngd_diag_set(diag, NGD_ERR_MALFORMED_MESSAGE, "the message is not a valid ReplayRequest");
    if (many)
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT, "ReplayRequest has more %s than any graph takes", many);
    numbers = ngd_arena_alloc(arena, (c.symbols + c.values + c.outputs + 1u) * sizeof(*numbers));
    m->inputs = ngd_arena_alloc(arena, (c.inputs + 1u) * sizeof(*m->inputs));
    m->hosts = ngd_arena_alloc(arena, (c.hosts + 1u) * sizeof(*m->hosts));
    m->outputs = ngd_arena_alloc(arena, (c.outputs + 1u) * sizeof(*m->outputs));
    if (!numbers || !m->inputs || !m->hosts || !m->outputs)
        return NGD_ERR_NO_MEMORY;
    if (c.types && !(m->types = ngd_arena_calloc(arena, c.types, sizeof(*m->types))))
        return NGD_ERR_NO_MEMORY;
    if (c.shared_in + c.shared_out > 0) {
        m->shared_inputs = ngd_arena_calloc(arena, c.shared_in + c.shared_out, sizeof(*m->shared_inputs));
        if (!m->shared_inputs)
            return NGD_ERR_NO_MEMORY;
        m->shared_outputs = m->shared_inputs + c.shared_in;
    }
    m->symbols = numbers;
    if (!read_fields(data, n, m, numbers + c.symbols, numbers + c.symbols + c.values))
        return ngd_diag_set(diag, NGD_ERR_MALFORMED_MESSAGE, "the message is not a valid ReplayRequest");
    return NGD_OK;
}
