/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ModelInferRequests (daemon/handlers/oip_request.h). Whatever the bytes are: raw contents lie within them, protobuf-c
 * reads the same from what was taken, and parameters and places are read or refused with a diagnosis.
 */
#include "daemon/handlers/oip_request.h"
#include "tests/fuzz/fuzz.h"

const uint32_t fuzz_runs = 20000;

/* A raw request, one with elements and parameters one by one, one with tensors in shared memory, and one of a sequence.
 */
bool fuzz_seed(uint32_t i, struct ngd_strbuf *out)
{
    static const uint8_t raw[] = {0x0a, 1,    'm', 0x12, 1,   '1', 0x1a, 1,    'i', 0x2a, 13, 0x0a, 1,
                                  'x',  0x12, 4,   'F',  'P', '3', '2',  0x1a, 2,   1,    2,  0x32, 3,
                                  0x0a, 1,    'y', 0x3a, 8,   0,   0,    0,    0,   0,    0,  0,    0},
                         typed[] = {0x0a, 1,    'm',  0x22, 15,   0x0a, 7, 't', 'i',  'm',  'e',  'o',
                                    'u',  't',  0x12, 4,    0x10, 0xe8, 7, 0,   0x2a, 13,   0x0a, 1,
                                    'x',  0x18, 2,    0x2a, 6,    0x12, 2, 1,   2,    0x10, 3},
                         placed[] = {0x2a, 62,  0x0a, 1,    'x', 0x22, 27,  0x0a, 20,   's',  'h',  'a', 'r',
                                     'e',  'd', '_',  'm',  'e', 'm',  'o', 'r',  'y',  '_',  'r',  'e', 'g',
                                     'i',  'o', 'n',  0x12, 3,   0x1a, 1,   'r',  0x22, 28,   0x0a, 23,  's',
                                     'h',  'a', 'r',  'e',  'd', '_',  'm', 'e',  'm',  'o',  'r',  'y', '_',
                                     'b',  'y', 't',  'e',  '_', 's',  'i', 'z',  'e',  0x12, 2,    0x10};
    static const char sequence[] =
        "\x22\x12\x0a\x0bsequence_id\x12\x03\x1a\x01s\x22\x14\x0a\x0esequence_start\x12\x02\x08\x01";
    static const struct ngd_span seeds[] = {
        {raw, sizeof(raw)}, {typed, sizeof(typed)}, {placed, sizeof(placed)}, {sequence, sizeof(sequence) - 1}};

    if (i >= sizeof(seeds) / sizeof(seeds[0]))
        return false;
    ngd_strbuf_append_n(out, seeds[i].data, seeds[i].bytes);
    return true;
}

static bool is_within(const struct ngd_span *part, const uint8_t *data, size_t n)
{
    const uint8_t *p = part->data;

    return part->bytes == 0 || (p >= data && part->bytes <= n && (size_t)(p - data) <= n - part->bytes);
}

/* What protobuf-c says of the same bytes. */
static void compare_with_library(const struct ngd_oip_request *q, const uint8_t *data, size_t n)
{
    Inference__ModelInferRequest *m = inference__model_infer_request__unpack(NULL, n, data);

    if (!m)
        return;
    fuzz_demand(m->n_raw_input_contents == q->n_raw && q->m->n_raw_input_contents == 0, "the number of raw contents");
    for (uint32_t i = 0; i < q->n_raw; i++)
        fuzz_demand(m->raw_input_contents[i].len == q->raw[i].bytes, "raw contents differ");
    fuzz_demand(m->n_inputs == q->m->n_inputs && m->n_outputs == q->m->n_outputs &&
                    m->n_parameters == q->m->n_parameters && strcmp(m->id, q->m->id) == 0 &&
                    strcmp(m->model_name, q->m->model_name) == 0,
                "the other fields differ");
    inference__model_infer_request__free_unpacked(m, NULL);
}

static void demand_diagnosis(ngd_status_t status, const struct ngd_diag *diag)
{
    fuzz_demand(status == NGD_OK || diag->text[0] != '\0', "a message is refused without a diagnosis");
}

static void read_places(const struct ngd_oip_request *q)
{
    struct ngd_oip_place place;
    struct ngd_diag diag = {0};

    for (size_t i = 0; i < q->m->n_inputs; i++) {
        demand_diagnosis(ngd_oip_place_of_input(q->m->inputs[i], &place, &diag), &diag);
        fuzz_demand(diag.text[0] || (place.region != NULL) == (place.bytes > 0), "half of a place");
        diag.text[0] = '\0';
    }
    for (size_t i = 0; i < q->m->n_outputs; i++) {
        demand_diagnosis(ngd_oip_place_of_output(q->m->outputs[i], &place, &diag), &diag);
        diag.text[0] = '\0';
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    uint8_t *exact = (uint8_t *)fuzz_text(data, n); /* a read past its end is seen */
    struct ngd_oip_request q;
    struct ngd_arena arena;
    struct ngd_diag diag = {0};

    ngd_arena_init(&arena, 1 << 12);
    if (ngd_oip_request_read(&arena, exact, n, &q, &diag) != NGD_OK) {
        demand_diagnosis(NGD_ERR_MALFORMED_MESSAGE, &diag);
    } else {
        for (uint32_t i = 0; i < q.n_raw; i++)
            fuzz_demand(is_within(&q.raw[i], exact, n), "raw contents are not in the message");
        compare_with_library(&q, exact, n);
        demand_diagnosis(ngd_oip_request_params(&q, n % 2, &diag), &diag);
        fuzz_demand(q.params.timeout_us >= 0 && q.params.priority >= 0, "a parameter outside its range");
        fuzz_demand(memchr(q.params.sequence, '\0', sizeof(q.params.sequence)) != NULL, "an id without an end");
        read_places(&q);
    }
    ngd_arena_fini(&arena);
    ngd_free(exact);
    return 0;
}
