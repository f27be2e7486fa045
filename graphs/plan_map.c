/* SPDX-License-Identifier: Apache-2.0 */
#include "graphs/plan_map.h"
#include "base/mem.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- blocks ---- */

static void touch_block(const struct ngd_plan *plan, struct ngd_plan_block *roots, uint32_t tensor, uint32_t step,
                        uint32_t maker)
{
    struct ngd_plan_block *b;

    if (tensor == NGD_PLAN_NONE || plan->tensors[tensor].space != NGD_SPACE_POOL)
        return;
    b = &roots[plan->tensors[tensor].root];
    if (b->first > b->last) {
        b->first = b->last = step;
        b->maker = maker;
    }
    b->first = step < b->first ? step : b->first;
    b->last = step > b->last ? step : b->last;
}

static void find_block_lives(const struct ngd_plan *plan, struct ngd_plan_block *roots)
{
    for (uint32_t i = 0; i < plan->n_tensors; i++)
        roots[i] = (struct ngd_plan_block){
            .offset = plan->tensors[i].offset, .bytes = plan->tensors[i].bytes, .first = 1, .last = 0, .tensor = i};
    for (uint32_t i = 0; i < plan->graph->n_inputs; i++)
        touch_block(plan, roots, plan->inputs[i].tensor, 0, NGD_PLAN_NONE);
    for (uint32_t c = 0; c < plan->n_calls; c++) {
        for (uint32_t i = 0; i < plan->calls[c].n_in; i++)
            touch_block(plan, roots, plan->calls[c].in[i], c, c);
        for (uint32_t i = 0; i < plan->calls[c].n_out; i++)
            touch_block(plan, roots, plan->calls[c].out[i], c, c);
    }
    for (uint32_t i = 0; i < plan->graph->n_outputs; i++)
        touch_block(plan, roots, plan->outputs[i].tensor, plan->n_calls, NGD_PLAN_NONE);
}

static int cmp_block(const void *pa, const void *pb)
{
    const struct ngd_plan_block *a = pa, *b = pb;

    if (a->offset != b->offset)
        return a->offset < b->offset ? -1 : 1;
    return a->first < b->first ? -1 : a->first > b->first;
}

ngd_status_t ngd_plan_blocks(const struct ngd_plan *plan, struct ngd_plan_block **list_p, uint32_t *n_p)
{
    struct ngd_plan_block *list = NGD_NEW_N(struct ngd_plan_block, (size_t)plan->n_tensors + plan->n_calls);
    uint32_t n = 0;

    if (!list)
        return NGD_ERR_NO_MEMORY;
    find_block_lives(plan, list);
    for (uint32_t i = 0; i < plan->n_tensors; i++)
        if (list[i].first <= list[i].last && list[i].bytes)
            list[n++] = list[i];
    for (uint32_t c = 0; c < plan->n_calls; c++)
        if (plan->calls[c].workspace_bytes)
            list[n++] = (struct ngd_plan_block){.offset = plan->calls[c].workspace_offset,
                                                .bytes = plan->calls[c].workspace_bytes,
                                                .first = c,
                                                .last = c,
                                                .tensor = NGD_PLAN_NONE,
                                                .maker = c};
    qsort(list, n, sizeof(*list), cmp_block);
    *list_p = list;
    *n_p = n;
    return NGD_OK;
}

/*
 * Prints a client's name with its control characters escaped as in graph text. Maps go to terminals, and a name may not
 * break a line.
 */
static void put_named(struct ngd_strbuf *sb, const char *name)
{
    struct ngd_strbuf quoted;

    ngd_strbuf_init(&quoted);
    ngd_strbuf_json_string(&quoted, name);
    if (quoted.failed)
        sb->failed = true;
    else
        ngd_strbuf_append_n(sb, quoted.data + 1, quoted.len - 2);
    ngd_strbuf_fini(&quoted);
}

static const char *input_label(const struct ngd_plan *plan, uint32_t tensor)
{
    for (uint32_t i = 0; i < plan->graph->n_inputs; i++)
        if (plan->inputs[i].tensor != NGD_PLAN_NONE && plan->tensors[plan->inputs[i].tensor].root == tensor)
            return plan->graph->values[plan->graph->inputs[i]].label;
    return "?";
}

void ngd_plan_block_name(const struct ngd_plan *plan, const struct ngd_plan_block *block, struct ngd_strbuf *sb)
{
    const struct ngd_plan_call *call;
    uint32_t result = 0;

    if (block->maker == NGD_PLAN_NONE) {
        ngd_strbuf_append(sb, "input ");
        put_named(sb, input_label(plan, block->tensor));
        return;
    }
    call = &plan->calls[block->maker];
    if (block->tensor == NGD_PLAN_NONE) {
        ngd_strbuf_printf(sb, "workspace of %s", call->op->name);
        return;
    }
    while (result + 1 < call->n_out && plan->tensors[call->out[result]].root != block->tensor)
        result++;
    if (call->node != NGD_PLAN_NONE && plan->graph->nodes[call->node].op == call->op)
        ngd_strbuf_printf(sb, "%%%s of %s", plan->graph->values[plan->graph->nodes[call->node].out[result]].name,
                          call->op->name);
    else
        ngd_strbuf_printf(sb, "copy by %s", call->op->name);
}

/* Computes the live bytes of each step, 0..n_calls. */
static uint64_t *live_bytes(const struct ngd_plan *plan, const struct ngd_plan_block *list, uint32_t n)
{
    uint64_t *live = NGD_NEW_N(uint64_t, (size_t)plan->n_calls + 2);

    for (uint32_t i = 0; live && i < n; i++) {
        live[list[i].first] += list[i].bytes;
        live[list[i].last + 1] -= list[i].bytes; /* may wrap; the sum wraps back */
    }
    for (uint32_t s = 1; live && s <= plan->n_calls; s++)
        live[s] += live[s - 1];
    return live;
}

/* ---- text ---- */

/* Columns of the raster, for terminals of 80 columns: without streams, and with a stream's sum behind each line. */
#define COLUMNS         64
#define COLUMNS_STREAMS 44
#define BANDS           24

static uint32_t count_columns(const struct ngd_plan *plan)
{
    uint32_t most = plan->n_streams > 1 ? COLUMNS_STREAMS : COLUMNS;

    return plan->n_calls + 1 < most ? plan->n_calls + 1 : most;
}

/* Returns the character for the share of a cell (some steps by some bytes) that is in use. */
static char shade(double share)
{
    static const char shades[] = " .:-=+*#";
    int i = (int)(share * (double)(sizeof(shades) - 2) + 0.999);

    return shades[i < 0 ? 0 : i > (int)sizeof(shades) - 2 ? (int)sizeof(shades) - 2 : i];
}

static double overlap_length(double a0, double a1, double b0, double b1)
{
    double lo = a0 > b0 ? a0 : b0, hi = a1 < b1 ? a1 : b1;

    return hi > lo ? hi - lo : 0;
}

static void add_to_cells(const struct ngd_plan *plan, const struct ngd_plan_block *b, uint32_t columns, double *cells)
{
    double steps = (double)plan->n_calls + 1, width = steps / columns, height = (double)plan->pool_bytes / BANDS;
    uint32_t c0 = (uint32_t)(b->first / width), r0 = (uint32_t)((double)b->offset / height);

    for (uint32_t c = c0; c < columns && c * width < (double)b->last + 1; c++) {
        double x = overlap_length(c * width, (c + 1) * width, b->first, (double)b->last + 1) / width;

        for (uint32_t r = r0; r < BANDS && r * height < (double)(b->offset + b->bytes); r++)
            cells[(size_t)r * columns + c] +=
                x * overlap_length(r * height, (r + 1) * height, (double)b->offset, (double)(b->offset + b->bytes)) /
                height;
    }
}

static void put_raster(const struct ngd_plan *plan, const double *cells, uint32_t columns, struct ngd_strbuf *sb)
{
    for (uint32_t r = BANDS; r-- > 0;) {
        ngd_strbuf_printf(sb, "%12" PRIu64 " |", (uint64_t)((double)plan->pool_bytes / BANDS * r));
        for (uint32_t c = 0; c < columns; c++)
            ngd_strbuf_putc(sb, shade(cells[(size_t)r * columns + c]));
        ngd_strbuf_append(sb, "|\n");
    }
    ngd_strbuf_printf(sb, "%12s  0%*" PRIu32 "\n", "step", (int)columns - 1, plan->n_calls);
}

static ngd_status_t raster(const struct ngd_plan *plan, const struct ngd_plan_block *list, uint32_t n,
                           struct ngd_strbuf *sb)
{
    uint32_t columns = count_columns(plan);
    double *cells = NGD_NEW_N(double, (size_t)columns *BANDS);

    if (!cells)
        return NGD_ERR_NO_MEMORY;
    for (uint32_t i = 0; i < n; i++)
        add_to_cells(plan, &list[i], columns, cells);
    put_raster(plan, cells, columns, sb);
    ngd_free(cells);
    return NGD_OK;
}

/* ---- streams ---- */

static const char *plan_stream_name(const struct ngd_plan *plan, uint32_t stream)
{
    return stream ? plan->graph->streams[stream] : "(main)";
}

static uint32_t count_calls(const struct ngd_plan *plan, uint32_t stream, uint32_t *waits_p)
{
    uint32_t n = 0, waits = 0;

    for (uint32_t c = 0; c < plan->n_calls; c++) {
        if (plan->calls[c].scope.stream != stream)
            continue;
        n++;
        waits += plan->calls[c].n_waits;
    }
    *waits_p = waits;
    return n;
}

#define NAME_COLUMNS 12

/* Prints a stream's name, aligned to the right of its column and cut between characters. */
static void put_stream_name(const struct ngd_plan *plan, uint32_t stream, struct ngd_strbuf *sb)
{
    struct ngd_strbuf name;
    size_t bytes = 0;
    int n = 0;

    ngd_strbuf_init(&name);
    put_named(&name, plan_stream_name(plan, stream));
    while (bytes < name.len) {
        bool begins = (name.data[bytes] & 0xc0) != 0x80;

        if (begins && n == NAME_COLUMNS)
            break;
        n += begins;
        bytes++;
    }
    ngd_strbuf_printf(sb, "%*s%.*s", NAME_COLUMNS - n, "", (int)bytes, ngd_strbuf_str(&name));
    ngd_strbuf_fini(&name);
}

/* Prints a line for each stream with the raster's columns:
 * where it has calls, and (<) where the first of them waits. */
static void put_streams(const struct ngd_plan *plan, struct ngd_strbuf *sb)
{
    uint32_t columns = count_columns(plan), waits;

    for (uint32_t s = 0; s < plan->n_streams && plan->n_streams > 1; s++) {
        char line[COLUMNS + 1];

        memset(line, ' ', columns);
        line[columns] = '\0';
        for (uint32_t c = plan->n_calls; c-- > 0;)
            if (plan->calls[c].scope.stream == s)
                line[(uint64_t)c * columns / (plan->n_calls + 1)] = plan->calls[c].n_waits ? '<' : '#';
        put_stream_name(plan, s, sb);
        ngd_strbuf_printf(sb, " |%s| ", line);
        ngd_strbuf_printf(sb, "%" PRIu32 " calls", count_calls(plan, s, &waits));
        ngd_strbuf_printf(sb, ", %" PRIu32 " waits\n", waits);
    }
}

#define LISTED 20

static int cmp_bytes(const void *pa, const void *pb)
{
    const struct ngd_plan_block *a = pa, *b = pb;

    if (a->bytes != b->bytes)
        return a->bytes > b->bytes ? -1 : 1;
    return a->first < b->first ? -1 : a->first > b->first;
}

static void put_largest(const struct ngd_plan *plan, struct ngd_plan_block *list, uint32_t n, struct ngd_strbuf *sb)
{
    qsort(list, n, sizeof(*list), cmp_bytes);
    ngd_strbuf_printf(sb, "\n%12s %12s %11s  %s\n", "offset", "bytes", "steps", "largest blocks");
    for (uint32_t i = 0; i < n && i < LISTED; i++) {
        ngd_strbuf_printf(sb, "%12" PRIu64 " %12" PRIu64 " %5" PRIu32 "-%-5" PRIu32 "  ", list[i].offset, list[i].bytes,
                          list[i].first, list[i].last);
        ngd_plan_block_name(plan, &list[i], sb);
        ngd_strbuf_putc(sb, '\n');
    }
    if (n > LISTED)
        ngd_strbuf_printf(sb, "%12s and %" PRIu32 " smaller ones\n", "", n - LISTED);
}

ngd_status_t ngd_plan_map_text(const struct ngd_plan *plan, struct ngd_strbuf *sb)
{
    struct ngd_plan_block *list;
    uint32_t n;
    ngd_status_t status = ngd_plan_blocks(plan, &list, &n);

    if (status)
        return status;
    ngd_strbuf_append(sb, "pool of graph ");
    ngd_strbuf_json_string(sb, plan->graph->name);
    ngd_strbuf_printf(
        sb, ": %" PRIu64 " bytes for %" PRIu32 " blocks in %" PRIu32 " steps\nmost live at once: %" PRIu64 " bytes\n\n",
        plan->pool_bytes, n, plan->n_calls, plan->live_peak_bytes);
    if (n)
        status = raster(plan, list, n, sb);
    put_streams(plan, sb);
    if (n && status == NGD_OK)
        put_largest(plan, list, n, sb);
    ngd_free(list);
    return status ? status : sb->failed ? NGD_ERR_NO_MEMORY : NGD_OK;
}

/* ---- SVG ---- */

#define LEFT   90.0
#define TOP    60.0
#define WIDTH  1100.0
#define HEIGHT 560.0
#define CURVE  110.0 /* height of the curve of live bytes */
#define GAP    34.0
#define LANE   18.0 /* height of a stream's lane, if there are several streams */

static void put_map_text(const char *s, struct ngd_strbuf *sb)
{
    for (; *s; s++) {
        if (*s == '<')
            ngd_strbuf_append(sb, "&lt;");
        else if (*s == '&')
            ngd_strbuf_append(sb, "&amp;");
        else if (*s == '"')
            ngd_strbuf_append(sb, "&quot;");
        else if ((unsigned char)*s >= 0x20)
            ngd_strbuf_putc(sb, *s);
    }
}

static void put_map_key(const struct ngd_plan *plan, struct ngd_strbuf *sb)
{
    struct ngd_strbuf key;

    ngd_strbuf_init(&key);
    ngd_key_print_symbols(plan->graph, &plan->key, &key);
    ngd_strbuf_append(sb, ": ");
    put_map_text(ngd_strbuf_str(&key), sb);
    ngd_strbuf_fini(&key);
}

/* Prints a block's colour. Each operator has a hue, the same in every map; inputs are grey, workspaces pale. */
static void put_colour(const struct ngd_plan *plan, const struct ngd_plan_block *b, struct ngd_strbuf *sb)
{
    uint32_t hue;

    if (b->maker == NGD_PLAN_NONE) {
        ngd_strbuf_append(sb, "hsl(0,0%,62%)");
        return;
    }
    hue = (uint32_t)((uint64_t)plan->calls[b->maker].op->id * 137u % 360u);
    ngd_strbuf_printf(sb, "hsl(%" PRIu32 ",%d%%,%d%%)", hue, b->tensor == NGD_PLAN_NONE ? 30 : 58,
                      b->tensor == NGD_PLAN_NONE ? 82 : 62);
}

static void put_block(const struct ngd_plan *plan, const struct ngd_plan_block *b, struct ngd_strbuf *sb)
{
    double steps = (double)plan->n_calls + 1, pool = (double)plan->pool_bytes;
    struct ngd_strbuf name;

    ngd_strbuf_printf(sb, "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" fill=\"",
                      LEFT + WIDTH * b->first / steps, TOP + HEIGHT * (1.0 - (double)(b->offset + b->bytes) / pool),
                      WIDTH * ((double)(b->last - b->first) + 1) / steps, HEIGHT * (double)b->bytes / pool);
    put_colour(plan, b, sb);
    ngd_strbuf_append(sb, "\"><title>");
    ngd_strbuf_init(&name);
    ngd_plan_block_name(plan, b, &name);
    put_map_text(ngd_strbuf_str(&name), sb);
    ngd_strbuf_fini(&name);
    ngd_strbuf_printf(sb, ": %" PRIu64 " bytes at %" PRIu64 ", steps %" PRIu32 " to %" PRIu32 "</title></rect>\n",
                      b->bytes, b->offset, b->first, b->last);
}

/* Draws the axes. A step's number is below the middle of its column. The last step, n_calls, reads the outputs. */
static void put_axes(const struct ngd_plan *plan, struct ngd_strbuf *sb)
{
    for (int i = 0; i <= 4; i++) {
        uint32_t step = (uint32_t)((uint64_t)plan->n_calls * (uint32_t)i / 4);
        double y = TOP + HEIGHT * (1.0 - i / 4.0), x = LEFT + WIDTH * (step + 0.5) / ((double)plan->n_calls + 1);

        ngd_strbuf_printf(sb,
                          "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" class=\"g\"/>"
                          "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">%" PRIu64 "</text>\n",
                          LEFT, y, LEFT + WIDTH, y, LEFT - 8, y + 4, plan->pool_bytes / 4 * (uint64_t)i);
        ngd_strbuf_printf(sb, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%" PRIu32 "</text>\n", x,
                          TOP + HEIGHT + 18, step);
    }
}

/* Draws the live bytes over the steps, below the map, on the pool's scale. */
static ngd_status_t put_curve(const struct ngd_plan *plan, const struct ngd_plan_block *list, uint32_t n,
                              struct ngd_strbuf *sb)
{
    double base = TOP + HEIGHT + GAP + CURVE, steps = (double)plan->n_calls + 1, pool = (double)plan->pool_bytes;
    uint64_t *live = live_bytes(plan, list, n);

    if (!live)
        return NGD_ERR_NO_MEMORY;
    ngd_strbuf_printf(sb, "<path class=\"l\" d=\"M%.1f %.1f", LEFT, base);
    for (uint32_t s = 0; s <= plan->n_calls; s++)
        ngd_strbuf_printf(sb, "L%.2f %.2fH%.2f", LEFT + WIDTH * s / steps, base - CURVE * (double)live[s] / pool,
                          LEFT + WIDTH * (s + 1.0) / steps);
    ngd_strbuf_printf(sb, "V%.1fZ\"/>\n<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">live</text>\n", base, LEFT - 8,
                      base - CURVE / 2);
    ngd_free(live);
    return NGD_OK;
}

/* Draws a lane for each stream below the curve, with its calls. */
static void put_lanes(const struct ngd_plan *plan, struct ngd_strbuf *sb)
{
    double top = TOP + HEIGHT + GAP + CURVE + 10, steps = (double)plan->n_calls + 1;

    for (uint32_t s = 0; s < plan->n_streams; s++) {
        ngd_strbuf_printf(sb, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">", LEFT - 8, top + LANE * s + LANE - 5);
        put_map_text(plan_stream_name(plan, s), sb);
        ngd_strbuf_append(sb, "</text>\n");
    }
    for (uint32_t c = 0; c < plan->n_calls; c++) {
        const struct ngd_plan_call *call = &plan->calls[c];

        ngd_strbuf_printf(sb,
                          "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.1f\" "
                          "fill=\"hsl(%" PRIu32 ",58%%,62%%)\"><title>",
                          LEFT + WIDTH * c / steps, top + LANE * call->scope.stream, WIDTH / steps, LANE - 2,
                          (uint32_t)((uint64_t)call->op->id * 137u % 360u));
        put_map_text(call->op->name, sb);
        ngd_strbuf_printf(sb, ", step %" PRIu32, c);
        for (uint32_t i = 0; i < call->n_waits; i++)
            ngd_strbuf_printf(sb, "%s%" PRIu32, i ? ", " : ", after ", call->waits[i]);
        ngd_strbuf_append(sb, "</title></rect>\n");
    }
}

ngd_status_t ngd_plan_map_svg(const struct ngd_plan *plan, struct ngd_strbuf *sb)
{
    struct ngd_plan_block *list;
    uint32_t n;
    ngd_status_t status = ngd_plan_blocks(plan, &list, &n);

    if (status)
        return status;
    ngd_strbuf_printf(sb,
                      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" font-family=\"sans-serif\" "
                      "font-size=\"12\">\n<style>.g{stroke:#ddd}.l{fill:#4a7fb5;fill-opacity:.5}rect:hover{stroke:#000}"
                      "rect{stroke:#fff;stroke-width:.3}</style>\n<rect width=\"100%%\" height=\"100%%\" "
                      "fill=\"#fff\"/>\n<text x=\"%.0f\" y=\"26\" font-size=\"16\">",
                      LEFT + WIDTH + 30,
                      TOP + HEIGHT + GAP + CURVE + 20 + (plan->n_streams > 1 ? LANE * plan->n_streams : 0), LEFT);
    put_map_text(plan->graph->name, sb);
    put_map_key(plan, sb);
    ngd_strbuf_printf(sb,
                      "</text>\n<text x=\"%.0f\" y=\"46\">pool of %" PRIu64 " bytes over %" PRIu32
                      " steps; most live at once: %" PRIu64 " bytes</text>\n",
                      LEFT, plan->pool_bytes, plan->n_calls, plan->live_peak_bytes);
    put_axes(plan, sb);
    for (uint32_t i = 0; i < n; i++)
        put_block(plan, &list[i], sb);
    if (n)
        status = put_curve(plan, list, n, sb);
    if (plan->n_streams > 1)
        put_lanes(plan, sb);
    ngd_strbuf_append(sb, "</svg>\n");
    ngd_free(list);
    return status ? status : sb->failed ? NGD_ERR_NO_MEMORY : NGD_OK;
}
