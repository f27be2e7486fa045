/* SPDX-License-Identifier: Apache-2.0 */
/* CANN's codes in our words. */
#include "devices/ascend/acl.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ANSWERS   "CANN answers "
#define TEXT_MOST 500 /* characters of CANN's text in a diagnosis */

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

/* Copies CANN's text of several lines to one line: lines are parted by one space each. */
static void flatten_text(const char *text, char *line, size_t room)
{
    size_t n = 0;

    for (; *text && n + 1 < room; text++) {
        const bool space = (unsigned char)*text <= ' ';

        if (!space || (n && line[n - 1] != ' '))
            line[n++] = space ? ' ' : *text;
    }
    while (n && line[n - 1] == ' ')
        n--;
    line[n] = '\0';
}

ngd_status_t ngd_acl_fail(const struct ngd_acl *acl, ngd_acl_error_t code, const char *what, struct ngd_diag *diag)
{
    const struct ngd_acl_error *e = ngd_acl_error_find(code);
    /* The text is this thread's and gone with the next call. */
    const char *text = acl->aclGetRecentErrMsg();
    char line[TEXT_MOST + 1];

    flatten_text(text ? text : "", line, sizeof(line));
    return ngd_diag_set(diag, e->status, "%.200s: " ANSWERS "%d (%s): %s%s%s", what, (int)code, e->name,
                        line[0] ? line : "it gives no text, its log has more (~/ascend/log)", e->advice[0] ? "; " : "",
                        e->advice);
}

const char *ngd_acl_words_of(const struct ngd_diag *diag)
{
    return strstr(diag->text, ANSWERS);
}

ngd_acl_error_t ngd_acl_code_of(const struct ngd_diag *diag)
{
    const char *words = ngd_acl_words_of(diag);

    return words ? (ngd_acl_error_t)strtol(words + strlen(ANSWERS), NULL, 10) : 0;
}
