/* SPDX-License-Identifier: Apache-2.0 */
/* Statuses from the one table of plimsoll/status.h, and the filling of struct plim_err. */

#include "base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct status_row {
    const char *name;
    const char *text;
    int exit_code;
    int http;
};

static const struct status_row rows[] = {
#define PLIM__X(name, text, exit_code, http) {#name, text, exit_code, http},
    PLIM_STATUS_MAP(PLIM__X)
#undef PLIM__X
};

static const struct status_row *row_of(enum plim_status status)
{
    unsigned i = (unsigned)status;
    return &rows[i < PLIM_STATUS_COUNT ? i : PLIM_E_INTERNAL];
}

const char *plim_status_text(enum plim_status status)
{
    return row_of(status)->text;
}

const char *plim_status_name(enum plim_status status)
{
    return row_of(status)->name;
}

int plim_status_exit(enum plim_status status)
{
    return row_of(status)->exit_code;
}

int plim_status_http(enum plim_status status)
{
    return row_of(status)->http;
}

void plim_err_clear(struct plim_err *err)
{
    if (err) {
        memset(err, 0, sizeof(*err));
        err->pos = PLIM_POS_NONE;
    }
}

int plim_err_format(const struct plim_err *err, char *buf, size_t n)
{
    char pos[32] = "";
    if (err->pos != PLIM_POS_NONE) {
        snprintf(pos, sizeof(pos), " %llu", (unsigned long long)err->pos);
    }
    const char *sep = err->where[0] || pos[0] ? ": " : "";
    const char *message = err->message[0] ? err->message : plim_status_text(err->status);
    return snprintf(buf, n, "%s%s%s%s%s%s", err->where, pos, sep, message, err->hint[0] ? "\n" : "",
                    err->hint);
}

/* Texts come from files, paths and other machines, and go to terminals and logs: control characters (C0, DEL, and C1,
 * which UTF-8 writes as c2 80 to c2 9f) become '?'. */
PLIM_PRINTF(3, 0) static void put(char *out, size_t size, const char *fmt, va_list args)
{
    vsnprintf(out, size, fmt, args);
    for (unsigned char *p = (unsigned char *)out; *p; p++) {
        if (*p < 0x20 || *p == 0x7f) {
            *p = '?';
        } else if (p[0] == 0xc2 && p[1] >= 0x80 && p[1] <= 0x9f) {
            p[0] = p[1] = '?';
        }
    }
}

void plim__err_set(struct plim_err *err, enum plim_status status, const char *fmt, ...)
{
    if (err) {
        plim_err_clear(err);
        err->status = status;
        va_list args;
        va_start(args, fmt);
        put(err->message, sizeof(err->message), fmt, args);
        va_end(args);
    }
}

void plim__err_set_errno(struct plim_err *err, enum plim_status status, int os_errno,
                         const char *fmt, ...)
{
    if (err) {
        plim_err_clear(err);
        err->status = status;
        err->os_errno = os_errno;
        va_list args;
        va_start(args, fmt);
        put(err->message, sizeof(err->message), fmt, args);
        va_end(args);
        size_t used = strlen(err->message);
        char text[80];
        /* POSIX strerror_r returns int, GNU's returns the text: we are built with _GNU_SOURCE. */
#if defined(__GLIBC__)
        const char *reason = strerror_r(os_errno, text, sizeof(text));
#else
        const char *reason = strerror_r(os_errno, text, sizeof(text)) == 0 ? text : "unknown error";
#endif
        snprintf(err->message + used, sizeof(err->message) - used, ": %s", reason);
    }
}

void plim__err_at(struct plim_err *err, uint64_t pos)
{
    if (err) {
        err->pos = pos;
    }
}

void plim__err_where(struct plim_err *err, const char *fmt, ...)
{
    if (err) {
        va_list args;
        va_start(args, fmt);
        put(err->where, sizeof(err->where), fmt, args);
        va_end(args);
    }
}

void plim__err_hint(struct plim_err *err, const char *fmt, ...)
{
    if (err) {
        va_list args;
        va_start(args, fmt);
        put(err->hint, sizeof(err->hint), fmt, args);
        va_end(args);
    }
}
