/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_BASE_GGUF_H
#define NGD_BASE_GGUF_H

/*
 * The header of a GGUF file, versions 2 and 3, little endian: values of metadata by their keys, then a table of
 * tensors. Nothing of it is trusted: each length is checked against the file's size before anything is allocated for
 * it, and tensors may neither overlap nor lie outside. Definition: github.com/ggml-org/ggml, docs/gguf.md.
 *
 * Pure functions, but for ngd_gguf_read. Memory: the header owns the bytes that it was parsed from; values and keys
 * point into them, and are not terminated.
 */
#include "base/status.h"
#include <stdbool.h>
#include <stdint.h>

#define NGD_GGUF_MAX_HEADER  ((uint64_t)128 << 20)
#define NGD_GGUF_MAX_VALUES  65536
#define NGD_GGUF_MAX_TENSORS 65536
#define NGD_GGUF_MAX_RANK    4
#define NGD_GGUF_NAME_BYTES  64 /* of a tensor, with the terminating NUL */

enum ngd_gguf_value_type {
    NGD_GGUF_U8,
    NGD_GGUF_I8,
    NGD_GGUF_U16,
    NGD_GGUF_I16,
    NGD_GGUF_U32,
    NGD_GGUF_I32,
    NGD_GGUF_F32,
    NGD_GGUF_BOOL,
    NGD_GGUF_STRING,
    NGD_GGUF_ARRAY, /* not the type of a value here: see `array` */
    NGD_GGUF_U64,
    NGD_GGUF_I64,
    NGD_GGUF_F64,
    NGD_GGUF_N_VALUE_TYPES,
};

/* A value, or an array of them. */
struct ngd_gguf_value {
    const char *key;
    uint32_t key_bytes;
    enum ngd_gguf_value_type type; /* of an array: of its elements */
    bool array;
    uint64_t n;          /* elements; 1 without `array` */
    const uint8_t *data; /* the first element, as the file has it */
};

/* How the file has a tensor's elements. */
struct ngd_gguf_type {
    const char *name; /* "Q8_0" */
    uint32_t id;
    uint32_t elements; /* of a block; blocks lie along the last dimension */
    uint32_t bytes;    /* of a block */
};

struct ngd_gguf_tensor {
    char name[NGD_GGUF_NAME_BYTES];
    const struct ngd_gguf_type *type;
    uint32_t rank;
    int64_t shape[NGD_GGUF_MAX_RANK]; /* the last dimension is the one whose elements are side by side */
    uint64_t offset;                  /* in the file */
    uint64_t bytes;
};

struct ngd_gguf {
    uint8_t *bytes;                /* NULL: the caller of ngd_gguf_parse owns them */
    struct ngd_gguf_value *values; /* by key */
    size_t n_values;
    struct ngd_gguf_tensor *tensors; /* by name */
    size_t n_tensors;
};

/* Says whether a file that begins with these four bytes is a GGUF file. */
bool ngd_gguf_is(const uint8_t first[4]);
/*
 * Parses the first n bytes of a file of file_bytes bytes. FILE_TRUNCATED, FILE_CORRUPT, FILE_UNSUPPORTED: the sentence
 * names the field. If the header goes on behind the n bytes, the result is FILE_TRUNCATED, and *more_p is set.
 */
ngd_status_t ngd_gguf_parse(const uint8_t *bytes, uint64_t n, uint64_t file_bytes, struct ngd_gguf *gguf_p,
                            bool *more_p, struct ngd_diag *diag);
/* Reads the header of an open file: no more of the file than it has, NGD_GGUF_MAX_HEADER bytes at most. */
ngd_status_t ngd_gguf_read(int fd, uint64_t file_bytes, struct ngd_gguf *gguf_p, struct ngd_diag *diag);
void ngd_gguf_fini(struct ngd_gguf *gguf);

const struct ngd_gguf_tensor *ngd_gguf_tensor(const struct ngd_gguf *gguf, const char *name); /* NULL: none */
const struct ngd_gguf_value *ngd_gguf_value(const struct ngd_gguf *gguf, const char *key);    /* NULL: none */
/* The value, or the next element of an array, at *at_p, which moves behind it. False: it is of another type. An integer
 * is one of any width that fits; a number is an integer or a float. */
bool ngd_gguf_take_int(const struct ngd_gguf_value *value, const uint8_t **at_p, int64_t *v_p);
bool ngd_gguf_take_number(const struct ngd_gguf_value *value, const uint8_t **at_p, double *v_p);
bool ngd_gguf_take_string(const struct ngd_gguf_value *value, const uint8_t **at_p, const char **s_p, size_t *n_p);

#endif
