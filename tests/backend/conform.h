/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_TESTS_BACKEND_CONFORM_H
#define NGD_TESTS_BACKEND_CONFORM_H

/*
 * The conformance suite: what devices/device.h and devices/backend.h promise, for every backend that is compiled in.
 *
 * Each test is a loop over the backends that are selected and usable (backends.c has the table); `_i` is the index. A
 * new backend needs one row there. NGD_TEST_BACKENDS=host,ascend runs only those; a name that is not compiled in is an
 * error. What a backend cannot show here is printed: "skip - what: why".
 */
#include "tests/ops/device_run.h"
#include "base/lock.h"
#include "tests/unit/unit.h"
#include <stdatomic.h>

enum conform_fault {
    CONFORM_FAULT, /* the next launch fails with DEVICE_FAULT */
    CONFORM_LOST,  /* the next launch fails with DEVICE_LOST */
    CONFORM_HANG,  /* the next launch hangs until a time limit below 5 s ends it with DEVICE_FAULT */
    CONFORM_ALLOC, /* the next allocation fails although the budget allows it */
};

struct conform_backend {
    const char *name;
    /* What is missing on this machine or in this build; NULL: nothing. */
    const char *(*missing)(void);
    /* Optional: NULL if its devices are real ones, of which there may be few, and that do not fail on request; or why
     * it is simulated. */
    const char *(*simulated)(void);
    /* Sets what the defaults of struct ngd_device_params lack. */
    void (*params)(struct ngd_device_params *params);
    /* Arms a fault; NULL, or the reason why this backend or build cannot. */
    const char *(*arm)(enum conform_fault fault);
    void (*disarm)(void);
    /* Optional: replays run what is on several streams in another order that these allow; 0: as usual. */
    void (*shuffle)(uint32_t seed);
    /* Indices are read before a launch does anything: a rank with a bad one comes to no collective, wherever it is. */
    bool checks_first;
    bool exact_rows; /* a row has the same bits however many rows run beside it; else it is within tolerance */
    /* The same where an operand of f32 meets one of half precision: a device whose matrix unit takes one dtype only
     * multiplies in the narrower one, and has the precision of that. */
    double mixed_tolerance;
    double model_tolerance; /* the same of a whole decoder, where the host device has 1 */
    double tolerance; /* how many times the tolerance of a golden case results may be off; the host device has 1 */
};

/* The backends to test, in the order of backends.def. */
uint32_t conform_count(void);
const struct conform_backend *conform_backend(int i);
/* Of all that are compiled in: why backend i is not tested; NULL: it is. */
const char *conform_why_not(int i);

void conform_skip(const struct conform_backend *backend, const char *what, const char *why);

/* A device with a stream and a pool, with 1 GiB (or a budget of its own). */
struct conform {
    const struct conform_backend *backend;
    struct bench b;
};
void conform_params(int i, struct ngd_device_params *params);
void conform_open(struct conform *c, int i);
void conform_open_budget(struct conform *c, int i, uint64_t memory_bytes);
void conform_close(struct conform *c); /* checks that nothing is left */

/* What a graph's launch needs, in the order of the graph. */
struct conform_io {
    struct ngd_span in[8];
    struct ngd_host_value hosts[4];
    struct ngd_out out[8];
    struct ngd_launch launch;
};
void conform_io_init(struct conform_io *io, const int64_t *symbols);

/* Makes a graph ready, or fails the test. */
void conform_ready(struct ready *r, struct conform *c, const char *text, const int64_t *symbols);
struct ngd_buffer *conform_buffer(struct conform *c, const void *data, uint64_t bytes, const char *label);

/* y = 2x of 4 elements: the smallest thing that runs. */
#define CONFORM_DOUBLE \
    "npugraph 1\ngraph \"double\" {\n input %x : f32[4]\n %y = aten.add.Tensor(%x, %x)\n return \"y\" = %y\n}\n"
/* y = w[i]: an index outside fails the launch. */
#define CONFORM_PICK                                                                                         \
    "npugraph 1\ngraph \"pick\" {\n param %w : f32[4,2]\n input %i : i32[3]\n %y = aten.embedding(%w, %i)\n" \
    " return \"y\" = %y\n}\n"

struct conform_double {
    struct ready r;
    float x[4], y[4];
    struct conform_io io;
};
void conform_double_open(struct conform_double *d, struct conform *c, float first);
void conform_double_check(const struct conform_double *d); /* it has run, with the right result */
void conform_double_close(struct conform_double *d);

/* A callback that says that it is there, and keeps its stream until the gate opens. */
struct conform_gate {
    struct ngd_mutex lock;
    struct ngd_cond cond;
    bool arrived, open;
};
void conform_gate_close_on(struct conform_gate *g, struct ngd_stream *stream); /* queues it, and waits till it runs */
void conform_gate_queue(struct conform_gate *g, struct ngd_stream *stream);
void conform_gate_await(struct conform_gate *g);
void conform_gate_open(struct conform_gate *g);

#define CONFORM_OK(expression)                                                            \
    do {                                                                                  \
        struct ngd_diag diag_ = {0};                                                      \
        ngd_status_t status_ = (expression);                                              \
                                                                                          \
        (void)diag_;                                                                      \
        if (status_)                                                                      \
            ck_abort_msg("%s: %s %s", #expression, ngd_status_name(status_), diag_.text); \
    } while (0)

/* Every word, '|' between them, is in the text. */
void conform_says(const char *text, const char *words);

TCase *conform_lifecycle(void);
TCase *conform_memory(void);
TCase *conform_streams(void);
TCase *conform_replay(void);
TCase *conform_pools(void);
TCase *conform_errors(void);
TCase *conform_indices(void);
TCase *conform_operators(void);
TCase *conform_decoder(void);
TCase *conform_collectives(void);
TCase *conform_groups(void);
TCase *conform_side_streams(void);

#define CONFORM_ADD(tcase, ...)                                              \
    do {                                                                     \
        const TTest *const tests_[] = {__VA_ARGS__};                         \
                                                                             \
        tcase_set_timeout(tcase, effort_seconds());                          \
        for (size_t t_ = 0; t_ < sizeof(tests_) / sizeof(tests_[0]); t_++)   \
            tcase_add_loop_test(tcase, tests_[t_], 0, (int)conform_count()); \
    } while (0)

#endif
