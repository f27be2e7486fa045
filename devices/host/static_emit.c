/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Generates the sources of an executable's static kernels: a file for each family of kernels, and a file with the table
 * of their functions. They are one text, with a line in front of each file (NGD_STATIC_FILE_MARK). Calls with the same
 * kernel and the same parameters share a function, as the layers of a model do.
 *
 * The text depends only on the plan and the instruction set, not on addresses: its digest names the object.
 */
#include "devices/host/host.h"
#include "devices/host/static.h"
#include "base/mem.h"
#include <math.h>
#include <string.h>

#define SIGNATURE                                                                   \
    "(const struct ngd_host_call *call, struct ngd_host_run *run, uint32_t part,\n" \
    "                     uint32_t parts)"

static const struct {
    const char *name, *sources;
} families[NGD_STATIC_FAMILIES] = {
    [NGD_STATIC_ATTENTION] = {"attention", "#include \"devices/host/kernels/k_attention_impl.h\"\n"
                                           "#include \"devices/host/kernels/k_attention.c\"\n"},
    [NGD_STATIC_LINEAR] = {"linear", "#include \"devices/host/kernels/k_norm_impl.h\"\n"
                                     "#include \"devices/host/kernels/k_rotary_impl.h\"\n"
                                     "#include \"devices/host/kernels/k_gemm_impl.h\"\n"
                                     "#include \"devices/host/kernels/k_gemm.c\"\n"
                                     "#include \"devices/host/kernels/k_linear_fused.c\"\n"},
    [NGD_STATIC_QK_SCATTER] = {"qk_scatter", "#include \"devices/host/kernels/k_norm_impl.h\"\n"
                                             "#include \"devices/host/kernels/k_rotary_impl.h\"\n"
                                             "#include \"devices/host/kernels/k_cast_impl.h\"\n"
                                             "#include \"devices/host/kernels/k_qk_scatter.c\"\n"},
};

/* Writes the exact value, as a hexadecimal constant. C has those for finite values only. */
static void put_float(struct ngd_strbuf *sb, const void *at)
{
    float v;

    memcpy(&v, at, sizeof(v));
    if (isfinite(v))
        ngd_strbuf_printf(sb, "%af", (double)v);
    else
        ngd_strbuf_append(sb, isnan(v) ? "__builtin_nanf(\"\")" : v < 0 ? "-__builtin_inff()" : "__builtin_inff()");
}

static void put_integer(struct ngd_strbuf *sb, const void *at, size_t size)
{
    int64_t v = 0;

    memcpy(&v, at, size); /* little endian */
    ngd_strbuf_printf(sb, "%lld", (long long)v);
}

void ngd_static_emit_fields(struct ngd_strbuf *sb, const void *params, const struct ngd_static_field *fields, size_t n)
{
    for (const struct ngd_static_field *f = fields; f < fields + n; f++) {
        const char *at = (const char *)params + f->offset, *end = at + f->bytes;
        const bool array = f->bytes > f->each;

        ngd_strbuf_printf(sb, array ? ".%s = {" : ".%s = ", f->name);
        for (; at < end; at += f->each) {
            if (f->real)
                put_float(sb, at);
            else
                put_integer(sb, at, f->each);
            ngd_strbuf_append(sb, ", ");
        }
        if (array)
            ngd_strbuf_append(sb, "}, ");
    }
}

void ngd_static_emit_rows(const struct ngd_host_call *call, int64_t mult, struct ngd_strbuf *sb)
{
    if (call->row_sym == NGD_NO_ROW_SYM)
        ngd_strbuf_printf(sb, "%lld", (long long)(call->rows * mult));
    else
        ngd_strbuf_printf(sb, "ngd_host_rows(call, run) * %lld", (long long)mult);
}

/* ---- functions ----------------------------------------------------------------------------------------- */

struct function {
    uint8_t family;
    struct ngd_strbuf body;
};

struct functions {
    uint32_t n;
    struct function fn[NGD_STATIC_FUNCTIONS];
};

/* Returns the number of the function with this body. Takes the body if it is new. Returns UINT32_MAX if there are too
 * many functions. */
static uint32_t find_or_add(struct functions *f, uint8_t family, struct ngd_strbuf *body)
{
    for (uint32_t i = 0; i < f->n; i++)
        if (f->fn[i].family == family && f->fn[i].body.len == body->len &&
            memcmp(f->fn[i].body.data, body->data, body->len) == 0)
            return i;
    if (f->n == NGD_STATIC_FUNCTIONS)
        return UINT32_MAX;
    f->fn[f->n] = (struct function){.family = family, .body = *body};
    ngd_strbuf_init(body);
    return f->n++;
}

/* Returns the number of the call's function, UINT32_MAX if it has none. Calls that a team shares keep their own
 * functions: memory limits them, and constants would gain nothing. */
static uint32_t number_function(struct functions *f, const struct ngd_plan_call *call, const struct ngd_host_call *hc,
                                bool *failed_p)
{
    const struct ngd_host_kernel *kernel = ngd_host_kernel_of(call->op->id);
    uint32_t number = UINT32_MAX;
    struct ngd_strbuf body;

    if (!kernel->emit || hc->shared > 1 || hc->pieces > 1)
        return UINT32_MAX;
    ngd_strbuf_init(&body);
    if (kernel->emit(hc, &body)) {
        *failed_p |= body.failed;
        if (!body.failed)
            number = find_or_add(f, kernel->family, &body);
    }
    ngd_strbuf_fini(&body);
    return number;
}

/* ---- files --------------------------------------------------------------------------------------------- */

static int simd_of(ngd_isa_t isa)
{
#if defined(__x86_64__)
    return isa >= NGD_ISA_AVX512 ? 16 : isa == NGD_ISA_AVX2 ? 8 : 1;
#else
    (void)isa;
    return 1;
#endif
}

static void put_family_file(const struct functions *f, int family, int simd, struct ngd_strbuf *sb)
{
    bool begun = false;

    for (uint32_t i = 0; i < f->n; i++) {
        if (f->fn[i].family != family)
            continue;
        if (!begun)
            ngd_strbuf_printf(sb,
                              NGD_STATIC_FILE_MARK "%s.c\n#define NGD_STATIC 1\n#define NGD_STATIC_FAMILY "
                                                   "static_%s\n#define NGD_SIMD %d\n%s",
                              families[family].name, families[family].name, simd, families[family].sources);
        begun = true;
        ngd_strbuf_printf(sb,
                          "\nvoid ngd_static_%u" SIGNATURE ";\n__attribute__((flatten)) void ngd_static_%u" SIGNATURE
                          "\n{\n    (void)part;\n    (void)parts;\n%s}\n",
                          (unsigned)i, (unsigned)i, ngd_strbuf_str(&f->fn[i].body));
    }
}

static void put_table(const struct functions *f, struct ngd_strbuf *sb)
{
    ngd_strbuf_append(
        sb, NGD_STATIC_FILE_MARK
        "table.c\n#define NGD_STATIC 1\n#include \"base/dtype.c\"\n#include \"devices/host/static.h\"\n\n");
    for (uint32_t i = 0; i < f->n; i++)
        ngd_strbuf_printf(sb, "void ngd_static_%u" SIGNATURE ";\n", (unsigned)i);
    ngd_strbuf_append(sb, "\nvoid (*ngd_static_fail)(const struct ngd_host_call *call, struct ngd_host_run *run, "
                          "ngd_status_t status,\n                        int64_t value);\n"
                          "static const ngd_host_fn functions[] = {");
    for (uint32_t i = 0; i < f->n; i++)
        ngd_strbuf_printf(sb, "ngd_static_%u, ", (unsigned)i);
    ngd_strbuf_append(sb, "};\n"
                          "extern const struct ngd_static_object ngd_static_object;\n"
                          "__attribute__((visibility(\"default\"))) const struct ngd_static_object "
                          "ngd_static_object = {\n"
                          "    NGD_STATIC_ABI, sizeof(functions) / sizeof(functions[0]), functions, "
                          "NGD_STATIC_SOURCE, &ngd_static_fail};\n");
}

ngd_status_t ngd_static_emit(const struct host_exec *exec, struct ngd_strbuf *source, uint32_t *map, uint32_t *n_p)
{
    const struct ngd_plan *plan;
    const struct host_device *dev;
    const struct ngd_host_call *calls = ngd_host_calls(exec, &plan, &dev);
    struct functions *f = NGD_NEW(struct functions);
    bool failed = false;

    if (!f)
        return NGD_ERR_NO_MEMORY;
    for (uint32_t i = 0; i < plan->n_calls; i++) {
        const uint32_t number = number_function(f, &plan->calls[i], &calls[i], &failed);

        if (map)
            map[i] = number;
    }
    if (f->n && source) {
        for (int family = NGD_STATIC_NONE + 1; family < NGD_STATIC_FAMILIES; family++)
            put_family_file(f, family, simd_of(dev->isa), source);
        put_table(f, source);
        failed |= source->failed;
    }
    *n_p = f->n;
    for (uint32_t i = 0; i < f->n; i++)
        ngd_strbuf_fini(&f->fn[i].body);
    ngd_free(f);
    return failed ? NGD_ERR_NO_MEMORY : NGD_OK;
}

ngd_status_t ngd_host_static_source(void *dev, void *exec, struct ngd_strbuf *source, struct ngd_diag *diag)
{
    uint32_t n;
    ngd_status_t status = ngd_static_emit(exec, source, NULL, &n);

    (void)dev;
    return status ? ngd_diag_set(diag, status, "no host memory for the source of static kernels") : NGD_OK;
}
