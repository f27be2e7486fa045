/* SPDX-License-Identifier: Apache-2.0 */
#include "graphs/options.h"
#include "tests/unit/unit.h"
#include <stdio.h>
#include <string.h>

static struct ngd_graph_options defaults(void)
{
    struct ngd_graph_options o;

    ngd_graph_options_init(&o);
    return o;
}

static const char *value_of(const struct ngd_graph_options *o, ngd_option_id_t id)
{
    static char text[NGD_OPTION_TEXT_MAX];
    struct ngd_strbuf sb;

    ngd_strbuf_init(&sb);
    ngd_option_print_value(o, id, &sb);
    snprintf(text, sizeof(text), "%s", ngd_strbuf_str(&sb));
    ngd_strbuf_fini(&sb);
    return text;
}

START_TEST(the_table_names_its_options_and_its_defaults_are_good_values)
{
    struct ngd_graph_options o = defaults();

    for (int i = 0; i < NGD_OPTION_MAX; i++) {
        const struct ngd_option_info *info = ngd_option_info((ngd_option_id_t)i);

        ck_assert_int_eq(ngd_option_find(info->name), i);
        ck_assert_str_eq(value_of(&o, (ngd_option_id_t)i), info->def);
        if (info->def[0])
            ck_assert_int_eq(ngd_graph_options_set(&o, info->name, info->def, NULL), NGD_OK);
        ck_assert(strlen(info->effect) > 0);
    }
    ck_assert_int_eq(ngd_option_find("capture"), -1);
}
END_TEST

START_TEST(defaults_are_those_of_npugraph_ex)
{
    struct ngd_graph_options o = defaults();

    ck_assert(!o.force_eager && !o.force_recapture && !o.clone_output && !o.frozen_parameter);
    ck_assert(!o.static_kernel_compile && !o.disable_static_kernel_compile_cache && !o.dump_tensor_data);
    ck_assert(!o.deadlock_check && o.inplace_pass && o.input_inplace_pass && o.pattern_fusion_pass);
    ck_assert(o.remove_noop_ops && o.remove_cat_ops && o.reuse_graph_pool_in_same_fx && o.clone_input);
    ck_assert_int_eq(o.capture_limit, 64);
    ck_assert_int_eq(o.capture_error_mode, NGD_CAPTURE_ERROR_GLOBAL);
    ck_assert_int_eq(o.data_dump_stage, NGD_DUMP_OPTIMIZED);
    ck_assert_str_eq(o.data_dump_dir, "./");
    ck_assert_str_eq(o.use_graph_pool, "");
    ck_assert_uint_eq(o.given, 0);
}
END_TEST

START_TEST(good_values_are_taken)
{
    struct ngd_graph_options o = defaults();

    ck_assert_int_eq(ngd_graph_options_set(&o, "capture_limit", "7", NULL), NGD_OK);
    ck_assert_int_eq(o.capture_limit, 7);
    ck_assert_int_eq(ngd_graph_options_set(&o, "capture_limit", "9223372036854775807", NULL), NGD_OK);
    ck_assert_int_eq(o.capture_limit, INT64_MAX);
    ck_assert_int_eq(ngd_graph_options_set(&o, "capture_limit_policy", "eager", NULL), NGD_OK);
    ck_assert_str_eq(value_of(&o, NGD_OPTION_CAPTURE_LIMIT_POLICY), "eager");
    ck_assert_int_eq(ngd_graph_options_set(&o, "force_eager", "true", NULL), NGD_OK);
    ck_assert(o.force_eager);
    ck_assert_int_eq(ngd_graph_options_set(&o, "force_eager", "False", NULL), NGD_OK);
    ck_assert(!o.force_eager);
    ck_assert_int_eq(ngd_graph_options_set(&o, "capture_error_mode", "global", NULL), NGD_OK);
    ck_assert_int_eq(ngd_graph_options_set(&o, "use_graph_pool", "None", NULL), NGD_OK);
}
END_TEST

START_TEST(unknown_names_and_bad_values_are_refused_with_what_is_allowed)
{
    static const char *const bad[][2] = {
        {"capture_limit", "0"},
        {"capture_limit", "-1"},
        {"capture_limit", "+1"},
        {"capture_limit", "True"},
        {"capture_limit", "9223372036854775808"},
        {"capture_limit", "99999999999999999999999"},
        {"capture_limit", ""},
        {"capture_limit", "7x"},
        {"capture_limit_policy", "Evict"},
        {"capture_limit_policy", ""},
        {"capture_limit_policy", "evict eager"},
        {"force_eager", "yes"},
        {"force_eager", "1"},
        {"force_eager", ""},
        {"use_graph_pool", "(1,2)"},
        {"use_graph_pool", "(1)"},
        {"use_graph_pool", "(,)"},
        {"use_graph_pool", "(0,1"},
        {"use_graph_pool", "a b"},
        {"use_graph_pool", "(0,99999999999999999999999)"},
        {"data_dump_dir", ""},
        {"data_dump_dir", "a\nb"},
        {"post_grad_custom_pre_pass", "a,,b"},
        {"post_grad_custom_pre_pass", ","},
        {"post_grad_custom_pre_pass", "a b"},
    };
    struct ngd_graph_options o = defaults(), before = defaults();
    struct ngd_diag diag;

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        ck_assert_msg(ngd_graph_options_set(&o, bad[i][0], bad[i][1], &diag) == NGD_ERR_INVALID_ARGUMENT, "%s=%s",
                      bad[i][0], bad[i][1]);
        ck_assert(strstr(diag.text, "allowed: "));
    }
    ck_assert_int_eq(ngd_graph_options_set(&o, "disable_passes", "remove_dead,remove_noop", &diag),
                     NGD_ERR_INVALID_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(diag.text, "allowed: all, or names of passes, separated by commas: custom_pre, "));
    ck_assert_ptr_nonnull(
        strstr(diag.text, ", custom_post, assign_streams")); /* remove_dead, which runs twice, is said once */
    ck_assert_int_eq(ngd_graph_options_set(&o, "captur_limit", "1", &diag), NGD_ERR_INVALID_ARGUMENT);
    ck_assert(strstr(diag.text, "there is no option \"captur_limit\"; allowed: force_eager, force_recapture, "));
    ck_assert(memcmp(&o, &before, sizeof(o)) == 0);
}
END_TEST

START_TEST(values_of_what_is_not_built_are_refused_and_defaults_are_not)
{
    struct ngd_graph_options o = defaults();
    struct ngd_diag diag;

    for (int i = 0; i < NGD_OPTION_MAX; i++) {
        const struct ngd_option_info *info = ngd_option_info((ngd_option_id_t)i);
        ngd_status_t status;

        if (info->type != NGD_OPTION_BOOL)
            continue;
        status = ngd_graph_options_set(&o, info->name, strcmp(info->def, "true") ? "true" : "false", &diag);
        ck_assert_int_eq(status, info->supported ? NGD_OK : NGD_ERR_UNIMPLEMENTED);
        if (!info->supported)
            ck_assert(strstr(diag.text, "is not supported yet"));
    }
    /* Nothing would come of these. */
    ck_assert_int_eq(ngd_graph_options_set(&o, "capture_error_mode", "relaxed", &diag), NGD_ERR_UNIMPLEMENTED);
    ck_assert(strstr(diag.text, "capture_error_mode: \"relaxed\" is not supported yet, only global"));
    ck_assert_int_eq(ngd_graph_options_set(&o, "capture_error_mode", "thread_local", &diag), NGD_ERR_UNIMPLEMENTED);
}
END_TEST

START_TEST(a_capture_takes_its_own_options_only)
{
    struct ngd_graph_options o = defaults();
    struct ngd_diag diag;

    ck_assert_int_eq(ngd_graph_options_set_for_capture(&o, "force_recapture", "true", NULL), NGD_OK);
    ck_assert(o.force_recapture);
    ck_assert_int_eq(ngd_graph_options_set_for_capture(&o, "capture_limit", "3", &diag), NGD_ERR_INVALID_ARGUMENT);
    ck_assert(strstr(diag.text, "option capture_limit is given when a graph is registered"));
    ck_assert_int_eq(o.capture_limit, 64);
    ck_assert_int_eq(ngd_graph_options_set_for_capture(&o, "x", "3", &diag), NGD_ERR_INVALID_ARGUMENT);
    ck_assert(strstr(diag.text, "there is no option \"x\"; allowed: force_recapture, "));
}
END_TEST

/* Options that are given, separated by blanks, and the text of the refusal; NULL: they do not contradict each other. */
static const struct {
    const char *given, *says;
} together[] = {
    {"force_eager=true force_recapture=true", "force_recapture contradicts"},
    {"force_eager=true force_recapture=false", NULL},
    {"force_eager=true deadlock_check=true", "deadlock_check checks a capture"},
    {"force_eager=true verify_every_n=5", "verify_every_n compares"},
    {"force_eager=true capture_limit=3 capture_limit_policy=reject", NULL},
    {"dump_tensor_data=true verify_every_n=5", "would compare nothing"},
    {"dump_tensor_data=true force_eager=true data_dump_stage=original data_dump_dir=x", NULL},
    {"use_graph_pool=mine", NULL},
    {"use_graph_pool=mine reuse_graph_pool_in_same_fx=false", NULL},
    {"use_graph_pool=mine reuse_graph_pool_in_same_fx=true", "leave one of them out"},
    {"disable_static_kernel_compile_cache=true", "without static_kernel_compile"},
    {"disable_static_kernel_compile_cache=true static_kernel_compile=true", NULL},
    {"data_dump_stage=optimized", "without dump_tensor_data"},
    {"data_dump_dir=there", "without dump_tensor_data"},
    {"clone_input=false clone_output=true inplace_pass=false frozen_parameter=true", NULL},
};

/* Sets an option directly, because ngd_graph_options_set refuses options that are not built yet. */
static void give(struct ngd_graph_options *o, const char *name, const char *value)
{
    ngd_status_t status = ngd_graph_options_set(o, name, value, NULL);

    if (strcmp(name, "deadlock_check") == 0)
        o->deadlock_check = true;
    else if (strcmp(name, "static_kernel_compile") == 0)
        o->static_kernel_compile = true;
    else if (strcmp(name, "disable_static_kernel_compile_cache") == 0)
        o->disable_static_kernel_compile_cache = true;
    else
        ck_assert_msg(status == NGD_OK, "%s=%s: %s", name, value, ngd_status_name(status));
}

START_TEST(contradictions_are_refused_in_words)
{
    for (size_t i = 0; i < sizeof(together) / sizeof(together[0]); i++) {
        struct ngd_graph_options o = defaults();
        struct ngd_diag diag = {0};
        char text[256], *rest = NULL;
        ngd_status_t status;

        snprintf(text, sizeof(text), "%s", together[i].given);
        for (char *p = strtok_r(text, " ", &rest); p; p = strtok_r(NULL, " ", &rest)) {
            char *value = strchr(p, '=');

            *value = '\0';
            give(&o, p, value + 1);
        }
        status = ngd_graph_options_check(&o, &diag);
        ck_assert_msg(status == (together[i].says ? NGD_ERR_INVALID_ARGUMENT : NGD_OK), "%s: %s %s", together[i].given,
                      ngd_status_name(status), diag.text);
        ck_assert_msg(!together[i].says || strstr(diag.text, together[i].says), "%s: %s", together[i].given, diag.text);
    }
}
END_TEST

START_TEST(digests_tell_apart_what_they_are_of)
{
    struct ngd_graph_options o = defaults();
    struct ngd_digest all, key, all2, key2;

    ngd_graph_options_digest(&o, false, &all);
    ngd_graph_options_digest(&o, true, &key);
    ck_assert(!ngd_digest_equal(&all, &key));
    o.capture_limit = 5; /* plans do not depend on it */
    ngd_graph_options_digest(&o, false, &all2);
    ngd_graph_options_digest(&o, true, &key2);
    ck_assert(!ngd_digest_equal(&all, &all2));
    ck_assert(ngd_digest_equal(&key, &key2));
    o.inplace_pass = false;
    ngd_graph_options_digest(&o, true, &key2);
    ck_assert(!ngd_digest_equal(&key, &key2));
    o = defaults();
    ck_assert_int_eq(ngd_graph_options_set(&o, "capture_limit", "64", NULL), NGD_OK); /* given, but the same */
    ngd_graph_options_digest(&o, false, &all2);
    ck_assert(ngd_digest_equal(&all, &all2));
}
END_TEST

START_TEST(options_print_one_per_line_in_the_order_of_the_table)
{
    struct ngd_graph_options o = defaults();
    struct ngd_strbuf sb;

    ngd_strbuf_init(&sb);
    ngd_graph_options_print(&o, true, &sb);
    ck_assert_int_eq(strncmp(ngd_strbuf_str(&sb), "inplace_pass=true\ninput_inplace_pass=true\n", 41), 0);
    ck_assert_ptr_null(strstr(ngd_strbuf_str(&sb), "capture_limit"));
    ngd_strbuf_clear(&sb);
    ngd_graph_options_print(&o, false, &sb);
    ck_assert_int_eq(strncmp(ngd_strbuf_str(&sb), "force_eager=false\nforce_recapture=false\ncapture_limit=64\n", 56),
                     0);
    ngd_strbuf_fini(&sb);
}
END_TEST

UNIT_MAIN("graphs/options", the_table_names_its_options_and_its_defaults_are_good_values,
          defaults_are_those_of_npugraph_ex, good_values_are_taken,
          unknown_names_and_bad_values_are_refused_with_what_is_allowed,
          values_of_what_is_not_built_are_refused_and_defaults_are_not, a_capture_takes_its_own_options_only,
          contradictions_are_refused_in_words, digests_tell_apart_what_they_are_of,
          options_print_one_per_line_in_the_order_of_the_table)
