/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_HTTP_GET_H
#define PLIM_HTTP_GET_H

/* One question to a monitor, and its answer. Of a failure that it explains, its own words are said. Threads: any. */

#include "base/buf.h"

struct plim_http_get {
    const char *address; /* "HOST:PORT", "http://...", "https://...", "unix:PATH" */
    const char *path;    /* "/metrics" */
    const char *accept;  /* media types, or NULL */
    const char *token;   /* of the server, or NULL */
    uint64_t timeout_ns; /* for all of it */
    size_t most;         /* bytes of the answer */
};

/**
 * plim_http_get() - ask, and append the answer to `out`. Redirections and proxies are not followed.
 * Errors: PLIM_E_UNSUPPORTED no libcurl; PLIM_E_NOINPUT nobody answers there; PLIM_E_DATA another
 * status than 200, or too long an answer; PLIM_E_NOMEM.
 */
PLIM_MUST_USE enum plim_status plim_http_get(const struct plim_http_get *request,
                                             struct plim_buf *out, struct plim_err *err);

/** plim_http_query_put() - append "?name=value", or "&name=value" behind another one, to a path. */
void plim_http_query_put(struct plim_buf *path, const char *name, const char *value);

#endif
