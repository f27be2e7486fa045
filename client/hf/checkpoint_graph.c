/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The text of a decoder's graphs: one for prompts (T rows of S sequences, or of one), one for a decode step (B
 * sequences, one row each). The inputs and the sampling at the end are the daemon's decode contract; the family writes
 * what is between.
 */
#include "client/hf/family.h"
#include "client/lib/error.h"

#include <string.h>

#define put(...) ngd_strbuf_printf(sb, __VA_ARGS__)

static void put_graph_head(const struct npugraph__shape *s, const char *name, bool prefill, struct ngd_strbuf *sb)
{
    uint32_t most = prefill ? s->prefill_chunk : s->max_batch;

    put("npugraph 1\ngraph ");
    ngd_strbuf_json_string(sb, name);
    put(" {\n  sym %s 1..%u buckets %u\n", prefill ? "T" : "B", most, most);
    if (prefill && s->prefill_seqs > 1)
        put("  sym S 1..%u buckets %u\n", s->prefill_seqs, s->prefill_seqs);
}

static void put_graph_inputs(const struct npugraph__family_run *run, struct ngd_strbuf *sb)
{
    const bool prefill = run->prefill, headless = run->ck->headless, mean = run->ck->pooling == NPUGRAPH_POOLING_MEAN;
    const struct npugraph__shape *s = run->shape;
    const char *rows = prefill ? "T" : "B", *seqs = !prefill ? "B" : s->prefill_seqs > 1 ? "S" : "1";

    put("  input %%tokens : i32[%s]\n  input %%positions : i32[%s]\n  input %%slots : i32[%s]\n", rows, rows, rows);
    put("  input %%block_table : i32[%s,%u]\n", seqs, s->table_blocks);
    for (uint32_t g = 1; g < s->groups.n; g++)
        put("  input %%slots.%u : i32[%s]\n  input %%block_table.%u : i32[%s,%u]\n", g, rows, g, seqs, s->table_blocks);
    if (prefill && !(headless && mean))
        put("  input %%logits_rows : i32[%s]\n", seqs);
    put("  host %%query_lens : i64[%s]\n  host %%context_lens : i64[%s]\n", seqs, seqs);
    if (headless)
        return;
    put("  input %%temperature : f32[%s]\n  input %%top_k : i32[%s]\n  input %%top_p : f32[%s]\n", seqs, seqs, seqs);
    put("  input %%seed : i64[%s]\n  input %%offset : i64[%s]\n", seqs, seqs);
}

static void put_part(struct ngd_strbuf *sb, const struct ngd_strbuf *part)
{
    ngd_strbuf_append_n(sb, ngd_strbuf_str(part), part->len);
    sb->failed |= part->failed;
}

/* Hidden states are those of prompts. */
static void put_graph_results(const struct npugraph__family_run *run, struct ngd_strbuf *sb)
{
    if (run->ck->headless) {
        put("  return \"hidden\" = %s\n}\n", run->hidden);
        return;
    }
    put("  %%token = npu.top_k_top_p_sample(%s, %%temperature, %%top_k, %%top_p, %%seed, %%offset)\n", run->logits);
    put("  return \"token\" = %%token, \"logits\" = %s", run->logits);
    if (run->prefill && run->hidden[0] != '\0')
        put(", \"hidden\" = %s", run->hidden);
    put("\n}\n");
}

static void put_decoder_graph(const struct npugraph__family_run *run, const char *name, struct ngd_strbuf *sb)
{
    put_graph_head(run->shape, name, run->prefill, sb);
    put_part(sb, &run->params);
    put_part(sb, &run->states);
    put_graph_inputs(run, sb);
    put_part(sb, &run->nodes);
    put_graph_results(run, sb);
}

static void put_made_graph(const struct npugraph__family_run *run, const char *name, struct ngd_strbuf *sb)
{
    put("npugraph 1\ngraph ");
    ngd_strbuf_json_string(sb, name);
    put(" {\n");
    put_part(sb, &run->made_params);
    put_part(sb, &run->made_states);
    put_part(sb, &run->made_nodes);
    put("}\n");
}

/* Runs the family and has put() write a graph of what it made. */
static int write_graph(struct npugraph__family_run *run, const char *name,
                       void (*put_graph)(const struct npugraph__family_run *, const char *, struct ngd_strbuf *),
                       struct ngd_strbuf *sb)
{
    struct ngd_strbuf *const parts[] = {&run->params,      &run->states,      &run->nodes,
                                        &run->made_params, &run->made_states, &run->made_nodes};
    const size_t n = sizeof(parts) / sizeof(parts[0]);
    int rc;

    for (size_t i = 0; i < n; i++)
        ngd_strbuf_init(parts[i]);
    rc = npugraph__family_run(run);
    if (rc == 0)
        put_graph(run, name, sb);
    if (rc == 0 && sb->failed)
        rc = npugraph__error(run->err, 8, "NO_MEMORY", "out of memory");
    for (size_t i = 0; i < n; i++)
        ngd_strbuf_fini(parts[i]);
    return rc;
}

int npugraph__checkpoint_graph(const struct npugraph__checkpoint *ck, const struct npugraph__shape *shape,
                               const char *name, bool prefill, struct ngd_strbuf *sb, struct npugraph_error *err)
{
    struct npugraph__checkpoint copy = *ck; /* a run with a shape adds nothing to it */
    struct npugraph__family_run run = {.ck = &copy, .shape = shape, .prefill = prefill, .err = err};

    return write_graph(&run, name, put_decoder_graph, sb);
}

int npugraph__checkpoint_made_graph(const struct npugraph__checkpoint *ck, const char *name, struct ngd_strbuf *sb,
                                    struct npugraph_error *err)
{
    static const struct npugraph__shape any = {.max_context = 1, .block_size = 1, .num_blocks = 1, .kv_dtype = "f32"};
    struct npugraph__checkpoint copy = *ck;
    struct npugraph__family_run run = {.ck = &copy, .shape = &any, .err = err};

    return write_graph(&run, name, put_made_graph, sb);
}
