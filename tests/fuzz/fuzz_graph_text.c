/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuzzing of the graph text parser. Whatever the bytes are, the answer is a graph or an error with a
 * diagnosis; a graph that was accepted prints, parses back to the same digest, and prints the same again.
 *
 * With libFuzzer:  clang -fsanitize=fuzzer,address,undefined -DNGD_LIBFUZZER ... ; ./fuzz_graph_text CORPUS
 * Alone (make check): replays the corpus in tests/fuzz/graph_text and tests/golden/graphs, then mutations of
 * it from a fixed seed: NGD_FUZZ_RUNS of them (default 20000), or for NGD_FUZZ_SECONDS. Arguments name other
 * directories. A failure aborts and leaves the text in fuzz_graph_text.crash.
 */
#include "base/clock.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "graphs/graph.h"
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void demand(bool ok, const char *what, const uint8_t *data, size_t n)
{
    FILE *f;

    if (ok)
        return;
    fprintf(stderr, "fuzz_graph_text: %s\n", what);
    f = fopen("fuzz_graph_text.crash", "wb");
    if (f) {
        fwrite(data, 1, n, f);
        fclose(f);
    }
    abort();
}

static bool is_text(const char *s)
{
    for (size_t n = strlen(s), step; n > 0; s += step, n -= step) {
        step = ngd_utf8_step(s, n);
        if (step == 0)
            return false;
    }
    return true;
}

static void check_accepted(struct ngd_graph *g, const uint8_t *data, size_t n)
{
    struct ngd_strbuf once, twice, dot;
    struct ngd_graph *again = NULL;
    struct ngd_diag diag = {0};

    ngd_strbuf_init(&once);
    ngd_strbuf_init(&twice);
    ngd_strbuf_init(&dot);
    ngd_graph_print(g, &once);
    ngd_graph_print_dot(g, &dot);
    demand(!once.failed && !dot.failed, "printing failed", data, n);
    demand(ngd_graph_parse(once.data, once.len, &again, &diag) == NGD_OK, diag.text, data, n);
    ngd_graph_print(again, &twice);
    demand(strcmp(once.data, twice.data) == 0, "the printed text is no fixpoint", data, n);
    demand(ngd_digest_equal(&g->digest, &again->digest), "the digest changed with print and parse", data, n);
    ngd_graph_unref(again);
    ngd_strbuf_fini(&once);
    ngd_strbuf_fini(&twice);
    ngd_strbuf_fini(&dot);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct ngd_graph *g = NULL;
    struct ngd_diag diag = {0};
    char *text = n ? ngd_memdup(data, n) : NULL; /* of exactly n bytes, so that a read past the end is seen */
    ngd_status_t status = ngd_graph_parse(text ? text : "", n, &g, &diag);

    if (status) {
        demand(g == NULL, "a refused text gave a graph", data, n);
        demand(diag.status == status && diag.text[0], "an error has no diagnosis", data, n);
        demand(is_text(diag.text), "a diagnosis is not UTF-8", data, n);
        demand(status != NGD_ERR_INTERNAL && status != NGD_ERR_NO_MEMORY, diag.text, data, n);
    } else {
        check_accepted(g, data, n);
        ngd_graph_unref(g);
    }
    ngd_free(text);
    return 0;
}

#ifndef NGD_LIBFUZZER

#define MAX_TEXTS 256
#define MAX_TEXT  (1 << 16)

struct corpus {
    char *text[MAX_TEXTS];
    size_t len[MAX_TEXTS];
    uint32_t n;
};

static uint64_t state = 1;

static uint32_t draw(uint32_t n)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return n ? (uint32_t)(state >> 33) % n : 0;
}

static void add_file(struct corpus *c, const char *path)
{
    char *text = ngd_malloc(MAX_TEXT);
    FILE *f = fopen(path, "rb");

    if (text && f && c->n < MAX_TEXTS) {
        c->len[c->n] = fread(text, 1, MAX_TEXT, f);
        c->text[c->n++] = text;
        text = NULL;
    }
    if (f)
        fclose(f);
    ngd_free(text);
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int add_directory(struct corpus *c, const char *directory)
{
    struct dirent **entries;
    int n = scandir(directory, &entries, NULL, by_name);
    char path[1024];

    for (int i = 0; i < n; i++) {
        snprintf(path, sizeof(path), "%s/%s", directory, entries[i]->d_name);
        if (entries[i]->d_name[0] != '.')
            add_file(c, path);
        free(entries[i]);
    }
    if (n >= 0)
        free(entries);
    else
        fprintf(stderr, "fuzz_graph_text: cannot read %s\n", directory);
    return n;
}

/* Things that a text may contain, to be put where they do not belong. */
static const char *const words[] = {
    "%x",
    "none",
    "B",
    "9223372036854775807",
    "-1",
    "0",
    "{dim=0}",
    "[",
    "]",
    "(",
    ")",
    ",",
    ":",
    "=",
    "\"",
    "1..",
    "min(",
    "mod(B,",
    "floordiv(8, B)",
    "inf",
    "nan",
    "1e400",
    "*",
    "-",
    "+",
    "%",
    "#",
    "\\",
    "\n",

    "sym",
    "state",
    "f32[",
    "bool[]",
    "host",
    "input",
    "return",
    "aten.",
    "buckets 1, 2",
    "\xff\xfe",
    "\xc3\xa9",
    "aten.view",
    "aten.cat",
    "aten.slice.Tensor",
    "{size=[B, -1]}",
    "65536",
    "true",
    "param",
    "B*B",
    "(-1)",
};

static size_t splice(char *out, size_t n, size_t at, size_t cut, const char *piece, size_t len)
{
    if (at > n)
        at = n;
    if (cut > n - at)
        cut = n - at;
    if (n - cut + len > MAX_TEXT)
        return n;
    memmove(out + at + len, out + at + cut, n - at - cut);
    memcpy(out + at, piece, len);
    return n - cut + len;
}

/* One to six changes: bytes, words, moved and repeated pieces, pieces of another text. */
static size_t mutate(const struct corpus *c, char *out)
{
    uint32_t base = draw(c->n), other;
    size_t n = c->len[base], from, len;

    memcpy(out, c->text[base], n);
    for (uint32_t i = 0, k = 1 + draw(6); i < k; i++) {
        const char *word = words[draw(sizeof(words) / sizeof(words[0]))];
        char byte = (char)draw(256);

        switch (draw(6)) {
        case 0:
            n = splice(out, n, draw((uint32_t)n), 1, &byte, 1);
            break;
        case 1:
            n = splice(out, n, draw((uint32_t)n), draw(4), word, strlen(word));
            break;
        case 2:
            n = splice(out, n, draw((uint32_t)n), draw(40), "", 0);
            break;
        case 3: /* a number for another */
            for (from = draw((uint32_t)n); from < n && (out[from] < '0' || out[from] > '9'); from++)
                ;
            byte = (char)('0' + draw(10));
            n = splice(out, n, from, from < n, &byte, from < n);
            break;
        default:
            other = draw(c->n);
            from = draw((uint32_t)c->len[other]);
            len = draw(80) < c->len[other] - from ? draw(80) : 0;
            if (from + len <= c->len[other])
                n = splice(out, n, draw((uint32_t)n), draw(20), c->text[other] + from, len);
            break;
        }
    }
    return n;
}

static uint64_t setting(const char *name, uint64_t otherwise)
{
    const char *value = getenv(name);

    return value ? strtoull(value, NULL, 10) : otherwise;
}

int main(int argc, char **argv)
{
    static const char *const directories[] = {"tests/fuzz/graph_text", "tests/golden/graphs"};
    const char *top = getenv("top_srcdir");
    struct corpus c = {.n = 0};
    uint64_t runs = setting("NGD_FUZZ_RUNS", 20000), seconds = setting("NGD_FUZZ_SECONDS", 0), done = 0;
    ngd_nsec_t until = ngd_now() + (ngd_nsec_t)seconds * NGD_SEC;
    char path[1024], *out = ngd_malloc(MAX_TEXT);

    state = setting("NGD_FUZZ_SEED", 1);
    for (int i = 1; i < argc; i++)
        add_directory(&c, argv[i]);
    for (size_t i = 0; argc == 1 && i < 2; i++) {
        snprintf(path, sizeof(path), "%s/%s", top ? top : ".", directories[i]);
        add_directory(&c, path);
    }
    if (c.n == 0 || !out)
        return EXIT_FAILURE;
    for (uint32_t i = 0; i < c.n; i++)
        LLVMFuzzerTestOneInput((const uint8_t *)c.text[i], c.len[i]);
    printf("ok - graph_text_corpus_of_%u_texts_is_answered\n", c.n);
    for (; seconds ? ngd_now() < until : done < runs; done++)
        LLVMFuzzerTestOneInput((const uint8_t *)out, mutate(&c, out));
    printf("ok - graph_text_after_mutations_is_a_graph_or_an_error\n");
    fprintf(stderr, "%llu mutations\n", (unsigned long long)done);
    for (uint32_t i = 0; i < c.n; i++)
        ngd_free(c.text[i]);
    ngd_free(out);
    return EXIT_SUCCESS;
}

#endif
