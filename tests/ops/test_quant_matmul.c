/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compares npu.weight_quant_batchmatmul with its definition in double, on every instruction set: i8, int4, f8 and f4
 * weights, as rows of K (a checkpoint's) and in every other layout, with a scale for all, for each column and for each
 * group, with and without offsets and bias, in sizes around those of vectors and tiles.
 */
#include "devices/host/kernels/k_gemm.h"
#include "tests/ops/each_isa.h"
#include "tests/ops/reference.h"
#include "tests/unit/effort.h"
#include "tests/unit/unit.h"

/* How a weight is stored. ROWS: [N,K] or [N,K/8], transposed by a view. BY_N: int4 packed along N. */
enum stored { ROWS, AS_IS, BY_N };

struct product {
    ngd_dtype_t xt, st, ot; /* of x, of scales, and of offsets */
    bool int4, f8, f4;
    enum stored stored;
    int64_t m, n, k, group;   /* group -1: one scale for all */
    int64_t columns;          /* that share a scale, with groups; 0: none do */
    int64_t block;            /* elements of K that share a block scale; scales and minima are i8 then */
    bool one_block;           /* a column has one block scale, which a view repeats */
    int zero;                 /* added to each number */
    bool offset, whole, bias; /* whole: offsets are integers, as zero points are */
    bool minimum;
    int precision;
};

struct operands {
    struct numbers x, scale, offset, bias, block_scale, minimum, block_minimum;
    int *q; /* [N][K]; f8: bytes; f4: nibbles */
    char *w;
    uint64_t w_bytes;
    double *want, *allowed;
};

/* ---- the graph ---- */

static int64_t groups_of(const struct product *p)
{
    return p->group > 0 ? (p->k + p->group - 1) / p->group : 1;
}

static int64_t columns_of(const struct product *p)
{
    return p->group > 0 && p->columns > 1 ? p->columns : 1;
}

/* Returns the number of columns of groups. */
static int64_t scales_across(const struct product *p)
{
    return (p->n + columns_of(p) - 1) / columns_of(p);
}

static int64_t blocks_of(const struct product *p)
{
    return (p->k + p->block - 1) / p->block;
}

static bool by_rows(const struct product *p)
{
    return p->stored == ROWS;
}

static void put_dims(struct ngd_strbuf *sb, const char *name, const char *type, int64_t rows, int64_t cols, bool turned)
{
    ngd_strbuf_printf(sb, "param %%%s : %s[%lld,%lld]\n", name, type, (long long)(turned ? cols : rows),
                      (long long)(turned ? rows : cols));
}

/* Declares the scales of the first block, and gives the name of their view for all. */
static const char *put_one_block(struct ngd_strbuf *sb, const struct product *p)
{
    put_dims(sb, "bs", ngd_dtype_name(p->st), 1, p->n, false);
    ngd_strbuf_printf(sb, "%%bst = aten.expand(%%bs) {size=[%lld, %lld]}\n", (long long)blocks_of(p), (long long)p->n);
    return "bst";
}

/* Declares scales or the like, `groups` for a column, and gives the name of what the operator takes. */
static const char *put_scales(struct ngd_strbuf *sb, const struct product *p, const char *name, const char *turned,
                              ngd_dtype_t type, int64_t groups)
{
    if (p->group < 0)
        ngd_strbuf_printf(sb, "param %%%s : %s[1]\n", name, ngd_dtype_name(type));
    else
        put_dims(sb, name, ngd_dtype_name(type), groups, scales_across(p), by_rows(p));
    if (!by_rows(p) || p->group < 0)
        return name;
    ngd_strbuf_printf(sb, "%%%s = aten.t(%%%s)\n", turned, name);
    return turned;
}

static void put_graph(struct ngd_strbuf *sb, const struct product *p)
{
    const int64_t n = p->int4 && p->stored == BY_N ? p->n / 8 : p->n, k = p->f4                          ? p->k / 2
                                                                          : p->int4 && p->stored != BY_N ? p->k / 8
                                                                                                         : p->k;
    const char *xt = ngd_dtype_name(p->xt), *names[NGD_ANTIQUANTS] = {NULL};

    ngd_strbuf_append(sb, "npugraph 1\ngraph \"product\" {\n");
    put_dims(sb, "q", p->f4 ? "u8" : p->f8 ? "f8_e4m3fn" : p->int4 ? "i32" : "i8", k, n, by_rows(p));
    names[NGD_ANTIQUANT_SCALE] = put_scales(sb, p, "s", "st", p->block ? NGD_I8 : p->st, groups_of(p));
    if (p->offset)
        names[NGD_ANTIQUANT_OFFSET] = put_scales(sb, p, "o", "ot", p->ot, groups_of(p));
    if (p->block)
        names[NGD_ANTIQUANT_BLOCK_SCALE] =
            p->one_block ? put_one_block(sb, p) : put_scales(sb, p, "bs", "bst", p->st, blocks_of(p));
    if (p->minimum)
        names[NGD_ANTIQUANT_MINIMUM] = put_scales(sb, p, "m", "mt", p->block ? NGD_I8 : p->st, groups_of(p));
    if (p->minimum && p->block)
        names[NGD_ANTIQUANT_BLOCK_MINIMUM] = put_scales(sb, p, "bm", "bmt", p->st, blocks_of(p));
    if (p->bias)
        ngd_strbuf_printf(sb, "param %%b : f32[%lld]\n", (long long)p->n);
    ngd_strbuf_printf(sb, "input %%x : %s[%lld,%lld]\n", xt, (long long)p->m, (long long)p->k);
    if (by_rows(p))
        ngd_strbuf_append(sb, "%w = aten.t(%q)\n");
    ngd_strbuf_printf(sb, "%%y = npu.weight_quant_batchmatmul(%%x, %s", by_rows(p) ? "%w" : "%q");
    for (int i = 2; i < 10; i++) {
        const char *name = i == 6 && p->bias ? "b" : NULL;

        for (int a = 0; a < NGD_ANTIQUANTS; a++)
            name = ngd_antiquant_names[a].operand == i ? names[a] : name;
        ngd_strbuf_printf(sb, name ? ", %%%s" : ", none", name);
    }
    ngd_strbuf_printf(sb, ") {antiquant_group_size=%lld, antiquant_group_columns=%lld, antiquant_block_size=%lld, ",
                      (long long)(p->group > 0 ? p->group : 0), (long long)columns_of(p), (long long)p->block);
    ngd_strbuf_printf(sb, "antiquant_zero=%d}\nreturn \"y\" = %%y\n}\n", p->zero);
}

/* ---- operands and the definition ---- */

/* Stores q[n][k] where the layout has it. */
static void store(struct operands *o, const struct product *p, int64_t n, int64_t k, int q)
{
    const int64_t along = p->stored == BY_N ? n : k, cols = p->stored == BY_N ? p->n : p->k;
    int64_t at;

    if (p->f4) {
        at = by_rows(p) ? n * (p->k / 2) + k / 2 : k / 2 * p->n + n;
        o->w[at] = (char)(o->w[at] | q << (k % 2 * 4));
        return;
    }
    if (!p->int4) {
        o->w[by_rows(p) ? n * p->k + k : k * p->n + n] = (char)q;
        return;
    }
    if (p->stored == AS_IS)
        at = k / 8 * p->n + n;
    else
        at = (p->stored == BY_N ? k : n) * (cols / 8) + along / 8;
    o->w[at * 4 + along % 8 / 2] = (char)(o->w[at * 4 + along % 8 / 2] | (q & 15) << (along % 2 * 4));
}

/* Scales and the like are stored like the weight: `groups` of a column. */
static double antiquant_of(const struct product *p, const struct numbers *t, int64_t n, int64_t g, int64_t groups)
{
    n /= columns_of(p);
    return p->group < 0 ? t->value[0] : t->value[by_rows(p) ? n * groups + g : g * scales_across(p) + n];
}

static double antiquant(const struct product *p, const struct numbers *t, int64_t n, int64_t k)
{
    return antiquant_of(p, t, n, p->group > 0 ? k / p->group : 0, groups_of(p));
}

static double block_value(const struct product *p, const struct numbers *t, int64_t n, int64_t k)
{
    return p->block ? antiquant_of(p, t, n, k / p->block, blocks_of(p)) : 1;
}

/* The value of an f8 by its definition. */
static double f8_value(int byte)
{
    const int e = byte >> 3 & 15, m = byte & 7;

    if (e == 15 && m == 7)
        return (double)NAN;
    return (byte & 0x80 ? -1 : 1) * (e ? ldexp(8 + m, e - 10) : ldexp(m, -9));
}

/* The value of an f4 by its definition: a sign, two bits of exponent, one of mantissa. */
static double f4_value(int nibble)
{
    const int e = nibble >> 1 & 3, m = nibble & 1;

    return (nibble & 8 ? -1 : 1) * (e ? ldexp(2 + m, e - 2) : m * 0.5);
}

static double weight_value(const struct product *p, int q)
{
    return p->f4 ? f4_value(q) : p->f8 ? f8_value(q) : q;
}

/* Returns half of a step of the integers that x becomes, if the largest element of a segment is 1 at most. */
static double half_step(const struct product *p)
{
    return p->precision == NGD_PRECISION_MEDIUM                        ? 1.01 / 254
           : p->xt == NGD_F32 && p->precision == NGD_PRECISION_HIGHEST ? 0x1p-23
                                                                       : 0x1p-15;
}

static void define(struct operands *o, const struct product *p)
{
    for (int64_t i = 0; i < p->m; i++)
        for (int64_t j = 0; j < p->n; j++) {
            double sum = p->bias ? o->bias.value[j] : 0, size = fabs(sum), weights = 0;

            for (int64_t k = 0; k < p->k; k++) {
                const double shift = p->zero + (p->offset ? antiquant(p, &o->offset, j, k) : 0),
                             scale = antiquant(p, &o->scale, j, k) *
                                     (p->one_block ? o->block_scale.value[j] : block_value(p, &o->block_scale, j, k)),
                             minimum = p->minimum
                                           ? antiquant(p, &o->minimum, j, k) * block_value(p, &o->block_minimum, j, k)
                                           : 0,
                             x = o->x.value[i * p->k + k], q = weight_value(p, o->q[j * p->k + k]);

                sum += x * ((q + shift) * scale + minimum);
                size += fabs(x) * ((fabs(shift) + fabs(q)) * fabs(scale) + fabs(minimum));
                weights += fabs(q * scale) + (p->offset ? 0 : fabs(p->zero * scale + minimum));
            }
            o->want[i * p->n + j] = sum;
            o->allowed[i * p->n + j] = ((6 + 4 * sqrt((double)p->k)) * 0x1p-24 + precision_error[p->precision]) * size +
                                       1.01 * rounding_of(p->xt, sum);
            if (!p->f8)
                o->allowed[i * p->n + j] += half_step(p) * weights; /* x is 1 at most */
        }
}

/* Scales in f8_e8m0fnu, from 2^-12 to 2^3. */
static void scales_e8m0(struct numbers *t, int64_t n, struct random *r)
{
    numbers_open(t, NGD_U8, n);
    for (int64_t i = 0; i < n; i++) {
        const int e = (int)random_below(r, 16) - 12;

        t->data[i] = (char)(127 + e);
        t->value[i] = ldexp(1, e);
    }
}

static void operands_open(struct operands *o, const struct product *p, struct random *r)
{
    const int64_t scales = p->group < 0 ? 1 : scales_across(p) * groups_of(p);

    *o = (struct operands){.w_bytes = (uint64_t)(p->n * p->k) / (p->int4 || p->f4 ? 2 : 1)};
    numbers_random(&o->x, p->xt, p->m * p->k, 1, r);
    if (p->f4)
        scales_e8m0(&o->scale, scales, r);
    else if (p->block)
        numbers_random(&o->scale, NGD_I8, scales, 127, r);
    else
        numbers_random(&o->scale, p->st, scales, 0.01, r);
    numbers_random(&o->minimum, p->block ? NGD_I8 : p->st, p->minimum ? scales : 0, p->block ? 127 : 0.1, r);
    numbers_random(&o->block_scale, p->st, p->block ? p->n * (p->one_block ? 1 : blocks_of(p)) : 0, 0.0001, r);
    numbers_random(&o->block_minimum, p->st, p->block ? scales_across(p) * blocks_of(p) : 0, 0.001, r);
    numbers_random(&o->offset, p->ot, scales, p->int4 ? 8 : 128, r);
    for (int64_t i = 0; p->whole && i < scales; i++)
        numbers_put(&o->offset, i, nearbyint(o->offset.value[i]));
    numbers_random(&o->bias, NGD_F32, p->n, 2, r);
    o->q = calloc((size_t)(p->n * p->k) + 1, sizeof(int));
    o->w = calloc(o->w_bytes + 1, 1);
    for (int64_t i = 0; i < p->n * p->k; i++) {
        o->q[i] = p->f4     ? (int)random_below(r, 16)
                  : p->int4 ? (int)random_below(r, 16) - 8
                            : (int)random_below(r, 256) - (p->f8 ? 0 : 128);
        if (p->f8 && (o->q[i] & 0x7f) == 0x7f)
            o->q[i] ^= 0x40; /* no NaN */
        store(o, p, i / p->k, i % p->k, o->q[i]);
    }
    o->want = calloc((size_t)(p->m * p->n) + 1, sizeof(double));
    o->allowed = calloc((size_t)(p->m * p->n) + 1, sizeof(double));
    define(o, p);
}

static void operands_close(struct operands *o)
{
    numbers_close(&o->x);
    numbers_close(&o->scale);
    numbers_close(&o->offset);
    numbers_close(&o->bias);
    numbers_close(&o->block_scale);
    numbers_close(&o->minimum);
    numbers_close(&o->block_minimum);
    free(o->q);
    free(o->w);
    free(o->want);
    free(o->allowed);
}

/* ---- running ---- */

static struct bench benches[NGD_ISA_MAX];

/* Gives the results of the first p->m rows of x. */
static void run_rows(struct bench *b, const struct product *p, const struct operands *o, char *y)
{
    const uint64_t size = ngd_dtype_bytes(p->xt);
    struct ngd_span in = {o->x.data, (uint64_t)(p->m * p->k) * size};
    struct ngd_out out = {y, (uint64_t)(p->m * p->n) * size};
    struct ngd_launch launch = {.inputs = &in, .outputs = &out};
    struct ngd_diag diag = {0};
    struct ngd_strbuf sb;
    struct ready r;
    uint32_t bound = 0;

    ngd_strbuf_init(&sb);
    put_graph(&sb, p);
    run_check(ready_open(&r, b, ngd_strbuf_str(&sb), NULL, &diag), &diag, ngd_strbuf_str(&sb));
    run_check(ngd_buffer_write(r.bound[bound++], 0, o->w, o->w_bytes, &diag), &diag, "w");
    {
        const struct numbers *operands[] = {&o->scale, p->offset ? &o->offset : NULL, p->block ? &o->block_scale : NULL,
                                            p->minimum ? &o->minimum : NULL,
                                            p->minimum && p->block ? &o->block_minimum : NULL};

        for (size_t i = 0; i < sizeof(operands) / sizeof(operands[0]); i++)
            if (operands[i])
                run_check(ngd_buffer_write(r.bound[bound++], 0, operands[i]->data, numbers_bytes(operands[i]), &diag),
                          &diag, "scales and the like");
    }
    if (p->bias)
        run_check(ngd_buffer_write(r.bound[bound++], 0, o->bias.data, numbers_bytes(&o->bias), &diag), &diag, "bias");
    run_check(ngd_launch_check(r.plan, &launch, 1, 0, 1, &diag), &diag, ngd_strbuf_str(&sb));
    run_check(ngd_stream_run(b->stream, r.inst, &launch), &launch.diag, ngd_strbuf_str(&sb));
    ready_close(&r);
    ngd_strbuf_fini(&sb);
}

/* Compares on each instruction set. */
static void check_operands(const struct product *p, const struct operands *o)
{
    char *y = malloc((size_t)(p->m * p->n) * ngd_dtype_bytes(p->xt) + 1);

    EACH_ISA (isa) {
        run_rows(&benches[isa], p, o, y);
        for (int64_t i = 0; i < p->m * p->n; i++) {
            double got = numbers_got(p->xt, y, i);

            if (!(fabs(got - o->want[i]) <= o->allowed[i]))
                ck_abort_msg("%s, %s, %lld x %lld x %lld, group %lld, layout %d: element %lld is %.9g, should be %.9g, "
                             "and may be %.3g off",
                             benches[isa].name,
                             p->f4     ? "f4"
                             : p->f8   ? "f8"
                             : p->int4 ? "int4"
                                       : "i8",
                             (long long)p->m, (long long)p->n, (long long)p->k, (long long)p->group, p->stored,
                             (long long)i, got, o->want[i], o->allowed[i]);
        }
    }
    free(y);
}

static void check_product(const struct product *p, struct random *r)
{
    struct operands o;

    operands_open(&o, p, r);
    check_operands(p, &o);
    operands_close(&o);
}

static const struct {
    ngd_dtype_t x, s, o;
} types[] = {{NGD_F32, NGD_F32, NGD_F16},
             {NGD_F32, NGD_BF16, NGD_F16},
             {NGD_F32, NGD_F16, NGD_F32},
             {NGD_F16, NGD_F16, NGD_F16},
             {NGD_BF16, NGD_BF16, NGD_BF16}};
#define N_TYPES (sizeof(types) / sizeof(types[0]))

/* M, N, K, group. int4 takes those whose K is a multiple of 8, and whose group is one of 32. */
static const int64_t sizes[][4] = {
    {1, 1, 1, 0},      {1, 1, 8, 0},      {1, 3, 300, 0},      {1, 64, 64, 32},   {2, 33, 31, 0},    {3, 5, 136, -1},
    {3, 17, 96, 32},   {4, 65, 72, 32},   {5, 16, 520, 128},   {7, 63, 32, 64},   {8, 40, 264, 64},  {9, 7, 65, 32},
    {16, 31, 100, 0},  {17, 66, 256, 96}, {48, 64, 256, 32},   {60, 31, 40, -1},  {65, 70, 136, 32}, {49, 130, 530, 64},
    {2, 35, 600, 256}, {3, 20, 304, 128}, {1, 18, 1104, 0},    {11, 9, 512, 512}, {0, 5, 64, 32},    {3, 0, 64, 32},
    {3, 5, 0, 32},     {50, 40, 0, 0},    {193, 66, 296, 128}, {1, 33, 256, 16},  {3, 7, 40, 16},    {9, 18, 176, 48},
    {48, 40, 64, 16}};
#define N_SIZES (sizeof(sizes) / sizeof(sizes[0]))

static void check_sizes(bool int4, bool f8, enum stored stored, uint64_t seed)
{
    const size_t n_types = effort(N_TYPES, "dtypes of each size");
    struct random r = {seed};

    for (size_t s = 0; s < N_SIZES; s++)
        for (size_t t = s % N_TYPES, n = 0; n < n_types; t = (t + 1) % N_TYPES, n++) {
            struct product p = {
                .xt = types[t].x, .st = types[t].s, .ot = types[t].o, .int4 = int4, .f8 = f8, .stored = stored};

            p.m = sizes[s][0];
            p.n = stored == BY_N ? (sizes[s][1] + 7) / 8 * 8 : sizes[s][1];
            p.k = sizes[s][2];
            p.group = sizes[s][3];
            p.columns = (int64_t)((s + t) % 3) * 16;
            p.offset = !f8 && (s + t) % 2;
            p.whole = (s + t) % 4 == 1;
            p.bias = (s + t) % 3 == 1;
            if ((int4 || f8) && p.group > 0 && p.group % 32 != 0)
                continue;
            if (stored == BY_N ? p.k > 0 : !int4 || p.k % 8 == 0) /* i32[0,N] has N columns */
                check_product(&p, &r);
        }
}

/* The same sizes with f4, whose groups have 32. */
static void check_f4_sizes(enum stored stored, uint64_t seed)
{
    const size_t n_types = effort(N_TYPES, "dtypes of each size");
    struct random r = {seed};

    for (size_t s = 0; s < N_SIZES; s++)
        for (size_t t = s % N_TYPES, n = 0; n < n_types; t = (t + 1) % N_TYPES, n++) {
            const struct product p = {.xt = types[t].x,
                                      .st = NGD_U8,
                                      .f4 = true,
                                      .stored = stored,
                                      .m = sizes[s][0],
                                      .n = sizes[s][1],
                                      .k = (sizes[s][2] + 1) / 2 * 2,
                                      .group = 32,
                                      .bias = (s + t) % 3 == 1};

            check_product(&p, &r);
        }
}

START_TEST(weights_in_rows_of_k_are_right)
{
    benches_open(benches);
    check_sizes(false, false, ROWS, 1);
    check_sizes(true, false, ROWS, 2);
    check_sizes(false, true, ROWS, 12);
    check_f4_sizes(ROWS, 15);
    benches_close(benches);
}
END_TEST

START_TEST(weights_in_other_layouts_are_right)
{
    benches_open(benches);
    check_sizes(false, false, AS_IS, 3);
    check_sizes(true, false, AS_IS, 4);
    check_sizes(true, false, BY_N, 5);
    check_sizes(false, true, AS_IS, 13);
    check_f4_sizes(AS_IS, 16);
    benches_close(benches);
}
END_TEST

/* As check_operands, where columns 127 and 255 are NaN. */
static void check_f8_columns(const struct product *p, const struct operands *o)
{
    char *y = malloc((size_t)(p->m * p->n) * ngd_dtype_bytes(p->xt) + 1);

    EACH_ISA (isa) {
        run_rows(&benches[isa], p, o, y);
        for (int64_t i = 0; i < p->m * p->n; i++) {
            const double got = numbers_got(p->xt, y, i);
            const bool right = i % 128 == 127 ? isnan(got) : fabs(got - o->want[i]) <= o->allowed[i];

            ck_assert_msg(right, "%s, %lld rows: the byte %lld gives %g instead of %g", benches[isa].name,
                          (long long)p->m, (long long)i % 256, got, o->want[i]);
        }
    }
    free(y);
}

/* Minima, zeros and scales of blocks, as GGUF files have them, in the layout of a checkpoint and in others. */
START_TEST(blocks_and_minima_are_right)
{
    static const int64_t blocks[] = {0, 256, 128, 512};
    const size_t n = N_SIZES * 2, step = effort_step(n, "sizes and blocks");
    struct random r = {23};

    benches_open(benches);
    for (size_t i = 0; i < n; i += step) {
        const size_t s = i / 2, t = (i + s) % N_TYPES;
        struct product p = {.xt = types[t].x,
                            .st = types[t].s,
                            .ot = types[t].o,
                            .int4 = i % 3 != 2,
                            .stored = i % 7 == 3 ? AS_IS : ROWS,
                            .m = sizes[s][0],
                            .n = sizes[s][1],
                            .k = sizes[s][2],
                            .group = (i + s) % 2 ? 32 : sizes[s][3],
                            .zero = (int)(i % 3) * 8,
                            .minimum = i % 5 != 1,
                            .offset = i % 11 == 5,
                            .bias = i % 6 == 1,
                            .precision = (int)(i % 4) % 3};

        p.k = p.int4 ? (p.k + 7) / 8 * 8 : p.k;
        p.block = p.group > 0 ? blocks[(i + s) % 4] / p.group * p.group : 0;
        if (p.int4 && p.group > 0 && p.group % 32 != 0)
            p.group = p.block = 0;
        benches_precision(benches, p.precision);
        check_product(&p, &r);
    }
    benches_close(benches);
}
END_TEST

/* The view's elements lie in one place: what is read of it may not be the columns that follow. */
START_TEST(one_block_scale_may_be_that_of_all_blocks)
{
    struct random r = {29};

    benches_open(benches);
    for (int64_t m = 1; m <= 5; m += 4) {
        const struct product p = {.xt = NGD_F32,
                                  .st = NGD_F16,
                                  .int4 = true,
                                  .m = m,
                                  .n = 33,
                                  .k = 1024,
                                  .group = 32,
                                  .block = 256,
                                  .one_block = true};

        check_product(&p, &r);
    }
    benches_close(benches);
}
END_TEST

/* A K that a symbol has at a replay may be 0, where int4 lie along N as well: the result has the bias alone. */
START_TEST(a_k_of_0_keeps_the_columns)
{
    static const char *const text = "npugraph 1\ngraph \"product\" {\nsym K 0..64\nparam %w : i32[K,2]\n"
                                    "param %s : f32[1]\nparam %b : f32[16]\ninput %x : f32[2,K]\n"
                                    "%y = npu.weight_quant_batchmatmul(%x, %w, %s, none, none, none, %b)\n"
                                    "return \"y\" = %y\n}\n";
    float y[32], bias[16], scale = 1;
    struct ngd_span in = {y, 0};
    struct ngd_out out = {(char *)y, sizeof(y)};
    struct ngd_launch launch = {.inputs = &in, .outputs = &out};
    struct ngd_diag diag = {0};
    struct ready r;

    for (int i = 0; i < 16; i++)
        bias[i] = (float)(i + 1);
    benches_open(benches);
    EACH_ISA (isa) {
        memset(y, 0xff, sizeof(y));
        run_check(ready_open(&r, &benches[isa], text, (const int64_t[]){0}, &diag), &diag, text);
        run_check(ngd_buffer_write(r.bound[1], 0, &scale, sizeof(scale), &diag), &diag, "scale");
        run_check(ngd_buffer_write(r.bound[2], 0, bias, sizeof(bias), &diag), &diag, "bias");
        run_check(ngd_stream_run(benches[isa].stream, r.inst, &launch), &launch.diag, text);
        for (int i = 0; i < 32; i++)
            ck_assert_msg(y[i] == bias[i % 16], "%s: element %d is %g", benches[isa].name, i, (double)y[i]);
        ready_close(&r);
    }
    benches_close(benches);
}
END_TEST

/* Many rows of x and large weights, with each precision: more than one panel and unit of columns. */
START_TEST(many_rows_of_each_form_and_precision_are_right)
{
    static const int64_t some[][4] = {{48, 64, 1056, 0}, {66, 130, 520, 32}, {49, 70, 1040, 128}, {50, 34, 2080, -1}};
    const size_t n = 4 * N_TYPES * 4, step = effort_step(n, "forms, dtypes and sizes");
    struct random r = {17};

    benches_open(benches);
    for (size_t i = 0; i < n; i += step) { /* of 4 forms; precisions alternate */
        const size_t s = i % 4, t = i / 4 % N_TYPES, form = i / 4 / N_TYPES;
        const struct product p = {.xt = types[t].x,
                                  .st = form == 3 ? NGD_U8 : types[t].s,
                                  .ot = types[t].o,
                                  .int4 = form == 1,
                                  .f8 = form == 2,
                                  .f4 = form == 3,
                                  .stored = form < 3 && (i + s) % 4 == 3 ? AS_IS : ROWS,
                                  .m = some[s][0],
                                  .n = some[s][1],
                                  .k = some[s][2],
                                  .group = form == 3 ? 32 : some[s][3],
                                  .columns = form < 3 && i % 2 ? 16 : 0,
                                  .offset = form < 2 && (s + t) % 2,
                                  .whole = i % 4 == 1,
                                  .bias = i % 3 == 1,
                                  .precision = (int)((i + t) % 3)};

        benches_precision(benches, p.precision);
        check_product(&p, &r);
    }
    benches_close(benches);
}
END_TEST

/* Compares the first rows of a product of p->m rows with products that have only these. */
static void check_fewer_rows(const struct product *p, const int64_t *rows, size_t n_rows, struct random *r)
{
    const size_t row = (size_t)p->n * ngd_dtype_bytes(p->xt);
    char *all = malloc((size_t)p->m * row), *y = malloc((size_t)p->m * row);
    struct product fewer = *p;
    struct operands o;

    operands_open(&o, p, r);
    EACH_ISA (isa) {
        run_rows(&benches[isa], p, &o, all);
        for (size_t i = 0; i < n_rows; i++) {
            fewer.m = rows[i];
            run_rows(&benches[isa], &fewer, &o, y);
            ck_assert_msg(memcmp(all, y, (size_t)rows[i] * row) == 0,
                          "%s, N %lld, K %lld, group %lld: %lld rows differ from %lld", benches[isa].name,
                          (long long)p->n, (long long)p->k, (long long)p->group, (long long)rows[i], (long long)p->m);
        }
    }
    operands_close(&o);
    free(all);
    free(y);
}

/* A sequence's bits are what they are alone: the number of rows of a step changes no row. */
START_TEST(a_row_has_the_same_bits_among_others)
{
    static const int64_t some[][3] = {{70, 264, 0}, {33, 256, 32}, {16, 136, 64}, {40, 264, 16}},
                         rows[] = {1, 2, 3, 5, 8, 11};
    struct random r = {6};

    benches_open(benches);
    for (size_t i = 0; i < 11; i++) { /* the seventh is i8 alone; then f8, and f4 */
        const size_t s = i < 7 ? i : i < 10 ? 2 * (i - 7) : 2;
        const struct product p = {.xt = types[i % N_TYPES].x,
                                  .st = i == 10 ? NGD_U8 : types[i % N_TYPES].s,
                                  .ot = types[i % N_TYPES].o,
                                  .int4 = i < 7 && i % 2 == 1,
                                  .f8 = i >= 7 &&
                                        i<10, .f4 = i == 10, .m = 16, .n = some[s / 2][0], .k = some[s / 2][1],
                                          .group = some[s / 2][2], .offset = i> 3 &&
                                        i < 7};

        check_fewer_rows(&p, rows, sizeof(rows) / sizeof(rows[0]), &r);
    }
    benches_close(benches);
}
END_TEST

/* The same for buckets of many rows, in one pass or several. */
START_TEST(a_row_has_the_same_bits_among_many)
{
    static const int64_t rows[] = {48, 97, 300};
    struct random r = {18};

    benches_open(benches);
    for (size_t i = 0; i < 6; i++) {
        const struct product p = {.xt = types[i % N_TYPES].x,
                                  .st = types[i % N_TYPES].s,
                                  .ot = types[i % N_TYPES].o,
                                  .int4 = i % 2,
                                  .offset = i % 3 == 1,
                                  .m = 530,
                                  .n = 33,
                                  .k = 1992,
                                  .group = i % 2 ? 32 : 0};

        benches_precision(benches, (int)(i / 2));
        check_fewer_rows(&p, rows, sizeof(rows) / sizeof(rows[0]), &r);
    }
    benches_close(benches);
}
END_TEST

/* Products by digits give the same bits on AMX tiles and without them. On a CPU with one of the two there is nothing to
 * compare. */
START_TEST(digits_have_the_same_bits_on_tiles)
{
    static const int64_t rows[] = {1, 2, 3, 4, 5, 6, 8, 9, 16, 21, 40}, groups[] = {0, 32, 64, 128, 256};
    const ngd_isa_t best = ngd_cpu_isa();
    struct ngd_graph_options options;
    struct bench isas[2];
    struct random r = {19};

    if (best < NGD_ISA_AMX || !ngd_cpu_has_vnni(best)) {
        printf("skip - digits on AMX tiles and without: this CPU does not have both\n");
        return;
    }
#if defined(NGD_HAVE_AMX)
    ck_assert(ngd_digit_tiles_work(best));
#endif
    bench_open(&isas[0], NGD_ISA_AVX512BF16, 2);
    bench_open(&isas[1], NGD_ISA_AMX, 2);
    ngd_graph_options_no_passes(&options);
    isas[0].options = isas[1].options = &options;
    for (size_t i = 0; i < 66; i++) {
        const bool f4 = i % 3 == 2;
        const struct product p = {.xt = types[i % N_TYPES].x,
                                  .st = f4 ? NGD_U8 : types[i % N_TYPES].s,
                                  .ot = types[i % N_TYPES].o,
                                  .int4 = i % 3 == 1,
                                  .f4 = f4,
                                  .m = rows[i / 6],
                                  .n = 64 + (int64_t)(i % 4) * 9,
                                  .k = i % 2 ? 1280 : 1544,
                                  .group = f4 ? 32 : groups[i % 5],
                                  .block = !f4 && i % 5 > 0 && i % 2 ? 2 * groups[i % 5] : 0,
                                  .minimum = !f4 && i % 4 == 3,
                                  .offset = !f4 && i % 4 == 2,
                                  .bias = i % 7 == 0};
        const size_t bytes = (size_t)(p.m * p.n) * ngd_dtype_bytes(p.xt);
        char *without = malloc(bytes), *with = malloc(bytes);
        struct operands o;

        options.matmul_precision = (int)(i % 4) % 3;
        operands_open(&o, &p, &r);
        run_rows(&isas[0], &p, &o, without);
        run_rows(&isas[1], &p, &o, with);
        ck_assert_msg(memcmp(with, without, bytes) == 0, "case %zu: %lld rows, N %lld, K %lld, group %lld differ", i,
                      (long long)p.m, (long long)p.n, (long long)p.k, (long long)p.group);
        operands_close(&o);
        free(with);
        free(without);
    }
    bench_close(&isas[0]);
    bench_close(&isas[1]);
}
END_TEST

/* Each byte as a weight, alone in its row: by its definition, and NaN for two of them, whose neighbours stay. */
START_TEST(each_f8_is_what_it_should_be)
{
    struct random r = {14};

    benches_open(benches);
    for (int64_t m = 1; m < 60; m += 29)
        for (size_t t = 0; t < N_TYPES; t++) {
            struct product p = {.xt = types[t].x, .st = NGD_BF16, .f8 = true, .m = m, .n = 256, .k = 70};
            struct operands o;

            if (p.xt == NGD_F16)
                p.st = NGD_F16;
            operands_open(&o, &p, &r);
            for (int64_t i = 0; i < p.n * p.k; i++)
                store(&o, &p, i / p.k, i % p.k, o.q[i] = i % p.k == 65 - i / p.k % 40 ? (int)(i / p.k) : 0);
            define(&o, &p);
            check_f8_columns(&p, &o);
            operands_close(&o);
        }
    benches_close(benches);
}
END_TEST

/* Gives all weights of p the value q, but those at k = 0 the value `first`. */
static void set_weights(struct operands *o, const struct product *p, int q, int first)
{
    memset(o->w, 0, o->w_bytes);
    for (int64_t i = 0; i < p->n * p->k; i++) {
        o->q[i] = i % p->k ? q : first;
        store(o, p, i / p->k, i % p->k, o->q[i]);
    }
}

START_TEST(sums_of_the_largest_numbers_do_not_overflow)
{
    static const double offsets[] = {-1024, -1023.75, -30000, 1e6};
    struct random r = {7};

    benches_open(benches);
    for (size_t i = 0; i < 8; i++) {
        const ngd_dtype_t t = i % 2 ? NGD_F32 : NGD_BF16; /* f16 has no number as large as the results */
        struct product p = {.xt = t, .st = t, .ot = t, .m = 3, .n = 3, .k = 520, .offset = true};
        struct operands o;

        operands_open(&o, &p, &r);
        set_weights(&o, &p, -128, -128);
        for (int64_t j = 0; j < p.m * p.k; j++)
            numbers_put(&o.x, j, j / p.k == 0 ? 1.9999 : -1.9999);
        for (int64_t j = 0; j < p.n; j++) {
            numbers_put(&o.scale, j, 1);
            numbers_put(&o.offset, j, offsets[i / 2]);
        }
        define(&o, &p);
        check_operands(&p, &o);
        operands_close(&o);
    }
    benches_close(benches);
}
END_TEST

/* The weight of the large element is 0: what remains is how exact the others are beside it. */
START_TEST(small_elements_beside_a_large_one_are_within_their_bound)
{
    struct random r = {8};

    benches_open(benches);
    for (size_t i = 0; i < 2 * N_TYPES; i++) {
        struct product p = {.xt = types[i % N_TYPES].x,
                            .st = types[i % N_TYPES].s,
                            .ot = types[i % N_TYPES].o,
                            .m = 2,
                            .n = 5,
                            .k = 256};
        struct operands o;

        p.int4 = i >= N_TYPES;
        p.group = p.int4 ? 128 : 0;
        operands_open(&o, &p, &r);
        set_weights(&o, &p, 7, 0);
        for (int64_t m = 0; m < p.m; m++) {
            numbers_put(&o.x, m * p.k, 1000);
            for (int64_t k = 1; k < p.k; k++)
                numbers_put(&o.x, m * p.k + k, 0.01 * random_value(&r));
        }
        define(&o, &p);
        for (int64_t j = 0; j < p.m * p.n; j++)
            for (int64_t k = 1; k < p.k; k++)
                o.allowed[j] += fabs(7 * antiquant(&p, &o.scale, j % p.n, k)) * 1024 * half_step(&p);
        check_operands(&p, &o);
        operands_close(&o);
    }
    benches_close(benches);
}
END_TEST

/* The smallest and the largest scales, which are powers of two that f32 has; and 255, which makes its column NaN. */
START_TEST(each_e8m0_is_what_it_should_be)
{
    struct random r = {17};

    benches_open(benches);
    for (int64_t m = 1; m < 60; m += 29) {
        struct product p = {.xt = NGD_F32, .st = NGD_U8, .f4 = true, .m = m, .n = 256, .k = 64, .group = 32};
        char *y = malloc((size_t)(p.m * p.n) * 4);
        struct operands o;

        operands_open(&o, &p, &r);
        memset(o.w, 0x22, o.w_bytes); /* each weight is 1 */
        for (int64_t i = 0; i < p.m * p.k; i++)
            numbers_put(&o.x, i, i % p.k == 33);
        for (int64_t i = 0; i < 2 * p.n; i++)
            o.scale.data[i] = i % 2 ? (char)(i / 2) : 127;
        EACH_ISA (isa) {
            run_rows(&benches[isa], &p, &o, y);
            for (int64_t i = 0; i < p.m * p.n; i++) {
                const double got = numbers_got(NGD_F32, y, i), want = ldexp(1, (int)(i % 256) - 127);

                ck_assert_msg(i % 256 == 255 ? isnan(got) : fabs(got - want) <= 0, "%s, %lld rows: scale %lld is %g",
                              benches[isa].name, (long long)m, (long long)(i % 256), got);
            }
        }
        operands_close(&o);
        free(y);
    }
    benches_close(benches);
}
END_TEST

START_TEST(what_is_not_finite_spoils_its_row_only)
{
    static const double bad[] = {NAN, INFINITY, -INFINITY};
    struct random r = {9};

    benches_open(benches);
    for (size_t i = 0; i < 3 * N_TYPES; i++) {
        struct product p = {.xt = types[i % N_TYPES].x,
                            .st = types[i % N_TYPES].s,
                            .ot = types[i % N_TYPES].o,
                            .m = 3,
                            .n = 20,
                            .k = 300};
        char before[3 * 20 * 4], after[3 * 20 * 4];
        const size_t row = (size_t)p.n * ngd_dtype_bytes(p.xt);
        struct operands o;

        operands_open(&o, &p, &r);
        EACH_ISA (isa) {
            numbers_put(&o.x, p.k + 7, 1);
            run_rows(&benches[isa], &p, &o, before);
            numbers_put(&o.x, p.k + 7, bad[i / N_TYPES]);
            run_rows(&benches[isa], &p, &o, after);
            ck_assert(memcmp(before, after, row) == 0);
            ck_assert(memcmp(before + 2 * row, after + 2 * row, row) == 0);
            for (int64_t n = 0; n < p.n; n++)
                ck_assert(isnan(numbers_got(p.xt, after, p.n + n)));
        }
        operands_close(&o);
    }
    benches_close(benches);
}
END_TEST

UNIT_MAIN("ops/quant_matmul", one_block_scale_may_be_that_of_all_blocks, a_k_of_0_keeps_the_columns,
          sums_of_the_largest_numbers_do_not_overflow, small_elements_beside_a_large_one_are_within_their_bound,
          what_is_not_finite_spoils_its_row_only, weights_in_rows_of_k_are_right, weights_in_other_layouts_are_right,
          many_rows_of_each_form_and_precision_are_right, blocks_and_minima_are_right,
          a_row_has_the_same_bits_among_others, a_row_has_the_same_bits_among_many, digits_have_the_same_bits_on_tiles,
          each_f8_is_what_it_should_be, each_e8m0_is_what_it_should_be)
