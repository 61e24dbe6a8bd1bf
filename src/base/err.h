/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_BASE_ERR_H
#define PLIM_BASE_ERR_H

/* How the library fills a struct plim_err. See include/plimsoll/status.h for the model. */

#include <plimsoll/status.h>

void plim__err_set(struct plim_err *err, enum plim_status status, const char *fmt, ...)
    PLIM_PRINTF(3, 4);
void plim__err_set_errno(struct plim_err *err, enum plim_status status, int os_errno,
                         const char *fmt, ...) PLIM_PRINTF(4, 5);

static inline enum plim_status plim__status(enum plim_status status)
{
    return status;
}

/*
 * plim__fail(err, status, fmt, ...): fill *err (nullable); the value is `status`, so that
 * `return plim__fail(...)` is the whole exit. A macro, so that compilers and analysers see that the value
 * is not PLIM_OK. `status` is evaluated twice.
 */
#define plim__fail(err, status, ...) (plim__err_set(err, status, __VA_ARGS__), plim__status(status))

/* The same for a failed system call: appends the system's text for os_errno to the message. */
#define plim__fail_errno(err, status, os_errno, ...)                                               \
    (plim__err_set_errno(err, status, os_errno, __VA_ARGS__), plim__status(status))

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
