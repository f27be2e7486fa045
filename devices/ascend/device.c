/* SPDX-License-Identifier: Apache-2.0 */
/* A device: its context, what it is, and how it is opened, closed and described. */
#include "base/log.h"
#include "devices/ascend/facts.h"
#include "devices/ascend/issue.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STREAMS_TOTAL   1984 /* of an A2 or A3, in all processes together */
#define SLOTS_MAX       64
#define KV_BLOCK        128                /* attention of prompts takes multiples of it only (attention_rules.def) */
#define LEAST_FREE      ((size_t)16 << 20) /* of a device that is opened: below it nothing can be served */
#define LIMIT_MS        60000              /* of one replay; a device's own limit of one operator is 18 minutes */
/* Part of the cache key: raise it when results or a plan's layout change. */
#define BACKEND_VERSION 3

ngd_status_t ngd_ascend_enter(const struct ascend_device *dev, void *context, struct ngd_diag *diag)
{
    ngd_acl_error_t code = dev->acl->aclrtSetCurrentContext(context);
    char what[96];

    if (code == 0)
        return NGD_OK;
    snprintf(what, sizeof(what), "device %s: aclrtSetCurrentContext", dev->name);
    return ngd_acl_fail(dev->acl, code, what, diag);
}

bool ngd_ascend_enter_to_release(const struct ascend_device *dev, void *context)
{
    return ngd_ascend_enter(dev, context, NULL) == NGD_OK || ngd_ascend_enter(dev, context, NULL) == NGD_OK;
}

ngd_status_t ngd_ascend_fail(const struct ascend_device *dev, ngd_acl_error_t code, const char *name,
                             struct ngd_diag *diag)
{
    char what[160];

    snprintf(what, sizeof(what), "device %s: %s", dev->name, name);
    return ngd_acl_fail(dev->acl, code, what, diag);
}

/* Adds what CANN makes of ASCEND_RT_VISIBLE_DEVICES, if it is set. */
static ngd_status_t explain_visible(ngd_status_t status, struct ngd_diag *diag)
{
    const char *text = getenv(NGD_VISIBLE_NAME);
    char before[NGD_DIAG_MAX];
    struct ngd_visible v;

    if (!text || !diag)
        return status;
    ngd_visible_parse(text, NGD_VISIBLE_MAX, &v);
    snprintf(before, sizeof(before), "%s", diag->text);
    return ngd_diag_set(diag, status, "%.400s; %s is \"%.100s\": %s", before, NGD_VISIBLE_NAME, text,
                        ngd_visible_explain(&v));
}

static ngd_status_t check_index(const struct ascend_device *dev, struct ngd_diag *diag)
{
    uint32_t count = 0;
    ngd_acl_error_t code = dev->acl->aclrtGetDeviceCount(&count);

    if (code)
        return explain_visible(ngd_ascend_fail(dev, code, "aclrtGetDeviceCount", diag), diag);
    if ((uint32_t)dev->index >= count)
        return explain_visible(ngd_diag_set(diag, NGD_ERR_NOT_FOUND,
                                            "there is no device %s: CANN sees %u, which npu-smi info lists", dev->name,
                                            (unsigned)count),
                               diag);
    return NGD_OK;
}

static void describe_device(struct ascend_device *dev)
{
    const char *soc = dev->acl->aclrtGetSocName();
    int64_t cube = 0, vector = 0;

    dev->chip = ngd_chip_by_soc(soc);
    dev->cann = dev->acl->cann;
    dev->no_decoder = ngd_chip_info(dev->chip)->decoder;
    dev->skips_slots = dev->acl->aclnnScatterPaKvCache != NULL;
    /* Plans have the workspace of what is called, which the version of CANN decides. It may be larger with weights in
     * NZ. */
    snprintf(dev->arch, sizeof(dev->arch), "ascend-%d-%.40s-%d.%d.%d-c%d%s", BACKEND_VERSION, soc ? soc : "unknown",
             (int)dev->acl->version[0], (int)dev->acl->version[1], (int)dev->acl->version[2], dev->cann,
             dev->nz.on ? "-nz" : "");
    snprintf(dev->description, sizeof(dev->description), "%.60s, CANN runtime %d.%d.%d", soc ? soc : "unknown chip",
             (int)dev->acl->version[0], (int)dev->acl->version[1], (int)dev->acl->version[2]);
    if (dev->acl->aclrtGetDeviceInfo &&
        dev->acl->aclrtGetDeviceInfo((uint32_t)dev->index, NGD_ACL_ATTR_CUBE_CORES, &cube) == 0 &&
        dev->acl->aclrtGetDeviceInfo((uint32_t)dev->index, NGD_ACL_ATTR_VECTOR_CORES, &vector) == 0) {
        size_t n = strlen(dev->description);

        dev->cores[NGD_ACL_CORES_CUBE] = (uint32_t)cube;
        dev->cores[NGD_ACL_CORES_VECTOR] = (uint32_t)vector;
        snprintf(dev->description + n, sizeof(dev->description) - n, ", %" PRId64 " cube and %" PRId64 " vector cores",
                 cube, vector);
    }
}

/* Behind what facts say of them. */
static void describe_decoders(struct ascend_device *dev)
{
    const size_t n = strlen(dev->description);

    if (dev->no_decoder[0])
        snprintf(dev->description + n, sizeof(dev->description) - n, ", serves no paged decoder");
}

static ngd_status_t open_device_context(struct ascend_device *dev, uint64_t *memory_p, struct ngd_diag *diag)
{
    const struct ngd_acl *acl = dev->acl;
    size_t free_bytes = 0, total = 0;
    ngd_acl_error_t code = acl->aclrtCreateContext(&dev->context, dev->index);

    if (code) {
        dev->context = NULL;
        return ngd_ascend_fail(dev, code, "a context", diag);
    }
    ngd_ascend_count_streams(dev, 1);
    code = acl->aclrtGetMemInfo(NGD_ACL_MEM_HBM, &free_bytes, &total);
    if (code)
        return ngd_ascend_fail(dev, code, "aclrtGetMemInfo", diag);
    if (free_bytes < LEAST_FREE)
        return ngd_diag_set(diag, NGD_ERR_NO_DEVICE_MEMORY,
                            "device %s: others use all but %zu MiB of its %zu MiB; npu-smi info shows who", dev->name,
                            free_bytes >> 20, total >> 20);
    if (free_bytes < total / 2)
        ngd_warning("devices",
                    "device %s: others use %zu of its %zu MiB (npu-smi info shows who); what is left is served",
                    dev->name, (total - free_bytes) >> 20, total >> 20);
    dev->memory_total = total;
    dev->page = ngd_ascend_page(dev);
    *memory_p = free_bytes / 10 * 9; /* graphs, operators and CANN itself take memory of their own */
    return NGD_OK;
}

void ngd_ascend_close(void *dev_v)
{
    struct ascend_device *dev = dev_v;

    if (dev->mask && ngd_ascend_enter_to_release(dev, dev->context))
        dev->acl->aclrtFree(dev->mask);
    if (dev->limits.stream && ngd_ascend_enter_to_release(dev, dev->context))
        dev->acl->aclrtDestroyStreamForce(dev->limits.stream);
    if (dev->context)
        dev->acl->aclrtDestroyContext(dev->context);
    ngd_acl_unload(dev->acl);
    ngd_ascend_nz_fini(dev);
    ngd_free(dev->facts);
    ngd_mutex_fini(&dev->lock);
    ngd_mutex_fini(&dev->capture_lock);
    ngd_free(dev);
}

static int limit_ms(void)
{
    const char *text = getenv("NGD_ASCEND_LIMIT_MS");
    long v = text ? strtol(text, NULL, 10) : 0;

    return v > 0 && v < INT32_MAX ? (int)v : LIMIT_MS;
}

ngd_status_t ngd_ascend_open(const struct ngd_device_params *params, void **dev_p, struct ngd_device_info *info_p,
                             struct ngd_diag *diag)
{
    struct ascend_device *dev = NGD_NEW(struct ascend_device);
    uint64_t memory = 0;
    ngd_status_t status;

    if (!dev)
        return ngd_diag_set(diag, NGD_ERR_NO_MEMORY, "no host memory for a device");
    status = ngd_acl_load(params->ascend_libs, params->ascend_lib_names, &dev->acl, diag);
    if (status) {
        ngd_free(dev);
        return status;
    }
    dev->index = (int32_t)params->index;
    ngd_ascend_find_numbers(NULL, params->index, &dev->numbers);
    snprintf(dev->libs, sizeof(dev->libs), "%s", params->ascend_libs ? params->ascend_libs : "");
    dev->limit_ms = limit_ms();
    dev->streams_total = STREAMS_TOTAL;
    dev->kv_block = KV_BLOCK;
    dev->hold = params->probe;
    snprintf(dev->name, sizeof(dev->name), "ascend:%u", (unsigned)params->index);
    ngd_mutex_init(&dev->capture_lock, NGD_RANK_CAPTURE);
    ngd_mutex_init(&dev->lock, NGD_RANK_STREAM);
    ngd_list_init(&dev->captured);
    ngd_list_init(&dev->ranges);
    ngd_ascend_nz_init(dev, params->nz_weights);
    status = check_index(dev, diag);
    if (status == NGD_OK) {
        ngd_ascend_find_numbers(dev->acl, params->index, &dev->numbers);
        status = open_device_context(dev, &memory, diag);
    }
    if (status) {
        if (status != NGD_ERR_NO_DEVICE_MEMORY)
            ngd_ascend_explain_nodes(dev, diag);
        ngd_ascend_close(dev);
        return status;
    }
    describe_device(dev);
    status = ngd_ascend_facts_open(dev, params->device_facts, diag);
    if (status) {
        ngd_ascend_close(dev);
        return status;
    }
    describe_decoders(dev);
    if (params->probe)
        params->probe->dev = dev;
    *info_p = (struct ngd_device_info){
        .name = dev->name,
        .backend = "ascend",
        .arch = dev->arch,
        .description = dev->description,
        .memory_bytes = memory,
        .pool_page = dev->page,
        .threads = 1,
        .aicores = dev->cores[NGD_ACL_CORES_CUBE],
        .vectorcores = dev->cores[NGD_ACL_CORES_VECTOR],
        .streams_max = SLOTS_MAX,
        .kv_block = dev->kv_block,
        .padding_block = true,
        .no_decoder = dev->no_decoder,
        .host_memory = false,
    };
    *dev_p = dev;
    return NGD_OK;
}

void ngd_ascend_describe(void *dev_v, struct ngd_strbuf *sb)
{
    struct ascend_device *dev = dev_v;
    uint32_t n = 0;

    ngd_acl_describe(dev->acl, sb);
    ngd_strbuf_printf(sb, "chip %s, CANN %d.%d", ngd_chip_info(dev->chip)->name, dev->cann / 10, dev->cann % 10);
    if (dev->no_decoder[0])
        ngd_strbuf_printf(sb, "; no paged decoders: %s", dev->no_decoder);
    ngd_strbuf_append(sb, "\n");
    ngd_ascend_facts_describe(dev, sb);
    ngd_strbuf_append(sb, "operators:\n");
    for (uint32_t i = 0; i < NGD_OP_MAX; i++) {
        const struct ascend_op *op = ngd_ascend_op_of((ngd_op_id_t)i);

        if (op)
            ngd_strbuf_printf(sb, "  %-36s %s\n", ngd_op_by_id((ngd_op_id_t)i)->name, op->name);
    }
    ngd_mutex_lock(&dev->lock);
    ngd_list_for_each (pos, &dev->captured)
        n++;
    ngd_strbuf_printf(sb, "streams taken by this process: %u, events: %u, graphs captured: %u\n",
                      (unsigned)dev->streams_used, (unsigned)dev->events_used, (unsigned)n);
    ngd_mutex_unlock(&dev->lock);
    ngd_strbuf_append(sb, "attention over a paged cache:");
    for (int i = 0; i < ASCEND_WAY_MAX; i++)
        ngd_strbuf_printf(sb, "%s %" PRIu64 " %s", i ? "," : "", atomic_load(&dev->ways[i]), ngd_ascend_way_name(i));
    ngd_strbuf_append(sb, "\n");
    ngd_mutex_lock(&dev->lock);
    for (uint32_t i = 0; i < dev->n_choices; i++)
        ngd_strbuf_printf(sb, "  %s\n", dev->choices[i]);
    ngd_mutex_unlock(&dev->lock);
    ngd_ascend_describe_ranges(dev, sb);
    ngd_ascend_nz_describe(dev, sb);
    ngd_strbuf_printf(sb,
                      "replays %" PRIu64 ", eager %" PRIu64 ", captures %" PRIu64
                      ", graphs given up for streams %" PRIu64 ", updates of host parameters %" PRIu64 "\n",
                      atomic_load(&dev->replays), atomic_load(&dev->eager), atomic_load(&dev->captures),
                      atomic_load(&dev->given_up), atomic_load(&dev->updates));
}
