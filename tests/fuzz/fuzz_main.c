/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs a fuzz target without a fuzzer: its corpus, its seeds, and mutations of them. fuzz.h says how it is used.
 * `fuzz_<parser> --write-seeds DIR` writes what fuzz_seed gives, as a corpus for libFuzzer.
 */
#include "tests/fuzz/fuzz.h"

#include "base/clock.h"
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

#ifdef NGD_LIBFUZZER

void fuzz_demand(bool ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "a promise was broken: %s\n", what);
    abort(); /* libFuzzer keeps the input */
}

#else

#define N_INPUTS_MAX    1024
#define INPUT_MAX_BYTES (1 << 16)
#define N_WORDS_MAX     256

struct bytes {
    char *data;
    size_t n;
};

static struct {
    const char *name; /* of the target, without "fuzz_" */
    struct bytes inputs[N_INPUTS_MAX], words[N_WORDS_MAX];
    uint32_t n_inputs, n_words;
    const uint8_t *current; /* what the target is looking at */
    size_t n_current;
    uint64_t state; /* of the generator */
} fuzz;

static void keep_current(void)
{
    char path[256];
    FILE *f;

    snprintf(path, sizeof(path), "fuzz_%s.crash", fuzz.name ? fuzz.name : "input");
    f = fopen(path, "wb");
    if (!f)
        return;
    fwrite(fuzz.current, 1, fuzz.n_current, f);
    fclose(f);
}

void fuzz_demand(bool ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "fuzz_%s: a promise was broken: %s\n", fuzz.name ? fuzz.name : "?", what);
    keep_current();
    abort();
}

/* ---- inputs and words ----------------------------------------------------------------------------------- */

static void add(struct bytes *list, uint32_t *n, uint32_t max, const void *data, size_t len)
{
    if (*n == max || len > INPUT_MAX_BYTES)
        return;
    list[*n].data = ngd_memdup(len ? data : "", len ? len : 1);
    list[*n].n = len;
    *n += list[*n].data != NULL;
}

static bool read_whole(const char *path, struct ngd_strbuf *to)
{
    char buffer[4096];
    FILE *f = fopen(path, "rb");
    size_t n;

    if (!f)
        return false;
    while ((n = fread(buffer, 1, sizeof(buffer), f)) > 0)
        ngd_strbuf_append_n(to, buffer, n);
    fclose(f);
    return !to->failed;
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static void add_directory(const char *directory)
{
    struct dirent **entries;
    int n = scandir(directory, &entries, NULL, by_name);
    char path[1024];

    for (int i = 0; i < n; i++) {
        struct ngd_strbuf text;

        ngd_strbuf_init(&text);
        snprintf(path, sizeof(path), "%s/%s", directory, entries[i]->d_name);
        if (entries[i]->d_name[0] != '.' && read_whole(path, &text))
            add(fuzz.inputs, &fuzz.n_inputs, N_INPUTS_MAX, ngd_strbuf_str(&text), text.len);
        ngd_strbuf_fini(&text);
        free(entries[i]);
    }
    if (n >= 0)
        free(entries);
}

static void add_seeds(void)
{
    for (uint32_t i = 0; fuzz_seed; i++) {
        struct ngd_strbuf seed;
        bool more;

        ngd_strbuf_init(&seed);
        more = fuzz_seed(i, &seed);
        if (more)
            add(fuzz.inputs, &fuzz.n_inputs, N_INPUTS_MAX, ngd_strbuf_str(&seed), seed.len);
        ngd_strbuf_fini(&seed);
        if (!more)
            return;
    }
}

static int hex(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : 0;
}

/* A line of libFuzzer's dictionaries: "bytes", with \\, \" and \xNN. */
static void add_word(const char *line)
{
    const char *p = strchr(line, '"');
    char word[256];
    size_t n = 0;

    if (line[0] == '#' || !p)
        return;
    for (p++; *p && *p != '"' && n < sizeof(word); p++) {
        if (p[0] == '\\' && p[1] == 'x' && p[2] && p[3]) {
            word[n++] = (char)(hex(p[2]) << 4 | hex(p[3]));
            p += 3;
        } else {
            p += p[0] == '\\' && p[1];
            word[n++] = *p;
        }
    }
    add(fuzz.words, &fuzz.n_words, N_WORDS_MAX, word, n);
}

static void add_words(const char *path)
{
    struct ngd_strbuf text;
    char *line, *rest;

    ngd_strbuf_init(&text);
    if (read_whole(path, &text))
        for (line = text.data; line && *line; line = rest) {
            rest = strchr(line, '\n');
            if (rest)
                *rest++ = '\0';
            add_word(line);
        }
    ngd_strbuf_fini(&text);
}

/* ---- mutations ------------------------------------------------------------------------------------------ */

static uint32_t draw(uint64_t n)
{
    fuzz.state = fuzz.state * 6364136223846793005u + 1442695040888963407u;
    return n ? (uint32_t)((fuzz.state >> 32) % n) : 0;
}

static size_t splice(char *out, size_t n, size_t at, size_t cut, const char *piece, size_t len)
{
    at = at > n ? n : at;
    cut = cut > n - at ? n - at : cut;
    if (n - cut + len > INPUT_MAX_BYTES)
        return n;
    memmove(out + at + len, out + at + cut, n - at - cut);
    memcpy(out + at, piece, len);
    return n - cut + len;
}

/* A digit for another one, or a number at a limit. */
static size_t change_number(char *out, size_t n)
{
    static const char *const limits[] = {
        "0", "-1", "1", "65536", "2147483648", "9223372036854775807", "18446744073709551616"};
    const char *limit = limits[draw(sizeof(limits) / sizeof(limits[0]))];
    size_t at = draw(n), len = 0;
    char digit = (char)('0' + draw(10));

    while (at < n && (out[at] < '0' || out[at] > '9'))
        at++;
    while (at + len < n && out[at + len] >= '0' && out[at + len] <= '9')
        len++;
    return draw(2) ? splice(out, n, at, len ? 1 : 0, &digit, len ? 1 : 0)
                   : splice(out, n, at, len, limit, len ? strlen(limit) : 0);
}

/* 4 or 8 bytes with a number at a limit. */
static void change_integer(char *out, size_t n)
{
    static const uint64_t limits[] = {0,       1, 64, INT32_MAX, UINT32_MAX, INT64_MAX, UINT64_MAX, UINT64_MAX - 63,
                                      1u << 20};
    size_t len = draw(2) ? 8 : 4;

    if (n > len)
        memcpy(out + draw(n - len), &limits[draw(sizeof(limits) / sizeof(limits[0]))], len);
}

static size_t change(char *out, size_t n)
{
    const struct bytes *other = &fuzz.inputs[draw(fuzz.n_inputs)], *word = &fuzz.words[draw(fuzz.n_words)];
    size_t from = draw(other->n + 1), len = draw(80);
    char byte = (char)draw(256);

    switch (draw(8)) {
    case 0:
        return splice(out, n, draw(n), 1, &byte, 1);
    case 1:
        return splice(out, n, draw(n), draw(40), "", 0);
    case 2:
        return change_number(out, n);
    case 3:
        change_integer(out, n);
        return n;
    case 4:
        if (n)
            out[draw(n)] ^= (char)(1 << draw(8));
        return n;
    case 5:
        return splice(out, n, draw(n), draw(20), other->data + from, from + len > other->n ? other->n - from : len);
    default:
        return fuzz.n_words ? splice(out, n, draw(n), draw(2) ? draw(6) : 0, word->data, word->n) : n;
    }
}

static void look_at(const char *data, size_t n)
{
    uint8_t *exact = ngd_memdup(n ? data : "", n ? n : 1); /* so that a read past the end is seen */

    if (!exact)
        return;
    fuzz.current = exact;
    fuzz.n_current = n;
    LLVMFuzzerTestOneInput(exact, n);
    ngd_free(exact);
}

static void mutate_one(char *out)
{
    const struct bytes *base = &fuzz.inputs[draw(fuzz.n_inputs)];
    size_t n = base->n;

    memcpy(out, base->data, n);
    for (uint32_t i = 0, k = 1 + draw(6); i < k; i++)
        n = change(out, n);
    look_at(out, n);
}

/* ---- running -------------------------------------------------------------------------------------------- */

static uint64_t setting(const char *name, uint64_t otherwise)
{
    const char *value = getenv(name);

    return value ? strtoull(value, NULL, 10) : otherwise;
}

static int write_seeds(const char *directory)
{
    char path[1024];

    add_seeds();
    for (uint32_t i = 0; i < fuzz.n_inputs; i++) {
        FILE *f;

        snprintf(path, sizeof(path), "%s/seed-%u", directory, i);
        f = fopen(path, "wb");
        if (!f || fwrite(fuzz.inputs[i].data, 1, fuzz.inputs[i].n, f) != fuzz.inputs[i].n || fclose(f) != 0)
            return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}

static void read_inputs(const char *top)
{
    char path[1024];

    snprintf(path, sizeof(path), "%s/tests/fuzz/corpus/%s", top, fuzz.name);
    add_directory(path);
    if (&fuzz_more) {
        snprintf(path, sizeof(path), "%s/%s", top, fuzz_more);
        add_directory(path);
    }
    snprintf(path, sizeof(path), "%s/tests/fuzz/dict/%s.dict", top, fuzz.name);
    add_words(path);
    add_seeds();
    if (fuzz.n_inputs == 0)
        add(fuzz.inputs, &fuzz.n_inputs, N_INPUTS_MAX, "", 0);
}

static void finish(void)
{
    for (uint32_t i = 0; i < fuzz.n_inputs; i++)
        ngd_free(fuzz.inputs[i].data);
    for (uint32_t i = 0; i < fuzz.n_words; i++)
        ngd_free(fuzz.words[i].data);
}

int main(int argc, char **argv)
{
    uint64_t runs = setting("NGD_FUZZ_RUNS", fuzz_runs * setting("NGD_TEST_EFFORT", 100) / 100), done = 0;
    uint64_t seconds = setting("NGD_FUZZ_SECONDS", 0);
    ngd_nsec_t until = ngd_now() + (ngd_nsec_t)seconds * NGD_SEC;
    const char *top = getenv("top_srcdir"), *name = strstr(argv[0], "fuzz_");
    char *out = ngd_malloc(INPUT_MAX_BYTES);

    while (name && strstr(name + 1, "fuzz_")) /* the last one of the path */
        name = strstr(name + 1, "fuzz_");
    fuzz.name = name ? name + strlen("fuzz_") : "";
    fuzz.state = setting("NGD_FUZZ_SEED", 1);
    if (argc == 3 && strcmp(argv[1], "--write-seeds") == 0)
        return write_seeds(argv[2]);
    read_inputs(top ? top : ".");
    if (!out)
        return EXIT_FAILURE;
    for (uint32_t i = 0; i < fuzz.n_inputs; i++)
        look_at(fuzz.inputs[i].data, fuzz.inputs[i].n);
    printf("ok - %s_keeps_its_promises_on_its_corpus (%u inputs)\n", fuzz.name, fuzz.n_inputs);
    for (; seconds ? ngd_now() < until : done < runs; done++)
        mutate_one(out);
    printf("ok - %s_keeps_its_promises_on_mutations (%llu)\n", fuzz.name, (unsigned long long)done);
    ngd_free(out);
    finish();
    return EXIT_SUCCESS;
}

#endif
