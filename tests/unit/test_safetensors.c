/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/safetensors.h"

#include "base/mem.h"
#include "tests/unit/unit.h"
#include <string.h>

#define HEADER                                                            \
    "{\"b\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[4,28]}," \
    "\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}"
#define FILE_BYTES (8 + sizeof(HEADER) - 1 + 28)

START_TEST(without_memory_a_header_is_not_called_corrupt)
{
    struct ngd_safetensors index;
    struct ngd_diag diag = {0};
    ngd_status_t status = NGD_ERR_NO_MEMORY;
    int64_t n = 0;

    for (; status != NGD_OK; n++) {
        ngd_mem_fail_after(n);
        status = ngd_safetensors_parse(HEADER, sizeof(HEADER) - 1, FILE_BYTES, &index, &diag);
        ngd_mem_fail_after(-1);
        ck_assert_msg(status == NGD_OK || status == NGD_ERR_NO_MEMORY, "allocation %d: %s", (int)n, diag.text);
    }
    ck_assert_int_gt(n, 20);
    ck_assert_uint_eq(index.n, 2);
    ck_assert_str_eq(ngd_safetensors_find(&index, "a")->name, "a");
    ck_assert_uint_eq(ngd_safetensors_find(&index, "b")->bytes, 24);
    ck_assert_ptr_null(ngd_safetensors_find(&index, "c"));
    ngd_safetensors_fini(&index);
}
END_TEST

START_TEST(an_index_without_tensors_finds_none)
{
    struct ngd_safetensors index;
    struct ngd_diag diag = {0};

    ck_assert_int_eq(ngd_safetensors_parse("{}", 2, 10, &index, &diag), NGD_OK);
    ck_assert_ptr_null(ngd_safetensors_find(&index, "a"));
    ngd_safetensors_fini(&index);
}
END_TEST

UNIT_MAIN("daemon/safetensors", without_memory_a_header_is_not_called_corrupt, an_index_without_tensors_finds_none)
