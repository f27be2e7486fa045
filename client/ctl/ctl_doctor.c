/* SPDX-License-Identifier: Apache-2.0 */
/* doctor: finds the step at which a graph's results go wrong. trace: writes one replay as a Chrome trace. */
#include "client/ctl/ctl.h"
#include "proto/npugraph.pb-c.h"

#include <stdlib.h>
#include <string.h>

#define MAX_SYMBOLS    16
#define MAX_INPUTS     64
#define INPUT_FILE_MAX (1 << 30)

struct doctor {
    struct ctl *ctl;
    const struct ctl_command *command;
    Npugraph__V1__DoctorRequest req;
    const char *symbol[MAX_SYMBOLS], *input[MAX_INPUTS], *output;
    size_t n_symbol, n_input;
    int64_t symbols[MAX_SYMBOLS];
    ProtobufCBinaryData inputs[MAX_INPUTS];
    Npugraph__V1__DescribeResponse *described; /* from the daemon */
};

static int take_doctor_option(struct doctor *x, const char *name, const char *value)
{
    if (strcmp(name, "?") == 0)
        return 2;
    if (strcmp(name, "symbol") == 0 && strchr(value, '=') != NULL && x->n_symbol < MAX_SYMBOLS)
        x->symbol[x->n_symbol++] = value;
    else if (strcmp(name, "input") == 0 && strstr(value, "=@") != NULL && x->n_input < MAX_INPUTS)
        x->input[x->n_input++] = value;
    else if (strcmp(name, "output") == 0)
        x->output = value;
    else if (strcmp(name, "seed") != 0 || !ctl_parse_uint(value, UINT64_MAX, &x->req.seed))
        return ctl_usage(x->command, "--%s cannot be %s", name, value);
    return 0;
}

static int parse_doctor_options(struct doctor *x, int argc, char **argv, const char *valued)
{
    struct ctl_options o = {x->command, argc, 1, argv};
    const char *name, *value, *graph = NULL;

    while ((name = ctl_next_beside(&o, "", valued, &value, &graph, "one graph at a time")) != NULL) {
        int rc = take_doctor_option(x, name, value);

        if (rc != 0)
            return rc;
    }
    if (graph == NULL || graph[0] == '\0')
        return ctl_usage(x->command, "%s needs a graph", x->command->name);
    x->req.digest = (char *)(uintptr_t)graph;
    return 0;
}

/* Finds "NAME=REST" with this name in the list, and returns REST; NULL if there is none. */
static const char *find_named_text(const char *const *list, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strncmp(list[i], name, strlen(name)) == 0 && list[i][strlen(name)] == '=')
            return list[i] + strlen(name) + 1;
    return NULL;
}

static int choose_doctor_symbols(struct doctor *x, const Npugraph__V1__GraphInfo *g)
{
    size_t used = 0;

    x->req.symbols = x->symbols;
    for (size_t i = 0; i < g->n_symbols && i < MAX_SYMBOLS; i++) {
        const char *text = find_named_text(x->symbol, x->n_symbol, g->symbols[i]->name);
        uint64_t v;

        if (text != NULL && !ctl_parse_uint(text, INT64_MAX, &v))
            return ctl_usage(x->command, "--symbol %s needs a number", g->symbols[i]->name);
        used += text != NULL;
        x->symbols[x->req.n_symbols++] = text != NULL ? (int64_t)v : -1; /* the daemon chooses */
    }
    return used == x->n_symbol ? 0 : ctl_usage(x->command, "the graph lacks a symbol that --symbol names");
}

static int read_input_file(const char *path, ProtobufCBinaryData *to)
{
    to->data = (uint8_t *)ctl_read_file(path, INPUT_FILE_MAX, &to->len);
    return to->data != NULL ? 0 : 1;
}

/* Reads the inputs. Either all are given or none, since given and random inputs would hardly fit each other. */
static int choose_doctor_inputs(struct doctor *x, const Npugraph__V1__GraphInfo *g)
{
    if (x->n_input == 0)
        return 0;
    x->req.inputs = x->inputs;
    for (size_t i = 0; i < g->n_inputs && i < MAX_INPUTS; i++) {
        const char *text = find_named_text(x->input, x->n_input, g->inputs[i]->label);

        if (text == NULL)
            return ctl_usage(x->command, "--input %s=@FILE is missing; give all inputs or none", g->inputs[i]->label);
        if (read_input_file(text + 1, &x->inputs[x->req.n_inputs++]) != 0)
            return 1;
    }
    return x->req.n_inputs == x->n_input ? 0 : ctl_usage(x->command, "the graph lacks an input that --input names");
}

static int describe_patient(struct doctor *x)
{
    Npugraph__V1__DescribeRequest req = NPUGRAPH__V1__DESCRIBE_REQUEST__INIT;
    int rc;

    req.digest = x->req.digest;
    x->described = (void *)ctl_call(x->ctl, "/npugraph.v1.Graphs/Describe", &req.base,
                                    &npugraph__v1__describe_response__descriptor);
    if (x->described == NULL)
        return 1;
    rc = choose_doctor_symbols(x, x->described->info);
    return rc != 0 ? rc : choose_doctor_inputs(x, x->described->info);
}

static void doctor_request_fini(struct doctor *x)
{
    for (size_t i = 0; i < x->req.n_inputs; i++)
        free(x->inputs[i].data);
    npugraph__free_message(x->described);
}

/* ---- doctor ----------------------------------------------------------------------------------------------- */

static void print_examined_sizes(struct ctl *ctl, const struct doctor *x, const Npugraph__V1__DoctorResponse *r)
{
    struct ngd_strbuf sb;

    if (r->n_symbols == 0)
        return;
    ngd_strbuf_init(&sb);
    ctl_print_sizes(x->described->info, r->symbols, r->n_symbols, &sb);
    if (ctl->json)
        json_object_set_new(ctl->root, "sizes", json_string(ngd_strbuf_str(&sb)));
    else
        printf("Examined at %s.\n", ngd_strbuf_str(&sb));
    ngd_strbuf_fini(&sb);
}

void ctl_verdict(struct ctl_table *t, Npugraph__V1__DoctorVerdict verdict)
{
    ctl_state(t, ngd_word_of(&npugraph__v1__doctor_verdict__descriptor, verdict).text,
              verdict != NGD_PB(DOCTOR_VERDICT, DIFFERS) && verdict != NGD_PB(DOCTOR_VERDICT, FAILED));
}

static void print_report(struct ctl *ctl, const Npugraph__V1__DoctorResponse *r)
{
    static const struct ctl_column columns[] = {
        {"STEP", "step", false}, {"RESULT", "verdict", false}, {"TOOK", "took", true}, {"", "text", false}};
    struct ctl_table *t = ctl_table_new(ctl, "steps", columns, sizeof(columns) / sizeof(columns[0]));

    ctl_table_prose(t, 3);
    for (size_t i = 0; i < r->n_steps; i++) {
        const Npugraph__V1__DoctorStep *s = r->steps[i];

        ctl_row(t);
        ctl_str(t, s->name);
        ctl_verdict(t, s->verdict);
        ctl_us(t, (double)s->nanoseconds / 1000);
        ctl_str(t, s->text);
    }
    ctl_table_end(t, "");
    if (ctl->json) {
        json_object_set_new(ctl->root, "healthy", json_boolean(r->healthy));
        json_object_set_new(ctl->root, "step", json_string(r->step));
        json_object_set_new(ctl->root, "node", json_string(r->node));
        json_object_set_new(ctl->root, "verdict", json_string(r->verdict));
    } else {
        printf("\n%s: %s.\n", r->healthy ? "Healthy" : "Not healthy", r->verdict);
    }
}

int ctl_cmd_doctor(struct ctl *ctl, int argc, char **argv)
{
    struct doctor x = {.ctl = ctl, .command = ctl_find_command(argv[0]), .req = NPUGRAPH__V1__DOCTOR_REQUEST__INIT};
    Npugraph__V1__DoctorResponse *r = NULL;
    int rc;

    if (argc > 1 && strcmp(argv[1], "device") == 0)
        return ctl_doctor_device(ctl, argc, argv);
    rc = parse_doctor_options(&x, argc, argv, "symbol input seed");
    if (rc == 0)
        rc = describe_patient(&x);
    if (rc == 0) {
        r = (void *)ctl_call(ctl, "/npugraph.v1.Graphs/Doctor", &x.req.base,
                             &npugraph__v1__doctor_response__descriptor);
        rc = r != NULL ? 0 : 1;
    }
    if (r != NULL) {
        print_report(ctl, r);
        print_examined_sizes(ctl, &x, r);
        rc = r->healthy ? 0 : 1;
        npugraph__free_message(r);
    }
    doctor_request_fini(&x);
    return rc;
}

/* ---- trace ------------------------------------------------------------------------------------------------ */

int ctl_cmd_trace(struct ctl *ctl, int argc, char **argv)
{
    struct doctor x = {.ctl = ctl, .command = ctl_find_command(argv[0]), .req = NPUGRAPH__V1__DOCTOR_REQUEST__INIT};
    Npugraph__V1__TraceResponse *r = NULL;
    int rc;

    if (ctl_is_timeline(argc, argv))
        return ctl_cmd_timeline(ctl, argc, argv);
    rc = parse_doctor_options(&x, argc, argv, "symbol input seed output");
    if (rc == 0)
        rc = describe_patient(&x);
    if (rc == 0) {
        r = (void *)ctl_call(ctl, "/npugraph.v1.Graphs/Trace", &x.req.base, &npugraph__v1__trace_response__descriptor);
        rc = r != NULL ? 0 : 1;
    }
    if (r != NULL && x.output != NULL)
        rc = ctl_write_file(ctl, x.output, r->json);
    else if (r != NULL)
        fputs(r->json, stdout);
    npugraph__free_message(r);
    doctor_request_fini(&x);
    return rc;
}
