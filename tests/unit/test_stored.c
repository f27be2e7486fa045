/* SPDX-License-Identifier: Apache-2.0 */
/* Tests plans that come from the store, on the real host device. */
#include "graphs/store.h"
#include "scheduler/program/group.h"
#include "scheduler/program/stored.h"
#include "tests/unit/stored_util.h"

START_TEST(second_start_replays_without_running_the_passes)
{
    struct start s;
    struct ngd_binding *b;

    setup_dir();
    first_start();
    start_open(&s);
    b = bed_binding(&s.bed, DOUBLE_TEXT, NULL);
    start_run(&s, b, 5, 2);
    start_run(&s, b, 7, 2);
    check_plans(&s, 0, 2);
    start_run(&s, b, 9, 1); /* one that was never stored */
    check_plans(&s, 1, 2);
    ngd_binding_unref(b);
    start_close(&s);
    ck_assert_uint_eq(count_files("entries"), 4);
    ck_assert_uint_eq(count_files("aside"), 0);
    teardown_dir();
}
END_TEST

START_TEST(without_a_store_nothing_is_stored_and_everything_works)
{
    struct bed bed;
    struct ngd_binding *b;

    bed_open(&bed, 1, 0);
    b = bed_binding(&bed, DOUBLE_TEXT, NULL);
    bed_warm(&bed, b, 5, 3);
    ngd_sched_warm(bed.sched);
    ngd_sched_save_hot(bed.sched);
    ngd_binding_unref(b);
    bed_close(&bed);
}
END_TEST

/* Replays a graph once for a share. */
static void capture_for(struct start *s, struct ngd_share *share, const char *text)
{
    const struct ngd_owner owner = {.share = share};
    struct ngd_graph_options options;
    struct ngd_program *prog = NULL;
    struct ngd_binding *b;
    struct ngd_graph *g;

    ngd_graph_options_init(&options);
    ck_assert_int_eq(ngd_graph_parse(text, strlen(text), &g, NULL), NGD_OK);
    ck_assert_int_eq(ngd_program_open_in(s->bed.sched, s->bed.dev, g, &options, NULL, NULL, &owner, &prog, NULL, NULL),
                     NGD_OK);
    b = bed_bind(prog, NULL);
    start_run(s, b, 5, 1);
    ngd_binding_unref(b);
    ngd_program_unref(prog);
    ngd_graph_unref(g);
}

/* The test sets the counter of captures that the capture threads have had no time to store. */
START_TEST(plans_of_a_share_that_wait_for_the_store_keep_out_no_other_shares_plans)
{
    const uint64_t busy = row_count(NGD_M_STORE_WRITE_FAILURES, "BUSY");
    struct ngd_share *greedy = NULL, *modest = NULL;
    struct ngd_share_params params;
    struct start s;

    setup_dir();
    start_open(&s);
    ngd_share_params_init(&params);
    params.key = 1;
    ck_assert_int_eq(ngd_share_open(s.bed.sched, "greedy", &params, &greedy, NULL), NGD_OK);
    params.key = 2;
    ck_assert_int_eq(ngd_share_open(s.bed.sched, "modest", &params, &modest, NULL), NGD_OK);
    atomic_fetch_add(&greedy->saves, NGD_STORED_SHARE_SAVES_MAX);
    atomic_fetch_add(&s.bed.sched->saves, NGD_STORED_SHARE_SAVES_MAX);
    capture_for(&s, greedy, DOUBLE_TEXT);
    ck_assert_uint_eq(row_count(NGD_M_STORE_WRITE_FAILURES, "BUSY") - busy, 1);
    ck_assert_uint_eq(atomic_load(&greedy->saves), NGD_STORED_SHARE_SAVES_MAX);
    capture_for(&s, modest, DOUBLE_TEXT);
    ck_assert_uint_eq(row_count(NGD_M_STORE_WRITE_FAILURES, "BUSY") - busy, 1);
    atomic_fetch_sub(&greedy->saves, NGD_STORED_SHARE_SAVES_MAX);
    ngd_captures_stop(&s.bed.sched->captures); /* what waits is stored */
    ck_assert_uint_eq(atomic_load(&modest->saves), 0);
    ck_assert_uint_eq(atomic_load(&greedy->saves), 0);
    ck_assert_uint_eq(atomic_load(&s.bed.sched->saves), NGD_STORED_SHARE_SAVES_MAX);
    ngd_share_unref(greedy);
    ngd_share_unref(modest);
    start_close(&s);
    ck_assert_uint_eq(count_files("entries"), 2); /* the plan and the graph of one */
    teardown_dir();
}
END_TEST

START_TEST(other_options_are_another_entry)
{
    struct ngd_graph_options options;
    struct start s;
    struct ngd_binding *b;

    setup_dir();
    first_start();
    ngd_graph_options_init(&options);
    ck_assert_int_eq(ngd_graph_options_set(&options, "inplace_pass", "false", NULL), NGD_OK);
    start_open(&s);
    b = bed_binding(&s.bed, DOUBLE_TEXT, &options);
    start_run(&s, b, 5, 2);
    check_plans(&s, 1, 0);
    ngd_binding_unref(b);
    /* Changes an option that plans do not depend on. */
    ngd_graph_options_init(&options);
    ck_assert_int_eq(ngd_graph_options_set(&options, "capture_limit", "3", NULL), NGD_OK);
    b = bed_binding(&s.bed, DOUBLE_TEXT, &options);
    start_run(&s, b, 5, 2);
    check_plans(&s, 1, 1);
    ngd_binding_unref(b);
    start_close(&s);
    teardown_dir();
}
END_TEST

START_TEST(forced_recapture_makes_the_plan_anew)
{
    struct ngd_graph_options options;
    struct start s;
    struct ngd_binding *b;

    setup_dir();
    first_start();
    ngd_graph_options_init(&options);
    ck_assert_int_eq(ngd_graph_options_set(&options, "force_recapture", "true", NULL), NGD_OK);
    start_open(&s);
    b = bed_binding(&s.bed, DOUBLE_TEXT, &options);
    start_run(&s, b, 5, 2);
    check_plans(&s, 2, 0);
    ngd_binding_unref(b);
    start_close(&s);
    teardown_dir();
}
END_TEST

/* ---- damage -------------------------------------------------------------------------------------------- */

/* Finds the file of the only plan in the store. */
static void find_plan(struct ngd_store *store, char *path, size_t room)
{
    struct ngd_store_item *items = NULL;
    uint32_t n = 0;

    path[0] = '\0';
    ck_assert_int_eq(ngd_store_list(store, &items, &n, NULL), NGD_OK);
    for (uint32_t i = 0; i < n; i++)
        if (strstr(items[i].name, ".plan"))
            snprintf(path, room, "%s/entries/%s", store_dir, items[i].name);
    ngd_free(items);
    ck_assert(path[0]);
}

static void await_file(const char *path)
{
    for (int i = 0; access(path, F_OK) != 0; i++) {
        ck_assert_int_lt(i, 100000);
        usleep(100);
    }
}

/* Captures with a damaged entry: the result is right, the entry is set aside, made again, and counted. */
static void damaged(struct start *s, const char *path, const uint8_t *data, size_t n)
{
    struct ngd_store_stats before, after;
    uint64_t made = row_count(NGD_M_PLANS, "passes");
    struct ngd_binding *b;

    write_file(path, data, n);
    ngd_store_stats(s->store, &before);
    b = bed_binding(&s->bed, DOUBLE_TEXT, NULL);
    start_run(s, b, 5, 1);
    ngd_binding_unref(b);
    await_file(path);
    ngd_store_stats(s->store, &after);
    ck_assert_uint_eq(after.set_aside, before.set_aside + 1);
    ck_assert_uint_eq(after.hits, before.hits);
    ck_assert_uint_eq(row_count(NGD_M_PLANS, "passes"), made + 1);
}

START_TEST(every_damage_to_an_entry_leads_to_the_right_result_and_a_new_entry)
{
    static uint8_t data[16384];
    struct start s;
    struct ngd_binding *b;
    char path[256];
    size_t n;

    setup_dir();
    start_open(&s);
    b = bed_binding(&s.bed, DOUBLE_TEXT, NULL);
    start_run(&s, b, 5, 1);
    ngd_binding_unref(b);
    start_close(&s);
    start_open(&s);
    find_plan(s.store, path, sizeof(path));
    n = read_file(path, data, sizeof(data));
    for (size_t i = 0; i < n; i++) {
        data[i] ^= (uint8_t)(1 << i % 8);
        damaged(&s, path, data, n);
        data[i] ^= (uint8_t)(1 << i % 8);
    }
    for (size_t i = 0; i < n; i++)
        damaged(&s, path, data, i);
    start_close(&s);
    teardown_dir();
}
END_TEST

/* The entry has a valid checksum, as one from a bug or an import would have. */
START_TEST(entry_that_does_not_load_is_made_again)
{
    static uint8_t data[16384];
    struct ngd_store_entry entry;
    struct ngd_strbuf bytes;
    struct start s;
    struct ngd_binding *b;
    uint64_t outdated, events;
    char path[256];
    size_t n;

    setup_dir();
    start_open(&s);
    b = bed_binding(&s.bed, DOUBLE_TEXT, NULL);
    start_run(&s, b, 5, 1);
    ngd_binding_unref(b);
    start_close(&s);
    start_open(&s);
    find_plan(s.store, path, sizeof(path));
    n = read_file(path, data, sizeof(data));
    ck_assert_int_eq(ngd_store_entry_parse(data, n, &entry), NGD_STORE_FOUND);
    entry.n_payload /= 2;
    ngd_strbuf_init(&bytes);
    ngd_store_entry_pack(&entry, &bytes);
    outdated = row_count(NGD_M_STORE_SET_ASIDE, "outdated");
    events = row_count(NGD_M_FLIGHT_EVENTS, "store-outdated");
    write_file(path, bytes.data, bytes.len);
    b = bed_binding(&s.bed, DOUBLE_TEXT, NULL);
    start_run(&s, b, 5, 1);
    check_plans(&s, 1, 0);
    ck_assert_uint_eq(row_count(NGD_M_STORE_SET_ASIDE, "outdated"), outdated + 1);
    ck_assert_uint_eq(row_count(NGD_M_FLIGHT_EVENTS, "store-outdated"), events + 1); /* which explain tells */
    ngd_binding_unref(b);
    start_close(&s);
    start_open(&s);
    b = bed_binding(&s.bed, DOUBLE_TEXT, NULL);
    start_run(&s, b, 5, 1);
    check_plans(&s, 0, 1);
    ngd_binding_unref(b);
    start_close(&s);
    ngd_strbuf_fini(&bytes);
    teardown_dir();
}
END_TEST

START_TEST(plan_that_was_found_out_is_set_aside)
{
    static const int64_t n = 5;
    uint64_t before = row_count(NGD_M_STORE_SET_ASIDE, "distrusted");
    struct ngd_program *prog;
    struct ngd_key key;
    struct start s;
    struct ngd_binding *b;

    setup_dir();
    start_open(&s);
    b = bed_binding(&s.bed, DOUBLE_TEXT, NULL);
    start_run(&s, b, 5, 1);
    start_run(&s, b, 7, 1);
    prog = ngd_binding_program(b);
    ck_assert_int_eq(ngd_key_make(prog->graph, &prog->key_digest, &n, 1, &key, NULL), NGD_OK);
    ngd_stored_distrust(prog, &key); /* perhaps before it was written: then it is written first */
    ngd_binding_unref(b);
    start_close(&s);
    ck_assert_uint_eq(row_count(NGD_M_STORE_SET_ASIDE, "distrusted"), before + 1);
    ck_assert_uint_eq(count_files("entries"), 2); /* the other plan, and the graph */
    start_open(&s);
    b = bed_binding(&s.bed, DOUBLE_TEXT, NULL);
    start_run(&s, b, 5, 1);
    check_plans(&s, 1, 0);
    start_run(&s, b, 7, 1);
    check_plans(&s, 1, 1);
    ngd_binding_unref(b);
    start_close(&s);
    teardown_dir();
}
END_TEST

START_TEST(store_that_vanishes_stops_nobody)
{
    struct start s;
    struct ngd_binding *b;
    int failures;

    setup_dir();
    start_open(&s);
    b = bed_binding(&s.bed, DOUBLE_TEXT, NULL);
    start_run(&s, b, 5, 1);
    remove_tree(store_dir);
    start_run(&s, b, 6, 3);
    ngd_binding_unref(b);
    bed_close(&s.bed);
    failures = bed_counted(&s.bed, NGD_M_STORE_WRITE_FAILURES);
    ck_assert_int_ge(failures, 1);
    ngd_store_close(s.store);
    teardown_dir();
}
END_TEST

/* ---- for people ---------------------------------------------------------------------------------------- */

START_TEST(shortage_of_memory_sets_no_entry_aside)
{
    struct ngd_graph *graph, *stored = NULL;
    struct start s;
    int64_t n = 0;

    setup_dir();
    first_start();
    start_open(&s);
    ck_assert_int_eq(ngd_graph_parse(DOUBLE_TEXT, strlen(DOUBLE_TEXT), &graph, NULL), NGD_OK);
    for (; !stored; n++) {
        ngd_mem_fail_after(n);
        stored = ngd_stored_graph(s.bed.sched, &graph->digest);
        ngd_mem_fail_after(-1);
        ck_assert_uint_eq(count_files("entries"), 3);
        ck_assert_uint_eq(count_files("aside"), 0);
        ck_assert_int_lt(n, 10000);
    }
    ck_assert_int_gt(n, 5);
    ngd_graph_unref(stored);
    ngd_graph_unref(graph);
    start_close(&s);
}
END_TEST

START_TEST(entries_are_readable)
{
    static const char *const parts[] = {
        "kind plan\n",
        "symbols N=5\n",
        "option.inplace_pass true\n",
        "planner ",
        "operators ",
        "toolchain ",
        "name \"double\"",
        "# graph as it was registered\nnpugraph 1\ngraph \"double\"",
        "# plan\nplan \"double\" N==5",
        "call 0 aten.add.Tensor",
    };
    struct ngd_strbuf text;
    struct start s;
    struct ngd_binding *b;
    char path[256];

    setup_dir();
    start_open(&s);
    b = bed_binding(&s.bed, DOUBLE_TEXT, NULL);
    start_run(&s, b, 5, 1);
    ngd_binding_unref(b);
    start_close(&s);
    start_open(&s);
    find_plan(s.store, path, sizeof(path));
    ngd_strbuf_init(&text);
    ck_assert_int_eq(ngd_stored_show(s.bed.sched, strrchr(path, '/') + 1, &text), NGD_STORE_FOUND);
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
        ck_assert_msg(strstr(ngd_strbuf_str(&text), parts[i]) != NULL, "%s is missing in:\n%s", parts[i],
                      ngd_strbuf_str(&text));
    ck_assert_int_eq(ngd_stored_show(s.bed.sched, "nothing", &text), NGD_STORE_ABSENT);
    ngd_strbuf_fini(&text);
    start_close(&s);
    teardown_dir();
}
END_TEST

UNIT_MAIN("scheduler/stored", second_start_replays_without_running_the_passes,
          without_a_store_nothing_is_stored_and_everything_works,
          plans_of_a_share_that_wait_for_the_store_keep_out_no_other_shares_plans, other_options_are_another_entry,
          forced_recapture_makes_the_plan_anew, every_damage_to_an_entry_leads_to_the_right_result_and_a_new_entry,
          entry_that_does_not_load_is_made_again, plan_that_was_found_out_is_set_aside,
          store_that_vanishes_stops_nobody, entries_are_readable, shortage_of_memory_sets_no_entry_aside)
