/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DEVICES_HOST_KERNELS_K_GEMM_H
#define NGD_DEVICES_HOST_KERNELS_K_GEMM_H

/*
 * Matrix products: y[M,N] = alpha * x[M,K] * w + beta * bias, with sums in f32.
 *
 * w is stored once, as the client gave it: in rows of K ([N,K], a checkpoint's weights) or in rows of N ([K,N]).
 * There are seven ways to compute. The capture chooses one from the planned shape, never from the actual rows:
 *
 *   dot   w in rows of K, few rows of x. Weight rows are streamed in the order of memory; each vector of weights is
 *         widened and multiplied with 4 rows of x at a time. An element's sum runs in SIMD_W lanes along K, which are
 *         folded at the end.
 *   axpy  w in rows of N, few rows of x. Lanes are columns; an element's sum is one chain along K.
 *   wide  many rows of x. Tiles of w are widened (and transposed) to f32 [k][64] in a workspace that stays in the
 *         L2 cache. LIBXSMM, or our own kernel without it, multiplies blocks of NGD_GEMM_RB rows with them. If a
 *         replay has few rows, the same sums are computed without a tile, or without rows that nobody needs.
 *   tiles bf16 w in rows of K on a CPU with AMX, any number of rows of x: k_gemm_amx.c. Chosen by N and K alone.
 *   panels
 *         on a CPU with AMX, instead of wide: quantised w in any layout, and w in f16 or f32 in rows of K if the
 * precision is not the highest: k_gemm_panel.c. 64 columns of w are split into bf16 terms in a workspace.
 *   digits
 *         on a CPU with AVX-512 VNNI: quantised integers in rows of K, any number of rows of x: k_gemm_digits.c.
 *   digit tiles
 *         the same on AMX tiles, with the same bits, but for small weights and groups of 16: k_gemm_digits_amx.c.
 *
 * Other quantised weights (npu.weight_quant_batchmatmul) take `dot` and `wide`: dot has products of integers and lays x
 * out for them (k_gemm_quant.h), but for f8 products of f32; wide multiplies each weight with its scale when it fills a
 * tile, and so does panels, unless all weights of a column have one scale.
 *
 * tiles and panels split x, and panels w, into bf16 terms (option matmul_precision). Products of terms i and j count if
 * i + j is below 3, 2 or 1 with the precision highest, high or medium: all that matters to a sum in f32, or what leaves
 * an error of 2^-13 or 2^-7 of |x| * |w|. The other ways always compute as for the highest.
 *
 * In each way, an element depends only on its row of x, its column of w and K: not on M, and not on the split.
 * wide serves NGD_GEMM_WIDE_ROWS planned rows and more (of at least NGD_GEMM_NT / 2 columns), dot and axpy serve the
 * rest; between these two the last bits may differ. tiles and digits serve any number of rows.
 */
#include "devices/host/kernels/by_isa.h"
#include "graphs/antiquant.h"

#define NGD_GEMM_NT 64  /* columns of a wide tile */
#define NGD_GEMM_KC 256 /* depth of a wide tile: 64 KiB of f32 */
#define NGD_GEMM_MC 192 /* rows per pass over a tile: their sums are 48 KiB */
#define NGD_GEMM_RB 24  /* rows per call of the multiplying kernel */

#define NGD_GEMM_PASS_ROWS  512        /* most rows of a pass, in any way */
#define NGD_GEMM_TILES_FROM (64 << 10) /* elements of w; with fewer, setting up tiles takes longer than the product */

#define NGD_GEMM_FEW_ROWS  8  /* actual rows up to which a `wide` product does not fill a block */
#define NGD_GEMM_WIDE_ROWS 48 /* planned rows from which on `wide` is chosen */

typedef enum ngd_gemm_way {
    NGD_GEMM_DOT,
    NGD_GEMM_AXPY,
    NGD_GEMM_WIDE,
    NGD_GEMM_DIGITS,
    NGD_GEMM_PANELS,
    NGD_GEMM_TILES,
    NGD_GEMM_DIGIT_TILES
} ngd_gemm_way_t;

/* c[rows][64] (+)= x[rows][k], rows of ldx elements, times w[k][64]. */
typedef void (*ngd_gemm_mul_fn)(const float *w, const float *x, float *c);

/* The forms of quantised weights. In nibbles there are two a byte, the low one first. */
typedef enum ngd_quant_form {
    NGD_QUANT_I8,
    NGD_QUANT_I4, /* nibbles */
    NGD_QUANT_F8, /* f8_e4m3fn, without offsets */
    NGD_QUANT_F4, /* nibbles of f4_e2m1, without offsets; q is twice the number, an integer, and scales are halved */
    NGD_QUANT_FORMS
} ngd_quant_form_t;

/* An operand that turns numbers into values. */
struct ngd_antiquant_operand {
    ngd_dtype_t type; /* u8: f8_e8m0fnu */
    uint8_t i;        /* index in ptrs */
    int64_t n, g;     /* elements from column to column, and from group to group or block to block */
};

/* Quantised weights: graphs/antiquant.h has their values. */
struct ngd_gemm_quant {
    int64_t group;   /* rows of K that share a scale; K if all do; 0: w is not quantised */
    int64_t columns; /* of N that share a scale, with groups */
    int64_t block;   /* groups that share a block scale; 0: there are none */
    int segment;     /* of dot: k_gemm_quant.h */
    ngd_quant_form_t form;
    bool by_n;        /* an i32 has eight weights along N, not along K */
    bool streamed;    /* rows of K are contiguous, so that dot can read them */
    int64_t w_n, w_k; /* strides of w, in elements as they are stored */
    float zero;       /* added to each number */
    uint32_t has;     /* bits NGD_ANTIQUANT_BIT */
    struct ngd_antiquant_operand antiquant[NGD_ANTIQUANTS];
};

/* The operands of a call at a replay, for one matrix of the batch. */
struct ngd_gemm_data {
    const char *x, *w, *bias;
    const char *antiquant[NGD_ANTIQUANTS]; /* of quantised weights; all NULL: numbers stay as they are stored */
    const char *residual;                  /* added to y after y is rounded; has y's dtype and layout; NULL: none */
    char *y;
    int64_t row0, col0; /* position of y's first element in the result; not 0 if y is a tile of it */
    char *workspace;    /* of this thread */
    int64_t laid_out;   /* number of the pass whose rows of x the workspace holds already, from 1; 0: none */
};

struct ngd_quant_area;

struct ngd_gemm {
    int64_t m, n, k, batch;         /* planned */
    int64_t ldx, ldw, ldy;          /* elements from row to row */
    int64_t step_x, step_w, step_y; /* elements from matrix to matrix of the batch */
    int64_t bias_row, bias_col;     /* elements; 0 = broadcast */
    int64_t rows_mult;              /* rows of x per row of the result's dimension 0; may be 0; unused if `vector` */
    float alpha, beta;
    ngd_dtype_t xt, wt, bias_type; /* y has x's dtype */
    bool vector;                   /* x is one row without a dimension for it: rows of the result are not rows of x */
    bool by_batch;                 /* transpose_bmm: the result's dimension 0 is the batch, else M */
    bool nk;                       /* w in rows of K */
    bool plain_y;                  /* f32, alpha 1, no bias: a sum is the result */
    bool stream;                   /* w is larger than the caches: read one row of it at a time if M is 1 */
    uint8_t i_x, i_w, i_bias;      /* indices in ptrs; bias 0xff = none */
    uint8_t precision;             /* NGD_PRECISION_* */
    struct ngd_gemm_quant quant;
    ngd_gemm_way_t way;
    uint64_t thread_workspace;
    const struct ngd_gemm_table *table;
    /* wide: LIBXSMM kernels for a full tile and for the last tile along K, or NULL; [0] overwrites c, [1] adds to it */
    ngd_gemm_mul_fn full[2], last[2];
    bool alike; /* wide: LIBXSMM's kernels give the bits of the table's `mul`, so that few rows may use that */
};

/* The functions of an instruction set. They compute columns [n0, n1) of `rows` rows. Arrays are indexed by the dtype of
 * x or of w. */
struct ngd_gemm_table {
    /* Widens rows of x and lays them out side by side for dot: rows * (k rounded up to 32) floats. pairs: lay them out
     * for bf16 weights. */
    void (*interleave[3])(const void *x, int64_t ldx, int64_t rows, int64_t k, bool pairs, float *dst);
    void (*dot[3])(const struct ngd_gemm *g, const struct ngd_gemm_data *d, const float *x, int64_t rows, int64_t n0,
                   int64_t n1);
    /* The same for quantised weights, by form, for up to NGD_QUANT_COLUMNS columns: k_gemm_quant.h. */
    void (*quant_dot[NGD_QUANT_FORMS])(const struct ngd_gemm *g, const struct ngd_gemm_data *d,
                                       const struct ngd_quant_area *area, int64_t rows, int64_t n0, int64_t n1);
    /* Dequantises n weights of a row, by form: dst[i] = (q[i] + offset) * scale. Of nibbles n is even. */
    void (*quant_widen[NGD_QUANT_FORMS])(const void *q, int64_t n, float offset, float scale, float *dst);
    /* Multiplies n numbers with the scales of their blocks, each for `each` of them: dst[i] = q[i] * scales[i / each].
     */
    void (*scale_blocks)(const int8_t *q, int64_t n, const float *scales, int64_t each, float *dst);
    /* offsets[i] = (offsets[i] + zero) * scales[i] + minima[i]; minima may be NULL. */
    void (*add_up)(float *offsets, float zero, const float *scales, const float *minima, int64_t n);
    /* Widens n scales in f8_e8m0fnu for NGD_QUANT_F4: dst[i] = 2^(s[i] - 127) / 2, and NaN for 255. */
    void (*widen_e8m0)(const uint8_t *s, int64_t n, float *dst);
    void (*axpy[3])(const struct ngd_gemm *g, const struct ngd_gemm_data *d, int64_t rows, int64_t n0, int64_t n1);
    /* Widens rows of x to f32: dst[rows][cols] with rows of ldd. */
    void (*widen[3])(const void *x, int64_t ldx, int64_t rows, int64_t cols, float *dst, int64_t ldd);
    /* Rounds n numbers to the type of y. */
    void (*narrow[3])(const float *v, int64_t n, void *dst);
    /* Pack a tile of w: cols <= 64 columns, depth <= NGD_GEMM_KC. Missing columns are zero. */
    void (*pack_nk[3])(const void *w, int64_t ldw, int64_t cols, int64_t depth, float *tile);
    void (*pack_kn[3])(const void *w, int64_t ldw, int64_t cols, int64_t depth, float *tile);
    /* Multiplies like LIBXSMM, with one chain of sums along K per element. */
    void (*mul)(const float *tile, const float *x, int64_t ldx, int64_t rows, int64_t depth, float *c, bool add);
    /* The same without a tile, for few rows: of cols <= 64 rows of w, as they lie. */
    void (*chain[3])(const void *w, int64_t ldw, int64_t cols, int64_t depth, const float *x, int64_t ldx, int64_t rows,
                     float *c, bool add);
};
NGD_ISA_TABLES(struct ngd_gemm_table, ngd_gemm_table);

/* Stores n sums as elements y[row][col..], with alpha, beta and bias. */
void ngd_gemm_put(const struct ngd_gemm *g, const struct ngd_gemm_data *d, int64_t row, int64_t col, const float *sums,
                  int64_t n);

/* Returns a LIBXSMM kernel for c[RB][64] (+)= x[RB][depth] * tile[depth][64]; NULL if LIBXSMM cannot make it or is not
 * compiled in. Any thread. */
ngd_gemm_mul_fn ngd_xsmm_mul(int64_t rows, int64_t depth, int64_t ldx, bool add);

/* The units of work of a product: tiles of `width` columns, for each pass over rows. */
struct ngd_gemm_units {
    int64_t width, tiles, passes;
};
struct ngd_gemm_units ngd_gemm_units(const struct ngd_gemm *g, int64_t rows);
/* The first says whether the product begins by laying out all rows of x in the workspace. The second does that alone;
 * the caller sets laid_out to 1 then. */
bool ngd_gemm_lays_out(const struct ngd_gemm *g, int64_t rows);
void ngd_gemm_lay_out(const struct ngd_gemm *g, const struct ngd_gemm_data *d, int64_t rows);
/* Returns the rows of x that a call runs. The product must not be a batch. */
static inline int64_t ngd_gemm_rows(const struct ngd_gemm *g, const struct ngd_host_call *call,
                                    const struct ngd_host_run *run)
{
    return g->vector ? 1 : ngd_host_rows(call, run) * g->rows_mult;
}
/* Computes the rows [m0, m1) of a pass. */
void ngd_gemm_pass(const struct ngd_gemm *g, int64_t rows, int64_t pass, int64_t *m0_p, int64_t *m1_p);
/* Computes columns [n0, n1) of the product for the rows of a pass. */
void ngd_gemm_columns(const struct ngd_gemm *g, const struct ngd_gemm_data *d, int64_t rows, int64_t pass, int64_t n0,
                      int64_t n1);

/* k_gemm_form.c. Describes a call of one of k_gemm.c's operators. *strided_p gets the bits of operands that may keep
 * their strides. */
void ngd_gemm_of_call(const struct ngd_plan *plan, const struct ngd_plan_call *call, struct ngd_gemm *g,
                      uint32_t *strided_p);
/*
 * Describes a linear as a product: x is operand 0, w the index of the weight's operand, bias that of the bias (0xff:
 * none; the operand may be absent too). *strided_p gets the bits of operands that may keep their strides.
 */
void ngd_gemm_of_linear(const struct ngd_plan *plan, const struct ngd_plan_call *call, uint8_t w, uint8_t bias,
                        struct ngd_gemm *g, uint32_t *strided_p);
uint64_t ngd_gemm_workspace(const struct ngd_gemm *g); /* of a thread */
const char *ngd_gemm_way_name(const struct ngd_gemm *g);
double ngd_gemm_cost(const struct ngd_gemm *g, ngd_isa_t isa);

/*
 * The functions of a way are named alike, and are a row of k_gemm.c's table: X_fits says whether a product may go that
 * way; X_rows returns the rows of x of a pass; X_bytes the workspace for so many rows; X_lay_out lays rows out at the
 * workspace's beginning; X_run computes columns [n0, n1) of rows [m0, m1), which are laid out. The first three are
 * called on every CPU: for AVX-512 and AMX they are in k_gemm_rooms.c, apart from the others.
 */

/* k_gemm_wide.c. The last one gets the LIBXSMM kernels, all or none: the rows of one product must not run in kernels of
 * different sums. */
int64_t ngd_gemm_wide_rows(const struct ngd_gemm *g);
uint64_t ngd_gemm_wide_bytes(const struct ngd_gemm *g, int64_t rows);
void ngd_gemm_wide_run(const struct ngd_gemm *g, const struct ngd_gemm_data *d, int64_t m0, int64_t m1, int64_t n0,
                       int64_t n1);
void ngd_gemm_wide_choose(struct ngd_gemm *g, ngd_isa_t isa);

/* k_gemm_amx.c; rows are laid out for panels, too. */
bool ngd_gemm_amx_fits(const struct ngd_gemm *g);
int64_t ngd_gemm_amx_rows(const struct ngd_gemm *g);
uint64_t ngd_gemm_amx_bytes(const struct ngd_gemm *g, int64_t rows);
void ngd_gemm_amx_lay_out(const struct ngd_gemm *g, const char *x, int64_t rows, char *workspace);
void ngd_gemm_amx_run(const struct ngd_gemm *g, const struct ngd_gemm_data *d, int64_t m0, int64_t m1, int64_t n0,
                      int64_t n1);
/* Returns how many rows of x fit in a room when they are laid out: a multiple of 16 from `least` to `most`. */
int64_t ngd_gemm_amx_rows_in(const struct ngd_gemm *g, int64_t room, int64_t least, int64_t most);

/* Returns the number of bf16 terms that add up to any element of the type. */
static inline int64_t ngd_gemm_terms_of(ngd_dtype_t t)
{
    return t == NGD_F32 ? 3 : t == NGD_F16 ? 2 : 1;
}
/* tiles and panels: products of terms i and j count if i + j is below this. */
static inline int64_t ngd_gemm_term_limit(const struct ngd_gemm *g)
{
    return 3 - g->precision;
}
/* tiles and panels: returns the terms of an element of x. */
static inline int64_t ngd_gemm_x_terms(const struct ngd_gemm *g)
{
    const int64_t all = ngd_gemm_terms_of(g->xt), limit = ngd_gemm_term_limit(g);

    return all < limit ? all : limit;
}

/* k_gemm_panel.c */
bool ngd_gemm_panel_fits(const struct ngd_gemm *g);
int64_t ngd_gemm_panel_rows(const struct ngd_gemm *g);
uint64_t ngd_gemm_panel_bytes(const struct ngd_gemm *g, int64_t rows);
void ngd_gemm_panel_run(const struct ngd_gemm *g, const struct ngd_gemm_data *d, int64_t m0, int64_t m1, int64_t n0,
                        int64_t n1);

/* k_gemm_digits.c */
bool ngd_gemm_digits_fit(const struct ngd_gemm *g);
int64_t ngd_gemm_digits_rows(const struct ngd_gemm *g);
uint64_t ngd_gemm_digits_bytes(const struct ngd_gemm *g, int64_t rows);
void ngd_gemm_digits_lay_out(const struct ngd_gemm *g, const char *x, int64_t rows, char *workspace);
void ngd_gemm_digits_run(const struct ngd_gemm *g, const struct ngd_gemm_data *d, int64_t m0, int64_t m1, int64_t n0,
                         int64_t n1);
/* k_gemm_digits_amx.c. On a CPU with AMX and VNNI, ngd_digit_tiles_work asks, once in a process, whether its tiles give
 * the bits of VNNI. */
bool ngd_digit_tiles_fit(const struct ngd_gemm *g);
bool ngd_digit_tiles_work(ngd_isa_t isa);
int64_t ngd_digit_tiles_rows(const struct ngd_gemm *g);
uint64_t ngd_digit_tiles_bytes(const struct ngd_gemm *g, int64_t rows);
void ngd_digit_tiles_lay_out(const struct ngd_gemm *g, const char *x, int64_t rows, char *workspace);
void ngd_digit_tiles_run(const struct ngd_gemm *g, const struct ngd_gemm_data *d, int64_t m0, int64_t m1, int64_t n0,
                         int64_t n1);

/* k_gemm_quant.c: describe a product with quantised weights; for wide and panels, dequantise `depth` weights from k on
 * of columns [n, n + cols): to[cols][NGD_GEMM_KC]. Without scales the numbers stay as they are stored.
 */
#define NGD_GEMM_QUANT_ROOM (NGD_GEMM_NT * NGD_GEMM_KC * sizeof(float))
void ngd_gemm_of_quant(const struct ngd_plan *plan, const struct ngd_plan_call *call, struct ngd_gemm *g,
                       uint32_t *strided_p);
/* Describes weights, rows of K, of which g has k, and what turns them into values: the call's operands `weight` and
 * antiquant[], 0: none, which are [ceil(N / columns), groups] or [1]. Each may have one more dimension in front. */
void ngd_gemm_of_quant_rows(const struct ngd_plan *plan, const struct ngd_plan_call *call, uint32_t weight,
                            const uint32_t antiquant[NGD_ANTIQUANTS], struct ngd_gemm *g);
void ngd_gemm_quant_widen(const struct ngd_gemm *g, const struct ngd_gemm_data *d, int64_t n, int64_t cols, int64_t k,
                          int64_t depth, float *to);
static inline int64_t ngd_gemm_groups(const struct ngd_gemm *g)
{
    return g->k == 0 ? 0 : (g->k + g->quant.group - 1) / g->quant.group;
}

/* For generated code (static.h): say whether a constant g gains anything; append g as a constant. */
bool ngd_gemm_emittable(const struct ngd_gemm *g);
void ngd_gemm_emit(const struct ngd_gemm *g, struct ngd_strbuf *sb);
/* Appends the expression of ngd_gemm_rows(). */
void ngd_gemm_emit_rows(const struct ngd_gemm *g, const struct ngd_host_call *call, struct ngd_strbuf *sb);

/* Fills way, workspace and kernels from the other fields. Tests and benches call it too. */
void ngd_gemm_choose(struct ngd_gemm *g, ngd_isa_t isa);
/* Computes a part of the product for `rows` rows of x. */
void ngd_gemm_run(const struct ngd_gemm *g, const struct ngd_gemm_data *d, int64_t rows, int64_t batch, uint32_t part,
                  uint32_t parts);

#endif
