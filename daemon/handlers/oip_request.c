/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/handlers/oip_request.h"
#include "daemon/rpc/wire_check.h"
#include "daemon/wire.h"
#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define RAW_CONTENTS 7          /* the field's number */
#define REST_MAX     (4u << 20) /* most bytes of the other fields: names, shapes, and elements one by one */
#define REAL_MAX     1e9        /* beyond the range of every parameter, and within float's */

/* ---- the message ------------------------------------------------------------------------------------------------- */

struct extent {
    uint32_t n_raw;
    size_t rest; /* bytes of the fields that are not raw contents */
};

static ngd_status_t measure_request(const uint8_t *data, size_t n, struct extent *e, struct ngd_diag *diag)
{
    struct ngd_wire_reader r;
    struct ngd_wire_field f;
    const uint8_t *begin = data;

    ngd_wire_reader_init(&r, data, n);
    for (; ngd_wire_next(&r, &f); begin = r.p) {
        if (f.number != RAW_CONTENTS)
            e->rest += (size_t)(r.p - begin);
        else if (f.type != NGD_WIRE_BYTES)
            return ngd_diag_set(diag, NGD_ERR_MALFORMED_MESSAGE, "raw_input_contents has wire type %u", f.type);
        else if (++e->n_raw > NGD_WIRE_MOST_OIP_RAW)
            return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT,
                                "raw_input_contents has more than %u elements, which is the limit",
                                (unsigned)NGD_WIRE_MOST_OIP_RAW);
    }
    if (r.bad)
        return ngd_diag_set(diag, NGD_ERR_MALFORMED_MESSAGE, "the message is not a valid ModelInferRequest");
    if (e->rest > REST_MAX)
        return ngd_diag_set(diag, NGD_ERR_MESSAGE_TOO_LARGE,
                            "the request has %zu bytes besides raw_input_contents; at most %u are allowed: send the "
                            "tensors raw",
                            e->rest, REST_MAX);
    return NGD_OK;
}

ngd_status_t ngd_oip_request_read(struct ngd_arena *arena, const uint8_t *data, size_t n, struct ngd_oip_request *q,
                                  struct ngd_diag *diag)
{
    struct extent e = {0};
    struct ngd_wire_reader r;
    struct ngd_wire_field f;
    const uint8_t *begin = data;
    const void *msg = NULL;
    uint8_t *rest, *end;
    ngd_status_t status = measure_request(data, n, &e, diag);

    *q = (struct ngd_oip_request){0};
    if (status != NGD_OK)
        return status;
    end = rest = ngd_arena_alloc(arena, e.rest + 1);
    q->raw = ngd_arena_calloc(arena, e.n_raw + 1u, sizeof(*q->raw));
    if (!rest || !q->raw)
        return NGD_ERR_NO_MEMORY;
    ngd_wire_reader_init(&r, data, n);
    for (; ngd_wire_next(&r, &f); begin = r.p) {
        if (f.number == RAW_CONTENTS) {
            q->raw[q->n_raw++] = (struct ngd_span){f.data, f.n};
        } else {
            memcpy(end, begin, (size_t)(r.p - begin));
            end += r.p - begin;
        }
    }
    status = ngd_wire_unpack(&inference__model_infer_request__descriptor, rest, e.rest, arena, &msg, diag);
    q->m = msg;
    return status;
}

/* ---- parameters -------------------------------------------------------------------------------------------------- */

enum kind { INTEGER, BOOLEAN, REAL, ID };
/* ANY: of graphs and language models. GENERATION: of language models. OPENING: likewise, for a whole sequence. */
enum use { ANY, GENERATION, OPENING };

static const struct {
    const char *name;
    enum kind kind;
    enum use use;
    size_t at;
    int64_t min, max; /* INTEGER */
} known[] = {
#define P(name, kind, use, field, min, max)                               \
    {                                                                     \
        name, kind, use, offsetof(struct ngd_oip_params, field), min, max \
    }
    P("timeout", INTEGER, ANY, timeout_us, 0, INT64_MAX / 1000),
    P("priority", INTEGER, ANY, priority, 0, INT64_MAX),
    P("sequence_id", ID, ANY, sequence, 0, 0),
    P("sequence_start", BOOLEAN, ANY, sequence_start, 0, 1),
    P("sequence_end", BOOLEAN, ANY, sequence_end, 0, 1),
    P("triton_enable_empty_final_response", BOOLEAN, ANY, empty_final, 0, 1),
    P("max_tokens", INTEGER, GENERATION, max_tokens, 1, UINT32_MAX),
    P("min_tokens", INTEGER, OPENING, min_tokens, 0, UINT32_MAX),
    P("ignore_stop", BOOLEAN, GENERATION, ignore_stop, 0, 1),
    P("temperature", REAL, OPENING, temperature, 0, 0),
    P("top_k", INTEGER, OPENING, top_k, 0, INT32_MAX),
    P("top_p", REAL, OPENING, top_p, 0, 0),
    P("seed", INTEGER, OPENING, seed, INT64_MIN, INT64_MAX),
    P("min_p", REAL, OPENING, min_p, 0, 0),
    P("typical_p", REAL, OPENING, typical_p, 0, 0),
    P("repetition_penalty", REAL, OPENING, repetition_penalty, 0, 0),
    P("presence_penalty", REAL, OPENING, presence_penalty, 0, 0),
    P("frequency_penalty", REAL, OPENING, frequency_penalty, 0, 0),
#undef P
};
#define N_KNOWN (sizeof(known) / sizeof(known[0]))

bool ngd_oip_integer(const Inference__InferParameter *p, int64_t *value_p)
{
    if (p && p->parameter_choice_case == INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_INT64_PARAM)
        *value_p = p->int64_param;
    else if (p && p->parameter_choice_case == INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_UINT64_PARAM &&
             p->uint64_param <= INT64_MAX)
        *value_p = (int64_t)p->uint64_param;
    else
        return false;
    return true;
}

static bool read_real(const Inference__InferParameter *p, double *value_p)
{
    int64_t integer;

    if (p && p->parameter_choice_case == INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_DOUBLE_PARAM)
        *value_p = p->double_param;
    else if (ngd_oip_integer(p, &integer))
        *value_p = (double)integer;
    else
        return false;
    return isfinite(*value_p) && fabs(*value_p) <= REAL_MAX;
}

static bool read_boolean(const Inference__InferParameter *p, int64_t *value_p)
{
    if (!p || p->parameter_choice_case != INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_BOOL_PARAM)
        return false;
    *value_p = p->bool_param ? 1 : 0;
    return true;
}

/* Reads the id of a sequence: a number, or text. The number 0 and the empty text name none. */
static bool read_id(const Inference__InferParameter *p, char *id)
{
    const bool is_text = p && p->parameter_choice_case == INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_STRING_PARAM;
    const bool is_big = p && p->parameter_choice_case == INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_UINT64_PARAM;
    const size_t room = NGD_OIP_SEQUENCE_ID_MAX + 2;
    int64_t number = 0;

    id[0] = '\0';
    if (is_text && strlen(p->string_param) > NGD_OIP_SEQUENCE_ID_MAX)
        return false;
    if (is_text && p->string_param[0])
        snprintf(id, room, "$%s", p->string_param);
    else if (is_big && p->uint64_param)
        snprintf(id, room, "#%" PRIu64, p->uint64_param);
    else if (!is_text && !is_big && !(ngd_oip_integer(p, &number) && number >= 0))
        return false;
    else if (number)
        snprintf(id, room, "#%" PRId64, number);
    return true;
}

static bool read_param_value(enum kind kind, const Inference__InferParameter *p, void *at)
{
    switch (kind) {
    case REAL:
        return read_real(p, at);
    case BOOLEAN:
        return read_boolean(p, at);
    case ID:
        return read_id(p, at);
    case INTEGER:
    default:
        return ngd_oip_integer(p, at);
    }
}

static ngd_status_t read_param(struct ngd_oip_params *params, size_t i, const Inference__InferParameter *p,
                               struct ngd_diag *diag)
{
    static const char *const kinds[] = {[INTEGER] = "an integer",
                                        [BOOLEAN] = "a boolean",
                                        [REAL] = "a finite number",
                                        [ID] = "an integer of 0 or more, or text of at most 128 bytes"};
    void *at = (char *)params + known[i].at;
    int64_t *integer = at;

    if (params->given >> i & 1)
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT, "parameter %s is given twice", known[i].name);
    params->given |= 1u << i;
    if (known[i].use == OPENING)
        params->of_opening = known[i].name;
    if (!read_param_value(known[i].kind, p, at))
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT, "parameter %s must be %s", known[i].name,
                            kinds[known[i].kind]);
    if (known[i].kind == INTEGER && (*integer < known[i].min || *integer > known[i].max))
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT,
                            "parameter %s is %" PRId64 "; it must be %" PRId64 " to %" PRId64, known[i].name, *integer,
                            known[i].min, known[i].max);
    return NGD_OK;
}

static ngd_status_t refuse_param(const char *name, bool language_model, struct ngd_diag *diag)
{
    char list[512] = "";
    size_t n = 0;

    for (size_t i = 0; i < N_KNOWN; i++)
        if (language_model || known[i].use == ANY)
            n += (size_t)snprintf(list + n, sizeof(list) - n, ", %s", known[i].name);
    return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT, "parameter \"%.100s\" is not known; this model takes %s%s",
                        name, list + 2, language_model ? "" : ", " NGD_OIP_SYMBOL "NAME");
}

ngd_status_t ngd_oip_request_params(struct ngd_oip_request *q, bool language_model, struct ngd_diag *diag)
{
    for (size_t k = 0; k < q->m->n_parameters; k++) {
        const char *name = q->m->parameters[k]->key;
        ngd_status_t status = NGD_OK;
        size_t i = 0;

        while (i < N_KNOWN && (strcmp(known[i].name, name) != 0 || (known[i].use != ANY && !language_model)))
            i++;
        if (i < N_KNOWN)
            status = read_param(&q->params, i, q->m->parameters[k]->value, diag);
        else if (language_model || strncmp(name, NGD_OIP_SYMBOL, strlen(NGD_OIP_SYMBOL)) != 0)
            status = refuse_param(name, language_model, diag);
        if (status != NGD_OK)
            return status;
    }
    if (!q->params.sequence[0] && (q->params.sequence_start || q->params.sequence_end))
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT,
                            "sequence_start and sequence_end go with a sequence_id that is not 0 or empty");
    return NGD_OK;
}

/* In the protocol 1 is the most urgent level and 0 the default. */
ngd_priority_t ngd_oip_priority(int64_t priority)
{
    return priority == 1 ? NGD_PRIORITY_HIGH : priority <= 2 ? NGD_PRIORITY_NORMAL : NGD_PRIORITY_LOW;
}

ngd_nsec_t ngd_oip_deadline(const struct ngd_oip_params *params, ngd_nsec_t arrived, ngd_nsec_t deadline)
{
    ngd_nsec_t own;

    if (params->timeout_us == 0 || __builtin_add_overflow(arrived, params->timeout_us * NGD_USEC, &own))
        return deadline;
    return own < deadline ? own : deadline;
}

/* ---- places in shared memory ------------------------------------------------------------------------------------- */

/* Reads one parameter of a tensor. */
static ngd_status_t read_place_param(const char *what, const char *tensor, const char *key,
                                     const Inference__InferParameter *p, struct ngd_oip_place *place,
                                     struct ngd_diag *diag)
{
    int64_t number = -1;
    bool ok = ngd_oip_integer(p, &number) && number >= 0;

    if (strcmp(key, "shared_memory_region") == 0) {
        ok = p && p->parameter_choice_case == INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_STRING_PARAM;
        place->region = ok ? p->string_param : NULL;
    } else if (strcmp(key, "shared_memory_byte_size") == 0) {
        ok = ok && number > 0;
        place->bytes = ok ? (uint64_t)number : 0;
    } else if (strcmp(key, "shared_memory_offset") == 0) {
        place->offset = ok ? (uint64_t)number : 0;
    } else {
        return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT,
                            "%s \"%.100s\" has the parameter \"%.100s\"; only shared_memory_region, "
                            "shared_memory_byte_size and shared_memory_offset are known",
                            what, tensor, key);
    }
    if (ok)
        return NGD_OK;
    return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT, "%s \"%.100s\": the value of %s is not valid", what, tensor,
                        key);
}

static ngd_status_t check_place(const char *what, const char *tensor, const struct ngd_oip_place *place,
                                struct ngd_diag *diag)
{
    if ((place->region != NULL) == (place->bytes > 0) && (place->region || !place->offset))
        return NGD_OK;
    return ngd_diag_set(diag, NGD_ERR_INVALID_ARGUMENT,
                        "%s \"%.100s\": shared_memory_region and shared_memory_byte_size go together", what, tensor);
}

ngd_status_t ngd_oip_place_of_input(const ngd_oip_tensor_t *t, struct ngd_oip_place *place_p, struct ngd_diag *diag)
{
    ngd_status_t status = NGD_OK;

    *place_p = (struct ngd_oip_place){0};
    for (size_t i = 0; i < t->n_parameters && status == NGD_OK; i++)
        status = read_place_param("input", t->name, t->parameters[i]->key, t->parameters[i]->value, place_p, diag);
    return status == NGD_OK ? check_place("input", t->name, place_p, diag) : status;
}

ngd_status_t ngd_oip_place_of_output(const ngd_oip_wanted_t *t, struct ngd_oip_place *place_p, struct ngd_diag *diag)
{
    ngd_status_t status = NGD_OK;

    *place_p = (struct ngd_oip_place){0};
    for (size_t i = 0; i < t->n_parameters && status == NGD_OK; i++)
        status = read_place_param("output", t->name, t->parameters[i]->key, t->parameters[i]->value, place_p, diag);
    return status == NGD_OK ? check_place("output", t->name, place_p, diag) : status;
}
