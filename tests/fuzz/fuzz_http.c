/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Fuzz target: what the HTTP server reads of a request by itself: one header value, or path and
 * pattern. The first byte says which. Whatever the rest is, what is found lies inside of it.
 */

#include "http/parse.h"

#include <stdio.h>
#include <stdlib.h>

#define DEMAND(what)                                                                               \
    do {                                                                                           \
        if (!(what)) {                                                                             \
            (void)fprintf(stderr, "fuzz_http: %s\n", #what);                                       \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool inside(struct plim_str part, struct plim_str whole)
{
    return part.n == 0 || (part.p >= whole.p && part.p + part.n <= whole.p + whole.n);
}

static void read_range(struct plim_str s)
{
    uint64_t from, to, size = s.n * 7;
    if (plim_http_range(s, size, &from, &to) == PLIM_RANGE_PART) {
        DEMAND(from < to && to <= size);
    }
}

static void read_credentials(struct plim_str s)
{
    char room[64];
    struct plim_str got;
    if (plim_http_credentials(s, room, sizeof(room), &got)) {
        DEMAND(got.n > 0);
        DEMAND(inside(got, s) || inside(got, (struct plim_str){room, sizeof(room)}));
        DEMAND(plim_http_same_secret(got, got));
    }
}

static void read_path(struct plim_str s)
{
    struct plim_str param[2];
    size_t n;
    if (plim_http_match("/a/{}/b/{}", s, param, &n)) {
        DEMAND(n == 2 && param[0].n > 0 && param[1].n > 0);
        DEMAND(inside(param[0], s) && inside(param[1], s));
        DEMAND(!memchr(param[0].p, '/', param[0].n));
    }
}

static void read_names(struct plim_str s)
{
    struct plim_str got, name = plim_http_host_name(s);
    DEMAND(inside(name, s));
    (void)plim_http_is_loopback_name(name);
    (void)plim_http_same_origin(s, name);
    if (plim_http_cookie(s, PLIM_STR("plimsoll"), &got)) {
        DEMAND(inside(got, s));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) {
        return 0;
    }
    struct plim_str s = {(const char *)data + 1, size - 1};
    switch (data[0] % 5) {
    case 0:
        read_range(s);
        break;
    case 1:
        read_credentials(s);
        break;
    case 2:
        read_path(s);
        break;
    case 3:
        read_names(s);
        break;
    default:
        DEMAND(plim_http_choose_encoding(s) < PLIM_ENCODINGS);
        (void)plim_http_has_etag(s, PLIM_STR("\"0123-g\""));
        break;
    }
    return 0;
}
