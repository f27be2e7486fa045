/* SPDX-License-Identifier: Apache-2.0 */
/* Targets and their queries; tests/rpc/test_services.py and tests/fuzz/fuzz_http.c have the rest of a head. */
#include "daemon/http_request.h"
#include "tests/unit/unit.h"
#include <stdio.h>
#include <string.h>

static char head[4096];

static struct ngd_http_request read_target(const char *target)
{
    const struct ngd_http_hosts hosts = {NULL, NULL, 0};
    struct ngd_http_request request = {0};
    const char *why = "";

    snprintf(head, sizeof(head), "GET %s HTTP/1.1\r\nHost: localhost\r\n", target);
    ck_assert_int_eq(ngd_http_request_read(head, strlen(head), &hosts, &request, &why), 200);
    return request;
}

START_TEST(path_and_query_are_parted)
{
    static const struct {
        const char *target, *path, *query;
    } all[] = {{"/a", "/a", ""},
               {"/a?b=1&c", "/a", "b=1&c"},
               {"/a?", "/a", ""},
               {"/a?b?c", "/a", "b?c"},
               {"/a#x?y", "/a", ""},
               {"/a?b#x?y", "/a", "b"},
               {"/?b", "/", "b"},
               {"http://localhost?b", "/", "b"},
               {"http://localhost/a?b", "/a", "b"},
               {"http://localhost#b", "/", ""}};

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        struct ngd_http_request request = read_target(all[i].target);

        ck_assert_str_eq(request.path, all[i].path);
        ck_assert_str_eq(request.query, all[i].query);
    }
}
END_TEST

START_TEST(number_is_read_if_it_is_one)
{
    static const struct {
        const char *query;
        bool good;
        uint64_t value;
    } all[] = {{"", true, 7},
               {"n=0", true, 0},
               {"m=x&n=12&o", true, 12},
               {"&&n=3&&", true, 3},
               {"n=100", true, 100},
               {"nn=3", true, 7},
               {"n=0000000000000000003", true, 3},
               {"n=101", false, 0},
               {"n", false, 0},
               {"n=", false, 0},
               {"n=-1", false, 0},
               {"n=+1", false, 0},
               {"n=1x", false, 0},
               {"n=%31", false, 0},
               {"n=1&n=1", false, 0},
               {"n&n=1", false, 0},
               {"n=18446744073709551617", false, 0},
               {"n=99999999999999999999999999", false, 0}};

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        uint64_t value = 7;

        ck_assert_msg(ngd_http_query_number(all[i].query, "n", 100, &value) == all[i].good, "%s", all[i].query);
        ck_assert_uint_eq(value, all[i].good ? all[i].value : 7);
    }
}
END_TEST

START_TEST(hash_is_sixteen_digits)
{
    uint64_t value = 7;

    ck_assert(ngd_http_query_hash("a=1", "key", &value) && value == 7);
    ck_assert(ngd_http_query_hash("key=00000000deadbeef&a", "key", &value) && value == 0xdeadbeef);
    ck_assert(ngd_http_query_hash("key=ffffffffffffffff", "key", &value) && value == UINT64_MAX);
    ck_assert(!ngd_http_query_hash("key=deadbeef", "key", &value));
    ck_assert(!ngd_http_query_hash("key=", "key", &value));
    ck_assert(!ngd_http_query_hash("key=0x000000deadbeef", "key", &value));
    ck_assert(!ngd_http_query_hash("key=00000000DEADBEEF", "key", &value));
    ck_assert(!ngd_http_query_hash("key=00000000deadbeef0", "key", &value));
}
END_TEST

START_TEST(parameters_that_are_not_known_are_found)
{
    static const char *const names[] = {"step", "since", NULL};

    ck_assert_ptr_null(ngd_http_query_unknown("", names));
    ck_assert_ptr_null(ngd_http_query_unknown("step=1&since=2", names));
    ck_assert_ptr_null(ngd_http_query_unknown("&since", names));
    ck_assert_str_eq(ngd_http_query_unknown("step=1&steps=2", names), "steps=2");
    ck_assert_str_eq(ngd_http_query_unknown("ste", names), "ste");
    ck_assert_str_eq(ngd_http_query_unknown("=", names), "=");
}
END_TEST

UNIT_MAIN("daemon/http_request", path_and_query_are_parted, number_is_read_if_it_is_one, hash_is_sixteen_digits,
          parameters_that_are_not_known_are_found)
