/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ReplayRequests (daemon/handlers/replay_read.h). Whatever the bytes are: what is read lies within them, nothing is
 * written beyond its array, and protobuf-c reads the same from what was taken.
 */
#include "daemon/handlers/replay_read.h"
#include "daemon/wire.h"
#include "proto/npugraph.pb-c.h"
#include "tests/fuzz/fuzz.h"

const uint32_t fuzz_runs = 20000;

/* One message with each field, one with packed ones, one with types, and one with shared buffers. */
bool fuzz_seed(uint32_t i, struct ngd_strbuf *out)
{
    static const uint8_t each[] = {0x08, 1, 0x10, 2, 0x1a, 2, 'a',  'b', 0x22, 2, 0x08, 3,    0x28, 0,   0x30, 1,
                                   0x38, 7, 0x40, 1, 0x50, 2, 0x58, 3,   0x62, 1, 'e',  0x6a, 1,    'f', 0x78, 1},
                         packed[] = {0x08, 1, 0x12, 3, 1, 2, 3, 0x22, 5, 0x0a, 3, 1, 2, 3, 0x2a, 2, 1, 0},
                         types[] = {0x08, 5, 0x4a, 9, 0x0a, 3, 'f', '3', '2', 0x12, 2, 4, 4, 0x1a, 2, 'x', 'y'},
                         shared[] = {0x1a, 0, 0x82, 1, 8, 8, 0, 0x10, 9, 0x18, 2, 0x20, 4, 0x8a, 1, 4, 8, 1, 0x20, 3};
    static const struct ngd_span seeds[] = {
        {each, sizeof(each)}, {packed, sizeof(packed)}, {types, sizeof(types)}, {shared, sizeof(shared)}};

    if (i >= sizeof(seeds) / sizeof(seeds[0]))
        return false;
    ngd_strbuf_append_n(out, seeds[i].data, seeds[i].bytes);
    return true;
}

static bool within(const void *part, size_t n_part, const uint8_t *data, size_t n)
{
    const uint8_t *p = part;

    return n_part == 0 || (p >= data && n_part <= n && (size_t)(p - data) <= n - n_part);
}

/* Reads all of them, under sanitizers. */
static void check_values(const struct ngd_replay_message *m)
{
    static volatile int64_t sum;

    for (uint32_t i = 0; i < m->n_symbols; i++)
        sum = sum ^ m->symbols[i];
    for (uint32_t i = 0; i < m->n_hosts; i++)
        for (uint32_t j = 0; j < m->hosts[i].n; j++)
            sum = sum ^ m->hosts[i].values[j];
    for (uint32_t i = 0; i < m->n_types; i++)
        fuzz_demand(m->types[i].dtype <= NGD_DTYPE_MAX && m->types[i].rank <= NGD_MAX_RANK + 1, "a type is none");
}

/* What protobuf-c says of the same bytes. It may refuse them, and takes flags of any wire type, which the reader does
 * not. */
static void compare(const struct ngd_replay_message *m, const uint8_t *data, size_t n)
{
    Npugraph__V1__ReplayRequest *q = npugraph__v1__replay_request__unpack(NULL, n, data);

    if (!q)
        return;
    fuzz_demand(q->graph == m->graph && q->tag == m->tag && q->generation == m->generation, "a number differs");
    fuzz_demand(q->n_symbols == m->n_symbols && q->n_inputs == m->n_inputs && q->n_hosts == m->n_hosts &&
                    q->n_outputs == m->n_outputs && q->n_input_types == m->n_types &&
                    q->n_shared_inputs == m->n_shared_inputs && q->n_shared_outputs == m->n_shared_outputs,
                "a count differs");
    for (uint32_t i = 0; i < m->n_shared_inputs; i++)
        fuzz_demand(q->shared_inputs[i]->buffer == m->shared_inputs[i].buffer &&
                        q->shared_inputs[i]->offset == m->shared_inputs[i].offset &&
                        q->shared_inputs[i]->bytes == m->shared_inputs[i].bytes,
                    "a range differs");
    for (uint32_t i = 0; i < m->n_symbols; i++)
        fuzz_demand(q->symbols[i] == m->symbols[i], "a symbol differs");
    for (uint32_t i = 0; i < m->n_inputs; i++)
        fuzz_demand(q->inputs[i].len == m->inputs[i].bytes, "an input differs");
    for (uint32_t i = 0; i < m->n_hosts; i++)
        fuzz_demand(q->hosts[i]->n_values == m->hosts[i].n, "a host parameter differs");
    npugraph__v1__replay_request__free_unpacked(q, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct ngd_replay_message m;
    struct ngd_arena arena;
    struct ngd_diag diag = {0};
    uint8_t *exact = (uint8_t *)fuzz_text(data, n); /* a read past its end is seen */

    ngd_arena_init(&arena, 1 << 12);
    if (ngd_replay_read(&arena, exact, n, &m, &diag) != NGD_OK) {
        fuzz_demand(diag.text[0] != '\0', "a message is refused without a diagnosis");
    } else {
        for (uint32_t i = 0; i < m.n_inputs; i++)
            fuzz_demand(within(m.inputs[i].data, m.inputs[i].bytes, exact, n), "an input is not in the message");
        fuzz_demand(within(m.wait_event.p, m.wait_event.n, exact, n), "an event's name is not in the message");
        fuzz_demand(within(m.record_event.p, m.record_event.n, exact, n), "an event's name is not in the message");
        check_values(&m);
        compare(&m, exact, n);
    }
    ngd_arena_fini(&arena);
    ngd_free(exact);
    return 0;
}
