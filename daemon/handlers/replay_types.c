/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/handlers/replay_types.h"
#include "daemon/wire.h"

enum { T_DTYPE = 1, T_DIMS = 2 };

static void add_type_dim(struct ngd_input_type *type, uint64_t v)
{
    if (type->rank < NGD_MAX_RANK)
        type->dims[type->rank++] = (int64_t)v;
    else
        type->rank = NGD_MAX_RANK + 1;
}

static bool read_dims(const struct ngd_wire_field *f, struct ngd_input_type *type)
{
    struct ngd_wire_reader r;
    uint64_t v;

    if (f->type == NGD_WIRE_VARINT) {
        add_type_dim(type, f->value);
        return true;
    }
    if (f->type != NGD_WIRE_BYTES)
        return false;
    ngd_wire_reader_init(&r, f->data, f->n);
    while (type->rank <= NGD_MAX_RANK && ngd_wire_varint(&r, &v))
        add_type_dim(type, v);
    return !r.bad;
}

bool ngd_replay_read_type(const uint8_t *data, size_t n, struct ngd_input_type *type_p)
{
    struct ngd_input_type type = {0};
    struct ngd_wire_reader r;
    struct ngd_wire_field f;
    bool ok = true, known = false;

    ngd_wire_reader_init(&r, data, n);
    while (ok && ngd_wire_next(&r, &f)) {
        if (f.number == T_DTYPE && f.type == NGD_WIRE_BYTES)
            known = ngd_dtype_parse((const char *)f.data, f.n, &type.dtype);
        else if (f.number == T_DIMS)
            ok = read_dims(&f, &type);
    }
    if (!known)
        type.dtype = NGD_DTYPE_MAX;
    *type_p = type;
    return ok && !r.bad;
}
