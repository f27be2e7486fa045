/* SPDX-License-Identifier: Apache-2.0 */
/* Opening devices: what it gives and what it refuses. */
#include "devices/device_int.h"
#include "tests/backend/conform.h"

START_TEST(backend_compiled_in_is_tested_or_the_reason_is_printed)
{
    const char *why = conform_why_not(_i);

    if (why) {
        const struct conform_backend b = {.name = ngd_device_backends()[_i]};

        conform_skip(&b, "all of it", why);
        return;
    }
    for (int i = 0; i < (int)conform_count(); i++)
        if (strcmp(conform_backend(i)->name, ngd_device_backends()[_i]) == 0 && conform_backend(i)->simulated &&
            conform_backend(i)->simulated())
            conform_skip(conform_backend(i), "real devices", conform_backend(i)->simulated());
}
END_TEST

/* backend.h: every slot is required unless its comment says otherwise. */
START_TEST(backend_fills_every_required_slot)
{
    const struct ngd_backend *b = ngd_backend_find(conform_backend(_i)->name);

    ck_assert_ptr_nonnull(b);
    ck_assert_int_eq(b->api, NGD_BACKEND_API);
    ck_assert_str_eq(b->name, conform_backend(_i)->name);
    ck_assert(b->lifecycle.probe && b->lifecycle.open && b->lifecycle.close);
    ck_assert_int_gt(b->lifecycle.probe(), 0);
    ck_assert(b->memory.alloc && b->memory.free && b->memory.write && b->memory.read);
    ck_assert(b->code.select && b->code.instantiate && b->code.destroy && b->code.bind && b->code.unbind);
    ck_assert(b->stream.create && b->stream.destroy && b->stream.launch && b->stream.callback && b->stream.sync);
    ck_assert(b->stream.status && b->stream.reset && b->stream.poison);
    ck_assert(b->stream.event_create && b->stream.event_destroy && b->stream.event_record && b->stream.event_wait);
    ck_assert(b->stream.event_query && b->stream.event_sync);
}
END_TEST

START_TEST(device_opened_says_what_it_is)
{
    struct ngd_device_params params;
    struct ngd_device *dev = NULL;
    const struct ngd_device_info *info;
    char name[64];

    conform_params(_i, &params);
    CONFORM_OK(ngd_device_open(&params, &dev, &diag_));
    info = ngd_device_info(dev);
    snprintf(name, sizeof(name), "%s:%u", params.backend, params.index);
    ck_assert_str_eq(info->name, name);
    ck_assert_str_eq(info->backend, params.backend);
    ck_assert_uint_gt(strlen(info->arch), strlen(params.backend));
    ck_assert_int_eq(strncmp(info->arch, params.backend, strlen(params.backend)), 0);
    ck_assert_uint_gt(strlen(info->description), 0);
    ck_assert_uint_eq(info->memory_bytes, params.memory_bytes);
    ck_assert_uint_ge(info->streams_max, 1);
    ck_assert_str_eq(ngd_device_target(dev)->arch, info->arch);
    ck_assert_ptr_nonnull(ngd_device_target(dev)->select);
    ck_assert_uint_eq(ngd_device_used_bytes(dev), 0);
    ngd_device_close(dev);
    ngd_device_close(NULL);
}
END_TEST

/* The arch is a part of keys on disk, so it must not depend on the run, the budget or the index. */
START_TEST(device_opened_again_has_the_same_arch)
{
    char first[128] = "";

    for (int round = 0; round < 8; round++) {
        struct ngd_device_params params;
        struct ngd_device *dev = NULL;

        conform_params(_i, &params);
        params.memory_bytes = (uint64_t)(round + 1) << 20;
        CONFORM_OK(ngd_device_open(&params, &dev, &diag_));
        if (round == 0)
            snprintf(first, sizeof(first), "%s", ngd_device_info(dev)->arch);
        ck_assert_str_eq(first, ngd_device_info(dev)->arch);
        ngd_device_close(dev);
    }
}
END_TEST

START_TEST(device_without_a_budget_has_the_one_of_its_backend)
{
    struct ngd_device_params params;
    struct ngd_device *dev = NULL;

    conform_params(_i, &params);
    params.memory_bytes = 0;
    CONFORM_OK(ngd_device_open(&params, &dev, &diag_));
    ck_assert_uint_gt(ngd_device_info(dev)->memory_bytes, 1u << 20);
    ngd_device_close(dev);
}
END_TEST

/* Two handles of one device share nothing, or the second open is refused because the device is in use. */
START_TEST(device_opened_twice_works_twice_or_says_that_it_is_in_use)
{
    struct ngd_device_params params;
    struct ngd_device *second = NULL;
    struct conform c;
    struct ngd_diag diag = {0};
    ngd_status_t status;

    conform_open(&c, _i);
    conform_params(_i, &params);
    status = ngd_device_open(&params, &second, &diag);
    if (status) {
        ck_assert_msg(status == NGD_ERR_BUSY, "%s", ngd_status_name(status));
        conform_says(diag.text, params.backend);
    } else {
        struct ngd_buffer *buf = NULL;

        CONFORM_OK(ngd_buffer_create(second, 100, NGD_BUFFER_GENERAL, "of the second", &buf, &diag_));
        ck_assert_uint_eq(ngd_device_used_bytes(c.b.dev), 0);
        ck_assert_uint_eq(ngd_device_used_bytes(second), 128);
        ngd_buffer_unref(buf);
        ngd_device_close(second);
    }
    conform_close(&c);
}
END_TEST

START_TEST(devices_of_different_numbers_are_different_devices)
{
    struct ngd_device_params params;
    struct ngd_device *second = NULL;
    struct ngd_diag diag = {0};
    struct ngd_buffer *buf;
    struct conform c;
    ngd_status_t status;

    conform_open(&c, _i);
    conform_params(_i, &params);
    params.index++;
    status = ngd_device_open(&params, &second, &diag);
    if (status) {
        ck_assert_int_eq(status, NGD_ERR_NOT_FOUND);
        conform_skip(c.backend, "a second device", diag.text);
    } else {
        struct ngd_instance *inst = NULL;
        struct ready r = {0};
        struct conform other = c;

        ck_assert_str_ne(ngd_device_info(second)->name, ngd_device_info(c.b.dev)->name);
        conform_ready(&r, &c, CONFORM_PICK, NULL);
        other.b.dev = second;
        buf = conform_buffer(&other, NULL, 32, "elsewhere");
        ck_assert_int_eq(ngd_instance_create(r.exec, &buf, 1, c.b.pool, &inst, &diag), NGD_ERR_BINDING_MISMATCH);
        ck_assert_ptr_null(inst);
        conform_says(diag.text, "elsewhere|another device");
        ngd_buffer_unref(buf);
        ready_close(&r);
        ngd_device_close(second);
    }
    conform_close(&c);
}
END_TEST

START_TEST(device_number_that_does_not_exist_is_refused_or_served_under_its_name)
{
    struct ngd_device_params params;
    struct ngd_device *dev = NULL;
    struct ngd_diag diag = {0};
    ngd_status_t status;

    conform_params(_i, &params);
    params.index = UINT32_MAX;
    status = ngd_device_open(&params, &dev, &diag);
    if (status) {
        ck_assert_ptr_null(dev);
        ck_assert_msg(status == NGD_ERR_NOT_FOUND || status == NGD_ERR_INVALID_ARGUMENT, "%s: %s",
                      ngd_status_name(status), diag.text);
        conform_says(diag.text, "4294967295");
        ck_assert_int_eq(ngd_device_open(&params, &dev, NULL), status);
    } else {
        conform_says(ngd_device_info(dev)->name, ":4294967295");
        ngd_device_close(dev);
    }
}
END_TEST

START_TEST(backend_that_is_unknown_is_refused_with_the_list_of_known_ones)
{
    static const char *const names[] = {"", "hos", "hostess", "HOST", NULL};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        struct ngd_device_params params;
        struct ngd_device *dev = NULL;
        struct ngd_diag diag = {0};

        ngd_device_params_init(&params);
        params.backend = names[i];
        ck_assert_int_eq(ngd_device_open(&params, &dev, &diag), NGD_ERR_NOT_FOUND);
        ck_assert_ptr_null(dev);
        for (const char *const *p = ngd_device_backends(); *p; p++)
            conform_says(diag.text, *p);
        ck_assert_int_eq(ngd_device_open(&params, &dev, NULL), NGD_ERR_NOT_FOUND);
    }
}
END_TEST

TCase *conform_lifecycle(void)
{
    TCase *tcase = tcase_create("lifecycle");
    int all = 0;

    while (ngd_device_backends()[all])
        all++;
    tcase_add_loop_test(tcase, backend_compiled_in_is_tested_or_the_reason_is_printed, 0, all);
    tcase_add_test(tcase, backend_that_is_unknown_is_refused_with_the_list_of_known_ones);
    CONFORM_ADD(tcase, backend_fills_every_required_slot, device_opened_says_what_it_is,
                device_opened_again_has_the_same_arch, device_without_a_budget_has_the_one_of_its_backend,
                device_opened_twice_works_twice_or_says_that_it_is_in_use,
                devices_of_different_numbers_are_different_devices,
                device_number_that_does_not_exist_is_refused_or_served_under_its_name);
    return tcase;
}
