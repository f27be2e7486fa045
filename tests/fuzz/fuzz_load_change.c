/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tensor, a change and a slice of the result. What does not fit has a sentence. What fits is made of elements of the
 * tensor alone, writes the slice alone, and gives the same bytes in parts as at once.
 */
#include "daemon/load_change.h"
#include "tests/fuzz/fuzz.h"

const uint32_t fuzz_runs = 30000;

#define SIDE_MAX 40 /* elements of a tensor that is moved */

struct input {
    const struct ngd_change *change;
    struct ngd_safetensor tensor;
    uint32_t dim;
    uint8_t begin, end;
};

static bool read_input(const uint8_t *data, size_t n, struct input *in)
{
    if (n < 10)
        return false;
    in->change = ngd_change_find(1 + data[0] % 14);
    in->tensor =
        (struct ngd_safetensor){.name = (char *)(uintptr_t) "x", .dtype = (ngd_dtype_t)(data[1] % (NGD_BOOL + 1))};
    in->tensor.rank = data[2] % 8 ? 2 : data[2] % 5;
    in->tensor.shape[0] = data[3] > 250 ? INT64_MAX >> data[9] % 40 : data[3] % SIDE_MAX;
    in->tensor.shape[1] = data[4] > 250 ? INT64_MAX >> data[9] % 40 : data[4] % SIDE_MAX;
    in->dim = data[5] % 2;
    in->begin = data[6];
    in->end = data[7];
    return true;
}

/* Copies the elements of a part side by side, into memory of exactly their size. */
static uint8_t *take_part(const struct input *in, const uint8_t *data, size_t n, const struct ngd_change_part *part)
{
    const uint64_t size = ngd_dtype_bytes(in->tensor.dtype);
    uint8_t *from = ngd_malloc(part->rows * part->columns * size + 1), *to = from;

    fuzz_demand(from != NULL, "out of memory");
    for (uint64_t r = 0; r < part->rows; r++)
        for (uint64_t b = part->column * size; b < (part->column + part->columns) * size; b++)
            *to++ = data[((part->row + r) * (uint64_t)in->tensor.shape[1] * size + b) % n];
    return from;
}

/* Moves the slice `rows` rows of the tensor at a time. */
static uint8_t *move_slice(const struct input *in, const uint8_t *data, size_t n, const struct ngd_change_part *whole,
                           uint64_t rows)
{
    const struct ngd_change_part target = ngd_change_target(in->change, &in->tensor, whole);
    uint8_t *to = ngd_malloc(target.rows * target.columns + 1);

    fuzz_demand(to != NULL, "out of memory");
    memset(to, 0, target.rows * target.columns + 1);
    for (uint64_t r = 0; r < whole->rows; r += rows) {
        const struct ngd_change_part part = {whole->row + r, whole->rows - r < rows ? whole->rows - r : rows,
                                             whole->column, whole->columns};
        const struct ngd_change_part at = ngd_change_target(in->change, &in->tensor, &part);
        uint8_t *from = take_part(in, data, n, &part);

        ngd_change_move(in->change, &in->tensor, &part, from,
                        to + (at.row - target.row) * target.columns + at.column - target.column, target.columns);
        ngd_free(from);
    }
    fuzz_demand(to[target.rows * target.columns] == 0, "bytes behind the slice are written");
    return to;
}

static void check_slice(const struct input *in, const int64_t shape[2], ngd_dtype_t dtype, const uint8_t *data,
                        size_t n)
{
    const int64_t begin = in->begin % (shape[in->dim] + 1), end = begin + in->end % (shape[in->dim] - begin + 1);
    struct ngd_change_part whole, target;
    uint8_t *once, *parts;

    if (!ngd_change_source(in->change, &in->tensor, in->dim, begin, end, &whole))
        return;
    fuzz_demand(whole.row + whole.rows <= (uint64_t)in->tensor.shape[0] &&
                    whole.column + whole.columns <= (uint64_t)in->tensor.shape[1],
                "a slice is made of elements that are not there");
    target = ngd_change_target(in->change, &in->tensor, &whole);
    fuzz_demand(target.rows * target.columns ==
                    (uint64_t)(end - begin) * (uint64_t)shape[!in->dim] * ngd_dtype_bytes(dtype),
                "a slice has other bytes than its shape says");
    once = move_slice(in, data, n, &whole, whole.rows + 1);
    parts = move_slice(in, data, n, &whole, NGD_CHANGE_ROWS);
    fuzz_demand(memcmp(once, parts, target.rows * target.columns) == 0, "parts give other bytes than all at once");
    ngd_free(once);
    ngd_free(parts);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct ngd_diag diag = {0};
    int64_t shape[2];
    ngd_dtype_t dtype;
    struct input in;

    if (!read_input(data, n, &in))
        return 0;
    if (ngd_change_check(in.change, &in.tensor, shape, &dtype, &diag) != NGD_OK) {
        fuzz_demand(diag.text[0] != '\0', "a tensor is refused without a diagnosis");
        return 0;
    }
    fuzz_demand(shape[0] >= 0 && shape[1] >= 0, "a shape is negative");
    if (!ngd_change_in_place(in.change) && in.tensor.shape[0] < SIDE_MAX && in.tensor.shape[1] < SIDE_MAX)
        check_slice(&in, shape, dtype, data, n);
    return 0;
}

/* Each change of a tensor that it takes. */
bool fuzz_seed(uint32_t i, struct ngd_strbuf *out)
{
    const uint8_t seed[12] = {
        (uint8_t)i, i == 7 ? NGD_I8 : i == 13 ? NGD_F16 : NGD_I32, 1, 16, 5, 0, 0, 255, 0, 0, 0x5a, 0xc3};

    ngd_strbuf_append_n(out, (const char *)seed, sizeof(seed));
    return i < 14;
}
