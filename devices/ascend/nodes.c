/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The driver's device nodes. CANN says of them only that it sees no device, or a number: which of them is missing, or
 * closed to the daemon's user, is found by looking.
 */
#include "devices/ascend/ascend.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The folder of the nodes: another one in containers that map them elsewhere, and in tests. */
static const char *root(void)
{
    const char *dir = getenv("NGD_ASCEND_DEV_ROOT");

    return dir && *dir ? dir : "/dev";
}

/* What is wrong with a node, in *text; false: nothing. */
static bool is_wrong(const char *name, char *text, size_t room)
{
    char path[256];

    snprintf(path, sizeof(path), "%.160s/%s", root(), name);
    if (access(path, F_OK)) {
        snprintf(text, room,
                 "%s is not there: the driver (HDK) is not loaded, or a container or unit does not pass it on", path);
        return true;
    }
    if (access(path, R_OK | W_OK)) {
        snprintf(text, room,
                 "%s cannot be read and written by user %u: put the daemon's user in the node's group (HwHiAiUser as a "
                 "rule), and allow the node in its unit (DeviceAllow=)",
                 path, (unsigned)geteuid());
        return true;
    }
    return false;
}

void ngd_ascend_explain_nodes(const struct ascend_device *dev, struct ngd_diag *diag)
{
    static const char *const shared[] = {"davinci_manager", "devmm_svm", "hisi_hdc"};
    char own[32], text[480], before[NGD_DIAG_MAX];
    bool wrong;

    snprintf(own, sizeof(own), "davinci%d", (int)dev->index);
    wrong = is_wrong(own, text, sizeof(text));
    for (size_t i = 0; i < sizeof(shared) / sizeof(shared[0]) && !wrong; i++)
        wrong = is_wrong(shared[i], text, sizeof(text));
    if (!wrong || !diag)
        return;
    snprintf(before, sizeof(before), "%s", diag->text);
    ngd_diag_set(diag, diag->status, "%.400s; %s", before, text);
}
