/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prints a graph: as text that parses back, as Graphviz text, and in the canonical form whose SHA-256 is the
 * digest.
 *
 * One printer writes the text and the canonical form. The canonical form numbers values (inputs by class, then
 * results in order) and has every label, attribute and type. It leaves out the graph's name and the names of
 * values, because they change neither what the graph computes nor how clients address its inputs and outputs.
 */
#include "graphs/graph_int.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const class_names[] = {
    [NGD_VALUE_PARAM] = "param", [NGD_VALUE_STATE] = "state", [NGD_VALUE_INPUT] = "input",
    [NGD_VALUE_HOST] = "host",   [NGD_VALUE_NODE] = "node",
};

const char *ngd_value_class_name(ngd_value_class_t cls)
{
    return class_names[cls];
}

/* ---- small parts ---- */

void ngd_print_float(double v, struct ngd_strbuf *sb)
{
    char text[40];

    if (isnan(v)) {
        ngd_strbuf_append(sb, "nan"); /* all NaNs print the same: their sign and payload do not matter */
        return;
    }
    if (isinf(v)) {
        ngd_strbuf_append(sb, v < 0 ? "-inf" : "inf");
        return;
    }
    for (int precision = 1; precision <= 17; precision++) {
        snprintf(text, sizeof(text), "%.*g", precision, v);
        if (strtod(text, NULL) == v)
            break;
    }
    ngd_strbuf_append(sb, text);
}

void ngd_type_print(const struct ngd_graph *graph, const struct ngd_type *type, struct ngd_strbuf *sb)
{
    ngd_strbuf_append(sb, ngd_dtype_name(type->dtype));
    ngd_strbuf_putc(sb, '[');
    for (uint32_t i = 0; i < type->rank && i < NGD_MAX_RANK; i++) {
        if (i)
            ngd_strbuf_putc(sb, ',');
        ngd_expr_print(graph->exprs, type->dims[i], sb);
    }
    ngd_strbuf_putc(sb, ']');
}

static void print_attr_value(const struct ngd_graph *graph, const struct ngd_attr_schema *schema,
                             const struct ngd_attr_value *a, struct ngd_strbuf *sb)
{
    switch (schema->type) {
    case NGD_ATTR_INT:
        ngd_expr_print(graph->exprs, a->i, sb);
        break;
    case NGD_ATTR_INTS:
        ngd_strbuf_putc(sb, '[');
        for (uint32_t i = 0; i < a->n; i++) {
            if (i)
                ngd_strbuf_append(sb, ", ");
            ngd_expr_print(graph->exprs, a->list[i], sb);
        }
        ngd_strbuf_putc(sb, ']');
        break;
    case NGD_ATTR_FLOAT:
        if (a->i)
            ngd_strbuf_printf(sb, "%" PRId64, a->i);
        else
            ngd_print_float(a->f, sb);
        break;
    case NGD_ATTR_BOOL:
        ngd_strbuf_append(sb, a->i ? "true" : "false");
        break;
    case NGD_ATTR_STR:
        ngd_strbuf_json_string(sb, a->s);
        break;
    case NGD_ATTR_DTYPE:
        ngd_strbuf_append(sb, a->i < 0 ? "none" : ngd_dtype_name((ngd_dtype_t)a->i));
        break;
    }
}

bool ngd_attr_is_default(const struct ngd_attr_schema *schema, const struct ngd_attr_value *a)
{
    if (schema->required)
        return false;
    switch (schema->type) {
    case NGD_ATTR_INTS:
        return a->n == 0;
    case NGD_ATTR_FLOAT: /* compared by bits: -0 is not 0 */
        return a->i == 0 && memcmp(&a->f, &schema->def_float, sizeof(a->f)) == 0;
    case NGD_ATTR_STR:
        return strcmp(a->s, schema->def_str) == 0;
    default:
        return a->i == schema->def_int;
    }
}

/* ---- the text form and the canonical form ---- */

struct printer {
    const struct ngd_graph *graph;
    struct ngd_strbuf *sb;
    const uint32_t *numbers; /* canonical form: the number of each value; NULL: names are printed */
};

static void print_value(const struct printer *p, uint32_t value)
{
    if (value == NGD_VALUE_NONE)
        ngd_strbuf_append(p->sb, "none");
    else if (p->numbers)
        ngd_strbuf_printf(p->sb, "%%%u", p->numbers[value]);
    else
        ngd_strbuf_printf(p->sb, "%%%s", p->graph->values[value].name);
}

static void print_symbol(const struct printer *p, const struct ngd_symbol *s)
{
    ngd_strbuf_printf(p->sb, "  sym %s %lld..%lld", s->name, (long long)s->min, (long long)s->max);
    if (s->batch)
        ngd_strbuf_append(p->sb, " batch");
    for (uint32_t i = 0; i < s->n_buckets; i++)
        ngd_strbuf_printf(p->sb, "%s%lld", i ? ", " : " buckets ", (long long)s->buckets[i]);
    ngd_strbuf_putc(p->sb, '\n');
}

static void print_guard(const struct printer *p, const struct ngd_relation *r)
{
    ngd_strbuf_append(p->sb, "  guard ");
    ngd_relation_print(p->graph->exprs, r, p->sb);
    ngd_strbuf_putc(p->sb, '\n');
}

static void print_input(const struct printer *p, uint32_t value)
{
    const struct ngd_value *v = &p->graph->values[value];

    ngd_strbuf_printf(p->sb, "  %s ", class_names[v->cls]);
    print_value(p, value);
    ngd_strbuf_append(p->sb, " : ");
    ngd_type_print(p->graph, &v->type, p->sb);
    if (p->numbers || strcmp(v->label, v->name) != 0) {
        ngd_strbuf_append(p->sb, " = ");
        ngd_strbuf_json_string(p->sb, v->label);
    }
    ngd_strbuf_putc(p->sb, '\n');
}

static void print_attrs(const struct printer *p, const struct ngd_node *node)
{
    bool any = false;

    for (uint32_t i = 0; i < node->op->n_attrs; i++) {
        const struct ngd_attr_schema *schema = &node->op->attrs[i];

        if (!p->numbers && ngd_attr_is_default(schema, &node->attrs[i]))
            continue;
        ngd_strbuf_append(p->sb, any ? ", " : " {");
        ngd_strbuf_printf(p->sb, "%s=", schema->name);
        print_attr_value(p->graph, schema, &node->attrs[i], p->sb);
        any = true;
    }
    if (any)
        ngd_strbuf_putc(p->sb, '}');
}

static void indent(const struct printer *p, uint32_t depth)
{
    for (uint32_t i = 0; i < depth; i++)
        ngd_strbuf_append(p->sb, "  ");
}

/* Returns how many scopes are printed around a node: its stream's, and within it that of its core limits. */
static uint32_t depth_of(const struct ngd_node_scope *scope)
{
    return (scope->stream != 0) + (scope->aicore != 0);
}

/* Closes the scopes that `from` has and `to` has not, and opens those that it lacks. */
static void print_scopes(const struct printer *p, const struct ngd_node_scope *from, const struct ngd_node_scope *to)
{
    bool same_stream = from->stream == to->stream;
    uint32_t depth = depth_of(from), keep;

    if (ngd_node_scope_equal(from, to))
        return;
    keep = same_stream && from->stream ? 1 : 0;
    for (; depth > keep; depth--) {
        indent(p, depth);
        ngd_strbuf_append(p->sb, "}\n");
    }
    if (!same_stream && to->stream) {
        indent(p, ++depth);
        ngd_strbuf_append(p->sb, "stream ");
        ngd_strbuf_json_string(p->sb, p->graph->streams[to->stream]);
        ngd_strbuf_append(p->sb, " {\n");
    }
    if (to->aicore) {
        indent(p, depth + 1);
        ngd_strbuf_printf(p->sb, "limit_core_num %u, %u {\n", to->aicore, to->vectorcore);
    }
}

static void print_node(const struct printer *p, const struct ngd_node *node)
{
    indent(p, 1 + depth_of(&node->scope));
    for (uint32_t i = 0; i < node->n_out; i++) {
        print_value(p, node->out[i]);
        ngd_strbuf_append(p->sb, i + 1 < node->n_out ? ", " : " = ");
    }
    ngd_strbuf_printf(p->sb, "%s(", node->op->name);
    for (uint32_t i = 0; i < node->n_in; i++) {
        if (i)
            ngd_strbuf_append(p->sb, ", ");
        print_value(p, node->in[i]);
    }
    ngd_strbuf_putc(p->sb, ')');
    print_attrs(p, node);
    for (uint32_t i = 0; i < node->n_out; i++) {
        ngd_strbuf_append(p->sb, i ? ", " : " : ");
        ngd_type_print(p->graph, &p->graph->values[node->out[i]].type, p->sb);
    }
    ngd_strbuf_putc(p->sb, '\n');
}

static void print_declarations(const struct printer *p)
{
    const struct ngd_graph *graph = p->graph;
    const uint32_t *const lists[] = {graph->params, graph->states, graph->inputs, graph->hosts};
    const uint32_t counts[] = {graph->n_params, graph->n_states, graph->n_inputs, graph->n_hosts};

    for (uint32_t i = 0; i < graph->n_symbols; i++)
        print_symbol(p, &graph->symbols[i]);
    for (uint32_t i = 0; i < graph->n_relations; i++)
        print_guard(p, &graph->relations[i]);
    for (uint32_t c = 0; c < 4; c++)
        for (uint32_t i = 0; i < counts[c]; i++)
            print_input(p, lists[c][i]);
}

static void print_outputs(const struct printer *p)
{
    const struct ngd_graph *graph = p->graph;

    for (uint32_t i = 0; i < graph->n_outputs; i++) {
        ngd_strbuf_append(p->sb, i ? ", " : "  return ");
        ngd_strbuf_json_string(p->sb, graph->outputs[i].name);
        ngd_strbuf_append(p->sb, " = ");
        print_value(p, graph->outputs[i].value);
    }
}

/* Prints the changes of scope before node i. i = n_nodes: closes the open scopes. */
static void print_scopes_before(const struct printer *p, uint32_t i)
{
    static const struct ngd_node_scope none;

    print_scopes(p, i ? &p->graph->nodes[i - 1].scope : &none,
                 i < p->graph->n_nodes ? &p->graph->nodes[i].scope : &none);
}

static void print_body(const struct printer *p)
{
    print_declarations(p);
    for (uint32_t i = 0; i < p->graph->n_nodes; i++) {
        print_scopes_before(p, i);
        print_node(p, &p->graph->nodes[i]);
    }
    print_scopes_before(p, p->graph->n_nodes);
    print_outputs(p);
    if (p->graph->n_outputs)
        ngd_strbuf_putc(p->sb, '\n');
}

/* ---- taps ---------------------------------------------------------------------------------------------- */

/* Returns n if the name begins with "<what><n><end>", otherwise max. n has no leading zeros, and 0 is not written. */
static uint32_t number_in(const char *name, const char *what, char end, uint32_t max)
{
    const char *p = name + strlen(what);
    uint64_t n = 0;

    if (strncmp(name, what, strlen(what)) != 0 || *p == '0')
        return max;
    for (; *p >= '0' && *p <= '9' && n < max; p++)
        n = n * 10 + (uint64_t)(*p - '0');
    return *p == end && n < max ? (uint32_t)n : max;
}

static const char *name_of_value(const struct ngd_graph *graph, uint32_t i)
{
    return graph->values[i].name;
}

static const char *name_of_output(const struct ngd_graph *graph, uint32_t i)
{
    return graph->outputs[i].name;
}

/* Writes the first "<what><n><end>" with which none of the n names begins. One of the n + 1 numbers 0..n is free. */
static bool make_prefix(const struct ngd_graph *graph, const char *(*name_of)(const struct ngd_graph *, uint32_t),
                        uint32_t n, const char *what, char end, char to[32])
{
    bool *taken = NGD_NEW_N(bool, n + 2);
    uint32_t i;

    if (!taken)
        return false;
    for (i = 0; i < n; i++)
        taken[number_in(name_of(graph, i), what, end, n + 1)] = true;
    for (i = 0; taken[i];)
        i++;
    if (i)
        snprintf(to, 32, "%s%" PRIu32 "%c", what, i, end);
    else
        snprintf(to, 32, "%s%c", what, end);
    ngd_free(taken);
    return true;
}

/* The copies are directly behind their nodes, because a view of a state shows later writes to it. */
void ngd_graph_print_tapped(const struct ngd_graph *graph, struct ngd_strbuf *sb)
{
    struct printer p = {graph, sb, NULL};
    bool any = graph->n_outputs > 0;
    char value[32], output[32];

    if (!make_prefix(graph, name_of_value, graph->n_values, "__tap", '.', value) ||
        !make_prefix(graph, name_of_output, graph->n_outputs, "tap", ':', output)) {
        sb->failed = true;
        return;
    }
    ngd_strbuf_append(sb, "npugraph 1\ngraph ");
    ngd_strbuf_json_string(sb, graph->name);
    ngd_strbuf_append(sb, " {\n");
    print_declarations(&p);
    for (uint32_t i = 0; i < graph->n_nodes; i++) {
        print_scopes_before(&p, i);
        print_node(&p, &graph->nodes[i]);
        for (uint32_t k = 0; k < graph->nodes[i].n_out; k++) {
            ngd_strbuf_printf(sb, "  %%%s%u.%u = aten.clone(", value, i, k);
            print_value(&p, graph->nodes[i].out[k]);
            ngd_strbuf_append(sb, ")\n");
        }
    }
    print_scopes_before(&p, graph->n_nodes);
    print_outputs(&p);
    for (uint32_t i = 0; i < graph->n_nodes; i++) {
        for (uint32_t k = 0; k < graph->nodes[i].n_out; k++) {
            ngd_strbuf_printf(sb, "%s\"%s%s\" = %%%s%u.%u", any ? ", " : "  return ", output,
                              graph->values[graph->nodes[i].out[k]].name, value, i, k);
            any = true;
        }
    }
    ngd_strbuf_append(sb, any ? "\n}\n" : "}\n");
}

const char *ngd_tap_value(const char *output)
{
    const char *colon = strchr(output, ':');

    return colon ? colon + 1 : output;
}

/* ---- the whole graph ------------------------------------------------------------------------------------ */

void ngd_graph_print(const struct ngd_graph *graph, struct ngd_strbuf *sb)
{
    struct printer p = {graph, sb, NULL};

    ngd_strbuf_append(sb, "npugraph 1\ngraph ");
    ngd_strbuf_json_string(sb, graph->name);
    ngd_strbuf_append(sb, " {\n");
    print_body(&p);
    ngd_strbuf_append(sb, "}\n");
}

/* Numbers inputs in the order in which print_body writes them, then results. */
static void number_values(const struct ngd_graph *graph, uint32_t *numbers)
{
    const uint32_t *const lists[] = {graph->params, graph->states, graph->inputs, graph->hosts};
    const uint32_t counts[] = {graph->n_params, graph->n_states, graph->n_inputs, graph->n_hosts};
    uint32_t n = 0;

    for (uint32_t c = 0; c < 4; c++)
        for (uint32_t i = 0; i < counts[c]; i++)
            numbers[lists[c][i]] = n++;
    for (uint32_t i = 0; i < graph->n_nodes; i++)
        for (uint32_t k = 0; k < graph->nodes[i].n_out; k++)
            numbers[graph->nodes[i].out[k]] = n++;
}

ngd_status_t ngd_graph_compute_digest(const struct ngd_graph *graph, struct ngd_digest *digest_p)
{
    uint32_t *numbers = NGD_NEW_N(uint32_t, graph->n_values + 1u);
    struct ngd_strbuf sb;
    struct printer p = {graph, &sb, numbers};
    ngd_status_t status = NGD_ERR_NO_MEMORY;

    if (!numbers)
        return status;
    ngd_strbuf_init(&sb);
    number_values(graph, numbers);
    ngd_strbuf_append(&sb, "npugraph 1\n");
    print_body(&p);
    if (!sb.failed) {
        ngd_digest_of(sb.data, sb.len, digest_p);
        status = NGD_OK;
    }
    ngd_strbuf_fini(&sb);
    ngd_free(numbers);
    return status;
}

/* ---- Graphviz ---- */

static const char *const class_colours[] = {
    [NGD_VALUE_PARAM] = "#cfe2f3", [NGD_VALUE_STATE] = "#f9cb9c", [NGD_VALUE_INPUT] = "#d9ead3",
    [NGD_VALUE_HOST] = "#fff2cc",  [NGD_VALUE_NODE] = "#eeeeee",
};

/* Returns the colour of a side stream's borders. After eight they repeat; the label has the stream's name. */
static const char *stream_colour(uint32_t stream)
{
    static const char *const colours[] = {"#1f77b4", "#d62728", "#2ca02c", "#9467bd",
                                          "#ff7f0e", "#17becf", "#8c564b", "#e377c2"};

    return colours[(stream - 1) % (sizeof(colours) / sizeof(colours[0]))];
}

/* Appends text, escaped for a string of dot. */
static void dot_escape(struct ngd_strbuf *sb, const char *text)
{
    for (; *text; text++) {
        if (*text == '"' || *text == '\\')
            ngd_strbuf_putc(sb, '\\');
        ngd_strbuf_putc(sb, (unsigned char)*text < 0x20 ? ' ' : *text);
    }
}

static void dot_vertex(const struct ngd_graph *graph, uint32_t value, struct ngd_strbuf *sb)
{
    const struct ngd_value *v = &graph->values[value];

    if (v->cls == NGD_VALUE_NODE)
        ngd_strbuf_printf(sb, "n%u", v->node);
    else
        ngd_strbuf_printf(sb, "v%u", value);
}

static void dot_input(const struct ngd_graph *graph, uint32_t value, struct ngd_strbuf *sb)
{
    const struct ngd_value *v = &graph->values[value];

    ngd_strbuf_printf(sb, "  v%u [shape=ellipse, fillcolor=\"%s\", label=\"%s %%%s\\n", value, class_colours[v->cls],
                      class_names[v->cls], v->name);
    if (strcmp(v->label, v->name) != 0) {
        dot_escape(sb, v->label);
        ngd_strbuf_append(sb, "\\n");
    }
    ngd_type_print(graph, &v->type, sb);
    ngd_strbuf_append(sb, "\"];\n");
}

static void dot_node(const struct ngd_graph *graph, uint32_t index, struct ngd_strbuf *sb)
{
    const struct ngd_node *node = &graph->nodes[index];
    struct ngd_strbuf attrs;
    struct printer p = {graph, &attrs, NULL};

    ngd_strbuf_init(&attrs);
    print_attrs(&p, node);
    ngd_strbuf_printf(sb, "  n%u [fillcolor=\"%s\", ", index,
                      class_colours[node->op->mutates ? NGD_VALUE_STATE : NGD_VALUE_NODE]);
    if (node->scope.stream)
        ngd_strbuf_printf(sb, "color=\"%s\", penwidth=3, ", stream_colour(node->scope.stream));
    if (node->op->flags & NGD_OPF_EVENT)
        ngd_strbuf_append(sb, "shape=cds, ");
    ngd_strbuf_printf(sb, "label=\"%s", node->op->name);
    if (node->scope.stream) {
        ngd_strbuf_append(sb, "\\nstream ");
        dot_escape(sb, graph->streams[node->scope.stream]);
    }
    if (node->scope.aicore)
        ngd_strbuf_printf(sb, "\\n%u AI cores, %u vector cores", node->scope.aicore, node->scope.vectorcore);
    if (attrs.len) {
        ngd_strbuf_append(sb, "\\n");
        dot_escape(sb, attrs.data + 1);
    }
    ngd_strbuf_fini(&attrs);
    for (uint32_t i = 0; i < node->n_out; i++) {
        ngd_strbuf_printf(sb, "\\n%%%s ", graph->values[node->out[i]].name);
        ngd_type_print(graph, &graph->values[node->out[i]].type, sb);
    }
    ngd_strbuf_append(sb, "\"];\n");
    for (uint32_t i = 0; i < node->n_in; i++) {
        bool written = i < 32 && (node->op->mutates >> i & 1);

        if (node->in[i] == NGD_VALUE_NONE)
            continue;
        ngd_strbuf_append(sb, "  ");
        dot_vertex(graph, node->in[i], sb);
        ngd_strbuf_printf(sb, " -> n%u [%slabel=\"%%%s\"];\n", index, written ? "dir=both, color=\"#cc4125\", " : "",
                          graph->values[node->in[i]].name);
    }
}

/* Draws edges from each record to its waits. Graphs have few events, so the search is simple. */
static void dot_events(const struct ngd_graph *graph, struct ngd_strbuf *sb)
{
    for (uint32_t r = 0; r < graph->n_nodes; r++) {
        if (!(graph->nodes[r].op->flags & NGD_OPF_RECORD))
            continue;
        for (uint32_t w = r + 1; w < graph->n_nodes; w++)
            if ((graph->nodes[w].op->flags & NGD_OPF_WAIT) &&
                strcmp(graph->nodes[r].attrs[0].s, graph->nodes[w].attrs[0].s) == 0)
                ngd_strbuf_printf(sb, "  n%u -> n%u [style=dashed];\n", r, w);
    }
}

void ngd_graph_print_dot(const struct ngd_graph *graph, struct ngd_strbuf *sb)
{
    ngd_strbuf_append(sb, "digraph \"");
    dot_escape(sb, graph->name);
    ngd_strbuf_append(sb,
                      "\" {\n  rankdir=TB;\n  node [shape=box, style=filled, fontname=\"sans-serif\", fontsize=10];\n"
                      "  edge [fontname=\"sans-serif\", fontsize=8];\n");
    for (uint32_t i = 0; i < graph->n_values; i++)
        if (graph->values[i].cls != NGD_VALUE_NODE)
            dot_input(graph, i, sb);
    for (uint32_t i = 0; i < graph->n_nodes; i++)
        dot_node(graph, i, sb);
    dot_events(graph, sb);
    for (uint32_t i = 0; i < graph->n_outputs; i++) {
        ngd_strbuf_printf(sb, "  o%u [shape=ellipse, fillcolor=\"#d9d2e9\", label=\"return\\n", i);
        dot_escape(sb, graph->outputs[i].name);
        ngd_strbuf_append(sb, "\"];\n  ");
        dot_vertex(graph, graph->outputs[i].value, sb);
        ngd_strbuf_printf(sb, " -> o%u [label=\"%%%s\"];\n", i, graph->values[graph->outputs[i].value].name);
    }
    ngd_strbuf_append(sb, "}\n");
}
