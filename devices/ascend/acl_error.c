/* SPDX-License-Identifier: Apache-2.0 */
/* CANN's codes in our words. */
#include "devices/ascend/acl.h"
#include <stdio.h>
#include <string.h>

static const struct ngd_acl_error errors[] = {
#define NGD_ACL_ERROR(code, name, status, advice) {code, name, NGD_ERR_##status, advice},
#include "devices/ascend/acl_errors.def"
#undef NGD_ACL_ERROR
};

/* Codes from 500000 on come from the device and its driver. */
static const struct ngd_acl_error unknown_call = {0, "an unknown code", NGD_ERR_INTERNAL, ""};
static const struct ngd_acl_error unknown_device = {0, "an unknown code of the device", NGD_ERR_DEVICE_FAULT, ""};

const struct ngd_acl_error *ngd_acl_error_find(ngd_acl_error_t code)
{
    for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++)
        if (errors[i].code == code)
            return &errors[i];
    return code >= 500000 && code < 600000 && code / 1000 != 561 ? &unknown_device : &unknown_call;
}

ngd_status_t ngd_acl_fail(const struct ngd_acl *acl, ngd_acl_error_t code, const char *what, struct ngd_diag *diag)
{
    const struct ngd_acl_error *e = ngd_acl_error_find(code);
    /* The text is this thread's and gone with the next call. */
    const char *text = acl->aclGetRecentErrMsg();

    return ngd_diag_set(diag, e->status, "%.200s: CANN answers %d (%s)%s%.500s%s%s", what, (int)code, e->name,
                        text && *text ? ": " : "", text ? text : "", e->advice[0] ? "; " : "", e->advice);
}
