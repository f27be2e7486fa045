/* SPDX-License-Identifier: Apache-2.0 */
/* quantize: makes a checkpoint with quantised weights. Needs no daemon. */
#include "client/ctl/ctl.h"
#include "client/hf/npugraph_hf.h"

#include <string.h>

static int quantize_option(const struct ctl_command *command, struct npugraph_quantize *q, const char *name,
                           const char *value)
{
    uint64_t v;

    if (strcmp(name, "to") == 0) {
        q->rows = strcmp(value, "w8a8") == 0;
        q->floats = strcmp(value, "fp8") == 0;
        q->bits = q->rows || q->floats || strcmp(value, "int8") == 0 ? 8 : strcmp(value, "int4") == 0 ? 4 : 0;
        return q->bits != 0 ? 0 : ctl_usage(command, "--to is int8, int4, w8a8 or fp8");
    }
    if (!ctl_parse_uint(value, 1 << 20, &v) || v % 32 != 0)
        return ctl_usage(command, "--group is 0 or a multiple of 32");
    q->group = (int64_t)v;
    return 0;
}

static int report_quantised(struct ctl *ctl, const struct npugraph_quantize *q)
{
    struct ctl_fields *f = ctl_fields_new(ctl, NULL);

    ctl_field_int(f, "Weights quantised", "quantised", q->n_tensors);
    ctl_field_bytes(f, "Before", "bytes_before", q->bytes_before);
    ctl_field_bytes(f, "After", "bytes_after", q->bytes_after);
    ctl_fields_end(f);
    return 0;
}

int ctl_cmd_quantize(struct ctl *ctl, int argc, char **argv)
{
    struct ctl_options o = {ctl_find_command(argv[0]), argc, 1, argv};
    struct npugraph_quantize q = {.group = -1};
    struct npugraph_error err = {0};
    struct ctl_progress bar;
    const char *dir = ctl_next_argument(&o), *name, *value, *out;
    int rc;

    while (dir != NULL && (name = ctl_next_option(&o, "", "to group", &value)) != NULL)
        if (strcmp(name, "?") == 0 || quantize_option(o.command, &q, name, value) != 0)
            return 2;
    out = dir != NULL ? ctl_next_argument(&o) : NULL;
    if (out == NULL || ctl_next_argument(&o) != NULL || q.bits == 0)
        return ctl_usage(o.command,
                         "quantize needs a checkpoint directory, --to int8, int4, w8a8 or fp8, and a new directory");
    if ((q.rows || q.floats) && q.group > 0)
        return ctl_usage(o.command, "--to w8a8 and --to fp8 have a scale for each row: leave out --group");
    if (q.group < 0)
        q.group = q.bits == 4 ? 128 : 0;
    ctl_progress_start(&bar, ctl, "quantizing");
    rc = npugraph_checkpoint_quantize(dir, out, &q, ctl_progress_update, &bar, &err);
    ctl_progress_end(&bar);
    return rc != 0 ? ctl_fail(&err) : report_quantised(ctl, &q);
}
