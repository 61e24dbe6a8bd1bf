/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLIM_HTTP_PARSE_H
#define PLIM_HTTP_PARSE_H

/*
 * Header values and addresses, as strangers send them. All functions are pure; nothing is copied.
 * Grammar: RFC 9110 (Accept-Encoding, Range, ETags, credentials), RFC 6265 (cookies), RFC 6454
 * (Origin).
 */

#include "base/err.h"
#include "base/str.h"

enum plim_encoding {
    PLIM_ENCODING_IDENTITY,
    PLIM_ENCODING_GZIP,
    PLIM_ENCODING_ZSTD,
    PLIM_ENCODINGS
};

/** plim_http_choose_encoding() - the best of ours that Accept-Encoding allows. "" allows none. */
enum plim_encoding plim_http_choose_encoding(struct plim_str accept);

/** plim_http_has_etag() - whether If-None-Match names `etag` (with its quotes) or is "*". */
bool plim_http_has_etag(struct plim_str header, struct plim_str etag);

/* One range of bytes of a file, [from, to). */
enum plim_range {
    PLIM_RANGE_ALL,  /* none asked for, or a form that is ignored: the whole file */
    PLIM_RANGE_PART, /* from and to are set */
    PLIM_RANGE_BAD   /* nothing of the file: 416 */
};
enum plim_range plim_http_range(struct plim_str header, uint64_t size, uint64_t *from,
                                uint64_t *to);

/**
 * plim_http_credentials() - the secret in an Authorization header: of "Bearer X" X, of "Basic X" the
 * password.
 * @room: [n] where a decoded password is written; *out points there or into the header.
 * Returns false when there is none that can be read.
 */
bool plim_http_credentials(struct plim_str header, char *room, size_t n, struct plim_str *out);

/** plim_http_cookie() - value of the first cookie of that name; false: none. */
bool plim_http_cookie(struct plim_str header, struct plim_str name, struct plim_str *out);

/** plim_http_host_name() - "[::1]:80" and "localhost" without the port: "::1", "localhost". */
struct plim_str plim_http_host_name(struct plim_str host);

/** plim_http_is_loopback_name() - 127.0.0.1 and the like, ::1, localhost. */
bool plim_http_is_loopback_name(struct plim_str name);

/** plim_http_same_origin() - whether Origin is a page of the host that was asked. */
bool plim_http_same_origin(struct plim_str origin, struct plim_str host);

/** plim_http_match() - does `path` follow `pattern`? Sets param[] for each {}, two at most. */
bool plim_http_match(const char *pattern, struct plim_str path, struct plim_str param[2],
                     size_t *n);

/** plim_http_same_secret() - compare in a time that depends on the length of `given` only. */
bool plim_http_same_secret(struct plim_str secret, struct plim_str given);

#endif
