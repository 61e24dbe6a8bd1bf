/* SPDX-License-Identifier: Apache-2.0 */

/* Addresses of engines as users write them. */

#include "observe/engine_fetch.h"

#include <stdio.h>
#include <stdlib.h>

static enum plim_status refuse(const char *text, const char *why, struct plim_err *err)
{
    plim__err_set(err, PLIM_E_USAGE, "'%.100s' is no address of an engine: %s", text, why);
    plim__err_hint(err, "give [NAME=]http://HOST:PORT, HOST:PORT or unix:PATH");
    return PLIM_E_USAGE;
}

/* The port, when the host is this machine's loopback. "http://" is gone; `host` ends before any path. */
static uint16_t local_port(struct plim_str host, uint16_t initial)
{
    static const char *const locals[] = {"localhost", "127.0.0.1", "[::1]"};
    for (size_t i = 0; i < sizeof(locals) / sizeof(locals[0]); i++) {
        struct plim_str local = plim_str_from(locals[i]);
        if (!plim_str_starts(host, local)) {
            continue;
        }
        struct plim_str rest = plim_str_skip(host, local.n);
        if (rest.n == 0) {
            return initial;
        }
        if (rest.p[0] == ':') {
            unsigned long port = strtoul(rest.p + 1, NULL, 10);
            return port <= UINT16_MAX ? (uint16_t)port : 0;
        }
    }
    return 0;
}

static enum plim_status parse_socket(const char *text, const char *path,
                                     struct plim_engine_address *out, struct plim_err *err)
{
    if (path[0] != '/' || strlen(path) >= sizeof(out->socket)) {
        return refuse(text, "a Unix socket needs an absolute path of at most 107 bytes", err);
    }
    (void)snprintf(out->socket, sizeof(out->socket), "%s", path);
    (void)snprintf(out->url, sizeof(out->url), "http://localhost/metrics");
    if (out->name[0] == '\0') {
        size_t n = strlen(path);
        (void)snprintf(out->name, sizeof(out->name), "%s", path + (n > 63 ? n - 63 : 0));
    }
    return PLIM_OK;
}

enum plim_status plim_engine_address_parse(const struct plim_place *place,
                                           struct plim_engine_address *out, struct plim_err *err)
{
    struct plim_engine_address a = {0};
    const char *text = place->place, *address = plim_place_split(place, a.name);
    if (strncmp(address, "unix:", 5) == 0) {
        PLIM_TRY(parse_socket(text, address + 5, &a, err));
        *out = a;
        return PLIM_OK;
    }
    bool tls = strncmp(address, "https://", 8) == 0;
    const char *host = address + (tls ? 8 : strncmp(address, "http://", 7) == 0 ? 7 : 0);
    size_t n = strcspn(host, "/?#");
    const char *user =
        memchr(host, '@', n); /* name and password are no part of the engine's name */
    const char *plain = user != NULL ? user + 1 : host;
    size_t plain_n = n - (size_t)(plain - host);
    if (plain_n == 0 || (host == address && strstr(address, "://") != NULL)) {
        return refuse(text, plain_n == 0 ? "it has no host" : "only http, https and unix are known",
                      err);
    }
    if (strpbrk(address, " \t\r\n\"") != NULL || strlen(address) > 480) {
        return refuse(text, "it holds blanks, or is too long", err);
    }
    bool bare = host[n] == '\0' || strcmp(host + n, "/") == 0;
    (void)snprintf(a.url, sizeof(a.url), "http%s://%.*s%s", tls ? "s" : "", (int)n, host,
                   bare ? "/metrics" : host + n);
    a.local = local_port((struct plim_str){plain, plain_n}, tls ? 443 : 80);
    if (a.name[0] == '\0') {
        (void)snprintf(a.name, sizeof(a.name), "%.*s", (int)plain_n, plain);
    }
    *out = a;
    return PLIM_OK;
}
