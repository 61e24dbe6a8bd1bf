/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_STATUS_H
#define PLIM_STATUS_H

/*
 * Status and error: what every call that can fail returns, and what it says about the failure.
 *
 * One table, PLIM_STATUS_MAP, gives the enum, the texts, the exit codes of the program (sysexits)
 * and the HTTP status of the servers. A function that can fail returns `enum plim_status`, takes a
 * nullable `struct plim_err *` as its last parameter, and writes its outputs only on success.
 * The error lives on the caller's stack and has a fixed size, so it also works when memory is out.
 * Threads: a plim_err belongs to one thread; everything else here is pure.
 */

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#    define PLIM_API               __attribute__((visibility("default")))
#    define PLIM_MUST_USE          __attribute__((warn_unused_result))
#    define PLIM_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#else
#    define PLIM_API
#    define PLIM_MUST_USE
#    define PLIM_PRINTF(fmt, args)
#endif

/* X(name, text, exit code, HTTP status). The numbers of the enum are pinned by order: append only. */
#define PLIM_STATUS_MAP(X)                                                                         \
    X(OK, "success", 0, 200)                                                                       \
    X(E_USAGE, "wrong use", 64, 400)                                                               \
    X(E_DATA, "bad data", 65, 422)                                                                 \
    X(E_NOINPUT, "cannot open input", 66, 404)                                                     \
    X(E_UNSUPPORTED, "not supported", 69, 501)                                                     \
    X(E_INTERNAL, "internal error", 70, 500)                                                       \
    X(E_OS, "operating system error", 71, 500)                                                     \
    X(E_CREATE, "cannot create output", 73, 500)                                                   \
    X(E_IO, "input/output error", 74, 500)                                                         \
    X(E_NOMEM, "out of memory", 71, 507)                                                           \
    X(E_BUDGET, "input exceeds a budget", 65, 413)                                                 \
    X(E_UNSAFE, "unsafe input refused", 65, 422)                                                   \
    X(E_TRUNCATED, "input ends too early", 65, 422)                                                \
    X(E_RANGE, "value out of range", 65, 422)                                                      \
    X(E_NOTFOUND, "not found", 66, 404)

enum plim_status {
#define PLIM__X(name, text, exit_code, http) PLIM_##name,
    PLIM_STATUS_MAP(PLIM__X)
#undef PLIM__X
    PLIM_STATUS_COUNT
};

#define PLIM_POS_NONE UINT64_MAX /* plim_err.pos when no position applies */

/* What went wrong, for a stranger: what, where, and what to do next. All strings are NUL-terminated. */
struct plim_err {
    enum plim_status status;
    int os_errno;      /* errno of the failed system call, 0 when none */
    uint64_t pos;      /* byte offset or line in the input (`where` says which), or PLIM_POS_NONE */
    char where[96];    /* "file.pickle: byte" or "segments[12].blocks[3]"; "" when unknown */
    char message[256]; /* one sentence without a full stop */
    char hint[256];    /* the next step for the user, or "" */
};

/** plim_status_text() - fixed English text of a status; never NULL, also for unknown values. */
PLIM_API const char *plim_status_text(enum plim_status status);

/** plim_status_name() - the constant's name without the prefix, "E_DATA"; never NULL. */
PLIM_API const char *plim_status_name(enum plim_status status);

/** plim_status_exit() - exit code of the program for this status (sysexits.h values). */
PLIM_API int plim_status_exit(enum plim_status status);

/** plim_status_http() - HTTP status for this status. */
PLIM_API int plim_status_http(enum plim_status status);

/** plim_err_clear() - make *err say "success". NULL is allowed. */
PLIM_API void plim_err_clear(struct plim_err *err);

/**
 * plim_err_format() - one or two lines for people: "where: pos: message (text)\nhint".
 * @buf: [n] receives a NUL-terminated text, cut at n-1.
 * Returns the length that would have been written, as snprintf does.
 */
PLIM_API int plim_err_format(const struct plim_err *err, char *buf, size_t n);

#ifdef __cplusplus
}
#endif
#endif
