/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/word.h"
#include "graphs/options.h"
#include "graphs/pattern.h"
#include "proto/npugraph.pb-c.h"
#include "tests/unit/unit.h"

static const ProtobufCEnumDescriptor *const enums[] = {
    &npugraph__v1__buffer_kind__descriptor,    &npugraph__v1__daemon_state__descriptor,
    &npugraph__v1__describe_form__descriptor,  &npugraph__v1__device_state__descriptor,
    &npugraph__v1__doctor_verdict__descriptor, &npugraph__v1__finish_reason__descriptor,
    &npugraph__v1__group_state__descriptor,    &npugraph__v1__kv_policy__descriptor,
    &npugraph__v1__option_type__descriptor,    &npugraph__v1__pattern_phase__descriptor,
    &npugraph__v1__priority__descriptor,       &npugraph__v1__sequence_state__descriptor,
    &npugraph__v1__stats_form__descriptor,     &npugraph__v1__store_entry_kind__descriptor,
    &npugraph__v1__timeline_form__descriptor,
};

START_TEST(a_word_is_the_name_without_the_prefix_in_lower_case)
{
    ck_assert_str_eq(ngd_word_of(&npugraph__v1__device_state__descriptor, NGD_PB(DEVICE_STATE, QUARANTINED)).text,
                     "quarantined");
    ck_assert_str_eq(ngd_word_of(&npugraph__v1__store_entry_kind__descriptor, NGD_PB(STORE_ENTRY_KIND, STATIC)).text,
                     "static");
    ck_assert_str_eq(ngd_word_of(&npugraph__v1__kv_policy__descriptor, NGD_PB(KV_POLICY, PREEMPT)).text, "preempt");
    ck_assert_str_eq(ngd_word_of(&npugraph__v1__buffer_kind__descriptor, NGD_PB(BUFFER_KIND, KV)).text, "kv");
    ck_assert_str_eq(ngd_word_of(&npugraph__v1__priority__descriptor, 0).text, "unspecified");
}
END_TEST

START_TEST(each_word_leads_back_to_its_value)
{
    for (size_t e = 0; e < sizeof(enums) / sizeof(enums[0]); e++)
        for (unsigned i = 0; i < enums[e]->n_values; i++) {
            const int value = enums[e]->values[i].value;
            const struct ngd_word word = ngd_word_of(enums[e], value);

            ck_assert_msg(ngd_word_value(enums[e], word.text) == value, "%s of %s", word.text, enums[e]->short_name);
            ck_assert_msg(value != 0 || strcmp(word.text, "unspecified") == 0, "%s", enums[e]->short_name);
            for (const char *p = word.text; *p; p++)
                ck_assert_msg(*p >= 'a' && *p <= 'z', "%s of %s", word.text, enums[e]->short_name);
        }
}
END_TEST

START_TEST(what_is_no_word_has_the_unspecified_value)
{
    static const char *const others[] = {"", "health", "healthyy", "HEALTHY", "DEVICE_STATE_HEALTHY", "unspecified"};

    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        ck_assert_int_eq(ngd_word_value(&npugraph__v1__device_state__descriptor, others[i]), 0);
}
END_TEST

START_TEST(a_value_of_a_newer_daemon_is_given_as_its_number)
{
    ck_assert_str_eq(ngd_word_of(&npugraph__v1__device_state__descriptor, 77).text, "77");
    ck_assert_str_eq(ngd_word_of(&npugraph__v1__device_state__descriptor, -1).text, "-1");
}
END_TEST

START_TEST(a_list_has_each_word_once)
{
    struct ngd_strbuf sb;

    ngd_strbuf_init(&sb);
    ngd_word_list(&npugraph__v1__describe_form__descriptor, &sb);
    ck_assert_str_eq(ngd_strbuf_str(&sb), "text, dot, plan, map, svg");
    ngd_strbuf_fini(&sb);
}
END_TEST

START_TEST(words_of_the_tables_in_graphs_have_values)
{
    for (int i = 0; i < NGD_OPTION_MAX; i++) {
        const char *name = ngd_option_type_name(ngd_option_info((ngd_option_id_t)i)->type);

        ck_assert_msg(ngd_word_value(&npugraph__v1__option_type__descriptor, name) != 0, "%s", name);
    }
    for (int i = 0; i <= NGD_PATTERN_FIRST; i++) {
        const char *name = ngd_pattern_phase_name((ngd_pattern_phase_t)i);

        ck_assert_msg(ngd_word_value(&npugraph__v1__pattern_phase__descriptor, name) != 0, "%s", name);
    }
}
END_TEST

UNIT_MAIN("proto/word", a_word_is_the_name_without_the_prefix_in_lower_case, each_word_leads_back_to_its_value,
          what_is_no_word_has_the_unspecified_value, a_value_of_a_newer_daemon_is_given_as_its_number,
          a_list_has_each_word_once, words_of_the_tables_in_graphs_have_values)
