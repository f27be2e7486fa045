/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Formats: GPTQ's qweight and qzeros, AWQ's (version gemm), and weight_packed and weight_zero_point of
 * compressed-tensors. All have unsigned numbers, or numbers plus the middle of their range, which is the same thing.
 * Weights become n - middle; zero points z become middle - z.
 */
#include "daemon/load_change.h"

#include "base/le.h"
#include "proto/npugraph.pb-c.h"
#include "proto/word.h"

#include <inttypes.h>
#include <string.h>

/* Numbers in a row of a result that is put together: so a few rows fit the loader's memory. */
#define LONGEST_ROW ((int64_t)1 << 18)

/* ---- the table ---- */

#define CHANGE(NAME, ...) [NGD_PB(TENSOR_CHANGE, NAME)] = {__VA_ARGS__}

static const struct ngd_change changes[] = {
    CHANGE(OFFSET_INT4, NGD_CHANGE_INT4, 4, NGD_PACKED_COLUMNS, false, false),
    CHANGE(OFFSET_INT8, NGD_CHANGE_I8, 8, NGD_PACKED_COLUMNS, false, false),
    CHANGE(GPTQ_INT4, NGD_CHANGE_INT4, 4, NGD_PACKED_ROWS, true, false),
    CHANGE(GPTQ_INT8, NGD_CHANGE_I8, 8, NGD_PACKED_ROWS, true, false),
    CHANGE(AWQ_INT4, NGD_CHANGE_INT4, 4, NGD_PACKED_AWQ, true, false),
    CHANGE(OFFSET_INT4_ZEROS, NGD_CHANGE_OFFSET, 4, NGD_PACKED_ROWS, false, false),
    CHANGE(OFFSET_INT8_ZEROS, NGD_CHANGE_OFFSET, 8, NGD_PACKED_ROWS, false, false),
    CHANGE(I8_ZEROS, NGD_CHANGE_OFFSET, 8, NGD_NOT_PACKED, false, false),
    CHANGE(GPTQ_INT4_ZEROS, NGD_CHANGE_OFFSET, 4, NGD_PACKED_COLUMNS, true, true),
    CHANGE(GPTQ_INT8_ZEROS, NGD_CHANGE_OFFSET, 8, NGD_PACKED_COLUMNS, true, true),
    CHANGE(GPTQ_V2_INT4_ZEROS, NGD_CHANGE_OFFSET, 4, NGD_PACKED_COLUMNS, true, false),
    CHANGE(GPTQ_V2_INT8_ZEROS, NGD_CHANGE_OFFSET, 8, NGD_PACKED_COLUMNS, true, false),
    CHANGE(AWQ_INT4_ZEROS, NGD_CHANGE_OFFSET, 4, NGD_PACKED_AWQ, true, false),
    CHANGE(TRANSPOSE, NGD_CHANGE_SAME, 0, NGD_NOT_PACKED, true, false),
};

const struct ngd_change *ngd_change_find(int value)
{
    const size_t n = sizeof(changes) / sizeof(changes[0]);

    return value > 0 && (size_t)value < n ? &changes[value] : NULL;
}

int ngd_change_value(const struct ngd_change *change)
{
    return change ? (int)(change - changes) : 0;
}

bool ngd_change_in_place(const struct ngd_change *change)
{
    return !change->transposed && change->to != NGD_CHANGE_OFFSET;
}

bool ngd_change_keeps_shape(const struct ngd_change *change)
{
    return ngd_change_in_place(change) && change->to == NGD_CHANGE_INT4;
}

uint8_t ngd_change_flip(const struct ngd_change *change)
{
    return change->bits == 4 ? 0x88 : change->bits == 8 ? 0x80 : 0;
}

/* ---- shapes ---- */

static int64_t numbers_of_element(const struct ngd_change *change)
{
    return change->packed == NGD_NOT_PACKED ? 1 : 32 / change->bits;
}

/* Gives how many numbers an element has along its column and along its row. */
static void numbers_along(const struct ngd_change *change, int64_t *column_p, int64_t *row_p)
{
    *column_p = change->packed == NGD_PACKED_ROWS ? numbers_of_element(change) : 1;
    *row_p = change->packed == NGD_PACKED_ROWS ? 1 : numbers_of_element(change);
}

static uint64_t bytes_of_numbers(const struct ngd_change *change, const struct ngd_safetensor *t, uint64_t n)
{
    switch (change->to) {
    case NGD_CHANGE_INT4:
        return n / 2;
    case NGD_CHANGE_I8:
        return n;
    case NGD_CHANGE_OFFSET:
        return 2 * n;
    default:
        return n * ngd_dtype_bytes(t->dtype);
    }
}

static ngd_status_t check_changed_elements(const struct ngd_change *change, const struct ngd_safetensor *t,
                                           struct ngd_diag *diag)
{
    const bool fits = change->bits == 0 ? t->dtype == NGD_F32 || t->dtype == NGD_F16 || t->dtype == NGD_BF16
                      : change->packed == NGD_NOT_PACKED ? t->dtype == NGD_I8
                                                         : t->dtype == NGD_I32;
    const char *wants = change->bits == 0                  ? "f32, f16 or bf16"
                        : change->packed == NGD_NOT_PACKED ? "i8"
                        : change->bits == 4                ? "i32, with eight packed int4 numbers each"
                                                           : "i32, with four packed int8 numbers each";

    if (!fits)
        return ngd_diag_set(diag, NGD_ERR_FILE_CORRUPT, "tensor %.200s is %s; with this change it must be %s", t->name,
                            ngd_dtype_name(t->dtype), wants);
    if (t->plane && !ngd_change_in_place(change))
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT,
                            "tensor %.200s is quantised in blocks of a GGUF file, and cannot be changed so", t->name);
    if (t->rank != 2 && !(ngd_change_keeps_shape(change) && t->rank > 2))
        return ngd_diag_set(diag, NGD_ERR_FILE_CORRUPT,
                            "tensor %.200s has %" PRIu32 " dimensions; with this change it must have 2", t->name,
                            t->rank);
    return NGD_OK;
}

ngd_status_t ngd_change_check(const struct ngd_change *change, const struct ngd_safetensor *t, int64_t shape_p[2],
                              ngd_dtype_t *dtype_p, struct ngd_diag *diag)
{
    static const ngd_dtype_t dtypes[] = {NGD_I32, NGD_I8, NGD_F16};
    ngd_status_t status = check_changed_elements(change, t, diag);
    int64_t column, row, rows, columns, all;

    if (status != NGD_OK)
        return status;
    if (t->rank != 2) {
        memcpy(shape_p, t->shape, 2 * sizeof(*shape_p));
        *dtype_p = t->dtype;
        return NGD_OK;
    }
    if (t->shape[0] > INT64_MAX / 8 || t->shape[1] > INT64_MAX / 8)
        return ngd_diag_set(diag, NGD_ERR_FILE_CORRUPT, "tensor %.200s is too large to be changed", t->name);
    numbers_along(change, &column, &row);
    rows = t->shape[0] * column;
    columns = t->shape[1] * row;
    if (!ngd_change_in_place(change) && (change->transposed ? rows : columns) > LONGEST_ROW)
        return ngd_diag_set(diag, NGD_ERR_FILE_UNSUPPORTED,
                            "tensor %.200s becomes rows of %" PRId64 " numbers; they may have %" PRId64, t->name,
                            change->transposed ? rows : columns, LONGEST_ROW);
    if (change->to == NGD_CHANGE_INT4 && (change->transposed ? rows : columns) % 8 != 0)
        return ngd_diag_set(diag, NGD_ERR_FILE_CORRUPT,
                            "tensor %.200s has %" PRId64 " rows of numbers; with this change they must be a multiple "
                            "of 8",
                            t->name, rows);
    shape_p[0] = change->transposed ? columns : rows;
    shape_p[1] = (change->transposed ? rows : columns) / (change->to == NGD_CHANGE_INT4 ? 8 : 1);
    /* A file may be larger than any memory, and numbers become several times as large as they were. */
    if (__builtin_mul_overflow(shape_p[0], shape_p[1], &all) || all > INT64_MAX / 8)
        return ngd_diag_set(diag, NGD_ERR_FILE_CORRUPT, "tensor %.200s is too large to be changed", t->name);
    *dtype_p = change->to == NGD_CHANGE_SAME ? t->dtype : dtypes[change->to];
    return NGD_OK;
}

bool ngd_change_source(const struct ngd_change *change, const struct ngd_safetensor *t, uint32_t dim, int64_t begin,
                       int64_t end, struct ngd_change_part *part_p)
{
    const bool along_rows = (dim == 0) != change->transposed; /* the slice has some of the tensor's rows */
    const int64_t scale = change->to == NGD_CHANGE_INT4 && dim == 1 ? 8 : 1;
    int64_t column, row, each;

    numbers_along(change, &column, &row);
    each = along_rows ? column : row;
    *part_p = (struct ngd_change_part){0, (uint64_t)t->shape[0], 0, (uint64_t)t->shape[1]};
    if (begin * scale % each != 0 || end * scale % each != 0)
        return false;
    begin = begin * scale / each;
    end = end * scale / each;
    if (along_rows) {
        part_p->row = (uint64_t)begin;
        part_p->rows = (uint64_t)(end - begin);
    } else {
        part_p->column = (uint64_t)begin;
        part_p->columns = (uint64_t)(end - begin);
    }
    return true;
}

struct ngd_change_part ngd_change_target(const struct ngd_change *change, const struct ngd_safetensor *t,
                                         const struct ngd_change_part *part)
{
    int64_t column, row;
    struct ngd_change_part n; /* in numbers */

    numbers_along(change, &column, &row);
    n = (struct ngd_change_part){part->row * (uint64_t)column, part->rows * (uint64_t)column,
                                 part->column * (uint64_t)row, part->columns * (uint64_t)row};
    if (change->transposed)
        n = (struct ngd_change_part){n.column, n.columns, n.row, n.rows};
    n.column = bytes_of_numbers(change, t, n.column);
    n.columns = bytes_of_numbers(change, t, n.columns);
    return n;
}

/* ---- moves ---- */

/* Transposes elements of `size` bytes, and flips bits of them. */
static void transpose_elements(const struct ngd_change_part *part, const uint8_t *from, const size_t size, uint8_t flip,
                               uint8_t *to, uint64_t stride)
{
    const uint32_t mask = 0x01010101u * flip;

    for (uint64_t first = 0; first < part->columns; first += 16) { /* a line of the tensor at a time */
        const uint64_t end = part->columns - first < 16 ? part->columns : first + 16;

        for (uint64_t r = 0; r < part->rows; r++) {
            const uint8_t *row = from + r * part->columns * size;

            for (uint64_t c = first; c < end; c++) {
                uint32_t v = 0;

                memcpy(&v, row + c * size, size);
                v ^= mask;
                memcpy(to + c * stride + r * size, &v, size);
            }
        }
    }
}

/* Swaps the bits `mask` of a with those `shift` above of b: a step of a transposition. */
static inline void swap_bits(uint32_t *a, uint32_t *b, int shift, uint32_t mask)
{
    const uint32_t d = (*a >> shift ^ *b) & mask;

    *b ^= d;
    *a ^= d << shift;
}

/* Transposes eight words of eight nibbles. */
static inline void transpose_nibbles(uint32_t w[8])
{
    for (int i = 0; i < 4; i++)
        swap_bits(&w[i], &w[i + 4], 16, 0xffff);
    for (int i = 0; i < 8; i += i % 4 == 1 ? 3 : 1)
        swap_bits(&w[i], &w[i + 2], 8, 0x00ff00ff);
    for (int i = 0; i < 8; i += 2)
        swap_bits(&w[i], &w[i + 1], 4, 0x0f0f0f0f);
}

/* Transposes AWQ's words: column order[i] is in the bits 4 * i and up. */
static void transpose_awq(const struct ngd_change_part *part, const uint8_t *from, uint8_t *to, uint64_t stride)
{
    static const uint8_t order[] = {0, 2, 4, 6, 1, 3, 5, 7};

    for (uint64_t r = 0; r + 8 <= part->rows; r += 8) {
        for (uint64_t c = 0; c < part->columns; c++) {
            uint32_t w[8];

            for (uint64_t i = 0; i < 8; i++)
                w[i] = (uint32_t)ngd_le_get(from + ((r + i) * part->columns + c) * 4, 4);
            transpose_nibbles(w);
            for (int i = 0; i < 8; i++) {
                const uint32_t v = w[i] ^ 0x88888888;
                uint8_t *at = to + (8 * c + order[i]) * stride + r / 2;

                for (int b = 0; b < 4; b++)
                    at[b] = (uint8_t)(v >> 8 * b);
            }
        }
    }
}

/* Returns the f16 of an integer from -256 to 256. */
static uint16_t half_of_integer(int v)
{
    const uint16_t sign = v < 0 ? 0x8000 : 0;
    int n = v < 0 ? -v : v, e = 0;

    if (n == 0)
        return 0;
    while (n >> (e + 1))
        e++;
    return (uint16_t)(sign | (e + 15) << 10 | (n << 10 >> e & 0x3ff));
}

/* Puts the zero points of an element: the i-th is i rows or columns behind the first. */
static void put_offsets(const struct ngd_change *change, uint32_t element, uint8_t *to, uint64_t step)
{
    static const uint8_t order[] = {0, 2, 4, 6, 1, 3, 5, 7};
    const int numbers = (int)numbers_of_element(change), middle = 1 << (change->bits - 1);

    /* As one sum, with its carries: a zero point of 0 was stored by a subtraction that borrowed. */
    element += change->less_one ? (change->bits == 4 ? 0x11111111 : 0x01010101) : 0;
    element ^= change->packed == NGD_NOT_PACKED ? 0x80 : 0;
    for (int i = 0; i < numbers; i++) {
        const int z = (int)(element >> change->bits * i & ((1u << change->bits) - 1));
        const uint16_t half = half_of_integer(middle - z);
        uint8_t *at = to + (change->packed == NGD_PACKED_AWQ ? order[i] : i) * step;

        at[0] = (uint8_t)half;
        at[1] = (uint8_t)(half >> 8);
    }
}

static void move_offsets(const struct ngd_change *change, const struct ngd_change_part *part, const uint8_t *from,
                         const int size, uint8_t *to, uint64_t stride)
{
    const uint64_t to_row = change->transposed ? 2 : stride, to_column = change->transposed ? stride : 2;
    int64_t column, row;

    numbers_along(change, &column, &row);
    for (uint64_t r = 0; r < part->rows; r++)
        for (uint64_t c = 0; c < part->columns; c++, from += size)
            put_offsets(change, (uint32_t)ngd_le_get(from, size),
                        to + r * (uint64_t)column * to_row + c * (uint64_t)row * to_column,
                        column > 1 ? to_row : to_column);
}

void ngd_change_move(const struct ngd_change *change, const struct ngd_safetensor *t,
                     const struct ngd_change_part *part, const uint8_t *from, uint8_t *to, uint64_t stride)
{
    if (change->to == NGD_CHANGE_OFFSET)
        move_offsets(change, part, from, (int)ngd_dtype_bytes(t->dtype), to, stride);
    else if (change->packed == NGD_PACKED_AWQ)
        transpose_awq(part, from, to, stride);
    else if (ngd_dtype_bytes(t->dtype) == 2)
        transpose_elements(part, from, 2, 0, to, stride);
    else
        transpose_elements(part, from, 4, ngd_change_flip(change), to, stride);
}
