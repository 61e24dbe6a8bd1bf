/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_BASE_ERR_H
#define PLIM_BASE_ERR_H

/* How the library fills a struct plim_err. See include/plimsoll/status.h for the model. */

#include <plimsoll/status.h>

/* Fill *err (nullable) and return `status`, so that `return plim__fail(...)` is the whole exit. */
enum plim_status plim__fail(struct plim_err *err, enum plim_status status, const char *fmt, ...)
    PLIM_PRINTF(3, 4);

/* The same for a failed system call: appends strerror(errno) to the message. */
enum plim_status plim__fail_errno(struct plim_err *err, enum plim_status status, int os_errno,
                                  const char *fmt, ...) PLIM_PRINTF(4, 5);

/* Add a position, a place or a hint to an error that is already set; no-ops when err is NULL. */
void plim__err_at(struct plim_err *err, uint64_t pos);
void plim__err_where(struct plim_err *err, const char *fmt, ...) PLIM_PRINTF(2, 3);
void plim__err_hint(struct plim_err *err, const char *fmt, ...) PLIM_PRINTF(2, 3);

/* Evaluate once; leave the function with its status when it is not PLIM_OK. */
#define PLIM_TRY(expr)                                                                             \
    do {                                                                                           \
        enum plim_status plim__st = (expr);                                                        \
        if (plim__st != PLIM_OK) {                                                                 \
            return plim__st;                                                                       \
        }                                                                                          \
    } while (0)

/* The same for functions with a clean-up label: stores the status in the local `st` and jumps. */
#define PLIM_TRY_GOTO(st, expr, label)                                                             \
    do {                                                                                           \
        (st) = (expr);                                                                             \
        if ((st) != PLIM_OK) {                                                                     \
            goto label;                                                                            \
        }                                                                                          \
    } while (0)

#endif
