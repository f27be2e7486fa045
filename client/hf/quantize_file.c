/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The header of the new file follows from the old one, so it is written first. Then rows go through memory some at a
 * time, and are written where the header says.
 */
#include "client/hf/quantize_file.h"
#include "base/dtype.h"
#include "base/read_at.h"
#include "client/lib/error.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define HEADER_MAX  ((uint64_t)100 << 20)
#define CHUNK_BYTES ((uint64_t)4 << 20)
#define COLUMNS_MAX (1 << 20)
#define F8_MOST     448.0f

struct copy {
    struct npugraph__quantize_run *run;
    const char *from;
    int in, out;
    uint64_t in_data, out_data; /* where the tensors' bytes begin */
    uint64_t size;              /* of the source */
    json_t *header, *made;      /* old and new */
};

/* A tensor of the source. */
struct source {
    const char *name;
    ngd_dtype_t dtype;
    int64_t rows, columns; /* 0 columns: not a matrix */
    bool stacked;          /* it has three dimensions: the weights of several experts */
    uint64_t begin, bytes;
};

static int corrupt_file(const struct copy *c, const char *name, const char *what)
{
    return npugraph__error(c->run->err, 3, "FILE_CORRUPT", "%s: %s%s%s", c->from, name, name[0] ? " " : "", what);
}

/* ---- reading and writing ---- */

static int read_at(const struct copy *c, void *to, uint64_t n, uint64_t offset)
{
    struct ngd_diag diag = {0};
    const ngd_status_t status = ngd_read_at(c->in, to, n, offset, &diag);

    if (status == NGD_ERR_FILE_TRUNCATED)
        return corrupt_file(c, "", "became shorter while it was read");
    if (status != NGD_OK)
        return npugraph__error(c->run->err, 13, "INTERNAL", "%s: %s", c->from, diag.text);
    return 0;
}

static int write_at(const struct copy *c, const void *from, uint64_t n, uint64_t offset)
{
    for (uint64_t done = 0; done < n;) {
        ssize_t k = pwrite(c->out, (const char *)from + done, n - done, (off_t)(offset + done));

        if (k < 0 && errno != EINTR)
            return npugraph__error(c->run->err, 13, "INTERNAL", "writing the new checkpoint failed: %s",
                                   strerror(errno));
        done += k > 0 ? (uint64_t)k : 0;
    }
    return 0;
}

static void count_read(const struct copy *c, uint64_t n)
{
    c->run->done += n;
    if (c->run->progress != NULL)
        c->run->progress(c->run->user, c->run->done, c->run->total);
}

/* ---- headers ---- */

static int read_header(struct copy *c)
{
    uint8_t first[8];
    uint64_t n = 0;
    char *text;
    int rc;

    if (c->size < 8)
        return corrupt_file(c, "", "is shorter than a header");
    rc = read_at(c, first, 8, 0);
    for (int i = 0; rc == 0 && i < 8; i++)
        n |= (uint64_t)first[i] << (8 * i);
    if (rc == 0 && (n > HEADER_MAX || n > c->size - 8))
        return corrupt_file(c, "", "has a header that is longer than the file, or than 100 MiB");
    text = rc == 0 ? malloc(n + 1) : NULL;
    if (rc == 0 && text == NULL)
        return npugraph__error(c->run->err, 8, "NO_MEMORY", "out of memory");
    if (rc == 0)
        rc = read_at(c, text, n, 8);
    c->header = rc == 0 ? json_loadb(text, n, JSON_REJECT_DUPLICATES, NULL) : NULL;
    free(text);
    c->in_data = 8 + n;
    return rc == 0 && !json_is_object(c->header) ? corrupt_file(c, "", "has a header that is no JSON object") : rc;
}

/* Reads the shape: the number of elements, and rows and columns of a matrix. */
static bool read_shape(const json_t *shape, struct source *s, uint64_t *n_p)
{
    uint64_t n = 1;
    size_t i;
    json_t *dim;

    if (!json_is_array(shape))
        return false;
    json_array_foreach((json_t *)shape, i, dim)
    {
        json_int_t v = json_integer_value(dim);

        if (!json_is_integer(dim) || v < 0 || (v > 0 && n > INT64_MAX / 8 / (uint64_t)v))
            return false;
        n *= (uint64_t)v;
    }
    if (json_array_size(shape) == 2 && n > 0) {
        s->rows = json_integer_value(json_array_get(shape, 0));
        s->columns = json_integer_value(json_array_get(shape, 1));
    }
    s->stacked = json_array_size(shape) == 3;
    *n_p = n;
    return true;
}

static int read_source_tensor(const struct copy *c, const char *name, const json_t *entry, struct source *s)
{
    const json_t *offsets = json_object_get(entry, "data_offsets");
    const char *dtype = json_string_value(json_object_get(entry, "dtype"));
    json_int_t begin = json_integer_value(json_array_get(offsets, 0)),
               end = json_integer_value(json_array_get(offsets, 1));
    uint64_t n;

    *s = (struct source){.name = name};
    if (dtype == NULL || !read_shape(json_object_get(entry, "shape"), s, &n))
        return corrupt_file(c, name, "has no dtype, or no shape");
    if (json_array_size(offsets) != 2 || begin < 0 || end < begin || (uint64_t)end > c->size - c->in_data)
        return corrupt_file(c, name, "lies outside the file");
    s->begin = (uint64_t)begin;
    s->bytes = (uint64_t)(end - begin);
    if (!ngd_dtype_from_safetensors(dtype, &s->dtype)) {
        s->columns = 0; /* a dtype that the daemon does not know is copied */
        return 0;
    }
    return s->bytes == n * ngd_dtype_bytes(s->dtype) ? 0
                                                     : corrupt_file(c, name, "has more or fewer bytes than its shape");
}

static bool ends_in(const char *name, const char *end)
{
    const size_t n = strlen(name), m = strlen(end);

    return n >= m && strcmp(name + n - m, end) == 0;
}

/* The linears of the layers of a model's text, by the names that families give them. */
static bool is_quantised(const struct source *s)
{
    const bool expert = strstr(s->name, ".experts.") != NULL;

    if (s->columns == 0 || !ngd_dtype_is_float(s->dtype) || strstr(s->name, "layers.") == NULL ||
        strstr(s->name, "vision_tower.") != NULL)
        return false;
    return ends_in(s->name, "_proj.weight") || ends_in(s->name, ".c_fc.weight") ||
           (expert &&
            (ends_in(s->name, ".w1.weight") || ends_in(s->name, ".w2.weight") || ends_in(s->name, ".w3.weight")));
}

static int64_t columns_of_group(const struct copy *c, const struct source *s)
{
    return c->run->q->group != 0 ? c->run->q->group : s->columns;
}

/* The name of what a tensor becomes: `end` in the place of its last `cut` characters. */
static void new_name(char to[512], const char *name, size_t cut, const char *end)
{
    snprintf(to, 512, "%.*s%s", (int)(strlen(name) - cut), name, end);
}

/* Adds a tensor to the new header; its bytes get their place when all are known. */
static int add_tensor(struct copy *c, const char *name, size_t cut, const char *end, const char *dtype, json_t *shape,
                      uint64_t bytes)
{
    json_t *entry = json_pack("{s:s, s:o, s:[I, I]}", "dtype", dtype, "shape", shape, "data_offsets", (json_int_t)0,
                              (json_int_t)bytes);
    char full[512];

    new_name(full, name, cut, end);
    c->run->q->bytes_after += bytes;
    if (json_object_get(c->made, full) != NULL) {
        json_decref(entry);
        return corrupt_file(c, full, "is there, beside the weight that it would come from");
    }
    return json_object_set_new(c->made, full, entry) == 0
               ? 0
               : npugraph__error(c->run->err, 8, "NO_MEMORY", "out of memory");
}

static int check_columns(const struct copy *c, const struct source *s)
{
    const struct npugraph_quantize *q = c->run->q;

    if (s->columns > COLUMNS_MAX || strlen(s->name) > 400)
        return corrupt_file(c, s->name, "has more than 1048576 columns, or a name of more than 400 characters");
    if (q->group != 0 && s->columns % q->group != 0)
        return npugraph__error(c->run->err, 3, "INVALID_ARGUMENT",
                               "%s: %s has %" PRId64 " columns, which groups of %" PRId64
                               " do not divide; give another --group",
                               c->from, s->name, s->columns, q->group);
    if (q->bits == 4 && s->columns % 8 != 0)
        return npugraph__error(c->run->err, 3, "INVALID_ARGUMENT",
                               "%s: %s has %" PRId64 " columns; int4 needs a multiple of 8; use --to int8", c->from,
                               s->name, s->columns);
    return 0;
}

/* Adds what a weight becomes: the numbers, their scales, and with int4 the shape. */
static int add_quantised(struct copy *c, const struct source *s, const char *dtype)
{
    const size_t cut = strlen("weight");
    const int64_t groups = s->columns / columns_of_group(c, s);
    const uint64_t scales = (uint64_t)(s->rows * groups) * ngd_dtype_bytes(s->dtype);
    int rc;

    c->run->q->n_tensors++;
    if (c->run->q->bits == 8)
        rc = add_tensor(c, s->name, cut, "weight", c->run->q->floats ? "F8_E4M3" : "I8",
                        json_pack("[I, I]", (json_int_t)s->rows, (json_int_t)s->columns),
                        (uint64_t)(s->rows * s->columns));
    else
        rc = add_tensor(c, s->name, cut, "weight_packed", "I32",
                        json_pack("[I, I]", (json_int_t)s->rows, (json_int_t)s->columns / 8),
                        (uint64_t)(s->rows * s->columns) / 2);
    if (rc == 0)
        rc = add_tensor(c, s->name, cut, "weight_scale", dtype,
                        json_pack("[I, I]", (json_int_t)s->rows, (json_int_t)groups), scales);
    if (rc == 0 && c->run->q->bits == 4)
        rc = add_tensor(c, s->name, cut, "weight_shape", "I64", json_pack("[i]", 2), 16);
    return rc;
}

/* Notes a weight that stays as it is: a linear of that name must not be taken for a quantised one. */
static void note_ignored(const struct copy *c, const struct source *s)
{
    if ((s->columns > 0 || s->stacked) && ends_in(s->name, ".weight") && !ends_in(s->name, "embed_tokens.weight") &&
        strcmp(s->name, "lm_head.weight") != 0)
        json_array_append_new(c->run->ignored, json_stringn(s->name, strlen(s->name) - strlen(".weight")));
}

static int plan_tensor(struct copy *c, const struct source *s, const json_t *entry)
{
    const char *dtype = json_string_value(json_object_get(entry, "dtype"));
    int rc;

    c->run->q->bytes_before += s->bytes;
    if (!is_quantised(s)) {
        note_ignored(c, s);
        return add_tensor(c, s->name, 0, "", dtype, json_incref(json_object_get(entry, "shape")), s->bytes);
    }
    rc = check_columns(c, s);
    return rc == 0 ? add_quantised(c, s, dtype) : rc;
}

/* Gives the tensors their places: those with the largest elements first, so that all are aligned. */
static void place_new_tensors(const struct copy *c)
{
    json_int_t at = 0;
    const char *name;
    json_t *entry;

    for (size_t size = 8; size > 0; size /= 2)
        json_object_foreach(c->made, name, entry)
        {
            const char *dtype = json_string_value(json_object_get(entry, "dtype"));
            json_t *offsets = json_object_get(entry, "data_offsets");
            ngd_dtype_t t;

            if (dtype == NULL || (ngd_dtype_from_safetensors(dtype, &t) ? ngd_dtype_bytes(t) : 1) != size)
                continue;
            json_array_set_new(offsets, 0, json_integer(at));
            at += json_integer_value(json_array_get(offsets, 1));
            json_array_set_new(offsets, 1, json_integer(at));
        }
}

/* Returns where a tensor's bytes begin in the new file. */
static uint64_t new_place(const struct copy *c, const char *name, size_t cut, const char *end)
{
    char full[512];
    const json_t *entry;

    new_name(full, name, cut, end);
    entry = json_object_get(c->made, full);
    return c->out_data + (uint64_t)json_integer_value(json_array_get(json_object_get(entry, "data_offsets"), 0));
}

static int write_header(struct copy *c)
{
    char *text = json_dumps(c->made, JSON_COMPACT);
    uint64_t n = text != NULL ? strlen(text) : 0, padded = (n + 7) & ~(uint64_t)7;
    uint8_t first[8];
    int rc;

    if (text == NULL)
        return npugraph__error(c->run->err, 8, "NO_MEMORY", "out of memory");
    for (int i = 0; i < 8; i++)
        first[i] = (uint8_t)(padded >> (8 * i));
    rc = write_at(c, first, 8, 0);
    if (rc == 0)
        rc = write_at(c, text, n, 8);
    if (rc == 0)
        rc = write_at(c, "       ", padded - n, 8 + n);
    c->out_data = 8 + padded;
    free(text);
    return rc;
}

/* ---- tensors ---- */

static int copy_tensor(const struct copy *c, const struct source *s)
{
    const uint64_t begin = s->begin, bytes = s->bytes, to = new_place(c, s->name, 0, "");
    char *chunk = malloc(CHUNK_BYTES);
    int rc = chunk != NULL ? 0 : npugraph__error(c->run->err, 8, "NO_MEMORY", "out of memory");

    for (uint64_t at = 0; rc == 0 && at < bytes;) {
        const uint64_t n = bytes - at < CHUNK_BYTES ? bytes - at : CHUNK_BYTES;

        rc = read_at(c, chunk, n, c->in_data + begin + at);
        if (rc == 0)
            rc = write_at(c, chunk, n, to + at);
        count_read(c, n);
        at += n;
    }
    free(chunk);
    return rc;
}

/* Stores a scale in the dtype of the weights. Returns its value there. */
static float put_scale(ngd_dtype_t t, char *p, int64_t i, float v)
{
    if (t == NGD_F32)
        ((float *)(void *)p)[i] = v;
    else
        ((uint16_t *)(void *)p)[i] = t == NGD_F16 ? ngd_f32_to_f16(v) : ngd_f32_to_bf16(v);
    return ngd_float_at(p, t, i);
}

/* Stores and gives the scale that brings n weights to a magnitude of `most`, or of a little more, as scales are
 * rounded. Returns false if a weight is not finite. */
static bool choose_scale(const struct source *s, const char *from, int64_t at, int64_t n, float most, char *scales,
                         int64_t scale_at, float *scale_p)
{
    float top = 0;

    for (int64_t i = 0; i < n; i++) {
        const float v = fabsf(ngd_float_at(from, s->dtype, at + i));

        if (!isfinite(v))
            return false;
        top = v > top ? v : top;
    }
    *scale_p = put_scale(s->dtype, scales, scale_at, top / most);
    if (!(*scale_p > 0)) /* zeros, or weights too small for a scale */
        *scale_p = put_scale(s->dtype, scales, scale_at, 1);
    return true;
}

/* Rounds n weights from `from` on to f8: the largest becomes 448, f8's largest number. Returns false if a weight is not
 * finite. */
static bool round_floats(const struct source *s, const char *from, int64_t at, int64_t n, uint8_t *to, char *scales,
                         int64_t scale_at)
{
    float scale;

    if (!choose_scale(s, from, at, n, F8_MOST, scales, scale_at, &scale))
        return false;
    for (int64_t i = 0; i < n; i++) {
        const float v = ngd_float_at(from, s->dtype, at + i) / scale; /* a rounded scale may be too small for it */

        to[at + i] = ngd_f32_to_f8(v > F8_MOST ? F8_MOST : v < -F8_MOST ? -F8_MOST : v);
    }
    return true;
}

/* Rounds n weights from `from` on. Numbers are i8, or nibbles of n + 8. Returns false if a weight is not finite. */
static bool round_group(const struct source *s, const char *from, int64_t at, int64_t n, int bits, int8_t *to,
                        char *scales, int64_t scale_at)
{
    const float most = (float)(1 << (bits - 1));
    float scale;

    if (!choose_scale(s, from, at, n, most - 0.5f, scales, scale_at, &scale))
        return false;
    for (int64_t i = 0; i < n; i++) {
        const float v = rintf(ngd_float_at(from, s->dtype, at + i) / scale), low = v < -most ? -most : v;
        const int q = (int)(low > most - 1 ? most - 1 : low);

        if (bits == 8)
            to[at + i] = (int8_t)q;
        else if ((at + i) % 2 == 0)
            to[(at + i) / 2] = (int8_t)(q + 8);
        else
            to[(at + i) / 2] = (int8_t)(to[(at + i) / 2] | (q + 8) << 4);
    }
    return true;
}

/* Quantises rows in turn. */
static int quantise_tensor(const struct copy *c, const struct source *s)
{
    const size_t cut = strlen("weight");
    const int bits = c->run->q->bits;
    const int64_t group = columns_of_group(c, s), groups = s->columns / group;
    const uint64_t row = (uint64_t)s->columns * ngd_dtype_bytes(s->dtype),
                   q_row = (uint64_t)s->columns * (uint64_t)bits / 8,
                   scale_row = (uint64_t)groups * ngd_dtype_bytes(s->dtype),
                   to = new_place(c, s->name, cut, bits == 8 ? "weight" : "weight_packed"),
                   scales_at = new_place(c, s->name, cut, "weight_scale");
    const int64_t each = row < CHUNK_BYTES ? (int64_t)(CHUNK_BYTES / row) : 1;
    const int64_t shape[2] = {s->rows, s->columns};
    char *raw = malloc((uint64_t)each * row), *scales = malloc((uint64_t)each * scale_row);
    int8_t *q = malloc((uint64_t)each * q_row);
    int rc =
        raw != NULL && scales != NULL && q != NULL ? 0 : npugraph__error(c->run->err, 8, "NO_MEMORY", "out of memory");

    for (int64_t r = 0; rc == 0 && r < s->rows; r += each) {
        const int64_t n = s->rows - r < each ? s->rows - r : each;

        rc = read_at(c, raw, (uint64_t)n * row, c->in_data + s->begin + (uint64_t)r * row);
        for (int64_t i = 0; rc == 0 && i < n * groups; i++)
            if (!(c->run->q->floats ? round_floats(s, raw, i * group, group, (uint8_t *)q, scales, i)
                                    : round_group(s, raw, i * group, group, bits, q, scales, i)))
                rc = corrupt_file(c, s->name, "has a value that is not finite");
        if (rc == 0)
            rc = write_at(c, q, (uint64_t)n * q_row, to + (uint64_t)r * q_row);
        if (rc == 0)
            rc = write_at(c, scales, (uint64_t)n * scale_row, scales_at + (uint64_t)r * scale_row);
        count_read(c, (uint64_t)n * row);
    }
    if (rc == 0 && bits == 4)
        rc = write_at(c, shape, sizeof(shape), new_place(c, s->name, cut, "weight_shape"));
    free(raw);
    free(scales);
    free(q);
    return rc;
}

/* Plans all tensors, writes the header, and then the tensors. */
static int copy_tensors(struct copy *c)
{
    const char *name;
    json_t *entry;
    struct source s;
    int rc = 0;

    json_object_foreach(c->header, name, entry)
    {
        if (rc == 0 && strcmp(name, "__metadata__") != 0) {
            rc = read_source_tensor(c, name, entry, &s);
            if (rc == 0)
                rc = plan_tensor(c, &s, entry);
        }
    }
    if (rc != 0 || c->out < 0)
        return rc;
    place_new_tensors(c);
    rc = write_header(c);
    json_object_foreach(c->header, name, entry)
    {
        if (rc == 0 && strcmp(name, "__metadata__") != 0) {
            rc = read_source_tensor(c, name, entry, &s);
            if (rc == 0)
                rc = is_quantised(&s) ? quantise_tensor(c, &s) : copy_tensor(c, &s);
        }
    }
    return rc;
}

static int open_both(struct copy *c, const char *to)
{
    struct stat sb;

    c->in = open(c->from, O_RDONLY | O_CLOEXEC);
    if (c->in < 0 || fstat(c->in, &sb) != 0 || !S_ISREG(sb.st_mode))
        return npugraph__error(c->run->err, 5, "FILE_NOT_FOUND", "%s: %s", c->from,
                               errno != 0 ? strerror(errno) : "not a file");
    c->size = (uint64_t)sb.st_size;
    if (to == NULL)
        return 0;
    c->out = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    return c->out >= 0 ? 0 : npugraph__error(c->run->err, 13, "INTERNAL", "%s: %s", to, strerror(errno));
}

int npugraph__quantize_file(struct npugraph__quantize_run *run, const char *from, const char *to, const char *file)
{
    struct copy c = {.run = run, .from = from, .in = -1, .out = -1};
    const char *name;
    json_t *entry;
    int rc;

    errno = 0;
    c.made = json_pack("{s:{s:s}}", "__metadata__", "format", "pt");
    rc = c.made != NULL ? open_both(&c, to) : npugraph__error(run->err, 8, "NO_MEMORY", "out of memory");
    if (rc == 0)
        rc = read_header(&c);
    if (rc == 0)
        rc = copy_tensors(&c);
    json_object_foreach(c.made, name, entry)
    {
        (void)entry;
        if (rc == 0 && to != NULL && strcmp(name, "__metadata__") != 0)
            json_object_set_new(run->map, name, json_string(file));
    }
    if (c.in >= 0)
        close(c.in);
    if (c.out >= 0 && close(c.out) != 0 && rc == 0)
        rc = npugraph__error(run->err, 13, "INTERNAL", "%s: %s", to, strerror(errno));
    json_decref(c.header);
    json_decref(c.made);
    return rc;
}
