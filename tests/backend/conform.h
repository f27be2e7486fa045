/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_TESTS_BACKEND_CONFORM_H
#define NGD_TESTS_BACKEND_CONFORM_H

/*
 * The conformance suite: checks what devices/device.h and devices/backend.h promise, for every backend that is compiled
 * in.
 *
 * Each test loops over the backends that are selected and usable; `_i` is the index. A new backend needs one row in the
 * table in backends.c. NGD_TEST_BACKENDS=host,ascend runs only those; a name that is not compiled in is an error. What
 * a backend cannot show here is printed as "skip - what: why".
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
    /* Returns what is missing on this machine or in this build, or NULL if the backend can be used. */
    const char *(*missing)(void);
    /*
     * Optional. Returns why the backend is simulated, or NULL if its devices are real ones, of which there may be few
     * and which do not fail on request.
     */
    const char *(*simulated)(void);
    /* Sets the parameters whose defaults do not suffice. */
    void (*params)(struct ngd_device_params *params);
    /* Arms a fault. Returns NULL, or the reason why this backend or build cannot. */
    const char *(*arm)(enum conform_fault fault);
    void (*disarm)(void);
    /*
     * Optional. Makes replays run the nodes of several streams in another order that the streams allow; 0: the usual
     * order.
     */
    void (*shuffle)(uint32_t seed);
    /*
     * A launch checks its indices before it does anything else, so a rank with a bad index comes to no collective at
     * all.
     */
    bool checks_first;
    bool exact_rows; /* a row has the same bits however many rows run beside it; else it is only within tolerance */
    /*
     * Like tolerance, for a case with operands of f32 and of half precision. A device whose matrix unit takes one dtype
     * only multiplies in the narrower one, with that one's precision.
     */
    double mixed_tolerance;
    double quantised_tolerance; /* of products with quantised weights, x being of half precision */
    double model_tolerance;     /* like tolerance, for a whole decoder */
    double tolerance;           /* the allowed error, in tolerances of a golden case; the host device has 1 */
};

/* The backends to test, in the order of backends.def. */
uint32_t conform_count(void);
const struct conform_backend *conform_backend(int i);
/* Returns why backend i, of all that are compiled in, is not tested, or NULL if it is. */
const char *conform_why_not(int i);

void conform_skip(const struct conform_backend *backend, const char *what, const char *why);

/* A device with a stream, a pool, and 1 GiB of memory (or the given budget). */
struct conform {
    const struct conform_backend *backend;
    struct bench b;
};
void conform_params(int i, struct ngd_device_params *params);
void conform_open(struct conform *c, int i);
void conform_open_budget(struct conform *c, int i, uint64_t memory_bytes);
void conform_close(struct conform *c); /* checks that everything was given back */

/* The arguments of a graph's launch, in the order of the graph. */
struct conform_io {
    struct ngd_span in[8];
    struct ngd_host_value hosts[4];
    struct ngd_out out[8];
    struct ngd_launch launch;
};
void conform_io_init(struct conform_io *io, const int64_t *symbols);

/* Makes a graph ready to run, or fails the test. */
void conform_ready(struct ready *r, struct conform *c, const char *text, const int64_t *symbols);
struct ngd_buffer *conform_buffer(struct conform *c, const void *data, uint64_t bytes, const char *label);

/* y = 2x with 4 elements, the smallest graph that runs. */
#define CONFORM_DOUBLE \
    "npugraph 1\ngraph \"double\" {\n input %x : f32[4]\n %y = aten.add.Tensor(%x, %x)\n return \"y\" = %y\n}\n"
/* y = w[i], which fails if the index is out of range. */
#define CONFORM_PICK                                                                                         \
    "npugraph 1\ngraph \"pick\" {\n param %w : f32[4,2]\n input %i : i32[3]\n %y = aten.embedding(%w, %i)\n" \
    " return \"y\" = %y\n}\n"

struct conform_double {
    struct ready r;
    float x[4], y[4];
    struct conform_io io;
};
void conform_double_open(struct conform_double *d, struct conform *c, float first);
void conform_double_check(const struct conform_double *d); /* checks that it has run and the result is right */
void conform_double_close(struct conform_double *d);

/* A callback that reports that it has started, and holds its stream until the gate opens. */
struct conform_gate {
    struct ngd_mutex lock;
    struct ngd_cond cond;
    bool arrived, open;
};
void conform_gate_close_on(struct conform_gate *g, struct ngd_stream *stream); /* queues it, waits until it runs */
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

/* Checks that the text has every one of the words, which are separated by '|'. */
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
