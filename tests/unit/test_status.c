/* SPDX-License-Identifier: Apache-2.0 */
#include "base/status.h"
#include "tests/unit/unit.h"
#include <errno.h>
#include <string.h>

static const struct row {
    const char *name;
    int value;
    ngd_scope_t scope;
    int grpc;
    const char *text;
} rows[] = {
#define NGD_STATUS(name, value, scope, grpc, text) {#name, value, NGD_SCOPE_##scope, grpc, text},
#include "base/status.def"
#undef NGD_STATUS
};
#define N_ROWS (sizeof(rows) / sizeof(rows[0]))

START_TEST(every_row_gives_its_own_name_text_scope_and_grpc_code)
{
    for (size_t i = 0; i < N_ROWS; i++) {
        ngd_status_t status = (ngd_status_t)rows[i].value;
        const char *reason = i ? rows[i].name + strlen("ERR_") : rows[i].name;

        ck_assert_str_eq(ngd_status_name(status), reason);
        ck_assert_str_eq(ngd_status_text(status), rows[i].text);
        ck_assert_int_eq(ngd_status_scope(status), rows[i].scope);
        ck_assert_int_eq(ngd_status_grpc(status), rows[i].grpc);
    }
}
END_TEST

START_TEST(only_ok_is_not_negative_and_only_ok_maps_to_grpc_ok)
{
    ck_assert_int_eq(rows[0].value, 0);
    for (size_t i = 1; i < N_ROWS; i++) {
        ck_assert_int_lt(rows[i].value, 0);
        ck_assert_int_ge(rows[i].grpc, 1);
        ck_assert_int_le(rows[i].grpc, 16);
    }
}
END_TEST

START_TEST(reasons_are_unique)
{
    for (size_t i = 0; i < N_ROWS; i++)
        for (size_t j = 0; j < i; j++) {
            ck_assert_str_ne(rows[i].name, rows[j].name);
            ck_assert_int_ne(rows[i].value, rows[j].value);
        }
}
END_TEST

START_TEST(unknown_value_is_treated_as_internal)
{
    ngd_status_t status = (ngd_status_t)-9999;

    ck_assert_str_eq(ngd_status_name(status), "INTERNAL");
    ck_assert_int_eq(ngd_status_grpc(status), 13);
    ck_assert_str_eq(ngd_status_text(status), ngd_status_text(NGD_ERR_INTERNAL));
}
END_TEST

START_TEST(errno_maps_to_the_status_a_client_can_act_on)
{
    ck_assert_int_eq(ngd_status_from_errno(0), NGD_OK);
    ck_assert_int_eq(ngd_status_from_errno(ENOSPC), NGD_ERR_DISK_FULL);
    ck_assert_int_eq(ngd_status_from_errno(ENOENT), NGD_ERR_FILE_NOT_FOUND);
    ck_assert_int_eq(ngd_status_from_errno(ENOMEM), NGD_ERR_NO_MEMORY);
    ck_assert_int_eq(ngd_status_from_errno(ELOOP), NGD_ERR_PATH_NOT_ALLOWED);
    ck_assert_int_eq(ngd_status_from_errno(EXDEV), NGD_ERR_PATH_NOT_ALLOWED);
    ck_assert_int_eq(ngd_status_from_errno(EACCES), NGD_ERR_PERMISSION_DENIED);
    ck_assert_int_eq(ngd_status_from_errno(EIO), NGD_ERR_IO);
    ck_assert_int_eq(ngd_status_from_errno(987654), NGD_ERR_IO);
}
END_TEST

START_TEST(diag_set_returns_the_status_and_the_last_call_wins)
{
    struct ngd_diag diag = {0};

    ck_assert_int_eq(ngd_diag_set(&diag, NGD_ERR_GRAPH_RANK, "rank %d", 9), NGD_ERR_GRAPH_RANK);
    ck_assert_int_eq(diag.status, NGD_ERR_GRAPH_RANK);
    ck_assert_str_eq(diag.text, "rank 9");
    ngd_diag_set(&diag, NGD_ERR_QUOTA, "second");
    ck_assert_int_eq(diag.status, NGD_ERR_QUOTA);
    ck_assert_str_eq(diag.text, "second");
}
END_TEST

START_TEST(diag_calls_without_a_diag_do_nothing)
{
    ck_assert_int_eq(ngd_diag_set(NULL, NGD_ERR_BUSY, "x"), NGD_ERR_BUSY);
    ngd_diag_prefix(NULL, "x");
}
END_TEST

START_TEST(diag_set_may_quote_its_own_old_text)
{
    struct ngd_diag diag = {0};

    ngd_diag_set(&diag, NGD_ERR_BUSY, "inner");
    ngd_diag_set(&diag, NGD_ERR_BUSY, "outer: %s", diag.text);
    ck_assert_str_eq(diag.text, "outer: inner");
}
END_TEST

START_TEST(diag_prefix_puts_the_context_in_front)
{
    struct ngd_diag diag = {0};

    ngd_diag_prefix(&diag, "ignored while ok: ");
    ck_assert_str_eq(diag.text, "");
    ngd_diag_set(&diag, NGD_ERR_GRAPH_DTYPE, "operand 1 is i64");
    ngd_diag_prefix(&diag, "node %%%d: ", 7);
    ngd_diag_prefix(&diag, "graph %s: ", "g1");
    ck_assert_str_eq(diag.text, "graph g1: node %7: operand 1 is i64");
}
END_TEST

START_TEST(diag_text_that_is_too_long_is_cut_between_characters)
{
    struct ngd_diag diag = {0};
    char text[3 * NGD_DIAG_MAX + 1];

    for (size_t i = 0; i < NGD_DIAG_MAX; i++) /* each of 3 bytes: the cut falls inside one */
        memcpy(text + 3 * i, "\xe2\x82\xac", 3);
    text[3 * NGD_DIAG_MAX] = '\0';
    for (size_t skip = 0; skip < 3; skip++) {
        const char *at = text + 3 - skip;
        size_t len;

        ngd_diag_set(&diag, NGD_ERR_BUSY, "%.*s%s", (int)skip, "ab", at + skip);
        len = strlen(diag.text);
        ck_assert_uint_lt(len, NGD_DIAG_MAX);
        ck_assert_uint_gt(len, NGD_DIAG_MAX - 8);
        ck_assert_str_eq(diag.text + len - 3, "...");
        ck_assert_uint_eq((len - 3 - skip) % 3, 0);
    }
    for (int i = 0; i < 100; i++)
        ngd_diag_prefix(&diag, "a context that is put in front again and again: ");
    ck_assert_uint_lt(strlen(diag.text), NGD_DIAG_MAX);
    ck_assert_int_eq(strncmp(diag.text, "a context", 9), 0);
}
END_TEST

UNIT_MAIN("base/status", every_row_gives_its_own_name_text_scope_and_grpc_code,
          only_ok_is_not_negative_and_only_ok_maps_to_grpc_ok, reasons_are_unique, unknown_value_is_treated_as_internal,
          errno_maps_to_the_status_a_client_can_act_on, diag_set_returns_the_status_and_the_last_call_wins,
          diag_calls_without_a_diag_do_nothing, diag_set_may_quote_its_own_old_text,
          diag_prefix_puts_the_context_in_front, diag_text_that_is_too_long_is_cut_between_characters)
