/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_LOAD_CHANGE_H
#define NGD_DAEMON_LOAD_CHANGE_H

/*
 * What is done with the elements of a tensor while it is loaded (TensorChange of the protocol): quantised weights and
 * their zero points become operands of npu.weight_quant_batchmatmul, whichever way a file packs them. A change makes
 * another matrix of one, with a shape and a dtype that are known before anything is read.
 * Pure functions. Memory: changes are constants.
 */
#include "daemon/safetensors.h"
#include <stdbool.h>

#define NGD_CHANGE_ROWS                                                                          \
    8 /* of a tensor that are moved together: ngd_change_move takes a multiple, or the last ones \
       */

enum ngd_change_result {
    NGD_CHANGE_INT4,   /* i32, eight numbers in two's complement along a row */
    NGD_CHANGE_I8,     /* numbers in two's complement */
    NGD_CHANGE_OFFSET, /* f16: zero points, as what is added to a number of the weight */
    NGD_CHANGE_SAME,   /* floats, as they are */
};
struct ngd_change {
    enum ngd_change_result to;
    uint8_t bits; /* of a number; 0: elements are floats */
    enum {
        NGD_PACKED_COLUMNS, /* an i32 has neighbours in a row, the first in the low bits */
        NGD_PACKED_ROWS,    /* an i32 has neighbours in a column, likewise */
        NGD_PACKED_AWQ,     /* as NGD_PACKED_COLUMNS, in the order 0, 2, 4, 6, 1, 3, 5, 7 */
        NGD_NOT_PACKED,     /* a number is an i8 in two's complement */
    } packed;
    bool transposed; /* columns become rows */
    bool less_one;   /* zero points are stored less 1 in each number */
};

/* Returns the change with a value of TensorChange; NULL: there is none. */
const struct ngd_change *ngd_change_find(int value);
/* Returns the value of a change; 0: NULL. */
int ngd_change_value(const struct ngd_change *change);
/* Says whether the bytes stay where they are: then ngd_change_flip is all that is done. */
bool ngd_change_in_place(const struct ngd_change *change);
/* Says whether shape and dtype stay what they are: such a tensor may have more than two dimensions. */
bool ngd_change_keeps_shape(const struct ngd_change *change);
/* Returns what each byte of a weight is XORed with. */
uint8_t ngd_change_flip(const struct ngd_change *change);

/* Gives the first two sizes and the dtype of what a tensor becomes. FILE_CORRUPT and FILE_UNSUPPORTED name what does
 * not fit. */
ngd_status_t ngd_change_check(const struct ngd_change *change, const struct ngd_safetensor *t, int64_t shape_p[2],
                              ngd_dtype_t *dtype_p, struct ngd_diag *diag);

/* A rectangle of a tensor's elements, or of bytes of the result. */
struct ngd_change_part {
    uint64_t row, rows, column, columns;
};
/* Gives the elements of the tensor that a slice [begin, end) of dimension dim of the result is made of. False: the
 * slice cuts an element. */
bool ngd_change_source(const struct ngd_change *change, const struct ngd_safetensor *t, uint32_t dim, int64_t begin,
                       int64_t end, struct ngd_change_part *part_p);
/* Gives where the elements of `part` are in the result: rows and bytes. */
struct ngd_change_part ngd_change_target(const struct ngd_change *change, const struct ngd_safetensor *t,
                                         const struct ngd_change_part *part);
/* Makes the target of `part` of its elements, whose rows lie side by side. to: the target's first byte; its rows are
 * `stride` bytes apart. */
void ngd_change_move(const struct ngd_change *change, const struct ngd_safetensor *t,
                     const struct ngd_change_part *part, const uint8_t *from, uint8_t *to, uint64_t stride);

#endif
