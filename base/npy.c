/* SPDX-License-Identifier: Apache-2.0 */
#include "base/npy.h"
#include "base/mem.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MAGIC "\x93NUMPY\x01\x00"
#define ALIGN 64 /* bytes: alignment of the first element, as numpy writes it */

static const char *descr(ngd_dtype_t dtype)
{
    switch (dtype) {
    case NGD_F32:
    case NGD_BF16:
    case NGD_F8_E4M3FN:
        return "<f4";
    case NGD_F16:
        return "<f2";
    case NGD_I8:
        return "|i1";
    case NGD_U8:
        return "|u1";
    case NGD_I32:
        return "<i4";
    case NGD_I64:
        return "<i8";
    case NGD_BOOL:
        return "|b1";
    default:
        return NULL;
    }
}

static ngd_status_t count_npy(const int64_t *dims, uint32_t rank, uint64_t *n_p)
{
    uint64_t n = 1;

    if (rank > NGD_NPY_MAX_RANK)
        return NGD_ERR_INVALID_ARGUMENT;
    for (uint32_t i = 0; i < rank; i++)
        if (dims[i] < 0 || __builtin_mul_overflow(n, (uint64_t)dims[i], &n))
            return NGD_ERR_OVERFLOW;
    *n_p = n;
    return n > (UINT64_C(1) << 40) ? NGD_ERR_OVERFLOW : NGD_OK;
}

/* Makes the header and pads it with spaces, so that the elements after the magic, the length and the header are
 * aligned. */
static size_t make_header(const char *type, const int64_t *dims, uint32_t rank, char *to, size_t room)
{
    int n = snprintf(to, room, "{'descr': '%s', 'fortran_order': False, 'shape': (", type);
    size_t len = (size_t)n;

    for (uint32_t i = 0; i < rank; i++)
        len += (size_t)snprintf(to + len, room - len, "%" PRId64 "%s", dims[i],
                                rank == 1      ? ","
                                : i + 1 < rank ? ", "
                                               : "");
    len += (size_t)snprintf(to + len, room - len, "), }");
    while ((sizeof(MAGIC) - 1 + 2 + len + 1) % ALIGN)
        to[len++] = ' ';
    to[len++] = '\n';
    return len;
}

static bool is_widened(ngd_dtype_t dtype)
{
    return dtype == NGD_BF16 || dtype == NGD_F8_E4M3FN;
}

static void put_elements(ngd_dtype_t dtype, const void *data, uint64_t n, uint8_t *to)
{
    if (!is_widened(dtype)) {
        memcpy(to, data, n * ngd_dtype_bytes(dtype));
        return;
    }
    for (uint64_t i = 0; i < n; i++) {
        uint16_t half;
        float wide;

        if (dtype == NGD_BF16) {
            memcpy(&half, (const uint8_t *)data + 2 * i, sizeof(half));
            wide = ngd_bf16_to_f32(half);
        } else {
            wide = ngd_f8_to_f32(((const uint8_t *)data)[i]);
        }
        memcpy(to + 4 * i, &wide, sizeof(wide));
    }
}

ngd_status_t ngd_npy_make(ngd_dtype_t dtype, const int64_t *dims, uint32_t rank, const void *data, void **file_p,
                          size_t *n_p)
{
    const char *type = descr(dtype);
    char header[512];
    uint64_t n, bytes;
    uint8_t *file;
    size_t len;
    ngd_status_t status;

    if (!type)
        return NGD_ERR_INVALID_ARGUMENT;
    status = count_npy(dims, rank, &n);
    if (status)
        return status;
    len = make_header(type, dims, rank, header, sizeof(header));
    bytes = n * (is_widened(dtype) ? 4 : ngd_dtype_bytes(dtype));
    file = ngd_malloc(sizeof(MAGIC) - 1 + 2 + len + bytes);
    if (!file)
        return NGD_ERR_NO_MEMORY;
    memcpy(file, MAGIC, sizeof(MAGIC) - 1);
    file[8] = (uint8_t)(len & 0xff);
    file[9] = (uint8_t)(len >> 8);
    memcpy(file + 10, header, len);
    if (n)
        put_elements(dtype, data, n, file + 10 + len);
    *file_p = file;
    *n_p = 10 + len + bytes;
    return NGD_OK;
}
