/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random Hugging Face checkpoints. Values are drawn so that activations keep their size from layer to layer: matrices
 * have variance 1 / inputs, and norms are about 1. Values come from a table of 256 evenly spaced ones, and each step of
 * a xorshift generator picks eight, so that writing is limited by the disk and not by the arithmetic.
 */
#include "base/dtype.h"
#include "base/strbuf.h"
#include "bench/rpc/bench_rpc.h"
#include "client/hf/checkpoint.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define CHUNK (1 << 20) /* values that are written at a time */

static FILE *create_file(const char *dir, const char *name)
{
    char path[4096];
    FILE *f;

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    f = fopen(path, "wb");
    if (f == NULL)
        bench_fail("%s: %s", path, strerror(errno));
    return f;
}

static void finish_file(FILE *f, const char *what)
{
    if (fflush(f) != 0 || ferror(f) || fclose(f) != 0)
        bench_fail("%s cannot be written: %s", what, strerror(errno));
}

static void write_config(const char *dir, const struct bench_shape *s)
{
    FILE *f = create_file(dir, "config.json");

    fprintf(
        f,
        "{\n  \"architectures\": [\"Qwen3ForCausalLM\"],\n  \"model_type\": \"qwen3\",\n  \"hidden_act\": \"silu\",\n"
        "  \"num_hidden_layers\": %" PRId64 ",\n  \"hidden_size\": %" PRId64 ",\n  \"num_attention_heads\": %" PRId64
        ",\n  \"num_key_value_heads\": %" PRId64 ",\n  \"head_dim\": %" PRId64 ",\n  \"intermediate_size\": %" PRId64
        ",\n  \"vocab_size\": %" PRId64 ",\n  \"tie_word_embeddings\": %s,\n",
        s->layers, s->hidden, s->heads, s->kv_heads, s->head_dim, s->ffn, s->vocab, s->tied ? "true" : "false");
    fprintf(f, "  \"attention_bias\": false,\n  \"max_position_embeddings\": 40960,\n  \"rms_norm_eps\": 1e-06,\n"
               "  \"rope_theta\": 1000000,\n  \"torch_dtype\": \"bfloat16\"\n}\n");
    finish_file(f, "config.json");
}

static uint64_t elements(const struct npugraph__weight *w)
{
    return (uint64_t)w->shape[0] * (w->rank == 2 ? (uint64_t)w->shape[1] : 1);
}

static void write_header(FILE *f, const struct npugraph__weights *weights)
{
    struct ngd_strbuf sb;
    uint64_t offset = 0, n;

    ngd_strbuf_init(&sb);
    ngd_strbuf_append(&sb, "{\"__metadata__\":{\"format\":\"pt\"}");
    for (size_t i = 0; i < weights->n; i++) {
        const struct npugraph__weight *w = &weights->items[i];

        ngd_strbuf_printf(&sb, ",\"%s\":{\"dtype\":\"BF16\",\"shape\":[%" PRId64, w->name, w->shape[0]);
        if (w->rank == 2)
            ngd_strbuf_printf(&sb, ",%" PRId64, w->shape[1]);
        ngd_strbuf_printf(&sb, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", offset, offset + 2 * elements(w));
        offset += 2 * elements(w);
    }
    ngd_strbuf_putc(&sb, '}');
    while (sb.len % 8 != 0)
        ngd_strbuf_putc(&sb, ' ');
    if (sb.failed)
        bench_fail("no memory for a header");
    n = sb.len;
    fwrite(&n, sizeof(n), 1, f);
    fwrite(sb.data, 1, n, f);
    ngd_strbuf_fini(&sb);
}

static uint64_t xorshift(uint64_t *state)
{
    uint64_t x = *state;

    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    return *state = x;
}

static void make_table(const struct npugraph__weight *w, uint16_t table[256])
{
    /*
     * Evenly spaced values in -r..r have variance r^2 / 3. The embedding is scaled like a matrix, since it may also be
     * the head.
     */
    double middle = w->rank == 1 ? 1 : 0, range = w->rank == 1 ? 0.1 : sqrt(3.0 / (double)w->shape[1]);

    for (int i = 0; i < 256; i++)
        table[i] = ngd_f32_to_bf16((float)(middle + range * (i - 127.5) / 127.5));
}

static void write_weight(FILE *f, const struct npugraph__weight *w, uint64_t *state, uint16_t *chunk)
{
    uint16_t table[256];
    uint64_t left = elements(w);

    make_table(w, table);
    while (left > 0) {
        size_t n = left < CHUNK ? (size_t)left : CHUNK;

        for (size_t i = 0; i < n; i += 8) {
            uint64_t x = xorshift(state);

            for (int k = 0; k < 8; k++)
                chunk[i + (size_t)k] = table[x >> (8 * k) & 255];
        }
        if (fwrite(chunk, 2, n, f) != n)
            bench_fail("model.safetensors cannot be written: %s", strerror(errno));
        left -= n;
    }
}

void bench_checkpoint_write(const char *dir, const struct bench_shape *shape)
{
    uint16_t *chunk = malloc((CHUNK + 8) * sizeof(*chunk));
    struct npugraph__checkpoint *ck = NULL;
    struct npugraph_error err = {0};
    uint64_t state = UINT64_C(0x9e3779b97f4a7c15);
    FILE *f;

    if (chunk == NULL)
        bench_fail("no memory");
    if (mkdir(dir, 0777) != 0 && errno != EEXIST)
        bench_fail("%s: %s", dir, strerror(errno));
    write_config(dir, shape);
    /* The list that the client library itself has of the weights of this architecture. */
    if (npugraph__checkpoint_read(dir, &(struct npugraph__purpose){.ranks = 1}, &ck, &err) != 0)
        bench_fail("%s", err.message);
    f = create_file(dir, "model.safetensors");
    write_header(f, &ck->weights);
    for (size_t i = 0; i < ck->weights.n; i++)
        write_weight(f, &ck->weights.items[i], &state, chunk);
    finish_file(f, "model.safetensors");
    npugraph__checkpoint_free(ck);
    free(chunk);
}

uint64_t bench_decode_bytes(const struct bench_shape *s)
{
    int64_t q = s->heads * s->head_dim, kv = s->kv_heads * s->head_dim;
    int64_t layer = s->hidden * (2 * q + 2 * kv + 3 * s->ffn) + 2 * s->hidden + 2 * s->head_dim;

    return 2 * (uint64_t)(s->layers * layer + s->hidden + s->vocab * s->hidden);
}
