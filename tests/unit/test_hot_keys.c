/* SPDX-License-Identifier: Apache-2.0 */
/* Tests hot keys: their list in the store, and the captures ahead that it causes, on the real host device. */
#include "base/dumpdir.h"
#include "base/le.h"
#include "graphs/pattern.h"
#include "graphs/store.h"
#include "tests/unit/stored_util.h"

static void await_warm(uint64_t n)
{
    for (int i = 0; ngd_metric_get(NGD_M_WARM_CAPTURES) < n; i++) {
        ck_assert_int_lt(i, 100000);
        usleep(100);
    }
}

START_TEST(hot_keys_are_captured_before_anyone_asks)
{
    struct start s;
    struct ngd_binding *b;
    int misses;

    setup_dir();
    first_start();
    start_open(&s);
    ngd_sched_warm(s.bed.sched);
    await_warm(2);
    ck_assert_uint_eq(row_count(NGD_M_WARM_CAPTURES, "captured"), 2);
    check_plans(&s, 0, 2);
    misses = bed_counted(&s.bed, NGD_M_CACHE_MISSES);
    b = bed_binding(&s.bed, DOUBLE_TEXT, NULL);
    start_run(&s, b, 5, 1);
    start_run(&s, b, 7, 1);
    ck_assert_int_eq(bed_counted(&s.bed, NGD_M_CACHE_MISSES), misses);
    ngd_sched_save_hot(s.bed.sched);
    ngd_binding_unref(b);
    start_close(&s);
    teardown_dir();
}
END_TEST

/* The key's size is a bucket, which a request may not ask for. */
START_TEST(hot_keys_are_captured_whatever_guards_say_of_their_buckets)
{
    static const char text[] = "npugraph 1\ngraph \"guarded\" {\n sym N 1..64 buckets 8, 64\n guard N != 8\n"
                               " input %x : f32[N]\n %y = aten.add.Tensor(%x, %x)\n return \"y\" = %y\n}\n";
    const uint64_t warm = ngd_metric_get(NGD_M_WARM_CAPTURES), captured = row_count(NGD_M_WARM_CAPTURES, "captured");
    struct start s;
    struct ngd_binding *b;
    int misses;

    setup_dir();
    start_open(&s);
    b = bed_binding(&s.bed, text, NULL);
    start_run(&s, b, 5, 3);
    ngd_binding_unref(b);
    start_close(&s);
    start_open(&s);
    ngd_sched_warm(s.bed.sched);
    await_warm(warm + 1);
    ck_assert_uint_eq(row_count(NGD_M_WARM_CAPTURES, "captured"), captured + 1);
    misses = bed_counted(&s.bed, NGD_M_CACHE_MISSES);
    b = bed_binding(&s.bed, text, NULL);
    start_run(&s, b, 5, 1);
    ck_assert_int_eq(bed_counted(&s.bed, NGD_M_CACHE_MISSES), misses);
    ngd_binding_unref(b);
    start_close(&s);
    teardown_dir();
}
END_TEST

/* Returns how many instances the binding has in the first slot. */
static uint32_t count_instances(const struct ngd_binding *b)
{
    uint32_t n = 0;

    for (const struct ngd_instance_chunk *c = &b->instances[0]; c; c = atomic_load(&c->next))
        for (uint32_t i = 0; i < NGD_INSTANCE_CHUNK; i++)
            n += atomic_load(&c->place[i].x) != NULL;
    return n;
}

/* Starts with both keys captured ahead. */
static void warm_start(struct start *s)
{
    const uint64_t warm = ngd_metric_get(NGD_M_WARM_CAPTURES);

    start_open(s);
    ngd_sched_warm(s->bed.sched);
    await_warm(warm + 2);
}

START_TEST(instances_of_hot_keys_are_made_before_anyone_replays)
{
    struct start s;
    struct ngd_binding *early, *b;
    uint64_t warm;

    setup_dir();
    first_start();
    warm_start(&s);
    b = bed_binding(&s.bed, DOUBLE_TEXT, NULL);
    bed_settle(&s.bed);
    ck_assert_uint_eq(count_instances(b), 2);
    ck_assert_uint_gt(ngd_pool_bytes(bed_slot(&s.bed, 0)->pool), 0);
    start_run(&s, b, 5, 2);
    start_run(&s, b, 7, 2);
    ck_assert_uint_eq(count_instances(b), 2);
    early = bed_binding(&s.bed, DOUBLE_TEXT, NULL); /* both have run by now: nothing is made ahead any more */
    bed_settle(&s.bed);
    ck_assert_uint_eq(count_instances(early), 0);
    ngd_binding_unref(early);
    ngd_binding_unref(b);
    start_close(&s);
    /* The client is there before the keys are captured. */
    warm = ngd_metric_get(NGD_M_WARM_CAPTURES);
    start_open(&s);
    early = bed_binding(&s.bed, DOUBLE_TEXT, NULL);
    ngd_sched_warm(s.bed.sched);
    await_warm(warm + 2);
    bed_settle(&s.bed);
    ck_assert_uint_eq(count_instances(early), 2);
    start_run(&s, early, 5, 1);
    ngd_binding_unref(early);
    start_close(&s);
    teardown_dir();
}
END_TEST

static uint32_t count_bindings(struct ngd_program *prog)
{
    uint32_t n = 0;

    ngd_mutex_lock(&prog->lock);
    ngd_list_for_each (l, &prog->bindings)
        n++;
    ngd_mutex_unlock(&prog->lock);
    return n;
}

static uint32_t count_waiting(struct ngd_queue *q)
{
    uint32_t n;

    ngd_mutex_lock(&q->lock);
    n = q->lineup.depth;
    ngd_mutex_unlock(&q->lock);
    return n;
}

/* A warm start whose one worker is busy, with a binding that has its instances. */
struct busy {
    struct start s;
    struct ngd_queue *q;
    struct ngd_binding *first;
    struct gate gate;
    struct call c;
};

static void busy_open(struct busy *w)
{
    setup_dir();
    first_start();
    warm_start(&w->s);
    w->q = &w->s.bed.sched->queues[0];
    w->first = bed_binding(&w->s.bed, DOUBLE_TEXT, NULL);
    bed_settle(&w->s.bed);
    call_occupy(&w->s.bed, &w->c, w->first, &w->gate);
}

static void busy_end(struct busy *w)
{
    gate_open(&w->gate);
    call_wait(&w->c);
}

static void busy_close(struct busy *w)
{
    ngd_binding_unref(w->first);
    start_close(&w->s);
    teardown_dir();
}

START_TEST(instances_wait_for_their_turn_and_hold_nothing_until_then)
{
    struct busy w;
    struct ngd_binding *b, *gone;

    busy_open(&w);
    gone = bed_binding(&w.s.bed, DOUBLE_TEXT, NULL);
    b = bed_binding(&w.s.bed, DOUBLE_TEXT, NULL);
    ck_assert_uint_eq(count_waiting(w.q), 4); /* two keys for each */
    ck_assert_uint_eq(atomic_load(&b->refs), 1);
    ck_assert_uint_eq(count_bindings(w.first->prog), 3);
    ngd_binding_unref(gone);
    ck_assert_uint_eq(count_bindings(w.first->prog), 2);
    busy_end(&w);
    bed_settle(&w.s.bed);
    ck_assert_uint_eq(count_instances(b), 2);
    ngd_binding_unref(b);
    busy_close(&w);
}
END_TEST

START_TEST(instances_that_wait_go_with_the_scheduler)
{
    struct busy w;
    struct ngd_binding *b;

    busy_open(&w);
    b = bed_binding(&w.s.bed, DOUBLE_TEXT, NULL);
    ngd_mutex_lock(&w.q->lock);
    w.q->stopping = true;
    ngd_mutex_unlock(&w.q->lock);
    busy_end(&w);
    ck_assert_uint_eq(count_instances(b), 0);
    ngd_binding_unref(b);
    busy_close(&w);
}
END_TEST

/* ---- hot keys with registered patterns ---- */

/* Its replacement is wrong, so that the results show that it is used. */
static const char *const triple = "pattern \"triple\" {\n  version 1\n  dim N\n  input %x : f32[N]\n  source { %y = "
                                  "aten.add.Tensor(%x, %x) return %y }\n"
                                  "  replacement { %y = aten.mul.Scalar(%x) {other=3} return %y }\n}\n";

static struct ngd_pattern_set *registered(const char *text)
{
    struct ngd_pattern_set *builtin = ngd_pattern_set_builtin(), *set = NULL;
    struct ngd_pattern *p = NULL;
    struct ngd_diag diag = {0};
    uint32_t n = 0;

    if (ngd_patterns_parse(text, strlen(text), &p, 1, &n, &diag))
        ck_abort_msg("%s", diag.text);
    ck_assert_int_eq(ngd_pattern_set_create(&set), NGD_OK);
    ck_assert_int_eq(ngd_pattern_set_add(set, p), NGD_OK);
    ngd_pattern_unref(p);
    for (uint32_t i = 0; i < builtin->n; i++)
        ck_assert_int_eq(ngd_pattern_set_add(set, builtin->patterns[i]), NGD_OK);
    ngd_pattern_set_unref(builtin);
    return set;
}

static struct ngd_binding *with_patterns(struct start *s, const char *text)
{
    struct ngd_pattern_set *set = registered(text);
    struct ngd_graph *g = bed_graph(DOUBLE_TEXT);
    struct ngd_graph_options options;
    struct ngd_program *prog = NULL;
    struct ngd_binding *b;

    ngd_graph_options_init(&options);
    ck_assert_int_eq(ngd_program_open(s->bed.sched, s->bed.dev, g, &options, set, &prog, NULL, NULL), NGD_OK);
    b = bed_bind(prog, NULL);
    ngd_program_unref(prog);
    ngd_graph_unref(g);
    ngd_pattern_set_unref(set);
    return b;
}

/* Captures size 5 without a replay, because replays are checked to be doubled. */
static void capture_five(struct ngd_binding *b)
{
    static const int64_t n = 5;
    struct ngd_program *prog = ngd_binding_program(b);
    struct ngd_gcache_entry *entry = NULL;
    struct ngd_key key;

    ck_assert_int_eq(ngd_program_key(prog, &n, 1, &key, NULL), NGD_OK);
    ck_assert_int_eq(ngd_program_capture(prog, &key, &entry, NULL, NULL), NGD_OK);
    ck_assert_int_eq(ngd_exec_plan(ngd_entry_executable(entry)->exec)->calls[0].op->id, NGD_OP_ATEN_MUL_SCALAR);
    atomic_fetch_add(&ngd_entry_executable(entry)->runs, 7);
    ngd_gcache_put(entry);
}

static void store_with_patterns(void)
{
    struct start s;
    struct ngd_binding *b;

    start_open(&s);
    b = with_patterns(&s, triple);
    capture_five(b);
    ngd_sched_save_hot(s.bed.sched);
    ngd_binding_unref(b);
    start_close(&s);
    ck_assert_uint_eq(count_files("entries"), 3); /* plan, graph, patterns */
}

START_TEST(hot_key_with_registered_patterns_is_captured_with_them)
{
    const uint64_t warm = ngd_metric_get(NGD_M_WARM_CAPTURES), captured = row_count(NGD_M_WARM_CAPTURES, "captured");
    struct start s;
    struct ngd_binding *b;

    setup_dir();
    store_with_patterns();
    start_open(&s);
    ngd_sched_warm(s.bed.sched);
    await_warm(warm + 1);
    ck_assert_uint_eq(row_count(NGD_M_WARM_CAPTURES, "captured") - captured, 1);
    check_plans(&s, 0, 1);
    b = with_patterns(&s, triple); /* the client registers its patterns, and its graph, again */
    capture_five(b);
    check_plans(&s, 0, 1);
    ngd_binding_unref(b);
    b = bed_binding(&s.bed, DOUBLE_TEXT, NULL); /* another client, without them */
    start_run(&s, b, 5, 1);
    check_plans(&s, 1, 1);
    ngd_binding_unref(b);
    start_close(&s);
    teardown_dir();
}
END_TEST

/* Returns true if the list of hot keys names "double" after a run with these options. */
static bool leaves_hot_key(const char *const (*set)[2], size_t n)
{
    const char *const allowed[] = {store_base};
    struct ngd_dumps dumps = {.allowed = allowed, .n_allowed = 1};
    struct ngd_sched_params params;
    struct ngd_graph_options options;
    struct ngd_strbuf text;
    struct ngd_binding *b;
    struct start s;
    bool left;

    setup_dir();
    memset(&s, 0, sizeof(s));
    s.store = open_store(0);
    bed_params(&s.bed, &params);
    params.store = s.store;
    params.dumps = &dumps;
    bed_start(&s.bed, &params);
    ngd_graph_options_init(&options);
    for (size_t i = 0; i < n; i++)
        ck_assert_int_eq(ngd_graph_options_set(&options, set[i][0], set[i][1], NULL), NGD_OK);
    b = bed_binding(&s.bed, DOUBLE_TEXT, &options);
    start_run(&s, b, 5, 3);
    ngd_sched_save_hot(s.bed.sched);
    ngd_strbuf_init(&text);
    left = ngd_store_note_read(s.store, "hot", &text) && strstr(ngd_strbuf_str(&text), "double");
    ngd_strbuf_fini(&text);
    ngd_binding_unref(b);
    start_close(&s);
    teardown_dir();
    return left;
}

/* A pool of its own would have no owner if the key were captured ahead. */
START_TEST(graphs_that_are_debugged_or_have_pools_of_their_own_leave_no_hot_keys)
{
    const char *const debugged[][2] = {{"debug_dump", "true"}, {"debug_dump_dir", store_base}};
    const char *const named[][2] = {{"use_graph_pool", "mine"}};
    const char *const apart[][2] = {{"reuse_graph_pool_in_same_fx", "false"}};

    ck_assert(leaves_hot_key(NULL, 0));
    ck_assert(!leaves_hot_key(debugged, 2));
    ck_assert(!leaves_hot_key(named, 1));
    ck_assert(!leaves_hot_key(apart, 1));
}
END_TEST

static void spoil_patterns(struct ngd_store *store, const char *with)
{
    struct ngd_store_item *items = NULL;
    struct ngd_store_blob blob;
    struct ngd_strbuf payload, bytes;
    char path[300] = "";
    uint32_t n = 0;

    ck_assert_int_eq(ngd_store_list(store, &items, &n, NULL), NGD_OK);
    for (uint32_t i = 0; i < n; i++) {
        if (!strstr(items[i].name, ".patterns"))
            continue;
        snprintf(path, sizeof(path), "%s/entries/%s", store_dir, items[i].name);
        ck_assert_int_eq(ngd_store_get_named(store, items[i].name, &blob), NGD_STORE_FOUND);
    }
    ck_assert(path[0]);
    ngd_free(items);
    if (!with) {
        ck_assert_int_eq(unlink(path), 0);
        ngd_store_blob_fini(&blob);
        return;
    }
    ngd_strbuf_init(&payload);
    ngd_strbuf_init(&bytes);
    ngd_le_put(&payload, strlen(with), 4);
    ngd_strbuf_append(&payload, with);
    blob.entry.payload = (const uint8_t *)payload.data;
    blob.entry.n_payload = payload.len;
    ngd_store_entry_pack(&blob.entry, &bytes); /* with a good checksum */
    write_file(path, bytes.data, bytes.len);
    ngd_strbuf_fini(&payload);
    ngd_strbuf_fini(&bytes);
    ngd_store_blob_fini(&blob);
}

START_TEST(hot_key_whose_patterns_are_gone_or_others_is_passed_over)
{
    char *other = ngd_strdup(triple);
    const char *const with[] = {NULL, other, "nonsense", ""};

    memcpy(strstr(other, "other=3"), "other=4", 7);
    for (size_t i = 0; i < sizeof(with) / sizeof(with[0]); i++) {
        const uint64_t warm = ngd_metric_get(NGD_M_WARM_CAPTURES), none = row_count(NGD_M_WARM_CAPTURES, "no_patterns");
        struct start s;
        struct ngd_binding *b;

        setup_dir();
        store_with_patterns();
        start_open(&s);
        spoil_patterns(s.store, with[i]);
        ngd_sched_warm(s.bed.sched);
        await_warm(warm + 1);
        ck_assert_uint_eq(row_count(NGD_M_WARM_CAPTURES, "no_patterns") - none, 1);
        check_plans(&s, 0, 0);
        ck_assert_uint_eq(count_files("aside"), with[i] ? 1 : 0);
        b = with_patterns(&s, triple);
        capture_five(b);
        ngd_binding_unref(b);
        start_close(&s);
        teardown_dir();
    }
    ngd_free(other);
}
END_TEST

/* Checks the numbers of runs in the first two lines of the list, and that it contains a text. */
static void check_hot(uint64_t first, uint64_t second, const char *part)
{
    struct ngd_store *store = open_store(0);
    struct ngd_strbuf text;
    const char *line;

    ngd_strbuf_init(&text);
    ck_assert(ngd_store_note_read(store, "hot", &text));
    ngd_store_close(store);
    line = strchr(ngd_strbuf_str(&text), '\n');
    ck_assert_ptr_nonnull(line);
    ck_assert_uint_eq(strtoull(text.data, NULL, 10), first);
    ck_assert_uint_eq(strtoull(line + 1, NULL, 10), second);
    ck_assert_ptr_nonnull(strstr(text.data, part));
    ngd_strbuf_fini(&text);
}

START_TEST(list_of_hot_keys_is_sorted_by_runs_and_adds_up)
{
    struct start s;
    struct ngd_binding *b;

    setup_dir();
    first_start();
    check_hot(9, 3, "\t7\t\t-\t\"double\"\n");
    start_open(&s);
    b = bed_binding(&s.bed, DOUBLE_TEXT, NULL);
    start_run(&s, b, 5, 20);
    ngd_binding_unref(b);
    start_close(&s);
    check_hot(23, 9, "\t5\t\t-\t\"double\"\n");
    teardown_dir();
}
END_TEST

static void put_text(void *ctx, const char *text, struct ngd_strbuf *changed)
{
    (void)text;
    ngd_strbuf_append(changed, ctx);
}

START_TEST(bad_lines_of_the_list_are_passed_over)
{
    static const char *const bad[] = {
        "1\n",
        "x\ty\n",
        "5\tzz\thost:0\t5\t\t\"double\"\n",
        "5\t0000000000000000000000000000000000000000000000000000000000000000\thost:0\t5\t\t-\t\"gone\"\n",
        "5\t0000000000000000000000000000000000000000000000000000000000000000\tnpu:9\t5\t\t-\t\"gone\"\n",
        "5\t0000000000000000000000000000000000000000000000000000000000000000\thost:0\t5\tno_such=1\t-\t\"gone\"\n",
        "18446744073709551616\t\t\t\t\t\n\n\n\t\n",
    };
    struct ngd_strbuf all;
    /* Counters are the process's, which may have run other tests. */
    const uint64_t warm = ngd_metric_get(NGD_M_WARM_CAPTURES), no_graph = row_count(NGD_M_WARM_CAPTURES, "no_graph"),
                   no_device = row_count(NGD_M_WARM_CAPTURES, "no_device"),
                   captured = row_count(NGD_M_WARM_CAPTURES, "captured");
    struct start s;

    setup_dir();
    ngd_strbuf_init(&all);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        ngd_strbuf_append(&all, bad[i]);
    start_open(&s);
    ck_assert_int_eq(ngd_store_note_change(s.store, "hot", put_text, all.data, NULL), NGD_OK);
    ngd_sched_warm(s.bed.sched);
    await_warm(warm + 4);
    ck_assert_uint_eq(row_count(NGD_M_WARM_CAPTURES, "no_graph") - no_graph, 1);
    ck_assert_uint_eq(row_count(NGD_M_WARM_CAPTURES, "no_device") - no_device, 1);
    ck_assert_uint_eq(row_count(NGD_M_WARM_CAPTURES, "captured") - captured, 0);
    start_close(&s);
    ngd_strbuf_fini(&all);
    teardown_dir();
}
END_TEST

UNIT_MAIN("scheduler/hot_keys", hot_keys_are_captured_before_anyone_asks,
          hot_keys_are_captured_whatever_guards_say_of_their_buckets,
          instances_of_hot_keys_are_made_before_anyone_replays,
          instances_wait_for_their_turn_and_hold_nothing_until_then, instances_that_wait_go_with_the_scheduler,
          hot_key_with_registered_patterns_is_captured_with_them,
          graphs_that_are_debugged_or_have_pools_of_their_own_leave_no_hot_keys,
          hot_key_whose_patterns_are_gone_or_others_is_passed_over, list_of_hot_keys_is_sorted_by_runs_and_adds_up,
          bad_lines_of_the_list_are_passed_over)
