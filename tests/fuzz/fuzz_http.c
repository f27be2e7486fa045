/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Heads of HTTP requests. What is taken is one line of GET or HEAD, a path of the input, without a host that is not
 * known; what is refused has a status of this server and a sentence.
 */
#include "daemon/http_request.h"
#include "tests/fuzz/fuzz.h"

const uint32_t fuzz_runs = 50000;

static bool is_refusal(int status)
{
    static const int all[] = {400, 403, 405, 413, 421, 505};

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        if (status == all[i])
            return true;
    return false;
}

/* Host lines of what was taken, found in a way of its own: the value is one of the few that are known. */
static bool names_evil(const uint8_t *data, size_t n)
{
    static const char evil[] = "\r\nHost: evil";

    return memmem(data, n, evil, sizeof(evil) - 1) != NULL;
}

static void check_query(const char *query)
{
    static const char *const names[] = {"step", "since", NULL};
    const char *unknown = ngd_http_query_unknown(query, names);
    uint64_t value = 7;

    fuzz_demand(!unknown || (unknown >= query && *unknown), "an unknown parameter is not one of the query");
    fuzz_demand(ngd_http_query_number(query, "step", 100, &value) ? value <= 100 : value == 7,
                "a refused number is written, or one is too large");
    value = 7;
    fuzz_demand(ngd_http_query_hash(query, "since", &value) || value == 7, "a refused hash is written");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static char name[] = "node7.example.org";
    static char *const names[] = {name};
    const struct ngd_http_hosts hosts = {"metrics", names, 1};
    struct ngd_http_request request = {0};
    const char *why = NULL;
    char *head = fuzz_text(data, n);
    int status = ngd_http_request_read(head, n, &hosts, &request, &why);

    if (status == 200) {
        fuzz_demand(request.path && request.path[0] == '/', "a path does not begin with /");
        fuzz_demand(strcspn(request.path, "?#\r\n ") == strlen(request.path), "a path has what is none of it");
        fuzz_demand(request.query && strcspn(request.query, "#\r\n ") == strlen(request.query),
                    "a query has what is none of it");
        check_query(request.query);
        fuzz_demand(n > 2 && data[n - 1] == '\n' && data[n - 2] == '\r', "a head without an end is taken");
        fuzz_demand(memcmp(data, request.head ? "HEAD " : "GET ", request.head ? 5 : 4) == 0,
                    "another method is taken");
        fuzz_demand(memchr(data, '\0', n) == NULL, "a NUL is taken");
        fuzz_demand(!names_evil(data, n), "an unknown host is taken");
        fuzz_demand(why == NULL, "what is taken has a refusal");
    } else {
        fuzz_demand(is_refusal(status), "an unknown status");
        fuzz_demand(why && why[0], "a request is refused without a sentence");
        fuzz_demand(request.path == NULL, "what is refused is written to");
    }
    ngd_free(head);
    return 0;
}
