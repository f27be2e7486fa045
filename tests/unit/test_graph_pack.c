/* SPDX-License-Identifier: Apache-2.0 */
/* Tests packed graphs: random graphs and the golden ones come back unchanged, and damaged bytes do no harm. */
#include "graphs/graph_pack.h"
#include "tests/unit/effort.h"
#include "tests/unit/random_graph.h"

static void pack(const struct ngd_graph *g, struct ngd_strbuf *bytes)
{
    ngd_strbuf_init(bytes);
    ngd_graph_pack(g, bytes);
    ck_assert(!bytes->failed);
}

static ngd_status_t unpack(const void *data, size_t n, struct ngd_graph **graph_p, struct ngd_diag *diag)
{
    void *copy = ngd_memdup(data, n ? n : 1); /* exactly n bytes, so that a sanitizer sees reads past the end */
    ngd_status_t status = ngd_graph_unpack(copy, n, graph_p, diag);

    ngd_free(copy);
    return status;
}

/* Checks that an unpacked graph has the same text and digest, and the lines that diagnoses name. */
static void check_comes_back(const struct ngd_graph *g)
{
    struct ngd_graph *again = NULL;
    struct ngd_strbuf bytes, twice;
    struct ngd_diag diag = {0};
    char *a = print_graph(g), *b;

    pack(g, &bytes);
    if (unpack(bytes.data, bytes.len, &again, &diag))
        ck_abort_msg("%s\n%s", diag.text, a);
    b = print_graph(again);
    ck_assert_str_eq(a, b);
    ck_assert(ngd_digest_equal(&g->digest, &again->digest));
    ck_assert(ngd_graph_digest_holds(again));
    ck_assert_uint_eq(again->n_nodes, g->n_nodes);
    for (uint32_t i = 0; i < g->n_nodes; i++)
        ck_assert_uint_eq(again->nodes[i].line, g->nodes[i].line);
    pack(again, &twice);
    ck_assert_uint_eq(bytes.len, twice.len);
    ck_assert_mem_eq(bytes.data, twice.data, bytes.len);
    ngd_strbuf_fini(&bytes);
    ngd_strbuf_fini(&twice);
    ngd_graph_unref(again);
    ngd_free(a);
    ngd_free(b);
}

START_TEST(random_graphs_come_back_as_they_were)
{
    uint64_t n = effort(400, "random graphs"), good = 0;

    for (uint64_t seed = 1; seed <= n; seed++) {
        struct ngd_graph *g = make_streamed_graph(seed, 1 + (uint32_t)(seed % 3));

        add_guards(g, seed);
        if (ngd_graph_seal(g, NULL) == NGD_OK) {
            check_comes_back(g);
            good++;
        }
        ngd_graph_unref(g);
    }
    ck_assert_uint_gt(good, n / 20);
}
END_TEST

START_TEST(golden_graphs_come_back_as_they_were)
{
    static const char *const paths[] = {"tests/golden/graphs/mlp.txt", "tests/golden/graphs/qwen3_decode.txt"};

    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
        char *text = read_source_file(paths[i]);
        struct ngd_graph *g = parse_text(text);

        check_comes_back(g);
        ngd_graph_unref(g);
        ngd_free(text);
    }
}
END_TEST

START_TEST(a_batch_symbol_comes_back)
{
    struct ngd_graph *g = parse_text("npugraph 1\ngraph \"b\" {\n  sym B 1..16 batch buckets 4, 16\n"
                                     "  input %x : f32[B]\n  return %x\n}\n");

    check_comes_back(g);
    ngd_graph_unref(g);
}
END_TEST

/* Has every kind of expression, attribute and input that the format knows. */
static const char *const rich =
    "npugraph 1\ngraph \"r\\\"x\" {\n  sym A 1..9\n  sym B 1..16 buckets 4, 16\n"
    "  guard mod(A*B, 7) != 3\n  guard B <= A + 9\n  guard A != 5\n  param %w : bf16[4,8] = \"the weight\"\n  state %s "
    ": f32[16,8]\n  input %x : f32[A,8]\n  input %b : f32[B*2,8]\n"
    "  input %m : f32[min(A, 5),8]\n  input %f : f32[floordiv(A, 2) + 1]\n  input %o : f32[mod(A, 3) + 2*A*A]\n"
    "  host %h : i64[]\n"
    "  %y, %z = aten.topk(%x) {k=3, dim=-1}\n  %v = aten.view(%x) {size=[A*8]}\n  %g = aten.gelu(%x) "
    "{approximate=\"tanh\"}\n  %c = aten._to_copy(%b) {dtype=f16}\n  %p = aten.clamp(%m) {min=-30.5}\n"
    "  return \"y\" = %y, \"z\" = %z, \"v\" = %v, \"g\" = %g, \"c\" = %c, \"p\" = %p\n}\n";

START_TEST(every_changed_byte_is_refused_or_a_graph)
{
    static const uint8_t flips[] = {0x01, 0x04, 0x40, 0x80, 0xff};
    struct ngd_graph *g = parse_text(rich);
    struct ngd_strbuf bytes;
    uint32_t refused = 0;

    check_comes_back(g);
    pack(g, &bytes);
    for (size_t i = 0; i < bytes.len; i++) {
        for (size_t k = 0; k < sizeof(flips); k++) {
            struct ngd_graph *other = NULL;
            struct ngd_diag diag = {0};
            ngd_status_t status;

            bytes.data[i] ^= (char)flips[k];
            status = unpack(bytes.data, bytes.len, &other, &diag);
            bytes.data[i] ^= (char)flips[k];
            if (status) {
                ck_assert_ptr_null(other);
                ck_assert_int_eq(diag.status, status);
                ck_assert_int_ne(status, NGD_ERR_INTERNAL);
                refused++;
                continue;
            }
            ck_assert_int_eq(ngd_graph_seal(other, NULL), NGD_OK);
            ngd_graph_unref(other);
        }
    }
    ck_assert_uint_gt(refused, bytes.len);
    ngd_strbuf_fini(&bytes);
    ngd_graph_unref(g);
}
END_TEST

START_TEST(every_truncation_is_refused)
{
    struct ngd_graph *g = parse_text(rich), *other = NULL;
    struct ngd_diag diag = {0};
    struct ngd_strbuf bytes;

    pack(g, &bytes);
    for (size_t n = 0; n < bytes.len; n++)
        ck_assert_int_eq(unpack(bytes.data, n, &other, NULL), NGD_ERR_FILE_TRUNCATED);
    ngd_strbuf_putc(&bytes, 'x');
    ck_assert_int_eq(unpack(bytes.data, bytes.len, &other, &diag), NGD_ERR_FILE_CORRUPT);
    ck_assert_str_eq(diag.text, "1 bytes follow a stored graph");
    ck_assert_ptr_null(other);
    ngd_strbuf_fini(&bytes);
    ngd_graph_unref(g);
}
END_TEST

START_TEST(bytes_of_another_version_or_operator_table_are_unsupported)
{
    struct ngd_graph *g = parse_text(rich), *other = NULL;
    struct ngd_diag diag = {0};
    struct ngd_strbuf bytes;

    pack(g, &bytes);
    bytes.data[7]++;
    ck_assert_int_eq(unpack(bytes.data, bytes.len, &other, &diag), NGD_ERR_FILE_UNSUPPORTED);
    ck_assert_str_eq(diag.text, "the bytes are not a stored graph of this version");
    bytes.data[7]--;
    bytes.data[8 + 31]++;
    ck_assert_int_eq(unpack(bytes.data, bytes.len, &other, &diag), NGD_ERR_FILE_UNSUPPORTED);
    ck_assert_str_eq(diag.text, "the stored graph was made with another table of operators");
    ngd_strbuf_fini(&bytes);
    ngd_graph_unref(g);
}
END_TEST

START_TEST(a_claimed_digest_is_found_out)
{
    struct ngd_graph *g = parse_text(rich), *other = NULL;
    struct ngd_strbuf bytes;

    pack(g, &bytes);
    bytes.data[8 + 32]++;
    ck_assert_int_eq(unpack(bytes.data, bytes.len, &other, NULL), NGD_OK);
    ck_assert(!ngd_graph_digest_holds(other));
    ngd_graph_unref(other);
    ngd_strbuf_fini(&bytes);
    ngd_graph_unref(g);
}
END_TEST

START_TEST(every_failed_allocation_leaves_nothing)
{
    struct ngd_graph *g = parse_text(rich), *other = NULL;
    ngd_status_t status = NGD_ERR_NO_MEMORY;
    struct ngd_strbuf bytes;
    int n = 0;

    pack(g, &bytes);
    while (status == NGD_ERR_NO_MEMORY && n < 1000) {
        ck_assert_ptr_null(other);
        ngd_mem_fail_after(n++);
        status = ngd_graph_unpack(bytes.data, bytes.len, &other, NULL);
        ngd_mem_fail_after(-1);
    }
    ck_assert_int_eq(status, NGD_OK);
    ck_assert_int_gt(n, 5);
    ngd_graph_unref(other);
    ngd_strbuf_fini(&bytes);
    ngd_graph_unref(g);
}
END_TEST

UNIT_MAIN("graphs/graph_pack", random_graphs_come_back_as_they_were, golden_graphs_come_back_as_they_were,
          a_batch_symbol_comes_back, every_changed_byte_is_refused_or_a_graph, every_truncation_is_refused,
          bytes_of_another_version_or_operator_table_are_unsupported, a_claimed_digest_is_found_out,
          every_failed_allocation_leaves_nothing)
