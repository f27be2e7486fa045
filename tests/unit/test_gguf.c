/* SPDX-License-Identifier: Apache-2.0 */
#include "base/gguf.h"

#include "base/le.h"
#include "base/mem.h"
#include "tests/unit/unit.h"
#include <string.h>

static void put_name(struct ngd_strbuf *sb, const char *name)
{
    ngd_le_put(sb, strlen(name), 8);
    ngd_strbuf_append(sb, name);
}

/* Two values and two tensors: "a" of 4 f32, "b" of 32 elements of Q8_0. */
static void put_file(struct ngd_strbuf *sb)
{
    ngd_strbuf_init(sb);
    ngd_strbuf_append(sb, "GGUF");
    ngd_le_put(sb, 3, 4);
    ngd_le_put(sb, 2, 8);
    ngd_le_put(sb, 2, 8);
    put_name(sb, "k.list");
    ngd_le_put(sb, NGD_GGUF_ARRAY, 4);
    ngd_le_put(sb, NGD_GGUF_I16, 4);
    ngd_le_put(sb, 2, 8);
    ngd_le_put(sb, 0x0007fffe, 4); /* -2, 7 */
    put_name(sb, "k.big");
    ngd_le_put(sb, NGD_GGUF_U64, 4);
    ngd_le_put(sb, UINT64_MAX, 8);
    put_name(sb, "b");
    ngd_le_put(sb, 2, 4);
    ngd_le_put(sb, 32, 8);
    ngd_le_put(sb, 1, 8);
    ngd_le_put(sb, 8, 4);
    ngd_le_put(sb, 32, 8);
    put_name(sb, "a");
    ngd_le_put(sb, 1, 4);
    ngd_le_put(sb, 4, 8);
    ngd_le_put(sb, 0, 4);
    ngd_le_put(sb, 0, 8);
    while (sb->len % 32 != 0)
        ngd_strbuf_putc(sb, 0);
    for (int i = 0; i < 32 + 34; i++)
        ngd_strbuf_putc(sb, 1);
}

static const uint8_t *bytes_of(const struct ngd_strbuf *sb)
{
    return (const uint8_t *)ngd_strbuf_str(sb);
}

START_TEST(values_and_tensors_are_found)
{
    struct ngd_diag diag = {0};
    struct ngd_strbuf sb;
    struct ngd_gguf g;
    const struct ngd_gguf_value *v;
    const uint8_t *at;
    int64_t i = 0;
    bool more;

    put_file(&sb);
    ck_assert_int_eq(ngd_gguf_parse(bytes_of(&sb), sb.len, sb.len, &g, &more, &diag), NGD_OK);
    v = ngd_gguf_value(&g, "k.list");
    ck_assert(v && v->array && v->n == 2);
    at = v->data;
    ck_assert(ngd_gguf_take_int(v, &at, &i) && i == -2);
    ck_assert(ngd_gguf_take_int(v, &at, &i) && i == 7);
    v = ngd_gguf_value(&g, "k.big");
    at = v->data;
    ck_assert(!ngd_gguf_take_int(v, &at, &i) && at == v->data);
    ck_assert_ptr_null(ngd_gguf_value(&g, "k"));
    ck_assert_str_eq(ngd_gguf_tensor(&g, "b")->type->name, "Q8_0");
    ck_assert_uint_eq(ngd_gguf_tensor(&g, "b")->bytes, 34);
    ck_assert_int_eq(ngd_gguf_tensor(&g, "b")->shape[1], 32);
    ck_assert_uint_eq(ngd_gguf_tensor(&g, "b")->offset, ngd_gguf_tensor(&g, "a")->offset + 32);
    ck_assert_ptr_null(ngd_gguf_tensor(&g, "c"));
    ngd_gguf_fini(&g);
    ngd_strbuf_fini(&sb);
}
END_TEST

START_TEST(a_file_cut_anywhere_is_truncated_and_a_header_cut_anywhere_asks_for_more)
{
    struct ngd_strbuf sb;
    struct ngd_gguf g;
    bool more;

    put_file(&sb);
    for (size_t n = 0; n < sb.len; n++) {
        uint8_t *cut = malloc(n + 1); /* of its own size, for sanitizers */
        struct ngd_diag diag = {0};
        ngd_status_t status;

        memcpy(cut, bytes_of(&sb), n);
        ck_assert_int_eq(ngd_gguf_parse(cut, n, n, &g, &more, &diag), NGD_ERR_FILE_TRUNCATED);
        ck_assert(!more && diag.text[0] != '\0');
        status = ngd_gguf_parse(cut, n, sb.len, &g, &more, &diag);
        ck_assert(more == (status == NGD_ERR_FILE_TRUNCATED));
        if (status == NGD_OK)
            ngd_gguf_fini(&g);
        free(cut);
    }
    ngd_strbuf_fini(&sb);
}
END_TEST

START_TEST(without_memory_a_file_is_not_called_corrupt)
{
    ngd_status_t status = NGD_ERR_NO_MEMORY;
    struct ngd_diag diag = {0};
    struct ngd_strbuf sb;
    struct ngd_gguf g;
    int64_t n = 0;
    bool more;

    put_file(&sb);
    for (; status != NGD_OK; n++) {
        ngd_mem_fail_after(n);
        status = ngd_gguf_parse(bytes_of(&sb), sb.len, sb.len, &g, &more, &diag);
        ngd_mem_fail_after(-1);
        ck_assert(status == NGD_OK || status == NGD_ERR_NO_MEMORY);
    }
    ck_assert_int_eq(n, 3);
    ngd_gguf_fini(&g);
    ngd_strbuf_fini(&sb);
}
END_TEST

UNIT_MAIN("base/gguf", values_and_tensors_are_found,
          a_file_cut_anywhere_is_truncated_and_a_header_cut_anywhere_asks_for_more,
          without_memory_a_file_is_not_called_corrupt)
