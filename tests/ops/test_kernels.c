/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What holds for every kernel beside its numbers (test_ops.c): results do not depend on the number of parts, nor on
 * rows that are only padding, nor on the strides of operands; nothing is written outside results; bad indices end a
 * replay with INDEX_RANGE and harm nothing; empty tensors are fine.
 */
#include "devices/host/k_elementwise.h"
#include "tests/ops/each_isa.h"
#include "tests/ops/direct.h"
#include "tests/ops/golden.h"
#include "tests/unit/unit.h"
#include <ctype.h>

static uint64_t rng_state = 88172645463325252u;

static uint64_t rng(void)
{
    rng_state ^= rng_state << 13;
    rng_state ^= rng_state >> 7;
    rng_state ^= rng_state << 17;
    return rng_state >> 11;
}

/* ---- parts ---- */

#define THREADS 4

static char *case_memory(const struct golden_case *c, const struct direct *d, uint32_t i)
{
    uint32_t n_inputs = 0, n_states = d->plan->graph->n_params;

    for (uint32_t k = 0; k < i; k++) {
        n_inputs += golden_class(c, k, false) == GOLDEN_INPUT;
        n_states += golden_class(c, k, false) == GOLDEN_STATE;
    }
    return golden_class(c, i, false) == GOLDEN_STATE ? d->bound[n_states] : direct_input(d, n_inputs);
}

/* Runs a case and gives what it made, one result (or written operand) after the other. */
static void run_in_parts(const struct golden_case *c, const struct ngd_plan *plan, ngd_isa_t isa, uint32_t parts,
                         struct ngd_strbuf *made)
{
    struct ngd_host_value hosts[GOLDEN_MAX];
    uint32_t n_hosts = 0;
    struct direct d;

    direct_open(&d, plan, isa, THREADS);
    for (uint32_t i = 0; i < c->n_in; i++) {
        if (golden_class(c, i, false) == GOLDEN_HOST)
            hosts[n_hosts++] =
                (struct ngd_host_value){(const int64_t *)(const void *)c->in[i].data, (uint32_t)(c->in[i].bytes / 8)};
        else if (c->in[i].bytes)
            memcpy(case_memory(c, &d, i), c->in[i].data, c->in[i].bytes);
    }
    ck_assert_msg(direct_run(&d, NULL, hosts, parts) == NGD_OK, "%s", c->name);
    ck_assert_msg(direct_guards_intact(&d), "%s writes outside the pool", c->name);
    for (uint32_t i = 0; i < c->n_out; i++)
        ngd_strbuf_append_n(made, direct_output(&d, i), c->out[i].bytes);
    for (uint32_t i = 0; i < c->n_in; i++)
        if (c->op->mutates >> i & 1)
            ngd_strbuf_append_n(made, case_memory(c, &d, i), c->in[i].bytes);
    direct_close(&d);
}

static void check_parts(const struct golden_case *c, struct bench *b, ngd_isa_t isa)
{
    static const uint32_t parts[] = {2, 3, 7, 16};
    struct ngd_strbuf text, one, many;
    struct ngd_diag diag = {0};
    struct ready r = {0};

    ngd_strbuf_init(&text);
    golden_print(&text, c, false);
    if (ready_plan(&r, b, ngd_strbuf_str(&text), NULL, &diag) ==
        NGD_OK) { /* what cannot be planned is test_ops.c's affair */
        ngd_strbuf_init(&one);
        run_in_parts(c, r.plan, isa, 1, &one);
        for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
            ngd_strbuf_init(&many);
            run_in_parts(c, r.plan, isa, parts[i], &many);
            ck_assert_msg(many.len == one.len && (!one.len || memcmp(many.data, one.data, one.len) == 0),
                          "%s on %s: %u parts give another result than one", c->name, ngd_isa_name(isa), parts[i]);
            ngd_strbuf_fini(&many);
        }
        ngd_strbuf_fini(&one);
    }
    ready_close(&r);
    ngd_strbuf_fini(&text);
}

START_TEST(every_golden_case_cut_into_parts_gives_the_same_bits)
{
    struct golden g;

    golden_open(&g);
    EACH_ISA (isa) {
        struct bench b;

        bench_open(&b, (ngd_isa_t)isa, THREADS);
        for (size_t i = 0; i < json_array_size(g.cases); i++) {
            struct golden_case c = golden_case(&g, i);

            if (c.op)
                check_parts(&c, &b, (ngd_isa_t)isa);
        }
        bench_close(&b);
    }
    golden_close(&g);
}
END_TEST

/* ---- graphs of one operator, made for the purpose ---- */

/*
 * Inputs and the node of a graph, for every operator that can meet a bucketed symbol B. Integer inputs hold 0, 1 or 2.
 * Elementwise operators are not listed: elementwise() writes theirs.
 */
static const struct {
    ngd_op_id_t op;
    const char *text;
} row_cases[] = {
    {NGD_OP_ATEN_EMBEDDING, "input %w : f32[3,5]\ninput %x : i32[B]\n%y = aten.embedding(%w, %x)"},
    {NGD_OP_ATEN_EMBEDDING, "input %w : bf16[3,5]\ninput %x : i64[B,2]\n%y = aten.embedding(%w, %x)"},
    {NGD_OP_ATEN_LAYER_NORM, "input %x : f32[B,37]\ninput %w : f32[37]\ninput %b : bf16[37]\n%y = aten.layer_norm(%x, "
                             "%w, %b) {normalized_shape=[37]}"},
    {NGD_OP_ATEN_LAYER_NORM, "input %x : f16[B,3,5]\n%y = aten.layer_norm(%x) {normalized_shape=[3,5]}"},
    {NGD_OP_NPU_RMS_NORM, "input %x : f32[B,70]\ninput %g : bf16[70]\n%y, %z = npu.rms_norm(%x, %g)"},
    {NGD_OP_NPU_RMS_NORM, "input %x : bf16[B,3,16]\ninput %g : bf16[16]\n%y, %z = npu.rms_norm(%x, %g)"},
    {NGD_OP_NPU_ADD_RMS_NORM,
     "input %x : f32[B,70]\ninput %x2 : f32[B,70]\ninput %g : f32[70]\n%y, %z, %s = npu.add_rms_norm(%x, %x2, %g)"},
    {NGD_OP_NPU_ADD_RMS_NORM,
     "input %x : f16[B,33]\ninput %x2 : f16[B,33]\ninput %g : f16[33]\n%y, %z, %s = npu.add_rms_norm(%x, %x2, %g)"},
    {NGD_OP_NPU_ADD_RMS_NORM_CAST, "input %x : bf16[B,33]\ninput %x2 : bf16[B,33]\ninput %g : bf16[33]\n"
                                   "%y, %n, %z, %s = npu.add_rms_norm_cast(%x, %x2, %g)"},
    {NGD_OP_NPU_ADD_RMS_NORM_QUANT,
     "input %x : f32[B,33]\ninput %x2 : f32[B,33]\ninput %g : f32[33]\ninput %c : f32[33]\ninput %d : f32[1]\n"
     "%y, %n, %s = npu.add_rms_norm_quant(%x, %x2, %g, %c, none, none, %d)"},
    {NGD_OP_NPU_ADD_RMS_NORM_QUANT,
     "input %x : f16[B,2,9]\ninput %x2 : f16[B,2,9]\ninput %g : f16[9]\ninput %c : f32[9]\n"
     "%y, %n, %s = npu.add_rms_norm_quant(%x, %x2, %g, %c)"},
    {NGD_OP_NPU_ADD_RMS_NORM_DYNAMIC_QUANT,
     "input %x : f32[B,33]\ninput %x2 : f32[B,33]\ninput %g : f32[33]\n"
     "%y, %n, %s, %a, %b = npu.add_rms_norm_dynamic_quant(%x, %x2, %g) {output_mask=[1,1]}"},
    {NGD_OP_NPU_QUANTIZE, "input %x : f32[B,3,19]\ninput %c : f32[19]\n%y = npu.quantize(%x, %c) {axis=-1}"},
    {NGD_OP_NPU_QUANTIZE, "input %x : bf16[B,3,19]\ninput %c : f32[3]\n%y = npu.quantize(%x, %c) {dtype=u8}"},
    {NGD_OP_NPU_DYNAMIC_QUANT, "input %x : bf16[B,3,19]\ninput %c : f32[19]\n%y, %s = npu.dynamic_quant(%x, %c)"},
    {NGD_OP_NPU_SWIGLU_QUANT, "input %x : f32[B,38]\n%y, %s = npu.swiglu_quant(%x) {quant_mode=1}"},
    {NGD_OP_NPU_TRANSPOSE_BATCHMATMUL,
     "input %x : f32[B,3,16]\ninput %w : bf16[3,16,20]\n%y = npu.transpose_batchmatmul(%x, %w) {perm_x1=[1,0,2]}"},
    {NGD_OP_NGD_MULTI_LINEAR, "input %x : f32[B,70]\ninput %w : bf16[33,70]\ninput %v : bf16[16,70]\n"
                              "%y, %z = ngd.multi_linear(%x, %w, %v) {sizes=[33,16]}"},
    {NGD_OP_NGD_RMS_NORM_LINEAR,
     "input %x : f32[B,2,70]\ninput %g : f32[70]\ninput %w : f16[33,70]\ninput %c : f32[33]\n"
     "%y = ngd.rms_norm_linear(%x, %g, %w, %c) {sizes=[33]}"},
    {NGD_OP_NGD_LINEAR_ADD, "input %x : bf16[B,70]\ninput %w : bf16[33,70]\ninput %r : bf16[B,33]\n"
                            "%y = ngd.linear_add(%x, %w, %r)"},
    {NGD_OP_NGD_LINEAR_SWIGLU, "input %x : f32[B,70]\ninput %w : bf16[33,70]\ninput %v : bf16[33,70]\n"
                               "%y = ngd.linear_swiglu(%x, %w, %v)"},
    {NGD_OP_NGD_RMS_NORM_LINEAR_SWIGLU, "input %x : f16[B,70]\ninput %g : f16[70]\ninput %w : f16[33,70]\n"
                                        "%y = ngd.rms_norm_linear_swiglu(%x, %g, %w, %w)"},
    {NGD_OP_NGD_QK_NORM_ROPE_SCATTER,
     "input %q : f32[B,4,16]\ninput %k : f32[B,2,16]\ninput %c : f32[B,16]\ninput %l : i32[B]\ninput %g : f32[16]\n"
     "state %a : bf16[2,4,2,16]\nstate %b : bf16[2,4,2,16]\n"
     "%y = ngd.qk_norm_rope_scatter(%q, %k, %k, %c, %c, %l, %a, %b, %g, %g)"},
    {NGD_OP_ATEN__SOFTMAX, "input %x : f32[B,3,19]\n%y = aten._softmax(%x) {dim=-1}"},
    {NGD_OP_ATEN__SOFTMAX, "input %x : bf16[B,3,19]\n%y = aten._softmax(%x) {dim=1, half_to_float=true}"},
    {NGD_OP_ATEN__LOG_SOFTMAX, "input %x : f32[B,19]\n%y = aten._log_softmax(%x) {dim=1}"},
    {NGD_OP_NPU_ROTARY_MUL,
     "input %x : f32[B,3,16]\ninput %c : f32[B,1,16]\ninput %s : f32[B,16]\n%y = npu.rotary_mul(%x, %c, %s)"},
    {NGD_OP_NPU_ROTARY_MUL,
     "input %x : bf16[B,2,20]\ninput %c : f32[B,1,20]\ninput %s : bf16[B,1,20]\n%y = npu.rotary_mul(%x, %c, %s)"},
    {NGD_OP_NPU_SWIGLU, "input %x : f32[B,66]\n%y = npu.swiglu(%x)"},
    {NGD_OP_NPU_SWIGLU, "input %x : f32[B,4,5]\n%y = npu.swiglu(%x) {dim=1}"},
    {NGD_OP_ATEN_SUM, "input %x : f32[B,3,37]\n%y = aten.sum.dim_IntList(%x) {dim=[2]}"},
    {NGD_OP_ATEN_SUM, "input %x : f32[B,37,5]\n%y = aten.sum.dim_IntList(%x) {dim=[1]}"},
    {NGD_OP_ATEN_SUM, "input %x : i32[B,3,4]\n%y = aten.sum.dim_IntList(%x) {dim=[1,2], keepdim=true}"},
    {NGD_OP_ATEN_MEAN, "input %x : bf16[B,3,37]\n%y = aten.mean.dim(%x) {dim=[-1]}"},
    {NGD_OP_ATEN_AMAX, "input %x : f32[B,3,37]\n%y = aten.amax(%x) {dim=[1]}"},
    {NGD_OP_ATEN_AMIN, "input %x : f16[B,37]\n%y = aten.amin(%x) {dim=[1]}"},
    {NGD_OP_ATEN_ANY_DIM, "input %x : f32[B,3,37]\n%y = aten.any.dim(%x) {dim=1, keepdim=true}"},
    {NGD_OP_ATEN_ANY_DIMS, "input %x : bool[B,3,2]\n%y = aten.any.dims(%x) {dim=[1,2]}"},
    {NGD_OP_ATEN_ALL_DIM, "input %x : i64[B,3]\n%y = aten.all.dim(%x) {dim=-1}"},
    {NGD_OP_ATEN_ALL_DIMS, "input %x : u8[B,3,2]\n%y = aten.all.dims(%x) {dim=[2]}"},
    {NGD_OP_ATEN_PROD, "input %x : f32[B,7]\n%y = aten.prod.dim_int(%x) {dim=1}"},
    {NGD_OP_ATEN_ARGMAX, "input %x : f32[B,67]\n%y = aten.argmax(%x) {dim=-1}"},
    {NGD_OP_ATEN_ARGMIN, "input %x : bf16[B,7,3]\n%y = aten.argmin(%x) {dim=1}"},
    {NGD_OP_ATEN_TOPK, "input %x : f32[B,67]\n%y, %i = aten.topk(%x) {k=5}"},
    {NGD_OP_ATEN_TOPK, "input %x : f16[B,9,3]\n%y, %i = aten.topk(%x) {k=4, dim=1, largest=false}"},
    {NGD_OP_ATEN_CUMSUM, "input %x : f32[B,5,3]\n%y = aten.cumsum(%x) {dim=1}"},
    {NGD_OP_ATEN_CAT, "input %x : f32[B,5]\ninput %z : f32[B,3]\n%y = aten.cat(%x, %z, %x) {dim=1}"},
    {NGD_OP_ATEN_GATHER, "input %x : f32[B,5]\ninput %i : i64[B,7]\n%y = aten.gather(%x, %i) {dim=1}"},
    {NGD_OP_ATEN_INDEX_SELECT, "input %x : f32[3,5]\ninput %i : i32[B]\n%y = aten.index_select(%x, %i) {dim=0}"},
    {NGD_OP_ATEN_INDEX_SELECT, "input %x : f32[B,5,2]\ninput %i : i32[4]\n%y = aten.index_select(%x, %i) {dim=1}"},
    {NGD_OP_ATEN_INDEX_TENSOR, "input %x : f32[3,5]\ninput %i : i64[B,2]\n%y = aten.index.Tensor(%x, %i)"},
    {NGD_OP_ATEN_SCATTER_SRC,
     "input %x : f32[B,5]\ninput %i : i64[B,2]\ninput %s : f32[B,3]\n%y = aten.scatter.src(%x, %i, %s) {dim=1}"},
    {NGD_OP_ATEN_SCATTER_VALUE,
     "input %x : f32[B,5]\ninput %i : i64[B,2]\n%y = aten.scatter.value(%x, %i) {dim=1, value=3}"},
    {NGD_OP_ATEN_SCATTER_ADD,
     "input %x : bf16[B,5]\ninput %i : i32[B,4]\ninput %s : bf16[B,4]\n%y = aten.scatter_add(%x, %i, %s) {dim=1}"},
    {NGD_OP_ATEN_INDEX_COPY,
     "input %x : f32[B,5,2]\ninput %i : i64[2]\ninput %s : f32[B,2,2]\n%y = aten.index_copy(%x, %i, %s) {dim=1}"},
    {NGD_OP_ATEN_INDEX_COPY,
     "input %x : u8[B,5]\ninput %i : i32[3]\ninput %s : u8[B,3]\n%y = aten.index_copy(%x, %i, %s) {dim=-1}"},
    {NGD_OP_ATEN_SLICE_SCATTER,
     "input %x : f32[B,9]\ninput %s : f32[B,3]\n%y = aten.slice_scatter(%x, %s) {dim=1, start=2, end=7, step=2}"},
    {NGD_OP_ATEN_SELECT_SCATTER,
     "input %x : f32[B,5,2]\ninput %s : f32[B,2]\n%y = aten.select_scatter(%x, %s) {dim=1, index=3}"},
    {NGD_OP_ATEN_CONSTANT_PAD_ND, "input %x : f32[B,5]\n%y = aten.constant_pad_nd(%x) {pad=[2, 1], value=7}"},
    {NGD_OP_ATEN_FULL_LIKE, "input %x : f32[B,5]\n%y = aten.full_like(%x) {fill_value=2.5, dtype=bf16}"},
    {NGD_OP_ATEN_ZEROS_LIKE, "input %x : bf16[B,5]\n%y = aten.zeros_like(%x)"},
    {NGD_OP_ATEN_ONES_LIKE, "input %x : i32[B,5]\n%y = aten.ones_like(%x)"},
    {NGD_OP_ATEN_NEW_FULL, "input %x : f32[B,5]\n%y = aten.new_full(%x) {size=[B,3], fill_value=-1}"},
    {NGD_OP_ATEN_NEW_ZEROS, "input %x : f16[B]\n%y = aten.new_zeros(%x) {size=[2*B,3]}"},
    {NGD_OP_ATEN_NEW_ONES, "input %x : u8[B,2]\n%y = aten.new_ones(%x) {size=[B]}"},
    {NGD_OP_ATEN_CLONE, "input %x : f32[B,5,7]\n%v = aten.permute(%x) {dims=[0,2,1]}\n%y = aten.clone(%v)"},
    {NGD_OP_ATEN_CLONE, "input %x : bf16[B,20,18]\n%v = aten.transpose.int(%x) {dim0=1, dim1=2}\n%y = aten.clone(%v)"},
    {NGD_OP_ATEN_ADD_TENSOR,
     "input %x : f32[B,4,6]\ninput %z : f32[6]\n%v = aten.view(%x) {size=[B*4,6]}\n%y = aten.add.Tensor(%v, %z)"},
    {NGD_OP_ATEN_MUL_TENSOR, "input %x : f32[B,1,6]\ninput %z : f32[B,4,1]\n%y = aten.mul.Tensor(%x, %z)"},
};

/* Whose rows end up in something that has none: compared with a plan of so many rows. */
static const struct {
    ngd_op_id_t op;
    const char *text;
} sink_cases[] = {
    {NGD_OP_ATEN_INDEX_PUT,
     "input %x : f32[3,5]\ninput %i : i64[B]\ninput %s : f32[B,5]\n%y = aten.index_put(%x, %i, %s) {accumulate=true}"},
    {NGD_OP_ATEN_INDEX_PUT,
     "input %x : i32[3,5]\ninput %i : i32[B,2]\ninput %s : i32[B,2,5]\n%y = aten.index_put(%x, %i, %s)"},
    {NGD_OP_ATEN_INDEX_COPY,
     "input %x : f32[3,5]\ninput %i : i64[B]\ninput %s : f32[B,5]\n%y = aten.index_copy(%x, %i, %s) {dim=0}"},
};

/* Of kernels_basic.def, those whose operands cannot carry a bucketed symbol, or carry no rows. */
static const ngd_op_id_t rowless[] = {NGD_OP_ATEN_TRIL,         NGD_OP_ATEN_TRIU,
                                      NGD_OP_ATEN_COPY_,        NGD_OP_ATEN_FULL,
                                      NGD_OP_ATEN_ARANGE,       NGD_OP_ATEN_ARANGE_DEFAULT,
                                      NGD_OP_ATEN_ARANGE_START, NGD_OP_ATEN_ZEROS,
                                      NGD_OP_ATEN_ONES,         NGD_OP_ATEN_SCALAR_TENSOR,
                                      NGD_OP_ATEN_SUM_DEFAULT,  NGD_OP_ATEN_MEAN_DEFAULT,
                                      NGD_OP_ATEN_MAX,          NGD_OP_ATEN_MIN,
                                      NGD_OP_ATEN_ANY,          NGD_OP_ATEN_ALL};

static const char *attrs_of(const struct ngd_op *op)
{
    if (ngd_op_attr_index(op, "other", 5) >= 0)
        return " {other=0.5}";
    if (ngd_op_attr_index(op, "exponent", 8) >= 0)
        return " {exponent=1.5}";
    if (op->id == NGD_OP_ATEN_TO_COPY)
        return " {dtype=bf16}";
    if (op->id == NGD_OP_ATEN_MASKED_FILL_SCALAR)
        return " {value=1}";
    return op->id == NGD_OP_ATEN_CLAMP ? " {min=-0.5, max=0.75}" : "";
}

static bool takes_integers_only(const struct ngd_op *op)
{
    return strstr(op->name, "bitwise") != NULL;
}

/* An elementwise operator of operands of that shape; the last one is broadcast over dimension 1 when it says so. */
static void elementwise(struct ngd_strbuf *sb, const struct ngd_op *op, const char *dtype, const char *shape,
                        const char *last)
{
    for (uint32_t i = 0; i < op->min_in; i++) {
        bool condition = i == (op->id == NGD_OP_ATEN_WHERE_SELF           ? 0u
                               : op->id == NGD_OP_ATEN_MASKED_FILL_SCALAR ? 1u
                                                                          : UINT32_MAX);

        ngd_strbuf_printf(sb, "input %%x%u : %s[%s]\n", i,
                          condition                 ? "bool"
                          : takes_integers_only(op) ? "i32"
                                                    : dtype,
                          i && i + 1 == op->min_in ? last : shape);
    }
    ngd_strbuf_printf(sb, "%%y = %s(", op->name);
    for (uint32_t i = 0; i < op->min_in; i++)
        ngd_strbuf_printf(sb, "%s%%x%u", i ? ", " : "", i);
    ngd_strbuf_printf(sb, ")%s", attrs_of(op));
}

static void fill_random(ngd_dtype_t t, char *p, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        float f = (float)((double)(rng() % 4000001) / 1e6 - 2);
        uint16_t half = t == NGD_F16 ? ngd_f32_to_f16(f) : ngd_f32_to_bf16(f);
        int64_t v = (int64_t)(rng() % (t == NGD_BOOL ? 2 : 3));

        if (t == NGD_F32)
            memcpy(p + 4 * i, &f, 4);
        else if (ngd_dtype_is_float(t))
            memcpy(p + 2 * i, &half, 2);
        else
            memcpy(p + ngd_dtype_bytes(t) * i, &v, ngd_dtype_bytes(t));
    }
}

/* ---- replays of such a graph ---- */

#define MAX_IO 8

struct io {
    struct ngd_span in[MAX_IO];
    struct ngd_out out[MAX_IO];
    char *in_room[MAX_IO], *out_room[MAX_IO];
    uint32_t n_in, n_out;
};

static void io_open(struct io *io, const struct ready *r)
{
    memset(io, 0, sizeof(*io));
    io->n_in = r->graph->n_inputs;
    io->n_out = r->graph->n_outputs;
    ck_assert(io->n_in <= MAX_IO && io->n_out <= MAX_IO);
    for (uint32_t i = 0; i < io->n_in; i++) {
        io->in_room[i] = calloc(1, r->plan->inputs[i].bytes + 1);
        io->in[i] = (struct ngd_span){io->in_room[i], r->plan->inputs[i].bytes};
    }
    for (uint32_t i = 0; i < io->n_out; i++) {
        io->out_room[i] = calloc(1, r->plan->outputs[i].bytes + 1);
        io->out[i] = (struct ngd_out){io->out_room[i], r->plan->outputs[i].bytes};
    }
}

static void io_close(struct io *io)
{
    for (uint32_t i = 0; i < MAX_IO; i++) {
        free(io->in_room[i]);
        free(io->out_room[i]);
    }
}

static void io_randomize(struct io *io, const struct ready *r)
{
    for (uint32_t i = 0; i < io->n_in; i++) {
        ngd_dtype_t t = r->graph->values[r->graph->inputs[i]].type.dtype;

        fill_random(t, io->in_room[i], r->plan->inputs[i].bytes / ngd_dtype_bytes(t));
    }
}

static ngd_status_t replay(struct bench *b, const struct ready *r, struct io *io, const int64_t *symbols, bool eager,
                           struct ngd_diag *diag_p)
{
    struct ngd_launch launch = {.symbols = symbols, .inputs = io->in, .outputs = io->out, .eager = eager};
    ngd_status_t status = ngd_stream_run(b->stream, r->inst, &launch);

    if (diag_p)
        *diag_p = launch.diag;
    return status;
}

static void open_or_abort(struct ready *r, struct bench *b, const char *text, const int64_t *symbols)
{
    struct ngd_diag diag = {0};

    if (ready_open(r, b, text, symbols, &diag))
        ck_abort_msg("%s\n%s", diag.text, text);
}

/* ---- rows ---- */

#define BUCKET 8

/* Bytes of an input or output at `rows`. */
static uint64_t io_bytes(const struct ngd_plan_io *io, int64_t rows)
{
    return io->row_sym == NGD_NO_ROW_SYM ? io->bytes : io->row_bytes * (uint64_t)(rows * io->row_mult);
}

/*
 * At the bucket with random inputs first, for reference; then with inputs of 0xff only (NaN, indices of -1), which the
 * pool keeps; then with the first `rows` rows alone: nothing of the padding may be seen.
 */
static void check_rows(struct bench *b, const struct ready *r, int64_t rows, bool eager, const char *text)
{
    const int64_t full = BUCKET;
    struct io all, some, poison;
    struct ngd_diag diag = {0};

    io_open(&all, r);
    io_open(&some, r);
    io_open(&poison, r);
    io_randomize(&all, r);
    if (replay(b, r, &all, &full, eager, &diag))
        ck_abort_msg("%s\n%s", diag.text, text);
    for (uint32_t i = 0; i < poison.n_in; i++)
        memset(poison.in_room[i], 0xff, poison.in[i].bytes);
    (void)replay(b, r, &poison, &full, eager, NULL);
    for (uint32_t i = 0; i < some.n_in; i++) {
        some.in[i].bytes = io_bytes(&r->plan->inputs[i], rows);
        memcpy(some.in_room[i], all.in_room[i], some.in[i].bytes);
    }
    for (uint32_t i = 0; i < some.n_out; i++) {
        some.out[i].bytes = io_bytes(&r->plan->outputs[i], rows);
        memset(some.out_room[i], 0x5a, r->plan->outputs[i].bytes);
    }
    if (replay(b, r, &some, &rows, eager, &diag))
        ck_abort_msg("%lld rows: %s\n%s", (long long)rows, diag.text, text);
    for (uint32_t i = 0; i < some.n_out; i++) {
        uint64_t bytes = some.out[i].bytes;

        ck_assert_msg(memcmp(some.out_room[i], all.out_room[i], bytes) == 0,
                      "%lld of %d rows on %s differ in output %u\n%s", (long long)rows, BUCKET, b->name, i, text);
        for (; bytes < r->plan->outputs[i].bytes; bytes++)
            if (some.out_room[i][bytes] != 0x5a)
                ck_abort_msg("padding was copied out\n%s", text);
    }
    io_close(&all);
    io_close(&some);
    io_close(&poison);
}

static void check_body_rows(struct bench *b, const char *body)
{
    const int64_t full = BUCKET;
    struct ngd_strbuf text;
    struct ready r;

    ngd_strbuf_init(&text);
    run_text(&text, "sym B 0..8 buckets 8\n", body);
    open_or_abort(&r, b, ngd_strbuf_str(&text), &full);
    for (int64_t rows = 0; rows <= BUCKET; rows += rows ? 3 : 1) {
        check_rows(b, &r, rows, false, ngd_strbuf_str(&text));
        check_rows(b, &r, rows, true, ngd_strbuf_str(&text));
    }
    ready_close(&r);
    ngd_strbuf_fini(&text);
}

static void check_elementwise_rows(struct bench *b, const struct ngd_op *op, const char *dtype, const char *last)
{
    struct ngd_strbuf body;

    ngd_strbuf_init(&body);
    elementwise(&body, op, dtype, "B,21", last);
    check_body_rows(b, ngd_strbuf_str(&body));
    ngd_strbuf_fini(&body);
}

/* The plan for the bucket, with padding of 0xff, and one for exactly these rows. */
static void check_sink(struct bench *b, const struct ready *padded, const char *body, int64_t rows)
{
    const int64_t full = BUCKET;
    struct io poison, some, want;
    struct ready exact;
    struct ngd_strbuf text;
    struct ngd_diag diag = {0};

    ngd_strbuf_init(&text);
    run_text(&text, "sym B 0..8\n", body);
    open_or_abort(&exact, b, ngd_strbuf_str(&text), &rows);
    io_open(&poison, padded);
    io_open(&some, padded);
    io_open(&want, &exact);
    for (uint32_t i = 0; i < poison.n_in; i++)
        memset(poison.in_room[i], 0xff, poison.in[i].bytes);
    (void)replay(b, padded, &poison, &full, false, NULL);
    io_randomize(&want, &exact);
    for (uint32_t i = 0; i < some.n_in; i++) {
        some.in[i].bytes = want.in[i].bytes;
        memcpy(some.in_room[i], want.in_room[i], want.in[i].bytes);
    }
    if (replay(b, &exact, &want, &rows, false, &diag) || replay(b, padded, &some, &rows, false, &diag))
        ck_abort_msg("%lld rows: %s\n%s", (long long)rows, diag.text, body);
    ck_assert_msg(memcmp(some.out_room[0], want.out_room[0], want.out[0].bytes) == 0,
                  "%lld of %d rows are not what %lld rows are\n%s", (long long)rows, BUCKET, (long long)rows, body);
    io_close(&poison);
    io_close(&some);
    io_close(&want);
    ready_close(&exact);
    ngd_strbuf_fini(&text);
}

START_TEST(rows_of_padding_go_nowhere)
{
    const int64_t full = BUCKET;
    struct bench b;

    bench_open(&b, ngd_cpu_isa(), 2);
    for (size_t i = 0; i < sizeof(sink_cases) / sizeof(sink_cases[0]); i++) {
        struct ngd_strbuf text;
        struct ready r;

        ngd_strbuf_init(&text);
        run_text(&text, "sym B 0..8 buckets 8\n", sink_cases[i].text);
        open_or_abort(&r, &b, ngd_strbuf_str(&text), &full);
        for (int64_t rows = 0; rows <= BUCKET; rows++)
            check_sink(&b, &r, sink_cases[i].text, rows);
        ready_close(&r);
        ngd_strbuf_fini(&text);
    }
    bench_close(&b);
}
END_TEST

static bool is_elementwise(const struct ngd_op *op)
{
    return (op->flags & NGD_OPF_ELEMENTWISE) && ngd_host_kernel_of(op->id) != NULL;
}

START_TEST(rows_of_a_bucket_that_are_padding_are_invisible)
{
    EACH_ISA (isa) {
        struct bench b;

        bench_open(&b, (ngd_isa_t)isa, 2);
        for (size_t i = 0; i < sizeof(row_cases) / sizeof(row_cases[0]); i++)
            check_body_rows(&b, row_cases[i].text);
        for (int id = 0; id < NGD_OP_MAX; id++) {
            const struct ngd_op *op = ngd_op_by_id((ngd_op_id_t)id);

            if (!is_elementwise(op))
                continue;
            check_elementwise_rows(&b, op, "f32", "B,21");
            check_elementwise_rows(&b, op, "bf16", "21");
        }
        bench_close(&b);
    }
}
END_TEST

START_TEST(every_operator_that_can_meet_a_bucketed_symbol_is_tested_with_padding)
{
    bool tested[NGD_OP_MAX] = {false};

#define NGD_HOST_KERNEL(OP, symbol) tested[NGD_OP_##OP] = true; /* to be found below */
#include "devices/host/kernels_core.def"
#undef NGD_HOST_KERNEL
    for (size_t i = 0; i < sizeof(row_cases) / sizeof(row_cases[0]); i++)
        tested[row_cases[i].op] = true;
    for (size_t i = 0; i < sizeof(sink_cases) / sizeof(sink_cases[0]); i++)
        tested[sink_cases[i].op] = true;
    for (size_t i = 0; i < sizeof(rowless) / sizeof(rowless[0]); i++)
        tested[rowless[i]] = true;
    for (int id = 0; id < NGD_OP_MAX; id++) {
        const struct ngd_op *op = ngd_op_by_id((ngd_op_id_t)id);

        if (ngd_host_kernel_of(op->id) && !tested[id] && !is_elementwise(op) && !(op->flags & NGD_OPF_COLLECTIVE))
            ck_abort_msg("%s has no row in row_cases[]", op->name);
    }
}
END_TEST

/*
 * When x itself has padded rows, an index into them is as bad as one behind the tensor. The plan is made with fixed
 * sizes and x's rows declared afterwards, so that this holds whatever graphs validation lets through.
 */
START_TEST(an_index_into_padded_rows_fails_and_one_from_the_end_counts_actual_rows)
{
    static const int64_t good[] = {0, 2, -1}, bad[] = {0, 3, 1}, symbols[] = {3};
    struct ngd_strbuf text;
    struct ngd_diag diag = {0};
    struct ready r = {0};
    struct direct d;
    struct bench b;

    ngd_strbuf_init(&text);
    run_text(&text, "", "input %x : f32[8,4]\ninput %i : i64[3]\n%y = aten.index.Tensor(%x, %i)");
    bench_open(&b, ngd_cpu_isa(), 1);
    ck_assert_int_eq(ready_plan(&r, &b, ngd_strbuf_str(&text), NULL, &diag), NGD_OK);
    r.plan->tensors[r.plan->inputs[0].tensor].row_sym = 0;
    r.plan->tensors[r.plan->inputs[0].tensor].row_mult = 1;
    direct_open(&d, r.plan, ngd_cpu_isa(), 1);
    fill_random(NGD_F32, direct_input(&d, 0), 32);
    memcpy(direct_input(&d, 1), bad, sizeof(bad));
    ck_assert_int_eq(direct_run(&d, symbols, NULL, 1), NGD_ERR_INDEX_RANGE);
    memcpy(direct_input(&d, 1), good, sizeof(good));
    ck_assert_int_eq(direct_run(&d, symbols, NULL, 1), NGD_OK);
    ck_assert_mem_eq(direct_output(&d, 0) + 16, direct_input(&d, 0) + 32, 16);
    ck_assert_mem_eq(direct_output(&d, 0) + 32, direct_input(&d, 0) + 32, 16);
    direct_close(&d);
    ready_close(&r);
    bench_close(&b);
    ngd_strbuf_fini(&text);
}
END_TEST

/* ---- strides ---- */

/* Makes %v, a tensor with strides, of a parameter %p; its shape is that of `shape`. */
static const struct {
    const char *input, *view, *shape;
} views[] = {
    {"[12,20]", "aten.t(%p)", "20,12"},
    {"[20,24]", "aten.slice.Tensor(%p) {dim=1, start=1, end=24, step=2}", "20,12"},
    {"[20,30]", "aten.slice.Tensor(%p) {dim=1, start=7, end=19}", "20,12"},
    {"[1,12]", "aten.expand(%p) {size=[20,12]}", "20,12"},
    {"[20,1]", "aten.expand(%p) {size=[20,12]}", "20,12"},
    {"[12,3,20]", "aten.permute(%p) {dims=[1,2,0]}", "3,20,12"},
    {"[20,4,12]", "aten.select.int(%p) {dim=1, index=2}", "20,12"},
};

/* %v in the place of %x; the other inputs are contiguous. */
static const struct {
    const char *others, *node;
    bool exact; /* bit for bit: no sum whose order depends on the way */
} strided_ops[] = {
    {"", "aten.exp(%v)", true},
    {"", "aten.gt.Scalar(%v) {other=0.25}", true},
    {"", "aten._to_copy(%v) {dtype=bf16}", true},
    {"", "aten._to_copy(%v) {dtype=i32}", true},
    {"", "aten.clone(%v)", true},
    {"input %z : f32[12]\n", "aten.add.Tensor(%v, %z) {alpha=2}", true},
    {"input %z : f32[20,1]\n", "aten.mul.Tensor(%z, %v)", true},
    {"input %z : f32[20,12]\n", "aten.lt.Tensor(%v, %z)", true},
    {"input %z : f32[1]\ninput %c : bool[20,1]\n", "aten.where.self(%c, %v, %z)", true},
    {"input %c : bool[12]\n", "aten.masked_fill.Scalar(%v, %c) {value=2}", true},
    {"", "aten.cat(%v, %v) {dim=-1}", true},
    {"", "aten._softmax(%v) {dim=-1}", true},
    {"", "aten._log_softmax(%v) {dim=0}", true},
    {"", "aten.layer_norm(%v) {normalized_shape=[12]}", true},
    {"", "aten.sum.dim_IntList(%v) {dim=[-1]}", false},
    {"", "aten.sum.dim_IntList(%v) {dim=[0]}", false},
    {"", "aten.mean.dim(%v)", false},
    {"", "aten.amax(%v) {dim=[0]}", true},
    {"", "aten.amin(%v) {dim=[-1]}", true},
    {"", "aten.mean(%v)", false},
    {"", "aten.max(%v)", true},
    {"", "aten.prod.dim_int(%v) {dim=-1}", false},
    {"", "aten.argmax(%v) {dim=-1}", true},
    {"", "aten.argmin(%v) {dim=0}", true},
    {"", "aten.cumsum(%v) {dim=0}", true},
    {"input %j : i64[2]\n", "aten.index_select(%v, %j) {dim=0}", true},
    {"input %j : i64[12]\n", "aten.index_copy(%v, %j, %v) {dim=-1}", true},
    {"", "npu.swiglu(%v)", true},
};

static void strided_text(struct ngd_strbuf *sb, size_t view, size_t op, bool copied)
{
    struct ngd_strbuf body;

    ngd_strbuf_init(&body);
    ngd_strbuf_printf(&body, "%sinput %%q : f32%s\n%%p = aten.neg(%%q)\n%%%s = %s\n%s%%y = %s", strided_ops[op].others,
                      views[view].input, copied ? "u" : "v", views[view].view, copied ? "%v = aten.clone(%u)\n" : "",
                      strided_ops[op].node);
    run_text(sb, "", ngd_strbuf_str(&body));
    ngd_strbuf_fini(&body);
}

static void check_close(const char *a, const char *b, uint64_t n, const char *text)
{
    for (uint64_t i = 0; i < n; i++) {
        double x = golden_value(NGD_F32, a, i), y = golden_value(NGD_F32, b, i);

        if (!(fabs(x - y) <= 1e-6 * (1 + fabs(y))))
            ck_abort_msg("element %llu is %.9g and %.9g\n%s", (unsigned long long)i, x, y, text);
    }
}

static void check_strided(struct bench *b, size_t view, size_t op)
{
    struct ngd_strbuf text[2];
    struct ready r[2];
    struct io io[2];

    for (int copied = 0; copied < 2; copied++) {
        ngd_strbuf_init(&text[copied]);
        strided_text(&text[copied], view, op, copied);
        open_or_abort(&r[copied], b, ngd_strbuf_str(&text[copied]), NULL);
        io_open(&io[copied], &r[copied]);
        if (copied) {
            for (uint32_t i = 0; i < io[0].n_in; i++)
                memcpy(io[1].in_room[i], io[0].in_room[i], io[0].in[i].bytes);
        } else {
            io_randomize(&io[0], &r[0]);
        }
        ck_assert_int_eq(replay(b, &r[copied], &io[copied], NULL, false, NULL), NGD_OK);
    }
    if (strided_ops[op].exact)
        ck_assert_msg(memcmp(io[0].out_room[0], io[1].out_room[0], io[0].out[0].bytes) == 0,
                      "on %s, strides matter\n%s", b->name, ngd_strbuf_str(&text[0]));
    else
        check_close(io[0].out_room[0], io[1].out_room[0], io[0].out[0].bytes / 4, ngd_strbuf_str(&text[0]));
    for (int copied = 0; copied < 2; copied++) {
        io_close(&io[copied]);
        ready_close(&r[copied]);
        ngd_strbuf_fini(&text[copied]);
    }
}

START_TEST(operands_with_strides_give_what_their_contiguous_copies_give)
{
    EACH_ISA (isa) {
        struct bench b;

        bench_open(&b, (ngd_isa_t)isa, 1);
        for (size_t v = 0; v < sizeof(views) / sizeof(views[0]); v++)
            for (size_t o = 0; o < sizeof(strided_ops) / sizeof(strided_ops[0]); o++)
                check_strided(&b, v, o);
        bench_close(&b);
    }
}
END_TEST

/* A state's view is written in place: what lies between its elements stays. */
START_TEST(copy_into_a_strided_view_of_a_state_leaves_the_rest)
{
    static const char text[] = "npugraph 1\ngraph \"g\" {\nstate %s : f32[4,6]\ninput %x : bf16[4,3]\n"
                               "%v = aten.slice.Tensor(%s) {dim=1, start=1, end=6, step=2}\naten.copy_(%v, %x)\n}\n";
    float before[24], after[24];
    struct ngd_diag diag = {0};
    struct bench b;
    struct ready r;
    struct io io;

    bench_open(&b, ngd_cpu_isa(), 1);
    open_or_abort(&r, &b, text, NULL);
    io_open(&io, &r);
    io_randomize(&io, &r);
    fill_random(NGD_F32, (char *)before, 24);
    ck_assert_int_eq(ngd_buffer_write(r.bound[0], 0, before, sizeof(before), &diag), NGD_OK);
    ck_assert_int_eq(replay(&b, &r, &io, NULL, false, NULL), NGD_OK);
    ck_assert_int_eq(ngd_buffer_read(r.bound[0], 0, after, sizeof(after), &diag), NGD_OK);
    for (int i = 0; i < 24; i++) {
        int col = i % 6;
        float want =
            col % 2 ? (float)golden_value(NGD_BF16, io.in_room[0], (uint64_t)(i / 6 * 3 + col / 2)) : before[i];

        ck_assert_msg(after[i] == want, "element %d", i);
    }
    io_close(&io);
    ready_close(&r);
    bench_close(&b);
}
END_TEST

/* A large transposition goes in tiles, in parts that begin at rows. */
START_TEST(a_transposed_clone_of_any_size_and_type_is_exact_in_any_number_of_parts)
{
    static const char *const dtypes[] = {"i8", "bf16", "f32", "i64"};
    char body[200];

    for (size_t t = 0; t < 4; t++) {
        for (uint32_t parts = 1; parts <= 5; parts += 2) {
            struct ngd_strbuf text;
            struct ready r = {0};
            struct ngd_diag diag = {0};
            struct direct d;
            struct bench b;
            uint64_t size;

            snprintf(body, sizeof(body),
                     "input %%x : %s[3,37,50]\n%%v = aten.transpose.int(%%x) {dim0=1, dim1=2}\n%%y = aten.clone(%%v)",
                     dtypes[t]);
            ngd_strbuf_init(&text);
            run_text(&text, "", body);
            bench_open(&b, ngd_cpu_isa(), 1);
            ck_assert_int_eq(ready_plan(&r, &b, ngd_strbuf_str(&text), NULL, &diag), NGD_OK);
            direct_open(&d, r.plan, ngd_cpu_isa(), THREADS);
            size = r.plan->inputs[0].bytes / (3 * 37 * 50);
            for (uint64_t i = 0; i < r.plan->inputs[0].bytes; i++)
                direct_input(&d, 0)[i] = (char)rng();
            ck_assert_int_eq(direct_run(&d, NULL, NULL, parts), NGD_OK);
            for (uint64_t i = 0; i < 3 * 37 * 50; i++) {
                uint64_t m = i / (37 * 50), c = i / 37 % 50, row = i % 37;

                if (memcmp(direct_output(&d, 0) + i * size, direct_input(&d, 0) + ((m * 37 + row) * 50 + c) * size,
                           size))
                    ck_abort_msg("%s in %u parts: element %llu", dtypes[t], parts, (unsigned long long)i);
            }
            direct_close(&d);
            ready_close(&r);
            bench_close(&b);
            ngd_strbuf_fini(&text);
        }
    }
}
END_TEST

/* ---- fused operators and their compositions ---- */

/* Inputs and states; the fused node; what it stands for. Both give %y. */
static const struct {
    const char *given, *fused, *apart;
} fusions[] = {
    {"input %x : T[M,96]\ninput %w : W[40,96]\ninput %v : W[17,96]\ninput %b : W[40]\ninput %c : W[17]",
     "%p, %q = ngd.multi_linear(%x, %w, %v, %b, %c) {sizes=[40,17]}\n%y = aten.cat(%p, %q) {dim=1}",
     "%p = aten.linear(%x, %w, %b)\n%q = aten.linear(%x, %v, %c)\n%y = aten.cat(%p, %q) {dim=1}"},
    {"input %x : T[M,96]\ninput %g : W[96]\ninput %w : W[40,96]\ninput %v : W[64,96]",
     "%p, %q = ngd.rms_norm_linear(%x, %g, %w, %v) {sizes=[40,64]}\n%y = aten.cat(%p, %q) {dim=1}",
     "%n, %s = npu.rms_norm(%x, %g)\n%p = aten.linear(%n, %w)\n%q = aten.linear(%n, %v)\n"
     "%y = aten.cat(%p, %q) {dim=1}"},
    {"input %x : T[M,96]\ninput %w : W[41,96]\ninput %r : T[M,41]\ninput %b : W[41]",
     "%y = ngd.linear_add(%x, %w, %r, %b)", "%p = aten.linear(%x, %w, %b)\n%y = aten.add.Tensor(%r, %p)"},
    {"input %x : T[M,96]\ninput %w : W[48,96]\ninput %r : T[M,48]", "%y = ngd.linear_add(%x, %w, %r)",
     "%p = aten.linear(%x, %w)\n%y = aten.add.Tensor(%r, %p)"},
    {"input %x : T[M,96]\ninput %w : W[130,96]\ninput %v : W[130,96]\ninput %b : W[130]",
     "%y = ngd.linear_swiglu(%x, %w, %v, none, %b)",
     "%p = aten.linear(%x, %w)\n%q = aten.linear(%x, %v, %b)\n%a = aten.silu(%p)\n%y = aten.mul.Tensor(%a, %q)"},
    {"input %x : T[M,96]\ninput %g : W[96]\ninput %w : W[130,96]\ninput %v : W[130,96]",
     "%y = ngd.rms_norm_linear_swiglu(%x, %g, %w, %v)",
     "%n, %s = npu.rms_norm(%x, %g)\n%p = aten.linear(%n, %w)\n%q = aten.linear(%n, %v)\n%a = aten.silu(%p)\n"
     "%y = aten.mul.Tensor(%a, %q)"},
    {"input %x : T[M,96]\ninput %g : W[32]\ninput %c : f32[M,32]\ninput %l : i32[M]\nstate %k : W[2,4,3,32]\n"
     "state %v : W[2,4,3,32]\n%h = aten.view(%x) {size=[M,3,32]}",
     "%z = ngd.qk_norm_rope_scatter(%h, %h, %h, %c, %c, %l, %k, %v, %g, %g)\n%zw = aten._to_copy(%z) {dtype=f32}\n"
     "%kw = aten._to_copy(%k) {dtype=f32}\n%vw = aten._to_copy(%v) {dtype=f32}\n"
     "%z1 = aten.view(%zw) {size=[M*96]}\n%k1 = aten.view(%kw) {size=[768]}\n%v1 = aten.view(%vw) {size=[768]}\n"
     "%y = aten.cat(%z1, %k1, %v1)",
     "%n, %s = npu.rms_norm(%h, %g)\n%z = npu.rotary_mul(%n, %c, %c)\nnpu.scatter_pa_kv_cache(%z, %h, %l, %k, %v)\n"
     "%zw = aten._to_copy(%z) {dtype=f32}\n%kw = aten._to_copy(%k) {dtype=f32}\n"
     "%vw = aten._to_copy(%v) {dtype=f32}\n%z1 = aten.view(%zw) {size=[M*96]}\n%k1 = aten.view(%kw) {size=[768]}\n"
     "%v1 = aten.view(%vw) {size=[768]}\n%y = aten.cat(%z1, %k1, %v1)"},
    {"input %x : T[M,96]\ninput %g : W[96]\ninput %s : f32[96]",
     "%q, %e, %r, %d, %f = npu.add_rms_norm_dynamic_quant(%x, %x, %g, %s)\n%y = aten._to_copy(%q) {dtype=f32}",
     "%n, %t, %r = npu.add_rms_norm(%x, %x, %g)\n%q, %d = npu.dynamic_quant(%n, %s)\n"
     "%y = aten._to_copy(%q) {dtype=f32}"},
    {"input %x : T[M,96]\ninput %g : W[96]\ninput %s : f32[96]\ninput %o : f32[1]",
     "%q, %e, %r = npu.add_rms_norm_quant(%x, %x, %g, %s, %o) {div_mode=false}\n%y = aten._to_copy(%q) {dtype=f32}",
     "%n, %t, %r = npu.add_rms_norm(%x, %x, %g)\n%q = npu.quantize(%n, %s, %o) {axis=-1, div_mode=false}\n"
     "%y = aten._to_copy(%q) {dtype=f32}"},
    {"input %x : T[M,96]", "%q, %d = npu.swiglu_quant(%x) {activate_left=true, quant_mode=1}\n%y = aten.clone(%d)",
     "%n = npu.swiglu(%x)\n%q, %d = npu.dynamic_quant(%n)\n%y = aten.clone(%d)"},
    {"input %x : T[M,96]\ninput %w : W[32,8]\n%h = aten.view(%x) {size=[3,M,32]}\n%u = aten.unsqueeze(%w) {dim=0}\n"
     "%e = aten.expand(%u) {size=[3,32,8]}",
     "%y = npu.transpose_batchmatmul(%h, %e)",
     "%p = aten.bmm(%h, %e)\n%q = aten.transpose.int(%p) {dim0=0, dim1=1}\n%y = aten.clone(%q)"},
};

/* The text with its types and its number of rows: %T of x, %W of weights. */
static void fusion_text(struct ngd_strbuf *sb, const char *given, const char *node, const char *t, const char *w,
                        int rows)
{
    struct ngd_strbuf body;

    ngd_strbuf_init(&body);
    for (const char *p = given; p; p = p == given ? node : NULL) {
        const char *begin = p;

        for (; *p; p++) {
            const bool word = p > begin && (isalnum((unsigned char)p[-1]) || p[-1] == '_' || p[-1] == '%');

            if (*p == 'T' && p[1] == '[' && !word)
                ngd_strbuf_append(&body, t);
            else if (*p == 'W' && p[1] == '[' && !word)
                ngd_strbuf_append(&body, w);
            else if (*p == 'M' && !word && !isalpha((unsigned char)p[1]))
                ngd_strbuf_printf(&body, "%d", rows);
            else
                ngd_strbuf_append_n(&body, p, 1);
        }
        if (begin == given)
            ngd_strbuf_append(&body, "\n");
        p = begin;
    }
    run_text(sb, "", ngd_strbuf_str(&body));
    ngd_strbuf_fini(&body);
}

static void check_fusion(struct bench *b, size_t f, const char *t, const char *w, int rows)
{
    struct ngd_strbuf text[2];
    struct ready r[2];
    struct io io[2];

    for (int k = 0; k < 2; k++) {
        ngd_strbuf_init(&text[k]);
        fusion_text(&text[k], fusions[f].given, k ? fusions[f].apart : fusions[f].fused, t, w, rows);
        open_or_abort(&r[k], b, ngd_strbuf_str(&text[k]), NULL);
        io_open(&io[k], &r[k]);
        if (k == 0)
            io_randomize(&io[0], &r[0]);
        for (uint32_t i = 0; k && i < io[0].n_in; i++)
            memcpy(io[1].in_room[i], io[0].in_room[i], io[0].in[i].bytes);
        ck_assert_int_eq(replay(b, &r[k], &io[k], NULL, false, NULL), NGD_OK);
    }
    ck_assert_uint_eq(io[0].out[0].bytes, io[1].out[0].bytes);
    ck_assert_msg(memcmp(io[0].out_room[0], io[1].out_room[0], io[0].out[0].bytes) == 0,
                  "on %s this\n%sdiffers from\n%s", b->name, ngd_strbuf_str(&text[0]), ngd_strbuf_str(&text[1]));
    for (int k = 0; k < 2; k++) {
        io_close(&io[k]);
        ready_close(&r[k]);
        ngd_strbuf_fini(&text[k]);
    }
}

START_TEST(fused_operators_give_the_bits_of_what_they_stand_for)
{
    static const char *const types[][2] = {
        {"f32", "f32"}, {"f32", "bf16"}, {"f32", "f16"}, {"bf16", "bf16"}, {"f16", "f16"}};
    static const int rows[] = {1, 5, 8, 60};

    EACH_ISA (isa) {
        struct bench b;

        bench_open(&b, (ngd_isa_t)isa, 2);
        for (size_t f = 0; f < sizeof(fusions) / sizeof(fusions[0]); f++)
            for (size_t t = 0; t < sizeof(types) / sizeof(types[0]); t++)
                for (size_t m = 0; m < sizeof(rows) / sizeof(rows[0]); m++)
                    check_fusion(&b, f, types[t][0], types[t][1], rows[m]);
        bench_close(&b);
    }
}
END_TEST

/* ---- empty tensors ---- */

static const char *const empty_bodies[] = {
    "input %x : f32[0,4]\n%y = aten.sum.dim_IntList(%x) {dim=[0]}",
    "input %x : f32[3,0]\n%y = aten.sum.dim_IntList(%x)",
    "input %x : bf16[3,0]\n%y = aten.mean.dim(%x) {dim=[1]}",
    "input %x : f32[0,4]\n%y = aten.amax(%x) {dim=[1]}",
    "input %x : f32[0,4]\n%y = aten.any.dim(%x) {dim=0}",
    "input %x : f16[3,0]\n%y = aten.all.dims(%x) {dim=[0,1]}",
    "input %x : bool[3,0]\n%y = aten.any(%x)",
    "input %x : f32[3,0]\n%y = aten.mean(%x)",
    "input %x : i32[2,0]\n%y = aten.prod.dim_int(%x) {dim=1}",
    "input %x : f32[0,4]\n%y = aten.argmax(%x) {dim=1}",
    "input %x : f32[2,0]\n%y, %i = aten.topk(%x) {k=0}",
    "input %x : f32[0,3]\n%y, %i = aten.topk(%x) {k=2}",
    "input %x : f32[2,0]\n%y = aten.cumsum(%x) {dim=1}",
    "input %x : f32[2,0]\n%y = aten._softmax(%x) {dim=1}",
    "input %x : f32[0,5]\n%y = aten._log_softmax(%x) {dim=1}",
    "input %x : f32[0,5]\n%y = aten.layer_norm(%x) {normalized_shape=[5]}",
    "input %x : f32[0,5]\ninput %g : f32[5]\n%y, %z = npu.rms_norm(%x, %g)",
    "input %x : f32[2,0]\n%y = npu.swiglu(%x)",
    "input %x : f32[2,0]\ninput %g : f32[0]\n%y, %n, %z, %s = npu.add_rms_norm_cast(%x, %x, %g)",
    "input %x : f32[2,0]\n%y, %s = npu.dynamic_quant(%x)",
    "input %x : f32[0,4]\n%y, %s = npu.swiglu_quant(%x)",
    "input %x : f32[0,4]\ninput %s : f32[1]\n%y = npu.quantize(%x, %s)",
    "input %x : f32[2,0]\ninput %w : f32[3,0]\n%y = ngd.linear_swiglu(%x, %w, %w)",
    "input %x : f32[0,5]\ninput %w : f32[3,5]\n%y, %z = ngd.multi_linear(%x, %w, %w) {sizes=[3,3]}",
    "input %x : f32[2,5]\ninput %g : f32[5]\ninput %w : f32[0,5]\n%y = ngd.rms_norm_linear(%x, %g, %w) {sizes=[0]}",
    "input %x : f32[0,2,4]\ninput %c : f32[0,4]\n%y = npu.rotary_mul(%x, %c, %c)",
    "input %x : f32[0,4]\ninput %z : f32[3,4]\n%y = aten.cat(%x, %z, %x) {dim=0}",
    "input %x : f32[3,4]\ninput %i : i64[0]\n%y = aten.index_select(%x, %i) {dim=1}",
    "input %x : f32[3,4]\ninput %i : i64[0,4]\n%y = aten.gather(%x, %i) {dim=0}",
    "input %x : f32[3,4]\ninput %i : i64[0,4]\n%y = aten.scatter.src(%x, %i, %x) {dim=0}",
    "input %x : f32[3,4]\ninput %i : i64[0]\ninput %s : f32[0,4]\n%y = aten.index_put(%x, %i, %s)",
    "input %x : f32[3,4]\ninput %i : i64[0]\ninput %s : f32[3,0]\n%y = aten.index_copy(%x, %i, %s) {dim=1}",
    "input %x : f32[0,4]\ninput %i : i64[2]\ninput %s : f32[0,2]\n%y = aten.index_copy(%x, %i, %s) {dim=1}",
    "input %x : f32[0,4]\ninput %i : i64[0]\n%y = aten.index_copy(%x, %i, %x) {dim=0}",
    "input %x : f32[0,4]\ninput %i : i64[0]\n%y = aten.index.Tensor(%x, %i)",
    "input %x : f32[0,4]\n%v = aten.t(%x)\n%y = aten.clone(%v)",
    "input %x : f32[0,4]\n%y = aten.tril(%x)",
    "%y = aten.full() {size=[0,3], fill_value=1}",
    "%y = aten.arange.start_step() {end=0}",
};

static void check_empty(struct bench *b, const char *body)
{
    struct ngd_strbuf text;
    struct ngd_diag diag = {0};
    struct ready r;
    struct io io;

    ngd_strbuf_init(&text);
    run_text(&text, "", body);
    open_or_abort(&r, b, ngd_strbuf_str(&text), NULL);
    io_open(&io, &r);
    io_randomize(&io, &r);
    if (replay(b, &r, &io, NULL, false, &diag))
        ck_abort_msg("%s\n%s", diag.text, body);
    io_close(&io);
    ready_close(&r);
    ngd_strbuf_fini(&text);
}

START_TEST(tensors_without_elements_are_fine)
{
    EACH_ISA (isa) {
        struct bench b;

        bench_open(&b, (ngd_isa_t)isa, 1);
        for (size_t i = 0; i < sizeof(empty_bodies) / sizeof(empty_bodies[0]); i++)
            check_empty(&b, empty_bodies[i]);
        for (int id = 0; id < NGD_OP_MAX; id++) {
            const struct ngd_op *op = ngd_op_by_id((ngd_op_id_t)id);
            struct ngd_strbuf body;

            if (!is_elementwise(op))
                continue;
            ngd_strbuf_init(&body);
            elementwise(&body, op, "f16", "3,0", "0");
            check_empty(&b, ngd_strbuf_str(&body));
            ngd_strbuf_fini(&body);
        }
        bench_close(&b);
    }
}
END_TEST

/* ---- bad indices ---- */

static const struct {
    const char *body; /* the index is the last input, of 4 elements */
    int64_t limit;
    bool from_end; /* negative ones are good down to -limit */
} indexed[] = {
    {"input %w : f32[9,5]\ninput %i : i64[4]\n%y = aten.embedding(%w, %i)", 9, false},
    {"input %w : bf16[9,5]\ninput %i : i32[2,2]\n%y = aten.embedding(%w, %i)", 9, false},
    {"input %x : f32[6,9]\ninput %i : i64[4]\n%y = aten.index_select(%x, %i) {dim=1}", 9, false},
    {"input %x : f32[9,6]\ninput %i : i32[4]\n%y = aten.index_select(%x, %i) {dim=0}", 9, false},
    {"input %x : f32[9,6]\ninput %i : i64[4]\n%y = aten.index.Tensor(%x, %i)", 9, true},
    {"input %x : f32[9,6]\ninput %i : i64[2,2]\n%y = aten.gather(%x, %i) {dim=0}", 9, false},
    {"input %x : i64[2,9]\ninput %i : i32[2,2]\n%y = aten.gather(%x, %i) {dim=1}", 9, false},
    {"input %x : f32[9,6]\ninput %s : f32[2,2]\ninput %i : i64[2,2]\n%y = aten.scatter.src(%x, %i, %s) {dim=0}", 9,
     false},
    {"input %x : u8[2,9]\ninput %s : u8[2,2]\ninput %i : i32[2,2]\n%y = aten.scatter.src(%x, %i, %s) {dim=1}", 9,
     false},
    {"input %x : f32[9,6]\ninput %s : f32[4,6]\ninput %i : i64[4]\n%y = aten.index_put(%x, %i, %s)", 9, true},
    {"input %x : f32[9,6]\ninput %s : f32[2,2,6]\ninput %i : i32[2,2]\n%y = aten.index_put(%x, %i, %s) "
     "{accumulate=true}",
     9, true},
    {"input %x : f32[9,6]\ninput %s : f32[4,6]\ninput %i : i64[4]\n%y = aten.index_copy(%x, %i, %s) {dim=0}", 9, false},
    {"input %x : bf16[6,9,2]\ninput %s : bf16[6,4,2]\ninput %i : i32[4]\n%y = aten.index_copy(%x, %i, %s) {dim=1}", 9,
     false},
    {"input %x : bf16[2,9]\ninput %s : bf16[2,2]\ninput %i : i32[2,2]\n%y = aten.scatter_add(%x, %i, %s) {dim=1}", 9,
     false},
    {"input %x : i8[9,2]\ninput %i : i64[2,2]\n%y = aten.scatter.value(%x, %i) {dim=0, value=-3}", 9, false},
};

static void put_index(char *p, bool wide, uint32_t at, int64_t v)
{
    int32_t narrow = (int32_t)v;

    memcpy(p + at * (wide ? 8 : 4), wide ? (const void *)&v : (const void *)&narrow, wide ? 8 : 4);
}

/* One index, at the last place, is v; the rest of the pool is compared with what it was. */
static void check_index(const struct ngd_plan *plan, ngd_isa_t isa, int64_t v, ngd_status_t want, const char *body)
{
    const uint32_t last = plan->graph->n_inputs - 1;
    const struct ngd_plan_tensor *out = &plan->tensors[plan->outputs[0].tensor];
    bool wide = plan->graph->values[plan->graph->inputs[last]].type.dtype == NGD_I64;
    struct direct d;
    char *before;

    direct_open(&d, plan, isa, THREADS);
    for (uint32_t i = 0; i <= last; i++)
        memset(direct_input(&d, i), 0, plan->inputs[i].bytes);
    put_index(direct_input(&d, last), wide, 3, v);
    before = ngd_memdup(d.pool, plan->pool_bytes);
    ck_assert_msg(direct_run(&d, NULL, NULL, 1) == want, "index %lld, %s\n%s", (long long)v, ngd_isa_name(isa), body);
    ck_assert_msg(direct_guards_intact(&d), "index %lld writes outside the pool\n%s", (long long)v, body);
    memset(before + out->offset, 0, out->bytes);
    memset(d.pool + out->offset, 0, out->bytes);
    ck_assert_msg(memcmp(before, d.pool, plan->pool_bytes) == 0, "index %lld writes outside the result\n%s",
                  (long long)v, body);
    ngd_free(before);
    direct_close(&d);
}

START_TEST(an_index_outside_its_dimension_fails_and_writes_nothing_else)
{
    static const int64_t far[] = {INT64_MAX, INT64_MIN, INT64_MAX / 2, (int64_t)1 << 40};

    for (size_t i = 0; i < sizeof(indexed) / sizeof(indexed[0]); i++) {
        const int64_t limit = indexed[i].limit;
        const ngd_status_t negative = indexed[i].from_end ? NGD_OK : NGD_ERR_INDEX_RANGE;
        struct ngd_strbuf text;
        struct ngd_diag diag = {0};
        struct ready r = {0};
        struct bench b;
        bool wide;

        ngd_strbuf_init(&text);
        run_text(&text, "", indexed[i].body);
        bench_open(&b, ngd_cpu_isa(), 1);
        if (ready_plan(&r, &b, ngd_strbuf_str(&text), NULL, &diag))
            ck_abort_msg("%s\n%s", diag.text, ngd_strbuf_str(&text));
        wide = r.graph->values[r.graph->inputs[r.graph->n_inputs - 1]].type.dtype == NGD_I64;
        check_index(r.plan, ngd_cpu_isa(), limit - 1, NGD_OK, indexed[i].body);
        check_index(r.plan, ngd_cpu_isa(), limit, NGD_ERR_INDEX_RANGE, indexed[i].body);
        check_index(r.plan, ngd_cpu_isa(), -1, negative, indexed[i].body);
        check_index(r.plan, ngd_cpu_isa(), -limit, negative, indexed[i].body);
        check_index(r.plan, ngd_cpu_isa(), -limit - 1, NGD_ERR_INDEX_RANGE, indexed[i].body);
        check_index(r.plan, ngd_cpu_isa(), INT32_MAX, NGD_ERR_INDEX_RANGE, indexed[i].body);
        check_index(r.plan, ngd_cpu_isa(), INT32_MIN, NGD_ERR_INDEX_RANGE, indexed[i].body);
        for (size_t k = 0; wide && k < sizeof(far) / sizeof(far[0]); k++)
            check_index(r.plan, ngd_cpu_isa(), far[k], NGD_ERR_INDEX_RANGE, indexed[i].body);
        ready_close(&r);
        bench_close(&b);
        ngd_strbuf_fini(&text);
    }
}
END_TEST

START_TEST(a_replay_after_one_with_a_bad_index_is_right)
{
    static const char body[] = "input %w : f32[9,5]\ninput %i : i32[4]\n%y = aten.embedding(%w, %i)";
    static const int32_t bad[] = {0, 1, 9, 2}, good[] = {8, 1, 0, 2};
    struct ngd_strbuf text;
    struct ngd_diag diag = {0};
    struct bench b;
    struct ready r;
    struct io io;

    ngd_strbuf_init(&text);
    run_text(&text, "", body);
    bench_open(&b, ngd_cpu_isa(), 1);
    open_or_abort(&r, &b, ngd_strbuf_str(&text), NULL);
    io_open(&io, &r);
    io_randomize(&io, &r);
    memset(io.out_room[0], 0x5a, io.out[0].bytes);
    memcpy(io.in_room[1], bad, sizeof(bad));
    ck_assert_int_eq(replay(&b, &r, &io, NULL, false, &diag), NGD_ERR_INDEX_RANGE);
    ck_assert_ptr_nonnull(strstr(diag.text, "index 9"));
    for (uint64_t i = 0; i < io.out[0].bytes; i++)
        ck_assert_int_eq(io.out_room[0][i], 0x5a);
    memcpy(io.in_room[1], good, sizeof(good));
    ck_assert_int_eq(replay(&b, &r, &io, NULL, false, NULL), NGD_OK);
    ck_assert_mem_eq(io.out_room[0], io.in_room[0] + 8 * 20, 20);
    io_close(&io);
    ready_close(&r);
    bench_close(&b);
    ngd_strbuf_fini(&text);
}
END_TEST

/* ---- functions against their plain twins ---- */

#define LONGEST 70
#define GUARD   64

/* Room for a run with guards on both sides, the start off alignment. */
struct run_room {
    char bytes[GUARD + 8 * (LONGEST + 1) + GUARD];
};

static void check_twin(ngd_nd_fn plain, ngd_nd_fn fast, ngd_dtype_t t, ngd_dtype_t to, uint32_t n_in, int64_t n,
                       const int64_t *step, const char *what)
{
    const struct ngd_ew_args args = {{0.75f, 1.5f}, {0, 0}};
    const size_t size = ngd_dtype_bytes(to);
    static struct run_room in[2], out[2];
    char *p[2][3];

    for (uint32_t i = 0; i < n_in; i++)
        fill_random(t, in[i].bytes + GUARD + ngd_dtype_bytes(t), LONGEST);
    for (int k = 0; k < 2; k++) {
        memset(&out[k], 0x5a, sizeof(out[k]));
        for (uint32_t i = 0; i < n_in; i++)
            p[k][i] = in[i].bytes + GUARD + ngd_dtype_bytes(t);
        p[k][n_in] = out[k].bytes + GUARD + size;
        (k ? fast : plain)(p[k], step, n, &args);
    }
    for (int64_t i = 0; i < n; i++) {
        double a = golden_value(to, p[0][n_in], (uint64_t)i), b = golden_value(to, p[1][n_in], (uint64_t)i);
        double ulp = to == NGD_F32 ? 1.2e-7 : to == NGD_F16 ? 1e-3 : 8e-3;

        if (!((a != a && b != b) || a == b || (to != NGD_BOOL && fabs(a - b) <= 4 * ulp * fabs(a) + 1e-7)))
            ck_abort_msg("%s of %s: element %lld of %lld is %.9g, plain %.9g", what, ngd_dtype_name(t), (long long)i,
                         (long long)n, b, a);
    }
    memset(p[1][n_in], 0x5a, (size_t)n * size);
    for (size_t i = 0; i < sizeof(out[1].bytes); i++)
        if (out[1].bytes[i] != 0x5a)
            ck_abort_msg("%s of %s with n = %lld writes outside", what, ngd_dtype_name(t), (long long)n);
}

static void check_unary_twins(const struct ngd_ew_table *fast, int64_t n)
{
    static const char *const names[] = {
#define NGD_EW_UNARY(NAME, ns, value) #NAME,
#include "devices/host/k_elementwise.def"
    };
    const int64_t step[] = {4, 4};

    for (int t = 0; t < NGD_FLOAT_TYPES; t++) {
        for (int f = 0; f < NGD_EW_UNARY_MAX; f++)
            check_twin(ngd_ew_scalar.unary[f][t], fast->unary[f][t], (ngd_dtype_t)t, (ngd_dtype_t)t, 1, n, step,
                       names[f]);
        for (int f = 0; f < NGD_EW_TEST_MAX; f++)
            check_twin(ngd_ew_scalar.test[f][t], fast->test[f][t], (ngd_dtype_t)t, NGD_BOOL, 1, n, step, "a test");
    }
}

static void check_binary_twins(const struct ngd_ew_table *fast, int64_t n, int64_t step0, int64_t step1)
{
    static const char *const names[] = {
#define NGD_EW_BINARY(NAME, ns, value) #NAME,
#include "devices/host/k_elementwise.def"
    };
    const int64_t step[] = {step0, step1, 1};

    for (int t = 0; t < NGD_FLOAT_TYPES; t++) {
        for (int f = 0; f < NGD_EW_BINARY_MAX; f++)
            check_twin(ngd_ew_scalar.binary[f][t], fast->binary[f][t], (ngd_dtype_t)t, (ngd_dtype_t)t, 2, n, step,
                       names[f]);
        for (int f = 0; f < NGD_EW_COMPARE_MAX; f++)
            check_twin(ngd_ew_scalar.compare[f][t], fast->compare[f][t], (ngd_dtype_t)t, NGD_BOOL, 2, n, step,
                       "a comparison");
    }
}

START_TEST(vector_functions_of_any_length_agree_with_their_plain_twins_and_write_no_more)
{
    EACH_ISA (isa) {
        const struct ngd_ew_table *fast = NGD_BY_ISA(isa, ngd_ew);

        for (int64_t n = 1; n <= LONGEST; n += n < 34 ? 1 : 12) {
            check_unary_twins(fast, n);
            check_binary_twins(fast, n, 1, 1);
            check_binary_twins(fast, n, 1, 0);
            check_binary_twins(fast, n, 0, 1);
            check_binary_twins(fast, n, 0, 0);
        }
    }
}
END_TEST

UNIT_MAIN("ops/kernels", rows_of_padding_go_nowhere, every_golden_case_cut_into_parts_gives_the_same_bits,
          rows_of_a_bucket_that_are_padding_are_invisible,
          every_operator_that_can_meet_a_bucketed_symbol_is_tested_with_padding,
          an_index_into_padded_rows_fails_and_one_from_the_end_counts_actual_rows,
          operands_with_strides_give_what_their_contiguous_copies_give,
          fused_operators_give_the_bits_of_what_they_stand_for, copy_into_a_strided_view_of_a_state_leaves_the_rest,
          a_transposed_clone_of_any_size_and_type_is_exact_in_any_number_of_parts, tensors_without_elements_are_fine,
          an_index_outside_its_dimension_fails_and_writes_nothing_else, a_replay_after_one_with_a_bad_index_is_right,
          vector_functions_of_any_length_agree_with_their_plain_twins_and_write_no_more)
