/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes a million random mutations of replay requests. A checker that was written from the graph's text alone judges
 * each: it knows which requests are valid and what their results are. An answer is wrong if an invalid request was not
 * refused, a valid one was refused, or the results differ.
 *
 * There are two graphs: one whose symbols have only ranges, and the same with guards that compare them.
 *
 * Mutations change symbols (values, number, values that guards forbid), inputs (number, bytes, stated dtype, rank and
 * dimensions), generations (stale, of another binding), bindings (buffers that change meanwhile), options (programs
 * that run eagerly, or evict all the time), the eager flag, host parameters (number, length, value) and the room for
 * results. The same run with the guards on types, generations and relations switched off must find wrong answers;
 * otherwise the checker proves nothing.
 */
#include "base/fault.h"
#include "tests/unit/sched_util.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define MUTATIONS 60000
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define MUTATIONS 60000
#endif
#endif
#ifndef MUTATIONS
#define MUTATIONS 1000000
#endif

#define MAX_N    6
#define MAX_B    16
#define WIDTH    8
#define BLOCKS   4
#define CONTEXT  (BLOCKS * 4)
#define OPTIONS  4
#define PROGRAMS (2 * OPTIONS) /* half of them with guards on symbols */
#define RARE     400 /* one of this many requests goes to a program that captures or runs eagerly all the time */

/* z = x*w + s + sum(k) + mean of the first `len` values: each kind of input shows in the result. */
#define TEXT(guards)                                                                                               \
    "npugraph 1\ngraph \"mutations\" {\n sym N 1..6\n sym B 1..16 buckets 4, 16\n" guards " param %w : f32[8]\n"   \
    " state %s : f32[8]\n state %kc : f32[4,4,1,8]\n state %vc : f32[4,4,1,8]\n input %x : f32[B,8]\n"             \
    " input %k : i32[N]\n input %q : f32[1,1,8]\n input %bt : i32[1,4]\n host %ql : i64[1]\n host %len : i64[1]\n" \
    " %kf = aten._to_copy(%k) {dtype=f32}\n %ks = aten.sum.dim_IntList(%kf) {dim=[0], keepdim=true}\n"             \
    " %a = npu.fused_infer_attention_score(%q, %kc, %vc, %bt, %ql, %len) {num_heads=1, num_key_value_heads=1, "    \
    "scale=1, block_size=4}\n %a1 = aten.view(%a) {size=[8]}\n"                                                    \
    " %y = aten.mul.Tensor(%x, %w)\n %y1 = aten.add.Tensor(%y, %s)\n %y2 = aten.add.Tensor(%y1, %ks)\n"            \
    " %z = aten.add.Tensor(%y2, %a1)\n return \"z\" = %z\n}\n"

#define GUARDS                                                                                    \
    " guard mod(B, 5) != 3\n guard N <= B + 1\n guard 20 > N + B\n guard floordiv(B*N, 4) != 3\n" \
    " guard min(B, 7)*N != N*N*2\n guard max(N, 3) - B <= 2\n guard B >= 1\n"

/* The checker's own implementation of GUARDS. */
static bool guards_hold(int64_t n, int64_t b)
{
    int64_t least = b < 7 ? b : 7, most = n > 3 ? n : 3;

    return b % 5 != 3 && n <= b + 1 && 20 > n + b && b * n / 4 != 3 && least * n != n * n * 2 && most - b <= 2;
}

enum { X, K, Q, BT, INPUTS };

/* The checker's state of a binding. */
struct known {
    struct ngd_binding *binding;
    bool guarded;               /* its graph compares symbols */
    uint64_t generation, stale; /* of the binding before a change; 0 = none */
    float w, s, v;              /* all elements; row i of the values is v*i */
};

struct world {
    struct bed bed;
    struct ngd_program *programs[PROGRAMS];
    struct known known[PROGRAMS][2];
    uint64_t seed;
    uint64_t right, refused, wrong;
    char first_wrong[400];
};

struct attempt {
    struct ngd_request req;
    int64_t symbols[3];
    float x[(MAX_B + 1) * WIDTH], q[WIDTH], z[(MAX_B + 1) * WIDTH];
    int32_t k[MAX_N + 2], bt[BLOCKS];
    int64_t ql, len[2];
    struct ngd_span inputs[INPUTS];
    struct ngd_host_value hosts[2];
    struct ngd_out out;
    struct ngd_input_type types[INPUTS];
    struct ngd_diag diag;
    _Atomic bool done;
    ngd_status_t status;
    /* The checker's part. */
    struct known *known;
    bool valid;
    const char *what; /* the mutation that made it invalid */
};

static uint32_t draw(struct world *w, uint32_t n)
{
    w->seed = w->seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(w->seed >> 33) % n;
}

/* ---- the world ---------------------------------------------------------------------------------------- */

static struct ngd_program *program_with(struct world *w, const char *text, const char *name, const char *value)
{
    struct ngd_graph_options options;
    struct ngd_diag diag = {0};

    ngd_graph_options_init(&options);
    if (name && ngd_graph_options_set(&options, name, value, &diag))
        ck_abort_msg("%s", diag.text);
    return bed_program(&w->bed, text, &options);
}

static struct ngd_buffer *constant(struct world *w, float value, uint32_t n, const char *label)
{
    float data[CONTEXT * WIDTH];

    for (uint32_t i = 0; i < n; i++)
        data[i] = value;
    return bed_buffer(&w->bed, data, n * sizeof(float), label);
}

static struct ngd_buffer *values(struct world *w, float v)
{
    float data[CONTEXT * WIDTH];

    for (uint32_t i = 0; i < CONTEXT * WIDTH; i++)
        data[i] = v * (float)(i / WIDTH);
    return bed_buffer(&w->bed, data, sizeof(data), "vc");
}

static void bind_known(struct world *w, struct ngd_program *prog, struct known *k, float base)
{
    struct ngd_buffer *buffers[4];

    *k = (struct known){.w = base, .s = base * 2, .v = base};
    buffers[0] = constant(w, k->w, WIDTH, "w");
    buffers[1] = constant(w, k->s, WIDTH, "s");
    buffers[2] = constant(w, 0, CONTEXT * WIDTH, "kc");
    buffers[3] = values(w, k->v);
    k->binding = bed_bind(prog, buffers);
    k->generation = ngd_binding_generation(k->binding);
    for (int i = 0; i < 4; i++)
        ngd_buffer_unref(buffers[i]);
}

static void world_open(struct world *w)
{
    static const struct {
        const char *name, *value;
    } options[OPTIONS] = {
        {NULL, NULL}, {"force_eager", "true"}, {"capture_limit", "1"}, {"capture_limit_policy", "eager"}};

    memset(w, 0, sizeof(*w));
    w->seed = 12345;
    bed_open(&w->bed, 1, NGD_SEC);
    for (int i = 0; i < PROGRAMS; i++) {
        bool guarded = i % 2;

        w->programs[i] = program_with(w, guarded ? TEXT(GUARDS) : TEXT(""), options[i / 2].name, options[i / 2].value);
        for (int b = 0; b < 2; b++) {
            bind_known(w, w->programs[i], &w->known[i][b], (float)(1 + i * 2 + b));
            w->known[i][b].guarded = guarded;
        }
    }
}

static void world_close(struct world *w)
{
    bed_settle(&w->bed);
    for (int i = 0; i < PROGRAMS; i++) {
        for (int b = 0; b < 2; b++)
            ngd_binding_unref(w->known[i][b].binding);
        ngd_program_unref(w->programs[i]);
    }
    bed_close(&w->bed);
}

/* Draws sizes for which all guards hold, or for which one does not. */
static void draw_sizes(struct world *w, const struct known *known, bool hold, int64_t *n_p, int64_t *b_p)
{
    do {
        *n_p = 1 + draw(w, MAX_N);
        *b_p = 1 + draw(w, MAX_B);
    } while (known->guarded && guards_hold(*n_p, *b_p) != hold);
}

/* Binds another buffer to the param or a state. Later results differ, and the old generation is stale. */
static void change_binding(struct world *w, struct known *k)
{
    struct ngd_buffer *changes[4] = {NULL, NULL, NULL, NULL};
    struct ngd_binding *fresh = NULL;
    float value = (float)(1 + draw(w, 30));
    uint32_t which = draw(w, 3);

    changes[which == 2 ? 3 : which] = which == 2 ? values(w, value) : constant(w, value, WIDTH, "changed");
    ck_assert_int_eq(ngd_binding_change(k->binding, changes, &fresh, NULL), NGD_OK);
    ngd_buffer_unref(changes[which == 2 ? 3 : which]);
    ngd_binding_unref(k->binding);
    k->binding = fresh;
    k->stale = k->generation;
    k->generation = ngd_binding_generation(fresh);
    *(which == 0 ? &k->w : which == 1 ? &k->s : &k->v) = value;
}

/* ---- requests ----------------------------------------------------------------------------------------- */

static void attempt_done(struct ngd_request *req, ngd_status_t status, const struct ngd_diag *diag)
{
    struct attempt *a = req->user;

    a->status = status;
    if (status && diag)
        a->diag = *diag;
    atomic_store(&a->done, true);
}

static void say_types(struct attempt *a)
{
    a->types[X] = (struct ngd_input_type){NGD_F32, 2, {a->symbols[1], WIDTH}};
    a->types[K] = (struct ngd_input_type){NGD_I32, 1, {a->symbols[0]}};
    a->types[Q] = (struct ngd_input_type){NGD_F32, 3, {1, 1, WIDTH}};
    a->types[BT] = (struct ngd_input_type){NGD_I32, 2, {1, BLOCKS}};
    a->req.types = a->types;
    a->req.n_types = INPUTS;
}

/* Makes a valid request, or, with hold false, one whose sizes violate a guard and which is otherwise valid. */
static void make_request(struct world *w, struct attempt *a, struct known *known, bool hold)
{
    int64_t n, b;

    draw_sizes(w, known, hold, &n, &b);
    memset(a, 0, sizeof(*a));
    ngd_request_init(&a->req);
    a->known = known;
    a->valid = true;
    a->symbols[0] = n;
    a->symbols[1] = b;
    for (int64_t i = 0; i < b * WIDTH; i++)
        a->x[i] = (float)draw(w, 16);
    for (int64_t i = 0; i < n; i++)
        a->k[i] = (int32_t)draw(w, 100);
    for (int32_t i = 0; i < BLOCKS; i++)
        a->bt[i] = i;
    a->ql = 1;
    a->len[0] = 1 + draw(w, CONTEXT);
    a->inputs[X] = (struct ngd_span){a->x, (uint64_t)b * WIDTH * 4};
    a->inputs[K] = (struct ngd_span){a->k, (uint64_t)n * 4};
    a->inputs[Q] = (struct ngd_span){a->q, sizeof(a->q)};
    a->inputs[BT] = (struct ngd_span){a->bt, sizeof(a->bt)};
    a->hosts[0] = (struct ngd_host_value){&a->ql, 1};
    a->hosts[1] = (struct ngd_host_value){a->len, 1};
    a->out = (struct ngd_out){a->z, (uint64_t)b * WIDTH * 4};
    a->req.binding = known->binding;
    a->req.launch = (struct ngd_launch){
        .symbols = a->symbols, .inputs = a->inputs, .hosts = a->hosts, .outputs = &a->out, .tag = 1};
    a->req.n_symbols = 2;
    a->req.n_inputs = INPUTS;
    a->req.n_hosts = 2;
    a->req.n_outputs = 1;
    a->req.done = attempt_done;
    a->req.user = a;
    if (draw(w, 2))
        say_types(a);
    if (draw(w, 2))
        a->req.generation = known->generation;
}

static void spoil(struct attempt *a, const char *what)
{
    a->valid = false;
    a->what = what;
}

/* ---- mutations ---------------------------------------------------------------------------------------- */

static void mutate_symbol(struct world *w, struct attempt *a)
{
    static const int64_t bad_n[] = {0, -1, 7, 1000, INT64_MAX, INT64_MIN},
                         bad_b[] = {0, -5, 17, 64, INT64_MAX, INT64_MIN};
    uint32_t i = draw(w, 2);

    a->symbols[i] = i ? bad_b[draw(w, 6)] : bad_n[draw(w, 6)];
    spoil(a, "a symbol out of its range");
}

/* Makes sizes that are in range and fit the inputs, but violate a guard. */
static void mutate_relation(struct world *w, struct attempt *a)
{
    struct known *known = a->known;

    make_request(w, a, known, !known->guarded);
    if (known->guarded)
        spoil(a, "sizes that a guard does not allow");
}

/* Makes sizes that are in range but do not fit the inputs. */
static void mutate_shape(struct world *w, struct attempt *a)
{
    uint32_t i = draw(w, 2);
    int64_t old = a->symbols[i];

    a->symbols[i] = 1 + draw(w, i ? MAX_B : MAX_N);
    a->out.bytes = (uint64_t)a->symbols[1] * WIDTH * 4;
    if (a->symbols[i] != old)
        spoil(a, "a symbol that is not the inputs'");
}

static void mutate_symbol_count(struct world *w, struct attempt *a)
{
    a->req.n_symbols = draw(w, 2) ? 1 : 3;
    spoil(a, "a wrong number of symbols");
}

static void mutate_bytes(struct world *w, struct attempt *a)
{
    struct ngd_span *in = &a->inputs[draw(w, INPUTS)];

    in->bytes = draw(w, 2) ? in->bytes - 4 : in->bytes + 4;
    spoil(a, "a wrong number of bytes");
}

static void mutate_input_count(struct world *w, struct attempt *a)
{
    a->req.n_inputs = draw(w, 2) ? INPUTS - 1 : INPUTS + 1;
    spoil(a, "a wrong number of inputs");
}

static void mutate_dtype(struct world *w, struct attempt *a)
{
    uint32_t i = draw(w, INPUTS);
    ngd_dtype_t dtype = (ngd_dtype_t)draw(w, NGD_DTYPE_MAX + 1);

    say_types(a);
    if (dtype == a->types[i].dtype)
        return;
    a->types[i].dtype = dtype;
    spoil(a, "a dtype that is not the input's");
}

static void mutate_dim(struct world *w, struct attempt *a)
{
    uint32_t i = draw(w, INPUTS), d;

    say_types(a);
    d = draw(w, a->types[i].rank);
    a->types[i].dims[d] += 1 + (int64_t)draw(w, 3);
    spoil(a, "a dimension that is not the input's");
}

static void mutate_rank(struct world *w, struct attempt *a)
{
    uint32_t i = draw(w, INPUTS);

    say_types(a);
    a->types[i].rank = (uint8_t)(a->types[i].rank + (draw(w, 2) ? 1 : -1));
    spoil(a, "a rank that is not the input's");
}

static void mutate_generation(struct world *w, struct attempt *a)
{
    a->req.generation = draw(w, 2) && a->known->stale ? a->known->stale : a->known->generation + 1000000;
    spoil(a, "a generation that is not the binding's");
}

/* The binding changes between the moment its generation was read and the request. */
static void mutate_binding(struct world *w, struct attempt *a)
{
    uint64_t said = a->req.generation;

    change_binding(w, a->known);
    a->req.binding = a->known->binding;
    if (said)
        spoil(a, "a binding that changed meanwhile");
}

static void mutate_host(struct world *w, struct attempt *a)
{
    switch (draw(w, 4)) {
    case 0:
        a->hosts[1].n = 2;
        spoil(a, "a host parameter that is too long");
        break;
    case 1:
        a->hosts[1].n = 0;
        spoil(a, "a host parameter without values");
        break;
    case 2:
        a->req.n_hosts = 1;
        spoil(a, "a wrong number of host parameters");
        break;
    default:
        a->len[0] = 1 + draw(w, CONTEXT); /* another value is another result, and no capture */
    }
}

static void mutate_options(struct world *w, struct attempt *a)
{
    a->req.launch.eager = true;
    (void)w;
}

static void mutate_room(struct world *w, struct attempt *a)
{
    a->out.bytes -= 4 + 4 * draw(w, 3);
    spoil(a, "too little room for the result");
}

static void (*const mutations[])(struct world *w, struct attempt *a) = {
    mutate_symbol, mutate_shape, mutate_symbol_count, mutate_bytes,      mutate_input_count,
    mutate_dtype,  mutate_dim,   mutate_rank,         mutate_generation, mutate_host,
    mutate_host,   mutate_room,  mutate_relation,
};
#define N_MUTATIONS (sizeof(mutations) / sizeof(mutations[0]))

/* ---- judging ------------------------------------------------------------------------------------------ */

/* Sums of small integers are exact in f32; the mean of the attention is not. */
static bool results_right(const struct attempt *a)
{
    const struct known *k = a->known;
    double sum = 0, mean = k->v * (double)(a->len[0] - 1) / 2;

    for (int64_t i = 0; i < a->symbols[0]; i++)
        sum += a->k[i];
    for (int64_t i = 0; i < a->symbols[1] * WIDTH; i++)
        if (fabs((double)a->z[i] - ((double)a->x[i] * k->w + k->s + sum + mean)) > 0.02)
            return false;
    return true;
}

static void judge(struct world *w, const struct attempt *a)
{
    const char *fault = NULL;

    if (a->valid && a->status)
        fault = "refused, although it is right";
    else if (!a->valid && !a->status)
        fault = "answered, although it is wrong";
    else if (a->valid && !results_right(a))
        fault = "answered with other numbers";
    w->right += a->valid && !fault;
    w->refused += !a->valid && !fault;
    if (fault && w->wrong++ == 0)
        snprintf(w->first_wrong, sizeof(w->first_wrong), "%s: %s (%s: %.200s)", fault,
                 a->what ? a->what : "no mutation", ngd_status_name(a->status), a->diag.text);
}

static void submit(struct world *w, struct attempt *a)
{
    ngd_status_t status = ngd_sched_submit(w->bed.sched, &a->req, &a->diag);

    if (status) {
        a->status = status;
        return;
    }
    while (!atomic_load(&a->done))
        sched_yield();
}

static void try_one(struct world *w, struct attempt *a)
{
    uint32_t program = draw(w, RARE) ? draw(w, 2) : 2 + draw(w, PROGRAMS - 2);

    make_request(w, a, &w->known[program][draw(w, 2)], true);
    if (draw(w, RARE) == 0)
        mutate_binding(w, a);
    if (draw(w, RARE) == 0)
        mutate_options(w, a);
    if (draw(w, 4))
        mutations[draw(w, N_MUTATIONS)](w, a);
    submit(w, a);
    judge(w, a);
}

static void run(struct world *w, uint32_t n)
{
    struct attempt *a = NGD_NEW(struct attempt);

    for (uint32_t i = 0; i < n; i++)
        try_one(w, a);
    ngd_free(a);
}

START_TEST(mutated_requests_are_answered_rightly_or_refused)
{
    static struct world w;

    world_open(&w);
    run(&w, MUTATIONS);
    ck_assert_msg(w.wrong == 0, "%llu of %d requests: %s", (unsigned long long)w.wrong, MUTATIONS, w.first_wrong);
    ck_assert_uint_gt(w.right, MUTATIONS / 5);
    ck_assert_uint_gt(w.refused, MUTATIONS / 5);
    world_close(&w);
}
END_TEST

/* Checks that the same run has at least so many wrong answers with one kind of guards switched off. */
static void run_without(ngd_fault_t guards, uint32_t at_least)
{
    static struct world w;

    if (!NGD_FAULT_COMPILED) {
        printf("a run without guards needs a build with fault points\n");
        return;
    }
    world_open(&w);
    ngd_fault_arm(guards, 0, UINT32_MAX);
    run(&w, MUTATIONS / 20);
    ngd_fault_disarm_all();
    ck_assert_msg(w.wrong > at_least, "only %llu wrong ones", (unsigned long long)w.wrong);
    world_close(&w);
}

START_TEST(without_the_guards_the_same_run_finds_wrong_answers)
{
    run_without(NGD_FAULT_GUARDS_OFF, MUTATIONS / 200);
}
END_TEST

START_TEST(without_the_relations_the_same_run_finds_wrong_answers)
{
    run_without(NGD_FAULT_RELATIONS_OFF, MUTATIONS / 20 / 100);
}
END_TEST

UNIT_MAIN("scheduler/guard_mutations", mutated_requests_are_answered_rightly_or_refused,
          without_the_guards_the_same_run_finds_wrong_answers, without_the_relations_the_same_run_finds_wrong_answers)
