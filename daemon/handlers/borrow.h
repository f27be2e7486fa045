/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NGD_DAEMON_HANDLERS_BORROW_H
#define NGD_DAEMON_HANDLERS_BORROW_H

#include <stdint.h>

/* Casts a constant text to the type of protobuf-c's string fields. They are not const, but packing only reads them. */
static inline char *ngd_borrow(const char *text)
{
    return (char *)(uintptr_t)text;
}

#endif
