/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_CLIENT_CTL_CTL_CONTEXT_H
#define NGD_CLIENT_CTL_CTL_CONTEXT_H

#include "client/ctl/ctl.h"

/*
 * Reads the context that --context or $NPUGRAPH_CONTEXT names, else `default`, if it exists and no address is given.
 * Sets the parameters that no option has set; they borrow from ctl->context. Prints what is wrong, and returns false.
 */
bool ctl_context_use(struct ctl *ctl);
void ctl_context_fini(struct ctl_context *context);

#endif
